"""Two hundred cluster jobs with what is true of each: which causes of waiting an analysis must name, and which it may.

``scenarios()`` only lists jobs; ``Scenario.expected()`` runs them, with and without every fault. The module knows
nothing of npuperf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from cluster_job import Fault, Job, groups, hit_ranks, unit
from cluster_world import Truth, gain_ns, simulate

#: A fault whose repair gains less than this share of a step need not be named.
SMALL = 0.01


@dataclass(frozen=True)
class Expected:
    """One root cause: any of ``kinds`` and ``whys`` is right; ``ranks`` are to blame (empty: any).

    ``visible``: the files of a rank to blame are there. ``small``: not worth naming; naming it is no error either.
    """

    fault: Fault
    kinds: frozenset[str]
    ranks: tuple[int, ...]
    whys: frozenset[str]
    gain_ns: int
    share: float
    visible: bool

    @property
    def small(self) -> bool:
        """Whether its repair gains less than 1 % of the step."""
        return self.share < SMALL


@dataclass(frozen=True)
class Scenario:
    """A job with a name. ``negative``: nothing is wrong but luck and the schedule."""

    name: str
    job: Job

    @property
    def negative(self) -> bool:
        """Whether nothing is wrong."""
        return not self.job.faults

    @cached_property
    def truth(self) -> Truth:
        """What happened."""
        return simulate(self.job)

    def expected(self) -> list[Expected]:
        """All causes, the costliest first; those with ``small`` need not be named."""
        found = [self._expected(fault) for fault in self.job.faults]
        return sorted(found, key=lambda e: -e.gain_ns)

    def allowed(self) -> frozenset[str]:
        """Kinds of roots that are no error in any case: the pipeline's own schedule, luck."""
        return frozenset({"jitter", "schedule"} if self.job.pp > 1 else {"jitter"})

    def _expected(self, fault: Fault) -> Expected:
        kinds, whys, ranks = _names(self.job, fault)
        gain = gain_ns(self.truth, fault)
        visible = not set(ranks) & set(self.job.missing)
        if set(ranks) & {*self.job.bare, *self.job.missing} and fault.kind != "link":
            whys |= {"unknown"}
        return Expected(fault, kinds, ranks, whys, gain, gain / self.truth.step_ns, visible)


def _names(job: Job, fault: Fault) -> tuple[frozenset[str], frozenset[str], tuple[int, ...]]:
    """Return kinds and whys under which a fault may be named, and its ranks."""
    ranks = tuple(sorted(hit_ranks(job, fault)))
    if fault.kind in ("compute", "stage"):
        whole = job.pp > 1 and ranks in [job.stage_ranks(s) for s in range(job.pp)]
        one = len(ranks) == 1
        kinds = ({"stage"} if whole else set()) | ({"rank"} if one or not whole else set())
        return frozenset(kinds), frozenset({"compute"}), ranks
    if fault.kind == "host":  # without the host's events, gaps on the device are all there is
        alone = job.pp > 1 and job.dp * job.tp == 1
        kinds = {"rank", "stage"} if alone else {"rank"}
        return frozenset(kinds), frozenset({"host"} if job.trace else {"host", "unknown"}), ranks
    if fault.kind in ("link", "group"):
        pair = any(set(g.ranks) == set(ranks) for g in groups(job)) and len(ranks) == 2
        return frozenset({"link", "group"} if pair else {fault.kind}), frozenset({"communication"}), ranks
    kinds = {"jitter", "rank"} if fault.kind == "stall" else {"jitter"}
    return frozenset(kinds), frozenset({"host", "unknown"}), ranks if fault.kind == "stall" else ()


# --- what must be named --------------------------------------------------------------------------------------------

#: Kinds of roots that blame somebody; the others are the schedule, luck, and what cannot be known.
BLAMING = ("rank", "stage", "link", "group")


