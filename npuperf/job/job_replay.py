"""The whole job as a program that can be run again: local work between operations, and operations that wait.

Every rank advances on its own track; an operation ends for all its ranks when the last has arrived and the transfer is
done; a track that was blocked goes on when the operation ends. Operations are ordered into levels that depend on
earlier levels only, so a level is a few numpy calls for all ranks, and several changes run side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.device.rank_summary import LocalTime, RankSummary
from npuperf.job.clocks import Clocks
from npuperf.job.match import Matched
from npuperf.job.waits import JobWaits
from npuperf.model.groups import distinct, lower_median
from npuperf.model.labels import F64, I64, Mask

#: What keeps a rank: compute, waiting for the host, the rest of its own time, and what lies before its first step.
COMPUTE, HOST, OTHER, BEGIN = range(4)
CAUSES: Final = 4
#: Times in files are rounded: what lies closer than this (ns) touches.
_ROUNDING: Final = 1_000.0


class Stretches(Struct, frozen=True):
    """Local time of all ranks, flat: compute, waiting for the host, the rest, and the whole (ns); the rank of each."""

    rank: I64
    compute: F64
    host: F64
    other: F64
    length: F64

    def __len__(self) -> int:
        return len(self.rank)


class _Level(Struct, frozen=True):
    """What is worked out together: operations by instance, and the blocks that they end.

    ``head``: where each instance begins in ``operation``; ``owner``: the instance of each, counted within the level.
    """

    operation: I64
    head: I64
    owner: I64
    release: I64


class JobProgram(Struct, frozen=True):
    """The program. Operations are those of ``matched``; blocks of all ranks are flat as well.

    ``base``: the block an operation follows, ``-1 - rank`` for the window's begin; ``after``: the operation, -1.
    ``queued``: the operation of its group that must have ended before, as a group has one queue on each rank, -1;
    None where each waits for that alone from which it is counted.
    ``instance``: with which others each operation ends, -1 alone: as matched, or as a twin (:func:`with_twins`).
    ``previous``: the same for blocks. ``to_start``, ``to_block`` and ``tail`` are the local stretches.
    ``transfer``: per operation, all that is no waiting for a rank that was loaded. ``begin`` and ``end``: per rank, on
    the common clock, from the first begin on; begins can be compared of ranks that have the same ``begun_with``: the
    same first step, and clocks that are tied together. ``places``: where each global rank stands in the list of ranks.
    """

    matched: Matched
    instance: I64
    base: I64
    after: I64
    queued: I64 | None
    until: I64
    previous: I64
    last_block: I64
    to_start: Stretches
    to_block: Stretches
    tail: Stretches
    transfer: F64
    begin: F64
    end: F64
    begun_with: I64
    levels: tuple[_Level, ...]
    looped: Mask
    places: dict[int, int]

    @property
    def ranks(self) -> int:
        """How many ranks it has."""
        return len(self.begin)

    @property
    def measured(self) -> float:
        """The job's length as measured, ns."""
        return float(self.end.max())


class JobRun(Struct, frozen=True):
    """What the job did with some changes, a column each (ns).

    ``length``: its own; ``wait``, ``arrival``: of every operation; ``release``: when each block ended, then the begins
    of the ranks in reverse; ``finish``: of each rank.
    """

    length: F64
    wait: F64
    arrival: F64
    release: F64
    finish: F64


class JobChange(Struct, frozen=True):
    """Lengths of local time (per stretch of ``to_start``, ``to_block`` and ``tail``) and of transfers; begins of ranks.

    None leaves things as they are.
    """

    to_start: F64 | None = None
    to_block: F64 | None = None
    tail: F64 | None = None
    transfer: F64 | None = None
    begin: F64 | None = None


