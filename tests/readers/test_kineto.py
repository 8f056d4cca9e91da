"""A tiny Kineto trace whose every number is derived by hand, in all the forms that such traces come in."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.result import Device, Result
from npuperf.model.tasks import Work

pytestmark = pytest.mark.usefixtures("either_reader")

Event = dict[str, object]

# One host thread (9) launches onto two streams (7, 20) of GPU 0. All times in µs.
#
#   what          launch         runs          stream
#   gemm          100 – 104      112 – 140     7        starts 8 after its launch, the device was idle
#   relu          105 – 108      140 – 150     7        in the queue since 108
#   Memcpy HtoD   110 – 113      145 – 160     20       beside relu until 150, alone from 150 to 160
#   nccl          114 – 116      155 – 190     20       beside the copy until 160, beside add from 182 to 188
#   add           170 – 175      182 – 188     7        starts 7 after its launch, while nccl runs
#   mul           200 – 206      216 – 226     7        the device idles from 190; launched at 206, starts 10 later
#   div           207 – 209      230 – 235     7        idle from 226; launched at 209, before the gap began
#
# Span 112 – 235 = 123. Compute: 112 – 150, 182 – 188, 216 – 226, 230 – 235 = 38 + 6 + 10 + 5 = 59.
# Communication 155 – 190 outside compute: 35 - 6 = 29. The copy outside both: 150 – 155 = 5. Idle: 26 + 4 = 30.
# Latency: lower 10 % quantile of gemm's 8 and mul's 10 (add was launched under nccl) = 8.
# Gap 190 – 216: host until 206 = 16, latency 8, dependency 2. Gap 226 – 230: launched at 209, so latency 4 (of 8).
LAUNCHES = (
    ("gemm", "kernel", 7, 100, 104, 112, 140),
    ("relu", "kernel", 7, 105, 108, 140, 150),
    ("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 20, 110, 113, 145, 160),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "kernel", 20, 114, 116, 155, 190),
    ("add", "kernel", 7, 170, 175, 182, 188),
    ("mul", "kernel", 7, 200, 206, 216, 226),
    ("div", "kernel", 7, 207, 209, 230, 235),
)
EXPECTED = {
    "span_ns": 123_000,
    "compute_ns": 59_000,
    "comm_exposed_ns": 29_000,
    "other_exposed_ns": 5_000,
    "idle_ns": 30_000,
    "host_wait_ns": 16_000,
    "launch_latency_ns": 12_000,
    "dependency_wait_ns": 2_000,
    "unattributed_ns": 0,
    "comm_transfer_ns": 0,
    "comm_wait_ns": 0,
    "comm_unknown_ns": 29_000,
}
STEPS = {3: (95, 199), 4: (199, 240)}


def slice_(cat: str, name: str, begin: float, end: float, tid: int, **args: object) -> Event:
    device = 0 if cat in ("kernel", "gpu_memcpy", "gpu_user_annotation") else 4321
    return {"ph": "X", "cat": cat, "name": name, "pid": device, "tid": tid, "ts": begin, "dur": end - begin,
            "args": args}  # fmt: skip


def trace() -> list[Event]:
    events: list[Event] = [
        {"ph": "M", "name": "process_name", "pid": 4321, "tid": 0, "ts": 0, "args": {"name": "python3"}},
        {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "GPU 0"}},
    ]
    for i, (name, cat, stream, begin, end, start, stop) in enumerate(LAUNCHES, 1):
        op, call = (f"aten::{name}", "cudaLaunchKernel") if cat == "kernel" else ("aten::copy_", "cudaMemcpyAsync")
        events.append(slice_("cpu_op", op, begin - 1, end + 0.5, 9, **{"External id": 100 + i}))
        events.append(slice_("cuda_runtime", call, begin, end, 9, correlation=i, **{"External id": 100 + i}))
        ids = {"External id": 100 + i, "correlation": i, "device": 0, "stream": stream}
        events.append(slice_(cat, name, start, stop, stream, **ids))
        events.append({"ph": "s", "id": i, "pid": 4321, "tid": 9, "ts": begin, "cat": "ac2g", "name": "ac2g"})
        events.append({"ph": "f", "id": i, "pid": 0, "tid": stream, "ts": start, "cat": "ac2g", "name": "ac2g"})
    for number, (begin, end) in STEPS.items():
        events.append(slice_("user_annotation", f"ProfilerStep#{number}", begin, end, 9))
        events.append(slice_("gpu_user_annotation", f"ProfilerStep#{number}", begin + 10, end, 7))
    events.append(slice_("cuda_runtime", "cudaDeviceSynchronize", 210, 236, 9, correlation=99))
    return events


HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108}],
    "distributedInfo": {"backend": "nccl", "rank": 2, "world_size": 4},
}


def plain_list(events: list[Event]) -> bytes:
    return json.dumps(events).encode()


def object_(events: list[Event], **more: object) -> bytes:
    return json.dumps({**HEADER, **more, "traceEvents": events}, indent=1).encode()


def header_behind(events: list[Event]) -> bytes:
    return json.dumps({"traceEvents": events, **HEADER}).encode()


FORMS: dict[str, Callable[[list[Event]], bytes]] = {
    "trace.json": object_,
    "list.json": plain_list,
    "behind.json": header_behind,
    "trace.json.gz": lambda events: gzip.compress(object_(events)),
    "list.json.gz": lambda events: gzip.compress(plain_list(events)),
}


def analyzed(path: Path, data: bytes) -> Result:
    path.write_bytes(data)
    return run(AnalyzeRequest(path=path))


def only_device(result: Result) -> Device:
    (device,) = result.devices
    return device


def parts(device: Device) -> dict[str, int]:
    return {name: getattr(device.partition, name) for name in EXPECTED}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("deviceProperties", v) for v in ([], [1.5], 7, "x", {"name": "x"}, [{"name": 3}], [None], [[]])),
        *(("distributedInfo", v) for v in ([], 7, "x", {"rank": -1}, {"rank": 10**30}, {"rank": True}, {"rank": [2]})),
        *(("distributedInfo", {"rank": 2, "world_size": v}) for v in (-1, 10**30, "4", None, [])),
        *(("baseTimeNanoseconds", v) for v in (-1, 2**63, 10**30, "x", None, 1.5, [])),
    ],
)
def test_a_header_of_anything_costs_what_it_would_have_told(tmp_path: Path, key: str, value: object) -> None:
    result = analyzed(tmp_path / "trace.json", object_(trace(), **{key: value}))
    assert parts(only_device(result)) == EXPECTED


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_partition_derived_by_hand(tmp_path: Path, name: str) -> None:
    result = analyzed(tmp_path / name, FORMS[name](trace()))
    device = only_device(result)
    assert parts(device) == EXPECTED
    assert (device.clock.launch_latency_ns, device.clock.latency_samples, device.clock.skew_ns) == (8_000, 2, 0)
    assert (result.input.kind, result.input.lost) == ("kineto", [])
    if "list" not in name:
        assert (device.rank, device.soc) == (2, "NVIDIA A100-SXM4-40GB")


def test_a_folder_with_a_trace(tmp_path: Path) -> None:
    (tmp_path / "worker0.1234.pt.trace.json").write_bytes(object_(trace()))
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    result = run(AnalyzeRequest(path=tmp_path))
    assert parts(only_device(result)) == EXPECTED
    assert result.input.kind == "kineto"


def test_steps_follow_the_host_s_annotations(tmp_path: Path) -> None:
    """Each begins with the host's, at 95 and 199, as by then nothing runs any more; the host ends the last at 240.

    Step 3: 95 – 199; compute 38 + 6, communication 29, copy 5, idle 17 until gemm and 9 from 190 on. The host launches
    gemm until 104, then nothing of this step: 9 + 9 wait for it. Step 4: 199 – 240; compute 15, idle 17 until mul, 4
    until div, 5 behind it. The host launches mul until 206, and ends the step 5 behind div: 7 + 5 wait for it.
    """
    steps = only_device(analyzed(tmp_path / "t.json", object_(trace()))).steps
    found = [(s.step, s.start_ns, s.partition.span_ns, s.partition.compute_ns, s.partition.idle_ns) for s in steps]
    assert found == [(3, 0, 104_000, 44_000, 26_000), (4, 104_000, 41_000, 15_000, 26_000)]
    assert [s.partition.host_wait_ns for s in steps] == [18_000, 12_000]


def test_streams_on_their_own(tmp_path: Path) -> None:
    """Of the steps' 95 – 240, stream 7 computes 59. Stream 20 copies from 145 and sums up to 190; 5 overlap.

    Stream 7 waits for the host from 95, 150 and 188 until gemm, add and mul are launched (104, 175, 206), and from 235
    until the host is done: 9 + 25 + 18 + 5. Stream 20 waits until the copy is launched (113), and from 190 on: 18 + 50.
    """
    streams = {s.stream: s for s in only_device(analyzed(tmp_path / "t.json", object_(trace()))).streams}
    assert {n: s.tasks for n, s in streams.items()} == {7: 5, 20: 2}
    assert streams[7].partition.compute_ns == 59_000
    assert (streams[7].partition.idle_ns, streams[7].partition.host_wait_ns) == (145_000 - 59_000, 57_000)
    other = streams[20].partition
    assert (other.comm_exposed_ns, other.other_exposed_ns, other.idle_ns) == (35_000, 10_000, 100_000)
    assert (other.host_wait_ns, other.unattributed_ns) == (68_000, 0)


def test_a_stream_waits_at_the_end_of_a_step_for_its_next_launch(tmp_path: Path) -> None:
    """Of step 3 alone, 95 – 199: stream 7 is idle from 188, until mul, of step 4, is launched: that is the host's."""
    path = tmp_path / "t.json"
    path.write_bytes(object_(trace()))
    device = only_device(run(AnalyzeRequest(path=path, step=3)))
    streams = {s.stream: s.partition for s in device.streams}
    assert (streams[7].span_ns, streams[7].idle_ns) == (104_000, 104_000 - 44_000)
    assert (streams[7].host_wait_ns, streams[7].unattributed_ns) == (9_000 + 25_000 + 11_000, 0)


