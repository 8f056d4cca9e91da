"""What a step costs more while the agent of npuperf profile waits for its window, or for a request, and after it.

Needs torch. The agent counts in this process; steps that it hears and a copy of these as they are without it take
turns, in short stretches, so that both see the same machine. First of an optimizer that does nothing, called in a row:
what remains is npuperf's own, as fast as it gets. Then within the training of a small model, whose work turns npuperf
out of the processor's caches: what users pay. There the difference of two whole steps would be lost in how much these
vary, and a method that is exchanged before each step leaves what runs every step in a program colder than it is. So
there npuperf's own time is read: from the call to where the step begins, and from where it has ended to the return,
less the same without.

    python benchmarks/bench_waiting_step.py [--pairs 600]

Limits within training: 5 µs while it waits for a window, 1 µs in standby; nothing afterwards.
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
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Calls in a stretch: short enough to be left alone by the scheduler now and then.
CALLS = 100
#: Steps of a training in a stretch: each but the first finds what the one before has left of the caches.
STRETCH = 10
#: Trains by a step; returns when that was called and when it returned, ns.
Training = Callable[[Callable[[Any], object]], "tuple[int, int]"]


def took(step: Callable[[Any], object], of: object, calls: int = CALLS) -> float:
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


def within(label: str, pairs: int, marks: list[int], plain: Callable[[object], object],
           mine: Callable[[object], object], train: Training) -> None:  # fmt: skip
    """Train by a step that is heard and by one that is not, in stretches that take turns; compare what is not the
    step's own: that lies between the ``marks``.

    Between the ranks that are named the median is with 95 % certainty, however the pairs' differences spread.
    """

    def stretch(call: Callable[[object], object]) -> float:
        found = []
        for _ in range(STRETCH + 2):
            called, returned = train(call)
            found.append(marks[0] - called + returned - marks[1])
        return statistics.median(found[2:]) / 1e3  # the first ones find what the other stretch has left

    both = [(stretch(plain), stretch(mine)) for _ in range(pairs)]
    found = sorted(mine - plain for plain, mine in both)
    middle, half = pairs // 2, round(0.98 * pairs**0.5)
    spread = f"between {found[middle - half]:+.2f} and {found[middle + half]:+.2f} us"
    print(f"{label}, within training: median {found[middle]:+.2f} us of {pairs} pairs of {STRETCH} steps, {spread}")


def measure(pairs: int) -> None:
    """Measure in an interpreter that carries the agent."""
    import torch

    torch.set_num_threads(1)

    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8)))

    class Empty(torch.optim.Optimizer):
        def step(self) -> None:  # type: ignore[override]
            pass

    empty, real = Empty(model.parameters(), {}), torch.optim.SGD(model.parameters(), lr=0.1)
    marks, of_torch = [0, 0], as_without(torch.optim.SGD.step)

    def timed(this: object) -> None:
        marks[0] = time.perf_counter_ns()
        of_torch(this)
        marks[1] = time.perf_counter_ns()

    def train_by(step: Callable[[object], object]) -> tuple[int, int]:
        model(torch.ones(16, 64)).sum().backward()
        called = time.perf_counter_ns()
        step(real)
        returned = time.perf_counter_ns()
        real.zero_grad()
        return called, returned

    agent = sys.modules["_npuperf_agent"]._session
    label = "standby" if agent.is_idle else "waiting"
    whole = min(took(train_by, of_torch, 5) for _ in range(100))
    plain, heard = as_without(Empty.step), as_without(timed)
    if not agent.is_idle:
        agent._heard._optimizers.exchange(heard)
    compare(label, pairs, plain, Empty.step, empty, whole)
    within(label, pairs, marks, timed, heard, train_by)
    if not agent.is_idle:
        agent._heard.unfollow()  # as at the end of the window
        compare("after the window", pairs, plain, Empty.step, empty, whole)


def as_without(step: Any) -> Callable[[object], object]:
    """Return a copy of a step, as it is where nobody hears it."""
    given = (step.__kwdefaults__ or {}).get("_npuperf", [step])[0]
    return types.FunctionType(given.__code__, given.__globals__, given.__name__, None, given.__closure__)


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
        inject = ROOT / "npuperf" / "record" / "agent" / "inject"
        carried = {"PYTHONPATH": str(inject), "NPUPERF_PLAN": f"{name}/plan.json"}
        alone = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--pairs", str(pairs)]
        for standby in (None, name):
            more = {"ranks": None, "own_profiler": "aside", "stop": f"{name}/stop", "standby": standby}
            (Path(name) / "plan.json").write_text(json.dumps({**plan, **more}))
            subprocess.run(command, env={**os.environ, **alone, **carried}, check=True)


if __name__ == "__main__":
    main()
