"""From blamed waiting to root causes: named where they cost the job something, and repaired in the replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from functools import reduce
from math import fsum
from typing import Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.device.rank_summary import RankSummary
from npuperf.job.job_replay import (
    BEGIN,
    JobChange,
    JobProgram,
    calmed,
    faster_link,
    level_all,
    level_ranks,
    level_steps,
    on_longest_path,
    run,
    track_totals,
    usual_begin,
)
from npuperf.job.lateness import Lateness, always_waiting, delayed_stages, find_late, slow_alike
from npuperf.job.links import HoldsUp, JudgedLinks, LinkPaces, SlowLink, held_in, machines, slow_links
from npuperf.job.match import JobGroup, Matched
from npuperf.job.pipeline import PipelineStages, StageSplit
from npuperf.job.roots import WaitBlame
from npuperf.model.communication import VARIABLE
from npuperf.model.groups import distinct
from npuperf.model.job_result import RootKind, Why
from npuperf.model.labels import F64, Mask

#: Links and groups that are tried in the replay at most, and how many changes together.
_TRIED, _AT_ONCE = 24, 8
#: How often what is named is repaired to look behind it.
_ROUNDS: Final = 4
#: Ranks that are named though they are late in some steps only: more are now one, now another.
_FEW: Final = 2
#: Of a single step nobody knows what lasts: a rank is named from so many times the usual share on.
_ONE_STEP_FACTOR: Final = 5
#: Few ranks are why now and then somebody is late if they make this part of what is lost so.
_MOSTLY: Final = 0.5
#: A rank is late as nobody else is if no other one is ever late by more than this part of it.
_UNLIKE: Final = 0.5
#: Ranks hide each other's delays if repairing each alone saves less than this part of what all together do.
_HIDING: Final = 2 / 3
#: What a rank takes longer than its peers must be at least this part of what is saved without it.
_LASTING: Final = 0.5
#: Stages are named whose work beyond the mean is at least this part of the worst one's.
_BESIDE: Final = 0.25
#: What a device waits for its host is more than this part of a stretch where that is what keeps it.
_GAP: Final = 0.05
#: Ranks late in some steps are named that save so many times what the replay misses.
_BEYOND: Final = 2
#: Of causes that are likely to save as much the surer stands first: this part of what is not sure counts against one.
_AGAINST: Final = 0.1
#: By how much a replayed gain is uncertain beyond the replay's own error.
_UNSURE: Final = 0.03
#: What keeps ranks: as it is told, and as it is in the evidence.
_WHY: Final[tuple[Why, ...]] = ("compute", "host", "unknown", "unknown")
_PARTS: Final = ("compute", "host", "unknown", "begin")


class RootCause(Struct, frozen=True):
    """A root cause, all in ns over all steps.

    ``places``: of its ranks; ``gain``: (least, most) of the job's length; ``saved``: what it is likely to be, by which
    causes are ordered; ``behind``: the gain once what was named before it is repaired, where alone it is not
    worth naming; ``steps``: the only ones in which it is there, if so.
    """

    kind: RootKind
    places: tuple[int, ...]
    why: Why
    wait: float
    gain: tuple[float, float] | None
    stage: int | None = None
    group: int | None = None
    excess: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    behind: tuple[float, float] | None = None
    steps: tuple[int, ...] = ()
    saved: float = 0.0

    @property
    def begins_late(self) -> bool:
        """Tell whether most of it lies before a rank's first step, or all of it before those of several."""
        return self.parts.get("begin", 0.0) > fsum(self.parts.values()) / 2

    @property
    def uneven(self) -> bool:
        """Tell whether it is waiting for unequal stages that is too little to blame a stage."""
        return self.kind == "jitter" and self.why == "compute"


class GainBounds(Struct, frozen=True):
    """From which share of the job a cause is named, and how sure its gain is.

    ``error``: of the replayed length, as a share of it; ``missed``: by how much it misses the end of any rank, ns.
    """

    least: float
    error: float
    usable: bool
    missed: float

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


