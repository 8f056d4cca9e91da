"""The device's side of the replay: what each task and each sync waited for, and how long after that it went on."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.host.nesting import NONE
from npuperf.host.order import previous_same
from npuperf.host.syncs import Syncs
from npuperf.model.groups import distinct
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.replay.maxplus import NEVER

#: Clocks for tasks that others wait for although their stream has moved on.
_REGISTERS: Final = 16
_EVENT: Final = re.compile(r"event|notify", re.I)
_EVENT_WAIT: Final = re.compile(r"event.?wait|wait.?event|notify.?wait", re.I)


class DeviceArms(Struct, frozen=True):
    """Delays of each task (by start): after launch, after its stream, after another task, kept as measured.

    Where a task awaits no other, ``other_ns`` counts from time 0: the start of tasks that nothing else fixes.
    ``unexplained_ns``: waits that nothing in the data explains. They are ``extra_ns`` after what decided the start,
    or, for ``loose`` tasks, a delay after the task of any stream that ended last.
    """

    launch_ns: I64
    gap_ns: I64
    other_ns: I64
    extra_ns: I64
    unexplained_ns: I64
    overlap_ns: I64
    awaited: I64
    assumed: Mask
    loose: Mask


def device_arms(
    start: I64,
    end: I64,
    key: I64,
    known: Mask,
    stream: I64,
    position: I64,
    ordered: I64,
    latency: int,
    thresholds: Thresholds,
    *,
    anchor: bool = False,
) -> DeviceArms:
    """Find what decided the start of each task, and the delay of everything else that it depends on.

    ``anchor``: tasks without a launch that start late begin some time after everything before them has ended, as the
    first tasks of a graph do whose launch the host holds back until then.
    Times count from the first task's start, ns. ``key``: when each task was submitted, and ``known`` whether that is
    recorded; ``position``: its instruction; ``ordered``: the task that had to end first in any case, NONE if none.
    """
    before = previous_same(stream)
    free = np.where(before >= 0, end[before], NEVER)
    follows = (before >= 0) & (start >= free)
    ready = np.maximum(np.where(known, key + latency, NEVER), np.where(follows, free, NEVER))
    late = start - ready
    slow = known & (start - key <= latency + thresholds.launch_jitter_ns)
    last = _ended_last(start, end)
    explained = slow & (ordered == NONE)
    waited = _waited_for(last, start, end, stream, position, np.where(explained, 0, late), thresholds)
    waits, free_to_start = waited >= 0, ready == NEVER
    queued = follows & known & (key + latency + thresholds.lead_ns <= free) & (start - free <= thresholds.gap_ns)
    usual = int(np.median((start - free)[queued])) if queued.any() else thresholds.assumed_gap_ns
    by_launch = known & (~follows | (key + latency >= free))
    # A start soon after the launch is the launch's, even if the task before, or one of another stream, just ended.
    by_launch |= follows & slow & (start - free > usual) & ~waits
    late = np.where(by_launch, start - key - latency, late)
    limit = np.where(by_launch, thresholds.launch_jitter_ns, thresholds.gap_ns)
    unexplained = ~waits & (late > limit) & ~free_to_start
    small = np.where(waits | unexplained, 0, late)
    behind = int(np.median((start - end[waited])[waits])) if waits.any() else 0
    awaited = np.where(waits, waited, ordered)
    after = np.where(waits, start - end[awaited], np.minimum(behind, start - end[awaited]))
    loose = np.zeros(len(start), np.bool_)
    if anchor:
        loose = unexplained & ~known & (last >= 0) & (position[last] < position)
        awaited, after = np.where(loose, last, awaited), np.where(loose, start - end[last], after)
    return DeviceArms(
        launch_ns=np.where(known, latency + np.where(by_launch, small, 0), NEVER),
        gap_ns=np.where(follows, np.where(by_launch, np.minimum(usual, start - free), small), NEVER),
        other_ns=np.where(awaited >= 0, after, np.where(free_to_start, start, NEVER)),
        extra_ns=np.where(unexplained & ~loose, late, 0),
        unexplained_ns=np.where(unexplained, late, 0),
        overlap_ns=np.where((before >= 0) & ~follows, 0, NEVER),
        awaited=awaited,
        assumed=follows & by_launch & ~queued.any(),
        loose=loose,
    )


def _ended_last(start: I64, end: I64) -> I64:
    """Return for each task the one that ended last before it started, NONE if none did."""
    order = np.argsort(end, kind="stable")
    at = np.searchsorted(end[order], start, side="right") - 1
    return np.where(at >= 0, order[np.maximum(at, 0)], NONE)


def ordered_after(tasks: Tasks, active: I64, stream: I64, position: I64) -> I64:
    """Find the task that each one had to wait for although it was not what it waited for in the end; NONE if none.

    Two things tell: a recorded wait for an event in front of a task, and collectives, which follow the compute
    task submitted before them unless the profile shows one that did not.
    """
    start, end = tasks.start[active], tasks.end[active]
    after_event = _behind_event_wait(tasks, active, stream)
    latest = _ended_last(start, end)
    crosses = after_event & (latest >= 0) & (stream[latest] != stream) & (position[latest] < position)
    ordered = np.where(crosses, latest, NONE)
    collective = np.flatnonzero(tasks.work[active] == Work.COMMUNICATION)
    compute = np.flatnonzero(tasks.work[active] == Work.COMPUTE)
    compute = compute[np.argsort(position[compute])]
    place = np.searchsorted(position[compute], position[collective]) - 1
    collective, place = collective[place >= 0], place[place >= 0]
    source = compute[place] if len(compute) else place
    if len(collective) and bool((end[source] <= start[collective]).all()):
        ordered[collective] = source
    return ordered


def is_event_wait(tasks: Tasks) -> Mask:
    """True for tasks with which a stream waits for an event."""
    return _control(tasks, _EVENT_WAIT)


def records_events(tasks: Tasks) -> Mask:
    """True for tasks that show that the profile records what streams do with events."""
    return _control(tasks, _EVENT)


def _control(tasks: Tasks, name: re.Pattern[str]) -> Mask:
    named = tasks.name.flag([bool(name.search(n)) for n in tasks.name.names])
    return named & np.equal(tasks.work, Work.CONTROL)


def _behind_event_wait(tasks: Tasks, active: I64, stream: I64) -> Mask:
    """True for tasks in front of which their stream waited for an event."""
    is_wait = is_event_wait(tasks)
    behind = np.zeros(len(active), np.bool_)
    if not is_wait.any():
        return behind
    numbers = tasks.stream[active]
    for number in distinct(tasks.stream[is_wait]).tolist():
        mine = np.flatnonzero(numbers == number)
        waits = tasks.start[is_wait & (tasks.stream == number)]
        before = np.append(np.iinfo(np.int64).min, tasks.start[active][mine][:-1]) if len(mine) else waits[:0]
        last = np.searchsorted(waits, tasks.start[active][mine], side="right") - 1
        behind[mine] = (last >= 0) & (waits[np.maximum(last, 0)] >= before)
    return behind


def _waited_for(last: I64, start: I64, end: I64, stream: I64, position: I64, late: I64, thresholds: Thresholds) -> I64:
    """Find the task of another stream that ended just before a task which could have started earlier.

    ``last``: the task that ended last before each one.
    """
    fits = (last >= 0) & (late > thresholds.wait_least_ns) & (stream[last] != stream)
    fits &= (start - end[last] <= thresholds.wait_after_ns) & (position[last] < position)
    return np.where(fits, last, NONE)


class SyncArms(Struct, frozen=True):
    """Per sync: the stream it waits for, how long after that it returns, and its own host time (ns)."""

    stream: I64
    back_ns: I64
    own_ns: I64


def sync_arms(syncs: Syncs, began: I64, place: I64, end: I64, stream: I64, position: I64, to_host: int) -> SyncArms:
    """Find what each sync waited for: of all tasks submitted before, the one that ended last before it returned."""
    m = len(syncs)
    waited, latest = np.zeros(m, np.int64), np.full(m, NEVER)
    start, done = began, syncs.end - to_host
    for s in distinct(stream).tolist():
        mine = np.flatnonzero(stream == s)
        mine = mine[np.argsort(position[mine])]
        at = np.searchsorted(position[mine], place) - 1
        tail = np.where(at >= 0, np.maximum.accumulate(end[mine])[np.maximum(at, 0)], NEVER)
        later = (tail <= done) & (tail > latest)
        waited, latest = np.where(later, s, waited), np.where(later, tail, latest)
    blocked = latest > start
    usual = int(np.median((done - latest)[blocked])) if blocked.any() else 0
    back = np.where(blocked, done - latest, usual)
    free = done - start
    least = int(free[~blocked].min()) if (~blocked).any() else 0
    own = np.where(blocked, np.minimum(least, free), free)
    return SyncArms(waited, np.where(latest > NEVER, back, NEVER), own)


def give_registers(awaited: I64, stream: I64, position: I64) -> I64:
    """Give awaited tasks a clock of their own where their stream moves on before the wait; NONE elsewhere.

    Tasks for which no register is free share their stream's clock, and are then waited for too long.
    """
    register = np.full(len(stream), NONE)
    waiting = np.flatnonzero(awaited >= 0)
    target = awaited[waiting]
    following = np.full(len(stream), NONE)
    previous = previous_same(stream)
    following[previous[previous >= 0]] = np.flatnonzero(previous >= 0)
    after = following[target]
    moved_on = (after >= 0) & (position[after] < position[waiting])
    last_use: dict[int, int] = {}
    for task, use in zip(target[moved_on].tolist(), position[waiting[moved_on]].tolist(), strict=True):
        last_use[task] = max(last_use.get(task, 0), use)
    free_at: list[int] = []
    for task in sorted(last_use, key=lambda t: int(position[t])):
        begin = int(position[task])
        free = next((r for r, until in enumerate(free_at) if until < begin), len(free_at))
        if free == _REGISTERS:
            continue
        free_at[free : free + 1] = [last_use[task]]
        register[task] = free
    return register


def idle_within(start: I64, end: I64, delay: I64) -> int:
    """Return how much of the delays before the given tasks falls into time in which the device is idle, ns."""
    delayed = Intervals.union(start - delay, start)
    busy = Intervals.union(start, end)
    return int(delayed.total() - busy.within(delayed).sum())
