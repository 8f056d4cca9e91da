"""While a graph is captured the host captures: no pause, no launching, and no wait of the user's, whoever's calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from build import H, K, analyze_path, ascend_pt
from small_programs import answer

from npuperf.model.result import Device, Result

Event = dict[str, Any]
US = 1_000
#: Calls that begin and end a capture, that launch, wait for the device, and launch a graph.
CUDA = (
    "cudaStreamBeginCapture",
    "cudaStreamEndCapture",
    "cudaLaunchKernel",
    "cudaDeviceSynchronize",
    "cudaGraphLaunch",
)
TRITON = ("cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuLaunchKernelEx", "cuCtxSynchronize", "cuGraphLaunch")
HIP = (
    "hipStreamBeginCapture",
    "hipStreamEndCapture",
    "hipModuleLaunchKernel",
    "hipDeviceSynchronize",
    "hipGraphLaunch",
)
RUNTIMES = pytest.mark.parametrize("runtime", [CUDA, TRITON, HIP], ids=["cuda", "driver", "hip"])


class Program:
    """Events of one thread of the host and of one stream; times in µs."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.last = 0

    def host(self, name: str, at: float, dur: float, cat: str = "cuda_runtime", **args: object) -> None:
        call = {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": at, "dur": dur, "args": args}
        self.events.append(call)

    def kernel(self, at: float, dur: float, launch: str, launched: float, took: float = 5) -> None:
        """A kernel, and the call that launched it."""
        self.last += 1
        self.host(launch, launched, took, correlation=self.last)
        place = {"device": 0, "stream": 7, "correlation": self.last}
        self.events.append({"ph": "X", "cat": "kernel", "name": "mm", "pid": 0, "tid": 7, "ts": at, "dur": dur,
                            "args": place})  # fmt: skip

    def result(self, folder: Path) -> Result:
        path = folder / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": self.events}))
        return analyze_path(path)


def capturing(runtime: tuple[str, ...], *, between: str | None = None) -> Program:
    """Ten kernels; 421 launches that are captured, 30 µs from one to the next; the graph is launched, ten kernels.

    The last of the first ten kernels ends at 1 000 µs. The capture begins at 1 010, its launches take 5 µs each, and it
    ends at 13 700. ``between``: a range of its length around each 25 µs between two of them.
    """
    begin, end, launch, _, replay = runtime
    program = Program()
    for i in range(10):
        program.kernel(i * 100, 100, launch, i * 10 - 20)
    program.host(begin, 1_010, 8)
    for i in range(421):
        program.host(launch, 1_030 + i * 30, 5)
        if between:
            program.host(between, 1_035 + i * 30, 25, "user_annotation")
    program.host(end, 13_690, 10)
    program.kernel(13_760, 100, replay, 13_740, 10)
    for i in range(10):
        program.kernel(13_860 + i * 100, 100, launch, 13_755 + i * 10)
    return program


def blamed(device: Device, cause: str) -> int:
    return sum(b.ns for b in device.blame if b.cause == cause)


@RUNTIMES
@pytest.mark.parametrize("between", [None, "forward"])
def test_421_launches_that_are_captured(tmp_path: Path, runtime: tuple[str, ...], between: str | None) -> None:
    result = capturing(runtime, between=between).result(tmp_path)
    (device,) = result.devices
    # From 1 010 to 13 700 µs of 13 860 + 1 000, all of it, whatever is recorded inside.
    assert blamed(device, "capture") == (13_700 - 1_010) * US
    found = answer(result, "captures")
    assert (found.status, found.evidence["host_wait_ns"]) == ("problem", (13_700 - 1_010) * US)
    assert "captured once" in str(found.next)
    assert found.gain_ns_per_step is None or found.gain_ns_per_step[1] <= (13_700 - 1_010) * US
    assert answer(result, "host_pauses").status == "ok"
    assert answer(result, "small_kernels").status == "ok"


@RUNTIMES
def test_what_runs_in_compiled_code_that_is_recorded_is_not_the_users(tmp_path: Path, runtime: tuple[str, ...]) -> None:
    """Inductor waits for the device, copies the inputs, captures, and waits again: 0.9 ms and 0.3 ms of waits."""
    begin, end, launch, wait, replay = runtime
    program = Program()
    for i in range(10):
        program.kernel(i * 100, 100, launch, i * 10 - 20)
    program.host("## Call CompiledFxGraph fbvcwuqulrov ##", 95, 6_000, "user_annotation")
    program.host(wait, 100, 910)  # until the last kernel has ended
    program.host(begin, 2_000, 10)
    for i in range(50):
        program.host(launch, 2_020 + i * 60, 5)
    program.host(end, 5_050, 10)
    program.kernel(5_110, 300, replay, 5_080)
    program.host(wait, 5_100, 320)
    for i in range(10):
        program.kernel(6_120 + i * 100, 100, launch, 6_100 + i * 10)
    result = program.result(tmp_path)
    (device,) = result.devices
    assert {(s.purpose, s.count) for s in device.syncs} == {("capture", 2)}
    assert answer(result, "sync_points").status != "problem"
    assert answer(result, "host_pauses").status != "problem"
    # The device idles from 1 000 to 5 085, when the graph's launch returns, all the time in the recorded code.
    assert blamed(device, "capture") >= 4_000 * US
    assert blamed(device, "sync") == 0


@RUNTIMES
def test_the_users_own_wait_stays_the_users(tmp_path: Path, runtime: tuple[str, ...]) -> None:
    """The counterpart: the same waits, one in each of five rounds, outside of any compiled code."""
    _, _, launch, wait, _ = runtime
    program = Program()
    for i in range(5):
        program.kernel(i * 1_000 + 20, 200, launch, i * 1_000)
        program.host(wait, i * 1_000 + 10, 215)
    (device,) = (result := program.result(tmp_path)).devices
    assert {s.purpose for s in device.syncs} == {None}
    assert answer(result, "sync_points").status == "problem"


def with_hole(name: str, cat: str = "user_annotation") -> Program:
    """Two times ten kernels, and 14 ms between them in which the host is in one range and nothing else is recorded."""
    program = Program()
    for i in range(10):
        program.kernel(i * 100, 100, "cudaLaunchKernel", i * 10 - 20)
    program.host(name, 100, 15_200, cat)
    program.host("aten::view", 120, 5, "cpu_op")  # a range has something in it
    for i in range(10):
        program.kernel(15_020 + i * 100, 100, "cudaLaunchKernel", 15_000 + i * 10)
    return program


@pytest.mark.parametrize(
    ("name", "words", "never"),
    [
        ("## Call CompiledFxGraph fbvcwuqulrov ##", "record later steps", "checkpoints"),
        ("Torch-Compiled Region: 0/0", "record later steps", "checkpoints"),
        ("my evaluation", "with_stack=True", "let another thread"),
        ("Optimizer.step#AdamW.step", "with_stack=True", "let another thread"),
    ],
)
def test_advice_depends_on_what_the_pause_is_in(tmp_path: Path, name: str, words: str, never: str) -> None:
    found = answer(with_hole(name).result(tmp_path), "host_pauses")
    assert found.status == "problem" and name in str(found.title)
    assert found.evidence["host_wait_ns"] == 14_000 * US
    advice = str(found.next)
    assert words in advice and never not in advice


def test_launches_of_which_no_task_is_known_end_a_pause(tmp_path: Path) -> None:
    """200 launches for another device in the 14 ms, 70 µs from one to the next: nothing pauses for a millisecond."""
    program = with_hole("my evaluation")
    for i in range(200):
        program.host("cudaLaunchKernel", 1_000 + i * 70, 5)
    assert answer(program.result(tmp_path), "host_pauses").status == "ok"


def test_another_thread_that_runs_kernels_meanwhile_captures_nothing(tmp_path: Path) -> None:
    """The other thread launches a kernel every 500 µs, 5 µs long, in a program of its own: no graph takes these."""
    begin, end, launch, *_ = CUDA
    program = Program()
    program.host(begin, 0, 8)
    for i in range(20):
        program.host(launch, 20 + i * 500, 5)
    program.host(end, 10_000, 10)
    for i in range(20):
        program.kernel(i * 500 + 310, 5, launch, i * 500 + 300)
        program.events[-2]["tid"] = 8
    (device,) = (result := program.result(tmp_path)).devices
    assert blamed(device, "capture") == 0
    assert answer(result, "captures").status != "problem"


def test_a_capture_on_an_npu_while_another_thread_launches(tmp_path: Path) -> None:
    """The main thread begins and ends it, the task queue's consumer (thread 11) launches; 12 ms, of which none runs."""
    kernels = [K(i * 100_000, 100_000, f"k{i}", "MatMulV2", "AI_CORE", block=24, launch=i * 10_000 - 20_000,
                 launch_dur=2_000) for i in range(10)]  # fmt: skip
    kernels += [K(14_000_000 + i * 100_000, 100_000, f"k{i}", "MatMulV2", "AI_CORE", block=24,
                  launch=13_980_000 + i * 10_000, launch_dur=2_000) for i in range(10)]  # fmt: skip
    host = [H("AscendCL@aclmdlRICaptureBegin", 1_000_000, 10_000, thread=12),
            H("AscendCL@aclmdlRICaptureEnd", 12_990_000, 10_000, thread=12),
            *(H("AscendCL@aclnnMm", 1_100_000 + i * 100_000, 20_000) for i in range(118))]  # fmt: skip
    result = analyze_path(ascend_pt(tmp_path, kernels, host=host))
    (device,) = result.devices
    assert blamed(device, "capture") == 12_000 * US
    assert answer(result, "captures").status == "problem"
    assert answer(result, "graph_capture").status == "ok"
