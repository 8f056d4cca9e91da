"""What the host time between two launches is for: causes, calls that launch, pauses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from npuperf.host.blame import blame, event_causes
from npuperf.host.causes import CODE, LAUNCHING, NOT_LAUNCHING, flag_causes
from npuperf.host.nesting import Pieces
from npuperf.host.pauses import pauses
from npuperf.model.labels import I64, U8, Mask
from npuperf.replay.replay import Replay
from npuperf.replay.study import Study

#: Instructions whose host time is split by cause at a time: bounds the memory of the pieces.
_CHUNK: Final = 200_000


@dataclass(frozen=True, slots=True)
class HostTimes:
    """For each instruction, how much of its host time was spent on what, ns.

    ``calls``: calls that launch; ``pause``: pauses; ``kept``: pauses and all else that launching has no part in.
    ``spent``: by cause (its place in CAUSES), the instructions with any, and how much; most have few causes.
    """

    calls: I64
    pause: I64
    kept: I64
    spent: dict[int, list[tuple[I64, I64]]]

    def on(self, cause: str) -> I64:
        """Return for each instruction how much of its host time was spent on a cause, ns."""
        found = np.zeros(len(self.calls), np.int64)
        for instruction, ns in self.spent.get(CODE[cause], ()):
            found[instruction] = ns
        return found

    @classmethod
    def of(cls, study: Study, replay: Replay) -> HostTimes:
        """Tell what the host time of each instruction is for."""
        calls, pause, kept = (np.zeros(len(replay.since), np.int64) for _ in range(3))
        spent: dict[int, list[tuple[I64, I64]]] = {}
        for first, pieces, cause in _pieces(study, replay):
            paused = pauses(pieces.owner, pieces.length, cause, _CHUNK, study.pause_ns)
            for sums, chosen in (
                (calls, flag_causes(cause, LAUNCHING)),
                (pause, paused),
                (kept, paused | flag_causes(cause, NOT_LAUNCHING)),
            ):
                np.add.at(sums, first + pieces.owner[chosen], pieces.length[chosen])
            for code in np.flatnonzero(np.bincount(cause)).tolist():
                instruction, ns = _by_owner(pieces, cause == code)
                spent.setdefault(code, []).append((first + instruction, ns))
        return cls(calls, pause, kept, spent)


def _by_owner(pieces: Pieces, chosen: Mask) -> tuple[I64, I64]:
    """Return the owners of the chosen pieces, each once, and how long their pieces are together."""
    owner = pieces.owner[chosen]
    total = np.zeros(int(owner.max(initial=-1)) + 1, np.int64)
    np.add.at(total, owner, pieces.length[chosen])
    some = np.flatnonzero(total).astype(np.int64)
    return some, total[some]


def _pieces(study: Study, replay: Replay) -> Iterator[tuple[int, Pieces, U8]]:
    """Cut the host time of instructions by what it is blamed on: the first instruction, its pieces, their causes."""
    threads, skew = study.threads, study.launches.skew
    n = len(replay.since)
    op = np.full(n, -1)
    op[replay.task] = threads.op[replay.active]
    main = np.where(threads.main >= 0, threads.main, replay.thread)
    for first in range(0, n, _CHUNK):
        part = slice(first, min(first + _CHUNK, n))
        chain = (replay.thread[part], op[part], main[part])
        pieces = blame(chain, replay.since[part] + skew, replay.until[part] + skew, study.nesting)
        yield first, pieces, event_causes(pieces.event, study.nesting)
