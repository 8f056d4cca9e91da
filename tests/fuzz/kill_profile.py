"""Kill recording and exporting at random moments: only the program goes on, no row is lost, and a rerun works.

    python tests/fuzz/kill_profile.py [--moments 50] [--seed N]

Each moment is a run of a program that only pretends (tests/record/pretended.py), once while it is recorded, once while
what it recorded is exported, and a SIGKILL, SIGTERM or SIGINT to npuperf after a random time. A SIGKILL must not reach
the program: it stops recording and holds its run until it ends. Afterwards every row that it had recorded is exported
by ``npuperf profile --export``, and the same command works once more. Every failure is a line with the number that
repeats it; the exit status is 1 if there was one.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "record")]

from conftest import until  # noqa: E402
from moments import try_moments  # noqa: E402
from pretended import LEFT, ROWS, Pretended  # noqa: E402 - they lie beside this file's folder

from npuperf.record.folder import RunFolder  # noqa: E402
from npuperf.record.manifest import BUSY, read_all  # noqa: E402

_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
#: When the signal comes at the latest, s after npuperf's start, or after its run directory is there.
_LATEST = 2.5
#: How many of all signals come after the directory is there.
_BEGUN = 0.8
_TIMEOUT = 120
#: A traceback of ours; the agent is imported by the program, whose start may be interrupted.
_OURS = re.compile(r'internal error|File ".*/npuperf/(?!agent/)')


def killed_once(seed: int, seen: Counter[str]) -> Iterator[str]:
    """Kill a recording, and an export; yield what went wrong."""
    for what in (recording_killed, exporting_killed):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            place, chance = Pretended(Path(folder)), random.Random(seed)
            for fault in (*what(place, chance, seen), *afterwards(place)):
                yield f"{what.__name__}: {fault}"


def recording_killed(place: Pretended, chance: random.Random, seen: Counter[str]) -> Iterator[str]:
    """Kill npuperf while it makes a run: before its program, beside it, or after it."""
    child = place.record(after=chance.choice([0.0, 1.0, 600.0]))
    yield from killed(place, child, chance, seen)
    folder = RunFolder(place.root / "result")
    if not (rows := place.rows(folder)):
        seen["nothing recorded"] += 1
        return
    seen["whole" if len(rows) == ROWS else "cut"] += 1
    yield from exported(place, folder, rows)


def exporting_killed(place: Pretended, chance: random.Random, seen: Counter[str]) -> Iterator[str]:
    """Kill npuperf while it exports a run that recorded everything, once more while it does so again, then let it."""
    msprof = place.root / "bin" / "msprof"
    msprof.rename(msprof.with_name("hidden"))
    place.record().wait(timeout=_TIMEOUT)
    msprof.with_name("hidden").rename(msprof)
    folder = RunFolder(place.root / "result")
    for _ in range(2):
        yield from killed(place, place.start("--export", "result"), chance, seen, begun=folder.export_lock.file)
    rows = place.rows(folder)
    if len(rows) != ROWS:
        yield f"{len(rows)} rows of raw data are left"
    seen["half exports" if folder.exporting.is_dir() and any(folder.exporting.iterdir()) else "no half export"] += 1
    yield from exported(place, folder, rows)


def killed(
    place: Pretended, child: subprocess.Popen[str], chance: random.Random, seen: Counter[str], begun: Path | None = None
) -> Iterator[str]:
    """Send a signal at a random moment, and look at what goes on afterwards."""
    number = chance.choice(_SIGNALS)
    if chance.random() < _BEGUN:
        until(lambda: (begun or place.root / "result" / "raw").exists() or child.poll() is not None)
    try:
        child.wait(chance.uniform(0, _LATEST))
        seen["ended before"] += 1
    except subprocess.TimeoutExpired:
        child.send_signal(number)
        seen[number.name] += 1
    try:
        status = child.wait(_TIMEOUT)
    except subprocess.TimeoutExpired:
        child.kill()
        yield f"{number.name}: npuperf went on for {_TIMEOUT} s"
        return
    bare = {1} if number == signal.SIGINT else set()  # a Python that is interrupted before its first line
    if status not in {0, 3, 5, 130, 143, -number, *bare}:
        yield f"{number.name}: exit status {status}: {place.said[-500:]}"
    if status == -signal.SIGKILL and begun is None:
        yield from outlived(place, seen)
    if left := place.left():
        yield f"{number.name}: left running: {[p.cmdline() for p in left]}"
        for process in left:
            process.kill()


def outlived(place: Pretended, seen: Counter[str]) -> Iterator[str]:
    """Look at a program whose npuperf was killed, and end it."""
    folder = RunFolder(place.root / "result")
    head = next((p for p in place.processes() if _words(p)[-2:-1] == ["train.py"]), None)
    if head is None:
        return
    until(lambda: not _words(head) or ((held := folder.lock.holder()) is not None and held.pid == head.pid))
    if not _words(head):
        seen["ended by itself"] += 1
        return
    until(lambda: not any(p.state in BUSY for p in read_all(folder.status)))
    seen["outlived npuperf"] += 1
    if not folder.stop.exists():
        yield "its recording was not stopped"
    if LEFT in place.said:
        yield "the program was ended"
        return
    with suppress(psutil.NoSuchProcess):
        head.terminate()
    until(lambda: folder.lock.holder() is None)
    status = folder.exit_status.read_text() if folder.exit_status.exists() else "unknown"
    seen[f"status {status}"] += 1
    if status not in ("143", "0", "-15", "unknown"):
        yield f"its status is told as {status}"


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def exported(place: Pretended, folder: RunFolder, rows: list[str]) -> Iterator[str]:
    """Export what there is: each recorded row has to be in it."""
    status = place.start("--export", "result").wait(timeout=_TIMEOUT)
    if status:
        yield f"--export: exit status {status}: {place.said[-500:]}"
    if place.exported(folder) != rows:
        yield f"{len(rows)} rows were recorded and {len(place.exported(folder))} exported"
    if place.rows(folder) != rows:
        yield "the raw data has changed"


def afterwards(place: Pretended) -> Iterator[str]:
    """The same command works once more, and what went wrong was said in words."""
    before = place.rows(RunFolder(place.root / "result"))
    status = place.record().wait(timeout=_TIMEOUT)
    latest = place.latest
    if status or len(place.exported(latest)) != ROWS:
        yield f"rerun: exit status {status}, {len(place.exported(latest))} rows: {place.said[-500:]}"
    if before and (latest.path.name == "result" or place.rows(RunFolder(place.root / "result")) != before):
        yield "the rerun has changed the first run"
    if left := place.left():
        yield f"rerun: left running: {[p.cmdline() for p in left]}"
    if _OURS.search(place.said):
        yield f"no words: {place.said[-2000:]}"


if __name__ == "__main__":
    sys.exit(try_moments((__doc__ or "").splitlines()[0], killed_once))
