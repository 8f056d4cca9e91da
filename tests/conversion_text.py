"""One run from torch_npu's databases into its text files: the way back of :mod:`conversion`."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from conversion import (
    BANDWIDTH_COLUMNS,
    FRAME,
    INFO,
    LAYERS,
    LINK_COLUMNS,
    NONE,
    OP,
    QUEUE,
    STEP_COLUMNS,
    TIME_COLUMNS,
    copy_around,
    only,
    us,
)

#: Processes that the exporter makes, in the order that it shows them in.
ORDER = {"Python GC": 1, "CANN": 7, "Ascend Hardware": 13, "AI Core Freq": 14, "Communication": 15}
CALLS = {number: layer for layer, number in LAYERS.items() if layer != "Communication"}
PARENTS = ("AI_CORE", "MIX_AIC", "MIX_AIV", "KERNEL_AICORE", "KERNEL_AIVEC")
ANALYZED = (
    "hccl_op_name", "group_name", "transport_type", "transit_size", "transit_time", "bandwidth", "large_packet_ratio",
    "package_size", "count", "total_duration", "step", "type",
)  # fmt: skip


#: Counters that databases have under another name, in ns.
IN_NS = {"aic_total_time": "aicore_time(us)", "aiv_total_time": "aiv_time(us)"}


class Database:
    """A profiler's database: rows as dictionaries, each table once."""

    def __init__(self, path: Path | None) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
        if path is None:
            return
        connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        connection.row_factory = sqlite3.Row
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            self.tables[table] = [dict(row) for row in connection.execute(f'SELECT * FROM "{table}"')]
        connection.close()
        self.strings = {row["id"]: row["value"] for row in self.tables["STRING_IDS"]}

    def __getitem__(self, table: str) -> list[dict[str, Any]]:
        return self.tables[table]


