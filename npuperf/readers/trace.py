"""Chrome traces (trace_view.json, msprof*.json, Kineto) to columns: slices, flows, and who is who."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from npuperf.base.errors import InputError
from npuperf.base.messages import say
from npuperf.model.groups import rows_of_each
from npuperf.model.host import frame_cause, is_user_frame
from npuperf.model.labels import I64, Columns, Labels, Mask
from npuperf.readers.cells import FAR_OFF, LATEST_NS, far_off, integer, nanoseconds, spans_days
from npuperf.readers.join import match
from npuperf.readers.log import ReadLog
from npuperf.readers.pieces import Args, Event, FilePieces, RawArgs, RawEvent, Scalar, decoded
from npuperf.readers.plain_events import (
    PiecedColumns,
    PlainEvents,
    Verdicts,
    Words,
    durations,
    flow_ids,
    integers,
    is_nothing,
    nothing,
    number_ids,
    plain_reader,
)

SLICE_INTS: Final = (
    "start", "end", "pid", "tid", "connection", "moved", "partner", "elements", "correlation", "external", "stream",
    "device",
)  # fmt: skip
SLICE_TEXTS: Final = ("name", "cat", "task_type", "stack", "operation", "dtype")
#: How exporters write that there is no rank at the other end.
NO_RANK: Final = 4294967295
#: Flow categories that tie layers together; the others repeat what events say themselves.
_ARROWS: Final = frozenset({"HostToDevice", "async_npu", "async_task_queue", "fwdbwd"})
#: The counter that matters: of the others nothing is asked.
_CLOCK: Final = "AI Core Freq"
_NO_ARGS: Final = Args()


class Slices:
    """Complete events (``ph`` X): ns, process, thread, and the arguments that tie layers together.

    ``moved``: bytes of a copy, or of a part of a collective, whose other end is ``partner`` (the rank inside of the
    group, where it is another one); ``elements``, of type ``dtype``: what a collective takes.
    Columns of a selection are made when they are asked for: most selections are asked for a few of the eighteen.
    """

    start: I64
    end: I64
    pid: I64
    tid: I64
    connection: I64
    correlation: I64
    external: I64
    stream: I64
    device: I64
    moved: I64
    partner: I64
    elements: I64
    name: Labels
    cat: Labels
    task_type: Labels
    stack: Labels
    operation: Labels
    dtype: Labels

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

    def __getattr__(self, name: str) -> I64 | Labels:
        """Return a column of the selection; that of all events may be of a smaller type."""
        if name.startswith("_"):  # it is being copied, and has none yet
            raise AttributeError(name)
        if name not in self._chosen:
            assert self._index is not None
            column, index = self._columns[name], self._index
            if isinstance(column, Labels):
                self._chosen[name] = column.take(index)
            elif is_nothing(column):
                self._chosen[name] = np.broadcast_to(np.int64(-1), len(index))
            else:
                self._chosen[name] = column[index].astype(np.int64, copy=False)
        return self._chosen[name]


class Flows(Struct, frozen=True):
    """Arrows between layers: those of each category that were seen, matched. ``events``: how many ends of them."""

    links: dict[str, Links] = field(default_factory=dict)
    events: int = 0

    def link(self, category: str) -> Links:
        """Return the arrows of a category: a row per finish whose start was recorded; they may share a start."""
        return self.links.get(category) or Links(*[np.empty(0, np.int64)] * 5)

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


class GroupText(NamedTuple):
    """A process group as an event of PyTorch's own traces spells it, part by part; None: the event lacks the part."""

    name: Any
    number: Any
    described: Any
    members: Any
    size: Any
    first: Any
    stride: Any


class Collectives(Columns, frozen=True):
    """What PyTorch's own traces say of collectives: a row per event that does, a kernel or a record_param_comms.

    ``external``: the operator (of a record_param_comms itself); ``type`` as torch spells it; ``group``: which of the
    trace's groups; ``sequence``: the number in the group; ``peer``: the global rank that is sent to or received from.
    """

    kernel: Mask
    tid: I64
    time: I64
    external: I64
    type: Labels
    group: I64
    sequence: I64
    peer: I64


