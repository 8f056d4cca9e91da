"""``npuperf tune`` with the stand-in for aoe as a real child process: success, every failure, and what is left."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from build import H, K, ascend_pt
from conftest import ROOT, STUB, Done, run_cli
from msgspec.structs import replace

from npuperf.documents.tuning import Check, Entry, Tuning, Verification, Verified
from npuperf.errors import UsageError
from npuperf.tune import preflight
from npuperf.tune.gates import judge, parse_condition
from npuperf.tune.job import Dump, Job, Model, Script, dump_command, find_source, steps
from npuperf.tune.savings import read_usage, savings
from npuperf.tune.store import graph_bank, merge, winning_place
from npuperf.tune.verify import Profiled, compare, read_profiled

SOC = "Ascend910B3"


class Place:
    """A working folder with a home, a model and the stand-in on PATH."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "home").mkdir()
        (root / "net.onnx").write_bytes(b"onnx")
        self.bin = root / "bin"
        self.bin.mkdir()
        for name in ("aoe",):
            shutil.copy(STUB / "bin" / name, self.bin / name)
            (self.bin / name).chmod(0o755)

    def environment(self, **extra: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ASCEND", "TUNE", "FAKE", "AOE"))}
        return {
            **clean,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(self.root / "home"),
            "FAKE_AOE_SECONDS": "0.2",
            "FAKE_AOE_LOG": str(self.root / "calls"),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "160",
            **extra,
        }

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "npuperf", "tune", *map(str, arguments)]

    def run(self, *arguments: object, **extra: str) -> Done:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.root)
            for name in os.environ.keys() - self.environment().keys():
                patch.delenv(name)
            for name, value in self.environment(**extra).items():
                patch.setenv(name, value)
            done = run_cli(["tune", *map(str, arguments)])
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def calls(self) -> list[dict[str, Any]]:
        path = self.root / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def runs(self) -> list[Path]:
        return sorted(p for p in (self.root / "result" / "tune").iterdir() if p.is_dir())

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.runs[-1] / "state.json").read_text())
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def document(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


OP = ("--mode", "op", "--model", "net.onnx")


# ---- driving --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", ["v1", "v2", "v3"])
def test_operators_are_tuned_and_everything_is_kept(place: Place, schema: str) -> None:
    done = place.run(*OP, "--format", "json", FAKE_AOE_SCHEMA=schema, FAKE_AOE_SECONDS="1")
    assert done.returncode == 0, done.stderr
    found = document(done)
    assert (found["status"], found["mode"]) == ("successful", "op")
    assert sum(e["kind"] == "operator" for e in found["entries"]) == 4
    assert found["bank"]["records_before"] == 0 and found["bank"]["records_after"] == 4
    (run,) = place.runs
    assert {"aoe.log", "state.json", "reproduce.sh", "diff.json", "diff.csv", "diff.md"} <= {
        p.name for p in run.iterdir()
    }
    assert "Aoe process finished" in (run / "aoe.log").read_text()
    assert "tuned, best" in done.stderr
    (call,) = place.calls()
    assert f"--model={place.root / 'net.onnx'}" in call["argv"] and "--job_type=2" in call["argv"]
    assert "--framework=5" in call["argv"] and "--progress_bar=off" in call["argv"]
    assert call["env"]["ASCEND_WORK_PATH"] == str(run) and call["cwd"] == str(run)
    (line,) = (run.parent / "history.jsonl").read_text().splitlines()
    ledger = json.loads(line)
    assert (ledger["status"], ledger["records"], ledger["added"], ledger["updated"]) == ("successful", 4, 3, 1)


def test_options_reach_aoe(place: Place) -> None:
    bank = place.root / "bank"
    bank.mkdir()
    done = place.run(*OP, "--bank", "bank", "--device", "1", "--parallel", "4", "--repeat", "--deep",
                     "--ops", "MatMulV2,net/dense_1", "--aoe-arg=--precision_mode=force_fp16")  # fmt: skip
    assert done.returncode == 0, done.stderr
    (call,) = place.calls()
    assert {"--device=1", "--tune_optimization_level=O1", "--precision_mode=force_fp16"} <= set(call["argv"])
    wanted = {"TUNE_BANK_PATH": str(bank), "ASCEND_DEVICE_ID": "1", "TE_PARALLEL_COMPILER": "4", "REPEAT_TUNE": "True"}
    assert {name: call["env"].get(name) for name in wanted} == wanted
    (option,) = [a for a in call["argv"] if a.startswith("--tune_ops_file=")]
    names = json.loads(Path(option.split("=", 1)[1]).read_text())
    assert names == {"tune_ops_name": ["net/dense_1"], "tune_ops_type": ["MatMulV2"]}
    assert list(bank.rglob("*_runtime_kb.json"))


@pytest.mark.parametrize("suffix", [".onnx", ".pb", ".air"])
def test_the_framework_follows_from_the_model(suffix: str, tmp_path: Path) -> None:
    model = tmp_path / f"net{suffix}"
    model.touch()
    found = find_source(model, None, None, (), None)
    assert found == Model(model)
    argv = steps(Job("op", found), tmp_path, "aoe")[0].argv
    assert f"--framework={ {'.onnx': 5, '.pb': 3, '.air': 1}[suffix] }" in argv


def test_caffe_needs_its_weights(tmp_path: Path) -> None:
    model, weight = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    model.touch()
    with pytest.raises(UsageError, match="weights"):
        find_source(model, None, None, (), None)
    weight.touch()
    argv = steps(Job("op", find_source(model, weight, None, (), None)), tmp_path, "aoe")[0].argv
    assert "--framework=0" in argv and f"--weight={weight}" in argv


def test_a_dry_run_shows_everything_and_does_nothing(place: Place) -> None:
    done = place.run(*OP, "--dry-run")
    assert done.returncode == 0
    assert "--job_type=2" in done.stdout and "ASCEND_WORK_PATH=" in done.stdout
    for name in ("product", "bank path", "disk", "memory", "CPU cores", "shapes", "profiling"):
        assert f"check {name}: " in done.stderr
    assert not (place.root / "result").exists() and place.calls() == []


def test_the_script_that_a_run_leaves_does_the_same(place: Place) -> None:
    assert place.run(*OP, "--ops", "MatMulV2").returncode == 0
    (run,) = place.runs
    script = run / "reproduce.sh"
    assert script.stat().st_mode & stat.S_IXUSR
    subprocess.run([str(script)], env=place.environment(), check=True, capture_output=True)
    first, second = place.calls()
    assert (first["argv"], first["cwd"]) == (second["argv"], second["cwd"])


def test_nothing_to_tune_is_a_success(place: Place) -> None:
    done = place.run(*OP, FAKE_AOE_FAIL="nonoptimizable")
    assert (done.returncode, "NOTHING TO TUNE" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        ("failed", "tuning failed"),
        ("incomplete", "tuning incomplete"),
        ("exit2", "an option that this aoe does not know"),
        ("kill", "killed by signal 9"),
        ("truncated", "killed by signal 9"),
        ("empty", "killed by signal 9"),
    ],
)
@pytest.mark.parametrize("schema", ["v1", "v3"])
def test_a_failure_is_never_a_success(place: Place, fail: str, words: str, schema: str) -> None:
    done = place.run(*OP, "--format", "json", FAKE_AOE_FAIL=fail, FAKE_AOE_SCHEMA=schema)
    assert done.returncode == 5
    assert words in done.stderr
    found = document(done)
    assert found["status"] == ("failed" if fail in ("failed", "exit2") else "incomplete")
    assert not any("the bank shows none" in w for w in found["warnings"])  # it was not written yet
    assert any("empty" in w for w in found["warnings"]) == (fail == "empty")
    assert place.state()["status"] == "failed"
    if fail in ("kill", "truncated"):
        assert len(found["entries"]) >= 1  # what was tuned by then is kept
        assert found["recovered"] == (fail == "truncated")


