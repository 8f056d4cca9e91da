"""Operators or graphs are compiled while the device waits."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from npuperf.advise.needs import CALLS_AND_OPERATORS
from npuperf.advise.rule import Answer, Detected, Rule, blames
from npuperf.messages import Message, say
from npuperf.scopes.view import DeviceView

TITLE = say("compilation")
SOURCE = say("calls of the runtime that compile, what torch.compile times of itself, and its functions that compile")
#: CANN's own compilations; all others are those of torch.compile.
_CANN: Final = re.compile(r"^(AscendCL|Node|Model|Runtime|GE)@")

_blamed: Final = blames(
    "compile",
    lambda waited, call: say(
        "during {waited} of span the device waits for the host to compile, longest in {call}",
        waited=waited,
        call=call,
    ),
    refute=say("later steps of the same run show no such event"),
    next=say("record later steps"),
)


def judge(view: DeviceView) -> Answer:
    """Tell what is compiled by where most of the wait is, as CANN and torch.compile are helped by different things."""
    found = _blamed(view)
    if not isinstance(found, Detected):
        return found
    lines = [b for b in view.report.blame if b.cause == "compile"]
    by_cann = sum(b.ns for b in lines if _CANN.match(b.name))
    return replace(found, next=_advice(cann=2 * by_cann >= sum(b.ns for b in lines if b.name != "others")))


def _advice(*, cann: bool) -> Message:
    if cann:
        return say(
            "record later steps; if these compile, too, call torch.npu.set_compile_mode(jit_compile=False) (the "
            "default from Atlas A2 on), or fix the shapes that change"
        )
    return say(
        "record later steps; if these compile, too, TORCH_LOGS=recompiles names the guard that fails: keep that value "
        "constant, or mark the dimension dynamic (torch._dynamo.mark_dynamic, torch.compile(dynamic=True))"
    )


RULE = Rule(
    "compilation",
    TITLE,
    SOURCE,
    CALLS_AND_OPERATORS,
    judge,
    any_device=True,
    relieves="host",
)
