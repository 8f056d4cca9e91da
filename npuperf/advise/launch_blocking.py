"""ASCEND_LAUNCH_BLOCKING=1: every launch waits for its kernel, which makes any program host-bound."""

from __future__ import annotations

from typing import Final

from npuperf.advise.needs import variable
from npuperf.advise.rule import Answer, Detected, Rule
from npuperf.messages import say
from npuperf.scopes.view import DeviceView

TITLE = say("blocking launches")
SOURCE = say("environment in profiler_metadata.json (ENV_VARIABLES) or npuperf.json")

_NAME: Final = "ASCEND_LAUNCH_BLOCKING"


def judge(view: DeviceView) -> Answer:
    """Look at the recorded environment."""
    value = view.traits.environment.get(_NAME)
    if not value or not view.traits.blocking:
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
        severity="high",
    )


RULE = Rule("launch_blocking", TITLE, SOURCE, (variable(_NAME),), judge, relieves="host")
