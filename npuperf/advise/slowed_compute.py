"""Kernels that take longer because the device communicates beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npuperf.advise.across import JobSteps, by_costs, dearest, job_finding
from npuperf.advise.needs import SHAPES
from npuperf.advise.rule import Answer, Detected, RankRule, Untold
from npuperf.cluster.packets import PacketCost, slowed_cost
from npuperf.cluster.summary import RankSummary
from npuperf.documents.analysis import Finding
from npuperf.messages import Message, Series, chain, factor, say, series
from npuperf.model.thresholds import Thresholds
from npuperf.scopes.view import DeviceView

NAME: Final = "slowed_compute"
TITLE = say("compute slowed by communication")
SOURCE = say("durations of kernels of one type and shape, wholly beside communication and wholly without it")
_REFUTE: Final = say("the kernels take as long where the same step runs without communication")
_NEXT: Final = say(
    "let communication run beside matmuls rather than beside kernels that memory limits, and compare the step with and "
    "without overlap"
)
_SHOWN: Final = 3


def judge(costs: Sequence[PacketCost], job: JobSteps, thresholds: Thresholds) -> Finding | None:
    """Tell what communication takes from compute beside it; see :func:`npuperf.cluster.beside.slowed`."""
    worst = dearest("slowed_compute", costs, job, thresholds)
    if worst is None:
        return None
    problem = Detected(
        title=chain(_title(worst.cost), job.price(worst.gain)),
        evidence=worst.evidence,
        gain=worst.gain,
        refute=_REFUTE,
        next=_NEXT,
    )
    return job_finding(NAME, SOURCE, problem, worst.rank, job, thresholds)


def _title(cost: PacketCost) -> Message:
    return say(
        "kernels of rank {rank} take longer beside communication than equal ones without it: {types}",
        rank=cost.ranks[0],
        types=_types(cost),
    )


def _types(cost: PacketCost) -> Series:
    rows = cost.evidence["types"][:_SHOWN]
    return series(say("{type} ×{ratio}", type=row["type"], ratio=factor(row["ratio"])) for row in rows)


def judge_alone(view: DeviceView, summary: RankSummary) -> Answer:
    """Ask one device: it needs no other to compare its own kernels."""
    if missing := SHAPES.missing(view):
        return Untold(missing)
    if not summary.slowed:
        return None
    cost = slowed_cost(summary.rank, summary.slowed)
    lost, span = cost.lost_ns or 0, view.partition.span_ns
    if lost <= view.thresholds.lost_share * span:
        return None
    return Detected(
        title=say("kernels take longer beside communication than equal ones without it: {types}", types=_types(cost)),
        evidence={"lost_ns": lost, **cost.evidence},
        gain=(0, view.per_step(min(lost, span))),
        refute=_REFUTE,
        next=_NEXT,
    )


RULE = RankRule(NAME, TITLE, SOURCE, by_costs(judge), alone=judge_alone)
