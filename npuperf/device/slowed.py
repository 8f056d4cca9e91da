"""Kernels beside communication: equal kernels that run slower while the device communicates.

They share memory bandwidth and power with it. Equal are kernels of one type with the same recorded input shapes:
those wholly beside communication are held against those wholly without; what overlaps in part tells nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

import numpy as np
from msgspec import Struct

from npuperf.model.groups import alike, first_rows, medians
from npuperf.model.intervals import Intervals
from npuperf.model.labels import F64, I64, Labels, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

#: Kinds of slowed kernels that stand in the evidence.
_SHOWN: Final = 5


class Slowed(Struct, frozen=True):
    """Equal kernels that are slower beside communication: medians of both, and what the slower ones lose, ns.

    ``total_ns``: of the ``beside`` kernels that run beside communication; ``alone``: kernels that do not.
    """

    type: str
    shapes: str
    beside: int
    alone: int
    beside_ns: int
    alone_ns: int
    total_ns: int
    lost_ns: int

    @property
    def ratio(self) -> float:
        """How many times as long the median kernel takes."""
        return self.beside_ns / self.alone_ns


class SlowedType(TypedDict):
    """A kind of slowed kernels in the evidence."""

    type: str
    shapes: str
    count: int
    ratio: float
    lost_ns: int


def costliest(rows: Sequence[Slowed]) -> list[SlowedType]:
    """Return what of the first rows stands in the evidence."""
    return [
        SlowedType(type=row.type, shapes=row.shapes, count=row.beside, ratio=row.ratio, lost_ns=row.lost_ns)
        for row in rows[:_SHOWN]
    ]


def slowed(tasks: Tasks, types: Labels, thresholds: Thresholds) -> tuple[Slowed, ...]:
    """Return the kinds of kernels of a device that communication slows down, the costliest first."""
    communication = tasks.work == Work.COMMUNICATION
    chosen = np.flatnonzero((tasks.work == Work.COMPUTE) & tasks.shapes.known() & (tasks.dur > 0))
    if not communication.any() or not len(chosen):
        return ()
    start, end = tasks.start, tasks.end
    busy = Intervals.union(start[communication], end[communication])
    start, end, types, shapes = start[chosen], end[chosen], types.take(chosen), tasks.shapes.take(chosen)
    dur, covered = end - start, busy.within(Intervals(start, end))
    beside, alone = covered == dur, covered == 0
    if not beside.any():
        return ()
    kind = alike(types.codes, shapes.codes)
    usual, under, lost = _compare(kind, dur, beside, alone)
    kinds = len(usual)
    counts = [np.bincount(kind[mask], minlength=kinds) for mask in (beside, alone)]
    enough = np.minimum(*counts) >= thresholds.beside_kernels_least
    slower = np.flatnonzero(enough & (under >= thresholds.beside_ratio * usual) & (lost > 0))
    total = np.bincount(kind[beside], weights=dur[beside], minlength=kinds)
    first = first_rows(kind, kinds)
    return tuple(
        Slowed(
            type=types[first[k]] or "",
            shapes=shapes[first[k]] or "",
            beside=int(counts[0][k]),
            alone=int(counts[1][k]),
            beside_ns=int(under[k]),
            alone_ns=int(usual[k]),
            total_ns=int(total[k]),
            lost_ns=int(lost[k]),
        )
        for k in slower[np.argsort(-lost[slower], kind="stable")].tolist()
    )


def _compare(kind: I64, dur: I64, beside: Mask, alone: Mask) -> tuple[F64, F64, F64]:
    """Return per kind the medians alone and beside communication, and what is beyond the former beside it."""
    kinds = int(kind.max()) + 1
    usual = medians(kind[alone], dur[alone], kinds)
    beyond = np.maximum(dur[beside] - usual[kind[beside]], 0)
    lost = np.bincount(kind[beside], weights=np.nan_to_num(beyond), minlength=kinds).astype(np.float64)
    return usual, medians(kind[beside], dur[beside], kinds), lost
