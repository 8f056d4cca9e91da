"""Exact joins on columns of integers; -1 stands for no row."""

from __future__ import annotations

import numpy as np

from npuperf.model.groups import sorted_rows
from npuperf.model.labels import I64

#: Possible keys per row up to which a place for each of them costs less than sorting.
_DENSE = 8


def match(wanted: I64, table: I64) -> I64:
    """Return for each key its index in ``table`` (first of equals), -1 where absent."""
    if not len(table) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    if _alike(wanted, table):
        return np.arange(len(table))
    low, high = int(table.min()), int(table.max())
    if high - low < _DENSE * len(table):
        return _looked_up(wanted.astype(np.int64, copy=False), table, low, high)
    ordered, order = _in_order(table)
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[at] == wanted, at if order is None else order[at], -1)


def _alike(wanted: I64, table: I64) -> bool:
    """Tell whether both have the same keys at the same places, as what is written in pairs has; each of them once."""
    if len(wanted) != len(table) or wanted[-1] != table[-1] or not (wanted == table).all():
        return False
    ordered = np.sort(table)
    return bool((ordered[1:] > ordered[:-1]).all())


def _looked_up(wanted: I64, table: I64, low: int, high: int) -> I64:
    """Match keys that lie close together: a place for each possible one, a last one for all others, and no search."""
    small = len(table) <= np.iinfo(np.int32).max
    rows = np.full(high - low + 2, -1, np.int32 if small else np.int64)
    rows[(table - low)[::-1]] = np.arange(len(table))[::-1]  # of equals the last that is written stays
    place = wanted - low
    place[(wanted < low) | (wanted > high)] = high - low + 1
    return rows.take(place).astype(np.int64, copy=False)


def _in_order(table: I64) -> tuple[I64, I64 | None]:
    """Return the keys in order, and which rows these are; None: as they stand, which to see costs less than to sort."""
    if (table[1:] >= table[:-1]).all():
        return table, None
    order = sorted_rows(table)
    return table[order], order


def pick(values: I64, at: I64, missing: int = -1) -> I64:
    """Return the values at these indices, ``missing`` where an index is -1."""
    if not len(values):
        return np.full(len(at), missing, np.int64)
    found = values[at].astype(np.result_type(values, np.int64), copy=False)
    found[at < 0] = missing
    return found


def pack(left: tuple[I64, ...], right: tuple[I64, ...]) -> tuple[I64, I64]:
    """Fold several key columns into one, the same way on both sides: equal keys stay equal."""
    wanted, table = (np.zeros(len(side[0]), np.int64) for side in (left, right))
    reach = 1  # keys are below it so far
    for a, b in zip(left, right, strict=True):
        some = [x for x in (a, b) if len(x)]
        if not some:
            break
        low, high = min(int(x.min()) for x in some), max(int(x.max()) for x in some)
        if reach * (high - low + 1) >= 1 << 62:  # far apart: number the distinct values first
            wanted, table, _ = _numbered(wanted, table)
            a, b, spread = _numbered(a, b)
            low, reach = 0, len(wanted) + len(table)
        else:
            spread = high - low + 1
        for keys, column in ((wanted, a), (table, b)):
            keys *= spread
            keys += column
            keys -= low
        reach *= spread
    return wanted, table


def _numbered(left: I64, right: I64) -> tuple[I64, I64, int]:
    """Number the different values of two columns in order, and return how many there are."""
    values, codes = np.unique(np.concatenate([left, right]), return_inverse=True)
    return codes[: len(left)], codes[len(left) :], len(values)


def match_keys(wanted: tuple[I64, ...], table: tuple[I64, ...]) -> I64:
    """Match on several columns at once; see :func:`match`."""
    return match(*pack(wanted, table))


def enclosing(group: I64, time: I64, spans_group: I64, start: I64, end: I64, slack: int = 0) -> I64:
    """Return for each (group, time) the index of the span of that group around it, -1 if none.

    Spans of one group must not overlap (launch calls of one thread do not). ``slack``: how long after its end a
    span still counts, as clocks of different layers disagree.
    """
    if not len(start) or not len(time):
        return np.full(len(time), -1, np.int64)
    wanted, table = pack((group, time), (spans_group, start))
    ordered, order = _in_order(table)
    i = np.maximum(np.searchsorted(ordered, wanted, side="right") - 1, 0)
    i = i if order is None else order[i]
    inside = (spans_group[i] == group) & (start[i] <= time) & (time <= end[i] + slack)
    return np.where(inside, i, -1)
