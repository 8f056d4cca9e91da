"""Operators are compiled while the device waits."""

from __future__ import annotations

from npuperf.advise.rule import View, blamed_cause, lacks_host_events
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds

TITLE = "operator compilation"
SOURCE = "opCompile, aclopCompile and torch.compile events on the launching thread"


def needs(view: View) -> str | None:
    """Launches and host events must be recorded."""
    return lacks_host_events(view)


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Look at what the device waited for."""
    return blamed_cause(
        view,
        "compilation",
        "compile",
        "the device waits while operators are compiled",
        refute="later steps of the same run show no such event",
        next="record later steps, set torch.npu.set_compile_mode(jit_compile=False), or fix the shapes that change",
        source=SOURCE,
    )
