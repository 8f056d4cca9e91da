"""Python's garbage collector stops the launching thread."""

from __future__ import annotations

from npuperf.advise.rule import View, blamed_cause, lacks_host_events
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds

TITLE = "garbage collection"
SOURCE = "garbage collector events (gc_detect_threshold)"


def needs(view: View) -> str | None:
    """Launches and host events must be recorded."""
    return lacks_host_events(view)


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Look at what the device waited for."""
    return blamed_cause(
        view,
        "garbage_collection",
        "gc",
        "the device waits while Python collects garbage",
        refute="the step takes as long with the collector disabled",
        next="gc.freeze() after start-up, or gc.disable() and gc.collect() between steps",
        source=SOURCE,
    )
