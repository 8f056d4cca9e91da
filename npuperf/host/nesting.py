"""Nested host events: what encloses what, and what each thread was innermost doing at any time."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.host.causes import (
    BUSY,
    CODE,
    COVERING,
    DECIDED,
    READERS,
    SURROUNDING,
    WAITING,
    cause_codes,
    flag_causes,
)
from npuperf.model.groups import distinct
from npuperf.model.host import Spans
from npuperf.model.labels import I32, I64, U8, Mask
from npuperf.model.runs import ThreadRows

#: "No event".
NONE: Final = -1


class Pieces(Struct, frozen=True):
    """Parts of intervals with the event that covers each: ``owner`` indexes the interval, ``event`` may be NONE."""

    owner: I64
    start: I64
    end: I64
    event: I64

    @property
    def length(self) -> I64:
        """Lengths, ns."""
        return self.end - self.start

    def filter(self, chosen: Mask) -> Pieces:
        """Return the pieces where ``chosen`` holds."""
        if chosen.all():
            return self
        return Pieces(self.owner[chosen], self.start[chosen], self.end[chosen], self.event[chosen])

    @classmethod
    def join(cls, parts: list[Pieces]) -> Pieces:
        """Append pieces."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([p.owner for p in parts]),
            np.concatenate([p.start for p in parts]),
            np.concatenate([p.end for p in parts]),
            np.concatenate([p.event for p in parts]),
        )


class Nesting(Struct, frozen=True):
    """The events of all host threads with their parents, and per thread which one is innermost when.

    ``parent`` indexes ``events``, NONE at the top. Segment i says that from ``time[i]`` to the next segment
    of the same thread the innermost event is ``inner[i]``. ``threads`` says where the events of each thread are,
    ``segments`` where its segments are.
    ``causes``: what each event is about by itself, ``blamed``: what time in it is blamed on, as indices into CAUSES;
    ``busy``: whether its thread has something of its own to do in it, because of it or of one around it.
    """

    events: Spans
    parent: I32
    threads: ThreadRows
    segments: ThreadRows
    time: I64
    inner: I32
    causes: U8
    blamed: U8
    busy: Mask

    @classmethod
    def build(cls, events: Spans) -> Nesting:
        """Find parents and segments; ``events`` are ordered by thread, start, and the longer first."""
        threads = ThreadRows.of(events.thread)
        parent = _parents(events, threads)
        segments, time = _borders(events, threads)
        waits = events.name.flag([bool(WAITING.search(n)) for n in events.name.names])
        causes = _causes(events, parent, waits)
        inner = _innermost(events, parent, threads, segments, time)
        busy = _around(parent, flag_causes(causes, BUSY)) >= 0
        return cls(events, parent, threads, segments, time, inner, causes, _blamed(causes, parent, waits), busy)

    def at(self, thread: I64, time: I64) -> I64:
        """Return the innermost event on each thread at each time, NONE if nothing was recorded."""
        last, first = self.threads.last_before(self.events.start, thread, time)
        return _climb(self.events, self.parent, np.where(last >= first, last, NONE), time)

    def pieces(self, thread: I64, start: I64, end: I64) -> Pieces:
        """Cut the intervals ``[start, end)`` of the given threads wherever the innermost event changes."""
        real = np.flatnonzero(end > start)
        thread, start, end = thread[real], start[real], end[real]
        first, least = self.segments.last_before(self.time, thread, start)
        count = self.segments.last_before(self.time, thread, end - 1)[0] - first + 1
        opening = np.cumsum(count) - count  # where the pieces of each interval begin
        segment = np.arange(int(count.sum()))
        segment += np.repeat(first - opening, count)
        begin, event = (self.time[segment], self.inner[segment].astype(np.int64)) if len(self.time) else _none(segment)
        begin[opening] = start
        event[opening[first < least]] = NONE
        finish = np.empty_like(begin)
        finish[:-1] = begin[1:]
        finish[opening + count - 1] = end
        return Pieces(np.repeat(real, count), begin, finish, event)

    def nearest(self, event: I32 | I64, marked: Mask) -> I64:
        """Return for each event the innermost marked event among itself and those around it, NONE if none."""
        return _nearest(self.parent, event, marked)

    def outermost(self, event: I64, marked: Mask) -> I64:
        """Return for each event the outermost marked event among itself and those around it, NONE if none."""
        found = np.full(len(event), NONE)
        at = self.nearest(event, marked)
        while (at >= 0).any():
            found = np.where(at >= 0, at, found)
            at = self.nearest(np.where(at >= 0, self.parent[at], NONE), marked)
        return found

    def without_inner(self, marked: Mask) -> Mask:
        """Return the marked events that contain no other marked event."""
        chosen = np.flatnonzero(marked)
        around = self.nearest(self.parent[chosen], marked)
        leaf = marked.copy()
        leaf[around[around >= 0]] = False
        return leaf


