"""``npuperf profile --pid`` of a program that was started without npuperf: Python 3.14 lets its agent in, which leaves.

An older Python does not; there the program itself runs, now and then, what would be let in.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from conftest import until

from npuperf.base.errors import ExitCode, NpuperfError
from npuperf.base.messages import Message
from npuperf.base.process import Detached
from npuperf.model.recorded import Recorded, RecordingPlan
from npuperf.record import attach, running
from npuperf.record.request import read_request
from npuperf.record.run import run

DOES_IT_REALLY = hasattr(sys, "remote_exec")
#: Trains with a scheduler, which has given the optimizer a step of its own long ago, and profiles itself while there is
#: a file "profiling". It says in the end whether its functions are those that it had before.
PROGRAM = """
import os, sys, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.Adam(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
of, enough = torch.autograd.profiler, lambda: os.path.exists("enough")
places = [(torch.optim.Adam, "step"), (torch.optim.Optimizer, "__init__"), (optimizer, "step"), (os, "_exit"),
          (torch.nn.Module, "__call__"), (of, "_enable_profiler"), (of, "_disable_profiler"), (sys, "meta_path"),
          (torch.profiler.profiler._KinetoProfile, "export_chrome_trace"), (of.record_function, "__enter__")]
before = [vars(of).get(name) for of, name in places]
step, own = 0, None
while not enough():
    model(torch.ones(4, 8)).square().sum().backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    step += 1
    if own is None and os.path.exists("profiling"):
        own = torch.profiler.profile()
        own.start()
    elif own is not None and not os.path.exists("profiling"):
        own.stop()
        own.export_chrome_trace("own.json")
        own = None
    if os.path.exists("let in"):
        with open("let in") as file:
            script = file.read()
        os.unlink("let in")
        exec(open(script).read(), {})
    open("made", "w").close()
print("as before", all(vars(of).get(name) is was for (of, name), was in zip(places, before)))
while len(sys._current_frames()) > 1:
    pass
print("alone", [type(one).__name__ for one in sys.meta_path if "atcher" in type(one).__name__])
"""


class Trainer:
    """The program, and what is asked of it."""

    def __init__(self, folder: Path, *options: str, **variables: str) -> None:
        self.folder = folder
        (folder / "train.py").write_text(PROGRAM)
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NPUPERF_PLAN")}
        self.environment = {**kept, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1", **variables}
        self.process = subprocess.Popen(
            [sys.executable, *options, "train.py"], cwd=folder, env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        until(lambda: (folder / "made").exists() or self.process.poll() is not None)

    def asked(self, name: str, **words: object) -> Recorded | RecordingPlan:
        """What ``npuperf profile --pid`` answers."""
        words = {"pid": self.process.pid, "output": self.folder / name, **words}
        told: list[Message] = []
        return run(read_request(words, words), self.environment, told.append).document

    def ended(self) -> str:
        (self.folder / "enough").touch()
        printed, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, printed
        return "".join(line for line in printed.splitlines(keepends=True) if not line.startswith("USDT:"))


def knocking_in(folder: Path) -> Callable[[attach._LetIn, running.Reachable], None]:
    """What lets the agent in where Python cannot: the program finds the script whole, or not at all."""

    def knock(self: attach._LetIn, _: running.Reachable) -> None:
        begun = folder / "let in.part"
        begun.write_text(str(self._script))
        begun.rename(folder / "let in")

    return knock


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trainer]:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch (pip install '.[dev]')")
    if not DOES_IT_REALLY:
        monkeypatch.setattr(attach._LetIn, "_knock", knocking_in(tmp_path))
        monkeypatch.setattr(running, "_LETS_IN", (3, 0))
    made = Trainer(tmp_path)
    yield made
    made.process.kill()
    made.process.communicate()


def steps(folder: Path) -> list[int]:
    """Which steps the trace has."""
    (trace,) = folder.glob("raw/*.json")
    names = [event["name"].split("#") for event in json.loads(trace.read_text())["traceEvents"] if "name" in event]
    return sorted({int(name[1]) for name in names if name[0] == "ProfilerStep"})


@pytest.mark.long
def test_it_is_recorded_and_left_as_it_was(trainer: Trainer, tmp_path: Path) -> None:
    """Twice, by steps and by time; nothing stays, nothing is printed, and the program's own profiler goes first."""
    plan = trainer.asked("plan", dry_run=True)
    assert isinstance(plan, RecordingPlan) and plan.attached is not None and plan.attached.way == "remote"
    assert not (tmp_path / "plan").exists()
    done = trainer.asked("steps", wait=1, warmup=1, active=3)
    assert isinstance(done, Recorded) and done.exit_code == 0, done.problem
    assert done.processes[0].recorded == (2, 3, 4) and steps(tmp_path / "steps") == [2, 3, 4]
    done = trainer.asked("time", duration="200ms")
    assert isinstance(done, Recorded) and done.exit_code == 0, done.problem
    assert done.processes[0].recorded and done.processes[0].seconds is not None and done.processes[0].seconds >= 0.2
    for folder in ("steps", "time"):
        assert not list((tmp_path / folder / ".profile" / "standby").iterdir())
    assert trainer.ended() == "as before True\nalone []\n"


@pytest.mark.long
def test_a_profiler_of_its_own_that_records_already_goes_first(trainer: Trainer, tmp_path: Path) -> None:
    """It began when nobody watched."""
    (tmp_path / "profiling").touch()
    (tmp_path / "made").unlink()
    until((tmp_path / "made").exists)
    (tmp_path / "made").unlink()  # a step later it has begun
    until((tmp_path / "made").exists)
    command = subprocess.Popen(
        [sys.executable, "-c", ASK, str(trainer.process.pid), str(tmp_path)], env=trainer.environment,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    status = tmp_path / "result" / ".profile" / "status"
    until(lambda: trainer.process.poll() is not None
          or any(json.loads(one.read_text())["state"] == "aside" for one in status.glob("*.json")))  # fmt: skip
    assert trainer.process.poll() is None
    (tmp_path / "profiling").unlink()
    printed, _ = command.communicate(timeout=120)
    assert command.returncode == 0, printed
    assert len(steps(tmp_path / "result")) == 2
    own = json.loads((tmp_path / "own.json").read_text())["traceEvents"]
    assert any(event.get("name") == "aten::addmm" for event in own)
    assert trainer.ended() == "as before True\nalone []\n"


#: Asks in a process of its own, as the tests do here.
ASK = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).resolve().parents[1])!r},
                {str(Path(__file__).resolve().parents[2])!r}]
