"""Send signals to programs at random moments while they are recorded: each ends as it does without npuperf.

    python tests/fuzz/send_signals.py [--moments 50] [--seed N] [--npu] [--spawned]

Each moment is a program of tests/record/signalled_programs.py and a signal, to it or to its engine, first without
npuperf, then with its agent and the real torch, before, in or after the window. ``--npu``: with torch_npu, over the
stand-in for CANN, instead of on the CPU. Status, output and what is left running are compared. Where the former's
outcome varies, each of its outcomes is right: it is asked eleven times more, each time a little earlier, as npuperf
makes a program slower, and a signal then meets it at an earlier step. Every failure is a line with the number that
repeats it; the exit status is 1 if there was one. ``--spawned``: servers alone whose engine is a spawned process, and
SIGTERM, of which they end it; two of three wait in C for good by then. How that ends is known: they are not run alone.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "record")]

from moments import try_moments  # noqa: E402 - they lie beside this file's folder
from signalled_programs import KINDS  # noqa: E402

from npuperf.record.folder import RunFolder  # noqa: E402
from npuperf.record.manifest import read_all  # noqa: E402
from npuperf.record.plan import INJECT, plan_of  # noqa: E402
from npuperf.record.request import ProfileRequest  # noqa: E402

PROGRAMS = ROOT / "tests" / "record" / "signalled_programs.py"
_SIGNALS = ("TERM", "TERM", "INT", "HUP", "USR1", "USR2", "QUIT", "ALRM")
#: When the signal comes at the latest, s after the first step: starting a profiler and 25 steps take a quarter of that.
_LATEST = 0.4
#: Seconds in which nothing of a program that hangs does anything; those after which one that works on is ended, too.
_STILL, _WORKS_ON = 5.0, 120.0
_ON_THE_CPU = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}

#: A program's status, what it printed, and how many of its processes were left.
Outcome = tuple[int | str, str, int]


def kind_of(seed: int) -> str:
    """Return which program a seed tries; when and what it is sent is drawn apart."""
    return random.Random(f"kind {seed}").choice(list(KINDS))


class Programs:
    """What runs the programs, with the agent or without."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._host = subprocess.Popen(
            [sys.executable, str(PROGRAMS), "serve"], env=dict(environment), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def run(self, kind: str, seed: int, sooner: float = 1.0) -> Outcome:
        """Run one, send it its signal, after this part of the time that is drawn, and return how it ended."""
        chance = random.Random(seed)
        assert self._host.stdin is not None and self._host.stdout is not None
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            which = chance.randrange(100)
            self._host.stdin.write(json.dumps([kind, which, folder]) + "\n")
            self._host.stdin.flush()
            head = int(self._host.stdout.readline())
            number = getattr(signal, f"SIG{chance.choice(_SIGNALS)}") if kind != "spawned" else signal.SIGTERM
            # Whether an engine waits in C when its server is gone, or hears of that, is no chance: it does.
            hangs = kind in ("server", "spawned") and which % 3 > 0
            _until(lambda: not psutil.pid_exists(head) or _is_ready(head, Path(folder), hangs))
            time.sleep(chance.uniform(0, _LATEST) * sooner)
            target = head
            if kind == "server" and chance.random() < 0.3:
                with suppress(psutil.Error):
                    target = next((child.pid for child in psutil.Process(head).children()), head)
            if kind != "peers":
                with suppress(ProcessLookupError):
                    os.kill(target, number)
            status = self._ended(head)
            left = _left(head)
            return status, Path(folder, "out").read_text(), left

    def _ended(self, head: int) -> int | str:
        """Wait for the end; a program that hangs is killed."""
        last, hangs, session = time.monotonic() + _WORKS_ON, "", Session(head)
        while not hangs and not _has_ended(head):
            hangs = "hangs, " if session.is_still() else "works on, " if time.monotonic() > last else ""
            time.sleep(0.005)
        if hangs:
            os.killpg(head, signal.SIGKILL)
        assert self._host.stdout is not None
        status = int(self._host.stdout.readline())
        return f"{hangs}killed: {status}" if hangs else status

    def end(self) -> None:
        """End it."""
        self._host.communicate(timeout=60)


