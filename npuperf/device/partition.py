"""The exact partition of device time: compute, exposed communication, other work, and why the rest is idle."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.base.messages import Message, say
from npuperf.model.groups import distinct, sorted_rows
from npuperf.model.intervals import Intervals, narrow, passed
from npuperf.model.labels import I64, Mask
from npuperf.model.result import Partition
from npuperf.model.tasks import NO_TIME, Tasks, Work, in_order
from npuperf.model.thresholds import Thresholds

# -- Launches against starts: the clock disagreement, the launch latency, and how far ahead the host runs.

_APART: Final = say(
    "kernels begin before their own launch, so the clocks of host and device disagree by an unknown amount: only the "
    "sum of that and of the launch latency can be told"
)
_AHEAD: Final = say(
    "the host is back from waiting before the device has finished, so the clocks of host and device disagree by an "
    "unknown amount: only the sum of that and of the launch latency can be told"
)
_NO_CALLS: Final = say(
    "the calls that launch kernels are not recorded, only when the operators behind them were submitted: record with "
    "npuperf profile --level 1"
)
_NO_SAMPLES: Final = say("no kernel was launched while the device was idle")


class Launches(Struct, frozen=True):
    """Host launch of each task, moved onto the device's clock.

    ``end``: end of the launch call per task, ``NO_TIME`` where unknown (ns). ``latency``: the calibrated
    time from the end of a launch to the earliest start. ``skew``: by how much the device's clock is behind
    the host's at least, as seen from tasks that start before their own launch; ``skew_most``: at most, as seen from
    waits of the host that return after the device has finished, None where none tells. ``untold``: why the latency by
    itself is not known, if so; ``latency`` is then only when launches have arrived at the latest, on clocks that are
    moved by ``skew``. ``latency_most``: how long it can be then, None where nothing bounds it.
    """

    end: I64
    latency: int
    samples: int
    skew: int
    implausible: int
    skew_most: int | None = None
    untold: Message | None = None
    latency_most: int | None = None

    @property
    def known(self) -> Mask:
        """True where the launch of a task is known."""
        return np.not_equal(self.end, NO_TIME)

    def no_earlier(self, time: int) -> Launches:
        """Return the same with launches that return at a time, ns, or later."""
        return replace(self, end=np.where(self.known, np.maximum(self.end, time), NO_TIME))

    def take(self, index: I64 | slice) -> Launches:
        """Return the launches of the tasks at ``index``, or of a stretch of them."""
        return replace(self, end=self.end[index])


class Returns(Struct, frozen=True):
    """Calls in which the host waits for the device (host clock, ns): for all of it, or for ``one_stream`` of it."""

    start: I64
    end: I64
    one_stream: Mask


def calibrate(tasks: Tasks, thresholds: Thresholds, returns: Returns | None = None) -> Launches:
    """Estimate skew and launch latency from the profile itself.

    Skew: causality wants start ≥ launch start; the worst violation within ``skew_limit_ns`` is the least
    skew that explains the data. Launches that break causality by more are wrongly matched: they are dropped.
    Latency: low quantile of start − launch end over tasks launched while the device was idle. It is one with the skew:
    where clocks are seen to disagree only their difference is known.
    """
    ahead = tasks.start - tasks.launch_start
    plausible = tasks.launched & (ahead >= -thresholds.skew_limit_ns)
    implausible = int(np.count_nonzero(tasks.launched & ~plausible))
    skew = max(0, -int(ahead[plausible].min())) if plausible.any() else 0
    as_they_are = not skew and not implausible  # then there is no need for a second column
    end = tasks.launch_end if as_they_are else np.where(plausible, tasks.launch_end - skew, NO_TIME)
    # Kernels that were launched while the device was idle. What ran before the first task is not known: that counts
    # unless it was launched into a full queue.
    idle = end >= busy_until(tasks)
    idle[:1] = tasks.start[:1] - end[:1] <= thresholds.latency_limit_ns
    idle &= (end != NO_TIME) & (tasks.work == Work.COMPUTE)
    late = np.sort(tasks.start[idle] - end[idle])
    raw = int(np.quantile(late, thresholds.latency_quantile, method="lower")) if len(late) else 0
    most = None if returns is None else _skew_most(tasks, plausible, returns)
    if most is not None and most < skew - thresholds.clock_rounding_ns and skew:
        most = None  # what contradicts causality bounds nothing
    # Clocks that no task and no wait contradicts are taken to agree, as their tools promise. Those that are seen to
    # disagree do so by more than is seen, and the latency hides in the rest.
    untold = None
    if not len(late):
        untold = _NO_SAMPLES
    elif not (tasks.launch_end > tasks.launch_start)[plausible].any():
        untold = _NO_CALLS
    elif skew > thresholds.clock_rounding_ns:
        untold = _APART
    elif most is not None and most < -thresholds.clock_rounding_ns:
        untold = _AHEAD
    return Launches(
        end=end,
        latency=max(raw, 0),
        samples=len(late),
        skew=skew,
        implausible=implausible,
        skew_most=most,
        untold=untold,
        latency_most=None if untold is None or most is None or not len(late) else max(raw + most - skew, 0),
    )


def busy_until(tasks: Tasks) -> I64:
    """Return for each task (ordered by start) when the device finished everything that started before it."""
    active = np.where(tasks.work == Work.CONTROL, tasks.start, tasks.end)
    reach = np.maximum.accumulate(active) if len(active) else active
    return np.concatenate([tasks.start[:1], reach[:-1]])


def lead(tasks: Tasks, launches: Launches) -> I64:
    """Return how long each task waited after its launch, ns (0 where unknown): the host's lead."""
    return np.where(launches.known, np.maximum(tasks.start - launches.end, 0), 0)