from pathlib import Path
import pytest, test_let_in
from npuperf.record import attach, running
pid, folder = int(sys.argv[1]), Path(sys.argv[2])
if not test_let_in.DOES_IT_REALLY:
    attach._LetIn._knock = test_let_in.knocking_in(folder)
    running._LETS_IN = (3, 0)
words = dict(pid=pid, output=folder / "result", active=2)
document = test_let_in.run(test_let_in.read_request(words, words), {{}}, print).document
sys.exit(document.exit_code)
"""


@pytest.mark.skipif(not DOES_IT_REALLY, reason="needs Python 3.14")
def test_a_python_that_lets_nobody_in_is_told(tmp_path: Path) -> None:
    """The words are Python's own where it does not say so by how it was started."""
    made = Trainer(tmp_path, "-X", "disable-remote-debug")
    try:
        with pytest.raises(running.UnreachableError, match="-X disable-remote-debug"):
            made.asked("result")
        found = running.Reachable(Detached(made.process.pid, 0.0), tmp_path, python=sys.executable)
        way = attach._LetIn.__new__(attach._LetIn)
        way.running = running.Running(made.process.pid, ("x",), tmp_path, made.environment, "remote", (found,))
        way._script = tmp_path / "train.py"
        assert way._knock(found) == "RuntimeError: Remote debugging is not enabled in the remote process"
    finally:
        made.process.kill()
        made.process.communicate()


