"""Runs of ``npuperf profile`` with the real torch_npu over the CANN stand-in, and what they left."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The queue is drained before Python goes: torch_npu's consumer thread may want the GIL, and be aborted, after that.
MODEL = """
import atexit, os, signal, sys, time
import torch
torch.npu.set_device(int(os.environ.get("LOCAL_RANK", "0")))
atexit.register(torch.npu.synchronize)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(16, 64).npu()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
TRAIN = MODEL + "for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 25):\n    step()\n"


@dataclass
class Run:
    """A finished ``npuperf profile`` and what it left."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "npuperf.json").read_text("utf-8"))
        return found

    @property
    def recorded(self) -> list[list[int]]:
        return [p["recorded"] for p in self.manifest["processes"] if p["folders"]]

    @property
    def raw(self) -> list[Path]:
        return sorted((self.folder / "raw").iterdir())

    def kernels(self, raw: Path | None = None) -> list[dict[str, str]]:
        table = (raw or self.raw[0]) / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
        with table.open(newline="") as file:
            return list(csv.DictReader(file))


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "npuperf", "profile", *map(str, arguments)]


def profile(environment: dict[str, str], folder: Path, *arguments: object, source: str = TRAIN, **extra: str) -> Run:
    """Run ``npuperf profile ARGUMENTS`` in a folder that holds ``source`` as train.py."""
    (folder / "train.py").write_text(source)
    done = subprocess.run(
        command(*arguments),
        cwd=folder,
        env={**environment, **extra},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr.split("npuperf: ", 1)[-1], done.stderr
    if "terminate called without an active exception" in done.stderr and (folder / "result").exists():
        # One in some hundred runs of torch_npu over the stand-in ends like this, with npuperf or without.
        shutil.rmtree(folder / "result")
        return profile(environment, folder, *arguments, source=source, **extra)
    return Run(done.returncode, done.stdout, done.stderr, folder / "result")


def steps_of(rows: list[dict[str, str]]) -> set[int]:
    return {int(row["Step Id"]) for row in rows if row["Step Id"]}
