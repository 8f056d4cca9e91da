"""Attack the commands with damaged inputs, for as long as wanted: make fuzz N=5000 SEED=1 OUT=found.

Attempts have numbers, from SEED on, and each number is one attempt for ever: a run that was stopped goes on with the
number that it named last. Whatever fails is printed in one line with its name, and its input is kept below OUT.
CASE=torch_db/17 repeats one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import resource
import secrets
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

PATIENCE_S = 60
#: Attempts after which a worker is replaced, so that what one leaves in memory does not add up.
SHIFT = 300
MEMORY_BYTES = 8 << 30
ROOT = Path(__file__).resolve().parents[2]


def work(orders: Connection) -> None:
    """Make the attempts that are asked for, within bounds on memory and files."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 30, 2 << 30))
    from attempts import attempt

    orders.send("ready")
    while True:
        name, room = orders.recv()
        orders.send(attempt(name, room))


class Worker:
    """A process that makes attempts, replaced when it hangs (``patience`` in seconds), dies or has worked for long."""

    def __init__(self, room: Path, patience: float = PATIENCE_S) -> None:
        self.room, self.patience = room, patience
        self._begin()

    def _begin(self) -> None:
        self.made = 0
        self._orders, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def attempt(self, name: str) -> tuple[str, str | None, str]:
        """Make an attempt; return what was damaged, what failed, and details."""
        try:
            if self.made == 0:
                self._orders.recv()  # it has loaded the program
            self._orders.send((name, self.room))
            if self._orders.poll(self.patience):
                self.made += 1
                done = self._orders.recv()
                if self.made >= SHIFT:
                    self.replace()
                return done.damage, done.failure, done.detail
            failure = f"HANG for {self.patience} s"
        except (EOFError, OSError):
            self._process.join()
            failure = f"CRASH with {self._process.exitcode}"
        self.replace()
        return "?", failure, ""

    def replace(self) -> None:
        """Go on with a new process."""
        self.end()
        self._begin()

    def end(self) -> None:
        """End the process."""
        self._process.kill()  # maybe it hangs
        self._process.join()
        self._orders.close()


def name_of(number: int, kinds: list[str]) -> str:
    """Return the attempt that a number stands for."""
    from bases import KINDS

    return f"{Random(number).choices(kinds, [KINDS[kind].weight for kind in kinds])[0]}/{number}"


def keep(out: Path, room: Path, name: str, text: str) -> Path:
    """Keep the input of a failure, and what was said of it."""
    place = out / name.replace("/", "_")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "what.txt").write_text(text, errors="backslashreplace")
    if (room / "input").exists():
        (room / "input").rename(place / "input") if room.stat().st_dev == place.stat().st_dev else shutil.copytree(
            room / "input", place / "input", symlinks=True, ignore=special
        )
    return place


def special(folder: str, names: list[str]) -> list[str]:
    """Leave out pipes, sockets and devices: they cannot be copied."""
    paths = [Path(folder) / name for name in names]
    return [p.name for p in paths if not (p.is_symlink() or p.is_dir() or p.is_file())]


class Attack:
    """Attempts by several workers, until there are none left or time is up."""

    def __init__(self, names: Iterator[str], out: Path, until: float) -> None:
        self.names, self.out, self.until = names, out, until
        self.found: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.made = 0
        self.last = ""
        self._lock = threading.Lock()

    def keep_on(self, room: Path) -> None:
        """Let one worker make attempts."""
        worker = Worker(room)
        while time.monotonic() < self.until:
            with self._lock:
                name = next(self.names, None)
                self.last = name or self.last
            if name is None:
                break
            damage, failure, detail = worker.attempt(name)
            with self._lock:
                self.made += 1
                if failure is not None:
                    self._note(name, damage, failure, detail, room)
        worker.end()

    def _note(self, name: str, damage: str, failure: str, detail: str, room: Path) -> None:
        sort = re.sub(r"\d+", "#", f"{name.partition('/')[0]} {failure}"[:140])
        self.found[sort] += 1
        self.first.setdefault(sort, name)
        print(f"FAIL {name}: {printable(failure)} ({printable(damage)[:150]})", flush=True)
        if self.found[sort] <= 3:
            keep(self.out, room, name, f"{damage}\n{failure}\n{detail}")

    def report(self) -> None:
        """Say what was found, each sort once."""
        for sort, count in self.found.most_common():
            print(f"{count:6d} × {printable(sort)}, first: CASE={self.first[sort]}")
        print(f"{self.made} attempts, {sum(self.found.values())} failures; the last was {self.last}")


def printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def main() -> int:
    """Read options, attack, report; the status tells whether anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--out", type=Path, default=Path("fuzz-found"))
    parser.add_argument("--kinds", default="")
    parser.add_argument("--case")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    from bases import KINDS

    seed = secrets.randbelow(10**9) if given.seed is None else given.seed
    kinds = [kind for kind in given.kinds.split(",") if kind] or list(KINDS)
    names = iter([given.case]) if given.case else (name_of(seed + i, kinds) for i in range(given.count))
    print(f"SEED={seed}" if not given.case else given.case, flush=True)
    attack = Attack(names, given.out.resolve(), time.monotonic() + given.minutes * 60)
    with TemporaryDirectory(prefix="fuzz-") as folder:
        rooms = [Path(folder) / str(i) for i in range(1 if given.case else given.workers)]
        threads = [threading.Thread(target=attack.keep_on, args=(room,)) for room in rooms]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    attack.report()
    return 1 if attack.found else 0


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "tune"), str(ROOT / "tests" / "show")]
    sys.exit(main())