def test_the_reason_is_found_before_what_is_said_later(place: Place) -> None:
    """A program's stdout is often written when it ends, and so after its errors."""
    (place.bin / "aoe").write_text("#!/bin/sh\necho '[ERROR] no device' >&2\necho 'Tuning process finished.'\nexit 1\n")
    done = place.run(*OP)
    assert done.returncode == 5 and "exit status 1: [ERROR] no device\n" in done.stderr


def test_the_end_of_a_traceback_is_a_reason(place: Place) -> None:
    (place.bin / "aoe").write_text("#!/bin/sh\necho 'torch.OutOfMemoryError: no room' >&2\necho epoch 3\nexit 1\n")
    assert "exit status 1: torch.OutOfMemoryError: no room\n" in place.run(*OP).stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_a_program_said_is_kept_when_it_is_killed(place: Place, unbuffered: str) -> None:
    killed = "#!/usr/bin/env python3\nimport os\nprint('as far as here')\nos.kill(os.getpid(), 9)\n"
    (place.bin / "aoe").write_text(killed)
    done = place.run(*OP, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 5 and "killed by signal 9: as far as here\n" in done.stderr


def test_a_timeout_keeps_what_there_is(place: Place) -> None:
    done = place.run(*OP, "--timeout", "0.02", "--format", "json", FAKE_AOE_SECONDS="30", FAKE_AOE_OPS="60")
    assert done.returncode == 5 and "--timeout is over" in done.stderr
    found = document(done)
    assert found["status"] == "incomplete" and 1 <= len(found["entries"]) < 60
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(place.bin) in " ".join(p.info["cmdline"] or [])]


def test_files_that_come_and_go_do_not_end_a_tuning(place: Place) -> None:
    """aoe makes and removes folders in its work space all the time, and broken links stand in the bank."""
    aoe = place.bin / "aoe"
    churn = (
        "import threading, tempfile, shutil\n"
        "def churn():\n"
        "    while True:\n"
        "        folders = [tempfile.mkdtemp(prefix='kernel_meta_', dir='.') for _ in range(50)]\n"
        "        for folder in folders: shutil.rmtree(folder)\n"
        "threading.Thread(target=churn, daemon=True).start()\n"
    )
    text = aoe.read_text()
    assert "\nimport json" in text
    aoe.write_text(text.replace("\nimport json", f"\n{churn}import json", 1))
    (place.root / "bank").mkdir()
    (place.root / "bank" / "gone").symlink_to("nowhere")
    done = place.run(*OP, "--bank", "bank", "--format", "json", FAKE_AOE_SECONDS="2", FAKE_AOE_OPS="8")
    assert done.returncode == 0, done.stderr
    assert len(document(done)["entries"]) == 8


def tuning_children(place: Place) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if str(place.bin / "aoe") in " ".join(p.info["cmdline"] or [])]


def start(place: Place, *arguments: object, **extra: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        place.command(*arguments), cwd=place.root, env=place.environment(**extra), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while not list(place.root.glob("result/tune/*/aoe_result_*.json")):
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.05)
    return child


def test_ctrl_c_ends_everything_and_keeps_what_there_is(place: Place) -> None:
    child = start(place, *OP, FAKE_AOE_SECONDS="30", FAKE_AOE_OPS="100")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130 and "Traceback" not in err
    assert tuning_children(place) == []
    assert place.state()["problem"] == "interrupted"
    kept = json.loads((place.runs[-1] / "diff.json").read_text())
    assert kept["status"] == "incomplete" and kept["entries"]


