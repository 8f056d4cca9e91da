"""CSV files of any version and condition to exact columns.

Healthy files take the fast path: pyarrow with explicit types, so that 16-digit epochs stay exact. When a
cell does not fit its type the file is read again as text and each cell is judged alone. When rows are broken
it is read line by line, and every whole row is kept.
"""

from __future__ import annotations

import codecs
import csv
import decimal
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from npuperf.errors import InputError
from npuperf.model.columns import NULLS, UNSET_INTS, Column, Kind, Place, locate, pmu_name
from npuperf.model.device import ReadLog
from npuperf.model.labels import F32, I64, Labels, Mask
from npuperf.model.tasks import NO_TIME, UNKNOWN

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
    layout = _layout(path, columns, pmu)
    missing = [c.headers[0] for c in columns if c.name in required and not layout.places[c.name]]
    if missing and not all(h.strip().isprintable() and "\ufffd" not in h for h in layout.headers):
        raise InputError(f"{path}: row 1: not a table: its header is no text")
    if missing:
        raise InputError(
            f"{path}: row 1: no column {' or '.join(repr(m) for m in missing)} among "
            f"{', '.join(repr(h.strip()) for h in layout.headers[:8]) or 'no columns'}"
            + (" …" if len(layout.headers) > 8 else "")
        )
    _warn_duplicates(path, layout, log)
    arrow = _read_arrow(path, layout)
    if arrow is None or _newlines(path) > arrow.num_rows + 1:  # broken rows, or line ends inside cells
        arrow = _read_lines(path, layout, log)
    if not _ends_with_newline(path):
        log.warn(f"{path}: the last row has no line end; it was kept, but the file may be cut short")
    table = _to_table(path, arrow, layout, log)
    del arrow
    pa.default_memory_pool().release_unused()
    return table


def sniff_headers(path: Path) -> list[str]:
    """Return the header cells of a CSV file; an empty list for an empty file."""
    return _first_row(path)[0]


def _first_row(path: Path) -> tuple[list[str], str]:
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
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


def _layout(path: Path, columns: tuple[Column, ...], pmu: bool) -> _Layout:
    headers, delimiter = _first_row(path)
    if not headers:
        raise InputError(f"{path}: row 1: the file is empty")
    places = locate(headers, columns)
    taken = {p.index for found in places.values() for p in found}
    counters: dict[str, int] = {}
    if pmu:
        for i, header in enumerate(headers):
            name = pmu_name(header)
            if name and i not in taken:
                counters.setdefault(name, i)
    return _Layout(headers, places, {c.name: c.kind for c in columns}, counters, delimiter)


def _warn_duplicates(path: Path, layout: _Layout, log: ReadLog) -> None:
    for name, places in layout.places.items():
        spelled = [layout.headers[p.index].strip() for p in places]
        if len(set(spelled)) < len(spelled):
            log.warn(f"{path}: column {spelled[0]!r} stands {len(spelled)} times; the first with data is used")
        elif len(spelled) > 1 and name not in ("type", "core", "step"):
            log.warn(f"{path}: columns {spelled} mean the same; {spelled[0]!r} is used first")


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


def _read_arrow(path: Path, layout: _Layout) -> pa.Table | None:
    """Read with explicit types, else as text; None when rows are broken."""
    for typed in (True, False):
        try:
            return _read_fast(path, layout, typed=typed)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
            continue
    return None


def _read_fast(path: Path, layout: _Layout, *, typed: bool = True) -> pa.Table:
    """Read in one go; raises ArrowInvalid at the first row, or (``typed``) the first cell, that does not fit."""
    with path.open("rb") as file:
        if _encoding(file.read(4)) != "utf-8":
            raise pa.ArrowInvalid("not UTF-8")
    types = {f"c{i}": _TYPES[kind] if typed else pa.string() for i, kind in layout.wanted().items()}
    try:
        return pv.read_csv(path, **_options(layout, types))
    except pa.ArrowInvalid as error:
        if "Could not skip initial" in str(error):  # a header without a line end: no rows
            return pa.table({name: pa.array([], type_) for name, type_ in types.items()})
        raise


def _newlines(path: Path) -> int:
    """Count line ends; more of them than rows means that cells contain some, or that a quote swallowed rows."""
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK_BYTES), b""))


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
    rows: list[tuple[int, str]] = field(default_factory=list)

    def add(self, row: int, reason: str) -> None:
        """Note one row (1-based, the header is row 1)."""
        self.rows.append((row, reason))

    def report(self) -> None:
        """Put what was noted into the log."""
        for row, reason in self.rows[:3]:
            self.log.lose(self.path, 1, f"row {row}: {reason}")
        if len(self.rows) > 3:
            span = f"rows {self.rows[3][0]} to {self.rows[-1][0]}"
            self.log.lose(self.path, len(self.rows) - 3, f"{span}: not whole")


def _rows(path: Path, layout: _Layout, losses: _Losses) -> Iterator[list[str]]:
    width = len(layout.headers)
    pending: list[str] = []
    first = 0
    with path.open("rb") as file:
        encoding = _encoding(file.read(4))
    with path.open(encoding=encoding, errors="replace", newline="\n") as lines:
        next(lines, None)
        for number, line in enumerate(map(_plain, lines), 2):
            cells = _cells(line, layout)
            if len(cells) == width and line.count('"') % 2 == 0:
                if pending:
                    losses.add(first, "a quote is not closed")
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
                losses.add(first, f"{len(cells)} cells instead of {width}")
            pending = []
    if pending:
        losses.add(first, "the file ends inside a quote")


def _cells(text: str, layout: _Layout) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=layout.delimiter), [])
    except csv.Error:
        return []


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
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
                f"{self.path}: column {self.header.strip()!r}: {len(rows)} unreadable cell(s), "
                f"first in row {rows[0] + 2}: {example!r}"
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
