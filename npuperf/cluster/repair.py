"""The job with something repaired: ranks that work like their peers, stages of equal length, links like others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.cluster.job_replay import JobChange, JobProgram, Stretches
from npuperf.model.groups import distinct
from npuperf.model.labels import F64, I64, Mask

_PARTS = ("to_block", "tail", "to_start")
_CAUSES = ("compute", "host", "other")
#: Differences below this part of all local time are none.
_ALIKE = 0.001


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
    usual = np.sort([np.sort(totals[own], axis=0)[(len(own) - 1) // 2] for own in stages], axis=0)
    pace = usual[(len(stages) - 1) // 2]
    factors = np.minimum(np.divide(pace, totals, out=np.ones_like(totals), where=totals > pace), 1.0)
    if ranks is not None:
        kept = np.ones(job.ranks, np.bool_)
        kept[ranks] = False
        factors[kept] = 1.0
    return scaled(job, None, on, host=factors[:, 1], other=factors[:, 2])


def level_all(job: JobProgram, stage: I64) -> JobChange:
    """Return the job with all ranks of a stage alike: every stretch as long as the lower median of theirs."""
    return _levelled(job, [(np.flatnonzero(stage == s), np.flatnonzero(stage == s)) for s in distinct(stage)])


def level_rank(job: JobProgram, rank: int, peers: I64) -> JobChange:
    """Return the job with one rank that works like the median of its peers (itself not among them)."""
    return _levelled(job, [(np.array([rank]), peers)])


def level_ranks(job: JobProgram, tasks: Sequence[tuple[I64, I64]]) -> JobChange:
    """Return the job with some ranks, each time those of one stage, that work like the median of their peers."""
    return _levelled(job, tasks)


def faster_link(
    job: JobProgram, ends: tuple[int, int], factors: Mapping[str, float], on: JobChange | None = None
) -> JobChange:
    """Return the job with a link between two ranks (places) that takes these factors of its time, by type.

    An operation is as slow as its slowest link, so all that both ranks take part in get faster.
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
    for name, factor in factors.items():
        if name in matched.types:
            transfer[both[matched.type[both] == matched.types.index(name)]] *= factor
    return replace(on or JobChange(), transfer=transfer)


def _levelled(job: JobProgram, tasks: Sequence[tuple[I64, I64]]) -> JobChange:
    parts = {name: getattr(job, name).length.copy() for name in _PARTS}
    rows = {name: _rows(getattr(job, name), job.ranks) for name in _PARTS}
    for changed, peers in tasks:
        if not len(peers):
            continue
        members = {*changed.tolist(), *peers.tolist()}
        if _alike(job, members):
            for name in _PARTS:
                _level(job, name, parts, rows[name], changed, peers)
        else:
            _scale(job, parts, rows, changed, peers)
    return JobChange(**parts)


def _rows(stretches: Stretches, ranks: int) -> list[I64]:
    first = np.searchsorted(stretches.rank, np.arange(ranks + 1))
    return [np.arange(a, b) for a, b in pairwise(first)]


def _alike(job: JobProgram, ranks: set[int]) -> bool:
    """Tell whether ranks run the same program: as many operations, blocked by the same ones."""
    matched = job.matched
    shapes = set()
    for rank in ranks:
        until = job.until[job.to_block.rank == rank] - matched.first[rank]
        shapes.add((int(matched.first[rank + 1] - matched.first[rank]), until.tobytes()))
    return len(shapes) == 1


def _level(job: JobProgram, name: str, parts: dict[str, F64], rows: list[I64], changed: I64, peers: I64) -> None:
    """Give ranks the lower median of their peers' stretches that count from the same point.

    An operation may have followed another one there, and the rank's own work here: then it comes as much earlier as
    the block does that it leads to.
    """
    stretches: Stretches = getattr(job, name)
    table = np.stack([stretches.length[rows[int(p)]] for p in peers])
    since = [_since(job, rank, rows[rank]) if name == "to_start" else None for rank in range(job.ranks)]
    for rank in changed.tolist():
        own, usable = rows[rank], np.ones(table.shape, np.bool_)
        if since[rank] is not None:
            usable = np.stack([since[int(p)] == since[rank] for p in peers])
        count = usable.sum(axis=0)
        ordered = np.sort(np.where(usable, table, np.inf), axis=0)
        middle = ordered[np.maximum(count - 1, 0) // 2, np.arange(len(own))]
        if since[rank] is not None:
            middle = np.where(count > 0, middle, stretches.length[own] * _pace(job, parts, rank, own))
        parts[name][own] = middle


def _pace(job: JobProgram, parts: dict[str, F64], rank: int, rows: I64) -> F64:
    """Return for a rank's operations by what the stretch of its track changes in which they begin."""
    held = np.flatnonzero(job.to_block.rank == rank)
    before = np.append(job.to_block.length[held], job.tail.length[rank])
    now = np.append(parts["to_block"][held], parts["tail"][rank])
    at = np.where(job.base[rows] >= 0, job.base[rows] - (held[0] if len(held) else 0) + 1, 0)
    pace: F64 = np.divide(now, before, out=np.ones(len(now)), where=before > 0)[at]
    return pace


def _since(job: JobProgram, rank: int, rows: I64) -> I64:
    """Return for a rank's operations the point that their stretches count from, the same numbers for all ranks."""
    first = int(job.matched.first[rank])
    block = int(np.searchsorted(job.to_block.rank, rank))
    return np.where(job.after[rows] >= 0, job.after[rows] - first, -2 - np.maximum(job.base[rows] - block, -1))


def _scale(job: JobProgram, parts: dict[str, F64], rows: dict[str, list[I64]], changed: I64, peers: I64) -> None:
    """Scale ranks' compute, waiting for the host and the rest to what their peers spend in all."""
    totals = track_totals(job)
    middle = np.sort(totals[peers], axis=0)[(len(peers) - 1) // 2]
    for rank in changed.tolist():
        factors = np.divide(middle, totals[rank], out=np.ones(3), where=totals[rank] > 0)
        factors = np.where(np.abs(middle - totals[rank]) < _ALIKE * totals[rank].sum(), 1.0, factors)
        for name, mine in rows.items():
            stretches: Stretches = getattr(job, name)
            own = [getattr(stretches, cause)[mine[rank]] for cause in _CAUSES]
            parts[name][mine[rank]] = sum(v * f for v, f in zip(own, factors, strict=True))


def track_totals(job: JobProgram) -> F64:
    """Return what each rank's own track spends in all: compute, waiting for the host, the rest (ns)."""
    return np.stack([
        sum(np.bincount(s.rank, weights=getattr(s, cause), minlength=job.ranks) for s in (job.to_block, job.tail))
        for cause in _CAUSES
    ], axis=1)  # fmt: skip
