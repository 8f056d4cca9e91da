"""Clocks of devices brought together: planted offsets, drifts and jumps must be found again."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import median

import numpy as np
import pytest
from msgspec.structs import replace
from ranks import MS, US, group, operations, summary

from npuperf.device.rank_summary import RankSummary
from npuperf.job.clocks import Clocks, Ends, _parts, align, line
from npuperf.job.match import Matched, match

#: What a device's clock shows at a true time (ns).
Dial = Callable[[int], int]


def seen(
    dials: Sequence[Dial],
    operations_: Sequence[tuple[Mapping[int, int], int]],
    groups: Sequence[Sequence[int]] = (),
    type: str = "allReduce",
) -> Matched:
    """Operations as (true arrival of each rank, true end for all), seen through each rank's own clock."""
    everyone = range(len(dials))
    found: list[RankSummary] = []
    for rank in everyone:
        mine = [(i, arrivals[rank], end) for i, (arrivals, end) in enumerate(operations_) if rank in arrivals]
        rows = operations([
            {"name": f"op{i}", "type": type, "group": ",".join(map(str, sorted(operations_[i][0])))} for i, _, _ in mine
        ])  # fmt: skip
        rows = replace(
            rows,
            start=np.array([dials[rank](arrival) for _, arrival, _ in mine], np.int64),
            end=np.array([dials[rank](end) for _, _, end in mine], np.int64),
        )
        known = [group(g, id=",".join(map(str, g))) for g in groups or [everyone] if rank in g]
        found.append(summary(rank, operations=rows, groups=tuple(known)))
    return match(found, len(dials))


def ahead(us: float) -> Dial:
    return lambda time: time + round(us * US)


def every(count: int, ranks: Sequence[int] = (0, 1), apart: int = MS) -> list[tuple[dict[int, int], int]]:
    """Collectives every millisecond; by turns one rank comes 100 µs before the others. Transfer 50 µs."""
    return [
        ({r: n * apart + (0 if r == ranks[n % len(ranks)] else 100 * US) for r in ranks}, n * apart + 150 * US)
        for n in range(1, count + 1)
    ]


def offsets(clocks: Clocks) -> list[float]:
    return [round(v / US, 3) for v in clocks.offset.tolist()]


def test_offsets_are_found_from_ends() -> None:
    """What is added reaches the first rank's clock: rank 1 is 25 µs ahead, rank 2 3 ms behind."""
    clocks = align(seen([ahead(0), ahead(25), ahead(-3_000)], every(12, (0, 1, 2))), 3)
    assert offsets(clocks) == [0, -25, 3_000]
    assert clocks.residual.tolist() == [0, 0, 0] and clocks.used.tolist() == [12, 12, 12]
    assert not clocks.drift.any() and not clocks.wrong.any()


def test_corrected_times_are_the_first_ranks() -> None:
    clocks = align(seen([ahead(7), ahead(25)], every(4)), 2)
    times = np.array([7 * US + 5 * MS, 25 * US + 5 * MS], np.int64)
    assert clocks.corrected(np.array([0, 1]), times).tolist() == [7 * US + 5 * MS] * 2


def test_causality_bounds_the_offset() -> None:
    """Nobody leaves before the last has come: rank 1 came first to a, last to b. Clocks agree, transfers are 10 µs.

    a: rank 0 arrives at 90, both leave at 100: 1's clock may be 10 µs ahead at most. b: the other way round.
    """
    clocks = align(seen([ahead(0)] * 2, [({0: 90 * US, 1: 0}, 100 * US), ({0: MS, 1: MS + 60 * US}, MS + 70 * US)]), 2)
    assert (clocks.low[1], clocks.high[1]) == (-10 * US, 10 * US)


