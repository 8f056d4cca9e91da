"""Links between ranks, each counted once and judged by its peers; packets, retries, detours, slowed compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import MS, bandwidth, group, link_use, operations, summary

from npuperf.advise import load_thresholds
from npuperf.device.collective_rates import class_text, size_class
from npuperf.device.operators import BesideCommunication, Slowed
from npuperf.device.rank_summary import RankSummary
from npuperf.job.links import PacketCost, judge_links, packet_costs, slow_links
from npuperf.model.groups import alike, medians, medians_of_others
from npuperf.model.job_result import Link

STEP = 100 * MS
#: 20 MB in 1 ms: 20 GB/s.
MB = 1_000_000


def judged(*ranks: RankSummary, steps: int = 1) -> list[Link]:
    return judge_links(ranks, STEP, steps, load_thresholds()).links


def row(source: int, target: int, moved: int = 20 * MB, ns: int = MS, **more: Any) -> dict[str, Any]:
    return {"source": source, "target": target, "bytes": moved, "ns": ns, **more}


def pairs(*ns: int, **more: Any) -> list[RankSummary]:
    """Ranks 0 and 1, 2 and 3, …: 20 MB from each to the other, in so many ns."""
    return [
        summary(rank, links=link_use([row(rank, rank ^ 1, ns=took, **more)]))
        for pair, took in enumerate(ns)
        for rank in (2 * pair, 2 * pair + 1)
    ]


def test_both_directions_add_up_and_none_counts_twice() -> None:
    """Rank 1's file tells of 0→1 what rank 0 tells itself: 20 MB out, 10 MB back, 30 in all."""
    ranks = [
        summary(0, links=link_use([row(0, 1)])),
        summary(1, links=link_use([row(1, 0, 10 * MB), row(0, 1)])),
    ]
    (link,) = judged(*ranks)
    assert (link.ranks, link.bytes, link.time_ns) == ((0, 1), 30 * MB, 2 * MS)
    assert link.gb_per_s == pytest.approx(15.0)
    assert (link.count, link.size_class, link.slow, link.peers_gb_per_s, link.lost_ns) == (None, None, False, None, 0)


def test_what_only_the_other_end_tells_counts() -> None:
    (link,) = judged(summary(1, links=link_use([row(0, 1)])))
    assert (link.ranks, link.bytes) == ((0, 1), 20 * MB)


def test_a_slow_link_is_named_with_what_it_lost() -> None:
    """Three pairs at 20 GB/s; 20 MB of pair 6-7 take 10 ms instead of 1, both ways at once: 9 ms of a step are lost."""
    slow, *others = judged(*pairs(MS, MS, MS, 10 * MS))
    assert (slow.ranks, slow.slow, slow.peers_gb_per_s, slow.lost_ns) == ((6, 7), True, 20.0, 9 * MS)
    assert (slow.gb_per_s, slow.reference_gb_per_s, slow.transport, slow.kind) == (2.0, 18.0, "HCCS", "allReduce")
    assert len(others) == 3 and not any(link.slow or link.lost_ns for link in others)


