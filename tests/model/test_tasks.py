"""Tables of tasks: what a task does, one table of several, numbers in little memory."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from npuperf.model.intervals import SIGNED, SMALL, narrow
from npuperf.model.labels import Labels
from npuperf.model.tasks import NO_TIME, Tasks, Work, work_of_tasks


@pytest.mark.parametrize(
    ("type_", "name", "work"),
    [
        # Old exporters write Other for kernels; their own Overlap Analysis counts these as computing.
        ("Other", "trans_TransData_3_MemSet", Work.COMPUTE),
        ("Other", "aclnnAddmm_MatMulCommon_MemSet", Work.COMPUTE),
        ("Other", "ReduceSum7_MemSet", Work.COMPUTE),
        ("Other", "atomic_memset-1_18_186609_1", Work.COMPUTE),
        ("Other", "aclnnSmoothLabel_SmoothLabel_SmoothLabel", Work.COMPUTE),
        ("Other", "Conv2D1", Work.COMPUTE),
        ("Other", "MEMSET_ASYNC", Work.OTHER),
        ("Other", "MEMCPY_ASYNC", Work.OTHER),
        ("Other", "EVENT_RECORD", Work.CONTROL),
        ("EVENT_WAIT", "EVENT_WAIT", Work.CONTROL),
        ("PCIE_DMA_SQE", "MEMCPY_ASYNC", Work.OTHER),
        ("KERNEL_AIVEC", "aclnnAddmm_MatMulCommon_MemSet", Work.COMPUTE),
    ],
)
def test_kernels_are_no_hardware_tasks_whatever_their_names_contain(type_: str, name: str, work: Work) -> None:
    assert work_of_tasks(Labels.of([type_]), Labels.of([name])).tolist() == [work]


# -- Tables of tasks become one, ordered by start, whether their rows alternate or stay together.


def table(starts: list[int], first: int, names: list[str | None], **columns: object) -> Tasks:
    """Tasks that are numbered from ``first`` on by their streams, named in turn, of one length."""
    start = np.array(starts, np.int64)
    name = Labels.of([names[i % len(names)] for i in range(len(starts))])
    stream = np.arange(first, first + len(starts))
    return Tasks.build(start, start + 5, np.zeros(len(starts), np.uint8), stream=stream, name=name, **columns)  # type: ignore[arg-type]


def alternating(size: int) -> list[list[int]]:
    return [[*range(0, 3 * size, 3)], [*range(1, 3 * size, 3)], [*range(2, 3 * size, 3)]]


def few_between(size: int) -> list[list[int]]:
    return [[*range(10, 10 + 2 * size, 2)], [5, 11 + size // 2 * 2, 10 * size], [12, 10]]


def one_after_the_other(size: int) -> list[list[int]]:
    return [[*range(at, at + size)] for at in (0, size, 5 * size)]


def at_random(size: int) -> list[list[int]]:
    chance = random.Random(size)
    return [[chance.randrange(size) for _ in range(count)] for count in (size, 1, size // 2)]


@pytest.mark.parametrize("size", [3, 200, 2000])
@pytest.mark.parametrize("made", [alternating, few_between, one_after_the_other, at_random])
def test_every_row_comes_with_its_cells(made: Callable[[int], list[list[int]]], size: int) -> None:
    starts = made(size)
    kinds: list[list[str | None]] = [["a", "b", None], [None, "c", "b"], ["d"]]
    firsts = [0, 10_000, 20_000]
    tables = [table(*args) for args in zip(starts, firsts, kinds, strict=True)]
    ratio = np.arange(len(tables[0]), dtype=np.float32)
    tables[0] = tables[0].with_columns(pmu={"ratio": ratio})
    rows = []
    for own, first, names in zip(starts, firsts, kinds, strict=True):
        for i, start in enumerate(own):
            rows.append((start, first + i, names[i % len(names)], float(i) if first == 0 else None))
    rows.sort(key=lambda row: row[0])  # stable, as equal tasks stay in the order of their tables
    both = Tasks.concat(tables)
    counter = [None if np.isnan(value) else value for value in both.pmu["ratio"].tolist()]
    got = zip(both.start.tolist(), both.stream.tolist(), both.name.texts(), counter, strict=True)
    assert [*got] == rows
    assert (both.end - both.start == 5).all()
    assert both.op.strides == (0,)


# -- Numbers in half the space are the same numbers.


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
