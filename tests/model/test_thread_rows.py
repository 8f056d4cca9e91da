"""The rows of a thread are found among numbers of any size, without a copy of the column."""

from __future__ import annotations

import numpy as np
import pytest

from npuperf.model.intervals import rows_of

LARGEST = (1 << 31) - 1


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint32])
@pytest.mark.parametrize("thread", [-1, 0, 3, 4, 7, LARGEST, 1 << 31, 1 << 40])
def test_rows_are_those_of_the_thread(kind: type, thread: int) -> None:
    numbers = [0, 3, 3, 3, 7, LARGEST, LARGEST]
    rows = rows_of(np.array(numbers, kind), thread)
    assert [*range(len(numbers))[rows]] == [i for i, number in enumerate(numbers) if number == thread]


def test_a_table_without_rows_has_none() -> None:
    assert rows_of(np.empty(0, np.int32), 5) == slice(0, 0)
