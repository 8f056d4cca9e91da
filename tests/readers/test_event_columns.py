"""Columns of events against plain Python, value by value."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from npuperf.readers import plain_events
from npuperf.readers.plain_events import (
    PiecedColumns,
    Verdicts,
    Words,
    durations,
    flow_ids,
    integers,
    nothing,
    number_ids,
)


def test_words_are_numbered_as_they_come() -> None:
    words = Words()
    first = words.codes(["b", " b ", '"b"', None, "", "N/A", "a"])
    assert first.tolist() == [0, 0, 0, -1, -1, -1, 1]
    assert words.codes([1, True, 1.0, "1", '" "a" "', '"a"']).tolist() == [2, 3, 4, 2, 5, 1]
    assert words.names == ["b", "a", "1", "True", "1.0", '"a"']
    assert words.codes([None, None]).tolist() == [-1, -1]


def test_words_are_judged_once() -> None:
    words, asked = Words(), []
    verdicts = Verdicts(words, lambda word: asked.append(word) or word == "a")  # type: ignore[func-returns-value]
    assert verdicts.of(words.codes(["a", "b", None])).tolist() == [True, False, False]
    assert verdicts.of(words.codes(["c", "a", None])).tolist() == [False, True, False]
    assert asked == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("values", "numbers", "bits"),
    [
        ([1, -1, 2**31 - 1], [1, -1, 2**31 - 1], 32),
        ([1, 2**31], [1, 2**31], 64),
        ([None, 5], [-1, 5], 32),
        (["7", 1.9, True, "x", None, 2**64], [7, 1, 1, -1, -1, -1], 32),
        ([None, None], [-1, -1], 32),
    ],
)
def test_integers_are_as_narrow_as_they_fit(values: list[Any], numbers: list[int], bits: int) -> None:
    column = integers(values)
    assert column.tolist() == numbers
    assert column.itemsize * 8 == bits


def test_ids_are_equal_where_they_were() -> None:
    assert number_ids(flow_ids(["7", 7, 2**63 - 1])).tolist() == [7, 7, 2**63 - 1]
    columns = PiecedColumns()
    values: list[list[Any]] = [["7", 8], ["x", 7], [2**70, 8]]
    for part in values:
        columns.add({"id": flow_ids(part)})
    numbers = number_ids(columns.pop("id")).tolist()
    texts = [str(value) for part in values for value in part]
    assert [[a == b for b in numbers] for a in numbers] == [[a == b for b in texts] for a in texts]


@pytest.mark.parametrize("seed", range(30))
def test_columns_in_pieces_are_the_same_as_at_once(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    source = random.Random(seed)
    monkeypatch.setattr(plain_events, "_BLOCK_BYTES", source.choice([8, 100, 1_000]))
    columns = PiecedColumns()
    expected: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    reused = np.empty(12, np.int64)
    for _ in range(source.randrange(1, 40)):
        size = source.randrange(0, 12)
        a = np.arange(size, dtype=np.int32) if source.random() < 0.5 else reused[:size]
        a[:] = [source.randrange(1 << 30) for _ in range(size)]
        b = nothing(size) if source.random() < 0.5 else -a
        keep = np.array([source.random() < 0.7 for _ in range(size)], np.bool_)
        part = {"a": a, "b": b} | ({"c": a * 3} if source.random() < 0.7 else {})
        columns.add(part, None if keep.all() else keep)
        for name in expected:
            expected[name] += np.asarray(part.get(name, nothing(size)))[keep].tolist()
    assert {name: columns.pop(name).tolist() for name in expected} == expected
    assert columns.pop("d").tolist() == [-1] * len(expected["a"])


def test_a_column_that_becomes_wider_keeps_its_values() -> None:
    columns = PiecedColumns()
    for part in ([1, 2], [1 << 20], [1 << 40], [3]):
        columns.add({"a": np.array(part, np.min_scalar_type(-max(part)))})
    column = columns.pop("a")
    assert (column.tolist(), column.dtype) == ([1, 2, 1 << 20, 1 << 40, 3], np.int64)


def test_durations_that_none_can_be_are_none() -> None:
    """µs to ns; a warning of numpy's would fail this test, and what 10**19 ns become would depend on the processor."""
    values = [0, 1, 2.5, 0.0004, None, -3.0, 1e16, 1e300, 1.7e308]
    assert durations(values).tolist() == [0, 1000, 2500, 0, -1, -3000, -1, -1, -1]
