"""Operators: kernels summed by type and core, in a form that adds up over devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final, TypedDict
from zlib import crc32

import numpy as np
from msgspec import Struct, field

from npuperf.base.units import NS_PER_S
from npuperf.device.cores import blocks, occupancy
from npuperf.device.counters import Counter, judge_counters
from npuperf.device.cube_work import CubeWork
from npuperf.device.roofline import Roofed, Roofline
from npuperf.model.chip import Cores
from npuperf.model.columns import CYCLES
from npuperf.model.device import DeviceProfile, TorchOperators
from npuperf.model.groups import Groups, alike, first_rows, group_sums, medians, numbered, sums_of
from npuperf.model.intervals import Intervals
from npuperf.model.labels import F32, F64, I64, Labels, Operands
from npuperf.model.result import Kernel, Operator, Range
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

#: How many of an operator's longest kernels are asked for their code line.
_CANDIDATES = 8
#: A running number at the end of a name, but for one that belongs to it: MatMulV2_17 is MatMulV2.
_NUMBER = re.compile(r"_[_\d]*\d$|(?<![V\d])\d+$")

Key = tuple[str, str | None]


class Flop(Struct, frozen=True):
    """Products of kernels in FP16 units: by counters, and useful by shapes; how many kernels have either."""

    busy: float
    least: float
    most: float
    counted: int
    told: int

    def __add__(self, other: Flop) -> Flop:
        return Flop(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class OperatorSum(Struct, frozen=True):
    """One operator on one device or, after :func:`merge`, on several. Times in ns."""

    count: int
    total: int
    shortest: int
    longest: int
    block: tuple[int, int] | None
    mix_block: tuple[int, int] | None
    cube: Counter
    vector: Counter
    first: int
    last: int
    torch_op: str | None
    where: str | None
    flop: Flop = Flop(0.0, 0.0, 0.0, 0, 0)
    roofed: Roofed = Roofed()
    pmu: dict[str, Counter] = field(default_factory=dict)

    def __add__(self, other: OperatorSum) -> OperatorSum:
        louder = self if self.longest >= other.longest else other
        names = dict.fromkeys([*self.pmu, *other.pmu])
        none = Counter(0.0, 0.0)
        return OperatorSum(
            count=self.count + other.count,
            total=self.total + other.total,
            shortest=min(self.shortest, other.shortest),
            longest=max(self.longest, other.longest),
            block=_hull(self.block, other.block),
            mix_block=_hull(self.mix_block, other.mix_block),
            cube=self.cube + other.cube,
            vector=self.vector + other.vector,
            first=min(self.first, other.first),
            last=max(self.last, other.last),
            torch_op=louder.torch_op,
            where=louder.where,
            flop=self.flop + other.flop,
            roofed=self.roofed + other.roofed,
            pmu={n: self.pmu.get(n, none) + other.pmu.get(n, none) for n in names},
        )


def type_labels(tasks: Tasks) -> Labels:
    """Return operator types; where none is recorded (Level0), names without their running number."""
    bare = tuple(_NUMBER.sub("", n) or n for n in tasks.name.names)
    return tasks.type.fill(Labels.of(list(bare)).take(tasks.name.codes.astype(np.int64)))


def core_labels(tasks: Tasks) -> Labels:
    """Return core types under one name each; communication has several spellings, or none in timelines."""
    comm = Labels(np.where(tasks.work == Work.COMMUNICATION, 0, -1).astype(np.int32), ("COMMUNICATION",))
    return comm.fill(tasks.core)


def sum_operators(
    profile: DeviceProfile,
    tasks: Tasks,
    types: Labels,
    cores: Cores,
    work: CubeWork | None = None,
    roofline: Roofline | None = None,
) -> dict[Key, OperatorSum]:
    """Sum the compute and communication tasks of a window by type and core; all columns are of these tasks.

    Times are those of the tasks, epoch ns.
    """
    rows = _kernels(tasks)
    if not len(rows):
        return {}
    core, dur = core_labels(tasks), tasks.dur
    groups = group_sums((types.codes.astype(np.int64), core.codes.astype(np.int64)), dur, rows)
    weigh = _Weigh(groups, dur.take(groups.order).astype(np.float64))
    used = blocks(tasks)
    cube, vector = (weigh(occupancy(*side)) for side in ((used.cube, cores.cube), (used.vector, cores.vector)))
    pmu = {name: weigh(values) for name, values in tasks.pmu.items() if name not in CYCLES}
    block, mix = _ranges(groups, tasks.block), _ranges(groups, tasks.mix_block)
    of_task = np.full(len(tasks), -1, np.int64)
    of_task[groups.order] = np.repeat(np.arange(len(groups.first)), groups.count)
    flop = _flop(of_task, len(groups.first), work) if work is not None else None
    roofed = roofline.sums(tasks, of_task, len(groups.first)) if roofline is not None else None
    first, last = groups.min(tasks.start).tolist(), groups.max(tasks.start).tolist()
    count, total = groups.count.tolist(), groups.total.tolist()
    shortest, longest = dur[groups.smallest].tolist(), dur[groups.largest].tolist()
    keys = zip(types.take(groups.largest).texts(), core.take(groups.largest).texts(), strict=True)
    sums: dict[Key, OperatorSum] = {}
    ordered, ends = tasks.op[groups.order], (groups.first + groups.count).tolist()
    for g, (type_, core_) in enumerate(keys):
        # The operator to quote: of those of the longest kernels the first whose code line is recorded.
        asked = ordered[max(int(groups.first[g]), ends[g] - _CANDIDATES) : ends[g]][::-1].tolist()
        known = [op for op in asked if op >= 0]
        op = next((op for op in known if profile.host.code_line(op)), known[0] if known else -1)
        sums[type_ or "N/A", core_] = OperatorSum(
            count=count[g],
            total=total[g],
            shortest=shortest[g],
            longest=longest[g],
            block=block[g],
            mix_block=mix[g],
            cube=cube[g],
            vector=vector[g],
            first=first[g],
            last=last[g],
            torch_op=profile.host.torch_op(op),
            where=profile.host.code_line(op),
            flop=flop[g] if flop else Flop(0.0, 0.0, 0.0, 0, 0),
            roofed=roofed[g] if roofed else Roofed(),
            pmu={name: counters[g] for name, counters in pmu.items() if counters[g].weight > 0},
        )
    return sums


def _flop(group: I64, groups: int, work: CubeWork) -> list[Flop]:
    """Sum products per group; ``group``: of each task."""
    mine = group[work.task]
    sums = [np.bincount(mine, weights=np.nan_to_num(column), minlength=groups).tolist()
            for column in (work.busy, work.least, work.most)]  # fmt: skip
    counts = [np.bincount(mine[known], minlength=groups).tolist() for known in (work.counted, work.told)]
    return [Flop(*row) for row in zip(*sums, *counts, strict=True)]


def merge_operators(devices: list[dict[Key, OperatorSum]]) -> dict[Key, OperatorSum]:
    """Add the operators of several devices."""
    merged: dict[Key, OperatorSum] = {}
    for sums in devices:
        for key, new in sums.items():
            merged[key] = merged[key] + new if key in merged else new
    return merged


def list_operators(sums: dict[Key, OperatorSum], thresholds: Thresholds) -> list[Operator]:
    """Return all operators, the most expensive first. Shares add up to one."""
    everything = sum(s.total for s in sums.values())
    ranked = sorted(sums.items(), key=lambda item: (-item[1].total, item[0][0], item[0][1] or ""))
    return [
        Operator(
            type=type_,
            core=core,
            count=s.count,
            total_ns=s.total,
            min_ns=s.shortest,
            max_ns=s.longest,
            share=s.total / everything if everything else 0.0,
            block_dim=Range(min=s.block[0], max=s.block[1]) if s.block else None,
            mix_block_dim=Range(min=s.mix_block[0], max=s.mix_block[1]) if s.mix_block else None,
            occupancy_cube=_mean(s.cube),
            occupancy_vector=_mean(s.vector),
            first_ns=s.first,
            last_ns=s.last,
            torch_op=s.torch_op,
            where=s.where,
            pmu=judge_counters(s.pmu, thresholds, s.total),
            useful_flop=(s.flop.least, s.flop.most) if s.flop.told else None,
            cube_busy_flop=s.flop.busy if s.flop.counted else None,
            roof_share=s.roofed.roof_ns / s.roofed.ns if s.roofed.ns else None,
            recoverable_ns=(s.roofed.least, s.roofed.most) if s.roofed.ns else None,
            bound_by=s.roofed.limit,
            roofed_ns=s.roofed.ns,
            flop_per_s=s.roofed.flop / s.roofed.flop_ns * NS_PER_S if s.roofed.flop_ns else None,
            intensity=s.roofed.placed[0] / s.roofed.placed[1] if s.roofed.placed[1] else None,
        )
        for (type_, core), s in ranked
    ]


def longest_kernels(profile: DeviceProfile, tasks: Tasks, top: int) -> list[Kernel]:
    """Return the kernels that take longest on their own, with their place in time (epoch ns) and code."""
    rows = _kernels(tasks)
    if len(rows) > top:
        dur = tasks.dur[rows]
        rows = rows[dur >= np.partition(dur, -max(top, 1))[-max(top, 1)]]
    longest = tasks.take(rows)
    longest = longest.take(np.lexsort((longest.start, -longest.dur))[:top])
    columns = zip(
        longest.name.texts(), longest.type.texts(), core_labels(longest).texts(), longest.op.tolist(), strict=True
    )
    return [
        Kernel(
            rank=profile.rank,
            device=profile.device,
            name=name,
            type=type_,
            core=core,
            stream=_or_none(longest.stream[i]),
            step=_or_none(longest.step[i]),
            start_ns=int(longest.start[i]),
            dur_ns=int(longest.dur[i]),
            block_dim=_or_none(longest.block[i]),
            mix_block_dim=_or_none(longest.mix_block[i]),
            torch_op=profile.host.torch_op(op),
            where=profile.host.code_line(op),
        )
        for i, (name, type_, core, op) in enumerate(columns)
    ]


def _kernels(tasks: Tasks) -> I64:
    """Return the rows of compute and communication."""
    return np.flatnonzero((tasks.work == Work.COMPUTE) | (tasks.work == Work.COMMUNICATION))


def _or_none(value: np.int64) -> int | None:
    return int(value) if value >= 0 else None


class _Weigh(Struct, frozen=True):
    """Sums of columns per group, weighted by ``dur``: how long each row took (ns), in the order of the groups."""

    groups: Groups
    dur: F64

    def __call__(self, values: F32 | F64) -> list[Counter]:
        """Weigh one column; NaN is not recorded."""
        ordered = values.take(self.groups.order)
        unknown = np.flatnonzero(np.isnan(ordered))
        weighted, weight = ordered * self.dur, self.groups.total
        if len(unknown):
            weighted[unknown] = 0.0
            group = np.searchsorted(self.groups.first, unknown, side="right") - 1
            weight = weight - sums_of(group, self.dur.take(unknown).astype(np.int64), len(weight))
        sums = np.add.reduceat(weighted, self.groups.first).tolist()
        return [Counter(a, b) for a, b in zip(sums, weight.astype(np.float64).tolist(), strict=True)]


def _ranges(groups: Groups, values: I64) -> list[tuple[int, int] | None]:
    """Return smallest and largest known value per group; 0 and -1 mean unknown or unused."""
    if not (values > 0).any():
        return [None] * len(groups.first)
    huge = np.int64(np.iinfo(np.int64).max)
    low = groups.min(np.where(values > 0, values, huge))
    high = groups.max(values)
    return [(a, b) if b > 0 else None for a, b in zip(low.tolist(), high.tolist(), strict=True)]


def _mean(counter: Counter) -> float | None:
    return counter.weighted / counter.weight if counter.weight else None


def _hull(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if a is None or b is None:
        return a or b
    return min(a[0], b[0]), max(a[1], b[1])


# -- What tells operators apart: type, shapes and dtypes, in one spelling for comparisons, locks and gates.

#: Optimizers take hundreds of tensors: of longer lists the beginning is shown, and a checksum tells them apart.
_LONGEST: Final = 200


def operator_keys(types: Labels, tasks: Tasks) -> Labels:
    """Return what each task is: ``MatMulV2 [2,3;3,4] FLOAT16``, without what is not recorded.

    ``types``: of the tasks. Only combinations that occur become texts; a task without a type has no key.
    """

    def spell(type: str, shapes: str | None, operands: str | None) -> str:
        known = Operands.parse(operands) if operands is not None else Operands()
        return operator_key(type, _cells(shapes), known.dtypes, known.out_dtypes)

    return _keyed((types, tasks.shapes, tasks.operands), spell)


def torch_operator_keys(operators: TorchOperators) -> Labels:
    """Return what each torch operator is: ``aten::mm [2,3;3,4] float``, as far as its inputs are recorded."""
    columns = (operators.name, operators.shapes, operators.dtypes)
    return _keyed(columns, lambda name, shapes, dtypes: operator_key(name, _cells(shapes), _cells(dtypes)))


def operator_key(type: str, shapes: Sequence[str], dtypes: Sequence[str], out_dtypes: Sequence[str] = ()) -> str:
    """Spell one operator. Outputs are named where they have a dtype that no input has, as those of a cast.

    A shape is as exported (``2,3``, empty for a scalar); shapes and dtypes that repeat are written once: ``8 x3``,
    and one dtype stands for all.
    """
    parts = [type]
    if any(shapes):
        parts.append(f"[{_short(_runs(shapes))}]")
    one = {dtype for dtype in dtypes if dtype}
    into = next(iter(one)) if len(one) == 1 else _short(_runs(dtypes)) if one else ""
    new = [dtype for dtype in dict.fromkeys(out_dtypes) if dtype and dtype not in dtypes]
    if into or new:
        parts.append(f"{into}->{','.join(new)}" if new else into)
    return " ".join(parts)


def _keyed(columns: tuple[Labels, ...], spell: Callable[[str, str | None, str | None], str]) -> Labels:
    """Return a text for each row, made once for each combination that occurs; none where the first column has none."""
    used, codes = numbered(columns[0].codes)
    parts = [(code,) for code in used.tolist()]
    for column in columns[1:]:
        width = len(column.names) + 1
        used, codes = numbered(codes * width + column.codes + 1) if column.names else (np.arange(len(parts)), codes)
        parts = [(*parts[k // width], k % width - 1) for k in used.tolist()]
    cells = [[c.names[code] if code >= 0 else None for c, code in zip(columns, part, strict=True)] for part in parts]
    return Labels.of([spell(name, *rest) if name is not None else None for name, *rest in cells]).take(codes)


def _cells(text: str | None) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in text.replace('"', "").split(";")) if text else ()


def _runs(cells: Sequence[str]) -> str:
    counted = [(cell, len(list(run))) for cell, run in groupby(cells)]
    return ";".join(f"{cell} x{count}" if count > 1 and cell else ";" * (count - 1) + cell for cell, count in counted)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... {crc32(text.encode()):08x}"


# -- Kernels beside communication: equal kernels that run slower while the device communicates.
#
# They share memory bandwidth and power with it. Equal are kernels of one type with the same recorded input shapes:
# those wholly beside communication are held against those wholly without; what overlaps in part tells nothing.

#: Kinds of slowed kernels that stand in the evidence.
_COSTLIEST: Final = 5
#: Kinds that are kept.
_KEPT: Final = 48


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


class BesideCommunication(Struct, frozen=True):
    """Kernels that run wholly beside communication: the kinds that it slows down, the costliest first.

    ``alone_unknown_ns``: the time of those with too few equals without communication to be compared with.
    """

    slowed: tuple[Slowed, ...] = ()
    alone_unknown_ns: int = 0


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
        for row in rows[:_COSTLIEST]
    ]


def beside_communication(tasks: Tasks, types: Labels, thresholds: Thresholds) -> BesideCommunication:
    """Compare the kernels of a device that run beside communication with equal ones that do not."""
    communication = tasks.work == Work.COMMUNICATION
    chosen = np.flatnonzero((tasks.work == Work.COMPUTE) & tasks.shapes.known() & (tasks.dur > 0))
    if not communication.any() or not len(chosen):
        return BesideCommunication()
    start, end = tasks.start, tasks.end
    busy = Intervals.union(start[communication], end[communication])
    start, end, types, shapes = start[chosen], end[chosen], types.take(chosen), tasks.shapes.take(chosen)
    dur, covered = end - start, busy.within(Intervals(start, end))
    beside, alone = covered == dur, covered == 0
    if not beside.any():
        return BesideCommunication()
    kind = alike(types.codes, shapes.codes)
    kinds = int(kind.max()) + 1
    counts = [np.bincount(kind[mask], minlength=kinds) for mask in (beside, alone)]
    enough = np.minimum(*counts) >= thresholds.beside_kernels_least
    total = np.bincount(kind[beside], weights=dur[beside], minlength=kinds)
    known = enough.take(kind)
    usual, under = (medians(kind[mine], dur[mine], kinds) for mine in (alone & known, beside & known))
    beside &= known
    beyond = np.nan_to_num(np.maximum(dur[beside] - usual[kind[beside]], 0))
    lost = np.bincount(kind[beside], weights=beyond, minlength=kinds)
    slower = np.flatnonzero(enough & (under >= thresholds.beside_ratio * usual) & (lost > 0))
    first = first_rows(kind, kinds)
    rows = tuple(
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
        for k in slower[np.argsort(-lost[slower], kind="stable")][:_KEPT].tolist()
    )
    return BesideCommunication(rows, int(total[~enough].sum()))
