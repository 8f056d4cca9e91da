"""The device waits while the launching thread loads data."""

from __future__ import annotations

from npuperf.advise.rule import View, blamed_cause, lacks_host_events
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds

TITLE = "data loading"
SOURCE = "events of the DataLoader on the launching thread"


def needs(view: View) -> str | None:
    """Launches and host events must be recorded."""
    return lacks_host_events(view)


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Look at what the device waited for."""
    return blamed_cause(
        view,
        "data_loading",
        "data_loading",
        "the device waits while data is loaded",
        refute="the step takes as long with a batch that is ready in memory",
        next="more workers, pin_memory, prefetch_factor, persistent_workers; or fetch the next batch during the step",
        source=SOURCE,
    )
