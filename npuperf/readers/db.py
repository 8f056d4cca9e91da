"""SQLite exports (ascend_pytorch_profiler*.db, msprof_*.db) to the same model as the text files.

Nearly every text is an id into STRING_IDS. A damaged database gives what can be read of each table; what is lost of it,
and which tables are missing, is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import Struct, field

from npuperf.base.errors import InputError
from npuperf.base.messages import say, say_n
from npuperf.base.units import NS_PER_US
from npuperf.model.columns import pmu_name
from npuperf.model.communication import Communication, LinkUse
from npuperf.model.device import ClockRates, HostSteps, VendorStep
from npuperf.model.groups import by_code, distinct, numbered, rows_of_each
from npuperf.model.host import HostOps, Spans
from npuperf.model.labels import F32, I64, OPERAND_COLUMNS, Labels, Mask, operand_labels
from npuperf.model.tasks import (
    NO_TIME,
    RUNTIME_CORES,
    UNKNOWN,
    Tasks,
    Work,
    beside_operations,
    work_of_rows,
    work_of_tasks,
)
from npuperf.readers.comm_db import (
    DbCommunication,
    amount,
    notes,
    read_cluster_links,
    read_cluster_sums,
    read_communication_db,
    read_sums,
)
from npuperf.readers.context import ClusterSteps
from npuperf.readers.join import behind_launches, carrying, match, pick
from npuperf.readers.log import ReadLog
from npuperf.readers.memory_files import memory_of
from npuperf.readers.sqlite import Database, NotInBulkError, Spelled, integer, numbers, open_database, query_of
from npuperf.readers.timeline import VAGUE, TraceTimeline
from npuperf.readers.torch_db import TorchEvents, host_spans, joined, read_torch

# -- Hardware counters of a database, one row per task and metric, to one column per metric.

_TABLE: Final = "TASK_PMU_INFO"
_KEYS: Final = ("name", "globalTaskId")


class Counted(Struct):
    """Counters at the tasks ``ids``, in order: by metric its name and values; numbers of rows that are of no use."""

    ids: I64
    columns: dict[int, tuple[str, F32]] = field(default_factory=dict)
    nameless: int = 0
    elsewhere: int = 0
    unreadable: int = 0


#: How long cores work in a task, ns, on average over those it holds: tables have it under other names, in µs.
_TIMES: Final = {"aic_total_time": "aicore_time", "aiv_total_time": "aiv_time"}


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
        if name in _TIMES:
            name, column = _TIMES[name], column / np.float32(NS_PER_US)
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
            name = text if text in _TIMES else pmu_name(text) if text is not None else None
            if name is None:
                continue
            if number not in counted.columns:
                counted.columns[number] = name, np.full(len(ids), np.nan, np.float32)
            column, good = counted.columns[number][1], usable[begin:end]
            places, values = place[begin:end][good], value[begin:end][good]
            free = np.isnan(column.take(places))
            if not free.all():  # what has a value already keeps it
                places, values = places[free], values[free]
            column[places[::-1]] = values[::-1]  # of several the first: the last that is written stays
    return counted


def _places(keys: I64, ordered: I64) -> I64:
    """Find keys in a sorted table, -1 where absent; neighbours that are equal are looked up once."""
    if not len(keys) or not len(ordered):
        return np.full(len(keys), -1, np.int64)
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    at = np.minimum(np.searchsorted(ordered, keys[first]), len(ordered) - 1)
    at[ordered[at] != keys[first]] = -1
    return np.repeat(at, np.diff(np.append(first, len(keys))))


_HCCL, _NODE = 5500, 10000
#: CANN_API.type → the layer's name in timelines.
_LAYERS: Final = {5000: "Runtime", _HCCL: "Hccl", _NODE: "Node", 15000: "Model", 20000: "AscendCL"}
_INVALID: Final = (4294967295, -1)
#: No part of a step lasts longer than a year, µs.
_LONGEST_US: Final = 366 * 24 * 3600 * 1e6
#: Tables that every exporter writes where the device ran something, and what is not known without them.
_TELLS: Final = {
    "COMPUTE_TASK_INFO": say("names, types, shapes and Block Dim of operators are unknown"),
    "CANN_API": say("launches are unknown"),
}
#: Tables that others lead to: nothing comes of these without them.
_LEADS_TO: Final = {
    "CONNECTION_IDS": ("PYTORCH_API",),
    "PYTORCH_CALLCHAINS": ("PYTORCH_API",),
    "COMMUNICATION_TASK_INFO": ("COMMUNICATION_OP", "TASK"),
    "MEMCPY_INFO": ("ENUM_MEMCPY_OPERATION",),
}


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
        counted = db.offers(_TABLE, "name", "globalTaskId", "value") and "globalTaskId" in db.has("TASK")
        counters = beside.submit(counters_in_bulk, db) if counted else None
        for table, then in _TELLS.items():
            if not db.has(table):
                what = say("{path} has no table {table}", path=str(path), table=table)
                log.missing.append(say("{what}: {consequence}", what=what, consequence=then))
        for table, others in _LEADS_TO.items():
            for other in others if db.has(table) else ():
                if not db.has(other):
                    log.warn(say("{path}: no table {other}, which {table} refers to; what they tell is unknown",
                                 path=str(path), table=table, other=other))  # fmt: skip
        rows = host_spans(db, "CANN_API", {"name": "name", "kind": "type", "connection": "connectionId"})
        calls = _Calls(name=db.text(rows.pop("name")), **rows)
        torch = read_torch(db, calls.connection[calls.launching()])
        host = HostOps(torch.ops, torch.stack, torch.frames, torch.arrows, _events(db, calls, torch))
        tasks, device = _tasks(db, calls, torch, counters)
        collective, comm_device = _communication(db, calls, torch)
        if not len(tasks) and not len(collective):
            raise InputError(
                say("{path}: no device task could be read: the tables are empty or damaged", path=str(path))
            )
        devices: dict[int | None, Tasks] = {}  # None: the database names none
        numbers = distinct(np.append(device, comm_device)).tolist()
        for n in numbers:
            parts = [tasks, collective]
            if len(numbers) > 1:  # in most databases there is one, and nothing is copied to be chosen
                parts = [tasks.filter(device == n), collective.filter(comm_device == n)]
            devices[n if n >= 0 else None] = Tasks.concat(parts)
        del tasks, collective, parts
        steps = db.spans("STEP_TIME", {"number": "id"})
        ranks = db.columns("RANK_DEVICE_MAP", {"rank": "rankId", "device": "deviceId"})
        recorded = read_communication_db(db)
        variables = notes(db, "ENV_VARIABLES").get("ENV_VARIABLES")  # as torch_npu has them in profiler_metadata.json
        memory = memory_of(db).devices()
        freq = db.columns("AICORE_FREQ", {"device": ("deviceId",), "time": ("timestampNs",), "mhz": ("freq",)})
    timeline = TraceTimeline(
        devices,
        host,
        HostSteps(steps["number"], steps["start"], steps["end"]),
        environment={str(k): str(v) for k, v in variables.items()} if isinstance(variables, dict) else {},
        clock={
            d if d >= 0 else None: ClockRates.of(freq["time"][at], freq["mhz"][at])
            for d, at in rows_of_each(freq["device"])
        },
        memory=memory,
    )
    pairs = zip(ranks["device"].tolist(), ranks["rank"].tolist(), strict=True)
    return timeline, {d: r for d, r in pairs if d >= 0 and r >= 0}, recorded


def read_analysis_db(
    path: Path, log: ReadLog, *, communication: bool = False
) -> tuple[list[VendorStep], Communication]:
    """Read the exporter's own split of each step from analysis.db (µs); of communication if wanted, too."""
    with open_database(path, log) as db:
        steps = [step for _, step in _split(db, "StepTraceTime")]
        return steps, read_sums(db) if communication else Communication()


