"""Ends of point-to-point operations that name no peer, brought together by time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace
from ranks import US, group, operations, summary

from npuperf.device.rank_summary import RankSummary
from npuperf.job.clocks import align, pair_in_time
from npuperf.job.match import match

#: One exchange: the two ranks' arrivals and the end of both (µs).
Exchange = tuple[Mapping[int, int], int]


def exchanged(count: int, exchanges: Sequence[Exchange], ahead: Sequence[int] = ()) -> list[RankSummary]:
    """``count`` ranks of one group with two barriers, and exchanges of which they do not tell with whom."""
    last = max(end for _, end in exchanges)
    found = []
    for rank in range(count):
        off = (ahead[rank] if ahead else 0) * US
        mine = sorted((arrivals[rank], end) for arrivals, end in exchanges if rank in arrivals)
        barriers = [(-1_000, -900), *mine, (last + 1_000, last + 1_100)]
        inner = range(1, len(mine) + 1)
        rows = operations([
            {"name": f"p2p{i}", "type": "batchSendRecv", "group": "pp", "index": i} if i in inner
            else {"name": f"barrier{i > 0}", "type": "barrier", "group": "all"}
            for i in range(len(barriers))
        ])  # fmt: skip
        rows = replace(
            rows,
            start=np.array([b[0] for b in barriers], np.int64) * US + off,
            end=np.array([b[1] for b in barriers], np.int64) * US + off,
            p2p=np.array([i in inner for i in range(len(barriers))]),
        )
        everyone = range(count)
        found.append(summary(rank, operations=rows, groups=(group(everyone, "pp", "pp"), group(everyone, None, "all"))))
    return found


def peers(ranks: list[RankSummary]) -> list[list[int]]:
    """Whom each rank is said to have talked to, in order of time."""
    matched = match(ranks, len(ranks))
    found = pair_in_time(ranks, matched, align(matched, len(ranks)))
    return [r.operations.peer[1:-1].tolist() for r in found]


CHAIN: list[Exchange] = [
    ({0: 0, 1: 90}, 100),  # 0 waits for 1
    ({1: 110, 2: 180}, 200),
    ({0: 150, 1: 250}, 300),
    ({2: 220, 3: 390}, 400),
    ({1: 310, 2: 410}, 420),
]


def test_of_three_neighbours_each_end_finds_its_other() -> None:
    assert peers(exchanged(4, CHAIN)) == [[1, 1], [0, 2, 0, 2], [1, 3, 1], [2]]


def test_clocks_that_are_off_do_not_matter() -> None:
    assert peers(exchanged(4, CHAIN, (0, 5_000, -3_000, 70))) == [[1, 1], [0, 2, 0, 2], [1, 3, 1], [2]]


def test_a_ring_closes() -> None:
    """The first and the last rank talk to each other as well (interleaved stages)."""
    ring: list[Exchange] = [*CHAIN, ({0: 450, 3: 500}, 510)]
    assert peers(exchanged(4, ring)) == [[1, 1, 3], [0, 2, 0, 2], [1, 3, 1], [2, 0]]


def test_an_operation_whose_other_end_was_lost_keeps_no_peer() -> None:
    ranks = exchanged(3, CHAIN[:3])
    lost = ranks[1].operations.filter(np.arange(len(ranks[1].operations)) != 1)  # its first exchange, with rank 0
    ranks[1] = replace(ranks[1], operations=lost)
    found = pair_in_time(ranks, matched := match(ranks, 3), align(matched, 3))
    assert [r.operations.peer[1:-1].tolist() for r in found] == [[-1, 1], [2, 0], [1]]


def test_a_group_of_two_needs_no_pairing() -> None:
    assert peers(exchanged(2, [({0: 0, 1: 50}, 60)])) == [[-1], [-1]]


@pytest.mark.parametrize("seed", range(10))
def test_pairs_of_random_chains_come_back(seed: int) -> None:
    """Five ranks; exchanges end at least 60 µs after one another, clocks are up to 9 ms off."""
    random = Random(seed)
    free = [0] * 5
    exchanges: list[Exchange] = []
    true: list[list[int]] = [[] for _ in free]
    for _ in range(40):
        a = random.randrange(4)
        arrivals = {r: free[r] + random.randint(10, 200) for r in (a, a + 1)}
        end = max(max(arrivals.values()) + random.randint(20, 50), max((e for _, e in exchanges), default=0) + 60)
        exchanges.append((arrivals, end))
        free[a] = free[a + 1] = end
        true[a].append(a + 1)
        true[a + 1].append(a)
    ahead = [random.randint(-9_000, 9_000) for _ in free]
    assert peers(exchanged(5, exchanges, ahead)) == true
