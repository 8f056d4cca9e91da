"""What all lanes of a picture are drawn from: a device's study, the buckets, the stretches that are shown exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, chain, say
from npuperf.device.host_events import NONE
from npuperf.device.study import Study
from npuperf.model.chip import Cores
from npuperf.model.groups import distinct, largest
from npuperf.model.host import HostOps, Spans, shorten, user_frame
from npuperf.model.intervals import Intervals, rows_of
from npuperf.model.labels import I64, U8, Labels, Mask
from npuperf.model.picture import COLOURS, NOTHING_KNOWN, LaneSlices
from npuperf.model.result import Device, Step

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
        return {name: _rounded(time, whole) for name, time in times.items() if time.any()}


def _rounded(time: I64, whole: I64) -> U8:
    return ((2 * FULL * time + whole) // (2 * whole)).astype(np.uint8)


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


def slices(
    start: I64,
    end: I64,
    colour: U8,
    *,
    depth: I64 | None = None,
    name: I64 | None = None,
    where: I64 | None = None,
    cause: I64 | None = None,
    launch: I64 | None = None,
    cube: I64 | None = None,
    vector: I64 | None = None,
) -> LaneSlices:
    """Fill columns that are not given with "unknown", and depths with the outermost."""
    nothing = np.broadcast_to(np.int64(NOTHING_KNOWN), len(start))
    return LaneSlices(
        start=start,
        end=end,
        depth=np.zeros(len(start), np.int64) if depth is None else depth,
        colour=colour,
        name=nothing if name is None else name,
        where=nothing if where is None else where,
        cause=nothing if cause is None else cause,
        launch=nothing if launch is None else launch,
        cube=nothing if cube is None else cube,
        vector=nothing if vector is None else vector,
    )


def no_slices() -> LaneSlices:
    """Return a lane's slices where it has none."""
    none = np.empty(0, np.int64)
    return slices(none, none, none.astype(np.uint8))


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


# -- Which stretches of a device's time are shown with every task: the typical step, extremes, odd ones.

#: Two steps are the longest and the shortest one, and neither is typical.
_EXTREMES: Final = 2
#: Odd steps that are shown.
_ODD: Final = 2
_TYPICAL: Final = say("a typical step")
_FIRST_OF_EQUALS: Final = say("the first of two steps that take the same time")
_LONGEST: Final = say("the longest step")
_SHORTEST: Final = say("the shortest step")
_HOST: Final = say("the step that waits longest for the host")
_ONLY: Final = say("the only step")
_ONLY_WHOLE: Final = say("the only whole step")
_ASKED: Final = say("the step that was asked for")
_ALL: Final = say("all that was recorded")
_PHASE: Final = say("the beginning of a phase of usual length")
_BEGINNING: Final = say("the beginning of the recording")


class CloseUp(Struct, frozen=True):
    """A stretch of a device's time, epoch ns, and why it is looked at closely; ``typical``: as the usual step."""

    start: int
    end: int
    why: Message
    step: int | None = None
    typical: bool = False


def stretches(report: Device, window: tuple[int, int], starts: I64, most: int, asked: int | None) -> list[CloseUp]:
    """Return up to a handful of stretches that do not overlap, in order.

    ``window``: what is drawn; ``starts``: of all tasks of the device, in order; ``most``: about so many tasks can be
    shown; ``asked``: the step that a report of one step is about.
    """
    if asked is not None:
        return [CloseUp(*window, _ASKED, asked, typical=True)]
    if report.steps:
        return _of_steps(report)
    return [_beginning(report, window, starts, most)]