class Pair:
    """The same programs alone and recorded, and the run that they are recorded into."""

    def __init__(self, folder: Path, until: ExitStack, *, npu: bool = False, spawned: bool = False) -> None:
        self.spawned = spawned
        self.run = RunFolder(folder / "run")
        for made in (self.run.raw, self.run.status):
            made.mkdir(parents=True)
        self.run.raw.chmod(0o750)  # torch_npu refuses to write where others may
        request = replace(_REQUEST, engine="torch") if npu else _REQUEST
        self.run.plan.write_text(json.dumps(plan_of(request, self.run)))
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NPUPERF_PLAN")}
        environment = kept | {"OMP_NUM_THREADS": "1"} | (_stand_in(folder) if npu else _ON_THE_CPU)
        carried = environment | {"PYTHONPATH": str(INJECT), "NPUPERF_PLAN": str(self.run.plan)}
        self.environments = environment, carried
        self.alone, self.mine = Programs(environment), Programs(carried)
        until.callback(self.alone.end)
        until.callback(self.mine.end)

    def signalled_once(self, seed: int, seen: Counter[str]) -> Iterator[str]:
        """Try one program at one moment; yield where it ends otherwise than alone."""
        kind = "spawned" if self.spawned else kind_of(seed)
        expected = (0, "engine -15\n", 0) if self.spawned else self.alone.run(kind, seed)
        found = self.mine.run(kind, seed)
        seen[kind] += 1
        for process in read_all(self.run.status):
            if process.step:
                seen[f"{process.state} at the end"] += 1
        for rest in (self.run.raw, self.run.status):
            for file in rest.iterdir():
                (shutil.rmtree if file.is_dir() else os.remove)(file)
        if found == expected:
            return
        if any(found == self.alone.run(kind, seed, sooner / 10) for sooner in range(10, -1, -1)):
            seen["varies alone, too"] += 1
            print(f"varies alone, too: --seed {seed} --moments 1: {kind}: {found}, or {expected}", flush=True)
        else:
            yield f"{kind}: {found}, alone {expected}"


_REQUEST = ProfileRequest(engine="cpu", wait=3, warmup=1, active=25)


def _stand_in(folder: Path) -> dict[str, str]:
    """Build the stand-in for CANN; return the environment in which torch_npu runs over it."""
    build = [sys.executable, str(ROOT / "tests" / "cann_stub" / "build.py"), "--python", sys.executable, "--out"]
    subprocess.run([*build, str(folder / "cann")], check=True, capture_output=True)
    made: dict[str, str] = json.loads((folder / "cann" / "env.json").read_text())
    return made | {"PROGRAMS_ON": "npu", "PATH": f"{made['PATH']}:{os.environ['PATH']}"}


def _until(happened: Any) -> None:
    last = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < last
        time.sleep(0.002)


def _has_ended(process: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(process).status() == psutil.STATUS_ZOMBIE)
    return True


def _is_ready(head: int, folder: Path, hangs: bool) -> bool:
    """Tell whether a program has made its first step, or its engine, which ``hangs``, waits in C and no more before."""
    if not hangs:
        return (folder / "ready").exists()
    with suppress(psutil.Error):
        children = psutil.Process(head).children() if (folder / "hangs").exists() else []
        return bool(children) and all(child.status() == psutil.STATUS_SLEEPING for child in children)
    return False


class Session:
    """The processes of a session that have not ended."""

    def __init__(self, head: int) -> None:
        self._head = head
        self.processes: list[psutil.Process] = []
        self._seen: list[tuple[int, Any]] = []
        self._until = self._again = 0.0

    def look(self) -> None:
        """See which there are, and whether one does something: one that is held up is not done yet."""
        self._again, works = time.monotonic() + 0.05, []
        self.processes, is_held = [], False
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if os.getsid(process.pid) == self._head and process.status() != psutil.STATUS_ZOMBIE:
                    self.processes.append(process)
                    works.append((process.pid, process.cpu_times()[:2]))
                    is_held |= process.status() != psutil.STATUS_SLEEPING
        if is_held or works != self._seen:
            self._seen, self._until = works, time.monotonic() + _STILL

    def is_still(self) -> bool:
        """Tell whether none of them has done anything for long; look from time to time."""
        if time.monotonic() > self._again:
            self.look()
        return bool(self.processes) and time.monotonic() > self._until


def _left(head: int) -> int:
    """Count the processes of a session that go on though its head has ended, and do nothing more; end them."""
    session = Session(head)
    session.look()
    while session.processes and not session.is_still():
        time.sleep(0.05)
    for process in session.processes:
        with suppress(psutil.Error):
            process.kill()
    return len(session.processes)


def main() -> int:
    """Try as many as are asked for."""
    for name in set(_SIGNALS):  # a shell has those that it starts in the background ignore some
        signal.signal(getattr(signal, f"SIG{name}"), signal.default_int_handler if name == "INT" else signal.SIG_DFL)
    folder = Path(tempfile.mkdtemp(prefix="npuperf-signals-"))
    try:
        with ExitStack() as until:
            asked = {word: f"--{word}" in sys.argv for word in ("npu", "spawned")}
            sys.argv = [word for word in sys.argv if word.strip("-") not in asked]
            return try_moments((__doc__ or "").splitlines()[0], Pair(folder, until, **asked).signalled_once)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
