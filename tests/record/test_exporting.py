"""Exporting with a made-up msprof: half exports, time limits, words, full disks, and two at a time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from conftest import until

from npuperf.base.errors import InputError
from npuperf.base.messages import Message
from npuperf.base.process import Printed
from npuperf.model.recorded import Recorded
from npuperf.record import export as exporting
from npuperf.record.export import without_steering
from npuperf.record.folder import RunFolder, broken_off, create
from npuperf.record.request import ProfileRequest
from npuperf.record.run import run

ROOT = Path(__file__).resolve().parents[2]
#: Ten kernels, 1 µs each, 2 µs apart.
TABLE = "Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Stream ID\n"
TABLE += "".join(f"k{i},Add,AI_VECTOR_CORE,{1000 + 2 * i}.000,1.000,1\n" for i in range(10))
#: An msprof: the words and the behaviour are put in; --output names the PROF folder.
MSPROF = f"""#!{sys.executable} -IS
import sys, time, os
from pathlib import Path
if "--help" in sys.argv: sys.exit(print("usage"))
raw = Path(next(w for w in sys.argv if w.startswith("--output=")).partition("=")[2])
table = raw / "mindstudio_profiler_output" / "op_summary_20260101000000.csv"
TEXT = {TABLE!r}
def write(text=TEXT):
    table.parent.mkdir(exist_ok=True)
    table.write_text(text)
