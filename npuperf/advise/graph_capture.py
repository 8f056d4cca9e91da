"""Steps that the host launches operator by operator, though they could be replayed as a graph."""

from __future__ import annotations

from npuperf.advise.dynamic_shape import dynamic_share
from npuperf.advise.rule import View, finding, lacks_launches
from npuperf.advise.small_kernels import NOT_LAUNCHING
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds
from npuperf.units import percent

TITLE = "launching one by one"
SOURCE = "TorchAir: aclgraph (reduce-overhead) replays captured launches, max-autotune sinks static graphs"


def needs(view: View) -> str | None:
    """Launches must be recorded."""
    return lacks_launches(view)


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Capture helps where the device waits for launches rather than for data, compilation or synchronisation."""
    wait = view.partition.host_wait_ns + view.partition.launch_latency_ns
    launching = wait - view.blamed(*NOT_LAUNCHING) - _pauses(view, thresholds)
    if not view.host_bound or launching < max(thresholds.idle_share * view.partition.span_ns, wait / 2):
        return None
    gain = view.predict("host*0,latency*0")
    dynamic, _ = dynamic_share(view)
    return finding(
        view,
        "graph_capture",
        "problem",
        f"the device waits {percent(launching / view.partition.span_ns)} of the time for single launches",
        evidence={"launch_wait_ns": launching, "dynamic_share_of_compute": dynamic, "kernels": int(view.compute.sum())},
        gain=(0, gain[1]) if gain else None,
        refute="a captured step takes as long (the most: no launch is waited for), or shapes or syncs prevent capture",
        next="torch.compile with torchair's backend: config.mode 'reduce-overhead' for few shapes (64 captures at "
        "most), 'max-autotune' for static ones",
        source=SOURCE,
    )


def _pauses(view: View, thresholds: Thresholds) -> int:
    """Return waits in which the host recorded nothing for so long that it cannot have been launching, ns."""
    unrecorded = [b for b in view.report.blame if b.cause == "unrecorded"]
    return sum(b.ns for b in unrecorded if b.ns >= thresholds.pause_ns * b.count)
