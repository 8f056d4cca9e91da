"""What communication loses on its way, and what it takes from compute beside it: how packets are cut, what fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from npuperf.advise.needs import SHAPES
from npuperf.advise.rule import Answer, Detected, JobView, Rule, Untold
from npuperf.base.messages import Message, Series, chain, factor, number, say, say_n, series, size
from npuperf.device.rank_summary import RankSummary
from npuperf.device.slowed import SlowedType, costliest
from npuperf.device.view import DeviceView
from npuperf.model.result import Finding
from npuperf.model.thresholds import Thresholds

if TYPE_CHECKING:
    from npuperf.job.packets import PacketCost, What  # loaded where there is a job


def _costs(
    what: What, title: Callable[[PacketCost, Thresholds], Message], refute: Message, next: Callable[[int, int], Message]
) -> Callable[[Rule, JobView], list[Finding]]:
    """Make the question what one cause costs the rank that it costs most; see :mod:`npuperf.job.packets`.

    ``next`` gets that rank and its device.
    """

    def judge(rule: Rule, job: JobView) -> list[Finding]:
        least = job.thresholds.lost_share * job.cluster.step_ns * job.cluster.steps
        mine = [c for c in job.study.costs if c.what == what and c.lost_ns is not None and c.lost_ns > least]
        if not mine:
            return []
        worst = max(mine, key=lambda c: c.lost_ns or 0)
        rank = worst.ranks[0]
        gain = job.gain(sum(dict(zip(cost.ranks, cost.by_rank, strict=True)).get(rank) or 0 for cost in mine))
        problem = Detected(
            title=chain(title(worst, job.thresholds), job.price(gain)),
            evidence={"costs": [_row(cost) for cost in mine]},
            gain=gain,
            refute=refute,
            next=next(rank, job.device(rank)),
        )
        return [job.finding(rule, problem, rank)]

    return judge


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


# -- Operations that were repeated because a transfer failed, or went by way of another device.

_FLAGS: Final = say(
    "retry and relay of COMMUNICATION_OP in the profiler's database, beside alike operations without them"
)
_AS_LONG: Final = say(
    "the operations are as long in a recording without it: their time holds waiting for other ranks, too"
)


def _look_at_port(rank: int, device: int) -> Message:
    return say(
        "hccn_tool -i {device} -stat -g on the host of rank {rank} counts errors and retries of its port; look at "
        "its cable, optical module and switch, and at the devices of its peers",
        device=device,
        rank=rank,
    )


RETRIED_TRANSFERS = Rule(
    "retried_transfers",
    say("repeated transfers"),
    _FLAGS,
    judge_job=_costs(
        "retry",
        lambda cost, _: say_n(
            "{n} {kind} of rank {rank} was repeated, and took longer than those that were not",
            "{n} {kind} of rank {rank} were repeated, and took longer than those that were not",
            cost.count,
            kind=cost.kind,
            rank=cost.ranks[0],
        ),
        _AS_LONG,
        _look_at_port,
    ),
)
RELAYED_TRANSFERS = Rule(
    "relayed_transfers",
    say("transfers by detours"),
    _FLAGS,
    judge_job=_costs(
        "relay",
        lambda cost, _: say_n(
            "{n} {kind} of rank {rank} took a detour over another device, and longer than those that did not",
            "{n} {kind} of rank {rank} took detours over other devices, and longer than those that did not",
            cost.count,
            kind=cost.kind,
            rank=cost.ranks[0],
        ),
        _AS_LONG,
        _look_at_port,
    ),
)


# -- Packets that are small, or no multiple of 512 bytes: the same bytes take longer in them.

_PACKETS: Final = say(
    "sizes and times of packets in communication.json and analysis.db, beside those of the same rank and transport"
)
_HIDDEN: Final = say("the transfers lie beside compute that takes longer anyway")

SMALL_PACKETS = Rule(
    "small_packets",
    say("small packets"),
    _PACKETS,
    judge_job=_costs(
        "small",
        lambda cost, thresholds: say_n(
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
        ),
        _HIDDEN,
        lambda *_: say(
            "let fewer, larger operations do the same: larger gradient buckets (bucket_cap_mb of DDP), one collective "
            "for several tensors"
        ),
    ),
)
ODD_PACKETS = Rule(
    "odd_packets",
    say("packets of odd sizes"),
    _PACKETS,
    judge_job=_costs(
        "unaligned",
        lambda cost, thresholds: say_n(
            "{n} packet over {transport} in {kind} of rank {rank} is no multiple of {unit} bytes, and slower than "
            "those that are",
            "{n} packets over {transport} in {kind} of rank {rank} are no multiple of {unit} bytes, and slower than "
            "those that are",
            cost.count,
            transport=cost.transport,
            kind=cost.kind,
            rank=cost.ranks[0],
            unit=thresholds.packet_alignment_bytes,
        ),
        _HIDDEN,
        lambda *_: say(
            "pad what each rank sends to multiples of 512 bytes: sizes of gradient buckets, flattened parameters, "
            "vocabulary and sequence length"
        ),
    ),
)


# -- Kernels that take longer because the device communicates beside them.

_AS_SLOW: Final = say("the kernels take as long where the same step runs without communication")
_OTHER_NEIGHBOURS: Final = say(
    "let communication run beside matmuls rather than beside kernels that memory limits, and compare the step with and "
    "without overlap"
)
_SHOWN: Final = 3


def _types(rows: Sequence[SlowedType]) -> Series:
    return series(say("{type} ×{ratio}", type=row["type"], ratio=factor(row["ratio"])) for row in rows[:_SHOWN])


def judge_slowed_compute(view: DeviceView, summary: RankSummary) -> Answer:
    """Ask one device: it needs no other to compare its own kernels."""
    if missing := SHAPES.missing(view):
        return Untold(missing)
    if not summary.slowed:
        return None
    lost, span = sum(row.lost_ns for row in summary.slowed), view.partition.span_ns
    if lost <= view.thresholds.lost_share * span:
        return None
    types = costliest(summary.slowed)
    return Detected(
        title=say("kernels take longer beside communication than equal ones without it: {types}", types=_types(types)),
        evidence={"lost_ns": lost, "types": types},
        gain=(0, view.per_step(min(lost, span))),
        refute=_AS_SLOW,
        next=_OTHER_NEIGHBOURS,
    )


SLOWED_COMPUTE = Rule(
    "slowed_compute",
    say("compute slowed by communication"),
    say("durations of kernels of one type and shape, wholly beside communication and wholly without it"),
    judge_rank=judge_slowed_compute,
    judge_job=_costs(
        "slowed_compute",
        lambda cost, _: say(
            "kernels of rank {rank} take longer beside communication than equal ones without it: {types}",
            rank=cost.ranks[0],
            types=_types(cost.evidence["types"]),
        ),
        _AS_SLOW,
        lambda *_: _OTHER_NEIGHBOURS,
    ),
)
