"""Places where the host waits for the device, so that the device then waits for the host."""

from __future__ import annotations

from npuperf.advise.rule import View, finding, lacks_host_events
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds
from npuperf.units import plural

TITLE = "synchronisations"
SOURCE = "replay without the wait; calls aclrtSynchronize*, aclrtMemcpy and cuda*Synchronize in the timeline"


def needs(view: View) -> str | None:
    """Launches and the runtime's host calls must be recorded."""
    return lacks_host_events(view)


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Name the place whose waits cost most."""
    step = view.per_step(view.partition.span_ns)
    sites = [
        s for s in view.report.syncs if s.gain_ns_per_step and s.gain_ns_per_step[1] >= thresholds.cause_share * step
    ]
    if not sites:
        return None
    worst = max(sites, key=lambda s: s.gain_ns_per_step or (0, 0))
    call = worst.torch_op or worst.name
    where = f" at {worst.where}" if worst.where else ""
    return finding(
        view,
        "sync_points",
        "problem",
        f"the host waits for the device in {call}{where} ({plural(worst.count, 'time')})",
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
        refute="the step takes as long without the call",
        next="keep values on the device (no .item(), .cpu(), print or if on tensors in the step); log every N steps",
        source=SOURCE,
    )
