"""Python's garbage collector stops the launching thread."""

from __future__ import annotations

from npuperf.advise.needs import COLLECTIONS, HOST_DOINGS, to_rule_out, where_host_bound
from npuperf.advise.rule import Rule, blames
from npuperf.messages import say

TITLE = say("garbage collection")
SOURCE = say("garbage collector events (gc_detect_threshold) and calls of gc.collect")


judge = blames(
    "gc",
    lambda waited, call: say("during {waited} of span the device waits for the host to collect garbage, longest in "
"{call}",
                             waited=waited, call=call),
    refute=say("the step takes just as long with the collector disabled"),
    next=say("call gc.freeze() after start-up, or gc.disable() once and gc.collect() between steps"),
)  # fmt: skip


RULE = Rule(
    "garbage_collection",
    TITLE,
    SOURCE,
    (*HOST_DOINGS, *where_host_bound(*to_rule_out(COLLECTIONS))),
    judge,
    any_device=True,
    relieves="host",
)
