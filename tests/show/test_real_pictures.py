"""Pictures of real recordings: every task, share and place is what the raw files say, read with csv, json, sqlite3."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.picture import Lane, Picture, place_name
from npuperf.model.result import Result
from npuperf.readers.recording import open_recording
from npuperf.show.draw import draw

DATA = Path(__file__).parents[3] / "shared" / "data"
TEXT, DB = "msinsight/text/level{}/rank{}_ascend_pt", "msinsight/db/level{}/rank{}_ascend_pt"
TIMELINES = (TEXT.format(1, 0), TEXT.format(1, 1), TEXT.format(0, 0), "msprof-analyze/timeline")
DATABASES = (DB.format(0, 0), DB.format(1, 0), DB.format(1, 1))
TABLES = (
    *("msprof-analyze/arithmetic_utilization", "msprof-analyze/pipe_utilization", "msprof-analyze/oldest"),
    *("msinsight/cluster4/rank_0_ascend_pt", "msinsight/cluster4/rank_2_ascend_pt"),
    *("op_summary_2026/op_summary_pipe_utilization.csv", "op_summary_2026/op_summary_block_over_cores.csv"),
    "msinsight/toy/op_summary_1.csv",
)
GPUS = tuple(f"hta/{name}_gpu.json.gz" for name in ("alexnet", "simple_add", "ns_resolution"))
ALL = (*TIMELINES, *DATABASES, *TABLES, *GPUS)
#: The context of tasks that are in no other.
_OUTER = 0xFFFFFFFF
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data")


class Row(Struct, frozen=True):
    """A task as a file has it; ``stream``: None of operations of a group."""

    start: int
    end: int
    name: str
    stream: int | None
    kernel: bool = False


def ns(us: object) -> int:
    return round(Decimal(str(us).strip()) * 1000)


@cache
def raw(path: str) -> tuple[Row, ...]:
    found = DATA / path
    if path in TIMELINES:
        (file,) = found.rglob("trace_view.json")
        listed = [row for kernels in found.rglob("kernel_details.csv") for row in table(kernels)]
        ends = {row.start: row.end for row in listed if row.kernel}  # rounded otherwise, by a nanosecond
        drawn = (replace(row, end=ends.get(row.start, row.end)) for row in timeline(file))
        return (*drawn, *(row for row in listed if not row.kernel))
    if path in DATABASES:
        (file,) = found.rglob("ascend_pytorch_profiler_*.db")
        return tuple(database(file))
    if path in GPUS:
        return tuple(kineto(found))
    return tuple(table(found if found.suffix == ".csv" else next(found.rglob("kernel_details.csv"))))


def timeline(file: Path) -> Iterator[Row]:
    read = json.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)
    events = read if isinstance(read, list) else read["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    computing = [
        (ns(e["ts"]), ns(e["dur"]))
        for e in events
        if e["ph"] == "X" and threads.get((e["pid"], e["tid"])) == "Computing"
    ]
    for e in (e for e in events if e["ph"] == "X"):
        if processes[e["pid"]] == "Ascend Hardware":
            start, length = ns(e["ts"]), ns(e["dur"])
            stream = int(threads[e["pid"], e["tid"]].split()[1])
            yield Row(start, start + length, e["name"], stream, (start, length) in computing)


def database(file: Path) -> Iterator[Row]:
    with sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True) as base:
        texts = dict(base.execute("SELECT id, value FROM STRING_IDS"))
        names = dict(base.execute("SELECT globalTaskId, name FROM COMPUTE_TASK_INFO"))
        others = dict(base.execute("SELECT globalTaskId, name FROM COMMUNICATION_TASK_INFO"))
        inner = {at for (at,) in base.execute(f"SELECT connectionId FROM TASK WHERE contextId != {_OUTER}")}
        for start, end, task, stream, type_, connection, context in base.execute(
            "SELECT startNs, endNs, globalTaskId, streamId, taskType, connectionId, contextId FROM TASK"
        ):
            if context == _OUTER and connection in inner:
                continue  # it holds others that have rows of their own
            name = texts[names.get(task, others.get(task, type_))]
            yield Row(int(start), int(end), name, stream, task in names)
        for start, end, name in base.execute("SELECT startNs, endNs, opName FROM COMMUNICATION_OP"):
            yield Row(int(start), int(end), texts[name], None)


def table(file: Path) -> Iterator[Row]:
    with file.open(encoding="utf-8-sig") as opened:
        complete = (row for row in csv.DictReader(opened) if None not in row.values())
        for row in {tuple(sorted(row.items())): row for row in complete}.values():  # some list a row several times
            start = ns(row.get("Start Time(us)") or row["Task Start Time(us)"])
            end = start + ns(row.get("Duration(us)") or row["Task Duration(us)"])
            name, type_ = row.get("Name") or row["Op Name"], row.get("Type") or row.get("OP Type") or "N/A"
            core = row.get("Accelerator Core") or row.get("Task Type")
            shown = name if type_ == "N/A" or type_.lower() in name.lower() else f"{name} [{type_}]"
            number = row.get("Stream ID", "N/A")
            together = "hcom" in (name + type_).lower() or core == "COMMUNICATION"
            stream = None if together or not number.isdigit() else int(number)
            yield Row(start, end, shown, stream, not together)


def kineto(file: Path) -> Iterator[Row]:
    with gzip.open(file, "rt", encoding="utf-8") as opened:
        events = json.load(opened, parse_float=Decimal)["traceEvents"]
    for e in events:
        if e.get("cat", "").lower() in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"):
            start = ns(e["ts"])
            yield Row(start, start + ns(e["dur"]), e["name"], e["args"]["stream"], e["cat"].lower() == "kernel")


@cache
def drawn(path: str) -> tuple[Result, Picture]:
    recording = open_recording(DATA / path, keep=True)
    result = run(AnalyzeRequest(path=DATA / path), recording)
    (picture,) = draw(recording, result, load_thresholds({}))
    return result, picture


def streams(picture: Picture) -> Iterator[Lane]:
    return (lane for lane in picture.lanes if lane.kind == "stream")


def rows_of(path: str, picture: Picture, lane: Lane) -> list[Row]:
    """The raw rows of a lane, in the time that is drawn."""
    begin, end = picture.origin_ns, picture.origin_ns + picture.span_ns
    return [row for row in raw(path) if row.stream == lane.stream and row.end > begin and row.start < end]


@pytest.mark.parametrize("path", ALL)
def test_it_is_as_long_as_what_the_files_hold(path: str) -> None:
    _, picture = drawn(path)
    mine = [row for row in raw(path) if any(row.stream == lane.stream for lane in streams(picture))]
    busy = [row for row in mine if row.kernel or row.stream is None or path in GPUS]
    assert picture.origin_ns <= min(row.start for row in busy)
    assert picture.origin_ns + picture.span_ns >= max(row.end for row in busy)


@pytest.mark.parametrize("path", ALL)
def test_every_task_of_the_stretches_is_that_of_the_files(path: str) -> None:
    _, picture = drawn(path)
    assert not any(stretch.cut for stretch in picture.exact)
    for lane in streams(picture):
        wanted = Counter(
            (row.start - picture.origin_ns, row.end - picture.origin_ns)
            for row in rows_of(path, picture, lane)
            if any(inside(row, picture.origin_ns, s.start, s.end) for s in picture.exact)
        )
        found = Counter(zip(lane.slices.start.tolist(), lane.slices.end.tolist(), strict=True))
        assert found == wanted, lane.title


@pytest.mark.parametrize("path", ALL)
def test_kernels_are_called_what_the_files_call_them(path: str) -> None:
    """Kernels of a stretch in the order of their starts: their labels are types, the names stand beside them."""
    _, picture = drawn(path)
    for lane in streams(picture):
        names = defaultdict(set)
        for row in (row for row in rows_of(path, picture, lane) if row.kernel):
            names[row.start - picture.origin_ns].add(row.name.partition(" [")[0])
        shown = [
            (start, picture.names[called if called >= 0 else kind].partition(" [")[0])
            for start, kind, called in columns(lane, "start", "name", "called")
        ]
        assert {(start, name) for start, name in shown if start in names} == {
            (start, name) for start, mine in names.items() for name in mine if start in dict(shown)
        }


@pytest.mark.parametrize("path", (*TIMELINES, *DATABASES, *GPUS))
def test_waits_add_up_to_what_the_report_blames(path: str) -> None:
    result, picture = drawn(path)
    (report,) = result.devices
    (lane,) = (lane for lane in picture.lanes if lane.kind == "waits")
    assert not any(lane.cut)
    first = report.judged.start_ns if report.judged else 0
    last = first + report.window.span_ns
    sums: Counter[tuple[str, str]] = Counter()
    for start, end, cause, name in columns(lane, "start", "end", "cause", "name"):
        sums[picture.names[cause], picture.names[name]] += max(min(end, last) - max(start, first), 0)
    named = {(b.cause, b.name): b.ns for b in report.blame if b.name != "others"}
    stretched = sum(s.end - s.start for s in picture.exact)
    assert stretched == report.window.span_ns or path.endswith("ns_resolution_gpu.json.gz")  # 3 of its 5 steps
    if stretched == report.window.span_ns:
        assert {pair: sums[pair] for pair in named} == named
        assert sum(sums.values()) == report.window.host_wait_ns + report.window.launch_latency_ns


def columns(lane: Lane, *names: str) -> Iterator[tuple[int, ...]]:
    return zip(*(getattr(lane.slices, name).tolist() for name in names), strict=True)


@pytest.mark.parametrize("path", (*TIMELINES, *DATABASES, *GPUS))
def test_places_of_waits_and_calls_are_of_what_is_judged(path: str) -> None:
    """None is longer than all that the report has of its name; the longest is no shorter than the mean."""
    result, picture = drawn(path)
    (report,) = result.devices
    first = report.judged.start_ns if report.judged else 0
    last = first + report.window.span_ns
    for b in (b for b in report.blame if b.name != "others"):
        start, end = picture.places["wait", f"{b.cause}: {b.name}"]
        assert first <= start < end <= last and b.ns / b.count <= end - start <= b.ns
    several = Counter((s.name, s.torch_op, s.where) for s in report.syncs)
    found = {s: picture.places.get(("sync", place_name(s.name, s.torch_op, s.where))) for s in report.syncs}
    assert all(found[s] for s in report.syncs[:2])  # a copy after the last task is not in the picture
    for s, place in found.items():
        if place and several[s.name, s.torch_op, s.where] == 1:
            assert s.host_ns / s.count <= place[1] - place[0] <= s.host_ns


@pytest.mark.parametrize("path", ALL)
def test_places_of_operators_are_their_longest_kernels(path: str) -> None:
    result, picture = drawn(path)
    rows = {(row.start - picture.origin_ns, row.end - picture.origin_ns) for row in raw(path)}
    assert {place for (kind, _), place in picture.places.items() if kind == "operator"} <= rows
    for operator in result.operators:
        start, end = picture.places["operator", place_name(operator.type, operator.core)]
        assert end - start == operator.max_ns
        assert end - start <= (
            picture.places["operator", operator.type][1] - picture.places["operator", operator.type][0]
        )


def inside(row: Row, origin: int, start: int, end: int) -> bool:
    begin, finish = row.start - origin, row.end - origin
    return begin < end and (finish > start or begin >= start)


@pytest.mark.parametrize("path", ALL)
def test_every_share_is_that_of_the_files(path: str) -> None:
    """Of each bucket: how much of it some task takes, and how much a kernel."""
    _, picture = drawn(path)
    for lane in streams(picture):
        rows = rows_of(path, picture, lane)
        edges = [picture.span_ns * i // buckets(lane) for i in range(buckets(lane) + 1)]
        every, kernels = (covered(some, picture.origin_ns, edges) for some in (rows, [r for r in rows if r.kernel]))
        colours = {name: share.tolist() for name, share in lane.shares.items()}
        for i, length in enumerate(b - a for a, b in pairwise(edges)):
            parts = [share[i] for share in colours.values()]
            assert abs(sum(parts) - 255 * every[i] / length) <= len(parts) / 2 + 1e-6
            if path not in TIMELINES:  # there a copy may look like a kernel
                assert abs(colours.get("compute", [0] * len(edges))[i] - 255 * kernels[i] / length) <= 0.5 + 1e-6


def buckets(lane: Lane) -> int:
    return len(next(iter(lane.shares.values())))


def covered(rows: Iterable[Row], origin: int, edges: list[int]) -> list[int]:
    """How much of each two neighbouring edges lies in any of the rows, ns."""
    found, at, until = [0] * (len(edges) - 1), 0, 0
    for row in sorted(rows, key=lambda row: row.start):
        start, end = max(row.start - origin, until), min(row.end - origin, edges[-1])
        while start < end:
            while edges[at + 1] <= start:
                at += 1
            upto = min(end, edges[at + 1])
            found[at] += upto - start
            start = until = upto
    return found
