"""How far from the chip: peak × time as useful products, padding, idle cube cores, and the parts of the partition.

While any kernel has cube cores its time is theirs: products fill it as far as counters and shapes tell
(:mod:`npuperf.device.cube_work`), and the rest is idle. docs/efficiency.md has the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Final

import numpy as np
from msgspec import Struct, structs

from npuperf.base.messages import say
from npuperf.base.units import NS_PER_S
from npuperf.device.chip_rate import RanClocks
from npuperf.device.cube_work import CAUSES, TOLERANCE, CubeWork, Peak
from npuperf.device.roofline import MeasuredKernels, Recoverable, RecoverableOver
from npuperf.device.study import Study
from npuperf.model.efficiency_result import (
    CubeIdle,
    Efficiency,
    EfficiencyPart,
    EfficiencyPartName,
    Mfu,
    ModuleEfficiency,
    Roofs,
)
from npuperf.model.groups import alike, largest
from npuperf.model.intervals import Intervals
from npuperf.model.labels import F64, I16, I64, Mask

_OVERBOOKED: Final = say(
    "kernels that run side by side are busy for longer than there are cube cores, so their counters cannot be added up"
)

#: Modules that are told by name; models have hundreds of layers.
_MODULES: Final = 64


class DeviceEfficiency(Struct, frozen=True):
    """The efficiency of a device, from which any window's is summed.

    ``cube``: when any kernel has cube cores; ``again``: which of the work was computed anew for certain, and which may
    have been.
    """

    study: Study
    peak: Peak
    work: CubeWork
    cube: Intervals
    again: tuple[Mask, Mask]
    roofs: Roofs
    won: RecoverableOver
    ran: RanClocks | None

    @classmethod
    def of(cls, study: Study, measured: MeasuredKernels, mhz: I16 | None = None) -> DeviceEfficiency:
        """``measured``: of the study's tasks; ``mhz``: the clock of each of them, 0 unknown."""
        tasks, work, roofline = study.profile.tasks, measured.work, measured.roofline
        cube = Intervals.union(tasks.start[work.task], tasks.end[work.task])
        return cls(study, measured.peak, work, cube, _computed_anew(study, work), roofline.rates.roofs(),
                   roofline.recoverable(tasks), RanClocks.of(tasks, mhz))  # fmt: skip

    def of_windows(self, windows: Intervals, *, modules: bool = False) -> list[Efficiency]:
        """Sum up windows, also by ``modules``; what a kernel does within one is as much of it as of its time."""
        split, cube = self.study.timeline.split(windows), self.cube.within(windows).tolist()
        start, end = (times[self.work.task] for times in (self.study.profile.tasks.start, self.study.profile.tasks.end))
        first = np.searchsorted(np.maximum.accumulate(end), windows.start, side="right").tolist()
        last = np.searchsorted(start, windows.end).tolist()
        borders = zip(windows.start.tolist(), windows.end.tolist(), first, last, strict=True)
        won = self.won.within(windows)
        ran = [None] * len(windows) if self.ran is None else self.ran.within(windows)
        found = []
        for at, (begin, stop, low, high) in enumerate(borders):
            here = slice(low, high)
            inside = np.maximum(np.minimum(end[here], stop) - np.maximum(start[here], begin), 0)
            weight = inside / (end[here] - start[here])
            parts = {name: int(v[at]) for name, v in split.items()}
            of_modules = self._modules(here, weight, inside) if modules else []
            one = self._sum(here, weight, inside, cube[at], parts, won[at], of_modules)
            found.append(one if ran[at] is None else structs.replace(one, ran_mhz=ran[at]))
        return found

    def _sum(
        self,
        here: slice,
        weight: F64,
        ns: I64,
        cube_ns: int,
        split: dict[str, int],
        won: Recoverable,
        modules: list[ModuleEfficiency],
    ) -> Efficiency:
        work, per_ns = self.work, self.peak.flop_per_s / NS_PER_S
        busy, least, most = (_filled(column[here]) * weight for column in (work.busy, work.least, work.most))
        counted, told = work.counted[here], work.told[here]
        whole = per_ns * split["span"]
        useful = float(least.sum()), float(most.sum())
        products: list[tuple[EfficiencyPartName, float]] = [
            ("useful", useful[0]),
            ("useful_or_padded", useful[1] - useful[0]),
            ("padded", float((busy - most)[counted & told].sum())),
            ("cube_busy_without_formula", float(busy[~told].sum())),
        ]
        rest = per_ns * cube_ns - fsum(flop for _, flop in products)
        overbooked = rest < -TOLERANCE * per_ns * cube_ns
        # Of what has no counters all is open but the cores that it has no blocks for: these multiply nothing.
        open_ = np.maximum(per_ns * (ns * (1 - work.unused[here])) - most, 0.0)[~counted]
        uncounted = min(float(open_.sum()), max(rest, 0.0))
        idle = max(rest, 0.0) - uncounted
        products += [("cube_uncounted", uncounted), ("cube_idle", idle)]
        certain, possible = (anew[here] for anew in self.again)
        kernels = float(least[~possible].sum()), float(most[~certain].sum())
        cube_time = float(ns.sum())
        recorded = counted.any() or (not len(counted) and work.counted.any())  # nothing to do is done
        known_busy = float(busy.sum()) if recorded else None
        return Efficiency(
            cube_cores=self.peak.cores,
            clock_mhz=self.peak.mhz,
            basis=self.peak.basis,
            inferred=self.peak.inferred,
            most_flop_per_s=self.peak.most_flop_per_s,
            peak_flop_per_s=self.peak.flop_per_s,
            span_ns=split["span"],
            cube_busy_flop=known_busy,
            cube_busy_share=None if known_busy is None or not whole else known_busy / whole,
            useful_flop=useful,
            hfu=_over(useful, whole),
            mfu=Mfu(kernels=_over(kernels, whole)),
            parts=[] if overbooked else _parts(products, cube_ns, split, per_ns),
            idle=[] if overbooked else self._idle(here, weight, ns, idle),
            formula_share=float(ns[told].sum()) / cube_time if cube_time else None,
            contradictions=int(np.count_nonzero(work.contradicts[here])),
            odd=int(np.count_nonzero(work.odd[here])),
            uncounted=int(np.count_nonzero(~counted)),
            recomputed_flop=(float(least[certain].sum()), float(most[possible].sum())),
            reason=_OVERBOOKED if overbooked else None,
            roofs=self.roofs,
            recoverable_ns=(min(won.least, split["compute"]), min(won.most, split["compute"])) if won.kernels else None,
            roof_contradictions=won.refuted,
            modules=modules,
        )

    def _modules(self, here: slice, weight: F64, ns: I64) -> list[ModuleEfficiency]:
        """Sum up by module, or range of the user's, around launches."""
        work, labels = self.work, self.study.sections.range.take(self.work.task[here])
        if not labels.known().any():
            return []
        place, count = labels.codes.astype(np.int64), len(labels.names)
        time = np.bincount(place + 1, weights=ns, minlength=count + 1)[1:]
        named = largest(np.rint(time).astype(np.int64), _MODULES)
        group = np.full(count + 1, len(named))  # the last place is that of -1, and the last group that of all others
        group[named] = np.arange(len(named))
        own, rows = group[place], len(named) + 1
        kernels = np.bincount(own, minlength=rows).tolist()
        counted = np.bincount(own, weights=work.counted[here], minlength=rows).tolist()
        total, busy, least, most = (
            np.bincount(own, weights=values, minlength=rows).tolist()
            for values in (ns, *(_filled(column[here]) * weight for column in (work.busy, work.least, work.most)))
        )
        names = (*(labels.names[at] for at in named.tolist()), None)
        return [
            ModuleEfficiency(module=name, kernels=kernels[at], ns=round(total[at]),
                             cube_busy_flop=busy[at] if counted[at] else None, useful_flop=(least[at], most[at]))
            for at, name in enumerate(names) if kernels[at]
        ]  # fmt: skip

    def _idle(self, here: slice, weight: F64, ns: I64, idle: float) -> list[CubeIdle]:
        """Tell what the idle time of cube cores is made of; kernels side by side share what there is."""
        work, per_ns = self.work, self.peak.flop_per_s / NS_PER_S
        done = np.where(work.counted[here], _filled(work.busy[here]), _filled(work.most[here])) * weight
        rest = np.maximum(per_ns * ns - done, 0.0)
        unused = np.minimum(work.unused[here] * per_ns * ns, rest)
        waiting = np.where(work.counted[here], rest - unused, 0.0)
        sums = np.bincount(work.cause[here], weights=waiting, minlength=len(CAUSES))
        sums[CAUSES.index("cores_unused")] += unused.sum()
        total = float(sums.sum())
        if not total or not idle:
            return []
        found = sorted(zip(CAUSES, (sums / total).tolist(), strict=True), key=lambda one: -one[1])
        return [CubeIdle(cause=cause, flop=share * idle, share=share) for cause, share in found if share]