def build(
    ranks: Sequence[RankSummary], matched: Matched, waits: JobWaits, clocks: Clocks, *, in_queues: bool = False
) -> JobProgram:
    """Build the program of a job. ``in_queues``: operations wait for those before them of their group as well."""
    counts = np.array([len(r.until) for r in ranks], np.int64)
    block_first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    base = np.concatenate([np.where(r.base >= 0, r.base + block_first[i], -1 - i) for i, r in enumerate(ranks)])
    after = np.concatenate([np.where(r.after >= 0, r.after + matched.first[i], -1) for i, r in enumerate(ranks)])
    until = np.concatenate([r.until + matched.first[i] for i, r in enumerate(ranks)])
    place = np.repeat(np.arange(len(ranks)), counts)
    number = np.arange(int(counts.sum()))
    previous = np.where(number == block_first[place], -1 - place, number - 1)
    every = np.arange(len(ranks))
    begin = clocks.corrected(every, np.array([r.begin for r in ranks], np.int64))
    end = clocks.corrected(every, np.array([r.end for r in ranks], np.int64))
    first = [int(r.step_number[0]) if len(r.step_number) else -1 for r in ranks]
    _, begun_with = np.unique(np.stack([clocks.part, np.array(first, np.int64)]), axis=1, return_inverse=True)
    origin = begin.min()  # an epoch has more digits than a float
    queued = _queues(matched) if in_queues else None
    levels, looped = _levels(matched.instance, base, after, queued, until, previous)
    return JobProgram(
        matched=matched,
        instance=matched.instance,
        base=base,
        after=after,
        queued=queued,
        until=until,
        previous=previous,
        last_block=np.where(counts > 0, block_first[1:] - 1, -1 - every),
        to_start=_stretches(matched.rank, [r.to_start for r in ranks], clocks.drift),
        to_block=_stretches(place, [r.to_block for r in ranks], clocks.drift),
        tail=_stretches(every, [r.tail for r in ranks], clocks.drift),
        transfer=waits.kept.astype(np.float64),
        begin=(begin - origin).astype(np.float64),
        end=(end - origin).astype(np.float64),
        begun_with=begun_with.ravel(),
        levels=levels,
        looped=looped,
        places={r.rank: i for i, r in enumerate(ranks)},
    )  # fmt: skip


def _stretches(rank: I64, parts: Sequence[LocalTime], drift: F64) -> Stretches:
    """Put the stretches of all ranks together, in the first rank's time.

    What is left of a length is told in whole ns, before the clock's drift makes it longer: else the rest of a stretch
    that has none is a little more or less than nothing.
    """
    length, compute, host = (np.concatenate([getattr(p, n) for p in parts]) for n in ("length", "compute", "host"))
    compute = np.clip(compute, 0, length)
    host = np.clip(host, 0, length - compute)
    scale = 1 + drift[rank]
    compute, host, other = compute * scale, host * scale, (length - compute - host) * scale
    return Stretches(rank, compute, host, other, compute + host + other)


def _queues(matched: Matched) -> I64:
    """Return for each operation the one before of its group and rank, where that had ended before it began; else -1."""
    order = np.lexsort((matched.start, matched.group, matched.rank))
    before = np.append(-1, order[:-1]).astype(np.int64)
    alike = (matched.group[order] == matched.group[before]) & (matched.rank[order] == matched.rank[before])
    alike &= (before >= 0) & (matched.group[order] >= 0) & (matched.end[before] <= matched.start[order])
    queued = np.full(len(order), -1, np.int64)
    queued[order] = np.where(alike, before, -1)
    return queued


def with_twins(job: JobProgram) -> JobProgram:
    """Return the job in which sends and receives whose other end is not known end with those of a twin.

    That is the rank in the same place of the nearest group of the same kind and size, if it sent and received as much
    in its own, and the other ends of that are known: who was not loaded is taken to work like those. Else what a rank
    waited there stays as it was, whatever is repaired. Only where that makes no circles.
    """
    twin = _twins(job.matched, job.places)
    instance = np.where(twin >= 0, job.matched.instance[twin], job.instance)
    if np.array_equal(instance, job.instance):
        return job
    levels, looped = _levels(instance, job.base, job.after, job.queued, job.until, job.previous)
    if looped.any():
        return job
    transfer = np.where(instance != job.instance, job.transfer[twin], job.transfer)
    return replace(job, instance=instance, levels=levels, transfer=transfer)