class Files:
    """The text files that are made of a database."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.string = db.strings
        task = db["TASK"][0]
        self.pid, self.device = task["globalPid"], task["deviceId"]
        self.events: list[dict[str, Any]] = []
        self.compute = {row["globalTaskId"]: row for row in db["COMPUTE_TASK_INFO"]}
        self.calls: dict[int, dict[str, Any]] = {}
        for call in sorted(db["CANN_API"], key=lambda c: (c["type"] != LAYERS["Node"], c["startNs"])):
            if call["connectionId"] not in (None, NONE):
                self.calls.setdefault(call["connectionId"], call)
        self.connections: dict[int, list[int]] = defaultdict(list)
        for row in db["CONNECTION_IDS"]:
            self.connections[row["id"]].append(row["connectionId"])
        self.op_of: dict[int, dict[str, Any]] = {}
        for op in db["PYTORCH_API"]:
            if op["type"] == OP and op["connectionId"] is not None:
                for connection in self.connections[op["connectionId"]]:
                    self.op_of.setdefault(connection, op)
        self.flowing: set[int] = set()
        self.arrowed: set[int] = set()

    def process(self, name: str) -> int:
        return self.pid << 10 | ORDER[name] << 5 | self.device if name in ORDER else self.pid

    def meta(self, kind: str, pid: int, **args: object) -> None:
        self.events.append({"ph": "M", "name": kind, "pid": pid, "tid": 0, "args": args})

    def slice(self, name: str, pid: int, tid: int, row: dict[str, Any], **more: Any) -> None:
        start, end = int(row["startNs"]), int(row["endNs"])
        self.events.append({"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": us(start),
                            "dur": (end - start) / 1000, **more})  # fmt: skip

    def arrow(self, category: str, number: object, *ends: tuple[int, int, int]) -> None:
        for phase, (pid, tid, time) in zip(("s", "f"), ends, strict=False):
            self.events.append({"ph": phase, "bp": "e", "name": category, "cat": category, "id": number, "pid": pid,
                                "tid": tid, "ts": us(time)})  # fmt: skip

    def processes(self) -> None:
        npu = f"NPU {self.device}"
        for name, label in (("Python", "CPU"), ("CANN", "CPU"), ("Ascend Hardware", npu), ("AI Core Freq", npu),
                            ("Communication", npu)):  # fmt: skip
            pid = self.process(name)
            self.meta("process_name", pid, name=name)
            self.meta("process_labels", pid, labels=label)
            self.meta("process_sort_index", pid, sort_index=ORDER.get(name, 0))
        for row in self.db["AICORE_FREQ"]:
            self.events.append({"ph": "C", "name": "AI Core Freq", "pid": self.process("AI Core Freq"), "tid": 0,
                                "ts": us(row["timestampNs"]), "args": {"MHz": row["freq"]}})  # fmt: skip
        if self.db["GC_RECORD"]:
            self.meta("process_name", self.process("Python GC"), name="Python GC")

    def hardware(self) -> None:
        for task in self.db["TASK"]:
            info, type_ = self.compute.get(task["globalTaskId"]), self.string[task["taskType"]]
            if info is None and type_ in PARENTS:
                continue
            name = self.string[info["name"]] if info else type_
            shown = shown_type(self.string[info["taskType"]] if info else "N/A", type_)
            args = {"Model Id": task["modelId"], "Task Type": shown,
                    "Physic Stream Id": task["streamId"], "Task Id": task["taskId"], "Batch Id": 0,
                    "Subtask Id": task["contextId"], "connection_id": task["connectionId"]}  # fmt: skip
            copy = next((c for c in self.db["MEMCPY_INFO"] if c["globalTaskId"] == task["globalTaskId"]), None)
            if copy:
                kinds = {row["id"]: row["name"] for row in self.db["ENUM_MEMCPY_OPERATION"]}
                args |= {"size(B)": copy["size"], "operation": kinds[copy["memcpyOperation"]]}
            pid, tid = self.process("Ascend Hardware"), task["streamId"]
            self.slice(name, pid, tid, task, args=args)
            if info or type_ == "MEMCPY_ASYNC":
                self.launched(task["connectionId"], (pid, tid, task["startNs"]))

    def launched(self, connection: int, end: tuple[int, int, int]) -> None:
        """Draw the arrow of a launch, and for the first of its tasks that of torch_npu."""
        call, op = self.calls.get(connection), self.op_of.get(connection)
        if call:
            at = (self.process("CANN"), call["globalTid"] & 0xFFFFFFFF, call["startNs"])
            if connection not in self.flowing:
                self.arrow("HostToDevice", str(connection), at)
                self.flowing.add(connection)
            self.events.append({"ph": "f", "bp": "e", "name": "HostToDevice", "cat": "HostToDevice",
                                "id": str(connection), "pid": end[0], "tid": end[1], "ts": us(end[2])})  # fmt: skip
        if op and connection not in self.arrowed:
            self.arrowed.add(connection)
            self.arrow("async_npu", end[2], (self.pid, op["globalTid"] & 0xFFFFFFFF, int(op["startNs"])), end)

    def communication(self) -> None:
        """Write operations on their group's thread and, where they are recorded, parts on the planes behind it."""
        pid, threads = self.process("Communication"), dict[int, str]()
        types, transports, links = (
            {row["id"]: row["name"] for row in self.db[f"ENUM_HCCL_{what}_TYPE"]}
            for what in ("DATA", "TRANSPORT", "LINK")
        )
        parts = [part for part in self.db["COMMUNICATION_TASK_INFO"] if part["planeId"] != NONE]  # Level0 has none
        wide = max((part["planeId"] for part in parts), default=0) + 2
        groups: dict[int, int] = {}
        for op in self.db["COMMUNICATION_OP"]:
            tid = groups.setdefault(op["groupName"], wide * len(groups))
            threads[tid] = f"Group {self.string[op['groupName']]} Communication"
            args = {"connection_id": op["connectionId"], "count": op["count"],
                    "data_type": types.get(op["dataType"], "INVALID_TYPE")}  # fmt: skip
            self.slice(self.string[op["opName"]], pid, tid, op, args=args)
            if op["connectionId"] in self.op_of:
                self.launched(op["connectionId"], (pid, tid, op["startNs"]))
        tasks = {row["globalTaskId"]: row for row in self.db["TASK"]}
        for part in parts:
            task, type_ = tasks[part["globalTaskId"]], self.string[part["taskType"]]
            tid = groups[part["groupName"]] + 1 + part["planeId"]
            threads[tid] = f"Plane {part['planeId']}"
            args = {"stream id": task["streamId"], "task id": task["taskId"], "context id": task["contextId"],
                    "task type": type_, "src rank": part["srcRank"], "dst rank": part["dstRank"],
                    "transport type": transports.get(part["transportType"], "INVALID_TYPE"),
                    "size(Byte)": part["size"],
                    "link type": links.get(part["linkType"], "INVALID_TYPE")}  # fmt: skip
            self.slice(type_, pid, tid, task, args=args)
        for tid, name in threads.items():
            self.events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}})

    def host(self) -> None:
        layers = dict(CALLS)
        if {"id": LAYERS["Hccl"], "name": "communication"} in self.db["ENUM_API_TYPE"]:
            layers[LAYERS["Hccl"]] = "Communication"
        for call in self.db["CANN_API"]:
            tid = call["globalTid"] & 0xFFFFFFFF
            args = {"Thread Id": tid, "connection_id": call["connectionId"]}
            self.slice(
                f"{layers[call['type']]}@{self.string[call['name']]}", self.process("CANN"), tid, call, args=args
            )

        for row in self.db["GC_RECORD"]:
            self.slice("GC", self.process("Python GC"), row["globalTid"] & 0xFFFFFFFF, row, cat="GC")

    def python(self) -> None:
        chains: dict[int, list[str]] = defaultdict(list)
        for row in sorted(self.db["PYTORCH_CALLCHAINS"], key=lambda r: (r["id"], r["stackDepth"])):
            chains[row["id"]].append(self.string[row["stack"]])
        shared: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for event in self.db["PYTORCH_API"]:
            tid, name = event["globalTid"] & 0xFFFFFFFF, self.string[event["name"]]
            ids = self.connections[event["connectionId"]] if event["connectionId"] is not None else []
            for one in ids:
                shared[one].append(event)
            if event["type"] == FRAME:
                self.slice(name, self.pid, tid, event, cat="python_function", args={})
            elif event["type"] == QUEUE:
                category = "dequeue" if name.startswith("Dequeue") else "enqueue"
                self.slice(name, self.pid, tid, event, cat=category, args={"correlation_id": ids[0]})
            else:
                args = {"Sequence number": event["sequenceNumber"], "Fwd thread id": event["fwdThreadId"]}
                if event["callchainId"] is not None:
                    args["Call stack"] = ";\r\n".join(chains[event["callchainId"]])
                self.slice(name, self.pid, tid, event, cat="cpu_op", args=args)
        for number, events in shared.items():
            if len(events) < 2 or number in self.calls:
                continue
            first, second = sorted(events, key=lambda e: int(e["startNs"]))[:2]
            category = "async_task_queue" if first["type"] == QUEUE else "fwdbwd"
            ends = ((self.pid, e["globalTid"] & 0xFFFFFFFF, int(e["startNs"])) for e in (first, second))
            self.arrow(category, number, *ends)

    def step(self, row: dict[str, Any]) -> object:
        """The step in which the kernel's operator began, else its launch."""
        op, call = self.op_of.get(row["connectionId"]), self.calls.get(row["connectionId"])
        time = int((op or call or row)["startNs"])
        return next((s["id"] for s in self.db["STEP_TIME"] if s["startNs"] <= time < s["endNs"]), "")

    def kernels(self) -> list[dict[str, Any]]:
        counters: dict[int, dict[str, Any]] = defaultdict(dict)
        for row in self.db["TASK_PMU_INFO"]:
            name, value = self.string[row["name"]], row["value"]
            if name in IN_NS:
                name, value = IN_NS[name], float(np.float32(value) / np.float32(1_000))
            counters[row["globalTaskId"]].setdefault(name, value)
        columns = [name for name in INFO if self.compute and name in next(iter(self.compute.values()))]
        found = []
        for task in self.db["TASK"]:
            info = self.compute.get(task["globalTaskId"])
            if info is None:
                continue
            row = {"Stream ID": task["streamId"], "Name": self.string[info["name"]], "task": task}
            for name in columns:
                row[INFO[name][0]] = info[name] if "lock" in name else self.string[info[name]]
            found.append(row | counters[task["globalTaskId"]])
        for op in self.db["COMMUNICATION_OP"]:
            found.append({"Name": self.string[op["opName"]], "Type": self.string[op["opType"]], "task": op,
                          "Accelerator Core": "COMMUNICATION", "Block Dim": 0, "Mix Block Dim": 0})  # fmt: skip
        return sorted(found, key=lambda row: row["task"]["startNs"])

    def table(self, path: Path) -> None:
        rows, before = self.kernels(), None
        for row in rows:
            task = row.pop("task")
            start, end = task["startNs"], task["endNs"]
            wait = max(0, start - before) if before else 0
            before = max(before or 0, end)
            row |= {"Step Id": self.step(task), "Device_id": self.device, "Start Time(us)": us(start) + "\t",
                    "Duration(us)": us(end - start), "Wait Time(us)": us(wait)}  # fmt: skip
        names = list(dict.fromkeys(name for row in rows for name in row))
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, names, restval="N/A")
            writer.writeheader()
            writer.writerows(rows)


