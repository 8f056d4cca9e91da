"""CSV files of any version and condition to exact columns.

Healthy files take the fast path, which reads every byte once: pyarrow with explicit types, so that 16-digit epochs
stay exact. When a cell does not fit its type the file is read again as text and each cell is judged alone. When rows
are broken it is read line by line, and every whole row is kept.
"""

from __future__ import annotations

import codecs
import csv
import decimal
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from npuperf.errors import InputError, unreadable
from npuperf.messages import Message, say, say_n, series
from npuperf.model.columns import NULLS, UNSET_INTS, Column, Kind, Place, locate, pmu_name
from npuperf.model.labels import F32, I64, Labels, Mask
from npuperf.model.tasks import NO_TIME, UNKNOWN
from npuperf.readers.log import ReadLog
from npuperf.readers.unpack import HEAD_BYTES, sniff

_TIME_TYPE: Final = pa.decimal128(30, 6)
_TYPES: Final = {
    Kind.TIME: _TIME_TYPE,
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.TEXT: pa.dictionary(pa.int32(), pa.string()),
}
_ROWS_AT_ONCE: Final = 50_000
#: No row is longer: an open quote must not swallow the rest of the file.
_LINES_OF_A_ROW: Final = 1000
#: Times beyond this many ns (the year 2096) are damage; differences of sane ones fit into 64 bits.
_LATEST: Final = decimal.Decimal(4 * 10**18)
_BLOCK_BYTES: Final = 8 << 20
#: Headers named in the message that one is missing.
_HEADERS_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class Table:
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


@dataclass(frozen=True, slots=True)
class _Layout:
    """The wanted columns of one file: position → (kind, our name)."""

    encoding: str
    headers: list[str]
    places: dict[str, list[Place]]
    kinds: dict[str, Kind]
    pmu: dict[str, int]
    delimiter: str

    def wanted(self) -> dict[int, Kind]:
        """Return the positions to read and how."""
        wanted = {p.index: self.kinds[name] for name, places in self.places.items() for p in places}
        return wanted | dict.fromkeys(self.pmu.values(), Kind.FLOAT)


def read_table(
    path: Path, columns: tuple[Column, ...], required: tuple[str, ...], log: ReadLog, *, pmu: bool = False
) -> Table:
    """Read the columns of ``columns`` (and the hardware counters, if ``pmu``) that ``path`` has.

    Raises InputError when the file cannot be opened, is empty, or lacks a required column.
    """
    with _opened(path) as file:
        head = file.read(HEAD_BYTES)
        layout = _layout(path, head, columns, pmu)
        _check(path, layout, [c.headers[0] for c in columns if c.name in required and not layout.places[c.name]])
        _warn_duplicates(path, layout, log)
        arrow = _read_fast(_Stream(file, head), layout, typed=True)
    if arrow is None:  # a cell does not fit its type
        with _opened(path) as file:
            arrow = _read_fast(_Stream(file), layout, typed=False)
    if arrow is None:
        arrow = _read_lines(path, layout, log)
    if not _ends_with_newline(path):
        log.warn(
            say("{path}: the last row has no line end; it was kept, but the file may be cut short", path=str(path))
        )
    table = _to_table(path, arrow, layout, log)
    del arrow
    pa.default_memory_pool().release_unused()
    return table


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise unreadable(path, error) from error


def sniff_headers(path: Path) -> list[str]:
    """Return the header cells of a CSV file; an empty list for an empty file."""
    return _first_row(sniff(path, lambda head: b"\n" in head))[0]


def _first_row(head: bytes) -> tuple[list[str], str]:
    text = head.decode(_encoding(head), errors="replace").lstrip("\ufeff")
    line = _plain(text.split("\n", 1)[0])
    delimiter = next((d for d in (",", ";", "\t") if d in line), ",")
    return next(csv.reader([line], delimiter=delimiter), []), delimiter


def _plain(line: str) -> str:
    """Leave out what the csv module refuses inside a line."""
    return line.rstrip("\n").replace("\r", "").replace("\x00", "")


