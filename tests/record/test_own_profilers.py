"""Programs with profilers of their own, under the agent: what these record is the same with npuperf and without."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import made_once
from npu_runs import OFF
from preloaded import Loaded

from npuperf.record.agent.rivals import Scopes
from npuperf.record.folder import RunFolder
from npuperf.record.plan import INJECT, plan_of
from npuperf.record.request import ProfileRequest

PROGRAMS = Path(__file__).with_name("own_profilers.py")
WHOLE = [7, 8, 9, 10]
#: The steps that npuperf records of each program: its window, without what it leaves to the program's own profiler.
#: That one's records begin before a step (counted from 0) and end before another; npuperf waits for the first end of
#: a step behind them, warms up in the step that follows, and begins again if it had no whole step by then.
SPANS = {
    "containing": [22, 23],  # 2 to 20: begins with 21, and the program ends with 23
    "equal": [13, 14, 15, 16],  # 6 to 11: npuperf is still warming up
    "overlapping its end": [7, 8],  # 9 to 14
    "contained": [7],  # 8 to 9
}
EVERYWHERE = {
    "profile, equal": SPANS["equal"],
    "profile, contained": SPANS["contained"],
    "profile, in a thread, contained": [7, 8],  # the thread begins after the step, and waits for the next
    "in scopes": [7, 8],
    "in backward": WHOLE,
    "begun in backward": WHOLE,
}
CPU = {
    **EVERYWHERE,
    "profile, containing": SPANS["containing"],
    "profile, overlapping its end": SPANS["overlapping its end"],
    "profile, around all": [],
    "tutorial": [12, 13, 14, 15],  # 1 to 5, 6 to 10
    "scheduled, for ever": [],  # one step between two of its windows
    "scheduled, never": WHOLE,
    "autograd, equal": SPANS["equal"],
    "autograd, around all": [],
    "observer, equal": SPANS["equal"],
    "observer, in a thread, contained": [7, 8],
    "in backward, nested": WHOLE,
    "in backward, profiled": [7],
}
NPU = {
    **EVERYWHERE,
    "autograd device, equal": SPANS["equal"],
    "ascend, equal": SPANS["equal"],
    "ascend, contained": SPANS["contained"],
    "ascend, around all": [],
    "ascend, scheduled": SPANS["equal"],
    "dynamic": [7, 8],
}
#: Programs whose profilers are replaced, and what those have then recorded: nothing.
REPLACED_ON = {"cpu": ("profile, equal", "autograd, equal", "tutorial"), "npu": ("profile, equal", "ascend, scheduled")}


@dataclass(frozen=True)
class Ran:
    """What the programs printed, by name, and what the agent said of each, by how it was run."""

    out: dict[str, dict[str, str]]
    status: dict[str, dict[str, dict[str, Any]]]


def _start(
    folder: Path, python: str, device: str, how: str, names: Sequence[str], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Run programs without npuperf (``plain``), or with it: ``aside`` of their profilers, or to ``replace`` them."""
    made = folder / how
    made.mkdir()
    if how != "plain":
        run = RunFolder(made / "run")
        run.raw.mkdir(parents=True)
        run.status.mkdir(parents=True)
        options: dict[str, Any] = {"engine": "cpu" if device == "cpu" else "torch", "own_profiler": how}
        request = ProfileRequest(wait=6, warmup=1, active=4, **options)
        (made / "plan.json").write_text(json.dumps(plan_of(request, run)))
        environment = {**environment, "PYTHONPATH": str(INJECT), "NPUPERF_PLAN": str(made / "plan.json")}
    call = [python, str(PROGRAMS), device, str(made)]
    with (made / "out").open("w") as out, (made / "err").open("w") as err:
        return subprocess.Popen([*call, *names], env=environment, stdout=out, stderr=err)


def _by_name(folder: Path) -> dict[str, str]:
    """Split what was printed by program; torch_npu's lines begin with the time and the process."""
    printed = re.sub(r"^\[20.*?\] (\[\w+\]) \[\d+\]", r"\1", (folder / "out").read_text(), flags=re.MULTILINE)
    names = {path.parent.name for path in folder.glob("*/pid")}
    found: dict[str, str] = {}
    name = ""
    for line in printed.splitlines(keepends=True):
        name = line.rstrip("\n") if line.rstrip("\n") in names else name
        found[name] = found.get(name, "") + line
    return found


def _ran(folder: Path) -> Ran:
    out, status = {}, {}
    for how in ("plain", "aside", "replace"):
        out[how] = _by_name(folder / how)
        told = RunFolder(folder / how / "run").status
        pids = {path.parent.name: path.read_text() for path in (folder / how).glob("*/pid")} if how != "plain" else {}
        status[how] = {n: json.loads((told / f"{platform.node()}_{pid}.json").read_text()) for n, pid in pids.items()}
    return Ran(out, status)


def _all(loaded: Loaded, factory: pytest.TempPathFactory, device: str, known: dict[str, list[int]]) -> Ran:
    own = {k: v for k, v in loaded.items() if k not in ("PYTHONPATH", "NPUPERF_PLAN")} | {"OMP_NUM_THREADS": "1"}
    python, environment = loaded.python(npu=device == "npu"), own | ({} if device == "npu" else OFF)

    def make(folder: Path) -> None:
        wanted = {"plain": [*known], "aside": [*known], "replace": [*REPLACED_ON[device]]}
        for run in [_start(folder, python, device, how, names, environment) for how, names in wanted.items()]:
            assert run.wait() == 0

    return _ran(made_once(factory, f"own_profilers_{device}", make))


