"""Sets of time intervals, exact in integer nanoseconds."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.model.labels import I64
from npuperf.model.merging import passed

#: Times looked up at once: what is needed on the way stays in a processor's cache.
_AT_ONCE: Final = 1 << 16


class Intervals(Struct, frozen=True):
    """Disjoint half-open intervals ``[start, end)``, ordered, none empty."""

    start: I64
    end: I64

    @classmethod
    def union(cls, start: I64, end: I64) -> Intervals:
        """Merge any intervals; overlapping and touching ones become one, empty ones vanish."""
        real = end > start
        if not real.all():
            start, end = start.compress(real), end.compress(real)
        if not len(start):
            return cls(start, end)
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
        reach = np.maximum.accumulate(end)
        fresh = np.append(True, start[1:] > reach[:-1])
        return cls(start.compress(fresh), reach.compress(np.append(fresh[1:], True)))

    def __len__(self) -> int:
        return len(self.start)

    def joined(self, other: Intervals) -> Intervals:
        """Return what this set or the other one covers."""
        if not len(self) or not len(other):
            return self if len(self) else other
        return Intervals.union(np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end]))

    def minus(self, other: Intervals) -> Intervals:
        """Return what of this set the other one does not cover."""
        if not len(self):
            return self
        first, last = int(self.start[0]), int(self.end[-1])
        return self.gaps(first, last).joined(other.near(first, last)).gaps(first, last)

    def near(self, start: int, end: int) -> Intervals:
        """Return those that reach into ``[start, end)``, whole."""
        reaching = slice(int(np.searchsorted(self.end, start, side="right")), int(np.searchsorted(self.start, end)))
        return Intervals(self.start[reaching], self.end[reaching])

    def total(self) -> int:
        """Return the summed length, ns."""
        return int(np.sum(self.end - self.start))

    def before(self, time: I64) -> I64:
        """Return for each time how much of the set lies before it, ns."""
        if not len(self):
            return np.zeros(len(time), np.int64)
        idle = np.subtract(self.start, self.end)  # what of the time before each interval ends is not of the set
        np.cumsum(idle, out=idle)
        idle += self.end
        before = np.empty(len(time), np.int64)
        for first in range(0, len(time), _AT_ONCE):
            some = time[first : first + _AT_ONCE]
            i = passed(self.start, some)
            i -= 1
            found = np.minimum(some, self.end.take(i, mode="wrap"), out=before[first : first + _AT_ONCE])
            found -= idle.take(i, mode="wrap")
            found[i < 0] = 0
        return before

    def between(self, times: I64) -> I64:
        """Return for each two neighbouring times how much of the set lies between them, ns."""
        return np.diff(self.before(times))

    def within(self, windows: Intervals) -> I64:
        """Return for each window how much of the set lies in it, ns."""
        if not len(self) or not len(windows):
            return np.zeros(len(windows), np.int64)
        first = np.searchsorted(self.end, windows.start, side="right")
        stop = np.searchsorted(self.start, windows.end)
        length = np.zeros(len(self) + 1, np.int64)
        np.subtract(self.end, self.start, out=length[:-1])
        inside = np.add.reduceat(length, np.stack([first, stop], axis=1).ravel())[::2]
        inside -= np.maximum(windows.start - self.start.take(first, mode="clip"), 0)
        inside -= np.maximum(self.end[stop - 1] - windows.end, 0)
        return np.where(first < stop, inside, 0)

    def gaps(self, start: int, end: int) -> Intervals:
        """Return what of ``[start, end)`` the set does not cover."""
        if len(self) and (start, end) == (self.start[0], self.end[-1]) and (self.start[1:] > self.end[:-1]).all():
            return Intervals(self.end[:-1], self.start[1:])  # of which there may be millions
        opens = np.concatenate([[start], np.clip(self.end, start, end)])
        closes = np.concatenate([np.clip(self.start, start, end), [end]])
        real = closes > opens
        return Intervals(opens.compress(real), closes.compress(real))
