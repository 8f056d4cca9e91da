"""What encloses what among the events of threads, what is innermost when, and what each event is about."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.model.groups import distinct
from npuperf.model.host import PROFILER_FRAME, Spans, frame_cause, is_frame
from npuperf.model.intervals import ThreadRows, passed
from npuperf.model.labels import I32, I64, U8, Labels, Mask
from npuperf.model.names import DEQUEUED, names_for
from npuperf.model.tasks import Tasks

#: "No event".
NONE: Final = -1
#: What an event says that tells nothing, of numbers of 8 bits.
NOTHING: Final = 255
#: How often siblings are stepped over before pointers double their reach: as deep as most events hold others.
_ROUNDS: Final = 3


def find_parents(events: Spans, threads: ThreadRows) -> I32:
    """Find the latest earlier event of the thread that reaches beyond the middle of each one, NONE where there is none.

    Clocks of different layers are rounded differently, so neighbours may overlap a little without being nested.
    ``events`` are ordered by thread, start, and the longer first.
    """
    parent = np.empty(len(events), np.int32)
    for _, rows in threads:
        own = _reaching(events.start[rows], events.end[rows])
        parent[rows] = np.where(own == NONE, NONE, own + rows.start)
    return parent


def _reaching(start: I64, end: I64) -> I64:
    """Return the latest earlier event of one thread that reaches beyond the middle of each one, NONE without one."""
    candidate = np.arange(-1, len(start) - 1)
    least = np.subtract(end, start)  # where a parent reaches to
    least >>= 1
    np.maximum(least, 1, out=least)
    least += start
    open_ = np.flatnonzero(end[:-1] < least[1:]) + 1
    # Where an event is too short, so are those before it that end no later: of siblings one is tried, not each.
    left, at = np.arange(len(start)), open_ - 1  # the events left, and the place of each one's candidate among them
    for _ in range(_ROUNDS):
        if not len(open_):
            break
        beyond = np.append(end[left[:-1]] > end[left[1:]], False)
        before = np.cumsum(beyond) - beyond
        left, at = left.compress(beyond), before.take(at) - 1
        candidate[open_] = found = np.append(left, NONE).take(at, mode="wrap")
        short = _short(found, open_, end, least)
        open_, at = open_.compress(short), at.compress(short)
    # What a candidate's own candidate skips ended before the candidate's middle, hence before any later event that
    # outlasts the candidate: pointers double their reach.
    while len(open_):
        candidate[open_] = found = candidate.take(candidate.take(open_))
        open_ = open_.compress(_short(found, open_, end, least))
    return candidate


def _short(found: I64, of: I64, end: I64, least: I64) -> Mask:
    """Tell which candidates end before where a parent of the events ``of`` would reach to."""
    short: Mask = end.take(found, mode="wrap") < least.take(of)
    short &= found != NONE
    return short


def find_segments(events: Spans, parent: I32, threads: ThreadRows) -> tuple[ThreadRows, I64, I32]:
    """Return the different times at which events of each thread begin or end, and the innermost event from then on.

    Where the times of each thread are, the times in order, and the events, NONE where there is none.
    """
    none = np.empty(0, np.int64)
    times, inner = [none], [none]
    for _, rows in threads:
        start = events.start[rows]
        own = distinct(np.concatenate([start, events.end[rows]]), consume=True)
        times.append(own)
        inner.append(climb(events, parent, passed(start, own) + (rows.start - 1), own))
    end = np.cumsum([len(own) for own in times], dtype=np.int64)
    return ThreadRows(threads.thread, end[:-1], end[1:]), np.concatenate(times), np.concatenate(inner).astype(np.int32)


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
    return np.append(own, np.uint8(NOTHING)).take(nearest_said(parent, own != NOTHING), mode="wrap")


def nearest_said(parent: I32, says: Mask) -> I64:
    """Return for each event itself if it ``says`` anything, else the innermost event around it that does, or NONE.

    Pointers double their reach.
    """
    at = np.where(says, np.arange(len(parent)), parent)
    says = np.append(says, True)  # the last place is that of NONE
    open_ = np.flatnonzero(~says.take(at, mode="wrap"))
    while len(open_):
        further = at.take(at.take(open_))
        at[open_] = further
        open_ = open_.compress(~says.take(further, mode="wrap"))
    return at


# -- What a host event is about: the causes that host time is blamed on.
#
# A name tells a cause only where it is one that a runtime, an exporter or torch gives to what it does, from the name's
# beginning to its end. A user's range, a user's file or a folder that merely sounds like one tells nothing.

#: Calls of a runtime; where none is recorded, there may have been any number of them.
RUNTIME_CALL: Final = names_for("call")
#: Calls of a runtime in which the host waits for the device.
BLOCKING_COPY: Final = names_for("blocking_copy")
WAITING: Final = names_for("wait", "blocking_copy")
#: Torch operators that bring a value back to the host: they wait only where it comes from the device.
READERS: Final = names_for("read")
#: The one of them that reads, which the others may contain.
READING: Final = re.compile(r"^aten::_local_scalar_dense$")
#: Every cause with what tells it; the first match counts. The names of each purpose are in npuperf.model.names.
_RULES: Final = (
    ("step", names_for("step")),
    ("profiler", re.compile(PROFILER_FRAME)),
    ("sync", names_for("wait", "blocking_copy", "read")),
    ("data_loading", names_for("data_loading")),
    ("capture", names_for("capture_begin", "capture_end", "capture")),
    ("compile", names_for("compile")),
    ("gc", names_for("gc")),
    ("communication", names_for("communication")),
    ("tiling", names_for("tiling")),
    ("memory", names_for("copy", "allocate", "map")),
    ("launch", names_for("launch", "replay")),
    ("aclop", names_for("aclop")),
    ("execute", names_for("operator")),
    ("runtime", names_for("call")),
    ("queue", names_for("queue")),
    ("optimizer", names_for("optimizer")),
    ("autograd", names_for("autograd")),
    ("torch_op", names_for("torch_op")),
    ("compiled", names_for("compiled", "graph_run")),
    ("python", names_for("module")),
)
#: ``start_up``, which no name tells, is work of first calls: see first_calls.
CAUSES: Final = (*(name for name, _ in _RULES), "start_up", "range", "unrecorded")
CODE: Final = {name: code for code, name in enumerate(CAUSES)}

#: Causes that stand for work of the thread itself; ranges, frames and steps merely surround it.
BUSY: Final = frozenset(CAUSES) - {"step", "range", "python", "optimizer", "compiled", "unrecorded"}
#: Causes of the host time that a launch itself costs: fewer launches mean less of them.
LAUNCHING: Final = ("tiling", "launch", "aclop", "execute", "runtime", "queue", "autograd", "torch_op")
#: Host time that fewer or cheaper launches do not save.
NOT_LAUNCHING: Final = ("sync", "data_loading", "capture", "compile", "gc", "communication", "start_up")
#: What may go on between two launches as a part of launching, but not for long: see ``pauses``.
BETWEEN: Final = tuple(name for name in CAUSES if name not in (*LAUNCHING, *NOT_LAUNCHING))
#: What runs inside of these is part of them, whatever it is. A compilation launches nothing but its own trials; what is
#: launched while a graph is captured does not run.
COVERING: Final = ("compile", "capture", "gc")
#: What runs inside of these is part of them where it does not say by itself what it is: see DECIDED.
SURROUNDING: Final = ("sync", "data_loading", "communication")
#: Calls that say what they do wherever they stand.
DECIDED: Final = ("sync", "communication", "launch", "aclop", "execute", "tiling", "memory", "runtime")


@lru_cache(maxsize=1 << 16)
def cause_of(name: str) -> str:
    """Return the cause that an event of this name stands for."""
    if is_frame(name):
        return frame_cause(name)
    return next((cause for cause, pattern in _RULES if pattern.search(name)), "range")


def cause_codes(names: Labels) -> U8:
    """Return the cause of each event as an index into CAUSES."""
    table = [CODE[cause_of(n)] for n in names.names]
    return np.array([*table, CODE["range"]], np.uint8)[names.codes]


def flag_causes(codes: U8, causes: frozenset[str] | tuple[str, ...]) -> Mask:
    """True where the cause is one of ``causes``."""
    flags = bytes(c in causes for c in CAUSES).ljust(256, b"\0")
    return np.frombuffer(bytearray(codes).translate(flags), np.bool_)  # the quickest way to look bytes up


# -- Nested host events: what encloses what, and what each thread was innermost doing at any time.


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
    def build(cls, events: Spans, tasks: Tasks | None = None) -> Nesting:
        """Find parents and segments; ``events`` are ordered by thread, start, and the longer first.

        Stretches in which a graph is captured become events, too: see ``add_captures``. ``tasks``: of the device.
        """
        events, capturing = add_captures(events, tasks)
        threads = ThreadRows.of(events.thread)
        parent = find_parents(events, threads)
        segments, time, inner = find_segments(events, parent, threads)
        waits = events.name.flag([bool(WAITING.search(n)) for n in events.name.names])
        causes = _causes(events, parent, waits)
        if capturing.any():
            causes = _capturing(causes, parent, capturing)
        busy = _inside(parent, flag_causes(causes, BUSY))
        return cls(events, parent, threads, segments, time, inner, causes, _blamed(causes, parent, waits), busy)

    def blamed_on(self, cause: str, marked: Mask) -> Nesting:
        """Return the same with the time in marked events, whatever is in them, blamed on a cause.

        What a profiler does stays the profiler's, and what runs inside of COVERING is part of that.
        """
        if not marked.any():
            return self
        kept = flag_causes(self.blamed, ("profiler", *COVERING))
        chosen = _inside(self.parent, marked) & ~kept
        return replace(self, blamed=np.where(chosen, np.uint8(CODE[cause]), self.blamed).astype(np.uint8))

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

    def around_steps(self, event: I64) -> I64:
        """Return the event around each step, where a frame or range is; a step by itself tells nothing."""
        step = self.causes == CODE["step"]
        if not step.any():
            return event
        bare = np.flatnonzero((event >= 0) & step[event])
        around = self.nearest(self.parent[event[bare]], ~step)
        found = event.copy()
        found[bare[around >= 0]] = around[around >= 0]
        return found

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


# -- Graphs that are captured: launches between the beginning and the end of a capture are recorded, and do not run.

#: What the stretch between the two calls is called.
CAPTURE: Final = "graph capture"
_BEGIN: Final = names_for("capture_begin")
_END: Final = names_for("capture_end")


def add_captures(events: Spans, tasks: Tasks | None = None) -> tuple[Spans, Mask]:
    """Return the events with one for each stretch in which a graph is captured, and which these are.

    From each call that begins a capture to the next of its thread that ends one; without such a call (the recording was
    cut) nothing is known. Another thread that calls launches meanwhile, as a task queue's does, captures, too, unless
    these start ``tasks``.
    """
    names = events.name.names
    begins = np.flatnonzero(events.name.flag([bool(_BEGIN.match(n)) for n in names]))
    ends = np.flatnonzero(events.name.flag([bool(_END.match(n)) for n in names]))
    found: list[tuple[int, int, int]] = []
    for begin in begins.tolist() if len(ends) else ():
        later = ends[(events.thread[ends] == events.thread[begin]) & (events.start[ends] >= events.start[begin])]
        if len(later):
            found.append((int(events.thread[begin]), int(events.start[begin]), int(events.end[later[0]])))
    if not found:
        return events, np.zeros(len(events), np.bool_)
    found += _captured_elsewhere(events, found, tasks)
    thread, start, end = np.array(sorted(set(found)), np.int64).T
    every = np.append(events.thread, thread), np.append(events.start, start), np.append(events.end, end)
    added = np.arange(len(every[0])) >= len(events)
    order = np.lexsort((~added, -every[2], every[1], every[0]))
    codes = np.append(events.name.codes.astype(np.int32), np.full(len(thread), len(names), np.int32))
    name = Labels(codes, (*names, CAPTURE))
    return Spans(every[1][order], every[2][order], every[0][order], name.take(order)), added[order]


def _captured_elsewhere(
    events: Spans, captures: list[tuple[int, int, int]], tasks: Tasks | None
) -> list[tuple[int, int, int]]:
    """Return the captures again for every other thread that calls launches while they last, and starts no task."""
    launching = np.flatnonzero(flag_causes(cause_codes(events.name), ("launch", "execute", "aclop")))
    found = []
    for thread in distinct(events.thread[launching]).tolist():
        start = np.sort(events.start[launching[events.thread[launching] == thread]])
        runs = np.empty(0, np.int64)
        if tasks is not None:
            runs = np.sort(tasks.launch_start[tasks.launched & (tasks.launch_thread == thread)])
        for own, begin, end in captures:
            calls, started = (np.diff(np.searchsorted(times, [begin, end]))[0] for times in (start, runs))
            if own != thread and calls and not started:
                found.append((thread, begin, end))
    return found


def _capturing(causes: U8, parent: I32, capturing: Mask) -> U8:
    """Return the causes where captures are known.

    Compiled code in which a graph is captured does nothing else: it copies inputs, waits for the device, records.
    """
    causes = np.where(capturing, np.uint8(CODE["capture"]), causes).astype(np.uint8)
    around = _nearest(parent, np.flatnonzero(capturing), causes == CODE["compiled"])
    causes[around[around >= 0]] = CODE["capture"]
    return causes


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


#: How long an operator without a known name, which calls nothing, takes at most (ns): as long as the least pause.
_LONGEST_OPERATOR: Final = 1_000_000


def _causes(events: Spans, parent: I32, waits: Mask) -> U8:
    """Return what each event is about by itself.

    A range has something in it: an event of no known name that holds nothing is an operator of its own, unless it lasts
    longer than one that calls nothing does: then the program itself is at work in it. An operator is also what
    torch_npu's task queue takes under that name ("Conv2D", of which it dequeues "Dequeue@Conv2D"). Whatever a
    profiler does is the profiler's. Where the runtime's waits are recorded, an operator that reads a value back and
    holds none of them has not waited: its tensor was on the host.
    """
    codes = cause_codes(events.name)
    measuring = codes == CODE["profiler"]
    if measuring.any():
        codes = np.where(_inside(parent, measuring), np.uint8(CODE["profiler"]), codes)
    leaf = np.ones(len(codes), np.bool_)
    leaf[parent[parent >= 0]] = False
    short = leaf & (events.end - events.start < _LONGEST_OPERATOR)
    own = (codes == CODE["range"]) & (short | events.name.flag(_queued(events.name.names)))
    if waits.any():
        own |= _without(parent, events.name.flag([bool(READERS.search(n)) for n in events.name.names]), waits)
    return np.where(own, np.uint8(CODE["torch_op"]), codes)


def _queued(names: tuple[str, ...]) -> list[bool]:
    """Tell the names of operators that a task queue's consumer takes."""
    taken = {found.group(1) for name in names if (found := DEQUEUED.match(name))}
    return [name in taken for name in names]


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
