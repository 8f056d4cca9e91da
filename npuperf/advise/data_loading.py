"""The device waits while the launching thread loads data."""

from __future__ import annotations

from npuperf.advise.rule import Answer, Detected, Rule, lacks_host_events, notable_cause
from npuperf.messages import say
from npuperf.scopes.view import DeviceView

TITLE = say("data loading")
SOURCE = say("events of the DataLoader on the launching thread")


def judge(view: DeviceView) -> Answer:
    """Look at what the device waited for."""
    found = notable_cause(view, "data_loading")
    if found is None:
        return None
    return Detected(
        title=say(
            "for {waited} of span the device waits for the host to load data, longest in {call}",
            waited=found.waited,
            call=found.call,
        ),
        evidence=found.evidence,
        gain=found.gain,
        refute=say("the step takes just as long with a batch that is ready in memory"),
        next=say(
            "use more workers, pin_memory, prefetch_factor or persistent_workers, or fetch the next batch during the "
            "step"
        ),
    )


RULE = Rule("data_loading", TITLE, SOURCE, lacks_host_events, judge, any_device=True, relieves="host")
