"""Steps recorded too early: operator compilation and warm-up are in them."""

from __future__ import annotations

from npuperf.advise.rule import View, finding
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds

TITLE = "warm-up"
SOURCE = "vendor's profiling guide: run ten steps first, then record one or two"

_WARM = 10


def needs(view: View) -> str | None:
    """Step numbers must be recorded."""
    if view.steps:
        return None
    return "steps are not recorded: npuperf profile finds them (--step-on)"


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Look for steps among the first ten. Numbers count from the profiler's start, which may be later."""
    early = [s for s in view.steps if s < _WARM]
    if not early:
        return None
    return finding(
        view,
        "early_steps",
        "problem",
        f"step {early[0]} is among the first ten: compilation and warm-up may be part of it",
        evidence={"steps": early},
        refute="the profiler was started late in a run that was already warm, or later steps take the same time",
        next="npuperf profile --wait 10 (its default) records later steps",
        source=SOURCE,
    )
