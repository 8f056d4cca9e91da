"""Steps as windows of device time."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, chain, ns, say
from npuperf.device.partition import Launches, Timeline
from npuperf.model.device import HostSteps
from npuperf.model.groups import among, distinct, first_rows, least_and_most, numbered
from npuperf.model.intervals import Intervals, passed
from npuperf.model.labels import F64, I64, Mask
from npuperf.model.parts import BoundedBy
from npuperf.model.result import Bound, OddStep, Phase, Spread, Step, TypicalPhase, TypicalStep
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

#: So many steps tell which of them a recording cut: a first, a last, and two between that are alike.
_TELLING: Final = 4


def step_windows(tasks: Tasks) -> tuple[I64, Intervals]:
    """Return the steps' numbers and windows on the device alone, in time order.

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


class HostRanges(Struct, frozen=True):
    """The host's own ranges of some steps on the device's clock, ns.

    ``known``: whether that of a step is recorded, and on a clock that its tasks are seen to share.
    """

    start: I64
    end: I64
    known: Mask

    @classmethod
    def of(cls, tasks: Tasks, launches: Launches, steps: HostSteps, numbers: I64, first: I64) -> HostRanges:
        """Look the ranges up; ``first``: when the first kernel of each step begins.

        Clocks are shared where a launch of the step is known, or where its first kernel begins within the range.
        """
        if not len(steps):
            return cls(first, first, np.zeros(len(numbers), np.bool_))
        own, which = numbered(steps.number)
        begin, end = least_and_most(which, len(own), steps.start - launches.skew, steps.end - launches.skew)
        at = np.minimum(np.searchsorted(own, numbers), len(own) - 1)
        order = np.argsort(numbers)
        launched = np.zeros(len(numbers), np.bool_)
        launched[order] = among(tasks.step.compress(launches.known), numbers[order])
        shared = launched | ((begin[at] <= first) & (first <= end[at]))
        return cls(begin[at], end[at], (own[at] == numbers) & shared)


def steps_of_host(
    tasks: Tasks, launches: Launches, numbers: I64, windows: Intervals, steps: HostSteps
) -> tuple[Intervals, BoundedBy]:
    """Return the windows of steps as the host ran them, where that is recorded; ``windows``: those of the device alone.

    Tell, too, whether that is so of all of them.

    A step begins where the host begins it; where the device still works for the steps before, when it has ended that;
    and with its own first kernel at the latest. It lasts until the next one begins, the last one until the host and the
    device are done with it.
    """
    host = HostRanges.of(tasks, launches, steps, numbers, windows.start)
    if not host.known.any():
        return windows, "device"
    active = tasks.work != Work.CONTROL
    places = np.argsort(numbers, kind="stable")
    at = np.minimum(np.searchsorted(numbers, tasks.step, sorter=places), len(numbers) - 1)
    mine = active & (numbers[places[at]] == tasks.step)
    _, done = least_and_most(places[at[mine]], len(numbers), tasks.start.compress(mine), tasks.end.compress(mine))
    done = np.maximum.accumulate(done)
    busy = np.append(np.iinfo(np.int64).min, done[:-1])
    others = active & ~mine  # of no step: what of it began before the host's step is no part of that
    if others.any():
        reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(tasks.end.compress(others)))
        busy = np.maximum(busy, reach[np.searchsorted(tasks.start.compress(others), host.start)])
    begin = np.where(host.known, np.minimum(windows.start, np.maximum(host.start, busy)), windows.start)
    last = max(int(host.end[-1]), int(done[-1])) if host.known[-1] else int(windows.end[-1])
    by: BoundedBy = "host" if host.known.all() else "device"
    return Intervals(begin, np.append(begin[1:], last)), by


