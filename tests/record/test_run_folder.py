"""Run directories: how they are numbered, which is the latest, and that two runs never share one."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from conftest import no_privileges, run_cli

import npuperf
from npuperf.base.errors import InputError, UsageError
from npuperf.record import folder as locks
from npuperf.record.folder import Lock, RunFolder, broken_off, create, forget_failed, latest_run, next_run
from npuperf.record.request import ProfileRequest
from npuperf.record.run import run


def finished(path: Path, *, data: bool = True) -> Path:
    """A run that nobody works on any more."""
    folder, _ = create(path, force=False)
    folder.manifest.write_text("{}")
    if data:
        (folder.raw / "PROF_1").mkdir()
    folder.lock.release()
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- numbers ----


def test_a_run_that_may_not_be_entered_is_passed_and_said(here: Path) -> None:
    finished(here / "result")
    (here / "result").chmod(0)
    with no_privileges():
        assert next_run() == Path("result.1")
        with pytest.raises(UsageError, match="exists and is not a run"):
            create(Path("result"), force=True)
        with pytest.raises(InputError, match="Permission denied"):
            run(ProfileRequest(source=Path("result")), {}, print)
    (here / "result").chmod(0o700)


def test_every_run_gets_the_next_number_and_the_latest_is_the_highest(here: Path) -> None:
    assert (latest_run(), next_run()) == (Path("result"), Path("result"))
    for number in range(11):  # result.10 comes after result.9
        made, moved = create(None, force=False)
        assert moved is None and made.path.name == ("result" if not number else f"result.{number}")
        made.lock.release()
        finished_now = made.raw / "PROF_1"
        finished_now.mkdir()
        made.manifest.write_text("{}")
        assert latest_run().name == made.path.name
    Path("output.77").mkdir()  # as long a name
    assert next_run() == Path("result.11")


def test_a_number_is_not_given_again(here: Path) -> None:
    """Else the latest run would not be the one with the highest number."""
    finished(here / "result")
    finished(here / "result.3")
    assert next_run() == Path("result.4")
    (here / "result").rename(here / "elsewhere")
    assert (next_run(), latest_run()) == (Path("result.4"), Path("result.3"))


def test_what_lies_beside_is_no_run(here: Path) -> None:
    """Runs that were moved aside, folders of others, and files."""
    finished(here / "result")
    finished(here / "result.old.7")
    (here / "result.8").mkdir()
    (here / "result.csv").write_text("")
    (here / "result.९").mkdir()  # a digit elsewhere
    assert latest_run() == Path("result")
    assert next_run() == Path("result.8")  # it is empty
    (here / "result.8" / "notes").write_text("mine")
    assert next_run() == Path("result.9")


def test_a_run_that_recorded_nothing_gives_its_name_to_the_next(here: Path) -> None:
    finished(here / "result")
    finished(here / "result.1", data=False)
    made, moved = create(None, force=False)
    assert made.path == here / "result.1" and moved == Path("result.1.old.1")


def test_a_run_that_was_killed_before_its_manifest_is_in_nobody_s_way(here: Path) -> None:
    folder, _ = create(here / "mine", force=False)
    folder.lock.release()
    again, moved = create(here / "mine", force=False)
    assert again.path == here / "mine" and moved == here / "mine.old.1"


def test_two_at_the_same_moment_get_two_folders(here: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [folder.path.name for folder, _ in pool.map(lambda _: create(None, force=False), range(8))]
    assert sorted(made) == ["result", *(f"result.{n}" for n in range(1, 8))]


# ---- locks ----

HOLD = "import sys\nfrom pathlib import Path\nfrom npuperf.record.folder import Lock\n"
HOLD += "lock = Lock(Path(sys.argv[1])); print(lock.take(), flush=True); sys.stdin.read()"


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Start another process that takes a lock and lives until its stdin is closed."""
    started = []

    def start(file: Path) -> subprocess.Popen[str]:
        call = [sys.executable, "-c", HOLD, str(file)]
        child = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout is not None and child.stdout.readline() == "True\n"
        return child

    yield start
    for child in started:
        child.communicate()


def test_a_run_in_the_making_is_left_alone(here: Path, holding: Callable[[Path], subprocess.Popen[str]]) -> None:
    """It is neither moved nor the latest; and when its npuperf is killed, that ends at once."""
    finished(here / "result")
    folder = RunFolder(finished(here / "result.1"))
    child = holding(folder.lock.file)
    assert (latest_run(), next_run()) == (Path("result"), Path("result.2"))
    for force in (False, True):
        with pytest.raises(UsageError, match=f"process {child.pid} on .* is at work there"):
            create(folder.path, force=force)
    assert not folder.lock.take()
    child.kill()
    child.wait()
    assert (latest_run(), folder.lock.holder()) == (Path("result.1"), None)
    create(folder.path, force=True)[0].lock.release()


def test_an_export_under_way_keeps_a_run_where_it_is(
    here: Path, holding: Callable[[Path], subprocess.Popen[str]]
) -> None:
    folder = RunFolder(finished(here / "result"))
    holding(folder.export_lock.file)
    with pytest.raises(UsageError, match="at work there"):
        create(here / "result", force=True)


