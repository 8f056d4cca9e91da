"""Shares of buckets against sums of fractions, one nanosecond's place at a time."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import floor
from random import Random

import numpy as np
import pytest

from npuperf.model.intervals import Intervals
from npuperf.show.lanes import Buckets


def shares_by_hand(spans: list[tuple[int, int]], edges: list[int]) -> list[int]:
    found = []
    for a, b in pairwise(edges):
        inside = sum(max(min(end, b) - max(start, a), 0) for start, end in spans)
        found.append(floor(Fraction(inside, b - a) * 255 + Fraction(1, 2)))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_those_of_fractions(seed: int) -> None:
    random = Random(seed)
    start = random.randrange(10**18)
    length, count = random.randrange(1, 10**6), random.randrange(1, 500)
    cuts = sorted(random.sample(range(-1000, length + 1000), 2 * min(40, length // 4)))
    spans = [(start + a, start + b) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]
    buckets = Buckets.of(start, start + length, count)
    union = Intervals.union(*(np.array([s[i] for s in spans], np.int64) for i in range(2)))
    found = buckets.shares({"it": union.within(buckets.windows)})
    by_hand = shares_by_hand(spans, buckets.edges.tolist())
    assert found.get("it", np.zeros(len(buckets))).tolist() == by_hand


@pytest.mark.parametrize(("length", "count"), [(10, 3), (7, 7), (3, 8), (0, 5), (10**16 + 1, 8192), (1, 1)])
def test_buckets_are_even_and_leave_nothing_out(length: int, count: int) -> None:
    buckets = Buckets.of(5, 5 + length, count)
    edges = buckets.edges.tolist()
    assert (edges[0], edges[-1]) == (5, 5 + max(length, 1))
    assert len(buckets) == min(count, max(length, 1))
    assert buckets.length.min() >= 1
    assert buckets.length.max() - buckets.length.min() <= 1
    assert edges == [5 + max(length, 1) * i // len(buckets) for i in range(len(buckets) + 1)]


def test_of_four_cores_two_all_the_time_are_half() -> None:
    buckets = Buckets.of(0, 100, 2)
    assert buckets.shares({"cube": np.array([100, 200]), "none": np.array([0, 0])}, 4)["cube"].tolist() == [128, 255]


def test_what_is_nothing_anywhere_has_no_shares() -> None:
    assert Buckets.of(0, 100, 2).shares({"none": np.array([0, 0])}) == {}
