"""One rank, reduced to what questions across ranks need: small enough to send, and made where its data lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from npuperf.model.communication import Bandwidth, LinkUse, Operations, ProcessGroup
from npuperf.model.groups import alike, first_rows, sorted_rows
from npuperf.model.intervals import Intervals
from npuperf.model.labels import F64, I64, Labels, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

# -- Rows that are alike: what is usual among them. Columns of integers, any number of keys.


def medians(kind: I64, values: npt.NDArray[Any], kinds: int) -> F64:
    """Return the median of the values of each kind 0, 1, … (``kinds`` of them), NaN where it has none."""
    ordered, first, count = _by_kind(kind, values, kinds)
    low, high = first + (count - 1) // 2, first + count // 2
    return _mean_of(ordered, low, high, count > 0)


def medians_of_others(kind: I64, values: F64, kinds: int) -> tuple[F64, I64]:
    """Return for each row the median of the *other* rows of its kind, and how many there are."""
    ordered, first, count = _by_kind(kind, values, kinds)
    place = np.empty(len(values), np.int64)
    place[np.lexsort((values, kind))] = np.arange(len(values))
    others = count[kind] - 1
    low, high = first[kind] + (others - 1) // 2, first[kind] + others // 2
    # Without its own row, everything from there on moves down by one.
    usual = _mean_of(ordered, low + (low >= place), high + (high >= place), others > 0)
    return usual, others


def size_class(size: I64) -> I64:
    """Return k where 2^k ≤ size < 2^(k+1), -1 for sizes below one (not recorded)."""
    return np.where(size > 0, np.frexp(np.maximum(size, 1).astype(np.float64))[1] - 1, -1).astype(np.int64)


def class_text(power: int) -> str | None:
    """Render a size class, e.g. ``8–16 MiB``; None where sizes are not recorded."""
    if power < 0:
        return None
    unit, small = divmod(power, 10)
    name = ("B", "KiB", "MiB", "GiB", "TiB")[min(unit, 4)]
    return f"{2**small}–{2 ** (small + 1)} {name}"


def _by_kind(kind: I64, values: npt.NDArray[Any], kinds: int) -> tuple[F64, I64, I64]:
    """Return the values ordered within their kinds, where each kind begins, and how many it has."""
    count = np.bincount(kind, minlength=kinds)
    order = np.lexsort((values, kind)) if values.dtype.kind == "f" else sorted_rows(kind, values)
    return values[order].astype(np.float64), np.cumsum(count) - count, count


def _mean_of(ordered: F64, low: I64, high: I64, there: npt.NDArray[np.bool_]) -> F64:
    if not len(ordered):
        return np.full(len(there), np.nan)
    last = len(ordered) - 1
    middle = (ordered[np.clip(low, 0, last)] + ordered[np.clip(high, 0, last)]) / 2
    return np.where(there, middle, np.nan)


# -- Kernels beside communication: equal kernels that run slower while the device communicates.
#
# They share memory bandwidth and power with it. Equal are kernels of one type with the same recorded input shapes:
# those wholly beside communication are held against those wholly without; what overlaps in part tells nothing.


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


class LocalTime(Struct, frozen=True):
    """Stretches of a rank's own time between communication, and what fills them (ns, a row each).

    ``length`` = compute + host + other, host being waits for the host and launches under way.
    """

    length: I64
    compute: I64
    host: I64

    @classmethod
    def spread(cls, length: I64, share: float) -> LocalTime:
        """Return stretches of which the same share is compute, and no wait is known."""
        return cls(length, np.rint(length * share).astype(np.int64), np.zeros(len(length), np.int64))

    def __len__(self) -> int:
        return len(self.length)


class OperatorTime(Struct, frozen=True):
    """Kernels of one type and shape on a rank, all steps together."""

    type: str
    shapes: str | None
    count: int
    total_ns: int
    where: str | None = None


class ExpertTimes(Struct, frozen=True):
    """Grouped matmuls of a rank in order of time: ns, and tokens from the input shapes (-1 not recorded)."""

    start: I64
    ns: I64
    tokens: I64


class RankSummary(Struct, frozen=True):
    """What one device of one rank tells the job. Times are epoch ns of the device's own clock.

    The rank's own track of work is blocked in ``blocks``: stretches of exposed communication after which work went
    on; block j ends (``release``) with the end of operation ``until[j]``. Between blocks, the track advances by
    itself: ``to_block[j]`` is the local time from release j-1 (or ``begin``) to block j, ``tail`` the one from the
    last release to ``end``.
    Operation k arrives ``to_start[k]`` after release ``base[k]`` (-1: after ``begin``) or, where ``after[k]`` ≥ 0,
    ``to_start[k].length`` after the end of operation ``after[k]``.

    ``compute_before`` and ``host_before``: per operation, what the track spent so between ``begin`` and its start.

    ``exposed_*``: stretches of exposed communication, disjoint and in order; ``exposed_op`` is the operation that
    began first, which owns them.
    ``step_start``/``step_end``: the steps that ``step_number`` names.
    ``span_ns``: the exporter's length of the window, where there are no kernels and ``begin`` and ``end`` are those of
    the operations alone; else None. ``compute_ns``, ``host_ns``: totals of the window, None where files do not tell.
    """

    rank: int
    device: int
    source: str
    host: str | None
    begin: int
    end: int
    step_number: I64
    step_start: I64
    step_end: I64
    operations: Operations
    groups: tuple[ProcessGroup, ...]
    distributed: dict[str, int]
    exposed_op: I64
    exposed_start: I64
    exposed_end: I64
    until: I64
    block_start: I64
    to_block: LocalTime
    base: I64
    after: I64
    to_start: LocalTime
    compute_before: I64
    host_before: I64
    tail: LocalTime
    bandwidth: Bandwidth
    links: LinkUse
    compute_ns: int | None
    host_ns: int | None
    exposed_known: bool = True
    span_ns: int | None = None
    vendor_bubble_ns: int | None = None
    operators: tuple[OperatorTime, ...] = ()
    experts: ExpertTimes | None = None
    slowed: tuple[Slowed, ...] = ()
    where: str | None = None
    kineto: bool = False
