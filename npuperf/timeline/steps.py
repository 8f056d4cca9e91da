"""Steps as windows of device time."""

from __future__ import annotations

import itertools
import math
from typing import Final

import numpy as np

from npuperf.model.groups import least_and_most, numbered
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

#: So many steps tell which of them a recording cut: a first, a last, and two between that are alike.
_TELLING: Final = 4


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
    numbers, which = numbered(tasks.step[counted])
    first, last = least_and_most(which, len(numbers), tasks.start.compress(counted), tasks.end.compress(counted))
    order = np.argsort(first, kind="stable")
    numbers, first, last = numbers[order], first[order], last[order]
    return numbers, Intervals(first, np.append(first[1:], last[-1]))


def numbers_repeat(tasks: Tasks, thresholds: Thresholds) -> bool:
    """Tell whether a step's number occurs again after another step, as where a program counts from 0 twice.

    Steps may overlap by some kernels; but one that has a notable part of its kernels before the next step and a notable
    part when as much of that has begun is two.
    """
    kernels = (tasks.work == Work.COMPUTE) | (tasks.work == Work.COMMUNICATION)
    counted = np.flatnonzero((tasks.step >= 0) & kernels)
    step = tasks.step[counted]
    if (np.diff(step) >= 0).all():
        return False
    order = np.argsort(step, kind="stable")  # tasks are ordered by start
    start, borders = tasks.start[counted][order], np.flatnonzero(np.diff(step[order])) + 1
    steps = sorted(np.split(start, borders), key=lambda own: int(own[0])) if len(start) else []
    for own, following in itertools.pairwise(steps):
        notable = max(math.ceil((1 - thresholds.whole_step_share) * len(own)), 1)
        if len(following) < notable:
            continue
        before, after = np.searchsorted(own, [following[0], following[notable - 1]]).tolist()
        if before >= notable and len(own) - after >= notable:
            return True
    return False


def whole_steps(tasks: Tasks, numbers: I64, thresholds: Thresholds) -> Mask:
    """Tell which steps, in time order, were recorded from their beginning to their end.

    A recording cuts the step that is under way when it begins or ends: such a step has only a part of the kernels that
    every step between the first and the last has. Where these are too few, or not alike, that cannot be told.
    """
    whole = np.ones(len(numbers), np.bool_)
    if len(numbers) < _TELLING:
        return whole
    kernels = (tasks.work == Work.COMPUTE) | (tasks.work == Work.COMMUNICATION)
    order = np.argsort(numbers)
    mine = tasks.step[(tasks.step >= 0) & kernels]
    count = np.zeros(len(numbers), np.int64)
    count[order] = np.bincount(np.searchsorted(numbers[order], mine), minlength=len(numbers))
    least, most = int(count[1:-1].min()), int(count[1:-1].max())
    if most - least <= thresholds.odd_step_share * most:
        whole[[0, -1]] = count[[0, -1]] >= thresholds.whole_step_share * least
    return whole


def judged_window(windows: Intervals, whole: Mask) -> tuple[int, int] | None:
    """Return the window of the whole steps, from the first one's start to the last one's end; None without steps."""
    if not whole.any():
        return None
    return int(windows.start[whole][0]), int(windows.end[whole][-1])
