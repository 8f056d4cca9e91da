"""What was found as a trace: the result's own numbers, at the original's own times."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from build import EPOCH, H, K, ascend_pt
from trace_reader import ReadSlice, ReadTrace, read_strictly

from npuperf.advise import load_thresholds
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.device.blame import Blamed
from npuperf.model.result import Device, Result
from npuperf.readers.recording import open_recording
from npuperf.show.full_trace import write_full
from npuperf.show.overlay import cut_at, write_overlay

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
DATA = ROOT.parent / "shared" / "data"
REAL = [
    SAMPLES / "transformer_ascend_pt",
    SAMPLES / "micro_batch_ascend_pt",
    SAMPLES / "pipeline_job",
    DATA / "msinsight/text/level0/rank0_ascend_pt",
    DATA / "msinsight/text/level1",
    DATA / "msprof-analyze/timeline",
]


def overlaid(path: Path, out: Path, **asked: object) -> tuple[Result, ReadTrace, str]:
    if not path.exists():
        pytest.skip(f"{path} is not here")
    result = run(AnalyzeRequest(path=path, **asked))
    told = write_overlay(out, open_recording(path), result, load_thresholds({}))
    return result, read_strictly(out, text_times=True), str(told)


def of(trace: ReadTrace, device: Device, track: str) -> list[ReadSlice]:
    found = [s for s in trace.slices if trace.track(s) == track]
    ranks = {s.pid: trace.processes[s.pid] for s in found}
    return [
        s for s in found if ":" not in (name := ranks[s.pid].split("npuperf")[0]) or name == f"rank {device.rank}: "
    ]


@pytest.mark.parametrize("path", REAL, ids=lambda p: "-".join(p.parts[-2:]))
def test_waits_add_up_to_the_blame(path: Path, tmp_path: Path) -> None:
    """Of the whole window, and of each phase, by cause."""
    result, trace, _ = overlaid(path, tmp_path / "overlay.json")
    for device in result.devices:
        waits = of(trace, device, "Waiting for the host")
        judged = [(p.start_ns, p.end_ns, p.blame, p.partition) for p in device.phases]
        total: Counter[str] = Counter()
        for start, end, blame, partition in judged:
            mine: Counter[str] = Counter()
            for wait in waits:
                if start <= wait.start - device.origin_ns and wait.end - device.origin_ns <= end:
                    mine[wait.args["cause"]] += wait.end - wait.start
            assert mine == sums(blame)
            assert mine.total() == partition.host_wait_ns
            total += mine
        assert total == sums(device.blame)


def test_one_step_alone_has_its_own(tmp_path: Path) -> None:
    result, trace, _ = overlaid(SAMPLES / "transformer_ascend_pt", tmp_path / "overlay.json", step=12)
    (device,) = result.devices
    (step,) = of(trace, device, "Steps")
    assert step.name == "step 12"
    mine: Counter[str] = Counter()
    for wait in of(trace, device, "Waiting for the host"):
        if step.start <= wait.start and wait.end <= step.end:
            mine[wait.args["cause"]] += wait.end - wait.start
    assert mine == sums(device.blame)


def sums(blame: list) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in blame:
        found[line.cause] += line.ns
    return found


@pytest.mark.parametrize("path", REAL, ids=lambda p: "-".join(p.parts[-2:]))
def test_phases_steps_and_other_idle_time_are_the_results(path: Path, tmp_path: Path) -> None:
    result, trace, told = overlaid(path, tmp_path / "overlay.json")
    assert f"(slices: {len(trace.slices)}, markers: {len(trace.marks)})" in told
    for device in result.devices:
        origin = device.origin_ns
        phases = of(trace, device, "Phases")
        told_of = [(s.start - origin, s.end - origin, s.args["verdict"], s.args.get("label")) for s in phases]
        labels = [None if p.label is None else str(p.label) for p in device.phases]
        assert told_of == [
            (p.start_ns, p.end_ns, p.bound, label) for p, label in zip(device.phases, labels, strict=True)
        ]
        for piece, phase in zip(phases, device.phases, strict=True):
            shares = piece.args["shares"]
            assert float(shares.get("compute", 0)) == pytest.approx(
                phase.partition.compute_ns / phase.partition.span_ns, abs=1e-5
            )
            assert piece.args["partition"]["host_wait_ns"] == phase.partition.host_wait_ns
        steps = of(trace, device, "Steps")
        assert [(s.start - origin, s.end - s.start) for s in steps] == [
            (s.start_ns, s.partition.span_ns) for s in device.steps
        ]
        idle: Counter[str] = Counter()
        for wait in of(trace, device, "Other idle time"):
            idle[wait.args["cause"]] += wait.end - wait.start
        split = [step.partition for step in device.steps]  # all tasks are of steps, and what is idle around them
        assert sum(part.compute_ns for part in split) == device.partition.compute_ns
        assert [idle[kind] for kind in ("launch_latency", "dependency_wait", "unattributed")] == [
            sum(part.launch_latency_ns for part in split),
            sum(part.dependency_wait_ns for part in split),
            sum(part.unattributed_ns for part in split),
        ]


def test_its_clock_is_the_originals(tmp_path: Path) -> None:
    """As text, to the ns: a phase begins with a kernel or a step of the host, where the original says that it does."""
    path = SAMPLES / "transformer_ascend_pt"
    _, trace, _ = overlaid(path, tmp_path / "overlay.json")
    original = json.loads((path / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())
    names = {e["pid"]: e["args"]["name"] for e in original if e["name"] == "process_name"}
    tasks = [e for e in original if e["ph"] == "X" and names[e["pid"]] in ("Ascend Hardware", "Communication")]
    borders = {start_of(e) for e in tasks} | {start_of(e) + round(Decimal(str(e["dur"])) * 1000) for e in tasks}
    phases = [s for s in trace.slices if trace.track(s) == "Phases"]
    mine = {e["ts"] for e in trace.events if e["ph"] == "X" and e["tid"] == phases[0].tid}
    assert len(mine) == len(phases) > 1
    steps = [e["ts"] for e in original if e["name"].startswith("ProfilerStep#")]
    inner = {start_of({"ts": text}) for text in mine - set(steps)}
    assert inner and inner <= borders
    assert min(mine) == min(steps)  # before the first kernel


def start_of(event: dict) -> int:
    return int(Decimal(event["ts"]) * 1000)


def test_both_open_together(tmp_path: Path) -> None:
    """Put into one list, no process of one is a process of the other."""
    path = SAMPLES / "transformer_ascend_pt"
    _, trace, _ = overlaid(path, tmp_path / "overlay.json")
    original = json.loads((path / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())
    assert not {e["pid"] for e in original} & {e["pid"] for e in trace.events}
    assert not {e["tid"] for e in original} & {e["tid"] for e in trace.events}


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("base", [0, 1_695_835_000_000_000_000])
def test_it_counts_from_where_the_original_counts(tmp_path: Path, base: int, behind: bool) -> None:
    """Kineto counts from a time of its own, said before or behind its events, and so does what lies over it."""
    path = DATA / "hta" / "alexnet_gpu.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    original = json.loads(gzip.decompress(path.read_bytes()))
    events = original.pop("traceEvents")
    for event in events:
        if "ts" in event:
            event["ts"] -= base // 1000
    original |= {"baseTimeNanoseconds": base} if base else {}
    made = {"traceEvents": events} | original if behind else original | {"traceEvents": events}
    (tmp_path / "made.json").write_text(json.dumps(made))
    result, trace, _ = overlaid(tmp_path / "made.json", tmp_path / "overlay.json")
    kernels = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    first = min(int(Decimal(e["ts"]) * 1000) for e in kernels)
    assert trace.epoch == base
    phases = [s for s in trace.slices if trace.track(s) == "Phases"]
    assert phases[0].start - first == result.devices[0].phases[0].start_ns


def test_findings_are_markers(tmp_path: Path) -> None:
    result, trace, _ = overlaid(SAMPLES / "transformer_ascend_pt", tmp_path / "overlay.json")
    problems = [f for f in result.findings if f.status == "problem"]
    marks = sorted(trace.marks, key=lambda mark: trace.events.index(mark[1]))
    assert [m["name"] for _, m in marks] == [str(f.title) for f in problems]
    assert [m["args"]["rule"] for _, m in marks] == [f.rule for f in problems]
    gains = [tuple(m["args"]["gain_ns_per_step"] or ()) for _, m in marks]
    assert gains == [f.gain_ns_per_step or () for f in problems]
    assert {m["s"] for _, m in trace.marks} == {"g"}


def test_a_finding_stands_at_the_longest_thing_that_it_names(tmp_path: Path) -> None:
    """Counted in the table: the longest Cumsum on AI CPU; what names nothing stands where the first phase begins."""
    path = SAMPLES / "transformer_ascend_pt"
    result, trace, _ = overlaid(path, tmp_path / "overlay.json")
    with (path / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["Type"] == "Cumsum"]
    longest = max(rows, key=lambda row: Decimal(row["Duration(us)"]))
    at = {m["args"]["rule"]: time for time, m in trace.marks}
    assert at["ai_cpu"] == int(Decimal(longest["Start Time(us)"].strip()) * 1000)
    (device,) = result.devices
    assert at["graph_capture"] == device.origin_ns + device.phases[0].start_ns


def test_roots_stand_on_their_ranks(tmp_path: Path) -> None:
    result, trace, _ = overlaid(SAMPLES / "pipeline_job", tmp_path / "overlay.json")
    assert result.cluster is not None
    assert result.cluster.roots
    for device in result.devices:
        mine = [r for r in result.cluster.roots if device.rank in r.ranks]
        found = of(trace, device, "Roots of waiting")
        assert [(s.name, s.args["wait_ns"]) for s in found] == [(str(r.title), r.wait_ns) for r in mine]
    assert any(trace.track(s) == "Roots of waiting" for s in trace.slices)


def test_cores_in_use_are_those_of_a_count_by_hand(tmp_path: Path) -> None:
    """Two streams side by side; 40 and 30 vector cores of 48 are all of them."""
    kernels = [
        K(1_000, 1_000, block=40),
        K(1_500, 1_000, block=30, stream=3),
        K(4_000, 100, core="AI_CORE", block=20),
        K(4_100, 100, core="MIX_AIC", block=20, mix=40),
    ]
    _, trace, _ = overlaid(ascend_pt(tmp_path, kernels, cores="24,48"), tmp_path / "overlay.json")
    found = {name: [(t - EPOCH, v) for t, v in values] for (_, name), values in trace.counters.items()}
    assert found["vector"] == [(1_000, 40), (1_500, 48), (2_000, 30), (2_500, 0), (4_000, 0), (4_100, 40), (4_200, 0)]
    assert found["cube"] == [(1_000, 0), (1_500, 0), (2_000, 0), (2_500, 0), (4_000, 20), (4_100, 20), (4_200, 0)]


def test_without_core_counts_there_are_no_counters(tmp_path: Path) -> None:
    _, trace, _ = overlaid(ascend_pt(tmp_path, [K(0, 100)]), tmp_path / "overlay.json")
    assert not trace.counters


def test_a_wait_says_what_the_host_did_and_where(tmp_path: Path) -> None:
    path = ascend_pt(
        tmp_path,
        [K(0, 100, launch=-200, launch_dur=50), K(1_000, 100, launch=700, launch_dur=50)],
        host=[H("aten::sort", 150, 400, python=True), H("train.py(7): main", 0, 690, python=True)],
    )
    _, trace, _ = overlaid(path, tmp_path / "overlay.json")
    waits = {
        (s.name, s.args["cause"], s.args.get("where")) for s in trace.slices if trace.track(s) == "Waiting for the host"
    }
    assert ("aten::sort", "torch_op", "train.py:7 main") in waits
    assert ("Node@launch", "launch", None) in waits


def test_only_what_was_asked_for_is_shown(tmp_path: Path) -> None:
    _, trace, _ = overlaid(SAMPLES / "pipeline_job", tmp_path / "overlay.json", rank=2)
    assert {name.split(":")[0] for name in trace.processes.values()} == {"rank 2"}


def test_pieces_are_cut_at_borders() -> None:
    """By hand: one inside of a phase, one over two borders, one that ends at one."""
    pieces = Blamed(np.array([0, 10, 40]), np.array([5, 35, 50]), np.array([1, 2, 3]), np.array([4, 5, 6], np.uint8))
    cut = cut_at(pieces, np.array([20, 30, 50]))
    rows = [*zip(cut.start.tolist(), cut.end.tolist(), cut.event.tolist(), cut.cause.tolist(), strict=True)]
    assert rows == [(0, 5, 1, 4), (10, 20, 2, 5), (20, 30, 2, 5), (30, 35, 2, 5), (40, 50, 3, 6)]
    assert cut_at(pieces, np.empty(0, np.int64)).start.tolist() == [0, 10, 40]


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
@pytest.mark.parametrize("write", [write_overlay, write_full])
def test_insights_conditions(tmp_path: Path, write: object, suffix: str) -> None:
    """MindStudio Insight's reader: what it takes, and what it silently passes over.

    A plain list of events; only capital I for moments; process, thread, sort index by metadata; "NPU n" as the label;
    times that are not negative, counters none at 0, no number in an exponent's notation; large files are cut between
    "}," and "{" where exactly one blank stands.
    """
    path = SAMPLES / "transformer_ascend_pt"
    out = tmp_path / f"trace_view{suffix}"
    write(out, open_recording(path), run(AnalyzeRequest(path=path)), load_thresholds({}))  # type: ignore[operator]
    trace = read_strictly(out, text_times=write is write_overlay)
    text = (gzip.decompress(out.read_bytes()) if suffix.endswith("gz") else out.read_bytes()).decode()
    lines = text.splitlines()
    assert (lines[0], lines[-1]) == ("[", "]")
    assert all(line.startswith("{") and line.endswith("},") for line in lines[1:-2])
    assert {e["ph"] for e in trace.events} <= {"M", "X", "I", "C", "s", "f"}
    kinds = {e["name"] for e in trace.events if e["ph"] == "M"} - {"npuperf_epoch"}
    assert kinds == {"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"}
    assert "NPU 0" in trace.labels.values()
    assert set(trace.labels.values()) <= {"NPU 0", "CPU"}
    assert all(time > 0 for values in trace.counters.values() for time, _ in values)
    assert all(s.start > 0 for s in trace.slices)
    numbers = [token for line in lines for key in ('"ts":', '"dur":') if key in line for token in [line.split(key)[1]]]
    assert not [n for n in numbers if "e" in n.split(",")[0].split("}")[0]]
