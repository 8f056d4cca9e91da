"""What happens when everything has been recorded and the program goes on, and when npuperf is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import until
from pretended import ROWS, Pretended

from npuperf.record.folder import RunFolder


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
    ends(place, child.wait(timeout=60))
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
    ends(place, place.record().wait(timeout=60))
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
    assert child.wait(timeout=60) == 143
    ends(place, 0)
    assert folder.export_log.read_text().count("====") == 1, "exported once"


def first_run(place: Pretended) -> RunFolder:
    return RunFolder(place.root / "result")


def test_a_program_that_ends_during_the_early_export_waits_for_it(place: Pretended) -> None:
    ends(place, place.record("--export-early", after=1.2).wait(timeout=60))


def test_what_can_be_typed_meanwhile_works(place: Pretended) -> None:
    """And a second run beside the first gets a directory of its own."""
    first = place.record(after=600)
    folder = first_run(place)
    until(lambda: '"state": "recorded"' in "".join(f.read_text() for f in folder.status.glob("*.json")))
    second = place.start("--export", "result")
    assert second.wait(timeout=60) == 0, place.said
    assert place.exported(folder) == place.rows(folder)
    third = place.record()
    assert third.wait(timeout=60) == 0 and "this run goes to result.1" in place.said
    first.send_signal(signal.SIGTERM)
    first.wait(timeout=60)
    assert place.latest.path.name == "result.1"
    ends(place, 0)
    assert len(place.rows(folder)) == ROWS


def test_a_run_that_is_still_recording_is_not_exported(place: Pretended) -> None:
    first = place.record("--wait", 10, "--repeat", 2, after=600)  # of 50 rows there are only 25
    folder = first_run(place)
    until(lambda: len(place.rows(folder)) == ROWS)
    assert place.start("--export", "result").wait(timeout=60) == 3
    assert "this run is still being recorded" in place.said
    first.send_signal(signal.SIGTERM)
    first.wait(timeout=60)
    assert place.left() == []


@pytest.mark.parametrize("recorded", [5, ROWS])
def test_a_killed_npuperf_takes_its_program_along_and_loses_nothing(place: Pretended, recorded: int) -> None:
    """Until the program has saved its data the run is not free; then it can be exported."""
    child = place.record(after=600)
    folder = first_run(place)
    until(lambda: len(place.rows(folder)) >= recorded)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert place.left() == []
    until(lambda: folder.lock.holder() is None)  # the system closes what the dead had open a moment later
    rows = place.rows(folder)
    assert len(rows) >= recorded
    again = place.start("--export", "result")
    assert again.wait(timeout=60) == 0, place.said
    assert place.exported(folder) == rows
    manifest = json.loads(folder.manifest.read_text())
    assert manifest["stages"]["run"]["status"] == "interrupted" and manifest["soc"] == "Ascend910B3"
