"""Lanes of a device's picture: its time split into parts, its waits for the host, its streams, cores and threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Any, Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import say, say_n, size
from npuperf.device.blame import NOTHING, main_thread
from npuperf.device.cores import Sweep, blocks
from npuperf.device.host_events import CAUSES, CODE, NONE, Nesting
from npuperf.device.partition import lay_out
from npuperf.device.study import Study
from npuperf.device.syncs import Syncs
from npuperf.model.chip import Cores
from npuperf.model.device import HostProfile, TorchOperators
from npuperf.model.groups import distinct, first_rows, largest, numbered, tally
from npuperf.model.host import Enclosing, Lines, Spans
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, U8, Labels, Mask, Operands
from npuperf.model.names import is_step
from npuperf.model.picture import COLOURS, NOTHING_KNOWN, UNCOUNTED, Exact, Fact, Lane, LaneSlices
from npuperf.model.result import Device
from npuperf.model.tasks import NO_TIME, Tasks, Work
from npuperf.show.language import text

# -- Equal stretches of a picture's time, and what share of each of them something takes.

#: Combinations of what is known of tasks that a picture has.
_FACTS: Final = 3000
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

    def all(self) -> tuple[str, ...]:
        """Return the names in the order of their numbers."""
        return tuple(self._places)


class Facts:
    """What many tasks of a picture have in common, each combination once: operands, core, blocks, torch operator."""

    def __init__(self) -> None:
        self._places: dict[tuple[tuple[Fact, str], ...], int] = {}

    def places(self, tasks: Tasks, operator: Labels) -> I64:
        """Return the number of what is known of each task, -1: nothing, or there are too many different ones.

        ``operator``: the torch operator of each.
        """
        texts = [one.compact() for one in (tasks.core, tasks.shapes, tasks.operands, tasks.copy, operator)]
        numbers = (tasks.moved, tasks.block, tasks.mix_block)
        keys = np.stack([*(one.codes.astype(np.int64) for one in texts), *numbers], axis=1).astype(np.int64)
        each, which = np.unique(keys, axis=0, return_inverse=True)
        table = []
        for *codes, moved, block, mixed in each.tolist():
            core, shapes, operands, copy, op = (
                one.names[code] if code >= 0 else None for one, code in zip(texts, codes, strict=True)
            )
            known = Operands.parse(operands) if operands else Operands()
            told: dict[Fact, str | None] = {
                "inputs": _tensors(shapes.replace('"', "").split(";") if shapes else (), known.dtypes, known.formats),
                "outputs": _tensors(known.out_shapes, known.out_dtypes, known.out_formats),
                "core": core,
                "blocks": (f"{block} + {mixed}" if mixed > 0 else str(block)) if block > 0 else None,
                "operator": op,
                "moved": " ".join(filter(None, (copy, text(size(moved)) if moved > 0 else ""))),
            }
            table.append(self._place(told))
        return np.array(table, np.int64)[which.reshape(-1)]

    def inputs(self, shapes: Labels, dtypes: Labels) -> I64:
        """Return the number of the inputs of each torch operator, as :meth:`places` does."""
        keys = np.stack([shapes.codes.astype(np.int64), dtypes.codes.astype(np.int64)], axis=1)
        each, which = np.unique(keys, axis=0, return_inverse=True)
        texts = ((shapes[at], dtypes[at]) for at in first_rows(which.reshape(-1), len(each)).tolist())
        cells = [[(text_ or "").split(";") for text_ in row] for row in texts]
        return np.array([self._place({"inputs": _tensors(*row)}) for row in cells], np.int64)[which.reshape(-1)]

    def _place(self, told: Mapping[Fact, str | None]) -> int:
        row = tuple((fact, said) for fact, said in told.items() if said)
        full = not row or (row not in self._places and len(self._places) >= _FACTS)
        return NOTHING_KNOWN if full else self._places.setdefault(row, len(self._places))

    def all(self) -> tuple[Mapping[Fact, str], ...]:
        """Return the combinations in the order of their numbers."""
        return tuple(map(dict, self._places))


def _tensors(*parts: Sequence[str]) -> str:
    """Return shape, dtype and format of one operand after the other."""
    return "; ".join(" ".join(filter(None, one)) for one in zip_longest(*parts, fillvalue=""))


class Operators(Struct, frozen=True):
    """What tells the framework's operator around an operator, as torch_npu's arrows begin at inner events."""

    ops: Spans
    named: Enclosing

    @classmethod
    def of(cls, ops: Spans) -> Operators:
        """Look at all operators."""
        return cls(ops, Enclosing.of(ops.filter(ops.name.flag(["::" in name for name in ops.name.names]))))

    def of_each(self, op: I64) -> Labels:
        """Return the name of the innermost framework operator (``aten::mm``) around each, its own where none is."""
        known = np.flatnonzero(op >= 0)
        place, own = np.full(len(op), NONE), np.full(len(op), NONE)
        rows = op[known]
        place[known] = self.named.innermost(self.ops.thread[rows], self.ops.start[rows], self.ops.end[rows])
        own[known] = rows
        step = self.ops.name.flag([is_step(name) for name in self.ops.name.names])
        own[known[step[rows]]] = NONE
        return self.named.spans.name.take(place).fill(self.ops.name.take(own).compact())


def slices(start: I64, end: I64, colour: U8, **known: I64) -> LaneSlices:
    """Fill columns that are not given with "unknown", and depths with the outermost."""
    unknown = np.broadcast_to(np.int64(NOTHING_KNOWN), len(start))
    columns: dict[str, Any] = dict.fromkeys(LaneSlices.__struct_fields__, unknown)
    columns["depth"] = np.zeros(len(start), np.int64)
    return LaneSlices(**{**columns, **known, "start": start, "end": end, "colour": colour})


_NO_SLICES: Final = slices(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8))


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


class Canvas(Struct, frozen=True, dict=True):
    """One picture on its way. ``stretches``: those that are exact, epoch ns; ``slices``: about so many it may have.

    ``names`` and ``facts``: those that its slices use, collected by the lanes.
    """

    buckets: Buckets
    stretches: Sequence[Exact]
    slices: int
    names: Names
    facts: Facts

    @property
    def window(self) -> tuple[int, int]:
        """What is drawn, epoch ns."""
        edges = self.buckets.edges
        return int(edges[0]), int(edges[-1])

    @property
    def origin(self) -> int:
        """What the picture's times count from, epoch ns."""
        return self.window[0]

    @cached_property
    def exact(self) -> Intervals:
        """The stretches as windows, epoch ns."""
        start, end = (np.array([getattr(s, side) for s in self.stretches], np.int64) for side in ("start", "end"))
        return Intervals(start, end)

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