def test_tuning_survives_our_own_death(place: Place) -> None:
    """npuperf is killed; aoe goes on; --resume finds it, waits for it, and reads its result."""
    child = start(place, *OP, FAKE_AOE_SECONDS="4", FAKE_AOE_OPS="20")
    child.kill()
    child.communicate()
    assert len(tuning_children(place)) == 1
    done = place.run("--resume", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "still runs: waiting for it" in done.stderr
    found = document(done)
    assert (found["status"], len(found["entries"])) == ("successful", 20)
    assert len(place.runs) == 1 and len(place.calls()) == 1


def test_a_resumed_run_keeps_to_its_bank(place: Place) -> None:
    """What is rolled back later is the bank that the run began with, whatever the environment says meanwhile."""
    (place.root / "bank").mkdir()
    assert place.run(*OP, FAKE_AOE_FAIL="kill", TUNE_BANK_PATH="bank").returncode == 5
    assert place.state()["place"] == str(place.root / "bank")  # relative to us, absolute for aoe
    assert place.calls()[0]["env"]["TUNE_BANK_PATH"] == str(place.root / "bank")
    other = place.run("--resume")
    assert other.returncode == 2 and "was begun with the bank" in other.stderr
    done = place.run("--resume", TUNE_BANK_PATH=str(place.root / "bank"))
    assert done.returncode == 0, done.stderr
    assert list((place.root / "bank").rglob("*_runtime_kb.json"))
    assert place.run("--rollback").returncode == 0
    assert not list((place.root / "bank").rglob("*_runtime_kb.json"))


def test_an_empty_file_of_the_newest_process_hides_nothing(place: Place) -> None:
    """What was tuned before it is kept, and no success is made of it."""
    assert place.run(*OP, FAKE_AOE_FAIL="kill").returncode == 5
    before = json.loads((place.runs[0] / "diff.json").read_text())["entries"]
    done = place.run("--resume", "--format", "json", FAKE_AOE_FAIL="empty")
    found = document(done)
    assert done.returncode == 5 and found["status"] == "incomplete"
    assert [e["name"] for e in found["entries"]] == [e["name"] for e in before]
    assert any("empty" in w for w in found["warnings"])


def test_a_bank_around_the_run_is_refused(place: Place) -> None:
    done = place.run(*OP, "--bank", ".")
    assert done.returncode == 3 and "lies inside of the bank" in done.stderr
    assert not (place.root / "result" / "tune").exists() or not place.runs


def test_tensorflow_without_its_last_words(place: Place) -> None:
    """Its adapter says them at a level that is not logged by default; the whole result says enough."""
    stub = (STUB / "tf_adapter_stub.py").read_text().replace('print(f"[GEOP] Aoe success', 'str(f"[GEOP] Aoe success')
    (place.root / "tf_adapter_stub.py").write_text(
        stub.replace(", flush=True)\n    return status", ")\n    return status")
    )
    (place.root / "train.py").write_text("import tf_adapter_stub\ntf_adapter_stub.graph()\n")
    command = ("--mode", "op", "--", sys.executable, "train.py")
    assert place.run(*command).returncode == 0
    assert place.run(*command, FAKE_AOE_FAIL="incomplete").returncode == 5


def test_while_a_run_goes_on_nobody_else_touches_it(place: Place) -> None:
    """Another npuperf that looks after it, or only aoe after npuperf's death."""
    child = start(place, *OP, FAKE_AOE_SECONDS="6", FAKE_AOE_OPS="20")
    state = place.state()
    for command in (("--resume",), ("--rollback",), ("--verify", "--", "python", "x.py")):
        done = place.run(*command)
        assert done.returncode == 2 and "still looks after" in done.stderr, done.stderr
    child.kill()
    child.communicate()
    done = place.run("--rollback")
    assert done.returncode == 2 and "still tunes" in done.stderr
    (place.root / "other.onnx").touch()
    done = place.run("--mode", "op", "--model", "other.onnx", "--resume")
    assert done.returncode == 2 and "something else than asked for" in done.stderr
    for process in tuning_children(place):
        process.kill()
    damaged = {**state, "keeper": {"pid": 1e400, "began": 0}, "program": {"pid": "x"}}
    (place.runs[-1] / "state.json").write_text(json.dumps(damaged))
    assert place.run("--rollback").returncode == 0


def test_who_stops_listening_stops_nothing(place: Place) -> None:
    """As in npuperf tune 2>&1 | head -1."""
    child = subprocess.Popen(
        place.command(*OP), cwd=place.root, env=place.environment(FAKE_AOE_SECONDS="2", FAKE_AOE_OPS="8"),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.wait(timeout=60) == 0
    assert json.loads((place.runs[-1] / "diff.json").read_text())["status"] == "successful"


def test_the_same_process_number_again(place: Place) -> None:
    """As in containers: the results of the process that was killed are not those of the next."""
    aoe = place.bin / "aoe"
    aoe.write_text(aoe.read_text().replace("pid{os.getpid()}", "pid12"))
    assert place.run(*OP, FAKE_AOE_FAIL="kill").returncode == 5
    done = place.run("--resume", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert document(done)["status"] == "successful" and len(document(done)["entries"]) == 4


def test_a_run_that_died_is_gone_on_with_in_its_folder(place: Place) -> None:
    """With what it was asked for; an option for another kind of run is refused."""
    begun = ("--ops", "MatMulV3,net/add_1", "--device", "3", "--deep", "--bank", "bank", "--repeat")
    (place.root / "bank").mkdir()
    assert place.run(*OP, *begun, FAKE_AOE_FAIL="kill").returncode == 5
    other = place.run("--mode", "subgraph", "--resume")
    assert other.returncode == 2 and "begun with --mode op" in other.stderr
    done = place.run("--resume", "--format", "json")
    assert done.returncode == 0, done.stderr
    first, second = place.calls()
    assert first == second and len(place.runs) == 1
    assert "--device=3" in second["argv"] and second["env"]["REPEAT_TUNE"] == "True"
    assert place.run("--mode", "subgraph", "--model", "net.onnx", "--ops", "Add").returncode == 2
    nothing = place.run(*OP, "--resume")
    assert nothing.returncode == 3 and "no unfinished tuning run" in nothing.stderr


@pytest.mark.parametrize("seed", range(3))
def test_aoe_killed_at_any_moment(place: Place, seed: int) -> None:
    child = start(place, *OP, "--format", "json", FAKE_AOE_SECONDS="1.5", FAKE_AOE_OPS="30")
    time.sleep(random.Random(seed).uniform(0, 0.8))
    for victim in tuning_children(place):
        victim.kill()
    out, err = child.communicate(timeout=30)
    assert child.returncode == 5 and "Traceback" not in err
    assert json.loads(out)["status"] == "incomplete"


def test_two_runs_at_once_keep_apart(place: Place) -> None:
    children = [
        subprocess.Popen(place.command(*OP, "--run", name), cwd=place.root, env=place.environment(FAKE_AOE_SECONDS="1"),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for name in ("one", "two")
    ]  # fmt: skip
    for child in children:
        _, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
    for name in ("one", "two"):
        (result,) = place.root.glob(f"{name}/tune/*/diff.json")
        assert len(json.loads(result.read_text())["entries"]) == 4


def test_a_place_that_cannot_be_written_is_said(place: Place) -> None:
    (place.root / "result").write_text("")
    done = place.run(*OP)
    assert done.returncode == 3 and "cannot be made" in done.stderr


def test_a_full_disk_is_no_success(place: Place) -> None:
    """aoe may write one kilobyte to a file, as if the disk were full; what it had written by then is kept."""
    real = place.bin / "real"
    (place.bin / "aoe").rename(real)
    (place.bin / "aoe").write_text(f'#!/bin/bash\nulimit -f 1\nexec {real} "$@"\n')
    (place.bin / "aoe").chmod(0o755)
    done = place.run(*OP, "--format", "json", FAKE_AOE_OPS="30")
    assert done.returncode == 5 and "exit status 1" in done.stderr
    assert document(done)["status"] != "successful"
    assert "File too large" in (place.runs[-1] / "aoe.log").read_text()


def test_what_cannot_be_tuned_is_explained(place: Place) -> None:
    (place.root / "empty").mkdir()
    done = place.run("--mode", "op", "--dump", "empty")
    assert done.returncode == 3 and "aclnn" in done.stderr and place.calls() == []
    (place.root / "train.py").write_text("import torch\n")
    done = place.run("--mode", "subgraph", "--soc", "Ascend310P3", "--", sys.executable, "train.py")
    assert done.returncode == 2 and "single operators" in done.stderr


def test_words_of_the_adapter_are_no_end_of_aoe(place: Place) -> None:
    aoe = place.bin / "aoe"
    aoe.write_text(aoe.read_text().replace("Aoe process finished,", "Aoe success[0], "))
    assert place.run(*OP).returncode == 5


def test_a_run_of_another_kind_is_not_gone_on_with(place: Place) -> None:
    assert place.run(*OP, FAKE_AOE_FAIL="kill").returncode == 5
    done = place.run("--mode", "subgraph", "--model", "net.onnx", "--resume")
    assert done.returncode == 2 and "--mode op" in done.stderr


# ---- programs -------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("said", "cann", "code", "words"),
    [
        ("exec aoe tuning func failed[9].", "8.1.RC1", 5, "(AOE's status 9: dynamic graphs cannot be tuned)"),
        ("exec aoe tuning func failed[14].", "8.1.RC1", 5, "exec aoe tuning func failed[14].\n"),
        ("exec aoe tuning func failed[14].", "6.0.1", 5, "(AOE's status 14: dynamic graphs cannot be tuned)"),
        ("Exec aoe set session func failed, error code: 10", "6.3.RC2", 5,
         "(AOE's status 10: CANN 7.0 or later: ranges of shapes cannot be tuned; 6.0 or before: invalid parameter)"),
        ("AoeFinalize failed. status is -1", "6.3.RC2", 5, "(AOE's status -1: failed)"),
        ("[GEOP] Aoe success[8].", "8.1.RC1", 0, "NOTHING TO TUNE"),
        ("[GEOP] Aoe success[8].", "6.0.1", 5, "left no readable result"),
        ("[GEOP] Aoe success[12].", "6.0.1", 0, "NOTHING TO TUNE"),
    ],
)  # fmt: skip
def test_a_status_is_explained_for_its_version(place: Place, said: str, cann: str, code: int, words: str) -> None:
    """By the numbers of the two headers: 8 and 9 are 12 and 14 in the older one."""
    toolkit = place.root / "toolkit"
    toolkit.mkdir()
    (toolkit / "version.info").write_text(f"Version={cann}\n")
    (place.root / "train.py").write_text(
        f"import tensorflow as tf\nimport sys\nprint({said!r})\nsys.exit({int('ailed' in said)})\n"
    )
    (place.root / "modules/tensorflow").mkdir(parents=True)
    (place.root / "modules/tensorflow/__init__.py").touch()
    command = ("--mode", "op", "--", sys.executable, "train.py")
    where = {"PYTHONPATH": f"{ROOT}:{place.root / 'modules'}", "ASCEND_TOOLKIT_HOME": str(toolkit)}
    done = place.run(*command, **where)
    assert done.returncode == code, done.stderr
    assert words in done.stdout + done.stderr


def dumping_modules(root: Path) -> Path:
    """Stand-ins for torch and torch_npu that only dump."""
    for name, text in {
        "torch": "class npu:\n    @staticmethod\n    def set_aoe(path):\n        import os; os.makedirs(path)\n"
        "        if os.environ.get('DUMPS'): open(path + '/op.pb', 'w').close()\n",
        "torch_npu": "",
    }.items():
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").write_text(text)
    return root


def test_a_dump_that_survives_us_is_tuned(place: Place) -> None:
    """npuperf is killed while the program dumps; --resume waits for the program, and then runs aoe."""
    (place.root / "train.py").write_text("import torch, time\nprint('dumping', flush=True)\ntime.sleep(4)\n")
    where = {"PYTHONPATH": f"{ROOT}:{dumping_modules(place.root / 'modules')}", "DUMPS": "1"}
    command = place.command("--mode", "op", "--", sys.executable, "train.py")
    with subprocess.Popen(command, cwd=place.root, env=place.environment(**where), stderr=subprocess.DEVNULL) as child:
        deadline = time.monotonic() + 30
        while not any("dumping" in log.read_text() for log in place.root.glob("result/tune/*/aoe.log")):
            assert time.monotonic() < deadline and child.poll() is None
            time.sleep(0.05)
        child.kill()
    done = place.run("--resume", **where)
    assert done.returncode == 0, done.stderr
    assert "still runs: waiting for it" in done.stderr and len(place.calls()) == 1


def test_a_program_is_dumped_first_and_an_empty_dump_is_explained(place: Place) -> None:
    (place.root / "train.py").write_text("import torch\nprint('trained')\n")
    modules = place.root / "modules"
    path = f"{ROOT}:{dumping_modules(modules)}"
    command = ("--mode", "op", "--", sys.executable, "train.py")
    done = place.run(*command, PYTHONPATH=path)
    assert done.returncode == 3
    assert "dumped no operator" in done.stderr and "aclnn" in done.stderr and place.calls() == []
    (place.root / "bad.py").write_text("raise SystemExit('no data')\n")
    done = place.run("--mode", "op", "--", sys.executable, "bad.py", PYTHONPATH=path)
    assert done.returncode == 5 and "the program ended with exit status 1: no data" in done.stderr
    done = place.run(*command, PYTHONPATH=path, DUMPS="1")
    assert done.returncode == 0, done.stderr
    (call,) = place.calls()
    assert [a for a in call["argv"] if a.startswith("--model_path=")]


def test_the_real_set_aoe_is_called(npu: dict[str, str], tmp_path: Path) -> None:
    """torch_npu itself makes the folder; the stand-in's operators are precompiled, so it stays empty."""
    (tmp_path / "train.py").write_text(
        "import sys, torch\ntorch.npu.set_device(0)\nassert sys.argv == ['train.py', '-x']\n"
    )
    dump = tmp_path / "dump"
    done = subprocess.run(dump_command([sys.executable, "train.py", "-x"], dump), cwd=tmp_path, env=npu,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert dump.is_dir() and not list(dump.iterdir())


def test_the_run_directory_knows_the_program(place: Place) -> None:
    (place.root / "result").mkdir()
    manifest = {"command": [sys.executable, "train.py", "-v"], "soc": SOC}
    (place.root / "result" / "npuperf.json").write_text(json.dumps(manifest))
    done = place.run("--mode", "op", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "train.py -v" in done.stdout and f"{SOC} (Atlas A2)" in done.stderr
    nothing = place.run("--mode", "op", "--run", "elsewhere")
    assert nothing.returncode == 2 and "npuperf profile train.py first" in nothing.stderr


@pytest.mark.parametrize(
    "command", [["bash", "run.sh"], ["torchrun", "train.py"], [sys.executable, "-c", "pass"], [sys.executable]]
)
def test_what_cannot_be_dumped_from_outside_is_said(command: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        dump_command(command, tmp_path)


# ---- checks ---------------------------------------------------------------------------------------------------------


def checks(job: Job, machine: preflight.Machine | None = None, **environment: str) -> dict[str, Check]:
    nothing = preflight.Machine(None, None, None, None, None)
    return {c.name: c for c in preflight.check(job, machine or nothing, environment, Path.home() / "bank")}


MODEL = Model(Path("/net.onnx"))


@pytest.mark.parametrize(
    ("soc", "mode", "status"),
    [
        ("Ascend910B3", "op", "ok"), ("Ascend910B3", "subgraph", "fail"), ("Ascend910_9391", "subgraph", "fail"),
        ("Ascend310P3", "subgraph", "ok"), ("Ascend910A", "subgraph", "ok"), ("Ascend950PR_9599", "op", "fail"),
        (None, "op", "unknown"),
    ],
)  # fmt: skip
def test_products_and_their_tuning(soc: str | None, mode: str, status: str) -> None:
    found = checks(Job(mode, MODEL), preflight.Machine(soc, None, None, None, None))["product"]  # type: ignore[arg-type]
    assert (found.status, found.hard) == (status, True)


@pytest.mark.parametrize(("source", "status"), [(MODEL, "ok"), (Script(("t.py",), adapter=True), "fail")])
def test_only_models_are_tuned_on_the_small_chip(source: Model | Script, status: str) -> None:
    machine = preflight.Machine("Ascend310B1", None, None, None, None)
    assert checks(Job("op", source), machine)["product"].status == status


def test_cpu_formulas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CANN 9.0's guide: with the defaults 75 cores for operators of a model, 83 with --model_path, 25 for subgraphs;
    TensorFlow 74 and 24.
    """
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    script = Script(("python3", "t.py"), adapter=True)
    cases = [(Job("op", MODEL), 75), (Job("op", Dump(tmp_path)), 83), (Job("subgraph", MODEL), 25),
             (Job("op", script), 74), (Job("subgraph", script), 24)]  # fmt: skip
    for job, need in cases:
        found = checks(job)["CPU cores"]
        assert found.required.startswith(f"{need} CPU cores"), (job, found)
        assert found.status == ("ok" if need <= 64 else "warn") and not found.hard
    assert checks(Job("op", MODEL, parallel=4))["CPU cores"].required.startswith("71 ")


def test_every_other_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("op", Script(("python3", "train.py"), adapter=False))
    dynamic = preflight.Machine(SOC, 20, 1.0, None, 24)
    found = checks(job, dynamic, PROFILING_MODE="dynamic", GE_USE_STATIC_MEMORY="1", WORLD_SIZE="8",
                   CPU_AFFINITY_CONF="1", TE_PARALLEL_COMPILER="64", TUNE_BANK_PATH="/nowhere")  # fmt: skip
    wrong = {name for name, c in found.items() if c.status in ("warn", "fail")}
    assert wrong >= {
        "profiling", "static memory", "single device", "CPU binding", "compilers", "device cores", "shapes",
        "bank path", "CANN environment",
    }  # fmt: skip
    assert {name for name, c in found.items() if c.hard} == {"product", "shapes", "bank path"}
    fine = checks(
        job, preflight.Machine(SOC, 24, 0.0, None, 24), ASCEND_HOME_PATH="/cann", TUNE_BANK_PATH=str(tmp_path)
    )
    assert {fine[n].status for n in ("shapes", "bank path", "device cores", "CANN environment")} == {"ok"}
    assert fine["profiling"].status == fine["static memory"].status == "unknown"  # the program may say otherwise
    assert checks(Job("op", MODEL))["profiling"].status == "ok"
    assert checks(Job("op", MODEL), GE_USE_STATIC_MEMORY="0")["static memory"].status == "warn"  # unset is required
    some = checks(job, preflight.Machine(SOC, 24, 0.5, None, 24))["shapes"]
    assert (some.status, some.found) == ("warn", "50 % of the kernels in the profile are dynamic")
    by_hand = {n for n, c in checks(job).items() if c.status == "unknown" and c.found.startswith("not ")}
    assert by_hand >= {"device memory", "order", "program"}
    assert checks(job)["device cores"].status == checks(job)["shapes"].status == "unknown"
    assert checks(Job("op", MODEL), dynamic)["shapes"].status == "unknown"  # the profile is not the model's


def test_a_bank_that_is_read_only(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("permissions do not hold for root")
    tmp_path.chmod(0o555)
    assert checks(Job("op", MODEL, bank=tmp_path))["bank path"].status == "fail"
    tmp_path.chmod(0o755)


def test_hard_conditions_stop_unless_forced(place: Place) -> None:
    refused = place.run("--mode", "subgraph", "--model", "net.onnx", "--soc", SOC)
    assert refused.returncode == 2 and "cannot tune: product" in refused.stderr and place.calls() == []
    forced = place.run("--mode", "subgraph", "--model", "net.onnx", "--soc", SOC, "--force")
    assert forced.returncode == 5 and "not supported on this product" in forced.stderr
    for bank in ("nowhere", "net.onnx"):
        missing = place.run(*OP, "--bank", bank)
        assert missing.returncode == 2 and "bank path" in missing.stderr


def test_what_subgraphs_save_per_step_is_not_known(place: Place) -> None:
    busy_profile(place.root / "result")
    done = place.run("--mode", "subgraph", "--model", "net.onnx", "--soc", "Ascend310P3", "--fail-on", "saved<1%",
                     FAKE_CANN_SOC="Ascend310P3")  # fmt: skip
    assert done.returncode == 4 and "expected:" not in done.stdout


def test_results_of_earlier_processes_are_compared(place: Place) -> None:
    """A run that was gone on with, and whose second process left nothing, has its results in a folder below."""
    assert place.run(*OP, FAKE_AOE_FAIL="kill").returncode == 5
    (place.runs[0] / "earlier-2").mkdir()  # as after somebody has tidied up
    (place.runs[0] / "earlier-x").mkdir()
    assert place.run("--resume", FAKE_AOE_FAIL="exit2").returncode == 5
    assert list(place.runs[0].glob("earlier-3/aoe_result_*.json"))
    whole = place.run("--run", "other", *OP)
    assert whole.returncode == 0
    found = json.loads(place.run("--diff", "result", "other", "--format", "json").stdout)["results"]
    assert [c["change"] for c in found["changes"]] == ["added", "added"] and found["unchanged"] == 2


def test_two_empty_banks_beside_a_result(place: Place) -> None:
    """The case for which claims are checked; without a result they are most likely a mistake."""
    assert place.run(*OP).returncode == 0
    for name in ("e1", "e2"):
        (place.root / name).mkdir()
    done = place.run("--from", place.runs[0], "--diff", "e1", "e2")
    assert done.returncode == 0 and "the bank shows none" in " ".join(done.stdout.split())
    assert place.run("--diff", "e1", "e2").returncode == 3


def test_subgraphs_are_tuned_where_the_product_can(place: Place) -> None:
    done = place.run("--mode", "subgraph", "--model", "net.onnx", "--soc", "Ascend310P3", "--format", "json",
                     FAKE_CANN_SOC="Ascend310P3")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = document(done)
    assert {e["kind"] for e in found["entries"]} == {"subgraph", "model"}
    assert all(len(e["repo_key"]) == 20 for e in found["entries"] if e["repo_key"])  # beyond 2^63, still text
    assert place.run("--mode", "subgraph", "--model", "net.onnx", "--resume").returncode == 3


# ---- what it is worth -----------------------------------------------------------------------------------------------


def busy_profile(root: Path) -> Path:
    """Two steps: 4 MatMulV2 of 100 µs back to back, then 3 Add of 5 µs that each wait 400 µs for their launch."""
    kernels, clock = [], 0
    for step in range(2):
        for i in range(4):
            kernels.append(K(clock, 100_000, f"mm_{i}", "MatMulV2", "AI_CORE", 2, 20, 0, step, clock - 300_000))
            clock += 100_500
        for i in range(3):
            clock += 400_000
            kernels.append(K(clock, 5_000, f"add_{i}", "Add", "AI_VECTOR_CORE", 2, 40, 0, step, clock - 8_000))
            clock += 5_000
    steps_ = {0: (0, clock // 2), 1: (clock // 2, clock)}
    return ascend_pt(root, kernels, steps_, cores="20,40", host=[H("x", 0, 10)])


def entry(name: str, types: tuple[str, ...], before: float, after: float) -> Entry:
    return Entry(kind="operator", name=name, types=types, before_us=before, after_us=after)


def test_savings_count_only_device_bound_time(tmp_path: Path) -> None:
    usage = read_usage(busy_profile(tmp_path))
    assert usage is not None and usage.steps == 2
    assert usage.busiest(5)[0] == "MatMulV2"
    entries = [entry("mm_1", ("MatMulV2",), 100, 60), entry("net/x", ("MatMulV2",), 100, 90),
               entry("add_0", ("Add",), 5, 1), entry("gone", ("Conv2D",), 9, 3)]  # fmt: skip
    rows, total = savings(entries, usage)
    found = {s.name: s for s in rows}
    assert (found["mm_1"].basis, found["mm_1"].calls_per_step, found["mm_1"].least_ns) == ("name", 1.0, 40_000)
    by_type = found["net/x"]
    assert (by_type.basis, by_type.calls_per_step, by_type.least_ns) == ("type", 3.0, 0)  # one of four is mm_1
    assert 0 < by_type.felt_per_step <= 3  # a phase may begin within the last of them
    assert by_type.most_ns == round(10_000 * by_type.felt_per_step)
    assert total == (40_000, 40_000 + by_type.most_ns)
    assert found["add_0"].felt_per_step == 0 and found["add_0"].most_ns == 0
    assert "host-bound" in found["add_0"].reason
    assert found["gone"].basis == "none" and "no such operator" in found["gone"].reason


def test_no_call_is_counted_twice(tmp_path: Path) -> None:
    """Two cases of one type, of which nobody knows which calls are which: each call is worth the better one."""
    usage = read_usage(busy_profile(tmp_path))
    assert usage is not None
    felt = [i for i in range(len(usage.dur)) if usage.types[i] == "MatMulV2" and usage.felt[i]]
    cases = [entry("net/x", ("MatMulV2",), 100, 90), entry("net/y", ("matmulv2",), 100, 70)]
    rows, total = savings(cases, usage)
    assert sorted(r.most_ns for r in rows) == [10_000 * len(felt) // 2, 30_000 * len(felt) // 2]
    assert total == (0, 30_000 * len(felt) // 2)
    # A call of 100 µs cannot save 400; strategies may compete (40 at least) or add up (60 at most).
    assert savings([entry("mm_1", ("MatMulV2",), 900, 500)], usage)[1] == (100_000, 100_000)
    times = {"Format": (100, 60), "Schedule": (60, 40)}
    both = [replace(entry("mm_1", (), *t), strategy=strategy) for strategy, t in times.items()]
    assert savings(both, usage)[1] == (40_000, 60_000)
    # Two different times of one operator and strategy: which of them its calls have is not known.
    assert savings([entry("mm_1", (), 100, 60), entry("mm_1", (), 50, 40)], usage)[1] == (0, 40_000)


def test_the_busiest_operators_are_chosen_from_the_profile(place: Place) -> None:
    busy_profile(place.root / "result")
    done = place.run(*OP, "--top", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    names = json.loads((place.runs[-1] / "tune_ops.cfg").read_text())
    assert names == {"tune_ops_type": ["MatMulV2"]}
    found = document(done)
    assert found["step_ns"] > 0
    assert {s["basis"] for s in found["savings"]} == {"type"}
    none = place.run(*OP, "--top", "3", "--run", "elsewhere")
    assert none.returncode == 2 and "npuperf profile" in none.stderr


# ---- banks ----------------------------------------------------------------------------------------------------------


def record(m: int, base: int, version: int = 0) -> dict[str, Any]:
    return {"id": 1, "info_dict": {"m": m}, "knowledge": {"baseM": base}, "op": "MatMulV3", "version": version}


def bank(root: Path, records: list[dict[str, Any]], soc: str = SOC, cores: int = 20, cann: str | None = None) -> Path:
    folder = root / soc / "unified_bank"
    folder.mkdir(parents=True)
    text = "".join(json.dumps(r) + "\n" for r in records)
    (folder / f"{soc}_{cores}_AiCore_MatMulV3_runtime_kb.json").write_text(text)
    if cann:
        (root / "npuperf-bank.json").write_text(json.dumps({"cann": cann}))
    return root


def lines(place: Path) -> dict[int, int]:
    found = [json.loads(line) for f in place.rglob("*_runtime_kb.json") for line in f.read_text().splitlines()]
    return {r["info_dict"]["m"]: r["knowledge"]["baseM"] for r in found}


def test_what_is_there_wins_then_the_first(tmp_path: Path) -> None:
    local = bank(tmp_path / "c", [record(1, 10)])
    done = merge(
        [bank(tmp_path / "a", [record(1, 11), record(2, 12)]), bank(tmp_path / "b", [record(2, 13), record(3, 14)])],
        local,
    )
    assert lines(local) == {1: 10, 2: 12, 3: 14}
    assert (done.records, done.taken, done.conflicts) == (3, (1, 1), 2)
    assert done.backup and lines(done.backup) == {1: 10}
    assert lines(tmp_path / "a") == {1: 11, 2: 12}


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"soc": "Ascend910B1"}, "different chips"),
        ({"cores": 16}, "16 and 20 cores"),
        ({"cann": "9.0.0"}, "different versions of CANN"),
    ],
)
def test_what_must_not_be_mixed_is_refused(second: dict[str, Any], words: str, tmp_path: Path) -> None:
    sources = [bank(tmp_path / "a", [record(1, 1)], cann="8.5.0"), bank(tmp_path / "b", [record(2, 2)], **second)]
    with pytest.raises(UsageError, match=words):
        merge(sources, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_merging_from_the_shell(tmp_path: Path) -> None:
    sources = [str(bank(tmp_path / n, [record(i, i)])) for i, n in enumerate("ab")]
    done = run_cli(["tune", "--merge", *sources, "--into", str(tmp_path / "c")])
    assert done.returncode == 0 and "2 records" in done.stdout and "do not say which version" in done.stderr
    assert run_cli(["tune", "--merge", *sources]).returncode == 2
    broken = tmp_path / "d" / SOC
    broken.mkdir(parents=True)
    (broken / f"{SOC}_20_AiCore_MatMulV3_runtime_kb.json").write_text("{half\n")
    done = run_cli(["tune", "--merge", sources[0], str(tmp_path / "d"), "--into", str(tmp_path / "e")])
    assert done.returncode == 2 and "not a record" in done.stderr


def test_rolling_back(place: Place) -> None:
    home = place.root / "home" / "Ascend" / "latest" / "data" / "aoe" / "custom" / "op"
    bank(home, [record(5, 50)])
    assert place.run(*OP).returncode == 0
    assert len(lines(home)) == 5
    done = place.run("--rollback")
    assert done.returncode == 0 and "what was there is kept as" in done.stderr
    assert lines(home) == {5: 50}
    (kept,) = home.parent.glob("op.before-*")
    assert len(lines(kept)) == 5


def test_rolling_back_keeps_what_a_bank_says_of_itself(place: Place) -> None:
    """A merged bank knows its version of CANN; the snapshot's own note is not put into the bank."""
    where = bank(place.root / "bank", [record(5, 50)], cann="8.5.0")
    note = (where / "npuperf-bank.json").read_text()
    assert place.run(*OP, "--bank", "bank").returncode == 0
    assert place.run("--rollback").returncode == 0
    assert (where / "npuperf-bank.json").read_text() == note
    plain = bank(place.root / "plain", [record(5, 50)])
    assert place.run(*OP, "--bank", "plain").returncode == 0
    assert place.run("--rollback").returncode == 0
    assert not (plain / "npuperf-bank.json").exists()


def test_a_bank_for_other_cores_is_pointed_out(place: Place) -> None:
    """The profile's chip has 20 cores; CANN would not find what is tuned for 16."""
    busy_profile(place.root / "result")
    done = place.run(*OP, "--format", "json", FAKE_CANN_AICORES="16")
    assert any("is for 16 cores, and the profile's chip has 20" in w for w in document(done)["warnings"])
    done = place.run(*OP, "--format", "json", "--bank", str(bank(place.root / "own", [record(1, 1)])))
    assert not any("the profile's chip has" in w for w in document(done)["warnings"])


def test_rolling_back_where_links_stand(place: Place) -> None:
    """A linked folder is replaced by what it held; what the link points to is not touched."""
    home = place.root / "home" / "Ascend" / "latest" / "data" / "aoe" / "custom" / "op"
    bank(place.root / "shared", [record(5, 50)])
    home.mkdir(parents=True)
    (home / SOC).symlink_to(place.root / "shared" / SOC, target_is_directory=True)
    assert place.run(*OP).returncode == 0
    done = place.run("--rollback")
    assert done.returncode == 0, done.stderr
    assert lines(home) == {5: 50} and len(lines(place.root / "shared")) == 5


def test_merging_leaves_other_files_alone(tmp_path: Path) -> None:
    into = tmp_path / "c"
    bank(into, [record(1, 10)])
    other = into / "MyNotes_runtime_kb.json"
    other.write_text("mine")
    bank(tmp_path / "a", [record(2, 20)])
    bank(tmp_path / "b", [record(3, 30)])
    merge([tmp_path / "a", tmp_path / "b"], into)
    assert other.read_text() == "mine"
    unreadable = next(f for f in (tmp_path / "b").rglob("*_runtime_kb.json"))
    unreadable.unlink()
    unreadable.mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        merge([tmp_path / "a", tmp_path / "b"], into)


@pytest.mark.parametrize(
    ("cann", "there", "place"),
    [
        ("8.5.0", (), "latest"), ("9.0.0", (), "cann"), (None, (), "latest"), ("9.0.0", ("latest",), "latest"),
        ("8.1.RC1", ("cann",), "cann"), ("9.0.0", ("latest", "cann"), "cann"), ("8.5.0", ("latest", "cann"), "latest"),
    ],
)  # fmt: skip
def test_where_banks_lie(cann: str | None, there: tuple[str, ...], place: str, tmp_path: Path) -> None:
    for name in there:
        (tmp_path / "Ascend" / name / "data/aoe/custom/op").mkdir(parents=True)
    found = winning_place("op", None, {}, tmp_path, cann)
    assert found == tmp_path / "Ascend" / place / "data/aoe/custom/op"


def test_where_subgraph_banks_lie(tmp_path: Path) -> None:
    """In the home there is a folder for each SoC; TUNE_BANK_PATH names the bank itself."""
    (tmp_path / "home" / "Ascend310P3").mkdir(parents=True)
    assert graph_bank(tmp_path / "home", "Ascend310P3") == tmp_path / "home" / "Ascend310P3"
    assert graph_bank(tmp_path / "home", "Ascend910A") == graph_bank(tmp_path / "home", None) == tmp_path / "home"


def test_a_bank_that_does_not_show_what_is_claimed(place: Place) -> None:
    """aoe writes to the bank in its home; TUNE_BANK_PATH of npuperf names another one that it cannot know of."""
    aoe = place.bin / "aoe"
    aoe.write_text(
        aoe.read_text().replace('os.environ.get("TUNE_BANK_PATH")\n    bank = Path', "None\n    bank = Path")
    )
    (place.root / "bank").mkdir()
    done = place.run(*OP, "--bank", "bank", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert any("the bank shows none" in w for w in document(done)["warnings"])


# ---- gates and formats ----------------------------------------------------------------------------------------------


def test_gates(place: Place) -> None:
    assert place.run(*OP, "--fail-on", "failed>0", "--fail-on", "added<1").returncode == 0
    done = place.run(*OP, "--fail-on", "added>2")
    assert done.returncode == 1 and "gate FAIL  added>2: 3\n" in done.stdout
    done = place.run(*OP, "--fail-on", "regression>3%")
    assert done.returncode == 4 and "--verify" in done.stdout
    done = place.run(*OP, "--fail-on", "speed>3")
    assert done.returncode == 2 and "regression>3%" in done.stderr
    assert len(place.runs) == 3  # it was refused before anything was tuned
    banks = [str(place.runs[0] / name) for name in ("bank_before", "bank_after")]
    done = place.run("--diff", *banks, "--fail-on", "added<1")
    assert done.returncode == 2 and "--from RESULT" in done.stderr
    done = place.run("--from", place.runs[0], "--fail-on", "added>2", "--format", "csv")
    assert done.returncode == 1 and "gate FAIL  added>2: 3\n" in done.stderr


@pytest.mark.parametrize(
    ("condition", "code"),
    [("failed>0", 4), ("added<4", 4), ("added>1", 1), ("added>2", 4), ("added<2", 0), ("added<=2", 4)],
)
def test_gates_of_half_a_result(tmp_path: Path, condition: str, code: int) -> None:
    """It names what is there at least: two added, perhaps more."""
    counts = dict.fromkeys(("repo_update_num", "repo_hit_num", "repo_reserved_num", "repo_unsatisfied_num"), 0)
    opat = {"opat_tuning_result": "tuning incomplete", "repo_summary": {**counts, "repo_add_num": 2, "total_num": 2}}
    text = json.dumps({"report_1_1": [{"basic": {"tuning_name": "t"}}, {"OPAT": opat}]})
    file = tmp_path / "aoe_result_opat_20260101120000000_pid7.json"
    file.write_text(text)
    assert run_cli(["tune", "--from", str(file), "--fail-on", condition]).returncode == code


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--merge", "a", "--into", "c"), "takes two folders"),
        ((*OP, "--timeout", "0"), "more than 0"),
        (("--diff", "a", "b", "--fail-on", "rubbish"), "--fail-on"),
        (("--rollback", "--dry-run"), "--dry-run"),
        (("--verify", "--dry-run"), "--dry-run"),
        (("--mode", "op", "--top", "3", "--dry-run", "--", "python3", "tf.py"), "aoe_config_file"),
    ],
)
def test_options_that_do_not_go_together(place: Place, arguments: tuple[str, ...], words: str) -> None:
    (place.root / "tf.py").write_text("import tensorflow as tf\n")
    busy_profile(place.root / "result")
    done = place.run(*arguments)
    assert done.returncode == 2 and words in done.stderr


def test_nothing_is_replaced_unasked(place: Place) -> None:
    assert place.run(*OP).returncode == 0
    (place.root / "keep.json").write_text("mine")
    for more in ((), ("--dry-run",)):
        done = place.run("--from", place.runs[0], *more, "-o", "keep.json")
        assert done.returncode == 2 and (place.root / "keep.json").read_text() == "mine"


def test_gates_know_of_noise() -> None:
    """Longer by 5 %: a regression if that is beyond the noise, none within it, unknown after a single step."""
    for noise, status in ((10, "fail"), (60, "pass"), (None, "cannot_tell")):
        step = Verified(name="step", count=3, before_ns=1000, after_ns=1050, noise_ns=noise, verdict="slower")
        found = Verification(
            baseline="a", tuned="b", step=step, operators=(), predicted_ns=None, verdict="worse", reason=""
        )
        tuning = Tuning(schema_version="1.0", mode="op", status="successful", recovered=False, files=())
        assert judge(parse_condition("regression>3%"), replace(tuning, verification=found)).status == status


def test_a_gate_by_hand() -> None:
    tuning = Tuning(
        schema_version="1.0", mode="op", status="failed", recovered=False, files=(), failed_operators=("a", "b")
    )
    assert judge(parse_condition("failed >= 2"), tuning).status == "fail"
    assert judge(parse_condition("failed>2"), tuning).status == "pass"
    assert judge(parse_condition("added<1"), tuning).status == "cannot_tell"


def test_all_formats_of_a_run_show_the_same(place: Place) -> None:
    assert place.run(*OP).returncode == 0
    (run,) = place.runs
    found = json.loads((run / "diff.json").read_text())
    rows = list(csv.DictReader(io.StringIO((run / "diff.csv").read_text())))
    assert {r["name"] for r in rows} == {e["name"] for e in found["entries"]}
    markdown = (run / "diff.md").read_text()
    assert all(e["name"] in markdown for e in found["entries"])


# ---- verification ---------------------------------------------------------------------------------------------------

#: Cube kernels are faster with a bank that has records, as the device would make them.
TRAIN = """
import atexit, os, pathlib
tuned = any(pathlib.Path(os.environ["TUNE_BANK_PATH"]).rglob("*_runtime_kb.json"))
os.environ["FAKE_CANN_CUBE_US"] = os.environ["TUNED_US"] if tuned else "9000"
import torch
torch.npu.set_device(0)
atexit.register(torch.npu.synchronize)
model = torch.nn.Linear(64, 64).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(30):
    model(torch.randn(16, 64).npu()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.npu.synchronize()
"""


def test_the_gain_is_verified_with_two_profiles(npu: dict[str, str], tmp_path: Path) -> None:
    """A tuning run, then --verify: the program with the bank from before, and with the bank as it is."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "net.onnx").touch()
    environment = {**npu, "HOME": str(tmp_path), "FAKE_AOE_SECONDS": "0.1", "TUNED_US": "3000"}

    def tune(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "npuperf", "tune", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = tune("--mode", "op", "--model", "net.onnx")
    assert done.returncode == 0, done.stderr
    arguments = ("--verify", "--fail-on", "regression>3%", "--format", "json", "--", sys.executable, "train.py")
    done = tune(*arguments)
    if "terminate called without an active exception" in done.stderr:  # see test_profile_npu
        done = tune(*arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verification"]["verdict"] == "kept"
    step = found["verification"]["step"]
    (gate,) = found["gates"]
    assert gate["value"] == pytest.approx(100 * (step["after_ns"] - step["before_ns"]) / step["before_ns"])
    assert gate["value"] < 0
    cube = {o["name"]: o for o in found["verification"]["operators"]}["MatMulV3"]
    assert cube["before_ns"] == pytest.approx(9_000_000, rel=0.05)
    assert cube["after_ns"] == pytest.approx(3_000_000, rel=0.05)
    assert list(tmp_path.glob("result/tune/*/verification.json"))


def steps_of(root: Path, matmul: list[int], pause: int) -> Profiled:
    """A profile of steps with one MatMulV2 each and a pause after it; in the last one something ends the pause."""
    kernels, clock = [], 0
    for step, dur in enumerate(matmul):
        kernels.append(K(clock, dur, "mm_1", "MatMulV2", "AI_CORE", 2, 20, 0, step, clock - 500_000))
        clock += dur + pause
    kernels.append(K(clock - 1_000, 1_000, "end", "Add", "AI_VECTOR_CORE", 2, 40, 0, len(matmul) - 1, clock - 500_000))
    return read_profiled(ascend_pt(root, kernels, cores="20,40"))


@pytest.mark.parametrize(
    ("before", "after", "verdict", "operator"),
    [
        ([100_000] * 4, [80_000] * 4, "kept", "faster"),
        ([100_000] * 4, [130_000] * 4, "worse", "slower"),
        ([100_000, 90_000, 110_000, 100_000], [99_000, 91_000, 108_000, 99_000], "not felt", "same"),
    ],
)
def test_verdicts(before: list[int], after: list[int], verdict: str, operator: str, tmp_path: Path) -> None:
    """Means and twice the standard error of their difference, by hand: equal steps have no noise."""
    found = compare(steps_of(tmp_path / "a", before, 10_000), steps_of(tmp_path / "b", after, 10_000), None)
    assert found.verdict == verdict
    (matmul,) = [o for o in found.operators if o.name == "MatMulV2"]
    assert (matmul.verdict, matmul.before_ns, matmul.after_ns) == (operator, sum(before) // 4, sum(after) // 4)


def test_a_faster_operator_that_the_step_does_not_feel(tmp_path: Path) -> None:
    """Steps last 1 ms whatever the operator takes."""
    first, second = (
        steps_of(tmp_path / str(dur), [dur] * 4, 1_000_000 - dur) for dur in (100_000, 50_000)
    )  # fmt: skip
    found = compare(first, second, None)
    assert found.verdict == "not felt" and "operators became faster, the step did not" in found.reason
