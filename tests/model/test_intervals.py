"""Sets of time intervals, and places among ordered numbers, against counting one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from npuperf.model.intervals import Intervals, passed, rows_of
from npuperf.model.labels import I64

_END = 60


def _intervals(rng: np.random.Generator, most: int) -> Intervals:
    start = rng.integers(0, _END - 10, rng.integers(0, most))
    return Intervals.union(start, start + rng.integers(0, 10, len(start)))


def _covered(these: Intervals) -> list[bool]:
    """Tell of each nanosecond whether the set covers it."""
    pairs = [*zip(these.start.tolist(), these.end.tolist(), strict=True)]
    return [any(start <= ns < end for start, end in pairs) for ns in range(_END)]


@pytest.mark.parametrize("seed", range(40))
def test_what_lies_in_windows_before_times_and_between_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    these = _intervals(rng, 9)
    covered = _covered(these)
    begin = np.sort(rng.integers(0, _END, rng.integers(0, 6)))  # windows may overlap, and be empty
    windows = Intervals(begin, np.minimum(begin + rng.integers(0, 25, len(begin)), _END))
    pairs = zip(windows.start.tolist(), windows.end.tolist(), strict=True)
    assert these.within(windows).tolist() == [sum(covered[start:end]) for start, end in pairs]
    times = np.sort(rng.integers(0, _END, 7))
    assert these.before(times).tolist() == [sum(covered[:time]) for time in times.tolist()]
    assert these.between(times).tolist() == [sum(covered[a:b]) for a, b in pairwise(times.tolist())]
    assert these.total() == sum(covered)


@pytest.mark.parametrize("seed", range(40))
def test_union_covers_what_its_parts_cover_and_keeps_them_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = rng.integers(0, _END - 10, rng.integers(0, 12))
    start = np.sort(start) if seed % 2 else start
    end = start + rng.integers(0 if seed % 3 else 1, 10, len(start))
    pairs = [*zip(start.tolist(), end.tolist(), strict=True)]
    union = Intervals.union(start, end)
    assert _covered(union) == [any(a <= ns < b for a, b in pairs) for ns in range(_END)]
    assert (union.end > union.start).all()
    assert (union.start[1:] > union.end[:-1]).all()


@pytest.mark.parametrize("seed", range(60))
def test_two_sets_together_and_one_without_the_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    these, others = _intervals(rng, 6), _intervals(rng, 9)
    here, there = _covered(these), _covered(others)
    assert _covered(these.joined(others)) == [a or b for a, b in zip(here, there, strict=True)]
    without = these.minus(others)
    assert _covered(without) == [a and not b for a, b in zip(here, there, strict=True)]
    assert (without.end > without.start).all() and (without.start[1:] > without.end[:-1]).all()


@pytest.mark.parametrize("seed", range(20))
def test_gaps_are_what_is_not_covered(seed: int) -> None:
    rng = np.random.default_rng(seed)
    these = _intervals(rng, 7)
    gaps = these.gaps(5, _END - 5)
    assert _covered(gaps) == [5 <= ns < _END - 5 and not covered for ns, covered in enumerate(_covered(these))]
    for start in range(_END):
        near = (these.end > start) & (these.start < start + 9)
        assert these.near(start, start + 9).start.tolist() == these.start[near].tolist()


# -- Places among ordered times, held against counting one by one and numpy's search.


ORIGIN = 1_700_000_000_000_000_000


def test_few_are_counted() -> None:
    ordered, times = np.array([10, 20, 20, 30]), np.array([5, 20, 35])
    assert passed(ordered, times).tolist() == [0, 3, 4]
    assert passed(ordered, times, before=True).tolist() == [0, 1, 4]


def drawn(count: int, most: int, seed: int) -> I64:
    return ORIGIN + np.sort(np.random.default_rng(seed).integers(0, most, count))


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(
    ("ordered", "times"),
    [
        (drawn(90_000, 100_000, 1), drawn(80_000, 110_000, 2)),  # many are equal
        (drawn(90_000, 1 << 40, 1), drawn(80_000, 1 << 40, 2)),  # hardly any
        (drawn(90_000, 1 << 40, 1), drawn(5_000, 1 << 40, 2)),  # far more of one side
        (drawn(90_000, 1 << 40, 1), drawn(80_000, 1 << 40, 2)[::-1]),  # not in order
        (drawn(90_000, 1 << 40, 1), drawn(80_000, 1 << 40, 2) - (1 << 41)),  # none has passed
        (drawn(9_000, 1 << 40, 1), np.append(-(1 << 62), drawn(9_000, 1 << 40, 2))),
    ],
)
def test_many_are_where_a_search_finds_them(ordered: I64, times: I64, before: bool) -> None:
    expected = np.searchsorted(ordered, times, side="left" if before else "right")
    assert (passed(ordered, times, before=before) == expected).all()


def test_none_among_none() -> None:
    none = np.empty(0, np.int64)
    assert passed(none, np.array([1, 2])).tolist() == [0, 0]
    assert len(passed(np.array([1, 2]), none)) == 0


# -- The rows of a thread are found among numbers of any size, without a copy of the column.


LARGEST = (1 << 31) - 1


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint32])
@pytest.mark.parametrize("thread", [-1, 0, 3, 4, 7, LARGEST, 1 << 31, 1 << 40])
def test_rows_are_those_of_the_thread(kind: type, thread: int) -> None:
    numbers = [0, 3, 3, 3, 7, LARGEST, LARGEST]
    rows = rows_of(np.array(numbers, kind), thread)
    assert [*range(len(numbers))[rows]] == [i for i, number in enumerate(numbers) if number == thread]


def test_a_table_without_rows_has_none() -> None:
    assert rows_of(np.empty(0, np.int32), 5) == slice(0, 0)
