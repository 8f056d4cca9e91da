"""Roofs: how fast kernels can be at most, by what they are asked to do and what the chip can; and what could be won.

Each roof is a time that a kernel cannot be shorter than: its products at the rate of their type, its operations on
vector cores, the bytes that it must move, and the shortest kernel on the same cores. Bytes may lie in L2: so what is
certain is L2's rate, and HBM's for what L2 cannot hold; that all of it comes from HBM is as much as it can be.
A combination of type, shapes and operands of which any kernel was faster than its roof has no roof: its shapes, or its
formula, are wrong. docs/efficiency.md has all rates with their sources.
"""

from __future__ import annotations

from typing import Final, get_args

import numpy as np
from msgspec import Struct

from npuperf.base.units import NS_PER_S
from npuperf.device.attention_formulas import LENGTHS
from npuperf.device.cores import on_cores
from npuperf.device.cube_formulas import GROUPS, Cost
from npuperf.device.cube_work import TOLERANCE, Costs, CubeWork, KernelRows, Peak
from npuperf.device.partition import alone
from npuperf.device.pipes import MOST, Pipes
from npuperf.model.chip import CUBE_FLOP, Cores, MemoryRates, memory_of_soc, vector_flop_per_s
from npuperf.model.efficiency_result import Limit, Roofs
from npuperf.model.groups import alike, sorted_rows
from npuperf.model.intervals import SIGNED, Intervals, narrow
from npuperf.model.labels import F64, I32, I64, U8, Labels, Mask
from npuperf.model.tasks import Tasks, Work

LIMITS: Final[tuple[Limit, ...]] = get_args(Limit)
_CUBE, _VECTOR, _SCALAR, _HBM, _L2, _LAUNCH, _UNKNOWN = range(len(LIMITS))
#: The part of equal kernels whose speed the others are held against; that of one alone is none: its data may have lain
#: in L2.
_BEST: Final = 0.1
#: What limits kernels by their counters: neither side's computing units, or those of cube or of vector cores.
_BY_COUNTERS: Final = np.array([_UNKNOWN, _CUBE, _VECTOR], np.uint8)
#: Roofs that are farther away limit nothing: the part of a kernel's time that its nearest roof takes.
_NEAR: Final = 0.1
#: A kernel that does nothing takes 1 to 5 us on Atlas A2, by the kind of its cores; what takes longer works.
_LAUNCHING: Final = 5000
#: Where a cost says so, which bytes are read is data.
_DATA: Final = {GROUPS, LENGTHS}


class Rates(Struct, frozen=True):
    """The rates of a chip. ``memory``: None where its kind of chip is not known."""

    cube: float
    vector: float
    core_hz: float
    memory: MemoryRates | None

    @classmethod
    def of(cls, peak: Peak, cores: Cores, soc: str | None) -> Rates:
        """Derive them from the peak of cube cores; split chips have two vector cores beside each."""
        core_hz = peak.flop_per_s / CUBE_FLOP
        vector = cores.vector * peak.mhz if cores.vector and peak.mhz else 2 * core_hz / 1e6
        return cls(peak.flop_per_s, vector_flop_per_s(vector), core_hz, memory_of_soc(soc, peak.cores))

    def roofs(self) -> Roofs:
        """Return them as a document has them."""
        memory = self.memory
        return Roofs(
            cube_flop_per_s=self.cube,
            vector_flop_per_s=self.vector,
            l2_bytes_per_s=None if memory is None else memory.l2_rate * self.core_hz,
            hbm_bytes_per_s=None if memory is None else memory.hbm_rate,
            hbm_of_chip=memory is not None and memory.of_chip,
        )


class Roofed(Struct, frozen=True):
    """Sums over the kernels of an operator; times in ns.

    ``ns``: the time of kernels with a roof, ``roof_ns``: of their nearest roofs, ``least``, ``most``: what could be
    won; ``by_limit``: the time of all kernels by what limits them, as in ``LIMITS``. ``flop``, ``flop_ns``: of kernels
    whose operations are known; ``placed``: operations and bytes of those that have both.
    """

    ns: int = 0
    roof_ns: float = 0.0
    least: int = 0
    most: int = 0
    by_limit: tuple[int, ...] = (0,) * len(LIMITS)
    flop: float = 0.0
    flop_ns: int = 0
    placed: tuple[float, float] = (0.0, 0.0)

    def __add__(self, other: Roofed) -> Roofed:
        return Roofed(
            self.ns + other.ns, self.roof_ns + other.roof_ns, self.least + other.least, self.most + other.most,
            tuple(a + b for a, b in zip(self.by_limit, other.by_limit, strict=True)),
            self.flop + other.flop, self.flop_ns + other.flop_ns,
            (self.placed[0] + other.placed[0], self.placed[1] + other.placed[1]),
        )  # fmt: skip

    @property
    def limit(self) -> Limit | None:
        """What limits kernels for most of the time; None where none runs on cores."""
        return LIMITS[self.by_limit.index(max(self.by_limit))] if any(self.by_limit) else None


