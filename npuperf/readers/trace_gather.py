"""Decoded events gathered as columns, piece by piece: what is to be kept of a trace, wherever it is read."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from msgspec import Struct, field

from npuperf.model.frames import frame_cause
from npuperf.model.host import is_user_frame
from npuperf.model.labels import I32, I64, Mask
from npuperf.readers.cells import integer, nanoseconds
from npuperf.readers.pieces import Args, Event, RawEvent, decoded
from npuperf.readers.plain_events import PlainEvents, plain_reader
from npuperf.readers.trace_columns import (
    Column,
    GrowingColumn,
    Verdicts,
    Words,
    durations,
    flow_ids,
    integers,
    is_nothing,
    nothing,
)

SLICE_INTS: Final = (
    "start", "end", "pid", "tid", "connection", "correlation", "external", "stream", "device", "moved",
)  # fmt: skip
SLICE_TEXTS: Final = ("name", "cat", "task_type", "stack", "operation")
#: Flow categories that tie layers together; the others repeat what events say themselves.
_ARROWS: Final = frozenset({"HostToDevice", "async_npu", "async_task_queue", "fwdbwd"})
#: Columns that only copies have.
_OF_COPIES: Final = ("operation", "moved")
#: The counter that matters: of the others nothing is asked.
_CLOCK: Final = "AI Core Freq"
_NO_ARGS: Final = Args()


class PiecedColumns:
    """Columns that grow by pieces; one that a piece lacks is -1 there. Of a piece nothing is kept but copies."""

    def __init__(self) -> None:
        self._columns: dict[str, GrowingColumn] = {}
        self._rows = 0

    def add(self, columns: Mapping[str, Column], keep: Mask | None = None) -> None:
        """Append the rows where ``keep`` holds."""
        size = len(next(iter(columns.values()))) if keep is None else int(np.count_nonzero(keep))
        for name, column in columns.items() if size else ():
            if not is_nothing(column):
                if name not in self._columns:
                    self._columns[name] = GrowingColumn()
                self._columns[name].append(column if keep is None else column[keep], self._rows)
        self._rows += size

    def pop(self, name: str) -> Any:
        """Take a column; afterwards it is gone."""
        return self._columns.pop(name).whole(self._rows) if name in self._columns else nothing(self._rows)


class Gathered(Struct):
    """What is kept of a trace, or of a stretch of one. ``names``: what the codes of its text columns stand for.

    ``events``: how many were read, of any kind; ``meta``: who is who; ``clock``: time (ns), process and MHz of each
    value of the AI Cores' clock. ``slices`` has the columns of :class:`Slices`, ``flows`` category, id, whether it is a
    start, process, thread, time.
    """

    slices: PiecedColumns = field(default_factory=PiecedColumns)
    flows: PiecedColumns = field(default_factory=PiecedColumns)
    names: dict[str, list[str]] = field(default_factory=dict)
    meta: dict[tuple[object, ...], Event] = field(default_factory=dict)
    clock: list[tuple[int, int, int]] = field(default_factory=list)
    events: int = 0


@contextmanager
def no_gc() -> Iterator[None]:
    """Hold the garbage collector: it would walk millions of fresh events for nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Gatherer:
    """Collects decoded events as columns, piece by piece."""

    def __init__(self) -> None:
        self._words = {name: Words() for name in (*SLICE_TEXTS, "arrow")}
        self.found = Gathered(names={name: words.names for name, words in self._words.items()})
        #: What reads pieces that this gatherer takes as columns.
        self.plain = plain_reader(self._words, sorted(_ARROWS))
        self._python = Verdicts(self._words["cat"], lambda name: name == "python_function")
        self._telling = Verdicts(self._words["name"], _is_telling)
        self._copies = Verdicts(self._words["name"], lambda name: "MEMCPY" in name)

    def add(self, events: list[Event] | PlainEvents) -> int:
        """Take what matters of one piece; return how many events had no readable time.

        Counters but that of the clock, and instants, are left behind.
        """
        self.found.events += len(events)
        return self._add_plain(events) if isinstance(events, PlainEvents) else self._add_decoded(events)

    def _add_plain(self, events: PlainEvents) -> int:
        self._add_named(decoded(b"[%b]" % b",".join(events.others), events.any_times))
        if len(events.flows["id"]):
            self.found.flows.add(events.flows)
        if not len(events.slices["start"]):
            return 0
        return self._add_slices(dict(events.slices))

    def _add_decoded(self, events: list[Event]) -> int:
        complete = [e for e in events if e.ph == "X"]
        others = [e for e in events if e.ph != "X"]
        self._add_flows([e for e in others if e.cat in _ARROWS and e.ph in ("s", "f")])
        self._add_named([e for e in others if e.ph in ("M", "C")])
        return self._add_slices(self._columns(complete)) if complete else 0

    def _add_named(self, events: list[Event]) -> None:
        """Take who is who, and the clock."""
        self.found.meta |= {(e.name, e.pid, e.tid): e for e in events if e.ph == "M" and _names(e.args)}
        self._add_clock([e for e in events if e.name == _CLOCK and e.ph == "C"])

    def _columns(self, events: list[Event]) -> dict[str, Any]:
        words = self._words
        part: dict[str, Any] = {
            "start": nanoseconds([e.ts for e in events]),
            "length": durations([e.dur for e in events]),
            "name": words["name"].codes([e.name for e in events]),
            "cat": words["cat"].codes([e.cat for e in events]),
            "pid": integers([e.pid for e in events]),
            "tid": integers([e.tid for e in events]),
        }
        args = [_NO_ARGS if e.args is None else e.args for e in events]
        part |= _numbers(args, isinstance(events[0], RawEvent))
        part["task_type"] = words["task_type"].codes([a.task_type for a in args])
        part["stack"] = words["stack"].codes([a.stack for a in args])
        part |= self._copied(part["name"], args)
        return part

    def _add_slices(self, columns: dict[str, Any]) -> int:
        """Add slices, ``length`` of which becomes their end; return how many have no readable time."""
        start, length = columns["start"], columns.pop("length")
        columns["end"] = start + np.maximum(length, 0)
        timed = (start >= 0) & (length >= 0)
        python = self._python.of(columns["cat"])
        keep = (~python | self._telling.of(columns["name"])) & timed if python.any() else timed
        self.found.slices.add(columns, None if keep.all() else keep)
        return int(np.count_nonzero(~timed))

    def _copied(self, name: I32, args: list[Args]) -> dict[str, I32 | I64]:
        """Return direction and bytes of copies, which only their events have."""
        copies = np.flatnonzero(self._copies.of(name))
        if not len(copies):
            return {name: nothing(len(args)) for name in _OF_COPIES}
        told = [args[i] for i in copies.tolist()]
        found = {
            "operation": self._words["operation"].codes([a.operation for a in told]),
            "moved": integers([a.moved for a in told]),
        }
        for column, values in found.items():
            found[column] = np.full(len(args), -1, values.dtype)
            found[column][copies] = values
        return found

    def _add_clock(self, events: list[Event]) -> None:
        if events:
            mhz = [integer((e.args or _NO_ARGS).mhz) for e in events]
            pids = [integer(e.pid) for e in events]
            self.found.clock += zip(nanoseconds([e.ts for e in events]).tolist(), pids, mhz, strict=True)

    def _add_flows(self, events: list[Event]) -> None:
        if not events:
            return
        part = {
            "arrow": self._words["arrow"].codes([e.cat for e in events]),
            "id": flow_ids([e.id for e in events]),
            "start": np.fromiter([e.ph == "s" for e in events], np.bool_, len(events)),
            "pid": integers([e.pid for e in events]),
            "tid": integers([e.tid for e in events]),
            "time": nanoseconds([e.ts for e in events]),
        }
        self.found.flows.add(part)


def _numbers(args: list[Args], kineto: bool) -> dict[str, I32 | I64]:
    """Return the arguments that are numbers. Ascend's traces, whose times are text, have but one of use."""
    part = {"connection": integers([a.connection for a in args])}
    if not kineto:
        return part
    part["correlation"] = integers([a.correlation for a in args])
    part["external"] = integers([a.external for a in args])
    part["stream"] = integers([a.stream for a in args])
    part["device"] = integers([a.device for a in args])
    return part


def _names(args: Args | None) -> bool:
    """Tell whether a metadata event names a process or thread, or its place."""
    return args is not None and (args.label, args.labels, args.sort_index) != (None, None, None)


def _is_telling(name: str) -> bool:
    """Tell Python functions worth keeping, of the user or telling a cause; the rest are most of a trace with stacks."""
    return is_user_frame(name) or name.startswith("nn.Module") or frame_cause(name) != "python"
