"""The device waits while the launching thread loads data."""

from __future__ import annotations

from npuperf.advise.needs import HOST_DOINGS, TORCH_OPERATORS, to_rule_out, where_host_bound
from npuperf.advise.rule import Rule, blames
from npuperf.messages import say

TITLE = say("data loading")
SOURCE = say("events and functions of torch's DataLoader on the launching thread")


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


RULE = Rule(
    "data_loading",
    TITLE,
    SOURCE,
    (*HOST_DOINGS, *where_host_bound(*to_rule_out(TORCH_OPERATORS))),
    judge,
    any_device=True,
    relieves="host",
)
