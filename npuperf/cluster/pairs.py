"""Both ends of point-to-point operations in groups of more than two ranks, whose keys name no peer: by time.

Both ends of such an operation end together. So of two neighbours in a group, operations belong together whose ends, on
the common clock, are each other's nearest, and that overlap. The first rank has one neighbour only; what its
operations leave over at the second belongs to the third, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from msgspec.structs import replace

from npuperf.cluster.clocks import Clocks
from npuperf.cluster.match import Matched
from npuperf.cluster.summary import RankSummary
from npuperf.model.labels import I64

#: Ends of one operation may differ by this much beside the clocks' residuals, ns.
_APART: Final = 30_000


def pair_in_time(ranks: Sequence[RankSummary], matched: Matched, clocks: Clocks) -> list[RankSummary]:
    """Name the peers of operations that tell none, where time does."""
    peer = [r.operations.peer.copy() for r in ranks]
    number = np.array([r.rank for r in ranks], np.int64)
    noise = 3 * float(np.nanmax(clocks.residual)) if np.isfinite(clocks.residual).any() else 0.0
    for code, group in enumerate(matched.groups):
        if len(group.ranks) < 3:
            continue
        rows = np.flatnonzero((matched.group == code) & matched.p2p)
        if not len(rows):
            continue
        chain = sorted(group.members, key=lambda m: group.ranks.index(ranks[m].rank))
        for a, b in [*pairwise(chain), (chain[0], chain[-1])]:
            if clocks.part[a] != clocks.part[b]:
                continue
            own, theirs = (rows[matched.rank[rows] == r] for r in (a, b))
            own, theirs = own[peer[a][own - matched.first[a]] < 0], theirs[peer[b][theirs - matched.first[b]] < 0]
            one, other = _nearest(matched, clocks, own, theirs, _APART + noise)
            peer[a][one - matched.first[a]] = number[b]
            peer[b][other - matched.first[b]] = number[a]
    return [replace(r, operations=replace(r.operations, peer=p)) for r, p in zip(ranks, peer, strict=True)]


def _nearest(matched: Matched, clocks: Clocks, own: I64, theirs: I64, apart: float) -> tuple[I64, I64]:
    """Return the operations of both sides that belong together, in the same order."""
    none = np.empty(0, np.int64)
    if not len(own) or not len(theirs):
        return none, none
    end, other = (clocks.corrected(matched.rank[r], matched.end[r]) for r in (own, theirs))
    begin, since = (clocks.corrected(matched.rank[r], matched.start[r]) for r in (own, theirs))
    there, back = _closest(end, other), _closest(other, end)
    mine = np.arange(len(own))
    good = (back[there] == mine) & (np.abs(other[there] - end) <= apart)
    good &= (begin <= other[there]) & (since[there] <= end)
    return own[good], theirs[there[good]]


def _closest(values: I64, among: I64) -> I64:
    """Return for each value the place of the nearest one among others (in order of time)."""
    order = np.argsort(among, kind="stable")
    right = np.clip(np.searchsorted(among[order], values), 0, len(among) - 1)
    left = np.maximum(right - 1, 0)
    nearer = np.abs(among[order[left]] - values) <= np.abs(among[order[right]] - values)
    return np.where(nearer, order[left], order[right])