class Drawing(Canvas, frozen=True, dict=True, kw_only=True):
    """A device's picture on its way."""

    study: Study
    report: Device

    @property
    def cores(self) -> Cores:
        """The device's cores, as the report has them."""
        return Cores(self.report.cores_cube, self.report.cores_vector)

    @cached_property
    def operators(self) -> Operators:
        """What tells torch operators."""
        return Operators.of(self.study.profile.host.ops)

    @cached_property
    def lines(self) -> Lines:
        """What tells lines of code."""
        return Lines.of(self.study.profile.host)


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
        near = rows[mine[rows]]
        shares, told = drawing.buckets.shares(times), _counters(drawing, near)
        yield Lane("stream", title, shares, _tasks(drawing, near), stream=stream, counters=told)


def _tasks(drawing: Drawing, rows: I64) -> LaneSlices:
    """Return tasks with what is known of each: told apart by type, with the name beside it where it says more."""
    study, origin, cores = drawing.study, drawing.origin, drawing.cores
    tasks, names = study.profile.tasks, drawing.names
    some = tasks.take(rows).without_counters()
    types = study.types.take(rows)  # of which some exports write numbers
    told = types.flag([any(map(str.isalpha, type_)) for type_ in types.names])
    types = types.take(np.where(told, np.arange(len(rows)), NONE)).fill(some.name)
    name, kind = names.places(some.name), names.places(types)
    start, end = some.start - origin, some.end - origin
    submitted = study.launches.end[rows]
    used = blocks(some)
    threads, ops = study.threads, study.profile.host.ops
    asked = np.where(some.op >= 0, ops.start[some.op] - study.launches.skew - origin, -1) if len(ops) else some.op
    return slices(
        start,
        end,
        _OF_WORK[some.work],
        depth=sub_tracks(start, end),
        name=kind,
        called=np.where(name == kind, NOTHING_KNOWN, name),
        where=names.places(drawing.lines.of_ops(some.op)),
        facts=drawing.facts.places(some, drawing.operators.of_each(some.op)),
        launch=np.where(submitted == NO_TIME, -1, submitted - origin),
        launch_thread=threads.launch[rows].astype(np.int64),
        op=asked.astype(np.int64),
        op_thread=threads.op[rows].astype(np.int64),
        cube=np.minimum(used.cube, cores.cube) if cores.cube else used.cube,  # at a time
        vector=np.minimum(used.vector, cores.vector) if cores.vector else used.vector,
    )


