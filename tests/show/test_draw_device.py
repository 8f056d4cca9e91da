"""Pictures of devices against sums over single nanoseconds, and against what the report says of the same time."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from build import EPOCH, H, K, ascend_pt, us
from msgspec.structs import replace

from npuperf.advise import load_thresholds
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.device.host_events import CAUSES
from npuperf.device.study import Study
from npuperf.model.picture import COLOURS, UNCOUNTED, Lane, Picture, place_name
from npuperf.model.result import Device, Partition
from npuperf.readers.recording import open_recording
from npuperf.show.draw import Size, draw_study

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "transformer_ascend_pt"
DATA = ROOT.parent / "shared" / "data"


def drawn(path: Path, size: Size | None = None, step: int | None = None) -> tuple[Picture, Device, Study]:
    recording = open_recording(path, keep=True)
    report = run(AnalyzeRequest(path=path, step=step), recording).devices[0]
    study = Study.of(recording.profiles[0], load_thresholds({}))
    return draw_study(study, report, size=size or Size(), step=step), report, study


def lanes(picture: Picture, kind: str) -> list[Lane]:
    return [lane for lane in picture.lanes if lane.kind == kind]


def rows(picture: Picture, lane: Lane) -> list[dict[str, int | str | None]]:
    """Slices with their names written out."""
    found = []
    for i in range(len(lane.slices)):
        row = {f: getattr(lane.slices, f)[i].item() for f in lane.slices.__slots__}
        for field in ("name", "called", "where", "cause"):
            row[field] = picture.names[row[field]] if row[field] >= 0 else None
        found.append({**row, "colour": COLOURS[row["colour"]]})
    return found


# One made-up device, nanosecond by nanosecond.

KINDS = (("AI_CORE", 3), ("AI_VECTOR_CORE", 7), ("COMMUNICATION", 0), ("PCIE_DMA_SQE", 0), ("EVENT_WAIT", 0))


def random_kernels(seed: int) -> list[K]:
    random = Random(seed)
    kernels = [K(0, 4, "first", core="AI_CORE", block=2), K(995, 5, "last", core="AI_CORE", block=2)]
    for i in range(60):
        core, block = random.choice(KINDS)
        name = f"hcom_allReduce__{i}_0_1" if core == "COMMUNICATION" else f"EVENT_WAIT{i}" if block == 0 else f"k{i}"
        name = f"MEMCPY{i}" if core == "PCIE_DMA_SQE" else name
        start = random.randrange(990)
        dur = random.randrange(1, min(60, 1000 - start))
        stream = "N/A" if core == "COMMUNICATION" else random.choice((2, 3, 4))
        kernels.append(K(start, dur, name, core=core, block=block, stream=stream))
    return sorted(kernels, key=lambda k: k.start)


def covered(kernels: Iterable[K], *cores: str) -> set[int]:
    return {ns for k in kernels if k.core in cores for ns in range(k.start, k.start + k.dur)}


def shares_of(amount: Callable[[int], Fraction], count: int) -> list[Fraction]:
    edges = [1000 * i // count for i in range(count + 1)]
    return [sum((amount(ns) for ns in range(a, b)), Fraction()) / (b - a) for a, b in pairwise(edges)]


def close(lane: Lane, colour: str, wanted: list[Fraction]) -> None:
    found = lane.shares.get(colour, np.zeros(len(wanted), np.uint8)).tolist()
    assert found == [int(share * 255 + Fraction(1, 2)) for share in wanted], (lane.kind, colour)


@pytest.mark.parametrize("seed", range(4))
def test_parts_streams_and_cores_are_sums_of_nanoseconds(tmp_path: Path, seed: int) -> None:
    kernels = random_kernels(seed)
    picture, _, study = drawn(ascend_pt(tmp_path, kernels, cores="4,8"), Size(37, 1000))
    assert picture.span_ns == 1000
    assert picture.origin_ns == EPOCH

    def of(chosen: list[K]) -> dict[str, set[int]]:
        compute, communication = covered(chosen, "AI_CORE", "AI_VECTOR_CORE"), covered(chosen, "COMMUNICATION")
        other = covered(chosen, "PCIE_DMA_SQE")
        return {
            "compute": compute,
            "communication": communication - compute,
            "other": other - compute - communication,
            "control": covered(chosen, "EVENT_WAIT") - compute - communication - other,
        }

    (parts,) = lanes(picture, "parts")
    for colour, times in of(kernels).items():
        if colour != "control":
            close(parts, colour, shares_of(lambda ns, times=times: Fraction(ns in times), 37))
    by_stream = {lane.stream: lane for lane in lanes(picture, "stream")}
    assert {2, 3, 4} <= by_stream.keys()
    streams = dict.fromkeys(study.profile.tasks.stream.tolist())
    assert set(by_stream) == {s if s >= 0 else None for s in streams}
    for stream, lane in by_stream.items():
        mine = [k for k in kernels if (None if k.core == "COMMUNICATION" else k.stream) == stream]
        for colour, times in of(mine).items():
            close(lane, colour, shares_of(lambda ns, times=times: Fraction(ns in times), 37))
    running: Counter[tuple[str, int]] = Counter()
    for k in kernels:
        for ns in range(k.start, k.start + k.dur):
            running[k.core, ns] += k.block
    cube, vector = lanes(picture, "cores")
    close(cube, "cube", shares_of(lambda ns: Fraction(min(running["AI_CORE", ns], 4), 4), 37))
    close(vector, "vector", shares_of(lambda ns: Fraction(min(running["AI_VECTOR_CORE", ns], 8), 8), 37))


@pytest.mark.parametrize("seed", range(4))
def test_slices_are_the_tasks_and_none_covers_another(tmp_path: Path, seed: int) -> None:
    kernels = random_kernels(seed)
    picture, _, _ = drawn(ascend_pt(tmp_path, kernels, cores="4,8"), Size(37, 1000))
    found = [(row, lane.stream) for lane in lanes(picture, "stream") for row in rows(picture, lane)]
    times = Counter((row["start"], row["end"], stream) for row, stream in found)
    assert times == Counter(
        (k.start, k.start + k.dur, None if k.core == "COMMUNICATION" else k.stream) for k in kernels
    )
    for lane in picture.lanes:
        apart(lane)
    names = {"AI_CORE": "compute", "AI_VECTOR_CORE": "compute", "COMMUNICATION": "communication",
             "PCIE_DMA_SQE": "other", "EVENT_WAIT": "control"}  # fmt: skip
    by_name = {k.name: k for k in kernels}
    for row, _ in found:
        kernel = by_name[str(row["called"] or row["name"])]
        assert row["colour"] == names[kernel.core]
        if kernel.core == "AI_VECTOR_CORE":
            assert (row["cube"], row["vector"]) == (0, 7)


def apart(lane: Lane) -> None:
    """No two slices of one depth overlap."""
    s = lane.slices
    assert (np.diff(s.start) >= 0).all()
    for depth in set(s.depth.tolist()):
        mine = s.depth == depth
        assert (s.start[mine][1:] >= s.end[mine][:-1]).all(), (lane.kind, depth)


# What the report says of the same time.


def inputs() -> list[Path]:
    real = ("msinsight/text/level0", "msinsight/text/level1/rank0_ascend_pt", "msinsight/db/level1/rank0_ascend_pt",
            "msprof-analyze/timeline", "msprof-analyze/oldest", "hta/alexnet_gpu.json.gz",
            "hta/ns_resolution_gpu.json.gz",
            "op_summary_2026/op_summary_block_over_cores.csv")  # fmt: skip
    return [SAMPLE, ROOT / "samples" / "micro_batch_ascend_pt", *(DATA / name for name in real)]


def all_drawn(report: Device) -> Partition:
    """The parts of all that is drawn: of the host's steps, which hold all tasks; without steps of the device's span."""
    split = [step.partition for step in report.steps] or [report.partition]
    told = Partition(**{name: sum(getattr(part, name) for part in split) for name in Partition.__struct_fields__})
    busy = ("compute_ns", "comm_exposed_ns", "other_exposed_ns")
    assert [getattr(told, name) for name in busy] == [getattr(report.partition, name) for name in busy]
    return told


@pytest.mark.parametrize("path", inputs(), ids=lambda p: p.name)
def test_the_parts_are_those_of_the_report(path: Path) -> None:
    if not path.exists():
        pytest.skip(f"{path} is not here")
    picture, report, _ = drawn(path, Size(1000, 24_000))
    told = all_drawn(report)
    assert picture.span_ns == told.span_ns
    parts = {"compute": told.compute_ns, "communication": told.comm_exposed_ns, "other": told.other_exposed_ns,
             "host_wait": told.host_wait_ns, "launch_latency": told.launch_latency_ns,
             "dependency_wait": told.dependency_wait_ns, "unattributed": told.unattributed_ns}  # fmt: skip
    (lane,) = lanes(picture, "parts")
    assert set(lane.shares) == {name for name, ns in parts.items() if ns}
    length = np.diff([picture.span_ns * i // 1000 for i in range(1001)])
    for name, ns in parts.items():
        drawn_ns = float((lane.shares.get(name, np.zeros(1000)) * length / 255).sum())
        assert abs(drawn_ns - ns) <= picture.span_ns / 255 / 2 + 1
        assert picture.span_ns < 10_000 or not ns or drawn_ns or ns < picture.span_ns / 500
    total = sum((share.astype(int) for share in lane.shares.values()), np.zeros(1000, int))
    assert np.abs(total - 255).max() <= len(parts) / 2
    for one in picture.lanes:
        apart(one)
        assert {len(share) for share in one.shares.values()} <= {1000}
        if one.kind != "cores":
            assert sum((s.astype(int) for s in one.shares.values()), np.zeros(1000, int)).max() <= 255 + len(one.shares)
        for column in (one.slices.name, one.slices.where, one.slices.cause):
            assert column.max(initial=-1) < len(picture.names)


def test_slices_of_parts_add_up_to_the_steps_partitions() -> None:
    picture, report, _ = drawn(SAMPLE)
    (lane,) = lanes(picture, "parts")
    by_step = {step.step: step.partition for step in report.steps}
    assert len(picture.exact) == 3
    for stretch in picture.exact:
        sums: Counter[str] = Counter()
        for row in rows(picture, lane):
            if stretch.start <= row["start"] < stretch.end:
                sums[row["colour"]] += row["end"] - row["start"]
        told = by_step[stretch.step]
        assert sums["compute"] == told.compute_ns
        assert sums["communication"] == told.comm_exposed_ns
        assert sums["host_wait"] == told.host_wait_ns
        assert sums["dependency_wait"] == told.dependency_wait_ns
        assert sum(sums.values()) == told.span_ns == stretch.end - stretch.start


def test_slices_of_waits_add_up_to_the_blame() -> None:
    picture, report, _ = drawn(SAMPLE)
    (lane,) = lanes(picture, "waits")
    sums: Counter[tuple[str, str]] = Counter()
    for row in rows(picture, lane):
        sums[row["cause"], row["name"]] += row["end"] - row["start"]
    assert len(picture.exact) == len(report.steps)  # all of it is exact
    named = {(b.cause, b.name): b.ns for b in report.blame if b.name != "others"}
    assert {pair: sums[pair] for pair in named} == named
    assert set(CAUSES) >= {cause for cause, _ in sums}


@pytest.mark.parametrize(("call", "title"), [(4_000, ""), (0, " and launches")])
def test_waits_are_called_what_the_report_calls_them(tmp_path: Path, call: int, title: str) -> None:
    """Calls tell when they end, and so the latency; moments alone do not: launches count to the host."""
    kernels = [
        K(i * 100_000 + 9_000, 20_000, f"k{i}", launch=i * 100_000 - call, launch_dur=call, step=11) for i in range(40)
    ]
    picture, report, _ = drawn(ascend_pt(tmp_path, kernels))
    assert (report.clock.latency_reason is None) == (title == "")
    (lane,) = lanes(picture, "waits")
    assert str(lane.title) == f"waiting for the host{title}"


def test_places_are_where_the_report_says() -> None:
    picture, report, study = drawn(SAMPLE)
    tasks = study.profile.tasks
    for step in report.steps:
        assert picture.places["step", str(step.step)] == (step.start_ns, step.start_ns + step.partition.span_ns)
    for b in report.blame:
        if b.name != "others":
            start, end = picture.places["wait", f"{b.cause}: {b.name}"]
            assert 0 < end - start <= b.ns
    for sync in report.syncs:
        start, end = picture.places["sync", place_name(sync.name, sync.torch_op, sync.where)]
        assert sync.host_ns / sync.count <= end - start <= sync.host_ns
    for code, name in enumerate(study.types.names):
        mine = (study.types.codes == code) & np.isin(tasks.work, [0, 1])
        if mine.any():
            start, end = picture.places["operator", name]
            assert end - start == tasks.dur[mine].max()
            assert start in (tasks.start[mine] - picture.origin_ns).tolist()


def test_the_first_wait_of_each_cause_has_a_place_beside_hundreds_of_longer_ones(tmp_path: Path) -> None:
    """300 functions of Python keep the device waiting for 8 us each, one torch operator for 0.3 us."""
    kernels = [K(i * 10_000, 1_000, f"k{i}", launch=i * 10_000 - 100, launch_dur=50) for i in range(301)]
    host = [H(f"f{i}.py(1): run", i * 10_000 + 1_000, 8_000, python=True) for i in range(300)]
    host.append(H("aten::empty", 3_009_300, 300, python=True))
    picture, report, _ = drawn(ascend_pt(tmp_path, [*kernels, K(3_010_000, 1_000, launch=3_009_900)], host=host))
    named = [(b.cause, b.name) for b in report.blame if b.name != "others"]
    assert ("torch_op", "aten::empty") in named
    assert all(("wait", f"{cause}: {name}") in picture.places for cause, name in named)
    start, end = picture.places["wait", "torch_op: aten::empty"]
    assert (start, end) == (3_009_300, 3_009_600)


def test_of_calls_that_are_alike_the_longest_has_the_place(tmp_path: Path) -> None:
    kernels = [K(0, 1_000, launch=-900), K(20_000, 25_000, launch=4_000), K(50_000, 10_000)]
    host = [H("AscendCL@aclrtSynchronizeStream", start, dur) for start, dur in ((30_000, 10_000), (42_000, 3_000))]
    picture, _, _ = drawn(ascend_pt(tmp_path, kernels, host=host))
    assert picture.places["sync", "AscendCL@aclrtSynchronizeStream"] == (30_000, 40_000)


def test_a_host_thread_shows_events_as_they_are_nested(tmp_path: Path) -> None:
    host = [
        H("train.py(7): main", -1_000, 60_000, python=True),
        H("aten::mm", 1_000, 9_000, python=True),
        H("aten::empty", 2_000, 1_000, python=True),
        H("AscendCL@aclrtSynchronizeStream", 30_000, 10_000),
    ]
    kernels = [K(0, 1_000, launch=-900), K(20_000, 25_000, launch=4_000, launch_dur=1_000), K(50_000, 10_000)]
    picture, _, study = drawn(ascend_pt(tmp_path, kernels, host=host), Size(60, 1000))
    assert study.launches.skew == 0
    (lane,) = lanes(picture, "host")
    assert lane.thread is not None
    found = {row["name"]: (row["start"], row["end"], row["depth"], row["colour"]) for row in rows(picture, lane)}
    assert found["train.py(7): main"] == (-1_000, 59_000, 0, "host_op")
    assert found["aten::mm"] == (1_000, 10_000, 1, "host_op")
    assert found["aten::empty"] == (2_000, 3_000, 2, "host_op")
    assert found["AscendCL@aclrtSynchronizeStream"] == (30_000, 40_000, 1, "host_sync")
    share = lane.shares["host_op"].tolist()  # of a microsecond each; the frame alone is no work
    assert share[1:10] == [255] * 9
    assert not any(share[10:])
    assert lane.shares["host_sync"].tolist() == [0] * 30 + [255] * 10 + [0] * 20


def test_launches_and_code_lines_are_those_of_the_tasks(tmp_path: Path) -> None:
    picture, _, study = drawn(SAMPLE)
    tasks, host = study.profile.tasks, study.profile.host
    lines = {}
    for i in range(len(tasks)):
        lines[int(tasks.start[i]), int(tasks.stream[i])] = (
            host.code_line(int(tasks.op[i])),
            int(study.launches.end[i]),
        )
    seen = 0
    for lane in lanes(picture, "stream"):
        for row in rows(picture, lane):
            where, launch = lines[row["start"] + picture.origin_ns, -1 if lane.stream is None else lane.stream]
            assert row["where"] == where
            assert row["launch"] == (-1 if launch < 0 else launch - picture.origin_ns)
            seen += where is not None
    assert seen > 100


def test_what_is_too_much_is_cut_and_counted(tmp_path: Path) -> None:
    kernels = [K(10 * i, 1 + i % 9, f"k{i}", step=i // 100) for i in range(500)]
    picture, report, _ = drawn(ascend_pt(tmp_path, kernels), Size(64, 80))
    (lane,) = lanes(picture, "stream")
    assert report.steps
    assert sum(stretch.cut for stretch in picture.exact) + len(lane.slices) == 100 * len(picture.exact)
    assert len(lane.slices) == 40
    assert (lane.slices.end - lane.slices.start).min() >= 8  # the longest are kept
    assert sum(len(one.slices) for one in picture.lanes) <= 80


def test_one_step_alone_begins_with_it() -> None:
    whole, report, _ = drawn(SAMPLE)
    step = report.steps[1]
    picture, alone, _ = drawn(SAMPLE, step=step.step)
    assert (picture.begin_ns, picture.span_ns) == (step.start_ns, step.partition.span_ns)
    assert picture.origin_ns == alone.origin_ns + step.start_ns == whole.origin_ns + step.start_ns
    assert picture.places["step", str(step.step)] == (0, step.partition.span_ns)
    (stretch,) = picture.exact
    assert (stretch.start, stretch.end, stretch.step) == (0, step.partition.span_ns, step.step)
    (lane,) = lanes(picture, "parts")
    assert sum(lane.slices.end - lane.slices.start) == alone.partition.span_ns


def test_many_streams_share_one_lane(tmp_path: Path) -> None:
    kernels = [K(100 * i, 90 - i, f"k{i}", stream=i) for i in range(25)]
    picture, _, _ = drawn(ascend_pt(tmp_path, kernels), Size(64, 1000))
    found = lanes(picture, "stream")
    assert [lane.stream for lane in found] == [*range(16), None]
    assert str(found[-1].title) == "9 other streams"
    assert len(found[-1].slices) == 9


def test_a_device_of_one_moment_is_drawn(tmp_path: Path) -> None:
    picture, _, _ = drawn(ascend_pt(tmp_path, [K(0, 0)]))
    assert picture.span_ns == 1
    assert replace(picture, lanes=()).lanes == ()


# The clock of AI Cores.


@pytest.mark.parametrize("count", [10, 7])
def test_the_clock_is_drawn_over_time_where_it_is_recorded(tmp_path: Path, count: int) -> None:
    """1000 MHz for 300 ns, then 1800, from 700 ns on 900; in shares of the highest, counted for every ns."""
    kernels = [K(0, 500, "first", core="AI_CORE", block=2), K(500, 500, "last", core="AI_CORE", block=2)]
    folder = ascend_pt(tmp_path, kernels)
    assert not lanes(drawn(folder, Size(count, 1000))[0], "clock")
    pid, trace = 90, folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    events = json.loads(trace.read_text()) if trace.exists() else []
    events += [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "AI Core Freq"}},
        {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": "NPU 0"}},
        *({"ph": "C", "name": "AI Core Freq", "pid": pid, "tid": 0, "ts": us(EPOCH + ns), "args": {"MHz": mhz}}
          for ns, mhz in ((-1000, 1000), (300, 1800), (700, 900))),
    ]  # fmt: skip
    trace.write_text(json.dumps(events))
    picture, _, _ = drawn(folder, Size(count, 1000))
    (lane,) = lanes(picture, "clock")
    assert str(lane.title) == "AI Core clock, of 1800 MHz"
    clock = [1000] * 300 + [1800] * 400 + [900] * 300
    edges = [1000 * i // count for i in range(count + 1)]
    wanted = [sum(clock[a:b]) / (b - a) / 1800 * 255 for a, b in pairwise(edges)]
    assert lane.shares["clock"].tolist() == pytest.approx(wanted, abs=2)  # of 255, by ns that are whole


# Memory.


@pytest.mark.parametrize("count", [7, 100, 1000])
def test_memory_is_drawn_where_its_times_are_recorded(count: int) -> None:
    """Of every bucket the most of the slices of the report's curve that it touches, as a share of the most of all."""
    picture, report, _ = drawn(ROOT / "samples" / "memory_ascend_pt", Size(count, 1000))
    (lane,) = lanes(picture, "memory")
    curve = report.memory.curve if report.memory is not None else None
    assert curve is not None
    top = max(max(curve.allocated), max(curve.reserved))
    for name, column in (("allocated", curve.allocated), ("both", curve.reserved)):
        for n in range(count):
            begin, end = (Fraction(picture.span_ns * k, count) + picture.begin_ns - curve.start_ns for k in (n, n + 1))
            touched = [
                value for k, value in enumerate(column) if k * curve.slice_ns < end and (k + 1) * curve.slice_ns > begin
            ]
            found = int(lane.shares["allocated"][n]) + (int(lane.shares["reserved"][n]) if name == "both" else 0)
            # Buckets are whole ns: one may touch a slice more, or less, than this count has it.
            near = [max(touched, default=0), *touched[:1], *touched[-1:]]
            assert min(abs(found - 255 * value / top) for value in near) <= 2, (name, n)
    assert not lanes(drawn(SAMPLE, Size(count, 1000))[0], "memory")