def shown_type(core: str, runtime: str) -> str:
    """What a timeline has for a task's type: Level0 has the queue's, in which vector kernels are AI_CORE, too."""
    if core != "N/A":
        return core
    return {"KERNEL_AIVEC": "AI_CORE", "KERNEL_AICORE": "AI_CORE"}.get(runtime, runtime)


def to_text(folder: Path, out: Path, *, level0: bool = False) -> Path:
    """Write the text files of the run whose databases lie in ``folder``; return their folder below ``out``.

    ``level0``: without the calls of CANN, as that level's text export.
    """
    made = out / folder.name
    output = made / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    copy_around(folder, made, "text")
    db = Database(only(folder / "ASCEND_PROFILER_OUTPUT", "ascend_pytorch_profiler*.db"))
    files = Files(db)
    parts = (files.processes, files.hardware, files.communication, files.host, files.python)
    for part in parts:
        if not (level0 and part == files.host):
            part()
    (output / "trace_view.json").write_text(json.dumps(files.events))
    files.table(output / "kernel_details.csv")
    found = {row["name"]: row["value"] for row in db["META_DATA"] if not row["name"].startswith("SCHEMA")}
    if found:
        (made / "profiler_metadata.json").write_text(json.dumps({k: json.loads(v) for k, v in found.items()}))
    write_analysis(Database(only(folder / "ASCEND_PROFILER_OUTPUT", "analysis.db")), output)
    return made


