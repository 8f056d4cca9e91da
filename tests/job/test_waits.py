"""Waiting and transfer of operations whose times were written down by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from msgspec.structs import replace
from ranks import US, Work, group, ints, operations, summary, told

from npuperf.device import rank_summary
from npuperf.device.rank_summary import RankSummary
from npuperf.job.match import JobWaits, Matched, by_kind, find_waits, kind_name, match, split_exposed
from npuperf.model.intervals import Intervals

#: Two ranks, three collectives (start, end; µs): rank 1 is late for a, rank 0 for b, c is in time.
TWO = {0: {"a": (0, 110), "b": (250, 270), "c": (400, 430)}, 1: {"a": (100, 110), "b": (200, 270), "c": (400, 430)}}


def ranks_of(
    times: Mapping[int, Mapping[str, tuple[int, int]]], group_ranks: tuple[int, ...], kind: str = "dp"
) -> list[RankSummary]:
    """Ranks with operations of one group, from … to … in µs; every one is exposed from its start to its end."""
    found = []
    for rank, own in times.items():
        start, end = (ints([t[i] for t in own.values()]) * US for i in (0, 1))
        rows = operations([{"name": name} for name in own])
        rows = replace(rows, start=start, end=end)
        found.append(
            summary(
                rank,
                operations=rows,
                groups=(group(group_ranks, kind),),
                exposed_op=np.arange(len(own)),
                exposed_start=start,
                exposed_end=end,
            )
        )
    return found


def waits_of(ranks: list[RankSummary], world: int) -> tuple[Matched, JobWaits]:
    matched = match(ranks, world)
    return matched, find_waits(matched)


def test_who_stays_shortest_waited_for_nobody() -> None:
    """Transfers: 10, 20, 30 µs; rank 0 waits 100 for a, rank 1 50 for b."""
    _, waits = waits_of(ranks_of(TWO, (0, 1)), 2)
    assert (waits.transfer / US).tolist() == [10, 20, 30, 10, 20, 30]
    assert (waits.wait / US).tolist() == [100, 0, 0, 0, 50, 0]
    assert not waits.unknown.any() and waits.known.all() and not waits.alone.any()


def test_the_last_to_come_is_named() -> None:
    matched, waits = waits_of(ranks_of(TWO, (0, 1)), 2)
    last = {
        int(matched.members[s]) % 3: int(matched.rank[op]) for s, op in zip(matched.starts, waits.last, strict=True)
    }
    assert (last[0], last[1]) == (1, 0)


def test_no_clock_is_needed() -> None:
    """Rank 1's clock is 7 s ahead."""
    ahead = {0: TWO[0], 1: {op: (s + 7_000_000, e + 7_000_000) for op, (s, e) in TWO[1].items()}}
    assert waits_of(ranks_of(ahead, (0, 1)), 2)[1].wait.tolist() == waits_of(ranks_of(TWO, (0, 1)), 2)[1].wait.tolist()


def test_with_a_missing_rank_waits_are_lower_bounds() -> None:
    """Rank 2 was not loaded: rank 0 waited 100 µs for rank 1 at least; the 10 both had may be waiting as well."""
    _, waits = waits_of(ranks_of(TWO, (0, 1, 2)), 3)
    assert (waits.wait / US).tolist() == [100, 0, 0, 0, 50, 0]
    assert (waits.unknown / US).tolist() == [10, 20, 30, 10, 20, 30]
    assert not waits.transfer.any() and not waits.known.any()


def test_what_nobody_else_has_is_unknown() -> None:
    only = {0: {"a": (0, 110), "x": (200, 230)}, 1: {"a": (100, 110)}}
    _, waits = waits_of(ranks_of(only, (0, 1)), 2)
    assert (waits.unknown / US).tolist() == [0, 30, 0]
    assert (waits.wait / US).tolist() == [100, 0, 0]


def test_a_group_of_one_only_transfers() -> None:
    _, waits = waits_of([*ranks_of({0: {"a": (0, 3)}}, (0,))], 2)
    assert waits.alone.all() and (waits.transfer / US).tolist() == [3] and not waits.wait.any()


def test_three_ranks_wait_for_the_last_one_each() -> None:
    times = {0: {"a": (0, 100)}, 1: {"a": (60, 100)}, 2: {"a": (95, 100)}}
    assert (waits_of(ranks_of(times, (0, 1, 2)), 3)[1].wait / US).tolist() == [95, 35, 0]


# --- exposed ---------------------------------------------------------------------------------------------------------


