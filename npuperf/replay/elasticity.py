"""Elasticity: by how much a window shortens when one resource gets faster, from three replays."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.documents.analysis import Elasticity
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, U8
from npuperf.model.narrow import narrow
from npuperf.model.tasks import Work
from npuperf.replay.replay import Replay, TaskTimes

#: By how much each resource is made faster.
STEP: Final = 0.1


class Elasticities(Struct, frozen=True):
    """Start and end of all replayed tasks, and by how much earlier they are with each resource ten percent faster, ns.

    ``by_end``: the tasks ordered by their end.
    """

    by_end: I64
    base: TaskTimes
    earlier: dict[str, TaskTimes]

    @classmethod
    def of(cls, replay: Replay, work: U8) -> Elasticities:
        """Replay three times; ``work`` is of the active tasks."""
        program, base = replay.program, replay.base
        host = np.rint(program.host_ns * (1 - STEP)).astype(np.int64)
        earlier = {"host": _earlier(base, replay.times(program.with_columns(host_ns=host)))}
        del host
        for name, kind in (("compute", Work.COMPUTE), ("communication", Work.COMMUNICATION)):
            dur = program.dur_ns.copy()
            at = replay.task[work == kind]
            dur[at] = np.rint(dur[at] * (1 - STEP)).astype(np.int64)
            earlier[name] = _earlier(base, replay.times(program.with_columns(dur_ns=dur)) if len(at) else base)
        return cls(narrow(np.argsort(base.end, kind="stable")), base, earlier)

    def of_windows(self, windows: Intervals) -> list[Elasticity]:
        """Return the elasticities of windows whose borders are starts or ends of tasks."""
        borders = np.concatenate([windows.start, windows.end])
        starts, ends = self.base.start, self.base.end[self.by_end]
        i = np.minimum(np.searchsorted(starts, borders), len(starts) - 1)
        j = self.by_end[np.minimum(np.searchsorted(ends, borders), len(ends) - 1)]

        def between(times: TaskTimes) -> I64:
            """Return for each window the time between its borders: of the tasks that start or end there."""
            begin, end = np.split(np.where(starts[i] == borders, times.start[i], times.end[j]).astype(np.int64), 2)
            return np.asarray(end - begin)

        length = between(self.base)
        sums = {}
        for name, times in self.earlier.items():
            shorter = between(times)
            sums[name] = np.where(length > 0, shorter / np.maximum(length, 1) / STEP, 0.0).tolist()
        return [
            Elasticity(host=h, compute=c, communication=m)
            for h, c, m in zip(sums["host"], sums["compute"], sums["communication"], strict=True)
        ]


def _earlier(base: TaskTimes, faster: TaskTimes) -> TaskTimes:
    """Return by how much earlier everything starts and ends in a faster run, ns."""
    if faster is base:
        nothing = np.broadcast_to(np.int64(0), len(base.start))
        return TaskTimes(nothing, nothing)
    return TaskTimes(narrow(base.start - faster.start), narrow(base.end - faster.end))
