"""Joins on several columns, against comparing every pair of rows."""

from __future__ import annotations

import random

import numpy as np
import pytest

from npuperf.readers.join import enclosing, match_keys


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
