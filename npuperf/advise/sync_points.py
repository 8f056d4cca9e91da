"""Places where the host waits for the device, so that the device then waits for the host."""

from __future__ import annotations

from npuperf.advise.rule import Answer, Detected, Rule, lacks_host_events
from npuperf.messages import say, say_n
from npuperf.scopes.view import DeviceView

TITLE = say("synchronisations")
SOURCE = say("replay without the wait; calls aclrtSynchronize*, aclrtMemcpy and cuda*Synchronize in the timeline")


def judge(view: DeviceView) -> Answer:
    """Name the place whose waits cost most."""
    least = view.thresholds.cause_share * view.per_step(view.partition.span_ns)
    sites = [s for s in view.report.syncs if s.gain_ns_per_step and s.gain_ns_per_step[1] >= least]
    if not sites:
        return None
    worst = max(sites, key=lambda s: s.gain_ns_per_step or (0, 0))
    call = worst.torch_op or worst.name
    return Detected(
        title=say_n("the host waits for the device in {call} ({n} time)",
                    "the host waits for the device in {call} ({n} times)",
                    worst.count, call=say("{call} at {place}", call=call, place=worst.where) if worst.where else call),
        evidence={
            "call": worst.name,
            "torch_op": worst.torch_op,
            "where": worst.where,
            "count": worst.count,
            "host_ns": worst.host_ns,
            "idle_after_ns": worst.idle_ns,
            "places": len(sites),
        },
        gain=worst.gain_ns_per_step,
        refute=say("the step takes just as long without the call"),
        next=say(
            "keep values on the device (no .item(), .cpu(), print or if on tensors in the step); log only every N steps"
        ),
    )  # fmt: skip


RULE = Rule("sync_points", TITLE, SOURCE, lacks_host_events, judge, any_device=True, relieves="host")
