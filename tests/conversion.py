"""One run from torch_npu's text files into its databases and back, by what is known of both formats.

Written against the formats' descriptions and the tables of real files, with nothing of npuperf: what these functions
make of a run is a second export of the same run, so whoever reads both must find the same.
"""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
from collections import defaultdict
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

NONE = 4294967295
LAYERS = {"AscendCL": 20000, "Model": 15000, "Node": 10000, "Hccl": 5500, "Communication": 5500, "Runtime": 5000}
RUNTIME_TYPES = {
    "AI_CORE": "KERNEL_AICORE", "AI_VECTOR_CORE": "KERNEL_AIVEC", "MIX_AIC": "KERNEL_MIX_AIC",
    "MIX_AIV": "KERNEL_MIX_AIV", "AI_CPU": "KERNEL_AICPU",
}  # fmt: skip
OP, QUEUE, FRAME = 50001, 50002, 50003
#: Columns of kernel_details.csv that COMPUTE_TASK_INFO has, too. Counters follow them, one row each in the database.
INFO = {
    "blockDim": ("Block Dim", "Block Num"), "mixBlockDim": ("Mix Block Dim", "Mix Block Num"), "opType": ("Type",),
    "opState": ("OP State",), "taskType": ("Accelerator Core",), "inputShapes": ("Input Shapes",),
    "inputFormats": ("Input Formats",), "inputDataTypes": ("Input Data Types",), "outputShapes": ("Output Shapes",),
    "outputFormats": ("Output Formats",), "outputDataTypes": ("Output Data Types",),
    "hf32Eligible": ("HF32 Eligible",),
}  # fmt: skip
NOT_COUNTERS = {
    "Step Id", "Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Start Time(us)", "Duration(us)",
    "Wait Time(us)", "Context ID", *(spelling for spellings in INFO.values() for spelling in spellings),
}  # fmt: skip
TABLES = """
CREATE TABLE STRING_IDS(id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE TASK(startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER,
 globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER);
CREATE TABLE COMPUTE_TASK_INFO(name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockDim INTEGER, mixBlockDim INTEGER,
 taskType INTEGER, opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER,
 outputFormats INTEGER, outputDataTypes INTEGER, outputShapes INTEGER, opState INTEGER, hf32Eligible INTEGER);
CREATE TABLE COMMUNICATION_OP(opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER, groupName INTEGER,
 opId INTEGER PRIMARY KEY, relay INTEGER, retry INTEGER, dataType INTEGER, algType INTEGER, count NUMERIC,
 opType INTEGER, deviceId INTEGER);
CREATE TABLE COMMUNICATION_TASK_INFO(name INTEGER, globalTaskId INTEGER, taskType INTEGER, planeId INTEGER,
 groupName INTEGER, notifyId INTEGER, rdmaType INTEGER, srcRank INTEGER, dstRank INTEGER, transportType INTEGER,
 size INTEGER, dataType INTEGER, linkType INTEGER, opId INTEGER);
CREATE TABLE CANN_API(startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER,
 name INTEGER);
CREATE TABLE PYTORCH_API(startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER, name INTEGER,
 sequenceNumber INTEGER, fwdThreadId INTEGER, inputDtypes INTEGER, inputShapes INTEGER, callchainId INTEGER,
 type INTEGER);
CREATE TABLE CONNECTION_IDS(id INTEGER, connectionId INTEGER);
CREATE TABLE PYTORCH_CALLCHAINS(id INTEGER, stack INTEGER, stackDepth INTEGER);
CREATE TABLE TASK_PMU_INFO(globalTaskId INTEGER, name INTEGER, value NUMERIC);
CREATE TABLE STEP_TIME(id INTEGER, startNs INTEGER, endNs INTEGER);
CREATE TABLE RANK_DEVICE_MAP(rankId INTEGER, deviceId INTEGER);
CREATE TABLE META_DATA(name TEXT, value TEXT);
CREATE TABLE NPU_INFO(id INTEGER, name TEXT);
CREATE TABLE GC_RECORD(startNs INTEGER, endNs INTEGER, globalTid INTEGER);
CREATE TABLE MEMCPY_INFO(globalTaskId INTEGER, size INTEGER, memcpyOperation INTEGER);
CREATE TABLE AICORE_FREQ(deviceId INTEGER, timestampNs INTEGER, freq INTEGER);
CREATE TABLE ENUM_MEMCPY_OPERATION(id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE ENUM_API_TYPE(id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE ENUM_HCCL_TRANSPORT_TYPE(id INTEGER PRIMARY KEY, name TEXT);
INSERT INTO ENUM_HCCL_TRANSPORT_TYPE VALUES (0,'SDMA'),(1,'RDMA'),(2,'LOCAL'),(65534,'N/A'),(65535,'INVALID_TYPE');
CREATE TABLE ENUM_HCCL_LINK_TYPE(id INTEGER PRIMARY KEY, name TEXT);
INSERT INTO ENUM_HCCL_LINK_TYPE VALUES (0,'ON_CHIP'),(1,'HCCS'),(2,'PCIE'),(3,'ROCE'),(4,'SIO'),(5,'HCCS_SW'),
 (6,'STANDARD_ROCE'),(7,'RESERVED'),(65534,'N/A'),(65535,'INVALID_TYPE');
CREATE TABLE ENUM_HCCL_DATA_TYPE(id INTEGER PRIMARY KEY, name TEXT);
"""
ANALYSIS = """
CREATE TABLE StepTraceTime(deviceId INTEGER, step TEXT, computing NUMERIC, communication_not_overlapped NUMERIC,
 overlapped NUMERIC, communication NUMERIC, free NUMERIC, stage NUMERIC, bubble NUMERIC,
 communication_not_overlapped_and_exclude_receive NUMERIC, preparing NUMERIC);
CREATE TABLE CommAnalyzerTime(hccl_op_name TEXT, group_name TEXT, start_timestamp NUMERIC, elapse_time NUMERIC,
 transit_time NUMERIC, wait_time NUMERIC, synchronization_time NUMERIC, idle_time NUMERIC, step TEXT, type TEXT);
CREATE TABLE CommAnalyzerBandwidth(hccl_op_name TEXT, group_name TEXT, transport_type TEXT, transit_size NUMERIC,
 transit_time NUMERIC, bandwidth NUMERIC, large_packet_ratio NUMERIC, package_size NUMERIC, count NUMERIC,
 total_duration NUMERIC, step TEXT, type TEXT);
CREATE TABLE CommAnalyzerMatrix(hccl_op_name TEXT, group_name TEXT, src_rank TEXT, dst_rank TEXT,
 transport_type TEXT, transit_size NUMERIC, transit_time NUMERIC, bandwidth NUMERIC, step TEXT, type TEXT,
 op_name TEXT);
"""
DATA_TYPES = {"INT8": 0, "INT16": 1, "INT32": 2, "FP16": 3, "FP32": 4, "INT64": 5, "UINT64": 6, "UINT8": 7, "UINT16": 8,
              "UINT32": 9, "FP64": 10, "BFP16": 11, "INT128": 12}  # fmt: skip
