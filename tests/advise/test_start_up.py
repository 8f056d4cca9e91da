"""Work of first calls in the window: found by its mechanism, told from calls that are long again and again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from build import analyze_path

from npuperf.model.result import Finding

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