def _counters(drawing: Drawing, rows: I64) -> dict[str, U8]:
    """Return the counters of tasks that are shares of their time, in whole percents; those that are nothing are not."""
    found = {}
    for name, column in drawing.study.profile.tasks.pmu.items():
        if name.endswith("_ratio") or name == "cube_utilization":  # this one is a percentage in the files, too
            percent = column[rows] * (100 if name.endswith("_ratio") else 1)
            sane = (percent >= 0) & (percent <= 100.5)
            if (sane & (percent > 0)).any():
                found[name] = np.where(sane, np.rint(np.where(sane, percent, 0)), UNCOUNTED).astype(np.uint8)
    return found


def core_lanes(drawing: Drawing) -> Iterator[Lane]:
    """Draw how many cores kernels use over time, cube and vector cores, where blocks and cores are known."""
    sweep = Sweep.of(drawing.study.profile.tasks, drawing.cores, drawing.window)
    if sweep is None:
        return
    border = sweep.border
    time = np.clip(drawing.buckets.edges, border[0], border[-1])
    at = np.minimum(np.searchsorted(border, time, side="right") - 1, len(border) - 2)
    titles = ("cube", say("cube cores in use")), ("vector", say("vector cores in use"))
    for (name, title), used, (cores, wanted) in zip(titles, (sweep.cube, sweep.vector), sweep.sides, strict=True):
        if cores and used.any():
            rate = np.minimum(wanted, cores).astype(np.int64)  # cores between one border and the next
            so_far = np.append(0, np.cumsum(rate * np.diff(border)))
            busy = np.diff(so_far[at] + rate[at] * (time - border[at]))
            shares = drawing.buckets.shares({name: busy}, cores)
            yield Lane("cores", title, shares, _NO_SLICES)


def clock_lane(drawing: Drawing) -> Lane | None:
    """Draw the clock of AI Cores over time, of the highest; None where it is not recorded."""
    rates, edges = drawing.study.profile.frequency, drawing.buckets.edges
    if rates is None:
        return None
    mean = rates.averages(edges)
    seen = rates.during(drawing.study.profile.tasks)
    if seen is None:
        return None
    highest = max(seen[1], int(np.ceil(mean.max(initial=0))))
    shares = drawing.buckets.shares({"clock": np.rint(mean / highest * drawing.buckets.length).astype(np.int64)})
    return Lane("clock", say("AI Core clock, of {most} MHz", most=highest), shares, _NO_SLICES)


