"""How often two sides of the same steps are told apart all the same, and how large a change must be to be found.

    python benchmarks/false_alarms.py [--pairs N] [--seed N]

Steps are drawn from one distribution for both sides: with and without autocorrelation, in shapes that real steps
have, in runs that differ or do not. It is measured in how many of a hundred pairs the new side is called worse
(neither ratio nor floor helps), and how many times the steps' standard deviation the new side must be slower to be
called worse in nine of ten pairs. Then two sides are compared whose steps have a noise of 1 %, unchanged and with one
change of 2 %: in how many of a hundred pairs they are told to differ, and to be the same, with the tolerance that
comparisons have. With --update-docs the tables of docs/accuracy.md are written anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from figures import filled

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from npuperf.advise import load_thresholds
from npuperf.against.compare import judge_steps
from npuperf.model.noise import judge_shift, shift_interval
from npuperf.model.parts import Digest, PartSum, TypeSteps

Steps = np.ndarray
PAGE = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
SIZES = (5, 6, 8, 10, 20, 50)
ALIKE = (0.0, 0.6)


def alike(luck: np.random.Generator, n: int, phi: float) -> Steps:
    """Return n normal values whose neighbours correlate by ``phi`` (AR(1)), of variance one from the first on."""
    fresh = luck.standard_normal(n)
    values = [fresh[0]]
    for new in fresh[1:] * np.sqrt(1 - phi**2):
        values.append(phi * values[-1] + new)
    return np.array(values)


def normal(luck: np.random.Generator, n: int, phi: float) -> Steps:
    """Steps as textbooks have them."""
    return alike(luck, n, phi)


def skewed(luck: np.random.Generator, n: int, phi: float) -> Steps:
    """Log-normal: never much faster, sometimes slower."""
    return np.exp(0.8 * alike(luck, n, phi))


def slow_now_and_then(luck: np.random.Generator, n: int, phi: float) -> Steps:
    """One step in ten is slower by ten times the spread, on average."""
    return alike(luck, n, phi) + (luck.random(n) < 0.1) * luck.exponential(10, n)


def two_speeds(luck: np.random.Generator, n: int, phi: float) -> Steps:
    """Steps have one of two speeds, and keep it for a while where ``phi`` is not zero."""
    return 5.0 * (alike(luck, n, phi) > 0.3) + 0.3 * luck.standard_normal(n)


def warming_up(luck: np.random.Generator, n: int, phi: float) -> Steps:
    """The first steps are slower on both sides."""
    return alike(luck, n, phi) + 3 * np.exp(-np.arange(n) / 2)


SHAPES: dict[str, Callable[[np.random.Generator, int, float], Steps]] = {
    "normal": normal,
    "skewed": skewed,
    "one step in ten is slow": slow_now_and_then,
    "two speeds": two_speeds,
    "warming up": warming_up,
}


@dataclass(frozen=True)
class Case:
    """What both sides are drawn from: ``runs`` of ``steps`` each, which differ by ``apart`` times the steps' spread.

    ``before``: steps of the old side, where these are not as many; ``noisier``: how many times the new side's spread.
    """

    shape: str
    steps: int
    phi: float
    runs: int = 1
    apart: float = 0.0
    before: int | None = None
    noisier: float = 1.0

    def old(self, luck: np.random.Generator) -> list[Steps]:
        """Return the old side's runs."""
        return [self._run(luck, self.before or self.steps) for _ in range(self.runs)]

    def new(self, luck: np.random.Generator) -> list[Steps]:
        """Return the new side's runs."""
        return [self.noisier * self._run(luck, self.steps) for _ in range(self.runs)]

    def _run(self, luck: np.random.Generator, steps: int) -> Steps:
        return SHAPES[self.shape](luck, steps, self.phi) + self.apart * luck.standard_normal()


@dataclass(frozen=True)
class Row:
    """A case measured: false alarms as a share of pairs, the rest as multiples of the steps' spread."""

    case: Case
    alarms: float
    found: float


def measure(case: Case, pairs: int, seed: int) -> Row:
    """Compare so many pairs of sides that do not differ."""
    luck = np.random.default_rng([seed, case.steps, case.runs, list(SHAPES).index(case.shape), int(10 * case.phi)])
    alarms, needed = 0, []
    for _ in range(pairs):
        old, new = case.old(luck), case.new(luck)
        alarms += judge_shift(old, new).verdict == "worse"
        needed.append(-shift_interval(old, new).low)
    spread = float(np.std(SHAPES[case.shape](luck, 20_000, case.phi)))
    return Row(case, alarms / pairs, float(np.quantile(needed, 0.9)) / spread)


