"""Columns to exact numbers and labels: cells of tables, where what is unreadable costs one cell and is told, and
times of events.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from npuperf.base.messages import Message, say, say_n
from npuperf.base.units import NS_PER_S, NS_PER_US
from npuperf.model.columns import NULLS, UNSET_INTS
from npuperf.model.labels import F32, I64, Labels, Mask
from npuperf.model.tasks import NO_TIME, UNKNOWN
from npuperf.readers.log import ReadLog

#: Cells of tables that tell nothing.
NOTHING: Final = (*NULLS, "N/A\t", "\t")
#: Times in µs with picoseconds: 16 digits of an epoch stay exact.
TIME_TYPE: Final = pa.decimal128(30, 6)
#: So many characters every decimal of that type fits into, with its sign and point.
_LONGEST_DECIMAL: Final = 32
#: Times beyond this many ns (the year 2096) are damage; differences of sane ones fit into 64 bits.
LATEST_NS: Final = 4 * 10**18
#: How numbers look; of decimals six places are kept.
_DECIMAL: Final = r"^[+-]?\d{1,22}(\.\d+)?$"
_FLOAT: Final = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf)$"
_FURTHER_PLACES: Final = r"(\.\d{6})\d+$"
#: Larger integers are damage, but for those that mean "not recorded".
_ENDLESS: Final = decimal.Decimal(1 << 63)
#: More bytes than any device has.
_MOST_BYTES: Final = 2.0**53
#: Characters of a time that fits 64 bits, the point included.
_LONGEST: Final = 20


class Cells(Struct, frozen=True):
    """Where bad cells are reported."""

    path: Path
    header: str
    log: ReadLog

    def bad(self, mask: Mask, values: pa.ChunkedArray | F32) -> None:
        """Report the cells under ``mask`` that hold something unreadable."""
        rows = np.flatnonzero(mask)
        if len(rows):
            example = str(values[int(rows[0])])
            self.log.warn(say_n("{path}: column {header}: {n} unreadable cell, in row {row}: {example}",
                                "{path}: column {header}: {n} unreadable cells, the first in row {row}: {example}",
                                len(rows), path=str(self.path), header=repr(self.header.strip()), row=int(rows[0]) + 2,
                                example=repr(example)))  # fmt: skip


def _cast(text: pa.ChunkedArray, kind: pa.DataType, cells: Cells) -> pa.ChunkedArray:
    """Convert text cell by cell: what does not fit becomes null and is reported. Of its type already, it stays."""
    if text.type == kind:
        return text
    clean = pc.utf8_trim_whitespace(pc.replace_substring(text, '"', ""))
    clean = pc.if_else(pc.is_in(clean, pa.array(NULLS)), None, clean)
    exact = pa.types.is_decimal(kind)
    try:
        if exact and (pc.max(pc.binary_length(clean)).as_py() or 0) > _LONGEST_DECIMAL:
            raise pa.ArrowInvalid  # of hundreds of digits Arrow keeps what is left of them in 128 bits, without a word
        return clean.cast(kind)
    except pa.ArrowInvalid:
        shaped = pc.fill_null(pc.match_substring_regex(clean, _DECIMAL if exact else _FLOAT), False)
        cells.bad(pc.and_(pc.is_valid(clean), pc.invert(shaped)).to_numpy(), text)
        clean = pc.if_else(shaped, clean, None)
        return (pc.replace_substring_regex(clean, _FURTHER_PLACES, r"\1") if exact else clean).cast(kind)


def as_times(text: pa.ChunkedArray, scale: int | None, cells: Cells) -> I64:
    """Convert times of ``scale`` ns to whole nanoseconds; None: their magnitude tells, as epoch ns are ~1e18."""
    column = _cast(text, TIME_TYPE, cells)
    if scale is None:
        largest = pc.max(column).as_py()
        scale = 1 if largest is not None and largest >= 10**17 else NS_PER_US
    if scale >= 10**7:  # a product with more digits than the smaller type has
        column = column.cast(pa.decimal256(30, 6))
    product = pc.multiply(column, pa.scalar(decimal.Decimal(scale)))
    with suppress(pa.ArrowInvalid):  # mostly there is nothing to round, which takes longer than all else
        values = _numpy(product.cast(pa.int64()), NO_TIME)
        return np.where(np.abs(values) < LATEST_NS, values, NO_TIME)
    ns = pc.round(product, ndigits=0)
    sane = pc.less(pc.abs(ns), pa.scalar(decimal.Decimal(LATEST_NS)))
    return _numpy(pc.if_else(sane, ns, None).cast(pa.int64(), safe=False), NO_TIME)


def as_integers(text: pa.ChunkedArray, cells: Cells) -> I64:
    """Convert to integers; unset-marker values count as not recorded."""
    if pa.types.is_integer(text.type):
        values = _numpy(text, UNKNOWN)
        return np.where(values == UNSET_INTS[0], UNKNOWN, values)
    column = pc.round(_cast(text, TIME_TYPE, cells))
    column = pc.if_else(pc.is_in(column, pa.array(map(decimal.Decimal, UNSET_INTS), column.type)), None, column)
    sane = pc.fill_null(pc.less(pc.abs(column), pa.scalar(_ENDLESS)), True)
    cells.bad(pc.invert(sane).to_numpy(), text)
    return _numpy(pc.if_else(sane, column, None).cast(pa.int64()), UNKNOWN)


def as_bytes(text: pa.ChunkedArray, scale: int, cells: Cells) -> I64:
    """Convert numbers of ``scale`` bytes to whole bytes; -1: not recorded, or less than nothing.

    Exporters divide by powers of two and print every digit, which a double keeps: up to 8 PiB this is exact.
    """
    number = np.asarray(_cast(text, pa.float64(), cells).to_numpy(), np.float64) * scale
    sane = (number >= 0) & (number < _MOST_BYTES)  # nor is NaN
    return np.where(sane, np.rint(np.where(sane, number, 0)), UNKNOWN).astype(np.int64)


def as_floats(text: pa.ChunkedArray, cells: Cells) -> F32:
    """Convert text to numbers; what is unreadable or not recorded is NaN."""
    return np.asarray(_cast(text, pa.float32(), cells).to_numpy(), np.float32)


def _numpy(column: pa.ChunkedArray, missing: int) -> I64:
    return np.asarray(pc.fill_null(column, missing).to_numpy(), np.int64)


_SCALAR: Final = '""'


def labels(column: pa.ChunkedArray | pa.Array) -> Labels:
    """Convert an Arrow text column; cells lose outer space and quotes, null words become "not recorded".

    Quotes around nothing stay: the shape of a scalar.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # no chunks at all
            return Labels.missing(0)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = np.asarray(pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False), np.int32)
    texts = [None if v is None else v.strip() for v in column.dictionary.to_pylist()]
    stripped = [v if v in (None, _SCALAR) else v.strip('"').strip() for v in texts]
    tidy = Labels.of([None if v in NULLS else v for v in stripped])
    moved = np.append(tidy.codes, np.int32(-1))
    return Labels(moved[codes].astype(np.int32), tidy.names)


