"""Pipeline stages: who belongs to which, the bubble, and what of the waiting is the schedule's own."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.device.rank_summary import RankSummary
from npuperf.job.job_replay import Inside, JobChange, JobProgram, calmed, level_all, run, scaled
from npuperf.job.match import Matched
from npuperf.job.waits import JobWaits, turns
from npuperf.model.communication import ProcessGroup
from npuperf.model.groups import distinct, lower_median
from npuperf.model.labels import F64, I64, Mask

# -- Which groups of ranks are pipelines: as they are called, else as they behave.

#: What programs call pipelines (Megatron pp, DeepSpeed pipe, mesh_pp of a device mesh), and what they call others.
_PIPELINE: Final = frozenset({"pp", "pipe", "pipeline"})
_OTHERS: Final = frozenset(
    {"tp", "dp", "cp", "ep", "sp", "exp", "mp", "tensor", "data", "context", "expert", "sequence"}
)
#: Who computes at most this part of what the first rank does before its first exchange waits for it from the begin.
_AT_ONCE: Final = 0.1


def named_pipelines(ranks: Sequence[RankSummary]) -> list[tuple[int, ...]]:
    """Return the ranks of the groups that are called pipelines, in their order; not those that are parts of others."""
    named = {g.ranks for r in ranks for g in r.groups if _is_pipeline(g)}
    largest: dict[int, int] = defaultdict(int)  # of each rank, its pipeline's size
    for members in named:
        for rank in members:
            largest[rank] = max(largest[rank], len(members))
    return sorted(members for members in named if len(members) >= max(largest[rank] for rank in members))


def name_pairs(ranks: Sequence[RankSummary]) -> tuple[list[RankSummary], bool]:
    """Tell ranks who is in groups of sends and receives that no file names, and whether there are any.

    ProcessGroupHCCL has one for every two ranks that send. It has the kind of the pipeline that both are of. A group in
    which two ranks do not send each other as much as they receive has others, who were not loaded.
    """
    told = {g.id for r in ranks for g in r.groups if g.ranks}
    counts: dict[str, dict[int, tuple[list[int], list[int]]]] = defaultdict(dict)
    for place, summary in enumerate(ranks):
        operations = summary.operations
        each = [operations.type.flag([name == way for name in operations.type.names]) for way in ("send", "receive")]
        for name in sorted({n for n in operations.group.filter(each[0] | each[1]).texts() if n is not None} - told):
            of_group = operations.group.flag([label == name for label in operations.group.names])
            sent, received = (np.unique(operations.step[of_group & way], return_counts=True) for way in each)
            counts[name][place] = (np.stack(sent).tolist(), np.stack(received).tolist())
    pipelines = {frozenset(g.ranks): g.kind for r in ranks for g in r.groups if _is_pipeline(g)}
    groups: dict[int, list[ProcessGroup]] = defaultdict(list)
    for name, found in counts.items():
        ways = [*found.values()]
        if len(ways) == 2 and ways[0] == ways[1][::-1]:
            pair = tuple(sorted(ranks[place].rank for place in found))
            kind = next((kind for members, kind in pipelines.items() if members >= {*pair}), None)
            for place in found:
                groups[place].append(ProcessGroup(name, kind, pair))
    named = []
    for place, summary in enumerate(ranks):
        operations, mine = summary.operations, {g.id: g for g in groups.get(place, ())}
        other = [sum(mine[name].ranks) - summary.rank if name in mine else -1 for name in operations.group.names]
        peer = np.where(operations.peer >= 0, operations.peer, np.array([*other, -1], np.int64)[operations.group.codes])
        known = tuple(g for g in summary.groups if g.id not in mine)
        operations = replace(operations, peer=np.where(operations.p2p, peer, -1))
        named.append(replace(summary, operations=operations, groups=(*known, *mine.values())) if mine else summary)
    return named, bool(groups)


def likely_pipelines(ranks: Sequence[RankSummary]) -> list[tuple[int, ...]]:
    """Return chains of ranks that exchange point to point, the first one of which computes while the others wait.

    In a ring (of context, for instance) all compute as long before they exchange. Where files tell no peers, those are
    neighbours that stand next to each other in a group. Chains must be of one length.
    """
    near = _neighbours(ranks)
    before = {r.rank: int(r.compute_before[np.flatnonzero(r.operations.p2p)[0]]) for r in ranks if near.get(r.rank)}
    found, seen = [], set[int]()
    for rank in sorted(before, key=lambda rank: (-before[rank], rank)):
        if rank in seen:
            continue
        chain, members = [rank], {rank}
        while fresh := [other for other in near.get(chain[-1], ()) if other not in members]:
            chain.append(fresh[0])  # of two the first one: its first exchange is with the next stage
            members.add(fresh[0])
        tied = {other for one in chain for other in near.get(one, ())} | members
        seen |= tied
        if len(chain) < 2 or tied != members or not members <= before.keys():
            continue
        if before[rank] > 0 and max(before[r] for r in chain[1:]) <= _AT_ONCE * before[rank]:  # they begin by waiting
            found.append(tuple(chain))
    return sorted(found) if len({len(chain) for chain in found}) == 1 else []


def _neighbours(ranks: Sequence[RankSummary]) -> dict[int, list[int]]:
    """Return with whom each rank exchanges point to point, in the order in which it first does."""
    told = {g.id: g.ranks for r in reversed(ranks) for g in r.groups if g.ranks}
    others = {g.id for r in ranks for g in r.groups if _words(g.kind) & _OTHERS}
    holders: dict[str | None, list[int]] = defaultdict(list)
    for summary in ranks:
        for name in {*summary.operations.group.filter(summary.operations.p2p).texts()}:
            holders[name].append(summary.rank)
    near: dict[int, list[int]] = {}
    for summary in ranks:
        operations, found = summary.operations, dict[int, None]()
        rows = np.flatnonzero(operations.p2p & ~operations.group.flag([n in others for n in operations.group.names]))
        for group, peer in dict.fromkeys(zip(operations.group.take(rows).texts(), operations.peer[rows], strict=True)):
            chain = told.get(group or "", tuple(holders[group]))
            at = chain.index(summary.rank) if summary.rank in chain else -2
            known = (
                [int(peer)] if peer >= 0 else [chain[n] for n in (at + 1, at - 1) if at >= 0 and 0 <= n < len(chain)]
            )
            found.update(dict.fromkeys(known))
        near[summary.rank] = [*found]
    return near


def _is_pipeline(group: ProcessGroup) -> bool:
    words = _words(group.kind)
    return len(group.ranks) > 1 and bool(words & _PIPELINE) and not words & _OTHERS


def _words(kind: str | None) -> set[str]:
    return set(re.findall("[a-z]+", (kind or "").lower()))


#: Part of a stretch from which on its host sets the pace: waiting for it; where that is not recorded, any gaps.
_HOST_WAIT, _GAPS = 0.1, 0.5


class PipelineStages(Struct, frozen=True):
    """The stage of each rank (-1: none), and how many there are; ``guessed``: no group is called a pipeline."""

    of: I64
    count: int
    guessed: bool = False

    def ranks(self, stage: int) -> I64:
        """Return the places of a stage's ranks."""
        return np.flatnonzero(self.of == stage)

    @property
    def real(self) -> bool:
        """Tell whether there is a pipeline."""
        return self.count > 1


