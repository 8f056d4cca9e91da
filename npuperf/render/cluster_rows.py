"""The ranks of a job as rows: where each one's time goes, and which of them stand out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Final

from msgspec import Struct

from npuperf.documents.cluster import Cluster, ClusterRank, Root

#: A rank is listed by itself where it is so far from its peers, as a share of the step; a few are in any case.
_APART: Final = 0.01
_LEAST: Final = 3
#: Distances are compared by tenths of a percent of the step.
_DIGITS: Final = 3


class Slice(Struct, frozen=True):
    """Where the time of a rank goes, as shares of it; of several ranks, their means. What is not known is None.

    ``waits``: exposed waiting by kind of group; ``idle`` includes ``host``. ``rank`` is None for all ranks together.
    """

    rank: int | None
    stage: int | None
    step_ns: int
    compute: float | None
    transfer: float
    wait: float
    unknown: float
    host: float | None
    idle: float | None
    waits: tuple[tuple[str, float], ...]


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges, e.g. ``0-3, 7``."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def roots_by_gain(cluster: Cluster) -> list[Root]:
    """Return the root causes, those first whose repair saves most; without a gain, those that explain most."""
    return sorted(cluster.roots, key=lambda r: (-(r.gain_ns_per_step or (0, 0))[1], -r.wait_ns))


def slice_of(rank: ClusterRank, steps: int) -> Slice:
    """Return where a rank's time goes."""
    whole = max(rank.step_ns * max(steps, 1), 1)
    comm = rank.comm
    waiting = max(sum(comm.wait_by_kind.values()), 1)
    return Slice(
        rank=rank.rank,
        stage=rank.stage,
        step_ns=rank.step_ns,
        compute=_part(rank.compute_ns, whole),
        transfer=comm.exposed_transfer_ns / whole,
        wait=comm.exposed_wait_ns / whole,
        unknown=comm.exposed_unknown_ns / whole,
        host=_part(rank.host_wait_ns, whole),
        idle=_part(rank.idle_ns, whole),
        # What of the waiting is exposed is not known by kind: in proportion.
        waits=tuple((k, ns / waiting * comm.exposed_wait_ns / whole) for k, ns in comm.wait_by_kind.items()),
    )


def mean_of(slices: Sequence[Slice]) -> Slice:
    """Return several ranks as one row."""
    kinds = dict.fromkeys(kind for s in slices for kind, _ in s.waits)
    return Slice(
        rank=None,
        stage=None,
        step_ns=round(fmean(s.step_ns for s in slices)),
        compute=_mean(s.compute for s in slices),
        transfer=fmean(s.transfer for s in slices),
        wait=fmean(s.wait for s in slices),
        unknown=fmean(s.unknown for s in slices),
        host=_mean(s.host for s in slices),
        idle=_mean(s.idle for s in slices),
        waits=tuple((kind, fmean(dict(s.waits).get(kind, 0.0) for s in slices)) for kind in kinds),
    )


def _part(ns: int | None, whole: int) -> float | None:
    return None if ns is None else ns / whole


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return fmean(known) if known else None


def outliers_first(cluster: Cluster) -> list[ClusterRank]:
    """Return the ranks, those first that are furthest from their peers; those as good as alike by number."""
    apart = _distances(cluster)
    return sorted(cluster.ranks, key=lambda r: (-round(apart[r.rank], _DIGITS), r.rank))


def outliers(cluster: Cluster, most: int | None) -> tuple[list[ClusterRank], list[ClusterRank]]:
    """Return the ranks to list, at most so many (None: all), and the rest."""
    ranks = outliers_first(cluster)
    if most is None or len(ranks) <= most + 1:  # a line about one rank is as long as its row
        return ranks, []
    apart = _distances(cluster)
    standing_out = sum(apart[r.rank] >= _APART for r in ranks)
    shown = min(most, max(standing_out, _LEAST))
    return ranks[:shown], ranks[shown:]


def _distances(cluster: Cluster) -> dict[int, float]:
    """Return how far each rank is from the median of its stage, in what it is furthest, as a share of the step.

    Ranks of a stage do the same work; without stages, all do. Stages that differ are the pipeline's matter.
    """
    found = dict.fromkeys((r.rank for r in cluster.ranks), 0.0)
    for stage in {r.stage for r in cluster.ranks}:
        peers = [r for r in cluster.ranks if r.stage == stage]
        for values in zip(*(_measured(r, max(cluster.steps, 1)) for r in peers), strict=True):
            usual = median(values)
            for r, value in zip(peers, values, strict=True):
                found[r.rank] = max(found[r.rank], abs(value - usual) / max(cluster.step_ns, 1))
    return found


def _measured(rank: ClusterRank, steps: int) -> tuple[float, ...]:
    """Return what ranks are compared by, ns per step."""
    compute, host = rank.compute_ns or 0, rank.host_wait_ns or 0
    return rank.step_ns, compute / steps, rank.comm.exposed_wait_ns / steps, host / steps