def test_tasks_have_what_the_files_say_of_each() -> None:
    """Operands, core, blocks and counters of the sample's kernels, as its own table has them."""
    picture, _, _ = drawn(SAMPLE)
    with (SAMPLE / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").open(encoding="utf-8-sig", newline="") as file:
        table = {(int(Decimal(row["Start Time(us)"].strip()) * 1000), row["Type"]): row for row in csv.DictReader(file)}
    told = 0
    for lane in lanes(picture, "stream"):
        for place, row in enumerate(rows(picture, lane)):
            known = table.get((picture.origin_ns + int(row["start"] or 0), str(row["name"])))
            if known is None or known["Input Shapes"].strip('"') in ("", "N/A"):
                continue
            facts = picture.facts[int(row["facts"] or 0)]
            parts = zip(*(known[f"Input {name}"].strip('"').split(";") for name in ("Shapes", "Data Types", "Formats")),
                        strict=True)  # fmt: skip
            spelled = [
                (shape, re.sub("FLOAT$", "FLOAT32", dtype.removeprefix("DT_")), form) for shape, dtype, form in parts
            ]
            wanted = "; ".join(" ".join(filter(None, one)) for one in spelled)
            assert facts["inputs"] == wanted
            mixed = f" + {known['Mix Block Dim']}" if known["Mix Block Dim"] != "0" else ""
            assert (facts["core"], facts["blocks"]) == (known["Accelerator Core"], known["Block Dim"] + mixed)
            for counter, column in lane.counters.items():
                cell = known[counter if counter in known else f"{counter}(%)"]
                if cell == "N/A":  # of communication
                    assert column[place] == UNCOUNTED
                    continue
                assert abs(column[place] - float(cell) * (100 if counter in known else 1)) <= 0.5
            told += bool(lane.counters)
    assert told > 50