@pytest.fixture(scope="module")
def cpu(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return _all(loaded, tmp_path_factory, "cpu", CPU)


@pytest.fixture(scope="module")
def ascend(loaded: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return _all(loaded, tmp_path_factory, "npu", NPU)


@pytest.mark.long
@pytest.mark.parametrize("name", CPU)
def test_what_a_program_records_of_the_cpu_is_its_own(cpu: Ran, name: str) -> None:
    _check(cpu, name, CPU[name])


@pytest.mark.long
@pytest.mark.parametrize("name", NPU)
def test_what_a_program_records_of_an_npu_is_its_own(ascend: Ran, name: str) -> None:
    _check(ascend, name, NPU[name])


def _check(ran: Ran, name: str, recorded: list[int]) -> None:
    """Its events, counted by name, its tables, files and exit status are those without npuperf, which has the rest."""
    assert "exit status 0" in ran.out["plain"][name], ran.out["plain"][name]
    assert ran.out["aside"][name] == ran.out["plain"][name]
    said = ran.status["aside"][name]
    assert said["recorded"] == recorded, said
    assert bool(said["folders"]) == bool(recorded), said
    assert said["state"] == ("recorded" if recorded else "aside")
    told = [warning["id"] for warning in said["warnings"]]
    ended = "the program's own profiler began at step {step}: recording ended there"
    inside = "the program's own profiler began inside of backward at step {step}, while npuperf"
    if name == "begun in backward":
        assert [warning.partition(" recorded")[0] for warning in told] == [inside]
        return
    began = "recording began at step {step}, when the program's own profiler had ended"
    assert told == ([] if recorded[:1] == [7] == recorded[-4:-3] or not recorded
                    else [ended] if recorded[0] == 7 else [began])  # fmt: skip


@pytest.mark.parametrize("name", REPLACED_ON["cpu"])
def test_taking_the_place_of_a_program_s_profiler_of_the_cpu(cpu: Ran, name: str) -> None:
    _replaced(cpu, name)


@pytest.mark.parametrize("name", REPLACED_ON["npu"])
def test_taking_the_place_of_a_program_s_profiler_of_an_npu(ascend: Ran, name: str) -> None:
    _replaced(ascend, name)


def _replaced(ran: Ran, name: str) -> None:
    """It has nothing to tell, and the program does not die of that."""
    printed = ran.out["replace"][name]
    assert printed.endswith("exit status 0\n")
    assert "aten" not in printed and ("[]\n" in printed or "ready" not in printed)
    said = ran.status["replace"][name]
    assert (said["state"], said["recorded"], said["warnings"]) == ("recorded", WHOLE, []), said


#: In standby the place is taken for a window, which may be over when a profiler that began in it ends.
SILENCED = """
import torch
from npuperf.record.agent.rivals import Rivals
rivals = Rivals(lambda kind: False, lambda: print("step"))
rivals.watch(torch)
def work(profiled, inner):
    with profiled:
        torch.ones(2) + 1
        inner()
    return len(getattr(profiled, "profiler", profiled).function_events) > 0
def over():
    rivals.may("aside")
    scheduled.step()
torch_s, autograd_s = torch.profiler.profile, torch.autograd.profiler.profile
only_cpu = {"activities": [torch.profiler.ProfilerActivity.CPU]}
for kind, more in ((torch_s, only_cpu), (autograd_s, {})):
    rivals.may("replace")
    scheduled = torch_s(**only_cpu)
    scheduled.start()
    print(work(kind(**more), over), rivals.active)
    scheduled.stop()
    print(work(kind(**more), lambda: None))
"""


def test_a_profiler_that_began_silenced_ends_so(loaded: Loaded) -> None:
    done = subprocess.run(
        [loaded.python(npu=False), "-c", SILENCED], env={**loaded, **OFF}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False {}\nTrue\n" * 2
    assert "no active profiling session" not in done.stderr


@pytest.mark.parametrize("raised_in", ["__enter__", "begun", "__exit__", "ended"])
def test_a_handler_that_raises_within_a_scope_leaves_it_to_be_ended_or_not(raised_in: str) -> None:
    """Before it has begun there is nothing to end; before it has ended nobody else does. Twice is as good as once."""

    class Scope:
        name, ended, raised = "x", 0, False
        record: object = None

        def __enter__(self) -> None:
            if raised_in == "__enter__":
                raise SystemExit
            self.record = object()
            if raised_in == "begun":
                raise SystemExit

        def __exit__(self, *_: object) -> None:
            assert self.record is not None, "Expected record to be set"
            if raised_in == "__exit__" and not self.raised:
                self.raised = True
                raise SystemExit
            self.ended += 1
            if raised_in == "ended" and not self.raised:
                self.raised = True
                raise SystemExit

    profiler = SimpleNamespace(record_function=Scope)
    scopes = Scopes(SimpleNamespace(autograd=SimpleNamespace(profiler=profiler)), lambda: False)
    given = Scope.__enter__, Scope.__exit__
    scopes.follow()
    scope = Scope()
    with pytest.raises(SystemExit), scope:
        pass
    scopes.end()
    assert scope.ended == {"__enter__": 0, "begun": 1, "__exit__": 1, "ended": 2}[raised_in]
    assert (Scope.__enter__, Scope.__exit__) == given
