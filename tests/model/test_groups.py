"""Sums and rows of groups, against counting one row after the other."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from npuperf.model.groups import (
    alike,
    group_sums,
    largest,
    last_largest,
    numbered,
    rows_of_each,
    sorted_rows,
    sums_of,
    tally,
)


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


@pytest.mark.parametrize("reach", [2, 1000, 2**40, 2**62])
def test_rows_are_ordered_as_numpy_orders_them(reach: int) -> None:
    rng = random.Random(reach)
    for size in (0, 1, 2, 50):
        few = [rng.randrange(-reach, reach) for _ in range(3)]
        columns = (
            rng.choices(few, k=size),
            rng.choices(few, k=size),
            [rng.randrange(-reach, reach) for _ in range(size)],
        )
        keys = [np.array(column, np.int64) for column in columns]
        assert sorted_rows(*keys).tolist() == np.lexsort(keys[::-1]).tolist()
        assert sorted_rows(keys[1]).tolist() == np.argsort(keys[1], kind="stable").tolist()


def test_groups_of_chosen_rows_are_those_of_a_table_of_these() -> None:
    rng = np.random.default_rng(2)
    keys, values = rng.integers(0, 4, (2, 60)), rng.integers(0, 9, 60)
    rows = np.flatnonzero(rng.random(60) < 0.6)
    groups = group_sums((keys[0], keys[1]), values, rows)
    for g, total in enumerate(groups.total.tolist()):
        mine = groups.members(g)
        pairs = {(int(keys[0][i]), int(keys[1][i])) for i in mine}
        ((a, b),) = pairs
        assert sorted(mine.tolist()) == [i for i in rows.tolist() if (keys[0][i], keys[1][i]) == (a, b)]
        assert total == sum(int(values[i]) for i in mine)
        assert values[mine].tolist() == sorted(values[mine].tolist())
        assert (groups.smallest[g], groups.largest[g]) == (mine[0], mine[-1])


def test_the_largest_come_first_and_of_equal_ones_the_earlier() -> None:
    rng = random.Random(4)
    for size in (0, 1, 5, 40):
        values = [rng.randrange(6) for _ in range(size)]
        ranked = sorted(range(size), key=lambda i: (-values[i], i))
        for count in (0, 1, 4, 50):
            assert largest(np.array(values, np.int64), count).tolist() == ranked[:count]


@pytest.mark.parametrize("most", [1, 9, 1 << 10, 1 << 40])
@pytest.mark.parametrize("count", [0, 1, 5, 3000])
def test_numbered_keys_are_the_different_ones_in_order(most: int, count: int) -> None:
    keys = np.random.default_rng(count).integers(-most, most, count)
    found, place = numbered(keys)
    assert found.tolist() == sorted(set(keys.tolist()))
    assert [found[i] for i in place.tolist()] == keys.tolist()


@pytest.mark.parametrize("most", [9, 1 << 60])
@pytest.mark.parametrize("least", [0, -5])
def test_sums_are_exact_whatever_the_size_of_the_values(least: int, most: int) -> None:
    rng = random.Random(most + least)
    groups, values = [rng.randrange(3) for _ in range(20)], [rng.randrange(least, most) // 8 for _ in range(20)]
    expected = [sum(v for v, g in zip(values, groups, strict=True) if g == group) for group in range(4)]
    assert sums_of(np.array(groups), np.array(values), 4).tolist() == expected
    assert sums_of(np.empty(0, np.int64), np.empty(0, np.int64), 2).tolist() == [0, 0]


@pytest.mark.parametrize("spread", [1, 3, 10**12])
def test_rows_that_are_alike_and_the_last_of_their_largest(spread: int) -> None:
    rng = random.Random(spread)
    keys = [(rng.randrange(spread) - 1, rng.randrange(2)) for _ in range(40)]
    values = [rng.randrange(4) for _ in keys]
    kinds = sorted(set(keys))
    found = alike(*(np.array(column, np.int64) for column in zip(*keys, strict=True)))
    assert found.tolist() == [kinds.index(key) for key in keys]
    last = [max((v, i) for i, (v, k) in enumerate(zip(values, keys, strict=True)) if k == kind)[1] for kind in kinds]
    assert last_largest(found, np.array(values), len(kinds)).tolist() == last


@pytest.mark.parametrize("apart", [1, 1 << 20, 1 << 40])
def test_rows_are_alike_that_are_equal_in_every_key_however_far_apart_keys_are(apart: int) -> None:
    luck = np.random.default_rng(5)
    keys = [luck.integers(-2, 3, 200) * apart for _ in range(3)] + [luck.integers(0, 2, 200).astype(np.bool_)]
    rows = [tuple(int(key[i]) for key in keys) for i in range(200)]
    expected = {row: number for number, row in enumerate(sorted(set(rows)))}
    assert alike(*keys).tolist() == [expected[row] for row in rows]
