"""Attributes of decoded events to columns, at the speed of C: numbers, and texts as codes.

A trace repeats few texts millions of times: each is looked up once where it first occurs, and is a number from then on.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
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
#: Bytes by which a growing column grows at least.
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

    Where the system can, memory grows without being copied; what of it is not used yet is not taken.
    """

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._memory: Any = None  # what the last part is written to, of which there are no views for long
        self._dtype = np.dtype(np.int32)
        self._used = 0
        self._rows = 0

    def append(self, part: Any, at: int) -> None:
        """Append rows, the first of which is row ``at``; those that are missing before it are -1."""
        missing = [nothing(at - self._rows)] if at > self._rows else []
        if isinstance(part, np.ndarray):
            if self._memory is None or not np.can_cast(part.dtype, self._dtype):
                self._begin(part.dtype)
            for rows in (*missing, part):
                self._fill(rows)
        else:
            self._close()
            self._parts += [*missing, part]
        self._rows = at + len(part)

    def _fill(self, part: Any) -> None:
        while len(part):
            room = len(self._memory) // self._dtype.itemsize - self._used
            if not room:
                if not _grown(self._memory):
                    self._begin(self._dtype)
                continue
            size = min(len(part), room)
            np.frombuffer(self._memory, self._dtype, size, self._used * self._dtype.itemsize)[:] = part[:size]
            self._used += size
            part = part[size:]

    def _begin(self, dtype: np.dtype[Any]) -> None:
        self._close()
        self._memory, self._dtype = _fresh(dtype.itemsize), dtype

    def _close(self) -> None:
        if self._memory is not None:
            self._parts.append(np.frombuffer(self._memory, self._dtype, self._used))
        self._memory, self._used = None, 0

    def whole(self, rows: int) -> Any:
        """Return the column of so many rows; afterwards it is gone."""
        self._close()
        parts, self._parts = self._parts, []
        return joined([*parts, nothing(rows - self._rows)])


def _fresh(unit: int) -> Any:
    """Return memory of its own: what malloc has of that size may stay in the heap when it is freed."""
    size = _GROWTH_BYTES // unit * unit
    if spilling():
        return np.empty(size, np.uint8)
    try:
        if sys.platform == "linux":
            return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return mmap.mmap(-1, size, access=mmap.ACCESS_COPY)  # nobody else's, either
    except OSError as error:
        raise MemoryError from error


def _grown(memory: Any) -> bool:
    """Make memory larger, by more the larger it is; tell whether that could be done."""
    if not isinstance(memory, mmap.mmap):
        return False
    try:
        memory.resize(len(memory) + max(_GROWTH_BYTES, len(memory) // _GROWTH_BYTES // 8 * _GROWTH_BYTES))
    except (SystemError, TypeError, ValueError, OSError):  # this system cannot, or not any more
        return False
    return True