STEP_COLUMNS = (
    "Computing", "Communication(Not Overlapped)", "Overlapped", "Communication", "Free", "Stage", "Bubble",
    "Communication(Not Overlapped and Exclude Receive)", "Preparing",
)  # fmt: skip
TIME_COLUMNS = (
    "Start Timestamp(us)", "Elapse Time(ms)", "Transit Time(ms)", "Wait Time(ms)", "Synchronization Time(ms)",
    "Idle Time(ms)",
)  # fmt: skip
BANDWIDTH_COLUMNS = ("Transit Size(MB)", "Transit Time(ms)", "Bandwidth(GB/s)", "Large Packet Ratio")
LINK_COLUMNS = ("Transport Type", "Transit Size(MB)", "Transit Time(ms)", "Bandwidth(GB/s)")


def ns(us: object) -> int:
    return round(Decimal(str(us).strip()) * 1000)


def us(ns_: int) -> str:
    return f"{ns_ // 1000}.{ns_ % 1000:03d}"


def only(folder: Path, pattern: str) -> Path | None:
    return next(iter(sorted(folder.glob(pattern))), None)


def load(path: Path | None) -> Any:
    return json.loads(path.read_text("utf-8")) if path else {}


def copy_around(folder: Path, out: Path, export: str) -> None:
    """Copy what lies beside the exported files."""
    for device in folder.glob("PROF_*"):
        shutil.copytree(device, out / device.name)
    for path in folder.glob("profiler_info*.json"):
        info = load(path)
        if "experimental_config" in info.get("config", {}):
            info["config"]["experimental_config"]["_export_type"] = export
        (out / path.name).write_text(json.dumps(info))


