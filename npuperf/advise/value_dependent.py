"""Operators whose shapes depend on values: the host reads these from the device before it can launch what follows."""

from __future__ import annotations

from typing import Final

import numpy as np

from npuperf.advise.needs import CALLS_AND_OPERATORS
from npuperf.advise.requirements import DYNAMIC_GRAPH, Option
from npuperf.advise.rule import Answer, Rule
from npuperf.advise.sync_points import GRAPH_RUN, SIZED_BY_VALUES, called, costly, detected
from npuperf.documents.analysis import SyncSite
from npuperf.host.mode import is_compiled, is_graph_run
from npuperf.host.syncs import SyncPoint
from npuperf.messages import Message, chain, say, say_n, series
from npuperf.model.labels import I64
from npuperf.scopes.view import DeviceView

TITLE = say("shapes that depend on values")
SOURCE = say("waits in the timeline, replay without them; PyTorch on operators whose output size depends on values")
_CANN: Final = say(
    "CANN on dynamic-shape scheduling: operators that infer shapes or tile by values wait for the stream and copy them"
)
#: Kernel types that are named.
_NAMED: Final = 3
#: What has a fixed size instead.
_FIXED: Final = {
    "nonzero": say("torch.nonzero_static with a fixed size, or torch.where(mask, a, b)"),
    "argwhere": say("torch.nonzero_static with a fixed size, or torch.where(mask, a, b)"),
    "masked_select": say("torch.where(mask, a, b), or a product with the mask"),
    "index": say("torch.where(mask, a, b) or a product with the mask in place of x[mask]"),
    "index_put_": say("torch.where or masked_fill in place of x[mask] = y"),
    "index_put": say("torch.where or masked_fill in place of x[mask] = y"),
    "repeat_interleave": say("repeat_interleave(…, output_size=n)"),
    "bincount": say("scatter_add_ into a tensor of fixed size"),
}
_ON_HOST: Final = Option(
    say(
        "compute what shapes depend on from values of the host (shapes, Python numbers, CPU inputs of at most 8 "
        "elements): GE then keeps these small operators on the host"
    ),
    _CANN,
    (DYNAMIC_GRAPH,),
)
_OTHERWISE: Final = say("an operator of fixed output size, or the values on the host before the step begins")
_OF_FIXED_SIZE: Final = Option(say("use what has a fixed size: {instead}", instead=_OTHERWISE), _CANN)


def judge(view: DeviceView) -> Answer:
    """Name the costliest place; in a graph also the kernels that were launched once the values were there."""
    nested = _nested(view)
    sites = costly(view, lambda site: site.purpose is None and (_by_operator(site) or _key(site) in nested))
    if not sites:
        return None
    worst = sites[0].site
    refute = say("the step takes just as long with shapes that do not depend on values")
    if _by_operator(worst):
        title = say_n("{call} makes the host read the size of its result from the device ({n} time)",
                      "{call} makes the host read the size of its result from the device ({n} times)",
                      worst.count, call=called(worst))  # fmt: skip
        return detected(sites, title, refute, _advice(worst))
    title = _graph_title(view, worst, nested.get(_key(worst)))
    return detected(sites, title, refute, (_ON_HOST, _OF_FIXED_SIZE))


def _by_operator(site: SyncSite) -> bool:
    return bool(SIZED_BY_VALUES.match(site.torch_op or ""))


def _key(place: SyncSite | SyncPoint) -> tuple[str, str | None, str | None, str]:
    op = place.op if isinstance(place, SyncPoint) else place.torch_op
    return place.name, op, place.where, place.kind


def _nested(view: DeviceView) -> dict[tuple[str, str | None, str | None, str], I64]:
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
        _key(point): point.calls
        for point in view.study.points
        if point.kind not in ("htod", "device") and (point.op == GRAPH_RUN or (inside[point.calls] >= 0).all())
    }


def _graph_title(view: DeviceView, site: SyncSite, calls: I64 | None) -> Message:
    """Say what a graph waits for, and what is launched then."""
    title = say_n("the graph waits for values from the device in {call} ({n} time)",
                  "the graph waits for values from the device in {call} ({n} times)",
                  site.count, call=site.name)  # fmt: skip
    types = _followers(view, calls)
    return chain(title, say("next it launches {types}", types=series(types)) if types else None)


def _followers(view: DeviceView, calls: I64 | None) -> list[str]:
    """Return the types of the kernels that were launched next after each wait, the most frequent first."""
    tasks, syncs = view.study.profile.tasks, view.study.syncs
    launched = np.flatnonzero(tasks.launched)
    if calls is None or not len(launched):
        return []
    launched = launched[np.argsort(tasks.launch_start[launched], kind="stable")]
    at = np.searchsorted(tasks.launch_start[launched], syncs.end[calls])
    codes = view.study.types.codes[launched[at[at < len(launched)]]]
    names, counts = np.unique(codes[codes >= 0], return_counts=True)
    return [view.study.types.names[c] for c in names[np.argsort(-counts, kind="stable")][:_NAMED].tolist()]


def _advice(site: SyncSite) -> Message:
    fixed = _FIXED.get((site.torch_op or "").removeprefix("aten::"), _OTHERWISE)
    return say("use what has a fixed size: {instead}", instead=fixed)


RULE = Rule(
    "value_dependent",
    TITLE,
    SOURCE,
    CALLS_AND_OPERATORS,
    judge,
    any_device=True,
    relieves="host",
)
