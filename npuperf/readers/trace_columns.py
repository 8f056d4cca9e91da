"""Attributes of decoded events to columns, at the speed of C: numbers, and texts as codes.

A trace repeats few texts millions of times: each is looked up once where it first occurs, and is a number from then on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from npuperf.model.columns import NULLS
from npuperf.model.labels import I32, I64, Labels, Mask
from npuperf.readers.cells import LATEST_NS, integer, nanoseconds

#: Numbers, codes of words, answers, or ids that are Arrow's texts.
Column = npt.NDArray[Any] | pa.Array
#: What 32 bits reach to.
_REACH: Final = 1 << 31
#: A view of one value, longer than any column.
_NOTHING: Final = np.broadcast_to(np.int32(-1), 1 << 40)
#: Bytes by which a column grows: more than what malloc keeps of its own (npuperf/base/memory.py).
_BLOCK_BYTES: Final = 33 << 20


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


class PiecedColumns:
    """Columns that grow by pieces; one that a piece lacks is -1 there. Of a piece nothing is kept but copies."""

    def __init__(self) -> None:
        self._columns: dict[str, _Growing] = {}
        self._rows = 0

    def add(self, columns: Mapping[str, npt.NDArray[Any] | pa.Array], keep: Mask | None = None) -> None:
        """Append the rows where ``keep`` holds."""
        size = len(next(iter(columns.values()))) if keep is None else int(np.count_nonzero(keep))
        for name, column in columns.items() if size else ():
            if not is_nothing(column):
                growing = self._columns.setdefault(name, _Growing())
                growing.append(nothing(self._rows - growing.rows))
                growing.append(column if keep is None else column[keep])
        self._rows += size

    def pop(self, name: str) -> Any:
        """Take a column; afterwards it is gone."""
        growing = self._columns.pop(name, _Growing())
        growing.append(nothing(self._rows - growing.rows))
        return growing.whole()


class _Growing:
    """A column that is appended to, in blocks so large that each is given, and taken back, by the system itself.

    What of a block is not used yet takes no memory.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._parts: list[Any] = []
        self._block: npt.NDArray[Any] = np.empty(0, np.int8)
        self._used = 0

    def append(self, part: Any) -> None:
        """Append values, which may be overwritten afterwards."""
        self.rows += len(part)
        if (is_nothing(part) and not len(self._block)) or not isinstance(part, np.ndarray):
            self._close()
            self._parts.append(part)
            return
        if not is_nothing(part) and not np.can_cast(part.dtype, self._block.dtype):
            self._begin(part.dtype)
        while len(part):
            if self._used == len(self._block):
                self._begin(self._block.dtype)
            some = part[: len(self._block) - self._used]
            self._block[self._used : self._used + len(some)] = some
            self._used, part = self._used + len(some), part[len(some) :]

    def _begin(self, dtype: np.dtype[Any]) -> None:
        self._close()
        self._block, self._used = np.empty(_BLOCK_BYTES // dtype.itemsize, dtype), 0

    def _close(self) -> None:
        if self._used:
            self._parts.append(self._block[: self._used])
        self._block, self._used = self._block[:0], 0

    def whole(self) -> Any:
        """Return the column; where it holds nothing a view of that, and numbers beside texts become texts."""
        self._close()
        parts, self._parts = [p for p in self._parts if len(p)], []
        if any(isinstance(p, pa.Array) for p in parts):
            return pa.concat_arrays([pa.array(p).cast(pa.string()) for p in parts])
        told = [p.dtype for p in parts if not is_nothing(p)]
        if not told:
            return nothing(self.rows)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, dtype=np.result_type(*told))