def find_stages(ranks: Sequence[RankSummary]) -> PipelineStages:
    """Take stages as files number them, else from the groups that are called pipelines, else from those that behave so.

    In a group the stage is the place.
    """
    numbered = [summary.stage for summary in ranks if summary.stage is not None]
    if len(numbered) == len(ranks) > 0:
        return PipelineStages(np.array(numbered, np.int64), max(numbered) + 1)
    of = np.full(len(ranks), -1, np.int64)
    named = named_pipelines(ranks)
    pipelines = named or likely_pipelines(ranks)
    for members in pipelines:
        for i, summary in enumerate(ranks):
            if summary.rank in members:
                of[i] = members.index(summary.rank)
    return PipelineStages(of, max((len(p) for p in pipelines), default=0), guessed=bool(pipelines) and not named)


def spans_stages(matched: Matched, stages: PipelineStages) -> Mask:
    """Tell of each group whether its ranks are of different stages."""
    stage = stages.of.tolist()
    return np.array([stages.real and len({stage[m] for m in g.members}) > 1 for g in matched.groups], np.bool_)


class PipelineTime(Struct, frozen=True):
    """The pipeline's time in one step of one rank: from its first forward to the end of its last backward.

    ``p2p``: its exchanges with other stages (rows of all operations); ``drain``: the first operation after them with
    other stages, -1 if there is none.
    """

    rank: int
    begin: int
    end: int
    p2p: I64
    drain: int


