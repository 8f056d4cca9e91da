"""Traces of GPU and CPU runs: no sentence, title or header speaks of NPUs, in any format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from build import analyze_path

from npuperf.model.result import Result
from npuperf.show.formats import View, render

WORDS = re.compile(
    r"\bNPUs?\b|ascend|\bacl|\bCANN\b|\bHCCL|torchair|torch_npu|npu_|npugraph|TASK_QUEUE|CPU_AFFINITY_CONF|AI.?(Core|CPU)"
    r"|Block.?Dim|(cube|vector|mix) (cores?|blocks)|\btiling|SuperKernel|msprof|npuperf profile|Node@|op_summary"
    r"|kernel_details|info\.json|--soc|--cores|super_kernel|task.queue|PipeUtilization",
    re.IGNORECASE,
)
REAL = Path(__file__).parents[3] / "shared" / "data" / "hta"
Event = dict[str, object]


def call(name: str, at: float, dur: float, correlation: int, cat: str = "cuda_runtime") -> Event:
    args = {"correlation": correlation}
    return {"ph": "X", "pid": 7, "tid": 7, "cat": cat, "name": name, "ts": at, "dur": dur, "args": args}


def kernel(name: str, at: float, dur: float, correlation: int, cat: str = "kernel", stream: int = 7) -> Event:
    args = {"device": 0, "stream": stream, "correlation": correlation}
    return {"ph": "X", "pid": 0, "tid": stream, "cat": cat, "name": name, "ts": at, "dur": dur, "args": args}


def steps(number: int, first: int, length: float) -> list[Event]:
    return [
        {"ph": "X", "pid": 7, "tid": 7, "cat": "user_annotation", "name": f"ProfilerStep#{first + i}",
         "ts": 1_000 + i * length, "dur": length - 1}
        for i in range(number)
    ]  # fmt: skip


def host_bound() -> list[Event]:
    """Small kernels, each long after the one before; scattered launches, in two early steps."""
    events: list[Event] = steps(2, 3, 30_000)
    for i in range(600):
        slow = 60 if i % 7 == 3 else 4
        events += [
            call("cudaLaunchKernel", 1_000 + 100 * i, slow, i + 1),
            kernel("mm", 1_005 + 100 * i + slow, 3, i + 1),
        ]
    return events


def synchronous() -> list[Event]:
    """Copies to the host and to the device, a wait for the device and one for a stream after each kernel."""
    events: list[Event] = steps(2, 20, 100_000)
    waits = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpyAsync")
    for i in range(200):
        at, n = 1_000 + 1_000 * i, 10 * i
        events += [call("cudaLaunchKernel", at, 5, n + 1), kernel("mm", at + 8, 300, n + 1)]
        events.append(call(waits[i % 4], at + 10, 310, n + 2))
        if i % 4 == 3:
            copy = ("Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pageable -> Device)")[i % 8 == 3]
            events.append(kernel(copy, at + 309, 8, n + 2, "gpu_memcpy"))
    return events


def device_bound() -> list[Event]:
    """Long kernels on two streams, communication beside them, launches far ahead."""
    events: list[Event] = steps(2, 20, 60_000)
    for i in range(100):
        events += [
            call("cudaLaunchKernel", 1_000 + 20 * i, 5, 2 * i + 1),
            kernel("mm", 1_020 + 1_000 * i, 900, 2 * i + 1),
        ]
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
        events += [call("cudaLaunchKernel", 1_010 + 20 * i, 5, 2 * i + 2)]
        events += [kernel(name, 1_500 + 1_000 * i, 450, 2 * i + 2, stream=20)]
    return events


def no_launches() -> list[Event]:
    return [event for event in host_bound() if event["cat"] != "cuda_runtime"]


def host_only() -> list[Event]:
    return [{**call(f"aten::op{i}", 1_000 + 20 * i, 10, 0, "cpu_op")} for i in range(50)]


def start_up() -> list[Event]:
    """The context is made in the window, for 300 ms."""
    late = [{**e, "ts": float(str(e["ts"])) + 400_000} for e in host_bound() if e["cat"] != "user_annotation"]
    first = [call("cudaLaunchKernel", 1_000, 5, 9_001), kernel("mm", 1_010, 5, 9_001)]
    return [*first, call("cuModuleLoadData", 1_020, 300_000, 9_002), *late]


MADE_UP = (host_bound, synchronous, device_bound, no_launches, host_only, start_up)


def analysed(folder: Path, events: list[Event]) -> Result:
    path = folder / "trace.json"
    device = {"id": 0, "name": "NVIDIA A100", "computeMajor": 8}
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}))
    return analyze_path(path)


def sentences(part: Any, key: str = "") -> Iterator[str]:
    """Yield the texts of a JSON document, without the names that the trace or a program gave."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name not in ("thresholds", "rule", "files", "path", "tool"):
                yield from sentences(value, name)
    elif isinstance(part, list):
        for value in part:
            yield from sentences(value, key)
    elif isinstance(part, str):
        yield part


def check(result: Result) -> None:
    for format_ in ("text", "markdown"):
        for view in (View(), View(full=True)):
            page = render(result, format_, view)
            assert [line for line in page.splitlines() if WORDS.search(line.replace(result.input.path, ""))] == []
    found = [text for text in sentences(json.loads(render(result, "json", View()))) if WORDS.search(text)]
    assert found == []


@pytest.mark.parametrize("made_up", MADE_UP)
def test_made_up_traces(tmp_path: Path, made_up: Any) -> None:
    check(analysed(tmp_path, made_up()))


def test_the_made_up_traces_have_something_to_say(tmp_path: Path) -> None:
    """Else the test above would search in silence: between them they must raise these findings, and these doubts."""
    asked = {
        (f.rule, f.status) for made_up in MADE_UP for f in analysed(tmp_path, made_up()).findings if f.status != "ok"
    }
    problems = {rule for rule, status in asked if status == "problem"}
    assert problems >= {"small_kernels", "uneven_host", "early_steps", "sync_points", "start_up"}
    assert {rule for rule, status in asked if status == "cannot_tell"} >= {"small_kernels", "uneven_host", "start_up"}


@pytest.mark.skipif(not REAL.is_dir(), reason="real profiles are not here")
@pytest.mark.parametrize("name", ["alexnet_gpu", "cpu_only", "ns_resolution_gpu", "simple_add_gpu"])
def test_real_traces(name: str) -> None:
    check(analyze_path(REAL / f"{name}.json.gz"))
