"""Where the rows of each thread lie in a table that is ordered by thread."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from npuperf.model.labels import I64
from npuperf.model.merging import passed


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