def find_windows(
    ranks: Sequence[RankSummary], matched: Matched, waits: JobWaits, wide: Mask, stages: PipelineStages
) -> list[PipelineTime]:
    """Find the pipeline's time: the last backward ends where a rank begins its first operation of another kind."""
    closing = np.array([len(g.ranks) <= stages.count for g in matched.groups] + [False], np.bool_)
    across = wide[matched.group] & ~waits.alone if len(matched.groups) else np.zeros(len(matched.rank), np.bool_)
    found = []
    for place, summary in enumerate(ranks):
        mine = np.arange(matched.first[place], matched.first[place + 1])
        for step in distinct(matched.step[mine]).tolist():
            here = mine[matched.step[mine] == step]
            p2p = here[across[here] & matched.p2p[here]]
            if not len(p2p):
                continue
            later = here[here > p2p[-1]]
            drain = later[across[later] & closing[matched.group[later]]]
            at = np.flatnonzero(summary.step_number == step)
            begin = int(summary.step_start[at[0]]) if len(at) else summary.begin
            end = int(matched.start[later[0]]) if len(later) else int(matched.end[p2p[-1]])
            found.append(PipelineTime(place, begin, end, p2p, int(drain[0]) if len(drain) else -1))
    return found


class Bubble(Struct, frozen=True):
    """Per rank (ns): exposed waiting for other stages with the drain, and the pipeline's window; all steps."""

    wait: I64
    window: I64


def find_bubble(
    ranks: Sequence[RankSummary], matched: Matched, waits: JobWaits, windows: Sequence[PipelineTime]
) -> Bubble:
    """Measure the bubble: what ranks wait for other stages between first forward and last backward, and the drain."""
    wait, window = np.zeros(len(ranks), np.int64), np.zeros(len(ranks), np.int64)
    exposed = np.zeros(len(matched.start), np.int64)
    for place, summary in enumerate(ranks):
        owner = matched.first[place] + summary.exposed_op
        part = turns(summary, matched, waits, place)[0] - summary.exposed_start
        np.add.at(exposed, owner, np.where(waits.known[owner], part, 0))
    for own in windows:
        wait[own.rank] += exposed[own.p2p].sum() + (exposed[own.drain] if own.drain >= 0 else 0)
        window[own.rank] += own.end - own.begin
    return Bubble(wait, window)


