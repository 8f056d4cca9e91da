"""The host's side of the replay: in which order things were submitted, and which thread handed on to which."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.device.host_events import NONE, Nesting
from npuperf.device.maxplus import LONG_AGO, NEVER
from npuperf.device.syncs import Syncs
from npuperf.model.groups import by_code, distinct, numbered
from npuperf.model.intervals import SIGNED, Intervals, narrow
from npuperf.model.labels import I32, I64, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

UNORDERED = np.iinfo(np.int64).min


class Order(Struct, frozen=True):
    """All instructions in the order of execution: ``task`` or ``sync`` number, NONE for the other kind."""

    task: I64
    sync: I64
    begin: I64
    done: I64
    thread: I64

    def places(self, tasks: int, syncs: int) -> tuple[I64, I64]:
        """Return the instruction of each task and of each sync."""
        task, sync = np.empty(tasks, self.task.dtype), np.empty(syncs, self.sync.dtype)
        is_task = self.task >= 0
        task[self.task[is_task]] = np.flatnonzero(is_task)
        sync[self.sync[~is_task]] = np.flatnonzero(~is_task)
        return task, sync


def stream_order(launch: I64, start: I64, stream: I64, streams: int) -> I64:
    """Return when each task was submitted, never earlier than the one before it on its stream."""
    key = launch.copy()
    for s in range(streams):
        mine = np.flatnonzero(stream == s)
        key[mine] = np.maximum.accumulate(key[mine])
    return np.where(key == UNORDERED, start, key)


def drained_at(syncs: Syncs, enqueued_by: I64, key: I64, to_host: int) -> I64:
    """Return when each sync really began to wait: after its thread's task queue had been launched by another one.

    ``enqueued_by``: the thread behind each task that another thread launched, NONE elsewhere.
    """
    begin, done = syncs.start - to_host, syncs.end - to_host
    for thread in distinct(syncs.thread).tolist():
        mine = np.flatnonzero(syncs.thread == thread)
        launches = np.sort(key[enqueued_by == thread])
        at = np.searchsorted(launches, done[mine]) - 1
        last = np.where(at >= 0, launches[np.maximum(at, 0)], begin[mine]) if len(launches) else begin[mine]
        begin[mine] = np.maximum(begin[mine], last)
    return begin


def submission_order(key: I64, launch_thread: I64, known: Mask, syncs: Syncs, drained: I64, to_host: int) -> Order:
    """Bring tasks and syncs into one order: by when they were submitted, or began to wait.

    ``to_host`` leads from the program's times to the host's clock, here and below.
    """
    n = len(key)
    begin = np.concatenate([key, drained])
    # Tasks without a launch have no host part: thread -1. A launch on an unknown thread is of thread 0.
    thread = narrow(np.concatenate([np.where(known, np.maximum(launch_thread, 0), -1), syncs.thread]))
    order = np.argsort(begin, kind="stable")
    begin, thread = begin.take(order), thread.take(order)
    number, is_task = narrow(order), order < n
    del order
    done, returns = begin.copy(), np.flatnonzero(~is_task)
    done[returns] = (syncs.end - to_host)[number[returns] - n]
    return Order(np.where(is_task, number, NONE), np.where(is_task, NONE, number - n), begin, done, thread)


class Chain(Struct, frozen=True):
    """Host clocks: each instruction's own row, the row it follows, how long after and since when (ns)."""

    threads: int
    begin: int
    own: I64
    pred: I64
    host_ns: I64
    since: I64