def read_cluster_db(path: Path, log: ReadLog) -> tuple[ClusterSteps, dict[int, Communication], dict[int, LinkUse]]:
    """Read what the cluster tool of msprof-analyze puts together of all ranks: steps, communication and links."""
    with open_database(path, log) as db:
        rows = (
            (kind, index, integer(pipeline), step)
            for (kind, index, pipeline), step in _split(db, "ClusterStepTraceTime", "type", "index", "pp_index")
        )
        found, lost = ClusterSteps.of(rows)
        db.lose(lost, say("steps of neither a rank with a number nor a stage"))
        return found, read_cluster_sums(db), read_cluster_links(db)


def _split(db: Database, table: str, *more: str) -> list[tuple[list[Any], VendorStep]]:
    """Read ``more`` columns and the parts of each step; a row without one of those that make up a step is lost."""
    parts = ("computing", "communication_not_overlapped", "free")
    if not db.offers(table, *parts):
        return []

    def part(cell: object) -> int | None:
        """Return a part of a step, ns, from µs; rounding may leave one just below zero."""
        if isinstance(cell, int | float) and -1 <= cell < 0:
            return 0
        found = amount(cell, NS_PER_US, _LONGEST_US)
        return found if found >= 0 else None

    names = (*more, "step", "deviceId", *parts, "bubble", "communication")
    columns = (f'"{column}"' if (column := db.first(table, name)) else "NULL" for name in names)
    query = f"SELECT {', '.join(columns)} FROM {table}"
    found = []
    lost = 0
    for *given, computing, not_overlapped, idle, bubble, communication in (
        r for rows in db.rows(table, query) for r in rows
    ):
        step, device = (number if (number := integer(cell)) >= 0 else None for cell in given[-2:])
        compute, exposed, free = part(computing), part(not_overlapped), part(idle)
        if compute is None or exposed is None or free is None:
            lost += 1
            continue
        span = compute + exposed + free
        parts_of_step = VendorStep(step, device, compute, exposed, free, span, part(bubble), part(communication))
        found.append((given[:-2], parts_of_step))
    db.lose(lost, say("table {table}: no usable times", table=table))
    return found


