"""Terminals, encodings and places as they should not be: the exit status is right, and what is said can be read."""

from __future__ import annotations

import codecs
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from conftest import ROOT, run_cli

from npuperf.cli.crash import keep_report
from npuperf.cli.streams import draws_blocks, opens_links, outlast_readers, terminal_width

SAMPLE = ROOT / "samples" / "transformer_ascend_pt"
NPUPERF = [sys.executable, "-m", "npuperf"]


def started(*arguments: object, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [*NPUPERF, *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, check=False, timeout=300)


@pytest.mark.parametrize("columns", ["0", "1", "-5", "wide", "9" * 30, "9" * 5000, "²"])
def test_a_width_that_is_none_is_not_believed(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    outlast_readers()
    assert terminal_width() == 80


@pytest.mark.parametrize("columns", ["20", "132", "1000"])
def test_a_width_that_is_one_is(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    outlast_readers()
    assert terminal_width() == int(columns)


@pytest.mark.parametrize(
    ("encoding", "median"),
    [("ascii", "1.5 us - 2 us -> x"), ("gbk", "1.5 us – 2 us → ×"), ("utf-8", "1.5 µs – 2 µs → ×")],
)
def test_what_an_encoding_lacks_is_written_in_plain_letters(encoding: str, median: str) -> None:
    outlast_readers()
    written = codecs.encode("1.5 µs – 2 µs → ×", encoding, "npuperf-plain")
    assert written.decode(encoding) == median


def test_a_report_in_ascii_can_be_read() -> None:
    plain, ascii_ = started("analyze", SAMPLE), started("analyze", SAMPLE, PYTHONIOENCODING="ascii", COLUMNS="0")
    assert (plain.returncode, ascii_.returncode) == (0, 0)
    written, meant = ascii_.stdout.decode("ascii"), plain.stdout.decode()
    assert written.count("?") == meant.count("?")
    assert written.count("|") >= meant.count("·") > 0


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    script = 'mkdir "$0" && cd "$0" && rmdir "$0" && exec "$@"'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for arguments, status in ((["profile", "--dry-run", "--", "true"], 3), (["analyze", str(SAMPLE)], 0)):
        command = ["sh", "-c", script, str(gone), *NPUPERF, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == status, done.stderr
        assert ("the current folder does not exist any more" in done.stderr) == bool(status)


@pytest.mark.parametrize("moment", [0.1, 0.25])
@pytest.mark.parametrize(("signal_", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_stopped_at_once_it_shows_no_stack(signal_: int, status: int, moment: float) -> None:
    process = subprocess.Popen(
        [*NPUPERF, "analyze", str(SAMPLE)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _wait_for_python(process)
    time.sleep(moment)
    process.send_signal(signal_)
    _, said = process.communicate(timeout=300)
    assert process.returncode in (status, 0) and b"Traceback" not in said  # 0: it was done


def _wait_for_python(process: subprocess.Popen[bytes]) -> None:
    """Wait until Python itself has begun, or the command is done: before that it shows a stack of its own."""
    while process.poll() is None and "lib-dynload" not in Path(f"/proc/{process.pid}/maps").read_text():
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["analyze", ""], "PATH '': a path is wanted"),
        (["analyze", "x" * 5000], "PATH 'xxxxxxxxxxxx...xxxxxxxxxxxxx': File name too long"),
        (["analyze", ".", "-o", "x" * 300], "-o 'xxxxxxxxxxxx...xxxxxxxxxxxxx': File name too long"),
        (
            ["analyze", ".", "--baseline-dir", "x" * 300, "--save-baseline", "main"],
            "--baseline-dir 'xxxxxxxxxxxx...xxxxxxxxxxxxx': File name",
        ),
        (["analyze", "--top", "x"], "--top 'x': a whole number of at least 1 is wanted"),
        (["analyze", "--top", "0"], "--top '0': a whole number of at least 1 is wanted"),
        (["tune", "--parallel", "33"], "--parallel '33': a whole number from 1 to 32 is wanted"),
        (["tune", "--timeout", "soon"], "--timeout 'soon': a number of at least 0 is wanted"),
        (["analyze", "--tabel", "x"], "--tabel: no such option\n  next: did you mean --table?"),
        (["analyze", "--top"], "--top: its value is missing\n  next: --help lists"),
        (["analyse", "x"], "analyse: no such command\n  next: did you mean analyze? known: profile, analyze, tune"),
    ],
)
def test_what_is_wrong_with_an_option_is_in_our_words(arguments: list[str], said: str) -> None:
    done = run_cli(arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"npuperf: {said}" in done.stderr


def test_an_internal_error_is_kept_without_anything_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    secret = "customer-model"

    def fail() -> None:
        raise KeyError(secret)

    monkeypatch.setattr("npuperf.analyze.run.Analysis.run", lambda *_: fail())
    done = run_cli(["analyze", str(SAMPLE), "--top", "3"])
    (file,) = (tmp_path / "npuperf" / "errors").iterdir()
    report = file.read_text()
    assert done.returncode == 70 and str(file) in done.stderr.replace("\n  ", "")
    assert "KeyError" in report and "test_odd_terminals.py" in report and "npuperf/cli/__init__.py:" in report
    assert "analyze … --top …" in report and f"\nmsgspec {msgspec.__version__}\n" in report
    assert secret not in report and str(SAMPLE) not in report and str(ROOT) not in report
    assert file.stat().st_mode & 0o777 == 0o600


def test_reports_of_errors_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "npuperf" / "errors"
    folder.mkdir(parents=True)
    for day in range(10, 30):
        (folder / f"202001{day}T000000-1.txt").write_text("old")
    kept = keep_report(ValueError("x"), ["analyze"])
    assert kept is not None
    assert sorted(file.name for file in folder.iterdir()) == [f"202001{d}T000000-1.txt" for d in range(21, 30)] + [
        kept.name
    ]


def test_a_report_that_cannot_be_kept_is_no_second_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "npuperf").write_text("a file where a folder is wanted")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert keep_report(ValueError("x"), []) is None


@pytest.mark.parametrize(
    ("variables", "opens"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True),  # a link has no colour
        ({"TERM": "xterm-256color", "VTE_VERSION": "6003"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "5000"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "x"}, False),
        ({"TERM": "xterm-256color", "INSIDE_EMACS": "29.1,comint"}, False),
        ({"TERM": "xterm-256color", "FORCE_HYPERLINK": "0"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "FORCE_HYPERLINK": "1"}, True),
        ({"TERM": "linux"}, False),
        ({"TERM": "screen.xterm-256color"}, False),
        ({"TERM": "screen-256color", "TMUX": "/tmp/tmux-0/default,1,0"}, True),
        ({}, False),
    ],
)
def test_links_are_for_terminals_that_open_them(
    variables: dict[str, str], opens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR", "VTE_VERSION", "INSIDE_EMACS", "FORCE_HYPERLINK", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", FakeTerminal("utf-8", tty=True))
    assert opens_links() == opens
    monkeypatch.setattr(sys, "stdout", FakeTerminal("utf-8", tty=False))
    assert not opens_links()  # whatever is asked for: what reads a pipe or a file opens nothing


@pytest.mark.parametrize(
    ("encoding", "term", "tty", "draws"),
    [
        ("utf-8", "xterm", True, True),
        ("UTF-8", "dumb", True, False),
        ("utf-8", "dumb", False, True),  # a file, read who knows where
        ("ascii", "xterm", True, False),
        ("latin-1", "xterm", True, False),
        ("gbk", "xterm", True, False),  # it has blocks, two columns wide
        (None, "xterm", False, True),
    ],
)
def test_blocks_are_for_terminals_that_have_them(
    encoding: str | None, term: str, tty: bool, draws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stdout", FakeTerminal(encoding, tty=tty))
    assert draws_blocks() == draws


class FakeTerminal:
    """As much of a stream as tells what it can show."""

    def __init__(self, encoding: str | None, *, tty: bool) -> None:
        self.encoding = encoding
        self.isatty = lambda: tty
