"""The task queue of torch_npu: a second thread that launches what Python enqueues."""

from __future__ import annotations

import re
from typing import Final

from npuperf.advise.needs import HOST_DOINGS, Need, where_host_bound
from npuperf.advise.requirements import EAGER, Option, still_unset
from npuperf.advise.rule import Answer, Detected, Rule, Untold, at_most
from npuperf.messages import Message, say
from npuperf.scopes.view import DeviceView

TITLE = say("task queue")
SOURCE = say("torch_npu: TASK_QUEUE_ENABLE 0, 1 (default) or 2; 2 moves workspace computation to the second stage")
_NO_CALLS = say("aclnn and aclop calls are not recorded: record an eager step with npuperf profile --level 1")
_NAME: Final = "TASK_QUEUE_ENABLE"

_ACL_CALL: Final = re.compile("^AscendCL@acl")
_QUEUED: Final = re.compile("^(Enqueue|Dequeue)")
#: The calls of eager torch_npu.
_EAGER_CALLS: Final = Need(
    say("aclnn calls"), lambda view: float(view.profile.host.events.name.has(_ACL_CALL)), lambda _: _NO_CALLS
)
_ON: Final = Option(
    say("export TASK_QUEUE_ENABLE=1, then 2 (2 takes more memory; ignored with ASCEND_LAUNCH_BLOCKING=1)"),
    SOURCE,
    (EAGER, still_unset(_NAME, "1", "2")),
)
_HIGHER: Final = Option(
    say("export TASK_QUEUE_ENABLE=2 (it takes more memory; ignored with ASCEND_LAUNCH_BLOCKING=1)"),
    SOURCE,
    (EAGER, still_unset(_NAME, "2")),
)


def judge(view: DeviceView) -> Answer:
    """Without Enqueue and Dequeue the queue is off; with them, tiling on the enqueueing thread can move."""
    queued = view.profile.host.events.name.has(_QUEUED)
    movable = ("tiling",) if queued else ("tiling", "launch", "aclop", "execute")
    causes = [c for c in movable if view.blamed(c)]
    waited = view.blamed(*causes)
    if not view.host_bound or waited < view.thresholds.cause_share * view.partition.span_ns:
        return None
    value = view.traits.environment.get(_NAME)
    if value == "2" and queued:
        return None
    if view.traits.blocking:
        return Untold(say("ASCEND_LAUNCH_BLOCKING=1 switches the task queue off: unset it and record again"))
    if value in ("1", "2") and not queued:
        return Untold(
            say("TASK_QUEUE_ENABLE={value} was set, but no Enqueue or Dequeue event is recorded: record with npuperf "
                "profile --activities cpu,npu --level 1", value=value)
        )  # fmt: skip
    return Detected(
        title=_title(queued, value),
        evidence={"queued": queued, "host_wait_ns": waited, "causes": causes, "set": value},
        gain=at_most(view.predict(",".join(f"host:{cause}*0" for cause in causes))),
        refute=_refute(value),
        next=(_HIGHER if queued else _ON,),
    )


def _title(queued: bool, value: str | None) -> Message:
    if queued:
        return say("the task queue seems to be at level 1")
    if value == "0":
        return say("the task queue is off: TASK_QUEUE_ENABLE=0")
    return say("the task queue seems to be off: no Enqueue or Dequeue event is recorded")


def _refute(value: str | None) -> Message:
    if value is None:
        return say(
            "the variable is set already, which this profile does not record (the maximum assumes that all of the "
            "moved time is hidden)"
        )
    return say("the program sets the variable by itself (the maximum assumes that all of the moved time is hidden)")


RULE = Rule(
    "task_queue",
    TITLE,
    SOURCE,
    (*HOST_DOINGS, *where_host_bound(_EAGER_CALLS)),
    judge,
    relieves="host",
    requires=(EAGER,),
)