"""


class Place:
    """A run directory with raw data of msprof, and an msprof that does what a test says."""

    def __init__(self, root: Path) -> None:
        self.root, self.said = root, list[str]()
        folder, _ = create(root / "result", force=False)
        folder.manifest.write_text('{"command": ["true"]}')
        folder.lock.release()
        self.folder = RunFolder(folder.path)
        self.raw = self.folder.raw / "PROF_000001_20260101000000000_ABC"
        (self.raw / "device_0").mkdir(parents=True)
        (root / "bin").mkdir()
        self.environment = {**os.environ, "PATH": f"{root / 'bin'}{os.pathsep}/usr/bin:/bin", "PYTHONPATH": str(ROOT)}

    def msprof(self, code: str) -> None:
        tool = self.root / "bin" / "msprof"
        tool.write_text(MSPROF + code)
        tool.chmod(0o755)

    @property
    def table(self) -> Path:
        return self.raw / "mindstudio_profiler_output" / "op_summary_20260101000000.csv"

    def export(self, timeout: float | None = None, tell: Callable[[str], object] = id) -> Recorded:
        """Export, for as many minutes at most; ``tell`` is told what is said meanwhile."""

        def hear(message: Message) -> None:
            self.said.append(str(message))
            tell(self.said[-1])

        found = run(ProfileRequest(source=self.folder.path, export_timeout=timeout), self.environment, hear).document
        assert isinstance(found, Recorded)
        return found

    def start(self, *more: str) -> subprocess.Popen[str]:
        """The same from a shell."""
        call = [sys.executable, "-m", "npuperf", "profile", "--export", "result", *more]
        return subprocess.Popen(
            call, cwd=self.root, env=self.environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)


def test_what_was_exported_is_proven_and_left_alone(place: Place) -> None:
    place.msprof("write()")
    first = place.export()
    assert first.exit_code == 0 and first.proofs[0].kernels == 10
    place.msprof("sys.exit('never called')")
    assert place.export().exit_code == 0
    assert not list(place.folder.exporting.iterdir()) and broken_off(place.folder) == []


def test_without_msprof_it_is_said_where_it_is_looked_for(place: Place) -> None:
    found = place.export()
    assert found.exit_code == 5 and found.problem is not None
    assert "msprof" in str(found.problem.what) and "run: " in str(found.problem.what)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, ("msprof_*.db",)),
        ({"export": "text", "given": ("export",)}, ("mindstudio_profiler_output/op_summary*.csv",)),
    ],
)
def test_what_was_recorded_for_is_made_unless_asked_otherwise(
    place: Place, asked: dict[str, Any], wanted: tuple[str, ...]
) -> None:
    info = '{"config": {"experimental_config": {"_export_type": ["db"]}}}'
    (place.raw / "profiler_info_0.json").write_text(info)
    found = run(ProfileRequest(source=place.folder.path, **asked), place.environment, print).document
    assert isinstance(found, Recorded) and [e.missing for e in found.exports] == [wanted]


def test_without_a_driver_the_exporter_beside_msprof_is_used_and_that_is_said(place: Place) -> None:
    place.msprof("")
    (place.root / "bin" / "msprof").write_text("#!/bin/sh\necho Init platform by driver failed; exit 1\n")
    script = place.root / "profiler_tool" / "analysis" / "msprof" / "msprof.py"
    script.parent.mkdir(parents=True)
    script.write_text("import sys\nsys.argv.append('--output=' + sys.argv[-1])\n" + MSPROF + "write()")
    found = place.export()
    assert found.proofs[0].kernels == 10
    assert [str(line) for line in found.warnings] == [
        f"{place.root}/bin/msprof finds no driver: {script} is used instead"
    ]


# ---- words ----


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link", "textlink"),
        ("\x1b[2J\x1b[1;1Hhome\x1b[?25l", "home"),
        ("10 %\r20 %\r\nend\n", "10 %\n20 %\nend\n"),
        ("bell\x07 null\x00 del\x7f csi\x9b1m tab\t", "bell null del csi1m tab\t"),
        ("µs – 算子 \x1b(B", "µs – 算子 "),
        ("cut \x1b[3", "cut "),
    ],
)
def test_no_output_steers_a_terminal(raw: str, plain: str) -> None:
    assert without_steering(raw) == plain


def test_the_words_of_an_exporter_that_fails_are_plain(place: Place) -> None:
    place.msprof(r"print('\x1b[31m[ERROR] no \x1b]0;pwned\x07such table\x1b[0m'); write(''); sys.exit(3)")
    found = place.export()
    assert found.exit_code == 5 and found.problem is not None
    words = str(found.problem.what)
    assert "[ERROR] no such table" in words and "exit status 3" in words
    assert "1 file is left in mindstudio_profiler_output, unfinished" in words
    assert "\x1b" not in words and "\x1b" not in place.folder.export_log.read_text()


# ---- time ----


def test_an_exporter_that_hangs_is_ended_and_its_files_do_not_count(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had written a table that looks whole; the clock goes on an hour when it has."""
    place.msprof("write(); (raw / 'pid').write_text(str(os.getpid())); time.sleep(600)")
    pid = place.raw / "pid"

    def now() -> float:
        return time.monotonic() + 3600 * (pid.exists() and pid.read_text() != "")

    monkeypatch.setattr("npuperf.base.process.time", SimpleNamespace(monotonic=now, sleep=time.sleep))
    found = place.export(timeout=10)
    assert found.exit_code == 5 and found.problem is not None
    assert "it took longer than 10 min and was ended; --export-timeout gives it more" in str(found.problem.what)
    assert not psutil.pid_exists(int(pid.read_text()))
    assert len(broken_off(place.folder)) == 1
    place.msprof("write()")
    assert place.export().exit_code == 0 and broken_off(place.folder) == []


def test_a_long_export_gives_signs_of_life(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "_BEAT", 0.2)
    monkeypatch.setattr("npuperf.base.process._LOOK", 0.1)
    heard = place.root / "heard"
    place.msprof(f"while not os.path.exists({str(heard)!r}): time.sleep(0.01)\nwrite()")
    assert place.export(timeout=2, tell=lambda _: heard.touch()).exit_code == 0
    assert place.said and all(f"exporting {place.raw.name}: " in line and " s so far, " in line for line in place.said)


