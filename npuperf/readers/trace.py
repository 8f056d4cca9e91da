"""Chrome traces (trace_view.json, msprof*.json, Kineto) to columns: slices, flows, and who is who."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from npuperf.errors import InputError
from npuperf.messages import say
from npuperf.model.frames import frame_cause
from npuperf.model.host import is_user_frame
from npuperf.model.labels import I32, I64, Labels, Mask
from npuperf.readers.cells import integer, nanoseconds
from npuperf.readers.join import match
from npuperf.readers.log import ReadLog
from npuperf.readers.pieces import Args, Event, FilePieces, RawEvent
from npuperf.readers.trace_columns import Verdicts, Words, durations, flow_ids, integers, joined, nothing, number_ids

_PIECES_TO_JOIN: Final = 64
#: Flow categories that tie layers together; the others repeat what events say themselves.
_ARROWS: Final = frozenset({"HostToDevice", "async_npu", "async_task_queue", "fwdbwd"})
_NO_ARGS: Final = Args()
_SLICE_INTS: Final = (
    "start", "end", "pid", "tid", "connection", "correlation", "external", "stream", "device",
)  # fmt: skip
_SLICE_TEXTS: Final = ("name", "cat", "task_type", "stack", "operation")


class _Numbers:
    """A column of integers."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, slices: Slices, owner: type) -> I64:
        return cast(I64, slices.column(self._name))