def _encoding(head: bytes) -> str:
    """Tell UTF-16 (spreadsheets' "Unicode text") from UTF-8."""
    return "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"


def _layout(path: Path, head: bytes, columns: tuple[Column, ...], pmu: bool) -> _Layout:
    headers, delimiter = _first_row(head)
    if not headers:
        raise InputError(say("{path}: row 1: the file is empty", path=str(path)))
    places = locate(headers, columns)
    taken = {p.index for found in places.values() for p in found}
    counters: dict[str, int] = {}
    if pmu:
        for i, header in enumerate(headers):
            name = pmu_name(header)
            if name and i not in taken:
                counters.setdefault(name, i)
    return _Layout(_encoding(head), headers, places, {c.name: c.kind for c in columns}, counters, delimiter)


def _check(path: Path, layout: _Layout, missing: list[str]) -> None:
    """Refuse a table without the columns it must have."""
    if not missing:
        return
    if not all(h.strip().isprintable() and "\ufffd" not in h for h in layout.headers):
        raise InputError(say("{path}: row 1: not a table: its header is no text", path=str(path)))
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
            log.warn(
                say_n(
                    "{path}: column {header} stands there {n} time; the first with data is used",
                    "{path}: column {header} stands there {n} times; the first with data is used",
                    len(spelled),
                    path=str(path),
                    header=repr(spelled[0]),
                )
            )
        elif len(spelled) > 1 and name not in ("type", "core", "step"):
            log.warn(
                say(
                    "{path}: columns {headers} mean the same; {first} is used first",
                    path=str(path),
                    headers=series(map(repr, spelled)),
                    first=repr(spelled[0]),
                )
            )


class _Stream:
    """A table as pyarrow reads it, from front to end, while its line ends are counted. ``head``: read before."""

    closed = False

    def __init__(self, file: BinaryIO, head: bytes = b"") -> None:
        self._file = file
        self._head = head
        self.newlines = 0

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, fewer at the end."""
        head, self._head = self._head[:size], self._head[size:]
        block = head + self._file.read(size - len(head))
        self.newlines += block.count(b"\n")
        return block


def _options(layout: _Layout, types: dict[str, pa.DataType]) -> dict[str, Any]:
    names = [f"c{i}" for i in range(len(layout.headers))]
    return {
        "parse_options": pv.ParseOptions(newlines_in_values=True, delimiter=layout.delimiter),
        "convert_options": pv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[*NULLS, "N/A\t", "\t"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
        "read_options": pv.ReadOptions(column_names=names, skip_rows=1, block_size=_BLOCK_BYTES),
    }


def _read_fast(stream: _Stream, layout: _Layout, *, typed: bool) -> pa.Table | None:
    """Read in one go; None where a row or (``typed``) a cell does not fit, or rows hide in one another's cells."""
    if layout.encoding != "utf-8":
        return None
    types = {f"c{i}": _TYPES[kind] if typed else pa.string() for i, kind in layout.wanted().items()}
    try:
        table = pv.read_csv(stream, **_options(layout, types))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        if "Could not skip initial" not in str(error):
            return None
        table = pa.table({name: pa.array([], type_) for name, type_ in types.items()})  # a header without a line end
    return table if stream.newlines <= table.num_rows + 1 else None


def _read_lines(path: Path, layout: _Layout, log: ReadLog) -> pa.Table:
    """Read line by line as text, and keep every row that is whole.

    A line that is a row on its own is one, whatever quote stands open before it; other lines are joined until
    their quotes close.
    """
    names = [f"c{i}" for i in layout.wanted()]
    parts = [pa.table({name: pa.array([], pa.string()) for name in names})]
    losses = _Losses(path, log)
    rows: list[list[str]] = []
    for row in _rows(path, layout, losses):
        rows.append([row[i] for i in layout.wanted()])
        if len(rows) == _ROWS_AT_ONCE:
            parts.append(_text_table(names, rows))
            rows = []
    losses.report()
    return pa.concat_tables([*parts, _text_table(names, rows)])


