"""Operators that see more shapes than the tiling cache holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuperf.advise.rule import Answer, Detected, Rule, at_most, is_graph_mode, lacks_shapes
from npuperf.messages import say
from npuperf.scopes.view import DeviceView

TITLE = say("tiling cache")
SOURCE = say("GE: the tiling cache keeps 120 entries per operator, on by default; data-dependent inputs bypass it")


def judge(view: DeviceView) -> Answer:
    """Count the distinct shapes of each operator of a dynamic graph."""
    waited = view.blamed("tiling")
    if not is_graph_mode(view) or waited < view.thresholds.cause_share * view.partition.span_ns:
        return None
    entries = view.thresholds.tiling_cache_entries
    crowded = _crowded(view, entries)
    if not crowded:
        return None
    return Detected(
        title=say("{name} was launched with {shapes} different shapes; the tiling cache keeps {entries}",
                  name=crowded[0]["name"], shapes=crowded[0]["shapes"], entries=entries),
        evidence={"operators": crowded, "tiling_wait_ns": waited},
        gain=at_most(view.predict("host:tiling*0")),
        refute=say("tiling takes just as long with fewer shapes (the maximum assumes that every tiling is "
"found in the cache)"),
        next=say("pad batch and sequence lengths to a few sizes: fewer shapes per operator than the cache keeps"),
    )  # fmt: skip


def _crowded(view: DeviceView, most: int) -> list[dict[str, Any]]:
    """Return the operators with more distinct shapes than ``most``."""
    known = view.compute & view.tasks.shapes.known() & view.tasks.name.known()
    pairs = np.unique(np.stack([view.tasks.name.codes[known], view.tasks.shapes.codes[known]]), axis=1)
    counts = np.bincount(pairs[0], minlength=1) if pairs.size else np.zeros(1, np.int64)
    order = np.argsort(-counts, kind="stable")[:3].tolist()
    return [{"name": view.tasks.name.names[c], "shapes": int(counts[c])} for c in order if counts[c] > most]


RULE = Rule("tiling_cache", TITLE, SOURCE, lacks_shapes, judge, relieves="host")
