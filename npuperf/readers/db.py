"""SQLite exports (ascend_pytorch_profiler*.db, msprof_*.db) to the same model as the text files.

Nearly every text is an id into STRING_IDS. Every table is read once. A damaged database gives what can be read of
each table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from npuperf.errors import InputError
from npuperf.messages import say
from npuperf.model.columns import pmu_name
from npuperf.model.communication import Communication
from npuperf.model.device import HostSteps, VendorStep
from npuperf.model.groups import distinct
from npuperf.model.host import HostOps, Spans
from npuperf.model.labels import F32, I64, Labels, Mask
from npuperf.model.operands import OPERAND_COLUMNS, operand_labels
from npuperf.model.tasks import NO_TIME, RUNTIME_CORES, UNKNOWN, Tasks, Work, work_of_rows, work_of_tasks
from npuperf.readers.behind import behind_launches, carrying
from npuperf.readers.comm_db import DbCommunication, read_communication_db
from npuperf.readers.comm_sums import read_sums
from npuperf.readers.join import match, pick
from npuperf.readers.log import ReadLog
from npuperf.readers.sqlite import Database, bulk_integers, bulk_numbers, numbers, open_database
from npuperf.readers.sqlite_arrow import NotInBulkError
from npuperf.readers.timeline import VAGUE, TraceTimeline
from npuperf.readers.torch_db import TorchEvents, host_times, joined, read_torch
from npuperf.units import NS_PER_US

_NODE: Final = 10000
#: CANN_API.type → the layer's name in timelines.
_LAYERS: Final = {5000: "Runtime", 5500: "Hccl", 10000: "Node", 15000: "Model", 20000: "AscendCL"}
#: Hardware counters: one row per task and metric.
_LONG_FORM: Final = (
    "SELECT name, globalTaskId, value FROM TASK_PMU_INFO WHERE name IS NOT NULL AND globalTaskId IS NOT NULL"
)
#: The tasks' ids, sorted, and by metric its name and its values at these tasks.
_Counters = Future[tuple[I64, dict[int, tuple[str, F32]]]]
_INVALID: Final = (4294967295, -1)


def read_db(path: Path, log: ReadLog) -> tuple[TraceTimeline, dict[int, int], DbCommunication]:
    """Read tasks, launches, torch operators and steps; also the rank of each device, and its communication.

    Raises InputError when the file is no database or has no device tasks.
    """
    with open_database(path, log) as db, ThreadPoolExecutor(1) as beside:
        if not db.has("TASK"):
            raise InputError(
                say("{path}: no table TASK, so no device tasks in this database", path=str(path)),
                hint=say("give ascend_pytorch_profiler_*.db or msprof_*.db"),
            )
        # most rows of a large database are counters: they are read without the interpreter lock
        counters = beside.submit(_counters_in_bulk, db) if db.has("TASK_PMU_INFO") else None
        calls = _calls(db)
        torch = read_torch(db, calls.connection[calls.launching()])
        host = HostOps(torch.ops, torch.stack, torch.frames, torch.arrows, _events(db, calls, torch))
        tasks, device = _tasks(db, calls, torch, counters)
        collective, comm_device = _communication(db, calls, torch, device)
        if not len(tasks) and not len(collective):
            raise InputError(
                say("{path}: no device task could be read: the tables are empty or damaged", path=str(path))
            )
        devices: dict[int | None, Tasks] = {
            d: Tasks.concat([tasks.filter(device == d), collective.filter(comm_device == d)])
            for d in distinct(np.concatenate([device, comm_device])).tolist()
        }
        steps = db.columns("STEP_TIME", {"number": "id", "start": "startNs", "end": "endNs"})
        ranks = db.columns("RANK_DEVICE_MAP", {"rank": "rankId", "device": "deviceId"})
        recorded, environment = read_communication_db(db), _environment(db)
    pairs = zip(ranks["device"].tolist(), ranks["rank"].tolist(), strict=True)
    host_steps = HostSteps(steps["number"], steps["start"], steps["end"])
    timeline = TraceTimeline(devices, host, host_steps, environment=environment)
    return timeline, {d: r for d, r in pairs if r >= 0}, recorded


def read_analysis_db(
    path: Path, log: ReadLog, *, communication: bool = False
) -> tuple[list[VendorStep], Communication]:
    """Read the exporter's own split of each step from analysis.db (µs); of communication if wanted, too."""
    with open_database(path, log) as db:
        return _split(db), read_sums(db) if communication else Communication()


