"""The clocks of the devices brought together: offsets by the ends of operations that nobody leaves early.

Such an operation ends for all at about the same time (the point: medians of differences of ends), and nobody can leave
it before the last has begun (the interval: provable by causality, shortest paths over all pairs of devices). Clocks of
different machines drift apart; a slope is fitted where it explains half of what a constant leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.device.rank_summary import RankSummary
from npuperf.job.match import Matched
from npuperf.job.waits import Arrivals
from npuperf.model.groups import distinct, rows_of_each
from npuperf.model.labels import F64, I64, Mask

#: Operations per group that the estimate rests on at most: more do not make it better.
_MOST: Final = 400
_ROUNDS: Final = 60
#: Points that a slope is fitted to at most, and at least.
_SLOPE_MOST, _SLOPE_LEAST = 200, 6
#: A slope is used where it leaves at most this part of the residual.
_SLOPE_GAIN: Final = 0.5
#: Of a rank's operations this part may contradict the others without casting doubt on its clock.
_FEW: Final = 0.1
#: By how much bounds may contradict each other: times in files are rounded.
_ROUNDING: Final = 2_000
#: Two clocks drift apart by less than this: crystals are within 100 ppm of what they say, so two within 200.
DRIFT_MOST: Final = 500e-6
#: Ends of one operation may differ by this much beside the clocks' residuals, ns.
ENDS_APART: Final = 30_000


#: So many residuals a corrected time may be off.
_SURE: Final = 3


class Clocks(Struct, frozen=True):
    """Per rank (ns): corrected time = time + offset + drift · (time − origin). The first rank of a part is 0.

    ``residual``: median distance of ends from the others' after correction; ``low`` and ``high`` bound the offset
    (NaN: nothing does); ``used``: operations it rests on. ``part``: ranks that are not tied together by operations
    have clocks that cannot be compared. ``wrong``: instances whose times contradict the others'.
    """

    offset: F64
    drift: F64
    residual: F64
    low: F64
    high: F64
    used: I64
    part: I64
    origin: int
    wrong: Mask

    @property
    def noise(self) -> float:
        """How far corrected ends of one operation may lie apart: three residuals of the worst clock, ns."""
        return _SURE * float(np.nanmax(self.residual)) if np.isfinite(self.residual).any() else 0.0

    def corrected(self, rank: I64, time: I64) -> I64:
        """Bring times to the first rank's clock."""
        slope = np.rint(self.drift[rank] * (time - self.origin)).astype(np.int64)
        return time + np.rint(self.offset[rank]).astype(np.int64) + slope


def align(matched: Matched, ranks: int) -> Clocks:
    """Estimate the clocks of all ranks.

    Operations count in which everybody needs everybody, evenly over time where there are very many. Ranks that were not
    loaded do not matter: those that were leave together all the same. An operation that contradicts causality by more
    than rounding once the clocks are corrected was left by somebody before another one began it: the match is wrong, or
    a clock jumped, and it counts no more.
    """
    chosen, wrong = evenly(matched), np.zeros(matched.instances, np.bool_)
    for _ in range(3):
        clocks = _estimate(matched, ranks, chosen & ~wrong, wrong)
        if not matched.instances:
            break
        rows = matched.members
        start, end = (clocks.corrected(matched.rank[rows], t[rows]) for t in (matched.start, matched.end))
        apart = np.maximum.reduceat(start, matched.starts) - np.minimum.reduceat(end, matched.starts)
        found = chosen & ~wrong & (apart > _ROUNDING + clocks.noise)
        if not found.any():
            break
        wrong = wrong | found
    return clocks


