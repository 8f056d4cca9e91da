"""Lanes of host threads: what the thread of the program did, and those that launch for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from npuperf.documents.picture import Lane, LaneSlices
from npuperf.host.enclosing import NONE
from npuperf.messages import Message, say
from npuperf.model.groups import tally
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Mask
from npuperf.pictures.drawing import Drawing
from npuperf.pictures.slice_columns import COLOUR, slices, sub_tracks

#: Threads that are drawn.
_THREADS: Final = 4
#: The part of a picture's slices that host events may have.
_A_SHARE: Final = 4


def host_lanes(drawing: Drawing) -> Iterator[Lane]:
    """Draw the main thread, then those that launch most, where host events are recorded."""
    nesting = drawing.study.nesting
    there = {thread: (rows, segments) for (thread, rows), (_, segments) in zip(
        nesting.threads, nesting.segments, strict=True)}  # fmt: skip
    drawn = [thread for thread in _launching(drawing) if thread in there][:_THREADS]
    waits = _waits(drawing)
    for thread in drawn:
        rows, segments = there[thread]
        times = _times(drawing, thread, segments)
        found = _events(drawing, rows, waits, drawing.slices // (_A_SHARE * len(drawn)))
        yield Lane("host", _title(thread, drawing), drawing.buckets.shares(times), found, thread=thread)


def _title(thread: int, drawing: Drawing) -> Message:
    if thread == drawing.study.threads.main:
        return say("main thread {thread}", thread=thread)
    return say("host thread {thread}", thread=thread)


def _launching(drawing: Drawing) -> list[int]:
    """Return the main thread and all that launch or run operators that do, those with most tasks first."""
    threads = drawing.study.threads
    numbers, count, _ = tally(both := np.concatenate([threads.launch, threads.op]), np.ones_like(both))
    ordered = numbers[np.argsort(-count, kind="stable")].tolist()
    return list(dict.fromkeys(thread for thread in (threads.main, *ordered) if thread != -1))


def _waits(drawing: Drawing) -> Mask:
    """True for events in which the host waits for the device."""
    found = np.zeros(len(drawing.study.nesting.events), np.bool_)
    found[drawing.study.syncs.event] = True
    return found


def _times(drawing: Drawing, thread: int, segments: slice) -> dict[str, I64]:
    """Return how long the thread worked and how long it waited for the device in each bucket, ns."""
    study, windows = drawing.study, drawing.buckets.windows
    nesting, syncs, skew = study.nesting, study.syncs, study.launches.skew
    time, inner = nesting.time[segments] - skew, nesting.inner[segments]
    busy = (inner != NONE) & nesting.busy[inner]
    busy[-1:] = False  # after the last event there is nothing
    until = np.append(time[1:], time[-1:])
    mine = syncs.thread == thread
    start, end = syncs.start[mine] - skew, syncs.end[mine] - skew
    waits = Intervals.union(start, end)
    either = Intervals.union(np.append(time[busy], start), np.append(until[busy], end))
    waited = waits.within(windows)
    return {"host_op": either.within(windows) - waited, "host_sync": waited}


def _events(drawing: Drawing, rows: slice, waits: Mask, most: int) -> LaneSlices:
    """Return events of one thread, nested as they ran; those that are left out are the shortest, with all in them."""
    nesting, shift = drawing.study.nesting, drawing.study.launches.skew
    events = nesting.events
    near, _ = drawing.near(events.start[rows] - shift, events.end[rows] - shift, most)
    kept = rows.start + near
    shift += drawing.origin
    start, end = events.start[kept] - shift, events.end[kept] - shift
    return slices(
        start,
        end,
        np.where(waits[kept], COLOUR["host_sync"], COLOUR["host_op"]).astype(np.uint8),
        depth=sub_tracks(start, end, _depths(drawing, kept)),
        name=drawing.names.places(events.name.take(kept)),
    )


def _depths(drawing: Drawing, kept: I64) -> I64:
    """Return how many of the ``kept`` events each of them is in."""
    nesting = drawing.study.nesting
    marked = np.zeros(len(nesting.events), np.bool_)
    marked[kept] = True
    depth = np.zeros(len(kept), np.int64)
    at = nesting.nearest(nesting.parent[kept], marked)
    while (inside := at >= 0).any():
        depth[inside] += 1
        at[inside] = nesting.nearest(nesting.parent[at[inside]], marked)
    return depth
