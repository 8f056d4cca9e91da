"""Where the host waits for the device: which calls, for which task, and from which line of code."""

from __future__ import annotations

import re
from typing import Final, get_args

import numpy as np
from msgspec import Struct

from npuperf.device.host_events import BLOCKING_COPY, CODE, NONE, READERS, READING, WAITING, Nesting
from npuperf.model.device import HostSteps
from npuperf.model.groups import distinct, rows_of_each
from npuperf.model.host import HostOps, is_profiler_frame, is_user_frame, shorten, user_frame
from npuperf.model.intervals import rows_of
from npuperf.model.labels import I64, U8, Columns, Labels, Mask
from npuperf.model.names import is_step
from npuperf.model.result import WaitKind, WaitPurpose
from npuperf.model.tasks import Tasks
from npuperf.model.thresholds import Thresholds

# -- What a host thread waits for in the calls in which it waits for the device: a copy and its direction, or work.
#
# The direction of a copy is told by the copy that was recorded inside of the same torch operator, else by an operator
# or a method that has only one direction (``.item()``, ``.cpu()``). Where neither is there it stays unknown.

KINDS: Final[tuple[WaitKind, ...]] = get_args(WaitKind)
#: Waits that the program asks for by themselves, and not as a part of a copy.
EXPLICIT: Final[frozenset[WaitKind]] = frozenset({"stream", "event", "device", "unknown"})
_CODE: Final = {kind: code for code, kind in enumerate(KINDS)}
#: Calls that wait for all that was launched, and for one stream.
WHOLE_DEVICE: Final = re.compile(r"(Device|Ctx|Context)Synchronize|Synchronize(Device|Ctx|Context)")
ONE_STREAM: Final = re.compile(r"StreamSynchronize|SynchronizeStream")
#: What the call itself waits for.
_CALLS: Final[tuple[tuple[WaitKind, re.Pattern[str]], ...]] = (
    ("dtoh", READERS),
    ("device", WHOLE_DEVICE),
    ("event", re.compile(r"EventSynchronize|SynchronizeEvent")),
    ("stream", ONE_STREAM),
    ("copy", BLOCKING_COPY),
)
#: Copies as they are recorded: torch_npu's queued copies, CANN's directions, Kineto's device tasks.
_DIRECTIONS: Final[tuple[tuple[WaitKind, re.Pattern[str]], ...]] = (
    ("htod", re.compile(r"^acl_memcpy_host_to_device$|^host to device\b|^Memcpy HtoD\b")),
    ("dtoh", re.compile(r"^acl_memcpy_device_to_host$|^device to host\b|^Memcpy DtoH\b")),
    ("dtod", re.compile(r"^acl_memcpy_device_to_device$|device to device$|^Memcpy (DtoD|PtoP)\b")),
)
#: Operators and methods that have one direction, and operators that copy in either.
_METHODS: Final[tuple[tuple[WaitKind, re.Pattern[str]], ...]] = (
    ("dtoh", re.compile(rf"{READERS.pattern}|^<built-in method (item|tolist|cpu|numpy) of Tensor ")),
    ("htod", re.compile(r"^<built-in method (cuda|npu) of Tensor ")),
)
_COPYING: Final = re.compile(r"^aten::(to|_to_copy|copy_|_copy_from|_copy_from_and_resize)$|^npu::\w*copy\w*$")


class WaitKinds(Struct, frozen=True):
    """Per waiting call: its kind as an index into KINDS, and whether the copied host memory is pinned (-1 unknown)."""

    kind: U8
    pinned: I64

    def one(self, call: int) -> WaitKind:
        """Return the kind of a call."""
        return KINDS[int(self.kind[call])]


