"""Python's garbage collector stops the launching thread."""

from __future__ import annotations

from npuperf.advise.rule import Rule, blames, lacks_host_events
from npuperf.messages import say

TITLE = say("garbage collection")
SOURCE = say("garbage collector events (gc_detect_threshold)")


judge = blames(
    "gc",
    lambda waited, call: say("during {waited} of span the device waits for the host to collect garbage, longest in "
"{call}",
                             waited=waited, call=call),
    refute=say("the step takes just as long with the collector disabled"),
    next=say("call gc.freeze() after start-up, or gc.disable() once and gc.collect() between steps"),
)  # fmt: skip


RULE = Rule("garbage_collection", TITLE, SOURCE, lacks_host_events, judge, any_device=True, relieves="host")
