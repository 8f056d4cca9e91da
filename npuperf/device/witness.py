"""Totals that second files give, held against what the tasks add up to: whether a table is whole.

A table that was cut says nothing of what it lacks: a device seems to idle, and a step to be short. Exporters write the
same time more than once, and each of these figures is a witness. ``WITNESSES`` is all of them, what each tells, of
which window, and how tasks are counted as it counts them. Only less than a witness tells is a sign of damage: witnesses
are of the recorded steps, tasks of everything that was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, ns, number, say, share
from npuperf.base.units import NS_PER_US
from npuperf.model.communication import Operations
from npuperf.model.device import DeviceProfile
from npuperf.model.groups import alike
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Mask
from npuperf.model.result import Total, WitnessCheck
from npuperf.model.tasks import Work
from npuperf.model.thresholds import Thresholds

#: A file, what it tells (ns, or a count), and what the tasks that were read come to.
_Figures = Iterator[tuple[str, int, int]]


class Witness(Struct, frozen=True):
    """A total, ``what`` of which window it is, and the figures of every file that gives it.

    ``figures`` is told the tasks of the steps, too.
    """

    total: Total
    what: Message
    figures: Callable[[DeviceProfile, Mask], _Figures]


def _under_way(profile: DeviceProfile, chosen: Mask) -> int:
    """Return the time in which one of the chosen tasks ran, ns: overlapping ones count once, as in an exporter's."""
    return Intervals.union(profile.tasks.start[chosen], profile.tasks.end[chosen]).total()


def _in_steps(profile: DeviceProfile) -> Mask:
    """Tell the tasks of the steps that the exporter split, and those between: of the whole recording without any.

    Which step a task at a border is of, exporters tell by its start and we by its launch, so that all are taken from
    the first step's begin to the last one's end.
    """
    numbers = [v.step for v in profile.vendor_steps if v.step is not None]
    tasks, ranges = profile.tasks, profile.host_steps
    mine, asked = np.isin(tasks.step, numbers), np.isin(ranges.number, numbers)
    if not numbers or not (mine.any() or asked.any()):
        return np.ones(len(tasks), np.bool_)
    begin = np.concatenate([tasks.start[mine], ranges.start[asked]]).min()
    end = np.concatenate([tasks.end[mine], ranges.end[asked]]).max()
    inside: Mask = (tasks.start >= begin) & (tasks.start < end)
    return inside


def _compute(profile: DeviceProfile, in_steps: Mask) -> _Figures:
    if profile.second.steps is not None:
        found = _under_way(profile, in_steps & (profile.tasks.work == Work.COMPUTE))
        yield profile.second.steps, sum(v.compute for v in profile.vendor_steps), found


def _communication(profile: DeviceProfile, in_steps: Mask) -> _Figures:
    second, mine = profile.second, profile.tasks.work == Work.COMMUNICATION
    known = [v.comm for v in profile.vendor_steps if v.comm is not None]
    if second.steps is not None and known and len(known) == len(profile.vendor_steps):
        yield second.steps, sum(known), _under_way(profile, in_steps & mine)
    if second.communication is not None:
        yield second.communication.source, second.communication.ns, _under_way(profile, mine)


def _kernel_time(profile: DeviceProfile, _: Mask) -> _Figures:
    found = int(profile.tasks.dur[profile.tasks.work == Work.COMPUTE].sum())
    yield from ((told.source, told.ns, found) for told in profile.second.kernels)


def _kernels(profile: DeviceProfile, _: Mask) -> _Figures:
    found = int(np.count_nonzero(profile.tasks.work == Work.COMPUTE))
    yield from ((told.source, told.count, found) for told in profile.second.kernels)


#: A step of which the host ran as much as half of what it ran in the others is one that gave the device work.
_HALF: Final = 0.5


def _steps(profile: DeviceProfile, _: Mask) -> _Figures:
    """Compare the steps in which the host ran torch operators with those of which a device task is there.

    Not of Kineto traces: what still runs when one is stopped is not in it, and the steps before are whole.
    """
    ranges, tasks = profile.host_steps, profile.tasks
    if profile.kineto:
        return
    before = np.searchsorted(tasks.start, np.concatenate([ranges.start, ranges.end]))
    there = np.isin(ranges.number, tasks.step) | (before[len(ranges) :] > before[: len(ranges)])
    if not there.any():
        return
    busy = there
    if not there.all():  # else what the host ran need not be put in order
        ops = np.sort(profile.host.ops.start)  # the range of a step, which begins when it does, is none that it ran
        ran = np.searchsorted(ops, ranges.end) - np.searchsorted(ops, ranges.start, side="right")
        busy = there | (ran >= _HALF * max(float(np.median(ran[there])), 1.0))
    yield "ProfilerStep# ranges", int(np.count_nonzero(busy)), int(np.count_nonzero(there))


