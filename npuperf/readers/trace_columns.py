"""Attributes of decoded events to columns, at the speed of C: numbers, and texts as codes.

A trace repeats few texts millions of times: each is looked up once where it first occurs, and is a number from then on.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from npuperf.model.columns import NULLS
from npuperf.model.labels import I32, I64, Labels, Mask
from npuperf.model.spill import spilling
from npuperf.readers.cells import LATEST_NS, integer, nanoseconds

#: Numbers, codes of words, answers, or ids that are Arrow's texts.
Column = npt.NDArray[Any] | pa.Array
#: What 32 bits reach to.
_REACH: Final = 1 << 31
#: A view of one value, longer than any column.
_NOTHING: Final = np.broadcast_to(np.int32(-1), 1 << 40)
#: Bytes by which a growing column grows.
_GROWTH_BYTES: Final = 4 << 20


class Words(dict[Any, int]):
    """The distinct texts of a column, numbered as they come; null words are -1, what is no text becomes its text."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self._places: dict[str, int] = {}

    def __missing__(self, value: Any) -> int:
        code = -1 if value is None else self._code(str(value).strip().strip('"').strip())
        if value is None or isinstance(value, str):  # 1, 1.0 and True are one key, but not one text
            self[value] = code
        return code

    def _code(self, word: str) -> int:
        if word in NULLS:
            return -1
        code = self._places.setdefault(word, len(self.names))
        if code == len(self.names):
            self.names.append(word)
        return code

    def codes(self, values: Sequence[Any]) -> I32:
        """Return each value's number."""
        if values[0] is None and values.count(None) == len(values):
            return nothing(len(values))
        return np.fromiter(map(self.__getitem__, values), np.int32, len(values))

    def labels(self, codes: I32) -> Labels:
        """Return the column that these codes are."""
        return Labels(codes, tuple(self.names))


class Verdicts:
    """One answer per word, found once, however many pieces the column has; no word: no."""

    def __init__(self, words: Words, judge: Callable[[str], bool]) -> None:
        self._words = words
        self._judge = judge
        self._known = 0
        self._table: Mask = np.zeros(1, np.bool_)  # the last place is that of no word, which is -1

    def of(self, codes: I32) -> Mask:
        """Return the answer for each code."""
        names = self._words.names
        if len(names) > self._known:
            if len(names) >= len(self._table):  # twice as large: else each piece would copy all words
                larger = np.zeros(2 * len(names) + 1, np.bool_)
                larger[: self._known] = self._table[: self._known]
                self._table = larger
            self._table[self._known : len(names)] = [self._judge(name) for name in names[self._known :]]
            self._known = len(names)
        return self._table[codes]


def integers(values: Sequence[Any]) -> I32 | I64:
    """Convert to integers, of 32 bits where these do; anything else is -1 (Kineto has processes called "Spans")."""
    if values[0] is None and values.count(None) == len(values):
        return nothing(len(values))
    return narrow(_integers(values))


def _integers(values: Sequence[Any]) -> I64:
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return np.fromiter(values, np.int64, len(values))
    try:
        array = pa.array(values, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        array = pa.array([integer(v) for v in values], pa.int64())
    return np.asarray(pc.fill_null(array, -1).to_numpy(zero_copy_only=False), np.int64)


def narrow(numbers: I64) -> I32 | I64:
    """Return the numbers in half the space, where they fit: most are processes, threads and small ids."""
    fits = len(numbers) and numbers.min() >= -_REACH and numbers.max() < _REACH
    return numbers.astype(np.int32) if fits else numbers


def nothing(size: int) -> I32:
    """Return a column without values, that takes no memory."""
    return _NOTHING[:size]


def is_nothing(column: Any) -> bool:
    """Tell whether a column is one of :func:`nothing`."""
    return isinstance(column, np.ndarray) and column.strides == (0,)


def durations(values: Sequence[Any]) -> I64:
    """Convert durations in µs to ns; JSON floats are exact enough for anything shorter than a month.

    What is none, or longer than any time can be, is -1: processors differ in what they make of it as an integer.
    """
    if values and isinstance(values[0], msgspec.Raw):
        return nanoseconds(values)
    with np.errstate(over="ignore"):
        ns = np.rint(np.array(values, np.float64) * 1000)
    ns[~(np.abs(ns) < LATEST_NS)] = -1
    return ns.astype(np.int64)


def flow_ids(values: Sequence[Any]) -> Any:
    """Convert flow ids: whole numbers where they fit, else Arrow's text (some exporters use more than 64 bits)."""
    with contextlib.suppress(OverflowError, ValueError, TypeError):
        return np.fromiter(map(int, values), np.int64, len(values))
    return pa.array([str(v) for v in values], pa.string())


def number_ids(ids: Any) -> I64:
    """Number the ids so that equal ids get equal numbers."""
    if isinstance(ids, pa.Array):
        return np.asarray(ids.dictionary_encode().indices.to_numpy(), np.int64)
    return np.asarray(ids, np.int64)


def joined(parts: Sequence[Any]) -> Any:
    """Join columns; those that hold nothing anywhere stay a view of it, and numbers beside texts become texts."""
    parts = [p for p in parts if len(p)]
    if not parts:
        return np.empty(0, np.int32)
    if len(parts) == 1:
        return parts[0]
    if any(isinstance(p, pa.Array) for p in parts):
        return pa.concat_arrays([pa.array(p).cast(pa.string()) for p in parts])
    return nothing(sum(map(len, parts))) if all(map(is_nothing, parts)) else np.concatenate(parts)


class GrowingColumn:
    """A column that is appended to, in memory that comes from the system and goes back to it.

    What of them is not used yet takes no memory. A first part stays as it is until there is a second.
    """

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._open: Any = None
        self._used = 0

    def append(self, part: Any) -> None:
        """Append rows."""
        if not len(part):
            return
        if not _grows(part) or (not self._parts and self._open is None):
            self._close()
            self._parts.append(part)
            return
        if self._open is None and len(self._parts) == 1 and _grows(self._parts[0]):
            self._fill(self._parts.pop())
        self._fill(part)

    def _fill(self, part: Any) -> None:
        while len(part):
            if self._open is None or part.dtype != self._open.dtype or self._used == len(self._open):
                self._close()
                self._open = _fresh(part.dtype)
            size = min(len(part), len(self._open) - self._used)
            self._open[self._used : self._used + size] = part[:size]
            self._used += size
            part = part[size:]

    def _close(self) -> None:
        if self._open is not None:
            self._parts.append(self._open[: self._used])
        self._open, self._used = None, 0

    def whole(self) -> Any:
        """Return the column; afterwards it is gone."""
        self._close()
        parts, self._parts = self._parts, []
        return joined(parts)


def _fresh(dtype: np.dtype[Any]) -> Any:
    """Return an array in memory of its own: what malloc has of that size may stay in the heap when it is freed."""
    if spilling():
        return np.empty(_GROWTH_BYTES // dtype.itemsize, dtype)
    try:
        memory = mmap.mmap(-1, _GROWTH_BYTES, access=mmap.ACCESS_COPY)  # nobody else's
    except OSError as error:
        raise MemoryError from error
    return np.frombuffer(memory, dtype, _GROWTH_BYTES // dtype.itemsize)


def _grows(part: Any) -> bool:
    return isinstance(part, np.ndarray) and not is_nothing(part)