class _Repair(Struct, frozen=True):
    """What of a job is repaired: ranks (places) that work like their peers, transfers of slow links and groups."""

    places: tuple[int, ...] = ()
    transfer: F64 | None = None

    def joined(self, other: _Repair) -> _Repair:
        """Return both repairs together."""
        transfer = self.transfer if other.transfer is None else other.transfer
        if self.transfer is not None and other.transfer is not None:
            transfer = np.minimum(self.transfer, other.transfer)
        return _Repair((*self.places, *(p for p in other.places if p not in self.places)), transfer)


#: A cause, and how it is repaired.
_Found = tuple[RootCause, _Repair]


class _Case(Struct, frozen=True):
    """A job whose causes are sought, and what is known of it; ``layouts``: see :func:`group_layouts`.

    ``strict``: the job where ranks need at once what they exchange beside compute, None where they do not.
    """

    job: JobProgram
    found: WaitBlame
    stages: PipelineStages
    links: Sequence[SlowLink]
    paces: LinkPaces
    bounds: GainBounds
    late: Lateness
    layouts: Sequence[object]
    strict: JobProgram | None = None

    @property
    def least(self) -> float:
        """From which gain on (ns of the job's length) ranks are named."""
        return self.job.measured * self.bounds.least * (1 if self.late.steps.size else _ONE_STEP_FACTOR)

    @property
    def worth(self) -> float:
        """From which gain on (ns of the job's length) links and groups are named."""
        return self.job.measured * self.bounds.least

    def change(self, repair: _Repair) -> JobChange:
        """Return the job with something repaired."""
        return replace(_mended(self.job, self.stages, repair.places, self.late), transfer=repair.transfer)

    def calm(self, repair: _Repair) -> JobChange:
        """Return the job with all ranks of a stage alike, and its transfers repaired."""
        return replace(level_all(self.job, self.stages.of), transfer=repair.transfer)

    def most(self, cause: RootCause, saved: float) -> float:
        """Return what repairing a cause saves of the length at most, which in the replay saves so much of it, ns.

        Waiting for ranks that were not loaded is replayed as it was measured: it may go as well, up to what somebody
        waited for the cause, and to its excess. Ranks wait for each other because of slow transfers as well: of those
        it is what somebody may have waited for a rank that was not loaded.
        """
        found = self.found
        if self.whole:
            return saved
        if cause.kind == "rank":
            waited = max(float(found.worst[found.of_rank(place)].sum()) for place in cause.places)
            lost = min(waited, float(self.late.whole[[*cause.places]].max()))
        else:
            held = [g for g, group in enumerate(self.job.matched.groups) if {*cause.places} <= {*group.members}]
            lost = min(fsum(found.worst[[found.of_group(g) for g in held]].tolist()) + self.unseen, cause.excess)
        return max(saved, lost)

    @property
    def unseen(self) -> float:
        """Return how long a rank was in operations with ranks that were not loaded at most, ns."""
        matched = self.job.matched
        seen = (matched.instance >= 0) & matched.complete[matched.instance]
        return float(np.bincount(matched.rank, weights=np.where(seen, 0.0, self.job.transfer)).max(initial=0.0))

    @property
    def whole(self) -> bool:
        """Tell whether no operation has members that were not loaded."""
        return bool(self.job.matched.complete.all())

    def gained(self, cause: RootCause, saved: float) -> RootCause:
        """Return a cause with its gain, where its repair saves so much of the length in the replay, ns.

        Where it may be more it is likely to be in the middle.
        """
        most = self.most(cause, saved)
        return replace(cause, gain=self.bounds.within(saved, most, self.job), saved=(saved + most) / 2)

    def saved(self, tried: Sequence[_Repair], mended: _Repair) -> list[float]:
        """Replay repairs on top of what is mended, some at a time, and return what each saves of the length, ns.

        Nothing where the replay gives no figures.
        """
        if not self.bounds.usable:
            return [0.0] * len(tried)
        saved: list[float] = []
        for first in range(0, len(tried), _AT_ONCE):
            changes = [mended, *(mended.joined(repair) for repair in tried[first : first + _AT_ONCE])]
            length = run(self.job, [self.change(repair) for repair in changes]).length
            saved += (length[0] - length[1:]).tolist()
        return saved