def _twins(matched: Matched, places: Mapping[int, int]) -> I64:
    """Return for each operation without its other end that of its twin, which has one, or -1."""
    twin, lonely = np.full(len(matched.start), -1, np.int64), matched.p2p & (matched.instance < 0)
    if not lonely.any():
        return twin
    key = matched.rank * len(matched.groups) + matched.group
    order = np.lexsort((matched.start, matched.type, key))
    order = order[matched.p2p[order] & (matched.group[order] >= 0)]
    of_order = key[order]
    paired = np.bincount(matched.group[matched.p2p & ~lonely], minlength=len(matched.groups))

    def exchanges(rank: int, group: int) -> I64:
        mine = places.get(rank, -1) * len(matched.groups) + group
        return order[slice(*np.searchsorted(of_order, [mine, mine + 1]).tolist())]

    for code in distinct(matched.group[lonely & (matched.group >= 0)]).tolist():
        group = matched.groups[code]
        alike = [(abs(other.ranks[0] - group.ranks[0]), at) for at, other in enumerate(matched.groups) if paired[at]
                 and at != code and other.kind == group.kind and len(other.ranks) == len(group.ranks)]  # fmt: skip
        for _, near in sorted(alike) if not group.inferred else ():
            for one, other in zip(group.ranks, matched.groups[near].ranks, strict=True):
                mine, theirs = exchanges(one, code), exchanges(other, near)
                if np.array_equal(matched.type[mine], matched.type[theirs]):
                    fits = lonely[mine] & (matched.instance[theirs] >= 0) & (twin[mine] < 0)
                    twin[mine[fits]] = theirs[fits]
    return twin


def _levels(
    instance: I64, base: I64, after: I64, queued: I64 | None, until: I64, previous: I64
) -> tuple[tuple[_Level, ...], Mask]:
    """Order the work into levels. Instances that depend on themselves are ``looped``: their match must be wrong.

    Nodes are instances, then unmatched operations; every operation's node depends on the nodes of the operations that
    its base, its predecessor, and the blocks that it ends hang on.
    """
    count, instances = len(instance), int(instance.max(initial=-1)) + 1
    alone = np.flatnonzero(instance < 0)
    node = instance.copy()
    node[alone] = instances + np.arange(len(alone))
    nodes = instances + len(alone)
    of_base = np.where(base >= 0, until[np.maximum(base, 0)], -1) if len(until) else np.full(count, -1)
    chained = previous >= 0
    found = [of_base, after, *([] if queued is None else [queued])]
    source = np.concatenate([*(by[by >= 0] for by in found), until[previous[chained]]])
    target = np.concatenate([*(np.flatnonzero(by >= 0) for by in found), until[chained]])
    level, looped = _longest_paths(node[source], node[target], nodes)
    blocks_of = np.argsort(until, kind="stable")
    ending = until[blocks_of]
    order = np.lexsort((node, level[node]))
    cuts = np.flatnonzero(np.append(True, level[node[order]][1:] != level[node[order]][:-1])) if count else order
    levels = []
    for first, last in zip(cuts.tolist(), [*cuts[1:].tolist(), count], strict=True):
        operation = order[first:last]
        mine = node[operation]
        fresh = np.append(True, mine[1:] != mine[:-1])
        left, right = np.searchsorted(ending, operation, "left"), np.searchsorted(ending, operation, "right")
        hit = operation[right > left]
        release = blocks_of[np.searchsorted(ending, hit, "left")] if len(hit) else hit
        levels.append(_Level(operation, np.flatnonzero(fresh), np.cumsum(fresh) - 1, release))
    return tuple(levels), looped[:instances]


