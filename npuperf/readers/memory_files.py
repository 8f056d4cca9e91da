"""Memory files of torch_npu and msprof, and the same tables of a database, to the memory of each device.

Blocks of PyTorch's allocator (PTA) have a stream; those of the graph engine (GE), which has a pool of its own, have
none. Of ``memory_record`` the rows PTA+GE are made up by the exporter, and of ``npu_module_mem`` APP is PyTorch's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct, field

from npuperf.base.errors import InputError
from npuperf.base.messages import Message, say, say_n
from npuperf.model.columns import ColumnNames, Kind
from npuperf.model.device_memory import Counters, DeviceMemory, MemoryBlocks, PlannedBlocks, Samples
from npuperf.model.groups import distinct
from npuperf.model.labels import I64, Labels, Mask, T
from npuperf.model.tasks import NO_TIME, UNKNOWN
from npuperf.readers.cells import LATEST_NS
from npuperf.readers.log import ReadLog
from npuperf.readers.table import read_table

if TYPE_CHECKING:  # files need nothing of it
    from npuperf.readers.sqlite import Database, Spelled

#: Which files tell of memory, by what they have; msprof's carry stamps and slices.
MEMORY_FILES: Final = re.compile(
    r"^(operator_memory|memory_record|npu_module_mem|npu_mem|static_op_mem)(?:_slice)?[\d_]*\.csv$"
)

_DEVICE: Final = (
    ColumnNames("device", Kind.INT, ("device id",)),
    ColumnNames("on", Kind.TEXT, ("device type", "device")),
)
_BLOCKS: Final = (
    ColumnNames("name", Kind.TEXT, ("name",)),
    ColumnNames("size", Kind.BYTES, ("size",)),
    ColumnNames("start", Kind.TIME, ("allocation time",)),
    ColumnNames("released", Kind.TIME, ("active release time",)),
    ColumnNames("freed", Kind.TIME, ("release time",)),
    ColumnNames("lasted", Kind.TIME, ("duration",)),
    ColumnNames("stream", Kind.INT, ("stream ptr",)),
    *_DEVICE,
)
#: The allocator's counters at both ends of each block, which memory_record has as well.
_TOLD: Final = (
    ColumnNames("allocated", Kind.BYTES, ("allocation total allocated",)),
    ColumnNames("reserved", Kind.BYTES, ("allocation total reserved",)),
    ColumnNames("active", Kind.BYTES, ("allocation total active",)),
    ColumnNames("freed_allocated", Kind.BYTES, ("release total allocated",)),
    ColumnNames("freed_reserved", Kind.BYTES, ("release total reserved",)),
    ColumnNames("freed_active", Kind.BYTES, ("release total active",)),
)
_RECORDS: Final = (
    ColumnNames("component", Kind.TEXT, ("component",)),
    ColumnNames("time", Kind.TIME, ("timestamp",)),
    ColumnNames("allocated", Kind.BYTES, ("total allocated",)),
    ColumnNames("reserved", Kind.BYTES, ("total reserved",)),
    ColumnNames("active", Kind.BYTES, ("total active",)),
    *_DEVICE,
)
_PROCESS: Final = (
    ColumnNames("component", Kind.TEXT, ("event",)),
    ColumnNames("time", Kind.TIME, ("timestamp",)),
    ColumnNames("reserved", Kind.BYTES, ("hbm",)),
    ColumnNames("ddr", Kind.BYTES, ("ddr",)),
    *_DEVICE,
)
_PLANNED: Final = (
    ColumnNames("name", Kind.TEXT, ("op name",)),
    ColumnNames("model", Kind.TEXT, ("model name",)),
    ColumnNames("graph", Kind.INT, ("graph id",)),
    ColumnNames("start", Kind.INT, ("node index start",)),
    ColumnNames("end", Kind.INT, ("node index end",)),
    ColumnNames("size", Kind.BYTES, ("size",)),
    *_DEVICE,
)

#: The same columns of the tables of a database, in ns and bytes.
_OP_MEMORY: Final[dict[str, Spelled]] = {
    "name": "name", "size": "size", "start": "allocationTime", "released": ("activeReleaseTime",),
    "freed": "releaseTime", "stream": "streamPtr", "device": "deviceId",
}  # fmt: skip
_TOLD_OF_OP_MEMORY: Final[dict[str, Spelled]] = {
    "allocated": "allocationTotalAllocated", "reserved": "allocationTotalReserved",
    "active": ("allocationTotalActive",), "freed_allocated": "releaseTotalAllocated",
    "freed_reserved": "releaseTotalReserved", "freed_active": ("releaseTotalActive",),
}  # fmt: skip
_MEMORY_RECORD: Final[dict[str, Spelled]] = {
    "component": "component", "time": "timestamp", "allocated": "totalAllocated", "reserved": "totalReserved",
    "active": ("totalActive",), "device": "deviceId",
}  # fmt: skip

#: Components of memory_record that are not read: half of its rows, and those of pools that have their own files.
_MADE_UP: Final = ("component", ("PTA+GE", "GE", "WORKSPACE"))
_NO_SIZE: Final = say("no usable size, or no time at which the block was allocated")
_NO_BYTES: Final = say("no usable time, or no number of bytes")
_NO_PLACE: Final = say("no usable size, or no place in its graph")
#: The end of a graph.
_LAST_NODE: Final = 4294967295
_ENGINE: Final = "cann::"


class _Rows(Struct):
    """What files or tables have of all devices, before it is told apart: columns by name, and texts by name."""

    numbers: dict[str, I64]
    texts: dict[str, Labels]
    device: I64
    lose: Callable[[int, Message], None]

    def __len__(self) -> int:
        return len(self.device)

    def where(self, mask: Mask) -> _Rows:
        """Return the rows where ``mask`` holds."""
        if mask.all():
            return self
        at = np.flatnonzero(mask)
        numbers = {name: column[at] for name, column in self.numbers.items()}
        return _Rows(numbers, {n: t.take(at) for n, t in self.texts.items()}, self.device[at], self.lose)

    def called(self, component: str) -> Mask:
        """Tell the rows of a component, whose case differs between exporters."""
        names = self.texts["component"]
        return names.flag([text.upper() == component for text in names.names])

    def of(self, component: str) -> _Rows:
        """Return the rows of a component."""
        return self.where(self.called(component))

    def usable(self, mask: Mask, reason: Message) -> _Rows:
        """Return the rows that can be used, and tell of the others."""
        self.lose(len(mask) - int(np.count_nonzero(mask)), reason)
        return self.where(mask)

    def by_device(self) -> Iterator[tuple[int | None, _Rows]]:
        """Yield the rows of each device; None: none is named."""
        for number in distinct(self.device).tolist():
            yield number if number >= 0 else None, self.where(self.device == number)


class MemoryTables(Struct):
    """What is found of the memory of several devices (None: no file names one), kind by kind."""

    blocks: dict[int | None, list[MemoryBlocks]] = field(default_factory=dict)
    other: dict[int | None, list[MemoryBlocks]] = field(default_factory=dict)
    counters: dict[int | None, list[Counters]] = field(default_factory=dict)
    told: dict[int | None, list[Counters]] = field(default_factory=dict)
    process: dict[int | None, list[Samples]] = field(default_factory=dict)
    modules: dict[int | None, list[Samples]] = field(default_factory=dict)
    planned: dict[int | None, list[PlannedBlocks]] = field(default_factory=dict)
    doubt: Message | None = None

    def missing(self, rows: int, where: str) -> None:
        """Doubt that all blocks are there, where rows of them could not be used."""
        if rows:
            self.doubt = say_n("{n} row of {table} could not be used", "{n} rows of {table} could not be used", rows,
                               table=where)  # fmt: skip

    def devices(self) -> dict[int | None, DeviceMemory]:
        """Return the memory of each device."""
        kinds = (self.blocks, self.other, self.counters, self.told, self.process, self.modules, self.planned)
        numbers = dict.fromkeys(number for kind in kinds for number in kind)
        return {number: self._of(number) for number in numbers}

    def _of(self, number: int | None) -> DeviceMemory:
        # without memory_record the counters are known at two of the three events of each block
        counters = self.counters.get(number) or self.told.get(number, [])
        return DeviceMemory(
            source="profiler",
            blocks=_in_order(MemoryBlocks, self.blocks.get(number, [])),
            counters=_in_order(Counters, counters),
            process=_in_order(Samples, self.process.get(number, [])),
            modules=_in_order(Samples, self.modules.get(number, [])),
            other=_in_order(MemoryBlocks, self.other.get(number, [])),
            planned=PlannedBlocks.concat(self.planned.get(number, [])),
            doubt=self.doubt,
        )

    # -- What a file or table has.

    def take_from(self, read: Callable[[MemoryTables, bool], None]) -> None:
        """Have blocks read into this, and the counters at their ends only where their device has no others yet."""
        read(self, not self.counters)
        if self.counters and self.blocks.keys() - self.counters.keys():
            again = MemoryTables()
            read(again, True)
            for key in again.told.keys() - self.counters.keys():
                self.told.setdefault(key, []).extend(again.told[key])

    def take_blocks(self, rows: _Rows, *, engine_alone: bool = False) -> None:
        """Take blocks with the allocator's counters at their two ends; of the graph engine's all are its own."""
        # a block without a beginning was there before the window: of its end the counters tell
        before = (rows.numbers["start"] == NO_TIME) & (rows.numbers["freed"] != NO_TIME)
        rows = rows.where(~before)
        rows = rows.usable((rows.numbers["size"] > 0) & _sane(rows.numbers["start"]), _NO_SIZE)
        # blocks of the graph engine have no stream; of releases that have no streams at all their names tell
        name = rows.texts["name"]
        engine = name.flag([engine_alone or text.startswith(_ENGINE) for text in name.names], engine_alone)
        if (rows.numbers["stream"] >= 0).any():
            engine |= rows.numbers["stream"] < 0
        self._add_blocks(rows.where(engine), self.other)
        self._add_blocks(rows.where(~engine), self.blocks)

    def _add_blocks(self, rows: _Rows, into: dict[int | None, list[MemoryBlocks]]) -> None:
        for key, mine in rows.by_device():
            columns, none = mine.numbers, np.broadcast_to(np.int64(UNKNOWN), len(mine))
            start, size = columns["start"], columns["size"]
            freed, released = (_or_never(columns[name], start) for name in ("freed", "released"))
            if (released == NO_TIME).all():  # releases that do not tell the two apart
                released = freed
            # Where no other stream uses a block, that it is free for others is told first, and its bytes leave both
            # counters then.
            early = (freed == NO_TIME) | ((released != NO_TIME) & (released < freed))
            first, nowhere = np.where(early, released, freed), Labels.missing(len(mine))
            blocks = MemoryBlocks(start, first, released, size, columns["stream"], none, mine.texts["name"], nowhere)
            into.setdefault(key, []).append(blocks)
            told = into is self.blocks and "allocated" in columns
            for time, prefix in (("start", ""), ("freed", "freed_")) if told else ():
                there = (columns[time] != NO_TIME) & (columns[f"{prefix}allocated"] >= 0)
                counted = (columns[f"{prefix}{name}"][there] for name in ("allocated", "active", "reserved"))
                self.told.setdefault(key, []).append(Counters(columns[time][there], *counted))

    def take_records(self, rows: _Rows) -> None:
        """Take the counters of PyTorch's allocator, and what the process has."""
        mine = rows.of("PTA")
        mine = mine.usable(_sane(mine.numbers["time"]) & (mine.numbers["allocated"] >= 0), _NO_BYTES)
        for key, own in mine.by_device():
            told = (own.numbers[name] for name in ("time", "allocated", "active", "reserved"))
            self.counters.setdefault(key, []).append(Counters(*told))
        _sample(rows.of("APP"), self.process)

    def take_process(self, rows: _Rows) -> None:
        """Take what msprof sampled of the process: in the device's HBM, or in DDR where that is what it has."""
        mine, ddr = rows.of("APP"), rows.of("APP").numbers["ddr"]
        mine.numbers["reserved"] = np.where(mine.numbers["reserved"] > 0, mine.numbers["reserved"], ddr)
        _sample(mine, self.process)

    def take_modules(self, rows: _Rows) -> None:
        """Take what modules of CANN have, but for PyTorch's own; of -1 only releases were seen, so it is not known."""
        others = ~rows.called("APP") & rows.texts["component"].known() & (rows.numbers["reserved"] >= 0)
        _sample(rows.where(others), self.modules)

    def take_planned(self, rows: _Rows) -> None:
        """Take what was planned for graphs; a model's name is 0 where a graph has none."""
        number = rows.numbers
        number["end"] = np.where(number["end"] < 0, _LAST_NODE, number["end"])  # which is how the end is written
        rows = rows.usable(
            (number["size"] > 0) & (number["start"] >= 0) & (number["end"] >= number["start"]), _NO_PLACE
        )
        for key, own in rows.by_device():
            graph, start, end, size = (own.numbers[name] for name in ("graph", "start", "end", "size"))
            planned = PlannedBlocks(graph, start, end, size, own.texts["name"], own.texts["model"])
            self.planned.setdefault(key, []).append(planned)


