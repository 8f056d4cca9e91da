"""CSV files of any version and condition to exact columns.

Plain files are read by compiled code, other healthy ones by Arrow, with explicit types. When a cell does not fit its
type the file is read again as text and each cell is judged alone. When rows are broken it is read line by line, and
every whole row is kept.
"""

from __future__ import annotations

import codecs
import csv
import ctypes
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial, reduce
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
from msgspec import Struct, field

from npuperf.base.errors import InputError
from npuperf.base.files import open_input, open_lines
from npuperf.base.loading import library_of, load_library
from npuperf.base.messages import Message, say, say_n, series, size
from npuperf.base.units import NS_PER_US
from npuperf.model.columns import ColumnNames, Kind, Place, locate, pmu_name
from npuperf.model.labels import F32, I64, Labels, Mask
from npuperf.model.tasks import NO_TIME, UNKNOWN
from npuperf.readers.cells import (
    NOTHING,
    TIME_TYPE,
    Cells,
    as_bytes,
    as_floats,
    as_integers,
    as_times,
    labels,
)
from npuperf.readers.log import ReadLog
from npuperf.readers.pieces import HEAD_BYTES, sniff
from npuperf.readers.plain_events import PiecedColumns

# -- Plain tables, by compiled code.
#
# Arrow makes a decimal or a double of each number, of which columns are made afterwards: that is most of what reading
# millions of rows takes, in time and in memory. The compiled reader (plain_rows.c) writes columns at once, in portions.
# It is made when npuperf is installed; what it does not take, Arrow does.

#: Kinds in the order of plain_rows.c; numbers that are no counts of anything are Arrow's.
_KINDS: Final = {Kind.TIME: 0, Kind.BYTES: 1, Kind.INT: 2, Kind.TEXT: 3}
#: Places for the words of a column in plain_rows.c, and bytes that we keep for them.
_WORDS: Final = 8192
_WORD_BYTES: Final = 1 << 18
#: Bytes of text that are read at once.
_PORTION: Final = 1 << 19