def cases() -> Iterator[Case]:
    """Yield all cases."""
    for shape in SHAPES:
        for steps in SIZES:
            for phi in ALIKE:
                yield Case(shape, steps, phi)
    for runs, apart in ((1, 1.0), (2, 0.0), (2, 1.0), (3, 0.0), (3, 1.0), (5, 0.0), (5, 1.0)):
        for phi in ALIKE:
            yield Case("normal", 8, phi, runs, apart)
    for before, noisier in ((50, 1.0), (50, 2.0), (50, 4.0)):
        for phi in ALIKE:
            yield Case("normal", 8, phi, before=before, noisier=noisier)


# --- two sides with operators, with the tolerance of a comparison ----------------------------------------------------

STEP_NS, NOISE, CHANGE = 100e6, 0.01, 0.02
#: Parts of a step that operators take; the host has the rest.
OPERATORS = {"MatMulV3": 0.2, "FlashAttentionScore": 0.2, "RmsNorm": 0.1, "Add": 0.1, "SwiGlu": 0.1, "AdamW": 0.1}
COMPARED = (8, 10, 20, 50)
#: A part by which the second half of a run is slower than the first one, of the step: a chip that gets warm.
DRIFT = 0.02


def drift(luck: np.random.Generator, n: int, phi: float) -> Steps:
    """The second half of a run is slower."""
    return alike(luck, n, phi) + DRIFT / NOISE * (np.arange(n) >= n / 2)


DRAWN = {**SHAPES, "drift": drift}


def of_the_step(luck: np.random.Generator, draw: Callable[[], Steps]) -> dict[str, Steps]:
    """Whatever slows a step slows all that it does."""
    noise = 1 + NOISE * draw()
    return {name: part * noise for name, part in {**OPERATORS, "": 0.2}.items()}


def of_the_host(luck: np.random.Generator, draw: Callable[[], Steps]) -> dict[str, Steps]:
    """What slows a step is between its operators, which vary by 0.1 %."""
    host = 0.2 + NOISE * draw()
    parts = {name: part * (1 + 0.001 * luck.standard_normal(len(host))) for name, part in OPERATORS.items()}
    return {**parts, "": host}


def of_operators(luck: np.random.Generator, draw: Callable[[], Steps]) -> dict[str, Steps]:
    """Each operator varies by itself, by as much as makes up the noise together."""
    alone = NOISE / len(OPERATORS) ** 0.5
    parts = {name: part + alone * draw() for name, part in OPERATORS.items()}
    return {**parts, "": np.full(len(parts["Add"]), 0.2)}


NOISES = {"all of a step alike": of_the_step, "between operators": of_the_host, "each operator by itself": of_operators}


def unchanged(parts: dict[str, Steps]) -> dict[str, Steps]:
    """Nothing."""
    return parts


def one_operator(parts: dict[str, Steps]) -> dict[str, Steps]:
    """One operator takes 2 % of the step longer."""
    return {**parts, "MatMulV3": parts["MatMulV3"] * (1 + CHANGE / OPERATORS["MatMulV3"])}


def everything(parts: dict[str, Steps]) -> dict[str, Steps]:
    """All of the step takes 2 % longer."""
    return {name: part * (1 + CHANGE) for name, part in parts.items()}


def hidden(parts: dict[str, Steps]) -> dict[str, Steps]:
    """One operator takes as much longer while the host is the limit: the step stays as long as it was."""
    return {**one_operator(parts), "": parts[""] - CHANGE * parts["MatMulV3"] / OPERATORS["MatMulV3"]}


CHANGES = {"none": unchanged, "one operator": one_operator, "everything": everything, "hidden": hidden}


def digest(parts: dict[str, Steps]) -> Digest:
    """Return the sums of a run whose steps have these parts."""
    spans = np.rint(STEP_NS * np.sum([*parts.values()], axis=0)).astype(int).tolist()
    n = len(spans)
    types = [
        TypeSteps(type=name, ns=np.rint(STEP_NS * part).astype(int).tolist(), count=[1] * n)
        for name, part in parts.items()
        if name
    ]
    total = sum(spans)
    return Digest(devices=1, windows=n, steps=[*range(n)], span_ns=spans, total_ns=total, types=types, counts=[],
                  parts=[PartSum(part="compute", key=None, ns=total, count=n)])  # fmt: skip


