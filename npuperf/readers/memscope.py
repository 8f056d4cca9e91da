"""Dumps of msmemscope (formerly msleaks), text and database, to each device's memory.

It hooks allocators from outside. A row is an event; what allocates and what frees have the same ``allocation_id``, and
rows stand in the order in which blocks end. PTA is PyTorch's allocator, whose pool (``total``) and blocks in use
(``used``) are told after each event; HAL is what the process takes of the device. When another stream is done with a
block is not told. Accesses are those of torch operators and of ATB's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from npuperf.base.errors import InputError
from npuperf.base.messages import say
from npuperf.model.columns import ColumnNames, Kind
from npuperf.model.device_memory import Accesses, Counters, DeviceMemory, MemoryBlocks, OutOfMemory, Samples
from npuperf.model.groups import sorted_rows
from npuperf.model.host import user_frame
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import NO_TIME, UNKNOWN
from npuperf.readers.cells import LATEST_NS
from npuperf.readers.log import ReadLog
from npuperf.readers.sqlite import open_database, query_of
from npuperf.readers.table import read_table

_COLUMNS: Final = (
    ColumnNames("event", Kind.TEXT, ("event",)),
    ColumnNames("kind", Kind.TEXT, ("event type",)),
    ColumnNames("name", Kind.TEXT, ("name",)),
    ColumnNames("time", Kind.INT, ("timestamp",)),
    ColumnNames("device", Kind.TEXT, ("device id", "device")),
    ColumnNames("address", Kind.TEXT, ("ptr",)),
    ColumnNames("told", Kind.TEXT, ("attr",)),
    ColumnNames("stack", Kind.TEXT, ("call stack(python)", "call stack")),
)
_REQUIRED: Final = ("event", "kind", "time", "told")
#: The same columns of the table of a database.
_SPELLED: Final = ("Event", "Event Type", "Name", "Timestamp(ns)", "Device Id", "Ptr", "Attr", "Call Stack(Python)")
_TEXTS: Final = ("event", "kind", "name", "device", "address", "told", "stack")
#: Numbers among the attributes, ``size:512`` in text and ``"size":"512"`` in a database.
_NUMBERS: Final = {
    name: re.compile(rf'(?<![\w])"?{name}"?\s*:\s*"?(\d{{1,18}})(?!\d)')
    for name in ("allocation_id", "size", "total", "used", "req_size", "free")
}
_OF_PYTORCH: Final = "PTA"
_OF_PROCESS: Final = "HAL"
#: Other allocators, and what their blocks are called.
_OTHERS: Final = {"PTA_WORKSPACE": "workspace", "ATB": "ATB"}
_NO_ROW: Final = say("events of memory without a time or a size")


class _Events:
    """Rows of a dump, in order of time."""

    def __init__(self, time: I64, texts: dict[str, Labels]) -> None:
        usable = np.flatnonzero((time > 0) & (time < LATEST_NS))
        order = usable[sorted_rows(time[usable])]
        self.time = time[order]
        self.texts = {name: column.take(order) for name, column in texts.items()}
        self.lost = len(time) - len(usable)

    def is_(self, name: str, *values: str) -> Mask:
        """Tell the rows in which a text is one of these."""
        column = self.texts[name]
        return column.flag([text.strip().upper() in values for text in column.names])

    def number(self, name: str) -> I64:
        """Return a number of the attributes, -1 where there is none."""
        told = self.texts["told"]
        found = (_NUMBERS[name].search(text) for text in told.names)
        values = np.array([*(int(one[1]) if one else UNKNOWN for one in found), UNKNOWN], np.int64)
        return values[told.codes]

    def devices(self) -> I64:
        """Return the device of each row, -1 for those of none, as of the host."""
        column = self.texts["device"]
        values = [int(text) if re.fullmatch(r"\d{1,9}", text.strip()) else UNKNOWN for text in column.names]
        return np.array([*values, UNKNOWN], np.int64)[column.codes]


def read_memscope(path: Path, log: ReadLog) -> dict[int | None, DeviceMemory]:
    """Read a dump: the memory of each device that has any, by its number. Raises InputError where it is none."""
    events = _of_database(path, log) if path.suffix == ".db" else _of_text(path, log)
    numbers = {name: events.number(name) for name in _NUMBERS}
    moves = events.is_("event", "MALLOC", "FREE")
    odd = int(np.count_nonzero(moves & (numbers["size"] < 0))) + events.lost
    if odd:
        log.lose(path, odd, _NO_ROW)
    device, found = events.devices(), dict[int | None, DeviceMemory]()
    for number in np.unique(device[moves & (device >= 0)]).tolist():
        found[number] = _device(events, numbers, (device == number) & (~moves | (numbers["size"] >= 0)))
    if not found:
        raise InputError(say("{path}: no event of a device's memory in it", path=str(path)))
    return found


def _device(events: _Events, numbers: dict[str, I64], mine: Mask) -> DeviceMemory:
    """Put together the memory of a device from its rows."""
    allocates, frees = events.is_("event", "MALLOC"), events.is_("event", "FREE")
    pytorch = np.flatnonzero(mine & (allocates | frees) & events.is_("kind", _OF_PYTORCH))
    counted = pytorch[(numbers["used"][pytorch] >= 0) & (numbers["total"][pytorch] >= 0)]
    used, total = numbers["used"][counted], numbers["total"][counted]
    process = np.flatnonzero(mine & (allocates | frees) & events.is_("kind", _OF_PROCESS))
    taken = np.cumsum(np.where(allocates[process], numbers["size"][process], -numbers["size"][process]))
    others = [
        _blocks(events, numbers, allocates, np.flatnonzero(mine & (allocates | frees) & events.is_("kind", kind)), name)
        for kind, name in _OTHERS.items()
    ]
    whole = MemoryBlocks.concat(others)
    blocks = _blocks(events, numbers, allocates, pytorch, None)
    asked = np.flatnonzero(mine & events.is_("event", "OOM_DETAIL") & (numbers["req_size"] >= 0))
    totals = numbers["total"][mine & events.is_("event", "SYSTEM", "SNAPSHOT")]
    return DeviceMemory(
        source="memscope",
        blocks=blocks,
        counters=Counters(events.time[counted], used, np.full(len(counted), UNKNOWN, np.int64), total),
        process=Samples(events.time[process], taken, Labels(np.zeros(len(process), np.int32), ("HAL",))),
        other=whole.take(np.argsort(whole.start, kind="stable")),
        accesses=_accesses(events, numbers, pytorch[allocates[pytorch]], np.flatnonzero(mine), blocks),
        failures=tuple(
            OutOfMemory(time=int(events.time[at]), asked=int(numbers["req_size"][at]), free=None) for at in asked
        ),
        hbm=int(totals.max()) if len(totals) and totals.max() > 0 else None,
    )


def _blocks(events: _Events, numbers: dict[str, I64], allocates: Mask, rows: I64, name: str | None) -> MemoryBlocks:
    """Pair what allocates with what frees: the next event of the same block, which its id tells, else its address."""
    key = _keys(events, numbers, rows)
    order = rows[sorted_rows(key, np.arange(len(rows)))]
    keys = key[np.searchsorted(rows, order)]
    begins = allocates[order]
    ended = np.append(begins[:-1] & ~begins[1:] & (keys[1:] == keys[:-1]), False)
    freed = np.where(ended, np.append(events.time[order[1:]], NO_TIME), NO_TIME)[begins]
    block = order[begins]
    back = np.argsort(block, kind="stable")
    block, freed = block[back], freed[back]
    stack = events.texts["stack"]
    lines = Labels.of([user_frame(text.strip('"')) for text in stack.names]).take(stack.codes[block].astype(np.int64))
    names = Labels.missing(len(block)) if name is None else Labels(np.zeros(len(block), np.int32), (name,))
    addresses = [int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,15}", text) else UNKNOWN
                 for text in events.texts["address"].names]  # fmt: skip
    none = np.full(len(block), UNKNOWN, np.int64)
    return MemoryBlocks(
        start=events.time[block],
        freed=freed,
        released=freed,
        size=numbers["size"][block],
        stream=none,
        address=np.array([*addresses, UNKNOWN], np.int64)[events.texts["address"].codes[block]],
        name=names,
        where=lines,
    )


def _keys(events: _Events, numbers: dict[str, I64], rows: I64) -> I64:
    """Return what rows of one block have in common: its id, else its address."""
    ids, address = numbers["allocation_id"][rows], events.texts["address"].codes[rows].astype(np.int64)
    return np.where(ids >= 0, ids, -2 - address)


def _accesses(events: _Events, numbers: dict[str, I64], begins: I64, mine: I64, blocks: MemoryBlocks) -> Accesses:
    """Find the block of each access: the latest one of its id, or address, that lives; ``begins``: rows of blocks."""
    rows = mine[events.is_("event", "ACCESS")[mine]]
    both = np.concatenate((begins, rows))
    key = _keys(events, numbers, both)
    order = np.lexsort((both, key))
    used = order >= len(begins)
    latest = np.maximum.accumulate(np.where(used, -1, np.arange(len(order))))[used]  # of all keys before, too
    at, block = order[used], order[latest]
    known = (latest >= 0) & (key[at] == key[block])
    at, block = both[at[known]], block[known]
    lives = (blocks.freed[block] == NO_TIME) | (events.time[at] <= blocks.freed[block])
    at, block = at[lives], block[lives]
    back = np.argsort(at, kind="stable")
    at = at[back]
    return Accesses(events.time[at], block[back], events.texts["name"].take(at))


def _of_text(path: Path, log: ReadLog) -> _Events:
    table = read_table(path, _COLUMNS, _REQUIRED, log)
    return _Events(table.ints["time"], {name: table.texts[name] for name in _TEXTS})


def _of_database(path: Path, log: ReadLog) -> _Events:
    with open_database(path, log) as db:
        tables = [str(name) for (name,) in db.file.connection.execute("SELECT name FROM sqlite_master")]
        table = next((t for t in tables if "Event Type" in db.has(t) and "Attr" in db.has(t)), None)
        if table is None:
            raise InputError(say("{path}: a database without a table of msmemscope's events", path=str(path)))
        there = [column for column in _SPELLED if column in db.has(table)]
        rows: list[tuple[Any, ...]] = [row for part in db.rows(table, query_of(table, there)) for row in part]
    cells = dict(zip(there, zip(*rows, strict=True), strict=True)) if rows else {}
    time = [t if type(t) is int and 0 < t < LATEST_NS else 0 for t in cells.get("Timestamp(ns)", ())]
    spelled = dict(zip(("event", "kind", "name", "time", "device", "address", "told", "stack"), _SPELLED, strict=True))
    texts = {
        name: Labels.of([None if cell is None else str(cell) for cell in cells.get(spelled[name], [None] * len(rows))])
        for name in _TEXTS
    }
    return _Events(np.array(time, np.int64), texts)