def memory_lane(drawing: Drawing) -> Lane | None:
    """Draw memory that is allocated, and reserved beyond it, of the most; None where no times are recorded of it."""
    memory = drawing.report.memory
    curve = memory.curve if memory is not None and memory.timed else None
    if curve is None or not curve.allocated:
        return None
    allocated, reserved = (np.maximum(np.array(one, np.int64), 0) for one in (curve.allocated, curve.reserved))
    both = np.maximum(allocated, reserved) if len(reserved) else allocated
    if not (most := int(both.max())):
        return None
    edges = drawing.buckets.edges - drawing.report.origin_ns - curve.start_ns
    inside = (edges[1:] > 0) & (edges[:-1] < len(both) * curve.slice_ns)
    first = np.clip(edges[:-1] // curve.slice_ns, 0, len(both) - 1)
    last = np.maximum(np.clip(-(-edges[1:] // curve.slice_ns), 1, len(both)), first + 1)
    ends = np.stack([first, last], axis=1).ravel()
    low, high = (np.where(inside, np.maximum.reduceat(np.append(one, 0), ends)[::2], 0) for one in (allocated, both))
    times = {"allocated": low, "reserved": np.maximum(high - low, 0)}
    length = drawing.buckets.length
    shares = drawing.buckets.shares(
        {name: np.rint(one / most * length).astype(np.int64) for name, one in times.items()}
    )
    return Lane("memory", say("memory, of {most}", most=size(most)), shares, _NO_SLICES)


# -- Lanes of host threads: what the thread of the program did, and those that launch for it.

#: Threads that are drawn.
_THREADS: Final = 4


class HostSide(Struct, frozen=True):
    """What a host did. ``threads``: those that are drawn, in this order; ``skew``: of its clock before the
    device's, ns; ``lines``: what tells lines of code, and ``operators`` with inputs, where events shall have them.
    """

    nesting: Nesting
    main: int
    threads: Sequence[int]
    syncs: Syncs
    skew: int = 0
    lines: Lines | None = None
    operators: TorchOperators | None = None

    @classmethod
    def of(cls, study: Study) -> HostSide:
        """Take the main thread, then those that launch or run operators that do, most tasks first."""
        threads = study.threads
        numbers, count, _ = tally(both := np.concatenate([threads.launch, threads.op]), np.ones_like(both))
        order = (threads.main, *numbers[np.argsort(-count, kind="stable")].tolist())
        return cls(study.nesting, threads.main, order, study.syncs, study.launches.skew)

    @classmethod
    def alone(cls, profile: HostProfile) -> HostSide:
        """Take the main thread, then those with most events, of a host without a device."""
        events, main = profile.host.events, main_thread(profile.host)
        numbers, count, _ = tally(events.thread, np.ones(len(events), np.int64))
        order = (main, *numbers[np.argsort(-count, kind="stable")].tolist())
        nesting = Nesting.build(events)
        return cls(nesting, main, order, Syncs.empty(), lines=Lines.of(profile.host), operators=profile.operators)


def host_lanes(canvas: Canvas, host: HostSide, most: int) -> Iterator[Lane]:
    """Draw threads of a host, of which any event is recorded, with ``most`` slices in all.

    Shares are of the time in which a thread worked and in which it waited for the device.
    """
    windows, nesting, syncs, skew = canvas.buckets.windows, host.nesting, host.syncs, host.skew
    there = {thread: (rows, segments) for (thread, rows), (_, segments) in zip(
        nesting.threads, nesting.segments, strict=True)}  # fmt: skip
    drawn = [thread for thread in dict.fromkeys(host.threads) if thread != -1 and thread in there][:_THREADS]
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
        if thread == host.main:
            title = say("main thread {thread}", thread=thread)
        shares = canvas.buckets.shares({"host_op": either - waited, "host_sync": waited})
        yield Lane("host", title, shares, _events(canvas, host, rows, waits, most // len(drawn)), thread=thread)


def _events(canvas: Canvas, host: HostSide, rows: slice, waits: Mask, most: int) -> LaneSlices:
    """Return events of one thread, nested as they ran; those that are left out are the shortest, with all in them."""
    nesting, shift = host.nesting, host.skew
    events = nesting.events
    near, _ = canvas.near(events.start[rows] - shift, events.end[rows] - shift, most)
    kept = rows.start + near
    marked = np.zeros(len(events), np.bool_)
    marked[kept] = True
    depth = np.zeros(len(kept), np.int64)  # in how many of those that are kept each of them is
    at = nesting.nearest(nesting.parent[kept], marked)
    while (inside := at >= 0).any():
        depth[inside] += 1
        at[inside] = nesting.nearest(nesting.parent[at[inside]], marked)
    shift += canvas.origin
    start, end, more = events.start[kept] - shift, events.end[kept] - shift, {}
    if host.lines is not None:
        more["where"] = canvas.names.places(host.lines.at(events.thread[kept], events.start[kept]))
    if (ops := host.operators) is not None and len(ops):
        mine = np.flatnonzero(ops.thread == events.thread[rows.start])
        at = np.searchsorted(ops.start[mine], events.start[kept])
        found = mine[np.minimum(at, len(mine) - 1)] if len(mine) else np.full(len(kept), NONE)
        same = (found >= 0) & (ops.start[found] == events.start[kept])
        more["facts"] = canvas.facts.inputs(
            *(one.take(np.where(same, found, NONE)) for one in (ops.shapes, ops.dtypes))
        )
    return slices(
        start,
        end,
        np.where(waits[kept], COLOUR["host_sync"], COLOUR["host_op"]).astype(np.uint8),
        depth=sub_tracks(start, end, depth),
        name=canvas.names.places(events.name.take(kept)),
        **more,
    )
