"""The whole profile as a trace: what a strict reader finds in it is what is counted in the files themselves."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build import EPOCH, H, K, ascend_pt, events, us
from conftest import run_cli
from inputs import KERNELS as INPUT_KERNELS
from inputs import database
from msgspec import structs
from trace_reader import ReadTrace, read_strictly

from npuperf.advise import load_thresholds
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.errors import InputError
from npuperf.base.messages import say
from npuperf.model.labels import Labels
from npuperf.model.result import Result
from npuperf.readers import recording
from npuperf.readers.find import Source
from npuperf.readers.log import Progress, ReadLog
from npuperf.readers.recording import Reading, open_recording
from npuperf.readers.source import SourceRead, read_source
from npuperf.show.full_trace import write_full
from npuperf.show.trace_events import in_turn, names_of

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
DATA = ROOT.parent / "shared" / "data"
REAL = [
    SAMPLES / "transformer_ascend_pt",
    SAMPLES / "micro_batch_ascend_pt",
    DATA / "msinsight/text/level0/rank0_ascend_pt",
    DATA / "msinsight/text/level1/rank0_ascend_pt",
    DATA / "msinsight/text/level1/rank1_ascend_pt",
]


#: Task types of kernels; the first is what Level0 has instead.
KERNELS = ("KERNEL_AICORE", "AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU", "KERNEL_AICPU", "KERNEL_AIVEC")


def written(path: Path, out: Path, result: Result | None = None, *, keep: bool = False) -> tuple[ReadTrace, str]:
    result = result or run(AnalyzeRequest(path=path))
    told = write_full(out, open_recording(path, keep=keep), result, load_thresholds({}))
    return read_strictly(out), str(told)


def there(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path


class Raw:
    """trace_view.json and kernel_details.csv, counted by themselves."""

    def __init__(self, folder: Path) -> None:
        output = folder / "ASCEND_PROFILER_OUTPUT"
        self.events = json.loads((output / "trace_view.json").read_text(), parse_float=Decimal)
        names = {e["pid"]: e["args"]["name"] for e in self.events if e["ph"] == "M" and e["name"] == "process_name"}
        whole = [e for e in self.events if e["ph"] == "X"]
        groups = {
            (e["pid"], e["tid"])
            for e in self.events
            if e["ph"] == "M" and e["name"] == "thread_name" and e["args"]["name"].startswith("Group ")
        }
        self.hardware = [e for e in whole if names[e["pid"]] == "Ascend Hardware"]
        self.operations = [
            e for e in whole if names[e["pid"]] in ("Communication", "HCCL") and (e["pid"], e["tid"]) in groups
        ]
        host = [e for e in whole if names[e["pid"]] in ("Python", "CANN")]
        self.frames = [e for e in host if e.get("cat") == "python_function"]
        self.host = [e for e in host if e.get("cat") != "python_function"]
        with (output / "kernel_details.csv").open(newline="") as file:
            self.rows = [{k.strip(): v.strip() for k, v in row.items()} for row in csv.DictReader(file)]

    def flows(self, category: str) -> list[tuple[dict, dict]]:
        starts = {e["id"]: e for e in self.events if e["ph"] == "s" and e.get("cat") == category}
        ends = [e for e in self.events if e["ph"] == "f" and e.get("cat") == category]
        return [(starts[e["id"]], e) for e in ends if e["id"] in starts]


def start_of(event: dict) -> int:
    return int(Decimal(event["ts"]) * 1000)


def span_of(event: dict) -> tuple[int, int]:
    return start_of(event), start_of(event) + int((Decimal(event["dur"]) * 1000).to_integral_value())


def absolute(trace: ReadTrace) -> Counter[tuple[str, int, int]]:
    return Counter((s.name, s.start + trace.epoch, s.end + trace.epoch) for s in trace.slices)


def depths(spans: list[tuple[int, int]]) -> Counter[int]:
    """How deep slices of one thread lie, each in how many others; half over one another they have no depth."""
    found: Counter[int] = Counter()
    open_: list[int] = []
    for start, end in sorted(spans, key=lambda s: (s[0], -s[1])):
        while open_ and open_[-1] <= start:
            open_.pop()
        assert not open_ or end <= open_[-1], "half over"
        found[len(open_)] += 1
        open_.append(end)
    return found


@pytest.mark.parametrize("path", REAL, ids=lambda p: "-".join(p.parts[-2:]))
def test_every_task_of_the_files_is_there_at_its_time(path: Path, tmp_path: Path) -> None:
    raw = Raw(there(path))
    trace, _ = written(path, tmp_path / "full.json")
    tasks = trace.of("Ascend Hardware")
    # Rows of the table that the timeline has as well are one task; picoseconds of text are cut off.
    rows = Counter(int(Decimal(r["Start Time(us)"]) * 1000) for r in raw.rows)
    mine = Counter(s.start + trace.epoch for s in tasks)
    assert not rows - mine
    seen = Counter(map(start_of, raw.hardware))
    operations = [s for s in tasks if trace.track(s) == "Communication"]
    listed = sum(r["Accelerator Core"] in ("COMMUNICATION", "HCCL") for r in raw.rows)
    assert len(operations) in (len(raw.operations), listed)
    # What is not in the table is in the timeline; only its kernels may be missing, which the report says.
    others = mine - rows - Counter(map(start_of, raw.operations))
    assert not others - seen
    left_out = seen - mine
    assert all(e["args"]["Task Type"] in KERNELS for e in raw.hardware if start_of(e) in left_out)
    per_stream = Counter(trace.track(s) for s in tasks if s.start + trace.epoch in seen)
    counted = Counter(f"Stream {e['tid']}" for e in raw.hardware if start_of(e) in mine)
    assert {k: n for k, n in per_stream.items() if k != "Communication"} == counted


@pytest.mark.parametrize("path", REAL, ids=lambda p: "-".join(p.parts[-2:]))
def test_every_host_event_is_there_at_its_time_and_depth(path: Path, tmp_path: Path) -> None:
    raw = Raw(there(path))
    trace, _ = written(path, tmp_path / "full.json")
    host = trace.of("Python")
    wanted = Counter((e["name"].strip(), *span_of(e)) for e in raw.host)
    mine = Counter((s.name, s.start + trace.epoch, s.end + trace.epoch) for s in host)
    assert not wanted - mine
    frames = Counter((e["name"], *span_of(e)) for e in raw.frames)
    assert not (mine - wanted) - frames  # of Python's frames some, nothing else
    per_thread: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for piece in host:
        per_thread[trace.track(piece)].append((piece.start, piece.end))
    untangled = 0
    for track, spans in per_thread.items():
        try:
            expected = depths(spans)
        except AssertionError:
            continue
        untangled += 1
        assert Counter(s.depth for s in host if trace.track(s) == track) == expected
        assert len({s.tid for s in host if trace.track(s) == track}) == 1
    assert untangled or "transformer" in path.name


@pytest.mark.parametrize("path", REAL, ids=lambda p: "-".join(p.parts[-2:]))
def test_arrows_are_those_of_the_timeline(path: Path, tmp_path: Path) -> None:
    """From the call with a task's connection, else from where its own arrow begins: to the task, if both are there."""
    raw = Raw(there(path))
    trace, told = written(path, tmp_path / "full.json")
    kept = {s.start + trace.epoch for s in trace.of("Ascend Hardware")}
    nodes = {e["args"]["connection_id"]: e for e in raw.host if e["name"] == "Node@launch"}
    own = {(f["tid"], start_of(f)): s for s, f in raw.flows("HostToDevice")}
    host = [(e["tid"], *span_of(e)) for e in (*raw.host, *raw.frames)]
    expected, backward = {}, 0
    for task in raw.hardware:
        start, end = span_of(task)
        call = nodes.get(task.get("args", {}).get("connection_id"), own.get((task["tid"], start)))
        if call is None or start not in kept:
            continue
        at = start_of(call)
        lies = any(tid == call["tid"] and a <= at < b for tid, a, b in host)
        backward += start < end <= at
        if lies and start < end and at < end:
            expected[start] = at
    arrows = [(begin, end) for kind, begin, end in trace.flows if kind == "HostToDevice"]
    assert len({id(end) for _, end in arrows}) == len(arrows)
    drawn = {end.start + trace.epoch: begin for begin, end in arrows}
    assert expected.keys() <= drawn.keys()
    connected = {e["args"].get("connection_id") for e in raw.host if "args" in e}
    both = [*raw.hardware, *raw.operations]
    connected |= {e["args"].get("connection_id") for e in both if (e["tid"], start_of(e)) in own}
    shared = {start_of(e) for e in raw.hardware if e["args"].get("connection_id") in connected}
    hardware = set(map(start_of, raw.hardware))  # the others are communication operations
    assert (
        drawn.keys() & hardware - expected.keys() <= shared
    )  # others have the connection of a call or of a task with an arrow
    for start, at in expected.items():
        assert drawn[start].start + trace.epoch <= at < drawn[start].end + trace.epoch
    told_of = re.search(r"(\d+) launch(?:es)? ha\w+ no arrow, for by the clocks", told)
    assert (int(told_of[1]) if told_of else 0) >= backward >= 0
    assert bool(told_of) == bool(backward)
    forward = Counter((start_of(s), start_of(f)) for s, f in raw.flows("fwdbwd"))
    mine = Counter((a.start + trace.epoch, b.start + trace.epoch) for kind, a, b in trace.flows if kind == "fwdbwd")
    assert mine == forward


