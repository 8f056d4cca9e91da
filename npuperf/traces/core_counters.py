"""Cores in use over time, as counters of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from npuperf.cores.sweep import Sweep
from npuperf.documents.analysis import Device
from npuperf.model.chip import Cores
from npuperf.model.labels import I64
from npuperf.model.tasks import Tasks
from npuperf.traces.trace_events import CounterEvent, Moment

NAME: Final = "cores in use"
#: Values that are turned into events at the same time.
_ROWS: Final = 1 << 14


def core_counters(
    tasks: Tasks, device: Device, pid: int, moments: Callable[[I64], Sequence[Moment]]
) -> Iterator[CounterEvent]:
    """Yield how many cores of each side are in use, from each time on when that changes; nothing where it is unknown.

    ``moments`` makes times of a trace from those of the device.
    """
    if not len(tasks):
        return
    cores = Cores(device.cores_cube, device.cores_vector)
    sweep = Sweep.of(tasks, cores, (int(tasks.start.min()), int(tasks.end.max())))
    if sweep is None:
        return
    sides = {
        name: np.append(np.minimum(wanted, most), 0)  # behind the last border there is nothing
        for name, (most, wanted) in zip(("cube", "vector"), sweep.sides, strict=True)
        if most
    }
    change = np.zeros(len(sweep.border), np.bool_)
    change[:1] = True
    for used in sides.values():
        change[1:] |= used[1:] != used[:-1]
    rows = np.flatnonzero(change)
    for first in range(0, len(rows), _ROWS):
        part = rows[first : first + _ROWS]
        columns = (used[part].tolist() for used in sides.values())
        for moment, values in zip(moments(sweep.border[part]), zip(*columns, strict=True), strict=True):
            yield CounterEvent(NAME, pid, pid, moment, dict(zip(sides, values, strict=True)))
