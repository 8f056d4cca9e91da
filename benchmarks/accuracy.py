"""Close the loop: plant a bottleneck, predict a fix, apply the fix in the simulation, compare.

    python benchmarks/accuracy.py            prints a table
    python benchmarks/accuracy.py --write    writes the first part of docs/accuracy.md

Each scenario of planted.py is simulated, written as a profile, analyzed with every fix as a what-if, and then
simulated again with the fix applied. The error is that of the window's length, relative to the window before.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from figures import filled
from planted import Recording, Scenario, World, run, scenarios, write

from npuperf.against.run import run as analyze
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.result import Device, Result

PAGE = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"


@dataclass(frozen=True)
class Compared:
    """One fix on one rank: window before, after it in truth, after it as predicted (ns); predicted None: abstained."""

    fix: str
    rank: int
    before: int
    after: int
    predicted: int | None
    least: int
    most: int

    @property
    def error(self) -> float:
        """Difference of prediction and truth, relative to the window before."""
        return 0.0 if self.predicted is None else (self.predicted - self.after) / self.before

    @property
    def inside(self) -> bool:
        """Whether the true gain lies in the predicted interval, give or take 1 % of the window."""
        gain, slack = self.before - self.after, 0.01 * self.before
        return self.least - slack <= gain <= self.most + slack


@dataclass(frozen=True)
class Measured:
    """A scenario analyzed: the result, what was simulated, true elasticities, fixes compared."""

    scenario: Scenario
    result: Result
    recordings: list[Recording]
    truth: dict[str, float]
    compared: list[Compared]


def measure(scenario: Scenario, folder: Path) -> Measured:
    """Simulate, analyze and compare one scenario."""
    base = run(scenario)
    write(scenario, folder, base)
    result = analyze(AnalyzeRequest(path=folder, what_if=tuple(fix for fix, _ in scenario.fixes)))
    span = sum(r.span for r in base)
    faster = {"host": World(host=0.9), "compute": World(compute=0.9), "communication": World(comm=0.9)}
    truth = {name: (span - sum(r.span for r in run(scenario, world))) / span / 0.1 for name, world in faster.items()}
    compared = []
    for fix, world in scenario.fixes:
        for rank, (device, before, after) in enumerate(zip(result.devices, base, run(scenario, world), strict=True)):
            compared.append(_compare(fix, rank, device, result, before, after))
    return Measured(scenario, result, base, truth, compared)


def _compare(fix: str, rank: int, device: Device, result: Result, before: Recording, after: Recording) -> Compared:
    (found,) = [w for w in result.what_if if w.asked and w.expr == fix and w.rank == device.rank]
    steps = max(len(device.steps), 1)
    least, most = (g * steps for g in found.gain_ns_per_step or (0, 0))
    return Compared(fix, rank, before.span, after.span, found.span_ns, least, most)


def main() -> None:
    """Measure all scenarios and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = [measure(s, Path(folder) / str(i)) for i, s in enumerate(scenarios())]
    text = report(measured)
    print(text)
    if options.write:
        PAGE.write_text(filled(PAGE.read_text("utf-8"), "what-ifs", text), "utf-8")


def report(measured: list[Measured]) -> str:
    """Render the part of the page: the distribution of errors, then every comparison."""
    compared = [c for m in measured for c in m.compared if c.predicted is not None]
    errors = np.abs([c.error for c in compared])
    abstained = sum(c.predicted is None for m in measured for c in m.compared)
    quantiles = ", ".join(f"{q} % of them within {100 * np.percentile(errors, q):.2f} %" for q in (50, 90, 95, 99))
    lines = [
        "# Accuracy of what-if predictions",
        "",
        "Made by `python benchmarks/accuracy.py --write`: every planted scenario (benchmarks/planted.py) is simulated,",
        "analyzed, and simulated again with the fix applied. The error is that of the window's length, relative to the",
        "window before the fix. The simulator shares no code with npuperf; it is a simulation all the same, with the",
        "effects that it knows: real devices add effects of their own (frequency, memory traffic, contention).",
        "",
        f"{len(measured)} scenarios, {len(compared)} predictions, {abstained} abstentions.",
        f"Errors: {quantiles}; within 5 %: {100 * np.mean(errors <= 0.05):.1f} %; largest {100 * errors.max():.1f} %.",
        f"The true gain lies in the predicted interval (give or take 1 %) for "
        f"{100 * np.mean([c.inside for c in compared]):.1f} %.",
        "",
        "Of ranks that wait for each other in collectives, the gain of the one that waits least is everybody's.",
        "",
        "| scenario | verdict | fix | rank | before ms | after ms | predicted ms | error % |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for m in measured:
        for c in m.compared:
            shown = "abstains" if c.predicted is None else f"{c.predicted / 1e6:.3f}"
            error = "–" if c.predicted is None else f"{100 * c.error:+.2f}"
            name, bound = m.scenario.name, m.result.verdict.bound
            times = f"{c.before / 1e6:.3f} | {c.after / 1e6:.3f}"
            lines.append(f"| {name} | {bound} | `{c.fix}` | {c.rank} | {times} | {shown} | {error} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
