"""What npuperf profile costs the program, as ratios against peers in the same run.

Needs torch and torch_npu (pip install '.[dev]') and gcc: the real torch_npu runs over the CANN stand-in.

    python benchmarks/bench_profile.py [--rounds 7]

1. Wall time of the program (export apart) against a hand-written torch_npu.profiler run of the same script; limit 1.02.
2. What a step outside the window takes longer than without npuperf, while the agent waits for the window; limit 1.01.
3. The same after the window, when the agent has left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MODEL = """
import sys, time
import torch, torch_npu
import atexit
torch.npu.set_device(0)
atexit.register(torch.npu.synchronize)  # else the consumer thread may be aborted while Python goes
layers = [m for _ in range(8) for m in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(16, 64).npu()
def step():
    model(data).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PLAIN = MODEL + "for _ in range(2000): step()\n"
BY_HAND = (
    MODEL
    + """
from torch_npu.profiler import *
from torch_npu.profiler import _ExperimentalConfig
config = _ExperimentalConfig(profiler_level=ProfilerLevel.Level1, aic_metrics=AiCMetrics.PipeUtilization)
if __name__ == "__main__":
    with profile(schedule=schedule(wait=10, warmup=1, active=2, repeat=1), experimental_config=config,
                 on_trace_ready=tensorboard_trace_handler("by_hand", analyse_flag=False)) as p:
        for _ in range(2000):
            step()
            p.step()
"""
)
#: An optimizer that does nothing: what its steps take longer under npuperf is what npuperf costs, free of the noise
#: of a whole step.
EMPTY = (
    MODEL
    + """
class Empty(torch.optim.Optimizer):
    def step(self): pass
empty = Empty(model.parameters(), {})
def took(what, n):
    began = time.perf_counter()
    for _ in range(n): what()
    return (time.perf_counter() - began) / n
for _ in range(100): empty.step()
print(min(took(empty.step, 20000) for _ in range(5)), min(took(step, 50) for _ in range(10)))
"""
)


def stub_environment(folder: Path) -> dict[str, str]:
    """Return an environment in which torch_npu runs."""
    build = [sys.executable, str(ROOT / "tests" / "cann_stub" / "build.py"), "--python", sys.executable]
    subprocess.run([*build, "--out", str(folder)], check=True, capture_output=True)
    found = json.loads((folder / "env.json").read_text())
    search = os.pathsep.join([found["PATH"], os.environ["PATH"]])
    return {**os.environ, **found, "PATH": search, "PYTHONPATH": str(ROOT), "FAKE_CANN_CUBE_US": "2"}


class Bench:
    """Runs scripts in one folder."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.runs = 0

    def plain(self, source: str) -> tuple[float, str]:
        """Run a script; return seconds and output."""
        (self.folder / "train.py").write_text(source)
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "train.py"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, -signal.SIGABRT):  # torch_npu now and then aborts when all is done
            raise SystemExit(f"the script failed ({done.returncode}):\n{done.stderr[-2000:]}")
        return time.perf_counter() - began, done.stdout

    def profiled(self, source: str, *options: str) -> tuple[float, str]:
        """Run a script under npuperf; return the seconds of the program alone, and its output."""
        (self.folder / "train.py").write_text(source)
        self.runs += 1
        run = self.folder / f"run{self.runs}"
        done = subprocess.run(
            [sys.executable, "-m", "npuperf", "profile", "-o", str(run), *options, "train.py"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        manifest = json.loads((run / "npuperf.json").read_text())
        return manifest["stages"]["run"]["seconds"], done.stdout


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench = Bench(folder, stub_environment(folder / "cann"))
        walls: dict[str, list[float]] = {"plain": [], "by hand": [], "npuperf": []}
        costs: dict[str, list[float]] = {"plain": [], "waiting": [], "after": []}
        whole_steps: list[float] = []
        bench.plain(PLAIN)  # warm the file cache
        for _ in range(rounds):
            walls["plain"].append(bench.plain(PLAIN)[0])
            walls["by hand"].append(bench.plain(BY_HAND)[0])
            walls["npuperf"].append(bench.profiled(PLAIN)[0])
            empty, whole = bench.plain(EMPTY)[1].split()
            costs["plain"].append(float(empty))
            whole_steps.append(float(whole))
            costs["waiting"].append(float(bench.profiled(EMPTY, "--wait", "10000000")[1].split()[0]))
            costs["after"].append(float(bench.profiled(EMPTY)[1].split()[0]))
    for what, times in walls.items():
        print(f"{what:8}  wall {statistics.median(times):7.3f} s  ({min(times):.3f}–{max(times):.3f})")
    ratio = statistics.median(walls["npuperf"]) / statistics.median(walls["by hand"])
    print(f"npuperf / by hand: {ratio:.3f} (limit 1.02)")
    step = min(whole_steps)
    for what in ("waiting", "after"):
        added = min(costs[what]) - min(costs["plain"])
        print(f"{what}: {1e6 * added:+.2f} us in a step of {1e6 * step:.0f} us: {1 + added / step:.4f} (limit 1.01)")


if __name__ == "__main__":
    main()
