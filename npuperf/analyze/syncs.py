"""Where the host waits for the device: which calls, for which task, and from which line of code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuperf.analyze.causes import READING, WAITING
from npuperf.analyze.nesting import NONE, Nesting
from npuperf.model.host import HostOps
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
    """Group the calls by place."""
    events = nesting.events
    is_op = events.name.flag(["::" in n and not n.startswith("autograd::") for n in events.name.names])
    op = nesting.outermost(syncs.event, is_op)
    groups: dict[tuple[str, str | None, str | None], list[int]] = {}
    for i, (event, around) in enumerate(zip(syncs.event.tolist(), op.tolist(), strict=True)):
        name = events.name[event] or ""
        where = host.line_at(int(syncs.thread[i]), int(syncs.start[i]))
        groups.setdefault((name, events.name[around] if around != NONE else None, where), []).append(i)
    return [SyncPoint(name, op, where, np.array(calls, np.int64)) for (name, op, where), calls in groups.items()]


def place(point: SyncPoint) -> str:
    """Return the name of a sync point in expressions: its code line, else the operator, else the call."""
    return (point.where or point.op or point.name).split(" ")[0]
