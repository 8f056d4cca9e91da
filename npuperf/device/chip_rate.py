"""What hardware counters tell of the chip: its cube cores and their clock, and which clock kernels ran at.

What op_summary and kernel_details have of a kernel is worked out by the exporter (msprof, metric_processor.cpp and
metric_calculator.cpp; in Python ffts_pmu_calculator.py) of its cycles, which all cores together took:

    cube_utilization = cycles / (rated MHz × cube cores × duration)          rated: aic_frequency of info.json
    aicore_time      = cycles / (MHz × blocks) × ceil(blocks / cores)        MHz: the clock in that moment

So the first gives cores × MHz, whose product is the chip's peak, and the second the clock of every kernel. Cores and
rated MHz come apart where only one whole number of cores agrees with both.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, say
from npuperf.base.units import NS_PER_US
from npuperf.device.cores import blocks
from npuperf.model.chip import Cores, cube_flop_per_s, known_clocks, vector_cores_beside
from npuperf.model.groups import lower_median
from npuperf.model.labels import F32, I64, Mask
from npuperf.model.tasks import Tasks

#: Rows that agree to this part of their product, beyond what rounding explains, and how many of those it needs.
_AGREE: Final = 1e-3
_ROWS: Final = 3
#: Part of the rows from which they speak for all: more that disagree are no outliers.
_ENOUGH: Final = 0.9
#: A product of whole cores and a rated clock is exact; what is left is the rounding of rows that it is the median of.
_EXACT: Final = 2e-4
#: A card with another clock than CANN's files name for its chip runs up to a tenth faster (1650 MHz for 1500).
_FASTER: Final = 1.1
#: Half of the last digit: times are written to a nanosecond, cycles as whole ones, utilization to 0.001 %.
_HALF_US: Final = 0.5 / NS_PER_US
_HALF_CYCLE: Final = 0.5
_HALF_PERCENT: Final = 0.0005
#: Core types of kernels that use cube cores.
_CUBE_KERNELS: Final = ("AI_CORE", "MIX_AIC", "MIX_AIV")


class CubeRate(Struct, frozen=True):
    """The cube cores of a device as counters tell them.

    ``core_mhz``: cores × rated MHz; ``cores`` and ``mhz``, the rated one: None where these cannot be told apart;
    ``rows``: how many agree, ``left_out``: kernels on cube cores with odd counters, or that do not agree.
    """

    cores: int | None
    mhz: float | None
    core_mhz: float
    rows: int
    left_out: int = 0

    @property
    def flop_per_s(self) -> float:
        """What they reach at most in FP16 or BF16."""
        return cube_flop_per_s(self.core_mhz)

    @property
    def source(self) -> Message:
        """Name what tells it."""
        if self.cores is None:
            return say(
                "counters: {product} cube cores × MHz, {rows} rows", product=round(self.core_mhz), rows=self.rows
            )
        return say("counters: {cores} cube cores at {mhz} MHz, {rows} rows", cores=self.cores, mhz=round(self.mhz or 0),
                   rows=self.rows)  # fmt: skip

    def as_cores(self) -> Cores | None:
        """Return the core counts, those of vector cores inferred from chips with as many cube cores."""
        if self.cores is None:
            return None
        vector = vector_cores_beside(self.cores)
        if vector is None:
            return Cores(self.cores, None, self.source)
        return Cores(self.cores, vector, say("{counters}; {vector} vector cores inferred: known chips have two beside "
                                             "each cube core", counters=self.source, vector=vector))  # fmt: skip


def measure_cube(tasks: Tasks) -> CubeRate | None:
    """Work out cube cores and rated clock from the counters of kernels.

    None where fewer than three of them agree, or no whole number of cores agrees with all that they tell.
    """
    cycles, used = tasks.pmu.get("aic_total_cycles"), tasks.pmu.get("cube_utilization")
    if cycles is None or used is None:
        return None
    on_cube = tasks.core.flag([c in _CUBE_KERNELS for c in tasks.core.names])
    # a mix kernel that leaves its cube side alone has zeros there, of which nothing is odd
    rows = np.flatnonzero(on_cube & ~((cycles == 0) & (used == 0)))
    sound = rows[_sound(tasks, rows)]
    dur = tasks.dur[sound] / NS_PER_US
    percent = used[sound].astype(np.float64)
    product = cycles[sound] / dur / (percent / 100)
    rounding = _HALF_PERCENT / percent + _HALF_US / dur + _HALF_CYCLE / cycles[sound]
    exact = rounding <= _AGREE
    if np.count_nonzero(exact) < _ROWS:
        return None
    core_mhz = float(lower_median(product[exact]))
    agree = np.abs(product / core_mhz - 1) <= _AGREE + np.where(exact, 0, rounding)
    agreeing = int(np.count_nonzero(agree & exact))
    if agreeing < max(_ROWS, _ENOUGH * np.count_nonzero(exact)):
        return None
    possible, likely = _core_counts(tasks, sound[agree], core_mhz)
    if possible == []:
        return None
    cores = likely[0] if len(likely) == 1 else None
    return CubeRate(cores, None if cores is None else core_mhz / cores, core_mhz, agreeing,
                    len(rows) - int(np.count_nonzero(agree)))  # fmt: skip


def _sound(tasks: Tasks, rows: I64) -> Mask:
    """Tell which rows have counters that can be: positive and finite, no utilization and no ratio above the whole."""
    cycles, used = (tasks.pmu[name][rows] for name in ("aic_total_cycles", "cube_utilization"))
    sound: Mask = (tasks.dur[rows] > 0) & (cycles > 0) & np.isfinite(cycles) & (used > 0) & (used <= 100)
    for name, values in tasks.pmu.items():
        if name.startswith("aic_") and name.endswith("_ratio"):
            ratio = values[rows]
            sound &= ~((ratio < 0) | (ratio > 1))  # where it is not recorded it says nothing
    return sound


def _core_counts(tasks: Tasks, rows: I64, core_mhz: float) -> tuple[list[int] | None, list[int]]:
    """Return the whole numbers of cube cores with which no kernel ran faster than rated, and those that are likely.

    Likely is one with which kernels ran at the rated clock. Where all of them were slower, that takes a wrong number
    for the right one: so one that makes the product a clock of the table is likely, too. Of several, those are meant
    with which most kernels ran at one clock. None: no clock is recorded.
    """
    time = tasks.pmu.get("aicore_time")
    if time is None:
        return None, []
    block, us, cycles = blocks(tasks).cube[rows], time[rows], tasks.pmu["aic_total_cycles"][rows]
    known = np.flatnonzero((block > 0) & (us > 0) & np.isfinite(us))
    if len(known) < _ROWS:
        return None, []
    block, us, cycles = block[known], us[known].astype(np.float64), cycles[known].astype(np.float64)
    tolerance = _AGREE + _HALF_US / us + _HALF_CYCLE / cycles
    rates = known_clocks()
    possible: list[int] = []
    alike: dict[int, int] = {}  # by likely number: kernels of one clock
    for cores in range(int(core_mhz / (rates[-1] * _FASTER)) + 1, int(core_mhz / (rates[0] / _FASTER)) + 1):
        rated = core_mhz / cores
        clock = cycles / us * -(-block // cores) / block / rated
        if np.count_nonzero(clock > 1 + tolerance) > (1 - _ENOUGH) * len(known):
            continue
        possible.append(cores)
        named = any(abs(rated / mhz - 1) <= _EXACT for mhz in rates)
        if named or np.count_nonzero(np.abs(clock - 1) <= tolerance) >= _ROWS:
            alike[cores] = int(np.count_nonzero(np.abs(clock / lower_median(clock) - 1) <= tolerance))
    most = max(alike.values(), default=0)
    return possible, [cores for cores, rows in alike.items() if rows > most - _ROWS]


def clocks(tasks: Tasks, cores: Cores) -> F32 | None:
    """Return the clock that each kernel ran at, MHz, NaN where it is not told; None where that of none is.

    Kernels with cube and vector cores are judged by their cube side.
    """
    known = np.full(len(tasks), np.nan, np.float32)
    used = blocks(tasks)
    for block, there, time, cycles in (
        (used.vector, cores.vector, "aiv_time", "aiv_total_cycles"),
        (used.cube, cores.cube, "aicore_time", "aic_total_cycles"),
    ):
        if there and time in tasks.pmu and cycles in tasks.pmu:
            rows = np.flatnonzero((block > 0) & (tasks.pmu[time] > 0) & (tasks.pmu[cycles] > 0))
            waves = -(-block[rows] // there)
            known[rows] = tasks.pmu[cycles][rows] / tasks.pmu[time][rows] * waves / block[rows]
    return None if np.isnan(known).all() else known
