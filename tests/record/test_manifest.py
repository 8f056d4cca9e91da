"""npuperf.json: what is written can be read, and what others wrote does no harm."""

from __future__ import annotations

import json
from pathlib import Path

from npuperf.base.messages import say
from npuperf.model.document import Problem
from npuperf.model.recorded import Exported, Overhead, ProcessStatus, Proof, Recorded
from npuperf.record.folder import RunFolder
from npuperf.record.manifest import Manifest, RunStage, begin, read, with_outcome, with_processes, write
from npuperf.record.program import Command
from npuperf.record.request import ProfileRequest


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    script = tmp_path / "train.py"
    script.write_text("print(1)")
    asked = ProfileRequest(command=("train.py",), ranks=(0, 2), given=("ranks",), output=tmp_path)
    process = ProcessStatus(
        state="recorded", pid=7, host="h", folders=("f",), warnings=(say("late"),), soc="S", cores_cube=20, torch="2.1"
    )
    manifest = begin(Command(("python", "train.py"), script), asked, {"RANK": "0"})
    manifest = with_processes(manifest, [process], RunStage(status="done", exit_status=0, seconds=1.5))
    document = Recorded(
        folder="result",
        exports=(Exported(folder="f", missing=("t.csv",), tool="msprof", words=(say("no {what}", what="driver"),)),),
        proofs=(Proof(path="f", problem=say("empty")),),
        warnings=(say("{n} rows", n=2),),
        cautions=(say("slow"),),
        overhead=Overhead(inside_ns=2, outside_ns=1, inside=1, outside=1),
        problem=Problem(what=say("nothing"), hint=say("again"), exit_code=5),
    )
    manifest = with_outcome(manifest, document)
    write(folder, manifest)
    found = json.loads(folder.manifest.read_text("utf-8"))
    assert found["schema_version"] == "2.0" and found["command"] == ["python", "train.py"]
    assert found["options"]["ranks"] == [0, 2] and "output" not in found["options"]
    assert found["stages"]["export"]["folders"][0]["words"] == ["no driver"]
    assert (found["problem"], found["warnings"], found["soc"]) == ("nothing", ["slow", "2 rows"], "S")
    again = read(folder)
    assert again is not None
    assert [str(w) for w in again.warnings] == ["slow", "2 rows"]
    assert again.options == manifest.options and again.stages.run == manifest.stages.run
    assert again.processes[0].cores_cube == 20 and again.overhead == document.overhead
    write(folder, again)
    assert json.loads(folder.manifest.read_text("utf-8")) == found


def test_what_others_wrote_does_no_harm(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert read(folder) is None
    for damaged in ("", "[1]", '{"command": ["a"', "{}"):
        folder.manifest.write_text(damaged)
        assert read(folder) is None
    folder.manifest.write_text('{"command": ["a"], "soc": 7, "stages": "all", "later": 1, "schema_version": "1.0"}')
    assert read(folder) == Manifest(command=("a",), schema_version="1.0")


def test_the_program_s_own_status_comes_first() -> None:
    broken = Problem(what=say("x"), exit_code=5)
    refused = Problem(what=say("x"), exit_code=2)
    assert Recorded(folder="f").exit_code == 0
    assert Recorded(folder="f", problem=broken).exit_code == 5
    assert Recorded(folder="f", program_status=7).exit_code == 7
    assert Recorded(folder="f", program_status=7, problem=broken).exit_code == 7
    assert Recorded(folder="f", program_status=7, problem=refused).exit_code == 2
    assert Recorded(folder="f", program_status=143, stopped=True).exit_code == 0
    assert Recorded(folder="f", program_status=143, stopped=True, problem=broken).exit_code == 5