class Text:
    """The files of a text export, taken apart."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "ASCEND_PROFILER_OUTPUT"
        self.info = load(only(folder, "profiler_info*.json"))
        self.metadata = load(only(folder, "profiler_metadata.json"))
        with (self.output / "kernel_details.csv").open(encoding="utf-8-sig", newline="") as file:
            self.rows = list(csv.DictReader(file))
        self.events = load(self.output / "trace_view.json")
        self.process: dict[int, str] = {}
        self.label: dict[int, str] = {}
        self.thread: dict[tuple[int, int], str] = {}
        for event in self.events:
            if event["ph"] == "M" and event["name"] == "process_name":
                self.process[event["pid"]] = event["args"]["name"]
            elif event["ph"] == "M" and event["name"] == "process_labels":
                self.label[event["pid"]] = event["args"]["labels"]
            elif event["ph"] == "M" and event["name"] == "thread_name":
                self.thread[event["pid"], event["tid"]] = event["args"]["name"]
        self.python = next((pid for pid, name in self.process.items() if name == "Python"), 1)

    def of(self, *processes: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["ph"] == "X" and self.process.get(e["pid"]) in processes]

    def device(self) -> int:
        """The number in a column or a label; older exporters hide it in the process ids."""
        if self.rows and self.rows[0].get("Device_id"):
            return int(self.rows[0]["Device_id"])
        pid = next(pid for pid, name in self.process.items() if name == "Ascend Hardware")
        digits = self.label[pid].removeprefix("NPU").strip()
        return int(digits) if digits else pid & 31

    def arrows(self, category: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        starts, ends = {}, defaultdict(list)
        for event in self.events:
            if event["ph"] == "s" and event["cat"] == category:
                starts.setdefault(event["id"], event)
            elif event["ph"] == "f" and event["cat"] == category:
                ends[event["id"]].append(event)
        return [(starts[key], found) for key, found in ends.items() if key in starts]


class Strings:
    """STRING_IDS."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __call__(self, text: object) -> int:
        return self.ids.setdefault(str(text), len(self.ids))


def span(event: dict[str, Any]) -> tuple[int, int]:
    start = ns(event["ts"])
    return start, start + ns(event["dur"])


def place(event: dict[str, Any]) -> tuple[int, int, int]:
    return event["pid"], event["tid"], ns(event["ts"])


