"""Programs under the agent, with the real torch: they do, print and return what they would without it."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import made_once

from npuperf.record.folder import RunFolder
from npuperf.record.plan import INJECT, plan_of
from npuperf.record.request import Engine, ProfileRequest

PROGRAMS = Path(__file__).with_name("undisturbed_programs.py")
#: The steps that are recorded of each program: all of the window, or those before its end.
ALL, UNTIL = [7, 8, 9, 10], [7, 8]
RECORDED = {
    "plain": ALL,
    "compiled": ALL,
    "compiled with the loss": ALL,
    "two threads": ALL,
    "own handlers": ALL,
    "handlers before": ALL,
    "scaled": ALL,
    "workers forked": ALL,
    "workers spawned": ALL,
    "forks": ALL,
    "fails": UNTIL,
    "sys.exit": UNTIL,
    "os._exit": UNTIL,
    "interrupted": UNTIL,
    "left by a thread": [7],  # of what is lost the first step is known
    "killed": [7],
    "made before a fork": ALL,
    "warmed up before a fork": ALL,
    "thread ends": UNTIL,
    "daemon thread": UNTIL,
    "gradients accumulated": ALL,
    "closures": ALL,
    "sys.settrace": ALL,
    "sys.setprofile": ALL,
    "own stdout": ALL,
    "closed stdout": ALL,
    "another folder": ALL,
    "released": ALL,
    "recursive": ALL,
    "reported": ALL,
    "scanned": ALL,
    "own profiler afterwards": ALL,
}
#: Those whose steps several threads make.
THREADED = ("thread pool", "http.server with threads")
#: Those of which nothing is saved: their end does not wait for it.
LOST = ("left by a thread", "killed")
SERVED = {
    "inference": ALL,
    "http.server": ALL,
    "asyncio": ALL,
    "pre-fork server": ALL,
    "modules prepare data": ALL,
}


#: Of libraries that others train with: those for which a module is there, where it is. Lightning knows no NPU.
LIBRARIES = {
    "accelerate": "accelerate",
    "Hugging Face Trainer": "transformers",
    "Lightning": "lightning",
    "a notebook": "nbclient",
}
NO_NPU = ("Lightning",)


@dataclass(frozen=True)
class Ran:
    """What the programs printed, by name, with and without the agent, what they left, and what the agent said."""

    folder: Path
    plain: dict[str, str]
    mine: dict[str, str]
    status: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_all(tmp_path_factory, "undisturbed", list(RECORDED), "optimizer")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_all(tmp_path_factory, "served", [*SERVED, *THREADED], "forward")


@pytest.fixture(scope="module")
def with_libraries(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_all(tmp_path_factory, "libraries", installed(), "optimizer")


@pytest.fixture(scope="module")
def with_libraries_there(npu: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Ran:
    names = [name for name in installed() if name not in NO_NPU]
    return run_all(tmp_path_factory, "libraries there", names, "optimizer", npu)


def installed() -> list[str]:
    return [name for name, module in LIBRARIES.items() if importlib.util.find_spec(module)]


def run_all(
    factory: pytest.TempPathFactory, name: str, names: list[str], step_on: str, npu: Mapping[str, str] | None = None
) -> Ran:
    """Run programs with and without the agent, side by side; ``npu``: the environment of one, else on the CPU."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch (pip install '.[dev]')")
    folder = made_once(factory, name, lambda folder: _run(folder, names, step_on, npu))
    status = {}
    for name in names:
        pid = (folder / "mine" / f"{name}.pid").read_text()
        status[name] = json.loads((RunFolder(folder / "run").status / f"{platform.node()}_{pid}.json").read_text())
    plain, mine = (_by_name((folder / f"{kind}.out").read_text(), names) for kind in ("plain", "mine"))
    return Ran(folder, plain, mine, status)