# ---- who lets us in, of processes as they are described ----


def process(
    *words: str,
    version: tuple[int, int] | None = (3, 14),
    has_torch: bool = True,
    python: str | None = "/usr/bin/python3",
    variables: Mapping[str, str] = {},
) -> running._Process:
    return running._Process(Detached(7, 0.0), variables, python, version, ("python3", *words), has_torch, ())


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (process("train.py"), None),
        (process("train.py", version=(3, 15)), None),
        (process("train.py", "disable-remote"), None),
        (process("-X", "disable-remote-debug", "train.py"), "started with -X disable-remote-debug"),
        (process("-Xdisable-remote-debug", "train.py"), "started with -X disable-remote-debug"),
        (process(variables={"PYTHON_DISABLE_REMOTE_DEBUG": "1"}), "PYTHON_DISABLE_REMOTE_DEBUG is set"),
        (process(python=None), "its interpreter is not there any more"),
        (process(version=(3, 13)), "nothing"),
        (process(version=(0, 0)), "nothing"),
        (process(version=None), "nothing"),
        (process(has_torch=False), "nothing"),
        (process(variables={"MSMONITOR_USE_DAEMON": "1"}), "nothing"),
        (process(variables={"PROF_CONFIG_PATH": "/x"}), "nothing"),
    ],
)
def test_who_lets_us_in(one: running._Process, why: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something else may record, or an older Python runs, the answer is what it was."""
    monkeypatch.setattr(running, "_may_trace", lambda: True)
    reasons: list[NpuperfError] = []
    found = running._open_to_us([one], reasons)
    assert [each.process.pid for each in found] == ([7] if why is None else [])
    if why in (None, "nothing"):
        assert not reasons
        return
    (reason,) = reasons
    assert reason.exit_code == ExitCode.CHILD_FAILED and str(why) in str(reason)
    assert "npuperf profile --standby -- python3" in str(reason.hint)


def test_a_kernel_that_lets_nobody_write_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for scope, rights, may in (("0", "0", True), ("1", "0", False), ("1", "80000", True), ("3", "80000", False)):
        texts = {
            "/proc/sys/kernel/yama/ptrace_scope": scope,
            "/proc/self/status": f"Name:\tx\nCapEff:\t{rights:>016}\n",
        }
        monkeypatch.setattr(running, "read_input", lambda path, texts=texts: texts[path].encode())
        reasons: list[NpuperfError] = []
        assert bool(running._open_to_us([process("train.py")], reasons)) is may
        assert may or "kernel.yama.ptrace_scope" in str(reasons[0])


@pytest.mark.parametrize(
    ("program", "maps", "version"),
    [
        ("python3.14", b"", (3, 14)),
        ("python3", b"7f r-xp 00 08:01 1 /opt/lib/libpython3.14.so.1.0\n", (3, 14)),
        ("uwsgi", b"7f r-xp 00 08:01 1 /opt/lib/libpython3.9.so.1.0\n", (3, 9)),
        ("python3.14t", b"", (3, 14)),
        ("python", b"", (0, 0)),
        ("pypy3", b"", (0, 0)),
        ("sleep", b"7f r-xp 00 08:01 1 /lib/libc.so.6\n", None),
    ],
)
def test_which_python_runs(program: str, maps: bytes, version: tuple[int, int] | None) -> None:
    assert running._version(program, maps) == version


def test_a_folder_in_which_others_may_write_is_refused(tmp_path: Path) -> None:
    """What stands on the way to the code that Python is to run is nobody else's; /tmp keeps what is ours."""
    place = tmp_path / "open" / "run"
    place.mkdir(parents=True)
    assert attach._open_to_others(place / "enter.py") is None
    place.parent.chmod(0o777)
    assert attach._open_to_others(place / "enter.py") == place.parent
    place.parent.chmod(0o1777)
    assert attach._open_to_others(place / "enter.py") is None
