"""Programs in standby, which are asked to record while they run; windows by the clock."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from npuperf.record.folder import RunFolder
from npuperf.record.plan import INJECT, plan_of
from npuperf.record.request import ProfileRequest

PROGRAM = Path(__file__).with_name("standby_program.py")
ALONE = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
#: What it prints in the end: nothing of ours is there.
LEFT = ["threads ['MainThread']", "forward torch.nn.modules.module posix", "ranges /autograd/profiler.py"]
#: Longer than anything here takes, on any machine.
PATIENCE = 120.0


def until(found: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """Wait for a fact, as long as the program lives."""
    last = time.monotonic() + PATIENCE
    while not (value := found()):
        if process.poll() is not None or time.monotonic() > last:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(str(process.communicate()))
        time.sleep(0.02)
    return value


class Waiting:
    """A program in standby, and what is asked of it."""

    def __init__(self, root: Path, program: Path = PROGRAM, request: ProfileRequest | None = None) -> None:
        self.root = root
        self._ended: tuple[str, str] | None = None
        self.folder = self.run("first", request or ProfileRequest(engine="cpu", standby=True))
        self.folder.standby.mkdir(mode=0o700)
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONUNBUFFERED")} | ALONE
        carried = {"PYTHONPATH": str(INJECT), "NPUPERF_PLAN": str(self.folder.plan)}
        self.process = subprocess.Popen(
            [sys.executable, str(program), str(root)], env=environment | carried, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, name: str, request: ProfileRequest) -> RunFolder:
        """Make a run directory with its plan."""
        folder = RunFolder(self.root / name)
        for made in (folder.raw, folder.status):
            made.mkdir(parents=True)
        folder.go_on.touch()
        folder.plan.write_text(json.dumps(plan_of(request, folder)))
        return folder

    def status(self, folder: RunFolder, pid: int | None = None) -> dict[str, Any]:
        """What a process says of itself; nothing where it has not said anything yet."""
        for file in folder.status.glob(f"*_{pid or self.process.pid}.json"):
            found: dict[str, Any] = json.loads(file.read_text())
            return found
        return {}

    def stands_by(self, pid: int | None = None) -> Any:
        return until(lambda: self.status(self.folder, pid).get("state") == "standby", self.process)

    def ask(self, name: str, pid: int | None = None, **options: Any) -> RunFolder:
        """Ask a process to record."""
        folder = self.run(name, ProfileRequest(engine="cpu", **options))
        asked = self.folder.standby / f"{pid or self.process.pid}.json"
        asked.with_suffix(".part").write_text(json.dumps({"plan": str(folder.plan)}))
        asked.with_suffix(".part").rename(asked)
        return folder

    def answer(self, folder: RunFolder, pid: int | None = None, state: str = "recorded") -> dict[str, Any]:
        """Wait for what a process says in the end."""
        until(lambda: self.status(folder, pid).get("state") == state, self.process)
        return self.status(folder, pid)

    def fork(self, name: str) -> int:
        """Let the program fork a child that is another program, and wait until it is in standby."""
        (self.root / f"fork_{name}").touch()
        file = until(lambda: next(self.root.glob(f"child_{name}_*"), None), self.process)
        child = int(file.name.split("_")[-1])
        self.stands_by(child)
        return child

    def end(self) -> tuple[str, str]:
        """Let it end, once; return what it printed."""
        if self._ended is None:
            (self.root / "enough").touch()
            try:
                self._ended = self.process.communicate(timeout=PATIENCE)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
        return self._ended


def events(folder: RunFolder) -> list[dict[str, Any]]:
    """The ranges of all traces."""
    traces = sorted(folder.raw.glob("*.json"))
    return [event for trace in traces for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]


def steps(folder: RunFolder) -> list[int]:
    names = [event["name"].split("#") for event in events(folder)]
    return sorted({int(name[1]) for name in names if name[0] == "ProfilerStep"})


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch (pip install '.[dev]')")
    made = Waiting(tmp_path)
    yield made
    made.end()


@pytest.mark.long
def test_a_program_in_standby_is_asked_again_and_again(waiting: Waiting) -> None:
    """By steps of an optimizer and of a module, by the clock, with steps and without, and in a child that it forks."""
    waiting.stands_by()
    assert not list(waiting.folder.raw.iterdir())
    first = waiting.ask("steps", wait=2, active=3)
    said = waiting.answer(first)
    assert (said["recorded"], said["early"], said["warnings"]) == ([3, 4, 5], False, [])
    assert steps(first) == [3, 4, 5]

    waiting.stands_by()
    second = waiting.ask("forwards", wait=1, warmup=0, active=2, step_on="forward")
    assert waiting.answer(second)["recorded"] == [1, 2] == steps(second)

    third = waiting.ask("time", duration=0.3)
    said = waiting.answer(third)
    assert said["recorded"] and said["seconds"] >= 0.3 and said["warnings"] == []
    assert set(said["recorded"]) <= set(steps(third))

    child = waiting.fork("child")
    fourth = waiting.ask("child", child, wait=1, active=2)
    assert waiting.answer(fourth, child)["recorded"] == [2, 3]

    (waiting.root / "rest").touch()
    fifth = waiting.ask("functional", duration=1.0)  # a loaded machine pauses for tenths
    assert waiting.answer(fifth)["seconds"] >= 1.0
    assert "functional" in {event["name"] for event in events(fifth)} and steps(fifth) == []

    sixth = waiting.ask("never", wait=1)
    until(lambda: waiting.status(sixth).get("state") == "waiting", waiting.process)
    sixth.go_on.rename(sixth.stop)
    assert waiting.answer(sixth, state="stopped")["recorded"] == []
    assert waiting.stands_by()

    printed, errors = waiting.end()
    assert printed.splitlines() == ["child child 0", *LEFT]
    words = [line for line in errors.splitlines() if not line.startswith("USDT:")]  # libkineto's, of any profiler
    assert not words and waiting.process.returncode == 0
    assert sorted(p.name for p in waiting.folder.standby.iterdir()) == sorted(
        f"{pid}.taken" for pid in (waiting.process.pid, child)
    )


@pytest.mark.long
def test_ranges_and_the_program_itself_begin_a_window(waiting: Waiting) -> None:
    child = waiting.fork("ranges")
    first = waiting.ask("range", child, start_on="decode", active=2)
    assert len(waiting.answer(first, child)["recorded"]) == 2 == len(steps(first))
    # nothing of what comes before the range is in it, and the range is
    names = [e["name"] for e in sorted(events(first), key=lambda e: e["ts"])]
    assert names.index("decode") < names.index("before")
    second = waiting.ask("twice", child, start_on="decode", duration=0.1, repeat=2)
    until(lambda: len(waiting.status(second, child).get("folders", [])) == 2, waiting.process)
    traces = sorted(second.raw.glob("*.json"))
    assert len(traces) == 2 and all("decode" in trace.read_text() for trace in traces)

    child = waiting.fork("compiled")
    third = waiting.ask("compiled", child, start_on="decode", duration=1.0)  # a loaded machine pauses for tenths
    waiting.answer(third, child)
    assert "decode" in {event["name"] for event in events(third)}

    child = waiting.fork("by_itself")
    until(lambda: len(waiting.status(waiting.folder, child)["folders"]) == 2, waiting.process)
    waiting.stands_by(child)
    first_one, second_one = sorted(waiting.folder.raw.glob("*.json"))
    for trace in (first_one, second_one):
        found = [e["name"] for e in json.loads(trace.read_text())["traceEvents"]]
        assert found.count("Optimizer.step#SGD.step") == 2 and found.count("functional") == 1

    printed, _ = waiting.end()
    children = ["child ranges 0", "child compiled 0", "child by_itself 0"]
    assert printed.splitlines() == ["compiled {'total': 1, 'ok': 1}", *children, *LEFT]


@pytest.mark.long
def test_a_main_thread_inside_of_c_is_told(waiting: Waiting) -> None:
    """It waits for others: nothing can begin there. Their own steps can."""
    child = waiting.fork("joins")
    until((waiting.root / "serving").exists, waiting.process)

    def asked_for_time(name: str) -> dict[str, Any]:
        asked = waiting.ask(name, child, duration=0.5)
        until(
            lambda: {"problem", "seconds"} & {k for k, v in waiting.status(asked, child).items() if v}, waiting.process
        )
        return waiting.status(asked, child)

    # Its main thread has yet to come to the join: until then it can be recorded.
    said = next(said for n in count() if "seconds" not in (said := asked_for_time(f"time {n}")))
    assert said["problem"]["id"].startswith("the main thread was inside one call")
    waiting.stands_by(child)
    second = waiting.ask("forward", child, duration=0.2, step_on="forward")
    assert waiting.answer(second, child)["recorded"]


#: It is inside an import of torch's own when the window is due, as the first optimizer is, which imports torch._dynamo.
_IMPORTS = """
import sys, time
import torch

