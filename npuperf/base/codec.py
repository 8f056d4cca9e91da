"""Values as bytes and back, exactly: documents, messages, and structs of columns.

Nothing is guessed: every container, object and column is written with its type, every number as what it is, and what
was one object stays one. What has no place here raises TypeError. Columns become Parquet, those of one length in one
table; all else is one msgpack tree, in which scalars stand for themselves and the rest are lists that begin with a tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from npuperf.base.messages import Message

if TYPE_CHECKING:  # documents have no columns, and are to be there at once
    import numpy as np
    import pyarrow as pa

_SCALARS: Final = frozenset((type(None), bool, int, float, str))
_LIST, _TUPLE, _DICT, _OBJECT, _AGAIN, _COLUMN, _TEXTS = range(7)
#: Tuples of this many texts and more are columns.
_MANY: Final = 256
_INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_DTYPES: Final = frozenset(("bool", "float32", "float64", *_INTEGERS))


def pack(value: object) -> list[memoryview]:
    """Return a value as pieces: its tree, then its tables. Raises TypeError for what cannot come back as it was."""
    packer = _Packer()
    tree = packer.value(value)
    kinds = [[_name(kind), *_fields(kind)] for kind in packer.kinds]
    return [memoryview(msgspec.msgpack.encode([kinds, tree])), *packer.tables()]


def unpack(pieces: Sequence[memoryview]) -> object:
    """Return what was packed. Raises some error for what was not."""
    tree, *tables = pieces
    kinds, value = msgspec.msgpack.decode(tree)
    return _Unpacker(kinds, tables).value(value)


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _fields(kind: type) -> tuple[str, ...]:
    """Return the names under which objects of a type keep and take what they consist of."""
    if kind is Message:
        return ("id", "parameters", "plural", "n")
    if kind.__module__.startswith("npuperf."):
        if is_dataclass(kind):
            return tuple(field.name for field in fields(kind))
        if issubclass(kind, msgspec.Struct):
            return kind.__struct_fields__
    raise TypeError(f"{_name(kind)} has no place in a cache")


class _Packer:
    """Turns values into trees, and puts their columns aside, by length."""

    def __init__(self) -> None:
        self.kinds: dict[type, int] = {}
        self._seen: dict[int, int] = {}
        self._columns: dict[int, list[pa.Array]] = {}

    def value(self, value: Any) -> Any:
        """Return the tree of a value."""
        kind = type(value)
        if kind in _SCALARS:
            return value
        if kind is tuple:
            if len(value) < _MANY or not all(type(part) is str for part in value):
                return [_TUPLE, *map(self.value, value)]
            import pyarrow as pa

            return [_TEXTS, *self._put(pa.array(value, pa.large_string()))]
        if kind is list:
            return [_LIST, *map(self.value, value)]
        if kind is dict:
            return [_DICT, *map(self.value, chain.from_iterable(value.items()))]
        return self._once(value)

    def _once(self, value: Any) -> list[Any]:
        """Return the tree of what has an identity: an object or a column, or where it stands already."""
        if id(value) in self._seen:
            return [_AGAIN, self._seen[id(value)]]
        kind = type(value)
        if kind.__module__ == "numpy":
            import pyarrow as pa

            if getattr(value, "ndim", 0) != 1 or value.dtype.name not in _DTYPES or not value.dtype.isnative:
                raise TypeError(f"{kind.__name__} of {value.dtype} has no place in a cache")
            made = [_COLUMN, value.dtype.name, *self._put(pa.array(value))]
        else:
            parts = [self.value(getattr(value, name)) for name in _fields(kind)]
            made = [_OBJECT, self.kinds.setdefault(kind, len(self.kinds)), *parts]
        self._seen[id(value)] = len(self._seen)
        return made

    def _put(self, column: pa.Array) -> tuple[int, int]:
        """Put a column aside; return its length, which names its table, and its place there."""
        table = self._columns.setdefault(len(column), [])
        table.append(column)
        return len(column), len(table) - 1

    def tables(self) -> Iterator[memoryview]:
        """Yield the tables as Parquet, in the order in which they were begun, without those that have no rows."""
        return (memoryview(_parquet(columns)) for length, columns in self._columns.items() if length)


def _parquet(columns: list[pa.Array]) -> pa.Buffer:
    """Return a table; integers as differences, since times and codes of neighbours are near."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([pa.field(str(at), column.type, nullable=False) for at, column in enumerate(columns)])
    ways = {f.name: "DELTA_BINARY_PACKED" if pa.types.is_integer(f.type) else "PLAIN" for f in schema}
    out = pa.BufferOutputStream()
    parquet.write_table(
        pa.Table.from_arrays(columns, schema=schema), out, row_group_size=len(columns[0]), compression="zstd",
        use_dictionary=False, column_encoding=ways, write_statistics=False,
    )  # fmt: skip
    return out.getvalue()


class _Unpacker:
    """Makes values of trees and tables, in the order in which they were packed."""

    def __init__(self, kinds: list[list[str]], tables: Sequence[memoryview]) -> None:
        self._kinds = []
        for name, *fields_ in kinds:  # types by their names, if they still have the same fields
            module, _, attribute = name.partition(":")
            kind = getattr(import_module(module), attribute) if module.startswith("npuperf.") else None
            if not isinstance(kind, type) or _fields(kind) != tuple(fields_):
                raise TypeError(f"{name} is not what it was")
            self._kinds.append((kind, fields_))
        self._tables: dict[int, Any] = {}  # by their lengths
        if tables:
            import pyarrow as pa
            from pyarrow import parquet

            for table in tables:
                opened = parquet.ParquetFile(pa.BufferReader(pa.py_buffer(table)))
                self._tables[opened.metadata.num_rows] = opened
        self._seen: list[Any] = []
        self._ways: tuple[Callable[[list[Any]], Any], ...] = (
            lambda tree: [self.value(part) for part in tree[1:]],
            lambda tree: tuple([self.value(part) for part in tree[1:]]),
            lambda tree: {self.value(k): self.value(v) for k, v in zip(tree[1::2], tree[2::2], strict=True)},
            self._object,
            lambda tree: self._seen[tree[1]],
            self._column,
            lambda tree: tuple(self._stored(*tree[1:]).to_pylist()),
        )

    def value(self, tree: Any) -> Any:
        """Return the value of a tree."""
        return self._ways[tree[0]](tree) if type(tree) is list else tree

    def _object(self, tree: list[Any]) -> Any:
        kind, names = self._kinds[tree[1]]
        made = kind(**{name: self.value(part) for name, part in zip(names, tree[2:], strict=True)})
        self._seen.append(made)
        return made

    def _column(self, tree: list[Any]) -> np.ndarray[Any, Any]:
        """Return a column that owns its memory, as readers make them."""
        import numpy as np

        _, dtype, length, at = tree
        made = np.array(self._stored(length, at).to_numpy(), np.dtype(dtype)) if length else np.empty(0, dtype)
        self._seen.append(made)
        return made

    def _stored(self, length: int, at: int) -> pa.ChunkedArray:
        """Read one column, so that no two copies of a whole table are there at a time."""
        return self._tables[length].read(columns=[str(at)], use_threads=False).column(0)