class Tables:
    """A database that is filled from a text export."""

    def __init__(self, text: Text) -> None:
        self.text, self.string = text, Strings()
        self.device = text.device()
        self.rows: dict[str, list[tuple[object, ...]]] = defaultdict(list)
        self.tasks = 0
        self.task_of: dict[tuple[object, ...], int] = {}
        self.connection_at: dict[tuple[int, int, int], int] = {}
        self.kernels: dict[int, list[dict[str, str]]] = defaultdict(list)
        self.collectives: list[dict[str, str]] = []
        for row in text.rows:
            if row["Name"].startswith("hcom_"):
                self.collectives.append(row)
            else:
                self.kernels[ns(row["Start Time(us)"])].append(row)
        self.groups = groups_of(load(only(text.output, "communication.json")))

    def add(self, table: str, *values: object) -> None:
        self.rows[table].append(values)

    def tid(self, tid: int) -> int:
        return (self.text.python << 32) | tid

    def task(self, start: int, end: int, connection: int, type_: str, stream: int, args: dict[str, Any]) -> int:
        number = self.tasks
        self.tasks += 1
        keys = ("Subtask Id", "Task Id", "Model Id")
        context, task, model = (int(args.get(key, NONE)) for key in keys)
        self.add("TASK", start, end, self.device, connection, number, self.text.python, self.string(type_), context,
                 stream, task, model)  # fmt: skip
        return number

    def hardware(self) -> None:
        for event in self.text.of("Ascend Hardware"):
            start, end = span(event)
            args = event["args"]
            connection = args.get("connection_id", NONE)
            self.connection_at[place(event)] = connection
            here = [row for row in self.kernels.get(start, ()) if row["Name"] == event["name"]]
            row = here[0] if here else None
            type_ = event["name"]
            if row:
                self.kernels[start].remove(row)
                end = start + ns(row["Duration(us)"])
                core = row["Accelerator Core"]
                type_ = RUNTIME_TYPES.get(core, core if core != "N/A" else "UNKNOWN")  # Level0 has no types
            elif type_ not in ("MEMCPY_ASYNC", "EVENT_RECORD", "EVENT_WAIT", "SDMA", "Notify Wait", "Write Value",
                               "PROFILING_ENABLE", "PROFILING_DISABLE"):  # fmt: skip
                type_ = args["Task Type"]
            number = self.task(start, end, connection, type_, event["tid"], args)
            self.task_of[event["tid"], args.get("Task Id"), args.get("Subtask Id")] = number
            if "operation" in args:
                kinds = self.rows["ENUM_MEMCPY_OPERATION"]
                kind = next((k for k, name in kinds if name == args["operation"]), len(kinds))
                if kind == len(kinds):
                    self.add("ENUM_MEMCPY_OPERATION", kind, args["operation"])
                self.add("MEMCPY_INFO", number, args.get("size(B)"), kind)
            if row:
                self.compute(number, row)
        for start, rows in self.kernels.items():
            for row in rows:
                type_ = RUNTIME_TYPES.get(row["Accelerator Core"], row["Accelerator Core"])
                end = start + ns(row["Duration(us)"])
                self.compute(self.task(start, end, NONE, type_, int(row.get("Stream ID") or 0), {}), row)

    def compute(self, number: int, row: dict[str, str]) -> None:
        columns: dict[str, int] = {"name": self.string(row["Name"]), "globalTaskId": number}
        for column, spellings in INFO.items():
            value = next((row[s] for s in spellings if s in row), "0" if "lock" in column else "N/A")
            columns[column] = int(value or 0) if "lock" in column else self.string(value.strip('"') or value)
        order = ("name", "globalTaskId", "blockDim", "mixBlockDim", "taskType", "opType", "inputFormats",
                 "inputDataTypes", "inputShapes", "outputFormats", "outputDataTypes", "outputShapes", "opState",
                 "hf32Eligible")  # fmt: skip
        self.add("COMPUTE_TASK_INFO", *(columns[name] for name in order))
        for name, value in row.items():
            if name not in NOT_COUNTERS and value not in ("", "N/A", None):
                self.add("TASK_PMU_INFO", number, self.string(name), float(value))

    def communication(self) -> None:
        text = self.text
        events = text.of("HCCL", "Communication")
        groups = {key for key, name in text.thread.items() if name.startswith("Group ")}
        ops = sorted((e for e in events if (e["pid"], e["tid"]) in groups), key=lambda e: ns(e["ts"]))
        spans = []
        for number, event in enumerate(ops, 1):
            start, end = span(event)
            row = min((r for r in self.collectives if r["Name"] == event["name"]),
                      key=lambda r: abs(ns(r["Start Time(us)"]) - start), default=None)  # fmt: skip
            if row:
                start = ns(row["Start Time(us)"])
                end = start + ns(row["Duration(us)"])
            thread = text.thread[event["pid"], event["tid"]]
            group = self.groups.get(event["name"], thread.removeprefix("Group ").removesuffix(" Communication"))
            args = event["args"]
            type_ = row["Type"] if row else event["name"].split("__")[0] + "_"
            self.add("COMMUNICATION_OP", self.string(event["name"]), start, end, args.get("connection_id", NONE),
                     self.string(group), number, 0, 0, DATA_TYPES.get(args.get("data_type"), 65535), self.string("NA"),
                     args.get("count", 0), self.string(type_), self.device)  # fmt: skip
            spans.append((*span(event), number, event["name"], group))
            # What timelines hide: the task that all parts of the operation belong to.
            self.task(start - 1_000, end + 1_000, args.get("connection_id", NONE), "AI_CORE", 4, {})
        for event in events:
            plane = text.thread.get((event["pid"], event["tid"]), "")
            if plane.startswith("Plane "):
                self.part(event, int(plane.split()[1]), spans)

    def part(self, event: dict[str, Any], plane: int, ops: list[tuple[int, int, int, str, str]]) -> None:
        args = event["args"]
        task = self.task_of[args["stream id"], args["task id"], args["context id"]]
        start = ns(event["ts"])
        _, _, number, name, group = next(op for op in ops if op[0] - 10 <= start <= op[1] + 10)
        transports = {"SDMA": 0, "RDMA": 1, "LOCAL": 2}
        links = {"ON_CHIP": 0, "HCCS": 1, "PCIE": 2, "ROCE": 3, "SIO": 4, "HCCS_SW": 5, "STANDARD_ROCE": 6}
        self.add("COMMUNICATION_TASK_INFO", self.string(name), task, self.string(args["task type"]), plane,
                 self.string(group), 0, 65535, args["src rank"], args["dst rank"],
                 transports.get(args["transport type"], 65535), args["size(Byte)"], 65535,
                 links.get(args["link type"], 65535), number)  # fmt: skip

    def host(self) -> None:
        for event in self.text.of("CANN"):
            layer, _, name = event["name"].partition("@")
            start, end = span(event)
            self.add("CANN_API", start, end, LAYERS[layer], self.tid(event["tid"]),
                     event["args"].get("connection_id", NONE), self.string(name))  # fmt: skip
        if not self.text.of("CANN"):  # Level0 leaves the calls out: of launches only the starts are left
            at = self.connection_at | self.collective_at
            for start, ends in self.text.arrows("HostToDevice"):
                connection = next((at[place(e)] for e in ends if place(e) in at), NONE)
                begin, name = ns(start["ts"]), self.string("launch")
                self.add("CANN_API", begin, begin, LAYERS["Node"], self.tid(start["tid"]), connection, name)
        for event in self.text.of("Python GC"):
            self.add("GC_RECORD", *span(event), self.tid(event["tid"]))

    def python(self) -> None:
        ops, connections, chains = self.connections(), [], {}
        kinds = {"cpu_op": OP, "enqueue": QUEUE, "dequeue": QUEUE, "python_function": FRAME}
        for event in self.text.of("Python"):
            kind, args = kinds[event["cat"]], event.get("args", {})
            start, end = span(event)
            mine = ops.get((event["tid"], start), ()) if kind == OP else ()
            if kind == QUEUE:
                mine = (self.after + int(args["correlation_id"]),)
            number = len(connections) if mine else None  # torch_npu gives every event its own
            if mine:
                connections.append(tuple(mine))
            chain = None
            if args.get("Call stack"):
                chain = chains.setdefault(args["Call stack"], len(chains))
            sequence, forward = args.get("Sequence number"), args.get("Fwd thread id")
            self.add("PYTORCH_API", str(start), str(end), self.tid(event["tid"]), number, self.string(event["name"]),
                     sequence, forward, None, None, chain, kind)  # fmt: skip
        for number, ids in enumerate(connections):
            for one in ids:
                self.add("CONNECTION_IDS", number, one)
        for stack, number in chains.items():
            for depth, frame in enumerate(f.strip() for f in stack.split(";")):
                self.add("PYTORCH_CALLCHAINS", number, self.string(frame), depth)

    def connections(self) -> dict[tuple[int, int], list[int]]:
        """Connection ids by torch operator: those of its kernels' launches, and one that it shares with its backward.

        torch_npu looks for the launches of nodes only, and moves its own ids behind those of CANN.
        """
        launches = {row[4] for row in self.rows["CANN_API"] if row[2] == LAYERS["Node"]}
        known = [value for value in self.connection_at.values() if value != NONE] + [v for v in launches if v]
        self.after = max(known, default=0) + 1
        ids: dict[tuple[int, int], list[int]] = defaultdict(list)
        for start, ends in self.text.arrows("async_npu"):
            for end in ends:
                connection = self.connection_at.get(place(end), self.collective_at.get(place(end), NONE))
                if connection in launches:
                    ids[start["tid"], ns(start["ts"])].append(connection)
        correlations = [int(e["args"]["correlation_id"]) for e in self.text.of("Python") if e.get("cat") == "enqueue"]
        free = self.after + max(correlations, default=0) + 1
        for number, (start, ends) in enumerate(self.text.arrows("fwdbwd"), free):
            for event in (start, *ends):
                ids[event["tid"], ns(event["ts"])].append(number)
        return ids

    @cached_property
    def collective_at(self) -> dict[tuple[int, int, int], int]:
        return {place(e): e["args"].get("connection_id", NONE) for e in self.text.of("HCCL", "Communication")}

    def about(self) -> None:
        calls = {e["name"].partition("@")[0] for e in self.text.of("CANN")}
        names = {"runtime": 5000, "node": 10000, "model": 15000, "acl": 20000, "op": OP, "queue": QUEUE, "trace": FRAME}
        for name, number in (names | {"communication" if "Communication" in calls else "hccl": 5500}).items():
            self.add("ENUM_API_TYPE", number, name)
        for name, number in DATA_TYPES.items():
            self.add("ENUM_HCCL_DATA_TYPE", number, name)
        if "rank_id" in self.text.info:
            self.add("RANK_DEVICE_MAP", self.text.info["rank_id"], self.device)
        self.add("NPU_INFO", self.device, "Ascend910B")
        for name, value in self.text.metadata.items():
            self.add("META_DATA", name, json.dumps(value))
        for event in self.text.of("Python"):
            if event["name"].startswith("ProfilerStep#"):
                self.add("STEP_TIME", int(event["name"].split("#")[1]), *span(event))
        for event in self.text.events:
            if event["ph"] == "C" and event["name"] == "AI Core Freq":
                self.add("AICORE_FREQ", self.device, ns(event["ts"]), event["args"]["MHz"])

    def write(self, path: Path) -> None:
        for text, number in self.string.ids.items():
            self.add("STRING_IDS", number, text)
        fill(path, TABLES, self.rows)