def _sample(rows: _Rows, into: dict[int | None, list[Samples]]) -> None:
    rows = rows.usable(_sane(rows.numbers["time"]) & (rows.numbers["reserved"] >= 0), _NO_BYTES)
    for key, own in rows.by_device():
        into.setdefault(key, []).append(Samples(own.numbers["time"], own.numbers["reserved"], own.texts["component"]))


def _in_order(kind: type[T], parts: list[T]) -> T:
    """Put tables together, ordered by their first column; rows of one time stay as they came."""
    whole = kind.concat(parts)
    time = getattr(whole, whole.__struct_fields__[0])
    return whole if (time[1:] >= time[:-1]).all() else whole.take(np.argsort(time, kind="stable"))


def _sane(time: I64) -> Mask:
    return (time > 0) & (time < LATEST_NS)


def _or_never(end: I64, start: I64) -> I64:
    """Return ends of blocks; NO_TIME where there is none, or none that can be."""
    return np.where(_sane(end) & (end >= start), end, NO_TIME)


# -- Files.


def read_memory(
    paths: Iterable[Path], log: ReadLog, attempt: Callable[[], AbstractContextManager[None]]
) -> MemoryTables:
    """Read the memory files of a collection; one that cannot be read leaves the others, by ``attempt``."""
    found = MemoryTables()
    for path in sorted(paths, key=lambda path: not path.name.startswith("memory_record")):  # what it has is read once
        with attempt():
            _read_file(path, found, log)
            log.use(path)
    return found