class Named(Protocol):
    """A root cause as an analysis names it."""

    @property
    def kind(self) -> str:
        """Rank, stage, link, group, or none of these."""

    @property
    def why(self) -> str:
        """Compute, host, communication or unknown."""

    @property
    def ranks(self) -> Sequence[int]:
        """Who is to blame."""


def names(root: Named, expected: Expected) -> bool:
    """Whether a root is this fault: its kind, and its ranks. A group may be named where one of its links is slow."""
    if root.kind not in expected.kinds:
        return False
    own, true = set(root.ranks), set(expected.ranks)
    if expected.fault.kind in ("link", "group"):
        return true <= own
    if expected.fault.kind == "stage":  # ranks that were not recorded are not named
        return own <= true
    return not true or own == true


class Balance:
    """What moving work to the mean stage brings, by simulation: all stages as long as their mean, other faults stay.

    What comes and goes with the steps is one of those: no work is moved for it.
    """

    def __init__(self, scenario: Scenario) -> None:
        job = scenario.job
        alone = job.dp * job.tp == 1  # a stage of one rank: what is wrong with the rank is so with the stage
        stages = range(job.pp)
        lasting = replace(job, faults=tuple(f for f in job.faults if not f.steps))
        truth = scenario.truth if lasting == job else simulate(lasting)
        compute = [min(truth.compute_ns(r) for r in job.stage_ranks(s)) for s in stages]
        clean = [min(truth.clean.compute_ns(r) for r in job.stage_ranks(s)) for s in stages]
        mean = float(np.mean(compute))
        kinds = ("stage", "compute") if alone else ("stage",)
        others = tuple(f for f in job.faults if f.kind not in kinds or f.steps)
        even = tuple(Fault("stage", stage=s, factor=mean / clean[s]) for s in stages)
        self.gain_ns = scenario.truth.step_ns - simulate(replace(job, faults=others + even)).step_ns
        worth = self.gain_ns >= SMALL / 2 * scenario.truth.step_ns  # half: a gain is told with some slack
        self.long = {job.stage_ranks(s) for s in stages if compute[s] > (1 if worth else 1.03) * mean}

    def unequal(self, root: Named) -> bool:
        """Whether a stage is longer than the mean whatever else is wrong: the last one has the logits."""
        return root.kind == "stage" and root.why == "compute" and any(set(root.ranks) <= set(s) for s in self.long)


def must_be_named(scenario: Scenario, expected: Expected, balance: Balance | None) -> bool:
    """Whether a fault can and must be found."""
    job, fault = scenario.job, expected.fault
    if expected.small or not expected.visible or "jitter" in expected.kinds:
        return False  # too little; its ranks were not recorded; luck is no lasting cause
    by_stage = fault.kind == "stage" or (fault.kind == "compute" and job.dp * job.tp == 1 < job.pp and not fault.steps)
    if by_stage and balance is not None and balance.gain_ns < 1.5 * SMALL * scenario.truth.step_ns:
        return False  # a stage is mended by moving work: there is nothing to gain where all are as long as the mean
    if fault.kind == "group" and job.tp == job.pp == 1:
        return False  # the only group of its kind: nothing to be compared with
    # A link is judged against three others at least: two to four ranks in one group, or in one pipeline, have no
    # three links without a rank of it.
    return not (fault.kind == "link" and (job.world == job.dp < 4 or (job.world == job.pp < 5)))


# --- layouts -------------------------------------------------------------------------------------------------------