def _skew_most(tasks: Tasks, plausible: Mask, returns: Returns) -> int | None:
    """Bound the skew from above: what the host waited for has ended, on its clock, when it goes on.

    Everything that was launched before a wait for the device; before a wait for a stream that is not named, all that
    was launched on one of the streams: on the one that has ended first, to be sure.
    """
    counted = plausible & (tasks.work != Work.CONTROL)
    if not counted.any() or not len(returns.end):
        return None
    never = np.iinfo(np.int64).min
    latest, first = np.full(len(returns.end), never), np.full(len(returns.end), np.iinfo(np.int64).max)
    for stream in distinct(tasks.stream[counted]).tolist():
        mine = np.flatnonzero(counted & (tasks.stream == stream))
        mine = mine[np.argsort(tasks.launch_end[mine], kind="stable")]
        reach = np.maximum.accumulate(tasks.end[mine])
        at = np.searchsorted(tasks.launch_end[mine], returns.start, side="right") - 1
        done = np.where(at >= 0, reach[np.maximum(at, 0)], never)
        latest = np.maximum(latest, done)
        first = np.where(at >= 0, np.minimum(first, done), first)
    done = np.where(returns.one_stream, first, latest)
    real = latest > never
    return int((returns.end - done)[real].min()) if real.any() else None


class Gaps(Struct, frozen=True):
    """Idle stretches ``[start, end)`` of one device, each ended by a task, in parts that add up.

    Until ``submitted`` (the launch of ``task`` returned) the device waited for the host, until ``ready`` for the
    launch to arrive, then for a dependency. Where the launch latency cannot be told, ``submitted`` is ``ready``. Where
    the launch is not ``known`` the whole gap is unattributed.
    ``task`` is an index into the tasks laid out; -1 where no task ends the gap: after the last one, where it is
    ``known`` to be the host's that launches nothing more before its step ends.
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
        ended = self.idle.known & (self.idle.task >= 0)
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


def within(tasks: Tasks, span: tuple[int, int]) -> slice:
    """Return which tasks a window is about: those that begin in it, or all where it holds all of the device's time."""
    first, last = span_of(tasks)
    holds_all = span[0] <= first and last <= span[1]
    return slice(0, len(tasks)) if holds_all else slice(*np.searchsorted(tasks.start, span).tolist())


def lay_out(
    tasks: Tasks,
    launches: Launches,
    span: tuple[int, int] | None = None,
    rows: I64 | None = None,
    *,
    hosts_end: bool = False,
) -> Timeline:
    """Lay out the time of a device, or within a ``span`` that of some ``rows``, one stream's, say.

    ``hosts_end``: the host's last step ends the span, so that what is idle after the last task waited for the host.
    """
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
        idle=_split(everything.gaps(start, end), starts, active, launches, hosts_end=hosts_end),
    )


