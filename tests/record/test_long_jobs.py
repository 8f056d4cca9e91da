"""What happens when everything has been recorded and the program goes on, and when npuperf is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import until
from pretended import ROWS, Pretended

from npuperf.record.agent import guard
from npuperf.record.folder import Lock, RunFolder

GUARD = Path(__file__).resolve().parents[2] / "npuperf" / "record" / "agent" / "guard.py"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Pretended]:
    made = Pretended(tmp_path)
    yield made
    for left in made.processes():  # of a test that failed
        left.kill()
    for child in made.started:
        child.wait()


def ends(place: Pretended, status: int) -> None:
    """Nothing goes on, every recorded row was exported, and nobody holds the run."""
    assert place.left() == [], place.said
    assert status == 0, place.said
    assert place.exported(place.latest) == place.rows(place.latest) and len(place.rows(place.latest)) == ROWS


def test_stop_after_ends_the_program_and_its_status_tells_nothing(place: Pretended) -> None:
    child = place.record("--stop-after", after=600)
    ends(place, child.wait(timeout=120))
    assert "everything has been recorded: ending the program" in place.said
    assert "the program was ended after the recorded steps" in place.said
    stage = json.loads(place.latest.manifest.read_text())["stages"]["run"]
    assert stage["stopped"] and stage["status"] == "done" and stage["exit_status"] == 143


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text there")
def test_a_working_folder_that_is_not_utf_8(tmp_path: Path) -> None:
    """Neither the run's record nor the log of its exporters can be written with its name as it is."""
    folder = tmp_path / os.fsdecode(b"\xff x")
    folder.mkdir()
    place = Pretended(folder)
    ends(place, place.record().wait(timeout=120))
    assert "internal error" not in place.said
    kept = json.loads(place.latest.manifest.read_text("utf-8"))
    assert kept["cwd"] == f"{tmp_path}/\N{REPLACEMENT CHARACTER} x" and kept["stages"]["export"]["status"] == "done"
    assert "msprof --export" in place.latest.export_log.read_text("utf-8", errors="surrogateescape")


def test_export_early_exports_while_the_program_goes_on(place: Pretended) -> None:
    child = place.record("--export-early", after=600)
    until(lambda: "exported; the program goes on" in place.said)
    folder = first_run(place)
    assert place.exported(folder) == place.rows(folder) and child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=120) == 143
    ends(place, 0)
    assert folder.export_log.read_text().count("====") == 1, "exported once"


def first_run(place: Pretended) -> RunFolder:
    return RunFolder(place.root / "result")


def test_a_program_that_ends_during_the_early_export_waits_for_it(place: Pretended) -> None:
    ends(place, place.record("--export-early", after=1.2).wait(timeout=120))


def test_what_can_be_typed_meanwhile_works(place: Pretended) -> None:
    """And a second run beside the first gets a directory of its own."""
    first = place.record(after=600)
    folder = first_run(place)
    until(lambda: '"state": "recorded"' in "".join(f.read_text() for f in folder.status.glob("*.json")))
    second = place.start("--export", "result")
    assert second.wait(timeout=120) == 0, place.said
    assert place.exported(folder) == place.rows(folder)
    third = place.record()
    assert third.wait(timeout=120) == 0 and "this run goes to result.1" in place.said
    first.send_signal(signal.SIGTERM)
    first.wait(timeout=120)
    assert place.latest.path.name == "result.1"
    ends(place, 0)
    assert len(place.rows(folder)) == ROWS


def test_a_run_that_is_still_recording_is_not_exported(place: Pretended) -> None:
    first = place.record("--wait", 10, "--repeat", 2, after=600)  # of 50 rows there are only 25
    folder = first_run(place)
    until(lambda: len(place.rows(folder)) == ROWS)
    assert place.start("--export", "result").wait(timeout=120) == 3
    assert "this run is still being recorded" in place.said
    first.send_signal(signal.SIGTERM)
    first.wait(timeout=120)
    assert place.left() == []


