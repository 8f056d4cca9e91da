"""Numbers in half the space are the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from npuperf.model.intervals import SIGNED, SMALL, narrow
from npuperf.model.labels import Labels
from npuperf.model.tasks import NO_TIME, Tasks


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ([], np.int64),
        ([-(1 << 31), (1 << 31) - 1], np.int32),
        ([0, 1 << 31], np.uint32),
        ([0, (1 << 32) - 1], np.uint32),
        ([-1, 1 << 31], np.int64),
        ([0, 1 << 32], np.int64),
        ([-(1 << 31) - 1], np.int64),
    ],
)
def test_numbers_are_kept_in_the_smallest_type_that_holds_them(numbers: list[int], kind: type) -> None:
    found = narrow(np.array(numbers, np.int64))
    assert found.dtype == kind
    assert found.tolist() == numbers


@pytest.mark.parametrize(
    ("types", "numbers", "kind"),
    [
        (SIGNED, [0, (1 << 31) - 1], np.int32),
        (SIGNED, [0, 1 << 31], np.int64),
        (SMALL, [-(1 << 15), (1 << 15) - 1], np.int16),
        (SMALL, [0, 1 << 15], np.int32),
        (SMALL, [0, 1 << 31], np.uint32),
    ],
)
def test_types_may_be_named(types: tuple[type, ...], numbers: list[int], kind: type) -> None:
    found = narrow(np.array(numbers, np.int64), types)
    assert found.dtype == kind
    assert found.tolist() == numbers


def test_what_is_narrow_stays_or_becomes_smaller() -> None:
    numbers = np.array([3, 40_000], np.int32)
    assert narrow(numbers) is narrow(numbers, SMALL) is numbers
    assert narrow(numbers[:1], SMALL).dtype == np.int16
    unsigned = np.array([1 << 31], np.uint32)
    assert narrow(unsigned).dtype == np.uint32


def test_what_holds_nothing_takes_no_memory_through_every_selection() -> None:
    start = np.array([30, 10, 20], np.int64)
    tasks = Tasks.build(start, start + 5, np.zeros(3, np.uint8), stream=np.array([7, 8, 9], np.int64))
    tables = [
        tasks,
        tasks.sorted(),
        tasks.take(np.array([2, 0], np.int64)),
        tasks.filter(np.array([True, False, True])),
        tasks.part(slice(0, 2)),
        Tasks.concat([tasks, tasks]),
    ]
    for table in tables:
        assert table.launch_start.tolist() == [NO_TIME] * len(table)
        assert table.op.tolist() == table.name.codes.tolist() == [-1] * len(table)
        assert {column.strides for column in (table.launch_start, table.op, table.name.codes)} == {(0,)}
    assert Tasks.concat([tasks, tasks]).stream.tolist() == [8, 8, 9, 9, 7, 7]


def test_what_holds_nothing_beside_something_is_told_apart() -> None:
    start = np.array([10, 20], np.int64)
    work = np.zeros(2, np.uint8)
    known = Tasks.build(start, start, work, op=np.array([4, 5], np.int64), name=Labels.of(["a", "b"]))
    both = Tasks.concat([Tasks.build(start + 1, start + 1, work), known])
    assert both.op.tolist() == [4, -1, 5, -1]
    assert both.name.texts() == ["a", None, "b", None]
