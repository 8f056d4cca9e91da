"""The exact partition of device time: compute, exposed communication, other work, and why the rest is idle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuperf.analyze.intervals import Intervals
from npuperf.analyze.launch import Launches
from npuperf.model.labels import I64, Mask
from npuperf.model.result import Partition
from npuperf.model.tasks import NO_TIME, Tasks, Work

_PARTS = (
    "compute",
    "comm_exposed",
    "other_exposed",
    "host_wait",
    "launch_latency",
    "dependency_wait",
    "unattributed",
)


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle time of one device, each nanosecond in exactly one set.

    A gap ends when a task starts: until its launch returned the device waited for the host, then at most
    one launch latency, the rest for a dependency. Gaps that end without a known launch are unattributed.
    """

    host_wait: Intervals
    launch_latency: Intervals
    dependency_wait: Intervals
    unattributed: Intervals


@dataclass(frozen=True, slots=True)
class Timeline:
    """Where the device's time goes; any window of it can be summed exactly."""

    span: tuple[int, int]
    compute: Intervals
    compute_comm: Intervals
    active: Intervals
    idle: Idle

    def partition(self, windows: Intervals) -> list[Partition]:
        """Split each window. The parts add up to its length to the nanosecond."""
        compute = self.compute.within(windows)
        both = self.compute_comm.within(windows)
        active = self.active.within(windows)
        parts = {
            "span": windows.end - windows.start,
            "compute": compute,
            "comm_exposed": both - compute,
            "other_exposed": active - both,
            "idle": windows.end - windows.start - active,
            "host_wait": self.idle.host_wait.within(windows),
            "launch_latency": self.idle.launch_latency.within(windows),
            "dependency_wait": self.idle.dependency_wait.within(windows),
            "unattributed": self.idle.unattributed.within(windows),
        }
        rows = zip(*(values.tolist() for values in parts.values()), strict=True)
        return [Partition(**{f"{k}_ns": v for k, v in zip(parts, row, strict=True)}) for row in rows]

    def whole(self) -> Partition:
        """Split the whole span."""
        return self.partition(window(*self.span))[0]


def window(start: int, end: int) -> Intervals:
    """Return one window."""
    return Intervals(np.array([start], np.int64), np.array([end], np.int64))


def span_of(tasks: Tasks) -> tuple[int, int]:
    """Return first start and last end of all tasks that occupy the device."""
    active = tasks.work != Work.CONTROL
    return int(tasks.start[active].min()), int(tasks.end[active].max())


def lay_out(tasks: Tasks, launches: Launches, span: tuple[int, int] | None = None) -> Timeline:
    """Lay out the time of a device, or of one stream within the device's ``span``."""
    active = tasks.work != Work.CONTROL
    compute = tasks.work == Work.COMPUTE
    both = compute | (tasks.work == Work.COMMUNICATION)
    everything = Intervals.union(tasks.start[active], tasks.end[active])
    start, end = span or span_of(tasks)
    return Timeline(
        span=(start, end),
        compute=Intervals.union(tasks.start[compute], tasks.end[compute]),
        compute_comm=Intervals.union(tasks.start[both], tasks.end[both]),
        active=everything,
        idle=_split(everything.gaps(start, end), tasks.start[active], launches.end[active], launches.latency),
    )


def _split(gaps: Intervals, start: I64, launch_end: I64, latency: int) -> Idle:
    """Split every gap by the launch of the task that ends it (of several, the one launched first)."""
    unknown = np.iinfo(np.int64).max
    launch = np.where(launch_end == NO_TIME, unknown, launch_end)
    order = np.lexsort((launch, start))
    at = np.searchsorted(start[order], gaps.end)
    ends_in_task = at < len(order)
    first = order[np.minimum(at, len(order) - 1)] if len(order) else at
    known = ends_in_task.copy()
    if len(order):
        known &= (start[first] == gaps.end) & (launch[first] != unknown)
    submitted = np.clip(launch[first], gaps.start, gaps.end) if len(order) else gaps.end
    ready = np.minimum(submitted + latency, gaps.end)
    return Idle(
        host_wait=_pick(gaps.start, submitted, known),
        launch_latency=_pick(submitted, ready, known),
        dependency_wait=_pick(ready, gaps.end, known),
        unattributed=_pick(gaps.start, gaps.end, ~known),
    )


def _pick(start: I64, end: I64, chosen: Mask) -> Intervals:
    real = chosen & (end > start)
    return Intervals(start[real], end[real])


def add(partitions: list[Partition]) -> Partition:
    """Sum partitions of several devices, part by part."""
    names = Partition.__struct_fields__
    return Partition(**{name: sum(getattr(p, name) for p in partitions) for name in names})
