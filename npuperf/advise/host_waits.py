"""Places where the host waits for the device by itself or for a value, so that the device then waits for the host."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.advise.needs import (
    CALLS_AND_OPERATORS,
    DYNAMIC_GRAPH,
    HOST_DOINGS,
    RUNTIME_CALLS,
    Need,
    Option,
    to_rule_out,
    variable,
    where_host_bound,
)
from npuperf.advise.rule import Answer, Detected, rule
from npuperf.base.messages import Message, chain, ns, say, say_n, series
from npuperf.device.mode import is_compiled, is_graph_run
from npuperf.device.view import DeviceView
from npuperf.model.labels import I64
from npuperf.model.result import SyncSite

#: Torch operators whose result has a size that depends on values, so that the host reads it from the device, and the
#: run of a graph, whose own waits do the same. They are a question of their own.
SIZED_BY_VALUES: Final = re.compile(
    r"^aten::(nonzero|argwhere|_?unique2?|unique_\w+|masked_select|repeat_interleave|bincount|index|index_put_?)$"
)
GRAPH_RUN: Final = "TorchNpuGraphBase::Run"


#: Reads of values stand for the waits inside of them: with them problems can be found, but not ruled out.
_CALLS: Final = to_rule_out(RUNTIME_CALLS)


#: Waits that are not the program's: a profiler's, and torch's where it compiles or captures graphs.
_OTHERS: Final = ("profiler", "compile", "capture")


class Costly(Struct, frozen=True):
    """A place whose waits cost something, and how much per step (ns, least and most)."""

    site: SyncSite
    gain: tuple[int, int]


def costly(view: DeviceView, chosen: Callable[[SyncSite], bool]) -> list[Costly]:
    """Return the chosen places whose waits cost a notable part of a step, the costliest first.

    What lies before the window cannot be replayed: it may cost nothing, or all of its length. So may the idle time in
    which a copy is prepared, which need not be where the host does not wait for it.
    """
    least = max(view.thresholds.cause_share * view.per_step(view.partition.span_ns), 1)
    found = []
    for site in view.report.syncs:
        if chosen(site) and site.purpose not in _OTHERS and site.gain_ns_per_step:
            low, high = site.gain_ns_per_step
            if site.purpose == "step_end":  # who needs the step's results, as a checkpoint does, has to wait
                low = 0
            open_ = site.before_ns + (site.held_ns if site.kind in ("htod", "copy") else 0)
            found.append(Costly(site, (low, max(high, view.per_step(open_)))))
    return sorted((c for c in found if c.gain[1] >= least), key=lambda c: c.gain, reverse=True)


def reads_values(site: SyncSite) -> bool:
    """Tell a wait for values that shapes depend on: see value_dependent."""
    op = site.torch_op or ""
    return op == GRAPH_RUN or bool(SIZED_BY_VALUES.match(op))


def called(site: SyncSite) -> str | Message:
    """Return the call that waits with its code line, where that is known."""
    call = site.torch_op or site.name
    return say("{call} at {place}", call=call, place=site.where) if site.where else call


def detected(sites: list[Costly], title: Message, refute: Message, next: Message | tuple[Option, ...]) -> Detected:
    """Return the answer about the costliest of some places, the first."""
    worst = sites[0]
    site = worst.site
    return Detected(
        title=title,
        evidence={
            "call": site.name,
            "kind": site.kind,
            "torch_op": site.torch_op,
            "where": site.where,
            "count": site.count,
            "host_ns": site.host_ns,
            "idle_after_ns": site.idle_ns,
            "pinned": site.pinned,
            "purpose": site.purpose,
            "places": len(sites),
        },
        gain=worst.gain,
        refute=refute,
        next=next,
    )


@rule(
    say("synchronisations"),
    say("replay without the wait; synchronising calls of the runtime in the timeline"),
    (*HOST_DOINGS, *where_host_bound(*_CALLS)),
    any_device=True,
    relieves="host",
)
def sync_points(view: DeviceView) -> Answer:
    """Name the place whose waits cost most; blocking copies to the device are a question of their own."""
    sites = costly(view, lambda site: site.kind not in ("htod", "copy") and not reads_values(site))
    if not sites:
        return None
    site = sites[0].site
    call = called(site)
    title = say_n("the host waits for the device in {call} ({n} time)",
                  "the host waits for the device in {call} ({n} times)", site.count, call=call)  # fmt: skip
    advice = say("remove the wait from the step, or let streams wait for each other on the device")
    if site.purpose == "step_end":
        title = say_n("the host waits for the device in {call}, after all work of a step ({n} time)",
                      "the host waits for the device in {call}, after all work of a step ({n} times)",
                      site.count, call=call)  # fmt: skip
        advice = say(
            "a wait on purpose? To measure, take many steps and wait once after the last, or record events; what needs "
            "the step's results, as a checkpoint does, has to wait, and can do so less often"
        )
    elif site.kind == "dtoh":
        title = say_n("the host waits for values from the device in {call} ({n} time)",
                      "the host waits for values from the device in {call} ({n} times)",
                      site.count, call=call)  # fmt: skip
        advice = say(
            "keep values on the device (no .item(), .cpu(), print or if on tensors in the step); log only every N steps"
        )
    elif site.kind in ("stream", "dtod"):
        if site.kind == "stream":
            title = say_n("the host waits for a stream in {call} ({n} time)",
                          "the host waits for a stream in {call} ({n} times)", site.count, call=call)  # fmt: skip
        advice = say(
            "let the streams wait for each other on the device (stream.wait_stream(other), stream.wait_event(event)) "
            "instead of stream.synchronize() on the host"
        )
    elif site.kind == "event":
        title = say_n("the host waits for an event of the device in {call} ({n} time)",
                      "the host waits for an event of the device in {call} ({n} times)",
                      site.count, call=call)  # fmt: skip
        advice = say("let a stream wait for the event (stream.wait_event(event)) instead of event.synchronize(), "
                     "or ask event.query() later")  # fmt: skip
    elif site.kind == "device":
        title = say_n("the host waits for the whole device in {call} ({n} time)",
                      "the host waits for the whole device in {call} ({n} times)", site.count, call=call)  # fmt: skip
        advice = say("remove synchronize() from the step; to measure time, record events and read them after the last "
                     "step")  # fmt: skip
    return detected(sites, title, say("the step takes just as long without the call"), advice)


# -- ASCEND_LAUNCH_BLOCKING=1: every launch waits for its kernel, which makes any program host-bound.


@rule(
    say("blocking launches"),
    say("environment in profiler_metadata.json (ENV_VARIABLES) or npuperf.json"),
    (variable("ASCEND_LAUNCH_BLOCKING"),),
    relieves="host",
)
def launch_blocking(view: DeviceView) -> Answer:
    """Look at the recorded environment."""
    value = view.traits.environment.get("ASCEND_LAUNCH_BLOCKING")
    if not value or not view.traits.blocking:
        return None
    return Detected(
        title=say(
            "{name}={value} was set: the host waited for every kernel, so this profile does not show the program's "
            "usual pace",
            name="ASCEND_LAUNCH_BLOCKING",
            value=value,
        ),
        evidence={"ASCEND_LAUNCH_BLOCKING": value, "host_wait_ns": view.partition.host_wait_ns},
        refute=say("the profile looks the same without the variable"),
        next=say("unset {name} and profile again", name="ASCEND_LAUNCH_BLOCKING"),
        severity="high",
    )


# -- Operators whose shapes depend on values: the host reads these from the device before it can launch what follows.

_CANN: Final = say(
    "CANN on dynamic-shape scheduling: operators that infer shapes or tile by values wait for the stream and copy them"
)
#: Kernel types that are named.
_NAMED: Final = 3
#: What has a fixed size instead.
_FIXED_SIZE: Final = {
    "nonzero": say("torch.nonzero_static with a fixed size, or torch.where(mask, a, b)"),
    "argwhere": say("torch.nonzero_static with a fixed size, or torch.where(mask, a, b)"),
    "masked_select": say("torch.where(mask, a, b), or a product with the mask"),
    "index": say("torch.where(mask, a, b) or a product with the mask in place of x[mask]"),
    "index_put_": say("torch.where or masked_fill in place of x[mask] = y"),
    "index_put": say("torch.where or masked_fill in place of x[mask] = y"),
    "repeat_interleave": say("repeat_interleave(…, output_size=n)"),
    "bincount": say("scatter_add_ into a tensor of fixed size"),
}
_SHAPES_ON_HOST: Final = Option(
    say(
        "compute what shapes depend on from values of the host (shapes, Python numbers, CPU inputs of at most 8 "
        "elements): GE then keeps these small operators on the host"
    ),
    _CANN,
    (DYNAMIC_GRAPH,),
)
_OTHERWISE: Final = say("an operator of fixed output size, or the values on the host before the step begins")


@rule(
    say("shapes that depend on values"),
    say("waits in the timeline, replay without them; PyTorch on operators whose output size depends on values"),
    CALLS_AND_OPERATORS,
    any_device=True,
    relieves="host",
)
def value_dependent(view: DeviceView) -> Answer:
    """Name the costliest place; in a graph also the kernels that were launched once the values were there."""
    in_graph = _waits_in_graphs(view)

    def by_operator(site: SyncSite) -> bool:
        return bool(SIZED_BY_VALUES.match(site.torch_op or ""))

    def place(site: SyncSite) -> _Place:
        return site.name, site.torch_op, site.where, site.kind

    sites = costly(view, lambda site: site.purpose is None and (by_operator(site) or place(site) in in_graph))
    if not sites:
        return None
    worst = sites[0].site
    refute = say("the step takes just as long with shapes that do not depend on values")
    if by_operator(worst):
        title = say_n("{call} makes the host read the size of its result from the device ({n} time)",
                      "{call} makes the host read the size of its result from the device ({n} times)",
                      worst.count, call=called(worst))  # fmt: skip
        fixed = _FIXED_SIZE.get((worst.torch_op or "").removeprefix("aten::"), _OTHERWISE)
        return detected(sites, title, refute, say("use what has a fixed size: {instead}", instead=fixed))
    title = say_n("the graph waits for values from the device in {call} ({n} time)",
                  "the graph waits for values from the device in {call} ({n} times)",
                  worst.count, call=worst.name)  # fmt: skip
    types = _launched_next(view, in_graph.get(place(worst)))
    title = chain(title, say("next it launches {types}", types=series(types)) if types else None)
    of_fixed_size = Option(say("use what has a fixed size: {instead}", instead=_OTHERWISE), _CANN)
    return detected(sites, title, refute, (_SHAPES_ON_HOST, of_fixed_size))


#: Call, torch operator, code line and kind of a wait.
_Place = tuple[str, str | None, str | None, str]


def _waits_in_graphs(view: DeviceView) -> dict[_Place, I64]:
    """Return the places that lie within the run of a graph, with their calls; a graph that waits nowhere has none.

    A copy to the device there brings inputs, and a wait for the whole device is the program's.
    """
    if not is_compiled(view.mode) or not len(view.study.syncs):
        return {}
    nesting, syncs = view.study.nesting, view.study.syncs
    inside = nesting.nearest(
        syncs.event, nesting.events.name.flag([is_graph_run(n) for n in nesting.events.name.names])
    )
    return {
        (point.name, point.op, point.where, point.kind): point.calls
        for point in view.study.points
        if point.kind not in ("htod", "device") and (point.op == GRAPH_RUN or (inside[point.calls] >= 0).all())
    }


def _launched_next(view: DeviceView, calls: I64 | None) -> list[str]:
    """Return the types of the kernels that were launched next after each wait, the most frequent first."""
    tasks, syncs = view.study.profile.tasks, view.study.syncs
    launched = np.flatnonzero(tasks.launched)
    if calls is None or not len(launched):
        return []
    calls = calls[view.study.syncs_of(view.span)[calls]]
    launched = launched[np.argsort(tasks.launch_start[launched], kind="stable")]
    at = np.searchsorted(tasks.launch_start[launched], syncs.end[calls])
    codes = view.study.types.codes[launched[at[at < len(launched)]]]
    names, counts = np.unique(codes[codes >= 0], return_counts=True)
    return [view.study.types.names[c] for c in names[np.argsort(-counts, kind="stable")][:_NAMED].tolist()]


# -- Copies between host and device in which the host waits: pageable memory, or a copy that is asked to block.


def _calls_where_waited(view: DeviceView) -> float:
    """Ask for the runtime's calls wherever the device notably waits for the host, whatever bounds the run."""
    waits = view.partition.host_wait_ns >= view.thresholds.cause_share * view.partition.span_ns
    return view.part(RUNTIME_CALLS.recorded) if waits else 1.0


