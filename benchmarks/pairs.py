"""Pairs of recordings of one program, of which the second has one planted change: is it found, and named first?

    python benchmarks/pairs.py [--pairs N] [--noise N] [--first SEED] [--kind NAME] [--update-docs]

Both sides are simulated (planted.py, on several ranks cluster_world.py), written as profiles of eight steps, analyzed
and compared. Every seed is a pair; its kind of change follows from it, so does whether steps are autocorrelated. Of
every pair it is asked whether the waterfall adds up, whether swapped sides negate every part, whether a side compared
with itself is the same, whether the change was caught, also by a gate, and whether its cause stands first. --noise: so
many pairs more in which nothing was changed. Lists what failed with its seed; the exit status is 1 if there is any.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

import cluster_files
from cluster_job import Fault, Job
from figures import filled
from planted import MAIN, Action, Op, Scenario, Sync, write

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from npuperf.advise import load_thresholds
from npuperf.against.compare import compare_results
from npuperf.against.gate_verdicts import judge_gate
from npuperf.against.gates import parse_gate
from npuperf.against.metrics import register_all
from npuperf.against.run import run as analyze
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.comparison import Comparison, WaterfallPart
from npuperf.model.noise import EQUIVALENCE
from npuperf.model.result import Result

PAGE = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
STEPS = 8
ALIKE = 0.6
#: Of a step's length, common to all its operators: what one step differs from others by.
HOST_SPREAD, DEVICE_SPREAD = 0.006, 0.004
CLOCK_MHZ = 1800
LAYERS = 6
#: Gates that must not fail where nothing was changed; the first must fail where something got slower.
GATES = (
    "step_time>+1%,50us", "step_time>+5%,200us", "mean(step_time)>+2%", "host_wait>+5%", "op:MatMulV2>+5%",
    "comm.exposed>+5%", "count.launches>+0", "count.syncs>+0",
)  # fmt: skip
#: Operators of a layer, and their time on a device that is the limit, µs.
LAYER = (
    ("LayerNormV4", 60), ("MatMulV2", 160), ("Add", 30), ("Gelu", 60), ("MatMulV3", 120), ("Mul", 40), ("Cast", 30),
)  # fmt: skip
FUSED = {"Gelu": "MatMulV3", "MatMulV3": "Mul", "LayerNormV4": "MatMulV2"}


@dataclass(frozen=True)
class Expected:
    """What must be said of a pair: the verdict, and what stands first in the waterfall, or in parity.

    ``where``: a line of code that the first row of the waterfall must name; ``gate``: one more that must fail;
    ``lasting``: of a job, what must be said first of all: kind and ranks.
    """

    verdict: str
    part: str | None = None
    key: str = ""
    parity: str | None = None
    where: str = ""
    gate: str | None = None
    lasting: tuple[str, tuple[int, ...]] | None = None
    more: Callable[[WaterfallPart], bool] = field(default=lambda row: True)


@dataclass(frozen=True)
class Pair:
    """Two recordings, and what is true of them. ``write``: makes one side (0 or 1) in a folder."""

    seed: int
    kind: str
    write: Callable[[int, Path], Path]
    expected: Expected


@dataclass(frozen=True)
class Side:
    """One side of a pair on one rank: how it is paced, and what was changed. Times in µs.

    ``slower``: type and factor; ``added``: type, and how many more of it in each layer; ``fused``: the first of two
    types that become one; ``syncs``: layers that end by waiting for the device; ``mhz`` and ``overhead``: None where
    that is not recorded.
    """

    name: str
    host: float
    device: float
    phi: float = 0.0
    slower: tuple[str, float] = ("", 1.0)
    added: tuple[str, int] = ("", 0)
    fused: str = ""
    syncs: int = 0
    mhz: int | None = None
    overhead: float | None = None
    each_step_waits: bool = True

    def program(self) -> Callable[[int], dict[int, list[Action]]]:
        """Return what is done in every step."""
        host, device = _wander(f"{self.name}/host", HOST_SPREAD, self.phi), _wander(self.name, DEVICE_SPREAD, self.phi)
        return lambda n: {MAIN: [*self._layers(host[n], device[n])]}

    def write(self, out: Path) -> Path:
        """Simulate and write it."""
        write(Scenario(self.name, self.program(), steps=STEPS), out / "raw")
        if self.mhz is not None:
            _record_clock(out / "raw", self.mhz)
        manifest = {"schema_version": "2.0", "command": ["python", "train.py"]}
        if self.overhead is not None:
            outside = 10_000_000
            pace = {"inside_ns": int(outside * self.overhead), "outside_ns": outside, "inside": STEPS, "outside": 9}
            manifest = {**manifest, "overhead": pace}
        (out / "npuperf.json").write_text(json.dumps(manifest))
        return out

    def _layers(self, host: float, device: float) -> Iterator[Action]:
        for layer in range(LAYERS):
            for type_, us in self._operators():
                factor = self.slower[1] if type_ == self.slower[0] else 1.0
                where = f"model.py({40 + 10 * layer}): forward"
                yield Op(type_, self.host * host, us * self.device * device * factor, where=where)
            if layer < self.syncs:
                yield Sync("metrics.py(12): log_loss")
        if self.each_step_waits:
            yield Sync("train.py(60): main", stream=None)

    def _operators(self) -> Iterator[tuple[str, float]]:
        times = dict(LAYER)
        second = FUSED.get(self.fused)
        for type_, us in LAYER:
            if type_ == self.fused and second is not None:
                yield f"{type_}{second}", 0.5 * (us + times[second])
            elif type_ != second:
                yield type_, us
            if type_ == self.added[0]:
                yield from [(type_, us)] * self.added[1]


def _wander(name: str, spread: float, phi: float) -> list[float]:
    """Draw what every step's times are multiplied by, of which neighbours correlate by ``phi``."""
    luck = random.Random(name)
    values = [luck.gauss(0, 1)]
    while len(values) < STEPS:
        values.append(phi * values[-1] + (1 - phi**2) ** 0.5 * luck.gauss(0, 1))
    return [1 + spread * value for value in values]


