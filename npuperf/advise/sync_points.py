"""Places where the host waits for the device by itself or for a value, so that the device then waits for the host."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from npuperf.advise.needs import HOST_DOINGS, RUNTIME_CALLS, to_rule_out, where_host_bound
from npuperf.advise.requirements import Option
from npuperf.advise.rule import Answer, Detected, Rule
from npuperf.documents.analysis import SyncSite
from npuperf.messages import Message, say, say_n
from npuperf.scopes.view import DeviceView

TITLE = say("synchronisations")
SOURCE = say("replay without the wait; synchronising calls of the runtime in the timeline")


#: Torch operators whose result has a size that depends on values, so that the host reads it from the device, and the
#: run of a graph, whose own waits do the same. They are a question of their own.
SIZED_BY_VALUES: Final = re.compile(
    r"^aten::(nonzero|argwhere|_?unique2?|unique_\w+|masked_select|repeat_interleave|bincount|index|index_put_?)$"
)
GRAPH_RUN: Final = "TorchNpuGraphBase::Run"


#: Reads of values stand for the waits inside of them: with them problems can be found, but not ruled out.
_CALLS: Final = to_rule_out(RUNTIME_CALLS)


class Costly(Struct, frozen=True):
    """A place whose waits cost something, and how much per step (ns, least and most)."""

    site: SyncSite
    gain: tuple[int, int]


def costly(view: DeviceView, chosen: Callable[[SyncSite], bool]) -> list[Costly]:
    """Return the chosen places whose waits cost a notable part of a step, the costliest first.

    What lies before the first task of the window cannot be replayed: it may cost nothing, or all of its length.
    """
    least = max(view.thresholds.cause_share * view.per_step(view.partition.span_ns), 1)
    found = []
    for site in view.report.syncs:
        if chosen(site) and site.purpose != "profiler" and site.gain_ns_per_step:
            low, high = site.gain_ns_per_step
            if site.purpose == "step_end":  # who needs the step's results, as a checkpoint does, has to wait
                low = 0
            found.append(Costly(site, (low, max(high, view.per_step(site.before_ns)))))
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


def judge(view: DeviceView) -> Answer:
    """Name the place whose waits cost most; blocking copies to the device are a question of their own."""
    sites = costly(view, lambda site: site.kind not in ("htod", "copy") and not reads_values(site))
    if not sites:
        return None
    worst = sites[0].site
    return detected(sites, _title(worst), say("the step takes just as long without the call"), _advice(worst))


def _title(site: SyncSite) -> Message:
    call, count = called(site), site.count
    if site.purpose == "step_end":
        return say_n("the host waits for the device in {call}, after all work of a step ({n} time)",
                     "the host waits for the device in {call}, after all work of a step ({n} times)",
                     count, call=call)  # fmt: skip
    if site.kind == "dtoh":
        return say_n("the host waits for values from the device in {call} ({n} time)",
                     "the host waits for values from the device in {call} ({n} times)", count, call=call)  # fmt: skip
    if site.kind == "stream":
        return say_n("the host waits for a stream in {call} ({n} time)",
                     "the host waits for a stream in {call} ({n} times)", count, call=call)  # fmt: skip
    if site.kind == "event":
        return say_n("the host waits for an event of the device in {call} ({n} time)",
                     "the host waits for an event of the device in {call} ({n} times)", count, call=call)  # fmt: skip
    if site.kind == "device":
        return say_n("the host waits for the whole device in {call} ({n} time)",
                     "the host waits for the whole device in {call} ({n} times)", count, call=call)  # fmt: skip
    return say_n("the host waits for the device in {call} ({n} time)",
                 "the host waits for the device in {call} ({n} times)", count, call=call)  # fmt: skip


def _advice(site: SyncSite) -> Message:
    if site.purpose == "step_end":
        return say(
            "a wait on purpose? To measure, take many steps and wait once after the last, or record events; what needs "
            "the step's results, as a checkpoint does, has to wait, and can do so less often"
        )
    if site.kind == "dtoh":
        return say(
            "keep values on the device (no .item(), .cpu(), print or if on tensors in the step); log only every N steps"
        )
    if site.kind in ("stream", "dtod"):
        return say(
            "let the streams wait for each other on the device (stream.wait_stream(other), stream.wait_event(event)) "
            "instead of stream.synchronize() on the host"
        )
    if site.kind == "event":
        return say("let a stream wait for the event (stream.wait_event(event)) instead of event.synchronize(), "
                   "or ask event.query() later")  # fmt: skip
    if site.kind == "device":
        return say("remove synchronize() from the step; to measure time, record events and read them after the last "
                   "step")  # fmt: skip
    return say("remove the wait from the step, or let streams wait for each other on the device")


RULE = Rule(
    "sync_points",
    TITLE,
    SOURCE,
    (*HOST_DOINGS, *where_host_bound(*_CALLS)),
    judge,
    any_device=True,
    relieves="host",
)
