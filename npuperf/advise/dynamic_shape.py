"""Kernels of dynamic shape: the host infers shapes and tiles before each launch."""

from __future__ import annotations

from npuperf.advise.launch_remedies import MAX_AUTOTUNE, PADDED, STATIC_GRAPH
from npuperf.advise.needs import HOST_DOINGS, STATES, where_host_bound
from npuperf.advise.requirements import DYNAMIC_SHAPES
from npuperf.advise.rule import Answer, Detected, Rule, TypeRow, quote, top_types
from npuperf.host.mode import is_compiled
from npuperf.messages import say, share
from npuperf.scopes.view import DeviceView

TITLE = say("dynamic shapes")
SOURCE = say("OP State column; CANN on dynamic-shape scheduling: InferShape, Tiling and AllocMem precede every launch")


def judge(view: DeviceView) -> Answer:
    """Dynamic shape costs host time, so it matters only where the device waits for shapes and tiling."""
    part, rows = dynamic_share(view)
    waited = view.blamed("tiling")
    seldom = part < view.thresholds.dynamic_share or waited < view.thresholds.cause_share * view.partition.span_ns
    if not view.host_bound or seldom:
        return None
    return Detected(
        title=say("{share} of compute time is in kernels compiled for dynamic shapes: {types}",
                  share=share(part), types=quote(rows)),
        evidence={"share_of_compute": part, "tiling_wait_ns": waited, "types": rows},
        gain=view.predict("host:tiling*0"),
        refute=say("waiting for the host stays the same with fixed shapes (padded batch and sequence length)"),
        next=(STATIC_GRAPH, PADDED) if is_compiled(view.mode) else (MAX_AUTOTUNE, PADDED),
    )  # fmt: skip


def dynamic_share(view: DeviceView) -> tuple[float, list[TypeRow]]:
    """Return the share of compute time in kernels of dynamic shape, and their types."""
    chosen = view.compute & view.tasks.dynamic
    total = int(view.tasks.dur[view.compute].sum())
    return (int(view.tasks.dur[chosen].sum()) / total if total else 0.0), top_types(view, chosen)


RULE = Rule(
    "dynamic_shape",
    TITLE,
    SOURCE,
    (*HOST_DOINGS, *where_host_bound(STATES)),
    judge,
    relieves="host",
    requires=(DYNAMIC_SHAPES,),
)