def find_causes(
    ranks: Sequence[RankSummary],
    job: JobProgram,
    found: WaitBlame,
    stages: PipelineStages,
    split: StageSplit | None,
    links: JudgedLinks,
    bounds: GainBounds,
    strict: JobProgram | None = None,
) -> list[RootCause]:
    """Return the causes, largest gain first, a schedule's own waiting last; their waits add up to what is blamed."""
    late = find_late(ranks, job, stages.of)
    layouts = group_layouts(ranks, job.matched)
    case = _Case(job, found, stages, slow_links(links), links.paces, bounds, late, layouts, strict)
    named, mended = _named(case)
    shares = _share_out(case, split, [cause for cause, _ in named])
    named = [(replace(cause, wait=wait), repair) for (cause, repair), wait in zip(named, shares.named, strict=True)]
    unequal = _stage_causes(job, stages, split, shares.imbalance, bounds)
    causes = _beside_slow_hosts(case, [*named, *((cause, _Repair()) for cause in unequal)])
    if split is not None and shares.imbalance > 0 and not unequal:  # too little to be named as stages
        most = bounds.within(0.0, min(split.gain[1], case.worth), job)
        causes.append(RootCause("jitter", (), "compute", shares.imbalance, (0.0, most[1]) if most else None))
    if shares.jitter > 0:
        causes.append(_nameless(case, shares.jitter, mended))
    if shares.begin + shares.unknown > 0:
        parts = {"begin": shares.begin, "unknown": shares.unknown}
        causes.append(RootCause("unknown", (), "unknown", fsum(parts.values()), None, parts=parts))
    if shares.schedule > 0:
        causes.append(RootCause("schedule", (), "unknown", shares.schedule, (0.0, 0.0)))
    last = {"schedule": 3, "unknown": 2, "jitter": 1}

    def order(cause: RootCause) -> tuple[float, ...]:
        """By what is likely to be saved; what is behind others stays after them, in the order in which it was found."""
        if cause.kind in last:
            return (last[cause.kind], 0, -cause.saved, -cause.wait)
        unsure = cause.gain[1] - cause.gain[0] if cause.gain else 0.0
        return (0, 1) if cause.behind else (0, 0, _AGAINST * unsure - cause.saved, -cause.wait)

    return sorted(causes, key=order)


def _most(cause: RootCause) -> float:
    """Return what repairing a cause saves at most, ns."""
    return cause.gain[1] if cause.gain else 0.0


def _named(case: _Case) -> tuple[list[_Found], _Repair]:
    """Return the causes that are named, and the repair of all: what lasts, and behind it, then what comes and goes."""
    named: list[_Found] = []
    mended = _Repair()
    for _ in range(_ROUNDS):
        fresh = _lasting(case, [cause for cause, _ in named], mended)
        if not fresh:
            break
        named += _on_top(case, fresh, mended)
        mended = reduce(_Repair.joined, (repair for _, repair in fresh), mended)
        if not case.bounds.usable:
            return named, mended
    passing = _passing(case, mended)
    return [*named, *_on_top(case, passing, mended)], reduce(_Repair.joined, (repair for _, repair in passing), mended)


