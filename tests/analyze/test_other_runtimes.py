"""One program as different runtimes record it: what is said of it does not depend on whose calls they are."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from build import analyze_path

from npuperf.model.result import Result

Event = dict[str, Any]
US = 1_000

#: What HIP calls the calls of CUDA that the program below and the public traces make.
TO_HIP = {
    "cudaLaunchKernel": "hipLaunchKernel",
    "cudaLaunchKernelExC": "hipExtModuleLaunchKernel",
    "cuLaunchKernelEx": "hipModuleLaunchKernel",
    "cuLaunchKernel": "hipModuleLaunchKernel",
    "cudaMemcpy": "hipMemcpyWithStream",
    "cudaFreeHost": "hipHostFree",
    "cudaHostAlloc": "hipHostMalloc",
    "cuModuleLoadData": "hipModuleLoadData",
}


def in_hip(events: list[Event]) -> list[Event]:
    """The same calls as a ROCm trace has them, in either of the categories that Kineto has given them."""
    named = []
    for event in events:
        if str(event.get("cat")).endswith(("_runtime", "_driver")):
            name = event["name"]
            event = {**event, "cat": "hip_runtime" if len(named) % 2 else "cuda_runtime",
                     "name": TO_HIP.get(name, re.sub(r"^cuda", "hip", name))}  # fmt: skip
        named.append(event)
    return named


def program() -> list[Event]:
    """Two steps of 60 launches by three calls, 50 µs apart; each step ends in a blocking copy to the host.

    Kernels of 5 µs, 4 µs after their launch returned; memory is taken once, 20 µs; the copy blocks for 30 µs.
    """
    launches = ("cudaLaunchKernel", "cuLaunchKernelEx", "cudaLaunchKernelExC")
    events: list[Event] = []

    def host(cat: str, name: str, at: float, dur: float, **args: object) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": at, "dur": dur, "args": args})

    def device(cat: str, name: str, at: float, dur: float, **args: object) -> None:
        place = {"device": 0, "stream": 7, **args}
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": at, "dur": dur, "args": place})

    for step in range(2):
        begin = 1_000_000 + step * 3_200
        host("user_annotation", f"ProfilerStep#{11 + step}", begin, 3_190)
        for i in range(60):
            number, at = step * 100 + i + 1, begin + 10 + i * 50
            host("cpu_op", "aten::mul", at - 30, 40, **{"External id": number})
            if i == 30:
                host("cuda_runtime", "cudaMalloc", at - 28, 20)
            host("cuda_driver" if i % 3 == 1 else "cuda_runtime", launches[i % 3], at, 6, correlation=number)
            device("kernel", "void mul_kernel(float*)", at + 10, 5, correlation=number)
        at, number = begin + 10 + 60 * 50, step * 100 + 99
        host("cpu_op", "aten::item", at - 2, 60, **{"External id": number})
        host("cpu_op", "aten::_local_scalar_dense", at - 1, 58, **{"External id": number})
        host("cuda_runtime", "cudaMemcpy", at, 50, correlation=number)
        device("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", at + 20, 10, correlation=number)
    return events


def analyzed(folder: Path, events: list[Event], header: dict[str, Any] | None = None) -> Result:
    folder.mkdir(exist_ok=True)
    path = folder / "trace.json"
    whole = {"schemaVersion": 1, "deviceProperties": [{"id": 0}], **(header or {}), "traceEvents": events}
    path.write_text(json.dumps(whole))
    return analyze_path(path)


def said(result: Result) -> dict[str, Any]:
    """All that does not name calls: times, statuses, gains, causes."""
    (device,) = result.devices
    causes: dict[str, int] = {}
    for blame in device.blame:
        causes[blame.cause] = causes.get(blame.cause, 0) + blame.ns
    return {
        "window": device.window,
        "bound": device.verdict.bound,
        "causes": causes,
        "syncs": [(s.kind, s.count, s.host_ns, s.gain_ns_per_step, s.torch_op) for s in device.syncs],
        "findings": {f.rule: (f.status, f.gain_ns_per_step) for f in result.findings},
        "what_if": {w.expr: w.gain_ns_per_step for w in result.what_if},
    }


def test_a_rocm_trace_says_what_a_cuda_trace_says(tmp_path: Path) -> None:
    cuda, hip = analyzed(tmp_path / "cuda", program()), analyzed(tmp_path / "hip", in_hip(program()))
    assert said(hip) == said(cuda)
    (device,) = hip.devices
    # All but what runs is idle, from where the host begins the first step to where it ends the last one.
    assert device.window.span_ns == (3_200 + 3_190) * US
    assert device.window.idle_ns == device.window.span_ns - 2 * (60 * 5 + 10) * US
    # In each step 60 gaps end with a launch that returned 4 µs before: 6 µs of each are the call's own.
    launching = sum(b.ns for b in device.blame if b.cause == "launch")
    assert launching == 2 * 60 * 6 * US
    # 20 µs in each step, less what the kernel before still ran: it had ended.
    assert sum(b.ns for b in device.blame if b.cause == "memory") == 2 * 20 * US
    assert [(s.kind, s.count, s.host_ns) for s in device.syncs] == [("dtoh", 2, 2 * 50 * US)]
    assert not [f for f in hip.findings if "calls of the runtime are not recorded" in str(f.needs)]


def test_without_calls_of_the_runtime_that_is_said(tmp_path: Path) -> None:
    """The counterpart: the sentence is said where it is so."""
    bare = [e for e in in_hip(program()) if not str(e["cat"]).endswith("_runtime")]
    assert not [f for f in analyzed(tmp_path, bare).findings if f.rule == "uneven_host" and f.status == "ok"]


REAL = Path(__file__).parents[3] / "shared" / "data" / "hta"


@pytest.mark.skipif(not REAL.is_dir(), reason="real profiles are not here")
@pytest.mark.parametrize("name", ["alexnet_gpu", "simple_add_gpu", "ns_resolution_gpu"])
def test_real_traces_in_other_words(tmp_path: Path, name: str) -> None:
    """A public CUDA trace and the same with HIP's names: nothing that is said may differ but the names of calls."""
    trace = json.loads(gzip.decompress((REAL / f"{name}.json.gz").read_bytes()))
    events, header = trace.pop("traceEvents"), trace
    assert said(analyzed(tmp_path / "hip", in_hip(events), header)) == said(analyzed(tmp_path / "cuda", events, header))


