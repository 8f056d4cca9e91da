"""Which stretches of a device's time are shown with every task: the typical step, extremes, odd ones."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.documents.analysis import Device, Step
from npuperf.messages import Message, chain, say
from npuperf.model.labels import I64

#: Two steps are the longest and the shortest one, and neither is typical.
_EXTREMES: Final = 2
#: Odd steps that are shown.
_ODD: Final = 2
_TYPICAL: Final = say("a typical step")
_FIRST_OF_EQUALS: Final = say("the first of two steps that take the same time")
_LONGEST: Final = say("the longest step")
_SHORTEST: Final = say("the shortest step")
_HOST: Final = say("the step that waits longest for the host")
_ONLY: Final = say("the only step")
_ONLY_WHOLE: Final = say("the only whole step")
_ASKED: Final = say("the step that was asked for")
_ALL: Final = say("all that was recorded")
_PHASE: Final = say("the beginning of a phase of usual length")
_BEGINNING: Final = say("the beginning of the recording")


class CloseUp(Struct, frozen=True):
    """A stretch of a device's time, epoch ns, and why it is looked at closely; ``typical``: as the usual step."""

    start: int
    end: int
    why: Message
    step: int | None = None
    typical: bool = False


def stretches(report: Device, window: tuple[int, int], starts: I64, most: int, asked: int | None) -> list[CloseUp]:
    """Return up to a handful of stretches that do not overlap, in order.

    ``window``: what is drawn; ``starts``: of all tasks of the device, in order; ``most``: about so many tasks can be
    shown; ``asked``: the step that a report of one step is about.
    """
    if asked is not None:
        return [CloseUp(*window, _ASKED, asked, typical=True)]
    if report.steps:
        return _of_steps(report)
    return [_beginning(report, window, starts, most)]


def _of_steps(report: Device) -> list[CloseUp]:
    steps = report.whole_steps
    if len(steps) == 1:
        return [_stretch(report, steps[0], _ONLY if len(report.steps) == 1 else _ONLY_WHOLE)]
    odd = {o.step: o.why for o in report.typical_step.odd} if report.typical_step else {}
    usual = [s for s in steps if s.step not in odd] or steps
    found: dict[int, list[Message]] = {}
    typical = sorted(usual, key=lambda s: (s.partition.span_ns, s.step))[(len(usual) - 1) // 2]
    found.setdefault(typical.step, []).extend([_TYPICAL] if len(steps) > _EXTREMES else [])
    shortest, longest = (one(steps, key=lambda s: s.partition.span_ns) for one in (min, max))
    if shortest.partition.span_ns < longest.partition.span_ns:
        found.setdefault(longest.step, []).append(_LONGEST)
        found.setdefault(shortest.step, []).append(_SHORTEST)
    elif len(steps) == _EXTREMES:
        found[typical.step].append(_FIRST_OF_EQUALS)
    waits = max(steps, key=lambda s: s.partition.host_wait_ns)
    if waits.partition.host_wait_ns > min(s.partition.host_wait_ns for s in steps):
        found.setdefault(waits.step, []).append(_HOST)
    for number in [*odd][:_ODD]:
        found.setdefault(number, []).append(say("unlike the others: {why}", why=odd[number]))
    return [_stretch(report, s, chain(*found[s.step], by=", "), s is typical) for s in report.steps if s.step in found]


def _stretch(report: Device, step: Step, why: Message, typical: bool = True) -> CloseUp:
    start = report.origin_ns + step.start_ns
    return CloseUp(start, start + step.partition.span_ns, why, step.step, typical)


def _beginning(report: Device, window: tuple[int, int], starts: I64, most: int) -> CloseUp:
    """Return everything if it is not too much, else as much of a usual phase, or of the recording, as can be shown."""
    first, last = np.searchsorted(starts, window).tolist()
    if last - first <= most:
        return CloseUp(*window, _ALL)
    begin, end, why = *window, _BEGINNING
    if report.phases:
        phases = sorted(report.phases, key=lambda p: (p.end_ns - p.start_ns, p.start_ns))
        usual = phases[(len(phases) - 1) // 2]
        begin, end, why = report.origin_ns + usual.start_ns, report.origin_ns + usual.end_ns, _PHASE
    first, last = np.searchsorted(starts, [begin, end]).tolist()
    if last - first > most:
        end = max(int(starts[first + most]), begin + 1)
    return CloseUp(begin, end, why)


def allot(wanted: list[int], most: int) -> list[int]:
    """Share ``most`` among those who want something, evenly: what one does not need the others get."""
    given = [0] * len(wanted)
    left, waiting = most, sorted(range(len(wanted)), key=wanted.__getitem__)
    for turn, i in enumerate(waiting):
        given[i] = min(wanted[i], left // (len(waiting) - turn))
        left -= given[i]
    return given