sys.path.insert(0, sys.argv[1])
torch.__path__.append(sys.argv[1])
import torch.slowly_imported

while not torch.slowly_imported.HERE.with_name("enough").exists():
    torch.ones(2)
"""
_SLOWLY = """
import time
from pathlib import Path

HERE = Path(__file__)
HERE.with_name("importing").touch()
while not HERE.with_name("imported").exists():
    time.sleep(0.01)
"""


@pytest.mark.long
def test_no_window_begins_inside_an_import_of_torch(tmp_path: Path) -> None:
    """The profiler would need the module that is half there, and recording would fail."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch (pip install '.[dev]')")
    (tmp_path / "slowly_imported.py").write_text(_SLOWLY)
    (tmp_path / "imports.py").write_text(_IMPORTS)
    waiting = Waiting(tmp_path, tmp_path / "imports.py")
    until((tmp_path / "importing").exists, waiting.process)
    waiting.stands_by()
    asked = waiting.ask("time", duration=0.2)
    until(lambda: waiting.status(asked).get("state") == "waiting", waiting.process)
    time.sleep(1.0)  # twenty tries to begin
    assert waiting.status(asked)["state"] == "waiting"
    (tmp_path / "imported").touch()
    assert waiting.answer(asked)["seconds"] >= 0.2 and waiting.status(asked)["warnings"] == []
    waiting.end()