def _read_file(path: Path, found: MemoryTables, log: ReadLog) -> None:
    kind = MEMORY_FILES.match(path.name)
    match kind[1] if kind else "":
        case "operator_memory":
            before = log.rows_lost
            found.take_from(lambda into, told: _read_blocks(path, into, log if into is found else ReadLog(), told=told))
            found.missing(log.rows_lost - before, path.name)
        case "memory_record":
            found.take_records(_rows(path, _RECORDS, ("component", "time", "reserved"), log, needless=_MADE_UP))
        case "npu_module_mem":
            found.take_modules(_rows(path, _RECORDS, ("component", "time", "reserved"), log))
        case "npu_mem":
            found.take_process(_rows(path, _PROCESS, ("component", "time", "reserved"), log))
        case "static_op_mem":
            found.take_planned(_rows(path, _PLANNED, ("name", "start", "end", "size"), log))
        case _:
            raise InputError(say("{path}: not a file of memory", path=str(path)))


def _read_blocks(path: Path, found: MemoryTables, log: ReadLog, *, told: bool) -> None:
    """Read blocks, with the allocator's counters where these are ``told`` nowhere else."""
    rows = _rows(path, (*_BLOCKS, *_TOLD) if told else _BLOCKS, ("name", "size", "start"), log)
    numbers = rows.numbers
    lasted = numbers.pop("lasted")
    ended = (numbers["freed"] == NO_TIME) & (lasted != NO_TIME) & (numbers["start"] != NO_TIME)
    if ended.any():
        numbers["freed"] = np.where(ended, numbers["start"] + lasted, numbers["freed"])
    found.take_blocks(rows, engine_alone=path.name != "operator_memory.csv")  # msprof writes no other