def _longest_paths(source: I64, target: I64, nodes: int) -> tuple[I64, Mask]:
    """Return the level of each node: one more than the highest it depends on. Nodes in circles are told."""
    apart = source != target
    source, target = source[apart], target[apart]
    order = np.argsort(source, kind="stable")
    source, target = source[order], target[order]
    first = np.searchsorted(source, np.arange(nodes + 1))
    missing = np.bincount(target, minlength=nodes)
    level = np.zeros(nodes, np.int64)
    ready = np.flatnonzero(missing == 0)
    depth, done = 0, np.zeros(nodes, np.bool_)
    while len(ready):
        level[ready] = depth
        done[ready] = True
        size = first[ready + 1] - first[ready]
        at = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size) + np.repeat(first[ready], size)
        hit, times = np.unique(target[at], return_counts=True)
        missing[hit] -= times
        ready = hit[missing[hit] == 0]
        depth += 1
    return level, ~done


def run(job: JobProgram, changes: Sequence[JobChange]) -> JobRun:
    """Run the job with each of some changes; a change that changes nothing is the baseline."""
    columns = len(changes)
    to_start, to_block, tail = (
        np.stack([getattr(job, name).length if getattr(c, name) is None else getattr(c, name) for c in changes], axis=1)
        for name in ("to_start", "to_block", "tail")
    )
    transfer = np.stack([job.transfer if c.transfer is None else c.transfer for c in changes], axis=1)
    end = np.zeros((len(job.matched.start), columns))
    wait = np.zeros_like(end)
    arrival = np.zeros_like(end)
    # Blocks first, then the windows' begins in reverse: index -1 - rank finds rank's.
    release = np.zeros((len(job.until) + job.ranks, columns))
    begin = np.stack([job.begin if c.begin is None else c.begin for c in changes], axis=1)
    release[len(job.until) :] = begin[::-1]
    for level in job.levels:
        operation = level.operation
        after = job.after[operation]
        from_ = np.where((after >= 0)[:, None], end[after], release[job.base[operation]])
        arrived = from_ + to_start[operation]
        if job.queued is not None:
            before = job.queued[operation]
            arrived = np.where((before >= 0)[:, None], np.maximum(arrived, end[before]), arrived)
        latest = np.maximum.reduceat(arrived, level.head)[level.owner]
        arrival[operation] = arrived
        wait[operation] = latest - arrived
        end[operation] = latest + transfer[operation]
        blocks = level.release
        if len(blocks):
            reached = release[job.previous[blocks]] + to_block[blocks]
            release[blocks] = np.maximum(reached, end[job.until[blocks]])
    finish = release[job.last_block] + tail
    return JobRun(finish.max(axis=0), wait, arrival, release, finish)


def on_longest_path(job: JobProgram, change: JobChange) -> F64:
    """Return how much of each rank's own time (ns) lies on the longest path through the job as changed.

    Repairing a rank saves no more than that, and what lies there adds up to no more than the job's length.
    """
    done, own = run(job, [change]), np.zeros(job.ranks)
    if job.looped.any():  # then there is none
        return np.full(job.ranks, np.inf)
    lengths = {name: getattr(job, name).length if getattr(change, name) is None else getattr(change, name)
               for name in _PARTS}  # fmt: skip
    release, previous, until = done.release[:, 0], job.previous.tolist(), job.until.tolist()
    held = (release[job.previous] + lengths["to_block"] < release[: len(until)]).tolist()  # until its operation ended
    last = _came_last(job.instance, done.arrival[:, 0]).tolist()
    after, base, of = job.after.tolist(), job.base.tolist(), job.matched.rank.tolist()
    rank = int(np.argmax(done.finish[:, 0]))
    own[rank] += lengths["tail"][rank]
    block = int(job.last_block[rank])
    while block >= 0:
        if not held[block]:
            own[rank] += lengths["to_block"][block]
            block = previous[block]
            continue
        operation = last[until[block]]
        while True:
            rank = of[operation]
            own[rank] += lengths["to_start"][operation]
            if after[operation] < 0:
                break
            operation = last[after[operation]]
        block = base[operation]
    own[rank] += (job.begin if change.begin is None else change.begin)[rank]
    return own


