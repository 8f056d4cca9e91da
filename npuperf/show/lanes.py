"""Lanes of a device: its time split into parts, its waits for the host, its streams, its cores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from npuperf.base.messages import Message, say, say_n
from npuperf.device.blame import NOTHING
from npuperf.device.cores import blocks
from npuperf.device.cores_over_time import Sweep
from npuperf.device.host_events import CAUSES, CODE, NONE
from npuperf.device.partition import lay_out
from npuperf.model.groups import distinct, numbered, tally
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, U8, Labels, Mask
from npuperf.model.picture import Lane, LaneSlices
from npuperf.model.tasks import NO_TIME, Tasks, Work
from npuperf.show.drawing import COLOUR, Drawing, no_slices, slices, sub_tracks

#: Streams that have a lane of their own.
_STREAMS: Final = 16
#: Parts of a split, and what a lane calls them.
_BUSY: Final = {"compute": "compute", "comm_exposed": "communication", "other_exposed": "other"}
_IDLE: Final = ("host_wait", "launch_latency", "dependency_wait", "unattributed")
#: The colour of a task by its work.
_OF_WORK: Final = np.array([COLOUR[name] for name in ("compute", "communication", "other", "control")], np.uint8)
#: Parts of the slices that the lanes of parts and of waits may have.
_A_SHARE: Final = 8


def parts_lane(drawing: Drawing) -> Lane:
    """Draw where the device's time goes, as its partition says."""
    split = drawing.study.timeline.split(drawing.buckets.windows)
    times = {_BUSY.get(name, name): split[name] for name in (*_BUSY, *_IDLE)}
    found, cut = _parts(drawing)
    return Lane("parts", say("the device's time"), drawing.buckets.shares(times), found, cut=cut)


