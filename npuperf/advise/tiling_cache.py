"""Operators that see more shapes than the tiling cache holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuperf.advise.rule import View, finding, is_graph_mode, lacks_host_events
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds

TITLE = "tiling cache"
SOURCE = "GE: the tiling cache keeps 120 entries per operator, on by default; data-dependent inputs bypass it"


def needs(view: View) -> str | None:
    """Input shapes and the host's tiling must be recorded."""
    known = bool(view.tasks.shapes.known().any())
    return lacks_host_events(view, (known, "input shapes are not recorded: npuperf profile --level 1 --shapes"))


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Count the distinct shapes of each operator of a dynamic graph."""
    waited = view.blamed("tiling")
    if not is_graph_mode(view) or waited < thresholds.cause_share * view.partition.span_ns:
        return None
    crowded = _crowded(view, thresholds.tiling_cache_entries)
    if not crowded:
        return None
    gain = view.predict("host:tiling*0")
    return finding(
        view,
        "tiling_cache",
        "problem",
        f"{crowded[0]['name']} was launched with {crowded[0]['shapes']} different shapes; "
        f"the tiling cache keeps {thresholds.tiling_cache_entries}",
        evidence={"operators": crowded, "tiling_wait_ns": waited},
        gain=(0, gain[1]) if gain else None,
        refute="tiling takes as long with fewer shapes (the most finds every tiling in the cache)",
        next="pad batch and sequence lengths to a few sizes: fewer shapes per operator than the cache keeps",
        source=SOURCE,
    )


def _crowded(view: View, most: int) -> list[dict[str, Any]]:
    """Return the operators with more distinct shapes than ``most``."""
    known = view.compute & view.tasks.shapes.known() & view.tasks.name.known()
    pairs = np.unique(np.stack([view.tasks.name.codes[known], view.tasks.shapes.codes[known]]), axis=1)
    counts = np.bincount(pairs[0], minlength=1) if pairs.size else np.zeros(1, np.int64)
    order = np.argsort(-counts, kind="stable")[:3].tolist()
    return [{"name": view.tasks.name.names[c], "shapes": int(counts[c])} for c in order if counts[c] > most]
