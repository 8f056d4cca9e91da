"""Rows that are alike: what is usual among them. Columns of integers, any number of keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from npuperf.model.groups import sorted_rows
from npuperf.model.labels import F64, I64


def medians(kind: I64, values: npt.NDArray[Any], kinds: int) -> F64:
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


def size_class(size: I64) -> I64:
    """Return k where 2^k ≤ size < 2^(k+1), -1 for sizes below one (not recorded)."""
    return np.where(size > 0, np.frexp(np.maximum(size, 1).astype(np.float64))[1] - 1, -1).astype(np.int64)


def class_text(power: int) -> str | None:
    """Render a size class, e.g. ``8–16 MiB``; None where sizes are not recorded."""
    if power < 0:
        return None
    unit, small = divmod(power, 10)
    name = ("B", "KiB", "MiB", "GiB", "TiB")[min(unit, 4)]
    return f"{2**small}–{2 ** (small + 1)} {name}"


def _by_kind(kind: I64, values: npt.NDArray[Any], kinds: int) -> tuple[F64, I64, I64]:
    """Return the values ordered within their kinds, where each kind begins, and how many it has."""
    count = np.bincount(kind, minlength=kinds)
    order = np.lexsort((values, kind)) if values.dtype.kind == "f" else sorted_rows(kind, values)
    return values[order].astype(np.float64), np.cumsum(count) - count, count


def _mean_of(ordered: F64, low: I64, high: I64, there: npt.NDArray[np.bool_]) -> F64:
    if not len(ordered):
        return np.full(len(there), np.nan)
    last = len(ordered) - 1
    middle = (ordered[np.clip(low, 0, last)] + ordered[np.clip(high, 0, last)]) / 2
    return np.where(there, middle, np.nan)
