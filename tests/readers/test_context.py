"""How a run was recorded: from the profile's own files, and from the manifest beside or above them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from build import K, ascend_pt
from inputs import KERNELS, database

from npuperf.model.device import Context, Environment
from npuperf.readers.context import read_cluster_steps
from npuperf.readers.log import ReadLog
from npuperf.readers.recording import open_recording

MANIFEST: dict[str, Any] = {
    "schema_version": "2.0",
    "command": ["python", "train.py"],
    "versions": {"cann": "8.3.RC1", "torch": "2.7.1", "torch_npu": "2.7.1.post2"},
    "environment": {"TASK_QUEUE_ENABLE": "2", "MAX_RUNTIME_CORE_NUMBER": "3"},
    "options": {"stack": True, "shapes": True, "memory": False, "gc_threshold": None},
    "overhead": {"inside_ns": 139_000_000, "outside_ns": 10_000_000, "inside": 2, "outside": 9},
}


def context(path: Path) -> Context:
    return open_recording(path).profiles[0].context


def recorded(run: Path, manifest: dict[str, Any], **info: Any) -> Context:
    folder = ascend_pt(run / "raw", [K(0, 5_000)])
    (run / "npuperf.json").write_text(json.dumps(manifest))
    (folder / "profiler_info_0.json").write_text(json.dumps({"rank_id": 0, **info}))
    return context(run)


def test_the_manifest_tells_how_a_run_was_started_and_recorded(tmp_path: Path) -> None:
    found = recorded(tmp_path, MANIFEST)
    assert found.environment.get("TASK_QUEUE_ENABLE") == "2"
    assert found.environment.get("MAX_RUNTIME_CORE_NUMBER") == "3"
    assert found.environment.get("CPU_AFFINITY_CONF") == ""  # kept if it is set, so it was not
    assert [found.environment.get(name) for name in ("PATH", "HCCL_TOKEN")] == [None, None]  # never kept
    assert (found.cann, found.torch, found.torch_npu) == ("8.3.RC1", "2.7.1", "2.7.1.post2")
    assert found.overhead == pytest.approx(13.9)
    assert (found.stacks, found.extras, found.watches_gc) == (True, ("stack", "shapes"), False)
    assert found.command == ("python", "train.py")


@pytest.mark.parametrize(("mine", "both"), [({}, {"A": "2"}), ({"A": "1"}, {"A": "1"})])
def test_what_the_profiler_saw_fills_what_is_not_said(mine: dict[str, str], both: dict[str, str]) -> None:
    found = Context(environment=Environment(mine, {"B": "1"})).or_else(Context(environment=Environment({"A": "2"})))
    assert found.environment == Environment(both, {"B": "1"})


def test_a_manifest_of_an_export_says_nothing_of_the_run(tmp_path: Path) -> None:
    assert recorded(tmp_path, {**MANIFEST, "imported_from": "/data/prof"}) == Context()


def test_the_profile_itself_has_the_last_word(tmp_path: Path) -> None:
    config = {
        "common_config": {"with_stack": False, "record_shapes": True, "profile_memory": True},
        "experimental_config": {"_profiler_level": "Level1", "_l2_cache": True, "_gc_detect_threshold": 1.0},
    }
    found = recorded(tmp_path, MANIFEST, config=config, torch_npu_version="2.8.0", cann_version="8.5.0")
    assert (found.level, found.cann, found.torch_npu, found.torch) == ("Level1", "8.5.0", "2.8.0", "2.7.1")
    assert (found.stacks, found.watches_gc) == (False, True)
    assert found.overhead == pytest.approx(13.9)


def test_what_is_not_recorded_is_not_told(tmp_path: Path) -> None:
    folder = ascend_pt(tmp_path, [K(0, 5_000)])
    assert context(folder) == Context()
    assert context(folder).environment.get("TASK_QUEUE_ENABLE") is None


def test_variables_that_the_profiler_saw_are_in_text_and_database(tmp_path: Path) -> None:
    seen = {"ASCEND_LAUNCH_BLOCKING": "1", "ACLNN_CACHE_LIMIT": ""}
    text = ascend_pt(tmp_path / "text", [K(0, 5_000)])
    (text / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": seen}))
    path = database(tmp_path / "ascend_pytorch_profiler_0.db", KERNELS, "blockDim")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE META_DATA(name, value)")
        connection.execute("INSERT INTO META_DATA VALUES ('ENV_VARIABLES', ?)", (json.dumps(seen),))
    for where in (text, path):
        environment = context(where).environment
        assert [environment.get(n) for n in (*seen, "HCCL_ALGO")] == ["1", "", None]


def test_steps_of_nobody_are_told(tmp_path: Path) -> None:
    """Of five rows three are of use: two ranks, and a stage, which repeats its ranks."""
    path = tmp_path / "cluster_step_trace_time.csv"
    rows = ("1,rank,0", '1,stage,"(0, 1)"', "1,rank,x", "1,rank,1", "1,,7")
    path.write_text(
        "Step,Type,Index,Computing,Communication(Not Overlapped),Free\n" + "".join(f"{row},2,1,1\n" for row in rows)
    )
    log = ReadLog()
    found = read_cluster_steps(path, log)
    assert {rank: [step.compute for step in steps] for rank, steps in found.ranks.items()} == {0: [2000], 1: [2000]}
    assert found.stages == {}  # ranks of one stage are no pipeline
    assert [(x.rows, str(x.reason)) for x in log.lost] == [(2, "steps of neither a rank with a number nor a stage")]
