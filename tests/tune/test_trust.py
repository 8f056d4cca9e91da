"""A run directory may come from a stranger: nothing that it names is done without this user's word."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from aoe_results import ROOT
from workplace import OP, Place, bank, dumping_modules, lines, record, said

from npuperf.base import trust
from npuperf.base.trust import own_folder


@pytest.fixture
def recorded(place: Place) -> dict[str, str]:
    """A run directory whose manifest names a program that leaves a trace; returns the environment to tune it in."""
    (place.root / "train.py").write_text("open('was-run', 'w').close()\nimport torch\n")
    (place.root / "result").mkdir()
    manifest = {"command": [sys.executable, "train.py", "-v"], "cwd": str(place.root)}
    (place.root / "result" / "npuperf.json").write_text(json.dumps(manifest))
    return {"PYTHONPATH": f"{ROOT}:{dumping_modules(place.root / 'modules')}", "DUMPS": "1"}


def remember(place: Place, folder: Path | None = None) -> None:
    trust.remember(folder or place.root / "result", "profile", (sys.executable, "train.py", "-v"), str(place.root))


def test_a_strangers_program_is_shown_and_not_run(place: Place, recorded: dict[str, str]) -> None:
    refused = place.run("--mode", "op", **recorded)
    assert refused.returncode == 2 and not (place.root / "was-run").exists() and place.calls() == []
    assert "may be a stranger's" in said(refused) and "train.py -v" in said(refused) and "--yes" in said(refused)
    assert place.run("--verify", **recorded).returncode == 3  # no tuning run there
    assert place.run("--mode", "op", "--dry-run", **recorded).returncode == 0  # which only shows
    assert place.run("--mode", "op", "--yes", **recorded).returncode == 0
    assert (place.root / "was-run").exists()


def test_ones_own_program_is_run(place: Place, recorded: dict[str, str]) -> None:
    remember(place)
    assert place.run("--mode", "op", **recorded).returncode == 0
    assert (place.root / "was-run").exists()


def test_what_was_typed_is_run(place: Place, recorded: dict[str, str]) -> None:
    assert place.run("--mode", "op", "--", sys.executable, "train.py", **recorded).returncode == 0


@pytest.mark.parametrize("change", ["command", "moved", "linked", "elsewhere", "state", "forged"])
def test_one_record_is_for_one_program_in_one_place(place: Place, recorded: dict[str, str], change: str) -> None:
    """Another command, another folder, another working folder, another user's records: each is asked about."""
    run = place.root / "result"
    if change == "command":
        remember(place)
        changed = json.loads((run / "npuperf.json").read_text())
        (run / "npuperf.json").write_text(json.dumps({**changed, "command": [sys.executable, "train.py", "-w"]}))
    elif change == "moved":
        remember(place)
        run.rename(place.root / "other")
        (place.root / "other").rename(run)  # back again: the same place
        assert place.run("--mode", "op", **recorded).returncode == 0
        shutil.copytree(run, place.root / "copy")
        run.rename(place.root / "gone")
        (place.root / "copy").rename(place.root / "new")
        run = place.root / "new"
    elif change == "linked":  # a stranger's link to a folder of one's own, beside a program of his
        own = place.root / "own"
        run.rename(own)
        trust.remember(own, "profile", (sys.executable, "train.py", "-v"), str(place.root / "home"))
        run.symlink_to(own)
    elif change == "elsewhere":
        trust.remember(run, "profile", (sys.executable, "train.py", "-v"), "/elsewhere")
    elif change == "state":
        remember(place)
        entries = own_folder("XDG_STATE_HOME", ".local/state") / "made"
        for entry in entries.iterdir():
            entry.unlink()
    else:  # what a stranger can put into the folder is no record
        shutil.copytree(own_folder("XDG_STATE_HOME", ".local/state"), run / "npuperf", dirs_exist_ok=True)
    (place.root / "was-run").unlink(missing_ok=True)
    done = place.run("--mode", "op", "--run", run, **recorded)
    assert done.returncode == 2 and "may be a stranger's" in said(done)
    assert not (place.root / "was-run").exists()