@dataclass(frozen=True)
class Told:
    """Of so many steps a side: how many of a hundred pairs are told to differ, and to be the same."""

    steps: int
    differs: float
    same: float


def tell(noise: str, change: str, shape: str, phi: float, steps: int, pairs: int, seed: int) -> Told:
    """Compare so many pairs."""
    drawn = DRAWN[shape]
    at = [list(NOISES).index(noise), list(CHANGES).index(change), list(DRAWN).index(shape), int(10 * phi)]
    luck = np.random.default_rng([seed, steps, *at])
    limits, verdicts = load_thresholds(), []
    spread = 1.0 if shape == "drift" else float(np.std(drawn(luck, 20_000, phi)))
    for _ in range(pairs):
        sides = []
        for new in (False, True):
            parts = NOISES[noise](luck, lambda: drawn(luck, steps, phi) / spread)
            sides.append([digest(CHANGES[change](parts) if new else parts)])
        verdicts.append(judge_steps(*sides, limits).verdict)
    differs = sum(verdict in ("better", "worse") for verdict in verdicts)
    return Told(steps, 100 * differs / pairs, 100 * verdicts.count("same") / pairs)


def told_table(pairs: int, seed: int) -> str:
    """Return the table of what comparisons tell, of so many pairs a cell."""
    lines = [_line("steps", "what varies", "change", *COMPARED), "|---|---|---|" + "---|" * len(COMPARED)]
    cases = [(noise, change, "normal", 0.0) for change in CHANGES for noise in NOISES if change != "hidden"]
    cases += [("between operators", "hidden", "normal", 0.0), ("between operators", "hidden", "normal", 0.6)]
    for noise in NOISES:
        cases += [(noise, "none", "normal", 0.6), (noise, "none", "one step in ten is slow", 0.0),
                  (noise, "none", "skewed", 0.0), (noise, "none", "drift", 0.0)]  # fmt: skip
    for noise, change, shape, phi in cases:
        found = [tell(noise, change, shape, phi, steps, pairs, seed) for steps in COMPARED]
        named = f"{shape}, autocorrelation {phi:.1f}" if phi else shape
        lines.append(_line(named, noise, change, *(f"{one.differs:.1f} % · {one.same:.0f} %" for one in found)))
    return "\n".join(lines)


def table(rows: list[Row]) -> str:
    """Return the tables of docs/accuracy.md: one run a side in columns by steps, then several runs."""
    single = [row for row in rows if row.case.runs == 1 and not row.case.apart and row.case.before is None]
    lines = [_line("steps | autocorrelation", *SIZES), "|---|---|" + "---|" * len(SIZES)]
    for shape in SHAPES:
        for phi in ALIKE:
            cells = [_cell(row) for row in single if row.case.shape == shape and row.case.phi == phi]
            lines.append(_line(f"{shape} | {phi:.1f}", *cells))
    lines += ["", "| runs of eight steps | autocorrelation | called worse · found |", "|---|---|---|"]
    lines += [_line(_sides(row.case), f"{row.case.phi:.1f}", _cell(row)) for row in rows if row not in single]
    return "\n".join(lines)


def _sides(case: Case) -> str:
    if case.before is not None:
        return f"one against one of {case.before} steps, with {case.noisier:g} times its spread"
    return f"{case.runs} a side that {'differ by σ' if case.apart else 'are alike'}"


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _cell(row: Row) -> str:
    return f"{100 * row.alarms:.2f} % · {row.found:.1f} σ"


def main() -> int:
    """Measure everything, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4000, help="pairs of steps, per cell; none: 0")
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--compared", type=int, default=400, help="pairs that are compared, per cell; none: 0")
    parser.add_argument("--update-docs", action="store_true")
    asked = parser.parse_args()
    made = {}
    if asked.compared:
        made["compared"] = told_table(asked.compared, asked.seed)
    if asked.pairs:
        made["false-alarms"] = table([measure(case, asked.pairs, asked.seed) for case in cases()])
    for name, found in made.items():
        print(found)
        if asked.update_docs:
            PAGE.write_text(filled(PAGE.read_text("utf-8"), name, found), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