def _split(db: Database) -> list[VendorStep]:
    parts = ("computing", "communication_not_overlapped", "free")
    has = db.has("StepTraceTime")
    if not has.issuperset(parts):
        return []
    optional = [p for p in ("bubble", "communication") if p in has]
    wanted = {p: f"CAST(ROUND({p} * {NS_PER_US}) AS INTEGER)" for p in (*parts, *optional)}
    wanted["step"] = "CAST(step AS INTEGER)"
    wanted["device"] = db.first("StepTraceTime", "deviceId")
    rows = {name: column.tolist() for name, column in db.columns("StepTraceTime", wanted).items()}
    return [
        VendorStep(
            step, device if device >= 0 else None, compute, exposed, free, compute + exposed + free,
            *(rows[p][i] if p in optional and rows[p][i] >= 0 else None for p in ("bubble", "communication")),
        )
        for i, (step, device, compute, exposed, free) in enumerate(
            zip(rows["step"], rows["device"], *(rows[p] for p in parts), strict=True)
        )
    ]  # fmt: skip


def _environment(db: Database) -> dict[str, str]:
    """Read the variables that torch_npu records, as it does in profiler_metadata.json."""
    query = "SELECT value FROM META_DATA WHERE name = 'ENV_VARIABLES'"
    for batch in db.rows("META_DATA", query) if {"name", "value"} <= db.has("META_DATA") else ():
        for (value,) in batch:
            with suppress(TypeError, ValueError):
                found = json.loads(value)
                return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}
    return {}


def _tasks(db: Database, calls: _Calls, torch: TorchEvents, counters: _Counters | None) -> tuple[Tasks, I64]:
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
    row = match(task["id"], compute.pop("id"))
    no_block = compute["block"] == 0  # a kernel runs on at least one core
    texts = {name: db.text(compute.pop(name)) for name in compute.keys() - {"block", "mix_block"}}
    runtime = db.text(task.pop("type"))
    named = Labels.of([None if n in VAGUE else RUNTIME_CORES.get(n, n) for n in runtime.names])
    cores = named.take(runtime.codes.astype(np.int64))
    name, core = texts.pop("name").take(row), texts.pop("core").take(row)
    is_row = row >= 0
    work = np.where(is_row, work_of_rows(core, name), work_of_tasks(cores, runtime))
    # Kernel-typed tasks without an operator record are FFTS+ parents of others: timelines leave them out as well.
    # Where no operator is recorded at all, only those of collectives can be told.
    collective = db.columns("COMMUNICATION_OP", {"connection": "connectionId"})["connection"]
    parent = ~is_row & (work == Work.COMPUTE) & (is_row.any() | np.isin(task["connection"], collective))
    at = np.flatnonzero(~parent)
    task, row = {name: task.pop(name)[at] for name in tuple(task)}, row[at]
    launch_start, launch_end, launch_thread, op = _launches(calls, torch, task.pop("connection"))
    tasks = Tasks.build(
        task["start"],
        task["end"],
        work[at],
        stream=task["stream"],
        block=pick(np.where(no_block, UNKNOWN, compute.pop("block")), row),
        mix_block=pick(np.where(no_block, UNKNOWN, compute.pop("mix_block")), row),
        name=name.fill(runtime).take(at),
        type=texts["type"].take(row),
        core=core.fill(cores).take(at).compact(),
        state=texts["state"].take(row),
        shapes=texts["shapes"].take(row),
        operands=operand_labels(*(texts.pop(name) for name in OPERAND_COLUMNS)).take(row),
        copy=_copies(db, task["id"]),
        launch_start=launch_start,
        launch_end=launch_end,
        launch_thread=launch_thread,
        op=op,
        pmu=_pmu(db, task["id"], counters),
    )
    return tasks, task["device"]


