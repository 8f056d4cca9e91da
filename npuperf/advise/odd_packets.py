"""Packets of odd sizes: slower than those of a multiple of 512 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npuperf.advise.across import JobSteps, by_costs, dearest, job_finding
from npuperf.advise.rule import Detected, RankRule
from npuperf.cluster.packets import PacketCost
from npuperf.documents.analysis import Finding
from npuperf.messages import Message, chain, say, say_n
from npuperf.model.thresholds import Thresholds

NAME: Final = "odd_packets"
TITLE = say("packets of odd sizes")
SOURCE = say(
    "sizes and times of packets in communication.json and analysis.db, beside those of the same rank and transport"
)


def judge(costs: Sequence[PacketCost], job: JobSteps, thresholds: Thresholds) -> Finding | None:
    """Tell what odd sizes cost the rank that they cost most; see :func:`npuperf.cluster.packets.packet_costs`."""
    worst = dearest("unaligned", costs, job, thresholds)
    if worst is None:
        return None
    problem = Detected(
        title=chain(_title(worst.cost, thresholds), job.price(worst.gain)),
        evidence=worst.evidence,
        gain=worst.gain,
        refute=say("the transfers lie beside compute that takes longer anyway"),
        next=say(
            "pad what each rank sends to multiples of 512 bytes: sizes of gradient buckets, flattened parameters, "
            "vocabulary and sequence length"
        ),
    )
    return job_finding(NAME, SOURCE, problem, worst.rank, job, thresholds)


def _title(cost: PacketCost, thresholds: Thresholds) -> Message:
    return say_n(
        "{n} packet over {transport} in {kind} of rank {rank} is no multiple of {unit} bytes, and slower than those "
        "that are",
        "{n} packets over {transport} in {kind} of rank {rank} are no multiple of {unit} bytes, and slower than those "
        "that are",
        cost.count,
        transport=cost.transport,
        kind=cost.kind,
        rank=cost.ranks[0],
        unit=thresholds.packet_alignment_bytes,
    )


RULE = RankRule(NAME, TITLE, SOURCE, by_costs(judge))