class StageSplit(Struct, frozen=True):
    """Waiting across stages (ns, all ranks) as replayed with equal ranks: with equal stages, too, and beyond that.

    ``gain``: what moving work to the mean stage would save the job, ns, least and most over the ways in which the
    moved work may spread, and over when what is exchanged beside compute is needed; ``likely``: the middle of those in
    which it is not needed at once; ``excess``: per stage, its compute beyond the pace of the lower median stage;
    ``above``: its compute beyond the mean, which is the work to move.
    """

    schedule: float
    imbalance: float
    gain: tuple[float, float]
    likely: float
    excess: F64
    above: F64

    def within(self, total: float) -> tuple[float, float]:
        """Return schedule and imbalance of ``total`` ns of waiting: no more than was replayed."""
        replayed = self.schedule + self.imbalance
        scale = min(total / replayed, 1.0) if replayed > 0 else 0.0
        return self.schedule * scale, self.imbalance * scale


def split_waiting(
    ranks: Sequence[RankSummary],
    job: JobProgram,
    stages: PipelineStages,
    windows: Sequence[PipelineTime],
    compute: F64,
    wide: Mask,
) -> StageSplit:
    """Tell the schedule's own waiting from that of unequal stages, by running the job with equal ones.

    Work is added to a stage, or taken from it, within the pipeline's time only: the optimizer stays where it is.
    ``compute``: per stage, of its usual rank.
    """
    usual, mean = float(lower_median(compute)), compute.mean()
    # Stretches within the pipeline's time: they end there.
    start, block = np.zeros(len(job.matched.start), np.bool_), np.zeros(len(job.until), np.bool_)
    blocks = np.concatenate([[0], np.cumsum([len(r.until) for r in ranks])]).astype(np.int64)
    for own in windows:
        mine, held = (slice(*first[own.rank : own.rank + 2].tolist()) for first in (job.matched.first, blocks))
        begun, blocked = job.matched.start[mine], ranks[own.rank].block_start
        start[mine] |= (begun > own.begin) & (begun <= own.end)
        block[held] |= (blocked > own.begin) & (blocked <= own.end)
    inside = Inside(start, block)
    # Stretches that compute paces: where a device waits for its host, less work saves nothing.
    paced = [(t.host <= _HOST_WAIT * t.length) & (t.other <= _GAPS * t.length) for t in (job.to_start, job.to_block)]
    # Compute within the pipeline's time of each stage's usual rank, all that can move to become the mean.
    there = np.bincount(job.to_block.rank[block], weights=job.to_block.compute[block], minlength=job.ranks)
    members = [stages.ranks(stage) for stage in range(stages.count)]
    movable = np.array([float(np.median(there[places])) if len(places) else 0.0 for places in members])

    def of_ranks(of_stage: F64) -> F64:
        """Spread a factor per stage over the ranks; those of no stage keep what they have."""
        return np.asarray(np.where(stages.of >= 0, of_stage[np.maximum(stages.of, 0)], 1.0))

    alike = calmed(job, stages.of, level_all(job, stages.of))
    equal = scaled(job, of_ranks(np.minimum(usual / np.maximum(compute, 1), 1.0)), alike, inside=inside)
    even = of_ranks(mean / np.maximum(compute, 1))
    slower, faster = np.maximum(even, 1.0), np.minimum(even, 1.0)
    ways = [
        scaled(job, even),
        scaled(job, of_ranks(np.maximum(1 + (mean - compute) / np.maximum(movable, 1), 0.0)), inside=inside),
        scaled(job, slower, scaled(job, faster), inside=inside),
        scaled(job, slower, scaled(job, faster, inside=Inside(*paced)), inside=inside),
    ]
    found = run(job, [alike, equal, JobChange(), *ways])
    waiting = found.wait[(job.matched.instance >= 0) & wide[job.matched.group]].sum(axis=0)
    saved = np.maximum(found.length[2] - found.length[3:], 0.0)
    return StageSplit(
        schedule=float(waiting[1]),
        imbalance=max(float(waiting[0]) - float(waiting[1]), 0.0),
        gain=(float(saved.min()), float(saved.max())),
        likely=float(saved.min() + saved.max()) / 2,
        excess=np.maximum(compute - usual, 0.0),
        above=np.maximum(compute - mean, 0.0),
    )
