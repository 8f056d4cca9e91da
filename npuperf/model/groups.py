"""Group rows by integer keys: exact sums, extremes and the largest row of each group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from npuperf.model.labels import F64, I32, I64, U8, Mask

#: Up to so many rows keys are put together before they are numbered.
_SHORT: Final = 1 << 12
#: A table of so many places costs nothing.
_SMALL: Final = 1 << 10
#: Rows that are worked on at once.
_PORTION: Final = 1 << 16
#: Sums of floats below it are exact, with room for what adding rounds.
_EXACT: Final = float(1 << 52)
N = TypeVar("N", bound=np.integer)  # integers of any size
V = TypeVar("V", bound=np.number)


class Groups(Struct, frozen=True):
    """Rows sorted into groups. ``order`` lists row numbers group by group, ``first`` where each group begins."""

    order: I64
    first: I64
    count: I64
    total: I64
    smallest: I64
    largest: I64

    def members(self, group: int) -> I64:
        """Return the rows of one group, the smallest value first."""
        return self.order[self.first[group] : self.first[group] + self.count[group]]

    def min(self, values: I64) -> I64:
        """Return the smallest value per group."""
        return np.minimum.reduceat(values.take(self.order), self.first)

    def max(self, values: I64) -> I64:
        """Return the largest value per group."""
        return np.maximum.reduceat(values.take(self.order), self.first)


def distinct(values: NDArray[N], *, consume: bool = False) -> NDArray[N]:
    """Return the different values in order; on millions of times several times as fast as numpy's unique.

    Which also loads ``numpy.ma``, and that is a twentieth of what a small recording takes. ``consume``: the values are
    put in order where they stand, so that there is no second copy of them.
    """
    ordered = values if consume else values.copy()
    ordered.sort(kind="stable")  # quick where values come in a few ordered runs, as times do
    fresh = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return ordered.compress(fresh)  # where many vanish here and there, several times as fast as the mask as index


def by_code(codes: U8 | I32 | I64) -> I64:
    """Return the rows ordered by codes from 0 on, equal ones as they stand; small numbers need no comparing."""
    return np.argsort(codes.astype(np.min_scalar_type(codes.max(initial=0)), copy=False), kind="stable")


def least_and_most(groups: I64, count: int, values: I64, others: I64) -> tuple[I64, I64]:
    """Return the least of some values and the most of others by group; each of ``count`` groups has rows.

    Fast where rows of a group mostly stand together.
    """
    first = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(least, groups[first], np.minimum.reduceat(values, first))
    np.maximum.at(most, groups[first], np.maximum.reduceat(others, first))
    return least, most


def among(values: I64, ordered: I64) -> Mask:
    """Tell which of some different numbers, which are in order, are among the values."""
    found = np.zeros(len(ordered), np.bool_)
    if len(ordered):
        at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
        found[at[ordered[at] == values]] = True
    return found


def lower_median(values: NDArray[V], axis: int = 0) -> NDArray[V]:
    """Return the medians along an axis; of an even number of values the lower of the two, which is one of them."""
    return np.asarray(np.take(np.sort(values, axis=axis), (values.shape[axis] - 1) // 2, axis=axis))


def first_rows(groups: I64, count: int) -> I64:
    """Return the first row of each of ``count`` groups."""
    first = np.empty(count, np.int64)
    first[groups[::-1]] = np.arange(len(groups))[::-1]  # of several the last that is written stays
    return first


def sorted_rows(*keys: I64) -> I64:
    """Return the rows ordered by the keys, the first being the most important; equal rows stay in their order.

    What numpy's lexsort returns, several times as fast on millions of rows: the keys that fit into one integer with the
    row's number are sorted as such, and only rows that are equal in them are told apart by the others.
    """
    if (keys[0][1:] >= keys[0][:-1]).all():
        order = np.arange(len(keys[0]))
        _settle(order, keys[0], keys[1:])
        return order
    bits = (len(keys[0]) - 1).bit_length() if len(keys[0]) else 0
    packed, used = _packed(keys, 62 - bits)
    if not used:
        return np.lexsort(keys[::-1])
    packed <<= bits
    packed |= np.arange(len(packed))
    packed.sort()
    order = packed & ((1 << bits) - 1)
    if used < len(keys):
        packed >>= bits
        _settle(order, packed, keys[used:])
    return order


def _packed(keys: tuple[I64, ...], bits: int) -> tuple[I64, int]:
    """Fold the first keys into one that orders rows as they do, as many as ``bits`` hold, and tell how many."""
    packed, used = np.zeros(len(keys[0]), np.int64), 0
    for key in keys if len(keys[0]) else ():
        low = int(key.min())
        width = (int(key.max()) - low).bit_length()
        if width > bits:
            break
        bits -= width
        packed <<= width
        packed += np.subtract(key, low, dtype=np.int64)
        used += 1
    return packed, used


def _settle(order: I64, ordered: I64, rest: tuple[I64, ...]) -> None:
    """Bring rows that are equal so far, as ``ordered`` tells, into the order of the rest of the keys, in place."""
    same = ordered[1:] == ordered[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same)) if same.any() else ordered[:0]
    if len(tied) and rest:
        rows = order[tied]
        order[tied] = rows[np.lexsort((*(key[rows] for key in reversed(rest)), ordered[tied]))]


def group_sums(keys: tuple[I64, ...], values: I64, rows: I64 | None = None) -> Groups:
    """Group by ``keys``; at least one row is needed. ``smallest``/``largest`` are row numbers by value.

    ``rows``: those that are grouped, of all that the columns have.
    """
    if rows is not None:
        keys, values = tuple(key[rows] for key in keys), values[rows]
    order = sorted_rows(*keys, values)
    fresh = np.zeros(len(order), np.bool_)
    fresh[0] = True
    for key in keys:
        ordered = key.take(order)
        fresh[1:] |= ordered[1:] != ordered[:-1]
    first = np.flatnonzero(fresh)
    last = np.append(first[1:], len(order)) - 1
    total = np.add.reduceat(values.take(order), first)
    if rows is not None:
        order = rows[order]
    return Groups(
        order=order, first=first, count=last - first + 1, total=total, smallest=order[first], largest=order[last]
    )


def numbered(keys: U8 | I32 | I64) -> tuple[I64, I64]:
    """Return the different keys in order, and which of them each row has; numpy's unique would sort, or hash."""
    low, high = (int(keys.min()), int(keys.max())) if len(keys) else (0, _SMALL)
    if low == high:
        return np.array([low]), np.zeros(len(keys), np.int64)
    if not len(keys) or high - low >= max(2 * len(keys), _SMALL):
        values, place = np.unique(keys, return_inverse=True)
        return values.astype(np.int64), place
    offset = np.subtract(keys, low, dtype=np.int64)
    there = np.zeros(high - low + 1, np.bool_)
    there[offset] = True
    if there.all():
        return np.arange(low, low + len(there)), offset
    return np.flatnonzero(there) + low, (np.cumsum(there) - 1).take(offset)


