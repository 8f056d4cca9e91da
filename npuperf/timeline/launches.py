"""Launches against starts: the clock disagreement, the launch latency, and how far ahead the host runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuperf.model.labels import I64, Mask
from npuperf.model.tasks import NO_TIME, Tasks, Work
from npuperf.model.thresholds import Thresholds


@dataclass(frozen=True, slots=True)
class Launches:
    """Host launch of each task, moved onto the device's clock.

    ``end``: end of the launch call per task, ``NO_TIME`` where unknown (ns). ``latency``: the calibrated
    time from the end of a launch to the earliest start. ``skew``: by how much the device's clock is behind
    the host's at least, as seen from tasks that start before their own launch.
    """

    end: I64
    latency: int
    samples: int
    skew: int
    implausible: int

    @property
    def known(self) -> Mask:
        """True where the launch of a task is known."""
        return np.not_equal(self.end, NO_TIME)

    def filter(self, chosen: Mask) -> Launches:
        """Return the launches of some of the tasks."""
        return Launches(self.end[chosen], self.latency, self.samples, self.skew, self.implausible)


def calibrate(tasks: Tasks, thresholds: Thresholds) -> Launches:
    """Estimate skew and launch latency from the profile itself.

    Skew: causality wants start ≥ launch start; the worst violation within ``skew_limit_ns`` is the least
    skew that explains the data. Launches that break causality by more are wrongly matched: they are dropped.
    Latency: low quantile of start − launch end over tasks launched while the device was idle.
    """
    ahead = tasks.start - tasks.launch_start
    plausible = tasks.launched & (ahead >= -thresholds.skew_limit_ns)
    implausible = int(np.count_nonzero(tasks.launched & ~plausible))
    skew = max(0, -int(ahead[plausible].min())) if plausible.any() else 0
    end = np.where(plausible, tasks.launch_end - skew, NO_TIME)
    latency, samples = _latency(tasks, end, thresholds)
    return Launches(end, latency, samples, skew, implausible)


def busy_until(tasks: Tasks) -> I64:
    """Return for each task (ordered by start) when the device finished everything that started before it."""
    active = np.where(tasks.work == Work.CONTROL, tasks.start, tasks.end)
    reach = np.maximum.accumulate(active) if len(active) else active
    return np.concatenate([tasks.start[:1], reach[:-1]])


def lead(tasks: Tasks, launches: Launches) -> I64:
    """Return how long each task waited after its launch, ns (0 where unknown): the host's lead."""
    return np.where(launches.known, np.maximum(tasks.start - launches.end, 0), 0)


def _latency(tasks: Tasks, launch_end: I64, thresholds: Thresholds) -> tuple[int, int]:
    empty = launch_end >= busy_until(tasks)
    # What ran before the first task is not known: it counts unless it was launched into a full queue.
    empty[:1] = tasks.start[:1] - launch_end[:1] <= thresholds.latency_limit_ns
    idle = (launch_end != NO_TIME) & (tasks.work == Work.COMPUTE) & empty
    waits = np.maximum(tasks.start[idle] - launch_end[idle], 0)
    if not len(waits):
        return 0, 0
    return int(np.quantile(waits, thresholds.latency_quantile, method="lower")), len(waits)