WITNESSES: Final[tuple[Witness, ...]] = (
    Witness("compute", say("time in kernels during the steps"), _compute),
    Witness("kernel_time", say("durations of kernels added up"), _kernel_time),
    Witness("kernels", say("kernels"), _kernels),
    Witness("communication", say("time in communication"), _communication),
    Witness("steps", say("steps of the host"), _steps),
)
#: Totals that are counts; the others are times, ns.
_COUNTS: Final = frozenset({"kernels", "steps"})
_WHAT: Final = {witness.total: witness.what for witness in WITNESSES}


def check_totals(profile: DeviceProfile, thresholds: Thresholds) -> list[WitnessCheck]:
    """Hold the tasks of a device against every total that another file of the recording gives."""
    in_steps = _in_steps(profile)
    return [
        _check(witness.total, source, told, found, thresholds)
        for witness in WITNESSES
        for source, told, found in witness.figures(profile, in_steps)
        if told > 0
    ]


def _check(total: Total, source: str, told: int, found: int, thresholds: Thresholds) -> WitnessCheck:
    counted, missing = total in _COUNTS, max(told - found, 0)
    if not counted and missing <= NS_PER_US:  # files round to µs, or parts of them
        missing = 0
    read, elsewhere = (number(n) if counted else ns(n) for n in (found, told))
    figures = say("{what}: {read} here, {told} in {source}",
                  what=_WHAT[total], read=read, told=elsewhere, source=source)  # fmt: skip
    if missing:
        figures = say("{figures} ({share} missing)", figures=figures, share=share(missing / told))
    return WitnessCheck(
        total=total,
        source=source,
        unit="count" if counted else "ns",
        told=told,
        found=found,
        missing_share=missing / told,
        holds=missing <= thresholds.witness_share * told,
        figures=figures,
    )


def why_cut(checks: list[WitnessCheck]) -> Message | None:
    """Say of the total that lacks most that rows are missing; None where all are there."""
    worst = max(checks, key=lambda check: check.missing_share, default=None)
    if worst is None or all(check.holds for check in checks):
        return None
    return say("rows are missing: {figures}; use the files as they were exported", figures=worst.figures)


# -- The order of a group's operations, which their numbers tell: a witness of the clock that times are of.


class SetBack(Struct, frozen=True):
    """A clock was set back while it was recorded, ``by`` ns at least: between ``start`` and ``end``, as it shows, lies
    what was recorded before that and after it.
    """

    by: int
    start: int
    end: int

    def mixed(self, windows: Intervals) -> Mask:
        """Tell in which windows that is."""
        return (windows.start < self.end) & (windows.end > self.start)

    def why(self, steps: Intervals) -> Message | None:
        """Say why a device with these ``steps`` is of no use; None where fewer of them are mixed than are not."""
        mixed = self.mixed(steps)
        if 2 * np.count_nonzero(mixed) < len(mixed):
            return None
        return say("{set}, so that most of what came before and after lies at the same times; keep clocks from being "
                   "set (NTP) while recording", set=self.said)  # fmt: skip

    @property
    def said(self) -> Message:
        """Say it."""
        return say("its clock was set back by at least {time} while it was recorded", time=ns(self.by))


#: What a device is that has no use where its steps cross.
CROSSED: Final = say("kernels of one step lie before and after those of another, though collectives' numbers say that "
                     "one came after the other: its clock was set back while it was recorded; keep clocks from being "
                     "set (NTP) while recording")  # fmt: skip


def steps_in_order(operations: Operations) -> bool:
    """Tell whether the numbers of operations say that steps came one after the other, none of them twice."""
    steps = [operations.step[own] for own in _in_a_row(operations)]
    return any(own[0] != own[-1] for own in steps) and all((np.diff(own) >= 0).all() for own in steps)


def _in_a_row(operations: Operations) -> Iterator[I64]:
    """Yield the operations that run one after the other, in the order of their numbers."""
    rows = np.flatnonzero((operations.index >= 0) & operations.group.known())
    kind = alike(operations.group.codes[rows], np.where(operations.p2p, operations.type.codes, -2)[rows])
    order = np.lexsort((operations.index[rows], kind))
    for own in np.split(rows[order], np.flatnonzero(np.diff(kind[order])) + 1):
        if len(own) > 1 and (np.diff(operations.index[own]) > 0).all():  # else two groups are called alike
            yield own


def find_set_back(operations: Operations) -> SetBack | None:
    """Tell whether the clock of operations was set back while they were recorded; None where nothing tells that.

    A group's collectives run in the order of their numbers, and so do its sends, and its receives. Where one ended
    before one of a lower number began, they lie at the same times.
    """
    found = SetBack(0, np.iinfo(np.int64).max, np.iinfo(np.int64).min)
    for own in _in_a_row(operations):
        start, end = operations.start[own], operations.end[own]
        begun, ended = np.maximum.accumulate(start)[:-1], np.minimum.accumulate(end[::-1])[::-1][1:]
        after, before = end[1:] < begun, start[:-1] > ended
        if after.any():
            by = int((begun - end[1:]).max())
            first, last = int(start[1:][after].min()), int(end[:-1][before].max())
            found = SetBack(max(found.by, by), min(found.start, first), max(found.end, last))
    return found if found.by else None
