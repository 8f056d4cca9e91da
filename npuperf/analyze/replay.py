"""The replay: the measured run as a program that can be run again with other host and device times.

Launches follow each other on their threads, tasks on their streams; a task starts once it is launched, its
stream is free, and what it waited for on another stream has ended. A thread that waits for the device goes on
when the task it waited for has ended. Delays are those measured: launch latency and the gap between tasks where
they decided the start, their calibrated values where they did not. Waits that nothing in the data explains are
kept as they are and summed, so that a reader knows how much of the window the model does not understand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from npuperf.analyze.blame import HostThreads
from npuperf.analyze.causes import BUSY, flag_causes
from npuperf.analyze.intervals import Intervals
from npuperf.analyze.launch import Launches
from npuperf.analyze.maxplus import NEVER, Program, Times, run
from npuperf.analyze.nesting import NONE, Nesting
from npuperf.analyze.syncs import Syncs
from npuperf.model.labels import I64, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.units import NS_PER_US, percent

#: Clocks for tasks that others wait for although their stream has moved on.
_REGISTERS = 16
_EVENT_WAIT = re.compile(r"event.?wait|wait.?event|notify.?wait", re.I)
_UNORDERED = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Replay:
    """The program, and where each measured thing is in it.

    ``active`` are the replayed tasks (indices, by start) and ``awaited`` the one each waited for (index into
    ``active``, NONE). ``task`` and ``sync`` give the instruction of each. Between ``since`` and ``until`` (device
    clock, ns) the host did what instruction i's ``host_ns`` counts, on ``thread`` (the system's number, -1 none).
    The program's own times count from ``origin``.
    ``unexplained_ns``: idle time kept as measured; ``launched``: share of tasks with a known launch; ``error``:
    relative difference of the replayed to the measured window; ``assumed_gap``: active tasks for which the gap
    after the task before is assumed, because no two tasks of the profile follow each other closely.
    """

    program: Program
    active: I64
    awaited: I64
    task: I64
    sync: I64
    thread: I64
    since: I64
    until: I64
    origin: int
    span: tuple[int, int]
    unexplained_ns: int
    launched: float
    error: float
    assumed_gap: Mask

    def times(self, program: Program | None = None) -> Times:
        """Run the program (or a changed one); return start and end of the active tasks, by their order."""
        times = run(program or self.program)
        return Times(times.host, times.start[self.task] + self.origin, times.end[self.task] + self.origin)

    def usable(self, limits: Thresholds) -> bool:
        """Tell whether modelled figures may be given."""
        return self.refusal(limits) is None

    def refusal(self, limits: Thresholds) -> str | None:
        """Say why no modelled figure may be given, if so."""
        span = max(self.span[1] - self.span[0], 1)
        if self.error > limits.replay_error:
            return f"the replay misses the measured window by {percent(self.error)}"
        if self.launched < limits.replay_launched:
            return f"the launches of {percent(1 - self.launched)} of the tasks are unknown"
        if self.unexplained_ns > limits.replay_unexplained * span:
            return f"{percent(self.unexplained_ns / span)} of the window is idle for reasons not in the data"
        return None


def window_length(times: Times, first: I64, last: I64) -> I64:
    """Return the lengths of windows that begin with task ``first`` and end where task ``last`` starts, ns.

    One past the last task stands for the end of everything.
    """
    border = np.append(times.start, times.end.max())
    return np.where(last > first, border[last] - border[first], 0)


@dataclass(frozen=True, slots=True)
class _Order:
    """All instructions in the order of execution: ``task`` or ``sync`` number, NONE for the other kind."""

    task: I64
    sync: I64
    begin: I64
    done: I64
    thread: I64

    def places(self, tasks: int, syncs: int) -> tuple[I64, I64]:
        """Return the instruction of each task and of each sync."""
        task, sync = np.empty(tasks, np.int64), np.empty(syncs, np.int64)
        is_task = self.task >= 0
        task[self.task[is_task]] = np.flatnonzero(is_task)
        sync[self.sync[~is_task]] = np.flatnonzero(~is_task)
        return task, sync


def build(
    tasks: Tasks, launches: Launches, syncs: Syncs, threads: HostThreads, nesting: Nesting, limits: Thresholds
) -> Replay:
    """Turn measured tasks and launches into a program whose own run is the measured one.

    At least one task must occupy the device.
    """
    active = np.flatnonzero((tasks.work != Work.CONTROL) & ~_parts_of_collectives(tasks))
    origin = int(tasks.start[active[0]])  # small numbers leave room for "never"
    to_host = launches.skew + origin
    start, end = tasks.start[active] - origin, tasks.end[active] - origin
    known = launches.known[active]
    launch = np.where(known, launches.end[active] - origin, _UNORDERED)
    streams, stream = np.unique(tasks.stream[active], return_inverse=True)
    key = _stream_order(launch, start, stream, len(streams))
    launcher = tasks.launch_thread[active]
    queued = known & (threads.op[active] >= 0) & (threads.op[active] != launcher)
    drained = _drained(syncs, np.where(queued, threads.op[active], NONE), key, to_host)
    order = _merge(key, launcher, known, syncs, drained, to_host)
    task, sync = order.places(len(active), len(syncs))
    chain = _host_chain(order, nesting, to_host)
    ordered = _ordered_after(tasks, active, stream, task)
    device = _device_arms(start, end, key, known, stream, task, ordered, launches.latency, limits)
    waits = _sync_arms(syncs, drained, sync, end, stream, task, to_host)
    registers = _registers(device.awaited, stream, task)
    rows = _Rows(chain.threads, len(streams), int(registers.max(initial=NONE)) + 1)
    program = _assemble(order, chain, device, waits, registers, stream, end - start, rows)
    span = (int(start.min()), int(end.max()))
    times = run(program)
    replayed = int(times.end[task].max()) - int(times.start[task].min())
    return Replay(
        program=program,
        active=active,
        awaited=device.awaited,
        task=task,
        sync=sync,
        thread=order.thread,
        since=chain.since + origin,
        until=order.begin + origin,
        origin=origin,
        span=span,
        unexplained_ns=_idle_within(start, end, device.extra_ns),
        launched=float(np.count_nonzero(known) / max(len(known), 1)),
        error=abs(replayed - (span[1] - span[0])) / max(span[1] - span[0], 1),
        assumed_gap=device.assumed,
    )


def _assemble(
    order: _Order,
    chain: _Chain,
    device: _Device,
    waits: _Waits,
    registers: I64,
    stream: I64,
    dur: I64,
    rows: _Rows,
) -> Program:
    """Put all arms into one program, in the order of execution."""
    is_task, launched = order.task >= 0, order.thread >= 0

    def of_tasks(values: I64, default: int) -> I64:
        column = np.full(len(order.task), default, np.int64)
        column[is_task] = values[order.task[is_task]]
        return column

    def of_syncs(values: I64, default: int) -> I64:
        column = np.full(len(order.task), default, np.int64)
        column[~is_task] = values[order.sync[~is_task]]
        return column

    waiting = device.awaited >= 0
    kept = np.where(waiting, registers[device.awaited], NONE)
    other = np.where(kept >= 0, rows.register(0) + kept, rows.stream(0) + stream[device.awaited])
    save = np.where(registers >= 0, rows.register(0) + registers, rows.trash)
    initial = np.full(rows.total, NEVER, np.int64)
    initial[: rows.threads] = chain.begin
    initial[rows.fixed] = 0
    return Program(
        pred=np.where(launched, chain.pred, rows.trash),
        host_ns=chain.host_ns + of_syncs(waits.own_ns, 0),
        waited=of_syncs(rows.stream(0) + waits.stream, rows.trash),
        waited_ns=of_syncs(waits.back_ns, NEVER),
        host=np.where(launched, chain.own, rows.trash),
        launch_ns=of_tasks(device.launch_ns, NEVER),
        stream=of_tasks(rows.stream(0) + stream, rows.trash),
        gap_ns=of_tasks(device.gap_ns, NEVER),
        other=of_tasks(np.where(waiting, other, rows.fixed), rows.trash),
        other_ns=of_tasks(device.other_ns, NEVER),
        extra_ns=of_tasks(device.extra_ns, 0),
        dur_ns=of_tasks(dur, 0),
        overlap_ns=of_tasks(device.overlap_ns, NEVER),
        save=of_tasks(save, rows.trash),
        initial=initial,
    )


def _drained(syncs: Syncs, enqueued_by: I64, key: I64, to_host: int) -> I64:
    """Return when each sync really began to wait: after its thread's task queue had been launched by another one.

    ``enqueued_by``: the thread behind each task that another thread launched, NONE elsewhere.
    """
    begin, done = syncs.start - to_host, syncs.end - to_host
    for thread in np.unique(syncs.thread).tolist():
        mine = np.flatnonzero(syncs.thread == thread)
        launches = np.sort(key[enqueued_by == thread])
        at = np.searchsorted(launches, done[mine]) - 1
        last = np.where(at >= 0, launches[np.maximum(at, 0)], begin[mine]) if len(launches) else begin[mine]
        begin[mine] = np.maximum(begin[mine], last)
    return begin


def _parts_of_collectives(tasks: Tasks) -> Mask:
    """True for copies that a collective is made of: it stands in the data as a whole, too.

    Exporters cut and round the times of the two differently, hence the microsecond.
    """
    collective: Mask = np.equal(tasks.work, Work.COMMUNICATION)
    if not collective.any():
        return collective
    whole = Intervals.union(tasks.start[collective] - NS_PER_US, tasks.end[collective] + NS_PER_US)
    covered = whole.before(tasks.end) - whole.before(tasks.start)
    inside: Mask = (tasks.work == Work.OTHER) & (covered == tasks.dur) & (tasks.dur > 0)
    return inside


def _idle_within(start: I64, end: I64, delay: I64) -> int:
    """Return how much of the delays before the given tasks falls into time in which the device is idle, ns."""
    delayed = Intervals.union(start - delay, start)
    busy = Intervals.union(start, end)
    return int(delayed.total() - busy.within(delayed).sum())


@dataclass(frozen=True, slots=True)
class _Rows:
    """Layout of the state: threads, streams, registers, a clock that stands at 0, a row that nobody reads."""

    threads: int
    streams: int
    registers: int

    def stream(self, i: int) -> int:
        return self.threads + i

    def register(self, i: int) -> int:
        return self.threads + self.streams + i

    @property
    def fixed(self) -> int:
        return self.threads + self.streams + self.registers

    @property
    def trash(self) -> int:
        return self.fixed + 1

    @property
    def total(self) -> int:
        return self.fixed + 2


def _stream_order(launch: I64, start: I64, stream: I64, streams: int) -> I64:
    """Return when each task was submitted, never earlier than the one before it on its stream."""
    key = launch.copy()
    for s in range(streams):
        mine = np.flatnonzero(stream == s)
        key[mine] = np.maximum.accumulate(key[mine])
    return np.where(key == _UNORDERED, start, key)


def _merge(key: I64, launch_thread: I64, known: Mask, syncs: Syncs, drained: I64, to_host: int) -> _Order:
    """Bring tasks and syncs into one order: by when they were submitted, or began to wait.

    ``to_host`` leads from the program's times to the host's clock, here and below.
    """
    n, m = len(key), len(syncs)
    begin = np.concatenate([key, drained])
    done = np.concatenate([key, syncs.end - to_host])
    # Tasks without a launch have no host part: thread -1. A launch on an unknown thread is of thread 0.
    thread = np.concatenate([np.where(known, np.maximum(launch_thread, 0), -1), syncs.thread])
    order = np.lexsort((np.arange(n + m), begin))
    number = np.arange(n + m)
    return _Order(
        task=np.where(number < n, number, NONE)[order],
        sync=np.where(number >= n, number - n, NONE)[order],
        begin=begin[order],
        done=done[order],
        thread=thread[order],
    )


@dataclass(frozen=True, slots=True)
class _Chain:
    """Host clocks: each instruction's own row, the row it follows, how long after and since when (ns)."""

    threads: int
    begin: int
    own: I64
    pred: I64
    host_ns: I64
    since: I64


