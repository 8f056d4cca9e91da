"""Chrome traces (trace_view.json, msprof*.json, Kineto) to columns: slices, flows, and who is who."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from msgspec import Struct, field

from npuperf.errors import InputError
from npuperf.messages import say
from npuperf.model.groups import rows_of_each
from npuperf.model.labels import I32, I64, Labels, Mask
from npuperf.readers.cells import LATEST_NS, integer
from npuperf.readers.join import match
from npuperf.readers.log import ReadLog
from npuperf.readers.outliers import FAR_OFF, far_off, spans_days
from npuperf.readers.pieces import Args, FilePieces
from npuperf.readers.trace_beside import StretchFound, Told, read_stretches, spare_helpers
from npuperf.readers.trace_columns import is_nothing, joined, number_ids
from npuperf.readers.trace_gather import SLICE_INTS, SLICE_TEXTS, Gathered, Gatherer, no_gc


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

    Columns of a selection are made when they are asked for: most selections are asked for a few of the fifteen.
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
    moved = _Numbers()
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

    def afresh(self) -> Slices:
        """Return the same selection without the columns that were made of it."""
        return Slices(self._columns, self._index)

    def without(self, *names: str) -> Slices:
        """Return the same events without columns that nobody will ask for, so that they take no more memory."""
        return Slices({name: c for name, c in self._columns.items() if name not in names}, self._index)

    def column(self, name: str) -> I64 | Labels:
        """Return a column of the selection; that of all events may be of a smaller type."""
        if name not in self._chosen:
            assert self._index is not None
            self._chosen[name] = _taken(self._columns[name], self._index)
        return self._chosen[name]


def _taken(column: I64 | Labels, index: I64) -> I64 | Labels:
    if isinstance(column, Labels):
        return column.take(index)
    if is_nothing(column):
        return np.broadcast_to(np.int64(-1), len(index))
    return column[index].astype(np.int64, copy=False)


class Flows(Struct, frozen=True):
    """Arrows between layers: those of each category that were seen, matched. ``events``: how many ends of them."""

    links: dict[str, Links] = field(default_factory=dict)
    events: int = 0

    def link(self, category: str) -> Links:
        """Return the arrows of a category: a row per finish whose start was recorded; they may share a start."""
        links = self.links.get(category)
        return links or Links(*[np.empty(0, np.int64)] * 5)

    def without(self, *categories: str) -> Flows:
        """Return the arrows of all other categories."""
        return Flows({name: links for name, links in self.links.items() if name not in categories}, self.events)


class Links(Struct, frozen=True):
    """Matched arrows: thread and time of the start, process, thread and time of the finish.

    Processes and threads are of 32 bits where these do.
    """

    from_tid: I64
    from_time: I64
    to_pid: I64
    to_tid: I64
    to_time: I64

    @classmethod
    def matched(cls, starts: I64, finishes: I64, id_: I64, pid: I64, tid: I64, time: I64) -> Links:
        """Match every finish with the start of the same id, both given by their places in the columns."""
        which = match(id_[finishes], id_[starts])
        found = which >= 0
        f, s = (finishes, starts[which]) if found.all() else (finishes[found], starts[which[found]])
        return cls(tid[s], time[s], pid[f], tid[f], time[f])


class Trace(Struct):
    """A whole timeline. ``processes``, ``process_labels`` and ``process_order`` by pid, ``threads`` by (pid, tid).

    ``clock``: time (epoch ns), process and MHz of each value of the AI Cores' clock.
    """

    slices: Slices
    flows: Flows
    processes: dict[int, str] = field(default_factory=dict)
    process_labels: dict[int, str] = field(default_factory=dict)
    process_order: dict[int, int] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    clock: tuple[tuple[int, int, int], ...] = ()

    def pids(self, *names: str) -> list[int]:
        """Return the processes with one of these names."""
        return [pid for pid, name in self.processes.items() if name in names]


def read_trace(paths: Sequence[Path], log: ReadLog, progress: Callable[[int], None] | None = None) -> Trace:
    """Read one timeline, possibly split over several files.

    ``progress`` gets the number of bytes just read. Raises InputError when no event can be read.
    """
    found: list[Gathered] = []
    header: dict[str, Any] = {}
    before = log.rows_lost
    with no_gc():
        for path in paths:
            for part in _read_file(path, log, progress):
                found.append(part.gathered)
                header |= part.header
    if not any(part.events for part in found):
        what = say("{path}: no trace event could be read", path=str(paths[0]))
        raise InputError(what, hint=say("export the profile again"))
    trace = _trace(found, header)
    far = _far_off(trace.slices)
    if far.any():
        log.lose(paths[0], int(np.count_nonzero(far)), FAR_OFF)
        trace.slices = trace.slices.filter(~far)
    log.events, log.events_lost = len(trace.slices), log.rows_lost - before
    return trace


def _far_off(slices: Slices) -> Mask:
    """Tell which events are absurdly far from those of their process: processes may have clocks of their own."""
    far = np.zeros(len(slices), np.bool_)
    if spans_days(slices.start, slices.end):
        for _, rows in rows_of_each(slices.pid):
            far[rows] = far_off(slices.start[rows], slices.end[rows])
    return far


def _read_file(path: Path, log: ReadLog, progress: Callable[[int], None] | None) -> list[StretchFound]:
    """Read a file on several cores where that is worth it, and it is as it should be; else piece by piece."""
    helpers = spare_helpers(path)
    if helpers:
        told = Told(progress)
        parts = read_stretches(path, helpers, told.tell)
        if parts is not None:
            return parts
        progress = told.again
    gatherer = Gatherer()
    pieces = FilePieces(path, log, progress)
    for events in pieces.read(gatherer.plain):
        untimed = gatherer.add(events)
        if untimed:
            log.lose(path, untimed, say("events without a readable time"))
    return [StretchFound(gatherer.found, pieces.header)]


def _trace(found: list[Gathered], header: dict[str, Any]) -> Trace:
    """Put together what was gathered, in the order of the file."""
    base = base_ns(header)
    flows = _flows(found, base)  # first: what they leave is less than what they are
    clock = tuple((time + base, pid, mhz) for part in found for time, pid, mhz in part.clock)
    trace = Trace(_slices(found, base), flows, header=header, clock=clock)
    for event in (event for part in found for event in part.meta.values()):
        pid, tid = integer(event.pid), integer(event.tid)
        args = event.args or Args()
        if event.name == "process_name" and args.label is not None:
            trace.processes[pid] = str(args.label)
        elif event.name == "process_labels" and args.labels is not None:
            trace.process_labels[pid] = str(args.labels)
        elif event.name == "process_sort_index" and args.sort_index is not None:
            trace.process_order[pid] = integer(args.sort_index)
        elif event.name == "thread_name" and args.label is not None:
            trace.threads[pid, tid] = str(args.label)
    return trace


def base_ns(header: Mapping[str, object]) -> int:
    """Return the time that the times of newer Kineto traces count from, epoch ns; 0 where there is none."""
    base = header.get("baseTimeNanoseconds", 0)
    return base if isinstance(base, int) and 0 <= base < LATEST_NS else 0


def _slices(found: list[Gathered], base: int) -> Slices:
    columns: dict[str, Any] = {name: joined([part.slices.pop(name) for part in found]) for name in SLICE_INTS}
    columns |= {name: columns[name] + base for name in ("start", "end") if base}
    columns |= {name: _labels(found, name, [part.slices.pop(name) for part in found]) for name in SLICE_TEXTS}
    return Slices(columns)


def _flows(found: list[Gathered], base: int) -> Flows:
    category = _labels(found, "arrow", [part.flows.pop("arrow") for part in found])
    if not len(category):
        return Flows()
    columns = {name: joined([part.flows.pop(name) for part in found]) for name in ("pid", "tid", "time")}
    start = joined([part.flows.pop("start") for part in found])
    columns["time"] = columns["time"] + base if base else columns["time"]
    columns["id_"] = number_ids(joined([part.flows.pop("id") for part in found]))
    links = {}
    for code, name in enumerate(category.names):
        mine = category.codes == code
        links[name] = Links.matched(np.flatnonzero(mine & start), np.flatnonzero(mine & ~start), **columns)
    return Flows(links, len(category))


def _labels(found: list[Gathered], name: str, codes: list[I32]) -> Labels:
    parts = [Labels(codes, tuple(part.names[name])) for part, codes in zip(found, codes, strict=True)]
    return (parts[0] if len(parts) == 1 else Labels.concat(parts)).narrowed()