def wait_kinds(thread: I64, end: I64, event: I64, nesting: Nesting, host: HostOps, tasks: Tasks) -> WaitKinds:
    """Tell what each call waits for: threads, ends and events of calls, those of ``nesting``."""
    names = nesting.events.name
    own = _first(_CALLS, names.take(event).names)[names.take(event).codes]
    operator = names.flag(["::" in n and not n.startswith("autograd::") for n in names.names])
    around = nesting.outermost(event, operator)
    copies = Copies.recorded(nesting, host, tasks)
    last = copies.last(thread, np.where(around >= 0, nesting.events.start[around], end), end)
    open_ = np.isin(own, [_CODE["stream"], _CODE["copy"]])
    by_copy = open_ & (around != NONE) & (last >= 0)
    # Else by the innermost operator or method with one direction, else by an operator that copies.
    told = _first(_METHODS, names.names)
    method = nesting.nearest(event, (told != _CODE["unknown"])[names.codes])
    copying = nesting.nearest(event, names.flag([bool(_COPYING.match(n)) for n in names.names])) != NONE
    by_name = np.where(copying, np.uint8(_CODE["copy"]), own)
    by_name = np.where(method >= 0, told[names.codes[method]], by_name)
    kind, pinned = np.where(open_, by_name, own), np.full(len(own), -1)
    kind[by_copy], pinned[by_copy] = copies.kind[last[by_copy]], copies.pinned[last[by_copy]]
    return WaitKinds(kind.astype(np.uint8), pinned)


def _first(patterns: tuple[tuple[WaitKind, re.Pattern[str]], ...], names: tuple[str, ...]) -> U8:
    """Return the first kind whose pattern a name has, for each name, and ``unknown`` for missing ones."""
    codes = np.full(len(names) + 1, _CODE["unknown"], np.uint8)
    for kind, pattern in reversed(patterns):
        codes[[i for i, found in enumerate(map(pattern.search, names)) if found]] = _CODE[kind]
    return codes


def copy_directions(names: tuple[str, ...]) -> list[WaitKind]:
    """Return the direction that each name of a copy, or what is recorded of it, tells; ``unknown`` where none."""
    return [KINDS[code] for code in _first(_DIRECTIONS, names)[:-1].tolist()]


class Copies(Struct, frozen=True):
    """Recorded copies by the thread and time of their submission, ordered by both; ``pinned`` -1 where unknown."""

    thread: I64
    time: I64
    kind: U8
    pinned: I64

    @classmethod
    def recorded(cls, nesting: Nesting, host: HostOps, tasks: Tasks) -> Copies:
        """Collect copies with a recorded direction: host events that submit them, and device tasks."""
        events = nesting.events
        copied = tasks.copy.fill(tasks.name)
        of_event, of_task = (_first(_DIRECTIONS, x.names)[x.codes] for x in (events.name, copied))
        submit = np.flatnonzero(of_event != _CODE["unknown"])
        moved = np.flatnonzero((of_task != _CODE["unknown"]) & (tasks.launched | (tasks.op >= 0)))
        thread, time = tasks.launch_thread[moved], tasks.launch_start[moved]
        op = tasks.op[moved]
        if len(host.ops):  # a queue's consumer launches for the operator's thread, which is the one that waits
            handed = (op >= 0) & ~(tasks.launched[moved] & (host.ops.thread[op] == thread))
            thread = np.where(handed, host.ops.thread[op], thread)
            time = np.where(handed, host.ops.start[op], time)
        thread, time = np.append(events.thread[submit], thread), np.append(events.start[submit], time)
        order = np.lexsort((time, thread))
        # Pinned host memory (1) or pageable (0), which Kineto records.
        table = [0 if "Pageable" in n else 1 if "Pinned" in n else -1 for n in tasks.name.names]
        copied_memory = np.array([*table, -1], np.int64)[tasks.name.codes[moved]]
        pinned = np.append(np.full(len(submit), -1), copied_memory)
        kind = np.append(of_event[submit], of_task[moved])
        return cls(thread[order], time[order], kind[order], pinned[order])

    def last(self, thread: I64, start: I64, end: I64) -> I64:
        """Return the last copy that each thread submitted between two times, -1 where there is none."""
        found = np.full(len(thread), NONE)
        for number in distinct(thread).tolist() if len(self.time) else ():
            rows = rows_of(self.thread, number)
            mine = np.flatnonzero(thread == number)
            at = rows.start + np.searchsorted(self.time[rows], end[mine], side="right") - 1
            inside = at >= rows.start
            inside[inside] = self.time[at[inside]] >= start[mine][inside]
            found[mine] = np.where(inside, at, NONE)
        return found


