"""What hardware counters tell of the chip: its cube cores and their clock, and which clock kernels ran at.

What op_summary and kernel_details have of a kernel is worked out by the exporter (msprof, metric_processor.cpp and
metric_calculator.cpp; in Python ffts_pmu_calculator.py) of its cycles, which all cores together took:

    cube_utilization = cycles / (rated MHz × cube cores × duration)          rated: aic_frequency of info.json
    aicore_time      = cycles / (MHz × blocks) × ceil(blocks / cores)        MHz: the clock in that moment

So the first gives cores × MHz, whose product is the chip's peak, and the second the clock of every kernel. Cores and
rated MHz come apart where only one whole number of cores agrees with both. Databases have no cube_utilization: of them
the second alone tells in how many waves blocks ran, and the chip is inferred if only one known one fits all of them.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, say, series
from npuperf.base.units import NS_PER_US
from npuperf.device.cores import blocks
from npuperf.model.chip import Cores, chip_of_soc, cube_flop_per_s, known_clocks, split_chips, vector_cores_beside
from npuperf.model.device import ClockRates
from npuperf.model.groups import lower_median, numbered
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I16, I64, Mask
from npuperf.model.result import CoreClock
from npuperf.model.tasks import Tasks, Work

#: Rows that agree to this part of their product, beyond what rounding explains, and how many of those it needs.
_AGREE: Final = 1e-3
_ROWS: Final = 3
#: Part of the rows from which they speak for all: more that disagree are no outliers.
_ENOUGH: Final = 0.9
#: A product of whole cores and a rated clock is exact; what is left is the rounding of rows that it is the median of.
_EXACT: Final = 2e-4
#: A rated clock is a whole number of MHz: so much is the rounding of the counters that tell it.
_WHOLE: Final = 1e-4
#: A card with another clock than CANN's files name for its chip runs up to a tenth faster (1650 MHz for 1500).
_FASTER: Final = 1.1
#: Half of the last digit: times are written to a nanosecond, cycles as whole ones, utilization to 0.001 %.
_HALF_US: Final = 0.5 / NS_PER_US
_HALF_CYCLE: Final = 0.5
_HALF_PERCENT: Final = 0.0005
#: Below it, µs, the rounding of times makes a clock another one.
_SHORTEST_US: Final = _HALF_US / 2e-3
#: Idle cores run at 800 MHz, none that works at half of that, and none at as much as this.
_LEAST_MHZ: Final = 400
_MOST_MHZ: Final = 10_000
#: What is faster than all but a hundredth of kernels is chance.
_HIGHEST: Final = 0.99
#: Of many kernels about so many are asked for their clock.
_TRIED: Final = 5000
#: Core types of kernels that use cube cores.
_CUBE_KERNELS: Final = ("AI_CORE", "MIX_AIC", "MIX_AIV")


class CubeRate(Struct, frozen=True):
    """The cube cores of a device as counters tell them.

    ``core_mhz``: cores × rated MHz; ``cores`` and ``mhz``, the rated one: None where these cannot be told apart;
    ``rows``: how many agree, ``left_out``: kernels on cube cores with odd counters, or that do not agree;
    ``likely``: the numbers of cores of which one is meant, lowest first, as far as that is told; ``inferred``: from the
    only known chip that fits at its rated clock, and ``throttled``: other chips, as cores and rated MHz, which it may
    be if all of its kernels ran below that.
    """

    cores: int | None
    mhz: float | None
    core_mhz: float
    rows: int
    left_out: int = 0
    likely: tuple[int, ...] = ()
    inferred: bool = False
    throttled: tuple[tuple[int, int], ...] = ()

    @property
    def most_flop_per_s(self) -> float | None:
        """The same of the fastest chip that it may be, throttled throughout; None: it is none."""
        products = [cores * mhz for cores, mhz in self.throttled]
        return cube_flop_per_s(max(products)) if products else None

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
        if self.inferred and self.throttled:
            others = [say("{cores} at {mhz} MHz", cores=cores, mhz=mhz) for cores, mhz in self.throttled]
            return say(
                "counters: {cores} cube cores at {mhz} MHz (inferred: no other known chip runs blocks in as many "
                "waves, unless it is throttled throughout: {others}), {rows} rows",
                cores=self.cores,
                mhz=round(self.mhz or 0),
                others=series(others),
                rows=self.rows,
            )
        if self.inferred:
            return say(
                "counters: {cores} cube cores at {mhz} MHz (inferred: no other known chip runs blocks in as many "
                "waves), {rows} rows",
                cores=self.cores,
                mhz=round(self.mhz or 0),
                rows=self.rows,
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
        source = say("{counters}; {vector} vector cores inferred", counters=self.source, vector=vector)
        return Cores(self.cores, vector, source)


def measure_cube(tasks: Tasks) -> CubeRate | None:
    """Work out cube cores and rated clock from the counters of kernels.

    None where fewer than three of them agree, or no whole number of cores agrees with all that they tell.
    """
    cycles, used = tasks.pmu.get("aic_total_cycles"), tasks.pmu.get("cube_utilization")
    if cycles is None or used is None:
        return _by_waves(tasks)
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
    if cores and abs(core_mhz / cores - round(core_mhz / cores)) <= _WHOLE * core_mhz / cores:
        core_mhz = float(cores * round(core_mhz / cores))
    left_out = len(rows) - int(np.count_nonzero(agree))
    return CubeRate(cores, cores and core_mhz / cores, core_mhz, agreeing, left_out, tuple(likely or possible or ()))


def _by_waves(tasks: Tasks) -> CubeRate | None:
    """Find the only known chip on which blocks ran in as many waves as the times and cycles of cores tell."""
    used, sides = blocks(tasks), []
    for block, prefix, time in ((used.cube, "aic", "aicore_time"), (used.vector, "aiv", "aiv_time")):
        us, cycles = tasks.pmu.get(time), tasks.pmu.get(f"{prefix}_total_cycles")
        if us is None or cycles is None:
            return None
        rows = np.flatnonzero((block > 0) & (us > _SHORTEST_US) & (cycles > 0) & np.isfinite(us) & np.isfinite(cycles))
        rows = rows[:: 1 + len(rows) // _TRIED]
        sides.append((block[rows], us[rows].astype(np.float64) * block[rows] / cycles[rows]))
    if len(sides[0][0]) < _ROWS:
        return None
    fitting, throttled = list[tuple[int, int]](), list[tuple[int, int]]()
    for cube, vector, mhz in split_chips():
        ran = np.concatenate([-(-block // cores) / waves_by_mhz
                              for (block, waves_by_mhz), cores in zip(sides, (cube, vector), strict=True)])  # fmt: skip
        clock = lower_median(ran)
        if (np.abs(mhz / ran - 1) <= 2 * _AGREE).all():
            fitting.append((cube, mhz))
        elif clock < mhz and (np.abs(clock / ran - 1) <= 2 * _AGREE).all():
            throttled.append((cube, mhz))
    # A chip that runs slower than it is rated at may look like another one: kernels that fill all cores speak against.
    if len(fitting) != 1 or sides[0][0].max() < fitting[0][0]:
        return None
    ((cores, mhz),) = fitting
    core_mhz = float(cores * mhz)
    return CubeRate(cores, float(mhz), core_mhz, len(sides[0][0]), inferred=True, throttled=tuple(throttled))


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
    known = known[:: 1 + len(known) // _TRIED]
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


def clocks(tasks: Tasks, cores: Cores, at_least: int = 0) -> I16 | None:
    """Return the clock that each kernel ran at, MHz, 0 where it is not told; None where that of none is.

    Kernels with cube and vector cores are judged by their cube side, and none by times that are rounded too much. Where
    ``cores`` are not known, those tell it that have no more blocks than there are cube cores ``at_least``.
    """
    found = np.zeros(len(tasks), np.int16)
    used = blocks(tasks)
    for block, there, least, time, cycles in (
        (used.vector, cores.vector, 2 * at_least, "aiv_time", "aiv_total_cycles"),  # two beside each cube core
        (used.cube, cores.cube, at_least, "aicore_time", "aic_total_cycles"),
    ):
        us, count = tasks.pmu.get(time), tasks.pmu.get(cycles)
        if us is None or count is None:
            continue
        most = np.iinfo(np.int64).max if there else least
        rows = np.flatnonzero((block > 0) & (block <= most) & (us > _SHORTEST_US) & (count > 0))
        waves = -(-block[rows] // there) if there else 1
        clock = count[rows] / us[rows] * waves / block[rows]
        sane = (clock > _LEAST_MHZ) & (clock < _MOST_MHZ)
        found[rows[sane]] = np.rint(clock[sane])
    return found if found.any() else None


class RanClocks(Struct, frozen=True):
    """The clock of kernels, MHz, in order of their begin (epoch ns).

    ``ns``, ``cycles``: how long those before each ran, and that times their clock; the last place is behind all.
    """

    begin: I64
    mhz: I16
    ns: I64
    cycles: I64

    @classmethod
    def of(cls, tasks: Tasks, mhz: I16 | None) -> RanClocks | None:
        """``mhz``: of each task, 0 unknown; None where that of no kernel is known."""
        if mhz is None:
            return None
        told = np.flatnonzero((tasks.work == Work.COMPUTE) & (mhz > 0))
        if not len(told):
            return None
        ran, own = tasks.dur[told], mhz[told]
        return cls(tasks.start[told], own, *(np.append(0, np.cumsum(column)) for column in (ran, ran * own)))

    def within(self, windows: Intervals) -> list[tuple[int, float, int] | None]:
        """Return the least, the mean over time and the most of the kernels that begin in each window."""
        first, last = np.searchsorted(self.begin, windows.start), np.searchsorted(self.begin, windows.end)
        found: list[tuple[int, float, int] | None] = []
        for low, high in zip(first.tolist(), last.tolist(), strict=True):
            ran, own = int(self.ns[high] - self.ns[low]), self.mhz[low:high]
            mean = float(self.cycles[high] - self.cycles[low]) / ran if ran else 0.0
            found.append((int(own.min()), mean, int(own.max())) if ran else None)
        return found


class ChipCounters(Struct, frozen=True):
    """What is kept of a device's counters: its chip, and the clock of each of its tasks (0: not known).

    That is by counters (see :func:`clocks`), else (``counted`` is false) what AI Core Freq had meanwhile.
    """

    rate: CubeRate | None = None
    mhz: I16 | None = None
    counted: bool = True

    @classmethod
    def of(cls, tasks: Tasks, known: Cores, frequency: ClockRates | None = None) -> ChipCounters:
        """Work it out; ``known``: the cores that users or files tell, for what counters leave open."""
        rate = mhz = None
        if tasks.pmu:
            rate = measure_cube(tasks)
            counted = (rate and rate.as_cores()) or known
            mhz = clocks(tasks, counted, min(rate.likely, default=0) if rate else 0)
        if mhz is not None or frequency is None:
            return cls(rate, mhz)
        mhz = frequency.of_each(tasks)
        return cls(rate, mhz if mhz.any() else None, counted=False)

    def cores(self, known: Cores) -> Cores:
        """Return core counts: those that are known, else what counters tell."""
        return known if known.cube is not None or self.rate is None else self.rate.as_cores() or known

    def clock(
        self,
        tasks: Tasks,
        chosen: slice,
        cores: Cores,
        soc: str | None,
        origin: int,
        ratio: float,
    ) -> CoreClock | None:
        """Tell at which clock the kernels of a window ran, and at which they were meant to; None where nothing tells.

        ``tasks`` of the window are those ``chosen`` of all; ``cores``, ``soc``: as far as known; ``origin``, epoch ns:
        from where positions count; ``ratio``: by how much a clock is another one.
        """
        if self.rate is None and self.mhz is None:
            return None
        all_ = np.zeros(len(tasks), np.int16) if self.mhz is None else self.mhz[chosen]
        told = np.flatnonzero((tasks.work == Work.COMPUTE) & (all_ > 0))
        dur, mhz = tasks.dur[told], all_[told]
        rated, basis = _rated(self.rate, cores, soc, mhz, ratio)
        slow = np.flatnonzero(mhz < (rated or 0) * (1 - ratio))
        most = self.rate.core_mhz / min(self.rate.likely) if self.rate and basis == "at_least" else rated
        lost = np.sum(dur[slow] * (1 - mhz[slow] / most)) if most else 0
        counted = self.rate and self.rate.as_cores()
        product = None if self.rate is None or self.rate.inferred else self.rate
        return CoreClock(
            cores=counted.cube if counted else None,
            used=cores == counted,
            core_mhz=product.core_mhz if product else None,
            rows=product.rows if product else 0,
            left_out=product.left_out if product else 0,
            rated_mhz=rated,
            basis=basis,
            by_counters=self.counted,
            told_ns=int(dur.sum()),
            mean_mhz=float(np.average(mhz, weights=dur)) if dur.any() else None,
            least_mhz=int(mhz.min()) if len(told) else None,
            most_mhz=int(mhz.max()) if len(told) else None,
            slowed_ns=int(dur[slow].sum()),
            lost_ns=int(lost),
            since_ns=int(tasks.start[told[slow[0]]]) - origin if len(slow) and slow[0] else None,
            slowed_steps=_slow_steps(tasks.step[told], dur, mhz, (rated or 0) * (1 - ratio)),
        )


def _slow_steps(step: I64, dur: I64, mhz: I16, least: float) -> list[int]:
    """Return the steps in which kernels ran below ``least`` MHz on average; ``step``, ``dur``, ``mhz``: of kernels."""
    numbers, place = numbered(step)
    time, cycles = (np.bincount(place, weights, len(numbers)) for weights in (dur, dur * mhz.astype(np.float64)))
    slow = (numbers >= 0) & (time > 0) & (cycles < least * time)
    return [int(number) for number in numbers[slow]]


def _rated(
    rate: CubeRate | None, cores: Cores, soc: str | None, clock: I16, ratio: float
) -> tuple[float | None, Literal["counters", "chip", "at_least", "highest"] | None]:
    """Return the clock that a device is rated at, and what tells it; a card may run faster than CANN has of its chip.

    Of a product whose cores are not told apart those of files or of the user make it a clock, where that is known.
    """
    if rate is not None and not rate.inferred:  # which rests on kernels running at the rated clock
        mhz = rate.mhz or (rate.core_mhz / cores.cube if cores.cube else 0)
        if any(abs(mhz / known - 1) <= _EXACT for known in known_clocks()) or rate.mhz:
            return mhz, "counters"
    if not len(clock):
        return None, None
    if rate is not None and rate.likely and not rate.inferred:
        return rate.core_mhz / max(rate.likely), "at_least"
    highest = float(np.sort(clock)[int(_HIGHEST * (len(clock) - 1))])
    chip = chip_of_soc(soc or "")
    if chip is not None and chip.mhz is not None and highest <= chip.mhz * (1 + ratio):
        return float(chip.mhz), "chip"
    return highest, "highest"
