"""Small packets: what is sent in them takes longer than the same bytes in larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npuperf.advise.across import JobSteps, by_costs, dearest, job_finding
from npuperf.advise.rule import Detected, RankRule
from npuperf.cluster.packets import PacketCost
from npuperf.documents.analysis import Finding
from npuperf.messages import Message, chain, number, say, say_n, size
from npuperf.model.thresholds import Thresholds

NAME: Final = "small_packets"
TITLE = say("small packets")
SOURCE = say(
    "sizes and times of packets in communication.json and analysis.db, beside those of the same rank and transport"
)


def judge(costs: Sequence[PacketCost], job: JobSteps, thresholds: Thresholds) -> Finding | None:
    """Tell what small packets cost the rank that they cost most; see :func:`npuperf.cluster.packets.packet_costs`."""
    worst = dearest("small", costs, job, thresholds)
    if worst is None:
        return None
    problem = Detected(
        title=chain(_title(worst.cost, thresholds), job.price(worst.gain)),
        evidence=worst.evidence,
        gain=worst.gain,
        refute=say("the transfers lie beside compute that takes longer anyway"),
        next=say(
            "let fewer, larger operations do the same: larger gradient buckets (bucket_cap_mb of DDP), one collective "
            "for several tensors"
        ),
    )
    return job_finding(NAME, SOURCE, problem, worst.rank, job, thresholds)


def _title(cost: PacketCost, thresholds: Thresholds) -> Message:
    return say_n(
        "{n} packet of less than {limit} moves {rate} GB/s over {transport} in {kind} of rank {rank}, where others "
        "reach {best} GB/s",
        "{n} packets of less than {limit} move {rate} GB/s over {transport} in {kind} of rank {rank}, where others "
        "reach {best} GB/s",
        cost.count,
        limit=size(thresholds.small_packet_bytes),
        rate=number(cost.evidence["gb_per_s"]),
        transport=cost.transport,
        kind=cost.kind,
        rank=cost.ranks[0],
        best=number(cost.evidence["best_gb_per_s"]),
    )


RULE = RankRule(NAME, TITLE, SOURCE, by_costs(judge))
