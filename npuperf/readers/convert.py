"""Columns of event attributes: Python objects to exact numbers and labels, without a loop over events."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from npuperf.model.labels import I64, Labels
from npuperf.readers.cells import labels


def column(items: Sequence[Any], name: str) -> list[Any]:
    """Return one attribute of many objects, at the speed of C."""
    return list(map(attrgetter(name), items))


def concat(parts: list[Any]) -> Any:
    """Join columns; those that hold one repeated value everywhere stay a view of it."""
    if not parts:
        return np.empty(0, np.int64)
    if all(p.strides == (0,) for p in parts):
        return np.broadcast_to(parts[0].base if parts[0].base is not None else parts[0], sum(map(len, parts)))
    return np.concatenate(parts)


def flow_ids(values: list[Any]) -> pa.Array:
    """Convert flow ids: whole numbers where they fit, else text (some exporters use more than 64 bits)."""
    try:
        return pa.array(list(map(int, values)), pa.int64())
    except (pa.ArrowInvalid, OverflowError, ValueError, TypeError):
        return pa.array([str(v) for v in values], pa.string())


def number_ids(parts: list[pa.Array]) -> I64:
    """Number the ids so that equal ids get equal numbers."""
    if all(p.type == pa.int64() for p in parts):
        return np.asarray(concat([pc.fill_null(p, -1).to_numpy(zero_copy_only=False) for p in parts]), np.int64)
    texts = pa.chunked_array([p.cast(pa.string()) for p in parts], pa.string())
    return np.asarray(texts.combine_chunks().dictionary_encode().indices.to_numpy(), np.int64)


def nothing(size: int) -> I64:
    """Return a column without values, that takes no memory."""
    return np.broadcast_to(np.int64(-1), size)


def text(values: list[Any]) -> Labels:
    """Convert to labels; what is no text becomes its text."""
    if not values or (values[0] is None and values.count(None) == len(values)):
        return Labels.missing(len(values))
    try:
        array = pa.array(values, pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        array = pa.array([None if v is None else str(v) for v in values], pa.string())
    return labels(array)


def integers(values: list[Any]) -> I64:
    """Convert to integers; anything else is -1 (Kineto has processes called "Spans")."""
    if values[0] is None and values.count(None) == len(values):
        return nothing(len(values))
    try:
        array = pa.array(values, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        array = pa.array([integer(v) for v in values], pa.int64())
    return np.asarray(pc.fill_null(array, -1).to_numpy(zero_copy_only=False), np.int64)


def integer(value: Any) -> int:
    """Convert one value; what is no 64-bit integer is -1."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if abs(number) < 1 << 63 else -1


def nanoseconds(values: Sequence[Any]) -> I64:
    """Convert µs (text or raw JSON) to exact ns; unreadable times become -1."""
    texts = _texts(values)
    fast = _ns_of_equal_length(texts)
    if fast is not None:
        return fast
    try:
        exact = texts.cast(pa.decimal128(30, 6))
    except pa.ArrowInvalid:
        plain = pc.fill_null(pc.match_substring_regex(texts, r"^-?\d{1,20}(\.\d+)?$"), False)
        digits = pc.extract_regex(pc.if_else(plain, texts, None), r"^(?P<n>-?\d{1,20}(?:\.\d{1,6})?)")
        exact = pc.struct_field(digits, "n").cast(pa.decimal128(30, 6))
    whole = pc.round(pc.multiply(exact, pa.scalar(1000, pa.decimal128(7, 0))), ndigits=0)
    return np.asarray(pc.fill_null(whole.cast(pa.int64(), safe=False), -1).to_numpy(), np.int64)


def _ns_of_equal_length(texts: pa.Array) -> I64 | None:
    """Convert times that all look like ``1736413971558972.912``, as exporters write them: digits by position."""
    if texts.null_count or not len(texts):
        return None
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    width = int(offsets[1] - offsets[0])
    if not 5 <= width <= 20 or (np.diff(offsets) != width).any():
        return None
    characters = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(-1, width)
    digits = np.delete(characters, width - 4, axis=1) - np.uint8(ord("0"))
    if (characters[:, width - 4] != ord(".")).any() or (digits > 9).any():
        return None
    ns = np.zeros(len(texts), np.int64)
    for place in range(width - 1):
        ns *= 10
        ns += digits[:, place]
    return ns


def durations(values: Sequence[Any]) -> I64:
    """Convert durations in µs to ns; JSON floats are exact enough for anything shorter than a month."""
    if values and isinstance(values[0], msgspec.Raw):
        return nanoseconds(values)
    array = np.array(values, np.float64)
    return np.asarray(np.rint(np.where(np.isnan(array), -0.001, array) * 1000), np.int64)


def _texts(values: Sequence[Any]) -> pa.Array:
    if not values or not isinstance(values[0], msgspec.Raw):
        return pc.utf8_trim_whitespace(pa.array(values, pa.string()))
    raw = list(map(bytes, values))
    try:
        text = pa.array(raw, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: no time, but no reason to stop either
        text = pa.array([r.decode(errors="replace") for r in raw], pa.string())
    text = pc.utf8_trim(text, '" \t')
    return pc.if_else(pc.equal(text, "null"), None, text)