def _came_last(instance: I64, arrival: F64) -> I64:
    """Return for each operation, of all ranks' the one that came last; unmatched ones came alone."""
    last, members = np.arange(len(arrival)), np.flatnonzero(instance >= 0)
    members = members[np.lexsort((arrival[members], instance[members]))]
    latest = np.zeros(int(instance.max(initial=-1)) + 1, np.int64)
    latest[instance[members]] = members  # of several the last that is written stays
    last[members] = latest[instance[members]]
    return last


# -- The job with something repaired: ranks that work like their peers, stages of equal length, links like others.

_PARTS = ("to_block", "tail", "to_start")
_CAUSES = ("compute", "host", "other")


class Inside(Struct, frozen=True):
    """Which stretches a change is about; never the tails."""

    to_start: Mask
    to_block: Mask


def scaled(
    job: JobProgram,
    compute: F64 | None = None,
    on: JobChange | None = None,
    host: F64 | None = None,
    other: F64 | None = None,
    inside: Inside | None = None,
) -> JobChange:
    """Return a change that scales compute, waiting for the host and the rest by factors per rank, on top of another."""
    parts = {}
    for name in _PARTS:
        stretches: Stretches = getattr(job, name)
        before = getattr(on, name) if on is not None else None
        length = stretches.length if before is None else before
        share = np.divide(length, stretches.length, out=np.ones(len(stretches)), where=stretches.length > 0)
        spared = np.zeros(len(stretches))
        for factor, ns in ((compute, stretches.compute), (host, stretches.host), (other, stretches.other)):
            if factor is not None:
                spared += (1 - factor[stretches.rank]) * ns
        if inside is not None:
            spared = np.where(getattr(inside, name, False), spared, 0.0)
        parts[name] = length - share * spared
    return replace(on or JobChange(), **parts)


def calmed(job: JobProgram, stage: I64, on: JobChange | None = None, ranks: I64 | None = None) -> JobChange:
    """Return the job without delays of one stage beyond those of the others: waiting for the host, and the rest.

    For stages with one rank, which has no peers; ``ranks``: only these.
    """
    totals = track_totals(job)
    stages = [np.flatnonzero(stage == s) for s in distinct(stage)]
    pace = lower_median(np.stack([lower_median(totals[own]) for own in stages]))
    factors = np.minimum(np.divide(pace, totals, out=np.ones_like(totals), where=totals > pace), 1.0)
    if ranks is not None:
        kept = np.ones(job.ranks, np.bool_)
        kept[ranks] = False
        factors[kept] = 1.0
    return scaled(job, None, on, host=factors[:, 1], other=factors[:, 2])


def level_all(job: JobProgram, stage: I64) -> JobChange:
    """Return the job with all ranks of a stage alike: every stretch as long as the lower median of theirs."""
    return level_ranks(job, [(np.flatnonzero(stage == s), np.flatnonzero(stage == s)) for s in distinct(stage)])


