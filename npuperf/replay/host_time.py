"""What the host time between two launches is for: causes, calls that launch, pauses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

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
    """For each instruction, how much of its host time was spent on what, ns.

    ``calls``: calls that launch; ``pause``: pauses; ``kept``: pauses and all else that launching has no part in.
    ``spent``: by cause (its place in CAUSES), instructions, and how much; most have few causes, and some are common.
    """

    calls: I64
    pause: I64
    kept: I64
    spent: dict[int, list[tuple[I64 | slice, I64]]]

    def on(self, cause: str) -> I64:
        """Return for each instruction how much of its host time was spent on a cause, ns."""
        found = np.zeros(len(self.calls), np.int64)
        for instruction, ns in self.spent.get(CODE[cause], ()):
            found[instruction] = ns
        return found

    @classmethod
    def of(cls, study: Study, replay: Replay) -> HostTimes:
        """Tell what the host time of each instruction is for."""
        found = [cast(I64, np.empty((3, 0), np.int32))]
        spent: dict[int, list[tuple[I64 | slice, I64]]] = {}
        for part, pieces, cause in _pieces(study, replay):
            times = _by_cause(pieces, cause, part.stop - part.start)
            between = _together(times, BETWEEN)
            calls, pause, kept = own = np.empty((3, part.stop - part.start), np.int64)
            calls[:] = _together(times, LAUNCHING)
            pause[:] = np.where(between >= study.pause_ns, between, 0)  # as npuperf.host.pauses has it
            kept[:] = pause + _together(times, NOT_LAUNCHING)
            found.append(narrow(own))
            for code, each in times.items():
                spent.setdefault(code, []).append(_compact(part, each))
        calls, pause, kept = np.concatenate(found, axis=1)
        return cls(calls, pause, kept, spent)


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


def _together(times: dict[int, I64], causes: tuple[str, ...]) -> I64 | int:
    return sum(times[code] for name in causes if (code := CODE[name]) in times)


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
