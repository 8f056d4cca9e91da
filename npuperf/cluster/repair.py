"""The job with something repaired: ranks that work like their peers, stages of equal length, links like others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from npuperf.cluster.job import Change, Job, Stretches
from npuperf.model.labels import F64, I64, Mask

_PARTS = ("to_start", "to_block", "tail")
_CAUSES = ("compute", "host", "other")


@dataclass(frozen=True, slots=True)
class Inside:
    """Which stretches a change is about; never the tails."""

    to_start: Mask
    to_block: Mask


def scaled(
    job: Job, compute: F64, on: Change | None = None, host: F64 | None = None, inside: Inside | None = None
) -> Change:
    """Return a change that scales compute (and waiting for the host) by a factor per rank, on top of another one."""
    parts = {}
    for name in _PARTS:
        stretches: Stretches = getattr(job, name)
        before = getattr(on, name) if on is not None else None
        length = stretches.length if before is None else before
        share = np.divide(length, stretches.length, out=np.ones(len(stretches)), where=stretches.length > 0)
        spared = (1 - compute[stretches.rank]) * stretches.compute
        if host is not None:
            spared = spared + (1 - host[stretches.rank]) * stretches.host
        if inside is not None:
            spared = np.where(getattr(inside, name, False), spared, 0.0)
        parts[name] = length - share * spared
    return replace(on or Change(), **parts)


def level_all(job: Job, stage: I64) -> Change:
    """Return the job with all ranks of a stage alike: every stretch as long as the lower median of theirs."""
    return _levelled(job, [(np.flatnonzero(stage == s), np.flatnonzero(stage == s)) for s in np.unique(stage)])


def level_rank(job: Job, rank: int, peers: I64) -> Change:
    """Return the job with one rank that works like the median of its peers (itself not among them)."""
    return _levelled(job, [(np.array([rank]), peers)])


def _levelled(job: Job, tasks: Sequence[tuple[I64, I64]]) -> Change:
    parts = {}
    for name in _PARTS:
        stretches: Stretches = getattr(job, name)
        length = stretches.length.copy()
        rows = _rows(stretches, job.ranks)
        for changed, peers in tasks:
            if len(peers):
                _level(length, stretches, rows, changed, peers)
        parts[name] = length
    return Change(**parts)


def _rows(stretches: Stretches, ranks: int) -> list[I64]:
    first = np.searchsorted(stretches.rank, np.arange(ranks + 1))
    return [np.arange(a, b) for a, b in zip(first, first[1:], strict=False)]


def _level(length: F64, stretches: Stretches, rows: list[I64], changed: I64, peers: I64) -> None:
    """Give ranks the lower median of their peers' stretches; where these differ in number, scale them as a whole."""
    sizes = {len(rows[int(r)]) for r in [*changed, *peers]}
    if len(sizes) == 1:
        table = np.stack([stretches.length[rows[int(p)]] for p in peers])
        middle = np.sort(table, axis=0)[(len(peers) - 1) // 2]
        for rank in changed.tolist():
            length[rows[rank]] = middle
        return
    totals = np.array([[getattr(stretches, c)[rows[int(p)]].sum() for c in _CAUSES] for p in peers])
    middle = np.sort(totals, axis=0)[(len(peers) - 1) // 2]
    for rank in changed.tolist():
        own = [getattr(stretches, c)[rows[rank]] for c in _CAUSES]
        length[rows[rank]] = sum(v * (m / v.sum() if v.sum() > 0 else 1.0) for v, m in zip(own, middle, strict=True))