def _parts(
    products: Sequence[tuple[EfficiencyPartName, float]], cube_ns: int, split: dict[str, int], per_ns: float
) -> list[EfficiencyPart]:
    """Return all parts: products, and the time of cube kernels as far as they fill it; of the rest the time."""
    rest: list[tuple[EfficiencyPartName, int]] = [
        ("vector", split["compute"] - cube_ns),
        ("communication", split["comm_exposed"]),
        ("other", split["other_exposed"]),
        ("host_wait", split["host_wait"]),
        ("launch_latency", split["launch_latency"]),
        ("dependency", split["dependency_wait"]),
        ("unattributed", split["unattributed"]),
    ]
    whole = per_ns * split["span"]
    reach = np.minimum(np.rint(np.cumsum([flop for _, flop in products]) / per_ns), cube_ns).astype(np.int64)
    reach[-1:] = cube_ns  # what rounding leaves is idle
    ns = np.diff(reach, prepend=0).tolist()
    rows = [(name, flop, time) for (name, flop), time in zip(products, ns, strict=True)]
    rows += [(name, per_ns * time, time) for name, time in rest]
    return [EfficiencyPart(part=name, flop=flop, ns=time, share=flop / whole if whole else 0.0)
            for name, flop, time in rows]  # fmt: skip


