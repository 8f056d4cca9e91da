"""Operators are compiled while the device waits."""

from __future__ import annotations

from npuperf.advise.rule import Rule, blames, lacks_host_events
from npuperf.messages import say

TITLE = say("operator compilation")
SOURCE = say("opCompile, aclopCompile and torch.compile events on the launching thread")


judge = blames(
    "compile",
    lambda waited, call: say(
        "during {waited} of span the device waits for the host to compile operators, longest in {call}",
        waited=waited,
        call=call,
    ),
    refute=say("later steps of the same run show no such event"),
    next=say("record later steps, call torch.npu.set_compile_mode(jit_compile=False), or fix the shapes that change"),
)


RULE = Rule("compilation", TITLE, SOURCE, lacks_host_events, judge, relieves="host")