class _Wanted(ctypes.Structure):
    """What plain_rows.c calls Column."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("place", "kind", "scale")),
        *((name, ctypes.c_void_p) for name in ("numbers", "codes", "text", "ends", "table")),
        *((name, ctypes.c_int64) for name in ("count", "room", "needless")),
    )


_FUNCTIONS: Final = (
    ("rows_layout", ctypes.c_int64, ()),
    ("rows_word", ctypes.c_int32, (ctypes.POINTER(_Wanted), ctypes.c_char_p, ctypes.c_int64)),
    (
        "rows_read",
        ctypes.c_int64,
        (ctypes.c_void_p, ctypes.c_int64, ctypes.c_char, ctypes.c_int64, ctypes.POINTER(_Wanted), ctypes.c_int64,
         ctypes.c_int64),
    ),
)  # fmt: skip


@cache
def _library() -> Any:
    library = load_library(library_of(Path(__file__).with_name("plain_rows.c")), _FUNCTIONS)
    return library if library and library.rows_layout() == ctypes.sizeof(_Wanted) * _WORDS else None


def read_plain(
    path: Path,
    delimiter: str,
    width: int,
    wanted: Mapping[int, tuple[Kind, int | None]],
    needless: tuple[int, Sequence[str]] | None = None,
) -> dict[int, Any] | None:
    """Read columns of a table of ``width`` cells a row, below its header, by their places; None: it is not plain.

    ``wanted``: kind of each, and ns or bytes per unit. ``needless``: a place, and words there with which rows are left
    out. Times are ns (NO_TIME unknown), integers and bytes -1 where not known, texts Labels.
    """
    odd = (kind not in _KINDS or (kind is Kind.TIME and scale != NS_PER_US) for kind, scale in wanted.values())
    if _library() is None or width < 2 or delimiter == "\t" or not wanted or any(odd):
        return None
    reader = _PlainReader(delimiter, width, wanted, needless)
    with open_input(path) as file:
        return reader.columns() if reader.take_all(file) else None


class _PlainReader:
    """Takes the rows of a file, a portion at a time."""

    def __init__(
        self,
        delimiter: str,
        width: int,
        wanted: Mapping[int, tuple[Kind, int | None]],
        needless: tuple[int, Sequence[str]] | None,
    ) -> None:
        self._delimiter, self._width = delimiter.encode(), width
        self._places = sorted(wanted)
        self._most = 2 * _PORTION // width + 1
        self._whole = PiecedColumns()
        self._columns = (_Wanted * len(wanted))()
        self._parts: dict[int, Any] = {}
        self._words: dict[int, tuple[Any, ...]] = {}
        for column, place in zip(self._columns, self._places, strict=True):
            kind, scale = wanted[place]
            column.place, column.kind, column.scale = place, _KINDS[kind], scale or 1
            self._parts[place] = part = np.empty(self._most, np.int32 if kind is Kind.TEXT else np.int64)
            if kind is not Kind.TEXT:
                column.numbers = part.ctypes.data
                continue
            self._words[place] = text, ends, table = (
                np.empty(_WORD_BYTES, np.uint8), np.empty(_WORDS, np.int32), np.zeros(_WORDS, np.int32)
            )  # fmt: skip
            column.codes, column.text, column.room = part.ctypes.data, text.ctypes.data, len(text)
            column.ends, column.table = ends.ctypes.data, table.ctypes.data
            if needless and needless[0] == place:
                for word in needless[1]:
                    _library().rows_word(ctypes.byref(column), word.encode(), len(word.encode()))
                column.needless = column.count

    def take_all(self, file: io.FileIO) -> bool:
        """Take all rows below the header; False where something is not plain."""
        buffer, kept, header = bytearray(2 * _PORTION), 0, True
        view = memoryview(buffer)
        while size := file.readinto(view[kept : kept + _PORTION]):
            size, begin = size + kept, 0
            if header:
                begin, header = buffer.find(b"\n", 0, size) + 1, False
                if not begin or b'"' in buffer[:begin] or b"\r" in buffer[:begin].removesuffix(b"\r\n"):
                    return False
            whole = buffer.rfind(b"\n", 0, size) + 1
            kept = size - whole
            if kept > _PORTION or not self._take(buffer, begin, whole):
                return False
            view[:kept] = view[whole:size]
        buffer[kept : kept + 1] = b"\n"
        return not header and (not kept or self._take(buffer, 0, kept + 1))

    def _take(self, buffer: bytearray, begin: int, end: int) -> bool:
        """Take whole rows; False where something is not plain."""
        text = ctypes.c_char.from_buffer(buffer, begin)
        rows = _library().rows_read(
            ctypes.byref(text), end - begin, self._delimiter, self._width, self._columns, len(self._columns), self._most
        )
        if rows > 0:
            self._whole.add({str(place): part[:rows] for place, part in self._parts.items()})
        return bool(rows >= 0)

    def columns(self) -> dict[int, Any]:
        """Return the columns by place; afterwards they are gone here."""
        found: dict[int, Any] = {}
        for column, place in zip(self._columns, self._places, strict=True):
            values = self._whole.pop(str(place))
            if place not in self._words:
                found[place] = values.astype(np.int64, copy=False)
                continue
            text, ends, _ = self._words[place]
            borders = [0, *ends[: column.count].tolist()]
            letters = text.tobytes()
            spelled = [letters[a:b].decode() for a, b in pairwise(borders)]
            tidy = labels(pa.array(spelled, pa.string()))
            found[place] = Labels(np.append(tidy.codes, np.int32(-1))[values], tidy.names)
        return found


# -- Tables with broken rows, line by line: every whole row is kept.

_ROWS_AT_ONCE: Final = 50_000
#: No row is longer: an open quote must not swallow the rest of the file.
_LINES_OF_A_ROW: Final = 1000
#: No line is longer, in characters: of such a one the rest is stepped over.
_LONGEST_LINE: Final = 1 << 20
#: Rows that could not be used are told one by one as far as these go; the others are counted.
_TOLD: Final = 3


class Form(Struct, frozen=True):
    """How the rows of a table are written."""

    encoding: str
    delimiter: str
    width: int


def read_lines(path: Path, form: Form, wanted: Sequence[int], log: ReadLog) -> pa.Table:
    """Read line by line as text, and keep every row that is whole.

    A line that is a row on its own is one, whatever quote stands open before it; other lines are joined until
    their quotes close.
    """
    schema = pa.schema([(f"c{i}", pa.string()) for i in wanted])
    told: list[tuple[int, Message]] = []
    others = first = last = 0

    def lose(row: int, reason: Message) -> None:
        nonlocal others, first, last
        if len(told) < _TOLD:
            told.append((row, reason))
        else:
            others, first, last = others + 1, first or row, row

    rows = _rows(path, form, lose)
    parts = [schema.empty_table()]
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        parts.append(pa.table([pa.array([row[i] for row in some], pa.string()) for i in wanted], schema=schema))
    for number, reason in told:
        log.lose(path, 1, say("row {row}: {reason}", row=number, reason=reason))
    if others:
        log.lose(path, others, say("rows between {first} and {last}: damaged", first=first, last=last))
    return pa.concat_tables(parts)


def _rows(path: Path, form: Form, lose: Callable[[int, Message], None]) -> Iterator[list[str]]:
    """Yield the cells of whole rows; ``lose`` gets number (the header is row 1) and reason of the others."""
    width = form.width
    pending: list[str] = []
    first = quotes = 0
    with open_lines(path, form.encoding) as lines:
        for number in count(1):
            line = lines.readline(_LONGEST_LINE + 1)
            if not line:
                break
            rest = line
            while len(rest) > _LONGEST_LINE and not rest.endswith("\n"):
                rest = lines.readline(_LONGEST_LINE + 1)
            line = line if rest is not line else plain(line)
            if number == 1:
                continue
            if len(line) > _LONGEST_LINE:  # as far as it was read
                lose(number, say("longer than {n} characters", n=_LONGEST_LINE))
                continue
            cells, own = _cells(line, form), line.count('"')
            if len(cells) == width and own % 2 == 0:
                if pending:
                    lose(first, say("a quote is not closed"))
                    pending = []
                yield cells
                continue
            first, quotes = (first, quotes + own) if pending else (number, own)
            pending.append(line)
            if quotes % 2 and len(pending) < _LINES_OF_A_ROW and sum(map(len, pending)) < _LONGEST_LINE:
                continue
            cells = _cells("\n".join(pending), form)
            if len(cells) == width:
                yield cells
            elif any(part.strip() for part in pending):
                lose(first, say("{found} cells instead of {wanted}", found=len(cells), wanted=width))
            pending = []
    if pending:
        lose(first, say("the file ends inside a quote"))


def _cells(text: str, form: Form) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=form.delimiter), [])
    except csv.Error:
        return []


def plain(line: str) -> str:
    """Leave out what the csv module refuses inside a line."""
    return line.rstrip("\n").replace("\r", "").replace("\x00", "")


Column = I64 | F32 | Labels
A = TypeVar("A", I64, F32)

#: How Arrow reads the cells of healthy tables, and of others; which fits a processor's cache, and any row.
_TYPES: Final = {
    Kind.TIME: TIME_TYPE,
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.BYTES: pa.float64(),
    Kind.TEXT: pa.dictionary(pa.int32(), pa.string()),
}
_TEXTS: Final = dict.fromkeys(Kind, pa.string())
_BLOCK_BYTES, _LARGE_BLOCK_BYTES = 1 << 20, 8 << 20
#: Headers named in the message that one is missing.
_HEADERS_NAMED: Final = 8


class RowTable(Struct, frozen=True):
    """A CSV file as columns: ``times`` in ns (NO_TIME unknown), ``ints`` and bytes (-1 unknown), ``texts``, ``pmu``."""

    times: dict[str, I64]
    ints: dict[str, I64]
    texts: dict[str, Labels]
    pmu: dict[str, F32] = field(default_factory=dict)

    def __len__(self) -> int:
        for columns in (self.times, self.ints, self.texts):
            for column in columns.values():
                return len(column)
        return 0

    def filter(self, mask: Mask) -> RowTable:
        """Return the rows where ``mask`` holds."""
        rows = np.flatnonzero(mask)
        kinds: list[dict[str, Any]] = [self.times, self.ints, self.texts, self.pmu]
        return RowTable(*({name: column.take(rows) for name, column in columns.items()} for columns in kinds))


class _Layout(Struct, frozen=True):
    """The wanted columns of one file: position → (kind, our name)."""

    form: Form
    headers: list[str]
    places: dict[str, list[Place]]
    kinds: dict[str, Kind]
    pmu: dict[str, int]

    def wanted(self) -> dict[int, tuple[Kind, int | None]]:
        """Return the positions to read and how: the kind, and of times the ns per unit."""
        wanted = {p.index: (self.kinds[name], p.scale) for name, places in self.places.items() for p in places}
        return wanted | dict.fromkeys(self.pmu.values(), (Kind.FLOAT, None))


def read_table(
    path: Path,
    columns: tuple[ColumnNames, ...],
    required: tuple[str, ...],
    log: ReadLog,
    *,
    pmu: bool = False,
    needless: tuple[str, Sequence[str]] | None = None,
) -> RowTable:
    """Read the columns of ``columns`` (and the hardware counters, if ``pmu``) that ``path`` has.

    ``needless``: a column, and texts of it with which rows of healthy files need not be kept.
    Raises InputError when the file cannot be opened, is empty, or lacks a required column.
    """
    with open_input(path) as file:
        head = file.read(HEAD_BYTES)
        layout = _layout(path, head, columns, required, pmu)
    for name, places in layout.places.items():
        spelled = [layout.headers[p.index].strip() for p in places]
        if len(set(spelled)) < len(spelled):
            log.warn(say_n("{path}: column {header} appears {n} time; the first with data is used",
                           "{path}: column {header} appears {n} times; the first with data is used",
                           len(spelled), path=str(path), header=repr(spelled[0])))  # fmt: skip
        elif len(spelled) > 1 and name not in ("type", "core", "step"):
            log.warn(say("{path}: columns {headers} mean the same; {first} is used first",
                         path=str(path), headers=series(map(repr, spelled)), first=repr(spelled[0])))  # fmt: skip
    found = _read_plain(path, layout, needless)
    if found is None:
        found = _read_cells(path, layout, needless, log)
    with open_input(path) as file:
        size_ = file.seek(0, io.SEEK_END)
        file.seek(max(size_ - 1, 0))
        if size_ and file.read(1) not in (b"\n", b"\r", b"\x00"):
            log.warn(
                say("{path}: the last row has no line end; it was kept, but the file may be cut short", path=str(path))
            )
    rows = max(map(len, found.values()), default=0)
    # Where several columns mean the same, each cell is that of the first that has one.
    made: dict[Kind, dict[str, Any]] = {kind: {} for kind in Kind}
    for name, places in layout.places.items():
        kind, parts = layout.kinds[name], [found[p.index] for p in places]
        if kind is Kind.TEXT:
            made[kind][name] = reduce(Labels.fill, parts) if parts else Labels.missing(rows)
            continue
        missing = NO_TIME if kind is Kind.TIME else UNKNOWN
        whole = parts[0] if parts else np.full(rows, missing, np.int64)
        for more in parts[1:]:
            whole = np.where(whole == missing, more, whole)
        made[kind][name] = whole
    for name, i in layout.pmu.items():
        counter = found[i]
        endless = np.isinf(counter)  # no counter is: such a cell tells nothing
        if endless.any():
            Cells(path, layout.headers[i], log).bad(endless, counter)
            counter = np.where(endless, np.float32(np.nan), counter)
        if not np.isnan(counter).all():
            made[Kind.FLOAT][name] = counter
    return RowTable(made[Kind.TIME], made[Kind.INT] | made[Kind.BYTES], made[Kind.TEXT], made[Kind.FLOAT])


def _read_plain(path: Path, layout: _Layout, needless: tuple[str, Sequence[str]] | None) -> dict[int, Any] | None:
    """Read a table that is plain throughout; None for any other."""
    if layout.form.encoding != "utf-8":
        return None
    places = layout.places[needless[0]] if needless else []
    without = (places[0].index, needless[1]) if needless and places else None
    return read_plain(path, layout.form.delimiter, layout.form.width, layout.wanted(), without)


def _read_cells(
    path: Path, layout: _Layout, needless: tuple[str, Sequence[str]] | None, log: ReadLog
) -> dict[int, Any]:
    """Read with Arrow, cell by cell or row by row, as far as each is needed, and tell of what cannot be used."""
    table = _read_arrow(path, layout, _TYPES, _BLOCK_BYTES, needless)
    if table is None:
        table = _read_arrow(path, layout, _TEXTS, _LARGE_BLOCK_BYTES)
    if table is None:
        table = read_lines(path, layout.form, list(layout.wanted()), log)
    found: dict[int, Any] = {}
    for i, (kind, scale) in layout.wanted().items():
        cells = Cells(path, layout.headers[i], log)
        column, table = table.column(f"c{i}"), table.drop_columns(f"c{i}")  # Arrow's goes when ours is there
        if kind is Kind.TEXT:
            found[i] = labels(column)
        elif kind is Kind.TIME:
            found[i] = as_times(column, scale, cells)
        elif kind is Kind.BYTES:
            found[i] = as_bytes(column, scale or 1, cells)
        else:
            found[i] = (as_integers if kind is Kind.INT else as_floats)(column, cells)
        del column
    pa.default_memory_pool().release_unused()
    return found


def sniff_headers(path: Path) -> list[str]:
    """Return the header cells of a CSV file; an empty list for an empty file."""
    return _first_row(sniff(path, lambda head: b"\n" in head))[0]


def _first_row(head: bytes) -> tuple[list[str], str]:
    text = head.decode(_encoding(head), errors="replace").lstrip("\ufeff")
    line = plain(text.split("\n", 1)[0])
    delimiter = next((d for d in (",", ";", "\t") if d in line), ",")
    return next(csv.reader([line], delimiter=delimiter), []), delimiter


def _encoding(head: bytes) -> str:
    """Tell UTF-16 (spreadsheets' "Unicode text") from UTF-8."""
    return "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"


def _layout(path: Path, head: bytes, columns: tuple[ColumnNames, ...], required: tuple[str, ...], pmu: bool) -> _Layout:
    """Find the wanted columns. Raises InputError where there is no table, or one without a required column."""
    headers, delimiter = _first_row(head)
    if not headers:
        raise InputError(say("{path}: row 1: the file is empty", path=str(path)))
    if len(head) == HEAD_BYTES and b"\n" not in head:
        raise InputError(say("{path}: row 1: not a table: its header is longer than {size}",
                             path=str(path), size=size(HEAD_BYTES)))  # fmt: skip
    places = locate(headers, columns)
    taken = {p.index for found in places.values() for p in found}
    counters: dict[str, int] = {}
    if pmu:
        for i, header in enumerate(headers):
            name = pmu_name(header)
            if name and i not in taken:
                counters.setdefault(name, i)
    missing = [c.headers[0].title() for c in columns if c.name in required and not places[c.name]]
    if missing and not all(h.strip().isprintable() and "\ufffd" not in h for h in headers):
        raise InputError(say("{path}: row 1: not a table: its header is not text", path=str(path)))
    if missing:
        more = ["…"] if len(headers) > _HEADERS_NAMED else []
        shown = series([*(repr(h.strip()) for h in headers[:_HEADERS_NAMED]), *more])
        what = say("{path}: row 1: no column {missing} among {headers}",
                   path=str(path), missing=series(map(repr, missing)), headers=shown)  # fmt: skip
        hint = say("where this is another kind of table: those that are read are kernel_details.csv, op_summary*.csv "
                   "and step_trace_time.csv, beside what lies in their folder")  # fmt: skip
        raise InputError(what, hint=hint)
    form = Form(_encoding(head), delimiter, len(headers))
    return _Layout(form, headers, places, {c.name: c.kind for c in columns}, counters)


def _read_arrow(
    path: Path,
    layout: _Layout,
    types: Mapping[Kind, pa.DataType],
    block: int,
    needless: tuple[str, Sequence[str]] | None = None,
) -> pa.Table | None:
    """Read in blocks; None where a cell is not of its type, a row does not fit, or rows hide in one another's cells."""
    if layout.form.encoding != "utf-8":
        return None
    wanted = {f"c{i}": types[kind] for i, (kind, _) in layout.wanted().items()}
    names = [f"c{i}" for i in range(layout.form.width)]

    def read(handle: int) -> pa.Table:
        with pa.OSFile(f"/dev/fd/{handle}") as source:
            return pv.read_csv(
                source,
                parse_options=pv.ParseOptions(newlines_in_values=True, delimiter=layout.form.delimiter),
                convert_options=pv.ConvertOptions(
                    column_types=wanted,
                    include_columns=list(wanted),
                    null_values=[*NOTHING],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                ),
                read_options=pv.ReadOptions(column_names=names, skip_rows=1, block_size=block, use_threads=False),
            )

    try:
        # Arrow reads ahead on a thread of its own, which must have nothing of Python's: should a cell be odd, Arrow
        # waits for it with Python's lock in hand. On the main thread it would listen to Ctrl-C, by one more thread, and
        # end the process where that is refused. Read batch by batch (open_csv), it waits for ever where one is.
        with open_input(path) as file, ThreadPoolExecutor(1) as beside:
            table = beside.submit(read, file.fileno()).result()
            file.seek(0)
            newlines = sum(portion.count(b"\n") for portion in iter(partial(file.read, _PORTION), b""))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        if "Could not skip initial" not in str(error):
            return None
        return pa.table({name: pa.array([], type_) for name, type_ in wanted.items()})  # a header without a line end
    if newlines > len(table) + 1:
        return None
    places = layout.places[needless[0]] if needless else []
    if needless and places:
        table = table.filter(pc.invert(pc.is_in(table.column(f"c{places[0].index}"), pa.array(needless[1]))))
    return table
