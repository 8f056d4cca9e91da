"""Pauses of the host, and work of first calls: none is blamed on launching, whatever the program does meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from build import H, K, analyze_path, ascend_pt
from msgspec.structs import replace
from small_programs import analyzed, answer, problem, starved

from npuperf.model.result import Finding

PAUSE = 30_000_000


def ahead(first: int, start: int, step: int) -> list[K]:
    """20 kernels of 100 µs back to back; each is launched 10 µs after the one before, so the host is ahead."""
    return [K(start + i * 100_000, 100_000, f"k{first + i}", "MatMulV2", "AI_CORE", block=24, step=step,
              launch=start - 10_000 + i * 10_000, launch_dur=2_000) for i in range(20)]  # fmt: skip


def with_pause() -> list[K]:
    """Two steps; the device has finished the first one at 2 ms, the second one's first launch returns at 29.992 ms."""
    return ahead(0, 0, 11) + ahead(20, PAUSE, 12)


def test_a_checkpoint_is_no_launching(tmp_path: Path) -> None:
    save = H("train.py(70): save_checkpoint", 500_000, PAUSE - 600_000, python=True)  # until 29.9 ms
    first = H("aten::mm", -12_000, 6_000, python=True)  # the thread that launches is the main thread
    result = analyzed(ascend_pt(tmp_path, with_pause(), host=[first, save]))
    assert result.verdict.bound == "host"
    found = problem(result, "host_pauses")
    # 2 ms to 29.9 ms in the frame, and with nothing recorded on to 29.99 ms, where the launch begins: one pause.
    assert found.evidence["host_wait_ns"] == 29_990_000 - 2_000_000
    assert (found.evidence["pauses"], found.evidence["longest_ns"]) == (1, 27_990_000)
    assert str(found.title).startswith("the host pauses once, for 27.99 ms") and "save_checkpoint" in str(found.title)
    assert found.gain_ns_per_step is not None
    assert found.gain_ns_per_step[0] == 0 and 0.9 * 27_990_000 / 2 < found.gain_ns_per_step[1] <= 28_000_000 / 2
    assert answer(result, "graph_capture").status == "ok"


def test_pauses_between_requests_of_which_nothing_is_recorded(tmp_path: Path) -> None:
    kernels = [k for n in range(5) for k in ahead(20 * n, n * PAUSE, -1)]
    result = analyzed(ascend_pt(tmp_path, [*kernels], host=()))
    found = answer(result, "host_pauses")
    assert found.evidence["pauses"] == 4
    assert "what it does is not recorded" in str(found.title) and "requests" in str(found.next)
    assert answer(result, "graph_capture").status == "ok"


def test_time_between_launches_is_no_pause(tmp_path: Path) -> None:
    result = analyzed(ascend_pt(tmp_path, starved()))
    assert answer(result, "host_pauses").status == "ok"
    assert answer(result, "graph_capture").status == "problem"


@pytest.mark.parametrize("name", ["AscendCL@aclnnMatMulV2", "aten::mm"])
def test_a_long_call_that_launches_is_no_pause(tmp_path: Path, name: str) -> None:
    """Python is covered by a call that launches: the call is what takes so long."""
    call = H(name, 1_900_000, PAUSE - 1_900_000 - 8_000, python="::" in name)
    result = analyzed(ascend_pt(tmp_path, with_pause(), host=[call]))
    assert answer(result, "host_pauses").status == "ok"


