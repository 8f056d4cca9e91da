"""What goes into a kernel and what comes out: dtypes and formats, as the exporters write them.

One text per kernel stands for four columns of the export, so that tables of millions of rows carry one column of small
integers for them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.model.labels import I64, Labels

#: The columns of an export, as readers name them, in the order of :func:`operand_labels`.
OPERAND_COLUMNS: Final = ("dtypes", "formats", "out_dtypes", "out_formats")
_APART: Final = "|"
#: Combinations beyond which places are not kept for all of them.
_DENSE: Final = 1 << 20


class Operands(Struct, frozen=True):
    """Dtypes and formats of a kernel's inputs and outputs, in order, in one spelling; empty: not recorded."""

    dtypes: tuple[str, ...]
    formats: tuple[str, ...]
    out_dtypes: tuple[str, ...]
    out_formats: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Operands:
        """Read a text of :func:`operand_labels`."""
        dtypes, formats, out_dtypes, out_formats = (_cells(part) for part in text.split(_APART))
        return cls(
            tuple(map(_dtype, dtypes)), tuple(map(_format, formats)),
            tuple(map(_dtype, out_dtypes)), tuple(map(_format, out_formats)),
        )  # fmt: skip


def operand_labels(dtypes: Labels, formats: Labels, out_dtypes: Labels, out_formats: Labels) -> Labels:
    """Join the four columns of an export into one; a kernel of which none is recorded has none."""
    codes, parts = np.zeros(len(dtypes), np.int64), [tuple[str, ...]()]
    for column in (dtypes, formats, out_dtypes, out_formats):
        width = len(column.names) + 1
        used, codes = _compact(codes * width + column.codes + 1, len(parts) * width)
        cells = ("", *(name.replace(_APART, " ") for name in column.names))
        parts = [(*parts[k // width], cells[k % width]) for k in used.tolist()]
    names = [_APART.join(part) if any(part) else None for part in parts]
    return Labels.of(names).take(codes)


def _compact(key: I64, size: int) -> tuple[I64, I64]:
    """Return the keys that occur, in order, and each key's place among them."""
    if size > _DENSE:
        used, codes = np.unique(key, return_inverse=True)
        return used.astype(np.int64), codes.astype(np.int64)
    there = np.zeros(size, np.bool_)
    there[key] = True
    return np.flatnonzero(there).astype(np.int64), (np.cumsum(there) - 1)[key].astype(np.int64)


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.replace('"', "").split(";")] if text else []


def _dtype(text: str) -> str:
    """``DT_BF16`` and ``BF16`` are one dtype, so are ``FLOAT`` and ``float32``."""
    name = text.upper().removeprefix("DT_")
    return {"FLOAT": "FLOAT32", "BFLOAT16": "BF16", "DOUBLE": "FLOAT64"}.get(name, name)


def _format(text: str) -> str:
    """``FORMAT_ND`` and ``ND`` are one format; ``NC1HWC0:1`` names its groups."""
    return text.upper().removeprefix("FORMAT_").partition(":")[0]
