"""Steps recorded too early: operator compilation and warm-up are in them."""

from __future__ import annotations

from typing import Final

from npuperf.advise.rule import Answer, Detected, Rule
from npuperf.messages import Message, say
from npuperf.scopes.view import DeviceView

TITLE = say("warm-up")
SOURCE = say("vendor's profiling guide: run ten steps first, then record one or two")

_WARM: Final = 10


def needs(view: DeviceView) -> Message | None:
    """Step numbers must be recorded."""
    return None if view.steps else say("steps are not recorded: npuperf profile records them (--step-on)")


def judge(view: DeviceView) -> Answer:
    """Look for steps among the first ten. Numbers count from the profiler's start, which may be later."""
    early = [s for s in view.steps if s < _WARM]
    if not early:
        return None
    return Detected(
        title=say("step {step} is among the first ten: compilation and warm-up may be part of it", step=early[0]),
        evidence={"steps": early},
        refute=say("the profiler was started late in a run that was already warm, or later steps take the same time"),
        next=say("npuperf profile --wait 10 (its default) records later steps"),
    )


RULE = Rule("early_steps", TITLE, SOURCE, needs, judge, any_device=True, relieves="host")
