"""The job over all its ranks: matched, aligned, replayed, blamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import pairwise
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.base.messages import Message, say
from npuperf.device.rank_summary import (
    Awaited,
    RankSummary,
    awaited_ranks,
    extend,
    filled_like,
    held_by_exchanges,
    links_beside,
    reset,
)
from npuperf.device.witness import SetBack
from npuperf.job.clocks import ENDS_APART, Clocks, align, arrivals, contradicted, doubted, pair_in_time
from npuperf.job.job_replay import JobChange, JobProgram, build, run, scaled, with_twins
from npuperf.job.job_steps import JobSteps, common_steps, in_one_count
from npuperf.job.links import LinkPaces, PacketCost, judge_links, packet_costs
from npuperf.job.match import Matched, match
from npuperf.job.one_clock import Jump, Runs, find_set_backs, look
from npuperf.job.pipeline import (
    Bubble,
    PipelineStages,
    find_bubble,
    find_stages,
    find_windows,
    name_pairs,
    spans_stages,
    split_waiting,
)
from npuperf.job.root_causes import GainBounds, RootCause, find_causes
from npuperf.job.roots import blame
from npuperf.job.schedule import Schedule, find_schedule, step_in_time
from npuperf.job.waits import JobWaits, find_waits
from npuperf.model.groups import lower_median
from npuperf.model.intervals import Intervals
from npuperf.model.job_result import Link, PipelineStep
from npuperf.model.labels import F64, I64
from npuperf.model.result import Elasticity
from npuperf.model.thresholds import Thresholds

#: Of so many steps at least one is the usual.
_USUAL: Final = 3
#: By how much everything is scaled to see what the job depends on.
_NUDGE: Final = 0.9


class World(Struct, frozen=True):
    """How many ranks a job has: ``size`` as recorded, None where it is not, and ``least`` by every hint there is."""

    size: int | None
    least: int


class JobSplit(Struct, frozen=True):
    """Ranks of a job, matched, and every stay of theirs split. ``places``: where each device stands in the list of
    ranks, by its folder, number and rank.
    """

    ranks: tuple[RankSummary, ...]
    places: dict[tuple[str, int, int | None], int]
    matched: Matched
    waits: JobWaits


class JobStudy(JobSplit, frozen=True):
    """Everything that is worked out once per job. ``waited``: all that each rank waited, ns; ``other``: the elasticity
    of local time that is neither compute nor waiting for the host; ``counted``: how the ranks' steps are numbered,
    and which are compared; ``jumps``: where clocks were set, which is undone in all times; ``left_out``: how many
    operations contradict the others, and on how many ranks, all together; ``mixed``: ranks (their numbers) that are
    left out, as their times mix up, and why.
    """

    clocks: Clocks
    waited: I64
    job: JobProgram
    error: float
    usable: bool
    stages: PipelineStages
    bubble: Bubble | None
    schedule: Schedule | None
    in_time: PipelineStep | None
    links: tuple[Link, ...]
    paces: LinkPaces
    causes: tuple[RootCause, ...]
    costs: tuple[PacketCost, ...]
    elasticity: Elasticity | None
    other: float
    step_count: int
    counted: JobSteps
    jumps: tuple[Jump, ...]
    left_out: tuple[int, int]
    world: World
    mixed: dict[int, Message]

    @property
    def awaited(self) -> list[Awaited]:
        """For whom that was not loaded ranks waited, as parts of their operations tell, the longest first."""
        return awaited_ranks(self.ranks, np.split(self.waits.absent, self.matched.first[1:-1]))

    @property
    def length(self) -> float:
        """The job's length as measured, ns."""
        return self.job.measured


def find_world(ranks: Sequence[RankSummary], told: int | None) -> World:
    """Return how many ranks the job has. ``told``: as the user says.

    Only what says so counts as its size: that ranks are numbered without a gap does not, the others may not have been
    loaded. It has at least those that were loaded or that a group or a link names, and as many as an operation reaches.
    """
    own = max(r.rank + 1 for r in ranks)
    recorded = max((r.world for r in ranks if r.world), default=0)
    if recorded or told:  # a group may name ranks that do not exist
        size = max(told or recorded, own)
        return World(size, size)
    named = [m + 1 for r in ranks for g in r.groups for m in g.ranks]
    reached = [g.least for r in ranks for g in r.groups] + [links_beside(r.links) + 1 for r in ranks]
    return World(None, max(own, *named, *reached))


