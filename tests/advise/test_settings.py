"""Environment variables, each asked only where it matters; and what recording itself costs, never sold as a gain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from build import H, K, ascend_pt
from msgspec.structs import replace
from small_programs import analyzed, answer, assert_complete, busy, starved, step_length

from npuperf.model.result import Finding, Result


def run(
    where: Path,
    at_start: dict[str, str] | None,
    kernels: list[K],
    host: list[H] | None = None,
    seen: dict[str, str] | None = None,
) -> Result:
    """A run whose manifest has these variables (None: no manifest); ``seen``: what the profiler recorded."""
    folder = ascend_pt(where / "raw", kernels, host=host or [])
    if at_start is not None:
        (where / "npuperf.json").write_text(json.dumps({"environment": at_start}))
    if seen is not None:
        (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": seen}))
    return analyzed(where)


def eager(**more: object) -> list[K]:
    return starved(name="aclnnAdd_Add_Add", **more)


def communicating() -> list[K]:
    """Half of the time is a collective that nothing hides, between kernels launched long before."""
    made = []
    for i in range(20):
        start, step = i * 200_000, 11 + i // 10
        made.append(K(start, 100_000, f"k{i}", "MatMulV2", "AI_CORE", launch=start - 900_000, step=step))
        name = f"hcom_allReduce__{i}_0_1"
        made.append(K(start + 100_000, 100_000, name, "hcom_allReduce_", "COMMUNICATION", "N/A", 0, step=step,
                      launch=start - 890_000))  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("name", "value", "make", "status"),
    [
        ("ASCEND_GLOBAL_LOG_LEVEL", "0", eager, "problem"),
        ("ASCEND_GLOBAL_LOG_LEVEL", "1", eager, "problem"),
        ("ASCEND_GLOBAL_LOG_LEVEL", "3", eager, "ok"),
        ("ASCEND_GLOBAL_LOG_LEVEL", "0", busy, "ok"),  # the device does not wait for the host that logs
        ("ACLNN_CACHE_LIMIT", "64", eager, "problem"),
        ("ACLNN_CACHE_LIMIT", "100000", eager, "ok"),
        ("ACLNN_CACHE_LIMIT", "9" * 5000, eager, "ok"),
        ("PYTORCH_NO_NPU_MEMORY_CACHING", "1", eager, "problem"),
        ("HCCL_DETERMINISTIC", "true", communicating, "problem"),
        ("HCCL_DETERMINISTIC", "false", communicating, "ok"),
        ("HCCL_DETERMINISTIC", "true", busy, "ok"),  # there is no communication that it could slow
        ("ENABLE_DYNAMIC_SHAPE_MULTI_STREAM", "1", eager, "ok"),  # of graphs
    ],
)
def test_values_that_slow_a_run_of_this_kind(
    name: str, value: str, make: Callable[[], list[K]], status: str, tmp_path: Path
) -> None:
    result = run(tmp_path, {name: value}, make())
    found = answer(result, "env_settings")
    assert found.status == status
    if status == "problem":
        assert_complete(found, step_length(result))
        assert name in str(found.title) and name in str(found.next)
        assert [(s["name"], s["value"]) for s in found.evidence["settings"]] == [(name, value)]


def test_an_environment_that_is_not_recorded_is_not_ok(tmp_path: Path) -> None:
    """The profiler's nine names are not all that may slow a host; a problem among them is one all the same."""
    clean = {"ASCEND_GLOBAL_LOG_LEVEL": "", "ACLNN_CACHE_LIMIT": ""}
    for where, seen in (("none", None), ("part", clean)):
        found = answer(run(tmp_path / where, None, eager(), seen=seen), "env_settings")
        assert (found.status, "npuperf.json" in str(found.needs)) == ("cannot_tell", True)
    logging = run(tmp_path / "debug", None, eager(), seen={**clean, "ASCEND_GLOBAL_LOG_LEVEL": "0"})
    assert answer(logging, "env_settings").status == "problem"
    assert answer(run(tmp_path / "whole", {}, eager()), "env_settings").status == "ok"


# --- task_queue ----------------------------------------------------------------------------------------------------

#: Of every 40 µs 20 are tiling, within an operator that is open all the time.
CALLS = [H("AscendCL@aclnnAddGetWorkspaceSize", i * 40_000 - 40_000, 20_000) for i in range(100)]
CALLS += [H("aten::add", i * 40_000 - 40_100, 39_900, python=True) for i in range(100)]
QUEUED = [*CALLS, *(H("Dequeue@aclnnAdd", i * 40_000 - 15_000, 8_000, python=True) for i in range(100))]