# ---- what dies ----


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_export_that_is_interrupted_leaves_nothing_behind_and_is_made_anew(place: Place, number: int) -> None:
    """The half table looks whole; the exporter, which nobody waits for any more, is gone all the same."""
    place.msprof("write(TEXT[:TEXT.index('k3')]); (raw / 'pid').write_text(str(os.getpid())); time.sleep(600)")
    child = place.start()
    until(lambda: (place.raw / "pid").is_file() and (place.raw / "pid").read_text())
    exporter = int((place.raw / "pid").read_text())
    os.kill(child.pid, number)
    _, err = child.communicate()
    assert child.returncode == (-9 if number == signal.SIGKILL else 130), err
    assert "Traceback" not in err
    until(lambda: not psutil.pid_exists(exporter))
    until(lambda: not place.folder.in_use)
    assert [str(line) for line in broken_off(place.folder)] == [
        "result: an export broke off, so its files may be incomplete; npuperf profile --export result exports anew"
    ]
    place.msprof("write()")
    assert place.export().proofs[0].kernels == 10


def test_a_run_is_not_free_before_a_killed_export_s_tools_are_gone(place: Place) -> None:
    """Two exporters of the same folder would write into each other's files."""
    slow = "import signal; signal.signal(signal.SIGTERM, lambda *_: (raw / 'asked').touch())\n"
    place.msprof(slow + "(raw / 'begun').touch()\nwhile not (raw / 'go').exists(): time.sleep(0.05)")
    child = place.start()
    until(lambda: (place.raw / "begun").exists())
    child.kill()
    child.communicate()
    until(lambda: (place.raw / "asked").exists())
    assert place.folder.in_use
    (place.raw / "go").touch()
    until(lambda: not place.folder.in_use)


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A folder that looks as if exporting might clear and write it."""
    folder = tmp_path / "precious" / "PROF_000001_20260101000000000_ABC"
    (folder / "mindstudio_profiler_output").mkdir(parents=True)
    for name in ("mindstudio_profiler_output/file", "msprof_1.db", "file"):
        (folder / name).write_text("mine")
    return folder


def state_of(folder: Path) -> dict[str, str | None]:
    found = sorted(folder.parent.rglob("*"))
    return {str(path): path.read_text() if path.is_file() else None for path in found}


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("raw", ".."),
        ("raw/PROF_000001_20260101000000000_ABC", "."),
        ("raw/PROF_000001_20260101000000000_ABC/mindstudio_profiler_output", "."),
        ("raw/PROF_000001_20260101000000000_ABC/device_0", "."),
        ("export.log", "file"),
        ("export.log", "new"),
        (".profile", "."),
        (".profile/export-lock", "file"),
        (".profile/exporting", "."),
        ("npuperf.json", "file"),
    ],
)
def test_an_export_leaves_what_is_behind_links_of_a_run_alone(place: Place, precious: Path, name: str, to: str) -> None:
    """A run directory may come from a stranger: exporting cleared, emptied and wrote what its links led to."""
    place.msprof("write()")
    half = place.folder.exporting / place.raw.name  # an export broke off, so what there is of it would be cleared
    half.parent.mkdir()
    half.touch()
    link = place.folder.path / name
    if link.is_dir():
        shutil.rmtree(link)
    else:
        link.unlink(missing_ok=True)
    link.symlink_to(precious / to)
    before = state_of(precious)
    with pytest.raises(InputError, match="leads out of") as caught:
        place.export()
    assert f"{name}: " in str(caught.value)
    assert state_of(precious) == before


def test_an_export_waits_for_no_pipe(place: Place) -> None:
    os.mkfifo(place.folder.export_log)
    with pytest.raises(InputError, match="neither a file nor a folder"):
        place.export()


def test_a_link_within_a_run_is_no_harm(place: Place) -> None:
    place.msprof("write()")
    (place.raw / "device_1").symlink_to("device_0")
    place.folder.path.rename(place.root / "elsewhere")
    place.folder.path.symlink_to("elsewhere")  # and so is one that the user names
    assert place.export().problem is None


def test_raw_data_with_links_is_not_exported_in_a_copy(place: Place, precious: Path) -> None:
    """The copy's links would lead exporters to the original, or further."""
    place.msprof("write()")
    for target in (precious, place.raw / "device_0"):
        (place.raw / "device_1").symlink_to(target)
        with pytest.raises(InputError, match="device_1: leads out of"):
            run(ProfileRequest(source=place.raw, output=place.root / "copy"), place.environment, print)
        (place.raw / "device_1").unlink()
    assert not place.table.exists()


