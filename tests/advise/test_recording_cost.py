"""What recording itself costs: said in the verdict, never sold as a gain, and the next recording is a lighter one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from build import ascend_pt
from small_programs import analyzed, answer, busy, starved

from npuperf.model.result import Result


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