class _Texts:
    """A column of texts."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, slices: Slices, owner: type) -> Labels:
        return cast(Labels, slices.column(self._name))


class Slices:
    """Complete events (``ph`` X): ns, process, thread, and the arguments that tie layers together.

    Columns of a selection are made when they are asked for: most selections are asked for a few of the fourteen.
    """

    start = _Numbers()
    end = _Numbers()
    pid = _Numbers()
    tid = _Numbers()
    connection = _Numbers()
    correlation = _Numbers()
    external = _Numbers()
    stream = _Numbers()
    device = _Numbers()
    name = _Texts()
    cat = _Texts()
    task_type = _Texts()
    stack = _Texts()
    operation = _Texts()

    def __init__(self, columns: dict[str, I64 | Labels], index: I64 | None = None) -> None:
        self._columns = columns
        self._index = index
        self._chosen = columns if index is None else {}

    def __len__(self) -> int:
        return len(self._columns["start"]) if self._index is None else len(self._index)

    def filter(self, mask: Mask) -> Slices:
        """Return the events where ``mask`` holds."""
        return self.take(np.flatnonzero(mask))

    def by_thread(self) -> Slices:
        """Return the events ordered by thread, then start, the longer first."""
        return self.take(np.lexsort((-self.end, self.start, self.tid)))

    def take(self, index: I64) -> Slices:
        """Return the events at ``index``, in that order."""
        return Slices(self._columns, index if self._index is None else self._index[index])

    def column(self, name: str) -> I64 | Labels:
        """Return a column of the selection; that of all events may be of a smaller type."""
        if name not in self._chosen:
            assert self._index is not None
            self._chosen[name] = _taken(self._columns[name], self._index)
        return self._chosen[name]


def _taken(column: I64 | Labels, index: I64) -> I64 | Labels:
    if isinstance(column, Labels):
        return column.take(index)
    if column.strides == (0,):
        return nothing(len(index))
    return column[index].astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True)
class Flows:
    """Arrows between layers: those of each category that were seen, matched. ``events``: how many ends of them."""

    links: dict[str, Links] = field(default_factory=dict)
    events: int = 0

    def link(self, category: str) -> Links:
        """Return the arrows of a category: a row per finish whose start was recorded; they may share a start."""
        return self.links.get(category) or Links(*[np.empty(0, np.int64)] * 5)


@dataclass(frozen=True, slots=True)
class Links:
    """Matched arrows: thread and time of the start, process, thread and time of the finish."""

    from_tid: I64
    from_time: I64
    to_pid: I64
    to_tid: I64
    to_time: I64

    @classmethod
    def matched(cls, id_: I64, start: Mask, pid: I64, tid: I64, time: I64) -> Links:
        """Match every finish with the start of the same id, among the ends of arrows of one category."""
        s, f = np.flatnonzero(start), np.flatnonzero(~start)
        which = match(id_[f], id_[s])
        f, s = f[which >= 0], s[which[which >= 0]]
        return cls(*(column.astype(np.int64, copy=False) for column in (tid[s], time[s], pid[f], tid[f], time[f])))


@dataclass(slots=True)
class Trace:
    """A whole timeline. ``processes``, ``process_labels`` and ``process_order`` by pid, ``threads`` by (pid, tid)."""

    slices: Slices
    flows: Flows
    processes: dict[int, str] = field(default_factory=dict)
    process_labels: dict[int, str] = field(default_factory=dict)
    process_order: dict[int, int] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)

    def pids(self, *names: str) -> list[int]:
        """Return the processes with one of these names."""
        return [pid for pid, name in self.processes.items() if name in names]


def read_trace(paths: Sequence[Path], log: ReadLog, progress: Callable[[int], None] | None = None) -> Trace:
    """Read one timeline, possibly split over several files.

    ``progress`` gets the number of bytes just read. Raises InputError when no event can be read.
    """
    builder = _Builder()
    header: dict[str, Any] = {}
    with _no_gc():
        for path in paths:
            pieces = FilePieces(path, log, progress)
            for events in pieces:
                untimed = builder.add(events)
                if untimed:
                    log.lose(path, untimed, say("events without a readable time"))
            header |= pieces.header
    if not builder.events:
        what = say("{path}: no trace event could be read", path=str(paths[0]))
        raise InputError(what, hint=say("export the profile again"))
    log.events = builder.complete
    return builder.trace(header)


@contextmanager
def _no_gc() -> Iterator[None]:
    """Hold the garbage collector: it would walk millions of fresh events for nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Builder:
    """Collects decoded events as columns, piece by piece."""

    def __init__(self) -> None:
        self.events = 0
        self.complete = 0
        self._slices: list[dict[str, Any]] = []
        self._flows: list[dict[str, Any]] = []
        self._meta: list[Event] = []
        self._words = {name: Words() for name in _SLICE_TEXTS}
        self._arrows = Words()
        self._python = Verdicts(self._words["cat"], lambda name: name == "python_function")
        self._telling = Verdicts(self._words["name"], _is_telling)
        self._copies = Verdicts(self._words["name"], lambda name: "MEMCPY" in name)

    def add(self, events: list[Event]) -> int:
        """Take what matters of one piece; return how many events had no readable time.

        Counters and instants are left behind.
        """
        self.events += len(events)
        complete = [e for e in events if e.ph == "X"]
        others = [e for e in events if e.ph != "X"]
        self._meta += [e for e in others if e.ph == "M"]
        self._add_flows([e for e in others if e.cat in _ARROWS and e.ph in ("s", "f")])
        return self._add_slices(complete) if complete else 0

    def _add_slices(self, events: list[Event]) -> int:
        self.complete += len(events)
        words = self._words
        start, length = nanoseconds([e.ts for e in events]), durations([e.dur for e in events])
        name, cat = words["name"].codes([e.name for e in events]), words["cat"].codes([e.cat for e in events])
        part: dict[str, Any] = {"start": start, "end": start + np.maximum(length, 0), "name": name, "cat": cat}
        part["pid"], part["tid"] = integers([e.pid for e in events]), integers([e.tid for e in events])
        args = [_NO_ARGS if e.args is None else e.args for e in events]
        part |= _numbers(args, isinstance(events[0], RawEvent))
        part["task_type"] = words["task_type"].codes([a.task_type for a in args])
        part["stack"] = words["stack"].codes([a.stack for a in args])
        part["operation"] = self._operations(name, args)
        timed = (start >= 0) & (length >= 0)
        keep = (~self._python.of(cat) | self._telling.of(name)) & timed
        if not keep.all():
            part = {name: column[keep] for name, column in part.items()}
        _append(self._slices, part)
        return int(np.count_nonzero(~timed))

    def _operations(self, name: I32, args: list[Args]) -> I32:
        """Return the direction of copies, which only their events have."""
        copies = np.flatnonzero(self._copies.of(name))
        codes = np.full(len(args), -1, np.int32)
        codes[copies] = self._words["operation"].codes([args[i].operation for i in copies.tolist()])
        return codes

    def _add_flows(self, events: list[Event]) -> None:
        if not events:
            return
        part = {
            "cat": self._arrows.codes([e.cat for e in events]),
            "id": flow_ids([e.id for e in events]),
            "start": np.fromiter([e.ph == "s" for e in events], np.bool_, len(events)),
            "pid": integers([e.pid for e in events]),
            "tid": integers([e.tid for e in events]),
            "time": nanoseconds([e.ts for e in events]),
        }
        _append(self._flows, part)

    def trace(self, header: dict[str, Any]) -> Trace:
        """Assemble everything."""
        base = header.get("baseTimeNanoseconds", 0)  # newer Kineto traces count from a base time, in epoch ns
        base = base if isinstance(base, int) else 0
        trace = Trace(self._all_slices(base), self._all_flows(base), header=header)
        for event in self._meta:
            pid, tid = integer(event.pid), integer(event.tid)
            args = event.args or _NO_ARGS
            if event.name == "process_name" and args.label is not None:
                trace.processes[pid] = str(args.label)
            elif event.name == "process_labels" and args.labels is not None:
                trace.process_labels[pid] = str(args.labels)
            elif event.name == "process_sort_index" and args.sort_index is not None:
                trace.process_order[pid] = integer(args.sort_index)
            elif event.name == "thread_name" and args.label is not None:
                trace.threads[pid, tid] = str(args.label)
        return trace

    def _all_slices(self, base: int) -> Slices:
        columns: dict[str, Any] = {name: joined(_pop(self._slices, name)) for name in _SLICE_INTS}
        for name in ("start", "end"):
            columns[name] += base
        columns |= {name: self._words[name].labels(_codes(_pop(self._slices, name))) for name in _SLICE_TEXTS}
        return Slices(columns)

    def _all_flows(self, base: int) -> Flows:
        """Match the arrows: what they leave is a third of what they are."""
        columns = {name: joined(_pop(self._flows, name)) for name in ("start", "pid", "tid", "time")}
        columns["time"] += base
        columns["id_"] = number_ids(_pop(self._flows, "id"))
        category = self._arrows.labels(_codes(_pop(self._flows, "cat")))
        links = {}
        for code, name in enumerate(category.names):
            mine = np.flatnonzero(category.codes == code)
            links[name] = Links.matched(**{name: column[mine] for name, column in columns.items()})
        return Flows(links, len(category))