def test_operators_and_their_torch_names(tmp_path: Path) -> None:
    found = {o.type: o for o in analyzed(tmp_path / "t.json", object_(trace())).operators}
    assert {name: o.total_ns for name, o in found.items()} == {
        "gemm": 28_000, "relu": 10_000, "add": 6_000, "mul": 10_000, "div": 5_000, LAUNCHES[3][0]: 35_000,
    }  # fmt: skip
    assert {name: o.torch_op for name, o in found.items()} == {name: f"aten::{name}" for name in found}
    assert found[LAUNCHES[3][0]].core == "COMMUNICATION"


def test_a_base_time_moves_only_the_origin(tmp_path: Path) -> None:
    base = 1_736_413_971_558_972_000
    device = only_device(analyzed(tmp_path / "t.json", object_(trace(), baseTimeNanoseconds=base)))
    assert parts(device) == EXPECTED
    begin = STEPS[3][0] * 1000
    assert device.origin_ns == base + begin
    assert only_device(analyzed(tmp_path / "u.json", object_(trace()))).origin_ns == begin


def test_epochs_with_nanoseconds_stay_exact(tmp_path: Path) -> None:
    """Sixteen digits before the point and three behind do not fit a float64 (its steps are 0.25 µs there)."""
    shifted = []
    for e in trace():
        micro = e.get("ts", 0)
        assert isinstance(micro, (int, float))
        shifted.append({**e, "ts": f"@{1_736_413_971_000_000 + int(micro)}.{int(micro * 1000) % 1000 + 123:03d}@"})
    data = json.dumps(shifted).replace('"@', "").replace('@"', "").encode()
    device = only_device(analyzed(tmp_path / "t.json", data))
    assert parts(device) == EXPECTED
    assert device.origin_ns == 1_736_413_971_000_000_000 + STEPS[3][0] * 1000 + 123


