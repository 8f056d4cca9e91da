"""From blamed waiting to root causes: named where they cost the job something, and repaired in the replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.job.job_replay import (
    JobChange,
    JobProgram,
    calmed,
    faster_link,
    level_all,
    level_ranks,
    run,
    track_totals,
)
from npuperf.job.links import SlowLink
from npuperf.job.match import JobGroup
from npuperf.job.pipeline import PipelineStages, StageSplit
from npuperf.job.roots import WaitBlame
from npuperf.model.communication import VARIABLE
from npuperf.model.groups import distinct
from npuperf.model.job_result import RootKind, Why
from npuperf.model.labels import F64, I64, Mask

# -- Several ranks that are slow alike: each alone is none's delay, because the others are as late as it is.
#
# Whoever repairs one of them gains nothing, so they are sought by what they spend beyond the usual rank of their
# stage, and repaired together.

#: Ranks are slow alike that spend at least this part of what the slowest one spends beyond the usual.
_ALIKE: Final = 0.5
#: A rank is late lastingly if the mean over the steps is so many times its standard error.
_SURE: Final = 3


#: Ranks (places) that spend about the same beyond the usual for one cause, and the mean of what they spend beyond it by
#: cause (compute, host, other), ns over all steps.
SlowRanks = tuple[tuple[int, ...], F64]


def slow_alike(job: JobProgram, stage: I64, least: float) -> list[SlowRanks]:
    """Return ranks that are slow alike by at least ``least`` ns, and lastingly; only where there are several."""
    excess = _together_beyond(track_totals(job), stage)
    main = np.argmax(excess, axis=1)
    lasts = lasting(job, stage)
    found = []
    for cause in range(3):
        own = np.where((main == cause) & lasts, excess[:, cause], 0.0)
        chosen = np.flatnonzero((own >= least) & (own >= _ALIKE * own.max(initial=0.0)))
        if len(chosen) > 1:
            found.append((tuple(chosen.tolist()), np.maximum(excess[chosen].mean(axis=0), 0.0)))
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
    beyond = np.maximum(_together_beyond(usual, np.zeros(len(own), np.int64)), 0.0) * (0, 1, 1)
    return [
        (tuple(members.tolist()), more)
        for members, more in zip(own, beyond, strict=True)
        if len(members) > 1 and more.max() >= least
    ]


def _together_beyond(totals: F64, stage: I64) -> F64:
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
    # What each rank's own track took in each step until it was blocked.
    numbers = distinct(job.matched.step)
    place = job.to_block.rank * len(numbers) + np.searchsorted(numbers, job.matched.step[job.until])
    spent = np.bincount(place, weights=job.to_block.length, minlength=wait.size).reshape(job.ranks, -1)
    return _steady(_together_beyond(-wait, stage)) | _steady(_together_beyond(spent.astype(np.float64), stage))


def always_waiting(job: JobProgram, stage: I64, least: float) -> tuple[I64, float]:
    """Return the ranks that wait longer than is usual in their stage in all steps alike, and for how long (ns).

    They are those that most others keep waiting.
    """
    wait = _waits(job)
    more = _together_beyond(wait, stage)
    if wait.shape[1] < 2:
        return np.empty(0, np.int64), 0.0
    found = np.flatnonzero(_steady(more) & (more.sum(axis=1) >= least))
    return found, float(more[found].sum())


def _steady(values: F64) -> Mask:
    """Tell for which ranks a value per step is above zero for certain."""
    error = values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    return np.asarray(values.mean(axis=1) > _SURE * error)


def _waits(job: JobProgram) -> F64:
    """Return what each rank waited in each step, ns."""
    matched = job.matched
    numbers, step = np.unique(matched.step, return_inverse=True)
    place = matched.rank * len(numbers) + step.ravel()
    wait = np.bincount(place, weights=matched.stay - job.transfer, minlength=job.ranks * len(numbers))
    return wait.reshape(job.ranks, len(numbers)).astype(np.float64)


#: Ranks and groups that are tried in the replay at most, and together.
_TRIED, _AT_ONCE = 24, 8
#: A cause that falls into one step of several is no pattern.
_ONE_STEP: Final = 0.8
_STEPS_LEAST: Final = 3
#: Of a single step nobody knows what lasts: a rank is named from so many times the usual share on.
_ONE_STEP_FACTOR: Final = 5
#: Ranks hide each other's delays if repairing each alone saves less than this part of what all together do.
_HIDING: Final = 2 / 3
#: What a rank takes longer than its peers must be at least this part of what the others wait for it.
_LASTING: Final = 0.5
#: Stages are named whose work beyond the mean is at least this part of the worst one's.
_BESIDE: Final = 0.25
#: By how much a replayed gain is uncertain beyond the replay's own error.
_UNSURE: Final = 0.03
T = TypeVar("T")
_WHY: Final[tuple[Why, ...]] = ("compute", "host", "unknown")


class RootCause(Struct, frozen=True):
    """A root cause, all in ns over all steps. ``places``: of its ranks; ``gain``: (least, most) of the job's length."""

    kind: RootKind
    places: tuple[int, ...]
    why: Why
    wait: float
    gain: tuple[float, float] | None
    stage: int | None = None
    group: int | None = None
    excess: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def uneven(self) -> bool:
        """Tell whether it is waiting for unequal stages that is too little to blame a stage."""
        return self.kind == "jitter" and self.why == "compute"


