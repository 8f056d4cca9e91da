"""The device waits while the launching thread loads data."""

from __future__ import annotations

from npuperf.advise.rule import Rule, blames, lacks_host_events
from npuperf.messages import say

TITLE = say("data loading")
SOURCE = say("events of the DataLoader on the launching thread")


judge = blames(
    "data_loading",
    lambda waited, call: say(
        "during {waited} of span the device waits for the host to load data, longest in {call}",
        waited=waited,
        call=call,
    ),
    refute=say("the step takes just as long with a batch that is ready in memory"),
    next=say(
        "use more workers, pin_memory, prefetch_factor or persistent_workers, or fetch the next batch during the step"
    ),
)


RULE = Rule("data_loading", TITLE, SOURCE, lacks_host_events, judge, any_device=True, relieves="host")