def queue(where: Path, at_start: dict[str, str] | None, host: list[H]) -> Finding:
    return answer(run(where, at_start, eager(), host), "task_queue")


def test_the_task_queue_is_not_advised_to_who_has_it(tmp_path: Path) -> None:
    assert queue(tmp_path / "a", {"TASK_QUEUE_ENABLE": "2"}, QUEUED).status == "ok"
    one = queue(tmp_path / "b", {"TASK_QUEUE_ENABLE": "1"}, QUEUED)
    assert (one.status, "TASK_QUEUE_ENABLE=2" in str(one.next)) == ("problem", True)
    assert "not told" not in str(one.next)
    unknown = queue(tmp_path / "c", None, QUEUED)
    assert (unknown.status, "does not record" in str(unknown.refute)) == ("problem", True)
    off = queue(tmp_path / "d", {"TASK_QUEUE_ENABLE": "0"}, CALLS)
    assert (off.status, "TASK_QUEUE_ENABLE=0" in str(off.title)) == ("problem", True)


def test_a_queue_that_was_asked_for_and_is_not_seen_is_not_called_off(tmp_path: Path) -> None:
    found = queue(tmp_path / "a", {"TASK_QUEUE_ENABLE": "2"}, CALLS)
    assert (found.status, "Enqueue" in str(found.needs)) == ("cannot_tell", True)
    blocking = queue(tmp_path / "b", {"ASCEND_LAUNCH_BLOCKING": "1"}, CALLS)
    assert (blocking.status, "ASCEND_LAUNCH_BLOCKING" in str(blocking.needs)) == ("cannot_tell", True)


# --- runtime_threads -----------------------------------------------------------------------------------------------


def graph() -> tuple[list[K], list[H]]:
    """A GE graph of dynamic shape: kernels named after its nodes, tiling and memory work before every launch."""
    kernels = [replace(k, name="Add_17", state="dynamic") for k in starved()]
    host = [H("AscendCL@Add_Tiling", i * 40_000 - 40_000, 20_000) for i in range(100)]
    host += [H("AscendCL@aclrtMalloc", i * 40_000 - 19_000, 8_000) for i in range(100)]
    return kernels, [*host, H("Model@ModelExecute", -90_000, 50_000)]


@pytest.mark.parametrize(
    ("at_start", "status"),
    [
        (None, "problem"),
        ({}, "problem"),
        ({"MAX_RUNTIME_CORE_NUMBER": "2"}, "problem"),
        ({"MAX_RUNTIME_CORE_NUMBER": "3"}, "ok"),
        ({"MAX_RUNTIME_CORE_NUMBER": "9" * 5000}, "problem"),
        ({"MAX_RUNTIME_CORE_NUMBER": "5"}, "ok"),
    ],
)
def test_threads_are_not_advised_to_who_has_them(at_start: dict[str, str] | None, status: str, tmp_path: Path) -> None:
    kernels, host = graph()
    result = run(tmp_path, at_start, kernels, host)
    found = answer(result, "runtime_threads")
    assert found.status == status
    if status == "problem":
        assert ("which the profile does not tell" in str(found.next)) == (at_start is None)
        assert ("does not record" in str(found.refute)) == (at_start is None)
    assert answer(result, "task_queue").status == "ok"  # it is of eager mode


def test_a_graph_of_two_streams_undoes_the_threads(tmp_path: Path) -> None:
    kernels, host = graph()
    both = {"MAX_RUNTIME_CORE_NUMBER": "3", "ENABLE_DYNAMIC_SHAPE_MULTI_STREAM": "1"}
    found = answer(run(tmp_path, both, kernels, host), "env_settings")
    assert (found.status, "MAX_RUNTIME_CORE_NUMBER" in str(found.title)) == ("problem", True)


# --- what recording itself costs: said in the verdict, and the next recording is a lighter one -----------------------


def recorded(run: Path, times: float | None, make: Any = starved, level: str = "Level1", **options: object) -> Result:
    """A run by npuperf profile: steps of 10 ms outside of the recorded window, ``times`` as long inside of it."""
    folder = ascend_pt(run / "raw", make())
    overhead = None
    if times is not None:
        overhead = {"inside_ns": int(times * 10_000_000), "outside_ns": 10_000_000, "inside": 2, "outside": 5}
    manifest = {"command": ["python", "train.py", "a b"], "options": options, "overhead": overhead}
    (run / "npuperf.json").write_text(json.dumps(manifest))
    info = {"config": {"experimental_config": {"_profiler_level": level}}}
    (folder / "profiler_info_0.json").write_text(json.dumps(info))
    return analyzed(run)


