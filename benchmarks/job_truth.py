"""Jobs nobody has seen before: are their causes named, first the costliest, and what repairing them brings?

    python benchmarks/job_truth.py [--jobs N] [--even N] [--first SEED] [--workers N] [--write]
    python benchmarks/job_truth.py --seed SEED [--keep DIR]        one job; DIR to look at it with npuperf

Every seed is a job of 4 to 256 ranks: layout, schedule, luck, what is wrong (one thing or two, in all steps or some)
and what of it was recorded are drawn from it. Seeds from 100 000 on are jobs in which nothing is wrong. The job is
simulated (cluster_world.py), written, analyzed in this process without a cache, and compared with what a second
simulation without the fault tells. Only what costs at least 1 % of the step counts as wrong. Lists what was missed,
by class with its seed; --write puts the table into docs/cluster.md and its Chinese twin.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

from cluster_files import write
from cluster_job import Fault, Job, Jump, groups, hit_ranks, stalls
from cluster_scenarios import BLAMING, SMALL, Balance, Expected, Scenario, must_be_named, names
from cluster_world import simulate
from figures import fill

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.job_result import Cluster, Root
from npuperf.model.result import Result

DOCS = Path(__file__).resolve().parent.parent / "docs"
EVEN = 100_000
#: Ranks of one job after the other: most are small.
SIZES = (8, 16, 4, 32, 16, 8, 64, 16, 32, 8, 4, 16, 64, 32, 8, 16, 128, 8, 32, 16, 64, 4, 16, 8, 32, 16, 64, 8, 4, 16,
         32, 8, 64, 16, 32, 8, 16, 256, 32, 4, 16, 8, 64, 16, 32, 8, 16, 4, 32, 8)  # fmt: skip
#: A gain is right within this part of it, or inside the interval that is told.
NEAR = 0.05
#: Which of two causes is the costlier cannot be told where the lesser brings at least this part of the greater.
EQUAL = 0.9


# --- drawing ---------------------------------------------------------------------------------------------------------


def draw(seed: int, *, even: bool | None = None) -> Unseen:
    """Return the job of a seed. ``even``: whether nothing is wrong, if the seed does not say so."""
    luck = random.Random(f"job/{seed}")
    job = _layout(luck, seed)
    if seed >= EVEN if even is None else even:
        luckless = (Fault("stalls", share=0.2, ns=luck.randint(1, 3) * 1_000_000),) if luck.random() < 0.1 else ()
        return _unseen(seed, (), replace(job, faults=luckless, **_recorded(luck, job, set())))
    kinds = luck.sample([*FAULTS], 2) if luck.random() < 0.35 else [luck.choice([*FAULTS])]
    for attempt in range(200):
        if attempt % 10 == 9:  # not every job can have it so that it costs enough
            kinds = luck.sample([*FAULTS], len(kinds))
        faults = [fault for kind in kinds if (fault := FAULTS[kind](luck, job)) is not None]
        hit = [set(hit_ranks(job, fault)) for fault in faults]
        if len(faults) < len(kinds) or (len(hit) > 1 and hit[0] & hit[1]):
            continue
        more = _recorded(luck, job, set().union(*hit))
        left_out = {step for _, step in more.get("skipped", ())}
        if any(f.steps and {*f.steps} <= left_out for f in faults):  # nothing of it is in what can be compared
            continue
        found = _unseen(seed, tuple(kinds), replace(job, faults=tuple(faults), **more))
        if len(found.wrong) == len(faults):
            return found
    raise RuntimeError(f"seed {seed}: nothing can be wrong with this job")


def _unseen(seed: int, kinds: tuple[str, ...], job: Job) -> Unseen:
    return Unseen(f"seed {seed}, {' and '.join(kinds) or 'even'}, {_told(job)}", job, seed, kinds)


def _layout(luck: random.Random, seed: int) -> Job:
    size, steps = SIZES[seed % len(SIZES)], luck.choice([3, 4, 5, 6, 8])
    pp = luck.choice([p for p in (1, 1, 2, 4, 4, 8) if p <= size])
    tp = luck.choice([t for t in (1, 1, 2, 4, 8) if pp * t <= size])
    dp = size // pp // tp
    if pp == 4 and size > 4 and luck.random() < 0.3:
        pp = 3
    small = size <= 32
    job = Job(
        pp=pp, tp=tp, dp=dp, ep=luck.choice([1, 1, 1, 2, 4]) if dp % 4 == 0 else 1,
        hosts=max(pp * tp * dp // luck.choice([4, 8, 8, 16]), 1), steps=steps if size <= 64 else 3,
        layers=luck.randint(1, 3) if small else 1, kernels=luck.randint(3, 8) if small else 4,
        kernel_us=luck.choice([80.0, 150.0, 200.0, 400.0]), host_us=luck.uniform(8, 16),
        activation_mb=luck.uniform(2, 12), layer_mb=luck.uniform(1, 6), gradient_mb=luck.uniform(8, 60),
        buckets=luck.randint(1, 3), overlap=luck.random() < 0.4, norm=luck.random() < 0.8 or pp > 1,
        gradients=luck.choice(["reduceScatter", "allReduce"]), tokens=luck.choice([0.0, 0.1, 0.3]),
        jitter=luck.choice([0.002, 0.01, 0.01, 0.03]), transfer_jitter=luck.choice([0.002, 0.005, 0.02]),
        drift_ppm=luck.choice([0.0, 20.0, 50.0]), device_drift_ppm=luck.choice([0.0, 0.0, 50.0]),
        offset_ms=luck.choice([0.5, 5.0, 50.0]), lonely=luck.random() < 0.2,
        trace=size <= 16 and luck.random() < 0.3, seed=seed,
    )  # fmt: skip
    if pp == 1:
        return replace(job, micro_batches=luck.choice([1, 1, 2, 4]) if small else 1)
    schedule = luck.choice(["1f1b", "1f1b", "1f1b", "gpipe", "interleaved"])
    batches = luck.randint(2, 2 * pp) if small else pp
    if schedule == "interleaved" and pp > 2:
        return replace(job, schedule="interleaved", micro_batches=pp * luck.randint(1, 2 if small else 1))
    separate = luck.random() < 0.3
    return replace(job, schedule="gpipe" if schedule == "gpipe" else "1f1b", micro_batches=batches, separate=separate)


def _recorded(luck: random.Random, job: Job, guilty: set[int]) -> dict[str, Any]:
    """Draw what is odd about the recording, if anything; who is to blame was recorded."""
    others = [r for r in range(job.world) if r not in guilty]
    draw = luck.random()
    if draw > 0.3 or not others or job.world < 8:
        return {}
    rank = luck.choice(others)
    if draw < 0.05:
        return {"missing": (rank,)}
    if draw < 0.12:
        return {"skipped": ((rank, luck.choice([0, job.steps - 1])),)}
    if draw < 0.18:
        return {"shifted": ((rank, 1),)}
    if draw < 0.24:
        return {"jumps": (Jump(rank, luck.randint(1, job.steps - 1), luck.choice([100.0, 1_000.0, 20_000.0])),)}
    return {"bare": (rank,)}


def _rank(luck: random.Random, job: Job) -> Fault:
    """A rank computes slowly."""
    return Fault("compute", (luck.randrange(job.world),), luck.uniform(1.08, 1.6))


def _operator(luck: random.Random, job: Job) -> Fault:
    """One operator of a rank is slow."""
    operator = luck.choice(["MatMulV3", "FlashAttentionScore", "SwiGlu"])
    return Fault("compute", (luck.randrange(job.world),), luck.uniform(1.4, 3), operator=operator)


def _several(luck: random.Random, job: Job) -> Fault | None:
    """Some ranks of a stage are slow alike: fewer than half of them, or nobody could tell who the others are."""
    members = job.stage_ranks(luck.randrange(job.pp))
    if len(members) < 5:
        return None
    chosen = luck.sample(members, luck.randint(2, max((len(members) - 1) // 2, 2)))
    return Fault("compute", tuple(sorted(chosen)), luck.uniform(1.1, 1.6))


def _host(luck: random.Random, job: Job) -> Fault:
    """The host of a rank is slow."""
    factor = luck.uniform(1.2, 2.5) * job.kernel_us / job.host_us
    return Fault("host", (luck.randrange(job.world),), factor)


def _stage(luck: random.Random, job: Job) -> Fault | None:
    """A stage computes longer than the others."""
    if job.pp == 1:
        return None
    return Fault("stage", stage=luck.randrange(job.pp), factor=luck.uniform(1.2, 1.8))


def _link(luck: random.Random, job: Job) -> Fault | None:
    """A link between two neighbours is slow."""
    kinds = ("dp_cp", "tp", "pp", "exp")
    found = [g for g in groups(job) if g.kind in kinds and len(g.ranks) > 1]
    if not found:
        return None
    ranks = luck.choice(found).ranks
    at = luck.randrange(len(ranks) - 1)
    return Fault("link", (ranks[at], ranks[at + 1]), luck.uniform(2, 8))


def _group(luck: random.Random, job: Job) -> Fault | None:
    """All transfers of a group are slow."""
    kind = luck.choice(["dp_cp", "tp", "exp"])
    found = [g for g in groups(job) if g.kind == kind and len(g.ranks) > 1]
    if len(found) < 3:
        return None
    return Fault("group", luck.choice(found).ranks, luck.uniform(2, 6), group=kind)


def _some(luck: random.Random, job: Job) -> Fault | None:
    """A rank computes slowly in some steps."""
    chosen = luck.sample(range(job.steps), luck.randint(1, job.steps // 2))
    return replace(_rank(luck, job), factor=luck.uniform(1.3, 2.0), steps=tuple(sorted(chosen)))


def _late(luck: random.Random, job: Job) -> Fault:
    """A rank begins a step late: once, also the first."""
    step = luck.choice([0, luck.randrange(job.steps)])
    return Fault("stall", (luck.randrange(job.world),), steps=(step,), ns=luck.randint(2, 20) * 1_000_000)


FAULTS = {
    "rank": _rank,
    "operator": _operator,
    "ranks alike": _several,
    "host": _host,
    "stage": _stage,
    "link": _link,
    "group": _group,
    "some steps": _some,
    "late once": _late,
}


# --- what is true ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cause:
    """What an analysis should name: a fault, or a stage that is longer than others whatever else is wrong."""

    gain_ns: int
    fault: Expected | None = None


@dataclass(frozen=True)
class Unseen(Scenario):
    """A drawn job. ``kinds``: what is wrong."""

    seed: int = 0
    kinds: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """Its row in the table."""
        return "two" if len(self.kinds) > 1 else self.kinds[0] if self.kinds else "even"

    @cached_property
    def balance(self) -> Balance | None:
        """What equal stages bring."""
        return Balance(self) if self.job.pp > 1 else None

    @cached_property
    def wrong(self) -> list[Expected]:
        """Faults that must be named."""
        return [e for e in self.expected() if self._counts(e)]

    def _counts(self, expected: Expected) -> bool:
        if expected.small or expected.fault.kind == "stall":
            return not expected.small
        return must_be_named(self, expected, self.balance)

    @cached_property
    def causes(self) -> list[Cause]:
        """All that an analysis should name, the costliest first; of a stage, what moving its work brings."""
        found = [Cause(e.gain_ns, e) for e in self.wrong if not _by_stage(e)]
        balance = self.balance
        if balance is not None and balance.long and balance.gain_ns >= SMALL * self.truth.step_ns:
            found.append(Cause(balance.gain_ns))
        return sorted(found, key=lambda c: -c.gain_ns)

    def is_named(self, root: Root, cause: Cause) -> bool:
        """Whether a root is this cause. Of ranks that compute slowly some may be named alone, or all of them as one."""
        if cause.fault is None:
            unequal = self.balance is not None and self.balance.unequal(root)
            return unequal or any(names(root, e) for e in self.wrong if _by_stage(e))
        if cause.fault.fault.kind == "compute" and root.kind in cause.fault.kinds:
            hit = {rank for e in self.wrong if e.fault.kind == "compute" for rank in e.ranks}
            return bool(set(root.ranks) & set(cause.fault.ranks)) and set(root.ranks) <= hit
        return bool(root.ranks) and names(root, cause.fault)

    def compared(self, fault: Fault) -> float:
        """By which factor a fault is in more of the steps that are compared, which all ranks recorded, than of all."""
        steps = {*range(self.job.steps)} - {step for _, step in self.job.skipped}
        if not fault.steps:
            return 1.0
        return len(steps & {*fault.steps}) / len(steps) * self.job.steps / len(fault.steps)

    def gain_ns(self, roots: Sequence[Root], cause: Cause) -> int:
        """What repairing what roots name brings per step that is compared."""
        whole = self._whole_gain_ns(roots, cause)
        return whole if cause.fault is None else round(whole * self.compared(cause.fault.fault))

    def _whole_gain_ns(self, roots: Sequence[Root], cause: Cause) -> int:
        """Of slow ranks, only those; of a rank of a stage, its own."""
        if cause.fault is None:
            own = (e.gain_ns for e in self.wrong if _by_stage(e) and any(r.kind == "rank" for r in roots))
            return next(own, cause.gain_ns)
        if cause.fault.fault.kind != "compute":
            return cause.gain_ns
        named = {rank for root in roots for rank in root.ranks}
        faults = (f if f.kind != "compute" else replace(f, ranks=tuple(r for r in f.ranks if r not in named))
                  for f in self.job.faults)  # fmt: skip
        left = tuple(f for f in faults if f.ranks or f.kind not in ("compute", "link", "group"))
        return self.truth.step_ns - simulate(replace(self.job, faults=left)).step_ns


def _by_stage(expected: Expected) -> bool:
    """Whether a fault makes stages unequal, all of one stage in all steps alike: work is moved."""
    return "stage" in expected.kinds and "compute" in expected.whys and not expected.fault.steps


def _told(job: Job) -> str:
    parts = [f"{job.world} ranks: pp {job.pp}, dp {job.dp}, tp {job.tp}"]
    parts += [f"ep {job.ep}"] if job.ep > 1 else []
    parts += [f"{job.schedule}{' separate' * job.separate}, {job.micro_batches} batches"] if job.pp > 1 else []
    parts += [f"{job.steps} steps", *(["overlap"] if job.overlap else []), f"jitter {job.jitter:.1%}"]
    odd = ("missing", "skipped", "shifted", "jumps", "bare")
    return ", ".join(parts + [f"{name} {getattr(job, name)}" for name in odd if getattr(job, name)])


# --- what is said ----------------------------------------------------------------------------------------------------


@dataclass
class Score:
    """How a job fared. ``first``, ``second``: whether they were named, None where there is none; a gain per cause.

    ``width``: of the intervals, by the gain. ``blamed``: roots that nothing is wrong with.
    """

    seed: int
    name: str
    shown: str
    ranks: int
    first: bool | None = None
    second: bool | None = None
    gains: list[bool] = field(default_factory=list)
    width: list[float] = field(default_factory=list)
    blamed: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    seconds: float = 0.0


def score(unseen: Unseen, result: Result) -> Score:
    """Compare what is said of a job with what is true of it."""
    found = Score(unseen.seed, unseen.name, unseen.shown, unseen.job.world)
    roots = _blaming(result.cluster)
    left = list(roots)
    for cause in unseen.causes:
        own = [root for root in left if unseen.is_named(root, cause)]
        left = [root for root in left if root not in own]
        if own:
            _gain(found, unseen, own if cause.fault is None else own[:1], cause)
    if len(unseen.wrong) > 1:
        second = Cause(0) if _by_stage(unseen.wrong[1]) else Cause(unseen.wrong[1].gain_ns, unseen.wrong[1])
        found.second = any(unseen.is_named(root, second) for root in roots)
        found.missed += [] if found.second else [f"second: {_fault(second)} not among {_said(roots)}"]
    if unseen.wrong:
        equal = [c for c in unseen.causes if c.gain_ns >= EQUAL * unseen.causes[0].gain_ns]
        found.first = bool(roots) and any(unseen.is_named(roots[0], c) for c in equal)
        found.missed += [] if found.first else [f"first: {_fault(unseen.causes[0])}; said {_said(roots, result)}"]
    found.blamed = [_said([root]) for root in left if not _allowed(unseen, root)]
    found.missed += [f"blamed: {said}" for said in found.blamed]
    return found


def _blaming(cluster: Cluster | None) -> list[Root]:
    """Roots that blame somebody, in the order of the page."""
    return [r for r in cluster.roots if r.kind in BLAMING or (r.kind == "jitter" and r.ranks)] if cluster else []


def _allowed(unseen: Unseen, root: Root) -> bool:
    """Whether a root is true without being asked for: a fault not worth naming, or hidden, a stage a little longer."""
    unequal = unseen.balance is not None and unseen.balance.unequal(root)
    small = any(names(root, e) for e in unseen.expected() if e not in unseen.wrong)
    slow = {rank for fault in unseen.job.faults if fault.kind == "compute" for rank in fault.ranks}
    small |= root.kind == "jitter" and set(root.ranks) <= slow
    job = unseen.job
    stalled = {r for r in range(job.world) if any(stalls(job, r, step) for step in range(job.steps))}
    return unequal or small or (root.kind == "rank" and set(root.ranks) <= stalled)


def _gain(found: Score, unseen: Unseen, roots: Sequence[Root], cause: Cause) -> None:
    """Stages share what moving work brings: their gains are added."""
    true = unseen.gain_ns(roots, cause)
    gains = [root.gain_ns_per_step for root in roots if root.gain_ns_per_step is not None]
    if not gains:
        found.gains.append(False)
        found.missed.append(f"gain: none told of {_fault(cause)}")
        return
    low, high = (sum(side) for side in zip(*gains, strict=True))
    right = (1 - NEAR) * low <= true <= (1 + NEAR) * high
    found.gains.append(right)
    found.width.append((high - low) / 2 / true)
    if not right:
        told = f"{low / 1e6:.3f} to {high / 1e6:.3f} ms"
        found.missed.append(f"gain: {_fault(cause)}; told {told}, truly {true / 1e6:.3f}")


def _fault(cause: Cause) -> str:
    gain = f"{cause.gain_ns / 1e6:.3f} ms"
    if cause.fault is None:
        return f"unequal stages ({gain})"
    f = cause.fault.fault
    what = f"{f.kind} {cause.fault.ranks}{f' in steps {f.steps}' if f.steps else ''}"
    return f"{what} ({gain}, {cause.fault.share:.1%})"


def _said(roots: Sequence[Root], result: Result | None = None) -> str:
    said = [f"{r.kind} {r.ranks} {r.why} {r.gain_ns_per_step}" for r in roots]
    if result is not None and result.cluster is not None and not roots:
        said = [f"{r.kind} {r.ranks} {r.why}" for r in result.cluster.roots]
        said += [f"replay {result.cluster.replay}"]
    return "; ".join(said) or "nothing"


def ask(seed: int, keep: Path | None = None) -> Score:
    """Draw, simulate, write and analyze a job."""
    began = perf_counter()
    unseen = draw(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = write(unseen.truth, keep or Path(folder))
        result = run(AnalyzeRequest(path=path, rules=("slow_rank",), workers=1, engine="serial", no_cache=True))
    found = score(unseen, result)
    found.seconds = perf_counter() - began
    return found


# --- the table -------------------------------------------------------------------------------------------------------


def _part(flags: Sequence[bool | None]) -> str:
    known = [flag for flag in flags if flag is not None]
    return f"{sum(known)} / {len(known)}" if known else "–"


def _row(name: str, scores: Sequence[Score]) -> list[str]:
    gains = [gain for s in scores for gain in s.gains]
    widths = sorted(w for s in scores for w in s.width)
    width = f"±{widths[len(widths) // 2]:.0%}" if widths else "–"
    blamed = _part([bool(s.blamed) for s in scores])
    first, second = _part([s.first for s in scores]), _part([s.second for s in scores])
    return [name, str(len(scores)), first, _part(gains), width, second, blamed]


def table(scores: Sequence[Score], words: Mapping[str, str] = {}) -> str:
    """Return the table: by what is wrong, by size, all together, and of the jobs in which nothing is wrong."""
    wrong, even = [s for s in scores if s.seed < EVEN], [s for s in scores if s.seed >= EVEN]
    by_class: dict[str, list[Score]] = defaultdict(list)
    for one in wrong:
        by_class[one.shown].append(one)
    rows = [
        [
            "what is wrong",
            "jobs",
            "first cause right",
            "gain right",
            "interval (median)",
            "second cause named",
            "others blamed",
        ],
        ["---"] * 7,
        *(_row(TITLES[kind], by_class[kind]) for kind in TITLES if by_class[kind]),
    ]
    for low, high in ((4, 16), (17, 64), (65, 256)):
        own = [s for s in wrong if low <= s.ranks <= high]
        rows += [_row(f"{low}–{high} ranks", own)] if own else []
    rows += [_row("**all**", wrong)] if wrong else []
    rows += [_row("nothing", even)] if even else []
    return "\n".join(f"| {' | '.join(words.get(cell, cell) for cell in row)} |" for row in rows)


TITLES = {
    "rank": "a rank computes slowly",
    "operator": "an operator of a rank is slow",
    "ranks alike": "several ranks are slow alike",
    "host": "the host of a rank is slow",
    "stage": "a stage takes longer",
    "link": "a link is slow",
    "group": "a group's transfers are slow",
    "some steps": "a rank is slow in some steps",
    "late once": "a rank is late once",
    "two": "two of these",
}


CHINESE = {
    "what is wrong": "问题", "jobs": "作业数", "first cause right": "首因正确", "gain right": "收益正确",
    "interval (median)": "区间（中位数）", "second cause named": "指出次因", "others blamed": "误指其他",
    "a rank computes slowly": "一个 rank 计算慢", "an operator of a rank is slow": "一个 rank 的某算子慢",
    "several ranks are slow alike": "几个 rank 同样慢", "the host of a rank is slow": "一个 rank 的主机慢",
    "a stage takes longer": "一个 stage 更长", "a link is slow": "一条链路慢",
    "a group's transfers are slow": "一个组传输慢",
    "a rank is slow in some steps": "一个 rank 在某些 step 慢", "a rank is late once": "一个 rank 迟到一次",
    "two of these": "以上两种并存", "4–16 ranks": "4–16 个 rank", "17–64 ranks": "17–64 个 rank",
    "65–256 ranks": "65–256 个 rank", "**all**": "**全部**", "nothing": "没有问题",
}  # fmt: skip


def _asked(seeds: Sequence[int], workers: int) -> Iterator[Score]:
    if workers == 1:
        yield from map(ask, seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(ask, seeds)


def main() -> int:
    """Ask all jobs; print what was missed, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--even", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--seed", type=int, action="append", help="only this job; repeatable")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the files of the job")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the table of docs/cluster.md")
    options = parser.parse_args()
    began = perf_counter()
    if options.seed:
        scores = [ask(seed, options.keep) for seed in options.seed]
    else:
        seeds = [*range(options.first, options.first + options.jobs)]
        seeds += range(EVEN + options.first, EVEN + options.first + options.even)
        scores = []
        for one in _asked(seeds, options.workers):
            scores.append(one)
            for said in one.missed:
                print(f"{one.name}: {said}", flush=True)
    if options.seed:
        for one in scores:
            print("\n".join([one.name, *one.missed]))
    found = table(scores)
    print(found)
    print(f"{perf_counter() - began:.0f} s")
    if options.write:
        fill(DOCS / "cluster.md", "job-truth", found)
        fill(DOCS / "zh" / "cluster.md", "job-truth", table(scores, CHINESE))
    return 0


if __name__ == "__main__":
    sys.exit(main())
