"""The lock in our own pipeline: a program recorded on the CPU and locked; unchanged it passes, changed it does not."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from preloaded import Loaded

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

PAGE = (ROOT / "docs" / "ci.md").read_text("utf-8")
(CHECK,) = re.findall(r"<!-- ci: cpu, change -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
RECORD = CHECK.splitlines()[0]


@pytest.fixture
def shell(tmp_path: Path, loaded: Loaded) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """A shell in a folder of its own, as that of a pipeline; programs run where torch is loaded already."""
    shim = tmp_path / "bin" / "npuperf"
    shim.parent.mkdir()
    npuperf = f"exec {shlex.quote(loaded.npuperf)} -m npuperf"
    python = f"--python {shlex.quote(loaded.python(npu=False))}"
    shim.write_text(
        f'#!/bin/sh\ncase $1 in profile) shift; {npuperf} profile {python} "$@";; *) {npuperf} "$@";; esac\n'
    )
    shim.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{shim.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "OMP_NUM_THREADS": "1",
    }

    def run(script: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-e", "-c", script]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def test_a_change_is_caught_where_there_is_no_npu(
    shell: Callable[[str], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    program, lock = tmp_path / "train.py", tmp_path / "perf.lock"
    program.write_text(PROGRAM, "utf-8")
    made = shell(f"{RECORD}\nnpuperf analyze result --lock perf.lock")
    assert made.returncode == 0, made.stdout + made.stderr
    locked = lock.read_text("utf-8")
    assert "aten::addmm" in locked

    again = shell(f"{CHECK}\nnpuperf analyze result --lock again.lock")
    assert again.returncode == 0, again.stdout + again.stderr
    assert (tmp_path / "again.lock").read_text("utf-8") == locked

    program.write_text(CHANGED, "utf-8")
    changed = shell(CHECK)
    assert changed.returncode == 1, changed.stdout + changed.stderr
    gates = [line for line in changed.stdout.splitlines() if "perf.lock" in line]
    assert any("aten::tanh" in line for line in gates)
    assert not any("aten::addmm" in line for line in gates)

    accepted = shell("npuperf analyze result --update-lock perf.lock\nnpuperf analyze result --check perf.lock")
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    added = set(lock.read_text("utf-8").splitlines()) - set(locked.splitlines())
    assert added
    assert all("tanh" in line.lower() for line in added)
