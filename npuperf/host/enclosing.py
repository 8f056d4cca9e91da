"""What encloses what among the events of threads, and what is innermost when: compiled, or in numpy, with one result.

Compiled (enclosing.c) each takes one pass over the events; numpy doubles the reach of all its pointers in every round.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from npuperf.compiled import library_of, load_library
from npuperf.model.groups import distinct
from npuperf.model.host import Spans
from npuperf.model.labels import I32, I64, U8, Mask
from npuperf.model.runs import ThreadRows

#: "No event".
NONE: Final = -1
#: What an event says that tells nothing, of numbers of 8 bits.
NOTHING: Final = 255
#: Where the library is, if it is.
LIBRARY: Final = library_of(Path(__file__))
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_int64
_FUNCTIONS: Final = (
    ("enclosing_source", ctypes.c_char_p, ()),
    ("enclosing_parents", None, (_SIZE, *[_POINTER] * 5)),
    ("enclosing_segments", _SIZE, (_SIZE, *[_POINTER] * 9)),
    ("enclosing_inherited", None, (_SIZE, *[_POINTER] * 3)),
)


def compiled_source() -> str:
    """Return the hash of the source that the library was made of; empty without it."""
    library = _library()
    return library.enclosing_source().decode() if library else ""


@cache
def _library() -> Any:
    return load_library(LIBRARY, _FUNCTIONS)


def _numbers(*columns: I64) -> tuple[I64, ...]:
    """Return columns as compiled code takes them: of 64 bits, each number beside the next."""
    return tuple(np.ascontiguousarray(column, np.int64) for column in columns)


def find_parents(events: Spans, threads: ThreadRows) -> I32:
    """Find the latest earlier event of the thread that reaches beyond the middle of each one, NONE where there is none.

    Clocks of different layers are rounded differently, so neighbours may overlap a little without being nested.
    What a candidate's own candidate skips ended before the candidate's middle, hence before any later event that
    outlasts the candidate. ``events`` are ordered by thread, start, and the longer first.
    """
    library = _library()
    if not library:
        return _doubled_parents(events, threads)
    parent = np.empty(len(events), np.int32)
    columns = _numbers(threads.first, threads.end, events.start, events.end)
    library.enclosing_parents(len(threads.first), *(c.ctypes.data for c in columns), parent.ctypes.data)
    return parent


def _doubled_parents(events: Spans, threads: ThreadRows) -> I32:
    candidate = np.arange(-1, len(events) - 1)
    least = np.subtract(events.end, events.start)  # where a parent reaches to
    least >>= 1
    np.maximum(least, 1, out=least)
    least += events.start
    short = events.end[:-1] < least[1:]
    short[threads.first[1:] - 1] = False
    candidate[threads.first] = NONE
    open_ = np.flatnonzero(short) + 1
    while len(open_):
        at = candidate.take(candidate.take(open_))
        candidate[open_] = at
        inside = at >= 0
        open_, at = open_.compress(inside), at.compress(inside)
        open_ = open_.compress(events.end.take(at) < least.take(open_))
    return candidate.astype(np.int32)


def find_segments(events: Spans, parent: I32, threads: ThreadRows) -> tuple[ThreadRows, I64, I32]:
    """Return the different times at which events of each thread begin or end, and the innermost event from then on.

    Where the times of each thread are, the times in order, and the events, NONE where there is none.
    """
    library = _library()
    found = _one_pass(library, events, parent, threads) if library else None
    if found is not None:
        return found
    segments, time = _borders(events, threads)
    return segments, time, _innermost(events, parent, threads, segments, time)


def _one_pass(library: Any, events: Spans, parent: I32, threads: ThreadRows) -> tuple[ThreadRows, I64, I32] | None:
    """Find the segments in compiled code, which takes no event that ends before it starts."""
    end, size = np.empty(len(threads.first), np.int64), len(events)
    # What is not used of these takes no memory.
    open_, time, inner = np.empty(size, np.int64), np.empty(2 * size, np.int64), np.empty(2 * size, np.int32)
    given = _numbers(threads.first, threads.end, events.start, events.end)
    pointers = (column.ctypes.data for column in (*given, open_, time, end))
    count = library.enclosing_segments(len(end), *pointers, parent.ctypes.data, inner.ctypes.data)
    if count < 0:
        return None
    return ThreadRows(threads.thread, np.append(0, end)[:-1], end), time[:count], inner[:count]


def _borders(events: Spans, threads: ThreadRows) -> tuple[ThreadRows, I64]:
    """Return the different times at which events of each thread begin or end, in order, and where each thread's are."""
    times = [distinct(np.concatenate([events.start[rows], events.end[rows]])) for _, rows in threads]
    end = np.cumsum([len(own) for own in times], dtype=np.int64)
    return ThreadRows(threads.thread, np.append(0, end)[:-1], end), np.concatenate([np.empty(0, np.int64), *times])


def _innermost(events: Spans, parent: I32, threads: ThreadRows, segments: ThreadRows, time: I64) -> I32:
    """Return the innermost event of the same thread at the beginning of each segment."""
    inner = np.empty(len(time), np.int32)
    for (_, rows), (_, own) in zip(threads, segments, strict=True):
        last = rows.start + np.searchsorted(events.start[rows], time[own], side="right") - 1
        inner[own] = climb(events, parent, last, time[own])
    return inner


def climb(events: Spans, parent: I32, at: I64, time: I64) -> I64:
    """Return the innermost event around each time, of the last that began before it (``at``) and those around that."""
    searching, candidate = np.flatnonzero(at >= 0), at.compress(at >= 0)
    while len(searching):
        over = events.end.take(candidate) <= time.take(searching)
        searching, candidate = searching.compress(over), parent.take(candidate.compress(over))
        at[searching] = candidate
        inside = candidate >= 0
        searching, candidate = searching.compress(inside), candidate.compress(inside)
    return at


def inherited(parent: I32, own: U8) -> U8:
    """Return what each event says (``own``), else what the innermost event around it does that says anything.

    NOTHING is what tells nothing.
    """
    library = _library()
    if not library:
        at = _around(parent, own != NOTHING)
        return np.where(at >= 0, own[at], np.uint8(NOTHING)).astype(np.uint8)
    found = np.empty(len(own), np.uint8)
    own = np.ascontiguousarray(own)
    library.enclosing_inherited(len(own), parent.ctypes.data, own.ctypes.data, found.ctypes.data)
    return found


def _around(parent: I32, marked: Mask) -> I64:
    """Return for every event the innermost marked one among itself and those around it; pointers double their reach."""
    at = np.where(marked, np.arange(len(parent)), parent)
    closed = np.append(marked, True)  # the last place is that of NONE
    open_ = np.flatnonzero(~closed.take(at, mode="wrap"))
    while len(open_):
        further = at.take(at.take(open_))
        at[open_] = further
        open_ = open_.compress(~closed.take(further, mode="wrap"))
    return at