def _copies(db: Database, tasks: I64) -> Labels:
    """Return the direction of copies: recorded by msprof with --runtime-api."""
    copies = db.columns("MEMCPY_INFO", {"id": "globalTaskId", "operation": "memcpyOperation"})
    names = {number: name for batch in db.rows("ENUM_MEMCPY_OPERATION", "SELECT id, name FROM ENUM_MEMCPY_OPERATION")
             for number, name in batch} if len(copies["id"]) else {}  # fmt: skip
    row = match(tasks, copies["id"])
    return Labels.of([names.get(number) for number in copies["operation"].tolist()]).take(row)


def _compute_info(db: Database) -> dict[str, I64]:
    """Read the operators; ``blockNum`` is preferred, because newer files reuse ``blockDim`` for SIMT."""
    columns = {
        "id": ("globalTaskId",),
        "name": ("name",),
        "type": ("opType",),
        "core": ("taskType",),
        "block": ("blockNum", "blockDim"),
        "mix_block": ("mixBlockNum", "mixBlockDim"),
        "state": ("opState",),
        "shapes": ("inputShapes",),
        "dtypes": ("inputDataTypes",),
        "formats": ("inputFormats",),
        "out_dtypes": ("outputDataTypes",),
        "out_formats": ("outputFormats",),
    }
    table = "COMPUTE_TASK_INFO"
    return db.columns(table, {name: db.first(table, *spelled) for name, spelled in columns.items()})


@dataclass(frozen=True, slots=True)
class _Calls:
    """CANN_API: calls of CANN's layers. ``whole``: their end is known, and not before their start."""

    start: I64
    end: I64
    thread: I64
    kind: I64
    connection: I64
    name: Labels
    whole: Mask

    def launching(self) -> Mask:
        """Tell the calls that launch kernels through a node."""
        nodes: Mask = self.kind == _NODE
        return nodes & self.name.flag([n == "launch" for n in self.name.names])

    def launches(self, connection: I64) -> tuple[I64, I64, I64]:
        """Find launches by connection id: the node level first, else the start of whichever call carried it."""
        launch, other = (self._carrying(connection, np.flatnonzero(r)) for r in (self.launching(), ~self.launching()))
        call = np.where(launch >= 0, launch, other)
        end = np.where(launch >= 0, pick(self.end, launch), pick(self.start, other, NO_TIME))
        return pick(self.start, call, NO_TIME), end, pick(self.thread, call)

    def _carrying(self, connection: I64, rows: I64) -> I64:
        return pick(rows, carrying(connection, self.start[rows], self.connection[rows]))


def _launches(calls: _Calls, torch: TorchEvents, connection: I64) -> tuple[I64, I64, I64, I64]:
    """Find the launches of tasks, and the torch operators behind them."""
    connection = np.where(np.isin(connection, _INVALID), -2, connection)
    start, end, thread = calls.launches(connection)
    return start, end, thread, behind_launches(torch.ops, torch.queue, thread, start, torch.op_of(connection))


def _calls(db: Database) -> _Calls:
    table = "CANN_API"
    wanted = {"name": "name", "kind": db.first(table, "type"), "connection": db.first(table, "connectionId")}
    rows = db.columns(table, host_times(db, table) | wanted)
    name, whole = db.text(rows.pop("name")), rows.pop("whole") > 0
    return _Calls(name=name, whole=whole, **rows)


def _communication(db: Database, calls: _Calls, torch: TorchEvents, devices: I64) -> tuple[Tasks, I64]:
    table = "COMMUNICATION_OP"
    device = db.first(table, "deviceId")
    only = int(devices[0]) if len(devices) and (devices == devices[0]).all() else -1
    op = db.columns(
        table,
        {
            "start": "startNs",
            "end": "endNs",
            "name": "opName",
            "type": db.first(table, "opType"),
            "connection": "connectionId",
            "device": device if device == "deviceId" else str(only),
        },
        "WHERE startNs IS NOT NULL AND endNs >= startNs",
    )
    if len(op["start"]) and (op["device"] < 0).any():
        db.log.warn(say("{path}: communication operators name no device, and there are several devices; these "
"operators are left out",
                        path=str(db.path)))  # fmt: skip
    launch_start, launch_end, launch_thread, launcher = _launches(calls, torch, op["connection"])
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
        op=launcher,
    ).filter(op["device"] >= 0)
    return tasks, op["device"][op["device"] >= 0]