def ends_step(end: I64, nesting: Nesting, tasks: Tasks) -> Mask:
    """True for calls after which nothing more is launched within their step: waits at the end of a step."""
    events = nesting.events
    steps = np.flatnonzero(events.name.flag([is_step(n) for n in events.name.names]))
    if not len(steps):
        return np.zeros(len(end), np.bool_)
    steps = steps[np.argsort(events.start[steps], kind="stable")]
    step = steps[np.maximum(np.searchsorted(events.start[steps], end) - 1, 0)]  # the last that began before the end
    inside = (end > events.start[step]) & (end <= events.end[step])
    launches = np.sort(tasks.launch_start[tasks.launched])
    first, mine, last = (np.searchsorted(launches, x) for x in (events.start[step], end, events.end[step]))
    result: Mask = inside & (mine > first) & (mine == last)
    return result


class Syncs(Columns, frozen=True):
    """Calls in which a host thread waits for the device, ordered by start. Host clock, ns; ``event`` per call."""

    thread: I64
    start: I64
    end: I64
    event: I64


class SyncPoint(Struct, frozen=True):
    """Calls that wait for the same at the same place: the call, the torch operator around it, the code line.

    ``pinned``: whether the copied host memory is, None where it is not recorded; ``purpose``: whose wait it is, or what
    it is for, where that can be told.
    """

    name: str
    op: str | None
    where: str | None
    calls: I64
    kind: WaitKind = "unknown"
    pinned: bool | None = None
    purpose: WaitPurpose | None = None


def find_syncs(nesting: Nesting) -> Syncs:
    """Find the innermost waiting calls.

    Torch operators that read a value back (``.item()``) count only where the runtime's own calls are not
    recorded: of a tensor on the CPU they do not wait.
    """
    events = nesting.events
    waiting = events.name.flag([bool(WAITING.search(n)) for n in events.name.names])
    if not waiting.any():
        waiting = events.name.flag([bool(READING.search(n)) for n in events.name.names])
    found = np.flatnonzero(nesting.without_inner(waiting)) if waiting.any() else np.empty(0, np.int64)
    found = found[np.argsort(events.start[found], kind="stable")]
    return Syncs(events.thread[found], events.start[found], events.end[found], found)


def in_steps(syncs: Syncs, steps: HostSteps, numbers: I64) -> Mask | None:
    """True for waits of these steps as the host ran them, None where it recorded none of them.

    A step's batch may have been copied before the step's first task begins on the device.
    """
    if not np.isin(steps.number, numbers).any():
        return None
    return np.isin(steps.at(syncs.start), numbers)


