"""What went into torch operators: shapes and dtypes, which only traces without device tasks are asked for.

They are most of a trace that has them, and there kernels tell as much. So the trace is read once more for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from npuperf.model.host_profile import TorchOperators
from npuperf.model.labels import I64, Labels
from npuperf.readers.cells import nanoseconds
from npuperf.readers.log import ReadLog
from npuperf.readers.pieces import Event, FilePieces, Scalar
from npuperf.readers.trace import base_ns
from npuperf.readers.trace_columns import Words, integers
from npuperf.readers.trace_gather import no_gc

#: Kinds of inputs that are no tensors.
_NO_TENSORS: Final = frozenset(("", "None", "Scalar", "ScalarList"))


class _Inputs(msgspec.Struct, gc=False):
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="Input type")


class _Called(msgspec.Struct, gc=False):
    """An event, as far as operators are concerned."""

    ts: msgspec.Raw = msgspec.Raw(b"null")
    ph: str = ""
    name: str = ""
    cat: str | None = None
    tid: Scalar = None
    args: _Inputs | None = None


_CALLED: Final = msgspec.json.Decoder(list[_Called])


class _Calls(FilePieces):
    """The same pieces, of which other fields are read."""

    def _decode(self, text: bytes) -> list[Event]:
        events: list[Any] = _CALLED.decode(text)
        return events


def read_operators(paths: Sequence[Path]) -> TorchOperators:
    """Read the torch operators of a timeline with their inputs; what is damaged was told when it was read before."""
    starts, threads, codes, told = list[I64](), list[I64](), list[I64](), list[I64]()
    names, inputs = Words(), _Known()
    with no_gc():
        for path in paths:
            pieces, before = _Calls(path, ReadLog(), None), len(starts)
            for called in _operators(pieces):
                starts.append(nanoseconds([e.ts for e in called]))
                threads.append(integers([e.tid for e in called]).astype(np.int64))
                codes.append(names.codes([e.name for e in called]).astype(np.int64))
                told.append(np.array([inputs.code(e.args) for e in called], np.int64))
            base = base_ns(pieces.header)  # which may stand behind the events
            starts[before:] = [np.where(start < 0, start, start + base) for start in starts[before:]]
    if not starts:
        return TorchOperators.empty()
    start = np.concatenate(starts)
    order = np.argsort(start, kind="stable")
    order = order[start[order] >= 0]
    which = np.concatenate(told)[order]
    return TorchOperators(
        start[order],
        np.concatenate(threads)[order],
        names.labels(np.concatenate(codes)[order].astype(np.int32)),
        Labels.of(inputs.shapes).take(which),
        Labels.of(inputs.dtypes).take(which),
    )


def _operators(pieces: _Calls) -> Iterator[list[_Called]]:
    for events in pieces:
        called: list[Any] = [e for e in events if e.cat == "cpu_op" and e.ph == "X"]
        if called:
            yield called


class _Known:
    """Combinations of shapes and types that have come before, as they stand in the file, and what they say."""

    def __init__(self) -> None:
        self.shapes: list[str | None] = []
        self.dtypes: list[str | None] = []
        self._codes: dict[tuple[bytes, bytes], int] = {}

    def code(self, args: _Inputs | None) -> int:
        """Return the number of a combination, -1 where none is recorded."""
        if args is None:
            return -1
        key = bytes(args.dims), bytes(args.types)
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = len(self.shapes)
            shapes, dtypes = _tensors(_cells(key[0]), _cells(key[1]))
            self.shapes.append(shapes)
            self.dtypes.append(dtypes)
        return code


def _tensors(dims: list[str], types: list[str]) -> tuple[str | None, str | None]:
    """Return shapes and dtypes of the inputs that are tensors; without types those that have a dimension."""
    if not dims:
        return None, None
    types = types if len(types) == len(dims) else []
    kept = [i for i, cell in enumerate(dims) if cell or (types and types[i] not in _NO_TENSORS)]
    if not kept:
        return None, None
    return ";".join(dims[i] for i in kept), ";".join(types[i] for i in kept) if types else None


def _cells(raw: bytes) -> list[str]:
    """Return the cells of a list, nested as Kineto writes it, or a text with separators as torch_npu does."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    if isinstance(value, str):
        return [cell.strip() for cell in value.split(";")]
    return [_cell(one) for one in value] if isinstance(value, list) else []


def _cell(value: object) -> str:
    """Spell one input: a shape, or of a list of tensors all of them."""
    if not isinstance(value, list):
        return str(value)
    if any(isinstance(one, list) for one in value):
        return f"({' '.join(_cell(one) or 'scalar' for one in value)})"
    return ",".join(map(str, value))
