"""The task queue of torch_npu: a second thread that launches what Python enqueues."""

from __future__ import annotations

from npuperf.advise.rule import Answer, Detected, Rule, at_most, lacks_host_events
from npuperf.messages import Message, say
from npuperf.scopes.view import DeviceView

TITLE = say("task queue")
SOURCE = say("torch_npu: TASK_QUEUE_ENABLE 0, 1 (default) or 2; 2 moves workspace computation to the second stage")
_NO_CALLS = say("aclnn and aclop calls are not recorded: record an eager step with npuperf profile --level 1")


def needs(view: DeviceView) -> Message | None:
    """Host events must be recorded, and be those of eager torch_npu."""
    return lacks_host_events(view, (_has(view, "AscendCL@acl"), _NO_CALLS))


def judge(view: DeviceView) -> Answer:
    """Without Enqueue and Dequeue the queue is off; with them, tiling on the enqueueing thread can move."""
    queued = _has(view, "Dequeue") or _has(view, "Enqueue")
    movable = ("tiling",) if queued else ("tiling", "launch", "execute")
    causes = [c for c in movable if view.blamed(c)]
    waited = view.blamed(*causes)
    if not view.host_bound or waited < view.thresholds.cause_share * view.partition.span_ns:
        return None
    title = say("the task queue seems to be off: no Enqueue or Dequeue event is recorded")
    change = say("export TASK_QUEUE_ENABLE=1, then 2 (2 takes more memory; ignored with ASCEND_LAUNCH_BLOCKING=1)")
    if queued:
        title = say("the task queue seems to be at level 1")
        change = say("export TASK_QUEUE_ENABLE=2 (it takes more memory; ignored with ASCEND_LAUNCH_BLOCKING=1)")
    return Detected(
        title=title,
        evidence={"queued": queued, "host_wait_ns": waited, "causes": causes},
        gain=at_most(view.predict(",".join(f"host:{cause}*0" for cause in causes))),
        refute=say(
            "the variable is already set, which profiles do not record (the maximum assumes that all "
            "of the moved time is hidden)"
        ),
        next=change,
    )


def _has(view: DeviceView, start: str) -> bool:
    return any(n.startswith(start) for n in view.profile.host.events.name.names)


RULE = Rule("task_queue", TITLE, SOURCE, needs, judge, relieves="host")