def _numbers(args: list[Args], kineto: bool) -> dict[str, I32 | I64]:
    """Return the arguments that are numbers. Ascend's traces, whose times are text, have but one of use."""
    part = {"connection": integers([a.connection for a in args])}
    if not kineto:
        return part | dict.fromkeys(("correlation", "external", "stream", "device"), nothing(len(args)))
    part["correlation"] = integers([a.correlation for a in args])
    part["external"] = integers([a.external for a in args])
    part["stream"] = integers([a.stream for a in args])
    part["device"] = integers([a.device for a in args])
    return part


def _is_telling(name: str) -> bool:
    """Tell Python functions worth keeping, of the user or telling a cause; the rest are most of a trace with stacks."""
    return is_user_frame(name) or name.startswith("nn.Module") or frame_cause(name) != "python"


def _codes(parts: list[I32]) -> I32:
    return joined(parts) if parts else np.empty(0, np.int32)


def _append(parts: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Add a piece's columns; every so often the last pieces become one.

    Many small arrays would stay in the process's heap when they are freed; large ones go back to the system.
    """
    parts.append(part)
    small = [p for p in parts if "pieces" not in p]
    if len(small) < _PIECES_TO_JOIN:
        return
    del parts[-len(small) :]
    one: dict[str, Any] = {name: joined([p[name] for p in small]) for name in part}
    parts.append(one | {"pieces": len(small)})


def _pop(parts: list[dict[str, Any]], name: str) -> list[Any]:
    """Take a column out of all parts, so that its pieces can be freed once they are joined."""
    return [part.pop(name) for part in parts]