#: Name, faults, and what else differs from the layout's job.
Row = tuple[str, tuple[Fault, ...], dict[str, object]]
PIPE = {"layers": 1, "kernels": 5}
LAYOUTS: tuple[tuple[str, Job], ...] = (
    ("dp2", Job(dp=2)),
    ("dp4", Job(dp=4)),
    ("dp4 allreduce", Job(dp=4, gradients="allReduce")),
    ("dp8", Job(dp=8, hosts=2)),
    ("dp16", Job(dp=16, hosts=2, steps=3)),
    ("dp8 experts", Job(dp=8, ep=4, hosts=2)),
    ("tp2 dp2", Job(tp=2, dp=2)),
    ("tp4 dp2", Job(tp=4, dp=2, hosts=2)),
    ("tp2 dp8", Job(tp=2, dp=8, hosts=2, steps=3)),
    ("pp2 dp1", Job(pp=2, dp=1, micro_batches=4, **PIPE)),
    ("pp2 dp2", Job(pp=2, dp=2, micro_batches=4, **PIPE)),
    ("pp2 dp4", Job(pp=2, dp=4, micro_batches=4, hosts=2, **PIPE)),
    ("pp3 dp2", Job(pp=3, dp=2, micro_batches=6, steps=3, **PIPE)),
    ("pp4 dp1", Job(pp=4, dp=1, micro_batches=8, steps=3, **PIPE)),
    ("pp4 dp2", Job(pp=4, dp=2, micro_batches=8, steps=3, hosts=2, **PIPE)),
    ("pp2 tp2 dp2", Job(pp=2, tp=2, dp=2, micro_batches=4, hosts=2, **PIPE)),
    ("pp2 tp2 dp4", Job(pp=2, tp=2, dp=4, micro_batches=4, steps=3, hosts=2, **PIPE)),
    ("pp4 tp2 dp2", Job(pp=4, tp=2, dp=2, micro_batches=4, steps=3, hosts=2, **PIPE)),
)


def _pick(count: int, *key: int) -> int:
    return int((unit(999, *key) + 1) / 2 * count)


def _singles(job: Job, n: int) -> Iterator[Row]:
    """Yield one fault at a time, of every kind that the layout can have, with what else changes."""
    rank = _pick(job.world, n, 1)
    yield f"rank {rank} computes slowly", (Fault("compute", (rank,), 1.3),), {}
    rank = _pick(job.world, n, 2)
    if n % 4 == 0 or n == 10:
        slow = Fault("compute", (rank,), 2.5, operator="FlashAttentionScore")
        yield f"one operator of rank {rank} is slow", (slow,), {"trace": n % 3 == 0}
    rank = _pick(job.world, n, 3)
    yield f"the host of rank {rank} is slow, traced", (Fault("host", (rank,), 40.0),), {"trace": True}
    if n % 4 == 1:
        yield f"the host of rank {rank} is slow", (Fault("host", (rank,), 40.0),), {}
    a, b = _link(job, n)
    yield f"link {a}-{b} is slow", (Fault("link", (a, b), 5.0),), {}
    yield from _stages(job, n) if job.pp > 1 else _flat(job, n)
    rank = _pick(job.world, n, 4)
    if n % 2:
        stall = Fault("stall", (rank,), steps=(1,), ns=4_000_000)
        yield f"the host of rank {rank} stalls once", (stall,), {"trace": n % 4 == 1}
    if n % 8 == 0:
        yield "hosts stall at random", (Fault("stalls", share=0.3, ns=3_000_000),), {}


def _flat(job: Job, n: int) -> Iterator[Row]:
    """Yield what a job without a pipeline can have."""
    group = next(g for g in groups(job) if g.kind == ("tp" if job.tp > 1 else "dp_cp"))
    if len(group.ranks) > 2 or n % 2:
        yield f"group {group.kind} is slow", (Fault("group", group.ranks, 4.0, group=group.kind),), {}
    rank = _pick(job.world, n, 13)
    if job.ep > 1:
        tokens = Fault("compute", (rank,), 2.5, operator="GroupedMatmul", design=True)
        yield f"experts of rank {rank} get most tokens", (tokens,), {}
    elif n % 2:
        yield f"rank {rank} has longer sequences", (Fault("compute", (rank,), 1.4, design=True),), {}


def _link(job: Job, n: int) -> tuple[int, int]:
    """Pick two ranks that move much data: neighbours of the data axis, or of the pipeline."""
    kind = "pp" if job.pp > 1 and (n % 2 or job.dp == 1) else "dp_cp"
    found = [g for g in groups(job) if g.kind == kind]
    ranks = found[_pick(len(found), n, 5)].ranks
    at = _pick(len(ranks) - 1, n, 6)
    return ranks[at], ranks[at + 1]


