"""Places among ordered times, held against counting one by one and numpy's search."""

from __future__ import annotations

import numpy as np
import pytest

from npuperf.model.intervals import passed
from npuperf.model.labels import I64

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