@pytest.mark.parametrize(
    "kernel",
    [
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 4>(vllm::RankData*, vllm::RankSignals)",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    ],
)
def test_collectives_of_frameworks_are_communication(tmp_path: Path, kernel: str) -> None:
    """Every third kernel is one: 2 × 20 of 5 µs, none of them beside another kernel."""
    events = program()
    for i, event in enumerate(e for e in events if e["cat"] == "kernel"):
        event["name"] = kernel if i % 3 == 0 else "triton_poi_fused_add_all_reduce_4"
    (device,) = analyzed(tmp_path, events).devices
    assert device.window.comm_exposed_ns == 2 * 20 * 5 * US
    assert device.window.compute_ns == 2 * 40 * 5 * US


@pytest.mark.parametrize("name", ["## Call CompiledFxGraph fbvcwuqulrov ##", "Torch-Compiled Region: 0/0"])
def test_ranges_of_the_compiler_are_not_the_users(tmp_path: Path, name: str) -> None:
    events = program()
    place = {"ph": "X", "cat": "user_annotation", "pid": 7, "tid": 7, "dur": 3_150, "args": {}}
    around = [{**place, "name": name, "ts": 999_950 + step * 3_200} for step in range(2)]
    (device,) = analyzed(tmp_path, [*events, *around]).devices
    assert not [p for p in device.phases if name in str(p.label)]
    assert {b.cause for b in device.blame if b.name == name} <= {"compiled"}


NPU = REAL.parent / "msinsight"


@pytest.mark.skipif(not NPU.is_dir(), reason="real profiles are not here")
@pytest.mark.parametrize(
    "path", ["text/level1/rank0_ascend_pt", "text/level1/rank1_ascend_pt", "text/level0/rank0_ascend_pt"]
)
def test_a_program_without_ranges_of_its_own(path: str) -> None:
    """All names of its events were read: they are torch's, torch_npu's and CANN's, and none is a user's range."""
    (device,) = analyze_path(NPU / path).devices
    assert not [b.name for b in device.blame if b.cause == "range"]
