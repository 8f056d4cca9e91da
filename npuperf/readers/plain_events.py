"""Events to columns by compiled code, as long as they are plain; pieces.py decodes what is not.

Decoding makes an object of every event only to take it apart again, which costs more than the decoding. The compiled
reader (plain_events.c) writes the columns at once. It is made when npuperf is installed; where there was no compiler,
everything is decoded.
"""

from __future__ import annotations

import codecs
import ctypes
import os
import re
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from npuperf.base.loading import library_of, load_library
from npuperf.model.labels import I32, I64
from npuperf.readers.trace_columns import Column, Words, nothing

#: Where the compiled reader is, if it is.
LIBRARY: Final = library_of(Path(__file__))
#: Columns of numbers, and of texts, in the order of plain_events.c.
NUMBERS: Final = (
    "start", "length", "pid", "tid", "connection", "correlation", "external", "stream", "device", "moved",
)  # fmt: skip
_TIMES: Final = ("start", "length", "time")
TEXTS: Final = ("name", "cat", "task_type", "stack", "operation")
_FLOWS: Final = ("id", "pid", "tid", "time", "is_start", "arrow", "id_begin", "id_end")
_CLOSED: Final = 1
_NO_MEMORY: Final = -2
#: Bytes that an event has at least, on average; shorter ones are decoded.
_EVENT_BYTES: Final = 32
_BEGINNING: Final = re.compile(rb"[ \t\r\n]*\{")

#: So many different texts have numbers of 16 bits.
_MOST_OF_16_BITS: Final = 1 << 15

#: Columns by name, of one length.
Columns = dict[str, Column]


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
    where one of them has more than 64 bits. ``others``: the text of metadata and of values of the AI Cores' clock.
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
        if not _BEGINNING.match(text) or not _is_text(text):
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
            some = told[at] or name in _TIMES
            columns[name] = _narrow(name, numbers[at, :size], far[at]) if some else nothing(size)
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
            arrows["id"] = _texts(text, raw["id_begin"].tolist(), raw["id_end"].tolist())
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
            self._table[place] = self._code(text[begin:end])
            begin = end
        self._known = count

    def _code(self, spelling: bytes) -> int:
        if b"\\" not in spelling:
            return self._words[spelling.decode()]
        return self._words[msgspec.json.decode(b'"%b"' % spelling, type=str)]


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


def _texts(text: bytes, begins: list[int], ends: list[int]) -> pa.Array:
    return pa.array([text[begin:end].decode() for begin, end in zip(begins, ends, strict=True)], pa.string())


def _is_text(text: bytes) -> bool:
    """Tell whether this is UTF-8, the last character of which may be cut: the compiled reader does not look."""
    if text.isascii():
        return True
    try:
        codecs.utf_8_decode(text, "strict", False)
    except UnicodeDecodeError:
        return False
    return True
