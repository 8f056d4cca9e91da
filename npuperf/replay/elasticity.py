"""Elasticity: by how much a window shortens when one resource gets faster, from three replays."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.documents.analysis import Elasticity
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, U8
from npuperf.model.tasks import Work
from npuperf.replay.replay import Replay, TaskTimes

#: By how much each resource is made faster.
STEP: Final = 0.1


class Elasticities(Struct, frozen=True):
    """Start and end of all replayed tasks, as measured and with each resource ten percent faster.

    ``by_end``: the tasks ordered by their end.
    """

    by_end: I64
    base: TaskTimes
    faster: dict[str, TaskTimes]

    @classmethod
    def of(cls, replay: Replay, work: U8) -> Elasticities:
        """Replay three times; ``work`` is of the active tasks."""
        program, base = replay.program, replay.base
        host = np.rint(program.host_ns * (1 - STEP)).astype(np.int64)
        faster = {"host": replay.times(program.with_columns(host_ns=host))}
        for name, kind in (("compute", Work.COMPUTE), ("communication", Work.COMMUNICATION)):
            dur = program.dur_ns.copy()
            at = replay.task[work == kind]
            dur[at] = np.rint(dur[at] * (1 - STEP)).astype(np.int64)
            faster[name] = replay.times(program.with_columns(dur_ns=dur)) if len(at) else base
        return cls(np.argsort(base.end, kind="stable"), base, faster)

    def of_windows(self, windows: Intervals) -> list[Elasticity]:
        """Return the elasticities of windows whose borders are starts or ends of tasks."""
        length = self._at(self.base, windows.end) - self._at(self.base, windows.start)
        sums = {}
        for name, times in self.faster.items():
            shorter = length - (self._at(times, windows.end) - self._at(times, windows.start))
            sums[name] = np.where(length > 0, shorter / np.maximum(length, 1) / STEP, 0.0).tolist()
        return [
            Elasticity(host=h, compute=c, communication=m)
            for h, c, m in zip(sums["host"], sums["compute"], sums["communication"], strict=True)
        ]

    def _at(self, times: TaskTimes, border: I64) -> I64:
        """Return when the task that starts (or ends) at each border in the measured run does so in another run."""
        starts, ends = self.base.start, self.base.end[self.by_end]
        i = np.minimum(np.searchsorted(starts, border), len(starts) - 1)
        j = np.minimum(np.searchsorted(ends, border), len(ends) - 1)
        return np.where(starts[i] == border, times.start[i], times.end[self.by_end[j]])