def test_capturing_saves_no_pause(tmp_path: Path) -> None:
    """100 kernels of 6 µs, 40 µs apart by their launches, and 10 ms of nothing in the middle.

    Without launching the host pauses at once, so that 50 kernels run meanwhile and 50 afterwards: 10 ms and 0.3 ms
    remain of 13.966 ms, give or take 50 gaps between kernels and a latency.
    """
    moved = [k if i < 50 else _later(k, 10_000_000) for i, k in enumerate(starved())]
    result = analyzed(ascend_pt(tmp_path, moved), what_if=("host:launching*0,latency*0", "host:pause*0", "host*0"))
    launching, pause, everything = (w.gain_ns_per_step for w in result.what_if[:3])
    assert launching and pause and everything
    assert (13_966_000 - 10_300_000) / 2 - 100_000 < launching[1] <= (13_966_000 - 10_300_000) / 2
    assert 9_900_000 / 2 <= pause[1] <= 10_040_000 / 2
    assert everything[1] > launching[1] + 4_000_000
    unasked = {w.expr: w for w in analyzed(next(tmp_path.iterdir())).what_if}
    assert unasked["host:pause*0"].gain_ns_per_step == pause
    assert unasked["host:launching*0,latency*0"].gain_ns_per_step == launching
    assert "graph capture" in str(unasked["host:launching*0,latency*0"].title)


def _later(k: K, by: int) -> K:
    assert k.launch is not None
    return replace(k, start=k.start + by, launch=k.launch + by)


def test_small_kernels_after_pauses_are_not_what_the_device_waits_for(tmp_path: Path) -> None:
    """Five requests of 20 kernels of 5 µs, each launched 5 µs after the one before: the device waits for requests."""
    kernels = [K(n * PAUSE + i * 5_000, 5_000, "k", launch=n * PAUSE - 10_000 + i * 5_000, launch_dur=1_000)
               for n in range(5) for i in range(20)]  # fmt: skip
    result = analyzed(ascend_pt(tmp_path, kernels))
    assert result.verdict.bound == "host"
    assert answer(result, "host_pauses").evidence["pauses"] == 4
    assert answer(result, "small_kernels").status == "ok"


def test_start_up_is_no_pause_and_allocations_are_not_another_threads(tmp_path: Path) -> None:
    """27.9 ms in one call each: a context that only the first call makes, and memory from the driver."""
    first = H("aten::mm", -12_000, 6_000, python=True)
    rest = H("AscendCL@aclrtGetDevice", PAUSE - 95_000, 90_000)  # until the launch begins
    context = H("AscendCL@aclrtCreateContext", 500_000, PAUSE - 600_000)
    result = analyzed(ascend_pt(tmp_path / "a", with_pause(), host=[first, context, rest]))
    assert answer(result, "start_up").status == "problem"
    assert answer(result, "host_pauses").status == "ok"
    memory = replace(context, name="AscendCL@aclrtMallocAlign32")
    found = answer(ascend_pt(tmp_path / "b", with_pause(), host=[first, memory, rest]), "host_pauses")
    assert "aclrtMallocAlign32" in str(found.title)
    assert "later steps" in str(found.next) and "another thread" not in str(found.next)


# --- work of first calls in the window: found by its mechanism, told from calls that are long again and again --------


US = 1_000
Call = tuple[str, int]
LAUNCH: Call = ("cudaLaunchKernel", 5)


def trace(folder: Path, calls: Sequence[Call]) -> Path:
    """Calls (name, µs) one after the other on one thread; every launch starts a kernel of 2 µs, 1 µs after its end."""
    events: list[dict[str, object]] = []
    at = 1_000_000
    for i, (name, dur) in enumerate(calls):
        args = {"correlation": i + 1}
        call = {"ph": "X", "pid": 7, "tid": 7, "cat": "cuda_runtime", "name": name, "ts": at, "dur": dur, "args": args}
        events.append(call)
        at += dur
        if name == "cudaLaunchKernel":
            place = {"device": 0, "stream": 7, **args}
            events.append({"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "mm", "ts": at + 1, "dur": 2,
                           "args": place})  # fmt: skip
        at += 5
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": events}))
    return path


def found(path: Path) -> Finding:
    (finding,) = (f for f in analyze_path(path).findings if f.rule == "start_up")
    return finding