def fill(path: Path, tables: str, rows: dict[str, list[tuple[object, ...]]]) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(tables)
    for table, values in rows.items():
        if not values:
            continue
        connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(values[0]))})", values)
    connection.commit()
    connection.close()


def groups_of(communication: dict[str, Any]) -> dict[str, str]:
    found = {}
    for sections in communication.values():
        for ops in sections.values():
            found |= dict(key.split("@", 1) for key in ops if "@" in key)
    return found


def to_db(folder: Path, out: Path) -> Path:
    """Write the databases of the run whose text export lies in ``folder``; return their folder below ``out``."""
    made = out / folder.name
    (made / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    copy_around(folder, made, "db")
    text = Text(folder)
    tables = Tables(text)
    for part in (tables.hardware, tables.communication, tables.host, tables.python, tables.about):
        part()
    rank = text.info.get("rank_id")
    name = "ascend_pytorch_profiler.db" if rank is None else f"ascend_pytorch_profiler_{rank}.db"
    tables.write(made / "ASCEND_PROFILER_OUTPUT" / name)
    rows = analysis_rows(text, tables.device)
    if rows:
        fill(made / "ASCEND_PROFILER_OUTPUT" / "analysis.db", ANALYSIS, rows)
    return made


def analysis_rows(text: Text, device: int) -> dict[str, list[tuple[object, ...]]]:
    rows: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    steps = only(text.output, "step_trace_time.csv")
    if steps:
        with steps.open(newline="") as file:
            for row in csv.DictReader(file):
                rows["StepTraceTime"].append((device, row["Step"], *(row[c] for c in STEP_COLUMNS)))
    for step, sections in load(only(text.output, "communication.json")).items():
        for kind, ops in sections.items():
            for key, op in ops.items():
                name, _, group = key.partition("@")
                times = op["Communication Time Info"]
                rows["CommAnalyzerTime"].append((name, group, *(times.get(c, 0) for c in TIME_COLUMNS), step, kind))
                for transport, band in op["Communication Bandwidth Info"].items():
                    sums = [band.get(c, 0) for c in BANDWIDTH_COLUMNS]
                    for size, (count, took) in (band["Size Distribution"] or {"0": (0, 0)}).items():
                        rows["CommAnalyzerBandwidth"].append(
                            (name, group, transport, *sums, float(size), count, took, step, kind)
                        )
    for step, sections in load(only(text.output, "communication_matrix.json")).items():
        for kind, ops in sections.items():
            for key, links in ops.items():
                name, _, group = key.partition("@")
                for link, values in links.items():
                    rows["CommAnalyzerMatrix"].append(
                        (name, group, *link.split("-"), *(values.get(c) for c in LINK_COLUMNS), step, kind,
                         values.get("Op Name"))
                    )  # fmt: skip
    return rows