@pytest.mark.parametrize("recorded", [5, ROWS])
def test_a_program_outlives_npuperf(place: Pretended, recorded: int) -> None:
    """Its recording stops, to be exported while it goes on; it holds the run until it ends, and its status is kept."""
    if recorded < ROWS:  # it is not to record all before npuperf is killed
        (place.root / "hold").touch()
    child = place.record("--stop-after" if recorded < ROWS else "--max-size=1G", after=600)
    folder = first_run(place)
    until(lambda: len(place.rows(folder)) >= recorded)
    head = next(p for p in place.processes() if p.ppid() == child.pid and "train.py" in p.cmdline())
    child.kill()
    child.wait()
    until(lambda: "recorded" in "".join(json.loads(f.read_text())["state"] for f in folder.status.glob("*.json")))
    rows = place.rows(folder)
    assert len(rows) == recorded
    (place.root / "hold").unlink(missing_ok=True)
    until(lambda: (holder := folder.lock.holder()) is not None and holder.pid == head.pid)
    meanwhile = place.start("--export", "result")
    assert meanwhile.wait(timeout=120) == 0, place.said
    assert place.exported(folder) == rows and head.is_running()
    assert place.record().wait(timeout=120) == 0 and "this run goes to result.1" in place.said
    head.terminate()
    until(lambda: folder.lock.holder() is None)
    assert place.left() == []
    assert place.start("--export", "result").wait(timeout=120) == 0, place.said
    stage = json.loads(folder.manifest.read_text())["stages"]["run"]
    assert stage["status"] == "interrupted" and stage.get("exit_status") in (143, None)  # None: a quick init has it


@pytest.mark.parametrize(("code", "status"), [("sys.exit(7)", "7"), ("os.kill(os.getpid(), 15)", "-15")])
def test_a_guard_reads_the_status_that_nobody_has_asked_for(tmp_path: Path, code: str, status: str) -> None:
    """It ends what worked for npuperf, and lets the program end by itself."""
    files = [tmp_path / name for name in ("go-on", "stop", "status")]
    files[0].touch()
    lock = Lock(tmp_path / "lock")
    assert lock.take()
    call = [sys.executable, "-IS", str(GUARD), "", ",".join(map(str, lock.share())), *map(str, files)]
    program = subprocess.Popen(
        [sys.executable, "-IS", "-c", f"import os, sys\nsys.stdin.read()\n{code}"], stdin=subprocess.PIPE
    )
    helper = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(600)"])
    guard = subprocess.Popen(call, stdin=subprocess.PIPE, pass_fds=lock.share())
    assert program.stdin is not None and guard.stdin is not None
    guard.stdin.write(b"*%d\n+%d\n+%d\n-%d\n" % (program.pid, helper.pid, os.getpid(), os.getpid()))
    guard.stdin.close()
    assert helper.wait(120) == -signal.SIGTERM and files[1].exists()
    until(lambda: (holder := lock.holder()) is not None and holder.pid == program.pid)
    assert program.poll() is None
    program.stdin.close()
    assert guard.wait(120) == 0 and files[2].read_text() == status
    assert lock.file.read_text() == ""
    program.wait()
    lock.release()


def test_its_guard_waits_for_nothing_that_never_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper that is not installed says that it begins, and is gone when the guard looks; none says that it ended."""
    gone = subprocess.Popen([sys.executable, "-IS", "-c", ""])
    gone.wait()
    ended: list[dict[int, int]] = []
    monkeypatch.setattr(guard, "_end", ended.append)
    monkeypatch.setattr(guard, "_end_of", lambda pid, began: ended.append({pid: began}))
    monkeypatch.setattr(sys, "argv", ["guard.py", "", ""])
    monkeypatch.setattr(sys, "stdin", [f"+{gone.pid}\n", f"+{os.getpid()}\n", f"*{gone.pid}\n"])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        guard.main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert [list(helpers) for helpers in ended] == [[os.getpid()]]
