"""Kernels of dynamic shape: the host infers shapes and tiles before each launch."""

from __future__ import annotations

from npuperf.advise.rule import View, finding, lacks_host_events, quote, top_types
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds
from npuperf.units import percent

TITLE = "dynamic shapes"
SOURCE = "OP State column; CANN on dynamic-shape scheduling: InferShape, Tiling and AllocMem precede every launch"


def needs(view: View) -> str | None:
    """The state column and launches must be recorded, and the host's tiling calls."""
    known = bool(view.tasks.state.known().any())
    return lacks_host_events(
        view, (known, "OP State is not recorded: it needs CANN 8 or newer and npuperf profile --level 1")
    )


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Dynamic shape costs host time, so it matters only where the device waits for shapes and tiling."""
    share, rows = dynamic_share(view)
    waited = view.blamed("tiling")
    if (
        not view.host_bound
        or share < thresholds.dynamic_share
        or waited < thresholds.cause_share * view.partition.span_ns
    ):
        return None
    return finding(
        view,
        "dynamic_shape",
        "problem",
        f"{percent(share)} of compute time is in kernels compiled for dynamic shape: {quote(rows)}",
        evidence={"share_of_compute": share, "tiling_wait_ns": waited, "types": rows},
        gain=view.predict("host:tiling*0"),
        refute="host wait stays the same with fixed shapes (padded batch and sequence length) in a compiled graph",
        next="fix the shapes and compile the step as a static graph; where they must vary, pad to a few sizes",
        source=SOURCE,
    )


def dynamic_share(view: View) -> tuple[float, list[dict[str, object]]]:
    """Return the share of compute time in kernels of dynamic shape, and their types."""
    chosen = view.compute & view.tasks.dynamic
    total = int(view.tasks.dur[view.compute].sum())
    return (int(view.tasks.dur[chosen].sum()) / total if total else 0.0), top_types(view, chosen)