def test_a_first_call_that_is_long_and_never_again(tmp_path: Path) -> None:
    """The second launch takes 50 ms, the others 5 µs: from the end of the first kernel (3 µs after its launch, of
    which 2 µs before the next call) the device waits 2 + 50 000 µs, all but 2 in the call."""
    finding = found(trace(tmp_path, [LAUNCH, ("cudaLaunchKernel", 50_000), *[LAUNCH] * 40]))
    assert finding.status == "problem"
    assert finding.evidence["calls"] == [{"name": "cudaLaunchKernel", "ns": 50_000 * US}]
    assert finding.gain_ns_per_step == (0, 50_000 * US)
    assert finding.next and "torch.profiler" in str(finding.next) and "npuperf" not in str(finding.next)


@pytest.mark.parametrize(
    ("calls", "status"),
    [
        ([LAUNCH, ("cuModuleLoadData", 50_000), *[LAUNCH] * 40], "problem"),  # only ever sets something up
        ([LAUNCH, *[LAUNCH, ("cudaFuncGetAttributes", 9_000)] * 5, *[LAUNCH] * 40], "problem"),  # loads a kernel each
        ([("cudaFree", 50_000), *[LAUNCH] * 40], "ok"),  # before the window: nothing waits
        ([LAUNCH, ("cudaHostAlloc", 50_000), *[LAUNCH] * 40], "ok"),  # a single call of a kind that may come again
        ([LAUNCH, *[LAUNCH, ("cudaMalloc", 20_000)] * 20], "ok"),  # long every time
        ([*[LAUNCH] * 10, ("cudaLaunchKernel", 50_000), *[LAUNCH] * 30], "ok"),  # long, but not among the first
        ([LAUNCH, ("cudaLaunchKernel", 50_000), *[LAUNCH] * 20, ("cudaLaunchKernel", 40_000), LAUNCH], "ok"),  # again
        ([LAUNCH, ("cudaDeviceSynchronize", 50_000), *[LAUNCH, ("cudaDeviceSynchronize", 5)] * 20], "ok"),  # a wait
        ([LAUNCH, ("cuModuleLoadData", 900), *[LAUNCH] * 40], "ok"),  # shorter than a millisecond
    ],
)
def test_what_is_start_up_work(tmp_path: Path, calls: list[Call], status: str) -> None:
    assert found(trace(tmp_path, calls)).status == status


def test_the_context_is_made_by_the_first_call_of_all(tmp_path: Path) -> None:
    """A kernel launched on another thread before lets the window begin; then cudaFree is not the first call."""
    events = json.loads(trace(tmp_path, [("cudaFree", 50_000), *[LAUNCH] * 40]).read_text())["traceEvents"]
    early = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "mm", "ts": 999_000, "dur": 2,
             "args": {"device": 0, "stream": 7, "correlation": 999}}  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [early, *events]}))
    assert found(path).status == "problem"
    launch = {"ph": "X", "pid": 7, "tid": 8, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 998_000, "dur": 5}
    again = [{**launch, "args": {"correlation": 999}}, early, *events]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": again}))
    assert found(path).status == "ok"


# --- the code of a kernel is loaded by its first launch, whichever call of its name that is -----------------------


Launch = tuple[str, str, int]  # call, kernel, µs


def launches(folder: Path, calls: Sequence[Launch]) -> Path:
    """Launches one after the other, 15 µs after the last one returned; kernels run 2 µs, 1 µs after theirs returned."""
    events: list[dict[str, object]] = []
    at = 1_000_000
    for i, (name, kernel, dur) in enumerate(calls):
        args, place = {"correlation": i + 1}, {"correlation": i + 1, "device": 0, "stream": 7}
        events.append({"ph": "X", "pid": 7, "tid": 7, "cat": "cuda_runtime", "name": name, "ts": at, "dur": dur,
                       "args": args})  # fmt: skip
        at += dur
        events.append({"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": kernel, "ts": at + 1, "dur": 2,
                       "args": place})  # fmt: skip
        at += 15
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": events}))
    return path


