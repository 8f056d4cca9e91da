"""Tables to columns by compiled code, as long as their lines and cells are plain: Arrow makes cells of every column.

Compiled (plain_cells.c) when npuperf is installed. What is not plain, and everything where there was no compiler, is
read by Arrow (:mod:`npuperf.readers.table`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from npuperf.base.compiled import library_of, load_library
from npuperf.base.units import NS_PER_US
from npuperf.model.columns import Kind
from npuperf.model.labels import F32, I32, I64, Labels
from npuperf.readers.cells import NOTHING, tidy_labels

#: Where the library is, if it is.
LIBRARY: Final = library_of(Path(__file__))
_POINTER, _SIZE, _NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
_FUNCTIONS: Final = (
    ("cells_source", ctypes.c_char_p, ()),
    ("cells_begin", _POINTER, (_NUMBER, _POINTER, ctypes.c_char, ctypes.c_uint64)),
    ("cells_read", _SIZE, (_POINTER, ctypes.c_char_p, _SIZE, _SIZE, _POINTER)),
    ("cells_count", _SIZE, (_POINTER, _NUMBER)),
    ("cells_words", _POINTER, (_POINTER, _NUMBER, _SIZE, _POINTER)),
    ("cells_end", None, (_POINTER,)),
)
#: Kinds as plain_cells.c numbers them, and how their columns are kept.
_KINDS: Final = {
    Kind.TIME: (1, np.int64),
    Kind.INT: (2, np.int64),
    Kind.FLOAT: (3, np.float32),
    Kind.TEXT: (4, np.int32),
}
#: A block fits into a processor's cache.
_BLOCK_BYTES: Final = 1 << 18

#: The columns to read, by their places: the kind, and of times the ns per unit.
Wanted = Mapping[int, tuple[Kind, int | None]]


def read_plain(
    read: Callable[[int], bytes], wanted: Wanted, width: int, delimiter: str, rows: int
) -> dict[int, I64 | F32 | Labels] | None:
    """Read the table that ``read`` gives so many bytes of; None where something is not plain, or it has no rows.

    ``width``: how many columns it has; ``rows``: about so many.
    """
    library = _library()
    if not library or any(kind is Kind.TIME and scale != NS_PER_US for kind, scale in wanted.values()):
        return None
    kinds = np.zeros(width, np.int32)
    for place, (kind, _) in wanted.items():
        kinds[place] = _KINDS[kind][0]
    seed = int.from_bytes(os.urandom(8), "little")
    cells = library.cells_begin(width, kinds.ctypes.data, delimiter.encode(), seed)
    if not cells:
        raise MemoryError
    try:
        columns = {place: np.empty(rows, _KINDS[kind][1]) for place, (kind, _) in wanted.items()}
        size = _read_lines(library, cells, read, columns, width)
        if not size:
            return None
        return {at: _labels(library, cells, at, column[:size]) if wanted[at][0] is Kind.TEXT else column[:size]
                for at, column in columns.items()}  # fmt: skip
    except UnicodeDecodeError:
        return None
    finally:
        library.cells_end(cells)


def _read_lines(
    library: Any, cells: int, read: Callable[[int], bytes], columns: dict[int, npt.NDArray[Any]], width: int
) -> int:
    """Fill the columns; return the number of rows, 0 where something is not plain."""
    head, _, rest = _with_line(read).partition(b"\n")
    if head.count(b'"') % 2 or b"\r" in head[:-1]:
        return 0
    size = 0
    places = (_POINTER * width)()
    _make_room(columns, places, 0, 0)
    for block in iter(lambda: read(_BLOCK_BYTES), b""):
        end = block.rfind(b"\n") + 1
        if not end:
            rest += block
            continue
        size = _add(library, cells, b"".join((rest, memoryview(block)[:end])), columns, size, places)
        if size < 0:
            return 0
        rest = block[end:]
    if not rest:
        return size
    return max(_add(library, cells, rest if rest.endswith(b"\n") else rest + b"\n", columns, size, places), 0)


def _with_line(read: Callable[[int], bytes]) -> bytes:
    """Return the first bytes, up to the first line's end or beyond."""
    found = read(_BLOCK_BYTES)
    while b"\n" not in found and (more := read(_BLOCK_BYTES)):
        found += more
    return found


def _add(library: Any, cells: int, lines: bytes, columns: dict[int, npt.NDArray[Any]], size: int, places: Any) -> int:
    """Append whole lines; return how many rows there are now, -1 where something is not plain."""
    most = size + len(lines) // len(places) + 1  # a line has a character per column
    if any(most > len(column) for column in columns.values()):
        _make_room(columns, places, size, 2 * most)
    count = int(library.cells_read(cells, lines, len(lines), size, places))
    return size + count if count >= 0 else -1


def _make_room(columns: dict[int, npt.NDArray[Any]], places: Any, size: int, rows: int) -> None:
    """Make room for so many rows, of which ``size`` are there, and say in ``places`` where columns are."""
    for at, column in columns.items():
        if rows > len(column):
            columns[at] = np.empty(rows, column.dtype)
            columns[at][:size] = column[:size]
        places[at] = columns[at].ctypes.data


def _labels(library: Any, cells: int, at: int, codes: I32) -> Labels:
    """Return a column of texts. Raises UnicodeDecodeError where one is none."""
    count = int(library.cells_count(cells, at))
    ends = np.empty(count, np.int64)
    where = library.cells_words(cells, at, 0, ends.ctypes.data)
    text = ctypes.string_at(where, int(ends[-1]))
    words = [_word(text[begin:end]) for begin, end in zip([0, *ends.tolist()], ends.tolist(), strict=False)]
    return tidy_labels(codes, words)


def _word(spelled: bytes) -> str | None:
    if spelled.startswith(b'"'):
        spelled = spelled[1:-1].replace(b'""', b'"')
    word = spelled.decode()
    return None if word in NOTHING else word


def compiled_source() -> str:
    """Return the hash of the source that the library was made of; empty without it."""
    library = _library()
    return library.cells_source().decode() if library else ""


@cache
def _library() -> Any:
    return load_library(LIBRARY, _FUNCTIONS)
