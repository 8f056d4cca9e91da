"""CSV files of any version and condition to exact columns.

Healthy files take the fast path, which reads every byte once, in batches, with explicit types. When a cell does not fit
its type the file is read again as text and each cell is judged alone. When rows are broken it is read line by line, and
every whole row is kept.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
from msgspec import Struct, field

from npuperf.base.errors import InputError
from npuperf.base.files import open_input, open_lines
from npuperf.base.messages import Message, say, say_n, series, size
from npuperf.model.columns import ColumnNames, Kind, Place, locate, pmu_name
from npuperf.model.labels import F32, I64, Labels, Mask
from npuperf.model.tasks import NO_TIME, UNKNOWN
from npuperf.readers.cells import (
    NOTHING,
    TIME_TYPE,
    Cells,
    as_floats,
    as_integers,
    as_times,
    labels,
)
from npuperf.readers.log import ReadLog
from npuperf.readers.pieces import HEAD_BYTES, sniff

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
    names = [f"c{i}" for i in wanted]
    parts = [pa.table({name: pa.array([], pa.string()) for name in names})]
    losses = _Losses(path, log)
    rows: list[list[str]] = []
    for row in _rows(path, form, losses):
        rows.append([row[i] for i in wanted])
        if len(rows) == _ROWS_AT_ONCE:
            parts.append(_text_table(names, rows))
            rows = []
    losses.report()
    return pa.concat_tables([*parts, _text_table(names, rows)])


def _text_table(names: list[str], rows: list[list[str]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})


class _Losses(Struct):
    """Rows that could not be used: the first few one by one, of the rest how many, the first and the last."""

    path: Path
    log: ReadLog
    told: list[tuple[int, Message]] = field(default_factory=list)
    others: int = 0
    first: int = 0
    last: int = 0

    def add(self, row: int, reason: Message) -> None:
        """Note one row (1-based, the header is row 1)."""
        if len(self.told) < _TOLD:
            self.told.append((row, reason))
            return
        self.first = self.first or row
        self.others, self.last = self.others + 1, row

    def report(self) -> None:
        """Put what was noted into the log."""
        for row, reason in self.told:
            self.log.lose(self.path, 1, say("row {row}: {reason}", row=row, reason=reason))
        if self.others:
            reason = say("rows between {first} and {last}: damaged", first=self.first, last=self.last)
            self.log.lose(self.path, self.others, reason)


def _rows(path: Path, form: Form, losses: _Losses) -> Iterator[list[str]]:
    width = form.width
    pending: list[str] = []
    first = quotes = 0
    with open_lines(path, form.encoding) as lines:
        for number, line in enumerate(_lines(lines), 1):
            if number == 1:
                continue
            if len(line) > _LONGEST_LINE:  # as far as it was read
                losses.add(number, say("longer than {n} characters", n=_LONGEST_LINE))
                continue
            cells, own = _cells(line, form), line.count('"')
            if len(cells) == width and own % 2 == 0:
                if pending:
                    losses.add(first, say("a quote is not closed"))
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
                losses.add(first, say("{found} cells instead of {wanted}", found=len(cells), wanted=width))
            pending = []
    if pending:
        losses.add(first, say("the file ends inside a quote"))


def _lines(file: TextIO) -> Iterator[str]:
    """Yield lines without what the csv module refuses; of a line that is too long no more than shows that."""
    while line := file.readline(_LONGEST_LINE + 1):
        rest = line
        while len(rest) > _LONGEST_LINE and not rest.endswith("\n"):
            rest = file.readline(_LONGEST_LINE + 1)
        yield line if rest is not line else plain(line)


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
    Kind.TEXT: pa.dictionary(pa.int32(), pa.string()),
}
_TEXTS: Final = dict.fromkeys(Kind, pa.string())
_BLOCK_BYTES, _LARGE_BLOCK_BYTES = 1 << 20, 8 << 20
#: Headers named in the message that one is missing.
_HEADERS_NAMED: Final = 8


class RowTable(Struct, frozen=True):
    """A CSV file as columns: ``times`` in ns (NO_TIME unknown), ``ints`` (-1 unknown), ``texts``, ``pmu``."""

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
        texts = {name: column.take(rows) for name, column in self.texts.items()}
        return RowTable(_taken(self.times, rows), _taken(self.ints, rows), texts, _taken(self.pmu, rows))


def _taken(columns: dict[str, A], rows: I64) -> dict[str, A]:
    return {name: column[rows] for name, column in columns.items()}


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
    path: Path, columns: tuple[ColumnNames, ...], required: tuple[str, ...], log: ReadLog, *, pmu: bool = False
) -> RowTable:
    """Read the columns of ``columns`` (and the hardware counters, if ``pmu``) that ``path`` has.

    Raises InputError when the file cannot be opened, is empty, or lacks a required column.
    """
    with open_input(path) as file:
        head = file.read(HEAD_BYTES)
        layout = _layout(path, head, columns, pmu)
        _check(path, layout, [c.headers[0] for c in columns if c.name in required and not layout.places[c.name]])
        _warn_duplicates(path, layout, log)
    table = _read_arrow(path, layout, _TYPES, _BLOCK_BYTES)
    if table is None:
        table = _read_arrow(path, layout, _TEXTS, _LARGE_BLOCK_BYTES)
    if table is None:
        table = read_lines(path, layout.form, list(layout.wanted()), log)
    if not _ends_with_newline(path):
        log.warn(
            say("{path}: the last row has no line end; it was kept, but the file may be cut short", path=str(path))
        )
    found: dict[int, Column] = {}
    for i, (kind, scale) in layout.wanted().items():
        cells = Cells(path, layout.headers[i], log)
        column, table = table.column(f"c{i}"), table.drop_columns(f"c{i}")  # Arrow's goes when ours is there
        if kind is Kind.TEXT:
            found[i] = labels(column)
        elif kind is Kind.TIME:
            found[i] = as_times(column, scale, cells)
        else:
            found[i] = (as_integers if kind is Kind.INT else as_floats)(column, cells)
        del column
    pa.default_memory_pool().release_unused()
    return _to_table(found, layout, path, log)


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


def _layout(path: Path, head: bytes, columns: tuple[ColumnNames, ...], pmu: bool) -> _Layout:
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
    form = Form(_encoding(head), delimiter, len(headers))
    return _Layout(form, headers, places, {c.name: c.kind for c in columns}, counters)


def _check(path: Path, layout: _Layout, missing: list[str]) -> None:
    """Refuse a table without the columns it must have."""
    if not missing:
        return
    if not all(h.strip().isprintable() and "\ufffd" not in h for h in layout.headers):
        raise InputError(say("{path}: row 1: not a table: its header is not text", path=str(path)))
    more = ["…"] if len(layout.headers) > _HEADERS_NAMED else []
    raise InputError(
        say(
            "{path}: row 1: no column {missing} among {headers}",
            path=str(path),
            missing=series(map(repr, missing)),
            headers=series([*(repr(h.strip()) for h in layout.headers[:_HEADERS_NAMED]), *more]),
        )
    )


def _warn_duplicates(path: Path, layout: _Layout, log: ReadLog) -> None:
    for name, places in layout.places.items():
        spelled = [layout.headers[p.index].strip() for p in places]
        if len(set(spelled)) < len(spelled):
            log.warn(say_n("{path}: column {header} appears {n} time; the first with data is used",
                           "{path}: column {header} appears {n} times; the first with data is used",
                           len(spelled), path=str(path), header=repr(spelled[0])))  # fmt: skip
        elif len(spelled) > 1 and name not in ("type", "core", "step"):
            log.warn(say("{path}: columns {headers} mean the same; {first} is used first",
                         path=str(path), headers=series(map(repr, spelled)), first=repr(spelled[0])))  # fmt: skip


class _Stream:
    """A table as pyarrow reads it, from front to end, while its line ends are counted."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.newlines = 0

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, fewer at the end."""
        block = self._file.read(size)
        self.newlines += block.count(b"\n")
        return block


def _read_arrow(path: Path, layout: _Layout, types: Mapping[Kind, pa.DataType], block: int) -> pa.Table | None:
    """Read in blocks; None where a cell is not of its type, a row does not fit, or rows hide in one another's cells."""
    if layout.form.encoding != "utf-8":
        return None
    wanted = {f"c{i}": types[kind] for i, (kind, _) in layout.wanted().items()}
    names = [f"c{i}" for i in range(layout.form.width)]
    try:
        with open_input(path) as file:
            stream = _Stream(file)
            table = pv.read_csv(
                stream,
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
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        if "Could not skip initial" not in str(error):
            return None
        table = pa.table({name: pa.array([], type_) for name, type_ in wanted.items()})  # a header without a line end
    return table if stream.newlines <= table.num_rows + 1 else None


def _ends_with_newline(path: Path) -> bool:
    with open_input(path) as file:
        if file.seek(0, io.SEEK_END) == 0:
            return True
        file.seek(-1, io.SEEK_END)
        return file.read(1) in (b"\n", b"\r", b"\x00")


def _to_table(columns: dict[int, Any], layout: _Layout, path: Path, log: ReadLog) -> RowTable:
    """Put columns under our names; where several mean the same, each cell is that of the first that has one."""
    rows = max(map(len, columns.values()), default=0)
    times: dict[str, I64] = {}
    ints: dict[str, I64] = {}
    texts: dict[str, Labels] = {}
    for name, places in layout.places.items():
        parts = [columns[p.index] for p in places]
        if layout.kinds[name] is Kind.TEXT:
            texts[name] = reduce(Labels.fill, parts) if parts else Labels.missing(rows)
        elif layout.kinds[name] is Kind.TIME:
            times[name] = _first_known(parts, NO_TIME, rows)
        else:
            ints[name] = _first_known(parts, UNKNOWN, rows)
    pmu: dict[str, F32] = {}
    for name, i in layout.pmu.items():
        endless = np.isinf(columns[i])  # no counter is: such a cell tells nothing
        if endless.any():
            Cells(path, layout.headers[i], log).bad(endless, columns[i])
            columns[i] = np.where(endless, np.float32(np.nan), columns[i])
        if not np.isnan(columns[i]).all():
            pmu[name] = columns[i]
    return RowTable(times, ints, texts, pmu)


def _first_known(parts: list[I64], missing: int, rows: int) -> I64:
    if not parts:
        return np.full(rows, missing, np.int64)
    return reduce(lambda known, more: np.where(known == missing, more, known), parts)
