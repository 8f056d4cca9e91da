"""Events to columns, at the speed of C: numbers, and texts as codes; pieces.py decodes what the compiled reader cannot.

A trace repeats few texts millions of times: each is looked up once where it first occurs, and is a number from then on.
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import os
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from npuperf.base.loading import library_of, load_library
from npuperf.model.columns import NULLS
from npuperf.model.labels import I32, I64, Labels, Mask
from npuperf.readers.cells import LATEST_NS, integer, nanoseconds

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
        code, word = -1, "" if value is None else str(value).strip().strip('"').strip()
        if value is not None and word not in NULLS:
            code = self._places.setdefault(word, len(self.names))
            if code == len(self.names):
                self.names.append(word)
        if value is None or isinstance(value, str):  # 1, 1.0 and True are one key, but not one text
            self[value] = code
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
    try:
        numbers = np.fromiter(values, np.int64, len(values))
    except (ValueError, TypeError, OverflowError):
        try:
            array = pa.array(values, pa.int64())
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            array = pa.array([integer(v) for v in values], pa.int64())
        numbers = np.asarray(pc.fill_null(array, -1).to_numpy(zero_copy_only=False), np.int64)
    # Most are processes, threads and small ids.
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
                if growing.rows < self._rows:
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


# -- Events that are plain, by compiled code.
#
# Decoding makes an object of every event only to take it apart again, which costs more than the decoding. The compiled
# reader (plain_events.c) writes the columns at once. It is made when npuperf is installed; where there was no compiler,
# everything is decoded.

#: Where the compiled reader is, if it is.
LIBRARY: Final = library_of(Path(__file__))
#: Columns of numbers, and of texts, in the order of plain_events.c.
NUMBERS: Final = (
    "start", "length", "pid", "tid", "connection", "moved", "partner", "elements", "correlation", "external", "stream",
    "device",
)  # fmt: skip
_TIMES: Final = ("start", "length", "time")
TEXTS: Final = ("name", "cat", "task_type", "stack", "operation", "dtype")
_FLOWS: Final = ("id", "pid", "tid", "time", "is_start", "arrow", "id_begin", "id_end")
_CLOSED: Final = 1
_NO_MEMORY: Final = -2
#: Bytes that an event has at least, on average; shorter ones are decoded.
_EVENT_BYTES: Final = 32
_BEGINNING: Final = re.compile(rb"[ \t\r\n]*\{")

#: So many different texts have numbers of 16 bits.
_MOST_OF_16_BITS: Final = 1 << 15

#: Columns by name, of one length: numbers, codes of words, answers, or ids that are Arrow's texts.
Columns = dict[str, Any]


class _Found(ctypes.Structure):
    """What plain_events.c calls Found."""

    _fields_ = (
        ("most", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("numbers", "words", "flows", "others")),
        *((name, ctypes.c_int64) for name in ("slices", "arrows", "named", "events", "cut", "wide", "kinds")),
        ("told", ctypes.c_int64 * (len(NUMBERS) + len(TEXTS))),
        ("far", ctypes.c_int64 * (len(NUMBERS) + len(_FLOWS))),
    )


_SIZE, _POINTER = ctypes.c_int64, ctypes.c_void_p
_FUNCTIONS: Final = (
    ("plain_reader", _POINTER, (ctypes.c_char_p, ctypes.POINTER(_SIZE), _SIZE, ctypes.c_uint64)),
    ("plain_free", None, (_POINTER,)),
    ("plain_source", ctypes.c_char_p, ()),
    ("plain_layout", _SIZE, ()),
    ("plain_count", _SIZE, (_POINTER, ctypes.c_int32)),
    ("plain_words", _POINTER, (_POINTER, ctypes.c_int32, _SIZE, _POINTER)),
    ("plain_read", ctypes.c_int32, (_POINTER, ctypes.c_char_p, _SIZE, ctypes.c_int32, ctypes.POINTER(_Found))),
)


class PlainEvents(Struct, frozen=True):
    """A piece whose events are plain, until the next one is read.

    ``cut``: where the first one that was not taken begins, bytes.
    ``slices`` has a column per name of NUMBERS and TEXTS, ``flows`` id, pid, tid, time, start and arrow; ids are texts
    where one of them has more than 64 bits. ``others``: the text of metadata, of values of the AI Cores' clock, and of
    collectives (slices as well), whose arguments tell more than columns have.
    ``events``: how many were read, of any kind.
    """

    events: int
    cut: int
    closed: bool
    any_times: bool
    slices: Columns
    flows: Columns
    others: tuple[bytes, ...]

    def __len__(self) -> int:
        return self.events


class PlainReader:
    """Reads pieces of a trace one after the other. ``words``: the numbers of the texts of each column."""

    def __init__(self, library: Any, words: dict[str, Words], arrows: Sequence[str]) -> None:
        self._library = library
        self._words = words
        self._arrows = tuple(arrows)
        self._found = _Found(most=0)
        self._arrays: tuple[Any, ...] = ()
        self._begin()

    def _begin(self) -> None:
        """Begin without words."""
        names = [name.encode() for name in self._arrows]
        sizes = (ctypes.c_int64 * len(names))(*map(len, names))
        seed = int.from_bytes(os.urandom(8), "little")
        self._reader = self._library.plain_reader(b"".join(names), sizes, len(names), seed)
        if not self._reader:
            raise MemoryError
        self._free = weakref.finalize(self, self._library.plain_free, self._reader)
        words = [self._words[name] for name in TEXTS]
        self._spellings = [_Spellings(self._library, self._reader, at, known) for at, known in enumerate(words)]

    def read(self, text: bytes, any_times: bool) -> PlainEvents | None:
        """Read the events that are followed by another one; None where something is not plain."""
        if not _BEGINNING.match(text):
            return None
        if not text.isascii():
            try:  # UTF-8, the last character of which may be cut: the compiled reader does not look
                codecs.utf_8_decode(text, "strict", False)
            except UnicodeDecodeError:
                return None
        self._make_room(len(text) // _EVENT_BYTES + 1)
        status = self._library.plain_read(self._reader, text, len(text), any_times, ctypes.byref(self._found))
        if status == _NO_MEMORY:
            raise MemoryError
        if status < 0:  # of the words that it has by now, some may be of events that are damaged
            self._free()
            self._begin()
            return None
        return self._plain(text, any_times, status == _CLOSED) if self._found.events else None

    def _make_room(self, most: int) -> None:
        """Have arrays for so many events; what of them is never written takes no memory."""
        if most <= self._found.most:
            return
        kinds = ((len(NUMBERS), np.int64), (len(TEXTS), np.int32), (len(_FLOWS), np.int64), (2, np.int64))
        self._arrays = tuple(np.empty((rows, most), kind) for rows, kind in kinds)
        self._found = _Found(most, *(array.ctypes.data for array in self._arrays))

    def _slices(self) -> Columns:
        numbers, words = self._arrays[:2]
        size, told, far = self._found.slices, list(self._found.told), list(self._found.far)
        columns: Columns = {}
        for at, name in enumerate(NUMBERS):
            none = np.full(size, -1) if name in _TIMES else nothing(size)  # of what nothing tells, nothing was written
            columns[name] = _narrow(name, numbers[at, :size], far[at]) if told[at] else none
        for at, name in enumerate(TEXTS):
            some = told[len(NUMBERS) + at]
            columns[name] = self._spellings[at].codes(words[at, :size]) if some else nothing(size)
        return columns

    def _plain(self, text: bytes, any_times: bool, closed: bool) -> PlainEvents:
        found, flows, others = self._found, *self._arrays[2:]
        size, far = found.arrows, list(found.far)[len(NUMBERS) :]
        raw = {name: flows[at, :size] for at, name in enumerate(_FLOWS)}
        arrows: Columns = {name: _narrow(name, raw[name], far[at]) for at, name in enumerate(_FLOWS[:4])}
        if found.wide:
            ends = zip(raw["id_begin"].tolist(), raw["id_end"].tolist(), strict=True)
            arrows["id"] = pa.array([text[begin:end].decode() for begin, end in ends], pa.string())
        arrows["arrow"] = self._arrow_codes(raw["arrow"])
        arrows["start"] = raw["is_start"].astype(np.bool_)
        named = others[:, : found.named].T.tolist()
        told = tuple(text[begin:end] for begin, end in named)
        return PlainEvents(found.events, found.cut, closed, any_times, self._slices(), arrows, told)

    def _arrow_codes(self, raw: I64) -> I32:
        """Number the categories as words, of those that there are."""
        codes = np.full(len(self._arrows), -1, np.int16)
        for at, name in enumerate(self._arrows):
            if self._found.kinds >> at & 1:
                codes[at] = self._words["arrow"][name]
        return cast(I32, codes[raw])


class _Spellings:
    """Numbers of texts as they stand in the file to those of what they mean."""

    def __init__(self, library: Any, reader: int, column: int, words: Words) -> None:
        self._library = library
        self._reader = reader
        self._column = column
        self._words = words
        self._known = 0
        self._table = cast(I32, np.full(1, -1, np.int16))  # the last place is that of no text, which is -1

    def codes(self, raw: I32) -> I32:
        """Return each text's number, of 16 bits as long as these do."""
        count = self._library.plain_count(self._reader, self._column)
        if count > self._known:
            self._learn(count)
        table: I32 = self._table[raw]
        return table

    def _learn(self, count: int) -> None:
        small = len(self._words.names) + count - self._known <= _MOST_OF_16_BITS
        if count >= len(self._table) or (not small and self._table.dtype == np.int16):
            table = np.full(2 * count + 1, -1, np.int16 if small else np.int32)
            table[: self._known] = self._table[: self._known]
            self._table = cast(I32, table)
        ends = np.empty(count - self._known, np.int64)
        at = self._library.plain_words(self._reader, self._column, self._known, ends.ctypes.data)
        text = ctypes.string_at(at, int(ends[-1]))
        begin = 0
        for place, end in enumerate(ends.tolist(), self._known):
            spelling, begin = text[begin:end], end
            word = msgspec.json.decode(b'"%b"' % spelling, type=str) if b"\\" in spelling else spelling.decode()
            self._table[place] = self._words[word]
        self._known = count


def plain_reader(words: dict[str, Words], arrows: Sequence[str]) -> PlainReader | None:
    """Return a reader of plain events, with the arrows of these categories; None where it was not compiled."""
    library = _library()
    return PlainReader(library, words, arrows) if library else None


def compiled_source() -> str:
    """Return the hash of the source that the compiled reader was made of; empty without it."""
    library = _library()
    return library.plain_source().decode() if library else ""


@cache
def _library() -> Any:
    library = load_library(LIBRARY, _FUNCTIONS)
    layout = ((ctypes.sizeof(_Found) * 100 + len(NUMBERS)) * 100 + len(TEXTS)) * 100 + len(_FLOWS)
    return library if library and library.plain_layout() == layout else None


def _narrow(name: str, numbers: I64, far: int) -> I32 | I64:
    """Return numbers in half the space, where none is ``far`` and nothing is added to them."""
    return numbers if far or name in _TIMES else cast(I32, numbers.astype(np.int32))