def _pmu(db: Database, tasks: I64, beside: _Counters | None) -> dict[str, F32]:
    """Turn the long form (one row per task and metric) into one column per metric. ``beside``: it, being read."""
    if beside is None:
        return {}
    try:
        ids, columns = beside.result()
    except NotInBulkError:
        ids = distinct(tasks)
        columns = _long_to_wide(db, map(numbers, db.rows("TASK_PMU_INFO", _LONG_FORM)), ids)
    at = _places(tasks, ids)
    found = {}
    for metric in tuple(columns):
        name, column = columns.pop(metric)
        found[name] = column[at]
    return found


def _counters_in_bulk(db: Database) -> tuple[I64, dict[int, tuple[str, F32]]]:
    """Return the ids of all tasks, sorted, and what :func:`_long_to_wide` does. Raises NotInBulkError."""
    tasks = db.bulk(f"SELECT IFNULL(globalTaskId, {UNKNOWN}) FROM TASK", bulk_integers)
    ids = distinct(np.concatenate([np.empty(0, np.int64), *(batch[0] for batch in tasks)]))
    return ids, _long_to_wide(db, db.bulk(_LONG_FORM, bulk_numbers), ids)


def _long_to_wide(db: Database, batches: Iterable[tuple[I64, I64, F32]], ids: I64) -> dict[int, tuple[str, F32]]:
    """Return per counter its name and its values at the tasks ``ids``, in order; batches: metrics, tasks, values."""
    counters: dict[int, tuple[str, F32]] = {}
    for metric, task, value in batches:
        place = _places(task, ids)
        usable = (place >= 0) & np.isfinite(value)
        for number in distinct(metric).tolist():
            text: object = db.strings.get(number)
            name = pmu_name(text) if isinstance(text, str) else None
            if name is None:
                continue
            if number not in counters:
                counters[number] = name, np.full(len(ids), np.nan, np.float32)
            column = counters[number][1]
            mine = np.flatnonzero((metric == number) & usable)[::-1]  # of several the first
            mine = mine[np.isnan(column[place[mine]])]
            column[place[mine]] = value[mine]
    return counters


def _places(keys: I64, ordered: I64) -> I64:
    """Find keys in a sorted table, -1 where absent; neighbours that are equal are looked up once."""
    if not len(keys) or not len(ordered):
        return np.full(len(keys), -1, np.int64)
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    at = np.minimum(np.searchsorted(ordered, keys[first]), len(ordered) - 1)
    at[ordered[at] != keys[first]] = -1
    return np.repeat(at, np.diff(np.append(first, len(keys))))


def _events(db: Database, calls: _Calls, torch: TorchEvents) -> Spans:
    """Return the events of all host layers under the names that timelines give them."""
    whole = np.flatnonzero(calls.whole)
    names = _layered(calls.name.take(whole), calls.kind[whole], _layers(db))
    parts = [Spans(calls.start[whole], calls.end[whole], calls.thread[whole], names), torch.events]
    if db.has("MSTX_EVENTS"):
        rows = db.columns("MSTX_EVENTS", host_times(db, "MSTX_EVENTS") | {"name": "message"}, "WHERE endNs >= startNs")
        parts.append(Spans(rows["start"], rows["end"], rows["thread"], db.text(rows["name"])))
    return joined(parts)


def _layers(db: Database) -> dict[int, str]:
    """Return the layers' names; what was Hccl is called Communication by newer exporters, in timelines as well."""
    number = next(n for n, layer in _LAYERS.items() if layer == "Hccl")
    query = f"SELECT name FROM ENUM_API_TYPE WHERE id = {number}"
    named = [str(name) for batch in db.rows("ENUM_API_TYPE", query) for (name,) in batch]
    return _LAYERS | ({number: "Communication"} if named == ["communication"] else {})


def _layered(name: Labels, kind: I64, layers: dict[int, str]) -> Labels:
    """Put the layer in front of the names of CANN calls, as timelines do."""
    parts = [name.filter(kind == number) for number in layers]
    tagged = [Labels(p.codes, tuple(f"{layer}@{n}" for n in p.names)).compact()
              for p, layer in zip(parts, layers.values(), strict=True)]  # fmt: skip
    plain = ~np.isin(kind, list(layers))
    order = np.concatenate([*(np.flatnonzero(kind == number) for number in layers), np.flatnonzero(plain)])
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return Labels.concat([*tagged, name.filter(plain).compact()]).take(back)
