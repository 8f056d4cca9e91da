"""Kill tuning at random moments: nothing is left running, no result is lost, and nothing is tuned twice.

    python tests/fuzz/kill_tune.py [--moments 50] [--seed N]

Each moment is a tuning run of the stand-in for aoe in a folder of its own, and a SIGKILL, SIGTERM or SIGINT to npuperf
after a random time. Afterwards ``--resume`` (or, where nothing had begun, the same command) has to end with the whole
result. Every failure is a line with the number that repeats it; the exit status is 1 if there was one.
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
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "tune")]

from moments import try_moments  # noqa: E402
from workplace import OP, Place, dumping_modules  # noqa: E402 - they lie beside this file's folder

from npuperf.base.process import Detached, carriers, end_all  # noqa: E402
from npuperf.tune.state import MARK  # noqa: E402

#: How long the stand-in tunes, and when the signal comes at the latest, s: after npuperf's start, or after it has made
#: the run's folder, which takes longer on a busy machine.
_TUNES, _LATEST = 1.5, 3.0
_OPERATORS = 12
#: How many of all signals come after the folder.
_BEGUN = 0.8
_TIMEOUT = 90


def killed_once(seed: int, seen: Counter[str]) -> Iterator[str]:
    """Kill one run, count what it was killed in, and yield what was wrong afterwards."""
    root = Path(tempfile.mkdtemp(prefix="npuperf-kill-"))
    try:
        outcome, faults = _killed_in(root, random.Random(seed))
        seen[outcome] += 1
        yield from (f"{outcome}: {fault}" for fault in faults)
    finally:
        end_all([one for run in _runs(root) for one in carriers(MARK, str(run))])
        shutil.rmtree(root, ignore_errors=True)


def _killed_in(root: Path, source: random.Random) -> tuple[str, list[str]]:
    place = Place(root)
    by_dump = source.random() < 0.3
    (root / "train.py").write_text("import torch, time\ntime.sleep(0.5)\n")
    environment = place.environment(
        FAKE_AOE_SECONDS=str(_TUNES),
        FAKE_AOE_OPS=str(_OPERATORS),
        XDG_STATE_HOME=str(root / "state"),
        PYTHONPATH=f"{ROOT}:{dumping_modules(root / 'modules')}",
        DUMPS="1",
    )
    wanted = ("--mode", "op", "--", sys.executable, "train.py") if by_dump else OP
    number = source.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
    child = subprocess.Popen(
        place.command(*wanted), cwd=root, env=environment, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    if source.random() < _BEGUN:
        while not _runs(root) and child.poll() is None:
            time.sleep(0.01)
    time.sleep(source.uniform(0, _LATEST))
    child.send_signal(number)
    _, said = child.communicate(timeout=_TIMEOUT)
    runs = _runs(root)
    state = _state(runs[-1]) if runs else {}
    began = f"{'dump' if by_dump else 'model'}, {number.name}, {state.get('status', 'not begun')}"
    return began, [*_after(number, child.returncode, said, runs), *_gone_on_with(place, environment, wanted, runs)]


def _after(number: signal.Signals, status: int, said: str, runs: list[Path]) -> Iterator[str]:
    """Say what is wrong just after the signal."""
    if "Traceback" in said or "internal error" in said:
        yield f"exit status {status}: {said.strip()[-300:]}"
    left = _left(runs)
    if number != signal.SIGKILL and left:  # after a SIGKILL aoe goes on, and --resume finds it
        yield f"left running after {number.name}: {left}"


def _gone_on_with(
    place: Place, environment: dict[str, str], wanted: tuple[str, ...], runs: list[Path]
) -> Iterator[str]:
    """Go on as a person would, and say what is wrong at the end."""
    status = _state(runs[-1]).get("status") if runs else None
    if status != "done":
        again = ("--resume",) if status else wanted
        done = subprocess.run(
            place.command(*again), cwd=place.root, env=environment, text=True, capture_output=True, timeout=_TIMEOUT,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if done.returncode:
            yield f"{' '.join(again)}: exit status {done.returncode}: {done.stderr.strip()[-300:]}"
            return
    runs = _runs(place.root)
    if left := _left(runs):
        yield f"left running at the end: {left}"
    try:
        kept = json.loads((runs[-1] / "diff.json").read_text())
    except (OSError, ValueError, IndexError) as error:
        yield f"no document of the run: {error}"
        return
    if (kept["status"], len(kept["entries"])) != ("successful", _OPERATORS):
        yield f"the document says {kept['status']}, {len(kept['entries'])} entries"
    finished = [f for run in runs for f in run.glob("**/aoe_result_*.json") if "tuning successful" in f.read_text()]
    if len(finished) != 1:
        yield f"tuned {len(finished)} times"


def _runs(root: Path) -> list[Path]:
    return sorted(file.parent for file in root.glob("result/tune/*/state.json"))


def _state(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "state.json").read_text())
    return found


def _left(runs: list[Path]) -> list[Detached]:
    return [one for run in runs for one in carriers(MARK, str(run))]


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(try_moments((__doc__ or "").splitlines()[0], killed_once))