def _text_table(names: list[str], rows: list[list[str]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})


@dataclass(slots=True)
class _Losses:
    """Rows that could not be used: the first few one by one, the rest counted."""

    path: Path
    log: ReadLog
    rows: list[tuple[int, Message]] = field(default_factory=list)

    def add(self, row: int, reason: Message) -> None:
        """Note one row (1-based, the header is row 1)."""
        self.rows.append((row, reason))

    def report(self) -> None:
        """Put what was noted into the log."""
        for row, reason in self.rows[:3]:
            self.log.lose(self.path, 1, say("row {row}: {reason}", row=row, reason=reason))
        if len(self.rows) > 3:
            first, last = self.rows[3][0], self.rows[-1][0]
            reason = say("rows {first} to {last}: not whole", first=first, last=last)
            self.log.lose(self.path, len(self.rows) - 3, reason)


def _rows(path: Path, layout: _Layout, losses: _Losses) -> Iterator[list[str]]:
    width = len(layout.headers)
    pending: list[str] = []
    first = 0
    with path.open(encoding=layout.encoding, errors="replace", newline="\n") as lines:
        next(lines, None)
        for number, line in enumerate(map(_plain, lines), 2):
            cells = _cells(line, layout)
            if len(cells) == width and line.count('"') % 2 == 0:
                if pending:
                    losses.add(first, say("a quote is not closed"))
                    pending = []
                yield cells
                continue
            first = first if pending else number
            pending.append(line)
            if sum(part.count('"') for part in pending) % 2 and len(pending) < _LINES_OF_A_ROW:
                continue
            cells = _cells("\n".join(pending), layout)
            if len(cells) == width:
                yield cells
            elif any(part.strip() for part in pending):
                losses.add(first, say("{found} cells instead of {wanted}", found=len(cells), wanted=width))
            pending = []
    if pending:
        losses.add(first, say("the file ends inside a quote"))


def _cells(text: str, layout: _Layout) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=layout.delimiter), [])
    except csv.Error:
        return []


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb", buffering=0) as file:
        if file.seek(0, io.SEEK_END) == 0:
            return True
        file.seek(-1, io.SEEK_END)
        return file.read(1) in (b"\n", b"\r", b"\x00")


def _to_table(path: Path, arrow: pa.Table, layout: _Layout, log: ReadLog) -> Table:
    times: dict[str, I64] = {}
    ints: dict[str, I64] = {}
    texts: dict[str, Labels] = {}
    for name, places in layout.places.items():
        kind = layout.kinds[name]
        columns = [(arrow.column(f"c{p.index}"), p) for p in places]
        if kind is Kind.TEXT:
            texts[name] = _first_text([c for c, _ in columns], arrow.num_rows)
        elif kind is Kind.TIME:
            parts = [_times(c, p.scale, _Cells(path, layout.headers[p.index], log)) for c, p in columns]
            times[name] = _coalesce(parts, NO_TIME, arrow.num_rows)
        else:
            parts = [_ints(c, _Cells(path, layout.headers[p.index], log)) for c, p in columns]
            ints[name] = _coalesce(parts, UNKNOWN, arrow.num_rows)
    pmu = {name: _floats(arrow.column(f"c{i}")) for name, i in layout.pmu.items()}
    return Table(times, ints, texts, {k: v for k, v in pmu.items() if not np.isnan(v).all()})


def _coalesce(parts: list[I64], missing: int, size: int) -> I64:
    """Take each row's value from the first column that has one."""
    if not parts:
        return np.full(size, missing, np.int64)
    result = parts[0]
    for part in parts[1:]:
        result = np.where(result == missing, part, result)
    return result