def two_kernels(ts: tuple[str, str], dur: tuple[str, str]) -> bytes:
    """Two kernels whose times are given as text, to be written into the JSON as they are."""
    rows = [
        f'{{"ph": "X", "cat": "kernel", "name": "k{i}", "pid": 0, "tid": 7, "ts": {t}, "dur": {d}, '
        f'"args": {{"device": 0, "stream": 7, "correlation": {i + 1}}}}}'
        for i, (t, d) in enumerate(zip(ts, dur, strict=True))
    ]
    return f"[{', '.join(rows)}]".encode()


@pytest.mark.parametrize(
    ("ts", "dur", "compute", "idle"),
    [
        (("10", "20"), ("2", "3"), 5_000, 8_000),
        (("10.001", "20.002"), ("2.003", "3.004"), 5_007, 20_002 - 12_004),
        (("1000.0004", "2000.0006"), ("1.0001", "1.0004"), 2_000, 2_000_001 - 1_001_000),  # fractions of a ns: nearest
        (('"10.5"', '"20.25"'), ("2", "3"), 5_000, 20_250 - 12_500),  # times as text
        (("1736413971558972.912", "1736413971558975.001"), ("1.000", "2.000"), 3_000, 1_089),
    ],
)
def test_fractions(tmp_path: Path, ts: tuple[str, str], dur: tuple[str, str], compute: int, idle: int) -> None:
    p = only_device(analyzed(tmp_path / "t.json", two_kernels(ts, dur))).partition
    assert (p.compute_ns, p.idle_ns, p.unattributed_ns) == (compute, idle, idle)


