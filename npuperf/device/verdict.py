"""The verdict: host-bound, compute-bound, communication-bound, or not to be told from this data.

Shares of time alone mislead: a device that is busy 70 % can be paced by the host all the time. The replay's
elasticities decide. Where the replay abstains, two numbers do: how much of the window the device waited for
launches (launch latency counts, because a host that is ahead hides it), and how much compute ran while the host
was hardly ahead. Every number that was judged is returned with the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from npuperf.base.messages import Message, chain, ns, say, say_n, series, share
from npuperf.base.units import NS_PER_US
from npuperf.device.partition import Launches, busy_until, lead
from npuperf.model.device import VendorStep
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Mask
from npuperf.model.result import Bound, Elasticity, Partition, VendorCheck, Verdict
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds


class Pace(Struct, frozen=True):
    """Evidence per window: compute time in all, with a known distance of the host, with the host hardly ahead; gaps."""

    compute: int
    known: int
    paced: int
    kernels: int
    after_gap: int

    def __add__(self, other: Pace) -> Pace:
        return Pace(*map(add, astuple(self), astuple(other)))


NO_PACE = Pace(0, 0, 0, 0, 0)
_TIME: Final = {
    "host": say("host time"),
    "compute": say("compute time"),
    "communication": say("communication time"),
}
_NAME: Final = {"host": say("host"), "compute": say("compute"), "communication": say("communication")}
WINDOW: Final = say("the window")


#: Evidence that is a number of tasks; the others are their time, ns.
_COUNTED: Final = frozenset({"kernels", "after_gap"})
#: Tasks from one place at which a running sum is kept to the next.
_STRIDE: Final = 32


class PaceSums(Struct, frozen=True):
    """Running sums of the evidence over a device's tasks, in the order of their ``start``, for any window.

    ``chosen``: the tasks that count, per kind of evidence; ``totals``: the sums over all before every 32nd task. Sums
    at every task would be most of what is kept of a device.
    """

    start: I64
    end: I64
    chosen: dict[str, Mask]
    totals: dict[str, I64]

    @classmethod
    def of(cls, tasks: Tasks, launches: Launches, thresholds: Thresholds) -> PaceSums:
        """Gather the evidence.

        Where launches of some kernels are known, the others that follow at once upon what ran before are known not to
        have waited for theirs: in the middle of a graph.
        """
        compute, known, dur = tasks.work == Work.COMPUTE, launches.known, tasks.dur
        behind = compute & known & (lead(tasks, launches) < thresholds.lead_ns)
        gap = compute & (tasks.start - busy_until(tasks) >= thresholds.gap_ns)
        chosen = {
            "follows": compute & ~known & ~gap,
            "compute": compute,
            "known": compute & known,
            "paced": behind,
            "kernels": compute,
            "after_gap": gap,
        }
        kept = np.arange(0, len(tasks), _STRIDE)  # the places before which the sum of all values is kept
        totals = {
            name: np.append(
                0, np.cumsum(np.add.reduceat(mask if name in _COUNTED else dur * mask, kept, dtype=np.int64))
            )
            for name, mask in chosen.items()
        }
        return cls(tasks.start, tasks.end, chosen, totals)

    def of_windows(self, windows: Intervals) -> list[Pace]:
        """Return the evidence of each window; a kernel belongs to the window it starts in."""
        first, last = (self._before(np.searchsorted(self.start, border)) for border in (windows.start, windows.end))
        sums = {name: (last[name] - first[name]).tolist() for name in first}
        paces = []
        for row in zip(*sums.values(), strict=True):
            known = dict(zip(sums, row, strict=True))
            follows = known.pop("follows")
            paces.append(Pace(**{**known, "known": known["known"] + (follows if known["known"] else 0)}))
        return paces

    def _before(self, place: I64) -> dict[str, I64]:
        """Return the sums over the tasks before each place: those that are kept, and what comes after them."""
        stretch = place // _STRIDE
        rest = stretch[:, None] * _STRIDE + np.arange(_STRIDE)
        counts = rest < place[:, None]
        rest[~counts] = 0
        dur = (self.end[rest] - self.start[rest]) * counts
        return {
            name: self.totals[name][stretch] + ((counts if name in _COUNTED else dur) * chosen[rest]).sum(axis=1)
            for name, chosen in self.chosen.items()
        }


def give_verdict(
    partition: Partition,
    pace: Pace,
    thresholds: Thresholds,
    *,
    elasticity: Elasticity | None = None,
    excerpt: Message | None = None,
    what: Message = WINDOW,
    latency_known: bool = True,
) -> Verdict:
    """Give the verdict for one window: by elasticities where the replay gives them, else by who sets the pace.

    ``excerpt``: why gaps say nothing, as where rows are missing or rounded; ``what``: how to call the window;
    ``latency_known``: whether launch latency stands apart from waiting for the host.
    """
    if partition.span_ns <= 0:
        return Verdict(bound="unknown", basis="measured", reason=say("no device task in this window"))
    span = partition.span_ns
    parts = ("compute", "comm_exposed", "other_exposed", "idle", "host_wait", "launch_latency", "unattributed")
    evidence: dict[str, float | None] = {f"{p}_share": getattr(partition, f"{p}_ns") / span for p in parts}
    evidence["host_paced_share"] = pace.paced / pace.known if pace.known else None
    evidence["after_gap_share"] = pace.after_gap / pace.kernels if pace.kernels else None
    if not latency_known:
        evidence["launch_latency_share"] = None
    if excerpt is not None:
        return Verdict(bound="unknown", basis="inferred", reason=excerpt, evidence=evidence)
    if elasticity is not None:
        bound, reason = _by_elasticity(partition, elasticity, thresholds, what, latency_known)
        return Verdict(bound=bound, basis="measured", reason=reason, evidence=evidence, elasticity=elasticity)
    low = _bound(partition, pace, thresholds, host_extra=0)
    high = _bound(partition, pace, thresholds, host_extra=partition.unattributed_ns)
    if low == high:
        reason = _reason(low, partition, pace, thresholds, latency_known)
        return Verdict(bound=low, basis="measured", reason=reason, evidence=evidence)
    bound, reason = _inferred(partition, pace, thresholds)
    return Verdict(bound=bound, basis="inferred", reason=reason, evidence=evidence)


def _by_elasticity(
    partition: Partition, e: Elasticity, thresholds: Thresholds, what: Message, latency_known: bool
) -> tuple[Bound, Message]:
    """Name the resource that the window's length depends on most.

    The host only where a notable part of the time lacks compute: communication may hide that the device waits.
    """
    span = partition.span_ns
    waits = partition.host_wait_ns + partition.launch_latency_ns
    rest = partition.dependency_wait_ns + partition.other_exposed_ns + partition.unattributed_ns
    host = say("{host} waiting for the host, launch latency included", host=share(partition.host_wait_ns / span))
    if latency_known:
        host = say(
            "{host} waiting for the host and {latency} launch latency",
            host=share(partition.host_wait_ns / span),
            latency=share(partition.launch_latency_ns / span),
        )
    shares = say(
        "{compute} of span is compute, {exposed} exposed communication, {host}",
        compute=share(partition.compute_ns / span),
        exposed=share(partition.comm_exposed_ns / span),
        host=host,
    )
    if rest > max(partition.compute_ns, partition.comm_exposed_ns, waits):
        largest = say(
            "exposed copies and other work ({other} of span) and waiting for dependencies ({rest} "
            "together) are the largest part",
            other=share(partition.other_exposed_ns / span),
            rest=share(rest / span),
        )
        return "unknown", chain(largest, shares)
    values: dict[Bound, float] = {"host": e.host, "compute": e.compute, "communication": e.communication}
    host_first = e.host >= max(e.compute, e.communication)
    bound: Bound = "communication" if e.communication > e.compute else "compute"
    if host_first and span - partition.compute_ns >= thresholds.idle_share * span:
        bound = "host"
    effect = {name: share(max(value, 0.0) / 10) for name, value in values.items()}  # of a tenth less
    others = [say("10 % less {name} by {effect}", name=_NAME[n], effect=effect[n]) for n in values if n != bound]
    lever = say(
        "10 % less {time} shortens {what} by {effect} ({others})",
        time=_TIME[bound],
        what=what,
        effect=effect[bound],
        others=series(others),
    )
    busy = say("a kernel runs nearly all the time, though the host sets the pace")
    return bound, chain(lever, shares, busy if host_first and bound != "host" else None)


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


def _inferred(partition: Partition, pace: Pace, thresholds: Thresholds) -> tuple[Bound, Message]:
    """Judge by gap statistics where launches are not recorded."""
    after_gap = pace.after_gap / pace.kernels if pace.kernels else 0.0
    unknown = say(
        "for {idle} of span the device is idle with no launch recorded (recorded launches, as in "
        "trace_view.json, may show why)",
        idle=share(partition.unattributed_ns / partition.span_ns),
    )
    cause = say("the cause may be the host, a sync or a dependency")
    if not pace.kernels:
        return "unknown", chain(unknown, say("the data has no kernels: {cause}", cause=cause))
    if pace.kernels < thresholds.gap_kernels_least:
        few = say_n(
            "{n} kernel is too few to judge: {cause}",
            "{n} kernels are too few to judge: {cause}",
            pace.kernels,
            cause=cause,
        )
        return "unknown", chain(unknown, few)
    rule = say(
        "{share} of kernels start after a gap of {gap} or more", share=share(after_gap), gap=ns(thresholds.gap_ns)
    )
    if after_gap >= thresholds.gap_kernels_share:
        return "host", chain(unknown, say("{rule}, as when a host launches one by one", rule=rule))
    return "unknown", chain(unknown, say("only {rule}: {cause}", rule=rule, cause=cause))


def _reason(bound: Bound, partition: Partition, pace: Pace, thresholds: Thresholds, latency_known: bool) -> Message:
    span = partition.span_ns
    compute, communication = share(partition.compute_ns / span), share(partition.comm_exposed_ns / span)
    host = share(partition.host_wait_ns / span)
    ahead = say("it is unknown how far the host was ahead")  # how much compute ran while the host was hardly ahead
    if pace.known:
        ahead = say(
            "{paced} of compute time ran with the host less than {lead} ahead",
            paced=share(pace.paced / pace.known),
            lead=ns(thresholds.lead_ns),
        )
        if pace.known < thresholds.enough_data * pace.compute:  # a share of a part is none of the whole
            ahead = say(
                "{paced} of the compute time of which that is known, {known} of all, ran with the host less than "
                "{lead} ahead",
                paced=share(pace.paced / pace.known),
                known=share(pace.known / pace.compute),
                lead=ns(thresholds.lead_ns),
            )
    waits = []
    if partition.idle_ns != partition.unattributed_ns or not partition.idle_ns:
        waits.append(say("waiting for the host {share}", share=host))
    if partition.unattributed_ns:
        waits.append(say("idle with no launch recorded {share}", share=share(partition.unattributed_ns / span)))
    if bound == "host":
        first = say(
            "waiting for the host, launch latency included, takes {host} of span, above {limit}",
            host=host,
            limit=share(thresholds.idle_share),
        )
        if latency_known:
            first = say(
                "waiting for the host ({host} of span) and launch latency ({latency}) are together above {limit}",
                host=host,
                latency=share(partition.launch_latency_ns / span),
                limit=share(thresholds.idle_share),
            )
        return chain(first, ahead)
    if bound == "communication":
        first = say(
            "exposed communication takes {communication} of span, compute {compute}",
            communication=communication,
            compute=compute,
        )
        return chain(first, *waits, by=", ")
    if bound == "compute":
        first = say(
            "compute takes {compute} of span, exposed communication {communication}",
            communication=communication,
            compute=compute,
        )
        notable = partition.host_wait_ns >= thresholds.idle_share * span
        return chain(chain(first, *waits, by=", "), ahead if notable else None)
    return say(
        "neither compute ({compute} of span) nor exposed communication ({communication}) nor "
        "waiting for the host ({host}) is the largest part: exposed copies and other work "
        "{other}, waiting for dependencies {rest}",
        compute=compute,
        communication=communication,
        host=host,
        other=share(partition.other_exposed_ns / span),
        rest=share(partition.dependency_wait_ns / span),
    )


# -- Our partition beside the exporter's own (step_trace_time.csv), and why they differ where they do.


def compare_vendor_steps(
    vendor: Sequence[VendorStep], ours: Mapping[int, Partition], whole: Partition, thresholds: Thresholds
) -> list[VendorCheck]:
    """Compare step by step; a row without a step number is compared with the whole span.

    ``ours``: steps as the device alone shows them, which is what the exporter counts.
    """
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
    # A difference is explained from what is known of the exporter's method.
    reasons = []
    if abs(diff["span"]) > tolerance:
        reasons.append(
            say(
                "its window counts whole events that start inside the host's step range; what it is held against runs "
                "from the step's first device task to that of the next step"
            )
        )
    if abs(diff["compute"]) > tolerance:
        reasons.append(say("rows were lost, or other kernels count as compute there"))
    elif abs(diff["comm_exposed"]) > tolerance:
        reasons.append(say("communication crosses a boundary of the step: theirs is not cut there, ours is"))
    if agrees:
        largest = say(
            "the largest difference is {difference}, {tolerance} is tolerated",
            difference=ns(max(map(abs, diff.values()))),
            tolerance=ns(tolerance),
        )
        reasons = [largest]
    counted = say("its Free column counts {other} of copies and other work as idle", other=ns(mine.other_exposed_ns))
    return VendorCheck(
        step=vendor.step,
        agrees=agrees,
        compute_diff_ns=diff["compute"],
        comm_exposed_diff_ns=diff["comm_exposed"],
        free_diff_ns=diff["free"],
        span_diff_ns=diff["span"],
        why=chain(
            *(reasons or [say("idle time differs by the time outside its events")]),
            counted if mine.other_exposed_ns > tolerance else None,
        ),
    )
