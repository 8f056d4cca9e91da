"""Core use from Block Dim and Mix Block Dim: occupancy, waves, tails, idle core time.

Blocks say what a kernel holds, not what works: where the cycles of its cores are recorded, these say how long they do.

AI_CORE kernels run their blocks on cube cores, AI_VECTOR_CORE on vector cores; MIX_AIC runs Block Dim on
cube and Mix Block Dim on vector cores, MIX_AIV the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain as joined
from itertools import combinations
from math import fsum
from typing import Final, cast

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, chain, say, say_n
from npuperf.base.units import NS_PER_US
from npuperf.model.chip import CUBE_CORES, VECTOR_CORES, Cores, known_core_counts
from npuperf.model.groups import alike, distinct, first_rows, last_largest, numbered, sums_of
from npuperf.model.intervals import SIGNED, Intervals, narrow, passed
from npuperf.model.labels import F64, I32, I64, Labels, Mask
from npuperf.model.result import (
    Contention,
    CoreSide,
    CoresOverTime,
    CoreTime,
    CoreType,
    CoreUse,
    IdleKernel,
    IdleType,
    StreamPair,
    StreamSet,
)
from npuperf.model.tasks import Tasks, Work

# -- Core counts that a profile does not name, guessed from the kernels: tilings that use the whole chip start as many
# blocks as it has cores. A suggestion with its reason, never a figure that anything is computed with.

#: Kernels that must start exactly as many blocks as a side has cores.
_AT_LEAST: Final = 2


def suggested_cores(cube: I64, vector: I64) -> Message | None:
    """Suggest the core counts of a known chip from the blocks of kernels on either side, or nothing.

    Both sides must speak for it: kernels fill the side, and few start more blocks than that, in several waves. Of
    several chips it is the one that most kernels fill.
    """
    likely = []
    for cores in known_core_counts():
        exact, more = (
            [int(np.count_nonzero(than(used, n))) for used, n in zip((cube, vector), cores, strict=True)]
            for than in (np.equal, np.greater)
        )
        if all(e >= _AT_LEAST and m < e for e, m in zip(exact, more, strict=True)):
            likely.append((cores, exact, sum(more)))
    if not likely:
        return None
    (most_cube, most_vector), exact, beyond = max(likely, key=lambda chip: sum(chip[1]))
    kernels = say(
        "{cube_kernels} kernels use exactly {cube} cube cores and {vector_kernels} exactly {vector} vector cores",
        cube_kernels=exact[0],
        cube=most_cube,
        vector_kernels=exact[1],
        vector=most_vector,
    )
    others = say("none starts more blocks than that")
    if beyond:
        others = say_n("{n} kernel starts more blocks than that", "{n} kernels start more blocks than that", beyond)
    return say("the kernels suggest --cores {cube},{vector}: {reason}",
               cube=most_cube, vector=most_vector, reason=chain(kernels, others, by=", "))  # fmt: skip


MOST_IDLE = 10


class Blocks(Struct, frozen=True):
    """Blocks per kernel and side; 0: the kernel does not use the side, -1: it does, but how many is unknown."""

    cube: I64
    vector: I64

    @property
    def unknown(self) -> Mask:
        """True where the blocks on a side that a kernel uses are not recorded, or those of both sides."""
        unknown: Mask = (self.cube < 0) | (self.vector < 0) | ((self.cube == 0) & (self.vector == 0))
        return unknown


def blocks(tasks: Tasks) -> Blocks:
    """Return how many blocks each kernel runs on cube and on vector cores."""
    return Blocks(
        cube=_blocks_on(tasks, CUBE_CORES, "MIX_AIV"),
        vector=_blocks_on(tasks, VECTOR_CORES, "MIX_AIC"),
    )


def _blocks_on(tasks: Tasks, cores: tuple[str, ...], beside: str) -> I64:
    """Return the blocks on one side: Block Dim of its own core types, Mix Block Dim of that which uses it beside."""
    names = tasks.core.names
    own = np.where(tasks.core.flag([c in cores for c in names]), tasks.block, 0)
    return np.where(tasks.core.flag([c == beside for c in names]), tasks.mix_block, own) if beside in names else own


def on_cores(tasks: Tasks) -> Mask:
    """True for kernels of cube and vector cores."""
    return tasks.core.flag([c in (*CUBE_CORES, *VECTOR_CORES) for c in tasks.core.names])


def occupancy(blocks: I64, cores: int | None) -> F64:
    """Return the fraction of ``cores`` that each kernel uses: min(blocks / cores, 1); NaN where unknown or unused."""
    if not cores:
        return np.full(len(blocks), np.nan)
    return np.where(blocks > 0, np.minimum(blocks / cores, 1.0), np.nan)


#: Part of the time of a side's kernels whose cycles are recorded from which these speak for all.
_ENOUGH: Final = 0.9


class Worked(Struct, frozen=True):
    """How long the cores of a side work in each task, ns, on average over those it holds; -1: not recorded."""

    cube: I64
    vector: I64

    @classmethod
    def of(cls, tasks: Tasks) -> Worked | None:
        """Read it from the times of op_summary and kernel_details, us; None where the two sides are not told apart."""
        cube, vector = tasks.pmu.get("aicore_time"), tasks.pmu.get("aiv_time")
        if cube is None or vector is None:
            return None
        ns = (np.nan_to_num(us * np.float64(NS_PER_US), nan=-1.0) for us in (cube, vector))
        return cls(*(narrow(np.rint(each).astype(np.int64), SIGNED) for each in ns))

    def filter(self, rows: slice) -> Worked:
        """Return that of some tasks."""
        return Worked(self.cube[rows], self.vector[rows])


def core_use(
    tasks: Tasks, cores: Cores, span: int, over_time: CoresOverTime | None = None, worked: Worked | None = None
) -> CoreUse:
    """Summarise a window's kernels. ``tasks``: those of the window, ``worked``: by them; ``span``: its length, ns."""
    compute = tasks.work == Work.COMPUTE
    kernels = tasks
    if not compute.all():  # the others count nowhere: they get no cores and no blocks; a filter would copy the table
        block, mix = (np.where(compute, column, 0) for column in (tasks.block, tasks.mix_block))
        core = Labels(np.where(compute, tasks.core.codes, np.int32(-1)), tasks.core.names)
        kernels = tasks.with_columns(core=core, block=block, mix_block=mix)
    known = blocks(kernels)
    reason = None  # what is missing for core figures
    if not compute.any():
        reason = say("no kernels")
    elif not on_cores(kernels).any():
        reason = say("no kernel says which cores it runs on")
    elif cores.cube is None:
        unknown = say(
            "core counts are unknown: there is no info.json.N with the data; give --cores CUBE,VECTOR or --soc NAME"
        )
        reason = chain(unknown, suggested_cores(known.cube, known.vector))
    elif not (kernels.block > 0).any():
        reason = say("no kernel has a Block Dim above 0: record with npuperf profile --level 1")
    times = (over_time.cube, over_time.vector) if over_time is not None else (None, None)
    at_work = (worked.cube, worked.vector) if worked is not None else (None, None)
    return CoreUse(
        source=cores.source,
        cube=_side(kernels, known.cube, cores.cube, span, times[0], at_work[0]),
        vector=_side(kernels, known.vector, cores.vector, span, times[1], at_work[1]),
        by_type=[found for name in (*CUBE_CORES, *VECTOR_CORES) if (found := _core_type(kernels, name, cores)).kernels],
        most_idle=_most_idle(kernels, cores),
        reason=reason,
        over_time=over_time,
    )


