"""Sums and rows of groups, against counting one row after the other."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from npuperf.model.groups import rows_of_each, tally


@pytest.mark.parametrize("spread", [3, 40, 10**12])
@pytest.mark.parametrize("size", [0, 1, 30])
def test_tallies_and_rows_are_those_that_counting_finds(spread: int, size: int) -> None:
    rng = random.Random(size)
    keys = [rng.randrange(-1, spread) for _ in range(size)]
    weight = [rng.randrange(3) for _ in range(size)]
    weighing, sums = Counter(k for k, w in zip(keys, weight, strict=True) if w), Counter[int]()
    for key, one in zip(keys, weight, strict=True):
        sums[key] += one
    found, count, total = (x.tolist() for x in tally(np.array(keys, np.int64), np.array(weight, np.int64)))
    assert found == sorted(set(keys))
    assert count == [weighing[key] for key in found]
    assert total == [sums[key] for key in found]
    rows = {key: own.tolist() for key, own in rows_of_each(np.array(keys, np.int64))}
    assert rows == {key: [i for i, k in enumerate(keys) if k == key] for key in sorted(set(keys))}
