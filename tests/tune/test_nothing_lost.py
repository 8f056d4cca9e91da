"""Nothing is tuned twice, nothing that was tuned is lost, and nothing is left running: deaths and full disks."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from aoe_results import ROOT
from conftest import Done, until
from workplace import (
    OP,
    Place,
    bank,
    document,
    dumping_modules,
    hold,
    kill_tuning,
    lines,
    record,
    resumed_meanwhile,
    said,
    start,
    start_and_kill,
    tuning_children,
)  # fmt: skip

import npuperf.base.files
from npuperf.base.process import carriers
from npuperf.tune import state


def ended(place: Place) -> None:
    """Wait until the stand-in has ended by itself."""
    until(lambda: not tuning_children(place))


def left_running(place: Place) -> list[int]:
    return [one.pid for run in place.runs for one in carriers(state.MARK, str(run))]


def test_what_finished_while_nobody_watched_is_read(place: Place) -> None:
    """npuperf is killed, aoe ends by itself: --resume starts nothing, and gates see the result."""
    released = hold(place)
    start_and_kill(place, *OP, FAKE_AOE_OPS="8")
    released.touch()
    ended(place)
    done = place.run("--resume", "--fail-on", "added<1", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = document(done)
    assert (found["status"], len(found["entries"]), len(place.calls())) == ("successful", 8, 1)
    assert "finished while npuperf was not running" in said(done) and found["bank"]["records_before"] == 0
    assert place.run("--resume").returncode == 3  # it is done now


def test_what_finished_as_the_signal_came_is_read(place: Place) -> None:
    """The run counts as failed, for it was ended; that its result is whole shows only when it is read."""
    assert place.run(*OP).returncode == 0
    (run,) = place.runs
    state.note(run, status="failed", exit_status=None, problem="interrupted")
    assert place.run("--resume").returncode == 0
    assert (len(place.calls()), state.read_state(run).status) == (1, "done")
    state.note(run, status="failed", exit_status=4)  # which the program's own status contradicts
    assert place.run("--resume").returncode == 0 and len(place.calls()) == 2


def test_what_did_not_finish_is_tuned_again(place: Place) -> None:
    """Both are killed: the result says incomplete, and the output has no last words."""
    released = hold(place)
    start_and_kill(place, *OP, FAKE_AOE_OPS="30")
    kill_tuning(place)
    released.touch()
    done = place.run("--resume", "--format", "json", FAKE_AOE_OPS="30")
    assert done.returncode == 0 and len(place.calls()) == 2
    assert len(document(done)["entries"]) == 30


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_and_says_so(place: Place, number: signal.Signals) -> None:
    """aoe, what it started, and what left its session and its family; the state is kept for --resume."""
    plain = place.aoe.read_text()
    place.begin_aoe(
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "subprocess.run([sys.executable, '-c', \"import subprocess, sys; "
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\"])\n"
    )
    child = start(place, *OP, FAKE_AOE_SECONDS="30", FAKE_AOE_OPS="100")
    until(lambda: len(left_running(place)) == 3)
    child.send_signal(number)
    _, err = child.communicate(timeout=100)
    assert child.returncode == 130 and "Traceback" not in err
    assert f"{number.name}: all that was started is ended" in err and "--resume continues" in err
    assert left_running(place) == []
    assert (place.state()["status"], place.state()["problem"]) == ("failed", "interrupted")
    place.aoe.write_text(plain)
    assert place.run("--resume").returncode == 0


def test_many_signals_leave_nothing(place: Place) -> None:
    """An impatient person: aoe, which ignores SIGTERM, is killed all the same, and the result kept."""
    place.begin_aoe("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n")
    child = start(place, *OP, FAKE_AOE_SECONDS="60", FAKE_AOE_OPS="200")
    for _ in range(5):
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    _, err = child.communicate(timeout=100)
    assert child.returncode == 130 and "Traceback" not in err and left_running(place) == []
    assert json.loads((place.runs[-1] / "diff.json").read_text())["entries"]


def test_a_program_that_nobody_noted_is_found(place: Place) -> None:
    """As when npuperf is killed between starting aoe and writing its number down: it is waited for, not doubled."""
    released = hold(place)
    start_and_kill(place, *OP, FAKE_AOE_OPS="12")
    noted = place.state()
    noted.pop("program", None)  # it may have been killed then indeed
    (place.runs[-1] / "state.json").write_text(json.dumps(noted))
    assert place.run("--rollback").returncode == 2
    twice = place.run(*OP)
    assert twice.returncode == 2 and "is tuning the same already" in twice.stderr
    done = resumed_meanwhile(place, released)
    assert done.returncode == 0
    assert len(place.calls()) == 1 and len(document(done)["entries"]) == 12


def test_what_a_killed_aoe_left_is_ended(place: Place) -> None:
    """Its compilers, which it could not end any more."""
    plain = place.aoe.read_text()
    forks = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    place.begin_aoe(forks)
    start_and_kill(place, *OP, FAKE_AOE_SECONDS="30", FAKE_AOE_OPS="300")
    kill_tuning(place)
    until(lambda: len(left_running(place)) == 1)
    place.aoe.write_text(plain)
    done = place.run("--resume")
    assert done.returncode == 0 and "ended 1 process that an earlier attempt" in done.stderr
    assert left_running(place) == []
    place.begin_aoe(forks)
    assert place.run(*OP, FAKE_AOE_FAIL="kill").returncode == 5
    assert left_running(place) == []


def test_a_finished_dump_is_not_made_again(place: Place) -> None:
    """aoe failed after the program had dumped: --resume starts aoe alone."""
    (place.root / "train.py").write_text("import torch\nopen('ran', 'a').write('x')\n")
    where = {"PYTHONPATH": f"{ROOT}:{dumping_modules(place.root / 'modules')}", "DUMPS": "1"}
    done = place.run("--mode", "op", "--", sys.executable, "train.py", FAKE_AOE_FAIL="kill", **where)
    assert done.returncode == 5
    assert place.run("--resume", **where).returncode == 0
    assert (place.root / "ran").read_text() == "x" and len(place.calls()) == 2


def test_a_run_that_dumped_nothing_is_passed_over(place: Place) -> None:
    """It tuned nothing, so it is not the run that --rollback and --verify speak of."""
    where = bank(place.root / "bank", [record(5, 50)])
    assert place.run(*OP, "--bank", "bank").returncode == 0
    (place.root / "train.py").write_text("import torch\n")
    path = f"{ROOT}:{dumping_modules(place.root / 'modules')}"
    empty = place.run("--mode", "op", "--bank", "bank", "--", sys.executable, "train.py", PYTHONPATH=path)
    assert empty.returncode == 3 and len(place.runs) == 2
    verified = place.run("--verify", "--", sys.executable, "none.py")
    assert f"{place.runs[0].name} is the last run that did" in said(verified)
    assert "no result" not in said(verified)
    done = place.run("--rollback")
    assert done.returncode == 0 and f"{place.runs[1].name} tuned nothing" in said(done)
    assert lines(where) == {5: 50}


def test_subgraphs_that_failed_are_no_success(place: Place) -> None:
    """aoe says that it finished; its result has no section SGAT, which means failure (the vendor's guide)."""
    place.change_aoe('([] if job == "1" and status == "failed" else [body])', "[]")
    done = place.run("--mode", "subgraph", "--model", "net.onnx", "--soc", "Ascend310P3", "--format", "json",
                     FAKE_CANN_SOC="Ascend310P3")  # fmt: skip
    assert done.returncode == 5 and document(done)["status"] == "failed"
    assert "the tuning of subgraphs failed" in said(done) and place.state()["status"] == "failed"
    again = place.run("--from", place.runs[0], "--format", "json")
    assert document(again)["status"] == "failed"


def full_disk(place: Place, *arguments: object, after: str, **extra: str) -> Done:
    """Tune on a disk that is full as soon as a file that matches ``after`` exists."""
    real = tempfile.mkstemp

    def made(*args: Any, **kwargs: Any) -> Any:
        if list(place.root.glob(after)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(npuperf.base.files.tempfile, "mkstemp", made)
        return place.run(*arguments, **extra)


def test_a_full_disk_hides_no_result(place: Place) -> None:
    """What cannot be written down is a warning; the run counts as unfinished, and is read once there is room."""
    done = full_disk(place, *OP, "--format", "json", after="result/tune/*/aoe_result_*.json")
    assert done.returncode == 0, done.stderr
    found = document(done)
    assert found["status"] == "successful" and len(found["entries"]) == 4
    assert any("diff.json" in w and "No space left" in w for w in found["warnings"])
    assert any("state.json" in w for w in found["warnings"])
    again = place.run("--resume", "--format", "json")
    assert again.returncode == 0 and len(place.calls()) == 1 and len(document(again)["entries"]) == 4
    assert place.state()["status"] == "done"


def test_a_disk_that_is_full_before_anything_is_begun(place: Place) -> None:
    done = full_disk(place, *OP, after="net.onnx")
    assert done.returncode == 3 and "No space left" in done.stderr and place.calls() == []


def test_a_disk_that_fills_while_aoe_runs(place: Place) -> None:
    """Its number cannot be noted: it goes on all the same."""
    done = full_disk(place, *OP, "--format", "json", after="result/tune/*/aoe.log")
    assert done.returncode == 0 and len(document(done)["entries"]) == 4


def test_what_is_run_can_be_read(place: Place) -> None:
    """The command that dumps operators is one that a person can read: a file and its arguments."""
    (place.root / "train.py").write_text("import torch\n")
    for words in (("train.py", "--lr", "1"), ("-m", "train", "--lr", "1")):
        done = place.run("--mode", "op", "--dry-run", "--format", "json", "--", sys.executable, *words)
        shell = document(done)["programs"][0]["shell"]
        assert "dump_operators.py" in shell and shell.endswith(" ".join(words)) and ";" not in shell


def test_the_dumped_program_sees_what_it_would_see_alone(place: Place) -> None:
    """Arguments, search path, name and file: the same as under python, for files, links to them, and modules."""
    show = "import os, sys, torch\nsys.argv[0] = os.path.abspath(sys.argv[0])\n"
    show += "print(__name__, os.path.abspath(__file__), sys.argv, sys.path[0], flush=True)\n"
    (place.root / "sub").mkdir()
    (place.root / "sub" / "train.py").write_text(show)
    (place.root / "link.py").symlink_to("sub/train.py")
    environment = place.environment(PYTHONPATH=str(dumping_modules(place.root / "modules")))
    runner = ROOT / "npuperf" / "record" / "agent" / "dump_operators.py"
    for words in (["sub/train.py", "-x"], ["link.py"], ["-m", "sub.train", "-m", "y"]):
        said_ = [
            subprocess.run([sys.executable, *before, *words], cwd=place.root, env=environment, capture_output=True,
                           text=True, check=True).stdout
            for before in ([], [str(runner), str(place.root / f"dump-{words[0]}-{len(words)}")])
        ]  # fmt: skip
        assert said_[0] == said_[1]
    assert len(list(place.root.glob("dump-*"))) >= 1


def test_strangers_are_not_ended(place: Place) -> None:
    """Only what carries the run's folder is; others that sleep beside it go on."""
    beside = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        child = start(place, *OP, FAKE_AOE_SECONDS="30", FAKE_AOE_OPS="300")
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=100)
        assert psutil.Process(beside.pid).status() != psutil.STATUS_ZOMBIE
    finally:
        beside.kill()
        beside.wait()


@pytest.mark.parametrize(
    "damage",
    [
        {"program": {"pid": -1, "began": 0}}, {"program": {"pid": 2**70, "began": 0}}, {"step": -7}, {"step": 10**9},
        {"program": None}, {"mode": "\ud800"}, {"job": {"mode": "op"}}, {"programs": [[]]}, {"status": ["running"]},
        {"keeper": {"pid": 0, "began": 1e308}}, {"soc": {}}, {"cann": 3},
    ],
)  # fmt: skip
def test_a_damaged_state_is_an_ordinary_message(place: Place, damage: dict[str, Any]) -> None:
    """Whatever stands there: a run, or a refusal that says what to do."""
    run = place.root / "result" / "tune" / "20260101-000000-000"
    run.mkdir(parents=True)
    source = {"type": "ModelFile", "file": str(place.root / "net.onnx"), "weight": None}
    job = {"mode": "op", "source": source}
    whole = {"status": "running", "mode": "op", "job": job, "place": str(place.root / "home"), "step": 0}
    (run / "state.json").write_text(json.dumps({**whole, **damage}))
    for command in (("--resume", "--yes"), ("--rollback", "--yes"), ("--verify", "--yes")):
        done = place.run(*command)
        assert done.returncode in (0, 2, 3), (command, done.stderr)
        assert "internal error" not in done.stderr


def test_a_model_whose_name_is_not_utf8(place: Place) -> None:
    """It is tuned as any other. JSON cannot hold its name, so --resume does not find it, and says so."""
    model = os.fsdecode(os.fsencode(place.root) + b"/n\xff\xe9.onnx")
    Path(model).write_bytes(b"onnx")
    assert place.run("--mode", "op", "--model", model, FAKE_AOE_FAIL="kill").returncode == 5
    assert place.run("--mode", "op", "--model", model).returncode == 0
    assert [a.endswith("n\udcff\udce9.onnx") for call in place.calls() for a in call["argv"][:1]] == [True, True]
    done = place.run("--resume", "--yes")
    assert done.returncode == 3 and "No such file" in done.stderr


def test_a_model_that_is_gone_since(place: Place) -> None:
    assert place.run(*OP, FAKE_AOE_FAIL="kill").returncode == 5
    (place.root / "net.onnx").unlink()
    done = place.run("--resume")
    assert done.returncode == 3 and "net.onnx: cannot be read: No such file" in done.stderr


@pytest.mark.parametrize("damage", [b"", b"{", b"[" * 100_000, b"[1]", b"\xff\xfe", b"\0" * 50])
def test_a_state_of_which_nothing_can_be_read_is_said(place: Place, damage: bytes) -> None:
    run = place.root / "result" / "tune" / "20260101-000000-op-1"
    run.mkdir(parents=True)
    (run / "state.json").write_bytes(damage)
    done = place.run("--resume")
    assert done.returncode == 3 and "state.json" in done.stderr and not place.calls()
    assert (run / "state.json").read_bytes() == damage
