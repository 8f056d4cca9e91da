"""Python's garbage collector stops the launching thread."""

from __future__ import annotations

from npuperf.advise.rule import Answer, Detected, Rule, lacks_host_events, notable_cause
from npuperf.messages import say
from npuperf.scopes.view import DeviceView

TITLE = say("garbage collection")
SOURCE = say("garbage collector events (gc_detect_threshold)")


def judge(view: DeviceView) -> Answer:
    """Look at what the device waited for."""
    found = notable_cause(view, "gc")
    if found is None:
        return None
    return Detected(
        title=say(
            "for {waited} of span the device waits for the host to collect garbage, longest in {call}",
            waited=found.waited,
            call=found.call,
        ),
        evidence=found.evidence,
        gain=found.gain,
        refute=say("the step takes just as long with the collector disabled"),
        next=say("call gc.freeze() after start-up, or gc.disable() once and gc.collect() between steps"),
    )


RULE = Rule("garbage_collection", TITLE, SOURCE, lacks_host_events, judge, any_device=True, relieves="host")
