"""SQLite exports (ascend_pytorch_profiler*.db, msprof_*.db) to the same model as the text files.

Nearly every text is an id into STRING_IDS. A damaged database gives what can be read of each table.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from npuperf.errors import InputError
from npuperf.model.columns import pmu_name
from npuperf.model.device import HostSteps, ReadLog, VendorStep
from npuperf.model.host import HostOps, Spans
from npuperf.model.labels import F32, I64, Labels
from npuperf.model.tasks import NO_TIME, RUNTIME_CORES, UNKNOWN, Tasks, Work, work_of_rows, work_of_tasks
from npuperf.readers.join import match
from npuperf.readers.timeline import Timeline
from npuperf.units import NS_PER_US

_BATCH: Final = 100_000
#: Of SQLite's file format: the header's size, and where in it the number of pages stands.
_HEADER_BYTES, _PAGE_COUNT = 100, 28
_NODE, _TORCH_OP, _PYTHON_FRAME = 10000, 50001, 50003
#: CANN_API.type → the layer's name in timelines.
_LAYERS: Final = {5000: "Runtime", 5500: "Hccl", 10000: "Node", 15000: "Model", 20000: "AscendCL"}
_INVALID: Final = (4294967295, -1)
_TID_MASK: Final = 0xFFFFFFFF
#: Which rows of PYTORCH_API are operators, in the order that Spans wants.
_OPS: Final = f"WHERE type = {_TORCH_OP} OR type IS NULL ORDER BY globalTid & {_TID_MASK}, CAST(startNs AS INTEGER)"


@dataclass(slots=True)
class _Database:
    """An open database with its string table."""

    path: Path
    connection: sqlite3.Connection
    log: ReadLog
    strings: dict[int, str]

    def names(self) -> set[str]:
        """Return the names of the tables."""
        rows = self.connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        return {str(name) for (name,) in rows}

    def has(self, table: str) -> set[str]:
        """Return the columns of a table, none if it does not exist."""
        return {str(row[1]) for row in self.connection.execute(f'PRAGMA table_info("{table}")')}

    def columns(self, table: str, wanted: dict[str, str], where: str = "") -> dict[str, I64]:
        """Read integer columns: our name → SQL expression; NULL becomes -1. Missing table: no rows."""
        rows = self._rows(table, f'SELECT {", ".join(wanted.values())} FROM "{table}" {where}')
        parts = [
            [np.array([-1 if v is None else v for v in column], np.int64) for column in zip(*batch, strict=True)]
            for batch in rows
        ]
        if not parts:
            return {name: np.empty(0, np.int64) for name in wanted}
        return {name: np.concatenate([p[i] for p in parts]) for i, name in enumerate(wanted)}

    def _rows(self, table: str, query: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield rows in batches; where the file is damaged, those before the damage."""
        read = 0
        error: sqlite3.DatabaseError | None = None
        try:
            cursor = self.connection.execute(query)
        except sqlite3.DatabaseError as cause:
            if "no such table" not in str(cause):
                self.log.warn(f"{self.path}: table {table} cannot be read: {cause}")
            return
        while error is None:
            batch: list[tuple[Any, ...]] = []
            try:
                batch.extend(islice(cursor, _BATCH))  # an error leaves what came before it
            except sqlite3.DatabaseError as cause:
                error = cause
            if not batch:
                break
            read += len(batch)
            yield batch
        if error:
            self.log.warn(f"{self.path}: table {table}: reading stopped after {read} rows: {error}")

    def text(self, ids: I64) -> Labels:
        """Turn string ids into labels; unknown ids and "N/A" become "not recorded"."""
        values, codes = np.unique(ids, return_inverse=True)
        names = [self.strings.get(int(v)) for v in values]
        tidy = Labels.of([None if n in (None, "", "N/A") else n for n in names])
        return Labels(tidy.codes[codes].astype(np.int32), tidy.names)