def _host_chain(order: _Order, nesting: Nesting, to_host: int) -> _Chain:
    """Find for each instruction which thread's clock it follows.

    A thread that did nothing of its own when another thread launched has been handed the work by it: the
    backward pass begins when the forward pass has been launched, and the next step when the backward pass has.
    """
    threads, own = np.unique(order.thread, return_inverse=True)
    pred, since = own.copy(), order.begin.copy()
    hosts = np.flatnonzero(order.thread >= 0)
    if not len(hosts):
        return _Chain(len(threads), 0, own, pred, since - order.begin, since)
    mine, begin, done = own[hosts], order.begin[hosts], order.done[hosts]
    earlier = _previous_same(mine)
    before = _last_done(done)
    latest = np.where(earlier >= 0, done[earlier], np.iinfo(np.int64).min)
    changed = (before >= 0) & (mine[before] != mine) & (done[before] <= begin) & (done[before] >= latest)
    idle = np.zeros(len(hosts), np.bool_)
    at = nesting.at(threads[mine[changed]], done[before[changed]] + to_host)
    busy = flag_causes(nesting.causes, BUSY)
    idle[changed] = nesting.nearest(at, busy) == NONE if len(busy) else True
    source = np.where(idle, before, earlier)
    first = int(begin.min())
    moment = np.minimum(np.where(source >= 0, done[source], first), begin)
    pred[hosts] = np.where(idle, mine[before], mine)
    since[hosts] = moment
    return _Chain(len(threads), first, own, pred, order.begin - since, since)