def _stages(job: Job, n: int) -> Iterator[Row]:
    stage = _pick(job.pp, n, 7)
    yield f"stage {stage} is slow", (Fault("stage", stage=stage, factor=1.4),), {}
    logits = Fault("stage", stage=job.pp - 1, factor=6.0, operator="MatMulV3", head=True, design=True)
    yield "a vocabulary weighs on the last stage", (logits,), {}
    if n % 3 == 0:
        more = Fault("stage", stage=0, factor=1.5, operator="FlashAttentionScore")
        yield "attention of stage 0 is slow", (more,), {"trace": n % 2 == 0}


def _several(job: Job, n: int) -> Iterator[Row]:
    """Yield two and three faults at once, on different ranks."""
    first = _pick(job.world, n, 8)
    second = (first + 1 + _pick(job.world - 1, n, 9)) % job.world
    compute, host = Fault("compute", (first,), 1.35), Fault("host", (second,), 40.0)
    yield f"rank {first} computes slowly, host of {second} is slow", (compute, host), {"trace": True}
    a, b = _link(job, n)
    link = Fault("link", (a, b), 5.0)
    if n % 2:
        yield f"rank {first} computes slowly, link {a}-{b} is slow", (compute, link), {"overlap": n % 4 == 1}
    elif job.world > 3:
        third = next(r for r in range(job.world) if r not in (first, second))
        slight = Fault("compute", (third,), 1.02)
        three = (replace(compute, factor=1.5), link, slight)
        yield f"rank {first} slow, link {a}-{b} slow, rank {third} a little", three, {}
    if job.pp > 1 and n % 2:
        stage = (job.place(first)[0] + 1) % job.pp
        both = (Fault("stage", stage=stage, factor=1.5), replace(compute, factor=1.6))
        yield f"stage {stage} and rank {first} are slow", both, {}


def _gaps(job: Job, n: int) -> Iterator[Row]:
    """Yield jobs of which not everything was recorded."""
    if job.world < 4:
        return
    slow, missing = _pick(job.world, n, 10), _pick(job.world, n, 11)
    missing = missing if missing != slow else (slow + 1) % job.world
    fault = (Fault("compute", (slow,), 1.3),)
    if n % 2:
        yield f"rank {slow} is slow, {missing} is missing", fault, {"missing": (missing,)}
    if n % 3 == 0:
        yield f"rank {slow} is slow and missing", fault, {"missing": (slow,)}
    if n % 6 == 1:
        others = tuple(r for r in range(job.world) if r % 4)
        yield f"rank {slow} is slow, few have kernels", fault, {"bare": others}


def _negatives(job: Job, n: int) -> Iterator[Row]:
    yield "nothing is wrong", (), {"trace": n % 4 == 0, "lonely": n % 2 == 0}
    if n % 3 == 0 or n % 6 == 4:
        yield "nothing is wrong, but work jitters", (), {"jitter": 0.05, "overlap": n % 2 == 0}
    if n % 3 == 0 and job.world > 2:
        yield "nothing is wrong, a rank is missing", (), {"missing": (_pick(job.world, n, 12),)}
    if n % 3 == 1:
        yield "nothing is wrong, hosts are slow alike", (), {"host_us": 120.0, "trace": True, "offset_ms": 0.5}


def scenarios() -> list[Scenario]:
    """All scenarios, in a fixed order, with names that are all different."""
    found = []
    for n, (layout, job) in enumerate(LAYOUTS):
        for source in (_singles, _several, _gaps, _negatives):
            for i, (name, faults, more) in enumerate(source(job, n)):
                overlap = job.dp > 1 and (n + i) % 3 == 0
                settings = {"overlap": overlap, "seed": 1000 * n + len(found), "faults": faults, **more}
                found.append(Scenario(f"{layout}: {name}", replace(job, **settings)))  # type: ignore[arg-type]
    return found