#: What rules need that look for single calls of the runtime.
HOST_CALLS: Final = (*HOST_DOINGS, Need(RUNTIME_CALLS.what, _calls_where_waited, RUNTIME_CALLS.supply))


@rule(
    say("blocking copies"),
    say(
        "copies and waits in the timeline, replay without the wait; a copy to the device lets the host go on only from "
        "pinned memory and with non_blocking=True (PyTorch)"
    ),
    HOST_CALLS,
    any_device=True,
    relieves="host",
)
def blocking_copies(view: DeviceView) -> Answer:
    """Name the place whose copies cost most."""
    sites = costly(view, lambda site: site.kind in ("htod", "copy"))
    if not sites:
        return None
    site = sites[0].site
    call, waited = called(site), ns(site.host_ns)
    title = say_n("the host waits {waited} for copies to the device in {call} ({n} time)",
                  "the host waits {waited} for copies to the device in {call} ({n} times)",
                  site.count, waited=waited, call=call)  # fmt: skip
    if site.kind == "copy":
        title = say_n("the host waits {waited} for copies between host and device, in a direction that is not "
                      "recorded, in {call} ({n} time)",
                      "the host waits {waited} for copies between host and device, in a direction that is not "
                      "recorded, in {call} ({n} times)", site.count, waited=waited, call=call)  # fmt: skip
        newer = say("newer CANN records the direction (operation of MEMCPY_ASYNC)")
        advice = chain(
            say(
                "to the device: copy from pinned memory (DataLoader(pin_memory=True)) with non_blocking=True; to the "
                "host: keep the values on the device"
            ),
            None if view.profile.kineto else newer,
        )
    elif site.pinned:
        advice = say("the memory is pinned: add non_blocking=True to the copy (.to(device, non_blocking=True))")
    elif site.pinned is False:
        title = say_n("the host waits {waited} for copies of pageable memory to the device in {call} ({n} time)",
                      "the host waits {waited} for copies of pageable memory to the device in {call} ({n} times)",
                      site.count, waited=waited, call=call)  # fmt: skip
        advice = say(
            "keep batches in pinned memory (DataLoader(pin_memory=True) or .pin_memory()) and copy with "
            "non_blocking=True"
        )
    else:
        advice = say(
            "keep batches in pinned memory (DataLoader(pin_memory=True) or .pin_memory()) and copy with "
            "non_blocking=True: one of the two is missing, which one is not recorded"
        )
    return detected(sites, title, say("the step takes just as long with the batch already on the device"), advice)
