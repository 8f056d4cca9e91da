"""What raw files of real recordings say of a step, read with csv, json and sqlite3 alone: no code of npuperf.

A step is the host's range of it where a timeline or a database has that (each of these has one step, and nothing of it
runs on after the host), else the stretch from its first kernel or collective to its last. Kernels own the time in which
they run and none that began before them does; communication owns what no kernel runs in; the rest is neither.
"""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

#: Type, shapes and dtypes as they are written.
Key = tuple[str, str, str]


@dataclass
class Raw:
    """One recording: ns of all its steps, and ns and kernels of every operator."""

    windows: int = 0
    span_ns: int = 0
    communication_ns: int = 0
    operators: dict[Key, tuple[int, int]] = field(default_factory=dict)

    @property
    def compute_ns(self) -> int:
        return sum(ns for ns, _ in self.operators.values())

    def by_type(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for (type_, *_), (ns, count) in self.operators.items():
            found[type_] = (found[type_][0] + ns, found[type_][1] + count)
        return dict(found)


@dataclass(frozen=True)
class Kernel:
    start: int
    end: int
    step: str
    communicates: bool
    key: Key
    window_only: bool = False


def read(path: Path) -> Raw:
    """Read whatever lies there; a rank's folder by its table of kernels, else by its database."""
    if path.suffix == ".gz":
        return summed(_kineto(path))
    if path.suffix == ".csv":
        return summed(_table(path))
    tables = sorted(path.rglob("kernel_details.csv"))
    if tables:
        traces = sorted(path.rglob("trace_view.json"))
        return summed(_table(tables[0]), _range_of_trace(traces[0]) if traces else ())
    (database,) = path.rglob("ascend_pytorch_profiler_*.db")
    with sqlite3.connect(f"file:{database}?mode=ro&immutable=1", uri=True) as base:
        ranges = [(int(start), int(end)) for start, end in base.execute("SELECT startNs, endNs FROM STEP_TIME")]
    return summed(_database(database), ranges)


def _range_of_trace(path: Path) -> list[tuple[int, int]]:
    events = json.loads(path.read_text("utf-8"), parse_float=Decimal)
    steps = [e for e in events if str(e.get("name")).startswith("ProfilerStep#")]
    starts = [int(Decimal(e["ts"]) * 1000) for e in steps]
    return [(start, start + int(Decimal(str(e["dur"])) * 1000)) for start, e in zip(starts, steps, strict=True)]


def summed(kernels: Iterable[Kernel], ranges: Iterable[tuple[int, int]] = ()) -> Raw:
    """Sum step by step; ``ranges``: the host's, of the steps in order."""
    steps: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        steps[kernel.step].append(kernel)
    raw = Raw()
    for step in steps.values():
        _add(raw, sorted((k for k in step if not k.window_only), key=lambda k: k.start), step)
    host = [end - start for start, end in ranges]
    if host:
        assert len(host) == raw.windows == 1 and raw.span_ns < host[0]
        raw.span_ns = host[0]
    return raw


def _add(raw: Raw, ordered: list[Kernel], all_of_it: list[Kernel]) -> None:
    raw.windows += 1
    raw.span_ns += max(k.end for k in all_of_it) - min(k.start for k in all_of_it)
    until = 0
    busy: list[tuple[int, int]] = []
    for kernel in (k for k in ordered if not k.communicates):
        own = max(0, kernel.end - max(kernel.start, until))
        if own:
            busy.append((max(kernel.start, until), kernel.end))
        until = max(until, kernel.end)
        ns, count = raw.operators.get(kernel.key, (0, 0))
        raw.operators[kernel.key] = (ns + own, count + 1)
    until = 0
    for kernel in (k for k in ordered if k.communicates):
        start = max(kernel.start, until)
        until = max(until, kernel.end)
        hidden = sum(max(0, min(b, kernel.end) - max(a, start)) for a, b in busy)
        raw.communication_ns += max(0, kernel.end - start - hidden)


def _table(path: Path) -> Iterator[Kernel]:
    """Read a table of kernels or of operators; some list a row several times."""
    with path.open(encoding="utf-8-sig") as file:
        for row in {tuple(sorted(row.items())): row for row in csv.DictReader(file)}.values():
            start = int(Decimal(_of(row, "Start Time(us)", "Task Start Time(us)").strip()) * 1000)
            length = int(Decimal(_of(row, "Duration(us)", "Task Duration(us)").strip()) * 1000)
            name, type_ = _of(row, "Name", "Op Name"), _of(row, "Type", "OP Type")
            key = (type_ if type_ != "N/A" else name, row.get("Input Shapes") or "", row.get("Input Data Types") or "")
            communicates = (name + type_).lower().startswith("hcom") or type_.lower().startswith("hcom")
            yield Kernel(start, start + length, row.get("Step Id") or "", communicates, _plain(key))


def _of(row: dict[str, str], *names: str) -> str:
    return next(row[name] for name in names if name in row)


def _plain(key: Key) -> Key:
    return key[0], key[1].replace('"', ""), key[2].replace("DT_", "")


def _database(path: Path) -> Iterator[Kernel]:
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as base:
        texts = dict(base.execute("SELECT id, value FROM STRING_IDS"))
        columns = {row[1] for row in base.execute("PRAGMA table_info(COMPUTE_TASK_INFO)")}
        shapes, dtypes = (c if c in columns else "NULL" for c in ("inputShapes", "inputDataTypes"))
        kernels = base.execute(
            f"SELECT startNs, endNs, i.opType, i.name, {shapes}, {dtypes} "
            "FROM COMPUTE_TASK_INFO i JOIN TASK USING (globalTaskId)"
        )
        for start, end, type_, name, shape, dtype in kernels:
            known = texts.get(type_, "N/A")
            key = (known if known != "N/A" else texts[name], texts.get(shape, ""), texts.get(dtype, ""))
            yield Kernel(int(start), int(end), "", communicates=False, key=_plain(key))
        for start, end, name in base.execute("SELECT startNs, endNs, opName FROM COMMUNICATION_OP"):
            yield Kernel(int(start), int(end), "", communicates=True, key=(texts[name], "", ""))


def _kineto(path: Path) -> Iterator[Kernel]:
    """Read the kernels of a GPU; its copies only mark where the recording begins and ends."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"):
            start, length = int(Decimal(event["ts"]) * 1000), int(Decimal(event["dur"]) * 1000)
            copies = event["cat"].lower() != "kernel"
            yield Kernel(start, start + length, "", False, (event["name"], "", ""), window_only=copies)


def split(old: tuple[int, int], new: tuple[int, int]) -> tuple[int, int]:
    """Split a difference by count and by speed, as (ns, kernels) of one step each; halves go away from zero."""
    (a, n), (b, m) = old, new
    if not n or not m:
        return b - a, 0
    half = Fraction((m - n), 2) * (Fraction(a, n) + Fraction(b, m))
    whole = int(abs(half) + Fraction(1, 2)) * (1 if half >= 0 else -1)
    return whole, b - a - whole