class Trace(Struct):
    """A whole timeline. ``processes``, ``process_labels`` and ``process_order`` by pid, ``threads`` by (pid, tid).

    ``clock``: time (epoch ns), process and MHz of each value of the AI Cores' clock. ``collectives`` are of the
    ``groups``.
    """

    slices: Slices
    flows: Flows
    processes: dict[int, str] = field(default_factory=dict)
    process_labels: dict[int, str] = field(default_factory=dict)
    process_order: dict[int, int] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    clock: tuple[tuple[int, int, int], ...] = ()
    collectives: Collectives = field(default_factory=Collectives.empty)
    groups: tuple[GroupText, ...] = ()

    def pids(self, *names: str) -> list[int]:
        """Return the processes with one of these names."""
        return [pid for pid, name in self.processes.items() if name in names]


def read_trace(paths: Sequence[Path], log: ReadLog, progress: Callable[[int], None] | None = None) -> Trace:
    """Read one timeline, possibly split over several files.

    ``progress`` gets the number of bytes just read. Raises InputError when no event can be read.
    """
    gatherer = _Gatherer()
    header: dict[str, Any] = {}
    before = log.rows_lost
    with no_gc():
        for path in paths:
            pieces = FilePieces(path, log, progress)
            for events in pieces.read(gatherer.plain):
                untimed = gatherer.add(events)
                if untimed:
                    log.lose(path, untimed, say("events without a readable time"))
            header |= pieces.header
    if not gatherer.events:
        what = say("{path}: no trace event could be read", path=str(paths[0]))
        raise InputError(what, hint=say("export the profile again"))
    trace = gatherer.trace(header)
    slices = trace.slices
    if spans_days(slices.start, slices.end):
        far = np.zeros(len(slices), np.bool_)
        for _, rows in rows_of_each(slices.pid):  # processes may have clocks of their own
            far[rows] = far_off(slices.start[rows], slices.end[rows])
        if far.any():
            log.lose(paths[0], int(np.count_nonzero(far)), FAR_OFF)
            trace.slices = slices.filter(~far)
    log.events, log.events_lost = len(trace.slices), log.rows_lost - before
    return trace


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


def base_ns(header: Mapping[str, object]) -> int:
    """Return the time that the times of newer Kineto traces count from, epoch ns; 0 where there is none."""
    base = header.get("baseTimeNanoseconds", 0)
    return base if isinstance(base, int) and 0 <= base < LATEST_NS else 0