def test_a_dear_recording_is_in_the_verdict_and_no_host_side_gain_is_told(tmp_path: Path) -> None:
    cheap, dear = recorded(tmp_path / "cheap", 1.1), recorded(tmp_path / "dear", 13.9, stack=True)
    assert (cheap.verdict.bound, dear.verdict.bound) == ("host", "host")
    assert "recording" not in str(cheap.verdict.reason)
    assert "recording made steps 13.90 times as long" in str(dear.verdict.reason)
    assert dear.verdict.evidence["recording_overhead"] == pytest.approx(13.9)
    assert [d.recording_overhead for d in dear.devices] == [pytest.approx(13.9)]
    told, withheld = answer(cheap, "small_kernels"), answer(dear, "small_kernels")
    assert (told.status, withheld.status) == ("problem", "problem")
    assert told.gain_ns_per_step and told.gain_withheld is None
    assert withheld.gain_ns_per_step is None and withheld.gain_pct is None
    assert "recording" in str(withheld.gain_withheld)
    assert [w.expr for w in cheap.what_if if w.expr.startswith("host")]
    assert [w.expr for w in dear.what_if if w.expr.startswith(("host", "launches", "latency", "sync"))] == []
    for finding in dear.findings:
        assert not (finding.relieves == "host" and finding.gain_ns_per_step)


@pytest.mark.parametrize(("times", "status"), [(None, "cannot_tell"), (1.2, "ok"), (1.21, "problem")])
def test_recording_may_cost_a_fifth(tmp_path: Path, times: float | None, status: str) -> None:
    """The limit is 20 %: at it, it is not above it."""
    found = answer(recorded(tmp_path, times, busy), "recording_cost")
    assert found.status == status
    if status == "problem":
        assert found.severity == "high" and found.gain_ns_per_step is None


@pytest.mark.parametrize(
    ("level", "options", "command", "without"),
    [
        ("Level1", {"stack": True, "memory": True}, "--level 1 -- python train.py 'a b'", "--stack, --memory"),
        ("Level2", {"l2_cache": True}, "--level 1 -- python", "--l2-cache"),
        ("Level2", {"stack": False}, "--level 1 -- python", None),
        ("Level1", {}, "--level 0 -- python", None),
        ("Level0", {}, "--activities npu", None),
    ],
)
def test_the_next_recording_leaves_out_what_was_on(
    level: str, options: dict[str, object], command: str, without: str | None, tmp_path: Path
) -> None:
    found = str(answer(recorded(tmp_path, 3.0, level=level, **options), "recording_cost").next)
    assert command in found
    assert ("without --" in found) == (without is not None)
    assert without is None or f"(without {without})" in found


def test_the_environment_is_listed_with_who_recorded_it(tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path / "raw", busy())
    (tmp_path / "npuperf.json").write_text(json.dumps({"environment": {"TASK_QUEUE_ENABLE": "2", "HCCL_ALGO": "a"}}))
    seen = {"ENV_VARIABLES": {"HCCL_ALGO": "b", "ACLNN_CACHE_LIMIT": ""}}
    (folder / "profiler_metadata.json").write_text(json.dumps(seen))
    (device,) = analyzed(tmp_path).devices
    assert [(v.name, v.value, v.recorded_by) for v in device.environment] == [
        ("ACLNN_CACHE_LIMIT", "", "profiler"),
        ("HCCL_ALGO", "b", "profiler"),  # as the process had it
        ("TASK_QUEUE_ENABLE", "2", "npuperf"),
    ]


def test_launches_that_block_withhold_the_hosts_gains_too(tmp_path: Path) -> None:
    """Every launch waited for its kernel: whatever the host did meanwhile is not the program's usual pace."""
    folder = ascend_pt(tmp_path, starved())
    (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": {"ASCEND_LAUNCH_BLOCKING": "1"}}))
    result = analyzed(folder)
    blocking, small = answer(result, "launch_blocking"), answer(result, "small_kernels")
    assert (blocking.status, blocking.severity) == ("problem", "high")
    assert small.status == "problem" and small.gain_ns_per_step is None
    assert "ASCEND_LAUNCH_BLOCKING" in str(small.gain_withheld)
