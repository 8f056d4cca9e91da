"""Finding input in every layout, and other kinds of input: Kineto traces, databases, step tables."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from build import EPOCH, HEADER, H, K, ascend_pt, events, kernel_details, row

from npuperf.analyze.run import Options, analyze_path
from npuperf.documents.analysis import Partition, Result
from npuperf.errors import InputError

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
KERNELS = [
    K(0, 5_000, "a", "MatMul", "AI_CORE", block=20, step=11, launch=-9_000, launch_dur=1_000),
    K(20_000, 5_000, "b", "Add", step=11, launch=10_000, launch_dur=2_000),
    K(26_000, 30_000, "hcom_allReduce__1_0_1", "hcom_allReduce_", "COMMUNICATION", "N/A", 0, step=11, launch=15_000),
    K(60_000, 5_000, "c", "Add", step=12, launch=40_000, launch_dur=2_000),
]


def op_summary(path: Path, kernels: list[K]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = HEADER.replace("Start Time", "Task Start Time").replace("Duration", "Task Duration")
    path.write_text("\r\n".join([header, *map(row, kernels)]) + "\r\n", newline="")
    return path


def count(result: Result) -> int:
    return sum(o.count for o in result.operators)


def test_partition_by_hand(tmp_path: Path) -> None:
    """Launch ends: a -8000, b 12000, c 42000; the latency is that of b and c: 8000 (10 % quantile of 8000, 18000).

    Gap before b [5000, 20000): host until 12000, then 8000 latency. [25000, 26000) before the collective, launched at
    15000: latency 1000. [56000, 60000) before c, launched at 42000: latency 4000. Communication hides nothing.
    """
    (device,) = analyze_path(ascend_pt(tmp_path, KERNELS)).devices
    assert device.clock.skew_ns == 0 and device.clock.launch_latency_ns == 8_000
    assert device.partition == Partition(
        span_ns=65_000, compute_ns=15_000, comm_exposed_ns=30_000, other_exposed_ns=0, idle_ns=20_000,
        host_wait_ns=7_000, launch_latency_ns=13_000, dependency_wait_ns=0, unattributed_ns=0,
    )  # fmt: skip


def test_skew_by_hand(tmp_path: Path) -> None:
    """The same run on a device whose clock is 15 µs behind the host's.

    a starts at -15000, 6000 before its own launch: that is the skew. Launch ends move to -14000 (a), 6000 (b), 9000
    (the collective), 36000 (c). a and b start at once after their launch, so the latency is 0. Gaps: before b
    [-10000, 5000) all host; before the collective [10000, 11000) and before c [41000, 45000) it was launched already.
    """
    late = [replace(k, start=k.start - 15_000) for k in KERNELS]
    (device,) = analyze_path(ascend_pt(tmp_path, late)).devices
    assert device.clock.skew_ns == 6_000
    p = device.partition
    assert (p.host_wait_ns, p.launch_latency_ns, p.dependency_wait_ns) == (15_000, 0, 5_000)


def test_a_torch_npu_result_and_every_way_to_name_it(tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path, KERNELS, {11: (-10_000, 30_000), 12: (30_000, 90_000)}, cores="24,48")
    for path in (tmp_path, folder, folder / "ASCEND_PROFILER_OUTPUT"):
        result = analyze_path(path)
        (device,) = result.devices
        assert (result.input.kind, device.rank, device.cores_cube, device.cores_vector) == ("ascend_pt", 0, 24, 48)
        assert [s.step for s in device.steps] == [11, 12]
        assert result.input.missing == []


def test_newest_export_wins_and_slices_are_joined(tmp_path: Path) -> None:
    output = tmp_path / "PROF_000001_20250101000000000_X" / "mindstudio_profiler_output"
    op_summary(output / "op_summary_20250101000000.csv", KERNELS[:1])
    op_summary(output / "op_summary_slice_0_20250102000000.csv", KERNELS[:2])
    op_summary(output / "op_summary_slice_1_20250102000000.csv", KERNELS[2:])
    for path in (tmp_path, output.parent, output):
        result = analyze_path(path)
        assert count(result) == 4
        assert any("older export" in w for w in result.input.warnings)


def test_the_old_layout_has_one_device_per_folder(tmp_path: Path) -> None:
    prof = tmp_path / "PROF_000001_20230101000000000_X"
    for device in (0, 3):
        text = "Op Name,OP Type,Task Type,Task Start Time,Task Duration(us),Block Dim\n"
        text += f"k,Add,AI_CORE,{(EPOCH + device) // 1000},{device + 1}.5,32\n"
        path = prof / f"device_{device}" / "summary" / f"op_summary_{device}_1.csv"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        info = {"DeviceInfo": [{"id": device, "ai_core_num": 32, "aiv_num": 0}]}
        (path.parent.parent / f"info.json.{device}").write_text(json.dumps(info))
    result = analyze_path(tmp_path)
    assert [(d.device, d.partition.compute_ns, d.cores_cube) for d in result.devices] == [(0, 1500, 32), (3, 4500, 32)]


def test_several_devices_in_one_file(tmp_path: Path) -> None:
    path = kernel_details(tmp_path / "kernel_details.csv", [K(0, 1_000, device=2), K(500, 2_000, device=5)])
    assert [(d.device, d.partition.compute_ns) for d in analyze_path(path).devices] == [(2, 1000), (5, 2000)]
    assert [d.device for d in analyze_path(path, Options(device=5)).devices] == [5]


def test_ranks_come_from_the_files_never_from_folder_names(tmp_path: Path) -> None:
    for rank in (0, 8):
        folder = ascend_pt(tmp_path / f"rank{rank + 1}", KERNELS)
        (folder / "profiler_info_0.json").unlink()
        (folder / f"profiler_info_{rank}.json").write_text("{}")
    result = analyze_path(tmp_path)
    assert (result.input.kind, [d.rank for d in result.devices]) == ("cluster", [0, 8])
    bare = kernel_details(tmp_path / "rank5" / "kernel_details.csv", KERNELS)
    assert analyze_path(bare).devices[0].rank is None


def test_the_same_rank_twice_gives_no_common_verdict(tmp_path: Path) -> None:
    for name in ("a", "b"):
        ascend_pt(tmp_path / name, KERNELS)
    result = analyze_path(tmp_path)
    assert result.verdict.bound == "unknown"
    assert any("different runs" in w for w in result.input.warnings)


def test_files_of_two_runs_are_not_mixed(tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path, KERNELS)
    other = [K(k.start + 777, k.dur, k.name, k.type, k.core, k.stream, launch=k.launch) for k in KERNELS]
    (folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_text(json.dumps(events(other)))
    result = analyze_path(folder)
    assert any("not of the same run" in w for w in result.input.warnings)
    assert result.devices[0].partition.unattributed_ns == result.devices[0].partition.idle_ns


def test_a_timeline_alone(tmp_path: Path) -> None:
    path = tmp_path / "msprof_20250101000000.json"
    path.write_text(json.dumps(events(KERNELS, {11: (-10_000, 30_000), 12: (30_000, 90_000)})))
    result = analyze_path(path)
    (device,) = result.devices
    assert device.partition == analyze_path(ascend_pt(tmp_path, KERNELS)).devices[0].partition
    assert [s.step for s in device.steps] == [11, 12]


def test_waits_are_idle_and_copies_are_other(tmp_path: Path) -> None:
    more = [
        *KERNELS,
        K(56_000, 3_000, "EVENT_WAIT", core="EVENT_WAIT"),
        K(8_000, 2_000, "MEMCPY_ASYNC", core="PCIE_DMA_SQE"),
    ]
    (device,) = analyze_path(ascend_pt(tmp_path, more)).devices
    assert (device.partition.other_exposed_ns, device.partition.idle_ns) == (2_000, 18_000)


def test_step_times_alone(tmp_path: Path) -> None:
    path = tmp_path / "step_trace_time.csv"
    path.write_text(
        "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble\n"
        "0,5,10.5,80.25,1,81.25,5,95.75,0\n0,6,20,60,1,61,4,84,0\n"
    )
    result = analyze_path(path)
    (device,) = result.devices
    assert result.verdict.bound == "communication"
    assert [(s.step, s.partition.span_ns, s.partition.unattributed_ns) for s in device.steps] == [
        (5, 95_750, 5_000),
        (6, 84_000, 4_000),
    ]


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
    result = analyze_path(path)
    (device,) = result.devices
    assert device.partition == Partition(
        span_ns=82_000, compute_ns=30_000, comm_exposed_ns=20_000, other_exposed_ns=2_000, idle_ns=30_000,
        host_wait_ns=20_000, launch_latency_ns=10_000, dependency_wait_ns=0, unattributed_ns=0,
    )  # fmt: skip
    assert result.input.kind == "kineto"
    assert [s.step for s in device.steps] == [3]
    if form.startswith("object"):
        assert (device.rank, device.soc) == (3, "GPU X")


def test_a_cpu_trace_says_why_there_is_no_verdict(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    path.write_text(
        json.dumps([{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}])
    )
    result = analyze_path(path)
    assert (result.verdict.bound, result.devices) == ("unknown", [])
    assert "no device task" in result.verdict.reason


def database(path: Path, kernels: list[K], block: str, host: Sequence[H] = ()) -> Path:
    """The same kernels (and host events of the CANN process) as a database export would hold them."""
    strings: dict[str, int] = {}

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings))

    connection = sqlite3.connect(path)
    mix = block.replace("block", "mixBlock")
    connection.executescript(
        "CREATE TABLE TASK(startNs, endNs, deviceId, connectionId, globalTaskId, taskType, streamId);"
        f"CREATE TABLE COMPUTE_TASK_INFO(name, globalTaskId, {block}, {mix}, taskType, opType, opState);"
        "CREATE TABLE COMMUNICATION_OP(opName, startNs, endNs, connectionId, opType, deviceId);"
        "CREATE TABLE CANN_API(startNs, endNs, type, globalTid, connectionId, name);"
        "CREATE TABLE STEP_TIME(id, startNs, endNs); CREATE TABLE RANK_DEVICE_MAP(rankId, deviceId);"
        "CREATE TABLE STRING_IDS(id, value); INSERT INTO RANK_DEVICE_MAP VALUES (4, 0);"
    )
    steps = [(11, EPOCH - 10_000, EPOCH + 30_000), (12, EPOCH + 30_000, EPOCH + 90_000)]
    connection.executemany("INSERT INTO STEP_TIME VALUES (?,?,?)", steps)
    for i, k in enumerate(kernels):
        start = EPOCH + k.start
        if k.core == "COMMUNICATION":
            values = (text(k.name), start, start + k.dur, i, text(k.type), 0)
            connection.execute("INSERT INTO COMMUNICATION_OP VALUES (?,?,?,?,?,?)", values)
        else:
            task = (start, start + k.dur, 0, i, i, text("KERNEL_AICORE"), k.stream)
            connection.execute("INSERT INTO TASK VALUES (?,?,?,?,?,?,?)", task)
            info = (text(k.name), i, k.block, k.mix, text(k.core), text(k.type), text(k.state))
            connection.execute("INSERT INTO COMPUTE_TASK_INFO VALUES (?,?,?,?,?,?,?)", info)
        if k.launch is not None:
            launch = (EPOCH + k.launch, EPOCH + k.launch + k.launch_dur, 10000, (5 << 32) + 11, i, text("launch"))
            connection.execute("INSERT INTO CANN_API VALUES (?,?,?,?,?,?)", launch)
    for h in host:
        layer, name = h.name.split("@")
        call = (
            EPOCH + h.start,
            EPOCH + h.start + h.dur,
            {"AscendCL": 20000, "Runtime": 5000}[layer],
            (5 << 32) + h.thread,
        )
        connection.execute("INSERT INTO CANN_API VALUES (?,?,?,?,NULL,?)", (*call, text(name)))
    connection.executemany("INSERT INTO STRING_IDS VALUES (?,?)", [(i, s) for s, i in strings.items()])
    connection.commit()
    connection.close()
    return path


def test_database_and_text_blame_the_same_calls(tmp_path: Path) -> None:
    """Kernels of 5 µs every 50, with tiling, a wait for the device and another call before their launches."""
    kernels = [K(i * 50_000, 5_000, f"k{i}", launch=i * 50_000 - 10_000, launch_dur=2_000) for i in range(30)]
    host = [
        H(name, i * 50_000 - 40_000 + 10_000 * place, 8_000)
        for i in range(30)
        for place, name in enumerate(("AscendCL@Add_Tiling", "AscendCL@aclrtSynchronizeStream", "Runtime@KernelLaunch"))
    ]
    text = analyze_path(ascend_pt(tmp_path, kernels, host=host)).devices[0]
    db = analyze_path(database(tmp_path / "ascend_pytorch_profiler_4.db", kernels, "blockDim", host)).devices[0]
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
    text = analyze_path(ascend_pt(tmp_path, KERNELS))
    db = analyze_path(database(tmp_path / "ascend_pytorch_profiler_4.db", KERNELS, block))
    (ours,), (theirs,) = db.devices, text.devices
    assert ours.partition == theirs.partition
    assert [(s.step, s.partition) for s in ours.steps] == [(s.step, s.partition) for s in theirs.steps]
    assert [(o.type, o.core, o.total_ns, o.block_dim) for o in db.operators] == [
        (o.type, o.core, o.total_ns, o.block_dim) for o in text.operators
    ]
    assert ours.rank == 4


def test_a_database_cut_short_gives_what_is_left(tmp_path: Path) -> None:
    many = [K(i * 10_000, 5_000, f"k{i}", launch=i * 10_000 - 4_000) for i in range(3_000)]
    whole = database(tmp_path / "msprof_20250101000000.db", many, "blockNum")
    data = whole.read_bytes()
    outcomes = set()
    for share in (0.2, 0.5, 0.8, 0.95):
        path = tmp_path / "ascend_pytorch_profiler.db"
        path.write_bytes(data[: int(len(data) * share)])
        try:
            result = analyze_path(path)
            assert any("damaged or cut short" in w for w in result.input.warnings)
            outcomes.add("result")
        except InputError as error:
            assert str(path) in str(error)
            outcomes.add("error")
    assert "result" in outcomes


@pytest.mark.skipif(not REAL.is_dir(), reason="the real profiles are not here")
def test_every_real_folder_gives_a_verdict_or_a_reason() -> None:
    folders = [REAL, *(p for p in REAL.rglob("*") if p.is_dir())]
    files = [p for p in REAL.rglob("*") if p.is_file()]
    assert len(folders) > 15
    verdicts = 0
    for path in [*folders, *files]:
        try:
            result = analyze_path(path)
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
    (device,) = analyze_path(copy).devices
    (check,) = device.vendor
    assert check.agrees, check
    assert abs(check.compute_diff_ns) < 100


@pytest.mark.parametrize(
    "text", ["", "[]", '{"config": 3}', '{"config": {"experimental_config": []}}', "{", '{"rank_id": "x"}']
)
def test_broken_context_files_cost_only_what_they_say(tmp_path: Path, text: str) -> None:
    folder = ascend_pt(tmp_path, KERNELS, cores="24,48")
    for path in (folder / "profiler_info_0.json", folder / "profiler_metadata.json", *folder.rglob("info.json.0")):
        path.write_text(text)
    result = analyze_path(folder)
    (device,) = result.devices
    assert (device.cores_cube, device.rank) == (None, 0)  # the rank is in the file's name
    assert device.partition.compute_ns == 15_000
