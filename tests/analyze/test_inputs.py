"""Inputs of every kind through the whole analysis: the same numbers whatever form they come in."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from build import H, K, analyze_path, ascend_pt, events, kernel_details
from inputs import KERNELS, STEPS, database
from msgspec.structs import replace

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.errors import InputError
from npuperf.model.result import Partition, Result

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def analyze(path: Path, device: int | None = None) -> Result:
    return run(AnalyzeRequest(path=path, device=device))


def test_partition_by_hand(tmp_path: Path) -> None:
    """Launch ends: a -8000, b 12000, c 42000; the latency is that of b and c: 8000 (10 % quantile of 8000, 18000).

    Gap before b [5000, 20000): host until 12000, then 8000 latency. [25000, 26000) before the collective, launched at
    15000: latency 1000. [56000, 60000) before c, launched at 42000: latency 4000. Communication hides nothing.
    """
    (device,) = analyze(ascend_pt(tmp_path, KERNELS)).devices
    assert device.clock.skew_ns == 0 and device.clock.launch_latency_ns == 8_000
    assert device.partition == Partition(
        span_ns=65_000, compute_ns=15_000, comm_exposed_ns=30_000, other_exposed_ns=0, idle_ns=20_000,
        host_wait_ns=7_000, launch_latency_ns=13_000, dependency_wait_ns=0, unattributed_ns=0, comm_unknown_ns=30_000,
    )  # fmt: skip


def test_skew_by_hand(tmp_path: Path) -> None:
    """The same run on a device whose clock is 15 µs behind the host's.

    a starts at -15000, 6000 before its own launch: that is the skew. Launch ends move to -14000 (a), 6000 (b), 9000
    (the collective), 36000 (c). a and b start at once after their launch, so the latency is 0. Gaps: before b
    [-10000, 5000) all host; before the collective [10000, 11000) and before c [41000, 45000) it was launched already.
    """
    late = [replace(k, start=k.start - 15_000) for k in KERNELS]
    (device,) = analyze(ascend_pt(tmp_path, late)).devices
    assert device.clock.skew_ns == 6_000
    p = device.partition
    assert (p.host_wait_ns, p.launch_latency_ns, p.dependency_wait_ns) == (15_000, 0, 5_000)


def test_several_devices_in_one_file(tmp_path: Path) -> None:
    path = kernel_details(tmp_path / "kernel_details.csv", [K(0, 1_000, device=2), K(500, 2_000, device=5)])
    assert [(d.device, d.partition.compute_ns) for d in analyze(path).devices] == [(2, 1000), (5, 2000)]
    assert [d.device for d in analyze(path, device=5).devices] == [5]


def test_the_same_rank_twice_gives_no_common_verdict(tmp_path: Path) -> None:
    for name in ("a", "b"):
        ascend_pt(tmp_path / name, KERNELS)
    result = analyze(tmp_path)
    assert result.verdict.bound == "unknown"
    assert any("different runs" in str(w) for w in result.input.warnings)
    assert not any(w.expr.startswith("rank:") for w in analyze_path(tmp_path, what_if=("rank:1*0.5",)).what_if)
    (alone,) = (w for w in analyze_path(tmp_path / "a", what_if=("rank:1*0.5",)).what_if if w.expr.startswith("rank:"))
    assert "several ranks of one job" in str(alone.reason)


def test_files_of_two_runs_are_not_mixed(tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path, KERNELS)
    other = [K(k.start + 777, k.dur, k.name, k.type, k.core, k.stream, launch=k.launch) for k in KERNELS]
    (folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_text(json.dumps(events(other)))
    result = analyze(folder)
    assert any("not be from the same run" in str(w) for w in result.input.warnings)
    assert result.devices[0].partition.unattributed_ns == result.devices[0].partition.idle_ns


def test_a_timeline_alone(tmp_path: Path) -> None:
    path = tmp_path / "msprof_20250101000000.json"
    path.write_text(json.dumps(events(KERNELS, {11: (-10_000, 30_000), 12: (30_000, 90_000)})))
    result = analyze(path)
    (device,) = result.devices
    assert device.partition == analyze(ascend_pt(tmp_path, KERNELS)).devices[0].partition
    assert [s.step for s in device.steps] == [11, 12]


def test_waits_are_idle_and_copies_are_other(tmp_path: Path) -> None:
    more = [
        *KERNELS,
        K(56_000, 3_000, "EVENT_WAIT", core="EVENT_WAIT"),
        K(8_000, 2_000, "MEMCPY_ASYNC", core="PCIE_DMA_SQE"),
    ]
    (device,) = analyze(ascend_pt(tmp_path, more)).devices
    assert (device.partition.other_exposed_ns, device.partition.idle_ns) == (2_000, 18_000)


def test_step_times_alone(tmp_path: Path) -> None:
    path = tmp_path / "step_trace_time.csv"
    path.write_text(
        "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble\n"
        "0,5,10.5,80.25,1,81.25,5,95.75,0\n0,6,20,60,1,61,4,84,0\n"
    )
    result = analyze(path)
    (device,) = result.devices
    assert result.verdict.bound == "communication"
    assert [(s.step, s.partition.span_ns, s.partition.unattributed_ns) for s in device.steps] == [
        (5, 95_750, 5_000),
        (6, 84_000, 4_000),
    ]


def test_steps_of_a_host_that_ran_ahead_are_not_the_device_s(tmp_path: Path) -> None:
    """Two graphs, submitted at once in two short steps; they run long after. Nothing says which kernel is whose."""
    kernels = [K(1_000_000 + i * 40_000, 39_000, f"op_{i}") for i in range(20)]
    steps_ = {20: (0, 50_000), 21: (50_000, 1_100_000)}  # the last range lasts until the device is done
    folder = ascend_pt(tmp_path, kernels, steps_)
    (folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").unlink()
    (device,) = analyze(folder).devices
    assert device.steps == []


def kineto() -> list[dict]:
    """Two kernels, a copy and a collective on one GPU; times in µs, with fractional ns kept by hand.

    Host: launch 100-105 -> kernel 110-130; launch 140-150 -> kernel 155-165 (the device idles from 130: host until
    150, then 5 latency); launch 151-152 -> copy 170-172 (launched before 165: 5 of latency at most);
    launch 152-153 -> nccl 172-192. Latency: 10 % lower quantile of (5, 5) = 5.
    """
    made: list[dict] = []
    rows = (
        (1, "sgemm", "kernel", 100, 5, 110, 20),
        (2, "relu", "kernel", 140, 10, 155, 10),
        (3, "Memcpy HtoD", "gpu_memcpy", 151, 1, 170, 2),
        (4, "ncclDevKernel_AllReduce", "kernel", 152, 1, 172, 20),
    )
    for i, name, cat, launch, launch_dur, start, dur in rows:
        made.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": launch,
                     "dur": launch_dur, "args": {"correlation": i}})  # fmt: skip
        made.append({"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": start, "dur": dur,
                     "args": {"correlation": i, "device": 0, "stream": 7, "External id": i + 50}})  # fmt: skip
    made.append(
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 9, "tid": 9, "ts": 90, "dur": 200}
    )
    return made


@pytest.mark.parametrize("form", ["list.json", "object.json", "object.json.gz"])
def test_kineto_by_hand(tmp_path: Path, form: str) -> None:
    text = json.dumps(kineto())
    if form.startswith("object"):
        info = '"deviceProperties": [{"id": 0, "name": "GPU X"}], "distributedInfo": {"rank": 3}'
        text = f'{{"schemaVersion": 1, {info}, "traceEvents": {text}}}'
    path = tmp_path / form
    path.write_bytes(gzip.compress(text.encode()) if form.endswith("gz") else text.encode())
    result = analyze(path)
    (device,) = result.devices
    assert device.partition == Partition(
        span_ns=82_000, compute_ns=30_000, comm_exposed_ns=20_000, other_exposed_ns=2_000, idle_ns=30_000,
        host_wait_ns=20_000, launch_latency_ns=10_000, dependency_wait_ns=0, unattributed_ns=0, comm_unknown_ns=20_000,
    )  # fmt: skip
    assert result.input.kind == "kineto"
    assert [s.step for s in device.steps] == [3]
    if form.startswith("object"):
        assert (device.rank, device.soc) == (3, "GPU X")


def test_a_cpu_trace_says_why_there_is_no_verdict(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    result = analyze(path)
    assert (result.verdict.bound, result.devices) == ("unknown", [])
    assert "no device task" in str(result.verdict.reason)


def test_database_and_text_blame_the_same_calls(tmp_path: Path) -> None:
    """Kernels of 5 µs every 50, with tiling, a wait for the device and another call before their launches."""
    kernels = [K(i * 50_000, 5_000, f"k{i}", launch=i * 50_000 - 10_000, launch_dur=2_000) for i in range(30)]
    host = [
        H(name, i * 50_000 - 40_000 + 10_000 * place, 8_000)
        for i in range(30)
        for place, name in enumerate(("AscendCL@Add_Tiling", "AscendCL@aclrtSynchronizeStream", "Runtime@KernelLaunch"))
    ]
    text = analyze(ascend_pt(tmp_path, kernels, host=host)).devices[0]
    db = analyze(database(tmp_path / "ascend_pytorch_profiler_4.db", kernels, "blockDim", host, ())).devices[0]
    assert {b.cause for b in text.blame} >= {"tiling", "sync", "launch"}
    assert [(b.cause, b.name, b.ns, b.count) for b in db.blame] == [
        (b.cause, b.name, b.ns, b.count) for b in text.blame
    ]
    assert [(s.name, s.count, s.host_ns, s.idle_ns) for s in db.syncs] == [
        (s.name, s.count, s.host_ns, s.idle_ns) for s in text.syncs
    ]
    assert db.replay == text.replay and db.verdict.elasticity == text.verdict.elasticity


@pytest.mark.parametrize("block", ["blockDim", "blockNum"])
def test_database_and_text_give_one_answer(tmp_path: Path, block: str) -> None:
    text = analyze(ascend_pt(tmp_path, KERNELS, {number: (begin, end) for number, begin, end in STEPS}))
    db = analyze(database(tmp_path / "ascend_pytorch_profiler_4.db", KERNELS, block))
    (ours,), (theirs,) = db.devices, text.devices
    assert ours.partition == theirs.partition
    assert [(s.step, s.partition) for s in ours.steps] == [(s.step, s.partition) for s in theirs.steps]
    # The host begins step 11 at -10 µs; 12 begins when the collective of 11 ends at 56 µs, until the host leaves at 90.
    assert [(s.step, s.partition.span_ns) for s in ours.steps] == [(11, 66_000), (12, 34_000)]
    assert [(o.type, o.core, o.total_ns, o.block_dim) for o in db.operators] == [
        (o.type, o.core, o.total_ns, o.block_dim) for o in text.operators
    ]
    assert ours.rank == 4


@pytest.mark.skipif(not REAL.is_dir(), reason="the real profiles are not here")
def test_every_real_folder_gives_a_verdict_or_a_reason() -> None:
    folders = [REAL, *(p for p in REAL.rglob("*") if p.is_dir())]
    files = [p for p in REAL.rglob("*") if p.is_file()]
    assert len(folders) > 15
    verdicts = 0
    for path in [*folders, *files]:
        try:
            result = analyze(path)
        except InputError as error:
            assert len(str(error)) > 30
            continue
        verdicts += 1
        assert result.verdict.reason
        for device in result.devices:
            p = device.partition
            assert p.span_ns == p.compute_ns + p.comm_exposed_ns + p.other_exposed_ns + p.idle_ns
            assert p.idle_ns == p.host_wait_ns + p.launch_latency_ns + p.dependency_wait_ns + p.unattributed_ns
    assert verdicts > 20


@pytest.mark.skipif(not REAL.is_dir(), reason="the real profiles are not here")
@pytest.mark.parametrize(
    "name", ["text/level1/rank0_ascend_pt", "text/level1/rank1_ascend_pt", "text/level0/rank0_ascend_pt"]
)
def test_the_real_step_agrees_with_the_exporter(name: str, tmp_path: Path) -> None:
    source = REAL / "msinsight" / name
    copy = tmp_path / source.name
    shutil.copytree(source, copy)
    (device,) = analyze(copy).devices
    (check,) = device.vendor
    assert check.agrees, check
    assert abs(check.compute_diff_ns) < 100