def read_db(path: Path, log: ReadLog) -> tuple[Timeline, dict[int, int]]:
    """Read tasks, launches, torch operators and steps; also the rank of each device (device → rank).

    Raises InputError when the file is no database or has no device tasks.
    """
    with _open(path, log) as db:
        missing = {"TASK"} - db.names()
        if missing:
            raise InputError(
                f"{path}: no table TASK, so no device tasks in this database",
                hint="give ascend_pytorch_profiler_*.db or msprof_*.db",
            )
        host = _host(db)
        tasks, device = _tasks(db, host)
        collective, comm_device = _communication(db, device)
        if not len(tasks) and not len(collective):
            raise InputError(f"{path}: no device task could be read: the tables are empty or damaged")
        devices: dict[int | None, Tasks] = {
            d: Tasks.concat([tasks.filter(device == d), collective.filter(comm_device == d)])
            for d in np.unique(np.concatenate([device, comm_device])).tolist()
        }
        steps = db.columns("STEP_TIME", {"number": "id", "start": "startNs", "end": "endNs"})
        ranks = db.columns("RANK_DEVICE_MAP", {"rank": "rankId", "device": "deviceId"})
    pairs = zip(ranks["device"].tolist(), ranks["rank"].tolist(), strict=True)
    timeline = Timeline(devices, host, HostSteps(steps["number"], steps["start"], steps["end"]))
    return timeline, {d: r for d, r in pairs if r >= 0}


def read_analysis_db(path: Path, log: ReadLog) -> list[VendorStep]:
    """Read the exporter's own split of each step from analysis.db (µs)."""
    parts = ("computing", "communication_not_overlapped", "free")
    with _open(path, log) as db:
        has = db.has("StepTraceTime")
        if not has.issuperset(parts):
            return []
        wanted = {p: f"CAST(ROUND({p} * {NS_PER_US}) AS INTEGER)" for p in parts}
        wanted["step"] = "CAST(step AS INTEGER)"
        wanted["device"] = "deviceId" if "deviceId" in has else "-1"
        rows = db.columns("StepTraceTime", wanted)
    return [
        VendorStep(step, device if device >= 0 else None, compute, comm, free, compute + comm + free)
        for step, device, compute, comm, free in zip(
            rows["step"].tolist(), rows["device"].tolist(), *(rows[p].tolist() for p in parts), strict=True
        )
    ]


@contextmanager
def _open(path: Path, log: ReadLog) -> Iterator[_Database]:
    """Open read-only; ``immutable`` keeps SQLite from leaving files beside the user's."""
    with ExitStack() as stack:
        try:
            try:
                connection = stack.enter_context(closing(_connect(path)))
            except sqlite3.DatabaseError:
                copy = stack.enter_context(_without_page_count(path))
                connection = stack.enter_context(closing(_connect(copy, tolerant=True)))
                log.warn(f"{path}: the database is damaged or cut short; what cannot be read of it is lost")
            db = _Database(path, connection, log, {})
            for batch in db._rows("STRING_IDS", "SELECT id, value FROM STRING_IDS"):
                db.strings.update(batch)
            yield db
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path}: not a readable SQLite database: {error}") from error