def idle_steps(
    tasks: Tasks, launches: Launches, numbers: I64, windows: Intervals, steps: HostSteps
) -> tuple[I64, I64, I64]:
    """Return the steps of the host between others that give the device nothing to do: number, begin, before which.

    ``windows``: of the others, on a clock that host and device share. Such a step begins where the host begins it, or
    when the device is done with those before, and lasts until the next one begins: else the one before would seem long.
    """
    number, first = np.unique(steps.number, return_index=True)  # a step may be marked twice
    begin = steps.start[first] - launches.skew
    at = np.searchsorted(windows.start, begin, side="right")
    rest = np.isin(number, numbers, invert=True) & (at > 0) & (at < len(windows))
    number, begin, at = number[rest], begin[rest], at[rest]
    if len(at):
        active = tasks.work != Work.CONTROL
        done = np.maximum.accumulate(tasks.end.compress(active))
        begin = np.maximum(begin, done[np.searchsorted(tasks.start.compress(active), windows.start[at]) - 1])
        order = np.argsort(begin, kind="stable")
        number, begin, at = number[order], begin[order], at[order]
        lasts = begin < np.minimum(windows.start[at], np.append(begin[1:], np.iinfo(np.int64).max))
        number, begin, at = number[lasts], begin[lasts], at[lasts]
    return number, begin, at


def begun_after(windows: Intervals, first: int, since: int | None) -> tuple[Intervals, int | None]:
    """Let what is judged begin no earlier than ``since``, when work ended that had been launched before the recording.

    Return None for it where it changes nothing: the first step begins later, or has ended by then; without steps, where
    it is the ``first`` task that was held up, before which nothing is judged.
    """
    if since is None or not len(windows):
        return windows, since if since is not None and since > first else None
    if not windows.start[0] < since < windows.end[0]:
        return windows, None
    return Intervals(np.append(since, windows.start[1:]), windows.end), since


def work_before(tasks: Tasks, launches: Launches, waits: tuple[I64, I64], thresholds: Thresholds) -> int | None:
    """Return when work ended that had been launched before the recording began; None where none is seen.

    No row tells of it, but what it held up: the first task of a stream (or, where the host has been waiting for the
    device since before any task that is recorded, any) begins long after its launch has arrived, though nothing that is
    recorded runs. A copy may itself have been prepared meanwhile, in proportion to what it moves. Later than the first
    task of all only such idle time counts as is a pause, and longer than all work that was recorded before.
    ``waits``: from when to when the host waits for the device, on its clock.
    """
    active = np.flatnonzero(tasks.work != Work.CONTROL)
    if not launches.known.any():
        return None
    start, arrived = tasks.start[active], launches.end[active] + launches.latency
    free = np.maximum.accumulate(tasks.end[active])
    free = np.append(np.iinfo(np.int64).min, free[:-1])
    held = start - np.maximum(free, arrived)
    held[~launches.known[active]] = 0
    least = np.full(len(active), thresholds.pause_ns)
    least[0] = thresholds.latency_limit_ns
    some = np.flatnonzero(held > least)
    if not len(some):
        return None
    idle = np.maximum(start[1:] - free[1:], 0)
    worked = start - start[0] - np.append(0, np.cumsum(idle))  # before each task, ns
    opens = np.zeros(len(active), np.bool_)
    streams, which = numbered(tasks.stream[active])
    opens[first_rows(which, len(streams))] = True
    for end in waits[1][waits[0] <= start[0]].tolist():
        opens[: np.searchsorted(start, end, side="right")] = True
    copies = tasks.work[active[some]] == Work.OTHER
    prepared = np.where(copies, thresholds.staging_factor * tasks.dur[active[some]], 0)
    found = some[opens[some] & (held[some] > worked[some] + prepared)]
    return int(start[found[-1]]) if len(found) else None


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


# -- The typical step: phases of single steps laid over each other, and the steps that do not fit.

#: Compute and communication change places from step to step where both end at about the same time.
_KIND: Final[dict[Bound, str]] = {"host": "host", "compute": "device", "communication": "device", "unknown": "unknown"}

_BOUND: Final[dict[Bound, Message]] = {
    "host": say("host-bound"),
    "compute": say("compute-bound"),
    "communication": say("communication-bound"),
    "unknown": say("without a verdict"),
}


class _Part(Struct, frozen=True):
    """What a phase covers of one step, counted from the step's start, ns."""

    bound: Bound
    start: int
    end: int