def test_no_offset_is_beyond_what_causality_allows() -> None:
    """Rank 1 leaves nine operations 30 µs after rank 0, the tenth 10 µs after rank 0 has come: −10 at least."""
    matched = seen([ahead(0)] * 2, [*every(9), ({0: 10 * MS, 1: 9 * MS}, 10 * MS + 10 * US)])
    matched.end[np.flatnonzero(matched.rank == 1)[:9]] += 30 * US
    assert offsets(align(matched, 2)) == [0, -10]


def test_bounds_follow_over_a_third_rank() -> None:
    """0 and 2 never meet: 0-1 is known to ±10 µs, 1-2 to ±20, so 0-2 to ±30."""

    def pair(a: int, b: int, transfer: int, at: int) -> list[tuple[dict[int, int], int]]:
        return [
            ({a: at, b: at + 100 * US}, at + 100 * US + transfer),
            ({a: at + MS + 100 * US, b: at + MS}, at + MS + 100 * US + transfer),
        ]

    meetings = [*pair(0, 1, 10 * US, 0), *pair(1, 2, 20 * US, 10 * MS)]
    clocks = align(seen([ahead(0), ahead(3), ahead(8)], meetings, [(0, 1), (1, 2)]), 3)
    assert offsets(clocks) == [0, -3, -8]
    assert (clocks.low[2] / US, clocks.high[2] / US) == (-38, 22)


def test_a_late_end_moves_nothing() -> None:
    """One of nine operations ends 80 µs late on rank 1: medians do not care, and it contradicts nothing."""
    times = every(9)
    matched = seen([ahead(0), ahead(25)], times)
    late = np.flatnonzero(matched.rank == 1)[4]
    matched.end[late] += 80 * US
    clocks = align(matched, 2)
    assert offsets(clocks) == [0, -25] and not clocks.wrong.any()


def test_a_jump_of_the_clock_is_a_contradiction() -> None:
    """In the fifth of nine operations rank 1's clock is 5 ms back: it would have left before rank 0 had come."""
    clocks_of = [ahead(0), lambda time: time + 25 * US - (5 * MS if 4.5 * MS < time < 5.5 * MS else 0)]
    matched = seen(clocks_of, every(9))
    clocks = align(matched, 2)
    assert clocks.wrong.sum() == 1
    (gone,) = np.flatnonzero(clocks.wrong)
    assert matched.instance[4] == gone
    assert offsets(clocks) == [0, -25] and clocks.used.tolist() == [8, 8]


@pytest.mark.parametrize("ppm", [-40.0, 12.0, 480.0, 520.0])
def test_drift_is_found(ppm: float) -> None:
    """Over 40 operations in 4 s rank 1's clock gains ``ppm``, up to 500; ends are rounded to 1 µs of luck."""
    luck = np.random.default_rng(5).integers(-1_000, 1_000, 50)

    def dial(time: int) -> int:
        return time + 500 * US + round(time * ppm / 1e6)

    times = [(a, e + int(luck[i])) for i, (a, e) in enumerate(every(40, apart=100 * MS))]
    clocks = align(seen([ahead(0), dial], times), 2)
    if ppm > 500:
        assert not clocks.drift.any()
        return
    assert clocks.drift[1] * 1e6 == pytest.approx(-ppm, abs=0.5)
    at = np.array([dial(2_000 * MS)], np.int64)
    assert clocks.corrected(np.array([1]), at)[0] == pytest.approx(2_000 * MS, abs=2 * US)
    assert clocks.residual[1] < 2 * US


