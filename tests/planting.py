"""Plant a problem into a recording's own files, whatever wrote them, so that what should be found is known.

Written against the formats alone, with nothing of npuperf: a recording is read into rows, time is stretched, calls are
put in, kernels are made others, and the rows are written as they came.
"""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

#: Where a call is recorded: by torch, by the runtime, or as a range that the program named.
TORCH, RUNTIME, RANGE = "torch", "runtime", "range"
_CALLS = ("cuda_runtime", "cuda_sync", "enqueue", "dequeue")
#: The exporter's own sums, which are of the recording as it was.
_SUMS = shutil.ignore_patterns("step_trace_time.csv", "op_statistic.csv", "communication*.json", "analysis.db")


def ns(us: object) -> int:
    """Read a time in microseconds, exactly."""
    return int(Decimal(str(us).strip()) * 1000)


def us(time: int) -> str:
    """Write a time in microseconds."""
    return f"{time // 1000}.{time % 1000:03d}"


def _copied(path: Path, into: Path) -> Path:
    """Copy a recording, unpacked; the folder or file."""
    if path.is_dir():
        return shutil.copytree(path, into, copy_function=shutil.copyfile, ignore=_SUMS)
    into.mkdir()
    whole = into / path.name.removesuffix(".gz")
    whole.write_bytes(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    return whole


class Launch:
    """A device task: when it starts, when the outermost operator that launches it begins, and on which thread."""

    def __init__(self, start: int, root: int, thread: Any) -> None:
        self.start, self.root, self.thread = start, root, thread


class Copied:
    """A copy of a recording whose files may be changed; see the functions of this class."""

    kineto = False
    folder: Path

    def launches(self) -> list[Launch]:
        """Return the device's tasks that have a launch, by start."""
        raise NotImplementedError

    def busy(self) -> list[tuple[int, int]]:
        """Return when tasks of any kind run."""
        raise NotImplementedError

    def stretch(self, at: int, by: int) -> None:
        """Make the time ``at`` last ``by`` ns longer: what spans it grows, what begins after it comes later."""
        raise NotImplementedError

    def call(self, name: str, start: int, dur: int, where: str, thread: Any) -> None:
        """Put a call into a thread of the host."""
        raise NotImplementedError

    def kernels(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change kernels: of each a dict with type, core and dur (ns), and what else the format has."""
        raise NotImplementedError

    def rename(self, root: int, thread: Any, name: str) -> None:
        """Give the torch operator that begins at ``root`` on a thread another name."""
        raise NotImplementedError

    def save(self) -> Path:
        """Write what was changed; the folder or file to analyze."""
        raise NotImplementedError

    def frame(self, time: int, thread: Any) -> str | None:
        """Return the innermost function of the program on a thread, None where functions are not recorded."""
        return None

    def number_steps(self, first: int) -> None:
        """Count steps from another number."""
        raise NotImplementedError

    def collectives(self) -> list[tuple[int, int]]:
        """Return when the device communicates."""
        raise NotImplementedError

    def calls(self) -> list[tuple[int, int, str]]:
        """Return begin, end and name of what threads do: operators, calls of a runtime, a queue's."""
        raise NotImplementedError

    def clear(self, since: int, until: int) -> None:
        """Take out what a thread is in at ``since``, and all waits for the device that begin before ``until``."""
        raise NotImplementedError

    def environment(self, name: str, value: str) -> None:
        """Record that a variable was set."""
        (found,) = self.folder.rglob("profiler_metadata.json")
        whole = json.loads(found.read_text())
        whole.setdefault("ENV_VARIABLES", {})[name] = value
        found.write_text(json.dumps(whole))

    def places(self) -> list[tuple[Launch, int]]:
        """Return the tasks for which the device waits, and since when; where their operators begin no call is cut."""
        busy, calls = sorted(self.busy()), self.calls()
        found, reached, at = [], 0, 0
        for launch in self.launches():
            while at < len(busy) and busy[at][0] < launch.start:
                reached = max(reached, busy[at][1])
                at += 1
            begin = launch.root - 1
            if reached and reached < begin - 1 and not any(start < begin < end for start, end, _ in calls):
                found.append((launch, reached))
        return found

    def waited_for(self) -> tuple[Launch, int]:
        """Return the place where the device waits longest, those of the first quarter apart."""
        found = self.places()
        return max(found[len(found) // 4 :], key=lambda one: one[0].root - one[1])


class Table(Copied):
    """A table of kernels alone: kernel_details.csv, or msprof's op_summary.csv."""

    #: What kernels are asked for and given, and what columns may be called.
    NAMES = (
        ("name", "Name", "Op Name"),
        ("type", "Type", "OP Type"),
        ("core", "Accelerator Core", "Task Type"),
        ("state", "OP State"),
        ("block", "Block Dim"),
        ("shapes", "Input Shapes"),
        ("start", "Start Time(us)", "Task Start Time(us)"),
        ("dur", "Duration(us)", "Task Duration(us)"),
        ("aic_cycles", "aic_total_cycles"),
        ("aiv_cycles", "aiv_total_cycles"),
        ("cube", "cube_utilization(%)"),
    )

    def __init__(self, path: Path, into: Path | None = None) -> None:
        """Read a table; ``into``: where to copy it, without which it is a copy already."""
        if into is not None:
            path = _copied(path, into)
        self.folder, self.whole = path if path.is_dir() else path.parent, path
        self.path = next(path.rglob("kernel_details.csv")) if path.is_dir() else path
        with self.path.open(newline="", encoding="utf-8-sig") as lines:
            self.rows = list(csv.DictReader(lines))
        there = self.rows[0]
        self.columns = {f: next(n for n in names if n in there) for f, *names in self.NAMES if {*names} & {*there}}

    def kernels(self, change: Callable[[dict[str, Any]], None]) -> None:
        for row in self.rows:
            kernel: dict[str, Any] = {field: row[column] for field, column in self.columns.items()}
            kernel["dur"], kernel["start"] = ns(kernel["dur"]), ns(kernel["start"])
            change(kernel)
            for field, column in self.columns.items():
                row[column] = us(kernel[field]) if field in ("dur", "start") else kernel[field]

    def busy(self) -> list[tuple[int, int]]:
        start, dur = self.columns["start"], self.columns["dur"]
        return [(ns(row[start]), ns(row[start]) + ns(row[dur])) for row in self.rows]

    def stretch(self, at: int, by: int) -> None:
        start, dur = self.columns["start"], self.columns["dur"]
        for row in self.rows:
            begin, length = ns(row[start]), ns(row[dur])
            if begin >= at:
                row[start] = us(begin + by)
            elif begin + length > at:
                row[dur] = us(length + by)

    def collectives(self) -> list[tuple[int, int]]:
        return [span for span, row in zip(self.busy(), self.rows, strict=True)
                if row[self.columns["name"]].startswith("hcom_")]  # fmt: skip

    def number_steps(self, first: int) -> None:
        numbers = sorted({int(row["Step Id"]) for row in self.rows if row["Step Id"].strip()})
        for row in self.rows:
            if row["Step Id"].strip():
                row["Step Id"] = str(first + numbers.index(int(row["Step Id"])))

    def wait_as_placed(self) -> None:
        """Let each row have waited for as long as it now is behind the row before it."""
        placed = sorted(zip(self.busy(), self.rows, strict=True), key=lambda one: one[0][0])
        for ((_, end), _), ((start, _), row) in pairwise(placed):
            if "Wait Time(us)" in row:
                row["Wait Time(us)"] = us(max(start - end, 0))

    def save(self) -> Path:
        with self.path.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)
        return self.whole


class Trace(Copied):
    """The text export of torch_npu (a trace and a table of kernels), or a trace of torch.profiler."""

    def __init__(self, path: Path, into: Path) -> None:
        copied = _copied(path, into)
        table = next(into.rglob("kernel_details.csv"), None)
        self.folder, self.table = into, None if table is None else Table(table)
        (self.trace,) = into.rglob("trace_view.json") if copied.is_dir() else (copied,)
        whole = json.loads(self.trace.read_text(), parse_float=Decimal)
        self.whole, self.events = (whole, whole["traceEvents"]) if isinstance(whole, dict) else (None, whole)
        self.kineto = self.whole is not None
        processes = {e["pid"]: e["args"]["name"] for e in self.events if e["name"] == "process_name"}
        hardware = ("Ascend Hardware", "HCCL", "Communication")
        self.hardware = {pid for pid, name in processes.items() if name in hardware}
        self.runtime = next((pid for pid, name in processes.items() if name == "CANN"), None)

    def _on_device(self, event: dict[str, Any]) -> bool:
        if self.kineto:
            return event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
        return event["pid"] in self.hardware and not event["name"].startswith(("EVENT", "Notify", "NOTIFY"))

    def _spans(self) -> list[dict[str, Any]]:
        return [e for e in self.events if e["ph"] == "X" and "dur" in e]

    def busy(self) -> list[tuple[int, int]]:
        return [(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in self._spans() if self._on_device(e)]

    def calls(self) -> list[tuple[int, int, str]]:
        mine = [e for e in self._spans() if e["pid"] == self.runtime or e.get("cat") in _CALLS or "::" in e["name"]]
        return [(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), e["name"]) for e in mine]

    def collectives(self) -> list[tuple[int, int]]:
        names = ("hcom_", "nccl")
        mine = [e for e in self._spans() if e["name"].startswith(names) and self._on_device(e)]
        return [(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in mine]

    def clear(self, since: int, until: int) -> None:
        def kept(event: dict[str, Any]) -> bool:
            if event["ph"] != "X" or "dur" not in event or self._on_device(event):
                return True
            start, call = ns(event["ts"]), event["pid"] == self.runtime or event.get("cat") in _CALLS
            if not call and "::" not in event["name"]:
                return True
            within = since <= start < until and "ynchronize" in event["name"]
            return not within and not start < since < start + ns(event["dur"])

        self.events[:] = [event for event in self.events if kept(event)]

    def launches(self) -> list[Launch]:
        tasks = {(e["pid"], e["tid"], ns(e["ts"])) for e in self._spans() if self._on_device(e)}
        calls: dict[tuple[str, str], dict[str, Any]] = {}
        ends: list[dict[str, Any]] = []
        for event in self.events:
            if event.get("cat") in ("HostToDevice", "ac2g", "async_npu"):
                if event["ph"] == "s":
                    calls[event["cat"], str(event["id"])] = event
                elif event["ph"] == "f":
                    ends.append(event)
        begun: dict[tuple[Any, Any, int], dict[str, dict[str, Any]]] = {}
        for end in ends:
            place = end["pid"], end["tid"], ns(end["ts"])
            if place in tasks and (end["cat"], str(end["id"])) in calls:
                begun.setdefault(place, {})[end["cat"]] = calls[end["cat"], str(end["id"])]
        outer: dict[Any, list[tuple[int, int]]] = {}
        for event in sorted(self._spans(), key=lambda e: (ns(e["ts"]), -ns(e["dur"]))):
            mine = outer.setdefault(event["tid"], [])
            end = ns(event["ts"]) + ns(event["dur"])
            if "::" in event["name"] and event.get("cat") == "cpu_op" and (not mine or mine[-1][1] < end):
                mine.append((ns(event["ts"]), end))
        found = []
        for place, by in begun.items():
            call = by.get("HostToDevice") or by.get("ac2g")
            root = by.get("async_npu") or call
            if call is None or root is None:
                continue
            begin = min(ns(root["ts"]), ns(call["ts"]))
            begin = next((start for start, end in outer.get(root["tid"], []) if start <= begin < end), begin)
            found.append(Launch(place[2], begin, root["tid"]))
        return sorted(found, key=lambda launch: launch.start)

    def stretch(self, at: int, by: int) -> None:
        for event in self.events:
            if "ts" not in event:
                continue
            start = ns(event["ts"])
            if start >= at:
                event["ts"] = us(start + by)
                if event.get("cat") == "async_npu":  # these ids are times of the device
                    event["id"] = int(event["id"]) + by if int(event["id"]) >= at else event["id"]
            elif event["ph"] == "X" and start + ns(event.get("dur", 0)) > at:
                event["dur"] = us(ns(event["dur"]) + by)
            if event.get("cat") == "async_npu" and start < at <= int(event["id"]):
                event["id"] = int(event["id"]) + by
        if self.table is not None:
            self.table.stretch(at, by)

    def call(self, name: str, start: int, dur: int, where: str, thread: Any) -> None:
        host = next(e["pid"] for e in self._spans() if e["tid"] == thread and e["pid"] != self.runtime)
        pid = self.runtime if where == RUNTIME and self.runtime is not None else host
        category = {TORCH: "cpu_op", RUNTIME: "cuda_runtime", RANGE: "user_annotation"}[where]
        event = {"ph": "X", "name": name, "pid": pid, "tid": thread, "ts": us(start), "dur": us(dur), "args": {}}
        if self.kineto:
            event["cat"] = category
        elif pid == host:
            event["cat"] = "cpu_op"
        self.events.append(event)

    def kernels(self, change: Callable[[dict[str, Any]], None]) -> None:
        if self.table is not None:
            self.table.kernels(change)
            lengths = {start: end - start for start, end in self.table.busy()}
            for event in self._spans():
                if event["pid"] in self.hardware and ns(event["ts"]) in lengths:
                    event["dur"] = us(lengths[ns(event["ts"])])
            return
        for event in self._spans():
            if event.get("cat") == "kernel" if self.kineto else self._on_device(event) and "Task Type" in event["args"]:
                kernel = {"name": event["name"], "type": None, "core": event["args"].get("Task Type"),
                          "start": ns(event["ts"]), "dur": ns(event["dur"])}  # fmt: skip
                change(kernel)
                event["name"], event["dur"] = kernel["name"], us(kernel["dur"])
                if not self.kineto:
                    event["args"]["Task Type"] = kernel["core"]

    def rename(self, root: int, thread: Any, name: str) -> None:
        for event in self._spans():
            if event["tid"] == thread and "::" in event["name"] and ns(event["ts"]) == root:
                event["name"] = name
                break

    def frame(self, time: int, thread: Any) -> str | None:
        mine = [e for e in self._spans() if e["tid"] == thread and e.get("cat") == "python_function"]
        around = [e for e in mine if ns(e["ts"]) <= time < ns(e["ts"]) + ns(e["dur"])]
        own = [e for e in around if not e["name"].startswith(("torch", "<", "nn.Module"))]
        return max(own, key=lambda e: ns(e["ts"]))["name"] if own else None

    def number_steps(self, first: int) -> None:
        names = sorted({int(e["name"][13:]) for e in self._spans() if e["name"].startswith("ProfilerStep#")})
        for event in self._spans():
            if event["name"].startswith("ProfilerStep#"):
                event["name"] = f"ProfilerStep#{first + names.index(int(event['name'][13:]))}"
        if self.table is not None:
            self.table.number_steps(first)

    def collective(self, start: int, dur: int) -> None:
        """Let the device communicate."""
        if self.kineto:
            event = next(e for e in self._spans() if e.get("cat") == "kernel")
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            self.events.append({**event, "name": name, "ts": us(start), "dur": us(dur), "args": {"stream": 99},
                                "tid": 99})  # fmt: skip
            return
        self.events.append({"ph": "M", "name": "process_name", "pid": 77, "args": {"name": "HCCL"}})
        named = {"ph": "M", "name": "thread_name", "pid": 77, "tid": 0, "args": {"name": "Group 0 Communication"}}
        args = {"data_type": "FP32", "count": 1 << 20}
        self.events += [named, {"ph": "X", "name": "hcom_allReduce__123_0_1", "pid": 77, "tid": 0, "ts": us(start),
                                "dur": us(dur), "args": args}]  # fmt: skip

    def save(self) -> Path:
        for event in self.events:
            for key in ("ts", "dur") if self.kineto else ("dur",):  # the others are texts
                if key in event:
                    event[key] = float(event[key])
        self.trace.write_text(json.dumps(self.whole or self.events, default=float))
        if self.table is not None:
            self.table.wait_as_placed()
            self.table.save()
        return self.trace if self.kineto else self.folder


class Database(Copied):
    """The database of torch_npu."""

    def __init__(self, path: Path, into: Path) -> None:
        self.folder = _copied(path, into)
        (found,) = into.rglob("ascend_pytorch_profiler*.db")
        found.chmod(0o644)
        self.db = sqlite3.connect(found, isolation_level=None)
        self.db.execute("BEGIN")

    def busy(self) -> list[tuple[int, int]]:
        return self.db.execute(
            "SELECT startNs, endNs FROM TASK WHERE globalTaskId IN (SELECT globalTaskId FROM COMPUTE_TASK_INFO) "
            "OR taskType IN (SELECT id FROM STRING_IDS WHERE value LIKE 'MEMCPY%') "
            "UNION ALL SELECT startNs, endNs FROM COMMUNICATION_OP"
        ).fetchall()

    def launches(self) -> list[Launch]:
        rows = self.db.execute(
            "SELECT t.startNs, MIN(CAST(o.startNs AS INTEGER)), p.globalTid FROM TASK t "
            "JOIN CONNECTION_IDS i ON i.connectionId = t.connectionId "
            "JOIN PYTORCH_API p ON p.connectionId = i.id AND p.type = 50001 "
            "JOIN PYTORCH_API o ON o.globalTid = p.globalTid AND o.startNs <= p.startNs AND o.endNs >= p.endNs "
            "AND o.name IN (SELECT id FROM STRING_IDS WHERE value LIKE '%::%') "
            "WHERE t.globalTaskId IN (SELECT globalTaskId FROM COMPUTE_TASK_INFO) GROUP BY t.globalTaskId"
        ).fetchall()
        return sorted((Launch(*row) for row in rows), key=lambda launch: launch.start)

    def calls(self) -> list[tuple[int, int, str]]:
        return self.db.execute(
            "SELECT startNs, endNs, value FROM CANN_API JOIN STRING_IDS ON id = name UNION ALL "
            "SELECT CAST(startNs AS INTEGER), CAST(endNs AS INTEGER), value FROM PYTORCH_API p "
            "JOIN STRING_IDS s ON s.id = name WHERE type = 50002 OR value LIKE '%::%'"
        ).fetchall()

    def collectives(self) -> list[tuple[int, int]]:
        return self.db.execute("SELECT startNs, endNs FROM COMMUNICATION_OP").fetchall()

    def clear(self, since: int, until: int) -> None:
        within = f"({since} <= startNs AND startNs < {until} AND name IN " \
                 "(SELECT id FROM STRING_IDS WHERE value LIKE '%ynchronize%'))"  # fmt: skip
        self.db.execute(f"DELETE FROM CANN_API WHERE {within} OR (startNs < {since} AND {since} < endNs)")
        self.db.execute(
            f"DELETE FROM PYTORCH_API WHERE CAST(startNs AS INTEGER) < {since} AND {since} < CAST(endNs AS INTEGER) "
            "AND (type = 50002 OR name IN (SELECT id FROM STRING_IDS WHERE value LIKE '%::%'))"
        )

    def stretch(self, at: int, by: int) -> None:
        tables = [name for (name,) in self.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            kinds = {row[1]: row[2] for row in self.db.execute(f"PRAGMA table_info({table})")}
            if "startNs" in kinds:
                for column, after in (("endNs", ">"), ("startNs", ">=")):
                    moved = f"CAST(CAST({column} AS INTEGER) + {by} AS {kinds[column] or 'INTEGER'})"
                    where = f"CAST({column} AS INTEGER) {after} {at}"
                    self.db.execute(f"UPDATE {table} SET {column} = {moved} WHERE {where}")

    def _text(self, value: str) -> int:
        found = self.db.execute("SELECT id FROM STRING_IDS WHERE value = ?", (value,)).fetchone()
        if found:
            return int(found[0])
        (last,) = self.db.execute("SELECT MAX(id) FROM STRING_IDS").fetchone()
        self.db.execute("INSERT INTO STRING_IDS VALUES (?, ?)", (last + 1, value))
        return int(last) + 1

    def call(self, name: str, start: int, dur: int, where: str, thread: Any) -> None:
        if where == RUNTIME:
            (last,) = self.db.execute("SELECT MAX(connectionId) FROM CANN_API").fetchone()
            columns = "startNs, endNs, type, globalTid, connectionId, name"
            values = (start, start + dur, 20000, thread, last + 1, self._text(name.removeprefix("AscendCL@")))
            self.db.execute(f"INSERT INTO CANN_API ({columns}) VALUES (?, ?, ?, ?, ?, ?)", values)
            return
        columns = "startNs, endNs, globalTid, name, sequenceNumber, type"
        torch = (str(start), str(start + dur), thread, self._text(name), -1, 50001)
        self.db.execute(f"INSERT INTO PYTORCH_API ({columns}) VALUES (?, ?, ?, ?, ?, ?)", torch)

    def kernels(self, change: Callable[[dict[str, Any]], None]) -> None:
        rows = self.db.execute(
            "SELECT i.globalTaskId, n.value, o.value, c.value, t.startNs, t.endNs FROM COMPUTE_TASK_INFO i "
            "JOIN TASK t USING (globalTaskId) LEFT JOIN STRING_IDS n ON n.id = i.name LEFT JOIN STRING_IDS o "
            "ON o.id = i.opType LEFT JOIN STRING_IDS c ON c.id = i.taskType"
        ).fetchall()
        for key, name, type_, core, start, end in rows:
            kernel = {"name": name, "type": type_, "core": core, "start": start, "dur": end - start}
            change(kernel)
            texts = [kernel[field] and self._text(kernel[field]) for field in ("name", "type", "core")]
            self.db.execute("UPDATE COMPUTE_TASK_INFO SET name = ?, opType = ?, taskType = ? "
                            "WHERE globalTaskId = ?", (*texts, key))  # fmt: skip
            self.db.execute("UPDATE TASK SET endNs = ? WHERE globalTaskId = ?", (start + kernel["dur"], key))

    def rename(self, root: int, thread: Any, name: str) -> None:
        self.db.execute("UPDATE PYTORCH_API SET name = ? WHERE globalTid = ? AND CAST(startNs AS INTEGER) = ? AND name "
                        "IN (SELECT id FROM STRING_IDS WHERE value LIKE '%::%')",
                        (self._text(name), thread, root))  # fmt: skip

    def number_steps(self, first: int) -> None:
        for at, (number,) in enumerate(self.db.execute("SELECT id FROM STEP_TIME ORDER BY id").fetchall()):
            self.db.execute("UPDATE STEP_TIME SET id = ? WHERE id = ?", (first + at, number))
            old, new = (self._text(f"ProfilerStep#{step}") for step in (number, first + at))
            self.db.execute("UPDATE PYTORCH_API SET name = ? WHERE name = ?", (new, old))

    def environment(self, name: str, value: str) -> None:
        (text,) = self.db.execute("SELECT value FROM META_DATA WHERE name = 'ENV_VARIABLES'").fetchone()
        text = json.dumps({**json.loads(text), name: value})
        self.db.execute("UPDATE META_DATA SET value = ? WHERE name = 'ENV_VARIABLES'", (text,))

    def save(self) -> Path:
        self.db.execute("COMMIT")
        self.db.close()
        return self.folder