def typical_step(
    steps: list[Step],
    phases: list[Phase],
    label: Callable[[int, int], Message | None],
    shortest: int,
    thresholds: Thresholds,
) -> TypicalStep | None:
    """Fold the phases of two or more steps; steps whose phases or length differ are odd.

    None where no two steps are alike, so that nothing is typical. ``label``: what of the program ran between two times,
    which count as those of phases do: a phase may go on into the next step, where it does something else.
    """
    if len(steps) < 2 or not phases:
        return None
    parts = [_parts(step, phases, shortest) for step in steps]
    shapes = [tuple(_KIND[p.bound] for p in mine) for mine in parts]
    usual, _ = Counter(shapes).most_common(1)[0]
    lengths = np.array([s.partition.span_ns for s in steps], np.int64)
    same = [i for i, shape in enumerate(shapes) if shape == usual]
    middle = float(np.median(lengths[same]))
    fits = [i for i in same if abs(lengths[i] - middle) <= thresholds.odd_step_share * middle]
    if len(fits) < 2:
        return None
    kinds = dict.fromkeys(p.bound for mine in parts for p in mine)
    times = {k: float(np.median([_time(parts[i], k) for i in fits])) for k in kinds}
    odd = []
    for i in sorted({*range(len(steps))}.difference(fits)):
        length = int(lengths[i])
        # The kind of time of which the step has most more, or less, than is usual.
        beyond = {kind: _time(parts[i], kind) - time for kind, time in times.items()}
        kind = max(beyond, key=lambda k: abs(beyond[k]))
        if max(abs(length - middle), abs(beyond[kind])) <= thresholds.odd_step_share * middle:
            continue
        if i == len(steps) - 1 and length <= middle and shapes[i] == usual[: len(shapes[i])]:
            continue  # it lacks only the idle time that ends the others: nothing follows it
        amount, limit = ns(int(abs(beyond[kind]))), _BOUND[kind]
        more = say("{time} more of it {kind}", time=amount, kind=limit)
        less = say("{time} less of it {kind}", time=amount, kind=limit)
        why = say("{length} against {usual}", length=ns(length), usual=ns(int(middle)))
        why = chain(why, more if beyond[kind] > 0 else less, by=", ")
        odd.append(OddStep(step=steps[i].step, span_ns=length, why=why))
    typical = []
    for k in range(len(usual)):
        alike = [parts[i][k] for i in fits]
        start, end = np.array([p.start for p in alike], np.int64), np.array([p.end for p in alike], np.int64)
        labels = [
            label(steps[i].start_ns + p.start, steps[i].start_ns + p.end) for i, p in zip(fits, alike, strict=True)
        ]
        typical.append(
            TypicalPhase(
                bound=Counter(p.bound for p in alike).most_common(1)[0][0],
                label=Counter(labels).most_common(1)[0][0],
                start=_spread(start),
                end=_spread(end),
                length=_spread(end - start),
            )
        )
    return TypicalStep(steps=len(fits), length=_spread(lengths[fits]), phases=typical, odd=odd)


def _parts(step: Step, phases: list[Phase], shortest: int) -> list[_Part]:
    """Cut the phases at the step's borders; slivers go to their neighbour."""
    begin, end = step.start_ns, step.start_ns + step.partition.span_ns
    parts: list[_Part] = []
    first = bisect_right(phases, begin, key=lambda p: p.end_ns)
    last = bisect_left(phases, end, key=lambda p: p.start_ns)
    for p in phases[first:last]:
        a, b = max(p.start_ns, begin), min(p.end_ns, end)
        if parts and (b - a < shortest or parts[-1].bound == p.bound):
            parts[-1] = _Part(parts[-1].bound, parts[-1].start, b - begin)
        elif parts and parts[-1].end - parts[-1].start < shortest:
            parts[-1] = _Part(p.bound, parts[-1].start, b - begin)
        else:
            parts.append(_Part(p.bound, a - begin, b - begin))
    return parts


def _spread(values: I64) -> Spread:
    return Spread(min_ns=int(values.min()), median_ns=int(np.median(values)), max_ns=int(values.max()))


def _time(parts: list[_Part], bound: Bound) -> int:
    return sum(p.end - p.start for p in parts if p.bound == bound)


