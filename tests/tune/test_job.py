"""What is tuned, and the programs and options that follow from it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from aoe_results import ROOT
from conftest import STUB
from preloaded import Loaded
from workplace import SOC, Place, document, dumping_modules, said

from npuperf.base.errors import UsageError
from npuperf.tune.request import ModelFile, TuneRequest, TuningJob
from npuperf.tune.tuning_plan import dump_command, find_source, programs


@pytest.mark.parametrize("suffix", [".onnx", ".pb", ".air"])
def test_the_framework_follows_from_the_model(suffix: str, tmp_path: Path) -> None:
    model = tmp_path / f"net{suffix}"
    model.touch()
    found = find_source(TuneRequest(model=model))
    assert found == ModelFile(model)
    argv = programs(TuningJob("op", found), tmp_path, "aoe")[0].argv
    assert f"--framework={ {'.onnx': 5, '.pb': 3, '.air': 1}[suffix] }" in argv


def test_caffe_needs_its_weights(tmp_path: Path) -> None:
    model, weight = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    model.touch()
    with pytest.raises(UsageError, match="weights"):
        find_source(TuneRequest(model=model))
    weight.touch()
    argv = programs(TuningJob("op", find_source(TuneRequest(model=model, weight=weight))), tmp_path, "aoe")[0].argv
    assert "--framework=0" in argv and f"--weight={weight}" in argv


def test_operators_that_a_file_describes(place: Place) -> None:
    """aoe gets the file; what describes no operator is refused before; the run goes on with --resume."""
    described = place.root / "ops.json"
    described.write_text('[{"op": "Add", "input_desc": [{"shape": [8, 16]}], "output_desc": []}]')
    done = place.run("--mode", "op", "--singleop", "ops.json", "--soc", SOC, "--format", "json")
    assert done.returncode == 0, done.stderr
    (call,) = place.calls()
    assert f"--singleop={described}" in call["argv"] and not [a for a in call["argv"] if a.startswith("--framework")]
    assert [(t["name"], t["status"]) for t in document(done)["tasks"]] == [("ops", "successful")]
    for text in ("[]", "{}", "[1]", '[{"name": "Add"}]', '"Add"', "[", ""):
        described.write_text(text)
        bad = place.run("--mode", "op", "--singleop", "ops.json", "--soc", SOC)
        assert bad.returncode == 3 and "ops.json" in bad.stderr and len(place.calls()) == 1, (text, bad.stderr)
    described.write_text('{"op": "Add"}')
    assert place.run("--mode", "op", "--singleop", "ops.json", "--dry-run", "--soc", SOC).returncode == 0
    whole = place.run("--mode", "subgraph", "--singleop", "ops.json", "--soc", "Ascend310P3")
    assert whole.returncode == 2 and "have no subgraphs" in whole.stderr
    assert place.run("--mode", "op", "--singleop", "none.json", "--soc", SOC).returncode == 3


def test_tensorflow_tunes_inside_of_its_program(place: Place) -> None:
    shutil.copy(STUB / "tf_adapter_stub.py", place.root / "tf_adapter_stub.py")
    shutil.copytree(STUB / "bin", place.root / "bin", dirs_exist_ok=True)
    (place.root / "train.py").write_text(
        "import tf_adapter_stub\nimport sys\ntf_adapter_stub.graph()\nprint(sys.argv)\n"
    )
    done = place.run("--mode", "op", "--format", "json", "--", sys.executable, "train.py", "--lr", "1")
    assert done.returncode == 0, done.stderr
    assert document(done)["status"] == "successful"
    log = (place.runs[-1] / "aoe.log").read_text()
    assert "Aoe tuning graph." in log and "'--lr', '1'" in log
    assert place.calls() == []  # aoe itself was not called


def test_a_program_is_dumped_first_and_an_empty_dump_is_explained(place: Place) -> None:
    (place.root / "train.py").write_text("import torch\nprint('trained')\n")
    modules = place.root / "modules"
    path = f"{ROOT}:{dumping_modules(modules)}"
    command = ("--mode", "op", "--", sys.executable, "train.py")
    done = place.run(*command, PYTHONPATH=path)
    assert done.returncode == 3
    assert "dumped no operator" in said(done) and "aclnn" in said(done) and place.calls() == []
    (place.root / "bad.py").write_text("raise SystemExit('no data')\n")
    done = place.run("--mode", "op", "--", sys.executable, "bad.py", PYTHONPATH=path)
    assert done.returncode == 5 and "the program ended with exit status 1: no data" in said(done)
    done = place.run(*command, PYTHONPATH=path, DUMPS="1")
    assert done.returncode == 0, done.stderr
    (call,) = place.calls()
    assert [a for a in call["argv"] if a.startswith("--model_path=")]


def test_the_real_set_aoe_is_called(loaded: Loaded, tmp_path: Path) -> None:
    """torch_npu itself makes the folder; the stand-in's operators are precompiled, so it stays empty."""
    (tmp_path / "train.py").write_text(
        "import sys, torch\ntorch.npu.set_device(0)\nassert sys.argv == [__file__, '-x']\n"
    )
    dump = tmp_path / "dump"
    done = subprocess.run(dump_command([loaded.python(), "train.py", "-x"], dump), cwd=tmp_path, env=loaded,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert dump.is_dir() and not list(dump.iterdir())


def test_the_run_directory_knows_the_program(place: Place) -> None:
    (place.root / "result").mkdir()
    manifest = {"command": [sys.executable, "train.py", "-v"], "soc": SOC}
    (place.root / "result" / "npuperf.json").write_text(json.dumps(manifest))
    done = place.run("--mode", "op", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "train.py -v" in done.stdout
    assert f"{SOC} (Atlas A2)" in place.run("--mode", "op", "--dry-run", "--table", "checks").stdout
    nothing = place.run("--mode", "op", "--run", "elsewhere")
    assert nothing.returncode == 2 and "npuperf profile train.py first" in nothing.stderr


def test_a_script_alone_is_pythons(tmp_path: Path) -> None:
    words = dump_command(["train.py", "-x"], tmp_path / "dump")
    assert (words[0], words[2:]) == ("python3", (str(tmp_path / "dump"), "train.py", "-x"))


@pytest.mark.parametrize(
    "command", [["bash", "run.sh"], ["torchrun", "train.py"], [sys.executable, "-c", "pass"], [sys.executable]]
)
def test_what_cannot_be_dumped_from_outside_is_said(command: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        dump_command(command, tmp_path)
