"""The task queue of torch_npu: a second thread that launches what Python enqueues."""

from __future__ import annotations

from npuperf.advise.rule import View, finding, lacks_host_events
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds

TITLE = "task queue"
SOURCE = "torch_npu: TASK_QUEUE_ENABLE 0, 1 (default) or 2; 2 moves workspace computation to the second stage"


def needs(view: View) -> str | None:
    """Host events must be recorded, and be those of eager torch_npu."""
    calls = _has(view, "AscendCL@acl")
    return lacks_host_events(
        view, (calls, "aclnn and aclop calls are not recorded: record an eager step with npuperf profile --level 1")
    )


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Without Enqueue and Dequeue the queue is off; with them, tiling on the enqueueing thread can move."""
    queued = _has(view, "Dequeue") or _has(view, "Enqueue")
    movable = ("tiling",) if queued else ("tiling", "launch", "execute")
    causes = [c for c in movable if view.blamed(c)]
    waited = view.blamed(*causes)
    if not view.host_bound or waited < thresholds.cause_share * view.partition.span_ns:
        return None
    gain = view.predict(",".join(f"host:{cause}*0" for cause in causes))
    level, state = ("2", "at level 1") if queued else ("1, then 2", "off: no Enqueue or Dequeue event is recorded")
    return finding(
        view,
        "task_queue",
        "problem",
        f"the task queue is {state}",
        evidence={"queued": queued, "host_wait_ns": waited, "causes": causes},
        gain=(0, gain[1]) if gain else None,
        refute="the variable is set already, which profiles do not tell (the most hides all of the moved time)",
        next=f"export TASK_QUEUE_ENABLE={level} (2 takes more memory; void with ASCEND_LAUNCH_BLOCKING=1)",
        source=SOURCE,
    )


def _has(view: View, start: str) -> bool:
    return any(n.startswith(start) for n in view.profile.host.events.name.names)
