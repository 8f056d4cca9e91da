"""Torch operators that the program calls itself: not within one another, a backward pass or an optimizer's step."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.model.groups import distinct
from npuperf.model.host import HostOps, Spans
from npuperf.model.labels import I64, Mask
from npuperf.model.runs import rows_of

_OPERATOR: Final = re.compile(r"^(?!autograd::|torch::|c10d::|record_param)\w+::\w")
_APART: Final = re.compile(r"^autograd::engine::evaluate_function|^Optimizer\.(step|zero_grad)#|^c10d::")


class TorchCalls(Struct, frozen=True):
    """Outermost operators, ordered by thread and start: ``op`` is their place among the host's operators.

    ``breaks``: where another thread or other work begins, with the end; ``starts`` and ``ends`` of each call.
    """

    op: I64
    thread: I64
    start: I64
    end: I64
    breaks: I64
    ops: Spans

    def place(self, op: I64) -> I64:
        """Return the outermost call in which each operator lies (an index of the host's operators), -1 in none."""
        found = np.full(len(op), -1, np.int64)
        known = np.flatnonzero(op >= 0)
        if not len(known) or not len(self.op):
            return found
        ops = op[known]
        at = np.searchsorted(self.op, ops, side="right") - 1
        around = np.maximum(at, 0)
        inside = (at >= 0) & (self.thread[around] == self.ops.thread[ops]) & (self.ops.start[ops] < self.end[around])
        found[known] = np.where(inside, around, -1)
        return found


def outermost(host: HostOps) -> TorchCalls:
    """Select the operators that the program calls itself."""
    ops = host.ops
    name = ops.name.compact()
    named = name.flag([bool(_OPERATOR.match(n)) for n in name.names])
    apart = name.flag([bool(_APART.match(n)) for n in name.names])
    free = ~_within(ops, apart)
    chosen = named & free & ~_within(ops, named)
    index = np.flatnonzero(chosen).astype(np.int64)
    thread = ops.thread[index]
    before = np.searchsorted(np.flatnonzero(apart), index)  # other work between two calls
    new = (thread[1:] != thread[:-1]) | (before[1:] != before[:-1])
    breaks = np.concatenate([[0], np.flatnonzero(new) + 1, [len(index)]]).astype(np.int64)
    return TorchCalls(index, thread, ops.start[index], ops.end[index], breaks, ops)


def _within(ops: Spans, outer: Mask) -> Mask:
    """Return True for events that begin within one of ``outer`` before them on their thread."""
    inside = np.zeros(len(ops), np.bool_)
    for thread in distinct(ops.thread).tolist():
        rows = rows_of(ops.thread, thread)
        latest = np.maximum.accumulate(np.where(outer[rows], ops.end[rows], np.iinfo(np.int64).min))
        inside[rows][1:] = ops.start[rows][1:] < latest[:-1]
    return inside


def steps_of(host: HostOps, name: str, op: I64) -> tuple[int, Mask]:
    """Return how many events of a name there are among the operators, and which of ``op`` lie within one of them."""
    ops = host.ops
    named = ops.name.flag([n == name for n in ops.name.names])
    inside = _within(ops, named)
    return int(named.sum()), (op >= 0) & inside[np.maximum(op, 0)] if len(ops) else np.zeros(len(op), np.bool_)