def arrivals(matched: Matched, clocks: Clocks) -> Arrivals | None:
    """Return when operations began on the common clock; None where there is none."""
    if not matched.instances:
        return None
    rank = matched.rank[matched.members]
    residual = np.maximum.reduceat(np.nan_to_num(clocks.residual)[rank], matched.starts)
    part = clocks.part[rank]
    common = np.maximum.reduceat(part, matched.starts) == np.minimum.reduceat(part, matched.starts)
    common &= np.minimum.reduceat(clocks.used[rank], matched.starts) > 0
    off = np.where(matched.instance >= 0, np.rint(_SURE * residual).astype(np.int64)[matched.instance], 0)
    return Arrivals(clocks.corrected(matched.rank, matched.start), off, common)


def evenly(matched: Matched) -> Mask:
    """Choose operations in which everybody needs everybody, of each group some that are evenly spread over time."""
    chosen = matched.together.copy()
    for group in distinct(matched.instance_group[chosen]).tolist():
        mine = np.flatnonzero(chosen & (matched.instance_group == group))
        if len(mine) > _MOST:
            chosen[mine] = False
            chosen[mine[np.linspace(0, len(mine) - 1, _MOST).astype(np.int64)]] = True
    return chosen


class Ends(Struct, frozen=True):
    """Ends of the chosen operations, relative to the origin: rank, instance (renumbered), end, start."""

    rank: I64
    instance: I64
    end: F64
    start: F64
    instances: int
    origin: int = 0

    @classmethod
    def of(cls, matched: Matched, chosen: Mask) -> Ends:
        """Return the ends of some operations of a match."""
        rows = matched.members[chosen[matched.instance[matched.members]]]
        origin = int(matched.end.min()) if len(matched.end) else 0
        number, instance = np.unique(matched.instance[rows], return_inverse=True)
        start, end = ((t[rows] - origin).astype(np.float64) for t in (matched.start, matched.end))
        return cls(matched.rank[rows], instance, end, start, len(number), origin)


def _estimate(matched: Matched, ranks: int, chosen: Mask, wrong: Mask) -> Clocks:
    """Fit offsets and drifts along a tree of ranks, then the offsets of all together, within what causality allows."""
    ends = Ends.of(matched, chosen)
    part = _parts(ends, ranks)
    guess, drift = walk(ends, ranks, lambda _, every, own, known: (every, _plausible(own, known)))
    offset = _offsets(ends, ranks, part, drift, guess)
    drift = drift - drift[part]
    corrected = ends.end * (1 + drift[ends.rank]) + offset[ends.rank]
    apart = np.abs(corrected - _Runs.of(ends.instance).medians(corrected)[ends.instance])
    of_rank, residual = _Runs.of(ends.rank), np.full(ranks, np.nan)
    residual[of_rank.keys] = of_rank.medians(apart)
    low, high = _bounds(ends, drift, ranks, part)
    with np.errstate(invalid="ignore"):
        offset = np.where(np.isnan(low), offset, np.clip(offset, low, high))
    return Clocks(offset, drift, residual, low, high, np.bincount(ends.rank, minlength=ranks), part, ends.origin, wrong)


#: Of each rank, operations that contradict the others, all of its operations, and how far its ends were off in those.
_Contradicted = tuple[I64, I64, F64]


def contradicted(matched: Matched, clocks: Clocks) -> _Contradicted:
    """Return of each rank how many of its operations are ``wrong``, and how far it was off its peers in these, ns."""
    ranks = len(clocks.offset)
    rows = matched.members[matched.together[matched.instance[matched.members]]]
    end = (clocks.corrected(matched.rank[rows], matched.end[rows]) - clocks.origin).astype(np.float64)
    number, instance = np.unique(matched.instance[rows], return_inverse=True)
    apart = np.abs(end - _Runs.of(instance).medians(end)[instance])
    wrong, off = clocks.wrong[number[instance]], np.zeros(ranks)
    np.maximum.at(off, matched.rank[rows[wrong]], apart[wrong])
    many, every = (np.bincount(matched.rank[chosen], minlength=ranks) for chosen in (rows[wrong], rows))
    return many, every, off


