"""The exact partition of device time: compute, exposed communication, other work, and why the rest is idle."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from npuperf.documents.analysis import Partition
from npuperf.model.groups import sorted_rows
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Mask
from npuperf.model.merging import passed
from npuperf.model.narrow import narrow
from npuperf.model.tasks import NO_TIME, Tasks, Work, in_order
from npuperf.timeline.launches import Launches

_PARTS = (
    "compute",
    "comm_exposed",
    "other_exposed",
    "host_wait",
    "launch_latency",
    "dependency_wait",
    "unattributed",
)


class Gaps(Struct, frozen=True):
    """Idle stretches ``[start, end)`` of one device, each ended by a task, in parts that add up.

    Until ``submitted`` (the launch of ``task`` returned) the device waited for the host, until ``ready`` for the
    launch to arrive, then for a dependency. Where the launch latency cannot be told, ``submitted`` is ``ready``. Where
    the launch is not ``known`` the whole gap is unattributed.
    ``task`` is an index into the tasks laid out; -1 at the end of the window.
    """

    start: I64
    submitted: I64
    ready: I64
    end: I64
    task: I64
    known: Mask

    @property
    def host_wait(self) -> Intervals:
        """Waits for the host."""
        return _pick(self.start, self.submitted, self.known)

    @property
    def launch_latency(self) -> Intervals:
        """Launches on their way."""
        return _pick(self.submitted, self.ready, self.known)

    @property
    def dependency_wait(self) -> Intervals:
        """Waits for anything else."""
        return _pick(self.ready, self.end, self.known)

    @property
    def unattributed(self) -> Intervals:
        """Idle time that no known launch explains."""
        return _pick(self.start, self.end, ~self.known)


class Timeline(Struct, frozen=True):
    """Where the device's time goes; any window of it can be summed exactly.

    ``comm_exposed``: communication while nothing is computed.
    """

    span: tuple[int, int]
    compute: Intervals
    comm_exposed: Intervals
    active: Intervals
    idle: Gaps

    def partition(self, windows: Intervals) -> list[Partition]:
        """Split each window. The parts add up to its length to the nanosecond."""
        parts = self.split(windows)
        rows = zip(*(values.tolist() for values in parts.values()), strict=True)
        return [Partition(**{f"{k}_ns": v for k, v in zip(parts, row, strict=True)}) for row in rows]

    def split(self, windows: Intervals) -> dict[str, I64]:
        """Return the parts of each window, ns, by their names in a partition."""
        return {
            "span": windows.end - windows.start,
            **self.busy(windows),
            "idle": windows.end - windows.start - self.active.within(windows),
            "host_wait": self.idle.host_wait.within(windows),
            "launch_latency": self.idle.launch_latency.within(windows),
            "dependency_wait": self.idle.dependency_wait.within(windows),
            "unattributed": self.idle.unattributed.within(windows),
        }

    def busy(self, windows: Intervals) -> dict[str, I64]:
        """Return the parts of each window in which tasks run, ns.

        One rank alone cannot tell a transfer from waiting for the others, so that all communication is unknown.
        """
        compute, exposed = self.compute.within(windows), self.comm_exposed.within(windows)
        other = self.active.within(windows) - compute - exposed
        return {"compute": compute, "comm_exposed": exposed, "other_exposed": other, "comm_unknown": exposed}

    def host_waits(self, tasks: int) -> I64:
        """Return for each of the tasks laid out how long the idle device waited for its launch, ns."""
        waits = np.zeros(tasks, np.int64)
        ended = self.idle.known
        waits[self.idle.task[ended]] = (self.idle.submitted - self.idle.start)[ended]
        return waits

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


def lay_out(tasks: Tasks, launches: Launches, span: tuple[int, int] | None = None, rows: I64 | None = None) -> Timeline:
    """Lay out the time of a device, or within the device's ``span`` that of some ``rows``, one stream's, say."""
    starts, ends, work = tasks.start, tasks.end, tasks.work
    if rows is not None:
        starts, ends, work, launches = starts[rows], ends[rows], work[rows], launches.take(rows)
    active = work != Work.CONTROL
    start, end = span or span_of(tasks)
    everything, compute = (_covered_by(starts, ends, chosen) for chosen in (active, work == Work.COMPUTE))
    return Timeline(
        span=(start, end),
        compute=compute,
        comm_exposed=_covered_by(starts, ends, work == Work.COMMUNICATION).minus(compute),
        active=everything,
        idle=_split(everything.gaps(start, end), starts, active, launches),
    )


def _covered_by(starts: I64, ends: I64, chosen: Mask) -> Intervals:
    """Return when some of the tasks run."""
    if chosen.all():
        return Intervals.union(starts, ends)
    return Intervals.union(starts.compress(chosen), ends.compress(chosen))


def _split(gaps: Intervals, starts: I64, active: Mask, launches: Launches) -> Gaps:
    """Split every gap by the launch of the task that ends it (of several, the one launched first)."""
    order = _by_start(starts, active, launches)
    if not len(order):
        return Gaps(gaps.start, gaps.end, gaps.end, gaps.end, np.full(len(gaps), -1), np.zeros(len(gaps), np.bool_))
    first = order.take(passed(starts.take(order), gaps.end, before=True), mode="clip")
    ends_in_task, launched = starts.take(first) == gaps.end, launches.end.take(first)
    known = ends_in_task & (launched != NO_TIME)
    # How much of it is latency may not be known: then that is the host's, unless the launch arrived before the gap.
    submitted = launched if launches.untold is None else launched + launches.latency
    submitted = np.minimum(np.maximum(submitted, gaps.start), gaps.end)
    np.copyto(submitted, gaps.end, where=~known)
    ready = submitted if launches.untold is not None else np.minimum(submitted + launches.latency, gaps.end)
    if not ends_in_task.all():
        first[~ends_in_task] = -1
    return Gaps(gaps.start, submitted, ready, gaps.end, narrow(first), known)


def _by_start(starts: I64, active: Mask, launches: Launches) -> I64:
    """Return the tasks that occupy the device in the order of their starts, those that begin together as launched."""
    rows = np.flatnonzero(active)
    begin = starts.take(rows)
    if in_order(begin):
        return rows
    launch = launches.end[rows]
    return rows[sorted_rows(begin, np.where(launch != NO_TIME, launch, np.iinfo(np.int64).max))]


def _pick(start: I64, end: I64, chosen: Mask) -> Intervals:
    real = chosen & (end > start)
    if real.all():
        return Intervals(start, end)
    return Intervals(start.compress(real), end.compress(real))


def add(partitions: list[Partition]) -> Partition:
    """Sum partitions of several devices, part by part."""
    names = Partition.__struct_fields__
    return Partition(**{name: sum(getattr(p, name) for p in partitions) for name in names})