class SeveralRuns(Struct, frozen=True):
    """Ranks that cannot be of one job, though files say so, and which of them can."""

    ranks: tuple[RankSummary, ...]
    runs: Runs


def study_job(
    ranks: Sequence[RankSummary], thresholds: Thresholds, world_size: int | None = None
) -> JobStudy | SeveralRuns | None:
    """Look at ranks of one job; None where fewer than two of them have operations in common.

    ``world_size``: how many ranks the job has, where the user says so.
    """
    found = _matched(ranks, world_size)
    if found is None or isinstance(found, SeveralRuns):
        return found
    ranks, world, counted, jumps = found.ranks, found.world, found.counted, found.jumps
    matched, clocks, waits, job, left_out = _program(ranks, found.matched)
    if jumps:  # how far it was set is known by ends
        clocks = replace(clocks, low=clocks.low - ENDS_APART, high=clocks.high + ENDS_APART)
    if not matched.instances:
        return None
    stages = find_stages(ranks)
    wide = spans_stages(matched, stages)
    numbers, steps = np.unique(matched.step, return_inverse=True)
    blamed = blame(ranks, job, waits, clocks, steps.ravel(), wide.astype(np.int64))
    joined = with_twins(job)
    for replayed in (joined, job) if joined is not job else (job,):
        played = run(replayed, [JobChange()])
        length = float(played.length[0])
        error = abs(length - job.measured) / max(job.measured, 1.0)
        usable = error <= thresholds.replay_error
        if usable:
            break
    job, missed = replayed, float(np.abs(played.finish[:, 0] - job.end).max())
    windows = find_windows(ranks, matched, waits, wide, stages) if stages.real else []
    schedule = find_schedule(ranks, matched, stages) if stages.real else None
    compute = stage_compute(ranks, stages) if usable and windows else None
    split = None if compute is None else split_waiting(ranks, job, stages, windows, compute, wide)
    held, strict = [held_by_exchanges(r) for r in ranks] if usable else [], None
    if any(held):  # what needs what is not recorded: gains are between the least and the most of it
        ranks_held = [own or rank for own, rank in zip(held, ranks, strict=True)]
        strict = with_twins(build(ranks_held, matched, waits, clocks, in_queues=True))
        if split is not None and compute is not None:
            sure = split_waiting(ranks_held, strict, stages, windows, compute, wide).gain
            split = replace(split, gain=(min(split.gain[0], sure[0]), max(split.gain[1], sure[1])))
    of_operations = 0 if counted.compared else int(np.count_nonzero(numbers >= 0))  # some of steps left out reach in
    count = max(max(len(r.step_number) for r in ranks), of_operations, 1)
    judged = judge_links(ranks, round(job.measured / count), count, thresholds)
    bounds = GainBounds(thresholds.root_share, error, usable, missed)
    elasticity, other = _elasticity(job, length) if usable else (None, 0.0)
    return JobStudy(
        ranks=tuple(ranks),
        places={rank.place: i for i, rank in enumerate(ranks)},
        matched=matched,
        clocks=clocks,
        waits=waits,
        waited=np.array([waits.wait[a:b].sum() for a, b in pairwise(matched.first.tolist())], np.int64),
        job=job,
        error=error,
        usable=usable,
        stages=stages,
        bubble=find_bubble(ranks, matched, waits, windows) if windows else None,
        schedule=schedule,
        in_time=step_in_time(ranks, matched, waits, clocks, stages, windows, schedule) if schedule else None,
        links=tuple(judged.links),
        paces=judged.paces,
        causes=tuple(find_causes(ranks, job, blamed, stages, split, judged, bounds, strict)),
        costs=tuple(packet_costs(ranks, round(job.measured / count), count, thresholds)),
        elasticity=elasticity,
        other=other,
        step_count=count,
        counted=counted,
        jumps=tuple(jumps),
        left_out=left_out,
        world=world,
        mixed=found.mixed,
    )


def split_job(ranks: Sequence[RankSummary], world_size: int | None = None) -> JobSplit | None:
    """Match ranks of one job and split their stays as :func:`study_job` does, and no more."""
    found = _matched(ranks, world_size)
    if found is None or isinstance(found, SeveralRuns):
        return None
    matched, _, waits, _, _ = _program(found.ranks, found.matched)
    return JobSplit(tuple(found.ranks), {rank.place: i for i, rank in enumerate(found.ranks)}, matched, waits)