@pytest.mark.parametrize(
    "ns",
    [
        (10 * MS, 10 * MS, 10 * MS, 12 * MS),  # 0.83 of its peers
        (MS // 10, MS // 10, MS // 10, 9 * MS // 10),  # a ninth of its peers, but 0.8 ms of 100
    ],
)
def test_no_link_is_slow(ns: tuple[int, ...]) -> None:
    assert not any(link.slow for link in judged(*pairs(*ns)))


@pytest.mark.parametrize(
    ("transport", "hosts", "devices", "slow"),
    [
        ("RDMA", [None] * 4, [0, 1, 0, 1], False),  # nobody knows between which machines
        ("RDMA", ["a", "b", "c", "d"], [0] * 4, False),  # not the same
        ("RDMA", ["a", "b", "b", "a"], [0, 0, 1, 1], True),
        ("HCCS", ["a", "a", "b", "b"], [0, 1, 0, 1], False),
        ("HCCS", ["a"] * 4, [0, 1, 2, 3], True),
        ("HCCS", [None] * 4, [0, 1, 2, 3], True),  # what is not RDMA joins all four
        ("HCCS", [None] * 4, [0, 1, 0, 1], False),  # but then no machine has two devices of one number
    ],
)
def test_between_the_same_machines_one_peer_tells(
    transport: str, hosts: list[str | None], devices: list[int], slow: bool
) -> None:
    """Two links, of which 2-3 takes three times as long; another kind of operation joins 0 and 2 in no time."""
    ranks = [
        summary(rank, host=hosts[rank], device=devices[rank],
                links=link_use([row(rank, rank ^ 1, ns=(1, 1, 3, 3)[rank] * MS, transport=transport),
                                row(rank, rank ^ 2, ns=1, type="send", transport=transport)]))
        for rank in range(4)
    ]  # fmt: skip
    found = [(link.ranks, link.peers_gb_per_s, link.lost_ns) for link in judged(*ranks) if link.slow]
    assert found == ([((2, 3), 20.0, 2 * MS)] if slow else [])


def test_totals_on_both_sides_of_a_power_of_two_are_compared() -> None:
    """Both ways together 16.2, 16.6, 17 and 17.2 MB: 16 MiB lie between them, and they are about as much."""
    moved = [8_100_000, 8_300_000, 8_500_000, 8_600_000]
    took = [each // 20 * (5 if pair == 3 else 1) for pair, each in enumerate(moved)]
    ranks = [
        summary(rank, links=link_use([row(rank, rank ^ 1, moved[rank // 2], took[rank // 2], type="alltoallv")]))
        for rank in range(8)
    ]
    (slow,) = (link for link in judged(*ranks) if link.slow)
    assert (slow.ranks, slow.peers_gb_per_s) == ((6, 7), pytest.approx(20.0))
    assert slow.lost_ns == pytest.approx(took[3] * 4 / 5, rel=0.001)


def test_the_loss_is_held_against_all_steps() -> None:
    """1.8 ms are lost: more than 1 % of one step of 100 ms, less than that of two."""
    ranks = pairs(MS // 10, MS // 10, MS // 10, 19 * MS // 10)
    assert judged(*ranks)[0].slow
    assert not judged(*ranks, steps=2)[0].slow


def test_slow_links_come_first_then_the_busiest() -> None:
    ranks = pairs(*(int(ms * MS) for ms in (2.0, 2.1, 1.9, 2.2, 30, 40)))
    assert [link.ranks[0] for link in judged(*ranks)] == [10, 8, 6, 2, 0, 4]
    shown = judge_links(ranks, STEP, 1, load_thresholds(), most=3).links
    assert [link.ranks[0] for link in shown] == [10, 8, 6]
    assert len(judge_links(ranks, STEP, 1, load_thresholds(), most=1).links) == 2


@pytest.mark.parametrize(
    ("kind", "apart", "lost"), [("send", True, 18), ("batchSendRecv", True, 18), ("batchSendRecv", False, 9)]
)
def test_ways_that_follow_one_another_add_up(kind: str, apart: bool, lost: int) -> None:
    """Pair 6-7 takes 10 ms instead of 1 each way: in two exchanges, or in one in which both receive."""
    slow = [
        summary(
            rank,
            links=link_use([row(rank, rank ^ 1, ns=10 * MS, type=kind)]),
            operations=operations([{"type": "batchSendRecv", "peer": rank ^ 1}] * (2 if apart else 1)),
            bandwidth=bandwidth([(rank % 2 if apart else 0, "HCCS", 20 * MB, 1, 10 * MS)]),
        )
        for rank in (6, 7)
    ]
    (found,) = [link for link in judged(*pairs(MS, MS, MS, type=kind), *slow) if link.slow]
    assert (found.ranks, found.lost_ns) == ((6, 7), lost * MS)


def test_only_links_of_its_own_group_bound_what_a_link_gains() -> None:
    """Twelve ranks in four groups of three; in group 0 the link 0-1 takes 10 ms instead of 1, 1-2 has more to carry and
    takes 3 ms. The group of all has the same operations: there 0-1 is as slow, but others take 30 ms whatever it does.
    """
    carried = {(0, 1): (20 * MB, 10 * MS), (1, 2): (60 * MB, 3 * MS)}
    inside = [(a, b) for g in (0, 3, 6, 9) for a in range(g, g + 3) for b in range(g, g + 3) if a != b]
    of_three = [
        row(a, b, *carried.get((min(a, b), max(a, b)), (20 * MB, MS)), type="allReduce", group=str(a // 3))
        for a, b in inside
    ]
    of_all = [row(a, (a + 3) % 12, 600 * MB, 30 * MS, type="allReduce", group="all") for a in range(12)]
    of_all += [row(0, 1, type="allReduce", group="all", ns=10 * MS)]
    ranks = [summary(r, links=link_use([w for w in of_three + of_all if w["source"] == r])) for r in range(12)]
    (found,) = slow_links(judge_links(ranks, STEP, 1, load_thresholds()))
    assert found.ranks == (0, 1)
    held = {("allReduce", "0"): (10 * MS, 3 * MS), ("allReduce", "all"): (10 * MS, 10 * MS)}
    assert found.holds_up == held


def test_the_vendors_reference_never_decides() -> None:
    """All links at 2 GB/s, a ninth of the vendor's figure: no peer is faster."""
    links = judged(*pairs(*[10 * MS] * 5))
    assert [(link.slow, link.reference_gb_per_s) for link in links] == [(False, 18.0)] * 5


@pytest.mark.parametrize("other", [{"transport": "RDMA"}, {"type": "allGather"}])
def test_peers_have_the_same_transport_and_kind(other: dict[str, str]) -> None:
    """A pair at a tenth of the others' speed, over another transport or in another kind of operation."""
    odd = summary(6, links=link_use([row(6, 7, ns=10 * MS, **other)]))
    (link,) = [link for link in judged(*pairs(MS, MS, MS), odd) if link.ranks == (6, 7)]
    assert (link.slow, link.peers_gb_per_s) == (False, None)


def test_single_operations_that_are_the_whole_total_give_counts_and_sizes() -> None:
    """As best, middle and worst of two operations are exported: 8 + 16 MiB, named again and again."""
    a = row(0, 1, 1 << 23, MS // 2, name="a")
    b = row(0, 1, 1 << 24, MS, name="b")
    total = row(0, 1, (1 << 23) + (1 << 24), MS + MS // 2)
    large, small = judged(summary(0, links=link_use([a, a, b, total, b])))
    assert (small.size_class, small.count, small.bytes, small.time_ns) == ("8–16 MiB", 1, 1 << 23, MS // 2)
    assert (large.size_class, large.count, large.bytes, large.time_ns) == ("16–32 MiB", 1, 1 << 24, MS)


def test_single_operations_that_are_a_part_give_way_to_the_total() -> None:
    a = row(0, 1, 8 * MB, MS // 2, name="a")
    (link,) = judged(summary(0, links=link_use([a, row(0, 1, 80 * MB, 5 * MS)])))
    assert (link.size_class, link.count, link.bytes, link.time_ns) == (None, None, 80 * MB, 5 * MS)


def test_a_total_that_was_counted_keeps_its_count() -> None:
    (link,) = judged(summary(0, links=link_use([row(0, 1, count=7)])))
    assert (link.size_class, link.count) == (None, 7)


def test_operations_of_other_sizes_are_no_peers() -> None:
    """1 KiB operations are slow everywhere; pair 6-7 had nothing else."""
    large = [summary(r, links=link_use([row(r, r + 1, name="x")])) for r in (0, 2, 4)]
    small = [summary(r, links=link_use([row(r, r + 1, 1024, 3 * MS, name="y")])) for r in (6,)]
    (link,) = [link for link in judged(*large, *small) if link.ranks == (6, 7)]
    assert (link.size_class, link.peers_gb_per_s) == ("1–2 KiB", None)


def test_totals_are_held_only_against_totals_of_about_their_size() -> None:
    """Of 2 kB in tiny operations nothing follows from what 20 MB of others reached."""
    tiny = summary(6, links=link_use([row(6, 7, 2_000, 3 * MS)]))
    assert not any(link.slow for link in judged(*pairs(MS, MS, MS), tiny))


def test_only_the_analysed_steps_count() -> None:
    steps = {"step_number": np.array([5]), "step_start": np.array([0]), "step_end": np.array([STEP])}
    links = link_use([row(0, 1, step=4), row(0, 1, 3 * MB, step=5)])
    (link,) = judged(summary(0, links=links, **steps))
    assert link.bytes == 3 * MB


def test_without_links_operations_between_two_ranks_stand_for_theirs() -> None:
    """Two packet sizes of one operation, 5 MB in 1 ms; the operation among four ranks tells no link."""
    ranks = [
        summary(
            rank,
            groups=(group([0, 3], id="1"), group([0, 1, 2, 3], id="2")),
            operations=operations([{"type": "allGather"}, {"group": "2"}, {"group": "unknown"}]),
            bandwidth=bandwidth(
                [
                    (0, "HCCS", 4 * MB, 1, MS // 2),
                    (0, "HCCS", MB, 1, MS // 2),
                    (1, "HCCS", MB, 1, MS),
                    (2, "HCCS", MB, 1, MS),
                ]
            ),
        )
        for rank in (0, 3)
    ]
    (link,) = judged(*ranks)
    assert (link.ranks, link.kind, link.size_class, link.count) == ((0, 3), "allGather", "4–8 MiB", 2)
    assert (link.bytes, link.time_ns) == (10 * MB, 2 * MS)


def test_the_peer_of_a_point_to_point_operation_is_its_partner() -> None:
    """The group has four ranks, the operation two."""
    ranks = summary(
        0,
        groups=(group([0, 1, 2, 3]),),
        operations=operations([{"type": "send", "peer": 2}]),
        bandwidth=bandwidth([(0, "RDMA", MB, 1, MS)]),
    )
    (link,) = judged(ranks)
    assert (link.ranks, link.transport, link.reference_gb_per_s) == ((0, 2), "RDMA", 12.5)


def test_nothing_is_known_of_links() -> None:
    assert judged() == [] and judged(summary(0), summary(1)) == []
    assert judged(summary(0, links=link_use([row(0, -1), row(0, 0), row(0, 1, 0), row(0, 1, ns=0)]))) == []


def test_medians_of_a_kind_and_of_the_others_of_it() -> None:
    """Held against numpy's own median, row by row."""
    random = np.random.default_rng(7)
    kind = alike(random.integers(0, 9, 200), random.integers(0, 3, 200))
    values = random.random(200).round(1)
    usual, others = medians_of_others(kind, values, int(kind.max()) + 1)
    of_all = medians(kind, values, int(kind.max()) + 1)
    for i in range(200):
        rest = np.delete(values, i)[np.delete(kind, i) == kind[i]]
        assert others[i] == len(rest)
        assert usual[i] == pytest.approx(np.median(rest)) if len(rest) else np.isnan(usual[i])
        assert of_all[kind[i]] == pytest.approx(np.median(values[kind == kind[i]]))


def test_size_classes() -> None:
    assert size_class(np.array([-1, 0, 1, 2, 1023, 1024, (1 << 23) - 1, 1 << 23])).tolist() == [
        -1,
        -1,
        0,
        1,
        9,
        10,
        22,
        23,
    ]
    assert [class_text(p) for p in (-1, 0, 9, 10, 19, 33)] == [
        None,
        "1–2 B",
        "512–1024 B",
        "1–2 KiB",
        "512–1024 KiB",
        "8–16 GiB",
    ]


# --- small packets, odd sizes, retries, detours, and compute slowed by communication ---------------------------------


#: A packet of 8 MiB in 0.4 ms: 20.97 GB/s.
LARGE = (0, "HCCS", 1 << 23, 10, 4 * MS)


def costs(*ranks: RankSummary, steps: int = 1) -> list[PacketCost]:
    return packet_costs(ranks, STEP, steps, load_thresholds())


def sender(rank: int, *rows: tuple[int, str, int, int, int], stay: int = 50 * MS) -> RankSummary:
    """Two operations, an allReduce and an allGather of so many ns, and their packets."""
    two = operations([{"type": "allReduce", "stay": stay}, {"type": "allGather", "stay": stay}])
    return summary(rank, operations=two, bandwidth=bandwidth(rows))


def test_small_packets_lose_against_the_fastest_size() -> None:
    """1000 packets of 8 KiB in 10 ms (0.82 GB/s); at 20.97 GB/s they take 0.39 ms."""
    (cost,) = costs(sender(3, LARGE, (1, "HCCS", 8192, 1000, 10 * MS)))
    assert (cost.what, cost.ranks, cost.transport, cost.kind) == ("small", (3,), "HCCS", "allGather")
    assert (cost.count, cost.bytes, cost.time_ns) == (1000, 8_192_000, 10 * MS)
    assert cost.lost_ns == pytest.approx(10 * MS - 390_625, abs=1)
    assert cost.evidence["best_size"] == "8–16 MiB" and cost.evidence["best_gb_per_s"] == pytest.approx(20.97152)
    assert cost.evidence["gb_per_s"] == pytest.approx(0.8192)


def test_an_operation_loses_no_more_than_its_own_time() -> None:
    """Ten links side by side: 10 ms of packets in an operation of 2 ms."""
    (cost,) = costs(sender(0, LARGE, (1, "HCCS", 8192, 1000, 10 * MS), stay=2 * MS))
    assert cost.lost_ns == pytest.approx(2 * MS, abs=1)


def test_the_worst_rank_stands_for_all() -> None:
    """Rank 1 loses about 5 ms, rank 2 about 10, rank 3 half of 1 ms, which is less than 1 % of 100."""
    ranks = [sender(r, LARGE, (1, "HCCS", 8192, n, n * 10_000)) for r, n in ((1, 500), (2, 1000), (3, 50))]
    (cost,) = costs(*ranks)
    assert (cost.ranks, cost.count) == ((2, 1), 1000)
    assert cost.by_rank == pytest.approx((10 * MS - 390_625, 5 * MS - 195_312), abs=1)


@pytest.mark.parametrize(
    "row",
    [
        (1, "HCCS", 1 << 20, 100, 50 * MS),  # slow, but not small: it has another cause
        (1, "HCCS", 1 << 19, 100, 3 * MS),  # small, at 17.5 GB/s
        (1, "HCCS", 8192, 100, MS),  # 0.96 ms lost
        (1, "RDMA", 8192, 1000, 10 * MS),  # no other size over this transport
    ],
)
def test_no_small_packets(row: tuple[int, str, int, int, int]) -> None:
    assert costs(sender(0, LARGE, row)) == []


def test_the_loss_of_small_packets_is_held_against_all_steps() -> None:
    rank = sender(0, LARGE, (1, "HCCS", 8192, 150, 1_500_000))
    assert len(costs(rank)) == 1
    assert costs(rank, steps=2) == []


def test_the_tick_of_a_clock_is_no_rate() -> None:
    """512 bytes in 2 ns are 256 GB/s, which nothing has to reach."""
    assert costs(sender(0, (0, "HCCS", 512, 1, 2), (1, "HCCS", 1 << 19, 1000, 30 * MS))) == []


def test_odd_sizes_lose_against_even_ones_of_their_size() -> None:
    """1.5 MiB + 4 bytes, 20 in 20 ms; even ones of 1–2 MiB reach 1.57 MB in 0.25 ms: 5 ms for as many bytes."""
    even = [(1, "HCCS", 3 << 19, 1, MS // 4)] * 3
    (cost,) = costs(sender(0, *even, (1, "HCCS", (3 << 19) + 4, 20, 20 * MS)))
    assert (cost.what, cost.kind, cost.count) == ("unaligned", "allGather", 20)
    assert cost.lost_ns == pytest.approx(15 * MS, rel=1e-4)


def test_without_even_sizes_the_loss_of_odd_ones_is_not_known() -> None:
    even = [(1, "HCCS", 3 << 19, 1, MS // 4)] * 2
    (cost,) = costs(sender(0, *even, (1, "HCCS", (3 << 19) + 4, 20, 20 * MS)))
    assert (cost.what, cost.lost_ns, cost.time_ns) == ("unaligned", None, 20 * MS)


def test_odd_sizes_that_are_as_fast_cost_nothing() -> None:
    even = [(1, "HCCS", 3 << 19, 1, MS)] * 3
    assert costs(sender(0, *even, (1, "HCCS", (3 << 19) + 4, 20, 20 * MS))) == []


@pytest.mark.parametrize("what", ["retry", "relay"])
def test_repeated_operations_and_detours(what: str) -> None:
    """Four operations of 1, 1, 2 and 4 ms (median 1.5); two that were repeated take 9 and 3.5: 7.5 + 2 ms beyond."""
    stays = [(MS, 0), (MS, 0), (2 * MS, 0), (4 * MS, 0), (9 * MS, 1), (7 * MS // 2, 1)]
    rows = [{"stay": stay, what: flag, "name": f"hcom_{i}"} for i, (stay, flag) in enumerate(stays)]
    (cost,) = costs(summary(5, operations=operations(rows)))
    assert (cost.what, cost.ranks, cost.kind, cost.count) == (what, (5,), "allReduce", 2)
    assert (cost.time_ns, cost.lost_ns) == (25 * MS // 2, 19 * MS // 2)
    assert cost.evidence["operations"] == ["hcom_4", "hcom_5"]


def test_a_retry_is_told_even_if_nothing_is_known_of_its_cost() -> None:
    """The operations that were not repeated are of another kind, or were of another size."""
    rows = [{"retry": 1}, *[{"retry": 0, "type": "allGather"}] * 3, *[{"retry": 0}] * 3]
    moved = bandwidth([(0, "RDMA", 1 << 23, 1, MS)])
    (cost,) = costs(summary(0, operations=operations(rows), bandwidth=moved))
    assert (cost.what, cost.count, cost.bytes, cost.lost_ns) == ("retry", 1, 1 << 23, None)


def test_no_retries() -> None:
    assert costs(summary(0, operations=operations([{"retry": 0, "relay": 0}] * 5))) == []
    assert costs(summary(0, operations=operations([{}] * 5))) == []


def test_compute_that_communication_slows_down() -> None:
    """12 + 3 ms on rank 1; 0.5 ms on rank 0 are not worth a line."""
    rows = [Slowed("MatMul", "8,8", 5, 9, 12, 10, 60 * MS, 12 * MS), Slowed("Add", "8", 6, 9, 3, 2, 9 * MS, 3 * MS)]
    few = [Slowed("Add", "8", 6, 9, 3, 2, MS, MS // 2)]
    (cost,) = costs(
        summary(0, beside=BesideCommunication(tuple(few))), summary(1, beside=BesideCommunication(tuple(rows)))
    )
    assert (cost.what, cost.ranks, cost.kind, cost.count) == ("slowed_compute", (1,), "MatMul", 11)
    assert (cost.time_ns, cost.lost_ns) == (69 * MS, 15 * MS)
    assert [row["type"] for row in cost.evidence["types"]] == ["MatMul", "Add"]


def test_nothing_is_known_of_packets() -> None:
    assert costs() == [] and costs(summary(0)) == []
    assert costs(sender(0, (0, "HCCS", -1, -1, MS))) == []