def test_a_small_one_by_hand(tmp_path: Path) -> None:
    """Two launches, one of two kernels; each arrow from its call to its kernel."""
    path = ascend_pt(
        tmp_path,
        [K(10_001, 4_999, launch=5_000, launch_dur=2_003), K(15_000, 1, stream=3, launch=8_000, launch_dur=1_000)],
        steps={7: (4_000, 9_500)},
        host=[H("aten::add", 4_500, 5_000)],
        cores="24,48",
    )
    trace, told = written(path, tmp_path / "full.json")
    assert str(trace.epoch) in told
    assert trace.epoch % 1_000_000_000 == 0 < EPOCH + 4_000 - trace.epoch <= 1_000_000_000
    at = {(s.name, trace.track(s)): (s.start + trace.epoch - EPOCH, s.end + trace.epoch - EPOCH) for s in trace.slices}
    assert at["aclnnAdd_Add_Add", "Stream 2"] == (10_001, 15_000)
    assert at["aclnnAdd_Add_Add", "Stream 3"] == (15_000, 15_001)
    assert at["aten::add", "Thread 11"] == (4_500, 9_500)
    assert at["ProfilerStep#7", "Thread 10"] == (4_000, 9_500)
    arrows = [(a.name, a.start + trace.epoch - EPOCH, b.start + trace.epoch - EPOCH) for _, a, b in trace.flows]
    assert arrows == [("Node@launch", 5_000, 10_001), ("Node@launch", 8_000, 15_000)]
    (cube,), (vector,) = ([v for (_, n), v in trace.counters.items() if n == name] for name in ("cube", "vector"))
    assert [(t + trace.epoch - EPOCH, v) for t, v in vector] == [(10_001, 40), (15_001, 0)]
    assert {v for _, v in cube} == {0}
    assert {trace.processes[p]: label for p, label in trace.labels.items()} == {
        "Python": "CPU",
        "Ascend Hardware": "NPU 0",
    }
    (kernel,) = (s for s in trace.slices if trace.track(s) == "Stream 3")
    assert (kernel.args["Task Type"], kernel.args["Block Dim"]) == ("AI_VECTOR_CORE", 40)
    assert (kernel.args["type"], kernel.args["step"]) == ("Add", 7)