def _connect(path: Path, *, tolerant: bool = False) -> sqlite3.Connection:
    """Connect and look at the list of tables, which fails where the file is no sound database.

    ``tolerant`` lets SQLite pass over tables that it cannot find; it wants a copy that may be written.
    """
    mode = "rw" if tolerant else "ro&immutable=1"
    connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode={mode}", uri=True)
    try:
        if tolerant:
            connection.execute("PRAGMA writable_schema = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


@contextmanager
def _without_page_count(path: Path) -> Iterator[Path]:
    """Yield a copy whose header leaves the number of pages open, so that SQLite takes what is there."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(path, copy)
        if copy.stat().st_size >= _HEADER_BYTES:
            with copy.open("r+b") as file:
                file.seek(_PAGE_COUNT)
                file.write(bytes(4))
        yield copy


def _tasks(db: _Database, host: HostOps) -> tuple[Tasks, I64]:
    task = db.columns(
        "TASK",
        {
            "start": "startNs",
            "end": "endNs",
            "device": "deviceId",
            "connection": "connectionId",
            "id": "globalTaskId",
            "type": "taskType",
            "stream": "streamId",
        },
        "WHERE startNs IS NOT NULL AND endNs >= startNs",
    )
    compute = _compute_info(db)
    row = match(task["id"], compute["id"])
    runtime = db.text(task["type"])
    cores = Labels(runtime.codes, tuple(RUNTIME_CORES.get(n, n) for n in runtime.names))
    name, core = db.text(compute["name"]).take(row), db.text(compute["core"]).take(row)
    is_row = row >= 0
    work = np.where(is_row, work_of_rows(core, name), work_of_tasks(cores, runtime))
    # Kernel-typed tasks without an operator record are FFTS+ parents: the text timeline hides them as well.
    work = np.where(~is_row & (work == Work.COMPUTE), np.uint8(Work.CONTROL), work).astype(np.uint8)
    launch_start, launch_end, launch_thread = _launches(db, task["connection"])
    tasks = Tasks.build(
        task["start"],
        task["end"],
        work,
        stream=task["stream"],
        block=np.where(is_row, compute["block"][row], -1) if len(compute["id"]) else None,
        mix_block=np.where(is_row, compute["mix_block"][row], -1) if len(compute["id"]) else None,
        name=name.fill(runtime),
        type=db.text(compute["type"]).take(row),
        core=core.fill(cores),
        state=db.text(compute["state"]).take(row),
        shapes=db.text(compute["shapes"]).take(row),
        launch_start=launch_start,
        launch_end=launch_end,
        launch_thread=launch_thread,
        op=_ops(db, host, task["connection"]),
        pmu=_pmu(db, task["id"]),
    )
    return tasks, task["device"]


def _compute_info(db: _Database) -> dict[str, I64]:
    """Read the operators; ``blockNum`` goes first, because newer files reuse ``blockDim`` for SIMT."""
    has = db.has("COMPUTE_TASK_INFO")

    def first(*names: str) -> str:
        return next((n for n in names if n in has), "-1")

    return db.columns(
        "COMPUTE_TASK_INFO",
        {
            "id": first("globalTaskId"),
            "name": first("name"),
            "type": first("opType"),
            "core": first("taskType"),
            "block": first("blockNum", "blockDim"),
            "mix_block": first("mixBlockNum", "mixBlockDim"),
            "state": first("opState"),
            "shapes": first("inputShapes"),
        },
    )


def _launches(db: _Database, connection: I64) -> tuple[I64, I64, I64]:
    """Find launches by connection id: the node level first, else the start of whichever call carried it."""
    wanted = {"start": "startNs", "end": "endNs", "type": "type", "name": "name", "id": "connectionId"}
    api = db.columns("CANN_API", wanted | {"thread": _thread_of(db, "CANN_API")})
    connection = np.where(np.isin(connection, _INVALID), -2, connection)
    launch = db.text(api["name"])
    is_launch = (api["type"] == _NODE) & launch.flag([n == "launch" for n in launch.names])
    start = np.full(len(connection), NO_TIME, np.int64)
    end, thread = start.copy(), np.full(len(connection), UNKNOWN, np.int64)
    for chosen, end_column in ((is_launch, "end"), (~is_launch, "start")):
        rows = np.flatnonzero(chosen)
        if len(rows):
            found = match(connection, api["id"][rows])
            fresh = (found >= 0) & (start == NO_TIME)
            end = np.where(fresh, api[end_column][rows[found]], end)
            thread = np.where(fresh, api["thread"][rows[found]], thread)
            start = np.where(fresh, api["start"][rows[found]], start)
    return start, end, thread


def _thread_of(db: _Database, table: str) -> str:
    """Return the expression for the thread of a host table's rows."""
    return f"globalTid & {_TID_MASK}" if "globalTid" in db.has(table) else str(UNKNOWN)


def _communication(db: _Database, devices: I64) -> tuple[Tasks, I64]:
    has = db.has("COMMUNICATION_OP")
    only = int(devices[0]) if len(devices) and (devices == devices[0]).all() else -1
    op = db.columns(
        "COMMUNICATION_OP",
        {
            "start": "startNs",
            "end": "endNs",
            "name": "opName",
            "type": "opType" if "opType" in has else "-1",
            "connection": "connectionId",
            "device": "deviceId" if "deviceId" in has else str(only),
        },
        "WHERE startNs IS NOT NULL AND endNs >= startNs",
    )
    if len(op["start"]) and (op["device"] < 0).any():
        db.log.warn(f"{db.path}: communication operators name no device and there are several; they are left out")
    launch_start, launch_end, launch_thread = _launches(db, op["connection"])
    tasks = Tasks.build(
        op["start"],
        op["end"],
        np.full(len(op["start"]), Work.COMMUNICATION, np.uint8),
        name=db.text(op["name"]),
        type=db.text(op["type"]),
        core=Labels(np.zeros(len(op["start"]), np.int32), ("COMMUNICATION",)),
        launch_start=launch_start,
        launch_end=launch_end,
        launch_thread=launch_thread,
    ).filter(op["device"] >= 0)
    return tasks, op["device"][op["device"] >= 0]


def _pmu(db: _Database, tasks: I64) -> dict[str, F32]:
    """Turn the long form (one row per task and metric) into one column per metric."""
    columns: dict[str, F32] = {}
    if not db.has("TASK_PMU_INFO"):
        return columns
    for id_ in db.columns("TASK_PMU_INFO", {"name": "DISTINCT name"})["name"].tolist():
        name = pmu_name(db.strings.get(id_, ""))
        if name is None:
            continue
        ids: list[int] = []
        values: list[float] = []
        query = f"SELECT globalTaskId, value FROM TASK_PMU_INFO WHERE name = {id_} AND value IS NOT NULL"
        for batch in db._rows("TASK_PMU_INFO", query):
            ids += [row[0] for row in batch]
            values += [float(row[1]) for row in batch]
        row = match(tasks, np.array(ids, np.int64))
        columns[name] = np.where(row >= 0, np.array([*values, 0.0], np.float32)[row], np.float32(np.nan))
    return columns


def _host(db: _Database) -> HostOps:
    if not db.has("PYTORCH_API"):
        return HostOps(events=_events(db))
    op = db.columns(
        "PYTORCH_API",
        {
            "start": "CAST(startNs AS INTEGER)",
            "end": "CAST(endNs AS INTEGER)",
            "thread": "globalTid",
            "name": "name",
            "stack": "callchainId",
        },
        _OPS,
    )
    stacks = _callchains(db)
    ids, codes = np.unique(op["stack"], return_inverse=True)
    stack = Labels.of([stacks.get(int(i)) for i in ids]).take(codes.astype(np.int64))
    ops = Spans(op["start"], op["end"], op["thread"] & _TID_MASK, db.text(op["name"]))
    return HostOps(ops, stack, events=_events(db))


def _events(db: _Database) -> Spans:
    """Return the events of all host layers under the names that timelines give them."""
    tables = {"CANN_API": "1", "PYTORCH_API": f"type != {_PYTHON_FRAME} OR type IS NULL", "MSTX_EVENTS": "1"}
    parts = []
    for table, where in tables.items():
        has = db.has(table)
        if not has:
            continue
        wanted = {"start": "CAST(startNs AS INTEGER)", "end": "CAST(endNs AS INTEGER)", "thread": _thread_of(db, table)}
        wanted |= {"name": "message" if table == "MSTX_EVENTS" else "name", "type": "type" if "type" in has else "-1"}
        rows = db.columns(table, wanted, f"WHERE ({where}) AND endNs >= startNs")
        parts.append((rows, _layered(db.text(rows["name"]), rows["type"])))
    if not parts:
        return Spans.empty()
    start, end, thread = (np.concatenate([rows[n] for rows, _ in parts]) for n in ("start", "end", "thread"))
    name = Labels.concat([labels for _, labels in parts])
    order = np.lexsort((-end, start, thread))
    return Spans(start[order], end[order], thread[order], name.take(order))


def _layered(name: Labels, kind: I64) -> Labels:
    """Put the layer in front of the names of CANN calls, as timelines do."""
    parts = [name.filter(kind == number) for number in _LAYERS]
    tagged = [Labels(p.codes, tuple(f"{layer}@{n}" for n in p.names)).compact()
              for p, layer in zip(parts, _LAYERS.values(), strict=True)]  # fmt: skip
    plain = ~np.isin(kind, list(_LAYERS))
    order = np.concatenate([*(np.flatnonzero(kind == number) for number in _LAYERS), np.flatnonzero(plain)])
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return Labels.concat([*tagged, name.filter(plain).compact()]).take(back)


def _callchains(db: _Database) -> dict[int, str]:
    """Join recorded stacks, innermost frame first."""
    rows = db.columns("PYTORCH_CALLCHAINS", {"id": "id", "stack": "stack"}, "ORDER BY id, stackDepth")
    stacks: dict[int, list[str]] = {}
    for id_, frame in zip(rows["id"].tolist(), rows["stack"].tolist(), strict=True):
        stacks.setdefault(id_, []).append(db.strings.get(frame, ""))
    return {id_: ";".join(frames) for id_, frames in stacks.items()}


def _ops(db: _Database, host: HostOps, connection: I64) -> I64:
    """Find the torch operator behind each task: CONNECTION_IDS ties an operator to its launches."""
    if not len(host.ops):
        return np.full(len(connection), -1, np.int64)
    own = db.columns("PYTORCH_API", {"id": "connectionId"}, _OPS)["id"]
    pairs = db.columns("CONNECTION_IDS", {"id": "id", "connection": "connectionId"})
    pair = match(np.where(np.isin(connection, _INVALID), -2, connection), pairs["connection"])
    if not len(pairs["id"]):
        return np.full(len(connection), -1, np.int64)
    return np.where(pair >= 0, match(pairs["id"][pair], np.where(own < 0, -3, own)), -1)
