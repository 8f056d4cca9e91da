"""The clock of a device's cores, as counters tell it: a value holds until the next one."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from npuperf.model.labels import I64
from npuperf.model.tasks import Tasks, Work


class ClockRates(Struct, frozen=True):
    """The clock of one device's AI Cores, in order of time: epoch ns, and MHz from then on."""

    time: I64
    mhz: I64

    @classmethod
    def of(cls, time: I64, mhz: I64) -> ClockRates:
        """Order values by time; one that is no clock is left out."""
        sane = np.flatnonzero((mhz > 0) & (time >= 0))
        order = sane[np.argsort(time[sane], kind="stable")]
        return cls(time[order], mhz[order])

    def during(self, tasks: Tasks) -> tuple[int, int] | None:
        """Return the least and the most while tasks ran, MHz; None where no value holds then."""
        busy = np.flatnonzero(tasks.work != Work.CONTROL)
        if not len(busy) or not len(self.time):
            return None
        first = int(np.searchsorted(self.time, tasks.start[busy].min(), side="right")) - 1
        stop = int(np.searchsorted(self.time, tasks.end[busy].max(), side="left"))
        held = self.mhz[max(first, 0) : stop]
        return (int(held.min()), int(held.max())) if len(held) else None
