"""Nested host events: what encloses what, and what each thread was innermost doing at any time."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.host.causes import (
    CODE,
    COVERING,
    DECIDED,
    READERS,
    SURROUNDING,
    WAITING,
    cause_codes,
    flag_causes,
)
from npuperf.model.host import Spans
from npuperf.model.labels import I64, U8, Mask

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
        return Pieces(self.owner[chosen], self.start[chosen], self.end[chosen], self.event[chosen])

    @classmethod
    def join(cls, parts: list[Pieces]) -> Pieces:
        """Append pieces."""
        return cls(
            np.concatenate([p.owner for p in parts]),
            np.concatenate([p.start for p in parts]),
            np.concatenate([p.end for p in parts]),
            np.concatenate([p.event for p in parts]),
        )


class Nesting(Struct, frozen=True):
    """The events of all host threads with their parents, and per thread which one is innermost when.

    ``parent`` indexes ``events``, NONE at the top. Segment i says that from ``time[i]`` to the next segment
    of the same ``thread`` the innermost event is ``inner[i]``. Segments are ordered by thread, then time.
    ``causes``: what each event is about by itself, ``blamed``: what time in it is blamed on, as indices into CAUSES.
    """

    events: Spans
    parent: I64
    thread: I64
    time: I64
    inner: I64
    causes: U8
    blamed: U8

    @classmethod
    def build(cls, events: Spans) -> Nesting:
        """Find parents and segments; ``events`` are ordered by thread, start, and the longer first."""
        parent = _parents(events)
        thread = np.concatenate([events.thread, events.thread])
        time = np.concatenate([events.start, events.end])
        order = np.lexsort((time, thread))
        thread, time = thread[order], time[order]
        last = np.ones(len(time), np.bool_)  # of several borders at one time the last one counts
        last[:-1] = (time[1:] != time[:-1]) | (thread[1:] != thread[:-1])
        thread, time = thread[last], time[last]
        waits = events.name.flag([bool(WAITING.search(n)) for n in events.name.names])
        causes = _causes(events, parent, waits)
        inner = _innermost(events, parent, thread, time)
        return cls(events, parent, thread, time, inner, causes, _blamed(causes, parent, waits))

    def at(self, thread: I64, time: I64) -> I64:
        """Return the innermost event on each thread at each time, NONE if nothing was recorded."""
        return _innermost(self.events, self.parent, thread, time)

    def pieces(self, thread: I64, start: I64, end: I64) -> Pieces:
        """Cut the intervals ``[start, end)`` of the given threads wherever the innermost event changes."""
        first, last = self._segment(thread, start), self._segment(thread, end)
        counts = np.where(end > start, last - first + 1, 0)
        owner = np.repeat(np.arange(len(start)), counts)
        offset = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        segment = first[owner] + offset
        at = np.clip(segment, 0, max(len(self.time) - 1, 0))
        if len(self.time):
            mine = (segment >= 0) & (self.thread[at] == thread[owner])
            event = np.where(mine, self.inner[at], NONE)
            begin = np.where(mine & (offset > 0), self.time[at], start[owner])
        else:
            event, begin = np.full(len(owner), NONE), start[owner]
        finish = np.append(begin[1:], 0)
        closing = np.append(owner[1:] != owner[:-1], True) if len(owner) else np.empty(0, np.bool_)
        finish = np.where(closing, end[owner], finish)
        real = finish > begin
        return Pieces(owner[real], begin[real], finish[real], event[real])

    def _segment(self, thread: I64, time: I64) -> I64:
        """Return the index of the last segment of ``thread`` at or before ``time``, or one before its first."""
        return _last_before(self.thread, self.time, thread, time)

    def nearest(self, event: I64, marked: Mask) -> I64:
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


def _nearest(parent: I64, event: I64, marked: Mask) -> I64:
    at = event.copy()
    searching = np.flatnonzero(at >= 0)
    while len(searching):
        searching = searching[~marked[at[searching]]]
        at[searching] = parent[at[searching]]
        searching = searching[at[searching] >= 0]
    return at


def _causes(events: Spans, parent: I64, waits: Mask) -> U8:
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


def _blamed(causes: U8, parent: I64, waits: Mask) -> U8:
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


def _inherited(causes: U8, parent: I64, marked: Mask, otherwise: U8) -> U8:
    """Return the cause of the innermost marked event around each event (or of itself), where there is one."""
    if not marked.any():
        return otherwise
    at = _around(parent, marked)
    return np.where(at >= 0, causes[at], otherwise).astype(np.uint8)


def _around(parent: I64, marked: Mask) -> I64:
    """Return for every event the innermost marked one among itself and those around it; pointers double their reach."""
    at = np.where(marked, np.arange(len(parent)), parent)
    while len(open_ := np.flatnonzero((at >= 0) & ~marked[at])):
        at[open_] = at[at[open_]]
    return at


def _without(parent: I64, outer: Mask, inner: Mask) -> Mask:
    """Return which of the ``outer`` events hold none of the ``inner`` ones."""
    empty = outer.copy()
    at = _nearest(parent, parent[inner], outer)
    while (at := at[at >= 0]).size:
        empty[at] = False
        at = _nearest(parent, parent[np.unique(at)], outer)
    return empty


def _parents(events: Spans) -> I64:
    """Find the latest earlier event of the thread that reaches beyond the middle of each one.

    Clocks of different layers are rounded differently, so neighbours may overlap a little without being nested.
    What a candidate's own candidate skips ended before the candidate's middle, hence before any later event that
    outlasts the candidate: pointers double their reach every round.
    """
    n = len(events)
    candidate = np.arange(-1, n - 1)
    if not n:
        return candidate
    first = np.append(True, events.thread[1:] != events.thread[:-1])
    candidate[first] = NONE
    middle = events.start + (events.end - events.start) // 2
    open_ = np.flatnonzero(candidate >= 0)
    while len(open_):
        at = candidate[open_]
        open_ = open_[(events.end[at] < middle[open_]) | (events.end[at] <= events.start[open_])]
        candidate[open_] = candidate[candidate[open_]]
        open_ = open_[candidate[open_] >= 0]
    return candidate


def _innermost(events: Spans, parent: I64, thread: I64, time: I64) -> I64:
    at = _last_before(events.thread, events.start, thread, time)
    at = np.maximum(at, NONE)
    if len(events):
        at = np.where((at >= 0) & (events.thread[at] == thread), at, NONE)
    searching = np.flatnonzero(at >= 0)
    while len(searching):
        searching = searching[events.end[at[searching]] <= time[searching]]
        at[searching] = parent[at[searching]]
        searching = searching[at[searching] >= 0]
    return at


def _last_before(groups: I64, times: I64, group: I64, time: I64) -> I64:
    """Return the last index with the same group and a time at or before the given one.

    ``groups`` and ``times`` are ordered by group, then time. Where there is none, an index of another group
    (or -1) is returned.
    """
    if not len(groups) or not len(group):
        return np.full(len(group), NONE)
    first = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    bounds = np.append(first, len(groups)).tolist()
    place = np.full(len(group), NONE)
    for number, (low, high) in zip(groups[first].tolist(), pairwise(bounds), strict=True):
        mine = np.flatnonzero(group == number)
        if len(mine):
            place[mine] = low + np.searchsorted(times[low:high], time[mine], side="right") - 1
    return place