def exposed(times: Mapping[int, Mapping[str, tuple[int, int]]], window: tuple[int, int]) -> tuple[int, ...]:
    """Transfer, wait, unknown of rank 0 within a window, µs."""
    ranks = ranks_of(times, (0, 1))
    matched, waits = waits_of(ranks, 2)
    found = split_exposed(ranks[0], matched, waits, 0, *(ints([t]) * US for t in window))
    return tuple(int(v[0]) // US for v in (found.transfer, found.wait, found.unknown))


@pytest.mark.parametrize(
    ("window", "parts"),
    [
        ((0, 430), (60, 100, 0)),
        ((0, 40), (0, 40, 0)),  # the wait comes first
        ((60, 105), (5, 40, 0)),  # then the transfer
        ((105, 260), (15, 0, 0)),  # the end of a and half of b
        ((110, 250), (0, 0, 0)),
    ],
)
def test_exposed_communication_waits_first_then_transfers(window: tuple[int, int], parts: tuple[int, ...]) -> None:
    assert exposed(TWO, window) == parts


def test_what_compute_hides_is_the_wait_as_it_comes_first() -> None:
    """Exposed is only the end of rank 0's stay, from 90 to 110 µs: 10 of its wait, and the transfer."""
    ranks = ranks_of({0: {"a": (0, 110)}, 1: {"a": (100, 110)}}, (0, 1))
    ranks[0].exposed_start[:] = 90 * US
    matched, waits = waits_of(ranks, 2)
    found = split_exposed(ranks[0], matched, waits, 0, ints([0]), ints([200 * US]))
    assert (found.transfer.tolist(), found.wait.tolist()) == ([10 * US], [10 * US])


def test_windows_side_by_side_add_up() -> None:
    ranks = ranks_of(TWO, (0, 1))
    matched, waits = waits_of(ranks, 2)
    edges = ints(range(0, 431, 43)) * US
    found = split_exposed(ranks[0], matched, waits, 0, edges[:-1], edges[1:])
    assert (found.transfer.sum(), found.wait.sum()) == (60 * US, 100 * US)


def test_a_group_of_one_is_told_apart_as_transfer() -> None:
    ranks = told(
        {0: ["own/1", "dp/1"], 1: ["dp/1"]}, {"own/1": 3, "dp/1": 10}, [group([0], id="own"), group([0, 1], id="dp")]
    )
    matched, waits = waits_of(ranks, 2)
    found = split_exposed(ranks[0], matched, waits, 0, ints([0]), ints([100 * US]))
    assert (found.transfer[0] // US, found.alone[0] // US, found.wait[0]) == (13, 3, 0)


def test_waits_by_kind_of_group() -> None:
    groups = [group([0, 1], "tp", "t"), group([0, 1], "dp", "d"), group([0, 1], None, "77")]
    ops = {"t/1": 1, "d/1": 1, "77/1": 1}
    ranks = told(
        {0: ["t/1", "d/1", "77/1"], 1: [Work(5), "t/1", Work(7), "d/1", Work(9), "77/1"]}, ops, groups
    )  # rank 0 waits 5, 7 and 9 µs
    matched, waits = waits_of(ranks, 2)
    found = by_kind(matched, waits.wait, matched.rank == 0)
    assert found == {"tp": 5 * US, "dp": 7 * US, "group 77": 9 * US}
    assert kind_name(None, "") == "all ranks"


@pytest.mark.parametrize("seed", range(10))
def test_of_operations_at_once_the_one_that_began_first_owns_the_time(seed: int) -> None:
    """Nanosecond by nanosecond, for what compute does not hide."""
    random = np.random.default_rng(seed)
    start = np.sort(random.choice(200, 12, replace=False)).astype(np.int64)
    end = start + random.integers(1, 60, 12)
    rows = replace(operations([{}] * 12), start=start, end=end)
    hidden = random.random(300) < 0.3
    running = [[i for i in range(12) if start[i] <= t < end[i]] for t in range(300)]
    owner = [min(now) if now and not hidden[t] else -1 for t, now in enumerate(running)]
    free = np.flatnonzero(np.array(owner) >= 0).astype(np.int64)
    found, pieces = rank_summary._owners(rows, Intervals.union(free, free + 1))
    told_ = np.full(300, -1)
    for i, first, last in zip(found.tolist(), pieces.start.tolist(), pieces.end.tolist(), strict=True):
        told_[first:last] = i
    assert told_.tolist() == owner