class _Found(Struct, frozen=True):
    """Ranks of one job with their steps numbered alike and their clocks as if nobody had set them, matched.

    ``mixed``: ranks that are left out, as times of theirs mix up, and why.
    """

    ranks: list[RankSummary]
    matched: Matched
    world: World
    counted: JobSteps
    jumps: list[Jump]
    mixed: dict[int, Message]


def _matched(ranks: Sequence[RankSummary], world_size: int | None) -> _Found | SeveralRuns | None:
    """Match the operations of ranks of one job; None where fewer than two of them have any in common."""
    if any(r.rank >= 0 for r in ranks):
        ranks = [r for r in ranks if r.rank >= 0]
    else:  # no file names any: the devices of one machine are told apart by number
        ranks = [replace(r, rank=r.device) for r in ranks]
    ranks = sorted(ranks, key=lambda r: r.rank)
    if len(ranks) < 2 or len({r.rank for r in ranks}) < len(ranks):
        return None
    all_ranks, world = ranks, find_world(ranks, world_size)
    ranks = in_one_count(ranks)
    matched = match(ranks, world.size)
    ranks, counted = common_steps(ranks, matched)
    ranks, named = name_pairs(_extended(ranks))
    if counted.compared or any(counted.moved) or named:
        matched = match(ranks, world.size)
    backs = find_set_backs(ranks, matched)
    broken = {place: _mixed_steps(ranks[place], back) for place, back in backs.items()}
    left = _unmixed(ranks, matched, counted, broken)
    if left is None:
        return _without(all_ranks, broken, world_size)
    ranks, counted, matched = left
    jumps = [Jump(place, back.start, back.by) for place, back in backs.items()]
    for paired in (False, True):
        if paired:
            if not (any(len(g.ranks) > 2 for g in matched.groups) and (matched.p2p & (matched.instance < 0)).any()):
                break
            ranks = pair_in_time(ranks, matched, align(matched, len(ranks)))
            matched = match(ranks, world.size)
        runs, fresh = look(ranks, matched)
        if runs is not None and not paired:  # no pair that time made tells more than what names its ranks
            return SeveralRuns(tuple(ranks), runs)
        if fresh:
            broken = {place: _overlapped(ranks[place], fresh, place) for place in {jump.place for jump in fresh}}
            for jump in fresh:
                ranks[jump.place] = reset(ranks[jump.place], jump.at, jump.by)
            left = _unmixed(ranks, match(ranks, world.size), counted, broken)
            if left is None:
                return _without(all_ranks, broken, world_size)
            ranks, counted, matched = left
            jumps += fresh
    return _Found(ranks, matched, world, counted, jumps, {}) if matched.instances else None


def _unmixed(
    ranks: list[RankSummary], matched: Matched, counted: JobSteps, broken: Mapping[int, Set[int]]
) -> tuple[list[RankSummary], JobSteps, Matched] | None:
    """Leave out steps in which times of a rank (by place) mix up; None where no step is left."""
    if not any(broken.values()):
        return ranks, counted, matched
    ranks, again = common_steps(ranks, matched, broken)
    if again.compared is None:
        return None
    return ranks, replace(again, moved=counted.moved), match(ranks, find_world(ranks, None).size)


def _without(
    ranks: Sequence[RankSummary], broken: Mapping[int, Set[int]], world_size: int | None
) -> _Found | SeveralRuns | None:
    """Match the operations of the ranks without those (by place) whose times mix up in every step that all have."""
    mixed = [ranks[place].rank for place, steps in broken.items() if steps]
    found = _matched([r for r in ranks if r.rank not in mixed], world_size)
    why = say("its clock was set back while it was recorded, and no step is left that all ranks have and in which "
              "times do not mix up")  # fmt: skip
    return replace(found, mixed={**found.mixed, **dict.fromkeys(mixed, why)}) if isinstance(found, _Found) else found


def _mixed_steps(rank: RankSummary, back: SetBack) -> Set[int]:
    """Return the steps of a rank that lie where its times mix up, or of which an operation does."""
    operations = rank.operations
    windows = rank.step_number[back.mixed(Intervals(rank.step_start, rank.step_end))]
    own = operations.step[back.mixed(Intervals(operations.start, operations.end))]
    return {n for n in np.concatenate([windows, own]).tolist() if n >= 0}