def _of_steps(report: Device) -> list[CloseUp]:
    steps = report.whole_steps
    if len(steps) == 1:
        return [_stretch(report, steps[0], _ONLY if len(report.steps) == 1 else _ONLY_WHOLE)]
    odd = {o.step: o.why for o in report.typical_step.odd} if report.typical_step else {}
    usual = [s for s in steps if s.step not in odd] or steps
    found: dict[int, list[Message]] = {}
    typical = sorted(usual, key=lambda s: (s.partition.span_ns, s.step))[(len(usual) - 1) // 2]
    found.setdefault(typical.step, []).extend([_TYPICAL] if len(steps) > _EXTREMES else [])
    shortest, longest = (one(steps, key=lambda s: s.partition.span_ns) for one in (min, max))
    if shortest.partition.span_ns < longest.partition.span_ns:
        found.setdefault(longest.step, []).append(_LONGEST)
        found.setdefault(shortest.step, []).append(_SHORTEST)
    elif len(steps) == _EXTREMES:
        found[typical.step].append(_FIRST_OF_EQUALS)
    waits = max(steps, key=lambda s: s.partition.host_wait_ns)
    if waits.partition.host_wait_ns > min(s.partition.host_wait_ns for s in steps):
        found.setdefault(waits.step, []).append(_HOST)
    for number in [*odd][:_ODD]:
        found.setdefault(number, []).append(say("unlike the others: {why}", why=odd[number]))
    return [_stretch(report, s, chain(*found[s.step], by=", "), s is typical) for s in report.steps if s.step in found]


def _stretch(report: Device, step: Step, why: Message, typical: bool = True) -> CloseUp:
    start = report.origin_ns + step.start_ns
    return CloseUp(start, start + step.partition.span_ns, why, step.step, typical)


def _beginning(report: Device, window: tuple[int, int], starts: I64, most: int) -> CloseUp:
    """Return everything if it is not too much, else as much of a usual phase, or of the recording, as can be shown."""
    first, last = np.searchsorted(starts, window).tolist()
    if last - first <= most:
        return CloseUp(*window, _ALL)
    begin, end, why = *window, _BEGINNING
    if report.phases:
        phases = sorted(report.phases, key=lambda p: (p.end_ns - p.start_ns, p.start_ns))
        usual = phases[(len(phases) - 1) // 2]
        begin, end, why = report.origin_ns + usual.start_ns, report.origin_ns + usual.end_ns, _PHASE
    first, last = np.searchsorted(starts, [begin, end]).tolist()
    if last - first > most:
        end = max(int(starts[first + most]), begin + 1)
    return CloseUp(begin, end, why)


def allot(wanted: list[int], most: int) -> list[int]:
    """Share ``most`` among those who want something, evenly: what one does not need the others get."""
    given = [0] * len(wanted)
    left, waiting = most, sorted(range(len(wanted)), key=wanted.__getitem__)
    for turn, i in enumerate(waiting):
        given[i] = min(wanted[i], left // (len(waiting) - turn))
        left -= given[i]
    return given


# -- Lines of code for many times at once: those that HostOps finds one by one, which takes too long for thousands.


class Lines(Struct, frozen=True):
    """What tells lines of code: frames, operators whose recorded stack has a line, backward operators with arrows.

    ``stacks``: the lines of these operators; ``arrow``: the arrow of each of the backward ones.
    """

    host: HostOps
    frames: Enclosing
    recorded: Enclosing
    stacks: Labels
    backward: Enclosing
    arrow: I64

    @classmethod
    def of(cls, host: HostOps) -> Lines:
        """Look at what the host recorded."""
        ops, stack = host.ops, host.stack if len(host.stack) else Labels.missing(len(host.ops))
        found = [user_frame(text) for text in stack.names]
        lines = Labels.of(found).take(stack.codes.astype(np.int64))
        step = ops.name.flag([name.startswith("ProfilerStep#") for name in ops.name.names])
        told = lines.known() & ~step
        arrow = _arrows(host)
        return cls(
            host=host,
            frames=Enclosing.of(host.frames),
            recorded=Enclosing.of(_some(ops, told)),
            stacks=lines.filter(told),
            backward=Enclosing.of(_some(ops, arrow >= 0)),
            arrow=arrow[arrow >= 0],
        )

    def of_ops(self, op: I64) -> Labels:
        """Return for each torch operator the line that :meth:`HostOps.code_line` finds; none for NONE."""
        known = np.flatnonzero(op >= 0)
        ops = self.host.ops
        found = self.at(ops.thread[op[known]], ops.start[op[known]], ops.end[op[known]])
        place = np.full(len(op), NONE)
        place[known] = np.arange(len(known))
        return found.take(place)

    def at(self, thread: I64, time: I64, until: I64 | None = None, *, forward: bool = True) -> Labels:
        """Return for each time on a thread the line that :meth:`HostOps.line_at` finds.

        ``until``: only operators that last so long count.
        """
        until = time if until is None else until
        frame, op = self.frames.innermost(thread, time, time), self.recorded.innermost(thread, time, until)
        inner = op >= 0
        both = np.flatnonzero(inner & (frame >= 0))
        inner[both] = self.recorded.spans.start[op[both]] >= self.frames.spans.start[frame[both]]
        texts = self.host.frames.name.take(frame).compact()
        lines = self.stacks.take(np.where(inner, op, NONE)).fill(Labels(texts.codes, tuple(map(shorten, texts.names))))
        if not forward or not len(self.arrow):
            return lines
        behind = np.where(inner | (frame >= 0), NONE, self.backward.innermost(thread, time, until))
        rows = np.flatnonzero(behind >= 0)
        arrow, arrows = self.arrow[behind[rows]], self.host.arrows
        place = np.full(len(time), NONE)
        place[rows] = np.arange(len(rows))
        then = self.at(arrows.forward_thread[arrow], arrows.forward_time[arrow], forward=False)
        return lines.fill(then.take(place))


class Enclosing(Struct, frozen=True):
    """Events with a way out of those that have ended. ``longer``: the latest earlier one of its thread that ends later.

    NONE where there is none.
    """

    spans: Spans
    longer: I64

    @classmethod
    def of(cls, spans: Spans) -> Enclosing:
        """Find for each event the way out; pointers double their reach every round."""
        longer = np.arange(-1, len(spans) - 1)
        fresh = np.ones(len(spans), np.bool_)
        np.not_equal(spans.thread[1:], spans.thread[:-1], out=fresh[1:])
        longer[fresh] = NONE
        open_ = np.flatnonzero(longer >= 0)
        while len(open_):
            open_ = open_[spans.end[longer[open_]] <= spans.end[open_]]
            longer[open_] = longer[longer[open_]]
            open_ = open_[longer[open_] >= 0]
        return cls(spans, longer)

    def innermost(self, thread: I64, time: I64, until: I64) -> I64:
        """Return the latest-started event of each thread that has begun at a time and lasts ``until`` then at least."""
        at = np.full(len(time), NONE)
        for one in distinct(thread).tolist() if len(self.spans) else ():
            mine = np.flatnonzero(thread == one)
            rows = rows_of(self.spans.thread, one)
            last = rows.start + np.searchsorted(self.spans.start[rows], time[mine], side="right") - 1
            at[mine] = np.where(last >= rows.start, last, NONE)
        open_ = np.flatnonzero(at >= 0)
        while len(open_):
            open_ = open_[self.spans.end[at[open_]] < until[open_]]
            at[open_] = self.longer[at[open_]]
            open_ = open_[at[open_] >= 0]
        return at


def _some(spans: Spans, chosen: Mask) -> Spans:
    return Spans(spans.start[chosen], spans.end[chosen], spans.thread[chosen], spans.name.filter(chosen))


def _arrows(host: HostOps) -> I64:
    """Return for each operator the arrow that leads from where it begins to its forward operator, NONE without one."""
    arrows, ops = host.arrows, host.ops
    found = np.full(len(ops), NONE)
    for thread in distinct(arrows.thread).tolist():
        own, theirs = rows_of(ops.thread, thread), rows_of(arrows.thread, thread)
        at = np.minimum(theirs.start + np.searchsorted(arrows.time[theirs], ops.start[own]), theirs.stop - 1)
        found[own] = np.where(arrows.time[at] == ops.start[own], at, NONE)
    return found


class Drawing(Struct, frozen=True, dict=True):
    """One picture on its way. ``origin``: what its times count from, epoch ns; ``slices``: about so many it may have.

    ``names``: those that its slices use, collected by the lanes.
    """

    study: Study
    report: Device
    buckets: Buckets
    stretches: Sequence[CloseUp]
    origin: int
    slices: int
    names: Names

    @property
    def window(self) -> tuple[int, int]:
        """What is drawn, epoch ns."""
        edges = self.buckets.edges
        return int(edges[0]), int(edges[-1])

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
