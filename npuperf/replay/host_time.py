"""What the host time between two launches is for: causes, calls that launch, pauses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.host.blame import blame, event_causes
from npuperf.host.causes import BETWEEN, CODE, LAUNCHING, NOT_LAUNCHING
from npuperf.host.nesting import Pieces
from npuperf.model.groups import numbered
from npuperf.model.labels import I64, U8
from npuperf.model.narrow import narrow
from npuperf.replay.replay import Replay
from npuperf.replay.study import Study

#: Instructions whose host time is split by cause at a time: bounds the memory of the pieces.
_CHUNK: Final = 20_000


class HostTimes(Struct, frozen=True):
    """For each of ``count`` instructions, how much of its host time was spent on what.

    ``spent``: by cause (its place in CAUSES), instructions, and how much, ns; most have few causes.
    ``pause_ns``: from when on host time without a call that launches is a pause.
    """

    count: int
    pause_ns: int
    spent: dict[int, list[tuple[I64 | slice, I64]]]

    def on(self, *causes: str) -> I64:
        """Return for each instruction how much of its host time was spent on some causes, ns."""
        found = np.zeros(self.count, np.int64)
        for cause in causes:
            for instruction, ns in self.spent.get(CODE[cause], ()):
                found[instruction] += ns
        return found

    def calls(self) -> I64:
        """Return how much was spent in calls that launch, ns."""
        return self.on(*LAUNCHING)

    def pauses(self) -> I64:
        """Return how much was spent in pauses, as npuperf.host.pauses has them, ns."""
        between = self.on(*BETWEEN)
        between[between < self.pause_ns] = 0
        return between

    def kept(self) -> I64:
        """Return how much was spent in pauses and on all else that launching has no part in, ns."""
        return self.pauses() + self.on(*NOT_LAUNCHING)

    @classmethod
    def of(cls, study: Study, replay: Replay) -> HostTimes:
        """Tell what the host time of each instruction is for."""
        spent: dict[int, list[tuple[I64 | slice, I64]]] = {}
        for part, pieces, cause in _pieces(study, replay):
            for code, each in _by_cause(pieces, cause, part.stop - part.start).items():
                spent.setdefault(code, []).append(_compact(part, each))
        return cls(len(replay.since), study.pause_ns, spent)


def _compact(part: slice, each: I64) -> tuple[I64 | slice, I64]:
    """Return where numbers that stand in a part are not 0, and those; all of them, where that takes less memory."""
    some = np.flatnonzero(each)
    if 2 * len(some) > len(each):
        return part, narrow(each)
    return narrow(part.start + some), narrow(each[some])


def _by_cause(pieces: Pieces, cause: U8, count: int) -> dict[int, I64]:
    """Return how long the pieces of each of ``count`` owners are together, by the causes that there are, ns."""
    codes, place = numbered(cause)
    total = np.bincount(place * count + pieces.owner, weights=pieces.length, minlength=len(codes) * count)
    return dict(zip(codes.tolist(), total.astype(np.int64).reshape(len(codes), count), strict=True))


def _pieces(study: Study, replay: Replay) -> Iterator[tuple[slice, Pieces, U8]]:
    """Cut the host time of instructions by what it is blamed on: which instructions, their pieces, and causes."""
    threads, skew = study.threads, study.launches.skew
    n = len(replay.since)
    op = np.full(n, -1, threads.op.dtype)
    op[replay.task] = threads.op[replay.active]
    for first in range(0, n, _CHUNK):
        part = slice(first, min(first + _CHUNK, n))
        thread = replay.thread[part]
        main = np.where(threads.main >= 0, threads.main, thread)
        chain = (thread, op[part], main)
        pieces = blame(chain, replay.since[part] + skew, replay.until[part] + skew, study.nesting)
        yield part, pieces, event_causes(pieces.event, study.nesting)
