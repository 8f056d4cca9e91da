"""Run a long program of "wait for several things, then add a time" instructions.

The state is a row of clocks: one per host thread, per stream, and a few registers. Each instruction replaces a
clock by the latest of some clocks plus delays. Compiled code (maxplus.c) executes one after the other. Where there was
no compiler, numpy does, to which this is linear in the (max, +) algebra: the program is cut into blocks; what each
block does to any state is computed for all blocks at once (a matrix per block), the states between blocks follow one by
one, and a last pass over all blocks at once gives every time. The number of numpy calls grows with the square
root of the program, not with its length.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.base.loading import library_of, load_library
from npuperf.model.labels import I32, I64

#: A delay that is none: what it would follow does not count. It fits into columns of 32 bits.
NEVER: Final = -(1 << 31)
#: A time earlier than everything, with room for sums.
LONG_AGO: Final = -(1 << 60)
#: Where the compiled code is, if it is.
LIBRARY: Final = library_of(Path(__file__))


class _Column(ctypes.Structure):
    """What maxplus.c calls Column."""

    _fields_ = (("at", ctypes.c_void_p), ("step", ctypes.c_int64), ("width", ctypes.c_int64))


_SIZE, _POINTER = ctypes.c_int64, ctypes.c_void_p
_FUNCTIONS: Final = (
    ("maxplus_source", ctypes.c_char_p, ()),
    ("maxplus_layout", _SIZE, ()),
    ("maxplus_run", None, (ctypes.POINTER(_Column), _SIZE, _POINTER, _SIZE, *[_POINTER] * 3)),
)


class Program(Struct, frozen=True):
    """Instructions in order. Columns of the first kind are rows, indices into the state; delays and times are in ns.

    Each instruction first moves a host clock:
    ``host = max(pred + host_ns, waited + waited_ns)``, written to row ``host``;
    then a device clock: ``start = max(host + launch_ns, stream + gap_ns, other + other_ns) + extra_ns`` and
    ``stream = max(start + dur_ns, stream + overlap_ns)``, saved to row ``save`` as well.
    Delays of NEVER switch an arm off; small ones may be of 32 bits, with a sign. ``trash`` is a row nobody reads.
    ``initial`` is the state before.
    """

    pred: I32
    host_ns: I64
    waited: I32
    waited_ns: I64
    host: I32
    launch_ns: I64
    stream: I32
    gap_ns: I64
    other: I32
    other_ns: I64
    extra_ns: I64
    dur_ns: I64
    overlap_ns: I64
    save: I32
    initial: I64

    def __len__(self) -> int:
        return len(self.pred)

    @property
    def trash(self) -> int:
        """The row that nobody reads: the last one."""
        return len(self.initial) - 1

    def part(self, which: slice) -> Program:
        """Return some of the instructions, to be run from whatever state."""
        return self.with_columns(**{name: getattr(self, name)[which] for name in _COLUMNS})

    def with_columns(self, **columns: Any) -> Program:
        """Return a copy with some columns replaced."""
        return replace(self, **columns)


class Times(Struct, frozen=True):
    """When the device tasks of instructions, or those asked for, started and ended (ns)."""

    start: I64
    end: I64


#: Columns that name clocks, and columns of delays, both in the order in which :func:`_step` takes them.
_ROWS: Final = ("pred", "waited", "host", "stream", "other", "save")
_DELAYS: Final = ("host_ns", "waited_ns", "launch_ns", "gap_ns", "other_ns", "extra_ns", "dur_ns", "overlap_ns")
#: All of them, in the order of maxplus.c.
_COLUMNS: Final = Program.__struct_fields__[:-1]
#: Instructions that are laid out at once: bounds the memory.
_PORTION: Final = 1 << 18
#: How much longer than one instruction of all blocks it takes to bring the state past one block: numpy's calls.
_BALANCE: Final = 8
#: Most numbers that say what blocks do to states: bounds the memory where there are many clocks.
_MOST: Final = 1 << 22


def run(program: Program, only: I32 | I64 | None = None) -> Times:
    """Execute the program from its initial state: O(instructions), times the clocks where nothing is compiled.

    ``only``: the instructions whose times are asked for, each once; theirs are returned in this order.
    """
    state = program.initial.astype(np.int64)
    if library := _library():
        columns = (_Column * len(_COLUMNS))()
        for place, name in enumerate(_COLUMNS):
            column = getattr(program, name)
            columns[place] = _Column(column.ctypes.data, column.strides[0], column.itemsize)
        wanted = None
        if only is not None:
            wanted = np.full(len(program), -1, np.int32)
            wanted[only] = np.arange(len(only), dtype=np.int32)
        times = Times(*np.empty((2, len(program) if only is None else len(only)), np.int64))
        library.maxplus_run(
            columns,
            len(program),
            state.ctypes.data,
            len(state),
            None if wanted is None else wanted.ctypes.data,
            times.start.ctypes.data,
            times.end.ctypes.data,
        )
        return times
    times = Times(*np.empty((2, len(program)), np.int64))
    for begin in range(0, len(program), _PORTION):
        part = slice(begin, begin + _PORTION)
        done, state = _run_blocks(program.part(part), state)
        times.start[part], times.end[part] = done.start, done.end
    return times if only is None else Times(times.start.take(only), times.end.take(only))


def compiled_source() -> str:
    """Return the hash of the source that the compiled code was made of; empty without it."""
    library = _library()
    return library.maxplus_source().decode() if library else ""


@cache
def _library() -> Any:
    library, layout = load_library(LIBRARY, _FUNCTIONS), ctypes.sizeof(_Column) * 100 + len(_COLUMNS) - NEVER
    return library if library and library.maxplus_layout() == layout else None


def _run_blocks(program: Program, initial: I64) -> tuple[Times, I64]:
    """Execute a program from a state, in O(√instructions) numpy calls; return the state behind it, too."""
    n, rows = len(program), len(initial)
    blocks = max(1, min(int(np.sqrt(n * _BALANCE)), _MOST // rows**2))
    length = -(-n // blocks)
    blocks = -(-n // length)
    clock = _cut(program, _ROWS, blocks, length) * blocks + np.arange(blocks)
    delay = _cut(program, _DELAYS, blocks, length)
    delay[delay == NEVER] = LONG_AGO
    states = np.empty((blocks, rows), np.int64)
    states[0] = initial
    if blocks > 1:
        change = np.full((rows, rows, blocks), LONG_AGO, np.int64)
        change[np.arange(rows), np.arange(rows)] = 0
        for step in range(length):
            _step(clock[step], delay[step], change.reshape(rows, -1))
        changes = np.ascontiguousarray(change.transpose(2, 1, 0))
        for b in range(blocks - 1):
            np.max(changes[b] + states[b], axis=1, out=states[b + 1])
    out = np.empty((2, blocks, length), np.int64)
    state = states.T.reshape(-1)
    for step in range(length):
        out[0, :, step], out[1, :, step] = _step(clock[step], delay[step], state)
    start, end = out.reshape(2, -1)[:, :n]
    return Times(start, end), state.reshape(rows, blocks)[:, -1].copy()


def _cut(program: Program, names: tuple[str, ...], blocks: int, length: int) -> I64:
    """Lay columns out as [step in block, column, block]; padding does nothing: all its rows are the trash row."""
    cut = np.full((len(names), blocks * length), program.trash, np.int64)
    for column, name in zip(cut, names, strict=True):
        column[: len(program)] = getattr(program, name)
    return np.ascontiguousarray(cut.reshape(len(names), blocks, length).transpose(2, 0, 1))


def _step(clock: I64, delay: I64, state: I64) -> tuple[I64, I64]:
    """Execute one instruction of every block on ``state`` [column (if several), row · blocks + block], in place."""
    pred, waited, own, stream, other, save = clock
    host_ns, waited_ns, launch_ns, gap_ns, other_ns, extra_ns, dur_ns, overlap_ns = delay
    host = state.take(pred, axis=-1, mode="clip")
    host += host_ns
    late = state.take(waited, axis=-1, mode="clip")
    late += waited_ns
    np.maximum(host, late, out=host)
    state.T[own] = host.T
    start = host + launch_ns
    before = state.take(stream, axis=-1, mode="clip")
    np.maximum(start, np.add(before, gap_ns, out=late), out=start)
    late = state.take(other, axis=-1, mode="clip")
    late += other_ns
    np.maximum(start, late, out=start)
    start += extra_ns
    end = start + dur_ns
    before += overlap_ns
    np.maximum(end, before, out=end)
    np.maximum(end, LONG_AGO, out=end)  # sums of it must not run away
    state.T[stream] = end.T
    state.T[save] = end.T
    return start, end
