"""Our partition beside the exporter's own (step_trace_time.csv), and why they differ where they do."""

from __future__ import annotations

from collections.abc import Sequence

from npuperf.documents.analysis import Partition, Step, VendorCheck
from npuperf.messages import Message, chain, ns, say
from npuperf.model.device import VendorStep
from npuperf.model.thresholds import Thresholds
from npuperf.units import NS_PER_US


def compare(
    vendor: Sequence[VendorStep], steps: Sequence[Step], whole: Partition, thresholds: Thresholds
) -> list[VendorCheck]:
    """Compare step by step; a row without a step number is compared with the whole span."""
    ours = {s.step: s.partition for s in steps}
    pairs = [(v, whole if v.step is None else ours.get(v.step)) for v in vendor]
    return [_check(v, mine, thresholds) for v, mine in pairs if mine is not None]


def partition_of(step: VendorStep) -> Partition:
    """Take the exporter's split as it is: without kernels its idle time cannot be explained."""
    return Partition(
        span_ns=step.span,
        compute_ns=step.compute,
        comm_exposed_ns=step.comm_exposed,
        other_exposed_ns=0,
        idle_ns=step.free,
        host_wait_ns=0,
        launch_latency_ns=0,
        dependency_wait_ns=0,
        unattributed_ns=step.free,
        comm_unknown_ns=step.comm_exposed,
    )


def _check(vendor: VendorStep, mine: Partition, thresholds: Thresholds) -> VendorCheck:
    diff = {
        "compute": mine.compute_ns - vendor.compute,
        "comm_exposed": mine.comm_exposed_ns - vendor.comm_exposed,
        "free": mine.idle_ns + mine.other_exposed_ns - vendor.free,
        "span": mine.span_ns - vendor.span,
    }
    tolerance = max(int(thresholds.vendor_tolerance * max(vendor.span, 1)), NS_PER_US)
    agrees = all(abs(d) <= tolerance for d in diff.values())
    return VendorCheck(
        step=vendor.step,
        agrees=agrees,
        compute_diff_ns=diff["compute"],
        comm_exposed_diff_ns=diff["comm_exposed"],
        free_diff_ns=diff["free"],
        span_diff_ns=diff["span"],
        why=_why(diff, mine, tolerance, agrees),
    )


def _why(diff: dict[str, int], mine: Partition, tolerance: int, agrees: bool) -> Message:
    """Explain a difference from what is known of the exporter's method."""
    counted = say("its Free column counts {other} of copies and other work as idle", other=ns(mine.other_exposed_ns))
    tail = counted if mine.other_exposed_ns > tolerance else None
    if agrees:
        largest = max(map(abs, diff.values()))
        return chain(
            say("the largest difference is {difference}, {tolerance} is tolerated",
                difference=ns(largest), tolerance=ns(tolerance)),
            tail,
        )  # fmt: skip
    reasons = []
    if abs(diff["span"]) > tolerance:
        reasons.append(
            say(
                "its window counts whole events that start inside the host's step range; ours runs from "
                "the step's first device task to that of the next step"
            )
        )
    if abs(diff["compute"]) > tolerance:
        reasons.append(
            say("it does not count kernels of collectives (…AivKernel, …AicpuKernel) as compute, or rows were lost")
        )
    if abs(diff["comm_exposed"]) > tolerance and abs(diff["compute"]) <= tolerance:
        reasons.append(say("communication crosses a boundary of the step: theirs is not cut there, ours is"))
    return chain(*(reasons or [say("idle time differs by the time outside its events")]), tail)
