"""Columns of a clean table, batch by batch: only what is kept stays in memory, and whole batches are converted at once.

A batch with a cell that does not fit is refused, and the table is read again as text (:mod:`npuperf.readers.table`).
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from npuperf.model.columns import UNSET_INTS, Kind
from npuperf.model.labels import F32, I64, Labels
from npuperf.model.tasks import NO_TIME, UNKNOWN
from npuperf.readers.cells import (
    as_decimals,
    characters,
    exact_times,
    scale_of,
    tidy_labels,
    times_by_position,
)
from npuperf.units import NS_PER_US

#: Below so many ns a float of µs is right to a thousandth of a ns, as long as it is not about to be rounded.
_FLOAT_NS: Final = 1 << 42
_NEAR_HALF: Final = 0.498


class CleanColumn(Protocol):
    """A column that takes batches; ``add`` tells whether it could."""

    def add(self, batch: pa.Array) -> bool:
        """Append the cells of a batch, or refuse them."""

    def whole(self) -> Any:
        """Return what was added."""


def growing(kind: Kind, scale: int | None, rows: int) -> CleanColumn:
    """Return an empty column of a kind with room for about so many rows.

    ``scale``: ns per unit of a time, None: told by magnitude.
    """
    if kind is Kind.TEXT:
        return _Texts(rows)
    if kind is Kind.TIME:
        return _Times(scale, rows)
    return _Integers(rows) if kind is Kind.INT else _Floats(rows)


class _Room:
    """An array that grows; its unused end is never touched, so it takes no memory."""

    def __init__(self, dtype: npt.DTypeLike, rows: int) -> None:
        self._values = np.empty(rows, dtype)
        self._size = 0

    def append(self, values: npt.NDArray[Any]) -> None:
        end = self._size + len(values)
        if end > len(self._values):
            larger = np.empty(2 * end, self._values.dtype)
            larger[: self._size] = self._values[: self._size]
            self._values = larger
        self._values[self._size : end] = values
        self._size = end

    def whole(self) -> npt.NDArray[Any]:
        return self._values[: self._size]


class _Integers:
    def __init__(self, rows: int) -> None:
        self._room = _Room(np.int64, rows)

    def add(self, batch: pa.Array) -> bool:
        values = _filled(batch, UNKNOWN)
        unset = values == UNSET_INTS[0]
        self._room.append(np.where(unset, UNKNOWN, values) if unset.any() else values)
        return True

    def whole(self) -> I64:
        return self._room.whole()


class _Floats:
    def __init__(self, rows: int) -> None:
        self._room = _Room(np.float32, rows)

    def add(self, batch: pa.Array) -> bool:
        self._room.append(batch.to_numpy(zero_copy_only=False))
        return True

    def whole(self) -> F32:
        return self._room.whole()


class _Texts:
    """Texts as codes: the few names of each batch are looked up among those of all."""

    def __init__(self, rows: int) -> None:
        self._room = _Room(np.int32, rows)
        self._place: dict[str, int] = {}

    def add(self, batch: pa.DictionaryArray) -> bool:
        place = self._place
        moved = [place.setdefault(text, len(place)) for text in batch.dictionary.to_pylist()]
        self._room.append(np.array([*moved, -1], np.int32)[_filled(batch.indices, -1)])
        return True

    def whole(self) -> Labels:
        return tidy_labels(self._room.whole(), list(self._place))


class _Times:
    def __init__(self, scale: int | None, rows: int) -> None:
        self._room = _Room(np.int64, rows)
        self._told = scale
        self._scale = scale

    def add(self, batch: pa.Array) -> bool:
        found = _clean_times(batch, self._told)
        if found is None or self._scale not in (None, found[1]):  # what has no unit is judged by the whole column
            return False
        self._room.append(found[0])
        self._scale = found[1]
        return True

    def whole(self) -> I64:
        return self._room.whole()


def _filled(batch: pa.Array, missing: int) -> npt.NDArray[Any]:
    return np.asarray((batch.fill_null(missing) if batch.null_count else batch).to_numpy(zero_copy_only=False))


def _clean_times(text: pa.Array, scale: int | None) -> tuple[I64, int] | None:
    """Convert times to ns, and return the ns per unit; None where a cell is no number.

    Exporters write epochs in one length and durations in few digits: neither needs exact decimals.
    """
    if scale == NS_PER_US:
        ns = times_by_position(text)
        ns = _by_float(text) if ns is None else ns
        if ns is not None:
            return ns, scale
    try:
        exact = as_decimals(pc.utf8_trim_whitespace(text))
    except pa.ArrowInvalid:
        return None
    scale = scale_of(exact) if scale is None else scale
    return exact_times(exact, scale), scale


def _by_float(text: pa.Array) -> I64 | None:
    """Convert µs by way of floats, where that is exact: plain, short numbers that are not about to be rounded."""
    if not len(text) or (characters(text)[1] > ord("9")).any():
        return None
    try:
        us = text.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # what is infinite, or becomes it, is not exact
        ns = us.to_numpy(zero_copy_only=False) * NS_PER_US
        whole = np.rint(ns)
        exact = (np.abs(ns) < _FLOAT_NS) & (np.abs(ns - whole) < _NEAR_HALF)
    if np.count_nonzero(exact) != len(ns) - us.null_count:
        return None
    return np.where(np.isnan(ns), NO_TIME, whole).astype(np.int64)
