"""Cells of SQLite files, which hold them to no type, to integers and numbers: in bulk, or one by one."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from npuperf.model.labels import F32, F64, I64

#: What no integer of a cell is: neither a number of anything nor "not recorded", which is -1.
UNREADABLE: Final = np.iinfo(np.int64).min
_DIGITS: Final = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")


class NotInBulkError(Exception):
    """These rows cannot be read in bulk, or not all of them; what came before is not to be used."""


def bulk_integers(batch: Any) -> list[I64]:
    """Return columns of integers. Raises NotInBulkError where a cell is something else."""
    return [_bulk_integers(column) for column in batch.columns]


def _bulk_integers(column: Any) -> I64:
    """Return integers, also where an exporter wrote them as text."""
    if pa.types.is_string(column.type) and pc.all(pc.ascii_is_decimal(column)).as_py():
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid as error:  # too many digits
            raise NotInBulkError from error
    if column.type != pa.int64() or column.null_count:
        raise NotInBulkError
    return np.asarray(column.to_numpy(), np.int64)


def bulk_numbers(batch: Any) -> tuple[I64, I64, F32]:
    """Return what :func:`numbers` does. Raises NotInBulkError where a cell is of another type."""
    *integers, numbers = batch.columns
    first, second = (_bulk_integers(column) for column in integers)
    if not (pa.types.is_integer(numbers.type) or pa.types.is_floating(numbers.type)):
        raise NotInBulkError
    return first, second, _single(numbers.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def numbers(rows: list[tuple[Any, ...]]) -> tuple[I64, I64, F32]:
    """Return two columns of integers, and one of numbers: NaN for NULL, infinite for what is no number of a counter."""
    first, second, values = zip(*rows, strict=True)
    return integers(first), integers(second), _single(np.array([_number(v) for v in values], np.float64))


def _single(values: F64) -> F32:
    """Return numbers in single precision, infinite where they are too large for it."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _number(value: Any) -> float:
    if value is None:
        return float("nan")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return float("inf")
    return number if number == number else float("inf")


def integers(cells: tuple[Any, ...]) -> I64:
    """Return a column of integers, the least of which stands for what is none."""
    if set(map(type, cells)) == {int}:
        return np.array(cells, np.int64)
    return np.array([integer(cell) for cell in cells], np.int64)


def integer(cell: Any) -> int:
    """Return the integer that a cell holds, in whichever type, else the least of 64 bits."""
    if isinstance(cell, bytes):
        cell = cell.decode("latin-1")
    if isinstance(cell, str):
        cell = int(cell) if _DIGITS.fullmatch(cell) else UNREADABLE
    elif isinstance(cell, float):
        cell = int(cell) if cell.is_integer() else UNREADABLE
    return cell if isinstance(cell, int) and abs(cell) < 1 << 63 else UNREADABLE
