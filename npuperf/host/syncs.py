"""Where the host waits for the device: which calls, for which task, and from which line of code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuperf.host.causes import READING, WAITING
from npuperf.host.nesting import Nesting
from npuperf.model.host import HostOps, is_user_frame, shorten
from npuperf.model.labels import I64


@dataclass(frozen=True, slots=True)
class Syncs:
    """Calls in which a host thread waits for the device, ordered by start. Host clock, ns; ``event`` per call."""

    thread: I64
    start: I64
    end: I64
    event: I64

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """Calls that wait at the same place: the call, the torch operator around it, the code line."""

    name: str
    op: str | None
    where: str | None
    calls: I64


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


def sync_points(syncs: Syncs, nesting: Nesting, host: HostOps) -> list[SyncPoint]:
    """Group the calls by place: the call, the torch operator around it, the innermost frame of the user's code."""
    names = nesting.events.name
    is_op = names.flag(["::" in n and not n.startswith("autograd::") for n in names.names])
    is_frame = names.flag([is_user_frame(n) for n in names.names])
    op, frame = nesting.outermost(syncs.event, is_op), nesting.nearest(syncs.event, is_frame)
    labels = [names.take(at) for at in (syncs.event, op, frame)]
    keys, which = np.unique(np.stack([x.codes for x in labels]), axis=1, return_inverse=True)
    which = which.reshape(-1)  # its shape differs between versions of numpy
    points = []
    for group in range(keys.shape[1]):
        calls = np.flatnonzero(which == group)
        name, around, line = (x[int(calls[0])] for x in labels)
        # Without frames the operators' recorded stacks may tell.
        where = shorten(line) if line else host.line_at(int(syncs.thread[calls[0]]), int(syncs.start[calls[0]]))
        points.append(SyncPoint(name or "", around, where, calls))
    return points


def places(point: SyncPoint) -> set[str]:
    """Return every name that an expression may call a sync point by: code line, operator, call."""
    named = {name for name in (point.where, point.op, point.name) if name}
    return {place(point), *named}


def place(point: SyncPoint) -> str:
    """Return the name of a sync point in expressions: its code line, else the operator, else the call."""
    return (point.where or point.op or point.name).split(" ")[0]