def write_analysis(db: Database, output: Path) -> None:
    columns = ("computing", "communication_not_overlapped", "overlapped", "communication", "free", "stage", "bubble",
               "communication_not_overlapped_and_exclude_receive", "preparing")  # fmt: skip
    if db["StepTraceTime"]:
        with (output / "step_trace_time.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("Step", *STEP_COLUMNS))
            writer.writerows((row["step"], *(row[c] for c in columns)) for row in db["StepTraceTime"])
    times, links = operations(db), matrix(db)
    if times:
        (output / "communication.json").write_text(json.dumps(times))
    if links:
        (output / "communication_matrix.json").write_text(json.dumps(links))


def operations(db: Database) -> dict[str, Any]:
    found: dict[str, Any] = {}
    columns = ("start_timestamp", "elapse_time", "transit_time", "wait_time", "synchronization_time", "idle_time")
    for row in db["CommAnalyzerTime"]:
        ops = found.setdefault(row["step"], {"p2p": {}, "collective": {}})[row["type"]]
        times = dict(zip(TIME_COLUMNS, (row[c] for c in columns), strict=True))
        ops[f"{row['hccl_op_name']}@{row['group_name']}"] = {
            "Communication Time Info": times, "Communication Bandwidth Info": {}
        }  # fmt: skip
    for row in db["CommAnalyzerBandwidth"]:
        key = f"{row['hccl_op_name']}@{row['group_name']}"
        bands = found[row["step"]][row["type"]][key]["Communication Bandwidth Info"]
        sums = dict(zip(BANDWIDTH_COLUMNS, (row[c] for c in ANALYZED[3:7]), strict=True))
        band = bands.setdefault(row["transport_type"], {**sums, "Size Distribution": {}})
        if row["count"]:
            band["Size Distribution"][str(row["package_size"])] = [row["count"], row["total_duration"]]
    return found


def matrix(db: Database) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in db["CommAnalyzerMatrix"]:
        ops = found.setdefault(row["step"], {"p2p": {}, "collective": {}})[row["type"]]
        links = ops.setdefault(f"{row['hccl_op_name']}@{row['group_name']}", {})
        values = [row[c] for c in ("transport_type", "transit_size", "transit_time", "bandwidth")]
        link = dict(zip(LINK_COLUMNS, values, strict=True)) | {"Op Name": row["op_name"]}
        links[f"{row['src_rank']}-{row['dst_rank']}"] = link
    return found