class Recoverable(Struct, frozen=True):
    """What kernels with a roof could win, ns, how many they are, and how many were faster than their shapes allow."""

    kernels: int
    least: int
    most: int
    refuted: int


class RecoverableOver(Struct, frozen=True):
    """The same from the first kernel on; ``begin``: of each kernel, epoch ns."""

    begin: I64
    columns: list[I64]

    def within(self, windows: Intervals) -> list[Recoverable]:
        """Return that of the kernels that begin in each window."""
        first, last = np.searchsorted(self.begin, windows.start), np.searchsorted(self.begin, windows.end)
        sums = ((column[last] - column[first]).tolist() for column in self.columns)
        return [Recoverable(*row) for row in zip(*sums, strict=True)]


class Roofline(KernelRows, frozen=True):
    """The roofs of kernels on cube and vector cores, a row each, in the order of their tasks.

    ``limit``: what limits them, a place in ``LIMITS``; ``refuted``: they were
    faster than their shapes allow; ``roof``: the time of the nearest roof, ns, NaN: none is known; ``least``, ``most``:
    what could be won, ns; ``code``: into ``flop`` (in FP16 units, or operations of vector cores) and ``bytes``, of
    which the last place stands for what is not known.
    """

    rates: Rates
    limit: U8
    refuted: Mask
    roof: F64
    least: I64
    most: I64
    code: I32
    flop: F64
    bytes: F64

    @classmethod
    def of(cls, tasks: Tasks, types: Labels, costs: Costs, work: CubeWork, pipes: Pipes, rates: Rates) -> Roofline:
        """Work it out while counters are there; ``types``, ``costs``, ``work``, ``pipes``: of the tasks."""
        rows = np.flatnonzero((tasks.work == Work.COMPUTE) & (tasks.dur > 0) & on_cores(tasks))
        dur, code = tasks.dur[rows], np.maximum(costs.code[rows], -1)
        table = _Table.of(costs.known, rates)
        wrong = np.zeros(len(tasks), np.bool_)
        wrong[work.task[work.contradicts]] = True
        refuted = table.least[code] > dur * (1 + TOLERANCE) + 1
        table = table.without(code[wrong[rows] | refuted])
        told = table.least[code] > 0
        floor = _launching(tasks.core.codes[rows], dur)
        certain = np.minimum(np.maximum(table.least[code], floor), dur)
        near, limit = table.nearest(code, dur, floor)
        limit[~told] = _UNKNOWN
        counted = _BY_COUNTERS.take(pipes.limit[rows])
        counted[pipes.scalar[rows] > 0] = _SCALAR
        np.copyto(limit, counted, where=(counted != _UNKNOWN) & (limit != _LAUNCH))
        least = np.where(told, dur - _best(code, dur), 0)
        most = np.where(told, dur - np.ceil(certain).astype(np.int64), 0)
        np.clip(least, 0, most, out=least)
        # None of what runs beside anything else is won for certain, for that may take as long without it. At most it
        # is, but for what runs beside other kernels: communication goes on beside what follows.
        kind = alike(types.codes, tasks.core.codes, tasks.work)
        least = np.maximum(least - (dur - _alone(tasks, kind, tasks.work != Work.CONTROL)[rows]), 0)
        most = np.minimum(most, _alone(tasks, kind, tasks.work == Work.COMPUTE)[rows])
        roof = np.where(told, np.minimum(near, dur), np.nan)
        return cls(rows, rates, limit, refuted, roof, narrow(least, SIGNED), narrow(most, SIGNED),
                   np.where(told, code, -1).astype(np.int32), table.flop, table.bytes)  # fmt: skip

    def part(self, chosen: slice) -> Roofline:
        """Return that of a stretch of the tasks."""
        return self.rows_of(chosen, ("limit", "refuted", "roof", "least", "most", "code"))

    def recoverable(self, tasks: Tasks) -> RecoverableOver:
        """Add up over time what the kernels could win."""
        columns = [np.append(0, np.cumsum(column, dtype=np.int64))
                   for column in (~np.isnan(self.roof), self.least, self.most, self.refuted)]  # fmt: skip
        return RecoverableOver(tasks.start[self.task], columns)

    def sums(self, tasks: Tasks, group: I64, groups: int) -> list[Roofed]:
        """Sum up the kernels of each of so many groups; ``group``: of each task, below 0 for none."""
        own, dur = group[self.task], tasks.dur[self.task]
        told, flop, size = ~np.isnan(self.roof), self.flop[self.code], self.bytes[self.code]
        counted, placed = flop > 0, (flop > 0) & (size > 0)

        def total(chosen: Mask, values: I64 | F64) -> list[float]:
            sums: list[float] = np.bincount(own[chosen], weights=values[chosen], minlength=groups).tolist()
            return sums

        by_limit = np.bincount(own * len(LIMITS) + self.limit, weights=dur, minlength=groups * len(LIMITS))
        columns = zip(total(told, dur), total(told, self.roof), total(told, self.least), total(told, self.most),
                      by_limit.reshape(groups, len(LIMITS)).astype(np.int64).tolist(),
                      total(counted, flop), total(counted, dur), total(placed, flop), total(placed, size),
                      strict=True)  # fmt: skip
        return [
            Roofed(int(ns), roof, int(least), int(most), tuple(limits), work, int(work_ns), (over, under))
            for ns, roof, least, most, limits, work, work_ns, over, under in columns
        ]


