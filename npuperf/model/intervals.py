"""Sets of time intervals, exact in integer nanoseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from npuperf.model.labels import I64

# -- Where times stand among others, both in order: found by merging them, as a search begins anew for each.

#: Times merged at once: what is needed on the way stays in a processor's cache.
_MERGING_AT_ONCE: Final = 1 << 15
#: With so many to pass by for each time a search is as fast, and so it is for few times.
_SPARSE: Final = 8
_FEW: Final = 1 << 12
#: Differences from here on leave no room for the bit that tells both sides apart.
_WIDE: Final = 1 << 61


def passed(ordered: I64, times: I64, *, before: bool = False) -> I64:
    """Return for each time how many of some ``ordered`` ones lie at or before it, or ``before`` it.

    What numpy's searchsorted returns, faster where the times come in order, or nearly so, too.
    """
    side: Literal["left", "right"] = "left" if before else "right"
    if len(times) < _FEW or len(ordered) < _FEW:
        return np.searchsorted(ordered, times, side=side)
    found = np.empty(len(times), np.int64)
    for first in range(0, len(times), _MERGING_AT_ONCE):
        some, into = times[first : first + _MERGING_AT_ONCE], found[first : first + _MERGING_AT_ONCE]
        order = None if (some[1:] >= some[:-1]).all() else np.argsort(some, kind="stable")
        if order is not None:
            some = some.take(order)
        low, high = np.searchsorted(ordered, some[[0, -1]], side=side).tolist()
        near = ordered[low:high]
        if len(near) > _SPARSE * len(some) or int(some[-1]) - int(some[0]) >= _WIDE:
            places = np.searchsorted(near, some, side=side)
        else:
            places = _merged(near, some, before)
        into[slice(None) if order is None else order] = places + low
    return found


def _merged(near: I64, some: I64, before: bool) -> I64:
    """Return for each of ``some`` times how many of those ``near`` them come first."""
    low = int(some[0])
    both = np.empty(len(near) + len(some), np.int64)
    np.subtract(near, low, out=both[: len(near)])
    np.subtract(some, low, out=both[len(near) :])
    both <<= 1
    both[: len(near)] |= before  # of equal ones that without the bit stands first
    both[len(near) :] |= not before
    both.sort(kind="stable")  # two lists in order are merged
    bit = both.astype(np.uint8)
    bit &= 1
    there = bit == (not before)
    places = np.flatnonzero(there)
    places -= np.arange(len(some))
    return places


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
        reach = np.empty((len(windows), 2), np.int64)
        first, stop = reach.T
        first[:] = np.searchsorted(self.end, windows.start, side="right")
        stop[:] = np.searchsorted(self.start, windows.end)
        length = np.zeros(len(self) + 1, np.int64)
        np.subtract(self.end, self.start, out=length[:-1])
        inside = np.add.reduceat(length, reach.ravel())[::2]
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


# -- Whole numbers in no more memory than they need.

#: Types that are tried, in this order: usually; for whoever needs a sign; for what is small more often than not.
_TYPES: Final = (np.int32, np.uint32)
SIGNED: Final = (np.int32,)
SMALL: Final = (np.int16, np.int32, np.uint32)


def narrow(numbers: npt.NDArray[Any], types: tuple[type[np.integer[Any]], ...] = _TYPES) -> I64:
    """Return the numbers in less space where they fit, to be kept and looked up; reckoning takes 64 bits."""
    if not len(numbers) or numbers.dtype.kind != "i" or numbers.strides == (0,):
        return numbers
    least, most = int(numbers.min()), int(numbers.max())
    for kind in types:
        limits = np.iinfo(kind)
        if limits.bits < numbers.dtype.itemsize * 8 and limits.min <= least and most <= limits.max:
            return cast(I64, numbers.astype(kind))
    return numbers


# -- Where the rows of each thread lie in a table that is ordered by thread.


def rows_of(threads: I64, thread: int) -> slice:
    """Return the rows of one thread in a column that is ordered by thread.

    The number is looked for as one of the column's type: numpy would make a copy of the column to look for another.
    """
    limits = np.iinfo(threads.dtype)
    if not limits.min <= thread <= limits.max:
        return slice(0, 0)
    wanted = threads.dtype.type(thread)
    return slice(int(threads.searchsorted(wanted)), int(threads.searchsorted(wanted, side="right")))


class ThreadRows(Struct, frozen=True):
    """Per thread where its rows begin, ``first``, and end, ``end`` (exclusive)."""

    thread: I64
    first: I64
    end: I64

    @classmethod
    def of(cls, thread: I64) -> ThreadRows:
        """Find the rows of each thread; equal ones stand together."""
        fresh = np.ones(len(thread), np.bool_)
        np.not_equal(thread[1:], thread[:-1], out=fresh[1:])
        first = np.flatnonzero(fresh)
        return cls(thread[first], first, np.append(first[1:], len(thread))[: len(first)])

    def __iter__(self) -> Iterator[tuple[int, slice]]:
        """Yield each thread with its rows."""
        for thread, first, end in zip(self.thread.tolist(), self.first.tolist(), self.end.tolist(), strict=True):
            yield thread, slice(first, end)

    def last_before(self, times: I64, thread: I64, time: I64) -> tuple[I64, I64]:
        """Return the last row of each thread at or before a time, and the first row of that thread.

        ``times``: those of all rows, in order within each thread. Where no row is as early the one before the thread's
        first is returned, and -1 (and 0) for a thread without rows.
        """
        last, first = np.full(len(thread), -1), np.zeros(len(thread), np.int64)
        for number, rows in self:
            of_thread = thread == number
            mine = slice(None) if of_thread.all() else np.flatnonzero(of_thread)
            if of_thread.any():
                last[mine] = passed(times[rows], time[mine]) + (rows.start - 1)
                first[mine] = rows.start
        return last, first
