"""Many kernels so short that launching them costs more than running them."""

from __future__ import annotations

from npuperf.advise.rule import View, finding, lacks_launches, quote, top_types
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds
from npuperf.units import duration, percent

TITLE = "very small kernels"
SOURCE = "CANN on dynamic-shape scheduling: host-bound networks gain from fewer launches (fusion, graph capture)"


def needs(view: View) -> str | None:
    """Launches must be recorded: without them the waits cannot be told from other idle time."""
    return lacks_launches(view)


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Small kernels matter only where the device waits for their launches."""
    chosen = view.compute & (view.tasks.dur < thresholds.small_kernel_ns)
    share = int(chosen.sum()) / max(int(view.compute.sum()), 1)
    waits = int(view.waits[chosen].sum()) - view.blamed(*NOT_LAUNCHING)
    few = share < thresholds.small_kernel_share or waits < thresholds.cause_share * view.partition.span_ns
    if not view.host_bound or few:
        return None
    rows = top_types(view, chosen)
    return finding(
        view,
        "small_kernels",
        "problem",
        f"{percent(share)} of kernels run less than {duration(thresholds.small_kernel_ns)}: {quote(rows)}",
        evidence={
            "share_of_kernels": share,
            "count": int(chosen.sum()),
            "host_wait_ns": int(view.waits[chosen].sum()),
            "types": rows,
        },
        gain=view.predict("launches*0.5"),
        refute="host wait stays the same when the operators are fused (the gain: half as many launches)",
        next="fuse them (torch.compile with the npu backend, fused optimizers, npu_* operators) or capture the step",
        source=SOURCE,
    )


#: Host time that fewer launches do not save.
NOT_LAUNCHING = ("sync", "data_loading", "compile", "gc", "communication")
