"""Device tasks as columns, and what makes a task compute, communication, other work or control."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.model.groups import distinct, sorted_rows
from npuperf.model.labels import F32, I64, Labels, Mask
from npuperf.model.names import COLLECTIVE_ON_AI_CPU, NPU_COMMUNICATION

_Cell = TypeVar("_Cell", bound=np.generic)
#: "No such time" in a column of int64 nanoseconds.
NO_TIME: Final = np.iinfo(np.int64).min
#: "Not recorded" in the other integer columns.
UNKNOWN: Final = -1
#: Columns of tasks that are neither times nor texts: most of their numbers are small.
_NUMBERS: Final = ("stream", "step", "block", "mix_block", "launch_thread", "op", "moved")
_TEXTS: Final = ("name", "type", "core", "state", "shapes", "operands", "copy")
#: Numbers of 32 bits stay below it, so that a few of them can be added.
_ROOM: Final = 1 << 30
#: Rows that stay together are copied as such where they are so many on average.
_STRETCH: Final = 64


class Work(IntEnum):
    """What a device task does, as far as the partition of time is concerned."""

    COMPUTE = 0
    COMMUNICATION = 1
    OTHER = 2
    #: Events, waits and profiler marks: they occupy a queue, not the device.
    CONTROL = 3


#: The runtime's own task types name the core where the operator's record does not.
RUNTIME_CORES: Final = {
    "KERNEL_AICORE": "AI_CORE",
    "KERNEL_AIVEC": "AI_VECTOR_CORE",
    "KERNEL_MIX_AIC": "MIX_AIC",
    "KERNEL_MIX_AIV": "MIX_AIV",
    "KERNEL_AICPU": "AI_CPU",
}
COMPUTE_CORES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU")
COMMUNICATION_CORES = ("COMMUNICATION", "HCCL")
_KERNEL_TYPE = re.compile(
    r"^(kernel_\w+|ai_?core|ai_?cpu|ai_?vector_?core|aic|aiv|aiv_sqe|mix_ai[cv]|dsa(_sqe)?)$", re.I
)
#: Names of operators' kernels: what they contain (MemSet, Label, Record, …) is no name of a hardware task.
_KERNEL_NAME = re.compile(r"^(aclnn\w|trans_|atomic_)|_MemSet$")
_MOVE = re.compile(r"memcpy|memset|sdma|dma_sqe|^dvpp|memory_?copy", re.I)
_CONTROL = re.compile(
    r"event|notify|place_?holder|write[ _]value|profiling|wait|record|callback|barrier|label|maintenance"
    r"|stream[ _]?(switch|active|goto)|ffts_plus|cmo|nop|end_graph|model_",
    re.I,
)


def _work_of_text(text: str | None) -> Work | None:
    """Classify by a task type, or by a task's name when its type says nothing."""
    if not text or text in ("Other", "UNKNOWN"):
        return None
    if _KERNEL_TYPE.match(text):
        return Work.COMPUTE
    if _MOVE.search(text):
        return Work.OTHER
    return Work.CONTROL if _CONTROL.search(text) else None


def work_of_tasks(task_type: Labels, name: Labels) -> npt.NDArray[np.uint8]:
    """Classify hardware tasks of a timeline: by name if communication, else by type, else by name.

    Old exporters write ``Other`` as the type of real kernels, so what neither tells is compute.
    """
    by_type = [_work_of_text(t) for t in task_type.names]
    work = np.array([255 if w is None else w for w in by_type] + [255], np.uint8)[task_type.codes]
    open_names = distinct(name.codes[(work == 255) & name.known()])
    by_name = np.full(len(name.names) + 1, Work.COMPUTE, np.uint8)
    for code in open_names.tolist():
        text = name.names[code]
        found = None if _KERNEL_NAME.search(text) else _work_of_text(text)
        by_name[code] = Work.COMPUTE if found is None else found
    work = np.where(work == 255, by_name[name.codes], work)
    communication = name.flag([bool(NPU_COMMUNICATION.search(n)) for n in name.names])
    return np.where(communication, np.uint8(Work.COMMUNICATION), work).astype(np.uint8)


def work_of_rows(core: Labels, name: Labels) -> npt.NDArray[np.uint8]:
    """Classify the rows of a kernel table: communication or compute.

    The core type decides; Level0 exports leave it N/A, and there the operator's name does, as on AI CPUs, which carry
    out collectives, too.
    """
    by_core = core.flag([c in COMMUNICATION_CORES for c in core.names])
    open_core = ~core.flag([c in COMPUTE_CORES and c != "AI_CPU" for c in core.names])
    by_name = name.flag([bool(NPU_COMMUNICATION.search(n)) for n in name.names])
    return np.where(by_core | (open_core & by_name), np.uint8(Work.COMMUNICATION), np.uint8(0)).astype(np.uint8)


