"""Several ranks that are slow alike: each alone is none's delay, because the others are as late as it is.

Whoever repairs one of them gains nothing, so they are sought by what they spend beyond the usual rank of their stage,
and repaired together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.cluster.job_replay import JobProgram
from npuperf.cluster.repair import track_totals
from npuperf.model.groups import distinct
from npuperf.model.labels import F64, I64, Mask

#: Ranks are slow alike that spend at least this part of what the slowest one spends beyond the usual.
_ALIKE: Final = 0.5
#: A rank is late lastingly if the mean over the steps is so many times its standard error.
_SURE: Final = 3


class SlowRanks(Struct, frozen=True):
    """Ranks (places) that spend about the same beyond the usual, and for the same cause (0 compute, 1 host, 2 other).

    ``excess``: mean of what they spend beyond it by cause, ns over all steps.
    """

    places: tuple[int, ...]
    cause: int
    excess: F64


def slow_alike(job: JobProgram, stage: I64, least: float) -> list[SlowRanks]:
    """Return ranks that are slow alike by at least ``least`` ns, and lastingly; only where there are several."""
    excess = _beyond(track_totals(job), stage)
    main = np.argmax(excess, axis=1)
    lasts = lasting(job, stage)
    found = []
    for cause in range(3):
        own = np.where((main == cause) & lasts, excess[:, cause], 0.0)
        chosen = np.flatnonzero((own >= least) & (own >= _ALIKE * own.max(initial=0.0)))
        if len(chosen) > 1:
            mean = np.maximum(excess[chosen].mean(axis=0), 0.0)
            found.append(SlowRanks(tuple(chosen.tolist()), cause, mean))
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
    beyond = np.maximum(_beyond(usual, np.zeros(len(own), np.int64)), 0.0) * (0, 1, 1)
    return [SlowRanks(tuple(members.tolist()), int(np.argmax(more)), more)
            for members, more in zip(own, beyond, strict=True)
            if len(members) > 1 and more.max() >= least]  # fmt: skip


def peers_of(places: Sequence[int], stage: I64) -> tuple[tuple[I64, I64], ...]:
    """Return for each stage that has some of the ranks these, and the other ranks of the stage; never without any."""
    chosen = np.array(places, np.int64)
    tasks = []
    for number in distinct(stage[chosen]).tolist():
        members = np.flatnonzero(stage == number)
        tasks.append((np.intersect1d(members, chosen), np.setdiff1d(members, chosen)))
    return tuple((own, peers) for own, peers in tasks if len(peers))


def _beyond(totals: F64, stage: I64) -> F64:
    """Return what each rank has beyond the lower median of its stage; ranks come first."""
    excess = np.zeros_like(totals)
    for number in distinct(stage).tolist():
        own = np.flatnonzero(stage == number)
        excess[own] = totals[own] - np.sort(totals[own], axis=0)[(len(own) - 1) // 2]
    return excess


def lasting(job: JobProgram, stage: I64) -> Mask:
    """Tell of each rank whether it is late in all steps alike: it takes longer, or waits less, than its stage usually.

    What is late at the end of a step others wait for in the next one; what never waits has all its time at the end.
    Of one step nobody can tell.
    """
    wait = _waits(job)
    if wait.shape[1] < 2:
        return np.ones(job.ranks, np.bool_)
    return _steady(_beyond(-wait, stage)) | _steady(_beyond(_local(job), stage))


def always_waiting(job: JobProgram, stage: I64, least: float) -> tuple[I64, float]:
    """Return the ranks that wait longer than is usual in their stage in all steps alike, and for how long (ns).

    They are those that most others keep waiting.
    """
    wait = _waits(job)
    more = _beyond(wait, stage)
    if wait.shape[1] < 2:
        return np.empty(0, np.int64), 0.0
    found = np.flatnonzero(_steady(more) & (more.sum(axis=1) >= least))
    return found, float(more[found].sum())


def _steady(values: F64) -> Mask:
    """Tell for which ranks a value per step is above zero for certain."""
    error = values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    return np.asarray(values.mean(axis=1) > _SURE * error)


def _local(job: JobProgram) -> F64:
    """Return what each rank's own track took in each step until it was blocked, ns."""
    numbers = distinct(job.matched.step)
    step = np.searchsorted(numbers, job.matched.step[job.until])
    place = job.to_block.rank * len(numbers) + step
    spent = np.bincount(place, weights=job.to_block.length, minlength=job.ranks * len(numbers))
    return spent.reshape(job.ranks, len(numbers)).astype(np.float64)


def _waits(job: JobProgram) -> F64:
    """Return what each rank waited in each step, ns."""
    matched = job.matched
    numbers, step = np.unique(matched.step, return_inverse=True)
    place = matched.rank * len(numbers) + step.ravel()
    wait = np.bincount(place, weights=matched.stay - job.transfer, minlength=job.ranks * len(numbers))
    return wait.reshape(job.ranks, len(numbers)).astype(np.float64)
