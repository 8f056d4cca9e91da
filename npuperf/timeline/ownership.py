"""Whose time it is where several tasks run at once: of the one that began first, so that shares add up exactly."""

from __future__ import annotations

import numpy as np

from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64


def owned(start: I64, end: I64, free: Intervals) -> I64:
    """Return for each task how much of ``free`` it owns, ns: what no task that began earlier covers.

    Tasks are ordered by start; of those that begin together the earlier row owns. Together they own what of ``free``
    their union covers.
    """
    if not len(start) or not len(free):
        return np.zeros(len(start), np.int64)
    reach = np.maximum.accumulate(end)
    begin = start.copy()
    np.maximum(start[1:], reach[:-1], out=begin[1:])
    stop = np.maximum(begin, end)
    if len(free) == 1:
        low, high = int(free.start[0]), int(free.end[0])
        if low <= int(start[0]) and int(reach[-1]) <= high:
            return np.subtract(stop, begin, out=stop)
        return np.clip(stop, low, high) - np.clip(begin, low, high)
    return free.before(stop) - free.before(begin)


def uncovered(windows: Intervals, busy: Intervals) -> Intervals:
    """Return what of the windows a set does not cover; windows that touch become one."""
    whole = Intervals.union(windows.start, windows.end)
    parts = [_gaps(busy, start, end) for start, end in zip(whole.start.tolist(), whole.end.tolist(), strict=True)]
    if not parts:
        return whole
    return Intervals(np.concatenate([p.start for p in parts]), np.concatenate([p.end for p in parts]))


def _gaps(busy: Intervals, start: int, end: int) -> Intervals:
    return busy.near(start, end).gaps(start, end)