def _tasks(db: Database, calls: _Calls, torch: TorchEvents, counters: Future[Counted] | None) -> tuple[Tasks, I64]:
    task = _device_spans(db, "TASK", {"device": "deviceId", "connection": "connectionId", "id": "globalTaskId",
                                      "type": "taskType", "stream": "streamId"})  # fmt: skip
    compute = db.columns("COMPUTE_TASK_INFO", {
        "id": "globalTaskId",
        "name": "name",
        "type": "opType",
        "core": "taskType",
        "block": ("blockNum", "blockDim"),  # newer files reuse blockDim for SIMT
        "mix_block": ("mixBlockNum", "mixBlockDim"),
        "state": ("opState",),
        "shapes": ("inputShapes",),
        "dtypes": ("inputDataTypes",),
        "formats": ("inputFormats",),
        "out_shapes": ("outputShapes",),
        "hf32": ("hf32Eligible",),
        "out_dtypes": ("outputDataTypes",),
        "out_formats": ("outputFormats",),
    })  # fmt: skip
    known = compute["id"] >= 0
    db.lose(known, say("table COMPUTE_TASK_INFO: it is not known which task these operators are of"))
    if not known.all():
        compute = {name: column[known] for name, column in compute.items()}
    records = compute.pop("id")
    row = match(np.where(task["id"] < 0, -2, task["id"]), records)
    no_block = compute["block"] == 0  # a kernel runs on at least one core
    texts = {name: db.text(compute.pop(name)) for name in compute.keys() - {"block", "mix_block"}}
    runtime = db.text(task.pop("type"))
    named = Labels.of([None if n in VAGUE else RUNTIME_CORES.get(n, n) for n in runtime.names])
    cores = named.take(runtime.codes.astype(np.int64))
    name, core = texts.pop("name").take(row), texts.pop("core").take(row)
    is_row = row >= 0
    work = np.where(is_row, work_of_rows(core, name), work_of_tasks(cores, runtime))
    # Kernel-typed tasks without an operator record are FFTS+ parents of others, or parts of collectives, with the same
    # connection: timelines leave them out as well. One that stands alone is a kernel whose record is missing.
    connection = task["connection"]
    collective = db.columns("COMMUNICATION_OP", {"connection": "connectionId"})["connection"]
    work = beside_operations(work, name, listed=len(collective) > 0)
    shared = np.isin(connection, np.append(connection[is_row], collective)) & ~np.isin(connection, _INVALID)
    parent = ~is_row & (work == Work.COMPUTE) & shared
    unrecorded = int(np.count_nonzero(~parent & ~is_row & (work == Work.COMPUTE)))
    if unrecorded and len(records):
        db.log.warn(say_n("{path}: {n} kernel has no row in COMPUTE_TASK_INFO; its name and type are unknown",
                          "{path}: {n} kernels have no row in COMPUTE_TASK_INFO; their names and types are unknown",
                          unrecorded, path=str(db.path)))  # fmt: skip
    if np.count_nonzero(is_row) < len(records):
        there = np.isin(records, db.columns("TASK", {"id": "globalTaskId"})["id"])
        db.lose(there, say("table COMPUTE_TASK_INFO: operators whose task is not in TASK, so they have no times"))
    at = np.flatnonzero(~parent)
    task, row = {name: task.pop(name)[at] for name in tuple(task)}, row[at]
    launch_start, launch_end, launch_thread, op = _launches(calls, torch, task.pop("connection"))
    # What msprof records of copies with --runtime-api.
    copies = db.columns("MEMCPY_INFO", {"id": "globalTaskId", "operation": "memcpyOperation", "size": ("size",)})
    names = db.names("ENUM_MEMCPY_OPERATION") if len(copies["id"]) else {}
    copied = match(np.where(task["id"] < 0, -2, task["id"]), copies["id"])
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
        operands=operand_labels({name: texts.pop(name) for name in OPERAND_COLUMNS}).take(row),
        copy=Labels.of([names.get(number) for number in copies["operation"].tolist()]).take(copied),
        moved=pick(copies["size"], copied),
        launch_start=launch_start,
        launch_end=launch_end,
        launch_thread=launch_thread,
        op=op,
        pmu=counters_of(db, task["id"], counters),
    )
    return tasks, task["device"]