def _run(folder: Path, names: list[str], step_on: str, npu: Mapping[str, str] | None) -> None:
    run = RunFolder(folder / "run")
    for made in (run.raw, run.status, folder / "plain", folder / "mine"):
        made.mkdir(parents=True)
    run.raw.chmod(0o750)  # torch_npu refuses to write where others may
    plan = folder / "plan.json"
    engine: Engine = "torch" if npu else "cpu"
    request = ProfileRequest(engine=engine, wait=6, warmup=1, active=4, step_on=step_on)
    plan.write_text(json.dumps(plan_of(request, run)))
    alone = {"PROGRAMS_ON": "npu"} if npu else {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    given = os.environ if npu is None else npu
    environment = {k: v for k, v in given.items() if k not in ("PYTHONPATH", "NPUPERF_PLAN")} | alone
    environment["OMP_NUM_THREADS"] = "1"
    carried = {**environment, "PYTHONPATH": str(INJECT), "NPUPERF_PLAN": str(plan)}
    with ExitStack() as until:
        for kind, variables in (("plain", environment), ("mine", carried)):
            out = until.enter_context((folder / f"{kind}.out").open("w"))
            call = [sys.executable, str(PROGRAMS), folder / kind, *names]
            until.enter_context(
                subprocess.Popen(call, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
            )  # both are waited for


def _by_name(printed: str, names: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in printed.splitlines(keepends=True):
        if line.startswith("ERROR: External init callback must run in same thread"):
            continue  # Kineto's, straight to the descriptor, where it is first used in another thread
        if "Warning: Torch-Compiled Region" in line:
            continue  # as is what torch says of a compiled function within which recording begins
        # When, in which process, and where in memory.
        line = re.sub(r"^(USDT:|\[?[WE])\d{4}[- \d:.]+|\d{4}-[-\d:]+ \(PID:\d+|0x[0-9a-f]{8,}", "", line)
        if line.rstrip("\n") in names:
            name = line.rstrip("\n")
        found[name] = found.get(name, "") + line
    return found


def assert_the_same(ran: Ran, name: str) -> None:
    """Output and errors, exit status, processes that are left, and files."""
    assert "exit status" in ran.plain[name] and "a process is left" not in ran.plain[name]
    assert ran.mine[name] == ran.plain[name]
    plain, mine = (
        {p.relative_to(place): p for p in place.rglob("*")}
        for place in (ran.folder / kind / name for kind in ("plain", "mine"))
    )
    assert plain.keys() == mine.keys()


@pytest.mark.long
@pytest.mark.parametrize("name", RECORDED)
def test_a_program_is_not_disturbed(ran: Ran, name: str) -> None:
    """Weights, random numbers, exit status, handlers and compiled frames are those without npuperf, to the byte."""
    assert_the_same(ran, name)
    said = ran.status[name]
    if name in LOST:
        assert (said["state"], said["recorded"], said["folders"]) == ("recording", RECORDED[name], [])
        return
    if name == "daemon thread":  # to stop its recording in another thread would crash the program
        assert said["state"] == "failed" and "only that thread can end it" in said["problem"]["id"]
        return
    assert (said["state"], said["recorded"]) == ("recorded", RECORDED[name]), said
    assert len(said["folders"]) == 1 and said["early"] == (len(RECORDED[name]) < 4)


@pytest.mark.long
@pytest.mark.parametrize("name", SERVED)
def test_a_server_is_not_disturbed(served: Ran, name: str) -> None:
    """Every answer, and what is above."""
    assert_the_same(served, name)
    said = served.status[name]
    assert (said["state"], said["recorded"]) == ("recorded", SERVED[name]), said


@pytest.mark.long
def test_threads_that_share_the_steps(served: Ran) -> None:
    """All are counted: the steps of one thread are recorded."""
    assert_the_same(served, "thread pool")
    said = served.status["thread pool"]
    assert (said["state"], said["recorded"]) == ("recorded", ALL), said
    assert (said["threads"], said["step"]) == ([12] * 4, 12)


@pytest.mark.long
def test_a_thread_for_every_step(served: Ran) -> None:
    """None makes enough, also where one has the ident of another that ended before."""
    assert_the_same(served, "http.server with threads")
    said = served.status["http.server with threads"]
    assert (said["state"], said["folders"], sum(said["threads"])) == ("waiting", [], 24), said


def assert_a_library_is_not(ran: Ran, name: str, engine: str) -> None:
    assert_the_same(ran, name)
    assert "exit status 0" in ran.plain[name], ran.plain[name]
    said = ran.status[name]
    assert (said["state"], said["recorded"], said["warnings"]) == ("recorded", ALL, []), said
    assert len(said["folders"]) == 1 and said["engine"] == engine


@pytest.mark.long
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_is_not_disturbed(with_libraries: Ran, name: str) -> None:
    """Its losses, what it logs and saves, and what is above."""
    if name not in installed():
        pytest.skip(f"needs {LIBRARIES[name]} (pip install '.[programs]')")
    assert_a_library_is_not(with_libraries, name, "cpu")


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in LIBRARIES if name not in NO_NPU])
def test_a_library_with_torch_npu_is_not_disturbed(with_libraries_there: Ran, name: str) -> None:
    if name not in installed():
        pytest.skip(f"needs {LIBRARIES[name]} (pip install '.[programs]')")
    assert_a_library_is_not(with_libraries_there, name, "torch")


#: Programs that are run with torch_npu over the stand-in for CANN, too, with the steps that are recorded there.
TRAINED_THERE = {
    name: RECORDED[name]
    for name in (
        *("gradients accumulated", "scaled", "closures", "released", "own handlers", "handlers before", "own stdout"),
        *("fails", "sys.exit", "os._exit", "interrupted", "another folder"),
        *("thread ends", "two threads", "daemon thread", "made before a fork", "killed", "left by a thread"),
        *("sys.settrace", "sys.setprofile", "closed stdout", "recursive", "reported", "scanned"),
        "own profiler afterwards",
    )
}
SERVED_THERE = {name: SERVED[name] for name in ("inference", "http.server", "asyncio", "pre-fork server")}


@pytest.fixture(scope="module")
def there(npu: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Ran]:
    trained = run_all(tmp_path_factory, "undisturbed there", list(TRAINED_THERE), "optimizer", npu)
    return trained, run_all(tmp_path_factory, "served there", [*SERVED_THERE, "thread pool"], "forward", npu)


@pytest.mark.long
@pytest.mark.parametrize("name", TRAINED_THERE | SERVED_THERE)
def test_a_program_with_torch_npu_is_not_disturbed(there: tuple[Ran, Ran], name: str) -> None:
    """What the stand-in computes is nothing, but all else is there: torch_npu's threads, its queue, its profiler."""
    ran = there[name in SERVED_THERE]
    assert_the_same(ran, name)
    said = ran.status[name]
    state = "recording" if name in LOST else "recorded"
    assert (said["state"], said["recorded"]) == (state, (TRAINED_THERE | SERVED_THERE)[name]), said
    assert len(said["folders"]) == (name not in LOST) and said["engine"] == "torch"


def test_threads_that_share_the_steps_with_torch_npu(there: tuple[Ran, Ran]) -> None:
    assert_the_same(there[1], "thread pool")
    assert there[1].status["thread pool"]["threads"] == [12] * 4


def test_only_the_process_that_makes_steps_records(served: Ran) -> None:
    """Workers that prepare data with modules count none."""
    status = [json.loads(p.read_text()) for p in RunFolder(served.folder / "run").status.iterdir()]
    assert sum(bool(s["folders"]) for s in status) >= len(SERVED)
    assert len([s for s in status if s["step"] and not s["folders"]]) <= 3, status


def test_threads_that_are_not_recorded_are_told(ran: Ran) -> None:
    assert [name for name, said in ran.status.items() if said["warnings"]] == ["two threads"]
    (warning,) = ran.status["two threads"]["warnings"]
    assert warning["id"].startswith("{threads} threads make steps: only those of thread {thread} were recorded")
    assert warning["parameters"]["threads"] == 2 and warning["parameters"]["thread"].startswith("trainer")
    assert 0 < warning["parameters"]["steps"] <= 24


def test_a_thread_that_ends_is_told(ran: Ran) -> None:
    why = ran.status["thread ends"]["why_early"]
    assert why["parameters"] == {"thread": "trainer", "step": 9}


def test_its_own_profiler_has_the_same_events(ran: Ran) -> None:
    """Once all has been recorded nothing of ours is heard by it."""
    plain, mine = (
        Counter((e["name"], e["ph"]) for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "cpu_op")
        for path in (ran.folder / kind / "own profiler afterwards" / "own.json" for kind in ("plain", "mine"))
    )
    assert mine == plain and plain["aten::linear", "X"] == 24
