"""Slices on tracks of a viewer: those of one track lie inside of each other or apart, never half over one another."""

from __future__ import annotations

import numpy as np

from npuperf.model.groups import sorted_rows
from npuperf.model.labels import I64


def sub_tracks(track: I64, start: I64, end: I64) -> I64:
    """Return for each slice how many tracks beside its own it needs: 0 for its own, 1 for the one below, …

    Slices half over an earlier one go to the first track where they are inside of one or free. Zero length counts as
    being inside of whatever is there.
    """
    order = sorted_rows(track, start, -end)
    row, begin, finish = track[order], start[order], end[order]
    found = np.zeros(len(order), np.int64)
    if not len(order):
        return found
    lane = found.copy()
    for first, last in _tangled(row, begin, finish):
        lane[first:last] = _placed(begin[first:last].tolist(), finish[first:last].tolist())
    found[order] = lane
    return found


def _tangled(track: I64, start: I64, end: I64) -> list[tuple[int, int]]:
    """Return the stretches, between moments when their track is empty, in which some slice is half over another.

    Ordered by track, then start, the longer first.
    """
    half = _half_over(track, start, end)
    if not len(half):
        return []
    fresh = np.append(True, track[1:] != track[:-1])
    # Ends of the tracks before are moved below all starts of this one, so that one running maximum does for all.
    shift = np.cumsum(fresh) * (int(end.max()) - int(start.min()) + 1)
    reach = np.maximum.accumulate(end - int(start.min()) + shift)
    empty = np.append(True, reach[:-1] <= (start - int(start.min()) + shift)[1:])
    firsts = np.flatnonzero(empty | fresh)
    which = np.searchsorted(firsts, half, side="right") - 1
    bounds = np.append(firsts, len(start)).tolist()
    return [(bounds[i], bounds[i + 1]) for i in sorted(set(which.tolist()))]


def _half_over(track: I64, start: I64, end: I64) -> I64:
    """Return the slices that end after the latest earlier one that is still there when they begin."""
    before = np.arange(-1, len(start) - 1)
    before[np.append(True, track[1:] != track[:-1])] = -1
    searching = np.flatnonzero(before >= 0)
    while len(searching):  # what an ended slice has stepped over has ended, too: pointers double their reach
        at = before[searching]
        searching, at = searching[end[at] <= start[searching]], at[end[at] <= start[searching]]
        before[searching] = before[at]
        searching = searching[before[searching] >= 0]
    held = np.flatnonzero(before >= 0)
    return held[end[before[held]] < end[held]]


def _placed(starts: list[int], ends: list[int]) -> list[int]:
    """Put each slice on the first of as many tracks as are needed."""
    tracks: list[list[int]] = []
    found = []
    for start, end in zip(starts, ends, strict=True):
        number = next((n for n, track in enumerate(tracks) if _fits(track, start, end)), len(tracks))
        if number == len(tracks):
            tracks.append([])
        tracks[number].append(end)
        found.append(number)
    return found


def _fits(open_ends: list[int], start: int, end: int) -> bool:
    """Tell whether a slice is inside of what a track has at its start, having taken away what has ended by then."""
    while open_ends and open_ends[-1] <= start:
        open_ends.pop()
    return not open_ends or open_ends[-1] >= end
