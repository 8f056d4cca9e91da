"""What a step costs more while the agent of npuperf profile waits for its window, and after it, in pairs.

Needs torch. The agent counts in this process; a step with its wrapper and one without take turns, in short stretches,
so that both see the same machine. The optimizer does nothing: what remains is npuperf's own.

    python benchmarks/bench_waiting_step.py [--pairs 600]

Limit: 1 µs, or 1 % of a step (printed: that of a small model).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Calls in a stretch: short enough to be left alone by the scheduler now and then.
CALLS = 100


def took(step: Callable[[object], object], of: object, calls: int = CALLS) -> float:
    """Return the time of a call, µs."""
    began = time.perf_counter()
    for _ in range(calls):
        step(of)
    return (time.perf_counter() - began) / calls * 1e6


def compare(label: str, pairs: int, plain: Callable[[object], object], mine: Callable[[object], object], of: object,
            whole: float) -> None:  # fmt: skip
    """Let both take turns; print the difference of the shortest times, and how the pairs' differences spread."""
    both = [(took(plain, of), took(mine, of)) for _ in range(pairs)]
    added = min(b for _, b in both) - min(a for a, _ in both)
    low, middle, high = statistics.quantiles((b - a for a, b in both), n=4)
    print(f"{label}: {added:+.2f} us ({1 + added / whole:.4f} of a step of {whole:.0f} us); "
          f"pairs: median {middle:+.2f} us, quartiles {low:+.2f} to {high:+.2f} us")  # fmt: skip


def measure(pairs: int) -> None:
    """Measure in an interpreter that carries the agent."""
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8)))

    class Empty(torch.optim.Optimizer):
        def step(self) -> None:  # type: ignore[override]
            pass

    empty, real = Empty(model.parameters(), {}), torch.optim.SGD(model.parameters(), lr=0.1)

    def train(_: object) -> None:
        model(torch.ones(16, 64)).sum().backward()
        real.step()
        real.zero_grad()

    whole = min(took(train, None, 5) for _ in range(100))
    mine = vars(Empty)["step"]
    compare("waiting", pairs, mine.__wrapped__, mine, empty, whole)
    sys.modules["_npuperf_agent"]._session._unfollow()  # as at the end of the window
    compare("kept by somebody, after the window", pairs, mine.__wrapped__, mine, empty, whole)


def main() -> None:
    """Start an interpreter that carries the agent, with a window that never comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=600)
    pairs = parser.parse_args().pairs
    if "_npuperf_agent" in sys.modules:
        measure(pairs)
        return
    with tempfile.TemporaryDirectory() as name:
        schedule = {"wait": 10**9, "warmup": 1, "active": 2, "repeat": 1}
        plan = {"engine": "cpu", "status": name, "whole_run": False, "step_on": "optimizer", "schedule": schedule}
        (Path(name) / "plan.json").write_text(json.dumps({**plan, "ranks": None, "own_profiler": "defer"}))
        inject = ROOT / "npuperf" / "record" / "agent" / "inject"
        carried = {"PYTHONPATH": str(inject), "NPUPERF_PLAN": f"{name}/plan.json"}
        alone = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--pairs", str(pairs)]
        subprocess.run(command, env={**os.environ, **alone, **carried}, check=True)


if __name__ == "__main__":
    main()
