"""Who owns which nanosecond: held against a slow answer that asks for every one of them."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuperf.device.partition import owned, uncovered
from npuperf.model.intervals import Intervals

Spans = list[tuple[int, int]]

spans = st.lists(st.tuples(st.integers(0, 50), st.sampled_from([0, 1, 2, 7, 30])), max_size=8).map(
    lambda drawn: sorted((start, start + length) for start, length in drawn)
)


def columns(pairs: Spans) -> tuple[np.ndarray, np.ndarray]:
    return np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)


def covered(pairs: Spans) -> set[int]:
    return {ns for a, b in pairs for ns in range(a, b)}


@given(spans, spans)
def test_of_overlapping_tasks_the_first_begun_owns_each_nanosecond(tasks: Spans, free: Spans) -> None:
    expected = [0] * len(tasks)
    for ns in covered(free):
        running = [i for i, (a, b) in enumerate(tasks) if a <= ns < b]
        if running:
            expected[min(running)] += 1
    assert owned(*columns(tasks), Intervals.union(*columns(free))).tolist() == expected


@given(spans, spans)
def test_together_they_own_their_union(tasks: Spans, free: Spans) -> None:
    found = owned(*columns(tasks), Intervals.union(*columns(free)))
    assert int(found.sum()) == len(covered(tasks) & covered(free))
    assert (found >= 0).all()


@given(spans, spans)
def test_what_a_set_leaves_of_windows(windows: Spans, busy: Spans) -> None:
    real = [(a, b) for a, b in windows if b > a]
    found = uncovered(Intervals(*columns(real)), Intervals.union(*columns(busy)))
    pairs = list(zip(found.start.tolist(), found.end.tolist(), strict=True))
    assert covered(pairs) == covered(windows) - covered(busy)
    assert all(a < b for a, b in pairs)
    assert all(b <= c for (_, b), (c, _) in itertools.pairwise(pairs))


def test_a_long_task_hides_those_that_begin_while_it_runs() -> None:
    start, end = columns([(0, 100), (10, 40), (60, 130), (120, 125), (200, 210)])
    assert owned(start, end, Intervals(*columns([(0, 300)]))).tolist() == [100, 0, 30, 0, 10]
    assert owned(start, end, Intervals(*columns([(90, 110), (205, 300)]))).tolist() == [10, 0, 10, 0, 5]
