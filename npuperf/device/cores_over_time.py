"""The occupancy of the cores over time: one exact sweep over all kernels of a device.

Between two neighbouring starts or ends nothing changes, so sums over these pieces are exact. What belongs to a
kernel (its share of something measured per piece) is a difference of two running sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations
from typing import Final, cast

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, say
from npuperf.device.cores import Blocks, blocks
from npuperf.model.chip import Cores
from npuperf.model.groups import distinct, first_rows, numbered, sums_of
from npuperf.model.intervals import Intervals, narrow, passed
from npuperf.model.labels import F64, I32, I64, Mask
from npuperf.model.result import Contention, CoresOverTime, CoreTime, IdleType, StreamPair, StreamSet
from npuperf.model.tasks import Tasks, Work

NO_LAUNCHES: Final = say(
    "launches are not recorded, so it is unknown when a kernel was ready: record with npuperf profile --level 1"
)
#: Streams told apart: one bit each. The last bit stands for all others.
_BITS: Final = 62
_OTHERS: Final = -2
#: Numbers below it, and differences between them and the cores of a chip, are of 16 bits.
_FEW: Final = 1 << 14
_FEW_BITS: Final = 10
#: Pieces reckoned with at once: what is needed on the way stays in a processor's cache.
_AT_ONCE: Final = 1 << 16
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
        index = np.flatnonzero((tasks.work == Work.COMPUTE) & _on_any(used, cores) & inside)
        if not len(index):
            return None
        cube = np.clip(used.cube[index], 0, cores.cube).astype(np.int32)
        vector = np.clip(used.vector[index], 0, cores.vector or 0).astype(np.int32)
        del used, inside  # much memory, here and below
        start, end = np.maximum(tasks.start[index], span[0]), np.minimum(tasks.end[index], span[1])
        border = distinct(np.concatenate([start, end]), consume=True)
        first, last = (passed(border, times, before=True).astype(np.int32) for times in (start, end))
        del start, end
        numbers, streams = _streams_of(tasks.stream[index], first, last, len(border) - 1)

        def together(amount: I32 | None) -> I32:
            change = np.bincount(first, amount, len(border))
            change -= np.bincount(last, amount, len(border))
            sums = np.cumsum(change, out=change)[:-1]
            few = max(int(sums.max()), cores.cube or 0, cores.vector or 0) < _FEW
            return cast(I32, sums.astype(np.int16 if few else np.int32))

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
                mine = self.per_kernel(_lost(self.length, wanted, cores))
                mine *= used > 0
                np.maximum(lost, mine, out=lost)
        return np.subtract(self.dur, lost, out=lost)


def _lost(length: I64, wanted: I32, cores: int) -> I64:
    """Return of each piece of time (ns) the share for which there are too few cores, in place of its length."""
    for first in range(0, len(length), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        share: F64 = np.divide(np.maximum(wanted[part] - cores, 0), np.maximum(wanted[part], 1), dtype=np.float64)
        length[part] = np.rint(length[part] * share)
    return length


def _on_any(used: Blocks, cores: Cores) -> Mask:
    """True for kernels on cores of a side whose number is known; that of the cube cores is."""
    return (used.cube > 0) | (used.vector > 0) if cores.vector else used.cube > 0


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
    together, pairs = _together(sweep, length)
    by_type = _by_type(sweep, length)
    return CoresOverTime(
        cube=_side(sweep, length, sweep.cores.cube, sweep.wanted_cube, bool(sweep.cube.any())),
        vector=_side(sweep, length, sweep.cores.vector, sweep.wanted_vector, bool(sweep.vector.any())),
        by_type=by_type,
        together=together,
        pairs=pairs,
        contention=contended.waits if contended else [],
        contended_ns=contended.ns if contended else None,
        contention_reason=contended.reason if contended else NO_LAUNCHES if pairs else None,
    )


def _side(sweep: Sweep, length: I64, cores: int | None, wanted: I32, used: bool) -> CoreTime | None:
    if not cores or not used:
        return None
    kernel_ns = int(length.compress(sweep.running > 0).sum())
    core_time = np.minimum(wanted, cores) * length
    occupied = int(np.sum(core_time))
    return CoreTime(
        cores=cores,
        kernel_ns=kernel_ns,
        busy_ns=int(length.compress(wanted > 0).sum()),
        full_ns=int(length.compress(wanted >= cores).sum()),
        over_ns=int(length.compress(wanted > cores).sum()),
        occupied_core_ns=occupied,
        idle_core_ns=cores * kernel_ns - occupied,
        slices=_slices(sweep, core_time, cores),
    )


def _slices(sweep: Sweep, core_time: I64, cores: int) -> list[float]:
    """Return the mean share of occupied cores in equal slices between the first and the last border."""
    border, so_far = sweep.border, np.cumsum(core_time, out=core_time)  # of which nothing else is asked
    edges = np.linspace(0, float(border[-1] - border[0]), _SLICES + 1)
    after = np.searchsorted(border, edges.astype(np.int64) + border[0], side="right")
    near = distinct(np.clip(np.concatenate([after - 1, after]), 0, len(border) - 1))
    until = np.interp(edges, border[near] - border[0], np.where(near > 0, so_far[near - 1], 0))
    share: list[float] = (np.diff(until) / (np.diff(edges) * cores)).round(6).tolist()
    return share


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
    for idle in _idle(sweep, length):
        sums.append(sums_of(group, _split_evenly(sweep, idle), len(first)).tolist())
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


def _split_evenly(sweep: Sweep, idle: I64) -> I64:
    """Share each piece's idle core time among the kernels running in it; what does not divide goes to one of them.

    ``idle`` is used up.
    """
    several = np.flatnonzero(sweep.running > 1)
    each, rest = np.divmod(idle.take(several), sweep.running.take(several).astype(np.int64))
    idle[several] = each
    share = sweep.per_kernel(idle)
    at, rest = several.compress(rest > 0), rest.compress(rest > 0)
    # Of the kernels begun so far the one that ends last is running if any is.
    reach = np.maximum.accumulate(sweep.last)
    longest = np.maximum.accumulate(np.where(sweep.last >= reach, np.arange(len(sweep.last)), 0))
    begun = np.searchsorted(sweep.first, at, side="right") - 1
    np.add.at(share, longest[begun], rest)
    return share


def _together(sweep: Sweep, length: I64) -> tuple[list[StreamSet], list[StreamPair]]:
    """Sum up per set of streams that run at the same time, and per pair of streams."""
    over = np.zeros(len(length), np.bool_)
    for cores, wanted in sweep.sides:
        over |= (wanted > cores) if cores else False
    sets, group = _numbered(sweep.streams, len(sweep.numbers))
    sums = []
    for amount in chain((length, length * over), _idle(sweep, length)):
        sums.append(sums_of(group, amount, len(sets)).tolist())
    rows = [row for row in zip(sets.tolist(), *sums, strict=True) if row[0] and row[1]]
    together = [
        StreamSet(streams=sweep.names(bits), ns=ns, idle_cube_core_ns=cube, idle_vector_core_ns=vector)
        for bits, ns, _, cube, vector in rows
    ]
    return sorted(together, key=lambda r: -r.ns), _pairs(sweep, [row[:3] for row in rows])


def _numbered(bits: I64, count: int) -> tuple[I64, I64]:
    """Return the different sets of streams, and which of them each piece has."""
    if count <= _FEW_BITS:  # no need to sort
        return np.arange(1 << count), bits
    sets, group = np.unique(bits, return_inverse=True)
    return sets, group


def _pairs(sweep: Sweep, sets: list[tuple[int, ...]]) -> list[StreamPair]:
    """Return the pairs of streams that overlap, and those of streams that matter even if they do not.

    ``sets``: bits, time and over-committed time of each set of streams.
    """
    busy = [sum(ns for bits, ns, _ in sets if bits >> i & 1) for i in range(len(sweep.numbers))]
    notable = [ns >= _NOTABLE * sum(ns for _, ns, _ in sets) for ns in busy]
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
