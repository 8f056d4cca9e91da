"""Signals that are not for npuperf: those that are ignored stay so, those of schedulers reach the program, once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from npuperf.record.agent import exits
from npuperf.record.agent.exits import undisturbed
from npuperf.record.agent.standby import InMain
from npuperf.record.folder import RunFolder

#: Lists what it gets, and ends by itself when it is told to by a file.
PROGRAM = """
import pathlib, signal, sys, time
def note(number, _):
    print(signal.Signals(number).name, flush=True)
    pathlib.Path(sys.argv[1], "noted").touch()
for name in sys.argv[2:]:
    signal.signal(getattr(signal, name), note)
print(*("ignored" if signal.getsignal(n) is signal.SIG_IGN else "heard"
        for n in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)), flush=True)
pathlib.Path(sys.argv[1], "there").touch()
while not pathlib.Path(sys.argv[1], "enough").exists():
    time.sleep(0.01)
"""


@contextmanager
def started(
    folder: Path, *words: str, profiled: bool, ignored: tuple[int, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """The program by itself, or under ``npuperf profile``; signals that are ignored are when it starts."""
    script = folder / "program.py"
    script.write_text(PROGRAM)
    command = [sys.executable, str(script), str(folder), *words]
    if profiled:
        command = [sys.executable, "-m", "npuperf", "profile", "--output", str(folder / "result"), "--", *command]

    def ignore() -> None:
        for name in (*words, "SIGHUP", "SIGTERM", "SIGINT"):  # a script's background ignores some
            number = getattr(signal, name)
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=ignore,
                          start_new_session=True) as process:  # fmt: skip
        try:
            wait_for(folder / "there")
            yield process
        finally:
            (folder / "enough").touch()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for(file: Path) -> None:
    end = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def outcome(folder: Path, process: subprocess.Popen[str]) -> tuple[list[str], int]:
    """What the program printed, and the status of what was started, as a shell has it."""
    (folder / "enough").touch()
    output, _ = process.communicate(timeout=300)
    known = [line for line in output.splitlines() if line.startswith(("ignored", "heard", "SIG"))]
    return known, process.returncode if process.returncode >= 0 else 128 - process.returncode


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGXCPU", "SIGRTMIN"])
def test_a_schedulers_signal_reaches_the_program_once(tmp_path: Path, name: str) -> None:
    with started(tmp_path, name, profiled=True) as process:
        process.send_signal(getattr(signal, name))
        wait_for(tmp_path / "noted")
        time.sleep(0.3)  # for a second one
        lines, status = outcome(tmp_path, process)
    assert lines == ["heard heard heard", name]
    assert status in (0, 3)  # nothing was recorded of a program without torch


def ends_of(number: signal.Signals, tmp_path: Path) -> list[tuple[list[str], int]]:
    """Send a signal to the program without npuperf, and to npuperf that runs it; return how each ended."""
    ended = []
    for profiled in (False, True):
        folder = tmp_path / str(profiled)
        folder.mkdir()
        with started(folder, profiled=profiled) as process:
            process.send_signal(number)
            process.wait(100)
            ended.append(outcome(folder, process))
    return ended


def test_a_program_that_does_not_listen_dies_of_it_as_it_would_alone(tmp_path: Path) -> None:
    ended = ends_of(signal.SIGUSR1, tmp_path)
    assert ended[0] == ended[1] == (["heard heard heard"], 128 + signal.SIGUSR1)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_what_is_ignored_stays_so(tmp_path: Path, number: signal.Signals) -> None:
    """As after nohup, or ``trap '' INT``: neither npuperf nor the program takes notice."""
    ended = []
    for profiled in (False, True):
        folder = tmp_path / str(profiled)
        folder.mkdir()
        with started(folder, profiled=profiled, ignored=(number,)) as process:
            os.killpg(process.pid, number)  # as a terminal that is closed does
            process.send_signal(number)
            time.sleep(0.3)
            assert process.poll() is None
            ended.append(outcome(folder, process))
    assert ended[0][0] == ended[1][0] and "ignored" in ended[0][0][0]
    assert ended[0][1] == 0 and ended[1][1] in (0, 3)


#: Says that it is being recorded, as the agent does, and never that it is saved.
BUSY = """
import json, os, pathlib, sys, time
status = pathlib.Path(json.loads(pathlib.Path(os.environ["NPUPERF_PLAN"]).read_text())["status"])
(status / "h_1.json").write_text(json.dumps({"state": "recording", "pid": os.getpid(), "host": "h", "recorded": [11]}))
pathlib.Path(sys.argv[1], "there").touch()
time.sleep(600)
"""


@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_waits_for_the_recording_but_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A program that takes no step in seconds gets it all the same; a second one goes through at once."""
    monkeypatch.setitem(globals(), "PROGRAM", BUSY)
    with started(tmp_path, profiled=True) as process:
        began = time.monotonic()
        for number in (signal.SIGTERM, signal.SIGHUP)[:times]:
            process.send_signal(number)
            if number == signal.SIGTERM:
                wait_for(RunFolder(tmp_path / "result").stop)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(120) == 143
        assert times == 2 or time.monotonic() - began >= 5
    assert "SIGTERM ended the program while pid" in said
    assert json.loads(RunFolder(tmp_path / "result").manifest.read_text())["stages"]["run"]["exit_status"] == 143


