"""Where times stand among others, both in order: found by merging them, as a search begins anew for each."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from npuperf.model.labels import I64

#: Times merged at once: what is needed on the way stays in a processor's cache.
_AT_ONCE: Final = 1 << 15
#: With so many to pass by for each time a search is as fast, and so it is for few times.
_SPARSE: Final = 8
_FEW: Final = 1 << 12
#: Differences from here on leave no room for the bit that tells both sides apart.
_WIDE: Final = 1 << 61


def passed(ordered: I64, times: I64, *, before: bool = False) -> I64:
    """Return for each time how many of some ``ordered`` ones lie at or before it, or ``before`` it.

    What numpy's searchsorted returns, faster where the times come in order, or nearly so, too.
    """
    side: Literal["left", "right"] = "left" if before else "right"
    if len(times) < _FEW or len(ordered) < _FEW:
        return np.searchsorted(ordered, times, side=side)
    found = np.empty(len(times), np.int64)
    for first in range(0, len(times), _AT_ONCE):
        some, into = times[first : first + _AT_ONCE], found[first : first + _AT_ONCE]
        order = None if (some[1:] >= some[:-1]).all() else np.argsort(some, kind="stable")
        if order is not None:
            some = some.take(order)
        low, high = np.searchsorted(ordered, some[[0, -1]], side=side).tolist()
        near = ordered[low:high]
        if len(near) > _SPARSE * len(some) or int(some[-1]) - int(some[0]) >= _WIDE:
            places = np.searchsorted(near, some, side=side)
        else:
            places = _merged(near, some, before)
        into[slice(None) if order is None else order] = places + low
    return found


def _merged(near: I64, some: I64, before: bool) -> I64:
    """Return for each of ``some`` times how many of those ``near`` them come first."""
    low = int(some[0])
    both = np.empty(len(near) + len(some), np.int64)
    np.subtract(near, low, out=both[: len(near)])
    np.subtract(some, low, out=both[len(near) :])
    both <<= 1
    both[: len(near)] |= before  # of equal ones that without the bit stands first
    both[len(near) :] |= not before
    both.sort(kind="stable")  # two lists in order are merged
    bit = both.astype(np.uint8)
    bit &= 1
    there = bit == (not before)
    places = np.flatnonzero(there)
    places -= np.arange(len(some))
    return places
