"""Lanes of a device's picture: its time split into parts, its waits for the host, its streams, cores and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import say, say_n
from npuperf.device.blame import NOTHING
from npuperf.device.cores import Sweep, blocks
from npuperf.device.host_events import CAUSES, CODE, NONE
from npuperf.device.partition import lay_out
from npuperf.device.study import Study
from npuperf.model.chip import Cores
from npuperf.model.groups import distinct, largest, numbered, tally
from npuperf.model.host import Lines
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, U8, Labels, Mask
from npuperf.model.picture import COLOURS, NOTHING_KNOWN, Exact, Lane, LaneSlices
from npuperf.model.result import Device
from npuperf.model.tasks import NO_TIME, Work

# -- Equal stretches of a picture's time, and what share of each of them something takes.

#: The share that is all of a bucket.
FULL: Final = 255


class Buckets(Struct, frozen=True):
    """Neighbouring windows of a device's time, ns, of one length (but for rounding by one)."""

    windows: Intervals

    @classmethod
    def of(cls, start: int, end: int, count: int) -> Buckets:
        """Cut ``[start, end)`` into ``count`` buckets, or fewer: each has a nanosecond at least."""
        length = max(end - start, 1)
        count = max(min(count, length), 1)
        # A product of the length and the number of a bucket may not fit into 64 bits; these parts of it do.
        whole, rest = divmod(length, count)
        number = np.arange(count + 1)
        edges = start + whole * number + rest * number // count
        return cls(Intervals(edges[:-1], edges[1:]))

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def edges(self) -> I64:
        """All borders in order, one more than there are buckets."""
        return np.append(self.windows.start, self.windows.end[-1])

    @property
    def length(self) -> I64:
        """How long each bucket is, ns."""
        return self.windows.end - self.windows.start

    def shares(self, times: Mapping[str, I64], capacity: int = 1) -> dict[str, U8]:
        """Return what share of each bucket each of the times (ns) is, without those that are nothing anywhere.

        ``capacity``: by how much a bucket holds more than its length, as of cores.
        """
        whole = self.length * capacity
        return {
            name: ((2 * FULL * time + whole) // (2 * whole)).astype(np.uint8)
            for name, time in times.items()
            if time.any()
        }


# -- Slices and their names, made column by column.

COLOUR: Final = {name: np.uint8(code) for code, name in enumerate(COLOURS)}


class Names:
    """The names of a picture, each once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, name: str | None) -> int:
        """Return the number of a name; -1 for none."""
        return NOTHING_KNOWN if name is None else self._places.setdefault(name, len(self._places))

    def places(self, labels: Labels) -> I64:
        """Return the number of each text, -1 where nothing was recorded."""
        small = labels.compact()
        table = np.array([*map(self.place, small.names), NOTHING_KNOWN], np.int64)
        return table[small.codes]

    def of_each(self, keys: I64, name: Callable[[int], str | None]) -> I64:
        """Return the number of the name that each key has; ``name`` is asked once for each, and never for -1."""
        found, which = np.unique(keys, return_inverse=True)
        table = [NOTHING_KNOWN if key < 0 else self.place(name(key)) for key in found.tolist()]
        return np.array(table, np.int64)[which.reshape(-1)]

    def all(self) -> tuple[str, ...]:
        """Return the names in the order of their numbers."""
        return tuple(self._places)


def slices(start: I64, end: I64, colour: U8, **known: I64) -> LaneSlices:
    """Fill columns that are not given with "unknown", and depths with the outermost."""
    unknown = np.broadcast_to(np.int64(NOTHING_KNOWN), len(start))
    columns = dict.fromkeys(("name", "where", "cause", "launch", "cube", "vector"), unknown)
    columns["depth"] = np.zeros(len(start), np.int64)
    return LaneSlices(start=start, end=end, colour=colour, **{**columns, **known})


def sub_tracks(start: I64, end: I64, at_least: I64 | None = None) -> I64:
    """Return for each of some things, ordered by start, the first track that is free: no two of one track overlap.

    ``at_least``: the first track that each may have.
    """
    if at_least is None and (start[1:] >= np.maximum.accumulate(end)[:-1]).all():
        return np.zeros(len(start), np.int64)
    tracks: list[int] = []
    until: list[int] = []
    lowest = [0] * len(start) if at_least is None else at_least.tolist()
    for begin, stop, track in zip(start.tolist(), end.tolist(), lowest, strict=True):
        while track < len(until) and until[track] > begin:
            track += 1
        until += [begin] * (track + 1 - len(until))
        until[track] = stop
        tracks.append(track)
    return np.array(tracks, np.int64)


# -- A picture on its way, and what of a device is in it.


class Drawing(Struct, frozen=True, dict=True):
    """One picture on its way. ``stretches``: those that are exact, epoch ns; ``slices``: about so many it may have.

    ``names``: those that its slices use, collected by the lanes.
    """

    study: Study
    report: Device
    buckets: Buckets
    stretches: Sequence[Exact]
    slices: int
    names: Names

    @property
    def window(self) -> tuple[int, int]:
        """What is drawn, epoch ns."""
        edges = self.buckets.edges
        return int(edges[0]), int(edges[-1])

    @property
    def origin(self) -> int:
        """What the picture's times count from, epoch ns."""
        return self.window[0]

    @property
    def cores(self) -> Cores:
        """The device's cores, as the report has them."""
        return Cores(self.report.cores_cube, self.report.cores_vector)

    @cached_property
    def exact(self) -> Intervals:
        """The stretches as windows, epoch ns."""
        start, end = (np.array([getattr(s, side) for s in self.stretches], np.int64) for side in ("start", "end"))
        return Intervals(start, end)

    @cached_property
    def lines(self) -> Lines:
        """What tells lines of code."""
        return Lines.of(self.study.profile.host)

    def near(self, start: I64, end: I64, most: int) -> tuple[I64, list[int]]:
        """Return which of some things lie in the stretches, at least in part: the longest of each, up to ``most``.

        In order, and how many of each stretch are left out. What lies in several counts for each.
        """
        windows = zip(self.exact.start.tolist(), self.exact.end.tolist(), strict=True)
        there = [np.flatnonzero((start < b) & ((end > a) | (start >= a))) for a, b in windows]
        kept = [
            rows if count == len(rows) else rows[largest((end - start)[rows], count)] if count else rows[:0]
            for rows, count in zip(there, allot([len(rows) for rows in there], most), strict=True)
        ]
        cut = [len(rows) - len(some) for rows, some in zip(there, kept, strict=True)]
        return distinct(np.concatenate([np.empty(0, np.int64), *kept])), cut


def allot(wanted: list[int], most: int) -> list[int]:
    """Share ``most`` among those who want something, evenly: what one does not need the others get."""
    given = [0] * len(wanted)
    left, waiting = most, sorted(range(len(wanted)), key=wanted.__getitem__)
    for turn, i in enumerate(waiting):
        given[i] = min(wanted[i], left // (len(waiting) - turn))
        left -= given[i]
    return given


# -- Lanes of the device.

#: Streams that have a lane of their own.
_STREAMS: Final = 16
#: Parts of a split, and what a lane calls them.
_BUSY: Final = {"compute": "compute", "comm_exposed": "communication", "other_exposed": "other"}
_IDLE: Final = ("host_wait", "launch_latency", "dependency_wait", "unattributed")
#: The colour of a task by its work.
_OF_WORK: Final = np.array([COLOUR[name] for name in ("compute", "communication", "other", "control")], np.uint8)
#: Parts of the slices that the lanes of parts and of waits may have.
_OF_PARTS: Final = 8


def parts_lane(drawing: Drawing) -> Lane:
    """Draw where the device's time goes, as its partition says; exactly, one part after the other, in the stretches."""
    timeline = drawing.study.timeline
    split = timeline.split(drawing.buckets.windows)
    times = {_BUSY.get(name, name): split[name] for name in (*_BUSY, *_IDLE)}
    sets = (
        (timeline.compute, "compute"),
        (timeline.comm_exposed, "communication"),
        (timeline.active, "other"),
        *((getattr(timeline.idle, name), name) for name in _IDLE),
    )
    rows = [_pieces(sets, stretch.start, stretch.end) for stretch in drawing.stretches]
    start, end, colour = (np.concatenate([row[i] for row in rows]) if rows else np.empty(0, np.int64) for i in range(3))
    kept, cut = drawing.near(start, end, drawing.slices // _OF_PARTS)
    found = slices(start[kept] - drawing.origin, end[kept] - drawing.origin, colour[kept].astype(np.uint8))
    return Lane("parts", say("the device's time"), drawing.buckets.shares(times), found, cut=tuple(cut))


def _pieces(sets: tuple[tuple[Intervals, str], ...], start: int, end: int) -> tuple[I64, I64, I64]:
    """Cut ``[start, end)`` where the first of the sets that covers it changes; return pieces and their colours."""
    sets = tuple((one.near(start, end), name) for one, name in sets)
    inside = [np.clip(times, start, end) for one, _ in sets for times in (one.start, one.end)]
    borders = distinct(np.concatenate([np.array([start, end]), *inside]))
    begin = borders[:-1]
    colour = np.full(len(begin), -1, np.int64)
    for one, name in reversed(sets):
        if len(one):
            at = np.searchsorted(one.start, begin, side="right") - 1
            colour[(at >= 0) & (begin < one.end[at])] = COLOUR[name]
    fresh = np.flatnonzero(np.append(True, colour[1:] != colour[:-1])[: len(colour)])
    finish = np.append(begin[fresh[1:]], borders[-1:])[: len(fresh)]
    told = colour[fresh] >= 0
    return begin[fresh][told], finish[told], colour[fresh][told]


def waits_lane(drawing: Drawing) -> Lane | None:
    """Draw what the host did while the device waited for it; None where it never did."""
    study, origin, events = drawing.study, drawing.origin, drawing.study.nesting.events
    pieces = study.blamed.within(*drawing.window)
    if not len(pieces.start):
        return None
    times = {"host_wait": study.timeline.idle.host_wait.within(drawing.buckets.windows)}
    rows, cut = drawing.near(pieces.start, pieces.end, drawing.slices // _OF_PARTS)
    event, cause = pieces.event[rows], pieces.cause[rows].astype(np.int64)
    told = np.where(cause == CODE["unrecorded"], -1, event)
    nothing = Labels.of([NOTHING]).take(np.where(told < 0, 0, -1))
    known = np.flatnonzero(event >= 0)
    lines = drawing.lines.at(events.thread[event[known]], events.start[event[known]])  # in which they began
    line = np.full(len(event), NONE)
    line[known] = np.arange(len(known))
    found = slices(
        pieces.start[rows] - origin,
        pieces.end[rows] - origin,
        np.full(len(rows), COLOUR["host_wait"]),
        name=drawing.names.places(events.name.take(told).fill(nothing)),
        where=drawing.names.places(lines.take(line)),
        cause=drawing.names.places(Labels(cause.astype(np.int32), CAUSES)),
    )
    apart = study.launches.untold is None  # else launches count to the host
    title = say("waiting for the host") if apart else say("waiting for the host and launches")
    return Lane("waits", title, drawing.buckets.shares(times), found, cut=tuple(cut))


def stream_lanes(drawing: Drawing, rows: I64) -> Iterator[Lane]:
    """Draw the streams, the busiest first; ``rows``: the tasks with slices, in order."""
    study, windows, tasks = drawing.study, drawing.buckets.windows, drawing.study.profile.tasks
    there = (tasks.end > drawing.window[0]) & (tasks.start < drawing.window[1])
    there[rows] = True
    numbers, which = numbered(tasks.stream)
    active = np.bincount(which, weights=np.where(there & (tasks.work != Work.CONTROL), tasks.dur, 0))
    present = np.flatnonzero(np.bincount(which, weights=there))
    order = present[np.lexsort((numbers[present], -active[present]))]
    own = order[:_STREAMS] if len(order) > _STREAMS + 1 else order  # a lane for one other would be no less
    groups = [own[i : i + 1] for i in range(len(own))]
    if len(order) > len(own):
        groups.append(order[len(own) :])
    for places in groups:
        mine = np.isin(which, places)
        members = np.flatnonzero(mine)
        number = int(numbers[places[0]])
        stream = number if number >= 0 and len(places) == 1 else None
        if len(places) > 1:
            title = say_n("{n} other stream", "{n} other streams", len(places))
        elif number >= 0:
            title = say("stream {stream}", stream=number)
        else:  # of collectives the files may not name it
            collectives = (tasks.work[members] == Work.COMMUNICATION).all()
            title = say("communication") if collectives else say("tasks without a stream")
        alone = lay_out(tasks, study.launches, study.timeline.span, members)  # what the stream does by itself
        busy = alone.busy(windows)
        times = {colour: busy[name] for name, colour in _BUSY.items()}
        covered = Intervals.union(tasks.start[members], tasks.end[members])
        times["control"] = covered.within(windows) - alone.active.within(windows)
        yield Lane("stream", title, drawing.buckets.shares(times), _tasks(drawing, rows[mine[rows]]), stream=stream)


def _tasks(drawing: Drawing, rows: I64) -> LaneSlices:
    """Return tasks with what is known of each: called by their name, and by their type where the name lacks it."""
    study, origin, cores = drawing.study, drawing.origin, drawing.cores
    tasks = study.profile.tasks
    name, kind = tasks.name.take(rows), study.types.take(rows)

    def title(key: int) -> str | None:
        code, type_code = divmod(key, len(kind.names) + 1)
        called = name.names[code - 1] if code else None
        type_ = kind.names[type_code - 1] if type_code else None
        if called is None or type_ is None:
            return called or type_
        return called if type_.lower() in called.lower() else f"{called} [{type_}]"

    start, end = tasks.start[rows] - origin, tasks.end[rows] - origin
    submitted = study.launches.end[rows]
    used = blocks(tasks.take(rows).without_counters())
    return slices(
        start,
        end,
        _OF_WORK[tasks.work[rows]],
        depth=sub_tracks(start, end),
        name=drawing.names.of_each((name.codes.astype(np.int64) + 1) * (len(kind.names) + 1) + kind.codes + 1, title),
        where=drawing.names.places(drawing.lines.of_ops(tasks.op[rows])),
        launch=np.where(submitted == NO_TIME, -1, submitted - origin),
        cube=np.minimum(used.cube, cores.cube) if cores.cube else used.cube,  # at a time
        vector=np.minimum(used.vector, cores.vector) if cores.vector else used.vector,
    )


def core_lanes(drawing: Drawing) -> Iterator[Lane]:
    """Draw how many cores kernels use over time, cube and vector cores, where blocks and cores are known."""
    sweep = Sweep.of(drawing.study.profile.tasks, drawing.cores, drawing.window)
    if sweep is None:
        return
    border, none = sweep.border, np.empty(0, np.int64)
    time = np.clip(drawing.buckets.edges, border[0], border[-1])
    at = np.minimum(np.searchsorted(border, time, side="right") - 1, len(border) - 2)
    titles = ("cube", say("cube cores in use")), ("vector", say("vector cores in use"))
    for (name, title), used, (cores, wanted) in zip(titles, (sweep.cube, sweep.vector), sweep.sides, strict=True):
        if cores and used.any():
            rate = np.minimum(wanted, cores).astype(np.int64)  # cores between one border and the next
            so_far = np.append(0, np.cumsum(rate * np.diff(border)))
            busy = np.diff(so_far[at] + rate[at] * (time - border[at]))
            shares = drawing.buckets.shares({name: busy}, cores)
            yield Lane("cores", title, shares, slices(none, none, none.astype(np.uint8)))


# -- Lanes of host threads: what the thread of the program did, and those that launch for it.

#: Threads that are drawn.
_THREADS: Final = 4
#: The part of a picture's slices that host events may have.
_OF_HOST: Final = 4


def host_lanes(drawing: Drawing) -> Iterator[Lane]:
    """Draw the main thread, then those that launch or run operators that do, most tasks first, where any is recorded.

    Shares are of the time in which a thread worked and in which it waited for the device.
    """
    study, windows = drawing.study, drawing.buckets.windows
    nesting, syncs, threads, skew = study.nesting, study.syncs, study.threads, study.launches.skew
    there = {thread: (rows, segments) for (thread, rows), (_, segments) in zip(
        nesting.threads, nesting.segments, strict=True)}  # fmt: skip
    numbers, count, _ = tally(both := np.concatenate([threads.launch, threads.op]), np.ones_like(both))
    launching = dict.fromkeys((threads.main, *numbers[np.argsort(-count, kind="stable")].tolist()))
    drawn = [thread for thread in launching if thread != -1 and thread in there][:_THREADS]
    waits = np.zeros(len(nesting.events), np.bool_)
    waits[syncs.event] = True  # in which the host waits for the device
    for thread in drawn:
        rows, segments = there[thread]
        time, inner = nesting.time[segments] - skew, nesting.inner[segments]
        busy = (inner != NONE) & nesting.busy[inner]
        busy[-1:] = False  # after the last event there is nothing
        until = np.append(time[1:], time[-1:])
        mine = syncs.thread == thread
        start, end = syncs.start[mine] - skew, syncs.end[mine] - skew
        waited = Intervals.union(start, end).within(windows)
        either = Intervals.union(np.append(time[busy], start), np.append(until[busy], end)).within(windows)
        title = say("host thread {thread}", thread=thread)
        if thread == threads.main:
            title = say("main thread {thread}", thread=thread)
        shares = drawing.buckets.shares({"host_op": either - waited, "host_sync": waited})
        found = _events(drawing, rows, waits, drawing.slices // (_OF_HOST * len(drawn)))
        yield Lane("host", title, shares, found, thread=thread)


def _events(drawing: Drawing, rows: slice, waits: Mask, most: int) -> LaneSlices:
    """Return events of one thread, nested as they ran; those that are left out are the shortest, with all in them."""
    nesting, shift = drawing.study.nesting, drawing.study.launches.skew
    events = nesting.events
    near, _ = drawing.near(events.start[rows] - shift, events.end[rows] - shift, most)
    kept = rows.start + near
    marked = np.zeros(len(events), np.bool_)
    marked[kept] = True
    depth = np.zeros(len(kept), np.int64)  # in how many of those that are kept each of them is
    at = nesting.nearest(nesting.parent[kept], marked)
    while (inside := at >= 0).any():
        depth[inside] += 1
        at[inside] = nesting.nearest(nesting.parent[at[inside]], marked)
    shift += drawing.origin
    start, end = events.start[kept] - shift, events.end[kept] - shift
    return slices(
        start,
        end,
        np.where(waits[kept], COLOUR["host_sync"], COLOUR["host_op"]).astype(np.uint8),
        depth=sub_tracks(start, end, depth),
        name=drawing.names.places(events.name.take(kept)),
    )
