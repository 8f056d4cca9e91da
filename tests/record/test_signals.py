"""Signals that are not for npuperf: those that are ignored stay so, those of schedulers reach the program, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
    end = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def outcome(folder: Path, process: subprocess.Popen[str]) -> tuple[list[str], int]:
    """What the program printed, and the status of what was started, as a shell has it."""
    (folder / "enough").touch()
    output, _ = process.communicate(timeout=60)
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


def test_a_program_that_does_not_listen_dies_of_it_as_it_would_alone(tmp_path: Path) -> None:
    ended = []
    for profiled in (False, True):
        folder = tmp_path / str(profiled)
        folder.mkdir()
        with started(folder, profiled=profiled) as process:
            process.send_signal(signal.SIGUSR1)
            process.wait(100)
            ended.append(outcome(folder, process))
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