def _last_done(done: I64) -> I64:
    """Return for each element which of those before it was done last, NONE for the first."""
    reach = np.maximum.accumulate(done)
    place = np.maximum.accumulate(np.where(done >= reach, np.arange(len(done)), 0))
    return np.concatenate([[NONE], place[:-1]])


def _previous_same(group: I64) -> I64:
    """Return for each element the index of the previous one of the same group, NONE if there is none."""
    order = np.argsort(group, kind="stable")
    same = group[order][1:] == group[order][:-1]
    previous = np.full(len(group), NONE)
    previous[order[1:]] = np.where(same, order[:-1], NONE)
    return previous


@dataclass(frozen=True, slots=True)
class _Device:
    """Delays of each task (by start): after launch, after its stream, after another task, kept as measured.

    Where a task awaits no other, ``other_ns`` counts from time 0: the start of tasks that nothing else fixes.
    """

    launch_ns: I64
    gap_ns: I64
    other_ns: I64
    extra_ns: I64
    overlap_ns: I64
    awaited: I64
    assumed: Mask


def _device_arms(
    start: I64,
    end: I64,
    key: I64,
    known: Mask,
    stream: I64,
    position: I64,
    ordered: I64,
    latency: int,
    limits: Thresholds,
) -> _Device:
    before = _previous_same(stream)
    free = np.where(before >= 0, end[before], NEVER)
    follows = (before >= 0) & (start >= free)
    ready = np.maximum(np.where(known, key + latency, NEVER), np.where(follows, free, NEVER))
    late = start - ready
    slow = known & (start - key <= latency + limits.launch_jitter_ns)
    waited = _waited_for(start, end, stream, position, np.where(slow & (ordered == NONE), 0, late), limits)
    waits, free_to_start = waited >= 0, ready == NEVER
    queued = follows & known & (key + latency + limits.lead_ns <= free) & (start - free <= limits.gap_ns)
    usual = int(np.median((start - free)[queued])) if queued.any() else limits.assumed_gap_ns
    by_launch = known & (~follows | (key + latency >= free))
    # A start soon after the launch is the launch's, even if the task before, or one of another stream, just ended.
    by_launch |= follows & slow & (start - free > usual) & ~waits
    late = np.where(by_launch, start - key - latency, late)
    limit = np.where(by_launch, limits.launch_jitter_ns, limits.gap_ns)
    unexplained = ~waits & (late > limit) & ~free_to_start
    small = np.where(waits | unexplained, 0, late)
    behind = int(np.median((start - end[waited])[waits])) if waits.any() else 0
    awaited = np.where(waits, waited, ordered)
    after = np.where(waits, start - end[awaited], np.minimum(behind, start - end[awaited]))
    return _Device(
        launch_ns=np.where(known, latency + np.where(by_launch, small, 0), NEVER),
        gap_ns=np.where(follows, np.where(by_launch, np.minimum(usual, start - free), small), NEVER),
        other_ns=np.where(awaited >= 0, after, np.where(free_to_start, start, NEVER)),
        extra_ns=np.where(unexplained, late, 0),
        overlap_ns=np.where((before >= 0) & ~follows, 0, NEVER),
        awaited=awaited,
        assumed=follows & by_launch & ~queued.any(),
    )