def test_two_exports_of_one_run_take_turns(place: Place) -> None:
    place.msprof(
        "print(time.time()); (raw / 'begun').touch()\nwhile not (raw / 'go').exists(): time.sleep(0.05)\nwrite()"
    )
    first = place.start()
    until(lambda: (place.raw / "begun").exists())
    second = place.start()
    assert second.stderr is not None
    line = second.stderr.readline()
    assert f"process {first.pid} exports it already: waiting for that" in line
    (place.raw / "go").touch()
    outs = [child.communicate()[1] for child in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outs
    assert place.folder.export_log.read_text().count("====") == 1


# ---- full disks ----


@pytest.fixture
def small(place: Place) -> Iterator[Path]:
    """A folder on a disk of its own, of 256 KiB."""
    disk = place.root / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("needs to mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_program_that_fills_the_disk_keeps_its_status(place: Place, small: Path) -> None:
    """Its manifest says "running" for ever; those who read it know better. A rerun works when there is room."""
    program = small / "fills.sh"
    program.write_text("#!/bin/sh\nmkdir -p result/raw/PROF_1_1_A\ncat /dev/zero > ballast 2>/dev/null\nexit 7\n")
    program.chmod(0o755)
    place.msprof("write()")
    call = [sys.executable, "-m", "npuperf", "profile", "--", "./fills.sh"]
    done = subprocess.run(call, cwd=small, env=place.environment, capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert "internal error" not in done.stderr and "Traceback" not in done.stderr
    assert "warning: the run's record is incomplete: " in done.stderr and "No space left on device" in done.stderr
    folder = RunFolder(small / "result")
    assert "was interrupted" in str(broken_off(folder)[0])
    (small / "ballast").unlink()
    again = subprocess.run(
        [*call[:4], "--export", "result"], cwd=small, env=place.environment, capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr
    assert '"interrupted"' in folder.manifest.read_text() and broken_off(folder) == []


def test_a_full_disk_before_the_start_is_said(place: Place, small: Path) -> None:
    with pytest.raises(OSError, match="No space"), (small / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    call = [sys.executable, "-m", "npuperf", "profile", "--", "true"]
    done = subprocess.run(call, cwd=small, env=place.environment, capture_output=True, text=True)
    assert done.returncode == 3 and "No space left on device" in done.stderr, done.stderr
    assert "internal error" not in done.stderr


IN_A_FORK = """
import os, signal, sys
from npuperf.base.process import guarded, run_quietly
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
with guarded(()):
    try:
        run_quietly([sys.executable, "-c", "import time; time.sleep(600)"])
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_a_signal_while_a_tool_is_being_started_is_not_lost() -> None:
    """Python swallows what is raised in its own hooks around a fork."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FORK], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_the_status_below_msprof_outlives_a_disk_that_the_program_fills(small: Path) -> None:
    relay = [sys.executable, "-I", str(ROOT / "npuperf" / "record" / "agent" / "relay.py"), str(small / "exit-status")]
    fill = "cat /dev/zero > $0/all; echo x > $0/more && exit 3; exit 7"
    done = subprocess.run([*relay, "sh", "-c", fill, str(small)], capture_output=True, check=False)
    assert done.returncode == 0
    assert int((small / "exit-status").read_text()) == 7


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ("begun\nERROR: no device\nended", 0, ["ERROR: no device"]),
        ("begun\nended", 0, ["begun", "ended"]),
        ("", 3, ["exit status 3"]),
        ("", 0, ["it printed nothing, and its exit status was 0"]),
    ],
)
def test_of_what_a_helper_said_its_errors_go_before_its_last_words(text: str, status: int, told: list[str]) -> None:
    assert [str(line) for line in exporting._words([Printed(status, text)])] == told
