"""Kernels that use few of the chip's cores."""

from __future__ import annotations

import numpy as np

from npuperf.advise.rule import View, finding, quote, top_types
from npuperf.cores.blocks import blocks, occupancy
from npuperf.documents.analysis import Finding
from npuperf.model.labels import F64
from npuperf.model.thresholds import Thresholds
from npuperf.units import percent

TITLE = "idle cores"
SOURCE = "Block Dim and Mix Block Dim against the core counts"


def needs(view: View) -> str | None:
    """Core counts and block counts must be known."""
    if view.cores.cube is None:
        return "core counts are unknown: analyze the folder with PROF_*/device_*/info.json.*, or give --cores or --soc"
    if not (view.tasks.block > 0).any():
        return "Block Dim is not recorded: npuperf profile --level 1"
    if not (_busiest(view) > 0).any():
        return "the number of vector cores is unknown: give --cores or --soc"
    return None


def _busiest(view: View) -> F64:
    """Return the share of cores each task keeps busy on the side that it fills most, -1 unknown."""
    used = blocks(view.tasks)
    both = np.stack([occupancy(used.cube, view.cores.cube), occupancy(used.vector, view.cores.vector)])
    share: F64 = np.nanmax(np.where(np.isnan(both), -1.0, both), axis=0)
    return share


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Compare the core time that kernels occupy with what they could while they run."""
    busiest = _busiest(view)
    chosen = view.compute & (busiest > 0)
    dur = view.tasks.dur[chosen]
    total = int(dur.sum())
    unused = (1 - busiest[chosen]) * dur
    share = float(unused.sum()) / total if total else 0.0
    if share < thresholds.idle_core_share:
        return None
    rows = top_types(view, chosen & (busiest < 1))
    return finding(
        view,
        "idle_cores",
        "problem",
        f"kernels leave {percent(share)} of the cores idle while they run: {quote(rows)}",
        evidence={
            "idle_share_of_busy_core_time": share,
            "count": int((busiest[chosen] < 1).sum()),
            "types": rows,
        },
        gain=(0, view.per_step(min(int(unused.sum()), view.exposed(chosen)))),
        refute="a larger batch takes longer in proportion (the most assumes perfectly divisible work)",
        next="raise the batch or fuse so that kernels have more blocks, or run independent streams side by side",
        source=SOURCE,
    )