def alike(*keys: NDArray[Any]) -> I64:
    """Number the rows so that those have the same number, 0, 1, …, that are equal in every key, in the keys' order."""
    if 0 < len(keys[0]) <= _SHORT and (short := _in_one(keys)) is not None:
        return numbered(short)[1]
    number = numbered(keys[0])[1]
    for key in keys[1:]:
        values, place = numbered(key)
        if len(values) > 1:
            number = numbered(number * len(values) + place)[1]
    return number


def _in_one(keys: Sequence[NDArray[Any]]) -> I64 | None:
    """Return one key for several, in their order, None where it does not fit into 64 bits: of few rows sorting that one
    is faster than numbering each.
    """
    number, size = np.zeros(len(keys[0]), np.int64), 1
    for key in keys:
        low, high = int(key.min()), int(key.max())
        if high > low:
            size *= high - low + 1
            if size >= 1 << 62:
                return None
            number = number * (high - low + 1) + np.subtract(key, low, dtype=np.int64)
    return number


def last_largest(groups: I64, values: I64, count: int) -> I64:
    """Return of each of ``count`` groups the row of the largest value, the last one of several; each has rows."""
    rows = np.bincount(groups, minlength=count)
    most = np.maximum.reduceat(values.take(by_code(groups)), np.cumsum(rows) - rows)
    there = np.flatnonzero(values == most.take(groups))
    found = np.empty(count, np.int64)
    found[groups.take(there)] = there  # of several the last that is written stays
    return found