class GainBounds(Struct, frozen=True):
    """From which share of the job a cause is named, and how sure its gain is."""

    least: float
    error: float
    usable: bool

    def gain(self, saved: float, job: JobProgram) -> tuple[float, float] | None:
        """Return the interval of a replayed gain, within the job's length."""
        return self.within(saved, saved, job)

    def within(self, least: float, most: float, job: JobProgram) -> tuple[float, float] | None:
        """Return the interval of a gain that lies between two replayed ones."""
        if not self.usable:
            return None
        slack = self.error * job.measured + _UNSURE * abs(most)
        least = least if all(g.complete for g in job.matched.groups) else 0.0  # who was not loaded may be as slow
        return max(least - slack, 0.0), min(max(most + slack, 0.0), job.measured)


def find_causes(
    job: JobProgram,
    found: WaitBlame,
    stages: PipelineStages,
    split: StageSplit | None,
    links: Sequence[SlowLink],
    bounds: GainBounds,
) -> list[RootCause]:
    """Return the causes, largest gain first, a schedule's own waiting last; their waits add up to what is blamed."""
    waits, least = found.waits.sum(axis=(1, 2)), bounds.least * job.measured
    slow = _slow_links(job, links, bounds)
    ranks = _joined(job, found, stages, _slow_ranks(job, found, stages, waits, bounds), bounds)
    named = [*ranks, *_slow_groups(job, found, waits, bounds, slow), *slow]
    shares = _share_out(job, found, stages, split, named, bounds)
    causes = [replace(cause, wait=wait) for cause, wait in zip(named, shares.named, strict=True)]
    unequal = _stage_causes(job, stages, split, shares.imbalance, bounds)
    causes += unequal
    if split is not None and shares.imbalance > 0 and not unequal:  # too little to be named as stages
        most = bounds.within(0.0, min(split.gain[1], least), job)
        causes.append(RootCause("jitter", (), "compute", shares.imbalance, (0.0, most[1]) if most else None))
    if shares.jitter > 0:  # no lasting cause, unless the same few ranks wait for most others in every step
        few, waited = always_waiting(job, stages.of, least)
        if shares.jitter >= least and waited >= _LASTING * shares.jitter and not ranks:
            causes.append(RootCause("unknown", tuple(few.tolist()), "unknown", shares.jitter, None))
        else:  # what all ranks would save that always took the usual time, beyond what the causes save
            length = run(job, [JobChange(), level_all(job, stages.of)]).length
            most = bounds.gain(float(length[0] - length[1]) - sum(c.gain[0] for c in causes if c.gain), job)
            causes.append(RootCause("jitter", (), "unknown", shares.jitter, (0.0, most[1]) if most else None))
    if shares.unknown > 0:
        causes.append(RootCause("unknown", (), "unknown", shares.unknown, None))
    if shares.schedule > 0:
        causes.append(RootCause("schedule", (), "unknown", shares.schedule, (0.0, 0.0)))
    last = {"schedule": 3, "unknown": 2, "jitter": 1}
    return sorted(causes, key=lambda c: (last.get(c.kind, 0), -(c.gain[1] if c.gain else 0.0), -c.wait))


