"""Steps as windows of device time."""

from __future__ import annotations

import numpy as np

from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64
from npuperf.model.tasks import Tasks, Work


def step_windows(tasks: Tasks) -> tuple[I64, Intervals]:
    """Return the steps' numbers and windows, in time order.

    A step lasts from its first kernel or collective to the next step's first, so that idle time between steps
    belongs to the step it follows; the last one ends with its last kernel or collective. Copies do not count:
    only timelines have them, and a table alone must give the same steps.
    """
    kernels = (tasks.work == Work.COMPUTE) | (tasks.work == Work.COMMUNICATION)
    counted = (tasks.step >= 0) & kernels
    if not counted.any():
        none = np.empty(0, np.int64)
        return none, Intervals(none, none)
    numbers, which = np.unique(tasks.step[counted], return_inverse=True)
    first = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(first, which, tasks.start[counted])
    last = np.full(len(numbers), np.iinfo(np.int64).min)
    np.maximum.at(last, which, tasks.end[counted])
    order = np.argsort(first, kind="stable")
    numbers, first, last = numbers[order], first[order], last[order]
    return numbers, Intervals(first, np.append(first[1:], last[-1]))