def _parts(drawing: Drawing) -> tuple[LaneSlices, tuple[int, ...]]:
    """Return the parts one after the other within the stretches, and how many of each stretch are left out."""
    timeline, idle = drawing.study.timeline, drawing.study.timeline.idle
    sets = (
        (timeline.compute, "compute"),
        (timeline.comm_exposed, "communication"),
        (timeline.active, "other"),
        *((getattr(idle, name), name) for name in _IDLE),
    )
    rows = [_pieces(sets, start, end) for start, end in zip(*_ends(drawing.exact), strict=True)]
    start, end, colour = (np.concatenate([row[i] for row in rows]) if rows else np.empty(0, np.int64) for i in range(3))
    kept, cut = drawing.near(start, end, drawing.slices // _A_SHARE)
    found = slices(start[kept] - drawing.origin, end[kept] - drawing.origin, colour[kept].astype(np.uint8))
    return found, tuple(cut)


def _pieces(sets: tuple[tuple[Intervals, str], ...], start: int, end: int) -> tuple[I64, I64, I64]:
    """Cut ``[start, end)`` where the first of the sets that covers it changes; return pieces and their colours."""
    sets = tuple((_between(one, start, end), name) for one, name in sets)
    inside = [np.clip(times, start, end) for one, _ in sets for times in (one.start, one.end)]
    borders = distinct(np.concatenate([np.array([start, end]), *inside]))
    begin = borders[:-1]
    colour = np.full(len(begin), -1, np.int64)
    for one, name in reversed(sets):
        colour[_covered(one, begin)] = COLOUR[name]
    fresh = np.flatnonzero(np.append(True, colour[1:] != colour[:-1])[: len(colour)])
    finish = np.append(begin[fresh[1:]], borders[-1:])[: len(fresh)]
    told = colour[fresh] >= 0
    return begin[fresh][told], finish[told], colour[fresh][told]


def _between(one: Intervals, start: int, end: int) -> Intervals:
    """Return those of a set's intervals that lie in ``[start, end)``, at least in part."""
    there = slice(int(np.searchsorted(one.end, start, side="right")), int(np.searchsorted(one.start, end)))
    return Intervals(one.start[there], one.end[there])


def _covered(one: Intervals, time: I64) -> I64:
    """Return which of the times a set covers."""
    if not len(one):
        return np.empty(0, np.int64)
    at = np.searchsorted(one.start, time, side="right") - 1
    return np.flatnonzero((at >= 0) & (time < one.end[at]))


def _ends(windows: Intervals) -> tuple[list[int], list[int]]:
    return windows.start.tolist(), windows.end.tolist()


def waits_lane(drawing: Drawing) -> Lane | None:
    """Draw what the host did while the device waited for it; None where it never did."""
    study, origin = drawing.study, drawing.origin
    pieces = study.blamed.within(*drawing.window)
    if not len(pieces.start):
        return None
    times = {"host_wait": study.timeline.idle.host_wait.within(drawing.buckets.windows)}
    rows, cut = drawing.near(pieces.start, pieces.end, drawing.slices // _A_SHARE)
    event, cause = pieces.event[rows], pieces.cause[rows].astype(np.int64)
    told = np.where(cause == CODE["unrecorded"], -1, event)
    names = Labels.of([NOTHING]).take(np.where(told < 0, 0, -1))
    found = slices(
        pieces.start[rows] - origin,
        pieces.end[rows] - origin,
        np.full(len(rows), COLOUR["host_wait"]),
        name=drawing.names.places(study.nesting.events.name.take(told).fill(names)),
        where=drawing.names.places(_lines(drawing, event)),
        cause=drawing.names.places(Labels(cause.astype(np.int32), CAUSES)),
    )
    apart = study.launches.untold is None  # else launches count to the host
    title = say("waiting for the host") if apart else say("waiting for the host and launches")
    return Lane("waits", title, drawing.buckets.shares(times), found, cut=tuple(cut))


def _lines(drawing: Drawing, event: I64) -> Labels:
    """Return the code lines in which events began."""
    events, known = drawing.study.nesting.events, np.flatnonzero(event >= 0)
    place = np.full(len(event), NONE)
    place[known] = np.arange(len(known))
    return drawing.lines.at(events.thread[event[known]], events.start[event[known]]).take(place)


def stream_lanes(drawing: Drawing, rows: I64) -> Iterator[Lane]:
    """Draw the streams, the busiest first; ``rows``: the tasks with slices, in order."""
    tasks = drawing.study.profile.tasks
    there = (tasks.end > drawing.window[0]) & (tasks.start < drawing.window[1])
    there[rows] = True
    numbers, which = numbered(tasks.stream)
    active = np.bincount(which, weights=np.where(there & (tasks.work != Work.CONTROL), tasks.dur, 0))
    present = np.flatnonzero(np.bincount(which, weights=there))
    order = present[np.lexsort((numbers[present], -active[present]))]
    own = order[:_STREAMS] if len(order) > _STREAMS + 1 else order  # a lane for one other would be no less
    groups = [([place], *_titled(int(numbers[place]), tasks.work[which == place])) for place in own.tolist()]
    if len(order) > len(own):
        rest = order[len(own) :].tolist()
        groups.append((rest, say_n("{n} other stream", "{n} other streams", len(rest)), None))
    for places, title, stream in groups:
        mine = np.isin(which, places)
        members = np.flatnonzero(mine)
        yield Lane(
            "stream",
            title,
            drawing.buckets.shares(_stream_times(drawing, members)),
            _tasks(drawing, rows[mine[rows]]),
            stream=stream,
        )


def _titled(number: int, work: U8) -> tuple[Message, int | None]:
    """Return what a lane is called, and its stream; of collectives the files may not name it."""
    if number < 0:
        return (say("communication") if (work == Work.COMMUNICATION).all() else say("tasks without a stream")), None
    return say("stream {stream}", stream=number), number


def _stream_times(drawing: Drawing, rows: I64) -> dict[str, I64]:
    """Return what a stream does by itself in each bucket, ns."""
    study, windows = drawing.study, drawing.buckets.windows
    tasks = study.profile.tasks
    alone = lay_out(tasks, study.launches, study.timeline.span, rows)
    busy = alone.busy(windows)
    times = {colour: busy[name] for name, colour in _BUSY.items()}
    times["control"] = Intervals.union(tasks.start[rows], tasks.end[rows]).within(windows) - alone.active.within(
        windows
    )
    return times


def _tasks(drawing: Drawing, rows: I64) -> LaneSlices:
    """Return tasks with what is known of each."""
    study, origin = drawing.study, drawing.origin
    tasks = study.profile.tasks
    start, end = tasks.start[rows] - origin, tasks.end[rows] - origin
    submitted = study.launches.end[rows]
    used = blocks(tasks.take(rows).without_counters())
    cores = drawing.cores
    return slices(
        start,
        end,
        _OF_WORK[tasks.work[rows]],
        depth=sub_tracks(start, end),
        name=_titles(drawing, tasks, rows),
        where=drawing.names.places(drawing.lines.of_ops(tasks.op[rows])),
        launch=np.where(submitted == NO_TIME, -1, submitted - origin),
        cube=_at_once(used.cube, cores.cube),
        vector=_at_once(used.vector, cores.vector),
    )


def _at_once(used: I64, cores: int | None) -> I64:
    """Return how many cores kernels with so many blocks keep busy at a time."""
    return np.minimum(used, cores) if cores else used


def _titles(drawing: Drawing, tasks: Tasks, rows: I64) -> I64:
    """Return what tasks are called: by their name, and by their type where the name does not have it."""
    name, kind = tasks.name.take(rows), drawing.study.types.take(rows)
    key = (name.codes.astype(np.int64) + 1) * (len(kind.names) + 1) + kind.codes + 1

    def title(one: int) -> str | None:
        code, type_code = divmod(one, len(kind.names) + 1)
        called = name.names[code - 1] if code else None
        type_ = kind.names[type_code - 1] if type_code else None
        if called is None or type_ is None:
            return called or type_
        return called if type_.lower() in called.lower() else f"{called} [{type_}]"

    return drawing.names.of_each(key, title)


def core_lanes(drawing: Drawing) -> Iterator[Lane]:
    """Draw how many cores kernels use over time, cube and vector cores, where blocks and cores are known."""
    sweep = Sweep.of(drawing.study.profile.tasks, drawing.cores, drawing.window)
    if sweep is None:
        return
    titles = ("cube", say("cube cores in use")), ("vector", say("vector cores in use"))
    for (name, title), used, (cores, wanted) in zip(titles, (sweep.cube, sweep.vector), sweep.sides, strict=True):
        if cores and used.any():
            busy = _sums(sweep.border, np.minimum(wanted, cores).astype(np.int64), drawing.buckets.edges)
            yield Lane("cores", title, drawing.buckets.shares({name: busy}, cores), no_slices())


def _sums(border: I64, rate: I64, edges: I64) -> I64:
    """Return for each two neighbouring edges the time between them, ns, weighted by the rate between the borders."""
    so_far = np.append(0, np.cumsum(rate * np.diff(border)))
    time = np.clip(edges, border[0], border[-1])
    at = np.minimum(np.searchsorted(border, time, side="right") - 1, len(rate) - 1)
    return np.diff(so_far[at] + rate[at] * (time - border[at]))


# -- Lanes of host threads: what the thread of the program did, and those that launch for it.

#: Threads that are drawn.
_THREADS: Final = 4
#: The part of a picture's slices that host events may have.
_HOST_LANES_A_SHARE: Final = 4


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
        found = _events(drawing, rows, waits, drawing.slices // (_HOST_LANES_A_SHARE * len(drawn)))
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