class _Shares(Struct, frozen=True):
    """Waiting (ns) of each named cause, and of what has no name. They add up."""

    named: list[float]
    jitter: float
    unknown: float
    schedule: float
    imbalance: float


def _share_out(
    job: JobProgram,
    found: WaitBlame,
    stages: PipelineStages,
    split: StageSplit | None,
    causes: Sequence[RootCause],
    bounds: GainBounds,
) -> _Shares:
    """Give every cause its waiting.

    Across stages, a rank that is named is to blame for what it takes beyond its peers; of the rest, the schedule and
    unequal stages have what the replay gives them. Slow ranks have what nobody else has of the waiting that goes away
    when all of them are repaired: a delay that travels over several groups is mixed with the usual work on its way.
    """
    owners: dict[int, int] = {}  # of each axis of the blame
    for i, cause in enumerate(causes):
        if cause.kind == "rank":
            owners.update({axis: i for place in cause.places for axis in found.of_rank(place)})
        elif cause.group is not None:
            owners[3 * found.ranks + cause.group] = i
        else:  # who is late because of a slow link is so by the transfers of a group that has it
            held = [g for g, group in enumerate(job.matched.groups) if set(cause.places) <= set(group.members)]
            owners.update({3 * found.ranks + g: i for g in held})
    narrow, wide = found.waits[:, :, 0].sum(axis=1), found.waits[:, :, 1].sum(axis=1)
    schedule = imbalance = jitter = 0.0
    if split is not None:
        own, totals = np.zeros_like(wide), track_totals(job)
        for axis, owner in owners.items():
            beyond = 1.0  # which part of what the axis stands for is beyond the usual, and so to blame: of groups, all
            if axis < 3 * found.ranks:
                spent = totals[axis % found.ranks, axis // found.ranks]
                more = causes[owner].parts.get(_WHY[axis // found.ranks], 0.0)
                beyond = float(min(more / spent, 1.0)) if spent > 0 else 0.0
            own[axis] = wide[axis] * beyond
        left = float(wide.sum() - own.sum())
        schedule, imbalance = split.within(left)
        jitter = left - schedule - imbalance
        wide = own
    named = [0.0] * len(causes)
    waits = narrow + wide
    for axis, owner in owners.items():
        named[owner] += float(waits[axis])
    unknown = 0.0 if found.unknown in owners else float(waits[found.unknown])
    jitter += float(waits.sum()) - sum(named) - unknown
    slow = [i for i, cause in enumerate(causes) if cause.kind == "rank"]
    known = sum(named[i] for i in slow)
    if bounds.usable and known > 0 and jitter > 0:
        mended = _mended(job, stages, [place for i in slow for place in causes[i].places])
        wait = run(job, [JobChange(), mended]).wait.sum(axis=0)
        more = min(max(float(wait[0] - wait[1]) - known, 0.0), jitter)
        named = [w + (more * w / known if i in slow else 0.0) for i, w in enumerate(named)]
        jitter -= more
    return _Shares(named, jitter, unknown, schedule, imbalance)


def _mended(job: JobProgram, stages: PipelineStages, places: Sequence[int]) -> JobChange:
    """Return the job with ranks that work like their peers; where a whole stage has none, without its delays."""
    chosen = np.array(places, np.int64)
    stage_members = [np.flatnonzero(stages.of == number) for number in distinct(stages.of[chosen]).tolist()]
    tasks = [(np.intersect1d(members, chosen), np.setdiff1d(members, chosen)) for members in stage_members]
    change = level_ranks(job, tasks)
    alone = [own for own, peers in tasks if not len(peers)]
    return calmed(job, stages.of, change, np.concatenate(alone)) if alone else change


def _slow_ranks(
    job: JobProgram, found: WaitBlame, stages: PipelineStages, waits: F64, bounds: GainBounds
) -> list[RootCause]:
    """Return the ranks that cost the job something: each is tried in the replay with the pace of its peers.

    Where the replay gives no figures, what others wait for a rank counts instead. The only rank of its stage has no
    peers for its compute; for the rest all others are.
    """
    cost = np.array([found.worst[found.of_rank(r)].sum() for r in range(found.ranks)])
    tried = [int(r) for r in np.argsort(-cost, kind="stable")[:_TRIED] if cost[r] > 0]
    peers = {r: np.flatnonzero((stages.of == stages.of[r]) & (np.arange(found.ranks) != r)) for r in tried}

    def repaired(rank: int) -> JobChange:
        one = np.array([rank])
        return level_ranks(job, [(one, peers[rank])]) if len(peers[rank]) else calmed(job, stages.of, ranks=one)

    gains = _gains(job, repaired, tried)
    least, steady, totals = _least(job, found, bounds), lasting(job, stages.of), track_totals(job)
    causes = []
    for rank, saved in zip(tried, gains, strict=True):
        others = totals[peers[rank]] if len(peers[rank]) else np.delete(totals, rank, axis=0)
        beyond = totals[rank] - np.median(others, axis=0)
        excess = np.maximum(beyond if len(peers[rank]) else beyond * (0, 1, 1), 0)
        steps = found.waits[found.of_rank(rank)].sum(axis=(0, 2))
        no_pattern = len(steps) >= _STEPS_LEAST and bool(steps.max() > _ONE_STEP * steps.sum())
        lasts = float(excess.sum()) >= _LASTING * cost[rank] and not no_pattern
        lasts &= not len(peers[rank]) or bool(steady[rank])
        if (saved if bounds.usable else cost[rank]) >= least and lasts:
            # Waiting for ranks that were not loaded is replayed as it was measured: it may go as well.
            most = saved if job.matched.complete.all() else max(saved, min(cost[rank], float(excess.sum())))
            wait = float(waits[found.of_rank(rank)].sum())
            causes.append(_rank_cause((rank,), excess, wait, bounds.within(saved, most, job)))
    return causes


def _least(job: JobProgram, found: WaitBlame, bounds: GainBounds) -> float:
    """Return from which gain on (ns of the job's length) ranks are named."""
    return job.measured * bounds.least * (_ONE_STEP_FACTOR if found.waits.shape[1] < 2 else 1)


def _joined(
    job: JobProgram, found: WaitBlame, stages: PipelineStages, alone: list[RootCause], bounds: GainBounds
) -> list[RootCause]:
    """Put ranks that are slow alike in the place of what they are alone, where only together they gain something."""
    least = _least(job, found, bounds)
    if not bounds.usable:
        return alone
    tried = [*slow_alike(job, stages.of, least), *delayed_stages(job, stages.of, least)]
    gains = _gains(job, lambda slow: _mended(job, stages, slow[0]), tried)
    for (places, excess), saved in zip(tried, gains, strict=True):
        single = [c for c in alone if c.places[0] in places]
        apart = sum(c.gain[1] for c in single if c.gain)
        if saved - apart >= least and apart < _HIDING * saved:
            wait = float(found.waits[[axis for p in places for axis in found.of_rank(p)]].sum())
            cause = _rank_cause(places, excess, wait, bounds.gain(saved, job))
            alone = [*(c for c in alone if c not in single), cause]
    return alone


def _rank_cause(places: tuple[int, ...], excess: F64, wait: float, gain: tuple[float, float] | None) -> RootCause:
    main = int(np.argmax(excess))
    parts = dict(zip(_WHY, excess.tolist(), strict=True))
    return RootCause("rank", places, _WHY[main], wait, gain, excess=float(excess[main]), parts=parts)


def _slow_links(job: JobProgram, links: Sequence[SlowLink], bounds: GainBounds) -> list[RootCause]:
    """Return the links that cost the job something: each is tried with the pace of its peers."""
    tried = [((job.places[link.ranks[0]], job.places[link.ranks[1]]), link)
             for link in links if {*link.ranks} <= job.places.keys()][:_TRIED]  # fmt: skip

    def mended(one: tuple[tuple[int, int], SlowLink]) -> JobChange:
        return faster_link(job, one[0], one[1].holds_up)

    causes = []
    for one, saved in zip(tried, _gains(job, mended, tried), strict=True):
        if saved >= bounds.least * job.measured:
            # By so much less are both ends in the operations that the link is part of, each counted once.
            transfer = mended(one).transfer
            spared = job.transfer - (job.transfer if transfer is None else transfer)
            excess = float(np.bincount(job.matched.rank, weights=spared, minlength=job.ranks)[[*one[0]]].max())
            causes.append(RootCause("link", one[0], "communication", 0.0, bounds.gain(saved, job), excess=excess))
    return causes


def _told(group: JobGroup) -> bool:
    """Tell whether a group's transfers are known: of one whose ranks were not all loaded the rest may be waiting."""
    return group.complete and not group.single


def _slow_groups(
    job: JobProgram, found: WaitBlame, waits: F64, bounds: GainBounds, links: Sequence[RootCause]
) -> list[RootCause]:
    """Return groups whose transfers take longer than those of groups of their kind and size, and no link is why.

    Operations in which every rank moves what its own part is tell nothing: one group may have more than another.
    """
    matched = job.matched
    alike_sized = ~np.isin(matched.type, [i for i, name in enumerate(matched.types) if name in VARIABLE])
    rows = (matched.instance >= 0) & alike_sized
    totals = np.bincount(matched.group[rows], weights=job.transfer[rows],
                         minlength=found.groups) / np.maximum([len(g.members) for g in matched.groups], 1)  # fmt: skip
    counted = matched.instance_group[alike_sized[matched.members[matched.starts]]]
    each = totals / np.maximum(np.bincount(counted, minlength=found.groups), 1)  # per operation
    pace: dict[int, float] = {}
    for i, group in enumerate(matched.groups):
        alike = [j for j, g in enumerate(matched.groups) if g.kind == group.kind and len(g.ranks) == len(group.ranks)]
        alike = [j for j in alike if j != i and _told(matched.groups[j]) and totals[j] > 0]
        held = any(set(cause.places) <= set(group.members) for cause in links)
        if not _told(group) or group.kind is None or not alike or held:
            continue
        usual = float(np.median(each[alike])) * float(totals[i] / each[i]) if each[i] else 0.0
        if totals[i] - usual >= bounds.least * job.measured / 2:
            pace[i] = usual

    def at_pace(group: int) -> JobChange:
        factor = float(pace[group] / totals[group])
        return JobChange(transfer=np.where(matched.group == group, job.transfer * factor, job.transfer))

    tried = sorted(pace, key=lambda i: pace[i] - totals[i])[:_TRIED]
    causes = []
    for i, saved in zip(tried, _gains(job, at_pace, tried), strict=True):
        if saved >= bounds.least * job.measured:
            wait = float(waits[3 * found.ranks + i])
            causes.append(RootCause("group", tuple(matched.groups[i].members), "communication", wait,
                                    bounds.gain(saved, job), group=i, excess=float(totals[i] - pace[i])))  # fmt: skip
    return causes


def _stage_causes(
    job: JobProgram, stages: PipelineStages, split: StageSplit | None, wait: float, bounds: GainBounds
) -> list[RootCause]:
    """Return the stages from which work must go, each with its part of the imbalance: those well above the mean."""
    if split is None or wait <= 0 or split.gain[1] < bounds.least * job.measured or not split.above.any():
        return []
    named = split.above >= _BESIDE * split.above.max()
    whole = float(split.above[named].sum())
    causes = []
    for stage in np.flatnonzero(named).tolist():
        share = float(split.above[stage]) / whole
        gain = bounds.within(split.gain[0] * share, split.gain[1] * share, job)
        places = tuple(stages.ranks(stage).tolist())
        causes.append(RootCause("stage", places, "compute", wait * share, gain, stage=stage,
                            excess=float(split.excess[stage])))  # fmt: skip
    return causes


def _gains(job: JobProgram, change: Callable[[T], JobChange], tried: Sequence[T]) -> list[float]:
    """Replay a change of each thing, some at a time, and return what each saves of the job's length, ns."""
    saved: list[float] = []
    for first in range(0, len(tried), _AT_ONCE):
        length = run(job, [JobChange(), *map(change, tried[first : first + _AT_ONCE])]).length
        saved += (length[0] - length[1:]).tolist()
    return saved