def test_overlapping_tasks_of_a_stream_stand_side_by_side(tmp_path: Path) -> None:
    path = ascend_pt(tmp_path, [K(0, 100), K(50, 100), K(120, 10), K(200, 10)])
    trace, _ = written(path, tmp_path / "full.json")
    names = {s.start - (EPOCH - trace.epoch): trace.threads[s.tid][1] for s in trace.slices}
    assert names == {0: "Stream 2", 50: "Stream 2 (2)", 120: "Stream 2", 200: "Stream 2"}


def test_vendors_times_are_kept_to_the_nanosecond(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    kernels, at = [], 0
    for gap, dur in zip(rng.integers(1, 3_000, 3_000).tolist(), rng.integers(1, 90_000, 3_000).tolist(), strict=True):
        at += gap
        kernels.append(K(at, dur))
        at += dur
    trace, _ = written(ascend_pt(tmp_path, kernels), tmp_path / "full.json")
    assert [(s.start + trace.epoch - EPOCH, s.end + trace.epoch - EPOCH) for s in trace.slices] == [
        (k.start, k.start + k.dur) for k in kernels
    ]
    assert len({s.tid for s in trace.slices}) == 1


@pytest.mark.parametrize("keep", [True, False])
def test_ranks_stand_on_one_clock(tmp_path: Path, keep: bool) -> None:
    path = SAMPLES / "pipeline_job"
    result = run(AnalyzeRequest(path=path))
    assert result.cluster is not None
    ranks = [
        structs.replace(r, clock=structs.replace(r.clock, offset_ns=1_000_003 * r.rank))
        for r in result.cluster.ranks
        if r.clock
    ]
    result = structs.replace(result, cluster=structs.replace(result.cluster, ranks=ranks))
    trace, _ = written(path, tmp_path / "full.json.gz", result, keep=keep)
    devices = {name for name in trace.processes.values() if "Ascend Hardware" in name}
    assert devices == {f"rank {rank}: Ascend Hardware" for rank in range(4)}
    for rank in range(4):
        folder = path / f"rank_{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        with (folder / "kernel_details.csv").open(newline="") as file:
            rows = [int(Decimal(r["Start Time(us)"].strip()) * 1000) for r in csv.DictReader(file)]
        mine = sorted(s.start + trace.epoch - 1_000_003 * rank for s in trace.of(f"rank {rank}: Ascend Hardware"))
        assert min(mine) == min(rows)
        assert Counter(mine) >= Counter(rows)


def test_a_rank_that_begins_earlier_begins_the_trace_anew(tmp_path: Path) -> None:
    """Its host was recorded hours before any device worked."""
    for rank, early in ((0, 0), (1, 3 * 3600 * 10**9)):
        host = [H("aten::add", 100 - early, 50)]
        made = ascend_pt(tmp_path / str(rank), [K(1_000, 100, launch=500, launch_dur=10)], host=host)
        folder = tmp_path / "job" / f"rank{rank}_1_20250101000000000_ascend_pt"
        folder.parent.mkdir(exist_ok=True)
        made.rename(folder)
        (folder / "profiler_info_0.json").unlink()
        (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
    trace, _ = written(tmp_path / "job", tmp_path / "full.json")
    starts = sorted(s.start + trace.epoch - EPOCH for s in trace.slices if s.name == "aten::add")
    assert starts == [100 - 3 * 3600 * 10**9, 100]


HOSTILE = [
    "<script>",
    'quo"te\\',
    "line\nend\ttab\x00\x1b[31m",
    "\u202eright",
    '}, {"a": [',
    "\u2028",
    "名" * 3000,
]


def test_hostile_names_are_json(tmp_path: Path) -> None:
    """All is UTF-8 that any reader of JSON takes, and what a name says is still there."""
    path = ascend_pt(tmp_path, [K(i * 100, 50, launch=i * 100 - 40, launch_dur=10) for i in range(1, 9)])
    view = path / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    made = json.loads(view.read_text())
    calls = [e for e in made if e["name"] == "Node@launch"]
    for number, (call, name) in enumerate(zip(calls, HOSTILE, strict=False)):
        made.append({**call, "name": name, "args": {}, "tid": 50 + number})
    view.write_text(json.dumps(made))
    trace, _ = written(path, tmp_path / "full.json")
    names = {s.name for s in trace.of("Python")}
    assert {"<script>", 'quo"te\\', "\u202eright", "名" * 3000, '}, {"a": ['} <= names
    assert len(names) == len(HOSTILE) + 1


def test_halves_of_signs_are_replaced() -> None:
    """No encoding has them; JSON's own spelling of them is what strict readers refuse."""
    assert names_of(Labels.of(["half \ud800", None, "\udfff"]), "-") == ["half \ufffd", "-", "\ufffd"]


def test_gz_is_packed_and_the_same_every_time(tmp_path: Path) -> None:
    path = SAMPLES / "transformer_ascend_pt"
    plain, _ = written(path, tmp_path / "a.json")
    packed, _ = written(path, tmp_path / "b.json.gz")
    written(path, tmp_path / "c.json.gz")
    assert packed.events == plain.events
    assert (tmp_path / "b.json.gz").read_bytes() == (tmp_path / "c.json.gz").read_bytes()
    assert (tmp_path / "b.json.gz").stat().st_size * 4 < (tmp_path / "a.json").stat().st_size


@pytest.mark.parametrize("error", [ValueError("a mistake"), MemoryError(), InputError(say("disk full"))])
def test_no_source_is_read_after_an_error_of_the_work(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(3):
        shutil.copytree(SAMPLES / "transformer_ascend_pt", tmp_path / f"rank_{rank}_ascend_pt")
    sources = open_recording(tmp_path).sources
    read, worked_on = [], []

    def noted(source: Source, *others: Any) -> SourceRead:
        read.append(source)
        return read_source(source, *others)

    def work(reading: Reading) -> None:
        worked_on.append(reading.source)
        raise error

    monkeypatch.setattr(recording, "read_source", noted)
    for keep, as_read in ((False, [sources[0]]), (True, [*sources])):
        read.clear()
        worked_on.clear()
        with pytest.raises(type(error)) as raised:
            in_turn(open_recording(tmp_path, keep=keep), work)
        assert raised.value is error and worked_on == [sources[0]]
        assert sorted(read, key=sources.index) == as_read


def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = SAMPLES / "transformer_ascend_pt"
    result = run(AnalyzeRequest(path=path))
    with pytest.raises(InputError, match="cannot be written"):
        write_full(tmp_path, open_recording(path), result, load_thresholds({}))
    assert not [*tmp_path.iterdir()]


def test_it_is_read_as_a_profile_again(tmp_path: Path) -> None:
    """What opens in Perfetto opens here as well: the same tasks, launches and gaps."""
    path = SAMPLES / "transformer_ascend_pt"
    written(path, tmp_path / "trace_view.json")
    first, second = (run(AnalyzeRequest(path=p)).devices[0] for p in (path, tmp_path / "trace_view.json"))
    assert second.partition == first.partition
    assert [p.bound for p in second.phases] == [p.bound for p in first.phases]


def test_only_what_was_asked_for_is_written(tmp_path: Path) -> None:
    path = SAMPLES / "pipeline_job"
    trace, _ = written(path, tmp_path / "full.json", run(AnalyzeRequest(path=path, rank=2)))
    assert set(trace.processes.values()) == {"rank 2: Ascend Hardware"}


def test_a_run_without_a_device_has_its_host(tmp_path: Path) -> None:
    trace, _ = written(there(DATA / "hta" / "cpu_only.json.gz"), tmp_path / "full.json")
    assert set(trace.processes.values()) == {"Python"}
    assert len(trace.slices) == 15


@pytest.mark.parametrize(
    ("path", "processes"),
    [
        ("msinsight/cluster4", {f"rank {r}: Ascend Hardware" for r in range(4)}),
        ("msinsight/db/level1", {f"rank {r}: {what}" for r in (0, 1) for what in ("Ascend Hardware", "Python")}),
        ("msprof-analyze/timeline", {"Ascend Hardware", "Python"}),
        ("hta/ns_resolution_gpu.json.gz", {"GPU", "Python"}),
        ("hta/alexnet_gpu.json.gz", {"GPU", "Python"}),
    ],
)
def test_other_layouts_are_written_strictly_too(path: str, processes: set[str], tmp_path: Path) -> None:
    """Of ranks without a kernel table the communication operations; each thing at its time."""
    recording = open_recording(there(DATA / path))
    trace, _ = written(DATA / path, tmp_path / "full.json")
    assert set(trace.processes.values()) == processes
    tasks = [len(p.tasks) or len(p.communication.operations) for p in recording.profiles]
    assert len([s for s in trace.slices if "Python" not in trace.processes[s.pid]]) == sum(tasks)


def processor() -> str | None:
    return os.environ.get("TRACE_PROCESSOR") or shutil.which("trace_processor_shell") or shutil.which("trace_processor")


@pytest.mark.skipif(processor() is None, reason="no trace_processor_shell on PATH, and no $TRACE_PROCESSOR")
def test_perfetto_counts_the_same(tmp_path: Path) -> None:
    out = tmp_path / "full.json"
    trace, _ = written(SAMPLES / "transformer_ascend_pt", out)
    query = tmp_path / "query.sql"
    query.write_text(
        "select (select count(*) from slice), (select count(*) from flow), (select sum(dur) from slice), "
        "(select max(depth) from slice), (select sum(value) from stats where severity = 'error');"
    )
    done = subprocess.run([processor() or "", "-q", query, out], capture_output=True, text=True, check=True)
    numbers = [int(n) for n in done.stdout.strip().splitlines()[-1].split(",")]
    assert numbers == [
        len(trace.slices),
        len(trace.flows),
        sum(s.end - s.start for s in trace.slices),
        max(s.depth for s in trace.slices),
        0,
    ]


def test_kernels_of_the_builder_are_spelled_as_by_the_vendor() -> None:
    """What the tests above build has times as text."""
    assert us(EPOCH + 1) in [e.get("ts") for e in events([K(1, 1)])]


def test_a_database_has_its_clock_as_a_counter(tmp_path: Path) -> None:
    """Values that change: what a viewer draws holds until the next one."""
    path = database(tmp_path / "ascend_pytorch_profiler_4.db", INPUT_KERNELS, "blockNum")
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE AICORE_FREQ(deviceId, timestampNs, freq)")
        values = [(EPOCH, 1800), (EPOCH + 3_000, 1800), (EPOCH + 7_000, 1650)]
        db.executemany("INSERT INTO AICORE_FREQ VALUES (0,?,?)", values)
    trace, _ = written(path, tmp_path / "full.json")
    (found,) = [rows for (_, name), rows in trace.counters.items() if name == "MHz"]
    assert [(time + trace.epoch, value) for time, value in found] == [(EPOCH, 1800), (EPOCH + 7_000, 1650)]


def test_what_cannot_be_read_again_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the page in place of its timeline, on stderr, and nothing is written where nothing could be read."""
    seen: Counter[Path] = Counter()

    def once(source: Source, log: ReadLog, progress: Progress | None) -> SourceRead:
        seen[source.root] += 1
        if seen[source.root] > 1 and (broken == "all" or "rank_2" in str(source.root)):
            raise InputError(say("{path}: Stale file handle", path=str(source.root)))
        return read_source(source, log, progress)

    monkeypatch.setattr("npuperf.readers.recording.read_source", once)
    for broken, drawn in (("one", 3), ("all", 0)):
        seen.clear()
        page = tmp_path / f"{broken}.html"
        done = run_cli(["analyze", str(SAMPLES / "pipeline_job"), "--engine", "serial", "--html", str(page)])
        assert done.returncode == 0
        assert "has no timeline of" in done.stderr and "Stale file handle" in done.stderr
        text = page.read_text("utf-8")
        assert f"drawn: {drawn} of 4 devices" in text and "Stale file handle" in text
        assert "those that stand out" not in text and "what is read back from JSON" not in text
    seen.clear()
    trace = tmp_path / "whole.json"
    done = run_cli(["analyze", str(SAMPLES / "pipeline_job"), "--engine", "serial", "--trace-full", str(trace)])
    assert done.returncode == 3 and "Stale file handle" in done.stderr and not trace.exists()


def test_what_is_as_it_should_be_is_not_told(tmp_path: Path) -> None:
    sample = str(ROOT / "samples" / "transformer_ascend_pt")
    assert run_cli(["analyze", sample, "--trace-full", str(tmp_path / "t.json")]).stderr.endswith(" ns since 1970\n")
