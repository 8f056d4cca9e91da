"""Programs under the agent, with the real torch: they do, print and return what they would without it."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import made_once

from npuperf.record.folder import RunFolder
from npuperf.record.plan import INJECT, plan_of
from npuperf.record.request import ProfileRequest

PROGRAMS = Path(__file__).with_name("undisturbed_programs.py")
#: Each program, and the steps that are recorded of it: all of the window, or those before its end.
RECORDED = {
    "plain": [7, 8, 9, 10],
    "compiled": [7, 8, 9, 10],
    "compiled with the loss": [7, 8, 9, 10],
    "two threads": [7, 8, 9, 10],
    "own handlers": [7, 8, 9, 10],
    "handlers before": [7, 8, 9, 10],
    "scaled": [7, 8, 9, 10],
    "workers forked": [7, 8, 9, 10],
    "workers spawned": [7, 8, 9, 10],
    "forks": [7, 8, 9, 10],
    "fails": [7, 8],
    "sys.exit": [7, 8],
    "os._exit": [7, 8],
    "killed": [7, 8],
    "interrupted": [7, 8],
}


@dataclass(frozen=True)
class Ran:
    """What the programs printed, by name, with and without the agent, and what the agent said of each."""

    plain: dict[str, str]
    mine: dict[str, str]
    status: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch (pip install '.[dev]')")
    folder = made_once(tmp_path_factory, "undisturbed", _run_all)
    status = {}
    for name in RECORDED:
        pid = (folder / "mine" / name).read_text()
        status[name] = json.loads((RunFolder(folder / "run").status / f"{platform.node()}_{pid}.json").read_text())
    plain, mine = (_by_name((folder / f"{kind}.out").read_text()) for kind in ("plain", "mine"))
    return Ran(plain, mine, status)


def _run_all(folder: Path) -> None:
    """Run the programs with and without the agent, side by side."""
    run = RunFolder(folder / "run")
    for made in (run.raw, run.status, folder / "plain", folder / "mine"):
        made.mkdir(parents=True)
    plan = folder / "plan.json"
    plan.write_text(json.dumps(plan_of(ProfileRequest(engine="cpu", wait=6, warmup=1, active=4), run)))
    alone = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NPUPERF_PLAN")} | alone
    call = [sys.executable, str(PROGRAMS)]
    carried = {**environment, "PYTHONPATH": str(INJECT), "NPUPERF_PLAN": str(plan)}
    with (
        (folder / "plain.out").open("w") as plain,
        (folder / "mine.out").open("w") as mine,
        subprocess.Popen(
            [*call, folder / "plain", *RECORDED], env=environment, stdout=plain, stderr=subprocess.DEVNULL
        ),
        subprocess.Popen([*call, folder / "mine", *RECORDED], env=carried, stdout=mine, stderr=subprocess.DEVNULL),
    ):
        pass  # both are waited for


def _by_name(printed: str) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in printed.splitlines(keepends=True):
        if line.rstrip("\n") in RECORDED:
            name = line.rstrip("\n")
        found[name] = found.get(name, "") + line
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", RECORDED)
def test_a_program_is_not_disturbed(ran: Ran, name: str) -> None:
    """Weights, random numbers, exit status, handlers and compiled frames are those without npuperf, to the byte."""
    assert "exit status" in ran.plain[name]
    assert ran.mine[name] == ran.plain[name]
    said = ran.status[name]
    assert (said["state"], said["recorded"]) == ("recorded", RECORDED[name]), said
    assert len(said["folders"]) == 1 and said["early"] == (len(RECORDED[name]) < 4)


def test_threads_that_are_not_recorded_are_told(ran: Ran) -> None:
    assert [name for name, said in ran.status.items() if said["warnings"]] == ["two threads"]
    (warning,) = ran.status["two threads"]["warnings"]
    assert warning["id"].startswith("{threads} threads make steps: only those of thread {thread} were recorded")
    assert warning["parameters"]["threads"] == 2 and warning["parameters"]["thread"].startswith("trainer")
    assert 0 < warning["parameters"]["steps"] <= 24
