"""Cells of tables to exact numbers and labels: what is unreadable costs one cell, and is told."""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from npuperf.messages import say_n
from npuperf.model.columns import NULLS, UNSET_INTS
from npuperf.model.labels import F32, I64, Labels, Mask
from npuperf.model.tasks import NO_TIME, UNKNOWN
from npuperf.readers.log import ReadLog

#: Times in µs with picoseconds: 16 digits of an epoch stay exact.
TIME_TYPE: Final = pa.decimal128(30, 6)
#: Times beyond this many ns (the year 2096) are damage; differences of sane ones fit into 64 bits.
_LATEST: Final = decimal.Decimal(4 * 10**18)


@dataclass(frozen=True, slots=True)
class Cells:
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


def _cast(text: pa.ChunkedArray, kind: pa.DataType, cells: Cells | None) -> pa.ChunkedArray:
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


def as_times(column: pa.ChunkedArray, scale: int | None, cells: Cells) -> I64:
    """Convert to whole nanoseconds; a header without unit is told by magnitude (epoch ns are ~1e18)."""
    if column.type == pa.string():
        column = _cast(column, TIME_TYPE, cells)
    if scale is None:
        largest = pc.max(column).as_py()
        scale = 1 if largest is not None and largest >= 10**17 else 1000
    ns = pc.round(pc.multiply(column, pa.scalar(scale, pa.decimal128(7, 0))), ndigits=0)
    sane = pc.less(pc.abs(ns), pa.scalar(_LATEST, pa.decimal128(38, 6)))
    return _numpy(pc.if_else(sane, ns, None).cast(pa.int64(), safe=False), NO_TIME)


def as_integers(column: pa.ChunkedArray, cells: Cells) -> I64:
    """Convert to integers; unset-marker values count as not recorded."""
    if column.type == pa.string():
        column = pc.round(_cast(column, TIME_TYPE, cells)).cast(pa.int64(), safe=False)
    values = _numpy(column, UNKNOWN)
    return np.where(np.isin(values, UNSET_INTS[:2]), UNKNOWN, values)


def as_floats(column: pa.ChunkedArray) -> F32:
    """Convert to numbers; what is unreadable or not recorded is NaN."""
    if column.type == pa.string():
        column = _cast(column, TIME_TYPE, None).cast(pa.float32())
    return np.asarray(column.to_numpy(), np.float32)


def _numpy(column: pa.ChunkedArray, missing: int) -> I64:
    return np.asarray(pc.fill_null(column, missing).to_numpy(), np.int64)


def first_text(columns: list[pa.ChunkedArray], size: int) -> Labels:
    """Take each row's text from the first column that has one."""
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


def coalesce(parts: list[I64], missing: int, size: int) -> I64:
    """Take each row's value from the first column that has one."""
    if not parts:
        return np.full(size, missing, np.int64)
    result = parts[0]
    for part in parts[1:]:
        result = np.where(result == missing, part, result)
    return result