# -- Phases: stretches of a device's time that one thing limits.
#
# Time is cut where tasks start and where the device falls idle or has only communication left. Waiting for a launch
# is the host's time, and so is the compute before it if the wait takes a tenth of the time between two starts. The
# cheapest explanation by few phases is then found exactly (dynamic programming): every nanosecond that a phase gets
# wrong costs a nanosecond, every border half of the shortest phase worth telling. See docs/phases.md for the choice.

#: What a cell can belong to.
KINDS: Final[tuple[Bound, ...]] = ("host", "compute", "communication", "unknown")
_HOST, _COMPUTE, _COMMUNICATION, _UNKNOWN = range(4)
#: Beyond this many runs of equal cells, runs shorter than a fraction of a phase are pooled.
_MANY: Final = 20_000


def shortest_phase(span: int, steps: Intervals, thresholds: Thresholds) -> int:
    """Return the length, ns, below which a phase is not worth telling: a share of the usual step."""
    usual = int(np.median(steps.end - steps.start)) if len(steps) else span
    return max(int(thresholds.phase_share * usual), 1)


def segment(
    tasks: Tasks, launches: Launches, timeline: Timeline, span: tuple[int, int], shortest: int, thresholds: Thresholds
) -> Intervals:
    """Cut ``span`` into phases. Borders are starts or ends of tasks."""
    borders, weights = _cells(tasks, launches, timeline, span, thresholds)
    if len(borders) < 2:
        return Intervals(np.array([span[0]]), np.array([span[1]]))
    first = _runs(weights, borders, shortest)
    costs = np.stack([np.add.reduceat(weight, first, dtype=np.int64) for weight in weights], axis=1).astype(np.float64)
    borders = np.append(borders[first], borders[-1])
    state = _cheapest(costs, np.diff(borders), shortest / 2)
    change = np.flatnonzero(np.append(True, state[1:] != state[:-1]))
    return Intervals(borders[change], np.append(borders[change[1:]], borders[-1]))


def join_alike(windows: Intervals, bounds: list[Bound], shortest: int) -> Intervals:
    """Join neighbours of one verdict; what is too short to tell goes with its surroundings."""
    length = windows.end - windows.start
    weights = np.zeros((len(bounds), len(KINDS)))
    weights[np.arange(len(bounds)), [KINDS.index(b) for b in bounds]] = length
    state = _cheapest(weights, length, shortest / 2)
    first = np.flatnonzero(np.append(True, state[1:] != state[:-1]))
    return Intervals(windows.start[first], np.append(windows.start[first[1:]], windows.end[-1]))


def _cells(
    tasks: Tasks, launches: Launches, timeline: Timeline, span: tuple[int, int], thresholds: Thresholds
) -> tuple[I64, I64]:
    """Return the borders of the cells and, by kind, how many ns of each cell speak for it [kind, cell].

    There may be millions of cells: what is worked out stands where it is to stay, in no more memory than it needs.
    A cell is compute as a whole or not at all, as compute begins and ends at borders.
    """
    starts = _between(_starts(tasks), span)
    ends = (_between(column, span) for column in (timeline.compute.end, timeline.active.end))
    borders = distinct(np.concatenate([starts, *ends, span]), consume=True)
    length = np.diff(borders)
    small = int(length.max(initial=0)) <= np.iinfo(np.int32).max
    weights = np.empty((len(KINDS), len(length)), np.int32 if small else np.int64)
    host, compute, communication, unknown = weights
    unknown[:] = length
    del length
    _cover(compute, timeline.compute, borders, unknown)
    _cover(communication, _communication(tasks), borders, unknown)
    communication *= compute == 0
    # Without launches, gaps are all there is to go by.
    _cover(host, timeline.idle.unattributed, borders, unknown)
    host += _cover(np.empty_like(host), _waits_for_launches(timeline, launches), borders, unknown)
    for known in (host, compute, communication):
        unknown -= known
    paced = _paced(starts, borders, host, compute, thresholds)
    np.add(host, compute, out=host, where=paced)
    compute[paced] = 0
    return borders, weights