def _beside_slow_hosts(case: _Case, named: Sequence[_Found]) -> list[RootCause]:
    """Let gains beside a rank whose host may be slow (not one that was late once) begin at nothing.

    Its host runs ahead while its device waits for what is repaired, by how much no file tells; without that waiting the
    device may wait for its host instead. So it may with less work where its own stage is too long. Half of it is
    likely where the device waits for others before its last wait for the host in a step, and of transfers no more than
    what those save that a step needs behind that.
    """
    slow = [c for c, _ in named if c.kind == "rank" and c.why != "compute" and len(c.steps) != 1 and not c.begins_late]
    hosts = {place for cause in slow for place in cause.places}
    causes, early = [], _before_last_gap(case.job, hosts)
    waited = (case.job.matched.stay - case.job.transfer) * np.isin(case.job.matched.rank, [*hosts])
    caught_up = float(waited[early].sum()) / max(float(waited.sum()), 1.0)
    for cause, repair in named:
        if cause.gain and hosts and (cause.kind == "stage" or hosts.isdisjoint(cause.places)):
            likely = cause.saved if repair.transfer is not None else cause.saved * (1 - caught_up / 2)
            cause = replace(cause, gain=(0.0, cause.gain[1]), saved=likely)
            if repair.transfer is not None:
                late = np.where(early, case.job.transfer, repair.transfer)
                (saved,) = case.saved([_Repair((), late)], _Repair())
                cause = replace(cause, saved=min(cause.saved, saved))
        causes.append(cause)
    return causes


def _before_last_gap(job: JobProgram, places: Set[int]) -> Mask:
    """Tell which operations some of the ranks at ``places`` take part in before their step's last wait for the host."""
    matched, before = job.matched, np.zeros(len(job.transfer), np.bool_)
    idle = (job.to_start.host + job.to_start.other) > _GAP * job.to_start.length
    for place in places:
        own = slice(*matched.first[place : place + 2].tolist())
        for step in distinct(matched.step[own]).tolist():
            rows = np.flatnonzero(matched.step[own] == step) + own.start
            gaps = np.flatnonzero(idle[rows])
            before[rows[: gaps[-1] if len(gaps) else 0]] = True
    there = np.flatnonzero(before & (matched.instance >= 0))
    return before | np.isin(matched.instance, distinct(matched.instance[there]))


def _on_top(case: _Case, fresh: Sequence[_Found], mended: _Repair) -> list[_Found]:
    """Say of causes found on top of what is mended what they save alone, and if that is little, what behind it."""
    causes, repairs = [cause for cause, _ in fresh], [repair for _, repair in fresh]
    if not case.bounds.usable:
        return [*fresh]
    if mended.places or mended.transfer is not None:
        causes = [
            replace(case.gained(c, saved), behind=c.gain if case.most(c, saved) < case.worth else None)
            for c, saved in zip(causes, case.saved(repairs, _Repair()), strict=True)
        ]
    if case.strict is not None:
        needed = replace(case, job=case.strict).saved(repairs, _Repair())
        surely = [case.gained(cause, saved).gain for cause, saved in zip(causes, needed, strict=True)]
        causes = [
            replace(c, gain=(min(c.gain[0], sure[0]), max(c.gain[1], sure[1]))) if c.gain and sure else c
            for c, sure in zip(causes, surely, strict=True)
        ]
    return [*zip(causes, repairs, strict=True)]


def _lasting(case: _Case, named: Sequence[RootCause], mended: _Repair) -> list[_Found]:
    """Return what costs the job something once what is named is mended: what lasts, of ranks, links, groups, and late
    beginnings, of which there can be no others.
    """
    sure = case.late.steady | case.late.begun
    alone = [(cause, repair) for cause, repair in _slow_ranks(case, mended) if sure[repair.places[0]]]
    links = _slow_links(case, named, mended)
    told = [*(c for c in named if c.kind == "link"), *(c for c, _ in links)]
    return [*_joined(case, alone, mended), *_slow_groups(case, named, told, mended), *links]


