"""Kernels that take longer because the device communicates beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npuperf.advise.across import JobSteps, dearest, job_finding
from npuperf.advise.rule import Detected
from npuperf.cluster.packets import PacketCost
from npuperf.documents.analysis import Finding
from npuperf.messages import Message, chain, factor, say, series
from npuperf.model.thresholds import Thresholds

NAME: Final = "slowed_compute"
TITLE = say("compute slowed by communication")
SOURCE = say("durations of kernels of one type and shape, wholly beside communication and wholly without it")


def judge(costs: Sequence[PacketCost], job: JobSteps, thresholds: Thresholds) -> Finding | None:
    """Tell what communication takes from compute beside it; see :func:`npuperf.cluster.beside.slowed`."""
    worst = dearest("slowed_compute", costs, job, thresholds)
    if worst is None:
        return None
    problem = Detected(
        title=chain(_title(worst.cost), job.price(worst.gain)),
        evidence=worst.evidence,
        gain=worst.gain,
        refute=say("the kernels take as long where the same step runs without communication"),
        next=say(
            "let communication run beside matmuls rather than beside kernels that memory limits, and compare the step "
            "with and without overlap"
        ),
    )
    return job_finding(NAME, SOURCE, problem, worst.rank, job, thresholds)


def _title(cost: PacketCost) -> Message:
    rows = cost.evidence["types"][:3]
    types = series(say("{type} ×{ratio}", type=row["type"], ratio=factor(row["ratio"])) for row in rows)
    return say(
        "kernels of rank {rank} take longer beside communication than equal ones without it: {types}",
        rank=cost.ranks[0],
        types=types,
    )