def _side(
    kernels: Tasks, used: I64, cores: int | None, span: int, time: CoreTime | None, worked: I64 | None
) -> CoreSide | None:
    """Sum one side's cores; kernels that run beside each other occupy no more than there are.

    ``worked``: how long the cores that a kernel holds work in it, ns, -1 unknown.
    """
    here = used > 0
    if not cores or not here.any():
        return None
    dur = kernels.dur[here]
    busy_cores = np.minimum(used[here], cores)
    core_time = int(np.sum(busy_cores * dur))
    total = int(np.sum(dur))
    occupied = core_time if time is None else time.occupied_core_ns
    at_work = None
    if worked is not None:
        told = worked[here] >= 0
        whole = int(dur[told].sum())
        if whole and whole >= _ENOUGH * total:
            at_work = int(np.sum(busy_cores[told] * np.minimum(worked[here][told], dur[told]))) / (cores * whole)
    return CoreSide(
        cores=cores,
        kernels=int(np.count_nonzero(here)),
        occupancy_busy=core_time / (cores * total) if total else None,
        at_work=at_work,
        occupancy_span=occupied / (cores * span) if span else None,
        idle_core_ns=cores * total - core_time,
    )


def _core_type(kernels: Tasks, core: str, cores: Cores) -> CoreType:
    mine = np.flatnonzero(kernels.core.flag([c == core for c in kernels.core.names]))
    total = kernels.dur[mine]
    known = kernels.block[mine] > 0
    block, dur = kernels.block[mine][known], total[known]
    mix = kernels.mix_block[mine] if core.startswith("MIX") else np.empty(0, np.int64)
    mix = mix[mix > 0]
    own = cores.vector if core in VECTOR_CORES else cores.cube
    weigh = bool(own) and bool(dur.sum())
    waves = -(-block // own) if own else block
    return CoreType(
        core=core,
        kernels=len(mine),
        total_ns=int(total.sum()),
        blocks_unknown=len(mine) - len(block),
        block_min=int(block.min()) if len(block) else None,
        block_median=float(np.median(block)) if len(block) else None,
        block_max=int(block.max()) if len(block) else None,
        mix_block_min=int(mix.min()) if len(mix) else None,
        mix_block_max=int(mix.max()) if len(mix) else None,
        occupancy=float(np.sum(occupancy(block, own) * dur) / dur.sum()) if weigh else None,
        waves_max=int(waves.max()) if own and len(block) else None,
        tail=float(np.sum((1 - block / (waves * (own or 1))) * dur) / dur.sum()) if weigh else None,
    )


def _most_idle(kernels: Tasks, cores: Cores) -> list[IdleKernel]:
    """Rank (type, core, Block Dim) groups by the core time they leave idle on the side they mainly run on.

    Several waves count in full, as if all blocks took the same time: the last one leaves its tail idle.
    """
    most = {**dict.fromkeys(CUBE_CORES, cores.cube), **dict.fromkeys(VECTOR_CORES, cores.vector)}
    own = np.array([*(most.get(c) or 0 for c in kernels.core.names), 0], np.int64)[kernels.core.codes]
    rows = np.flatnonzero((own > 0) & (kernels.block > 0))
    if not len(rows):
        return []
    block = kernels.block.take(rows)
    kind = alike(kernels.type.codes.take(rows), kernels.core.codes.take(rows), block)
    first = first_rows(kind, int(kind.max()) + 1)
    own, block = own[rows[first]], block[first].astype(np.int64)
    waves = -(-block // own)
    unused = (waves * own - block).take(kind) * kernels.dur.take(rows)
    if (waves > 1).any():
        unused //= waves.take(kind)
    count, total = np.bincount(kind), sums_of(kind, unused, len(first))
    largest = rows[last_largest(kind, unused, len(first))]
    best = np.argsort(-total, kind="stable")[:MOST_IDLE]
    return [
        IdleKernel(
            name=kernels.name[row] or "",
            type=kernels.type[row],
            core=kernels.core[row] or "",
            count=int(count[g]),
            block_dim=int(block[g]),
            cores=int(own[g]),
            idle_core_ns=int(total[g]) if waves[g] == 1 else 0,
            waves=int(waves[g]),
            tail_core_ns=int(total[g]) if waves[g] > 1 else 0,
        )
        for g in best.tolist()
        if total[g] > 0
        for row in [int(largest[g])]
    ]


# -- The occupancy of the cores over time: one exact sweep over all kernels of a device.
#
# Between two neighbouring starts or ends nothing changes, so sums over these pieces are exact. What belongs to a
# kernel (its share of something measured per piece) is a difference of two running sums.

NO_LAUNCHES: Final = say(
    "launches are not recorded, so it is unknown when a kernel was ready: record with npuperf profile --level 1"
)
#: Streams told apart: one bit each. The last bit stands for all others.
_BITS: Final = 62
_OTHERS: Final = -2
#: Numbers below it, and differences between them and the cores of a chip, are of 16 bits.
_FEW: Final = 1 << 14
_FEW_BITS: Final = 10
_SLICES: Final = 32
#: Share of the kernel time from which a stream matters.
_NOTABLE: Final = 0.02


class Sweep(Struct, frozen=True):
    """Pieces of time, cut wherever a kernel starts or ends.

    Swept are the kernels with known blocks, clipped to the window; ``index`` is their place among the ``tasks``,
    ``cube`` and ``vector`` the cores each of them can keep busy at a time; it runs in the pieces ``first`` to ``last``
    (exclusive) between borders (ns). Per piece: how many kernels are ``running``, how many cores they ask for together
    on each side, and which ``streams`` they are on (bit i: ``numbers[i]``).
    Millions of pieces are kept as small numbers; what follows from them is made when it is asked for.
    """

    tasks: Tasks
    index: I64
    cube: I32
    vector: I32
    first: I32
    last: I32
    border: I64
    running: I32
    wanted_cube: I32
    wanted_vector: I32
    streams: I64
    numbers: tuple[int, ...]
    cores: Cores

    @classmethod
    def of(cls, tasks: Tasks, cores: Cores, span: tuple[int, int]) -> Sweep | None:
        """Sweep over the kernels within ``span``; None where no core or block count is known."""
        if not cores.cube:
            return None
        used = blocks(tasks)
        inside = np.minimum(tasks.end, span[1]) > np.maximum(tasks.start, span[0])
        on_any = (
            (used.cube > 0) | (used.vector > 0) if cores.vector else used.cube > 0
        )  # of a side whose cores are known
        index = np.flatnonzero((tasks.work == Work.COMPUTE) & on_any & inside)
        if not len(index):
            return None
        cube = np.clip(used.cube[index], 0, cores.cube).astype(np.int32)
        vector = np.clip(used.vector[index], 0, cores.vector or 0).astype(np.int32)
        del used, inside, on_any  # much memory, here and below
        start, end = np.maximum(tasks.start[index], span[0]), np.minimum(tasks.end[index], span[1])
        border = distinct(np.concatenate([start, end]), consume=True)
        first, last = (passed(border, times, before=True).astype(np.int32) for times in (start, end))
        del start, end
        numbers, streams = _streams_of(tasks.stream[index], first, last, len(border) - 1)

        most = max(cores.cube, cores.vector or 0)

        def together(amount: I32 | None) -> I32:
            change = np.bincount(first, amount, len(border))
            change -= np.bincount(last, amount, len(border))
            sums = np.cumsum(change, out=change)[:-1]
            return cast(I32, sums.astype(np.int16 if max(int(sums.max()), most) < _FEW else np.int32))

        return cls(
            tasks=tasks,
            index=narrow(index),
            cube=cube,
            vector=vector,
            first=first,
            last=last,
            border=border,
            running=together(None),
            wanted_cube=together(cube),
            wanted_vector=together(vector),
            streams=streams,
            numbers=numbers,
            cores=cores,
        )

    def covers(self, span: tuple[int, int]) -> bool:
        """Tell whether everything swept lies within a window."""
        return span[0] <= int(self.border[0]) and int(self.border[-1]) <= span[1]

    @property
    def stream(self) -> I64:
        """The stream of each kernel."""
        return self.tasks.stream[self.index]

    @property
    def dur(self) -> I64:
        """How long each kernel runs within the window, ns."""
        dur: I64 = self.border.take(self.last)
        dur -= self.border.take(self.first)
        return dur

    @property
    def length(self) -> I64:
        """How long each piece is, ns."""
        return np.diff(self.border)

    @property
    def sides(self) -> tuple[tuple[int, I32], tuple[int, I32]]:
        """Cube and vector: how many cores there are (0 unknown) and how many kernels ask for, per piece."""
        return (self.cores.cube or 0, self.wanted_cube), (self.cores.vector or 0, self.wanted_vector)

    def per_kernel(self, amount: I64) -> I64:
        """Return for each kernel the sum of a piece's amount over the pieces it runs in; ``amount`` is used up."""
        total = np.cumsum(amount, out=amount)
        of_kernels: I64 = total.take(self.last - 1)
        later = slice(int(np.searchsorted(self.first, 0, side="right")), None)  # kernels are ordered by start
        of_kernels[later] -= total.take(self.first[later] - 1)
        return of_kernels

    def names(self, streams: int) -> list[int]:
        """Return the stream numbers behind a set of bits."""
        return [number for i, number in enumerate(self.numbers) if streams >> i & 1]

    def undisturbed(self) -> I64:
        """Return how long each kernel would have run (ns) had it not shared cores that were too few.

        Assumes that cores asked for by several kernels are shared in proportion.
        """
        lost: I64 = np.zeros(len(self.index), np.int64)
        for used, (cores, wanted) in zip((self.cube, self.vector), self.sides, strict=True):
            if cores:
                lacking = np.zeros(len(wanted), np.int64)  # of each piece the share for which there are too few cores
                few = np.flatnonzero(wanted > cores)
                asked = wanted.take(few)
                length = self.border.take(few + 1) - self.border.take(few)
                lacking[few] = np.rint(length * np.divide(asked - cores, asked, dtype=np.float64))
                mine = self.per_kernel(lacking)
                del lacking
                mine *= used > 0
                np.maximum(lost, mine, out=lost)
        return np.subtract(self.dur, lost, out=lost)


def _streams_of(stream: I64, first: I32, last: I32, pieces: int) -> tuple[tuple[int, ...], I64]:
    """Return the stream numbers, and for each of the pieces the streams that run kernels in it, as bits.

    Each kernel runs in the pieces ``first`` to ``last`` (exclusive).
    """
    numbers, place = numbered(stream)
    if len(numbers) > _BITS:
        count = np.bincount(place)
        keep = np.sort(np.argsort(-count, kind="stable")[: _BITS - 1])
        bit = np.full(len(numbers), _BITS - 1)
        bit[keep] = np.arange(_BITS - 1)
        place, numbers = bit[place], np.append(numbers[keep], _OTHERS)
    change = np.zeros(pieces + 1, np.int64)
    for i in range(len(numbers)):
        mine = place == i
        busy = Intervals.union(cast(I64, first.compress(mine)), cast(I64, last.compress(mine)))
        change[busy.start] += 1 << i
        change[busy.end] -= 1 << i
    bits = np.cumsum(change, out=change)[:-1]
    few = next(kind for kind in (np.uint8, np.uint16, np.uint32, np.int64) if len(numbers) <= np.iinfo(kind).bits)
    return tuple(numbers.tolist()), cast(I64, bits.astype(few, copy=False))


class Contended(Struct, frozen=True):
    """Waits for cores by stream and holders, when any kernel waited, least and most (ns), and what is not certain."""

    waits: list[Contention]
    ns: tuple[int, int]
    reason: Message | None


def cores_over_time(sweep: Sweep, contended: Contended | None = None) -> CoresOverTime:
    """Sum the sweep up: per side, by kernel type, by the set of streams running, by pair of streams.

    ``contended``: None where nothing tells when kernels were ready.
    """
    length = sweep.length
    over = np.zeros(len(length), np.bool_)
    for cores, wanted in sweep.sides:
        over |= (wanted > cores) if cores else False
    if len(sweep.numbers) <= _FEW_BITS:  # no need to sort the sets of streams that run at the same time
        sets, group = np.arange(1 << len(sweep.numbers)), sweep.streams
    else:
        sets, group = np.unique(sweep.streams, return_inverse=True)
    sums = []
    for amount in joined((length, length * over), _idle(sweep, length)):
        sums.append(sums_of(group, amount, len(sets)).tolist())
    del over, group, amount
    rows = [row for row in zip(sets.tolist(), *sums, strict=True) if row[0] and row[1]]
    together = [
        StreamSet(streams=sweep.names(bits), ns=ns, idle_cube_core_ns=cube, idle_vector_core_ns=vector)
        for bits, ns, _, cube, vector in rows
    ]
    pairs = _pairs(sweep, [row[:3] for row in rows])
    by_type = _by_type(sweep, length)
    return CoresOverTime(
        cube=_over_time(sweep, length, sweep.cores.cube, sweep.wanted_cube, bool(sweep.cube.any())),
        vector=_over_time(sweep, length, sweep.cores.vector, sweep.wanted_vector, bool(sweep.vector.any())),
        by_type=by_type,
        together=sorted(together, key=lambda r: -r.ns),
        pairs=pairs,
        contention=contended.waits if contended else [],
        contended_ns=contended.ns if contended else None,
        contention_reason=contended.reason if contended else NO_LAUNCHES if pairs else None,
    )


def _over_time(sweep: Sweep, length: I64, cores: int | None, wanted: I32, used: bool) -> CoreTime | None:
    if not cores or not used:
        return None
    kernel_ns = int(length.compress(sweep.running > 0).sum())
    core_time = np.minimum(wanted, cores) * length
    occupied = int(np.sum(core_time))
    # The mean share of occupied cores in equal slices between the first and the last border.
    border, so_far = sweep.border, np.cumsum(core_time, out=core_time)  # of which nothing else is asked
    edges = np.linspace(0, float(border[-1] - border[0]), _SLICES + 1)
    after = np.searchsorted(border, edges.astype(np.int64) + border[0], side="right")
    near = distinct(np.clip(np.concatenate([after - 1, after]), 0, len(border) - 1))
    until = np.interp(edges, border[near] - border[0], np.where(near > 0, so_far[near - 1], 0))
    return CoreTime(
        cores=cores,
        kernel_ns=kernel_ns,
        busy_ns=int(length.compress(wanted > 0).sum()),
        full_ns=int(length.compress(wanted >= cores).sum()),
        over_ns=int(length.compress(wanted > cores).sum()),
        occupied_core_ns=occupied,
        idle_core_ns=cores * kernel_ns - occupied,
        slices=(np.diff(until) / (np.diff(edges) * cores)).round(6).tolist(),
    )


def _idle(sweep: Sweep, length: I64) -> Iterator[I64]:
    """Yield the idle core time of each piece in which a kernel runs, cube, then vector, core·ns.

    One at a time, for whoever asks to reckon with where it stands: there are millions of pieces.
    """
    for cores, wanted in sweep.sides:
        free = np.maximum(cores - wanted, 0)
        free *= sweep.running > 0
        yield free * length


def _by_type(sweep: Sweep, length: I64) -> list[IdleType]:
    type_, core = (labels.take(sweep.index) for labels in (sweep.tasks.type, sweep.tasks.core))
    key = type_.codes.astype(np.int64) * (len(core.names) + 1) + core.codes
    group = numbered(key)[1]
    del key
    count = np.bincount(group)
    first = first_rows(group, len(count))
    sums = []
    for share in _split_evenly(sweep, _idle(sweep, length)):
        sums.append(sums_of(group, share, len(first)).tolist())
    rows = [
        IdleType(
            type=type_[i],
            core=core[i] or "",
            kernels=n,
            idle_cube_core_ns=cube,
            idle_vector_core_ns=vector,
        )
        for i, n, cube, vector in zip(first.tolist(), count.tolist(), *sums, strict=True)
    ]
    return sorted(rows, key=lambda r: -(r.idle_cube_core_ns + r.idle_vector_core_ns))


def _split_evenly(sweep: Sweep, amounts: Iterable[I64]) -> Iterator[I64]:
    """Share each piece's idle core time among the kernels running in it; what does not divide goes to one of them.

    One amount at a time, which is used up.
    """
    several = np.flatnonzero(sweep.running > 1)
    running = sweep.running.take(several).astype(np.int64)
    # Of the kernels begun so far the one that ends last is running if any is.
    reach = np.maximum.accumulate(sweep.last)
    longest = np.maximum.accumulate(np.where(sweep.last >= reach, np.arange(len(sweep.last)), 0))
    del reach
    for idle in amounts:
        each, rest = np.divmod(idle.take(several), running)
        idle[several] = each
        share = sweep.per_kernel(idle)
        at, rest = several.compress(rest > 0), rest.compress(rest > 0)
        np.add.at(share, longest[np.searchsorted(sweep.first, at, side="right") - 1], rest)
        yield share


def _pairs(sweep: Sweep, sets: list[tuple[int, ...]]) -> list[StreamPair]:
    """Return the pairs of streams that overlap, and those of streams that matter even if they do not.

    ``sets``: bits, time and over-committed time of each set of streams.
    """
    busy = [sum(ns for bits, ns, _ in sets if bits >> i & 1) for i in range(len(sweep.numbers))]
    notable = [ns >= _NOTABLE * fsum(ns for _, ns, _ in sets) for ns in busy]
    pairs = []
    for i, j in combinations(range(len(busy)), 2):
        both = [(ns, over) for bits, ns, over in sets if bits >> i & 1 and bits >> j & 1]
        if both or (notable[i] and notable[j]):
            overlap = sum(ns for ns, _ in both)
            pairs.append(
                StreamPair(
                    streams=(sweep.numbers[i], sweep.numbers[j]),
                    overlap_ns=overlap,
                    share=overlap / max(min(busy[i], busy[j]), 1),
                    over_ns=sum(over for _, over in both),
                )
            )
    return sorted(pairs, key=lambda p: -p.overlap_ns)