def host_chain(order: Order, nesting: Nesting, to_host: int, led: Mask) -> Chain:
    """Find for each instruction which thread's clock it follows.

    A thread that did nothing of its own when another thread launched has been handed the work by it: the
    backward pass begins when the forward pass has been launched, and the next step when the backward pass has.
    ``led``: syncs that follow whatever thread was at work last. A thread whose launches a task queue's consumer makes
    waits for the device when all of them are made, and the host's step does not end before everything was launched.
    """
    threads, own = numbered(order.thread)
    own = narrow(own)
    pred, since = own.copy(), order.begin.copy()
    on_host = order.thread >= 0
    hosts: slice | I64 = slice(None) if on_host.all() else np.flatnonzero(on_host)
    if not on_host.any():
        return Chain(len(threads), 0, own, pred, since - order.begin, since)
    mine, begin, done = own[hosts], order.begin[hosts], order.done[hosts]
    earlier = previous_same(mine)
    before = np.full(len(done), NONE, np.int32)  # which of those before each one was done last
    last = np.where(done >= np.maximum.accumulate(done), np.arange(len(done), dtype=np.int32), 0)
    np.maximum.accumulate(last[:-1], out=before[1:])
    latest = np.where(earlier >= 0, done[earlier], np.iinfo(np.int64).min)
    changed = (before >= 0) & (mine[before] != mine) & (done[before] <= begin) & (done[before] >= latest)
    idle = np.zeros(len(mine), np.bool_)
    # Just before the other's launch was done: what begins right then is what was handed over.
    at = nesting.at(threads[mine[changed]], done[before[changed]] + to_host - 1)
    recorded = at >= 0
    quiet = ~recorded
    quiet[recorded] = ~nesting.busy[at[recorded]]
    number = order.sync[hosts][changed]
    idle[changed] = quiet | ((number >= 0) & np.append(led, False)[number])
    source = np.where(idle, before, earlier)
    first = int(begin.min())
    moment = np.minimum(np.where(source >= 0, done[source], first), begin)
    pred[hosts] = np.where(idle, mine[before], mine)
    since[hosts] = moment
    return Chain(len(threads), first, own, pred, order.begin - since, since)


def previous_same(group: I32 | I64) -> I32:
    """Return for each element the index of the previous one of the same group, NONE if there is none."""
    which = numbered(group)[1]
    order = by_code(which).astype(np.int32)
    previous = np.empty(len(group), np.int32)
    previous[order[1:]] = order[:-1]
    size = np.bincount(which)
    previous[order[np.cumsum(size) - size]] = NONE
    return previous


# -- The device's side of the replay: what each task and each sync waited for, and how long after that it went on.

#: Clocks for tasks that others wait for although their stream has moved on.
_REGISTERS: Final = 16
_EVENT: Final = re.compile(r"event|notify", re.I)
_EVENT_WAIT: Final = re.compile(r"event.?wait|wait.?event|notify.?wait", re.I)


class Placed(Struct, frozen=True):
    """Active tasks: times from the first one's start, ns, number of the stream, ``position`` of the instruction.

    ``before``: the task before on its stream, ``last``: the one of any stream that had ended last when it started; both
    NONE if there is none.
    """

    start: I64
    end: I64
    stream: I64
    position: I64
    before: I32
    last: I32

    @classmethod
    def of(cls, start: I64, end: I64, stream: I64, position: I64) -> Placed:
        """Find what was before each task."""
        order = np.argsort(end, kind="stable").astype(np.int32)
        at = np.searchsorted(end[order], start, side="right") - 1
        last = np.where(at >= 0, order[np.maximum(at, 0)], NONE)
        return cls(start, end, stream, position, previous_same(stream), last)


class DeviceArms(Struct, frozen=True):
    """Delays of each task (by start): after launch, after its stream, after another task, kept as measured.

    Where a task awaits no other, ``other_ns`` counts from time 0: the start of tasks that nothing else fixes.
    ``unexplained``: idle time that nothing in the data explains. Such waits are ``extra_ns`` after what decided the
    start, or, for ``loose`` tasks, a delay after the task of any stream that ended last.
    """

    launch_ns: I64
    gap_ns: I64
    other_ns: I64
    extra_ns: I64
    overlap_ns: I64
    awaited: I32
    assumed: Mask
    loose: Mask
    unexplained: Intervals