def sync_points(syncs: Syncs, nesting: Nesting, host: HostOps, tasks: Tasks) -> list[SyncPoint]:
    """Group the calls by place and kind: the call, the torch operator around it, the innermost frame of the user's."""
    names = nesting.events.name
    is_op = names.flag(["::" in n and not n.startswith("autograd::") for n in names.names])
    is_frame = names.flag([is_user_frame(n) for n in names.names])
    whose: dict[int, WaitPurpose] = {1: "profiler", 2: "compile", 3: "capture"}
    own = waits_of_frameworks(syncs, nesting)
    lines = Labels.missing(len(syncs))  # in the stack of the innermost operator: within one function there are several
    if len(host.ops) and len(host.stack):
        stacks = host.stack.take(host.ops.latest(syncs.thread, syncs.start)).compact()
        lines = Labels.of([user_frame(stack) for stack in stacks.names]).take(stacks.codes.astype(np.int64))
    called, around, frames = (
        names.take(at)
        for at in (syncs.event, nesting.outermost(syncs.event, is_op), nesting.nearest(syncs.event, is_frame))
    )
    labels = (called, around, frames, lines)
    kinds = wait_kinds(syncs.thread, syncs.end, syncs.event, nesting, host, tasks)
    closing = ends_step(syncs.end, nesting, tasks)
    codes = np.stack([*(x.codes for x in labels), *(x.astype(np.int32) for x in (kinds.kind, kinds.pinned, own))])
    _, which = np.unique(codes, axis=1, return_inverse=True)
    points = []
    for _, calls in rows_of_each(which.reshape(-1)):  # its shape differs between versions of numpy
        first = int(calls[0])
        kind, pinned = kinds.one(first), int(kinds.pinned[first])
        ends = kind in EXPLICIT and bool(closing[calls].all())
        purpose: WaitPurpose | None = whose.get(int(own[first])) or ("step_end" if ends else None)
        frame = frames[first]
        where = host.line_at(int(syncs.thread[first]), int(syncs.start[first])) or (shorten(frame) if frame else None)
        point = SyncPoint(
            name=called[first] or "",
            op=around[first],
            where=where,
            calls=calls,
            kind=kind,
            pinned=None if pinned < 0 else bool(pinned),
            purpose=purpose,
        )
        points.append(point)
    return points


#: Ranges of code that torch.compile made, and waits for the whole device.
_GRAPH: Final = re.compile(r"^(?:## )?Call CompiledFxGraph\b")


def waits_of_frameworks(syncs: Syncs, nesting: Nesting) -> U8:
    """Tell whose each wait is, where it is not the program's: 1 a profiler's, 2 of compiling, 3 of capturing a graph.

    Compiled code waits for values alone; where it waits for the whole device, torch is about to record it.
    """
    names = nesting.events.name
    profiling = nesting.nearest(syncs.event, names.flag([is_profiler_frame(n) for n in names.names])) >= 0
    inside = nesting.blamed[syncs.event] if len(nesting.blamed) else np.zeros(len(syncs), np.uint8)
    called = names.take(syncs.event)
    whole = called.flag([bool(WHOLE_DEVICE.search(n)) for n in called.names])
    recording = whole & (nesting.nearest(syncs.event, names.flag([bool(_GRAPH.match(n)) for n in names.names])) >= 0)
    chosen = [profiling, inside == CODE["compile"], (inside == CODE["capture"]) | recording]
    return np.select(chosen, [1, 2, 3], 0).astype(np.uint8)


def sync_names(point: SyncPoint) -> set[str]:
    """Return every name that an expression may call a sync point by: code line, operator, call, what it waits for."""
    return wait_names(point.where, point.op, point.name, point.kind)


def wait_names(where: str | None, op: str | None, call: str, kind: str) -> set[str]:
    """Return every name of a wait by its code line, operator, call and what it waits for."""
    short = (where or op or call).split(" ")[0]
    return {f"{short}:{kind}", short, kind, *(name for name in (where, op, call) if name)}


def sync_name(point: SyncPoint) -> str:
    """Return the name of a sync point in expressions: code line, else operator, else call, and what it waits for."""
    return f"{(point.where or point.op or point.name).split(' ')[0]}:{point.kind}"


# -- Reads of single values: which of them wait for the device.


def only_waiting(syncs: Syncs, nesting: Nesting, thresholds: Thresholds) -> Syncs:
    """Drop reads of a tensor that lies on the CPU: they wait for nothing.

    Where runtime calls are not recorded, reads of a value stand for the waits inside them. One that returns sooner than
    anything gets to a device and back cannot have been there.
    """
    names = nesting.events.name.take(syncs.event)
    reads = names.flag([bool(READING.search(n)) for n in names.names])
    kept = ~reads | (syncs.end - syncs.start >= thresholds.round_trip_ns)
    return syncs.filter(kept)