class _Gatherer:
    """Collects events as columns, piece by piece: what is to be kept of a trace.

    ``slices`` has the columns of :class:`Slices`, of which texts are the numbers of ``words``; ``flows`` category, id,
    whether it is a start, process, thread, time. ``events``: how many were read, of any kind.
    """

    def __init__(self) -> None:
        self.words = {name: Words() for name in (*SLICE_TEXTS, "arrow", "collective")}
        self.slices, self.flows, self.collectives = PiecedColumns(), PiecedColumns(), PiecedColumns()
        self._groups: dict[GroupText, int] = {}
        self.events = 0
        #: What reads pieces that this gatherer takes as columns.
        self.plain = plain_reader(self.words, sorted(_ARROWS))
        self._meta: dict[tuple[object, ...], Event] = {}
        self._clock: list[tuple[int, int, int]] = []
        self._python = Verdicts(self.words["cat"], lambda name: name == "python_function")
        #: Python functions worth keeping, of the user or telling a cause; the rest are most of a trace with stacks.
        self._telling = Verdicts(
            self.words["name"],
            lambda name: is_user_frame(name) or name.startswith("nn.Module") or frame_cause(name) != "python",
        )
        self._copies = Verdicts(self.words["name"], lambda name: "MEMCPY" in name)

    def add(self, events: list[Event] | PlainEvents) -> int:
        """Take what matters of one piece; return how many events had no readable time.

        Counters but that of the clock, and instants, are left behind.
        """
        self.events += len(events)
        if isinstance(events, PlainEvents):
            others = decoded(b"[%b]" % b",".join(events.others), events.any_times)
            self._add_named(others)
            self._add_collectives([e for e in others if e.ph == "X"])
            if len(events.flows["id"]):
                self.flows.add(events.flows)
            return self._add_slices(dict(events.slices)) if len(events.slices["start"]) else 0
        others = [e for e in events if e.ph != "X"]
        arrows = [e for e in others if e.cat in _ARROWS and e.ph in ("s", "f")]
        if arrows:
            part = {
                "arrow": self.words["arrow"].codes([e.cat for e in arrows]),
                "id": flow_ids([e.id for e in arrows]),
                "start": np.fromiter([e.ph == "s" for e in arrows], np.bool_, len(arrows)),
                "pid": integers([e.pid for e in arrows]),
                "tid": integers([e.tid for e in arrows]),
                "time": nanoseconds([e.ts for e in arrows]),
            }
            self.flows.add(part)
        self._add_named([e for e in others if e.ph in ("M", "C")])
        complete = [e for e in events if e.ph == "X"]
        self._add_collectives(complete)
        return self._add_slices(self._columns(complete)) if complete else 0

    def _add_named(self, events: list[Event]) -> None:
        """Take who is who, and the clock."""
        for event in events:
            args = event.args or _NO_ARGS
            if event.ph == "M" and (args.label, args.labels, args.sort_index) != (None, None, None):
                self._meta[event.name, event.pid, event.tid] = event
        clock = [e for e in events if e.name == _CLOCK and e.ph == "C"]
        mhz, pids = [integer((e.args or _NO_ARGS).mhz) for e in clock], [integer(e.pid) for e in clock]
        self._clock += zip(nanoseconds([e.ts for e in clock]).tolist(), pids, mhz, strict=True)

    def _add_collectives(self, events: list[Event]) -> None:
        """Take what complete events tell of collectives; only numbers as times come with that."""
        if not events or not isinstance(events[0], RawEvent):
            return
        told = [(e, a) for e in events if isinstance(a := e.args, RawArgs) and a.collective is not None]
        if not told:
            return
        texts = [_group_text(a) for _, a in told]
        part = {
            "time": nanoseconds([e.ts for e, _ in told]),
            "kernel": np.fromiter([e.cat != "cpu_op" for e, _ in told], np.bool_, len(told)),
            "tid": integers([e.tid for e, _ in told]),
            "external": integers([a.external for _, a in told]),
            "type": self.words["collective"].codes([str(a.collective) for _, a in told]),
            "group": np.fromiter([self._groups.setdefault(t, len(self._groups)) for t in texts], np.int32, len(told)),
            "sequence": integers([a.sequence for _, a in told]),
            "peer": integers([a.target if a.source is None else a.source for _, a in told]),
        }
        self.collectives.add(part)

    def _columns(self, events: list[Event]) -> dict[str, Any]:
        words = self.words
        args = [_NO_ARGS if e.args is None else e.args for e in events]
        part: dict[str, Any] = {
            "start": nanoseconds([e.ts for e in events]),
            "length": durations([e.dur for e in events]),
            "name": words["name"].codes([e.name for e in events]),
            "cat": words["cat"].codes([e.cat for e in events]),
            "pid": integers([e.pid for e in events]),
            "tid": integers([e.tid for e in events]),
            "connection": integers([a.connection for a in args]),
            "task_type": words["task_type"].codes([a.task_type for a in args]),
            "stack": words["stack"].codes([a.stack for a in args]),
        }
        any_times = isinstance(events[0], RawEvent)
        if any_times:  # Kineto: Ascend's traces, whose times are text, have none of these
            for name in ("correlation", "external", "stream", "device"):
                part[name] = integers([getattr(a, name) for a in args])
        else:
            source, target = integers([a.source for a in args]), integers([a.target for a in args])
            other = (source >= 0) & (target >= 0) & (target < NO_RANK) & (source != target)
            part["partner"] = np.where(other, target, -1) if other.any() else nothing(len(args))
            part["elements"] = integers([a.count for a in args])
            part["dtype"] = words["dtype"].codes([a.dtype for a in args])
        moved: list[Scalar] = [None if any_times else a.bytes for a in args]
        copies = np.flatnonzero(self._copies.of(part["name"])).tolist()
        if copies:  # only their events have a direction
            operation = words["operation"].codes([args[i].operation for i in copies])
            part["operation"] = np.full(len(args), -1, operation.dtype)
            part["operation"][copies] = operation
            for i in copies:
                moved[i] = moved[i] if args[i].moved is None else args[i].moved
        part["moved"] = integers(moved)
        return part

    def _add_slices(self, columns: dict[str, Any]) -> int:
        """Add slices, ``length`` of which becomes their end; return how many have no readable time."""
        start, length = columns["start"], columns.pop("length")
        columns["end"] = start + np.maximum(length, 0)
        timed = (start >= 0) & (length >= 0)
        python = self._python.of(columns["cat"])
        keep = (~python | self._telling.of(columns["name"])) & timed if python.any() else timed
        self.slices.add(columns, None if keep.all() else keep)
        return int(np.count_nonzero(~timed))

    def _told(self, base: int) -> Collectives:
        if not self._groups:
            return Collectives.empty()
        told = {name: self.collectives.pop(name) for name in Collectives.__struct_fields__}
        numbers = ("tid", "time", "external", "group", "sequence", "peer")
        told |= {name: told[name].astype(np.int64) for name in numbers}
        told |= {"time": told["time"] + base, "type": self.words["collective"].labels(told["type"])}
        return Collectives(**(told | {"kernel": told["kernel"] == 1}))

    def trace(self, header: dict[str, Any]) -> Trace:
        """Put together what was gathered; afterwards it is gone from here."""
        base = base_ns(header)
        flows = Flows()  # first: what they leave is less than what they are
        category = self.flows.pop("arrow")
        if len(category):
            ends = {name: self.flows.pop(name) for name in ("pid", "tid", "time")}
            start = self.flows.pop("start")
            ends["time"] = ends["time"] + base if base else ends["time"]
            ends["id_"] = number_ids(self.flows.pop("id"))
            links = {}
            for code, name in enumerate(self.words["arrow"].names):
                mine = category == code
                links[name] = Links.matched(np.flatnonzero(mine & start), np.flatnonzero(mine & ~start), **ends)
            flows = Flows(links, len(category))
            del ends, start
        del category
        columns: dict[str, Any] = {name: self.slices.pop(name) for name in SLICE_INTS}
        columns |= {name: columns[name] + np.int64(base) for name in ("start", "end") if base}  # empty ones are narrow
        columns |= {name: self.words[name].labels(self.slices.pop(name)).narrowed() for name in SLICE_TEXTS}
        clock = tuple((time + base, pid, mhz) for time, pid, mhz in self._clock)
        trace = Trace(
            Slices(columns), flows, header=header, clock=clock, collectives=self._told(base),
            groups=tuple(self._groups),
        )  # fmt: skip
        for event in self._meta.values():
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


def _group_text(args: RawArgs) -> GroupText:
    """Return a group as it is spelled; lists as their text, so that what is spelled alike is one."""
    parts = (
        args.group, args.group_id, args.described, args.members, args.group_size, args.first_rank, args.rank_stride,
    )  # fmt: skip
    return GroupText(*(str(part) if isinstance(part, (list, dict)) else part for part in parts))
