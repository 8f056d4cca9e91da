"""Which ranks take longer than their peers: in all steps alike, in some of them, or several ranks together.

Peers are the other ranks of a stage, and the usual is the lower median, so that no slow rank is the standard. The only
rank of its stage has none for its compute: for the rest all others are, and step by step its own other steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.device.rank_summary import RankSummary
from npuperf.job.job_replay import BEGIN, CAUSES, COMPUTE, HOST, OTHER, JobProgram, track_totals
from npuperf.model.groups import distinct, lower_median
from npuperf.model.intervals import Intervals
from npuperf.model.labels import F64, I64, Mask

#: Ranks are slow alike that spend at least this part of what the slowest one spends beyond the usual; and so much of
#: what a rank is late at most must it be in a step to be late there.
_ALIKE: Final = 0.5
#: In the others it is no further from its peers than this part of what it is late at most.
_LIKE_PEERS: Final = 0.25
#: A rank alone is late lastingly if the mean over many steps is so many times its standard error; it is late in a step
#: if what it takes longer is so many times what is usual between ranks and steps.
_SURE: Final = 3
#: So many ranks of a stage tell how much they vary.
_PEERS: Final = 3
#: Of so many steps one may be as it is for another reason.
_MANY: Final = 5
#: From the median distance to the standard deviation, of normally distributed values.
_DEVIATION: Final = 1.4826


class Lateness(Struct, frozen=True):
    """How much longer ranks (rows) take than their peers, ns.

    ``excess``: over all steps, by cause, none below 0; ``together``: the same beyond what is usual in the whole stage,
    which ranks that are slow together have only while they are the fewer; ``by_step``: that in each of ``steps`` (their
    numbers), which all ranks recorded, what is less below 0; ``steady``: in all steps alike, or in all
    in which no other rank stands out. Of a single step nobody can tell: then no ``steps`` are known, and all ranks
    count as steady. ``alone``: the only ranks of their stage.
    ``begun``: ranks that began later than all of their peers, and are not late lastingly; all else of them is luck.
    """

    excess: F64
    together: F64
    by_step: F64
    steps: I64
    steady: Mask
    stage: I64
    alone: Mask
    begun: Mask

    @property
    def whole(self) -> F64:
        """What each rank takes longer in all, ns."""
        return np.asarray(self.excess.sum(axis=1))

    def some_steps(self, rank: int) -> tuple[int, ...]:
        """Return the numbers of the steps in which a rank is late, where it works like its peers in the others.

        None where it is late in all, or where no step stands out.
        """
        late, alone = self.by_step[rank], bool(self.alone[rank])
        if self.begun[rank]:
            return tuple(self.steps[:1].tolist())
        # What it is compared with: its own other steps, and the steps of its peers; where it has one or none, those of
        # all other ranks. The usual is one of them, of each step, or of each rank that is alone.
        others = self.stage == self.stage[rank]
        few = np.count_nonzero(others) < _PEERS
        others |= few
        others[rank] = False
        varies = np.abs(self.by_step[others])
        varies = varies[varies > 0] if few else varies
        usual = _DEVIATION * float(np.median(varies)) if varies.size else 0.0
        most = float(late.max(initial=0.0))
        chosen = late >= max(_ALIKE * most, _SURE * usual)
        if most <= 0 or not chosen.any() or np.abs(late[~chosen]).max(initial=0.0) > _LIKE_PEERS * most:
            return ()
        if alone and late[chosen].sum() < _ALIKE * self.whole[rank]:  # it is late in all, beside other stages
            return ()
        own_freedom = int(np.count_nonzero(~chosen)) - (1 if alone else 0)
        beside = int(np.count_nonzero(others))
        compared = own_freedom + (max(beside // 2, 1) * (len(late) - 1) if few else (beside - 1) * len(late))
        if chosen.all() or compared < 1:
            return ()
        own = math.sqrt(np.sum(late[~chosen] ** 2) / max(own_freedom, 1))
        if late[chosen].min() < _students(compared) * max(usual, own):
            return ()
        return tuple(self.steps[chosen].tolist())


def _students(freedom: int) -> float:
    """Return by how many deviations, estimated with so many degrees of freedom, as rare a value is off as ``_SURE``.

    That is a quantile of Student's t: exact for one degree, else Wallace's approximation (Biometrika 46, 1959), which
    asks a little more than the exact one.
    """
    if freedom == 1:
        return math.tan(math.pi * (NormalDist().cdf(_SURE) - 0.5))
    pace = _SURE * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(min(pace * pace / freedom, 100.0)))


def find_late(ranks: Sequence[RankSummary], job: JobProgram, stage: I64) -> Lateness:
    """Compare all ranks with their peers. ``stage``: of each rank."""
    totals, late_begin = track_totals(job), _late_begin(job, stage)
    alone = np.array([np.count_nonzero(stage == number) == 1 for number in stage.tolist()], np.bool_)
    beyond = _beyond_peers(totals, stage)
    for rank in np.flatnonzero(alone).tolist() if len(ranks) > 1 else ():
        beyond[rank] = (totals[rank] - np.median(np.delete(totals, rank, axis=0), axis=0)) * (0, 1, 1)
    late_begin[alone] = _late_begin(job, np.zeros_like(stage))[alone]
    excess, together = (np.maximum(np.column_stack([parts, late_begin]), 0.0)
                        for parts in (beyond, beyond_usual(totals, stage)))  # fmt: skip
    steps, parts = _own_times(ranks, job)
    if len(steps) < 2:
        none, all_ranks = np.zeros((len(ranks), 0)), np.ones(len(ranks), np.bool_)
        return Lateness(excess, together, none, steps[:0], all_ranks, stage, alone, ~all_ranks)
    own = parts.sum(axis=2)
    own[:, 0] += late_begin
    by_step = beyond_usual(own, stage)
    by_step[alone] = own[alone] - lower_median(own[alone], axis=1)[:, None]
    steady = _steady(own, stage) | alone
    begun = _begun_late(excess[:, BEGIN], by_step, stage) & ~steady
    excess[begun, :BEGIN] = 0.0
    found = Lateness(excess, together, by_step, steps, steady, stage, alone, begun)
    found.steady[:] |= _steady_else(found)
    main = np.argmax(excess[:, :BEGIN], axis=1)  # two of two are late alike, each for another cause
    by_cause = np.column_stack([_steady(parts[:, :, cause], stage) for cause in range(BEGIN)])
    found.steady[:] |= by_cause[np.arange(len(main)), main] & ~begun
    for rank in np.flatnonzero(alone).tolist():  # its peers are its own other steps, for its compute as well
        late = np.isin(steps, found.some_steps(rank))
        if late.any():
            found.steady[rank] = False
            more = parts[rank][late] - lower_median(parts[rank][~late])
            found.excess[rank, :BEGIN] = np.maximum(more.sum(axis=0), 0.0)
    return found


def _steady_else(late: Lateness) -> Mask:
    """Tell which ranks are late in all steps alike but those in which another one stands out.

    While devices wait for that one, slow hosts catch up; and where many are late it makes them the usual.
    """
    lasting = (late.steady & ~late.alone).tolist()
    some = [() if lasts else late.some_steps(rank) for rank, lasts in enumerate(lasting)]
    kept = ~np.isin(late.steps, [step for steps in some for step in steps])
    if kept.all() or np.count_nonzero(kept) < 2:
        return np.zeros_like(late.steady)
    return _steady(late.by_step[:, kept], late.stage) & np.array([not steps for steps in some], np.bool_)


def _own_times(ranks: Sequence[RankSummary], job: JobProgram) -> tuple[I64, F64]:
    """Return the steps that all ranks recorded, and each rank's own time in each by cause (ns): all but communication.

    Without kernels nobody knows when a step began: then it is up to where the step's operations blocked a rank.
    """
    shared = set(ranks[0].step_number.tolist()).intersection(*(r.step_number.tolist() for r in ranks[1:]))
    steps = np.array(sorted(shared), np.int64)
    own = np.zeros((len(ranks), len(steps), BEGIN))
    if any(r.span_ns is not None for r in ranks):
        step, spent = job.matched.step[job.until], job.to_block
        here = np.flatnonzero(np.isin(step, steps))  # others are of no step, or not of all ranks
        for cause, ns in ((COMPUTE, spent.compute), (HOST, spent.host), (OTHER, spent.other)):
            np.add.at(own[:, :, cause], (spent.rank[here], np.searchsorted(steps, step[here])), ns[here])
        return steps, own
    for place, rank in enumerate(ranks):
        chosen = np.flatnonzero(np.isin(rank.step_number, steps))
        chosen = chosen[np.argsort(rank.step_number[chosen], kind="stable")]
        if len(chosen) != len(steps):  # a number twice
            return steps[:0], own[:, :0]
        windows = Intervals(rank.step_start[chosen], rank.step_end[chosen])
        blocked = Intervals(rank.exposed_start, rank.exposed_end)
        whole = windows.end - windows.start - (blocked.before(windows.end) - blocked.before(windows.start))
        compute, host = rank.in_step.compute[chosen], rank.in_step.host[chosen]
        own[place] = np.stack([compute, host, whole - compute - host], axis=1)
    return steps, own


def _late_begin(job: JobProgram, stage: I64) -> F64:
    """Return how much later each rank begins than is usual in its stage, ns; 0 where that cannot be compared."""
    late = np.zeros(job.ranks)
    for kind in np.unique(np.stack([job.begun_with, stage]), axis=1).T:
        own = np.flatnonzero((job.begun_with == kind[0]) & (stage == kind[1]))
        late[own] = np.maximum(job.begin[own] - lower_median(job.begin[own]), 0.0)
    return late


def _begun_late(late: F64, by_step: F64, stage: I64) -> Mask:
    """Tell which ranks began surely later than all of their peers; ``late``: than the usual one, ns.

    Where ranks are late by as much in later steps, too, it is one of these delays.
    """
    begun: Mask = late > 0
    for rank in np.flatnonzero(begun).tolist():
        peers = np.flatnonzero((stage == stage[rank]) & (np.arange(len(stage)) != rank))
        begun[rank] = len(peers) > 1 and late[rank] >= max(
            _students(len(peers) - 1) * max(late[peers].max(), 1.0),
            by_step[peers].max() / _ALIKE,
            by_step[rank, 1:].max() / _ALIKE,
        )
    return begun


def beyond_usual(values: F64, stage: I64) -> F64:
    """Return what each rank (row) has beyond the lower median of its stage."""
    beyond = np.zeros_like(values)
    for number in distinct(stage).tolist():
        own = np.flatnonzero(stage == number)
        beyond[own] = values[own] - lower_median(values[own])
    return beyond


def _beyond_peers(values: F64, stage: I64) -> F64:
    """Return what each rank (row) has beyond the lower median of the others of its stage; 0 where there is none.

    Who has no more than that has 0 or less, by how much does not matter.
    """
    beyond = np.zeros_like(values)
    for number in distinct(stage).tolist():
        own = np.flatnonzero(stage == number)
        if len(own) > 1:
            beyond[own] = values[own] - np.sort(values[own], axis=0)[(len(own) - 2) // 2]
    return beyond


def _steady(values: F64, stage: I64) -> Mask:
    """Tell which ranks have more of something in each step (column) than is usual in their stage, for certain.

    Few steps may be alike by luck: none is taken to vary less from step to step than the ranks of its stage usually do.
    Of many ranks one is far off by luck: so surely must it be more that none of them is. Where few steps of few ranks
    tell how much they vary, that is less sure, too: Student's t, by the first term of its expansion. A step in which
    something else kept a rank as well makes it vary, but no less late: of many steps the worst may count as the next.
    However much it varies, it is late where each step is surely later than steps of its peers are.
    """
    steady, steps = np.zeros(len(values), np.bool_), values.shape[1]
    usual = (1 - 2 / (9 * (steps - 1))) ** 1.5  # the median of a standard deviation of so few, where the true one is 1
    for number in distinct(stage).tolist():
        own = np.flatnonzero(stage == number)
        sure = _sure_of(len(own), len(own) * (steps - 1))
        beyond = values[own] - np.median(values[own], axis=0)
        least = np.median(beyond.std(axis=1, ddof=1)) / usual
        but_worst = np.minimum(beyond, np.sort(beyond, axis=1)[:, -2:-1])
        for late in (beyond, but_worst) if steps >= _MANY else (beyond,):
            error = np.maximum(late.std(axis=1, ddof=1), least) / np.sqrt(steps)
            mean = late.mean(axis=1)
            ratio = np.divide(mean, error, out=np.where(mean > 0, np.inf, 0.0), where=error > 0)
            latest = np.sort(ratio)[::-1][: len(sure)]
            steady[own] |= ratio >= latest[latest > sure].min(initial=np.inf)
        if len(own) > 1:
            vary = np.maximum(_students((len(own) - 1) * (steps - 1)) * least, _LIKE_PEERS * beyond.max(axis=1))
            steady[own] |= (beyond > 0).all(axis=1) & (beyond.min(axis=1) >= vary)
    return steady


def _sure_of(ranks: int, freedom: int) -> F64:
    """Return by how many standard errors 1, 2, … of so many ranks are late for certain: by luck as rare as ``_SURE``.

    Several are late together by luck far more rarely than each, but each must be by so much as well. ``freedom``: of
    what tells the errors.
    """
    luck, most, found = math.log(1 - NormalDist().cdf(_SURE)), max(ranks // 2, 1), []
    for count in range(1, most + 1):
        ways = math.lgamma(ranks + 1) - math.lgamma(count + 1) - math.lgamma(ranks - count + 1)
        ways += math.log(most) if count > 1 else 0.0  # so many counts are tried
        z = NormalDist().inv_cdf(1 - math.exp((luck - ways) / count))
        found.append(max(z * (1 + (z * z + 1) / (4 * freedom)), _SURE))
    return np.array(found)


def always_waiting(job: JobProgram, stage: I64, least: float) -> tuple[I64, float]:
    """Return the ranks that wait longer than is usual in their stage in all steps alike, and for how long (ns).

    They are those that most others keep waiting.
    """
    matched = job.matched
    here = np.flatnonzero(matched.step >= 0)
    numbers, step = np.unique(matched.step[here], return_inverse=True)
    place = matched.rank[here] * len(numbers) + step.ravel()
    waited = (matched.stay - job.transfer)[here]
    every = np.bincount(place, weights=waited, minlength=job.ranks * len(numbers))
    wait = every.reshape(job.ranks, len(numbers)).astype(np.float64)
    more = beyond_usual(wait, stage)
    if wait.shape[1] < 2:
        return np.empty(0, np.int64), 0.0
    found = np.flatnonzero(_steady(wait, stage) & (more.sum(axis=1) >= least))
    return found, float(more[found].sum())


# -- Several ranks that are slow alike: each alone is none's delay, because the others are as late as it is.
#
# Whoever repairs one of them gains nothing, so they are sought by what they spend beyond the usual rank of their
# stage, and repaired together.

#: Ranks (places) that spend about the same beyond the usual for one cause, and the mean of what they spend beyond it by
#: cause, ns over all steps.
SlowRanks = tuple[tuple[int, ...], F64]


def slow_alike(late: Lateness, least: float, named: Sequence[int]) -> list[SlowRanks]:
    """Return ranks that are slow alike by at least ``least`` ns, and lastingly; only where there are several.

    ``named``: those that have been named already do not count.
    """
    main = np.argmax(late.together, axis=1)
    lasts = late.steady & ~late.alone
    lasts[list(named)] = False
    found = []
    for cause in range(CAUSES):
        own = np.where((main == cause) & lasts, late.together[:, cause], 0.0)
        chosen = np.flatnonzero((own >= least) & (own >= _ALIKE * own.max(initial=0.0)))
        if len(chosen) > 1:
            found.append((tuple(chosen.tolist()), late.together[chosen].mean(axis=0)))
    return found


def delayed_stages(job: JobProgram, stage: I64, least: float) -> list[SlowRanks]:
    """Return stages all ranks of which wait longer for their hosts, or for other things, than other stages do.

    Their compute differs by design, and moving work makes it equal; their delays do not.
    """
    totals, numbers = track_totals(job), distinct(stage)
    own = [np.flatnonzero(stage == number) for number in numbers]
    if len(numbers) < 2:
        return []
    usual = np.stack([totals[members].min(axis=0) for members in own])
    beyond = np.maximum(beyond_usual(usual, np.zeros(len(own), np.int64)), 0.0) * (0, 1, 1)
    return [
        (tuple(members.tolist()), np.append(more, 0.0))
        for members, more in zip(own, beyond, strict=True)
        if len(members) > 1 and more.max() >= least
    ]
