"""Launches against starts: the clock disagreement, the launch latency, and how far ahead the host runs."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.messages import Message, say
from npuperf.model.groups import distinct
from npuperf.model.labels import I64, Mask
from npuperf.model.tasks import NO_TIME, Tasks, Work
from npuperf.model.thresholds import Thresholds

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

    def filter(self, chosen: Mask) -> Launches:
        """Return the launches of some of the tasks."""
        return self.take(np.flatnonzero(chosen))

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
    where clocks are seen to disagree only their difference is known, see :func:`_untold`.
    """
    ahead = tasks.start - tasks.launch_start
    plausible = tasks.launched & (ahead >= -thresholds.skew_limit_ns)
    implausible = int(np.count_nonzero(tasks.launched & ~plausible))
    skew = max(0, -int(ahead[plausible].min())) if plausible.any() else 0
    as_they_are = not skew and not implausible  # then there is no need for a second column
    end = tasks.launch_end if as_they_are else np.where(plausible, tasks.launch_end - skew, NO_TIME)
    late = np.sort(_waits_of_idle(tasks, end, thresholds))
    raw = int(np.quantile(late, thresholds.latency_quantile, method="lower")) if len(late) else 0
    most = None if returns is None else _skew_most(tasks, plausible, returns)
    if most is not None and most < skew - thresholds.clock_rounding_ns and skew:
        most = None  # what contradicts causality bounds nothing
    calls = bool((tasks.launch_end > tasks.launch_start)[plausible].any())
    untold = _untold(len(late), skew, most, calls, thresholds)
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


def _waits_of_idle(tasks: Tasks, launch_end: I64, thresholds: Thresholds) -> I64:
    """Return start − launch end of kernels that were launched while the device was idle; it may be negative."""
    empty = launch_end >= busy_until(tasks)
    # What ran before the first task is not known: it counts unless it was launched into a full queue.
    empty[:1] = tasks.start[:1] - launch_end[:1] <= thresholds.latency_limit_ns
    idle = (launch_end != NO_TIME) & (tasks.work == Work.COMPUTE) & empty
    return np.asarray(tasks.start[idle] - launch_end[idle])


def _untold(samples: int, skew: int, most: int | None, calls: bool, thresholds: Thresholds) -> Message | None:
    """Say why the launch latency is not known, if so.

    Clocks that no task and no wait contradicts are taken to agree, as their tools promise. Those that are seen to
    disagree do so by more than is seen, and the latency hides in the rest.
    """
    if not samples:
        return _NO_SAMPLES
    if not calls:
        return _NO_CALLS
    if skew > thresholds.clock_rounding_ns:
        return _APART
    return _AHEAD if most is not None and most < -thresholds.clock_rounding_ns else None


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