def device_arms(
    tasks: Placed, key: I64, known: Mask, ordered: I32, latency: int, thresholds: Thresholds, *, anchor: bool = False
) -> DeviceArms:
    """Find what decided the start of each task, and the delay of everything else that it depends on.

    ``anchor``: tasks without a launch that start late begin some time after everything before them has ended, as the
    first tasks of a graph do whose launch the host holds back until then.
    ``key``: when each task was submitted (ns, as its times), and ``known`` whether that is recorded; ``ordered``: the
    task that had to end first in any case, NONE if none.
    """
    start, end, last = tasks.start, tasks.end, tasks.last
    launched = start - key
    launched -= latency  # how long ago the launch let it start, and below when its stream did
    freed = start - end.take(tasks.before, mode="wrap")
    any_before = tasks.before >= 0
    follows = any_before & (freed >= 0)
    late = np.minimum(np.where(known, launched, -LONG_AGO), np.where(follows, freed, -LONG_AGO))
    slow = known & (launched <= thresholds.launch_jitter_ns)
    waited = _waited_for(tasks, np.where(slow & (ordered == NONE), 0, late), thresholds)
    waits, free_to_start = waited >= 0, ~(known | follows)
    queued = follows & known & (launched >= freed + thresholds.lead_ns) & (freed <= thresholds.gap_ns)
    measured = bool(queued.any())
    usual = int(np.median(freed.compress(queued))) if measured else thresholds.assumed_gap_ns
    by_launch = known & (~follows | (launched <= freed))
    # A start soon after the launch is the launch's, even if the task before, or one of another stream, just ended.
    by_launch |= follows & slow & (freed > usual) & ~waits
    np.copyto(late, launched, where=by_launch)
    limit = np.where(by_launch, thresholds.launch_jitter_ns, thresholds.gap_ns)
    unexplained = ~waits & (late > limit) & ~free_to_start
    awaited = np.where(waits, waited, ordered)
    loose = unexplained & ~known & (last >= 0) if anchor else np.zeros(len(start), np.bool_)
    if anchor:
        loose &= tasks.position[last] < tasks.position
    kept = np.flatnonzero(unexplained)
    own = late[kept]
    late[kept] = 0
    late[waits] = 0
    idle, extra = Intervals.union(start[:0], end[:0]), np.broadcast_to(np.int64(0), len(start))
    if len(kept):
        extra = extra.copy()
        extra[kept] = np.where(loose[kept], 0, own)
        # What of these delays falls into time in which the device is idle.
        idle = Intervals.union(start[kept] - own, start[kept]).minus(Intervals.union(start, end))
    return DeviceArms(
        launch_ns=narrow(np.where(known, np.where(by_launch, late, 0) + latency, NEVER), SIGNED),
        gap_ns=narrow(np.where(follows, np.where(by_launch, np.minimum(freed, usual), late), NEVER), SIGNED),
        other_ns=_after_others(tasks, waits, np.where(loose, last, awaited), loose, free_to_start),
        extra_ns=extra,
        overlap_ns=np.where(any_before & ~follows, np.int32(0), np.int32(NEVER)),
        awaited=np.where(loose, last, awaited),
        assumed=follows & by_launch & (not measured),
        loose=loose,
        unexplained=idle,
    )


def _after_others(tasks: Placed, waits: Mask, awaited: I32, loose: Mask, free_to_start: Mask) -> I64:
    """Return how long after the task that it awaits each one starts, if any (ns).

    Where it waits for nothing else, or did not wait in the end, that is what is usual, or less.
    """
    after = np.where(free_to_start, tasks.start, NEVER)
    at = np.flatnonzero(awaited >= 0)
    lag = tasks.start[at] - tasks.end[awaited[at]]
    waiting = waits[at]
    behind = int(np.median(lag[waiting])) if waiting.any() else 0
    after[at] = np.where(waiting | loose[at], lag, np.minimum(behind, lag))
    return narrow(after, SIGNED)