def faster_link(
    job: JobProgram,
    ends: tuple[int, int],
    holds_up: Mapping[tuple[str, str | None], tuple[float, float]],
    on: JobChange | None = None,
) -> JobChange:
    """Return the job with a link between two ranks (places) that holds operations up for less time (ns: now, then).

    By type and group, of either end; what is known without a group holds for all groups of both ranks. What else an
    operation takes than the link's time it takes as well then; where links are counted for longer than operations last,
    in proportion.
    """
    matched = job.matched
    there = np.zeros((2, matched.instances), np.bool_)
    for end, rank in enumerate(ends):
        mine = matched.instance[matched.rank == rank]
        there[end, mine[mine >= 0]] = True
    both = np.flatnonzero(matched.instance >= 0)
    both = both[(there[0] & there[1])[matched.instance[both]]]
    before = on.transfer if on is not None else None
    transfer = (job.transfer if before is None else before).copy()
    groups = [group.id for group in matched.groups]
    for (name, group), (now, then) in holds_up.items():
        if name in matched.types and (group is None or group in groups):
            chosen = matched.type[both] == matched.types.index(name)
            chosen &= matched.group[both] == groups.index(group) if group is not None else True
            rows = both[np.isin(matched.instance[both], matched.instance[both[chosen]])]
            both = np.setdiff1d(both, rows)
            spent = float(job.transfer[rows[matched.rank[rows] == ends[0]]].sum())
            transfer[rows] *= 1 - (now - then) / max(now, spent, 1.0)
    return replace(on or JobChange(), transfer=transfer)