def doubted(clocks: Clocks, doubts: Sequence[_Contradicted]) -> Clocks:
    """Return the clocks without what is not proved, as operations contradict it.

    Where these are more than a few of a rank's, the clock may be off by as much as they are.
    """
    low, high, residual = clocks.low.copy(), clocks.high.copy(), clocks.residual.copy()
    for wrong, every, off in doubts:
        low[wrong > 0] = high[wrong > 0] = np.nan
        many = wrong > _FEW * every
        residual[many] = np.fmax(residual[many], off[many])
    return replace(clocks, low=low, high=high, residual=residual)


def _parts(ends: Ends, ranks: int) -> I64:
    """Number the sets of ranks that operations tie together; the number is the first rank's place."""
    lowest = np.full(ends.instances, ranks)
    np.minimum.at(lowest, ends.instance, ends.rank)
    tied = np.unique(np.stack([ends.rank, lowest[ends.instance]]), axis=1)  # each rank to the first one it meets
    part = np.arange(ranks)
    while True:
        least = part.copy()
        for one, other in (tied, tied[::-1]):
            np.minimum.at(least, one, part[other])
        least = least[least]
        if (least == part).all():
            return part
        part = least


def _offsets(ends: Ends, ranks: int, part: I64, drift: F64, begin: F64) -> F64:
    """Improve offsets by alternating medians."""
    end, offset = ends.end * (1 + drift[ends.rank]), begin
    by_instance, by_rank = _Runs.of(ends.instance), _Runs.of(ends.rank)
    for _ in range(_ROUNDS):
        middle = by_instance.medians(end + offset[ends.rank])
        moved = np.zeros(ranks)
        moved[by_rank.keys] = by_rank.medians(middle[ends.instance] - end - offset[ends.rank])
        offset = offset + moved
        if np.abs(moved).max(initial=0.0) < 1.0:
            break
    return np.asarray(offset - offset[part])


#: Of a rank, all its ends and those that are known from others, as it shows them and on the first rank's clock: its
#: ends as it should have shown them, and the offset and the drift that bring these to the first rank's clock.
_Fit = Callable[[int, F64, F64, F64], tuple[F64, tuple[float, float]]]


def walk(ends: Ends, ranks: int, fit: _Fit) -> tuple[F64, F64]:
    """Walk over the ranks from the first: the ends of each new one must equal those of ranks that are known.

    Returns offsets and drifts. A drift shows only in operations with ranks of another machine, which the walk comes
    to one after the other.
    """
    offset, drift, seen = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks, np.bool_)
    of_rank, members = _Runs.of(ends.rank).parts(), _Runs.of(ends.instance).parts()
    known, end = np.full(ends.instances, np.nan), ends.end.copy()
    none = np.empty(0, np.int64)
    for root in range(ranks):
        queue = deque([root] if not seen[root] else [])
        seen[root] = True
        while queue:
            rank = queue.popleft()
            rows = of_rank.get(rank, none)
            fresh = rows[np.isnan(known[ends.instance[rows]])]
            known[ends.instance[fresh]] = end[fresh] * (1 + drift[rank]) + offset[rank]
            met = [members[i] for i in ends.instance[fresh].tolist()]
            others = distinct(ends.rank[np.concatenate([none, *met])])
            for other in others[~seen[others]].tolist():
                theirs = of_rank[other]
                there = theirs[~np.isnan(known[ends.instance[theirs]])]
                told = fit(other, ends.end[theirs], ends.end[there], known[ends.instance[there]])
                end[theirs], (offset[other], drift[other]) = told
                seen[other] = True
                queue.append(other)
    return offset, drift


def _plausible(own: F64, target: F64) -> tuple[float, float]:
    """Return offset and drift that bring ``own`` times to ``target``, without a drift that no clock has."""
    offset, drift = line(own, target)
    return (offset, drift) if abs(drift) <= DRIFT_MOST else (float(np.median(target - own)), 0.0)