@pytest.mark.parametrize("known", [True, False])
def test_where_there_are_no_kernel_locks_the_process_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """By number and start: a stranger that has the number of a dead holder is not it."""
    monkeypatch.setattr(locks, "_lock", lambda *_, **__: None)
    file, me = tmp_path / "lock", psutil.Process()
    began = me.create_time() - (0 if known else 3600)
    file.write_text(json.dumps({"host": socket.gethostname(), "pid": me.pid, "began": began}))
    assert (Lock(file).holder() is not None) == known
    assert Lock(file).take() != known


def test_of_another_machine_nothing_is_known(tmp_path: Path) -> None:
    """So it is believed, and how to go on is said."""
    lock = Lock(tmp_path / "lock")
    lock.file.write_text('{"host": "far-away", "pid": 1, "began": 5.0}')
    holder = lock.holder()
    assert holder is not None and not lock.take()
    what, hint = lock.refusal(holder, "result")
    assert str(what) == "result: process 1 on far-away is at work there"
    assert str(hint) == f"if it is over, delete {lock.file}"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"pid": "x"}', "\x00" * 9000])
def test_a_damaged_lock_is_nobody_s(tmp_path: Path, content: str) -> None:
    lock = Lock(tmp_path / "lock")
    lock.file.write_text(content)
    assert lock.holder() is None and lock.take()
    lock.release()
    assert lock.file.read_bytes() == b""


def test_a_lock_that_is_a_pipe_hangs_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    assert Lock(tmp_path / "lock").holder() is None


# ---- what the commands do with them ----


def test_commands_take_the_latest_run_and_name_it(here: Path, sample: Path) -> None:
    """One run alone needs no name; what is asked for by name is not named again."""
    shutil.copytree(sample, finished(here / "result", data=False) / "raw" / sample.name)
    assert "latest" not in run_cli(["analyze"]).stderr
    shutil.copytree(sample, finished(here / "result.1", data=False) / "raw" / sample.name)
    done = run_cli(["analyze", "--format", "json"])
    assert done.returncode == 0 and done.stderr == "npuperf: using result.1, the latest run\n"
    assert (here / "result.1" / "analysis" / "result.json").is_file()
    assert run_cli(["analyze", "result"]).stderr == ""
    assert npuperf.load().path == Path("result.1")
    assert "using result.1, the latest run" in run_cli(["tune", "--mode", "op", "--dry-run"]).stderr


def test_a_run_that_recorded_nothing_is_not_the_latest(here: Path, sample: Path) -> None:
    shutil.copytree(sample, finished(here / "result", data=False) / "raw" / sample.name)
    finished(here / "result.1", data=False)
    assert (latest_run(), next_run()) == (Path("result"), Path("result.1"))
    done = run_cli(["analyze", "--format", "json"])
    assert done.returncode == 0
    assert done.stderr == "npuperf: result.1 recorded nothing: using result, the latest run before it\n"
    assert "result.1: this run recorded nothing" in run_cli(["analyze", "result.1"]).stderr


def test_failed_runs_are_listed_and_the_oldest_go(here: Path) -> None:
    """What was moved aside with data stays whatever its number."""
    create(finished(here / "result"), force=True)[0].lock.release()  # result.old.1
    kept = []
    for _ in range(5):
        folder, moved = create(here / "result", force=False)
        folder.lock.release()
        assert moved is not None
        kept.append([path.name for path in forget_failed(here / "result")[0]])
    assert kept[0] == ["result.old.2"] and kept[-1] == ["result.old.4", "result.old.5", "result.old.6"]
    assert {path.name for path in here.iterdir()} == {"result", "result.old.1", *kept[-1]}
    assert forget_failed(here / "result") == ([here / name for name in kept[-1]], 0)


def test_what_was_interrupted_is_said_before_it_is_analyzed(here: Path, sample: Path) -> None:
    run = finished(here / "result", data=False)
    shutil.copytree(sample, run / "raw" / sample.name)
    (run / "npuperf.json").write_text('{"stages": {"run": {"status": "running"}}}')
    done = run_cli(["analyze"])
    assert done.returncode == 0
    assert done.stderr == (
        "npuperf: warning: result: this run was interrupted; npuperf profile --export result exports and reads what it "
        "recorded\n"
    )


@pytest.mark.parametrize("manifest", ["[]", "{", '{"stages": 1}', '{"stages": {"run": []}}', '{"stages": {"run": {}}}'])
def test_nothing_is_said_of_a_manifest_that_says_nothing(here: Path, manifest: str) -> None:
    run = finished(here / "result")
    (run / "npuperf.json").write_text(manifest)
    assert broken_off(RunFolder(run)) == []


def test_a_run_that_has_nothing_yet_is_not_called_one_that_recorded_nothing(here: Path) -> None:
    folder, _ = create(here / "result", force=False)
    folder.manifest.write_text('{"stages": {"run": {"status": "running"}}}')
    done = run_cli(["analyze", "result"])
    assert done.returncode == 3 and done.stderr == (
        "npuperf: result: this run is still being recorded\n  next: wait for its end, or end its program\n"
    )
    folder.lock.release()
    assert "recorded nothing" in run_cli(["analyze", "result"]).stderr


def test_a_run_in_standby_says_where_the_recordings_are(here: Path) -> None:
    finished(here / "result", data=False)
    (here / "result" / "npuperf.json").write_text('{"options": {"standby": true}}')
    done = run_cli(["analyze", "result"])
    assert done.returncode == 3 and done.stderr == (
        "npuperf: result: its program was started with --standby; what --pid records has run directories of its own\n"
        "  next: name one of those, or none: npuperf analyze takes the latest\n"
    )
