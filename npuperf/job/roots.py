"""Who is to blame for waiting: each wait is followed to what made the last rank late.

The last rank L and a rank r that waits for it were at one point in time when they last took part in an operation
together. What L has spent since beyond what r has is why r waits: more compute, more waiting for the host, longer
transfers in another group, or more waiting for others. That waiting has been blamed already, because it came before,
so its own roots are taken over. Nothing of this needs a clock, and the parts of a wait add up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.device.rank_summary import RankSummary
from npuperf.job.clocks import Clocks
from npuperf.job.job_replay import BEGIN, CAUSES, COMPUTE, HOST, OTHER, JobProgram
from npuperf.job.waits import JobWaits
from npuperf.model.labels import F64, I64

#: JobWaits shorter than this many residuals of the clocks are noise: nobody can be called the last.
_SEPARABLE: Final = 3
#: And those shorter than this, ns.
_LEAST: Final = 500.0


class WaitBlame(Struct, frozen=True):
    """Waiting by root (ns): ``waits[axis, step, place]``, where place is 1 for waits across pipeline stages, else 0.

    Axes: compute of each rank, host of each rank, other local time of each rank, what lies before each rank's first
    step, transfer of each group, no pattern (too short to be separated), unknown. ``worst[axis]``: the most that a
    single rank waited for it within its stage, or where nobody did, across stages.
    """

    waits: F64
    worst: F64
    ranks: int
    groups: int

    @property
    def noise(self) -> int:
        """The axis of waits too short to be separated."""
        return self.of_group(self.groups)

    @property
    def unknown(self) -> int:
        """The axis of waits that nothing explains."""
        return self.noise + 1

    def of_rank(self, rank: int) -> list[int]:
        """Return the axes of a rank, by cause."""
        return [rank + self.ranks * cause for cause in range(CAUSES)]

    def of_group(self, group: int) -> int:
        """Return the axis of a group."""
        return CAUSES * self.ranks + group


class _Ledger(Struct):
    """What a rank has spent so far: locally by cause, waiting by root, in transfers by kind of group.

    ``until``: up to where its exposed communication has been entered.
    """

    local: F64
    waited: F64
    transfer: F64
    piece: int = 0
    until: int = 0


class _Entries(Struct, frozen=True):
    """What is entered of a rank: its exposed communication, piece by piece, and its own time before each operation."""

    op: list[int]
    start: list[int]
    end: list[int]
    compute: list[int]
    host: list[int]
    begin: int

    @classmethod
    def of(cls, rank: RankSummary) -> _Entries:
        return cls(
            op=rank.exposed_op.tolist(),
            start=rank.exposed_start.tolist(),
            end=rank.exposed_end.tolist(),
            compute=rank.compute_before.tolist(),
            host=rank.host_before.tolist(),
            begin=rank.begin,
        )


class _Mark(Struct, frozen=True):
    """The ledger of a rank when it came to an operation, as if it had waited there already.

    Of ``waited`` only what is not zero is kept: ``axes`` and their ``waits``. ``turn`` numbers operations.
    """

    turn: int
    local: F64
    transfer: F64
    axes: I64
    waits: F64


#: Who met: the group, and of point-to-point operations both ranks.
_Meeting = tuple[int, ...]


class _Blamer:
    def __init__(
        self, ranks: Sequence[RankSummary], job: JobProgram, waits: JobWaits, clocks: Clocks, steps: I64, wide: I64
    ) -> None:
        matched = job.matched
        self.ranks, self.job, self.matched = ranks, job, matched
        # One operation after the other is looked at, and lists answer sooner than arrays.
        self.wide, self.steps, self.first = wide.tolist(), steps.tolist(), matched.first.tolist()
        self.rank, self.start, self.group = matched.rank.tolist(), matched.start.tolist(), matched.group.tolist()
        self.instance, self.met = matched.instance.tolist(), matched.instance_group.tolist()
        self.wait, self.known, self.last = waits.here.tolist(), waits.known.tolist(), waits.last.tolist()
        self.begun_with, self.begin = job.begun_with.tolist(), job.begin.tolist()
        self.entries = [_Entries.of(summary) for summary in ranks]
        count, groups = len(ranks), len(matched.groups)
        self.axes = CAUSES * count + groups + 2
        kinds = {kind: i for i, kind in enumerate(dict.fromkeys(g.kind or g.id for g in matched.groups))}
        self.kind = [*(kinds[g.kind or g.id] for g in matched.groups), 0]
        self.group_of: dict[tuple[int, int], int] = {}
        self.ledgers = [_Ledger(np.zeros(3), np.zeros(self.axes), np.zeros(max(len(kinds), 1))) for _ in ranks]
        self.marks: list[dict[_Meeting, _Mark]] = [{} for _ in ranks]
        self.turn = 0
        self.dist: dict[int, tuple[I64, F64]] = {}
        self.out = np.zeros((self.axes, max(int(steps.max(initial=0)) + 1, 1), 2))
        self.each = np.zeros((2, self.axes, count))
        residual = np.where(np.isfinite(clocks.residual), clocks.residual, 0.0)
        self.floor = np.maximum(_SEPARABLE * residual, _LEAST).tolist()

    def run(self) -> WaitBlame:
        """Blame all waits, in the order of the job."""
        for level in self.job.levels:
            bounds = [*level.head.tolist(), len(level.operation)]
            for first, last in pairwise(bounds):
                operations = level.operation[first:last].tolist()
                instance = self.instance[operations[0]]
                if instance >= 0:
                    self._instance(instance, operations)
        count, groups = len(self.ranks), len(self.matched.groups)
        within, across = self.each.max(axis=2, initial=0.0)
        return WaitBlame(self.out, np.where(within > 0, within, across), count, groups)

    def _instance(self, instance: int, operations: list[int]) -> None:
        for op in operations:
            self._advance(self.rank[op], op)
        last = self.last[instance]
        for op in operations:
            if self.wait[op] > 0 and op != last:
                self._blame(op, last, float(self.wait[op]))
        self.turn += 1
        pair = sorted(self.rank[op] for op in operations) if self.matched.p2p[operations[0]] else []
        meeting = (self.met[instance], *pair)
        for op in operations:
            ledger = self.ledgers[self.rank[op]]
            waited = ledger.waited.copy()
            self._enter_wait(waited, op, float(self.wait[op]))
            (axes,) = waited.nonzero()
            mark = _Mark(self.turn, ledger.local, ledger.transfer.copy(), axes, waited[axes])
            self.marks[self.rank[op]][meeting] = mark

    def _advance(self, rank: int, op: int) -> None:
        """Bring a rank's ledger to the start of an operation."""
        own, ledger = self.entries[rank], self.ledgers[rank]
        row, start = op - self.first[rank], self.start[op]
        while ledger.piece < len(own.op) and own.start[ledger.piece] < start:
            first = max(own.start[ledger.piece], ledger.until)
            last = min(own.end[ledger.piece], start)
            if last > first:
                self._enter(rank, own.op[ledger.piece], first, last)
                ledger.until = last
            if last < own.end[ledger.piece]:
                break
            ledger.piece += 1
        compute, host = float(own.compute[row]), float(own.host[row])
        spent = float(np.add.reduce(ledger.waited) + np.add.reduce(ledger.transfer))
        ledger.local = np.array([compute, host, start - own.begin - compute - host - spent])

    def _enter(self, rank: int, row: int, first: int, last: int) -> None:
        """Enter a stretch of exposed communication: first it waits, then it transfers."""
        op, ledger = self.first[rank] + row, self.ledgers[rank]
        turn = self.start[op] + self.wait[op]
        middle = min(max(turn, first), last)
        self._enter_wait(ledger.waited, op, middle - first)
        if not self.known[op]:  # the rest may be waiting for ranks that are not here
            ledger.waited[-1] += last - middle
            return
        kind = self.kind[self.group[op]]
        ledger.transfer[kind] += last - middle
        self.group_of[rank, kind] = self.group[op]

    def _enter_wait(self, waited: F64, op: int, ns: float) -> None:
        if ns <= 0:
            return
        axes, weights = self.dist.get(op, (None, None))
        if axes is None or weights is None:
            waited[-1] += ns
        else:
            waited[axes] += ns * weights

    def _blame(self, op: int, last: int, wait: float) -> None:
        rank, late = self.rank[op], self.rank[last]
        if wait <= max(self.floor[rank], self.floor[late]):
            axes, weights = np.array([self.axes - 2]), np.ones(1)
        else:
            axes, weights = self._why(rank, late)
        self.dist[op] = axes, weights
        place = self.wide[self.met[self.instance[op]]]
        blamed = wait * weights
        self.out[axes, self.steps[op], place] += blamed
        self.each[place, axes, rank] += blamed

    def _why(self, rank: int, late: int) -> tuple[I64, F64]:
        """Return the roots of a wait, with weights: what the late rank spent beyond the waiting one.

        That is since they last took part in the same operation, or since the begin.
        """
        mine, theirs, count = self.ledgers[rank], self.ledgers[late], len(self.ranks)
        local, transfer = theirs.local - mine.local, theirs.transfer - mine.transfer
        waited, found = theirs.waited - mine.waited, np.zeros(self.axes)
        own, other = self.marks[rank], self.marks[late]
        met = [m for m in own.keys() & other.keys() if own[m].turn == other[m].turn]
        if met:
            last = max(met, key=lambda m: own[m].turn)
            a, b = own[last], other[last]
            waited[a.axes] += a.waits
            waited[b.axes] -= b.waits
            local, transfer = local + a.local - b.local, transfer + a.transfer - b.transfer
        else:
            tied = self.begun_with[late] == self.begun_with[rank]
            later = max(self.begin[late] - self.begin[rank], 0.0)  # it began
            found[late + BEGIN * count if tied else -1] = later
        for cause, longer in zip((COMPUTE, HOST, OTHER), local.tolist(), strict=True):
            found[late + cause * count] += max(longer, 0.0)
        for kind, longer in enumerate(transfer.tolist()):
            if longer > 0:
                found[CAUSES * count + self.group_of.get((late, kind), 0)] += longer
        more = float(np.add.reduce(waited))
        if more > 0:
            positive = np.maximum(waited, 0.0)
            found += positive * (more / np.add.reduce(positive))
        (axes,) = (found > 0).nonzero()
        if not len(axes):
            return np.array([self.axes - 1]), np.ones(1)
        weights = found[axes]
        return axes, weights / np.add.reduce(weights)


def blame(
    ranks: Sequence[RankSummary], job: JobProgram, waits: JobWaits, clocks: Clocks, steps: I64, wide: I64
) -> WaitBlame:
    """Blame every wait of complete operations on its roots.

    ``steps``: the number of each operation's step, from 0; ``wide``: per group, 1 if it spans pipeline stages.
    """
    return _Blamer(ranks, job, waits, clocks, steps, wide).run()
