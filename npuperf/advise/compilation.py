"""Operators are compiled while the device waits."""

from __future__ import annotations

from npuperf.advise.rule import Answer, Detected, Rule, lacks_host_events, notable_cause
from npuperf.messages import say
from npuperf.scopes.view import DeviceView

TITLE = say("operator compilation")
SOURCE = say("opCompile, aclopCompile and torch.compile events on the launching thread")


def judge(view: DeviceView) -> Answer:
    """Look at what the device waited for."""
    found = notable_cause(view, "compile")
    if found is None:
        return None
    return Detected(
        title=say(
            "for {waited} of span the device waits for the host to compile operators, longest in {call}",
            waited=found.waited,
            call=found.call,
        ),
        evidence=found.evidence,
        gain=found.gain,
        refute=say("later steps of the same run show no such event"),
        next=say(
            "record later steps, call torch.npu.set_compile_mode(jit_compile=False), or fix the shapes that change"
        ),
    )


RULE = Rule("compilation", TITLE, SOURCE, lacks_host_events, judge, relieves="host")