def _passing(case: _Case, mended: _Repair) -> list[_Found]:
    """Return the few ranks that are late in some steps only, each if it loses most of what is lost now and then beside
    the others.
    """
    chosen: list[_Found] = []
    few = min(_FEW, case.job.ranks // 2)  # of two ranks both are now one, now another
    while True:
        on_top = reduce(_Repair.joined, (repair for _, repair in chosen), mended)
        fresh = [(cause, repair) for cause, repair in _slow_ranks(case, on_top) if cause.steps]
        if not fresh:
            break
        if len(chosen) + len(fresh) > few:  # now one is late, now another
            return []
        chosen.append(max(fresh, key=lambda one: (_most(one[0]), one[0].wait)))
    if not chosen:
        return []
    if not case.bounds.usable:  # then waits tell, as they do which ranks are slow
        now_and_then = np.flatnonzero(~case.late.steady)
        lost = fsum(float(case.found.waits[case.found.of_rank(rank)].sum()) for rank in now_and_then.tolist())
        return chosen if fsum(cause.wait for cause, _ in chosen) >= _MOSTLY * lost else []
    late, places = case.late, [cause.places[0] for cause, _ in chosen]
    every = reduce(_Repair.joined, (repair for _, repair in chosen), mended)
    others = [reduce(_Repair.joined, (repair for cause, repair in chosen if cause.places[0] != place), mended)
              for place in places]  # fmt: skip
    changes = [case.change(every), case.calm(mended), *map(case.change, others)]
    mended_all, calm, *without = run(case.job, changes).length.tolist()
    # Beside ranks that vary all the time it is a lesser part: then it is one that is late as nobody else is.
    unlike = np.delete(late.by_step, places, axis=0).max(initial=0.0) / _UNLIKE
    return [
        one
        for one, place, length in zip(chosen, places, without, strict=True)
        if length - mended_all >= _MOSTLY * (length - calm)
        or late.by_step[place, np.isin(late.steps, one[0].steps)].min() >= unlike
    ]


def _nameless(case: _Case, wait: float, mended: _Repair) -> RootCause:
    """Return what nobody is named for: the same few ranks wait for most others, or somebody is late now and then."""
    job, late = case.job, case.late
    few, waited = always_waiting(job, case.stages.of, case.worth)
    if wait >= case.worth and waited >= _LASTING * wait and not mended.places:
        return RootCause("unknown", tuple(few.tolist()), "unknown", wait, None)
    # What all ranks would save that always took the usual time, beyond what the causes save: somebody waits for it.
    most = None
    if case.bounds.usable:
        length = run(job, [case.change(mended), case.calm(mended)]).length
        most = case.bounds.gain(float(length[0] - length[1]), job)
    # Who takes longer in every step, and not for one cause alone, but saves too little to be named.
    longer = late.by_step.sum(axis=1) >= _LASTING * late.whole
    left = np.where(late.steady & ~late.alone & longer & (late.whole >= case.least), late.whole, 0.0)
    left[[*mended.places]] = 0.0
    rank = int(np.argmax(left))
    steady = late.steps.size and left[rank] > 0
    return RootCause("jitter", (rank,) if steady else (), "unknown", wait, (0.0, min(most[1], wait)) if most else None,
                     excess=float(left[rank]))  # fmt: skip


class _Shares(Struct, frozen=True):
    """Waiting (ns) of each named cause, and of what has no name. They add up.

    ``begin``: for ranks that are not named, and began later than others.
    """

    named: list[float]
    jitter: float
    begin: float
    unknown: float
    schedule: float
    imbalance: float


def _share_out(case: _Case, split: StageSplit | None, causes: Sequence[RootCause]) -> _Shares:
    """Give every cause its waiting.

    Across stages, a rank that is named is to blame for what it takes beyond its peers; of the rest, the schedule and
    unequal stages have what the replay gives them. Slow ranks have what nobody else has of the waiting that goes away
    when all of them are repaired: a delay that travels over several groups is mixed with the usual work on its way.
    """
    job, found, bounds = case.job, case.found, case.bounds
    owners: dict[int, int] = {}  # of each axis of the blame
    for i, cause in enumerate(causes):
        if cause.kind == "rank":
            owners.update({axis: i for place in cause.places for axis in found.of_rank(place)})
        elif cause.group is not None:
            owners[found.of_group(cause.group)] = i
        else:  # who is late because of a slow link is so by the transfers of a group that has it
            held = [g for g, group in enumerate(job.matched.groups) if set(cause.places) <= set(group.members)]
            owners.update({found.of_group(g): i for g in held})
    narrow, wide = found.waits[:, :, 0].sum(axis=1), found.waits[:, :, 1].sum(axis=1)
    schedule = imbalance = jitter = 0.0
    if split is not None:
        own, totals = np.zeros_like(wide), track_totals(job)
        for axis, owner in owners.items():
            beyond = 1.0  # which part of what the axis stands for is beyond the usual, and so to blame: of groups, all
            why, rank = divmod(axis, found.ranks)
            if why < BEGIN:
                spent = totals[rank, why]
                more = causes[owner].parts.get(_PARTS[why], 0.0)
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
    before = [found.of_rank(rank)[BEGIN] for rank in range(found.ranks)]
    begin = float(fsum(waits[axis] for axis in before if axis not in owners))
    jitter += float(waits.sum()) - fsum(named) - unknown - begin
    slow = [i for i, cause in enumerate(causes) if cause.kind == "rank"]
    known = fsum(named[i] for i in slow)
    if bounds.usable and known > 0 and jitter > 0:
        mended = case.change(_Repair(tuple(place for i in slow for place in causes[i].places)))
        wait = run(job, [JobChange(), mended]).wait.sum(axis=0)
        more = min(max(float(wait[0] - wait[1]) - known, 0.0), jitter)
        named = [w + (more * w / known if i in slow else 0.0) for i, w in enumerate(named)]
        jitter -= more
    return _Shares(named, jitter, begin, unknown, schedule, imbalance)


def _mended(job: JobProgram, stages: PipelineStages, places: Sequence[int], late: Lateness) -> JobChange:
    """Return the job with ranks that work like their peers; where a whole stage has none, without its delays.

    The only rank of its stage, late in some steps, works as in its others; who only began late begins in time.
    """
    chosen = np.array([place for place in places if not late.begun[place]], np.int64)
    stage_members = [np.flatnonzero(stages.of == number) for number in distinct(stages.of[chosen]).tolist()]
    tasks = [(np.intersect1d(members, chosen), np.setdiff1d(members, chosen)) for members in stage_members]
    change = level_ranks(job, tasks)
    alone = [own for own, peers in tasks if not len(peers)]
    change = calmed(job, stages.of, change, np.concatenate(alone)) if alone else change
    for rank in (own[0] for own in alone if late.alone[own[0]]):
        steps = late.some_steps(int(rank))
        change = level_steps(job, int(rank), np.array(steps), change) if steps else change
    begun = [place for place in places if late.begun[place]]
    if not begun:
        return change
    begin = (job.begin if change.begin is None else change.begin).copy()
    begin[begun] = [usual_begin(job, rank, np.flatnonzero(stages.of == stages.of[rank])) for rank in begun]
    return replace(change, begin=begin)


def _slow_ranks(case: _Case, mended: _Repair) -> list[_Found]:
    """Return the ranks that cost the job something: each is tried in the replay with the pace of its peers.

    All are tried that take longer than their peers and have own time on the longest path, which is no shorter than that
    without it. Where the replay gives no figures, what others wait for a rank counts instead; so it may where a rank
    was not loaded, which is replayed as late as it was, though it may have waited as well.
    """
    job, late, found, bounds = case.job, case.late, case.found, case.bounds
    cost = np.array([found.worst[found.of_rank(r)].sum() for r in range(found.ranks)])
    worth = on_longest_path(job, case.change(mended)) if bounds.usable else cost
    worth = worth if case.whole else np.maximum(worth, cost)
    chosen = (worth >= case.least) & (late.whole >= _LASTING * case.least)
    tried = [rank for rank in np.flatnonzero(chosen).tolist() if rank not in mended.places]
    gains = case.saved([_Repair((rank,)) for rank in tried], mended) if bounds.usable else cost[tried].tolist()
    causes = []
    for rank, saved in zip(tried, gains, strict=True):
        wait = float(found.waits[found.of_rank(rank)].sum())
        cause = _rank_cause((rank,), late.excess[rank], wait, late.some_steps(rank))
        if cause.steps and saved < _BEYOND * bounds.missed:  # it may be a clock that was set there
            continue
        if case.most(cause, saved) >= case.least and late.whole[rank] >= _LASTING * saved:
            causes.append((case.gained(cause, saved), _Repair((rank,))))
    return causes


def _joined(case: _Case, alone: list[_Found], mended: _Repair) -> list[_Found]:
    """Put ranks that are slow alike in the place of what they are alone, where only together they gain something."""
    job, stage, found = case.job, case.stages.of, case.found
    if not case.bounds.usable:
        return alone
    tried = [*slow_alike(case.late, case.least, mended.places), *delayed_stages(job, stage, case.least)]
    tried = [slow for slow in tried if not {*slow[0]} <= {*mended.places}]
    latest = [(max(places, key=lambda place: case.late.whole[place]),) for places, _ in tried]
    gains = case.saved([_Repair(places) for places in (*(places for places, _ in tried), *latest)], mended)
    for (places, excess), saved, by_one in zip(tried, gains[: len(tried)], gains[len(tried) :], strict=True):
        single = [one for one in alone if one[0].places[0] in places]
        apart = fsum(c.gain[1] for c, _ in single if c.gain)
        if saved - apart >= case.least and max(apart, by_one) < _HIDING * saved:
            wait = float(found.waits[[axis for p in places for axis in found.of_rank(p)]].sum())
            cause = case.gained(_rank_cause(places, excess, wait), saved)
            alone = [*(one for one in alone if one not in single), (cause, _Repair(places))]
    return alone


def _rank_cause(places: tuple[int, ...], excess: F64, wait: float, steps: tuple[int, ...] = ()) -> RootCause:
    main = int(np.argmax(excess))
    parts = {name: ns for name, ns in zip(_PARTS, excess.tolist(), strict=True) if ns or name in _WHY}
    return RootCause("rank", places, _WHY[main], wait, None, excess=float(excess[main]), parts=parts, steps=steps)


def _slow_links(case: _Case, named: Sequence[RootCause], mended: _Repair) -> list[_Found]:
    """Return the links that cost the job something: each is tried with the pace of its peers."""
    job = case.job
    told = [c.places for c in named if c.kind == "link"]
    tried = [(ends, link.holds_up) for link in case.links if {*link.ranks} <= job.places.keys()
             and (ends := (job.places[link.ranks[0]], job.places[link.ranks[1]])) not in told][:_TRIED]  # fmt: skip
    repairs = [_Repair((), faster_link(job, ends, holds_up).transfer) for ends, holds_up in tried]
    causes = []
    for (ends, _), repair, saved in zip(tried, repairs, case.saved(repairs, mended), strict=True):
        if repair.transfer is not None:
            # By so much less are both ends in the operations that the link is part of, each counted once.
            spared = np.bincount(job.matched.rank, weights=job.transfer - repair.transfer, minlength=job.ranks)
            cause = RootCause("link", ends, "communication", 0.0, None, excess=float(spared[[*ends]].max()))
            if (case.most(cause, saved) if case.bounds.usable else cause.excess) >= case.worth:
                causes.append((case.gained(cause, saved), repair))
    return causes


def _told(group: JobGroup) -> bool:
    """Tell whether a group's transfers are known: of one whose ranks were not all loaded the rest may be waiting."""
    return group.complete and not group.single


def group_layouts(ranks: Sequence[RankSummary], matched: Matched) -> list[object]:
    """Return how the ranks of each group lie on machines; only groups that do so alike can be compared.

    That is how many are on each, the most first; where the machines are not recorded, over what transports operations
    moved data; None where neither is.
    """
    hosts = machines(ranks)
    over = [set[str | None]() for _ in matched.groups]
    for first, rank in zip(matched.first.tolist(), ranks, strict=False):
        moved = rank.bandwidth
        group = matched.group[first + moved.op]
        rows = np.unique(np.stack([group, moved.transport.codes]), axis=1, return_index=True)[1]
        for code, row in zip(group[rows].tolist(), rows.tolist(), strict=True):
            if code >= 0:
                over[code].add(moved.transport[row])
    return [
        sorted(Counter(hosts[m] for m in group.members).values()) if None not in {hosts[m] for m in group.members}
        else over[code] or None
        for code, group in enumerate(matched.groups)
    ]  # fmt: skip


def _slow_groups(case: _Case, named: Sequence[RootCause], links: Sequence[RootCause], mended: _Repair) -> list[_Found]:
    """Return groups whose transfers take longer than those of groups of their kind and layout, and no link is why.

    Operations in which every rank moves what its own part is do not tell by their time, as one group may have more to
    move than another: their links do, held against others that moved as much. Sends and receives tell nothing: one pair
    is in a machine, another is not.
    """
    job, found, matched = case.job, case.found, case.job.matched
    alike_sized = ~matched.variable & ~matched.p2p
    rows = (matched.instance >= 0) & alike_sized
    totals = np.bincount(matched.group[rows], weights=job.transfer[rows],
                         minlength=found.groups) / np.maximum([len(g.members) for g in matched.groups], 1)  # fmt: skip
    counted = matched.instance_group[alike_sized[matched.members[matched.starts]]]
    each = totals / np.maximum(np.bincount(counted, minlength=found.groups), 1)  # per operation
    pace: dict[int, float] = {}
    by_links: dict[int, HoldsUp] = {}
    excess: dict[int, float] = {}
    told = [c.group for c in named]
    for i, group in enumerate(matched.groups):
        alike = [j for j, g in enumerate(matched.groups) if g.kind == group.kind and len(g.ranks) == len(group.ranks)]
        alike = [j for j in alike if case.layouts[j] is not None and case.layouts[j] == case.layouts[i]]
        alike = [j for j in alike if j != i and _told(matched.groups[j]) and totals[j] > 0]
        held = any(set(cause.places) <= set(group.members) for cause in links)
        if i in told or not _told(group) or group.kind is None or held:
            continue
        pace[i] = float(np.median(each[alike])) * float(totals[i] / each[i]) if alike and each[i] else float(totals[i])
        by_links[i] = held_in(case.paces, group.id, VARIABLE)
        excess[i] = float(totals[i] - pace[i]) + fsum(now - then for now, then in by_links[i].values())

    def at_pace(group: int) -> _Repair:
        factor = pace[group] / max(float(totals[group]), 1.0)
        own = (matched.group == group) & ~matched.variable
        change = JobChange(transfer=np.where(own, job.transfer * factor, job.transfer))
        first, second = matched.groups[group].members[:2]
        return _Repair((), faster_link(job, (first, second), by_links[group], change).transfer)

    slow = [i for i, lost in excess.items() if lost >= case.worth / 2]
    tried = sorted(slow, key=lambda i: -excess[i])[:_TRIED]
    repairs = [at_pace(i) for i in tried]
    causes = []
    for i, repair, saved in zip(tried, repairs, case.saved(repairs, mended), strict=True):
        wait = float(found.waits[found.of_group(i)].sum())
        cause = RootCause("group", tuple(matched.groups[i].members), "communication", wait, None, group=i,
                          excess=excess[i])  # fmt: skip
        if (case.most(cause, saved) if case.bounds.usable else excess[i]) >= case.worth:
            causes.append((case.gained(cause, saved), repair))
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
                            excess=float(split.excess[stage]), saved=split.likely * share))  # fmt: skip
    return causes