def _covered_by(starts: I64, ends: I64, chosen: Mask) -> Intervals:
    """Return when some of the tasks run."""
    if chosen.all():
        return Intervals.union(starts, ends)
    return Intervals.union(starts.compress(chosen), ends.compress(chosen))


def _split(gaps: Intervals, starts: I64, active: Mask, launches: Launches, *, hosts_end: bool) -> Gaps:
    """Split every gap by the launch of the task that ends it (of several, the one launched first)."""
    order = np.flatnonzero(active)
    begin = starts.take(order)
    if not in_order(begin):  # those that begin together as they were launched
        launch = launches.end[order]
        order = order[sorted_rows(begin, np.where(launch != NO_TIME, launch, np.iinfo(np.int64).max))]
        del launch
    del begin
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
        if hosts_end and launches.known.any():
            known |= ~ends_in_task
    return Gaps(gaps.start, submitted, ready, gaps.end, narrow(first), known)


def _pick(start: I64, end: I64, chosen: Mask) -> Intervals:
    real = chosen & (end > start)
    if real.all():
        return Intervals(start, end)
    return Intervals(start.compress(real), end.compress(real))


def add(partitions: list[Partition]) -> Partition:
    """Sum partitions of several devices, part by part."""
    names = Partition.__struct_fields__
    return Partition(**{name: sum(getattr(p, name) for p in partitions) for name in names})


# -- Whose time it is where several tasks run at once: of the one that began first, so that shares add up exactly.


def owned(start: I64, end: I64, free: Intervals) -> I64:
    """Return for each task how much of ``free`` it owns, ns: what no task that began earlier covers.

    Tasks are ordered by start; of those that begin together the earlier row owns. Together they own what of ``free``
    their union covers.
    """
    if not len(start) or not len(free):
        return np.zeros(len(start), np.int64)
    reach = np.maximum.accumulate(end)
    begin = start.copy()
    np.maximum(start[1:], reach[:-1], out=begin[1:])
    stop = np.maximum(begin, end)
    if len(free) == 1:
        low, high = int(free.start[0]), int(free.end[0])
        if low <= int(start[0]) and int(reach[-1]) <= high:
            return np.subtract(stop, begin, out=stop)
        return np.clip(stop, low, high) - np.clip(begin, low, high)
    return free.before(stop) - free.before(begin)


def alone(start: I64, end: I64, kind: I64) -> I64:
    """Return for each task how long, ns, no task of another kind runs beside it; beside its own the earliest has it.

    Tasks are ordered by start; of those of a kind that begin together the earlier row has it.
    """
    found = end - start
    beside = np.zeros(len(start), np.bool_)  # those that any other overlaps
    beside[1:] = start[1:] < np.maximum.accumulate(end)[:-1]
    beside[:-1] |= end[:-1] > start[1:]
    rows = np.flatnonzero(beside)
    if not len(rows):
        return found
    start, end, own = start[rows], end[rows], kind[rows] + 1
    time = np.concatenate([start, end])
    order = np.argsort(time, kind="stable")
    time = time[order]
    sign = np.where(order < len(rows), 1, -1)
    own = own[order % len(rows)]
    count, total, squares = np.cumsum(sign), np.cumsum(sign * own), np.cumsum(sign * own * own)
    same = (count * squares == total * total) & (count > 0)  # Cauchy and Schwarz: then all that run are of one kind
    begin = np.append(start[:1], np.maximum(start[1:], np.maximum.accumulate(end)[:-1]))
    owns = np.flatnonzero(begin < end)
    owner = owns[np.searchsorted(begin[owns], time[:-1], side="right") - 1]
    length = np.where(same[:-1], np.diff(time), 0)
    found[rows] = np.bincount(owner, weights=length, minlength=len(rows)).astype(np.int64)
    return found


def uncovered(windows: Intervals, busy: Intervals) -> Intervals:
    """Return what of the windows a set does not cover; windows that touch become one."""
    whole = Intervals.union(windows.start, windows.end)
    parts = [
        busy.near(start, end).gaps(start, end)
        for start, end in zip(whole.start.tolist(), whole.end.tolist(), strict=True)
    ]
    if not parts:
        return whole
    return Intervals(np.concatenate([p.start for p in parts]), np.concatenate([p.end for p in parts]))