@dataclass(frozen=True, slots=True)
class _Cells:
    """Where bad cells are reported."""

    path: Path
    header: str
    log: ReadLog

    def bad(self, mask: Mask, text: pa.ChunkedArray) -> None:
        """Report the cells under ``mask`` that hold something unreadable."""
        rows = np.flatnonzero(mask)
        if len(rows):
            example = text[int(rows[0])].as_py()
            self.log.warn(
                say_n(
                    "{path}: column {header}: {n} unreadable cell, in row {row}: {example}",
                    "{path}: column {header}: {n} unreadable cells, the first in row {row}: {example}",
                    len(rows),
                    path=str(self.path),
                    header=repr(self.header.strip()),
                    row=int(rows[0]) + 2,
                    example=repr(example),
                )
            )


def _cast(text: pa.ChunkedArray, kind: pa.DataType, cells: _Cells | None) -> pa.ChunkedArray:
    """Convert text cell by cell: what does not fit becomes null and is reported."""
    clean = pc.utf8_trim_whitespace(pc.replace_substring(text, '"', ""))
    clean = pc.if_else(pc.is_in(clean, pa.array(NULLS)), None, clean)
    try:
        return clean.cast(kind)
    except pa.ArrowInvalid:
        shaped = pc.fill_null(pc.match_substring_regex(clean, r"^[+-]?\d{1,22}(\.\d{1,6})?\d*$"), False)
        if cells:
            cells.bad(pc.and_(pc.is_valid(clean), pc.invert(shaped)).to_numpy(), text)
        digits = pc.extract_regex(pc.if_else(shaped, clean, None), r"^(?P<n>[+-]?\d{1,22}(?:\.\d{1,6})?)")
        return pc.struct_field(digits, "n").cast(kind)


def _times(column: pa.ChunkedArray, scale: int | None, cells: _Cells) -> I64:
    """Convert to whole nanoseconds; a header without unit is told by magnitude (epoch ns are ~1e18)."""
    if column.type == pa.string():
        column = _cast(column, _TIME_TYPE, cells)
    if scale is None:
        largest = pc.max(column).as_py()
        scale = 1 if largest is not None and largest >= 10**17 else 1000
    ns = pc.round(pc.multiply(column, pa.scalar(scale, pa.decimal128(7, 0))), ndigits=0)
    sane = pc.less(pc.abs(ns), pa.scalar(_LATEST, pa.decimal128(38, 6)))
    return _numpy(pc.if_else(sane, ns, None).cast(pa.int64(), safe=False), NO_TIME)


def _ints(column: pa.ChunkedArray, cells: _Cells) -> I64:
    """Convert to integers; unset-marker values count as not recorded."""
    if column.type == pa.string():
        column = pc.round(_cast(column, _TIME_TYPE, cells)).cast(pa.int64(), safe=False)
    values = _numpy(column, UNKNOWN)
    return np.where(np.isin(values, UNSET_INTS[:2]), UNKNOWN, values)


def _floats(column: pa.ChunkedArray) -> F32:
    if column.type == pa.string():
        column = _cast(column, _TIME_TYPE, None).cast(pa.float32())
    return np.asarray(column.to_numpy(), np.float32)


def _numpy(column: pa.ChunkedArray, missing: int) -> I64:
    return np.asarray(pc.fill_null(column, missing).to_numpy(), np.int64)


def _first_text(columns: list[pa.ChunkedArray], size: int) -> Labels:
    if not columns:
        return Labels.missing(size)
    result = labels(columns[0])
    for column in columns[1:]:
        result = result.fill(labels(column))
    return result


def labels(column: pa.ChunkedArray | pa.Array) -> Labels:
    """Convert an Arrow text column; cells lose outer space and quotes, null words become "not recorded"."""
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # no chunks at all
            return Labels.missing(0)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = np.asarray(pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False), np.int32)
    values = [None if v is None else v.strip().strip('"').strip() for v in column.dictionary.to_pylist()]
    tidy = Labels.of([None if v in NULLS else v for v in values])
    moved = np.append(tidy.codes, np.int32(-1))
    return Labels(moved[codes].astype(np.int32), tidy.names)
