"""What kernels do on cube cores, by counters and by shapes, held against each other; and the peak of these cores.

Counters tell what was done: cycles × mac ratio × 8192 FLOP, in FP16 units. Shapes tell what had to be done
(:mod:`npuperf.device.formulas`). What had to be done cannot be more than what was done, nor that more than the peak: a
kernel that breaks the first has shapes that contradict its counters, one that breaks the second has odd counters, and
neither counts as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeVar, get_args

import numpy as np
from msgspec import Struct, structs

from npuperf.base.units import NS_PER_S
from npuperf.device.chip_rate import CubeRate
from npuperf.device.cores import blocks
from npuperf.device.formulas import Cost, cost_of, has_formula, shapes_of
from npuperf.device.pipes import mac_ratios
from npuperf.model.chip import CUBE_CORES, CUBE_FLOP, Cores, chip_of_soc, cube_flop_per_s
from npuperf.model.efficiency_result import IdleCause
from npuperf.model.groups import alike, first_rows, largest, sums_of
from npuperf.model.labels import F64, I32, I64, U8, Labels, Mask, Operands
from npuperf.model.tasks import Tasks, Work

#: Half of the last digit of a ratio: exporters write three.
_HALF_RATIO: Final = 0.0005
#: Beyond the rounding of ratios and times nothing is tolerated but this part.
TOLERANCE: Final = 1e-3
#: What a task's code says of shapes that do not fit its formula, and where there is none.
_UNFIT, _NOTHING = -2, -1
#: Combinations of type, shapes and operands that formulas are asked for: of programs with dynamic shapes every kernel
#: is one of its own, and asking takes 25 µs.
_ASKED: Final = 20_000
#: Kernels that use cube cores beside vector cores, if they have any cycles there.
_BESIDE: Final = ("MIX_AIC", "MIX_AIV")
CAUSES: Final[tuple[IdleCause, ...]] = get_args(IdleCause)
#: Pipe ratios of cube cores, and what a kernel is doing where that one is the largest.
_PIPES: Final[dict[str, IdleCause]] = {
    "aic_mte1_ratio": "memory",
    "aic_mte2_ratio": "memory",
    "aic_mte3_ratio": "memory",
    "aic_scalar_ratio": "scalar",
    "aic_fixpipe_ratio": "fixpipe",
}


R = TypeVar("R", bound="KernelRows")


class Peak(Struct, frozen=True):
    """What cube cores reach at most in FP16 or BF16, and what tells it.

    ``inferred``: from waves of blocks; then ``most_flop_per_s`` is that of the fastest chip that is throttled
    throughout, if it may be one.
    """

    flop_per_s: float
    basis: Literal["counters", "info", "chip", "asked"]
    cores: int | None = None
    mhz: float | None = None
    inferred: bool = False
    most_flop_per_s: float | None = None

    @classmethod
    def of(cls, rate: CubeRate | None, cores: Cores, soc: str | None, asked: bool) -> Peak | None:
        """Return the peak that counters prove, else that of the known cores at the chip's clock; None where unknown.

        ``asked``: cores or the chip are what the user says.
        """
        if rate is not None:
            return cls(rate.flop_per_s, "counters", rate.cores, rate.mhz, rate.inferred, rate.most_flop_per_s)
        chip = chip_of_soc(soc or "")
        if chip is None or chip.mhz is None:
            return None
        count = cores.cube or chip.cube
        basis: Literal["info", "chip", "asked"] = "asked" if asked else "chip" if cores.cube is None else "info"
        return cls(cube_flop_per_s(count * chip.mhz), basis, count, float(chip.mhz))


class Costs(Struct, frozen=True):
    """What kernels are asked to do: ``code`` of each task points into ``known``, below 0: nothing tells it."""

    code: I32
    known: list[Cost]

    @classmethod
    def of(cls, tasks: Tasks, types: Labels) -> Costs:
        """Ask the formulas once for each combination of type, core, shapes and operands, those that take most time."""
        code = np.full(len(tasks), _NOTHING, np.int32)
        formula = types.flag([has_formula(name) for name in types.names])
        rows = np.flatnonzero((tasks.work == Work.COMPUTE) & tasks.shapes.known() & formula)
        known: list[Cost] = []
        if not len(rows):
            return cls(code, known)
        columns = (types, tasks.core, tasks.shapes, tasks.operands)
        kind = alike(*(column.codes.take(rows) for column in columns))
        number = np.full(int(kind.max()) + 1, _UNFIT, np.int32)
        first = rows[first_rows(kind, len(number))]
        asked = np.arange(len(number))
        if len(number) > _ASKED:
            asked = largest(sums_of(kind, tasks.dur.take(rows), len(number)), _ASKED)
            number[:] = _NOTHING
            number[asked] = _UNFIT
        for place, row in zip(asked.tolist(), first[asked].tolist(), strict=True):
            type_, core, shapes, operands = (column[row] for column in columns)
            read = shapes_of(shapes)
            if type_ is None or read is None:
                continue
            cost = cost_of(type_, core, read, Operands.parse(operands) if operands else Operands())
            if cost is not None:
                number[place] = len(known)
                known.append(cost)
        code[rows] = number[kind]
        return cls(code, known)

    def part(self, chosen: slice) -> Costs:
        """Return those of a stretch of the tasks."""
        return Costs(self.code[chosen], self.known)

    def flag(self, flags: Iterable[bool]) -> Mask:
        """Tell which tasks have one of the known costs that are flagged."""
        found: Mask = np.array([*flags, False, False], np.bool_).take(self.code, mode="wrap")
        return found

    def spread(self, values: Iterable[float]) -> F64:
        """Return for each task what is given for its cost, 0 where nothing tells that."""
        return np.array([*values, 0.0, 0.0]).take(self.code, mode="wrap")

    def products(self) -> tuple[F64, F64, F64]:
        """Return for each of the known ones the least and most FLOP of cube cores in FP16 units, NaN where unknown.

        The third is how many of these units one FLOP of its type is.
        """
        scale = np.array([one.units or np.nan for one in self.known] + [np.nan, np.nan])
        least, most = (np.array([*side, np.nan, np.nan]) * scale  # the last places: nothing tells
                       for side in ([c.least for c in self.known], [c.most for c in self.known]))  # fmt: skip
        return least, most, scale


class KernelRows(Struct, frozen=True):
    """Columns of some of the tasks, a row each, in the order of their tasks; ``task``: their place among these."""

    task: I64

    def rows_of(self: R, chosen: slice, names: Iterable[str]) -> R:
        """Return those of a stretch of the tasks, with their places in it; ``names``: of the other columns."""
        here = slice(*np.searchsorted(self.task, [chosen.start, chosen.stop]).tolist())
        columns = {name: getattr(self, name)[here] for name in names}
        return structs.replace(self, task=self.task[here] - chosen.start, **columns)


class CubeWork(KernelRows, frozen=True):
    """What kernels do on cube cores, a row each, in the order of their tasks. FLOP are in FP16 units.

    ``busy``: by counters, NaN: not recorded, or odd; ``least``, ``most``: useful
    by shapes, and no more than busy; NaN: no formula, or a contradiction; ``scale``: what a FLOP of its type is in FP16
    units; ``unused``: the share of cube cores that a kernel has no blocks for; ``cause``: what its cores do while they
    multiply nothing.
    """

    busy: F64
    least: F64
    most: F64
    scale: F64
    unused: F64
    cause: U8
    contradicts: Mask
    odd: Mask

    @classmethod
    def of(cls, tasks: Tasks, costs: Costs, peak: Peak) -> CubeWork:
        """Work it out while counters are there."""
        counted = tasks.pmu.get("aic_total_cycles")
        cycles = np.full(len(tasks), np.nan) if counted is None else counted
        names = tasks.core.names
        own, beside = (tasks.core.flag([name in cores for name in names]) for cores in (CUBE_CORES, _BESIDE))
        chosen = (tasks.work == Work.COMPUTE) & (tasks.dur > 0) & np.where(beside, cycles != 0, own)
        if "MIX_AIV" in names and counted is None:  # whether it has the cube cores, too, nothing tells
            chosen &= own
        rows = np.flatnonzero(chosen)
        most_ever = peak.flop_per_s * (tasks.dur[rows] / NS_PER_S)
        busy, rounding, odd = _busy(tasks, rows, most_ever)
        code = costs.code.take(rows)
        least, most, scale = (side.take(code, mode="wrap") for side in costs.products())
        bound = np.where(np.isnan(busy), most_ever, busy)
        contradicts = least > bound * (1 + TOLERANCE) + np.where(np.isnan(busy), 0, rounding)
        contradicts |= code == _UNFIT
        least[contradicts] = most[contradicts] = np.nan
        return cls(rows, busy, np.minimum(least, bound), np.minimum(most, bound), scale,
                   _unused(tasks, rows, peak.cores), _cause(tasks, rows), contradicts, odd)  # fmt: skip

    @property
    def counted(self) -> Mask:
        """True where counters tell how busy the cube cores are."""
        return ~np.isnan(self.busy)

    @property
    def told(self) -> Mask:
        """True where shapes tell what is useful."""
        return ~np.isnan(self.least)

    def part(self, chosen: slice) -> CubeWork:
        """Return what a stretch of the tasks does."""
        return self.rows_of(chosen, self.__struct_fields__[1:])


def _busy(tasks: Tasks, rows: I64, most: F64) -> tuple[F64, F64, Mask]:
    """Return what cube cores did by counters, by how much rounding makes it uncertain, and where counters are odd."""
    counted, ratios = tasks.pmu.get("aic_total_cycles"), mac_ratios(tasks)
    if counted is None or not ratios:
        nothing = np.full(len(rows), np.nan)
        return nothing, nothing, np.zeros(len(rows), np.bool_)
    cycles = counted.take(rows).astype(np.float64)
    mac = sum((ratio.take(rows).astype(np.float64) for ratio in ratios), np.zeros(len(rows)))
    busy, rounding = cycles * mac * CUBE_FLOP, cycles * (_HALF_RATIO * len(ratios) * CUBE_FLOP)
    above = busy > most * (1 + TOLERANCE + 1 / tasks.dur[rows]) + rounding
    odd = (cycles < 0) | (mac < 0) | (mac > 1 + _HALF_RATIO * len(ratios)) | np.isinf(busy) | above
    busy[odd | (cycles <= 0)] = np.nan
    return np.minimum(busy, most), rounding, odd


def _unused(tasks: Tasks, rows: I64, cores: int | None) -> F64:
    """Return the share of cube cores that each kernel has no block for; 0 where that is not known."""
    used = blocks(tasks).cube.take(rows)
    if not cores:
        return np.zeros(len(rows))
    return np.where(used > 0, 1 - np.minimum(used, cores) / cores, 0.0)


def _cause(tasks: Tasks, rows: I64) -> U8:
    """Return what the busiest unit of cube cores beside the multiplying one is, as a place in the causes."""
    pipes = [name for name in _PIPES if name in tasks.pmu]
    unknown = np.full(len(rows), CAUSES.index("unknown"), np.uint8)
    if not pipes:
        return unknown
    ratios = np.nan_to_num(np.stack([tasks.pmu[name].take(rows) for name in pipes]))
    causes = np.array([CAUSES.index(_PIPES[name]) for name in pipes], np.uint8)
    return np.where(ratios.max(axis=0) > 0, causes[ratios.argmax(axis=0)], unknown)