def _computed_anew(study: Study, work: CubeWork) -> tuple[Mask, Mask]:
    """Tell which kernels computed in backward what forward had computed: for certain, and possibly.

    For certain: what a module, or autograd's arrow to a backward operator, says is forward, but lies in backward.
    Checkpoints that are not reentrant leave neither: what equals a forward kernel in type, shapes, operands and torch
    operator may be, as often as that was there; the gradients of a product are asked for by another operator, or have
    other shapes. Where nothing tells the parts, every second equal kernel may be, unless nothing is trained.
    """
    sections, tasks, ops = study.sections, study.profile.tasks, study.profile.host.ops
    certain = sections.anew[work.task]
    if study.traits.training is False:
        return certain, certain
    asked = ops.name.take(tasks.op[work.task])
    columns = (column.codes.take(work.task) for column in (study.types, tasks.shapes, tasks.operands))
    kind = alike(*columns, asked.codes)
    kinds = int(kind.max(initial=-1)) + 1
    if sections.part.names:
        part = sections.part.codes[work.task]
        forward, backward = (part == sections.part.names.index(name) for name in ("forward", "backward"))
        there = np.bincount(kind[forward], minlength=kinds)
        candidate = backward & (there > 0)[kind]
    else:
        there, candidate = np.bincount(kind, minlength=kinds) // 2, np.ones(len(kind), np.bool_)
    order = np.flatnonzero(candidate)[np.argsort(kind[candidate], kind="stable")]
    group = kind[order]
    place = np.arange(len(order)) - np.searchsorted(group, group)
    possible = certain.copy()
    possible[order[place < there[group]]] = True
    return certain, possible


def _filled(column: F64) -> F64:
    return np.where(np.isnan(column), 0.0, column)


def _over(flop: tuple[float, float], whole: float) -> tuple[float, float]:
    return (flop[0] / whole, flop[1] / whole) if whole else (0.0, 0.0)