def _overlapped(rank: RankSummary, jumps: Sequence[Jump], place: int) -> Set[int]:
    """Return the steps of a rank in which its clock was set back: what came before and after it, times mix up."""
    back = [jump for jump in jumps if jump.place == place and jump.by > 0]
    mixed = [(rank.step_start < jump.at + jump.by) & (rank.step_end > jump.at - jump.by) for jump in back]
    return {int(n) for own in mixed for n in rank.step_number[own].tolist()}


def _extended(ranks: list[RankSummary]) -> list[RankSummary]:
    """Complete what devices without kernels do not tell by what their peers do.

    Where none has kernels, nothing tells how much comes after the last operation: what is left of each one's window
    comes before the first. Waits stay, as the last operation ends on all at once.
    """
    tails = sorted(int(r.tail.length[0]) for r in ranks if r.span_ns is None)
    if len(tails) == len(ranks):
        return ranks
    if not tails:
        return [extend(rank, 0) for rank in ranks]
    stages = find_stages(ranks)
    found = []
    for place, rank in enumerate(ranks):
        if rank.span_ns is not None:
            rank = extend(rank, tails[len(tails) // 2])
            peers = (r for r, s in zip(ranks, stages.of, strict=True) if s == stages.of[place] and r.span_ns is None)
            peer = next(peers, None)
            rank = filled_like(rank, peer) if peer else rank
        found.append(rank)
    return found


def _program(
    ranks: Sequence[RankSummary], matched: Matched
) -> tuple[Matched, Clocks, JobWaits, JobProgram, tuple[int, int]]:
    """Align the clocks and build the program, without operations that contradict the others.

    The last: how many these are, and on how many ranks, all together.
    """
    left_out, doubts = np.zeros(2, np.int64), []
    for _ in range(3):
        clocks = align(matched, len(ranks))
        if clocks.wrong.any():
            gone = (matched.instance >= 0) & clocks.wrong[matched.instance]
            left_out += np.count_nonzero(clocks.wrong), np.count_nonzero(gone)
            doubts.append(contradicted(matched, clocks))
            matched = matched.drop(clocks.wrong)
            continue
        clocks = doubted(clocks, doubts)
        waits = find_waits(matched, ranks, arrivals(matched, clocks))
        job = build(ranks, matched, waits, clocks)
        if not job.looped.any():
            break
        matched = matched.drop(job.looped)
    else:
        clocks = doubted(align(matched, len(ranks)), doubts)
        waits = find_waits(matched, ranks, arrivals(matched, clocks))
        job = build(ranks, matched, waits, clocks)
    return matched, clocks, waits, job, (int(left_out[0]), int(left_out[1]))


def stage_compute(ranks: Sequence[RankSummary], stages: PipelineStages) -> F64 | None:
    """Return the compute time of each stage (ns): the lower median of its ranks, so that one slow rank is no stage.

    Of each rank it is as many times that of its usual step: no work is moved for what some steps take longer. A stage
    of which no rank was loaded counts as the usual one. None where fewer than two stages are known.
    """
    found: list[float | None] = []
    for stage in range(stages.count):
        known = [c for r in stages.ranks(stage) if (c := _usual_compute(ranks[int(r)])) is not None]
        found.append(float(lower_median(np.array(known))) if known else None)
    known_stages = [c for c in found if c is not None]
    if len(known_stages) < 2:
        return None
    usual = float(lower_median(np.array(known_stages)))
    return np.array([usual if c is None else c for c in found])


def _usual_compute(rank: RankSummary) -> float | None:
    """Return the compute time of a rank (ns), as if all steps took what the usual one does."""
    each = rank.in_step.compute
    if rank.compute_ns is None or len(each) < _USUAL:
        return rank.compute_ns
    return rank.compute_ns - float(each.sum()) + len(each) * float(lower_median(each))


def _elasticity(job: JobProgram, length: float) -> tuple[Elasticity, float]:
    """Return what the job's length depends on: relative change per relative change; the last: of other local time."""
    less = np.full(job.ranks, _NUDGE)
    faster = JobChange(transfer=job.transfer * _NUDGE)
    nudged = run(job, [scaled(job, host=less), scaled(job, less), faster, scaled(job, other=less)]).length
    host, compute, transfer, other = ((length - nudged) / length / (1 - _NUDGE)).tolist()
    return Elasticity(host=host, compute=compute, communication=transfer), other