def test_without_drift_none_is_invented() -> None:
    luck = np.random.default_rng(6).integers(-1_000, 1_000, (2, 60))
    dials = [lambda t, r=r: t + int(luck[r, t // MS % 60]) for r in range(2)]
    clocks = align(seen(dials, every(50)), 2)
    assert not clocks.drift.any()
    assert abs(clocks.offset[1]) < US and 0 < clocks.residual[1] < 2 * US


def test_ranks_that_never_meet_cannot_be_compared() -> None:
    clocks = align(seen([ahead(0), ahead(5), ahead(9), ahead(11)], [*every(3), *every(3, (2, 3))], [(0, 1), (2, 3)]), 4)
    assert clocks.part.tolist() == [0, 0, 2, 2]
    assert offsets(clocks) == [0, -5, 0, -2]


def test_operations_with_a_root_tell_nothing() -> None:
    """Ranks of a broadcast leave when they please."""
    clocks = align(seen([ahead(0), ahead(25)], every(9), type="broadcast"), 2)
    assert clocks.used.tolist() == [0, 0] and np.isnan(clocks.residual).all()
    assert clocks.part.tolist() == [0, 1]


def test_a_missing_member_does_not_matter() -> None:
    """Rank 2 of the group was not loaded: 0 and 1 leave together all the same."""
    clocks = align(seen([ahead(0), ahead(25)], every(6), [(0, 1, 2)]), 2)
    assert offsets(clocks) == [0, -25]


@pytest.mark.parametrize("seed", range(5))
def test_planted_offsets_of_many_ranks_come_back(seed: int) -> None:
    """12 ranks in rows of 4 and columns of 3, up to 5 ms apart, ends with 1 µs of luck: found to 1.5 µs."""
    random = np.random.default_rng(seed)
    true = random.integers(-5 * MS, 5 * MS, 12)
    rows = [tuple(range(i, i + 4)) for i in (0, 4, 8)]
    columns = [tuple(range(i, 12, 4)) for i in range(4)]
    meetings = []
    for n in range(20):
        for g in (*rows, *columns):
            at = n * 10 * MS
            meetings.append(({r: at + int(random.integers(0, MS)) for r in g}, at + 2 * MS))
    luck = iter(random.integers(-1_000, 1_000, 10_000).tolist())
    dials = [lambda t, r=r: t + int(true[r]) + next(luck) for r in range(12)]
    clocks = align(seen(dials, meetings, [*rows, *columns]), 12)
    assert np.abs(clocks.offset - (true[0] - true)).max() < 1_500
    assert (clocks.low <= clocks.offset).all() and (clocks.offset <= clocks.high).all()


@pytest.mark.parametrize("seed", range(20))
def test_ranks_are_tied_by_whom_they_meet(seed: int) -> None:
    """Held against merging the sets of ranks one operation after the other."""
    rng = random.Random(seed)
    ranks, operations_ = rng.randint(1, 30), rng.randint(0, 25)
    met = sorted({(rng.randrange(ranks), op) for op in range(operations_) for _ in range(rng.randint(1, 3))})
    sets = [{rank} for rank in range(ranks)]
    for op in range(operations_):
        there = {rank for rank, other in met if other == op}
        together = set().union(*(s for s in sets if s & there))
        sets = [s for s in sets if not s & there] + ([together] if together else [])
    first = {rank: min(s) for s in sets for rank in s}
    rank, instance = np.array(met, np.int64).reshape(-1, 2).T
    times = np.zeros(len(met))
    ends = Ends(rank, instance, times, times, operations_)
    assert _parts(ends, ranks).tolist() == [first[r] for r in range(ranks)]


@pytest.mark.parametrize("seed", range(5))
def test_a_slope_is_the_median_over_all_pairs(seed: int) -> None:
    """A drift of 100 per unit of time, which pays beside what scatters by 9 around it."""
    rng = random.Random(seed)
    times = [float(rng.randint(0, 40)) for _ in range(rng.randint(6, 30))]
    points = [(time, 100 * time + rng.uniform(-9, 9)) for time in times]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if a[0] != b[0]]
    x, y = np.array(points).T
    intercept, slope = line(x, x + y)
    assert slope == pytest.approx(median(slopes))
    assert intercept == pytest.approx(median(y) - median(slopes) * median(x))


def test_points_at_one_time_have_no_slope() -> None:
    """As where a device's timer stands still: the offset alone is told."""
    own, target = np.full(8, 5.0), np.arange(8.0)
    assert line(own, target) == (-1.5, 0.0)