def beside_operations(work: npt.NDArray[np.uint8], name: Labels, *, listed: bool = False) -> npt.NDArray[np.uint8]:
    """Let kernels on AI CPUs that carry out collectives only occupy a queue, where the operations are listed.

    Such a kernel is there while its operation waits for what it sends, too; how long that takes tells its own row.
    ``listed``: operations are, somewhere else.
    """
    communicates = work == Work.COMMUNICATION
    carrying = communicates & name.flag([bool(COLLECTIVE_ON_AI_CPU.search(n)) for n in name.names])
    if not carrying.any() or not (listed or (communicates & ~carrying).any()):
        return work
    return np.where(carrying, np.uint8(Work.CONTROL), work)


def unknown(size: int) -> I64:
    """Return an integer column in which nothing is recorded; it takes no memory and cannot be written to."""
    return np.broadcast_to(np.int64(UNKNOWN), size)


def no_times(size: int) -> I64:
    """Return a time column in which nothing is recorded; it takes no memory and cannot be written to."""
    return np.broadcast_to(np.int64(NO_TIME), size)


def _gaps(size: int) -> F32:
    """Return a counter of which nothing is recorded; it takes no memory."""
    return np.broadcast_to(np.float32(np.nan), size)


def _one_value(column: npt.NDArray[Any]) -> bool:
    """Tell a column of one value, repeated without taking memory."""
    return column.strides == (0,) and len(column) > 0


def _at(column: npt.NDArray[_Cell], index: I64) -> npt.NDArray[_Cell]:
    """Return the cells at ``index``."""
    return np.broadcast_to(column[0], len(index)) if _one_value(column) else column[index]


class _Together(Struct, frozen=True):
    """How tables become one: in ``order``, where each row stands in all of them one behind the other.

    ``stretches``: the same as rows of a table that stay together, where these are long; else empty.
    """

    order: I64
    stretches: list[tuple[int, slice]]

    @classmethod
    def of(cls, order: I64, sizes: list[int]) -> _Together:
        """Find out how tables of these sizes come into an order."""
        first = np.cumsum([0, *sizes])
        fresh = np.zeros(len(order), np.bool_)
        fresh[first[:-1]] = True
        fresh = fresh[order]
        fresh[0] = True
        fresh[1:] |= order[1:] != order[:-1] + 1
        starts = np.flatnonzero(fresh)
        if len(starts) * _STRETCH > len(order):
            return cls(order, [])
        table = np.searchsorted(first, order[starts], side="right") - 1
        begin = order[starts] - first[table]
        end = begin + np.diff(starts, append=len(order))
        return cls(order, list(zip(table.tolist(), map(slice, begin.tolist(), end.tolist()), strict=True)))

    def column(self, columns: list[npt.NDArray[_Cell]]) -> npt.NDArray[_Cell]:
        """Return a column of the whole from those of the tables."""
        first = columns[0]
        if all(map(_one_value, columns)) and all(column[0] == first[0] for column in columns):
            return np.broadcast_to(first[0], len(self.order))
        if self.stretches:
            return np.concatenate([columns[table][rows] for table, rows in self.stretches])
        return np.concatenate(columns)[self.order]

    def labels(self, columns: list[Labels]) -> Labels:
        """Return a column of texts of the whole."""
        codes, names = Labels.shared(columns)
        return Labels(self.column(codes), names) if names else Labels.missing(len(self.order))


def _narrowed(column: I64) -> I64:
    """Return the column as its one value, repeated, or in 32 bits, where that is possible with room to reckon."""
    if not len(column) or _one_value(column):
        return column
    least, most = int(column.min()), int(column.max())
    if least == most:
        return np.broadcast_to(column[0], len(column))
    return cast(I64, column.astype(np.int32, copy=False)) if least >= -_ROOM and most < _ROOM else column


def in_order(start: I64) -> bool:
    """Tell whether every time is later than the one before."""
    return bool((start[1:] > start[:-1]).all())


