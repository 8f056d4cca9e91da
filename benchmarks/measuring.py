"""Commands measured against each other in turn, as child processes.

On a busy machine only what ran side by side can be compared, and CPU time more than wall time: every round runs all
commands, the next one in the opposite order, and a ratio is that of one round. What is shown is the median of the
rounds, from the least to the greatest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

SAMPLE_SECONDS = 0.02


@dataclass(frozen=True)
class Usage:
    """What a command took: CPU seconds of it and its children, wall seconds, peak memory of all of them in MB."""

    cpu: float
    wall: float
    peak: float

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.cpu + other.cpu, self.wall + other.wall, max(self.peak, other.peak))


@dataclass(frozen=True)
class Command:
    """A command line. ``one_core``: bound to a single one. ``before`` is called first, and not measured."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    one_core: bool = False
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Spread:
    """The median of some values, the least and the greatest."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise values."""
        return cls(median(values), min(values), max(values))


def in_turn(commands: Mapping[str, Command], rounds: int, *, ordered: bool = False) -> dict[str, list[Usage]]:
    """Run all commands in every round; return what each took, by round.

    ``ordered``: always in this order, because one leaves behind what the next one uses.
    """
    taken: dict[str, list[Usage]] = {name: [] for name in commands}
    for number in range(rounds):
        names = list(commands) if ordered or number % 2 == 0 else list(reversed(commands))
        for name in names:
            print(f"  round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
            taken[name].append(measure(commands[name]))
    return taken


def measure(command: Command) -> Usage:
    """Run one command. Raises SystemExit when it fails.

    This process stays small: what a child inherits counts as its own peak. Children start in no checkout's folder,
    because Python looks for modules there before it looks where it is told to.
    """
    command.before()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | command.environment
    with _on_cores(one=command.one_core):
        start = perf_counter()
        child = subprocess.Popen(
            command.arguments, env=environment, cwd=os.sep, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
    memory = _Memory(child.pid)
    assert child.stderr
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    wall = perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    if child.returncode:
        raise SystemExit(f"failed: {' '.join(command.arguments)}\n{said.decode(errors='replace')}")
    command.after()
    return Usage(used.ru_utime + used.ru_stime, wall, max(used.ru_maxrss / 1024, memory.peak()))


@contextmanager
def _on_cores(*, one: bool) -> Iterator[None]:
    """Start children on one of the cores, or on all: they inherit the cores of the thread that starts them."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(every)} if one else every)
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


class _Memory:
    """Watches a process and those that it starts, because the system tells only how large the largest one was.

    Files that they keep in memory are counted, too; what all of them map from disk, programs and libraries, once.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def peak(self) -> float:
        """Stop watching; return the peak in MB."""
        self._done.set()
        self._thread.join()
        return self._peak / 2**20

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            self._peak = max(self._peak, _memory_of([*_with_children(Path("/proc", str(self._pid)))]))


def _with_children(process: Path) -> Iterator[Path]:
    """Yield the folder of a process in /proc, and those of all below it, as far as they are still there."""
    yield process
    with suppress(OSError):
        for thread in (process / "task").iterdir():
            with suppress(OSError):
                for child in (thread / "children").read_text().split():
                    yield from _with_children(Path("/proc", child))


def _memory_of(processes: Sequence[Path]) -> int:
    """Return the bytes of memory that processes take together."""
    own, mapped = 0, [0]
    stored: dict[int, int] = {}
    for process in processes:
        with suppress(OSError):
            status = (process / "status").read_text()
            own += _kilobytes(status, "RssAnon")
            mapped.append(_kilobytes(status, "RssFile"))
            for file in (process / "fd").iterdir():
                if "memfd:" in str(file.readlink()):
                    found = file.stat()
                    stored[found.st_ino] = found.st_blocks * 512
    return (own + max(mapped)) * 1024 + sum(stored.values())


def _kilobytes(status: str, name: str) -> int:
    """Read a figure of a process's status, which it lacks when it has just ended."""
    found = re.search(rf"^{name}:\s*(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) if found else 0


def ratios(of: Sequence[Usage], against: Sequence[Usage], what: str) -> Spread:
    """Compare two commands round by round; ``what``: a field of Usage."""
    return Spread.of([getattr(a, what) / getattr(b, what) for a, b in zip(of, against, strict=True)])