class MeasuredKernels(Struct, frozen=True):
    """What kernels do against what the device can, by counters and shapes."""

    peak: Peak
    work: CubeWork
    roofline: Roofline

    def part(self, chosen: slice) -> MeasuredKernels:
        """Return that of a stretch of the tasks."""
        return MeasuredKernels(self.peak, self.work.part(chosen), self.roofline.part(chosen))


class _Table(Struct, frozen=True):
    """Roofs of each known cost, ns, 0 where it has none; the last place stands for what is not known.

    ``far``: that all bytes come from HBM.
    """

    cube: F64
    vector: F64
    l2: F64
    beyond: F64
    far: F64
    flop: F64
    bytes: F64

    @classmethod
    def of(cls, known: list[Cost], rates: Rates) -> _Table:
        products = np.array([c.least * (c.units or 0.0) for c in known] + [0.0])
        single = np.array([c.vector[0] if c.vector else 0.0 for c in known] + [0.0])
        moved = np.array([_certain_bytes(c) for c in known] + [0.0])
        l2 = beyond = far = np.zeros(len(moved))
        if (memory := rates.memory) is not None:
            l2, far = moved / (memory.l2_rate * rates.core_hz) * NS_PER_S, moved / memory.hbm_rate * NS_PER_S
            # as much as L2 holds may lie there before, and stay there afterwards
            beyond = np.maximum(moved - 2 * memory.l2, 0) / memory.hbm_rate * NS_PER_S
        return cls(products / rates.cube * NS_PER_S, single / rates.vector * NS_PER_S, l2, beyond, far,
                   np.where(products > 0, products, single), moved)  # fmt: skip

    @property
    def least(self) -> F64:
        """The time that is certain."""
        return np.maximum(np.maximum(self.cube, self.vector), np.maximum(self.l2, self.beyond))

    def without(self, codes: I32) -> _Table:
        """Return the same without some costs."""
        keep = np.ones(len(self.cube))
        keep[codes] = 0.0
        return _Table(*(getattr(self, name) * keep for name in self.__struct_fields__))

    def nearest(self, code: I32, dur: I64, floor: I64) -> tuple[F64, U8]:
        """Return the largest roof of kernels, and which it is; HBM's is that of all bytes where these may come from it.

        The rest of what is shorter than that must have come from L2. Launching is one where it takes most of the time:
        it comes before what a kernel does, and not beside it.
        """
        far = np.where(self.far[code] <= dur, self.far[code], self.beyond[code])
        roof, limit = self.l2[code], np.full(len(code), _L2, np.uint8)
        for name, times in ((_HBM, far), (_VECTOR, self.vector[code]), (_CUBE, self.cube[code])):
            np.copyto(limit, np.uint8(name), where=times > roof)
            np.maximum(roof, times, out=roof)
        np.copyto(limit, np.uint8(_UNKNOWN), where=roof < _NEAR * dur)
        launching = (floor > roof) & (floor >= MOST * dur)
        np.copyto(limit, np.uint8(_LAUNCH), where=launching)
        np.copyto(roof, floor, where=launching)
        return roof, limit


def _alone(tasks: Tasks, kind: I64, chosen: Mask) -> I64:
    """Return for each of the chosen tasks how long none of another kind runs beside it, ns."""
    found, rows = np.zeros(len(tasks), np.int64), np.flatnonzero(chosen)
    found[rows] = alone(tasks.start[rows], tasks.end[rows], kind[rows])
    return found


def _certain_bytes(cost: Cost) -> float:
    """Return how many bytes a kernel must move; 0 where data tells."""
    return 0.0 if cost.bytes is None or _DATA & set(cost.note.split()) else float(cost.bytes[0])


def _launching(core: I32, dur: I64) -> I64:
    """Return for each kernel what launching one takes at least: the shortest on the same kind of cores, or on any."""
    shortest = np.full(int(core.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, core, dur)
    shortest[shortest > _LAUNCHING] = shortest.min(initial=_LAUNCHING + 1)
    shortest[shortest > _LAUNCHING] = 0  # none is that short
    floor: I64 = shortest[core]
    return floor


def _best(code: I32, dur: I64) -> I64:
    """Return for each kernel the time that a tenth of its equals, and two of them, do not exceed; alone its own."""
    if not len(code):
        return dur
    kind = alike(code)
    count = np.bincount(kind)
    place = np.minimum(np.maximum(np.ceil(_BEST * count).astype(np.int64), 2), count) - 1
    ordered = dur[sorted_rows(kind, dur)]
    best: I64 = ordered[np.cumsum(count) - count + place]
    return best[kind]
