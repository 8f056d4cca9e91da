"""The exporter's sums in analysis.db and communication_analyzer.db: the tables CommAnalyzer…."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from npuperf.messages import say
from npuperf.model.communication import Bandwidth, Communication, LinkUse, VendorTimes
from npuperf.model.labels import I64, Labels
from npuperf.readers.comm_groups import group_hash
from npuperf.readers.comm_json import step_number
from npuperf.readers.comm_matrix import link_use, matrix_row
from npuperf.readers.comm_names import operations
from npuperf.readers.sqlite import Database
from npuperf.units import NS_PER_MS, NS_PER_US

_BYTES_PER_MB: Final = 1_000_000
_MOST: Final = 1e12
#: What the exporter calls the sums of all operations.
_TOTAL: Final = "Total Op Info"
_LATEST_US: Final = 4e15


def read_sums(db: Database) -> Communication:
    """Read the exporter's sums from analysis.db: the tables CommAnalyzerTime, …Bandwidth and …Matrix."""
    return replace(_sums_of_operations(db), links=_matrix(db))


def _rows(db: Database, table: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    has = db.has(table)
    if not has:
        return []
    query = ", ".join(c if c in has else "NULL" for c in columns)
    return [row for batch in db.rows(table, f'SELECT {query} FROM "{table}"') for row in batch]


#: How exporters write that there is no number.
_NOTHING: Final = (None, "", "N/A")
_PARTS: Final = ("transit_time", "wait_time", "synchronization_time", "idle_time")


def _sums_of_operations(db: Database) -> Communication:
    table = "CommAnalyzerTime"
    elapse = "elapse_time" if "elapse_time" in db.has(table) else "elapsed_time"
    key = ("hccl_op_name", "group_name", "step")
    rows = [r for r in _rows(db, table, (*key, "type", "start_timestamp", elapse, *_PARTS)) if r[0] != _TOTAL]
    if not rows:
        return Communication()
    name, group, step, kind, *times = zip(*rows, strict=True)
    start, length = _numbers(times[0], NS_PER_US, _LATEST_US), _numbers(times[1], NS_PER_MS, _MOST)
    split = [_told(db, table, *part, NS_PER_MS) for part in zip(_PARTS, times[2:], strict=True)]
    known = (start > 0) & (length >= 0)
    lost = int(np.count_nonzero(~known))
    if lost:
        db.log.lose(db.path, lost, say("operations without a usable start or length"))
    ops = operations(
        Labels.of([_text(n) for n in name]),
        np.where(known, start, -1),
        np.where(known, start + length, -1),
        group=Labels.of([group_hash(g) if (g := _text(v)) else None for v in group]),
        step=np.array([step_number(str(s)) for s in step], np.int64),
        p2p=np.array([k == "p2p" for k in kind], np.bool_),
    )
    places = {key: i for i, key in enumerate(zip(name, group, step, strict=True))}
    recorded = np.flatnonzero(np.any(np.array(split) >= 0, axis=0))
    vendor = VendorTimes(recorded, *(part[recorded] for part in split))
    return Communication(operations=ops, bandwidth=_packets(db, places), vendor=vendor)


def _packets(db: Database, places: dict[tuple[Any, ...], int]) -> Bandwidth:
    """Read a row per packet size, or one of an operation whose packets are not recorded."""
    table = "CommAnalyzerBandwidth"
    key, units = ("hccl_op_name", "group_name", "step", "transport_type"), (_BYTES_PER_MB, NS_PER_MS) * 2
    columns = ("transit_size", "transit_time", "package_size", "total_duration", "count")
    every = [r for r in _rows(db, table, (*key, *columns)) if r[0] != _TOTAL]
    rows = [(places[r[:3]], *r[3:]) for r in every if r[:3] in places]
    db.lose(len(every) - len(rows), say("table {table}: of operations that are not listed", table=table))
    if not rows:
        return Bandwidth.empty()
    op, transport, *amounts = zip(*rows, strict=True)
    found = (_told(db, table, *part) for part in zip(columns, amounts, (*units, 1), strict=True))
    size, ns, packet, packet_ns, count = found
    at, names = np.array(op, np.int64), Labels.of([_text(t) for t in transport])
    split = (packet > 0) & (count > 0) & (packet_ns >= 0)
    used = split | (size > 0)
    sdma = names.flag([n == "SDMA" for n in names.names])
    used &= ~sdma | ~np.isin(at, at[used & ~sdma])
    db.lose(~used | names.known(), say("table {table}: over a link that is not named", table=table))
    keep = np.flatnonzero(used & names.known())
    split = split[keep]
    return Bandwidth(
        at[keep],
        names.take(keep).compact(),
        np.where(split, packet[keep] * count[keep], size[keep]),
        np.where(split, packet_ns[keep], np.maximum(ns[keep], 0)),
        np.where(split, packet[keep], -1),
        np.where(split, count[keep], -1),
    )


def _matrix(db: Database) -> LinkUse:
    columns = ("hccl_op_name", "group_name", "step", "src_rank", "dst_rank", "transport_type", "transit_size",
               "transit_time", "op_name")  # fmt: skip
    found = []
    lost = 0
    for name, group, step, source, target, transport, size, ns, op in _rows(db, "CommAnalyzerMatrix", columns):
        key = f"{name}@{group}" if group and "@" not in str(name) else str(name)
        for row in matrix_row(key, str(step), (source, target), transport, (size, ns), op):
            if row is None:
                lost += 1
            else:
                found.append(row)
    if lost:
        db.log.lose(db.path, lost, say("links without usable numbers"))
    return link_use(found)


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and value not in _NOTHING else None


def _told(db: Database, table: str, column: str, values: tuple[Any, ...], unit: int) -> I64:
    """Return numbers as :func:`_numbers` does; tell of cells that hold something else."""
    found = _numbers(values, unit, _MOST)
    db.unreadable(table, column, sum(values[i] not in _NOTHING for i in np.flatnonzero(found < 0).tolist()))
    return found


def _numbers(values: tuple[Any, ...], unit: int, most: float) -> I64:
    """Return numbers in our unit, -1 for what is none. Times keep what their text has, as floats do not."""
    return np.array([amount(v, unit, most) for v in values], np.int64)


def amount(value: object, unit: int, most: float) -> int:
    """Return a number in our unit, rounded; -1 for what is none, below zero or above ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return -1
    try:
        found = Decimal(str(value))
        return round(found * unit) if 0 <= found <= Decimal(most) else -1
    except (InvalidOperation, ValueError):  # no number, or NaN
        return -1