def _ordered_after(tasks: Tasks, active: I64, stream: I64, position: I64) -> I64:
    """Find the task that each one had to wait for although it was not what it waited for in the end; NONE if none.

    Two things tell: a recorded wait for an event in front of a task, and collectives, which follow the compute
    task submitted before them unless the profile shows one that did not.
    """
    start, end = tasks.start[active], tasks.end[active]
    after_event = _behind_event_wait(tasks, active, stream)
    order = np.argsort(end, kind="stable")
    at = np.searchsorted(end[order], start, side="right") - 1
    latest = order[np.maximum(at, 0)]
    crosses = after_event & (at >= 0) & (stream[latest] != stream) & (position[latest] < position)
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


def _behind_event_wait(tasks: Tasks, active: I64, stream: I64) -> Mask:
    """True for tasks in front of which their stream waited for an event."""
    is_wait = tasks.name.flag([bool(_EVENT_WAIT.search(n)) for n in tasks.name.names]) & (tasks.work == Work.CONTROL)
    behind = np.zeros(len(active), np.bool_)
    if not is_wait.any():
        return behind
    numbers = tasks.stream[active]
    for number in np.unique(tasks.stream[is_wait]).tolist():
        mine = np.flatnonzero(numbers == number)
        waits = tasks.start[is_wait & (tasks.stream == number)]
        before = np.append(np.iinfo(np.int64).min, tasks.start[active][mine][:-1]) if len(mine) else waits[:0]
        last = np.searchsorted(waits, tasks.start[active][mine], side="right") - 1
        behind[mine] = (last >= 0) & (waits[np.maximum(last, 0)] >= before)
    return behind


