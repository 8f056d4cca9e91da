"""Phases: stretches of a device's time that one thing limits.

Time is cut where tasks start and where the device falls idle or has only communication left. Waiting for a launch
is the host's time, and so is the compute before it if the wait takes a tenth of the time between two starts. The
cheapest explanation by few phases is then found exactly (dynamic programming): every nanosecond that a phase gets
wrong costs a nanosecond, every border half of the shortest phase worth telling. See docs/phases.md for the choice.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from npuperf.documents.analysis import Bound
from npuperf.model.groups import distinct
from npuperf.model.intervals import Intervals
from npuperf.model.labels import F64, I64, Mask
from npuperf.model.merging import passed
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.timeline.launches import Launches
from npuperf.timeline.partition import Timeline

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

    The short gap before a task that was queued long ago is not the host's, whatever the partition calls it.
    """
    gaps = timeline.idle
    late = gaps.known & (launches.end[gaps.task] + launches.latency > gaps.start) & (gaps.ready > gaps.start)
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