def _rows(
    path: Path,
    columns: tuple[ColumnNames, ...],
    required: tuple[str, ...],
    log: ReadLog,
    needless: tuple[str, Sequence[str]] | None = None,
) -> _Rows:
    table = read_table(path, columns, required, log, needless=needless)
    numbers = {**table.times, **table.ints}
    device, on = numbers.pop("device"), table.texts.pop("on")
    named = [int(found[1]) if (found := re.fullmatch(r"(?:NPU:)?(\d{1,9})", name)) else UNKNOWN for name in on.names]
    device = np.where(device >= 0, device, np.array([*named, UNKNOWN], np.int64)[on.codes])
    return _Rows(numbers, table.texts, device, lambda n, reason: log.lose(path, n, reason) if n else None)


# -- Tables of a database.


def _blocks_of(db: Database, found: MemoryTables, *, told: bool) -> None:
    """Read blocks, with the allocator's counters where these are ``told`` nowhere else."""
    columns = db.columns("OP_MEMORY", {**_OP_MEMORY, **(_TOLD_OF_OP_MEMORY if told else {})})
    for name in ("start", "freed", "released"):
        columns[name] = np.where(columns[name] < 0, NO_TIME, columns[name])
    names, device = db.text(columns.pop("name")), columns.pop("device")
    found.take_blocks(_Rows(columns, {"name": names}, device, db.lose))


