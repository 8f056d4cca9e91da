"""Text columns as small integers: the dictionary encoding that all tables share."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import compress
from typing import Any, Final, TypeVar, cast, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import fields

I32 = npt.NDArray[np.int32]
I16 = npt.NDArray[np.int16]
I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
U8 = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

#: Names that are looked for one by one.
_FEW: Final = 8
#: So many names are numbered by 16 bits, with room for a few more.
_MOST_OF_16_BITS: Final = 32_000


class Labels(Struct, frozen=True):
    """A text column: ``codes[i]`` points into ``names``; -1 is "not recorded". Codes of few names may be of 16 bits."""

    codes: I32
    names: tuple[str, ...]

    @classmethod
    def missing(cls, size: int) -> Labels:
        """Return a column of ``size`` cells with nothing recorded; it takes no memory and cannot be written to."""
        return cls(np.broadcast_to(np.int32(-1), size), ())

    @classmethod
    def of(cls, values: list[str | None]) -> Labels:
        """Encode a (short) list."""
        names = tuple(dict.fromkeys(v for v in values if v is not None))
        place = {name: i for i, name in enumerate(names)}
        return cls(np.array([-1 if v is None else place[v] for v in values], np.int32), names)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, i: int) -> str | None:
        code = int(self.codes[i])
        return None if code < 0 else self.names[code]

    def texts(self) -> list[str | None]:
        """Return the cells as texts, None where nothing was recorded."""
        names = (*self.names, None)  # the last place is that of -1
        return [names[code] for code in self.codes.tolist()]

    def take(self, index: I64) -> Labels:
        """Return the cells at ``index``; -1 gives "not recorded"."""
        if not len(self.codes) or not self.names:
            return Labels.missing(len(index))
        return Labels(np.where(index < 0, self.codes.dtype.type(-1), self.codes[index]), self.names)

    def filter(self, mask: Mask | slice) -> Labels:
        """Return the cells where ``mask`` holds, or a stretch of them."""
        return Labels(self.codes[mask], self.names)

    def compact(self) -> Labels:
        """Return the same column without the names that no cell uses."""
        used = np.zeros(len(self.names) + 1, np.bool_)  # the last place is that of "not recorded"
        used[self.codes] = True
        used[-1] = False
        if used[:-1].all():
            return self
        moved = (np.cumsum(used) - 1).astype(np.int32)
        moved[-1] = -1
        return Labels(moved[self.codes], tuple(compress(self.names, used.tolist())))

    def narrowed(self) -> Labels:
        """Return the same column with codes of 16 bits, where these do."""
        if len(self.names) > _MOST_OF_16_BITS or self.codes.strides == (0,):
            return self
        return Labels(cast(I32, self.codes.astype(np.int16, copy=False)), self.names)

    def known(self) -> Mask:
        """Return True where a text was recorded."""
        return self.codes >= 0

    def has(self, *patterns: re.Pattern[str]) -> bool:
        """Tell whether one of the patterns is found in one of the names."""
        return any(any(map(pattern.search, self.names)) for pattern in patterns)

    def flag(self, per_name: list[bool], default: bool = False) -> Mask:
        """Spread one answer per distinct name over the column."""
        chosen = [code for code, yes in enumerate(per_name) if yes]
        if default or len(chosen) > _FEW:
            return np.array([*per_name, default], np.bool_).take(self.codes, mode="wrap")  # -1 is the last place
        found = np.zeros(len(self.codes), np.bool_)
        for code in chosen:  # looking for few numbers is faster than looking up every cell
            found |= self.codes == code
        return found

    def fill(self, other: Labels) -> Labels:
        """Return this column with its gaps filled from ``other``."""
        if not len(other.names):
            return self
        place = {name: i for i, name in enumerate(self.names)}
        names = list(self.names)
        moved = np.full(len(other.names) + 1, -1, np.int32)
        for i, name in enumerate(other.names):
            if name not in place:
                place[name] = len(names)
                names.append(name)
            moved[i] = place[name]
        return Labels(np.where(self.codes >= 0, self.codes, moved[other.codes]), tuple(names))

    def lower(self) -> Labels:
        """Return this column in lower case."""
        return Labels.concat([Labels(self.codes, tuple(map(str.lower, self.names)))])

    @classmethod
    def concat(cls, parts: list[Labels]) -> Labels:
        """Append columns, sharing their names."""
        codes, names = cls.shared(parts)
        return cls(np.concatenate(codes), names) if names else cls.missing(sum(map(len, parts)))

    @classmethod
    def shared(cls, parts: list[Labels]) -> tuple[list[I32], tuple[str, ...]]:
        """Return the codes of columns, as those of names that they share."""
        names: dict[str, int] = {}
        codes = []
        for part in parts:
            moved = np.array([*(names.setdefault(n, len(names)) for n in part.names), -1], np.int32)
            same = (moved[:-1] == np.arange(len(part.names))).all()
            codes.append(part.codes if same else moved[part.codes])
        return codes, tuple(names)


T = TypeVar("T", bound="Columns")


@cache  # looking types up takes long
def _no_rows(kind: type[Columns]) -> list[Labels | npt.NDArray[Any]]:
    types = [field.type for field in fields(kind)]
    return [Labels.missing(0) if of is Labels else np.empty(0, _number_of(of)) for of in types]


def _number_of(kind: Any) -> Any:
    """Return the type of an array's numbers: it is innermost, and how deep depends on the version of numpy."""
    return _number_of(get_args(kind)[-1]) if get_args(kind) else kind


