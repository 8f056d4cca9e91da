"""Joins on several columns, against comparing every pair of rows."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuperf.readers.join import enclosing, match, match_keys, pick


@pytest.mark.parametrize("reach", [3, 10**6, 2**61])
def test_keys_match_the_first_equal_row(reach: int) -> None:
    rng = random.Random(reach)
    for size in (0, 1, 40):
        pools = [[rng.randrange(-reach, reach) for _ in range(4)] for _ in range(3)]
        wanted, table = ([[rng.choice(pool) for _ in range(n)] for pool in pools] for n in (30, size))
        rows = list(zip(*table, strict=True))
        expected = [rows.index(key) if key in rows else -1 for key in zip(*wanted, strict=True)]
        left, right = (tuple(np.array(column, np.int64) for column in side) for side in (wanted, table))
        assert match_keys(left, right).tolist() == expected


def test_the_span_around_a_time_is_that_of_its_own_group() -> None:
    rng = random.Random(1)
    far = 2**60
    for _ in range(50):
        spans = [(g, a, a + rng.randrange(10)) for g in (-far, 0, far) for a in range(0, 60, 12) if rng.random() < 0.7]
        rng.shuffle(spans)
        asked = [(rng.choice((-far, 0, far, 5)), rng.randrange(-5, 70)) for _ in range(20)]
        expected = [next((i for i, (h, a, b) in enumerate(spans) if h == g and a <= t <= b), -1) for g, t in asked]
        group, time = (np.array(x, np.int64) for x in zip(*asked, strict=True))
        columns = tuple(np.array(x, np.int64) for x in zip(*spans, strict=True)) or (np.empty(0, np.int64),) * 3
        assert enclosing(group, time, *columns).tolist() == expected


@given(st.lists(st.integers(-4, 4) | st.integers(-(2**60), 2**60), max_size=12), st.integers(0, 3), st.integers(1, 12))
def test_keys_at_their_own_places_match_the_first_of_equals(keys: list[int], shift: int, every: int) -> None:
    """What is written in pairs has the same keys in the same order on both sides, here and there with one twice."""
    table = np.array(keys, np.int64)
    wanted = np.roll(table, shift)[::every]
    assert match(wanted, table).tolist() == [keys.index(key) for key in wanted.tolist()]
    assert match(wanted + 1, table).tolist() == [keys.index(k + 1) if k + 1 in keys else -1 for k in wanted.tolist()]


@given(st.lists(st.integers(0, 50), max_size=20), st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 52)))
def test_keys_that_lie_close_together_match_whatever_is_asked(keys: list[int], asked: list[int]) -> None:
    found = match(np.array(asked, np.int64), np.array(keys, np.int64))
    assert found.tolist() == [keys.index(key) if key in keys else -1 for key in asked]


def test_picked_values_are_those_of_their_rows() -> None:
    at = np.array([2, -1, 0])
    for kind in (np.int16, np.int32, np.int64):
        found = pick(np.array([5, 6, 7], kind), at, -9)
        assert found.dtype == np.int64 and found.tolist() == [7, -9, 5]
    assert pick(np.empty(0, np.int64), np.array([-1, -1]), 3).tolist() == [3, 3]
    assert pick(np.broadcast_to(np.int32(4), 9), at).tolist() == [4, -1, 4]
