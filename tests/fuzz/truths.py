"""Damage whose consequence is known beforehand: how many tasks are gone, and how many rows must be told as lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from mutators import INVALID_TEXT, Db, Raw, columns, json_bytes, parse_table, table_bytes, tables, write_cell


@dataclass(frozen=True)
class Truth:
    """``gone``: tasks that cannot be used any more; ``told``: rows told as lost, None where a word is enough.

    ``table``: of a database, the one that they are of; what belongs to them in others may be told, too.
    """

    what: str
    gone: int
    told: int | None
    table: str | None = None


Spoiler = Callable[[Random, Any], Truth | None]

_NO_START = ("", "N/A", "soon", "nan", "inf", "1e300", "-1e300", "9" * 5000, "1.000", "-5")
_NO_LENGTH = ("", "N/A", "soon", "nan", "inf", "1e300", "-1e300", "9" * 5000, "-1")


def some(rng: Random, count: int) -> list[int]:
    """Choose some of so many, never more than a tenth: the others show what is usual (docs/decisions.md)."""
    return rng.sample(range(count), rng.randint(1, max(1, count // 10)))


def spoil_table(rng: Random, path: Path) -> Truth:
    """Take start or duration from some kernels."""
    rows = parse_table(path.read_bytes())
    title, values = rng.choice((("Start Time", _NO_START), ("Duration", _NO_LENGTH)))
    at = next(i for i, name in enumerate(rows[0]) if title in name)
    chosen, value = some(rng, len(rows) - 1), rng.choice(values)
    for row in chosen:
        rows[1 + row][at] = value
    path.write_bytes(table_bytes(rows))
    return Truth(f"{title} = {value[:20]!r}", len(chosen), len(chosen))


def spoil_trace(rng: Random, path: Path) -> Truth:
    """Take start or duration from some tasks."""
    events = json.loads(path.read_bytes())
    tasks = [e for e in events if e["ph"] == "X" and e["pid"] in (3, 4)]
    key, value = (
        rng.choice(("ts", "dur")),
        rng.choice((None, "soon", [], {"a": 1}, Raw("1e999"), 1e300, Raw("9" * 5000), Raw("NaN"), True)),
    )
    chosen = some(rng, len(tasks))
    for i in chosen:
        tasks[i][key] = value
    path.write_bytes(json_bytes(events))
    return Truth(f"{key} = {str(value)[:20]}", len(chosen), len(chosen))


_NO_TIME = (None, "", "soon", b"\xff\x00", -5, -(2**63), 2**63 - 1, 1e300, -1e300, float("inf"), "9" * 5000)
#: Tables with times, and whether their rows are tasks.
_TIMED = {"TASK": True, "COMMUNICATION_OP": True, "CANN_API": False, "PYTORCH_API": False}
_NEEDLESS = (
    ("TASK", "streamId"),
    ("TASK", "connectionId"),
    ("COMMUNICATION_OP", "connectionId"),
    ("CANN_API", "connectionId"),
)


def spoil_times(rng: Random, db: Db) -> Truth:
    """Take the start or the end from some rows of one table."""
    table = rng.choice([name for name in _TIMED if name in tables(db)])
    ids = [number for (number,) in db.execute(f"SELECT rowid FROM {table}")]
    column, value = rng.choice(("startNs", "endNs")), rng.choice(_NO_TIME)
    if column == "endNs" and table != "TASK" and table != "COMMUNICATION_OP" and value is None:
        value = -5  # calls without an end are those that still ran
    chosen = some(rng, len(ids))
    for i in chosen:
        write_cell(db, table, column, f"WHERE rowid = {ids[i]}", value)
    return Truth(f"{table}.{column} = {str(value)[:20]!r}", len(chosen) if _TIMED[table] else 0, len(chosen), table)


def spoil_names(rng: Random, db: Db) -> Truth:
    """Make one text no text: everything else is as it was."""
    at = rng.choice([number for (number,) in db.execute("SELECT rowid FROM STRING_IDS")])
    write_cell(db, "STRING_IDS", "value", f"WHERE rowid = {at}", INVALID_TEXT)
    return Truth("a text that is not UTF-8", 0, None)


def spoil_needless(rng: Random, db: Db) -> Truth:
    """Leave out a column without which tasks are tasks still."""
    table, column = rng.choice([pair for pair in _NEEDLESS if pair[1] in columns(db, pair[0])])
    db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    return Truth(f"no {table}.{column}", 0, None)


def spoil_operators(rng: Random, db: Db) -> Truth:
    """Leave out what tells compute from the rest."""
    db.execute("DROP TABLE COMPUTE_TASK_INFO")
    return Truth("no COMPUTE_TASK_INFO", 0, None)


FILES: dict[str, tuple[Spoiler, ...]] = {
    "bare_table": (spoil_table,), "op_summary": (spoil_table,),
    "bare_trace": (spoil_trace,), "first_level": (spoil_trace,),
}  # fmt: skip
DATABASES: dict[str, tuple[Spoiler, ...]] = {
    "torch_db": (spoil_times, spoil_times, spoil_times, spoil_names, spoil_needless, spoil_operators),
    "msprof_db": (spoil_times, spoil_times, spoil_times, spoil_names, spoil_needless, spoil_operators),
}
