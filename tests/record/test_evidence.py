"""``run`` as a function: what is there is proven by reading it once, and can be passed on."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from npuperf.base.errors import InputError, UsageError
from npuperf.base.messages import Message
from npuperf.base.units import duration
from npuperf.model.recorded import Recorded, RecordingPlan
from npuperf.model.tasks import COMPUTE_CORES
from npuperf.record.folder import RunFolder, broken_off
from npuperf.record.request import ProfileRequest
from npuperf.record.run import run


@pytest.fixture
def recorded(tmp_path: Path, sample: Path) -> Path:
    """A run directory whose data is exported."""
    shutil.copytree(sample, tmp_path / "result" / "raw" / sample.name)
    (tmp_path / "result" / "npuperf.json").write_text('{"command": ["python", "train.py"], "soc": "Ascend910B3"}')
    return tmp_path / "result"


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"config": {"common_config": "x", "experimental_config": 5}}', '{"config": []}', '"x"', ""]
)
def test_a_damaged_record_of_the_profiler_s_options_costs_only_them(recorded: Path, text: str) -> None:
    (info,) = recorded.glob("raw/*/profiler_info*.json")
    info.write_text(text)
    document = run(ProfileRequest(source=recorded), {}, lambda _: None).document
    assert document.exit_code == 0 and document.proofs[0].holds


def test_what_was_read_as_proof_can_be_passed_on(recorded: Path) -> None:
    said: list[Message] = []
    ran = run(ProfileRequest(source=recorded), {}, said.append, keep_recording=True)
    assert isinstance(ran.document, Recorded) and ran.document.exit_code == 0
    assert [Path(path).resolve() for path in ran.document.data] == [recorded]
    (proof,) = ran.document.proofs
    assert ran.recording is not None and proof.holds and ran.document.warnings == ()
    (profile,) = ran.recording.profiles
    (again,) = ran.recording.profiles
    assert profile is again, "read once"
    assert proof.kernels <= len(profile.tasks) and proof.steps == len(set(profile.host_steps.number.tolist()))
    assert run(ProfileRequest(source=recorded), {}, said.append).recording is None


def test_memory_that_was_asked_for_and_is_not_there_is_told(recorded: Path) -> None:
    found = run(ProfileRequest(source=recorded, memory=True), {}, lambda _: None).document
    (doubt,) = found.warnings
    assert str(doubt).endswith(": --memory was given, but no block of memory is recorded")


def test_the_files_are_compared_with_each_other(recorded: Path) -> None:
    """Rows that a table of kernels lacks are in its timeline: both are counted, and the difference is told."""
    (table,) = recorded.rglob("kernel_details.csv")
    head, *lines = table.read_text().splitlines(keepends=True)
    rows = list(csv.DictReader([head, *lines]))
    of_compute = [i for i, row in enumerate(rows) if row["Accelerator Core"] in COMPUTE_CORES]
    removed = of_compute[-8:]
    time = sum(round(float(rows[i]["Duration(us)"]) * 1000) for i in removed)
    table.write_text("".join([head, *(line for i, line in enumerate(lines) if i not in removed)]))
    found = run(ProfileRequest(source=recorded), {}, lambda _: None).document
    assert isinstance(found, Recorded) and found.exit_code == 0
    (proof,) = found.proofs
    (doubt,) = [str(d) for d in proof.doubts if "of the timeline" in str(d)]
    missing = f": 8 of {len(of_compute)} kernels of the timeline are not in kernel_details.csv"
    assert doubt.endswith(f"{missing}; they and their {duration(time)} are left out")
    assert doubt in map(str, found.warnings)


def test_data_that_cannot_be_read_is_a_problem(recorded: Path, sample: Path) -> None:
    for file in (recorded / "raw" / sample.name / "ASCEND_PROFILER_OUTPUT").iterdir():
        file.write_text("Name\nnothing\n")
    found = run(ProfileRequest(source=recorded), {}, lambda _: None).document
    assert isinstance(found, Recorded) and found.problem is not None and found.exit_code == 3
    assert not any(proof.holds for proof in found.proofs)


def test_a_plan_makes_nothing(tmp_path: Path) -> None:
    asked = ProfileRequest(command=("true",), output=tmp_path / "result", ranks=(1,), wait=20, repeat=2, dry_run=True)
    plan = run(asked, {"A": "1"}, lambda _: None).document
    assert isinstance(plan, RecordingPlan) and plan.argv == ("true",) and plan.exit_code == 0
    assert set(plan.added) == {"PYTHONPATH", "NPUPERF_PLAN"}
    assert plan.window is not None and (plan.window.first, plan.window.last, plan.window.repeat) == (21, 22, 2)
    assert next((s.name, s.value) for s in plan.settings) == ("profiler_level", "Level1")
    assert not (tmp_path / "result").exists()


def test_what_contradicts_itself_is_no_request(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="runs no program"):
        ProfileRequest(source=tmp_path, command=("train.py",))
    with pytest.raises(UsageError, match="--dry-run"):
        ProfileRequest(source=tmp_path, dry_run=True)
    (tmp_path / "npuperf.json").write_text("[]")
    with pytest.raises(InputError, match="not a manifest"):
        run(ProfileRequest(source=tmp_path), {}, lambda _: None)


def test_a_trace_of_the_cpu_is_read_where_npuperf_was_killed(tmp_path: Path) -> None:
    """There is nothing to export; the warning that such a run was interrupted sends people here all the same."""
    raw = tmp_path / "result" / "raw"
    raw.mkdir(parents=True)
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
    (raw / "host_1_20260101120000000.pt.trace.json").write_text(
        f'{{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [\n{event}\n]}}'
    )
    folder = RunFolder(tmp_path / "result")
    folder.manifest.write_text('{"stages": {"run": {"status": "running"}}}')
    assert len(broken_off(folder)) == 1
    folder.status.mkdir(parents=True)
    said = {"state": "recorded", "pid": 1, "host": "host", "recorded": [11, 12], "folders": [], "engine": "cpu"}
    (folder.status / "host_1.json").write_text(json.dumps(said))
    document = run(ProfileRequest(source=folder.path), {}, lambda _: None).document
    assert isinstance(document, Recorded) and document.exit_code == 0 and document.proofs[0].events == 1
    assert [p.recorded for p in document.processes] == [(11, 12)], "what is told of each recording"
    assert broken_off(folder) == []