def _starts(tasks: Tasks) -> I64:
    """Return when tasks begin that occupy the device."""
    active = tasks.work != Work.CONTROL
    return tasks.start if active.all() else tasks.start.compress(active)


def _communication(tasks: Tasks) -> Intervals:
    """Return when the device communicates, whatever else it does."""
    mine = tasks.work == Work.COMMUNICATION
    return Intervals.union(tasks.start.compress(mine), tasks.end.compress(mine))


def _cover(into: I64, these: Intervals, borders: I64, length: I64) -> I64:
    """Write how many ns of each cell a set covers, and return that; ``length``: of the cells.

    The set begins at borders only, so that no cell has parts of two of its intervals.
    """
    near = slice(*np.searchsorted(these.end, borders[:1], "right"), *np.searchsorted(these.start, borders[-1:]))
    begin, end = these.start[near], these.end[near]
    first, last = passed(borders, begin, before=True), passed(borders, end, before=True)
    last -= 1
    if len(last):
        last[-1] = min(last[-1], len(length) - 1)
    change = np.zeros(len(borders), np.int8)
    change[first] += 1
    change[last + 1] -= 1
    np.multiply(length, np.cumsum(change, dtype=np.int8, out=change)[:-1], out=into)
    into[last] -= np.maximum(borders.take(last + 1) - end, 0).astype(into.dtype)
    return into


def _between(times: I64, span: tuple[int, int]) -> I64:
    """Return which of some times, which are in order, lie within a window, its borders excluded."""
    return times[np.searchsorted(times, span[0], side="right") : np.searchsorted(times, span[1])]


def _paced(starts: I64, borders: I64, host: I64, compute: I64, thresholds: Thresholds) -> Mask:
    """Tell which cells lie between two starts of tasks where waiting for launches takes its share of the time.

    ``starts``: those within the borders.
    """
    opens = np.zeros(len(host), np.bool_)
    opens[:1] = True
    opens[passed(borders, starts, before=True)] = True
    first = np.flatnonzero(opens)
    waited, worked = (np.add.reduceat(times, first, dtype=np.int64) for times in (host, compute))
    paced = (waited > 0) & (waited >= thresholds.idle_share * (waited + worked))
    return np.repeat(paced, np.diff(np.append(first, len(host))))


def _waits_for_launches(timeline: Timeline, launches: Launches) -> Intervals:
    """Return the idle time that ends with the arrival of a launch.

    The short gap before a task that was queued long ago is not the host's, whatever the partition calls it; idle time
    that no task ends, because the host launches none before its step ends, is.
    """
    gaps = timeline.idle
    late = (gaps.task < 0) | (launches.end[gaps.task] + launches.latency > gaps.start)
    late &= gaps.known & (gaps.ready > gaps.start)
    return Intervals(gaps.start[late], gaps.ready[late])


def _runs(weights: I64, borders: I64, shortest: int) -> I64:
    """Return where runs of cells of one kind begin; of very many runs, where their pools begin."""
    kind, most = np.zeros(weights.shape[1], np.uint8), weights[0].copy()
    for code, weight in enumerate(weights[1:], 1):  # numpy's argmax would copy all of them
        kind[weight > most] = code
        np.maximum(most, weight, out=most)
    first = np.flatnonzero(np.append(True, kind[1:] != kind[:-1]))
    if len(first) > _MANY:
        pool = (borders[first] - borders[0]) // max(shortest // 8, 1)
        first = first[np.append(True, pool[1:] != pool[:-1])]
    return first


def _cheapest(weights: F64, length: I64, border: float) -> I64:
    """Return the state of each run in the cheapest sequence of states."""
    costs = (length[:, None] - weights).tolist()
    total = costs[0]
    came: list[list[int]] = []
    for cost in costs[1:]:
        best = min(range(len(total)), key=total.__getitem__)
        jump = total[best] + border
        came.append([s if stay <= jump else best for s, stay in enumerate(total)])
        total = [min(stay, jump) + c for stay, c in zip(total, cost, strict=True)]
    state = min(range(len(total)), key=total.__getitem__)
    path = [state]
    for back in reversed(came):
        state = back[state]
        path.append(state)
    return np.array(path[::-1], np.int64)
