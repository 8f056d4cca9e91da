"""What communication loses on its way, and what it takes from compute beside it: how packets are cut, what fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import fsum
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins

from npuperf.advise.needs import ALL_ROWS, OPERATOR_TYPES, SHAPES
from npuperf.advise.rule import Answer, Detected, JobView, Rule, Untold, quote, rule, top_types
from npuperf.base.messages import Message, Series, chain, factor, ns, number, say, say_n, series, share, size
from npuperf.device.operators import SlowedType, costliest
from npuperf.device.rank_summary import RankSummary
from npuperf.device.view import DeviceView
from npuperf.model.job_result import CollectiveRate
from npuperf.model.thresholds import Thresholds

if TYPE_CHECKING:
    from npuperf.job.links import PacketCost, What  # loaded where there is a job


def _costs(
    what: What,
    says: Callable[[PacketCost, Thresholds], Message],
    refute: Message,
    next: Message | None = None,
) -> Callable[[JobView], list[Detected]]:
    """Make the question what one cause costs the rank that it costs most; see :mod:`npuperf.job.links`.

    ``next``: what to do; None: look at the port of that rank.
    """

    def look(job: JobView) -> list[Detected]:
        least = job.thresholds.lost_share * job.cluster.step_ns * job.cluster.steps
        mine = [c for c in job.study.costs if c.what == what and c.lost_ns is not None and c.lost_ns > least]
        if not mine:
            return []
        worst = max(mine, key=lambda c: c.lost_ns or 0)
        rank, device = worst.ranks[0], job.device(worst.ranks[0])
        by_rank = [dict(zip(cost.ranks, cost.by_rank, strict=True)) for cost in mine]
        gain = job.gain(fsum(lost.get(rank) or 0 for lost in by_rank))
        rows = [
            {
                "transport": cost.transport,
                "kind": cost.kind,
                "count": cost.count,
                "bytes": cost.bytes,
                "time_ns": cost.time_ns,
                "lost_ns": cost.lost_ns,
                "lost_ns_by_rank": {str(r): ns for r, ns in lost.items()},
                **cost.evidence,
            }
            for cost, lost in zip(mine, by_rank, strict=True)
        ]
        return [
            Detected(
                title=chain(says(worst, job.thresholds), job.price(gain)),
                refute=refute,
                next=next
                or say(
                    "hccn_tool -i {device} -stat -g on the host of rank {rank} counts errors and retries of its port; "
                    "look at its cable, optical module and switch, and at the devices of its peers",
                    device=device,
                    rank=rank,
                ),
                evidence={"costs": rows},
                gain=gain,
                rank=rank,
                device=device,
            )
        ]

    return look


# -- Operations that were repeated because a transfer failed, or went by way of another device; packets that are small,
# -- or no multiple of 512 bytes, in which the same bytes take longer.

_FLAGS: Final = say(
    "retry and relay of COMMUNICATION_OP in the profiler's database, beside alike operations without them"
)
_AS_LONG: Final = say(
    "the operations are as long in a recording without it: their time holds waiting for other ranks, too"
)
_PACKETS: Final = say(
    "sizes and times of packets in communication.json and analysis.db, beside those of the same rank and transport"
)
_ROWS: Final = 10
_HIDDEN: Final = say("the transfers lie beside compute that takes longer anyway")


retried_transfers = Rule(
    "retried_transfers",
    say("repeated transfers"),
    _FLAGS,
    on_job=_costs(
        "retry",
        lambda cost, _: say_n(
            "{n} {kind} of rank {rank} was repeated, and took longer than those that were not",
            "{n} {kind} of rank {rank} were repeated, and took longer than those that were not",
            cost.count,
            kind=cost.kind,
            rank=cost.ranks[0],
        ),
        _AS_LONG,
    ),
)
relayed_transfers = Rule(
    "relayed_transfers",
    say("transfers by detours"),
    _FLAGS,
    on_job=_costs(
        "relay",
        lambda cost, _: say_n(
            "{n} {kind} of rank {rank} took a detour over another device, and longer than those that did not",
            "{n} {kind} of rank {rank} took detours over other devices, and longer than those that did not",
            cost.count,
            kind=cost.kind,
            rank=cost.ranks[0],
        ),
        _AS_LONG,
    ),
)
small_packets = Rule(
    "small_packets",
    say("small packets"),
    _PACKETS,
    on_job=_costs(
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
        say("let fewer, larger operations do the same: larger gradient buckets (bucket_cap_mb of DDP), one collective "
            "for several tensors"),
    ),
)  # fmt: skip
odd_packets = Rule(
    "odd_packets",
    say("packets of odd sizes"),
    _PACKETS,
    on_job=_costs(
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
        say("pad what each rank sends to multiples of 512 bytes: sizes of gradient buckets, flattened parameters, "
            "vocabulary and sequence length"),
    ),
)  # fmt: skip


# -- Collectives that are far slower than the links that they use.


def _slow_collectives(job: JobView) -> list[Detected]:
    """Name the kinds and sizes of which all ranks are there, and the links are used for little of the time.

    Small ones wait for latency, not for links: of these :data:`small_packets` tells.
    """
    ranks, steps = len(job.study.ranks), max(job.cluster.steps, 1)
    limits, found = job.thresholds, list[tuple[float, CollectiveRate]]()
    for one in job.cluster.collective_rates:
        if one.bus_gb_per_s is None or one.link_gb_per_s is None or not one.links or not one.bytes:
            continue
        reached = one.link_gb_per_s * one.links
        _, high = one.bus_gb_per_s
        large = one.bytes >= limits.small_packet_bytes * one.operations
        if large and high is not None and high < limits.transfer_ratio * reached:
            found.append((one.time_ns[0] * (1 - high / reached) / ranks, one))  # of each rank
    found.sort(key=lambda row: -row[0])
    lost = fsum(ns_ for ns_, _ in found)
    if lost <= max(limits.lost_share * job.cluster.step_ns * steps, 1):
        return []
    worst, gain = found[0][1], job.gain(lost)
    assert worst.bus_gb_per_s is not None and worst.link_gb_per_s is not None and worst.links
    title = say(
        "{kind} of {size} over {n} ranks has a bus bandwidth of {rate} GB/s, its links over {transport} reach {link}",
        kind=worst.kind,
        size=worst.size_class,
        n=worst.ranks,
        rate=number(worst.bus_gb_per_s[1] or 0),
        transport=worst.transport,
        link=number(worst.link_gb_per_s * worst.links),
    )
    more = say_n("{n} other kind or size is as slow", "{n} other kinds or sizes are as slow", len(found) - 1)
    return [
        Detected(
            title=chain(title, more if len(found) > 1 else None, job.price(gain)),
            evidence={"lost_ns": int(lost), "collectives": [to_builtins(one) for _, one in found[:_ROWS]]},
            gain=gain,
            refute=say("HCCL's own test (all_reduce_test and its like) is as slow with as many bytes and ranks, or the "
                       "operations lie beside compute that takes longer anyway"),
            next=say("compare with HCCL's test on the same ranks; if that is faster, look at HCCL_ALGO, HCCL_BUFFSIZE "
                     "and HCCL_OP_EXPANSION_MODE of this run, and at what runs beside"),
        )
    ]  # fmt: skip


slow_collectives = Rule(
    "slow_collectives",
    say("collectives far below their links"),
    say("nccl-tests, doc/PERFORMANCE.md: bus bandwidth; times of links in communication.json and analysis.db"),
    on_job=_slow_collectives,
)


# -- Kernels that take longer because the device communicates beside them.

_AS_SLOW: Final = say("the kernels take as long where the same step runs without communication")
_OTHER_NEIGHBOURS: Final = say(
    "let communication run beside matmuls rather than beside kernels that memory limits, and compare the step with and "
    "without overlap"
)


def _types(rows: Sequence[SlowedType]) -> Series:
    return series(say("{type} ×{ratio}", type=row["type"], ratio=factor(row["ratio"])) for row in rows[:3])


def _slowed_of_rank(view: DeviceView, summary: RankSummary) -> Answer:
    """Ask one device: it needs no other to compare its own kernels."""
    if missing := SHAPES.missing(view):
        return Untold(missing)
    beside, span = summary.beside, view.partition.span_ns
    lost, least = sum(row.lost_ns for row in beside.slowed), view.thresholds.lost_share * span
    if lost <= least:
        if beside.alone_unknown_ns <= least:
            return None
        return Untold(say(
            "kernels of {time} run beside communication that have too few equals without it to be compared with: "
            "record more steps with npuperf profile --active 5", time=ns(beside.alone_unknown_ns)
        ))  # fmt: skip
    types = costliest(beside.slowed)
    return Detected(
        title=say("kernels take longer beside communication than equal ones without it: {types}", types=_types(types)),
        evidence={"lost_ns": lost, "types": types},
        gain=(0, view.per_step(min(lost, span))),
        refute=_AS_SLOW,
        next=_OTHER_NEIGHBOURS,
    )


slowed_compute = Rule(
    "slowed_compute",
    say("compute slowed by communication"),
    say("durations of kernels of one type and shape, wholly beside communication and wholly without it"),
    on_rank=_slowed_of_rank,
    on_job=_costs(
        "slowed_compute",
        lambda cost, _: say(
            "kernels of rank {rank} take longer beside communication than equal ones without it: {types}",
            rank=cost.ranks[0],
            types=_types(cost.evidence["types"]),
        ),
        _AS_SLOW,
        _OTHER_NEIGHBOURS,
    ),
)


# -- Kernels that compute and communicate in one: what they wait for other ranks counts as compute, as in the tables.

#: CANN's operators of that kind: AllGatherMatmul, MatmulReduceScatterV2, GroupedMatMulAlltoAllv, MoeDistributeDispatch
_EXCHANGES: Final = re.compile(
    r"all_?(?:gather|reduce|to_?all)|reduce_?scatter|moe_?distribute_?(?:dispatch|combine)|dispatch_?ffn_?combine",
    re.IGNORECASE,
)


@rule(
    say("kernels that wait for other ranks"),
    say("operator types: CANN's operators that communicate by themselves (MC2, MoeDistributeDispatch)"),
    (OPERATOR_TYPES, ALL_ROWS),
)
def waiting_kernels(view: DeviceView) -> Answer:
    """Find kernels that exchange data with other ranks while they run, and cover time that nothing else covers."""
    chosen = view.compute & view.types.flag([bool(_EXCHANGES.search(name)) for name in view.types.names])
    exposed = view.exposed(chosen)
    if not exposed or exposed < view.thresholds.comm_exposed_share * view.partition.span_ns:
        return None
    rows, dur = top_types(view, chosen), view.tasks.dur[chosen]
    part, types = share(exposed / view.partition.span_ns), quote(rows)
    most = say("{share} of the span is kernels that exchange data with other ranks as they run: {types}", share=part,
               types=types)  # fmt: skip
    if view.steps:
        most = say("{share} of the step is kernels that exchange data with other ranks as they run: {types}",
                   share=part, types=types)  # fmt: skip
    return Detected(
        title=chain(most, say("they count as compute, and how long they wait for the others one rank cannot tell")),
        evidence={"count": int(chosen.sum()), "exposed_ns": exposed, "types": rows, "shortest_ns": int(dur.min()),
                  "longest_ns": int(dur.max())},
        gain=(0, view.per_step(exposed)),
        refute=say("they take as long on every rank, and as long as their bytes take"),
        next=say("compare their rows between ranks (npuperf analyze PATH --rank N --table operators): where they are "
                 "shortest, the others wait for that rank; with experts, look at how evenly tokens spread over them"),
    )  # fmt: skip
