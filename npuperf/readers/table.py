"""CSV files of any version and condition to exact columns.

Healthy files take the fast path, which reads every byte once, in batches, with explicit types. When a cell does not fit
its type the file is read again as text and each cell is judged alone. When rows are broken it is read line by line, and
every whole row is kept.
"""

from __future__ import annotations

import codecs
import csv
import io
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
from msgspec import Struct, field

from npuperf.errors import InputError
from npuperf.files import open_input
from npuperf.messages import say, say_n, series, size
from npuperf.model.columns import ColumnNames, Kind, Place, locate, pmu_name
from npuperf.model.labels import F32, I64, Labels, Mask
from npuperf.model.tasks import NO_TIME, UNKNOWN
from npuperf.readers.cells import NOTHING, Cells, as_floats, as_integers, as_times, coalesce, first_text, labels
from npuperf.readers.growing import growing
from npuperf.readers.lines import Form, plain, read_lines
from npuperf.readers.log import ReadLog
from npuperf.readers.unpack import HEAD_BYTES, sniff

Column = I64 | F32 | Labels
A = TypeVar("A", I64, F32)

#: Times stay text: so they are exact, and faster to convert than decimals are to parse.
_TYPES: Final = {
    Kind.TIME: pa.string(),
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.TEXT: pa.dictionary(pa.int32(), pa.string()),
}
#: Blocks that fit into a processor's cache are parsed fastest; rows longer than one are left to the second path.
_BATCH_BYTES: Final = 1 << 20
_BLOCK_BYTES: Final = 8 << 20
_ROWS_EXPECTED: Final = 1 << 21
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
        rows = _expected_rows(head, path)
        file.seek(0)
        found = _read_plain(file, layout, rows)
        if found is None:
            file.seek(0)
            found = _read_batches(_Stream(file), layout, rows)
    text = None
    if found is None:  # a cell does not fit its type
        with open_input(path) as file:
            text = _read_text(_Stream(file), layout)
        if text is None:
            text = read_lines(path, layout.form, list(layout.wanted()), log)
    if not _ends_with_newline(path):
        log.warn(
            say("{path}: the last row has no line end; it was kept, but the file may be cut short", path=str(path))
        )
    if text is not None:
        found = _judged(path, text, layout, log)
    del text
    pa.default_memory_pool().release_unused()
    return _to_table(found or {}, layout, path, log)


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


def _options(layout: _Layout, types: dict[str, pa.DataType], block: int, *, newlines: bool) -> dict[str, Any]:
    names = [f"c{i}" for i in range(len(layout.headers))]
    return {
        "parse_options": pv.ParseOptions(newlines_in_values=newlines, delimiter=layout.form.delimiter),
        "convert_options": pv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[*NOTHING],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
        "read_options": pv.ReadOptions(column_names=names, skip_rows=1, block_size=block),
    }


def _expected_rows(head: bytes, path: Path) -> int:
    """Estimate the number of rows from those in the file's head: rather too many, but never absurdly many."""
    return min(path.stat().st_size * (head.count(b"\n") + 1) * 9 // (len(head) * 8), _ROWS_EXPECTED)


def _read_plain(file: BinaryIO, layout: _Layout, rows: int) -> dict[int, Column] | None:
    """Read by compiled code; None where that cannot be."""
    from npuperf.readers.plain_cells import read_plain  # a database has no table

    if layout.form.encoding != "utf-8":
        return None
    return read_plain(file.read, layout.wanted(), layout.form.width, layout.form.delimiter, rows)


def _read_batches(stream: _Stream, layout: _Layout, rows: int) -> dict[int, Column] | None:
    """Read in one go; None where a row or a cell does not fit, or rows hide in one another's cells."""
    if layout.form.encoding != "utf-8":
        return None
    wanted = layout.wanted()
    columns = {i: growing(kind, scale, rows) for i, (kind, scale) in wanted.items()}
    types = {f"c{i}": _TYPES[kind] for i, (kind, _) in wanted.items()}
    read = 0
    try:
        with pv.open_csv(stream, **_options(layout, types, _BATCH_BYTES, newlines=False)) as batches:
            for batch in batches:
                read += batch.num_rows
                if not all(column.add(cells) for column, cells in zip(columns.values(), batch.columns, strict=True)):
                    return None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None
    return {i: column.whole() for i, column in columns.items()} if stream.newlines <= read + 1 else None


def _read_text(stream: _Stream, layout: _Layout) -> pa.Table | None:
    """Read as text in one go; None where a row does not fit, or rows hide in one another's cells."""
    if layout.form.encoding != "utf-8":
        return None
    types = {f"c{i}": pa.string() for i in layout.wanted()}
    try:
        table = pv.read_csv(stream, **_options(layout, types, _BLOCK_BYTES, newlines=True))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        if "Could not skip initial" not in str(error):
            return None
        table = pa.table({name: pa.array([], type_) for name, type_ in types.items()})  # a header without a line end
    return table if stream.newlines <= table.num_rows + 1 else None


def _ends_with_newline(path: Path) -> bool:
    with open_input(path) as file:
        if file.seek(0, io.SEEK_END) == 0:
            return True
        file.seek(-1, io.SEEK_END)
        return file.read(1) in (b"\n", b"\r", b"\x00")


def _judged(path: Path, text: pa.Table, layout: _Layout, log: ReadLog) -> dict[int, Column]:
    """Convert columns of text cell by cell."""
    columns: dict[int, Column] = {}
    for i, (kind, scale) in layout.wanted().items():
        cells = Cells(path, layout.headers[i], log)
        column = text.column(f"c{i}")
        if kind is Kind.TEXT:
            columns[i] = labels(column)
        elif kind is Kind.TIME:
            columns[i] = as_times(column, scale, cells)
        else:
            columns[i] = (as_integers if kind is Kind.INT else as_floats)(column, cells)
    return columns


def _to_table(columns: dict[int, Any], layout: _Layout, path: Path, log: ReadLog) -> RowTable:
    """Put columns under our names; where several mean the same, each cell is that of the first that has one."""
    rows = max(map(len, columns.values()), default=0)
    times: dict[str, I64] = {}
    ints: dict[str, I64] = {}
    texts: dict[str, Labels] = {}
    for name, places in layout.places.items():
        kind = layout.kinds[name]
        parts = [columns[p.index] for p in places]
        if kind is Kind.TEXT:
            texts[name] = first_text(parts, rows)
        elif kind is Kind.TIME:
            times[name] = coalesce(parts, NO_TIME, rows)
        else:
            ints[name] = coalesce(parts, UNKNOWN, rows)
    pmu = {name: _finite(columns[i], Cells(path, layout.headers[i], log)) for name, i in layout.pmu.items()}
    return RowTable(times, ints, texts, {k: v for k, v in pmu.items() if not np.isnan(v).all()})


def _finite(values: F32, cells: Cells) -> F32:
    """No counter is infinite: such a cell tells nothing."""
    endless = np.isinf(values)
    if not endless.any():
        return values
    cells.bad(endless, values)
    return np.where(endless, np.float32(np.nan), values)