def sums_of(groups: I64, values: I64, count: int) -> I64:
    """Return the exact sum of the values of each of ``count`` groups 0, 1, …; several times as fast as ``add.at``."""
    total = np.zeros(count, np.int64)
    portion = max(_PORTION, count)  # what is worked out on the way takes little memory
    for begin in range(0, len(values), portion):
        group, own = groups[begin : begin + portion], values[begin : begin + portion]
        if int(own.min()) >= 0 and float(own.sum(dtype=np.float64)) < _EXACT:
            total += np.bincount(group, own, count).astype(np.int64)
        else:
            np.add.at(total, group, own)
    return total


def tally(keys: I32 | I64, weight: I64) -> tuple[I64, I64, I64]:
    """Return the different keys in order, how many rows of each weigh anything, and their sums (exact below 2**53)."""
    found, place = numbered(keys)
    count, total = (np.bincount(place, weights=w, minlength=len(found)) for w in (weight > 0, weight))
    return found, count.astype(np.int64), total.astype(np.int64)


def largest(values: I64, count: int) -> I64:
    """Return the rows of the largest values, the largest first, and of equal ones the earlier."""
    rows = np.arange(len(values))
    if len(values) > count > 0:
        rows = np.flatnonzero(values >= np.partition(values, -count)[-count])
    return rows[np.argsort(-values[rows], kind="stable")][:count]


def rows_of_each(keys: I64) -> Iterator[tuple[int, I64]]:
    """Yield the different keys in order, each with its rows, in order."""
    found, place = numbered(keys)
    order = by_code(place)
    if len(keys):
        yield from zip(found.tolist(), np.split(order, np.cumsum(np.bincount(place))[:-1]), strict=True)


# -- Rows that are alike: what is usual among them. Columns of integers, any number of keys.


def medians(kind: I64, values: NDArray[Any], kinds: int) -> F64:
    """Return the median of the values of each kind 0, 1, … (``kinds`` of them), NaN where it has none."""
    ordered, first, count = _by_kind(kind, values, kinds)
    low, high = first + (count - 1) // 2, first + count // 2
    return _mean_of(ordered, low, high, count > 0)


def medians_of_others(kind: I64, values: F64, kinds: int) -> tuple[F64, I64]:
    """Return for each row the median of the *other* rows of its kind, and how many there are."""
    ordered, first, count = _by_kind(kind, values, kinds)
    place = np.empty(len(values), np.int64)
    place[np.lexsort((values, kind))] = np.arange(len(values))
    others = count[kind] - 1
    low, high = first[kind] + (others - 1) // 2, first[kind] + others // 2
    # Without its own row, everything from there on moves down by one.
    usual = _mean_of(ordered, low + (low >= place), high + (high >= place), others > 0)
    return usual, others


def _by_kind(kind: I64, values: NDArray[Any], kinds: int) -> tuple[F64, I64, I64]:
    """Return the values ordered within their kinds, where each kind begins, and how many it has."""
    count = np.bincount(kind, minlength=kinds)
    order = np.lexsort((values, kind)) if values.dtype.kind == "f" else sorted_rows(kind, values)
    return values[order].astype(np.float64), np.cumsum(count) - count, count


def _mean_of(ordered: F64, low: I64, high: I64, there: NDArray[np.bool_]) -> F64:
    if not len(ordered):
        return np.full(len(there), np.nan)
    last = len(ordered) - 1
    middle = (ordered[np.clip(low, 0, last)] + ordered[np.clip(high, 0, last)]) / 2
    return np.where(there, middle, np.nan)
