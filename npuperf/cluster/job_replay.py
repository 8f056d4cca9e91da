"""The whole job as a program that can be run again: local work between operations, and operations that wait.

Every rank advances on its own track; an operation ends for all its ranks when the last has arrived and the transfer is
done; a track that was blocked goes on when the operation ends. Operations are ordered into levels that depend on
earlier levels only, so a level is a few numpy calls for all ranks, and several changes run side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from npuperf.cluster.clocks import Clocks
from npuperf.cluster.match import Matched
from npuperf.cluster.summary import LocalTime, RankSummary
from npuperf.cluster.waits import JobWaits
from npuperf.model.labels import F64, I64, Mask


class Stretches(Struct, frozen=True):
    """Local time of all ranks, flat: compute, waiting for the host, and the rest (ns); the rank of each."""

    rank: I64
    compute: F64
    host: F64
    other: F64

    @property
    def length(self) -> F64:
        """The whole of each."""
        return self.compute + self.host + self.other

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
    ``previous``: the same for blocks. ``to_start``, ``to_block`` and ``tail`` are the local stretches.
    ``transfer``: per operation, all that is no waiting. ``begin`` and ``end``: per rank, on the common clock, from
    the first begin on. ``places``: where each global rank stands in the list of ranks.
    """

    matched: Matched
    base: I64
    after: I64
    until: I64
    previous: I64
    last_block: I64
    to_start: Stretches
    to_block: Stretches
    tail: Stretches
    transfer: F64
    begin: F64
    end: F64
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
    """What the job did with some changes, a column each (ns): its length, and what every operation waited."""

    length: F64
    wait: F64
    arrival: F64


class JobChange(Struct, frozen=True):
    """Factors of local time (per stretch of ``to_start``, ``to_block`` and ``tail``) and of transfers.

    None leaves things as they are.
    """

    to_start: F64 | None = None
    to_block: F64 | None = None
    tail: F64 | None = None
    transfer: F64 | None = None


def build(ranks: Sequence[RankSummary], matched: Matched, waits: JobWaits, clocks: Clocks) -> JobProgram:
    """Build the program of a job."""
    counts = np.array([len(r.until) for r in ranks], np.int64)
    block_first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    base = _flat(ranks, lambda r, i: np.where(r.base >= 0, r.base + block_first[i], -1 - i))
    after = _flat(ranks, lambda r, i: np.where(r.after >= 0, r.after + matched.first[i], -1))
    until = _flat(ranks, lambda r, i: r.until + matched.first[i])
    place = np.repeat(np.arange(len(ranks)), counts)
    number = np.arange(int(counts.sum()))
    previous = np.where(number == block_first[place], -1 - place, number - 1)
    every = np.arange(len(ranks))
    begin = clocks.corrected(every, np.array([r.begin for r in ranks], np.int64))
    end = clocks.corrected(every, np.array([r.end for r in ranks], np.int64))
    origin = begin.min()  # an epoch has more digits than a float
    levels, looped = _levels(matched, base, after, until, previous)
    return JobProgram(
        matched=matched,
        base=base,
        after=after,
        until=until,
        previous=previous,
        last_block=np.where(counts > 0, block_first[1:] - 1, -1 - every),
        to_start=_stretches(matched.rank, [r.to_start for r in ranks], clocks.drift),
        to_block=_stretches(place, [r.to_block for r in ranks], clocks.drift),
        tail=_stretches(every, [r.tail for r in ranks], clocks.drift),
        transfer=(matched.stay - waits.wait).astype(np.float64),
        begin=(begin - origin).astype(np.float64),
        end=(end - origin).astype(np.float64),
        levels=levels,
        looped=looped,
        places={r.rank: i for i, r in enumerate(ranks)},
    )  # fmt: skip


def _flat(ranks: Sequence[RankSummary], get: object) -> I64:
    parts = [get(r, i) for i, r in enumerate(ranks)]  # type: ignore[operator]
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)


def _stretches(rank: I64, parts: Sequence[LocalTime], drift: F64) -> Stretches:
    length, compute, host = (np.concatenate([getattr(p, n) for p in parts]).astype(np.float64)
                             for n in ("length", "compute", "host"))  # fmt: skip
    scale = 1 + drift[rank]
    compute, host = np.maximum(compute, 0) * scale, np.maximum(host, 0) * scale
    return Stretches(rank, compute, host, length * scale - compute - host)


def _levels(matched: Matched, base: I64, after: I64, until: I64, previous: I64) -> tuple[tuple[_Level, ...], Mask]:
    """Order the work into levels. Instances that depend on themselves are ``looped``: their match must be wrong.

    Nodes are instances, then unmatched operations; every operation's node depends on the nodes of the operations that
    its base, its predecessor, and the blocks that it ends hang on.
    """
    count = len(matched.start)
    alone = np.flatnonzero(matched.instance < 0)
    node = matched.instance.copy()
    node[alone] = matched.instances + np.arange(len(alone))
    nodes = matched.instances + len(alone)
    of_base = np.where(base >= 0, until[np.maximum(base, 0)], -1) if len(until) else np.full(count, -1)
    chained = previous >= 0
    source = np.concatenate([of_base[of_base >= 0], after[after >= 0], until[previous[chained]]])
    target = np.concatenate([np.flatnonzero(of_base >= 0), np.flatnonzero(after >= 0), until[chained]])
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
    return tuple(levels), looped[: matched.instances]


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
    to_start, to_block, tail = (_changed(getattr(job, n), [getattr(c, n) for c in changes])
                                for n in ("to_start", "to_block", "tail"))  # fmt: skip
    transfer = np.stack([job.transfer if c.transfer is None else c.transfer for c in changes], axis=1)
    end = np.zeros((len(job.matched.start), columns))
    wait = np.zeros_like(end)
    arrival = np.zeros_like(end)
    # Blocks first, then the windows' begins in reverse: index -1 - rank finds rank's.
    release = np.zeros((len(job.until) + job.ranks, columns))
    release[len(job.until) :] = job.begin[::-1, None]
    for level in job.levels:
        operation = level.operation
        after = job.after[operation]
        from_ = np.where((after >= 0)[:, None], end[after], release[job.base[operation]])
        arrived = from_ + to_start[operation]
        latest = np.maximum.reduceat(arrived, level.head)[level.owner]
        arrival[operation] = arrived
        wait[operation] = latest - arrived
        end[operation] = latest + transfer[operation]
        blocks = level.release
        if len(blocks):
            reached = release[job.previous[blocks]] + to_block[blocks]
            release[blocks] = np.maximum(reached, end[job.until[blocks]])
    finish = release[job.last_block] + tail
    return JobRun(finish.max(axis=0), wait, arrival)


def _changed(stretches: Stretches, lengths: list[F64 | None]) -> F64:
    return np.stack([stretches.length if own is None else own for own in lengths], axis=1)