def _none(segment: I64) -> tuple[I64, I64]:
    """Return times that are to be filled in, and no events."""
    return np.zeros(len(segment), np.int64), np.full(len(segment), NONE)


def _nearest(parent: I32, event: I32 | I64, marked: Mask) -> I64:
    if not marked.any():
        return np.full(len(event), NONE)
    at = event.astype(np.int64)
    searching = np.flatnonzero(at >= 0)
    while len(searching):
        searching = searching[~marked[at[searching]]]
        at[searching] = parent[at[searching]]
        searching = searching[at[searching] >= 0]
    return at


def _causes(events: Spans, parent: I32, waits: Mask) -> U8:
    """Return what each event is about by itself.

    A range has something in it: an event of no known name that holds nothing is an operator of its own. Whatever a
    profiler does is the profiler's. Where the runtime's waits are recorded, an operator that reads a value back and
    holds none of them has not waited: its tensor was on the host.
    """
    codes = cause_codes(events.name)
    measuring = codes == CODE["profiler"]
    if measuring.any():
        inside = _around(parent, measuring) >= 0
        codes = np.where(inside, np.uint8(CODE["profiler"]), codes)
    leaf = np.ones(len(codes), np.bool_)
    leaf[parent[parent >= 0]] = False
    own = leaf & (codes == CODE["range"])
    if waits.any():
        own |= _without(parent, events.name.flag([bool(READERS.search(n)) for n in events.name.names]), waits)
    return np.where(own, np.uint8(CODE["torch_op"]), codes)


def _blamed(causes: U8, parent: I32, waits: Mask) -> U8:
    """Return what time in each event is blamed on: the innermost event around it that says what happens.

    Inside of a compilation, a garbage collection or a runtime's wait everything is part of it; of several the first
    named here. Else a call that says itself what it does is that. What says nothing of the kind (a frame, a torch
    operator) is part of the data loading, the reading operator or the communication call that it runs in, if any.
    """
    own = np.where(causes == CODE["step"], np.uint8(CODE["unrecorded"]), causes)
    vague = ~flag_causes(causes, DECIDED)
    found = np.where(vague, _inherited(causes, parent, flag_causes(causes, SURROUNDING), own), own)
    for covering in (waits, *(causes == CODE[name] for name in reversed(COVERING))):
        found = _inherited(causes, parent, covering, found)
    return np.where(causes == CODE["profiler"], causes, found).astype(np.uint8)


def _inherited(causes: U8, parent: I32, marked: Mask, otherwise: U8) -> U8:
    """Return the cause of the innermost marked event around each event (or of itself), where there is one."""
    if not marked.any():
        return otherwise
    at = _around(parent, marked)
    return np.where(at >= 0, causes[at], otherwise).astype(np.uint8)


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


def _without(parent: I32, outer: Mask, inner: Mask) -> Mask:
    """Return which of the ``outer`` events hold none of the ``inner`` ones."""
    empty = outer.copy()
    at = _nearest(parent, parent[inner], outer)
    while (at := at[at >= 0]).size:
        empty[at] = False
        at = _nearest(parent, parent[distinct(at)], outer)
    return empty


def _parents(events: Spans, threads: ThreadRows) -> I32:
    """Find the latest earlier event of the thread that reaches beyond the middle of each one.

    Clocks of different layers are rounded differently, so neighbours may overlap a little without being nested.
    What a candidate's own candidate skips ended before the candidate's middle, hence before any later event that
    outlasts the candidate: pointers double their reach every round.
    """
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
        inner[own] = _climb(events, parent, last, time[own])
    return inner


def _climb(events: Spans, parent: I32, at: I64, time: I64) -> I64:
    """Return the innermost event around each time, of the last that began before it (``at``) and those around that."""
    searching, candidate = np.flatnonzero(at >= 0), at.compress(at >= 0)
    while len(searching):
        over = events.end.take(candidate) <= time.take(searching)
        searching, candidate = searching.compress(over), parent.take(candidate.compress(over))
        at[searching] = candidate
        inside = candidate >= 0
        searching, candidate = searching.compress(inside), candidate.compress(inside)
    return at
