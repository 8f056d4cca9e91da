"""Nested host events: what encloses what, and what each thread was innermost doing at any time."""

from __future__ import annotations

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
from npuperf.host.enclosing import NONE, NOTHING, climb, find_parents, find_segments, inherited
from npuperf.model.groups import distinct
from npuperf.model.host import Spans
from npuperf.model.labels import I32, I64, U8, Mask
from npuperf.model.runs import ThreadRows


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
        if parts and sum(len(p.owner) > 0 for p in parts) < 2:
            return next((p for p in parts if len(p.owner)), parts[0])
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
        parent = find_parents(events, threads)
        segments, time, inner = find_segments(events, parent, threads)
        waits = events.name.flag([bool(WAITING.search(n)) for n in events.name.names])
        causes = _causes(events, parent, waits)
        busy = _inside(parent, flag_causes(causes, BUSY))
        return cls(events, parent, threads, segments, time, inner, causes, _blamed(causes, parent, waits), busy)

    def at(self, thread: I64, time: I64) -> I64:
        """Return the innermost event on each thread at each time, NONE if nothing was recorded."""
        last, first = self.threads.last_before(self.events.start, thread, time)
        return climb(self.events, self.parent, np.where(last >= first, last, NONE), time)

    def pieces(self, thread: I64, start: I64, end: I64) -> Pieces:
        """Cut the intervals ``[start, end)`` of the given threads wherever the innermost event changes."""
        real = np.flatnonzero(end > start)
        if len(real) < len(end):
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
        codes = np.where(_inside(parent, measuring), np.uint8(CODE["profiler"]), codes)
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
    found = inherited(parent, np.where(marked, causes, np.uint8(NOTHING)))
    return np.where(found == NOTHING, otherwise, found)


def _inside(parent: I32, marked: Mask) -> Mask:
    """Tell the events that are marked, or in one that is."""
    return np.not_equal(inherited(parent, np.where(marked, np.uint8(0), np.uint8(NOTHING))), NOTHING)


def _without(parent: I32, outer: Mask, inner: Mask) -> Mask:
    """Return which of the ``outer`` events hold none of the ``inner`` ones."""
    empty = outer.copy()
    at = _nearest(parent, parent[inner], outer)
    while (at := at[at >= 0]).size:
        empty[at] = False
        at = _nearest(parent, parent[distinct(at)], outer)
    return empty
