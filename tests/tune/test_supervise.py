"""Tuning that outlives npuperf, is interrupted, gone on with, or watched by somebody else."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from aoe_results import ROOT
from conftest import until
from workplace import (
    OP,
    Place,
    document,
    dumping_modules,
    hold,
    kill_tuning,
    resumed_meanwhile,
    start,
    start_and_kill,
    tuning_children,
)


def test_files_that_come_and_go_do_not_end_a_tuning(place: Place) -> None:
    """aoe makes and removes folders in its work space all the time, and broken links stand in the bank."""
    place.begin_aoe(
        "import threading, tempfile, shutil\n"
        "def churn():\n"
        "    while True:\n"
        "        folders = [tempfile.mkdtemp(prefix='kernel_meta_', dir='.') for _ in range(50)]\n"
        "        for folder in folders: shutil.rmtree(folder)\n"
        "threading.Thread(target=churn, daemon=True).start()\n"
    )
    (place.root / "bank").mkdir()
    (place.root / "bank" / "gone").symlink_to("nowhere")
    done = place.run(*OP, "--bank", "bank", "--format", "json", FAKE_AOE_SECONDS="0.5", FAKE_AOE_OPS="8")
    assert done.returncode == 0, done.stderr
    assert len(document(done)["entries"]) == 8


def test_ctrl_c_ends_everything_and_keeps_what_there_is(place: Place) -> None:
    child = start(place, *OP, FAKE_AOE_SECONDS="30", FAKE_AOE_OPS="100")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=100)
    assert child.returncode == 130 and "Traceback" not in err
    assert tuning_children(place) == []
    assert place.state()["problem"] == "interrupted"
    kept = json.loads((place.runs[-1] / "diff.json").read_text())
    assert kept["status"] == "incomplete" and kept["entries"]


def test_tuning_survives_our_own_death(place: Place) -> None:
    """npuperf is killed; aoe goes on; --resume finds it, waits for it, and reads its result."""
    released = hold(place)
    start_and_kill(place, *OP, FAKE_AOE_OPS="20")
    assert len(tuning_children(place)) == 1
    done = resumed_meanwhile(place, released)
    assert done.returncode == 0, done.stderr
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
    assert other.returncode == 2 and "was started with the knowledge base" in other.stderr
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


def test_while_a_run_goes_on_nobody_else_touches_it(place: Place) -> None:
    """Another npuperf that looks after it, or only aoe after npuperf's death."""
    hold(place)
    child = start(place, *OP)
    state = place.state()
    for command in (("--resume",), ("--rollback",), ("--verify", "--", "python", "x.py")):
        done = place.run(*command)
        assert done.returncode == 2 and "is still working on" in done.stderr, done.stderr
    child.kill()
    child.communicate()
    done = place.run("--rollback")
    assert done.returncode == 2 and "is still tuning" in done.stderr
    (place.root / "other.onnx").touch()
    done = place.run("--mode", "op", "--model", "other.onnx", "--resume")
    assert done.returncode == 2 and "tuning something other than what is asked for" in done.stderr
    kill_tuning(place)
    damaged = {**state, "keeper": {"pid": 1e400, "began": 0}, "program": {"pid": "x"}}
    (place.runs[-1] / "state.json").write_text(json.dumps(damaged))
    assert place.run("--rollback").returncode == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_who_stops_listening_stops_nothing(place: Place, unbuffered: str) -> None:
    """As in npuperf tune 2>&1 | head -1."""
    released = hold(place)
    environment = place.environment(FAKE_AOE_OPS="8", PYTHONUNBUFFERED=unbuffered)
    child = subprocess.Popen(
        place.command(*OP), cwd=place.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    released.touch()
    assert child.wait(timeout=300) == 0
    assert json.loads((place.runs[-1] / "diff.json").read_text())["status"] == "successful"


def test_the_same_process_number_again(place: Place) -> None:
    """As in containers: the results of the process that was killed are not those of the next."""
    place.change_aoe("pid{os.getpid()}", "pid12")
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
    assert other.returncode == 2 and "was started with --mode op" in other.stderr
    done = place.run("--resume", "--format", "json")
    assert done.returncode == 0, done.stderr
    first, second = place.calls()
    assert first == second and len(place.runs) == 1
    assert "--device=3" in second["argv"] and second["env"]["REPEAT_TUNE"] == "True"
    assert place.run("--mode", "subgraph", "--model", "net.onnx", "--ops", "Add").returncode == 2
    nothing = place.run(*OP, "--resume")
    assert nothing.returncode == 3 and "no unfinished tuning run" in nothing.stderr


def test_a_run_of_another_kind_is_not_gone_on_with(place: Place) -> None:
    assert place.run(*OP, FAKE_AOE_FAIL="kill").returncode == 5
    done = place.run("--mode", "subgraph", "--model", "net.onnx", "--resume")
    assert done.returncode == 2 and "--mode op" in done.stderr


def test_a_dump_that_survives_us_is_tuned(place: Place) -> None:
    """npuperf is killed while the program dumps; --resume waits for the program, and then runs aoe."""
    released = place.root / "released"
    wait = f"while not os.path.exists({str(released)!r}):\n    time.sleep(0.01)\n"
    (place.root / "train.py").write_text(f"import os, torch, time\nprint('dumping', flush=True)\n{wait}")
    where = {"PYTHONPATH": f"{ROOT}:{dumping_modules(place.root / 'modules')}", "DUMPS": "1"}
    command = place.command("--mode", "op", "--", sys.executable, "train.py")
    with subprocess.Popen(command, cwd=place.root, env=place.environment(**where), stderr=subprocess.DEVNULL) as child:
        until(lambda: any("dumping\n" in log.read_text() for log in place.root.glob("result/tune/*/aoe.log")))
        child.kill()
    done = resumed_meanwhile(place, released, **where)
    assert done.returncode == 0, done.stderr
    assert len(place.calls()) == 1
