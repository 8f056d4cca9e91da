"""ASCEND_LAUNCH_BLOCKING=1: every launch waits for its kernel, which makes any program host-bound."""

from __future__ import annotations

from npuperf.advise.rule import View, finding
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds

TITLE = "blocking launches"
SOURCE = "profiler_metadata.json: ENV_VARIABLES"

_NAME = "ASCEND_LAUNCH_BLOCKING"


def needs(view: View) -> str | None:
    """The environment must be recorded."""
    if _NAME in view.profile.context.environment:
        return None
    return "the environment is not recorded: analyze the *_ascend_pt folder with its profiler_metadata.json"


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Look at the recorded environment."""
    value = view.profile.context.environment[_NAME]
    if value in ("", "0"):
        return None
    return finding(
        view,
        "launch_blocking",
        "problem",
        f"{_NAME}={value} was set: the host waited for every kernel, so this profile is not the program's usual pace",
        evidence={_NAME: value, "host_wait_ns": view.partition.host_wait_ns},
        refute="the profile looks the same without the variable",
        next=f"unset {_NAME} and profile again",
        source=SOURCE,
    )
