"""Small packets, odd sizes, retries, detours, and compute slowed by communication."""

from __future__ import annotations

import pytest
from ranks import MS, bandwidth, operations, summary

from npuperf.advise import load_thresholds
from npuperf.device.operators import Slowed
from npuperf.device.rank_summary import RankSummary
from npuperf.job.packets import PacketCost, packet_costs

STEP = 100 * MS
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
    (cost,) = costs(summary(0, slowed=tuple(few)), summary(1, slowed=tuple(rows)))
    assert (cost.what, cost.ranks, cost.kind, cost.count) == ("slowed_compute", (1,), "MatMul", 11)
    assert (cost.time_ns, cost.lost_ns) == (69 * MS, 15 * MS)
    assert [row["type"] for row in cost.evidence["types"]] == ["MatMul", "Add"]


def test_nothing_is_known_of_packets() -> None:
    assert costs() == [] and costs(summary(0)) == []
    assert costs(sender(0, (0, "HCCS", -1, -1, MS))) == []