def level_ranks(job: JobProgram, tasks: Sequence[tuple[I64, I64]]) -> JobChange:
    """Return the job with some ranks, each time those of one stage, that work like the median of their peers.

    They begin no later than that. Where all of them run the same program and were blocked at the same operations, every
    stretch is the lower median of those of the peers that count from the same point; else each comes to its operations
    when the peers do.
    """
    parts, begin = {name: getattr(job, name).length.copy() for name in _PARTS}, job.begin.copy()
    bounds = {name: np.searchsorted(getattr(job, name).rank, np.arange(job.ranks + 1)).tolist() for name in _PARTS}
    rows = {name: [slice(a, b) for a, b in pairwise(found)] for name, found in bounds.items()}
    for changed, peers in tasks:
        if not len(peers):
            continue
        for rank in changed.tolist():
            begin[rank] = usual_begin(job, rank, peers)
        members = {*changed.tolist(), *peers.tolist()}
        first = job.matched.first
        shapes = {(int(first[m + 1] - first[m]), (job.until[rows["to_block"][m]] - first[m]).tobytes())
                  for m in members}  # fmt: skip
        if len(shapes) > 1:  # not as many operations, or blocked by others
            tracks = {m: _Track(*(rows[name][m] for name in _PARTS)) for m in members}
            times = {m: _own_times(job, track) for m, track in tracks.items()}
            for rank in changed.tolist():
                paced = _paced(job, tracks[rank], times[rank], [times[p] for p in peers.tolist()])
                for name, length in paced.items():
                    parts[name][rows[name][rank]] = length
            continue
        for name in ("to_block", "tail"):
            table = np.stack([getattr(job, name).length[rows[name][p]] for p in peers.tolist()])
            middle = lower_median(table)
            for rank in changed.tolist():
                parts[name][rows[name][rank]] = middle
        since = {m: _since(job, m, rows["to_start"][m], rows["to_block"][m]) for m in members}
        table = np.stack([job.to_start.length[rows["to_start"][p]] for p in peers.tolist()])
        for rank in changed.tolist():
            own, held = rows["to_start"][rank], rows["to_block"][rank]
            usable = np.stack([since[p] == since[rank] for p in peers.tolist()])
            count = usable.sum(axis=0)
            ordered = np.sort(np.where(usable, table, np.inf), axis=0)
            middle = ordered[np.maximum(count - 1, 0) // 2, np.arange(len(count))]
            # An operation may have followed another one there, and the rank's own work here: then it comes as much
            # earlier as the block does that it leads to.
            before = np.append(job.to_block.length[held], job.tail.length[rank])
            now = np.append(parts["to_block"][held], parts["tail"][rank])
            at = np.where(job.base[own] >= 0, job.base[own] - held.start + 1, 0)
            pace = np.divide(now, before, out=np.ones(len(now)), where=before > 0)[at]
            parts["to_start"][own] = np.where(count > 0, middle, job.to_start.length[own] * pace)
    return JobChange(**parts, begin=begin)


def usual_begin(job: JobProgram, rank: int, peers: I64) -> float:
    """Return when a rank would begin as the median of its peers does (ns), no later than it did; see ``begun_with``."""
    others = job.begin[peers[job.begun_with[peers] == job.begun_with[rank]]]
    return min(float(job.begin[rank]), float(lower_median(others))) if len(others) else float(job.begin[rank])


def level_steps(job: JobProgram, rank: int, late: I64, on: JobChange) -> JobChange:
    """Return the job with a rank (place) that works in ``late`` steps (numbers) like the median of its other steps.

    For the only rank of its stage. What a step does after its last operation belongs to the next one's first stretch.
    """
    base = {name: getattr(job, name).length if getattr(on, name) is None else getattr(on, name) for name in _PARTS}
    parts = {name: length.copy() for name, length in base.items()}
    operations = slice(int(job.matched.first[rank]), int(job.matched.first[rank + 1]))
    held = np.flatnonzero(job.to_block.rank == rank)
    numbers = distinct(job.matched.step[operations]).tolist()
    tracks = []
    for number in numbers:
        own = np.flatnonzero(job.matched.step[operations] == number) + operations.start
        blocks = held[job.matched.step[job.until[held]] == number]
        if number < 0 or not len(blocks) or np.ptp(own) + 1 != len(own) or np.ptp(blocks) + 1 != len(blocks):
            return on  # steps run into each other
        tracks.append(_Track(slice(blocks[0], blocks[-1] + 1), slice(0, 0), slice(own[0], own[-1] + 1)))
    is_late = np.isin(numbers, late)
    usual = np.flatnonzero(~is_late)
    whole = usual[(usual > 0) & ~np.append(True, is_late)[usual]]  # what came before was like always, too
    peers = [tracks[at] for at in (whole if len(whole) else usual).tolist()]
    first = lower_median(np.array([base["to_block"][peer.held.start] for peer in peers])) if len(whole) else np.inf
    times = [_own_times(job, peer) for peer in peers]
    for at in np.flatnonzero(is_late).tolist() if peers else ():
        track, block = tracks[at], tracks[at].held
        for name, length in _paced(job, track, _own_times(job, track), times).items():
            parts[name][getattr(track, _TRACK[name])] = length
        for start in (block.start, *(following.held.start for following in tracks[at + 1 : at + 2])):
            parts["to_block"][start] = min(base["to_block"][start], first)
        if at + 1 == len(tracks):
            now, before = (float(lengths["to_block"][block][1:].sum()) for lengths in (parts, base))
            parts["tail"][job.tail.rank == rank] *= min(now / before, 1.0) if before > 0 else 1.0
    begin = (job.begin if on.begin is None else on.begin).copy()
    if is_late[0]:
        begin[rank] = usual_begin(job, rank, np.delete(np.arange(job.ranks), rank))
    return replace(on, **parts, begin=begin)


class _Track(Struct, frozen=True):
    """A rank's way through the job or a step: its rows of blocks, of what comes after them, and of operations."""

    held: slice
    tail: slice
    starts: slice


_TRACK: Final = {"to_block": "held", "tail": "tail", "to_start": "starts"}


class _OwnTimes(Struct, frozen=True):
    """When a track came to its operations, by its own time (ns); the last is that of its end.

    ``kinds``: what they are: of a type, in the n-th group that it took part in; alike ones are in order. ``times``: NaN
    where one was begun by the end of another; there ``latest``, where the track was blocked meanwhile: it had come
    there when it went on.
    """

    kinds: I64
    times: F64
    latest: F64


def _paced(job: JobProgram, track: _Track, own: _OwnTimes, peers: Sequence[_OwnTimes]) -> dict[str, F64]:
    """Return the stretches of a track that comes to its operations when the middle one of its peers does, by own time.

    That passes while the track is not blocked; between operations it goes evenly.
    """
    known = np.flatnonzero(np.isfinite(own.times))
    known = known[np.argsort(own.times[known], kind="stable")]
    mine = np.append(0.0, own.times[known])
    theirs = np.stack([_at_pace(peer, own.kinds, known, mine) for peer in peers])
    theirs = np.maximum.accumulate(lower_median(theirs))  # no stretch is less than nothing
    held, starts, tail = track.held, track.starts, track.tail
    reached = np.append(0.0, np.cumsum(job.to_block.length[held]))
    whole = np.append(reached, own.times[-1])
    paced = np.diff(np.interp(whole, mine, theirs))
    since = reached[np.maximum(np.where(job.base[starts] >= 0, job.base[starts] - held.start + 1, 0), 0)]
    length = job.to_start.length[starts]
    posted = np.interp(since + length, mine, theirs) - np.interp(since, mine, theirs)
    return {
        "to_block": paced[:-1],
        "tail": paced[-1:] if tail.stop > tail.start else paced[:0],
        "to_start": np.where(job.after[starts] >= 0, length, posted),
    }


def _at_pace(peer: _OwnTimes, kinds: I64, known: I64, mine: F64) -> F64:
    """Return a peer's own times (ns) when it came to a track's ``known`` operations, and 0 before.

    ``kinds``: what that track's are; ``mine``: its own times there. What is not known of the peer lies evenly between,
    and not after what it was blocked by.
    """
    if not np.array_equal(peer.kinds, kinds):  # it takes part in others: only its end counts
        return np.asarray(mine * (peer.times[-1] / max(mine[-1], 1.0)))
    times, latest = np.append(0.0, peer.times[known]), np.append(np.nan, peer.latest[known])
    seen = np.isfinite(times)
    evenly = np.interp(mine, mine[seen], np.maximum.accumulate(times[seen]))
    return np.asarray(np.fmin(evenly, latest))


def _own_times(job: JobProgram, track: _Track) -> _OwnTimes:
    held, operations = track.held, track.starts
    _, first, group = np.unique(job.matched.group[operations], return_index=True, return_inverse=True)
    kind = job.matched.type[operations] * (len(first) + 1) + np.argsort(np.argsort(first))[group]
    order = np.argsort(kind, kind="stable")
    reached = np.append(0.0, np.cumsum(job.to_block.length[held]))
    at = np.maximum(np.where(job.base[operations] >= 0, job.base[operations] - held.start + 1, 0), 0)
    times = np.where(job.after[operations] >= 0, np.nan, reached[at] + job.to_start.length[operations])
    latest = np.full(len(at), np.nan)
    if len(at):
        begun, until = job.matched.start[operations], job.until[held]
        first = begun[0] - job.to_start.length[operations][0]  # it begins there
        release = np.append(first, job.matched.end[until])
        inside = (at < len(until)) & (begun >= release[at] + np.append(np.diff(reached), np.inf)[at] - _ROUNDING)
        latest = np.where(np.isnan(times) & inside, np.append(reached[1:], np.nan)[at], np.nan)
    end = reached[-1] + job.tail.length[track.tail].sum()
    return _OwnTimes(kind[order], np.append(times[order], end), np.append(latest[order], np.nan))


def _since(job: JobProgram, rank: int, own: slice, held: slice) -> I64:
    """Return for a rank's operations the point that their stretches count from, the same numbers for all ranks."""
    after, base = job.after[own], job.base[own]
    return np.where(after >= 0, after - int(job.matched.first[rank]), -2 - np.maximum(base - held.start, -1))


def track_totals(job: JobProgram) -> F64:
    """Return what each rank's own track spends in all: compute, waiting for the host, the rest (ns)."""
    return np.stack([
        sum(np.bincount(s.rank, weights=getattr(s, cause), minlength=job.ranks) for s in (job.to_block, job.tail))
        for cause in _CAUSES
    ], axis=1)  # fmt: skip
