"""``npuperf profile --pid`` with the real torch and torch_npu: what waits in a program is asked, and leaves nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import pytest
from conftest import ROOT, until
from npu_runs import OFF, Run

#: Says when it makes steps, and makes them until there is a file "enough".
STEPS = """
import os, sys, time, torch
device = "npu" if hasattr(torch, "npu") else "cpu"
model = torch.nn.Linear(64, 64).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while not os.path.exists("enough"):
    model(torch.randn(16, 64).to(device)).sum().backward(); optimizer.step(); optimizer.zero_grad()
    if device == "npu": torch.npu.synchronize()
    open("made", "w").close()
    time.sleep(0.005)
print("ended by itself")
"""
#: What a user may have written there: of another window, and what only torch_npu knows.
USERS = {"start_step": 0, "active": 7, "metadata": {"mine": 1}, "experimental_config": {"profiler_level": "Level0"}}


class Program:
    """A program that makes steps, and commands beside it."""

    def __init__(self, folder: Path, environment: Mapping[str, str], process: subprocess.Popen[str]) -> None:
        self.folder, self.environment, self.process = folder, environment, process

    def start(self, *words: object) -> subprocess.Popen[str]:
        call = [sys.executable, "-m", "npuperf", "profile", *map(str, words)]
        return subprocess.Popen(
            call, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def profile(self, *words: object, name: str = "result") -> Run:
        command = self.start("-o", name, *words)
        said, _ = command.communicate(timeout=120)
        return Run(command.returncode, "", said, self.folder / name)

    def until(self, holds: Callable[[], object]) -> None:
        last = time.monotonic() + 120
        while not holds():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < last
            time.sleep(0.02)

    def ended(self) -> tuple[int, list[str]]:
        (self.folder / "enough").touch()
        said, _ = self.process.communicate(timeout=120)
        return self.process.returncode, [line for line in said.splitlines() if "ended by itself" in line]


@contextmanager
def running(folder: Path, environment: Mapping[str, str], *before: str) -> Iterator[Program]:
    (folder / "steps.py").write_text(STEPS)
    process = subprocess.Popen(
        [*before, sys.executable, "steps.py"], cwd=folder, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    program = Program(folder, environment, process)
    try:
        program.until(lambda: (folder / "made").exists())
        yield program
    finally:
        (folder / "enough").touch()
        try:
            process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@pytest.mark.long
def test_a_program_in_standby(tmp_path: Path) -> None:
    """By its pid and by that of the npuperf that started it, in steps and in time; it ends as it would."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch (pip install '.[dev]')")
    environment = {**os.environ, **OFF, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    standby = [sys.executable, "-m", "npuperf", "profile", "--standby", "-o", "standing", "--engine", "cpu", "--"]
    with running(tmp_path, environment, *standby) as program:
        steps = program.profile("--pid", program.process.pid, "--active", 3)  # standby knows that there is no NPU
        assert steps.code == 0 and "NO NPU" not in steps.err, steps.err
        assert steps.recorded == [[2, 3, 4]] and steps.steps == {2, 3, 4}
        (pid,) = steps.manifest["attached"]["pids"]
        timed = program.profile("--pid", pid, "--engine", "cpu", "--duration", "300ms", name="timed")
        assert timed.code == 0, timed.err
        assert timed.manifest["processes"][0]["seconds"] >= 0.3 and timed.steps >= set(timed.recorded[0])
        assert all(process["longer"] == 0 for process in timed.manifest["processes"])
        long = program.start("-o", "long", "--pid", pid, "--engine", "cpu", "--duration", "1h")
        status = tmp_path / "long" / ".profile" / "status"
        program.until(lambda: any('"recording"' in file.read_text() for file in status.glob("*.json")))
        assert program.profile("--pid", pid, "--engine", "cpu", name="second").code == 5
        long.send_signal(signal.SIGINT)
        said, _ = long.communicate(timeout=300)
        assert long.returncode == 0, said
        assert not list((tmp_path / "standing" / ".profile" / "standby").iterdir())
        assert program.ended() == (0, ["ended by itself"])


@pytest.mark.long
def test_through_torch_npu_s_dynamic_profiling(npu: dict[str, str], tmp_path: Path) -> None:
    """Its settings are put back as they were, with their time, also if npuperf is killed, and start no more windows."""
    # torch_npu's processes meet in shared memory that is named after the hour, also that of a program that was killed
    until(lambda: datetime.now(timezone.utc).minute < 59)
    for left in Path("/dev/shm").glob("DynamicProfileNpuShm*"):
        left.unlink()
    settings = tmp_path / "settings"
    settings.mkdir()
    file = settings / "profiler_config.json"
    file.write_text(json.dumps(USERS))
    file.chmod(0o640)

    def content() -> tuple[str, int, int]:
        return file.read_text(), file.stat().st_mtime_ns, file.stat().st_mode

    before = content()
    with running(tmp_path, {**npu, "PROF_CONFIG_PATH": str(settings)}) as program:
        pid = program.process.pid
        run = program.profile("--pid", pid, "--active", 2, "--shapes", "--export", "text")
        assert run.code == 0, run.err
        assert content() == before
        assert run.manifest["attached"]["way"] == "torch_npu"
        (raw,), (recorded,) = run.raw, run.recorded
        known = json.loads((raw / "profiler_info.json").read_text())["config"]
        assert known["common_config"]["record_shapes"] and known["common_config"]["schedule"]["active"] == 2
        assert known["experimental_config"]["_profiler_level"] == "Level1"
        kernels = run.kernels()
        assert len(recorded) == 2 and kernels
        numbers = {int(row["Step Id"]) for row in kernels if row["Step Id"]}
        assert ("torch_npu took the kernels of 2 steps for those of 1" in run.err) == (numbers == {recorded[0]})
        refused = program.profile("--pid", pid, "--duration", "1s", name="refused")
        assert refused.code == 2 and "--duration: torch_npu's dynamic profiling does not have it" in refused.err
        killed = program.start("-o", "killed", "--pid", pid, "--active", 100_000)
        program.until(lambda: content() != before)
        killed.kill()
        killed.communicate()
        program.until(lambda: content() == before)
        assert program.ended() == (0, ["ended by itself"])
    assert sorted(p.name for p in settings.iterdir()) == ["log", "profiler_config.json"]
