"""Operations that went by way of another device, because their own port did not serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from npuperf.advise.across import JobSteps, by_costs, dearest, job_finding
from npuperf.advise.rule import Detected, RankRule
from npuperf.cluster.packets import PacketCost
from npuperf.documents.analysis import Finding
from npuperf.messages import Message, chain, say, say_n
from npuperf.model.thresholds import Thresholds

NAME: Final = "relayed_transfers"
TITLE = say("transfers by detours")
SOURCE = say("retry and relay of COMMUNICATION_OP in the profiler's database, beside alike operations without them")


def judge(costs: Sequence[PacketCost], job: JobSteps, thresholds: Thresholds) -> Finding | None:
    """Tell what detours cost the rank that they cost most; see :func:`npuperf.cluster.packets.packet_costs`."""
    worst = dearest("relay", costs, job, thresholds)
    if worst is None:
        return None
    problem = Detected(
        title=chain(_title(worst.cost), job.price(worst.gain)),
        evidence=worst.evidence,
        gain=worst.gain,
        refute=say(
            "the operations are as long in a recording without it: their time holds waiting for other ranks, too"
        ),
        next=say(
            "hccn_tool -i {device} -stat -g on the host of rank {rank} counts errors and retries of its port; look at "
            "its cable, optical module and switch, and at the devices of its peers",
            device=worst.device,
            rank=worst.rank,
        ),
    )
    return job_finding(NAME, SOURCE, problem, worst.rank, job, thresholds)


def _title(cost: PacketCost) -> Message:
    return say_n(
        "{n} {kind} of rank {rank} took a detour over another device, and longer than those that did not",
        "{n} {kind} of rank {rank} took detours over other devices, and longer than those that did not",
        cost.count,
        kind=cost.kind,
        rank=cost.ranks[0],
    )


RULE = RankRule(NAME, TITLE, SOURCE, by_costs(judge))