class _Calls(Struct, frozen=True):
    """CANN_API: calls of CANN's layers."""

    start: I64
    end: I64
    thread: I64
    kind: I64
    connection: I64
    name: Labels

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


def _communication(db: Database, calls: _Calls, torch: TorchEvents) -> tuple[Tasks, I64]:
    op = _device_spans(db, "COMMUNICATION_OP", {"name": "opName", "type": ("opType",), "connection": "connectionId",
                                                "device": ("deviceId",)})  # fmt: skip
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
    )
    return tasks, op["device"]


def _device_spans(db: Database, table: str, wanted: Mapping[str, Spelled]) -> dict[str, I64]:
    """Read the spans of a table of device tasks, each on its device.

    Rows that name no device are on the only one there is; of several, nobody knows, and they are lost. Where nothing
    in the database names any, all keep -1.
    """
    with db.log.losing_tasks():
        rows = db.spans(table, wanted)
        known = rows["device"] >= 0
        if known.all():
            return rows
        tables = ("TASK", "COMMUNICATION_OP", "RANK_DEVICE_MAP")
        there = distinct(np.concatenate([db.columns(t, {"device": ("deviceId",)})["device"] for t in tables]))
        there = there[there >= 0]
        if len(there) <= 1:
            return rows | {"device": np.full(len(known), there[0] if len(there) else UNKNOWN)}
        db.lose(known, say("table {table}: no device is named, and there are several", table=table))
        return {name: column[known] for name, column in rows.items()}


def _events(db: Database, calls: _Calls, torch: TorchEvents) -> Spans:
    """Return the events of all host layers under the names that timelines give them, with the layer in front."""
    layers = _LAYERS
    if db.names("ENUM_API_TYPE").get(_HCCL) == "communication":  # as newer exporters call it, in timelines as well
        layers = _LAYERS | {_HCCL: "Communication"}
    tagged, places = [], []
    for number, layer in layers.items():
        mine = calls.kind == number
        part = calls.name.filter(mine)
        tagged.append(Labels(part.codes, tuple(f"{layer}@{n}" for n in part.names)).compact())
        places.append(np.flatnonzero(mine))
    plain = ~np.isin(calls.kind, list(layers))
    order = np.concatenate([*places, np.flatnonzero(plain)])
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    names = Labels.concat([*tagged, calls.name.filter(plain).compact()]).take(back)
    parts = [Spans(calls.start, calls.end, calls.thread, names), torch.events]
    if db.has("MSTX_EVENTS"):
        rows = host_spans(db, "MSTX_EVENTS", {"name": "message"})
        parts.append(Spans(rows["start"], rows["end"], rows["thread"], db.text(rows["name"])))
    return joined(parts)
