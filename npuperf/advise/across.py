"""What findings across ranks have in common: what a step gains, and the rank that loses most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from npuperf.advise.rule import MATCHED, Detected, severity, within
from npuperf.cluster.packets import PacketCost, What
from npuperf.documents.analysis import Finding
from npuperf.documents.cluster import Cluster
from npuperf.messages import Message, chain, ns, say
from npuperf.model.thresholds import Thresholds

if TYPE_CHECKING:
    from npuperf.cluster.judge import JobStudy


class JobSteps(Struct, frozen=True):
    """The job's step and how many of them sums are over; ``devices``: the device of each rank."""

    step_ns: int
    steps: int
    devices: Mapping[int, int]

    @classmethod
    def of(cls, cluster: Cluster) -> JobSteps:
        """Return the steps of a job as its document has them."""
        return cls(cluster.step_ns, cluster.steps, {r.rank: r.device for r in cluster.ranks})

    def gain(self, lost_ns: float) -> tuple[int, int]:
        """Return what a step gains at most if nothing of ``lost_ns``, of all steps, is lost: the step at most."""
        return 0, min(int(lost_ns) // max(self.steps, 1), self.step_ns)

    def price(self, gain: tuple[int, int]) -> Message:
        """Return in words what a gain is of a step."""
        return say("up to {lost} of a step of {step}", lost=ns(gain[1]), step=ns(self.step_ns))


def by_costs(
    judge: Callable[[Sequence[PacketCost], JobSteps, Thresholds], Finding | None],
) -> Callable[[JobStudy, Cluster, Thresholds], list[Finding]]:
    """Make the question of a rule to a job from one to the costs of its transfers."""

    def ask(study: JobStudy, cluster: Cluster, thresholds: Thresholds) -> list[Finding]:
        found = judge(study.costs, JobSteps.of(cluster), thresholds)
        return [found] if found else []

    return ask


class Dearest(Struct, frozen=True):
    """The costliest of several costs of one cause; ``gain``: what its worst rank gains if it has none of them."""

    cost: PacketCost
    rank: int
    device: int
    gain: tuple[int, int]
    evidence: dict[str, Any]


def dearest(what: What, costs: Sequence[PacketCost], job: JobSteps, thresholds: Thresholds) -> Dearest | None:
    """Return what a cause costs most, if it is known to be more than a notable part of the steps."""
    least = thresholds.lost_share * job.step_ns * job.steps
    mine = [c for c in costs if c.what == what and c.lost_ns is not None and c.lost_ns > least]
    if not mine:
        return None
    worst = max(mine, key=lambda c: c.lost_ns or 0)
    rank = worst.ranks[0]
    gain = job.gain(sum(_lost(cost, rank) for cost in mine))
    return Dearest(worst, rank, job.devices.get(rank, 0), gain, {"costs": [_row(cost) for cost in mine]})


def _lost(cost: PacketCost, rank: int) -> int:
    return next((lost or 0 for r, lost in zip(cost.ranks, cost.by_rank, strict=True) if r == rank), 0)


def _row(cost: PacketCost) -> dict[str, Any]:
    return {
        "transport": cost.transport,
        "kind": cost.kind,
        "count": cost.count,
        "bytes": cost.bytes,
        "time_ns": cost.time_ns,
        "lost_ns": cost.lost_ns,
        "lost_ns_by_rank": {str(r): lost for r, lost in zip(cost.ranks, cost.by_rank, strict=True)},
        **cost.evidence,
    }


def job_finding(
    name: str, source: Message, problem: Detected, rank: int, job: JobSteps, thresholds: Thresholds
) -> Finding:
    """Return a problem of several ranks as it stands in the result; ``rank``: where to look first."""
    gain = within(problem.gain, job.step_ns) if problem.gain else None
    most = gain[1] / max(job.step_ns, 1) if gain else 0.0
    return Finding(
        rule=name,
        status="problem",
        severity=severity(most, thresholds),
        title=problem.title,
        evidence=problem.evidence,
        gain_ns_per_step=gain,
        gain_pct=(0.0, 100 * most) if gain else None,
        gain_per="step",
        refute=problem.refute,
        next=problem.next if isinstance(problem.next, Message) else chain(*(o.text for o in problem.next)),
        code=problem.code,
        needs=None,
        source=source,
        rank=rank,
        device=job.devices.get(rank, 0),
        preconditions=[MATCHED],
    )