def test_a_strangers_tuning_run(place: Place) -> None:
    """--resume, --verify and --rollback do what its state says: each asks, and does nothing without an answer."""
    where = bank(place.root / "bank", [record(1, 10)])
    assert place.run(*OP, "--bank", "bank", FAKE_AOE_FAIL="kill").returncode == 5
    shutil.copytree(place.root / "result", place.root / "theirs")
    (run,) = (place.root / "theirs" / "tune").glob("2*")
    state = json.loads((run / "state.json").read_text())
    (run / "bank_before" / "planted").write_text("x")
    called = len(place.calls())
    resumed = place.run("--resume", "--run", "theirs", "--bank", "bank")
    assert resumed.returncode == 2 and "may be a stranger's" in said(resumed) and len(place.calls()) == called
    back = place.run("--rollback", "--run", "theirs")
    assert back.returncode == 2 and f"everything in {state['place']} is replaced" in said(back)
    assert not (where / "planted").exists()
    verified = place.run("--verify", "--run", "theirs", "--", sys.executable, "none.py")
    assert verified.returncode == 2 and "with the knowledge bases" in said(verified)
    # One's own run whose state somebody changed: the bank is another folder now.
    (mine,) = place.runs
    (place.root / "precious").mkdir()
    (place.root / "precious" / "file").write_text("mine")
    (mine / "state.json").write_text(json.dumps({**state, "place": str(place.root / "precious")}))
    assert place.run("--rollback").returncode == 2
    assert (place.root / "precious" / "file").read_text() == "mine"
    assert place.run("--rollback", "--run", "theirs", "--yes").returncode == 0
    assert lines(where) == {1: 10}


@pytest.mark.parametrize(("answer", "code", "was_run"), [("y\n", 0, True), ("n\n", 2, False), ("\n", 2, False)])
def test_a_person_is_asked(place: Place, recorded: dict[str, str], answer: str, code: int, *, was_run: bool) -> None:
    terminal, end = pty.openpty()
    child = subprocess.Popen(
        place.command("--mode", "op"), cwd=place.root, env=place.environment(**recorded), stdin=end,
        stdout=subprocess.DEVNULL, stderr=end,
    )  # fmt: skip
    os.close(end)
    told = b""
    while b"[y/N]" not in told:
        told += os.read(terminal, 4096)
    assert b"train.py -v" in told and not (place.root / "was-run").exists()
    os.write(terminal, answer.encode())
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:  # how a terminal ends
        pass
    assert child.wait(timeout=300) == code
    assert (place.root / "was-run").exists() == was_run
    os.close(terminal)


def test_a_ledger_that_is_a_link_is_not_written_to(place: Place) -> None:
    (place.root / "result" / "tune").mkdir(parents=True)
    (place.root / "precious").write_text("mine\n")
    (place.root / "result" / "tune" / "history.jsonl").symlink_to(place.root / "precious")
    assert place.run(*OP).returncode == 0
    assert (place.root / "precious").read_text() == "mine\n"


@pytest.mark.parametrize("name", ["tune", "tune/RUN", "tune/RUN/aoe.log"])
def test_nothing_is_written_behind_links_of_a_run(place: Place, name: str) -> None:
    precious = place.root / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine\n")
    assert place.run(*OP, FAKE_AOE_FAIL="kill").returncode == 5
    link = place.root / "result" / name.replace("RUN", place.runs[0].name)
    if link.is_dir():
        link.rename(place.root / "moved")
    if name == "tune/RUN":  # else it would be no run to resume
        shutil.copy(place.root / "moved" / "state.json", precious / "state.json")
    link.unlink(missing_ok=True)
    link.symlink_to(precious / "file" if name.endswith("log") else precious)
    before = {path.name: path.read_bytes() for path in precious.rglob("*")}
    done = place.run("--resume", "--yes") if name != "tune" else place.run(*OP)
    assert done.returncode == 3 and "leads out of" in said(done)
    assert {path.name: path.read_bytes() for path in precious.rglob("*")} == before


def test_no_record_can_be_kept(place: Place, recorded: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As without a home: nothing fails, the next command asks."""

    def full(path: object, *args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "touch", full)
    remember(place)
    monkeypatch.undo()
    assert place.run("--mode", "op", **recorded).returncode == 2


def test_old_records_make_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(trust, "_MOST", 3)
    for number in range(5):
        trust.remember(tmp_path, "profile", number)
        entries = sorted((tmp_path / "npuperf" / "made").iterdir(), key=lambda e: e.stat().st_mtime_ns)
        for age, entry in enumerate(reversed(entries)):
            os.utime(entry, (1000 - age, 1000 - age))
    assert [trust.remembers(tmp_path, "profile", n) for n in range(5)] == [False, False, True, True, True]
    assert oct((tmp_path / "npuperf" / "made").stat().st_mode)[-3:] == "700"
