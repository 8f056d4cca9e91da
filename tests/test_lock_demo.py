"""The lock in our own pipeline: a program recorded on the CPU and locked; unchanged it passes, changed it does not."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(8):
    data, wanted = torch.randn(32, 64), torch.randint(0, 10, (32,))
    loss = torch.nn.functional.cross_entropy(model(data), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
#: One operator more, as a review may overlook it.
CHANGED = PROGRAM.replace("model(data)", "model(data).tanh()")

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch (pip install '.[dev]')")


def npuperf(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "npuperf", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three recordings: the program twice, and changed."""
    folder = tmp_path_factory.mktemp("demo")
    options = ("--engine", "cpu", "--shapes", "--wait", "2", "--active", "3")

    def record(name: str, program: str) -> subprocess.CompletedProcess[str]:
        (folder / f"{name}.py").write_text(program, "utf-8")
        return npuperf(folder, "profile", *options, "-o", name, f"{name}.py")

    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(record, ("first", "again", "changed"), (PROGRAM, PROGRAM, CHANGED)):
            assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_a_change_is_caught_where_there_is_no_npu(runs: Path) -> None:
    locked = npuperf(runs, "analyze", "first", "--lock", "perf.lock")
    assert locked.returncode == 0, locked.stdout + locked.stderr
    lock = (runs / "perf.lock").read_text("utf-8")
    assert "aten::addmm" in lock

    again = npuperf(runs, "analyze", "again", "--lock", "again.lock", "--check", "perf.lock")
    assert again.returncode == 0, again.stdout + again.stderr
    assert (runs / "again.lock").read_text("utf-8") == lock

    changed = npuperf(runs, "analyze", "changed", "--check", "perf.lock")
    assert changed.returncode == 1, changed.stdout + changed.stderr
    assert "aten::tanh" in changed.stdout
    assert "aten::addmm" not in changed.stdout

    accepted = npuperf(runs, "analyze", "changed", "--update-lock", "perf.lock")
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    added = set((runs / "perf.lock").read_text("utf-8").splitlines()) - set(lock.splitlines())
    assert added
    assert all("tanh" in line.lower() for line in added)
    assert npuperf(runs, "analyze", "changed", "--check", "perf.lock").returncode == 0