def ordered_after(tasks: Tasks, active: I64, placed: Placed) -> I32:
    """Find the task that each one had to wait for although it was not what it waited for in the end; NONE if none.

    Two things tell: a recorded wait for an event in front of a task, and collectives, which follow the compute
    task submitted before them unless the profile shows one that did not.
    """
    stream, position, latest = placed.stream, placed.position, placed.last
    ordered = np.full(len(active), NONE, np.int32)
    waits = np.flatnonzero(is_event_wait(tasks))
    if len(waits):  # in front of a task: since the one before it on its stream began
        since = np.where(placed.before >= 0, placed.start.take(placed.before, mode="clip"), UNORDERED)
        begins = tasks.start[waits] - tasks.start[active[0]]
        behind = began_within(begins, tasks.stream[waits], tasks.stream[active], since, placed.start)
        crosses = np.flatnonzero(behind & (latest >= 0))
        crosses = crosses[stream[latest[crosses]] != stream[crosses]]
        crosses = crosses[position[latest[crosses]] < position[crosses]]
        ordered[crosses] = latest[crosses]
    work = tasks.work[active]
    collective = np.flatnonzero(work == Work.COMMUNICATION)
    compute = np.flatnonzero(work == Work.COMPUTE)
    if not len(collective) or not len(compute):
        return ordered
    compute = compute[np.argsort(position[compute], kind="stable")]
    place = np.searchsorted(position[compute], position[collective]) - 1
    collective, source = collective[place >= 0], compute[place[place >= 0]]
    if (placed.end[source] <= placed.start[collective]).all():
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


def began_within(starts: I64, streams: I64, stream: I64, start: I64, end: I64) -> Mask:
    """True where one of some waits began within [start, end] on the stream.

    ``starts`` and ``streams``: of the waits, of each stream in order of their starts.
    """
    found = np.zeros(len(stream), np.bool_)
    for number in distinct(streams).tolist():
        mine, begins = stream == number, starts[streams == number]
        last = np.searchsorted(begins, end[mine], side="right") - 1
        found[mine] = (last >= 0) & (begins[np.maximum(last, 0)] >= start[mine])
    return found


def _waited_for(tasks: Placed, late: I64, thresholds: Thresholds) -> I32:
    """Find the task of another stream that ended just before a task which could have started earlier, by ``late``."""
    at = np.flatnonzero((tasks.last >= 0) & (late > thresholds.wait_least_ns))
    last = tasks.last[at]
    fits = (tasks.stream[last] != tasks.stream[at]) & (tasks.position[last] < tasks.position[at])
    fits &= tasks.start[at] - tasks.end[last] <= thresholds.wait_after_ns
    waited = np.full(len(late), NONE, np.int32)
    waited[at[fits]] = last[fits]
    return waited


class SyncArms(Struct, frozen=True):
    """Per sync: the stream it waits for, how long after that it returns, and its own host time (ns)."""

    stream: I64
    back_ns: I64
    own_ns: I64


def sync_arms(syncs: Syncs, began: I64, place: I64, end: I64, stream: I64, position: I64, to_host: int) -> SyncArms:
    """Find what each sync waited for: of all tasks submitted before, the one that ended last before it returned."""
    m = len(syncs)
    waited, latest = np.zeros(m, np.int64), np.full(m, LONG_AGO)
    start, done = began, syncs.end - to_host
    for s in distinct(stream).tolist():
        mine = np.flatnonzero(stream == s)
        mine = mine[np.argsort(position[mine])]
        at = np.searchsorted(position[mine], place) - 1
        tail = np.where(at >= 0, np.maximum.accumulate(end[mine])[np.maximum(at, 0)], LONG_AGO)
        later = (tail <= done) & (tail > latest)
        waited, latest = np.where(later, s, waited), np.where(later, tail, latest)
    blocked = latest > start
    usual = int(np.median((done - latest)[blocked])) if blocked.any() else 0
    back = np.where(blocked, done - latest, usual)
    free = done - start
    least = int(free[~blocked].min()) if (~blocked).any() else 0
    own = np.where(blocked, np.minimum(least, free), free)
    return SyncArms(waited, np.where(latest > LONG_AGO, back, NEVER), own)


def give_registers(awaited: I32, tasks: Placed) -> I32:
    """Give awaited tasks a clock of their own where their stream moves on before the wait; NONE elsewhere.

    Tasks for which no register is free share their stream's clock, and are then waited for too long.
    """
    position = tasks.position
    register = np.full(len(position), NONE, np.int32)
    waiting = np.flatnonzero(awaited >= 0)
    target = awaited[waiting]
    following = np.full(len(position), NONE, np.int32)
    followed = np.flatnonzero(tasks.before >= 0)
    following[tasks.before[followed]] = followed
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
