"""The verdict: host-bound, compute-bound, communication-bound, or not to be told from this data.

Shares of time alone mislead: a device that is busy 70 % can be paced by the host all the time. The replay's
elasticities decide. Where the replay abstains, two numbers do: how much of the window the device waited for
launches (launch latency counts, because a host that is ahead hides it), and how much compute ran while the host
was hardly ahead. Every number that was judged is returned with the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuperf.documents.analysis import Basis, Bound, Elasticity, Partition, Verdict
from npuperf.model.intervals import Intervals
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.timeline.launches import Launches, busy_until, lead
from npuperf.units import duration, percent


@dataclass(frozen=True, slots=True)
class Pace:
    """Evidence per window: compute time in all, with a known launch, with the host hardly ahead; gaps."""

    compute: int
    known: int
    paced: int
    kernels: int
    after_gap: int

    def __add__(self, other: Pace) -> Pace:
        return Pace(
            self.compute + other.compute,
            self.known + other.known,
            self.paced + other.paced,
            self.kernels + other.kernels,
            self.after_gap + other.after_gap,
        )


NO_PACE = Pace(0, 0, 0, 0, 0)
_TIME = {"host": "host time", "compute": "compute time", "communication": "communication time"}


def paces(tasks: Tasks, launches: Launches, windows: Intervals, thresholds: Thresholds) -> list[Pace]:
    """Gather the evidence for each window; a kernel belongs to the window it starts in."""
    compute = tasks.work == Work.COMPUTE
    behind = compute & launches.known & (lead(tasks, launches) < thresholds.lead_ns)
    gap = compute & (tasks.start - busy_until(tasks) >= thresholds.gap_ns)
    sums = {
        "compute": np.where(compute, tasks.dur, 0),
        "known": np.where(compute & launches.known, tasks.dur, 0),
        "paced": np.where(behind, tasks.dur, 0),
        "kernels": compute.astype(np.int64),
        "after_gap": gap.astype(np.int64),
    }
    first, last = np.searchsorted(tasks.start, windows.start), np.searchsorted(tasks.start, windows.end)
    totals = {name: np.concatenate([[0], np.cumsum(values)]) for name, values in sums.items()}
    return [
        Pace(**{name: int(total[b] - total[a]) for name, total in totals.items()})
        for a, b in zip(first.tolist(), last.tolist(), strict=True)
    ]


def judge(
    partition: Partition,
    pace: Pace,
    thresholds: Thresholds,
    *,
    elasticity: Elasticity | None = None,
    excerpt: bool = False,
) -> Verdict:
    """Give the verdict for one window: by elasticities where the replay gives them, else by who sets the pace.

    ``excerpt``: rows are missing or rounded, so gaps say nothing.
    """
    span = partition.span_ns
    if span <= 0:
        return Verdict(bound="unknown", basis="measured", reason="no device task in this window")
    evidence = _evidence(partition, pace)
    if excerpt:
        reason = "the kernel table's gaps cannot be trusted (see warnings), so idle time cannot be told"
        return Verdict(bound="unknown", basis="inferred", reason=reason, evidence=evidence)
    if elasticity is not None:
        bound, reason = _by_elasticity(partition, elasticity, thresholds)
        return Verdict(bound=bound, basis="measured", reason=reason, evidence=evidence, elasticity=elasticity)
    low = _bound(partition, pace, thresholds, host_extra=0)
    high = _bound(partition, pace, thresholds, host_extra=partition.unattributed_ns)
    if low == high:
        return Verdict(bound=low, basis="measured", reason=_reason(low, partition, pace, thresholds), evidence=evidence)
    bound, basis, reason = _inferred(partition, pace, thresholds)
    return Verdict(bound=bound, basis=basis, reason=reason, evidence=evidence)


def _by_elasticity(partition: Partition, e: Elasticity, thresholds: Thresholds) -> tuple[Bound, str]:
    """Name the resource that the window's length depends on most.

    The host only where a notable part of the time lacks compute: communication may hide that the device waits.
    """
    span = partition.span_ns
    waits = partition.host_wait_ns + partition.launch_latency_ns
    rest = partition.dependency_wait_ns + partition.other_exposed_ns + partition.unattributed_ns
    busy = percent(partition.compute_ns / span)
    exposed = percent(partition.comm_exposed_ns / span)
    shares = f"compute {busy}, exposed communication {exposed}, waiting for launches {percent(waits / span)}"
    bound: Bound
    if rest > max(partition.compute_ns, partition.comm_exposed_ns, waits):
        other = percent(partition.other_exposed_ns / span)
        return "unknown", (
            f"copies and other work ({other}) and waits for dependencies ({percent(rest / span)} with them) "
            f"are the largest part; {shares}"
        )
    host_first = e.host >= max(e.compute, e.communication)
    if host_first and span - partition.compute_ns >= thresholds.idle_share * span:
        bound = "host"
    else:
        bound = "communication" if e.communication > e.compute else "compute"
    names = {"host": e.host, "compute": e.compute, "communication": e.communication}
    tenth = ", ".join(f"{name} {_tenth(value)}" for name, value in names.items() if name != bound)
    tail = "; some kernel always runs, though the host sets the pace" if host_first and bound != "host" else ""
    return bound, f"10 % less {_TIME[bound]} makes it {_tenth(names[bound])} shorter ({tenth}); {shares}{tail}"


def _tenth(elasticity: float) -> str:
    """Render the effect of a tenth less."""
    return percent(max(elasticity, 0.0) / 10)


def _evidence(partition: Partition, pace: Pace) -> dict[str, float | None]:
    span = partition.span_ns
    parts = ("compute", "comm_exposed", "other_exposed", "idle", "host_wait", "launch_latency", "unattributed")
    shares: dict[str, float | None] = {f"{p}_share": getattr(partition, f"{p}_ns") / span for p in parts}
    shares["host_paced_share"] = pace.paced / pace.known if pace.known else None
    shares["after_gap_share"] = pace.after_gap / pace.kernels if pace.kernels else None
    return shares


def _bound(partition: Partition, pace: Pace, thresholds: Thresholds, host_extra: int) -> Bound:
    """Compare what each resource paces. ``host_extra``: unattributed idle, if it were all the host's."""
    waits = partition.host_wait_ns + partition.launch_latency_ns + host_extra
    paced = pace.paced / pace.known if pace.known else float(host_extra > 0)
    host = waits + paced * partition.compute_ns
    compute = (1 - paced) * partition.compute_ns
    communication = partition.comm_exposed_ns
    if waits >= thresholds.idle_share * partition.span_ns and host >= max(compute, communication):
        return "host"
    whole_compute = partition.compute_ns
    rest = partition.dependency_wait_ns + partition.other_exposed_ns
    if rest > max(whole_compute, communication, waits):
        return "unknown"
    return "communication" if communication > whole_compute else "compute"