def integer(value: Any) -> int:
    """Convert one value; what is no 64-bit integer is -1."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if abs(number) < 1 << 63 else -1


def nanoseconds(values: Sequence[Any]) -> I64:
    """Convert µs (text or raw JSON) to exact ns; unreadable times, and those too late to be any, become -1."""
    if not len(values):
        return np.empty(0, np.int64)
    texts = _texts(values)
    fast = times_by_position(texts)
    if fast is not None:
        return fast
    if not isinstance(values[0], msgspec.Raw):
        texts = pc.utf8_trim_whitespace(texts)
    try:
        exact = texts.cast(pa.decimal128(30, 6))
    except pa.ArrowInvalid:
        plain = pc.fill_null(pc.match_substring_regex(texts, r"^-?\d{1,20}(\.\d+)?$"), False)
        digits = pc.extract_regex(pc.if_else(plain, texts, None), r"^(?P<n>-?\d{1,20}(?:\.\d{1,6})?)")
        exact = pc.struct_field(digits, "n").cast(pa.decimal128(30, 6))
    whole = pc.round(pc.multiply(exact, pa.scalar(1000, pa.decimal128(7, 0))), ndigits=0)
    sane = pc.less(whole, pa.scalar(decimal.Decimal(LATEST_NS)))
    return np.asarray(pc.fill_null(pc.if_else(sane, whole, None).cast(pa.int64(), safe=False), -1).to_numpy(), np.int64)


def times_by_position(text: pa.Array) -> I64 | None:
    """Convert µs that all look like ``1736413971558972.912``, with a tab behind or without."""
    if text.null_count or not len(text):
        return None
    offsets, data = characters(text)
    width = int(offsets[1] - offsets[0])
    if not 5 <= width <= _LONGEST + 1 or (np.diff(offsets) != width).any():
        return None
    cells = data.reshape(-1, width)
    if (cells[:, -1] == ord("\t")).all():
        width -= 1
    point = width - 4
    digits = cells[:, :width] - np.uint8(ord("0"))
    if not 1 <= point <= _LONGEST - 4 or (cells[:, point] != ord(".")).any():
        return None
    if np.count_nonzero(digits > 9) != len(text):  # the points
        return None
    ns = np.zeros(len(text), np.uint64)
    for place in (*range(point), *range(point + 1, width)):
        ns *= np.uint64(10)
        ns += digits[:, place]
    return ns.astype(np.int64) if (ns < LATEST_NS).all() else None


def characters(text: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return where the cells begin and end, from 0, and their characters."""
    _, offsets, data = text.buffers()
    places = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
    return places - places[0], np.frombuffer(data or b"", np.uint8)[places[0] : places[-1]]