def _record_clock(out: Path, mhz: int) -> None:
    """Add the track of the AI Core clock to the traces: it is sampled a few times."""
    for path in out.rglob("trace_view.json"):
        events = json.loads(path.read_text("utf-8"))
        device = [event for event in events if event["ph"] == "X" and event["pid"] != 7001]
        track = {"name": "AI Core Freq", "ph": "C", "pid": 7169300, "tid": 0}
        names = [
            {"ph": "M", "name": "process_name", "pid": 7169300, "tid": 0, "args": {"name": "AI Core Freq"}},
            {"ph": "M", "name": "process_labels", "pid": 7169300, "tid": 0, "args": {"labels": "NPU 0"}},
        ]
        counters = [{**track, "ts": event["ts"], "args": {"MHz": mhz}} for event in device[:: len(device) // 4]]
        path.write_text(json.dumps([*names, *events, *counters]))


# --- kinds of pairs ------------------------------------------------------------------------------------------------


def _paced(seed: int, *, by_host: bool) -> tuple[Side, Side]:
    """Return two sides of one program, unchanged: with the host or the device as the limit."""
    luck = random.Random(f"pace/{seed}")
    host, device = (luck.uniform(50, 90), luck.uniform(0.1, 0.2)) if by_host else (8.0, luck.uniform(0.8, 1.4))
    phi = ALIKE if luck.random() < 0.5 else 0.0
    old = Side(f"{seed}/old", host, device, phi, each_step_waits=luck.random() < 0.5)
    return old, replace(old, name=f"{seed}/new")


def _pair(seed: int, kind: str, old: Side, new: Side, expected: Expected) -> Pair:
    return Pair(seed, kind, lambda side, out: (old, new)[side].write(out), expected)


def slower_operator(seed: int) -> Pair:
    """One type takes longer, on a device that is the limit."""
    old, new = _paced(seed, by_host=False)
    luck = random.Random(seed)
    type_, us = luck.choice([row for row in LAYER if row[1] >= 60])
    factor = 1 + luck.uniform(40, 120) / us
    expected = Expected("worse", "compute", type_, more=lambda row: abs(row.speed_ns) > abs(row.count_ns))
    return _pair(seed, "operator slower", old, replace(new, slower=(type_, factor)), expected)


def more_launches(seed: int) -> Pair:
    """A type is launched more often: more compute where the device is the limit, more of the host where that is."""
    luck = random.Random(seed)
    by_host = luck.random() < 0.5
    old, new = _paced(seed, by_host=by_host)
    type_ = luck.choice(["Add", "Mul", "Cast"])
    new = replace(new, added=(type_, luck.randint(1, 3) if by_host else luck.randint(2, 4)))
    expected = (
        Expected("worse", "host_wait", type_.lower())
        if by_host
        else Expected("worse", "compute", type_, more=lambda row: row.count_ns > abs(row.speed_ns))
    )
    return _pair(seed, "more launches", old, new, expected)


def new_sync(seed: int) -> Pair:
    """The host waits for the device within the step, so that the device then waits for the host."""
    old, new = _paced(seed, by_host=False)
    luck = random.Random(seed)
    old = replace(old, host=luck.uniform(25, 40), device=1.2, each_step_waits=True)
    new = replace(old, name=new.name, syncs=luck.randint(4, LAYERS))
    expected = Expected("worse", "host_wait", "sync: ", where="metrics.py:12", gate="count.syncs>+0")
    return _pair(seed, "new sync", old, new, expected)


def fused_operator(seed: int) -> Pair:
    """Two operators become one, which is faster."""
    old, new = _paced(seed, by_host=False)
    fused = random.Random(seed).choice(list(FUSED))
    both = (fused, FUSED[fused])
    expected = Expected(
        "better",
        "compute",
        f"{fused}{FUSED[fused]}",
        more=lambda row: all(any(key.startswith(type_) for key in row.instead_of) for type_ in both),
    )
    return _pair(seed, "fused operator", old, replace(new, fused=fused), expected)


def lower_clock(seed: int) -> Pair:
    """The AI Cores run at a lower clock, which is recorded."""
    old, new = _paced(seed, by_host=False)
    mhz = random.Random(seed).choice([1600, 1500, 1200])
    new = replace(new, device=old.device * CLOCK_MHZ / mhz, mhz=mhz)
    expected = Expected("worse", "compute", parity="AI Core frequency")
    return _pair(seed, "frequency drop", replace(old, mhz=CLOCK_MHZ), new, expected)


def dear_recording(seed: int) -> Pair:
    """Recording slows the host, which is the limit, and the manifest says so."""
    old, new = _paced(seed, by_host=True)
    overhead = random.Random(seed).uniform(1.3, 2.0)
    new = replace(new, host=old.host * overhead / 1.05, overhead=overhead)
    expected = Expected("worse", "host_wait", parity="recording overhead")
    return _pair(seed, "recording overhead", replace(old, overhead=1.05), new, expected)


def _job(seed: int, kind: str, fault: Callable[[random.Random, Job], Fault], expected: Expected) -> Pair:
    luck = random.Random(seed)
    job = Job(dp=luck.choice([2, 2, 4]), steps=STEPS, trace=luck.random() < 0.5, seed=2 * seed)
    planted = fault(luck, job)
    new = replace(job, seed=2 * seed + 1, faults=(planted,))
    if planted.kind == "compute" or job.world > 2:  # the only link of a job has none to be held against
        expected = replace(expected, lasting=("rank" if planted.kind == "compute" else "link", planted.ranks))
    return Pair(seed, kind, lambda side, out: cluster_files.write((job, new)[side], out), expected)


def slower_link(seed: int) -> Pair:
    """A link between two ranks is slower."""
    return _job(
        seed,
        "slower link",
        lambda luck, job: Fault("link", ranks=(0, 1), factor=luck.uniform(1.8, 3.0)),
        Expected("worse", "transfer"),
    )


def slow_rank(seed: int) -> Pair:
    """Every kernel of one rank takes longer: the others wait for it."""
    return _job(
        seed,
        "slow rank",
        lambda luck, job: Fault("compute", ranks=(luck.randrange(job.world),), factor=luck.uniform(1.15, 1.5)),
        Expected("worse", "wait"),
    )


def noise(seed: int) -> Pair:
    """Nothing was changed."""
    luck = random.Random(f"noise/{seed}")
    if luck.random() < 0.1:
        job = Job(dp=2, steps=STEPS, trace=True, seed=2 * seed)
        jobs = job, replace(job, seed=2 * seed + 1)
        return Pair(seed, "noise", lambda side, out: cluster_files.write(jobs[side], out), Expected("same"))
    old, new = _paced(seed, by_host=luck.random() < 0.5)
    return _pair(seed, "noise", old, new, Expected("same"))


KINDS: dict[str, Callable[[int], Pair]] = {
    "operator slower": slower_operator,
    "more launches": more_launches,
    "new sync": new_sync,
    "slower link": slower_link,
    "slow rank": slow_rank,
    "fused operator": fused_operator,
    "frequency drop": lower_clock,
    "recording overhead": dear_recording,
    "noise": noise,
}


def pair(seed: int) -> Pair:
    """Return the pair of a seed: kinds take turns."""
    return [*KINDS.values()][seed % len(KINDS)](seed)


# --- asking ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A pair compared, gates that failed, and what is wrong with that, by name."""

    pair: Pair
    comparison: Comparison
    failed: tuple[str, ...]
    wrong: dict[str, str]


def ask(pair: Pair, folder: Path) -> Asked:
    """Write, analyze and compare a pair."""
    old, new = (analyze(AnalyzeRequest(path=pair.write(side, folder / f"side{side}"))) for side in (0, 1))
    thresholds = load_thresholds()
    register_all()
    found = compare_results([old], [new], thresholds)
    conditions = [parse_gate(gate, Result) for gate in GATES]
    failed = tuple(
        gate.expr
        for gate in (judge_gate(each, new, [old], comparison=found) for each in conditions)
        if gate.status == "fail"
    )
    back = compare_results([new], [old], thresholds)
    wrong = {
        "sum": _sum(found),
        "swapped": _swapped(found, back),
        "itself": _itself(old, compare_results([old], [old], thresholds)),
        "gates": _gates(pair.expected, failed),
        **missed(pair.expected, found),
    }
    return Asked(pair, found, failed, {name: said for name, said in wrong.items() if said})


def missed(expected: Expected, found: Comparison) -> dict[str, str]:
    """Say what was expected and not found, empty where it was."""
    return {"verdict": _verdict(expected, found), "cause": _cause(expected, found)}


def _sum(found: Comparison) -> str:
    parts = sum(row.delta_ns for row in found.waterfall)
    halves = [row for row in found.waterfall if row.count_ns + row.speed_ns != row.delta_ns]
    return (
        f"parts {parts}, difference {found.delta_ns}, {len(halves)} halves" if parts != found.delta_ns or halves else ""
    )


def _swapped(found: Comparison, back: Comparison) -> str:
    def rows(comparison: Comparison, sign: int) -> list[tuple[object, ...]]:
        return sorted(
            (_named(r), sign * r.delta_ns, sign * r.count_ns, sign * r.speed_ns) for r in comparison.waterfall
        )

    return "" if rows(found, 1) == rows(back, -1) else "parts are not negated"


def _named(row: WaterfallPart) -> tuple[str, str]:
    """Return what a row is about; one of operators that replace others is named after those of its new side."""
    return row.part, "replaced" if row.instead_of else str(row.key)


def _itself(result: Result, found: Comparison) -> str:
    moved = [row for row in found.waterfall if row.delta_ns or row.count_ns or row.speed_ns]
    return "" if found.verdict == "same" and not moved else f"{found.verdict}, {len(moved)} parts"


def _gates(expected: Expected, failed: tuple[str, ...]) -> str:
    must = {GATES[0], expected.gate or GATES[0]} if expected.verdict == "worse" else set()
    must_not = {"same": set(GATES), "better": {GATES[0]}, "worse": set()}[expected.verdict]
    wrong = must - set(failed) | must_not & set(failed)
    return f"the other way: {', '.join(sorted(wrong))}" if wrong else ""


def _verdict(expected: Expected, found: Comparison) -> str:
    if expected.verdict == "same":  # noise may leave it open, but is no change
        return found.verdict if found.verdict in ("better", "worse") else ""
    return "" if found.verdict == expected.verdict else f"{found.verdict} {found.interval_ns}"


def _cause(expected: Expected, found: Comparison) -> str:
    if expected.parity is not None and (not found.parity or found.parity[0].what != expected.parity):
        return f"parity: {found.parity[0].what if found.parity else None}"
    if expected.lasting is not None:
        said = [(cause.kind, tuple(cause.ranks)) for cause in found.causes]
        if said != [expected.lasting] or not str(found.reason).startswith(str(found.causes[0].title)):
            return f"causes {said}, first said: {str(found.reason)[:80]}"
    if expected.part is None:
        return ""
    if not found.waterfall:
        return "no waterfall"
    row = found.waterfall[0]
    right = row.part == expected.part and expected.key in (row.key or "") and expected.more(row)
    if expected.where not in (row.where or ""):
        return f"{row.key} at {row.where}, not {expected.where}"
    return "" if right else f"{row.part}: {row.key} {row.delta_ns} of {found.delta_ns}"


def main() -> int:
    """Ask all pairs, print what was found by kind, and what failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--noise", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--update-docs", action="store_true", help="write the table of docs/accuracy.md")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.pairs)
    pairs = [KINDS[options.kind](seed) if options.kind else pair(seed) for seed in seeds]
    pairs += [noise(seed) for seed in range(10_000 + options.first, 10_000 + options.first + options.noise)]
    asked = []
    began = perf_counter()
    for each in pairs:
        with tempfile.TemporaryDirectory() as folder:
            asked.append(ask(each, Path(folder)))
        for name, said in asked[-1].wrong.items():
            print(f"seed {each.seed}, {each.kind}: {name}: {said}")
    found = table(asked)
    print(found)
    if options.update_docs:
        PAGE.write_text(filled(PAGE.read_text("utf-8"), "planted-pairs", found), "utf-8")
    noises = [each.comparison for each in asked if each.pair.kind == "noise"]
    alarms = sum(_leaves_out_zero(found) for found in noises)
    took = (perf_counter() - began) / len(asked)
    rows = [row for each in asked if each.pair.kind == "noise" for row in each.comparison.rows]
    changed = sum(row.kind == "operator" and row.verdict in ("better", "worse") for row in rows)
    print(f"noise: {alarms} of {len(noises)} intervals leave out zero, {changed} operators are told to have changed")
    print(f"{took:.2f} s a pair")
    return 1 if any(each.wrong for each in asked) or alarms > max(1, len(noises) / 100) else 0


def _leaves_out_zero(found: Comparison) -> bool:
    """Tell whether an interval that a change is told by has no zero in it, or there is none."""
    low, high = found.interval_ns or (1, 1)
    return found.confidence != EQUIVALENCE and not low <= 0 <= high


def table(asked: list[Asked]) -> str:
    """Render by kind how many pairs there were and how many passed each question, as Markdown."""
    names = ("sum", "swapped", "itself", "verdict", "gates", "cause")
    lines = [f"| planted | pairs | {' | '.join(names)} | verdicts |", "|---|" + "---|" * (len(names) + 2)]
    for kind in dict.fromkeys(each.pair.kind for each in asked):
        rows = [each for each in asked if each.pair.kind == kind]
        passed = [str(sum(name not in each.wrong for each in rows)) for name in names]
        verdicts = [each.comparison.verdict for each in rows]
        said = ", ".join(f"{verdict} {verdicts.count(verdict)}" for verdict in sorted(set(verdicts)))
        lines.append(f"| {kind} | {len(rows)} | {' | '.join(passed)} | {said} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
