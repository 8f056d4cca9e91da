"""Run a long program of "wait for several things, then add a time" instructions, vectorised.

The state is a row of clocks: one per host thread, per stream, and a few registers. Each instruction replaces a
clock by the latest of some clocks plus delays, which is linear in the (max, +) algebra. So the program is cut
into blocks; what each block does to any state is computed for all blocks at once (a matrix per block), the
states between blocks follow one by one, and a last pass over all blocks at once gives every instruction's time.
The number of numpy calls grows with the square root of the program, not with its length.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from npuperf.model.labels import I64

#: Earlier than everything, with room for sums.
NEVER: Final = -(1 << 60)


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions in order. All columns are int64, rows are indices into the state, delays and times in ns.

    Each instruction first moves a host clock:
    ``host = max(pred + host_ns, waited + waited_ns)``, written to row ``host``;
    then a device clock: ``start = max(host + launch_ns, stream + gap_ns, other + other_ns) + extra_ns`` and
    ``stream = max(start + dur_ns, stream + overlap_ns)``, saved to row ``save`` as well.
    Delays of NEVER switch an arm off; ``trash`` is a row nobody reads. ``initial`` is the state before.
    """

    pred: I64
    host_ns: I64
    waited: I64
    waited_ns: I64
    host: I64
    launch_ns: I64
    stream: I64
    gap_ns: I64
    other: I64
    other_ns: I64
    extra_ns: I64
    dur_ns: I64
    overlap_ns: I64
    save: I64
    initial: I64

    def __len__(self) -> int:
        return len(self.pred)

    @property
    def trash(self) -> int:
        """The row that nobody reads: the last one."""
        return len(self.initial) - 1

    def with_columns(self, **columns: Any) -> Program:
        """Return a copy with some columns replaced."""
        return replace(self, **columns)


@dataclass(frozen=True, slots=True)
class Times:
    """When each instruction's device task started and ended, and when its host part was done (ns)."""

    host: I64
    start: I64
    end: I64


_COLUMNS: Final = tuple(f.name for f in fields(Program) if f.name != "initial")


def run(program: Program) -> Times:
    """Execute the program from its initial state. O(instructions · rows) work in O(√instructions) numpy calls."""
    n, rows = len(program), len(program.initial)
    if not n:
        none = np.empty(0, np.int64)
        return Times(none, none, none)
    blocks = max(1, int(np.sqrt(n * 2)))
    length = -(-n // blocks)
    blocks = -(-n // length)
    columns = {name: _cut(getattr(program, name), blocks, length, program.trash) for name in _COLUMNS}
    states = np.empty((blocks, rows), np.int64)
    states[0] = program.initial
    if blocks > 1:
        change = np.full((blocks, rows, rows), NEVER, np.int64)
        change[:, np.arange(rows), np.arange(rows)] = 0
        for step in range(length):
            _step({k: v[step] for k, v in columns.items()}, change)
        for b in range(blocks - 1):
            np.max(change[b] + states[b], axis=1, out=states[b + 1])
    out = np.empty((3, length, blocks), np.int64)
    state = states[:, :, None]
    for step in range(length):
        out[:, step] = [x[:, 0] for x in _step({k: v[step] for k, v in columns.items()}, state)]
    host, start, end = out.transpose(0, 2, 1).reshape(3, -1)[:, :n]
    return Times(host, start, end)


def _cut(column: I64, blocks: int, length: int, trash: int) -> I64:
    """Lay a column out as [step in block, block]; padding does nothing: all its rows are the trash row."""
    padded = np.full(blocks * length, trash, np.int64)
    padded[: len(column)] = column
    return np.ascontiguousarray(padded.reshape(blocks, length).T)


def _step(op: dict[str, I64], state: I64) -> tuple[I64, I64, I64]:
    """Execute one instruction of every block on ``state`` [block, row, column], in place."""
    block = np.arange(len(state))
    host = state[block, op["pred"]]
    host += op["host_ns"][:, None]
    waited = state[block, op["waited"]]
    waited += op["waited_ns"][:, None]
    np.maximum(host, waited, out=host)
    state[block, op["host"]] = host
    start = host + op["launch_ns"][:, None]
    before = state[block, op["stream"]]
    np.maximum(start, before + op["gap_ns"][:, None], out=start)
    other = state[block, op["other"]]
    other += op["other_ns"][:, None]
    np.maximum(start, other, out=start)
    start += op["extra_ns"][:, None]
    end = start + op["dur_ns"][:, None]
    before += op["overlap_ns"][:, None]
    np.maximum(end, before, out=end)
    np.maximum(end, NEVER, out=end)  # sums of NEVER must not run away
    state[block, op["stream"]] = end
    state[block, op["save"]] = end
    return host, start, end
