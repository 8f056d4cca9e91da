"""Steps recorded too early: operator compilation and warm-up are in them."""

from __future__ import annotations

from typing import Final

from npuperf.advise.needs import STEPS
from npuperf.advise.rule import Answer, Detected, Rule
from npuperf.messages import Message, say
from npuperf.scopes.view import DeviceView

TITLE = say("warm-up")
SOURCE = say("vendor's profiling guide: run ten steps first, then record one or two")

_WARM: Final = 10


def judge(view: DeviceView) -> Answer:
    """Look for steps among the first ten. Numbers count from the profiler's start, which may be later."""
    early = [s for s in view.steps if s < _WARM]
    if not early:
        return None
    return Detected(
        title=say("step {step} is among the first ten: compilation and warm-up may be part of it", step=early[0]),
        evidence={"steps": early},
        refute=say("the profiler was started late in a run that was already warm, or later steps take the same time"),
        next=_next(view),
    )


def _next(view: DeviceView) -> Message:
    if view.profile.kineto:
        return say("torch.profiler.schedule(wait=10, warmup=5, active=2) records later steps")
    return say("npuperf profile --wait 10 (its default) records later steps")


RULE = Rule("early_steps", TITLE, SOURCE, (STEPS,), judge, any_device=True, relieves="host")
