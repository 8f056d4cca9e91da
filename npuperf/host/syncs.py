"""Where the host waits for the device: which calls, for which task, and from which line of code."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from npuperf.documents.analysis import WaitKind, WaitPurpose
from npuperf.host.causes import READING, WAITING
from npuperf.host.nesting import Nesting
from npuperf.host.wait_kinds import EXPLICIT, ends_step, wait_kinds
from npuperf.model.device import HostSteps
from npuperf.model.groups import rows_of_each
from npuperf.model.host import HostOps, is_profiler_frame, is_user_frame, shorten, user_frame
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import Tasks


class Syncs(Struct, frozen=True):
    """Calls in which a host thread waits for the device, ordered by start. Host clock, ns; ``event`` per call."""

    thread: I64
    start: I64
    end: I64
    event: I64

    def __len__(self) -> int:
        return len(self.start)


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
    profiling = nesting.nearest(syncs.event, names.flag([is_profiler_frame(n) for n in names.names])) >= 0
    op, frame = nesting.outermost(syncs.event, is_op), nesting.nearest(syncs.event, is_frame)
    labels = [*(names.take(at) for at in (syncs.event, op, frame)), _recorded_lines(syncs, host)]
    kinds = wait_kinds(syncs.thread, syncs.end, syncs.event, nesting, host, tasks)
    closing = ends_step(syncs.end, nesting, tasks)
    codes = np.stack([*(x.codes for x in labels), *(x.astype(np.int32) for x in (kinds.kind, kinds.pinned, profiling))])
    _, which = np.unique(codes, axis=1, return_inverse=True)
    points = []
    for _, calls in rows_of_each(which.reshape(-1)):  # its shape differs between versions of numpy
        first = int(calls[0])
        kind, pinned = kinds.one(first), int(kinds.pinned[first])
        ends = kind in EXPLICIT and bool(closing[calls].all())
        purpose: WaitPurpose | None = "profiler" if profiling[first] else "step_end" if ends else None
        name, around, where = _place(syncs, labels, first, host)
        points.append(SyncPoint(name, around, where, calls, kind, None if pinned < 0 else bool(pinned), purpose))
    return points


def _place(syncs: Syncs, labels: list[Labels], call: int, host: HostOps) -> tuple[str, str | None, str | None]:
    """Return the call's name, the operator around it and its code line."""
    name, around, frame, _ = (x[call] for x in labels)
    where = host.line_at(int(syncs.thread[call]), int(syncs.start[call]))
    return name or "", around, where or (shorten(frame) if frame else None)


def _recorded_lines(syncs: Syncs, host: HostOps) -> Labels:
    """Return the line in the recorded stack of the innermost operator: within one function there are several."""
    if not len(host.ops) or not len(host.stack):
        return Labels.missing(len(syncs))
    stacks = host.stack.take(host.ops.latest(syncs.thread, syncs.start)).compact()
    lines = Labels.of([user_frame(stack) for stack in stacks.names])
    return lines.take(stacks.codes.astype(np.int64))


def places(point: SyncPoint) -> set[str]:
    """Return every name that an expression may call a sync point by: code line, operator, call, what it waits for."""
    named = {name for name in (point.where, point.op, point.name) if name}
    return {place(point), _short(point), point.kind, *named}


def place(point: SyncPoint) -> str:
    """Return the name of a sync point in expressions: code line, else operator, else call, and what it waits for."""
    return f"{_short(point)}:{point.kind}"


def _short(point: SyncPoint) -> str:
    return (point.where or point.op or point.name).split(" ")[0]
