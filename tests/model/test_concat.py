"""Tables of tasks become one, ordered by start, whether their rows alternate or stay together."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from npuperf.model.labels import Labels
from npuperf.model.tasks import Tasks


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
