"""ASCEND_LAUNCH_BLOCKING=1: every launch waits for its kernel, which makes any program host-bound."""

from __future__ import annotations

from typing import Final

from npuperf.advise.rule import Answer, Detected, Rule
from npuperf.messages import Message, say
from npuperf.scopes.view import DeviceView

TITLE = say("blocking launches")
SOURCE = say("profiler_metadata.json: ENV_VARIABLES")

_NAME: Final = "ASCEND_LAUNCH_BLOCKING"


def needs(view: DeviceView) -> Message | None:
    """The environment must be recorded."""
    if _NAME in view.profile.context.environment:
        return None
    return say("the environment is not recorded: analyze the whole *_ascend_pt folder with its profiler_metadata.json")


def judge(view: DeviceView) -> Answer:
    """Look at the recorded environment."""
    value = view.profile.context.environment[_NAME]
    if value in ("", "0"):
        return None
    return Detected(
        title=say(
            "{name}={value} was set: the host waited for every kernel, so this profile does not show the program's "
            "usual pace",
            name=_NAME,
            value=value,
        ),
        evidence={_NAME: value, "host_wait_ns": view.partition.host_wait_ns},
        refute=say("the profile looks the same without the variable"),
        next=say("unset {name} and profile again", name=_NAME),
    )


RULE = Rule("launch_blocking", TITLE, SOURCE, needs, judge, relieves="host")
