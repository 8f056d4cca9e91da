"""Runs without any device: operators and their shapes per step, so that a lock needs no NPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from build import analyze_path

from npuperf.against.metrics import _step_time
from npuperf.base.errors import UsageError
from npuperf.model.result import Result
from npuperf.show.words import steps_line


def event(name: str, start: float, dur: float, dims: Any = None, cat: str = "cpu_op") -> dict[str, Any]:
    args = {} if dims is None else {"Input Dims": dims, "Input type": ["float"] * len(dims)}
    return {"ph": "X", "cat": cat, "name": name, "pid": 5, "tid": 5, "ts": start, "dur": dur, "args": args}


def program(step: int, hidden: int, *, more: bool = False) -> list[dict[str, Any]]:
    """One step: a linear layer that calls addmm, its backward pass, and what the profiler marks."""
    at = 100.0 * step
    shapes = [[hidden], [8, 16], [16, hidden]]
    return [
        event(f"ProfilerStep#{step}", at, 99.0, cat="user_annotation"),
        event("aten::linear", at + 1, 10.0, shapes),
        event("aten::addmm", at + 2, 5.0, shapes),
        event("autograd::engine::evaluate_function: AddmmBackward0", at + 20, 20.0),
        event("AddmmBackward0", at + 21, 18.0),
        event("aten::mm", at + 22, 5.0, [[hidden, 8], [8, 16]]),
        *([event("aten::relu", at + 50, 5.0, [[8, hidden]])] if more else []),
        event("aten::empty", at + 60, 1.0),
        event("Optimizer.step#SGD.step", at + 70, 20.0, cat="user_annotation"),
        event("## my range ##", at + 71, 2.0, cat="user_annotation"),
    ]


def trace(path: Path, events: list[dict[str, Any]], **header: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **header}))
    return path


def counted(result: Result) -> dict[str, list[int]]:
    assert result.digest is not None
    assert {c.kind for c in result.digest.counts} <= {"host_operator"}
    return {c.key: c.count for c in result.digest.counts}


def test_operators_are_counted_by_what_goes_into_them(tmp_path: Path) -> None:
    before = [event("aten::mm", 10.0, 5.0, [[1, 1], [1, 1]])]  # in no step
    path = trace(tmp_path / "a.pt.trace.json", [*before, *program(3, 32), *program(4, 32, more=True)])
    result = analyze_path(path)
    assert counted(result) == {
        "aten::addmm [32;8,16;16,32] float": [1, 1],
        "aten::empty": [1, 1],
        "aten::linear [32;8,16;16,32] float": [1, 1],
        "aten::mm [32,8;8,16] float": [1, 1],
        "aten::relu [8,32] float": [0, 1],
    }
    digest = result.digest
    assert digest is not None
    assert (digest.devices, digest.windows, digest.steps, digest.total_ns) == (0, 0, [3, 4], 0)
    assert digest.span_ns == [99_000, 99_000]  # of the host's marks, 99 us each
    assert digest.uncounted == ["launch", "sync", "copy", "collective", "graph_replay", "allocation", "block"]
    assert str(steps_line(result)) == "2 steps of the host · 99.00 us/step (99.00–99.00) · 0 devices"
    assert _step_time(result, None).series == ((99_000.0, 99_000.0),)
    assert result.verdict.bound == "unknown"
    assert result.devices == []


def test_without_steps_everything_is_one(tmp_path: Path) -> None:
    events = [e for n in (3, 4) for e in program(n, 32) if not e["name"].startswith("ProfilerStep")]
    result = analyze_path(trace(tmp_path / "a.pt.trace.json", events))
    assert result.digest is not None
    assert (result.digest.steps, result.digest.span_ns) == ([], [])
    assert str(_step_time(result, None).reason) == "no device task in this data"
    assert counted(result)["aten::addmm [32;8,16;16,32] float"] == [2]


def test_a_step_is_chosen_and_one_that_is_not_there_refused(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.pt.trace.json", [*program(3, 32), *program(4, 32, more=True)])
    assert counted(analyze_path(path, step=4))["aten::relu [8,32] float"] == [1]
    with pytest.raises(UsageError) as refused:
        analyze_path(path, step=9)
    assert "steps: 3, 4" in str(refused.value.hint)


def test_processes_are_added_step_by_step(tmp_path: Path) -> None:
    """A step's length is the mean of those who have it; what is marked twice is one step."""
    for rank, steps in ((0, (3, 4)), (1, (4, 5))):
        events = [e for n in steps for e in program(n, 32)]
        marked = [e for e in events if e["name"].startswith("ProfilerStep")]
        for mark in marked:
            mark["dur"] -= 20.0 * rank
        events += [mark | {"cat": "cpu_op"} for mark in marked]
        trace(tmp_path / f"rank{rank}.pt.trace.json", events, distributedInfo={"rank": rank, "world_size": 2})
    result = analyze_path(tmp_path)
    assert result.digest is not None
    assert (result.digest.steps, result.digest.span_ns) == ([3, 4, 5], [99_000, 89_000, 79_000])
    assert counted(result)["aten::mm [32,8;8,16] float"] == [1, 2, 1]
    assert counted(analyze_path(tmp_path, ranks=frozenset({1})))["aten::mm [32,8;8,16] float"] == [1, 1]


def test_calls_of_a_runtime_are_counted_where_they_are_recorded(tmp_path: Path) -> None:
    wait = event("cudaStreamSynchronize", 380.0, 1.0, cat="cuda_runtime")
    result = analyze_path(trace(tmp_path / "a.pt.trace.json", [*program(3, 32), wait]))
    assert result.digest is not None
    assert [(c.key, c.count) for c in result.digest.counts if c.kind == "sync"] == [
        ("cudaStreamSynchronize (stream)", [1])
    ]
    assert "sync" not in result.digest.uncounted


def test_lines_of_code_are_quoted(tmp_path: Path) -> None:
    frame = event("/home/me/train.py(41): forward", 300.5, 40.0, cat="python_function")
    result = analyze_path(trace(tmp_path / "a.pt.trace.json", [*program(3, 32), frame]))
    assert result.digest is not None
    where = {c.key: c.where for c in result.digest.counts}
    assert where["aten::linear [32;8,16;16,32] float"] == "me/train.py:41 forward"
    assert where["aten::empty"] is None