#: Runs a program as npuperf does, held up by the machine until it is signalled, before it has heard that it runs.
EARLY = """
import os, signal, subprocess, sys
from npuperf.base.process import run_attached
class Early(subprocess.Popen):
    def __init__(self, *words, **named):
        super().__init__(*words, **named)
        os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen, asked = Early, []
def saving(number):
    asked.append(number)
    return len(asked) < 3
ended = run_attached([sys.executable, "-c", "import time; time.sleep(600)"], os.environ, lambda: False, saving=saving)
print(*asked, ended.status, ended.signal)
"""


def test_a_signal_that_comes_as_the_program_starts_waits_as_well() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["15", "15", "15", "143", "15"], done.stderr


#: A server that tells its engine to end, which it would not hear if it were gone by then.
SERVER = """
import pathlib, signal, subprocess, sys, time
engine = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read(); print('SIGs none')"], stdin=-1)
def end(number, _):
    time.sleep(0.3)
    engine.stdin.close()
    sys.exit(engine.wait())
signal.signal(signal.SIGTERM, end)
print("heard", flush=True)
pathlib.Path(sys.argv[1], "there").touch()
while True:
    time.sleep(0.01)
"""


def test_a_server_ends_its_engine_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who signals npuperf alone signals the program alone; a shell's child, which hears nothing, is ended after it."""
    monkeypatch.setitem(globals(), "PROGRAM", SERVER)
    ended = ends_of(signal.SIGTERM, tmp_path)
    assert ended[0] == (["heard", "SIGs none"], 0)
    assert ended[1] == (["heard", "SIGs none"], 3)  # nothing was recorded of a program without torch


def test_handlers_of_the_program_wait_for_the_profiler() -> None:
    """All of them are called afterwards, once, though one raises; what has none is not touched."""
    called: list[str] = []

    def note(number: int, _: object) -> None:
        called.append(signal.Signals(number).name)
        if number == signal.SIGALRM:
            raise TimeoutError

    numbers = (signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        with pytest.raises(TimeoutError), undisturbed(lambda: called.append("then"), caught=False):
            assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
            for number in (*numbers, signal.SIGTERM):
                os.kill(os.getpid(), number)
            called.append("inside")
        assert all(signal.getsignal(number) is note for number in numbers)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert called == ["inside", "then", "SIGALRM", "SIGTERM", "SIGUSR1"]


def test_who_signals_again_after_a_while_is_heard_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exits, "_HELD", -1.0)  # a while has always passed
    called: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: called.append("heard"))
    try:
        with undisturbed(lambda: called.append("then"), caught=False):
            for said in ("once", "again"):
                os.kill(os.getpid(), signal.SIGUSR1)
                called.append(said)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert called == ["once", "heard", "again", "then", "heard"]


def test_a_handler_that_raises_reaches_a_program_that_makes_no_steps() -> None:
    """The profiler is started between two bytecodes then, in a call of Python that keeps what is raised."""

    def start() -> None:
        with undisturbed(lambda: None, caught=True):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    asked = InMain(start, None)
    try:
        with pytest.raises(KeyboardInterrupt):
            asked.ask()
            for _ in range(1000):
                time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)
