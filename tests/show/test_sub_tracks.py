"""Slices on as few tracks as they need: no track has one half over another."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from npuperf.show.trace_events import sub_tracks


def placed(slices: list[tuple[int, int]], tracks: list[int] | None = None) -> list[int]:
    start, end = np.array(slices, np.int64).reshape(-1, 2).T
    return sub_tracks(np.array(tracks or [0] * len(slices)), start, end).tolist()


def half_over(a: tuple[int, int], b: tuple[int, int]) -> bool:
    (a, b) = sorted((a, b), key=lambda s: (s[0], -s[1]))
    return b[0] < a[1] < b[1]


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([], []),
        ([(0, 10), (2, 5), (5, 9), (10, 12)], [0, 0, 0, 0]),  # inside, side by side, behind
        ([(0, 10), (5, 15)], [0, 1]),
        ([(0, 10), (5, 15), (12, 20)], [0, 1, 0]),  # the first track is free again
        ([(0, 10), (5, 15), (9, 20)], [0, 1, 2]),
        ([(5, 15), (0, 10)], [1, 0]),  # whatever their order
        ([(0, 10), (0, 10)], [0, 0]),
        ([(0, 10), (10, 10), (10, 20)], [0, 0, 0]),  # of no length
        ([(0, 10), (8, 12), (9, 10)], [0, 1, 0]),
    ],
)
def test_tracks_are_those_made_by_hand(slices: list[tuple[int, int]], expected: list[int]) -> None:
    assert placed(slices) == expected


@pytest.mark.parametrize("seed", range(30))
def test_no_track_has_one_half_over_another(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 60, 40)
    slices = [(int(s), int(s + d)) for s, d in zip(start, rng.integers(0, 25, 40), strict=True)]
    tracks = rng.integers(0, 2, 40).tolist()
    lane = placed(slices, tracks)
    of: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for piece, track, number in zip(slices, tracks, lane, strict=True):
        of.setdefault((track, number), []).append(piece)
    assert not any(half_over(a, b) for pieces in of.values() for a, b in combinations(pieces, 2))
    for track in (0, 1):  # and where none is half over another, all are on the first
        mine = [piece for piece, t in zip(slices, tracks, strict=True) if t == track]
        tangled = any(half_over(a, b) for a, b in combinations(mine, 2))
        assert tangled == any(number for number, t in zip(lane, tracks, strict=True) if t == track)


def test_many_slices_that_nest_are_not_looked_at_one_by_one() -> None:
    start = np.arange(0, 800_000, 4)
    assert not sub_tracks(np.zeros(len(start), np.int64), start, start + 3).any()