class Columns(Struct, frozen=True):
    """Columns of one length, a row each: texts as labels, all else as arrays."""

    @classmethod
    def empty(cls: type[T]) -> T:
        """Return a table without rows."""
        return cls(*_no_rows(cls))

    @classmethod
    def concat(cls: type[T], parts: list[T]) -> T:
        """Append tables."""
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else cls.empty()
        columns = ([getattr(part, name) for part in parts] for name in cls.__struct_fields__)
        return cls(*(Labels.concat(c) if isinstance(c[0], Labels) else np.concatenate(c) for c in columns))

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    def take(self: T, index: I64) -> T:
        """Return the rows at ``index``, in that order."""
        columns = (getattr(self, name) for name in self.__struct_fields__)
        return type(self)(*(column.take(index) if isinstance(column, Labels) else column[index] for column in columns))

    def filter(self: T, mask: Mask) -> T:
        """Return the rows where ``mask`` holds."""
        return self.take(np.flatnonzero(mask))


# -- What goes into a kernel and what comes out: dtypes, formats and shapes, as the exporters write them.
#
# One text per kernel stands for six columns of the export, so that tables of millions of rows carry one column of
# small integers for them. The shapes of inputs, by which most ask, are a column of their own.

#: The columns of an export, as readers name them, in the order of :func:`operand_labels`.
OPERAND_COLUMNS: Final = ("dtypes", "formats", "out_dtypes", "out_formats", "out_shapes", "hf32")
_APART: Final = "|"
#: Combinations beyond which places are not kept for all of them.
_DENSE: Final = 1 << 20


class Operands(Struct, frozen=True):
    """Dtypes and formats of a kernel's inputs and outputs, in order, in one spelling; empty: not recorded.

    ``out_shapes``: as exported (``2,3``); ``hf32``: whether FLOAT32 may be computed as HF32, None where not recorded.
    """

    dtypes: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    out_dtypes: tuple[str, ...] = ()
    out_formats: tuple[str, ...] = ()
    out_shapes: tuple[str, ...] = ()
    hf32: bool | None = None

    @classmethod
    def parse(cls, text: str) -> Operands:
        """Read a text of :func:`operand_labels`."""
        kinds, out_shapes, hf32 = text.rsplit(_APART, 2)
        dtypes, formats, out_dtypes, out_formats = _kinds(kinds)
        return cls(dtypes, formats, out_dtypes, out_formats, tuple(_cells(out_shapes)),
                   {"YES": True, "NO": False}.get(hf32.strip().upper()))  # fmt: skip


@lru_cache(1024)  # there are few of them, and many shapes
def _kinds(text: str) -> tuple[tuple[str, ...], ...]:
    """Read the dtypes and formats of inputs and outputs."""
    dtypes, formats, out_dtypes, out_formats = map(_cells, text.split(_APART))
    return (
        tuple(map(_dtype, dtypes)), tuple(map(_format, formats)),
        tuple(map(_dtype, out_dtypes)), tuple(map(_format, out_formats)),
    )  # fmt: skip


def operand_labels(columns: dict[str, Labels]) -> Labels:
    """Join columns of an export (some of ``OPERAND_COLUMNS``) into one; a kernel without any has none."""
    size = len(next(iter(columns.values())))
    codes, parts = np.zeros(size, np.int64), [tuple[str, ...]()]
    for name in OPERAND_COLUMNS:
        column = columns[name] if name in columns else Labels.missing(size)
        width = len(column.names) + 1
        used, codes = _compact(codes * width + column.codes + 1, len(parts) * width)
        cells = ("", *(text.replace(_APART, " ") for text in column.names))
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