def test_without_launches_idle_is_unattributed(tmp_path: Path) -> None:
    events = [e for e in trace() if e.get("cat") != "cuda_runtime"]
    result = analyzed(tmp_path / "t.json", object_(events))
    found = parts(only_device(result))
    assert found == EXPECTED | {"host_wait_ns": 0, "launch_latency_ns": 0, "dependency_wait_ns": 0,
                                "unattributed_ns": 30_000}  # fmt: skip
    assert result.verdict.basis == "inferred"


def test_one_launch_unknown_leaves_its_gap_unattributed(tmp_path: Path) -> None:
    events = [e for e in trace() if not (e.get("cat") == "cuda_runtime" and e["args"]["correlation"] == 6)]  # type: ignore[index]
    found = parts(only_device(analyzed(tmp_path / "t.json", object_(events))))
    assert (found["unattributed_ns"], found["launch_latency_ns"], found["host_wait_ns"]) == (26_000, 4_000, 0)


def test_a_kernel_before_its_own_launch_shows_the_skew(tmp_path: Path) -> None:
    """Everything on the GPU 15 µs early: gemm starts at 97, 3 before its launch. That is the skew.

    Launch ends move by 3: gemm 101, mul 203, div 206. Latency: gemm starts before 101: 0. add (launched 172 - device
    busy until 175). mul starts at 201, before 203: 0. So nothing has to be latency, but clocks may disagree by more:
    it cannot be told. Gap 175 – 201 is the host's, 211 – 215 a dependency.
    """
    on_device = ("kernel", "gpu_memcpy")
    events = [{**e, "ts": e["ts"] - 15} if e.get("cat") in on_device else e for e in trace()]  # type: ignore[operator]
    device = only_device(analyzed(tmp_path / "t.json", object_(events)))
    assert (device.clock.skew_ns, device.clock.launch_latency_ns) == (3_000, None)
    assert "clocks of host and device disagree" in str(device.clock.latency_reason)
    p = device.partition
    assert (p.host_wait_ns, p.launch_latency_ns, p.dependency_wait_ns) == (26_000, 0, 4_000)
    assert p.span_ns == 123_000


def test_several_gpus_are_several_devices(tmp_path: Path) -> None:
    events = trace()
    for e in list(events):
        if e.get("cat") in ("kernel", "gpu_memcpy"):
            events.append({**e, "pid": 1, "args": {**e["args"], "device": 1, "correlation": 0}})  # type: ignore[dict-item]
    result = analyzed(tmp_path / "t.json", object_(events))
    assert [d.device for d in result.devices] == [0, 1]
    assert parts(result.devices[0]) == EXPECTED
    assert result.devices[1].partition.unattributed_ns == 30_000
    chosen = run(AnalyzeRequest(path=tmp_path / "t.json", device=1))
    assert [d.device for d in chosen.devices] == [1]


def test_annotations_and_synchronisation_are_no_device_work(tmp_path: Path) -> None:
    import npuperf

    path = tmp_path / "t.json"
    path.write_bytes(object_(trace()))
    tasks = npuperf.load(path).tasks
    assert sorted(tasks["name"]) == sorted(name for name, *_ in LAUNCHES)
    assert tasks["work"].value_counts().to_dict() == {
        Work.COMPUTE.name.lower(): 5, Work.COMMUNICATION.name.lower(): 1, Work.OTHER.name.lower(): 1,
    }  # fmt: skip


def test_a_gpu_report_says_nothing_of_ascend_cores(tmp_path: Path) -> None:
    result = analyzed(tmp_path / "t.json", object_(trace()))
    ascend_only = {
        "ai_cpu",
        "layout",
        "idle_cores",
        "dynamic_shape",
        "task_queue",
        "runtime_threads",
        "launch_blocking",
    }
    assert not ascend_only & {f.rule for f in result.findings}
    (missing,) = map(str, result.input.missing)  # of its collective no group is told
    assert missing.startswith("no process group for 1 of 1 collectives")


def test_a_truncated_trace_keeps_its_events(tmp_path: Path) -> None:
    data = plain_list(trace())
    cut = data[: data.rindex(b'{"ph"') + 20]
    result = analyzed(tmp_path / "t.json", cut)
    assert parts(only_device(result)) == EXPECTED
    assert result.input.warnings or result.input.lost