def memory_of(db: Database) -> MemoryTables:
    """Read what a database has of memory."""
    found = MemoryTables()
    if db.has("MEMORY_RECORD"):
        odd = [f"component <> {number}" for number, text in db.strings.items() if text in _MADE_UP[1]]
        but = f"WHERE component IS NULL OR ({' AND '.join(odd)})" if odd else ""  # NOT IN takes twice as long
        columns = db.columns("MEMORY_RECORD", _MEMORY_RECORD, but if "component" in db.has("MEMORY_RECORD") else "")
        names, device = db.text(columns.pop("component")), columns.pop("device")
        found.take_records(_Rows(columns, {"component": names}, device, db.lose))
    if db.has("OP_MEMORY"):
        before = db.log.rows_lost
        found.take_from(lambda into, told: _blocks_of(db, into, told=told))
        found.missing(db.log.rows_lost - before, "OP_MEMORY")
    if db.has("NPU_MODULE_MEM"):
        columns = db.columns("NPU_MODULE_MEM", {"module": "moduleId", "time": "timestampNs",
                                                "reserved": "totalReserved", "device": "deviceId"})  # fmt: skip
        modules, number = db.names("ENUM_MODULE"), columns.pop("module")
        names = Labels.of([modules.get(n) for n in range(int(number.max(initial=-1)) + 1)] if len(number) else [])
        found.take_modules(_Rows(columns, {"component": names.take(number)}, columns.pop("device"), db.lose))
    if db.has("NPU_MEM"):
        columns = db.columns("NPU_MEM", {"component": "type", "ddr": "ddr", "reserved": "hbm", "time": "timestampNs",
                                         "device": "deviceId"})  # fmt: skip
        names = db.text(columns.pop("component"))
        found.take_process(_Rows(columns, {"component": names}, columns.pop("device"), db.lose))
    return found