def _texts(values: Sequence[Any]) -> pa.Array:
    if not isinstance(values[0], msgspec.Raw):
        return pa.array(values, pa.string())
    raw = list(map(bytes, values))
    try:
        text = pa.array(raw, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: no time, but no reason to stop either
        text = pa.array([r.decode(errors="replace") for r in raw], pa.string())
    text = pc.utf8_trim(text, '" \t')
    return pc.if_else(pc.equal(text, "null"), None, text)


# -- Rows whose times lie absurdly far from all others: one of them would make a span of fifty years.
#
# Decided from the data and told by distance alone, for tables, traces and databases alike. A pause of hours stays, and
# so does a recording of weeks: see ``docs/decisions.md``.

#: Nothing nearer than this is set aside, ns.
_LEAST_NS: Final = 24 * 3600 * NS_PER_S
#: So many times the time that the others span.
_TIMES: Final = 1000
#: At most one row of so many is set aside for where it lies: more of them are how the data is.
_PART: Final = 10
#: Of so few rows nobody can tell which is right.
_FEWEST: Final = 3

#: Why such rows are lost.
FAR_OFF: Final[Message] = say("their times are more than a day away from those of the others")


def spans_days(start: I64, end: I64) -> bool:
    """Tell whether times, in ns, lie so far apart that some may be far off: those of few recordings do."""
    return len(start) >= _FEWEST and int(end.max()) - int(start.min()) > _LEAST_NS


def far_off(start: I64, end: I64) -> Mask:
    """Tell which rows begin, or last, absurdly far beyond all others; all of ``start`` and ``end`` (ns) are known."""
    if not spans_days(start, end):
        return np.zeros(len(start), np.bool_)
    from_, to = start.astype(np.float64), end.astype(np.float64)  # differences of two extremes need more than 64 bits
    order = np.argsort(start, kind="stable")
    breaks = np.flatnonzero(np.diff(from_[order]) > _LEAST_NS) + 1
    group = np.zeros(len(start), np.int64)
    group[order] = np.searchsorted(breaks, np.arange(len(start)), side="right")
    most = group == np.bincount(group).argmax()
    first, last = from_[most].min(), from_[most].max()
    limit = max(float(_LEAST_NS), _TIMES * (last - first))
    endless: Mask = to - from_ > limit  # however many they are: sums of them would not even fit into 64 bits
    far = (first - from_ > limit) | (from_ - last > limit) | endless
    return far if int(np.count_nonzero(far)) <= max(len(far) // _PART, 1) else endless