def _inferred(partition: Partition, pace: Pace, thresholds: Thresholds) -> tuple[Bound, Basis, str]:
    """Judge by gap statistics where launches are not recorded."""
    share = pace.after_gap / pace.kernels if pace.kernels else 0.0
    idle = percent(partition.unattributed_ns / partition.span_ns)
    rule = f"{percent(share)} of kernels start after a gap of {duration(thresholds.gap_ns)} or more"
    unknown = f"the device idles {idle} of the time with no launch recorded (a trace_view.json of this run would tell)"
    if pace.kernels < thresholds.gap_kernels_least:
        few = (
            "the kernels themselves are not in the data" if not pace.kernels else f"{pace.kernels} kernels are too few"
        )
        return (
            "unknown",
            "inferred",
            f"{unknown}, and {few}: the cause may be the host, a sync or a dependency",
        )
    if share >= thresholds.gap_kernels_share:
        return "host", "inferred", f"{unknown}; {rule}, as when a host launches one by one"
    return (
        "unknown",
        "inferred",
        f"{unknown}, and only {rule}: the cause may be the host, a sync or a dependency",
    )


def _reason(bound: Bound, partition: Partition, pace: Pace, thresholds: Thresholds) -> str:
    span = partition.span_ns
    host = percent(partition.host_wait_ns / span)
    paced = percent(pace.paced / pace.known) if pace.known else "an unknown share"
    lead_text = f"{paced} of compute ran with the host less than {duration(thresholds.lead_ns)} ahead"
    if bound == "host":
        waited = percent((partition.host_wait_ns + partition.launch_latency_ns) / span)
        latency = percent(partition.launch_latency_ns / span)
        return (
            f"the device waits for launches {waited} of the time (limit {percent(thresholds.idle_share)}; for the host "
            f"{host}, launch latency {latency}), and {lead_text}"
        )
    waits = _waits(partition)
    compute, communication = percent(partition.compute_ns / span), percent(partition.comm_exposed_ns / span)
    if bound == "communication":
        return f"communication not hidden by compute takes {communication}, compute {compute}, {waits}"
    if bound == "compute":
        tail = f", and only {lead_text}" if partition.host_wait_ns >= thresholds.idle_share * span else ""
        return f"compute takes {compute}, communication not hidden by it {communication}, {waits}{tail}"
    other = percent(partition.other_exposed_ns / span)
    rest = percent(partition.dependency_wait_ns / span)
    return (
        f"neither compute ({compute}) nor communication ({communication}) nor the host ({host}) is the largest part: "
        f"copies and other work {other}, dependencies {rest}"
    )


def _waits(partition: Partition) -> str:
    """Say how much of the time the host cost, and how much could not be attributed."""
    span = partition.span_ns
    texts = []
    if partition.idle_ns != partition.unattributed_ns or not partition.idle_ns:
        texts.append(f"waiting for the host {percent(partition.host_wait_ns / span)}")
    if partition.unattributed_ns:
        texts.append(f"idle with no launch recorded {percent(partition.unattributed_ns / span)}")
    return ", ".join(texts)
