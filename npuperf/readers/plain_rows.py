"""Tables of SQLite files to columns by compiled code, as long as they are plain: a third of what SQLite itself takes.

Compiled (plain_rows.c) when npuperf is installed. What is not plain, and everything where there was no compiler, is
read by SQLite, in bulk or row by row (:mod:`npuperf.readers.sqlite`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from npuperf.compiled import library_of, load_library
from npuperf.files import open_input
from npuperf.model.labels import F32, I64, Mask
from npuperf.readers.sqlite_cells import NotInBulkError

#: Where the library is, if it is.
LIBRARY: Final = library_of(Path(__file__))
_POINTER, _SIZE, _NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
_FUNCTIONS: Final = (
    ("rows_source", ctypes.c_char_p, ()),
    ("rows_begin", _POINTER, (_NUMBER, _SIZE, _SIZE, _NUMBER, _POINTER, _NUMBER, _POINTER, _NUMBER)),
    ("rows_expected", _SIZE, (_POINTER,)),
    ("rows_read", _SIZE, (_POINTER, _SIZE, _POINTER)),
    ("rows_end", None, (_POINTER,)),
)

Column = npt.NDArray[Any]
#: Tells which rows of some columns are wanted.
Keep = Callable[[list[I64]], Mask]


class Stored(Struct, frozen=True):
    """Where a table lies: the page of its root, its columns as records have them, and which one is the row's number.

    ``alias``: its place, -1 none.
    """

    root: int
    columns: tuple[str, ...]
    alias: int = -1


class PlainRows:
    """A database file, for several threads. ``most_rows``: no table has more."""

    def __init__(self, library: Any, handle: int, most_rows: int) -> None:
        self._library = library
        self._handle = handle
        self._most_rows = most_rows

    def whole(self, table: Stored, columns: Sequence[str], rows: int, keep: Keep | None = None) -> list[I64]:
        """Return columns of integers, -1 for NULL, of the rows that ``keep`` tells of so many at once.

        Raises NotInBulkError where a cell is something else.
        """
        with self._reading(table, columns, None) as reader:
            size = total = 0
            room = int(min(self._library.rows_expected(reader), self._most_rows)) + 1  # the last place stays empty
            found: list[Column] = [np.empty(room, np.int64) for _ in columns]
            while count := self._read(reader, [column[size : size + rows] for column in found]):
                total += count
                if total > self._most_rows:
                    raise NotInBulkError
                size += _kept([column[size : size + count] for column in found], keep)
                if size == room:
                    room += room // 2 + 1
                    found = [_larger(column, room) for column in found]
        return [column[:size] for column in found]

    def numbers(self, table: Stored, keys: tuple[str, str], number: str, rows: int) -> Iterator[tuple[I64, I64, F32]]:
        """Yield two columns of integers, as :meth:`whole` returns them, and one of any numbers, NaN for NULL.

        So many rows at once; the next ones overwrite these. Raises NotInBulkError, maybe after some.
        """
        first, second, values = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.float32)
        with self._reading(table, keys, number) as reader:
            total = 0
            while count := self._read(reader, [first, second, values]):
                total += count
                if total > self._most_rows:
                    raise NotInBulkError
                yield first[:count], second[:count], values[:count]

    @contextmanager
    def _reading(self, table: Stored, integers: Sequence[str], number: str | None) -> Iterator[int]:
        wanted = [*integers, *([number] if number else [])]
        if len(set(wanted)) < len(wanted) or not {*wanted} <= {*table.columns}:
            raise NotInBulkError
        slots = np.array([wanted.index(name) if name in wanted else -1 for name in table.columns], np.int32)
        kinds = np.array([name == number for name in wanted], np.int32)
        if number and table.alias >= 0 and table.columns[table.alias] == number:
            raise NotInBulkError
        bytes_ = os.fstat(self._handle).st_size
        reader = self._library.rows_begin(self._handle, bytes_, table.root, len(slots), slots.ctypes.data,
                                          len(kinds), kinds.ctypes.data, table.alias)  # fmt: skip
        if not reader:
            raise NotInBulkError
        try:
            yield reader
        finally:
            self._library.rows_end(reader)

    def _read(self, reader: int, into: list[Column]) -> int:
        """Fill arrays as far as there are rows; return how many. Raises NotInBulkError."""
        places = (_POINTER * len(into))(*(array.ctypes.data for array in into))
        count = int(self._library.rows_read(reader, len(into[0]), places))
        if count < 0:
            raise NotInBulkError
        return count


def open_plain(path: Path, most_rows: int, stack: ExitStack) -> PlainRows | None:
    """Open a database until ``stack`` closes; None without the library. Raises InputError where the system refuses."""
    library = _library()
    if not library:
        return None
    return PlainRows(library, stack.enter_context(open_input(path)).fileno(), most_rows)


def compiled_source() -> str:
    """Return the hash of the source that the library was made of; empty without it."""
    library = _library()
    return library.rows_source().decode() if library else ""


@cache
def _library() -> Any:
    return load_library(LIBRARY, _FUNCTIONS)


def _kept(columns: list[Column], keep: Keep | None) -> int:
    """Move the rows that are wanted to the front; return how many."""
    wanted = None if keep is None else keep(columns)
    if wanted is None or wanted.all():
        return len(columns[0])
    for column in columns:
        some = column[wanted]
        column[: len(some)] = some
    return len(some)


def _larger(column: Column, room: int) -> Column:
    larger = np.empty(room, column.dtype)
    larger[: len(column)] = column
    return larger