class Tasks(Struct, frozen=True, dict=True):
    """Tasks of one device, ordered by start. One entry per task; times are epoch nanoseconds.

    ``launch_*`` is the host call that submitted the task, ``NO_TIME`` (thread -1) where the profile does not tell;
    ``op`` indexes the launching torch operator in :class:`npuperf.model.host.HostOps`, -1 unknown; ``operands``: see
    :class:`npuperf.model.labels.Operands`; ``copy``: the direction of a copy ("host to device") where it is recorded,
    ``moved``: its bytes. ``pmu`` maps hardware-counter names to float columns, NaN where absent.
    Columns of one value may take no memory; they cannot be written to. Small numbers may be of 32 bits.
    """

    start: I64
    end: I64
    work: npt.NDArray[np.uint8]
    stream: I64
    step: I64
    block: I64
    mix_block: I64
    name: Labels
    type: Labels
    core: Labels
    state: Labels
    shapes: Labels
    operands: Labels
    copy: Labels
    launch_start: I64
    launch_end: I64
    launch_thread: I64
    op: I64
    moved: I64
    pmu: dict[str, F32] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        start: I64,
        end: I64,
        work: npt.NDArray[np.uint8],
        *,
        stream: I64 | None = None,
        step: I64 | None = None,
        block: I64 | None = None,
        mix_block: I64 | None = None,
        name: Labels | None = None,
        type: Labels | None = None,
        core: Labels | None = None,
        state: Labels | None = None,
        shapes: Labels | None = None,
        operands: Labels | None = None,
        copy: Labels | None = None,
        launch_start: I64 | None = None,
        launch_end: I64 | None = None,
        launch_thread: I64 | None = None,
        op: I64 | None = None,
        moved: I64 | None = None,
        pmu: dict[str, F32] | None = None,
    ) -> Tasks:
        """Fill what is not given with "not recorded"."""
        n = len(start)
        return cls(
            start=start,
            end=end,
            work=work,
            stream=unknown(n) if stream is None else stream,
            step=unknown(n) if step is None else step,
            block=unknown(n) if block is None else block,
            mix_block=unknown(n) if mix_block is None else mix_block,
            name=name or Labels.missing(n),
            type=type or Labels.missing(n),
            core=core or Labels.missing(n),
            state=state or Labels.missing(n),
            shapes=shapes or Labels.missing(n),
            operands=operands or Labels.missing(n),
            copy=copy or Labels.missing(n),
            launch_start=no_times(n) if launch_start is None else launch_start,
            launch_end=no_times(n) if launch_end is None else launch_end,
            launch_thread=unknown(n) if launch_thread is None else launch_thread,
            op=unknown(n) if op is None else op,
            moved=unknown(n) if moved is None else moved,
            pmu=pmu or {},
        )

    @classmethod
    def empty(cls) -> Tasks:
        """Return a table without tasks."""
        none = np.empty(0, np.int64)
        return cls.build(none, none, np.empty(0, np.uint8))

    def __len__(self) -> int:
        return len(self.start)

    def take(self, index: I64) -> Tasks:
        """Return the tasks at ``index``, in that order."""
        return self._map(lambda column: _at(column, index), lambda labels: labels.take(index))

    def filter(self, mask: Mask) -> Tasks:
        """Return the tasks where ``mask`` holds."""
        if mask.all():
            return self
        index = np.flatnonzero(mask)
        return self._map(
            lambda column: _at(column, index), lambda labels: Labels(_at(labels.codes, index), labels.names)
        )

    def part(self, chosen: slice) -> Tasks:
        """Return a stretch of the tasks, without a copy."""
        if chosen.indices(len(self)) == (0, len(self), 1):
            return self
        return self._map(lambda column: column[chosen], lambda labels: labels.filter(chosen))

    def only(self, work: Work) -> Tasks:
        """Return the tasks of one kind of work."""
        return self.filter(self.work == work)

    def sorted(self) -> Tasks:
        """Return the tasks ordered by start, then end."""
        if in_order(self.start):
            return self
        return self.take(sorted_rows(self.start, self.end))

    def without_counters(self) -> Tasks:
        """Return the same tasks without hardware counters, which are most of a table's memory."""
        return self.with_columns(pmu={}) if self.pmu else self

    def narrowed(self) -> Tasks:
        """Return the same in less memory: small numbers in 32 bits, and columns of one value as that value."""
        numbers = {name: _narrowed(getattr(self, name)) for name in _NUMBERS}
        texts = {name: getattr(self, name).narrowed() for name in _TEXTS}
        return self.with_columns(**numbers, **texts)

    def with_columns(self, **columns: Any) -> Tasks:
        """Return a copy with some columns replaced."""
        return replace(self, **columns)

    @cached_property
    def dur(self) -> I64:
        """Durations, ns; dozens ask for them, so they are worked out once and cannot be written to."""
        dur = self.end - self.start
        dur.setflags(write=False)
        return dur

    @property
    def launched(self) -> Mask:
        """True where the host launch of the task is known."""
        return np.not_equal(self.launch_end, NO_TIME)

    @property
    def dynamic(self) -> Mask:
        """True for kernels compiled for dynamic shapes."""
        return self.state.flag([s.lower() == "dynamic" for s in self.state.names])

    def _map(self, column: Callable[[Any], Any], labels: Callable[[Labels], Labels]) -> Tasks:
        new: dict[str, Any] = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Labels):
                new[name] = labels(value)
            elif isinstance(value, dict):
                new[name] = {key: column(v) for key, v in value.items()}
            else:
                new[name] = column(value)
        return Tasks(**new)

    @classmethod
    def concat(cls, parts: list[Tasks]) -> Tasks:
        """Append tables and order them by start; counters that one of them lacks become NaN."""
        parts = [p for p in parts if len(p)]
        if len(parts) < 2:
            return parts[0].sorted() if parts else cls.empty()
        start, end = (np.concatenate([getattr(p, name) for p in parts]) for name in ("start", "end"))
        together = _Together.of(sorted_rows(start, end), [len(p) for p in parts])
        del start, end
        new: dict[str, Any] = {}
        for name in cls.__struct_fields__:
            values = [getattr(p, name) for p in parts]
            if name == "pmu":
                names = dict.fromkeys(n for v in values for n in v)
                new["pmu"] = {n: together.column([v.get(n, _gaps(len(p))) for v, p in zip(values, parts, strict=True)])
                              for n in names}  # fmt: skip
            elif isinstance(values[0], Labels):
                new[name] = together.labels(values)
            else:
                new[name] = together.column(values)
        return cls(**new)