def _waited_for(start: I64, end: I64, stream: I64, position: I64, late: I64, limits: Thresholds) -> I64:
    """Find the task of another stream that ended just before a task which could have started earlier."""
    order = np.argsort(end, kind="stable")
    at = np.searchsorted(end[order], start, side="right") - 1
    other = np.where(at >= 0, order[np.maximum(at, 0)], NONE)
    fits = (other >= 0) & (late > limits.wait_least_ns) & (stream[other] != stream)
    fits &= (start - end[other] <= limits.wait_after_ns) & (position[other] < position)
    return np.where(fits, other, NONE)


@dataclass(frozen=True, slots=True)
class _Waits:
    """Per sync: the stream it waits for, how long after that it returns, and its own host time (ns)."""

    stream: I64
    back_ns: I64
    own_ns: I64


def _sync_arms(syncs: Syncs, began: I64, place: I64, end: I64, stream: I64, position: I64, to_host: int) -> _Waits:
    """Find what each sync waited for: of all tasks submitted before, the one that ended last before it returned."""
    m = len(syncs)
    waited, latest = np.zeros(m, np.int64), np.full(m, NEVER)
    start, done = began, syncs.end - to_host
    for s in np.unique(stream).tolist():
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
    return _Waits(waited, np.where(latest > NEVER, back, NEVER), own)


def _registers(awaited: I64, stream: I64, position: I64) -> I64:
    """Give awaited tasks a clock of their own where their stream moves on before the wait; NONE elsewhere.

    Tasks for which no register is free share their stream's clock, and are then waited for too long.
    """
    register = np.full(len(stream), NONE)
    waiting = np.flatnonzero(awaited >= 0)
    target = awaited[waiting]
    following = np.full(len(stream), NONE)
    previous = _previous_same(stream)
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