LOADED = [122_000, 90_000, 200_000, 50_000, 117_000, 130_000, 140_000, 130_000]


@pytest.mark.parametrize("call", ["cudaLaunchKernel", "hipLaunchKernel", "hipExtModuleLaunchKernel", "cuLaunchKernel"])
def test_the_first_launch_of_each_kernel_loads_it(tmp_path: Path, call: str) -> None:
    """Eight kernels' first launches are 979 ms, 402 launches of kernels that are there 5 µs each."""
    once = [(call, f"gemm<{i}>", dur) for i, dur in enumerate(LOADED)]
    again: list[Launch] = [(call, f"gemm<{i % 8}>", 5) for i in range(400)]
    result = analyze_path(launches(tmp_path, [(call, "fill", 5), (call, "fill", 5), *once, *again]))
    finding = answer(result, "start_up")
    assert finding.status == "problem"
    assert finding.evidence["calls"] == [{"name": call, "ns": sum(LOADED) * US}]
    assert sum(LOADED) == 979_000
    # What such a window shows of launching is not how the program runs: neither advice nor "ok".
    for rule in ("small_kernels", "graph_capture"):
        other = answer(result, rule)
        assert (other.status, "warm-up" in str(other.needs)) == ("cannot_tell", True), rule
    assert answer(result, "uneven_host").status == "cannot_tell"
    (device,) = result.devices
    # The rest: 400 gaps of 15 µs less the 3 µs until the last kernel ended, and the next launch's 5 µs.
    assert device.window.host_wait_ns == sum(LOADED) * US + 401 * 17 * US + 8 * 12 * US


@pytest.mark.parametrize(
    ("calls", "status"),
    [
        # long, but so is a later launch of the same kernel
        ([("a", 5)] * 20 + [("b", 50_000), ("b", 40_000)] + [("a", 5)] * 20, "ok"),
        # long, but launches of kernels that ran before are usually as long
        ([("a", 50_000)] * 20 + [("b", 50_000)] + [("a", 50_000)] * 20, "ok"),
        # long launches come as often for kernels that ran before: every sixth, which is no matter of being the first
        ([("a", 5), ("b", 30_000), ("c", 5), *[("a", 5), ("a", 30_000)] * 3, *[("a", 5)] * 12], "ok"),
        ([("a", 5)] * 20 + [("b", 50_000)] + [("a", 5)] * 20, "problem"),
        # every kernel once, and most of them at once: three of fifty have to be loaded
        ([(str(i), 40_000 if i % 20 == 9 else 5) for i in range(50)] + [("0", 5)] * 3, "problem"),
    ],
)
def test_a_long_first_launch_is_start_up_only_where_others_are_not_long(
    tmp_path: Path, calls: list[tuple[str, int]], status: str
) -> None:
    made = [("cudaLaunchKernel", kernel, dur) for kernel, dur in calls]
    assert found(launches(tmp_path, made)).status == status


REAL = Path(__file__).parents[3] / "shared" / "data" / "hta"


@pytest.mark.skipif(not REAL.is_dir(), reason="real profiles are not here")
@pytest.mark.parametrize(
    ("name", "status"), [("alexnet_gpu", "problem"), ("simple_add_gpu", "problem"), ("ns_resolution_gpu", "ok")]
)
def test_real_traces(name: str, status: str) -> None:
    """In two the first cudaFree (6.0 s, 5.2 s) and a first cudaLaunchKernel (3.1 s, 4.2 s) lie in the window."""
    finding = found(REAL / f"{name}.json.gz")
    assert finding.status == status
    if status == "problem":
        assert [c["name"] for c in finding.evidence["calls"]][:2] == ["cudaFree", "cudaLaunchKernel"]
        assert finding.gain_ns_per_step and finding.gain_ns_per_step[0] == 0
