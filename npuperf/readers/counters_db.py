"""Hardware counters of a database, one row per task and metric, to one column per metric."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Final

import numpy as np
from msgspec import Struct, field

from npuperf.messages import say
from npuperf.model.columns import pmu_name
from npuperf.model.groups import by_code, distinct, numbered
from npuperf.model.labels import F32, I64
from npuperf.readers.sqlite import Database, query_of
from npuperf.readers.sqlite_cells import NotInBulkError, numbers

_TABLE: Final = "TASK_PMU_INFO"
_KEYS: Final = ("name", "globalTaskId")


def has_counters(db: Database) -> bool:
    """Tell whether there are counters, and what they can be joined with."""
    return db.offers(_TABLE, "name", "globalTaskId", "value") and "globalTaskId" in db.has("TASK")


class Counted(Struct):
    """Counters at the tasks ``ids``, in order: by metric its name and values; numbers of rows that are of no use."""

    ids: I64
    columns: dict[int, tuple[str, F32]] = field(default_factory=dict)
    nameless: int = 0
    elsewhere: int = 0
    unreadable: int = 0


def counters_of(db: Database, tasks: I64, beside: Future[Counted] | None) -> dict[str, F32]:
    """Turn the long form (one row per task and metric) into one column per metric. ``beside``: it, being read."""
    if beside is None:
        return {}
    try:
        counted = beside.result()
    except NotInBulkError:
        ids = distinct(db.columns("TASK", {"id": "globalTaskId"})["id"], consume=True)
        rows = db.rows(_TABLE, query_of(_TABLE, _KEYS, number="value"))
        counted = _long_to_wide(db, map(numbers, rows), ids)
    db.lose(counted.nameless, say("table TASK_PMU_INFO: it is not known which counter, or which task, these are of"))
    db.lose(counted.elsewhere, say("table TASK_PMU_INFO: counters of tasks that are not in TASK"))
    db.lose(counted.unreadable, say("table TASK_PMU_INFO: counters without a readable value"))
    at = _places(tasks, counted.ids)
    found = {}
    for metric in tuple(counted.columns):
        name, column = counted.columns.pop(metric)
        found[name] = np.append(column, np.float32(np.nan))[at]
    return found


def counters_in_bulk(db: Database) -> Counted:
    """Return what :func:`_long_to_wide` does, of all tasks. Raises NotInBulkError."""
    (ids,) = db.integers_in_bulk("TASK", ["globalTaskId"])
    return _long_to_wide(db, db.numbers_in_bulk(_TABLE, _KEYS, "value"), distinct(ids, consume=True))


def _long_to_wide(db: Database, batches: Iterable[tuple[I64, I64, F32]], ids: I64) -> Counted:
    """Return counters at the tasks ``ids``, in order; batches: metrics, tasks, values."""
    ids = ids[ids >= 0]
    counted = Counted(ids)
    for metric, task, value in batches:
        named = (metric >= 0) & (task >= 0)
        place = _places(task, ids)
        readable = ~np.isinf(value)
        counted.nameless += len(named) - int(np.count_nonzero(named))
        counted.elsewhere += int(np.count_nonzero(named & (place < 0)))
        counted.unreadable += int(np.count_nonzero(named & (place >= 0) & ~readable))
        metrics, code = numbered(metric)
        order = by_code(code)
        place, value = place.take(order), value.take(order)
        usable = (place >= 0) & np.isfinite(value)
        ends = np.cumsum(np.bincount(code, minlength=len(metrics))).tolist()
        for number, begin, end in zip(metrics.tolist(), [0, *ends], ends, strict=False):
            text = db.strings.get(number)
            if text is None and number >= 0:
                counted.nameless += int(np.count_nonzero(task[order[begin:end]] >= 0))
            name = pmu_name(text) if text is not None else None
            if name is None:
                continue
            if number not in counted.columns:
                counted.columns[number] = name, np.full(len(ids), np.nan, np.float32)
            mine = slice(begin, end)
            _put_first(counted.columns[number][1], place[mine][usable[mine]], value[mine][usable[mine]])
    return counted


def _put_first(column: F32, places: I64, values: F32) -> None:
    """Put values at their places, unless there is one already; of several the first."""
    free = np.isnan(column.take(places))
    if not free.all():
        places, values = places[free], values[free]
    column[places[::-1]] = values[::-1]  # the last that is written stays


def _places(keys: I64, ordered: I64) -> I64:
    """Find keys in a sorted table, -1 where absent; neighbours that are equal are looked up once."""
    if not len(keys) or not len(ordered):
        return np.full(len(keys), -1, np.int64)
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    at = np.minimum(np.searchsorted(ordered, keys[first]), len(ordered) - 1)
    at[ordered[at] != keys[first]] = -1
    return np.repeat(at, np.diff(np.append(first, len(keys))))
