"""Exact joins on columns of integers; -1 stands for no row."""

from __future__ import annotations

import numpy as np

from npuperf.model.labels import I64


def match(wanted: I64, table: I64) -> I64:
    """Return for each key its index in ``table`` (first of equals), -1 where absent."""
    if not len(table) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(table, kind="stable")
    ordered = table[order]
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[at] == wanted, order[at], -1)


def pick(values: I64, at: I64, missing: int = -1) -> I64:
    """Return the values at these indices, ``missing`` where an index is -1."""
    return np.append(values, missing)[at]


def pack(left: tuple[I64, ...], right: tuple[I64, ...]) -> tuple[I64, I64]:
    """Fold several key columns into one, the same way on both sides: equal keys stay equal."""
    size = len(left[0])
    keys = np.zeros(size + len(right[0]), np.int64)
    for a, b in zip(left, right, strict=True):
        both = np.concatenate([a, b])
        if not len(both):
            break
        low = int(both.min())
        spread = int(both.max()) - low + 1
        if (int(keys.max()) + 1) * spread < 1 << 62:
            keys = keys * spread + (both - low)
        else:  # far apart: number the distinct values first
            values, codes = np.unique(both, return_inverse=True)
            _, keys = np.unique(keys, return_inverse=True)
            keys = keys * len(values) + codes
    return keys[:size], keys[size:]


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
    order = np.argsort(table, kind="stable")
    i = order[np.maximum(np.searchsorted(table[order], wanted, side="right") - 1, 0)]
    inside = (spans_group[i] == group) & (start[i] <= time) & (time <= end[i] + slack)
    return np.where(inside, i, -1)