def line(own: F64, target: F64) -> tuple[float, float]:
    """Return offset and drift that bring ``own`` times to ``target``; the drift only where it pays."""
    apart = target - own
    middle = float(np.median(apart))
    chosen = distinct(np.linspace(0, len(own) - 1, min(len(own), _SLOPE_MOST)).astype(np.int64))
    if len(own) < _SLOPE_LEAST or np.ptp(own[chosen]) <= 0:
        return middle, 0.0
    # The median of the slopes between all pairs of points, and the intercept to it (Sen 1968).
    x, y = own[chosen], apart[chosen]
    run, rise = x[:, np.newaxis] - x, y[:, np.newaxis] - y
    slope = float(np.median(rise[run > 0] / run[run > 0]))
    intercept = float(np.median(y) - slope * np.median(x))
    before = float(np.median(np.abs(apart - middle)))
    after = float(np.median(np.abs(apart - slope * own - intercept)))
    return (middle, 0.0) if after > _SLOPE_GAIN * before else (intercept, slope)


class _Runs(Struct, frozen=True):
    """Rows grouped by a key."""

    order: I64
    keys: I64
    first: I64
    last: I64

    @classmethod
    def of(cls, key: I64) -> _Runs:
        order = np.argsort(key, kind="stable").astype(np.int64)
        ordered = key[order]
        first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(order) else order
        return cls(order, ordered[first], first, np.append(first[1:], len(order)).astype(np.int64)[: len(first)])

    def parts(self) -> dict[int, I64]:
        """Return the rows of each key."""
        return {int(k): self.order[a:b] for k, a, b in zip(self.keys, self.first, self.last, strict=True)}

    def medians(self, values: F64) -> F64:
        """Return the median of each group."""
        if not len(self.order):
            return np.empty(0)
        group = np.repeat(np.arange(len(self.first)), self.last - self.first)
        ordered = values[self.order][np.lexsort((values[self.order], group))]
        size = self.last - self.first
        return np.asarray((ordered[self.first + (size - 1) // 2] + ordered[self.first + size // 2]) / 2)


def _bounds(ends: Ends, drift: F64, ranks: int, part: I64) -> tuple[F64, F64]:
    """Bound the offsets by causality: nobody leaves before the last has begun, so o_j − o_i ≤ end_i − start_j.

    The tightest bounds are shortest paths to and from the first rank of each part; none where they contradict.
    """
    upper = np.full((ranks, ranks), np.inf)
    end, start = ends.end * (1 + drift[ends.rank]), ends.start * (1 + drift[ends.rank])
    runs = _Runs.of(ends.instance)
    for first, last in zip(runs.first, runs.last, strict=True):
        rows = runs.order[first:last]
        rank = ends.rank[rows]
        box = np.ix_(rank, rank)
        upper[box] = np.minimum(upper[box], end[rows][:, None] - start[rows][None, :])
    np.fill_diagonal(upper, 0.0)
    low, high = np.full(ranks, np.nan), np.full(ranks, np.nan)
    for root in distinct(part).tolist():
        mine = np.flatnonzero(part == root)
        if len(mine) < 2:
            continue
        inside = upper[np.ix_(mine, mine)]
        at = int(np.flatnonzero(mine == root)[0])
        most, least = _relax(inside, at), -_relax(inside.T, at)
        if (least - most <= _ROUNDING).all():  # else some operation contradicts the others, and nothing is proved
            high[mine], low[mine] = most, least
    return low, high


def _relax(upper: F64, root: int) -> F64:
    """Return the least bound on every offset that follows from those on pairs (Bellman and Ford)."""
    bound: F64 = upper[root].copy()
    for _ in range(len(upper)):
        better = np.minimum(bound, (bound[:, None] + upper).min(axis=0))
        if np.array_equal(better, bound):
            break
        bound = np.asarray(better)
        if bound[root] < 0:  # a circle that contradicts itself: further rounds only lower everything
            break
    return bound


# -- Both ends of point-to-point operations in groups of more than two ranks, whose keys name no peer: by time.
#
# Both ends of such an operation end together. So of two neighbours in a group, operations belong together whose ends,
# on the common clock, are each other's nearest, and that overlap; what one sends the other receives. The first rank has
# one neighbour only; what its operations leave over at the second belongs to the third, and so on. Where a
# clock was set, and too few operations tell that which name their ranks, all that are left of a step lie the same time
# from their other ends.

#: Of so many operations at least it is no luck that they do.
_SHIFTED: Final = 4


def pair_in_time(ranks: Sequence[RankSummary], matched: Matched, clocks: Clocks) -> list[RankSummary]:
    """Name the peers of operations that tell none, where time does."""
    peer = [r.operations.peer.copy() for r in ranks]
    other_end = {"send": "receive", "receive": "send"}
    ways = [(matched.types.index(kind), matched.types.index(other_end.get(kind, kind)))
            for kind in matched.types if other_end.get(kind, kind) in matched.types]  # fmt: skip
    start, end = (clocks.corrected(matched.rank, t) for t in (matched.start, matched.end))
    pairs = np.flatnonzero(matched.p2p)
    for code, some in rows_of_each(matched.group[pairs]):
        rows, group = pairs[some], matched.groups[code]
        if code < 0 or len(group.ranks) < 3:
            continue
        chain = sorted(group.members, key=lambda m: group.ranks.index(ranks[m].rank))
        of_rank = {m: rows[slice(*np.searchsorted(rows, matched.first[m : m + 2]).tolist())] for m in chain}
        for (a, b), (way, back_way) in product([*pairwise(chain), (chain[0], chain[-1])], ways):
            own, theirs = (
                mine[((told == -1) | (told == ranks[other].rank)) & (matched.type[mine] == kind)]
                for r, other, kind in ((a, b, way), (b, a, back_way))
                for mine in [of_rank[r]]
                for told in [peer[r][mine - matched.first[r]]]
            )
            if clocks.part[a] != clocks.part[b] or not len(own) or not len(theirs):
                continue
            there, back = _closest(end[own], end[theirs]), _closest(end[theirs], end[own])
            other = theirs[there]
            good = (back[there] == np.arange(len(own))) & (np.abs(end[other] - end[own]) <= ENDS_APART + clocks.noise)
            good &= (start[own] <= end[other]) & (start[other] <= end[own])
            left, right = own[~good], np.setdiff1d(theirs, other[good])
            shifted = [
                _shifted(end, left[matched.step[left] == step], right[matched.step[right] == step], clocks.noise)
                for step in distinct(matched.step[left]).tolist()
            ]
            for mine, far in ((own[good], other[good]), *shifted):
                peer[a][mine - matched.first[a]] = ranks[b].rank
                peer[b][far - matched.first[b]] = ranks[a].rank
    return [replace(r, operations=replace(r.operations, peer=p)) for r, p in zip(ranks, peer, strict=True)]


def _shifted(end: I64, own: I64, theirs: I64, noise: float) -> tuple[I64, I64]:
    """Return all of a rank's operations with another's whose ends lie the same time later, or earlier; none where they
    do not, or several times fit.
    """
    none = own[:0], own[:0]
    if len(own) < _SHIFTED or len(theirs) < len(own):
        return none
    mine, far = end[own], end[theirs]
    fits = []
    for shift in distinct(far - mine[0]).tolist():
        there = _closest(mine + shift, far)
        beyond = far[there] - mine
        if np.ptp(beyond) <= 2 * (ENDS_APART + noise) and len(distinct(there)) == len(own):
            fits.append(theirs[there])
    return (own, fits[0]) if len(fits) == 1 else none


def _closest(values: I64, among: I64) -> I64:
    """Return for each value the place of the nearest one among others (in order of time)."""
    order = np.argsort(among, kind="stable")
    right = np.clip(np.searchsorted(among[order], values), 0, len(among) - 1)
    left = np.maximum(right - 1, 0)
    nearer = np.abs(among[order[left]] - values) <= np.abs(among[order[right]] - values)
    return np.where(nearer, order[left], order[right])
