"""The replay: the measured run as a program that can be run again with other host and device times.

Launches follow each other on their threads, tasks on their streams; a task starts once it is launched, its
stream is free, and what it waited for on another stream has ended. A thread that waits for the device goes on
when the task it waited for has ended. Delays are those measured: launch latency and the gap between tasks where
they decided the start, their calibrated values where they did not. Waits that nothing in the data explains are
kept as they are and summed, so that a reader knows how much of the window the model does not understand.
"""

from __future__ import annotations

from typing import Final, TypeVar, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.base.messages import Message, say, share
from npuperf.base.units import NS_PER_US
from npuperf.device.blame import HostThreads
from npuperf.device.host_events import NONE, Nesting
from npuperf.device.maxplus import LONG_AGO, NEVER, Program, Times, run
from npuperf.device.order import (
    UNORDERED,
    Chain,
    DeviceArms,
    Order,
    Placed,
    SyncArms,
    device_arms,
    drained_at,
    give_registers,
    host_chain,
    ordered_after,
    stream_order,
    submission_order,
    sync_arms,
)
from npuperf.device.partition import Launches
from npuperf.device.syncs import Syncs
from npuperf.model.groups import among, distinct, numbered
from npuperf.model.intervals import SIGNED, Intervals, narrow
from npuperf.model.labels import I32, I64, U8, Mask
from npuperf.model.result import Elasticity
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

_Column = TypeVar("_Column", I32, I64)
#: Columns that order the device.
_DEVICE: Final = ("stream", "gap_ns", "other", "other_ns", "overlap_ns")


class Replayed(Times, frozen=True):
    """When the replayed tasks started and ended, and when the host was at each of its marks (ns)."""

    mark: I64


class Replay(Struct, frozen=True):
    """The program, and where each measured thing is in it.

    ``active`` are the replayed tasks (indices, by start) and ``awaited`` the one each waited for (index into
    ``active``, NONE). ``task`` and ``sync`` give the instruction of each, ``mark`` those of the moments (``moment``,
    device clock, ns, in order) at which the host begins or ends a step while the device is idle. Between ``since`` and
    ``until`` (device clock, ns) the host did what instruction i's ``host_ns`` counts, on ``thread`` (the system's
    number, -1 none). The program's own times count from ``origin``; ``base`` are those of its tasks, by their order,
    and marks, on the clock.
    ``unexplained``: idle time kept as measured, on the device clock. Of what is judged: ``launched``, the share of
    tasks with a known launch, and ``error``, the relative difference of the replayed to the measured window, or to the
    steps, whichever is more; what lies outside of it does not count.
    ``assumed_gap``: active tasks for which the gap after the task before is assumed, because no two tasks of the
    profile follow each other closely; ``loose``: active tasks without a launch that begin some time after everything
    before them, perhaps only when the host launches them.
    """

    program: Program
    base: Replayed
    active: I64
    awaited: I32
    task: I64
    sync: I64
    mark: I64
    moment: I64
    thread: I64
    since: I64
    until: I64
    origin: int
    span: tuple[int, int]
    unexplained: Intervals
    launched: float
    error: float
    assumed_gap: Mask
    loose: Mask

    def held_against(self, tasks: Tasks, steps: Intervals) -> Replay:
        """Return the replay as these steps, and the window that they make up, show it; without steps as it is.

        The error is that over each of them, too: errors must not cancel each other. Of set-up before and an evaluation
        after them nothing is asked: no launch, no explanation.
        """
        if not len(steps):
            return self
        span = int(steps.start[0]), int(steps.end[-1])
        whole, errors = Intervals(np.array(span[:1]), np.array(span[1:])), []
        for windows in (whole, steps):
            length = windows.end - windows.start
            off = int(np.abs(self.lengths(tasks, windows) - length).sum())
            errors.append(off / max(int(length.sum()), 1))
        start = tasks.start[self.active]
        inside = self.task[(start >= span[0]) & (start < span[1])]
        known = np.count_nonzero(self.program.launch_ns[inside] != NEVER)
        return replace(
            self,
            launched=float(known / max(len(inside), 1)),
            error=max(errors),
        )

    def lengths(self, tasks: Tasks, windows: Intervals) -> I64:
        """Return the replayed lengths, ns, of windows whose borders are starts or ends of tasks, or marks."""
        if not len(windows):
            return windows.start
        start, end = tasks.start[self.active], tasks.end[self.active]
        return Borders.of(windows, start, end, np.argsort(end, kind="stable"), self.moment).lengths(self.base)

    def fixed(self, program: Program) -> Program:
        """Return a program in which loose tasks start when they did, whatever ends before them."""
        at, row = self.task[self.loose], len(program.initial) - 2
        other, delay = program.other.copy(), program.other_ns.astype(np.int64)
        other[at], delay[at] = row, self.base.start[self.loose] - self.origin
        return program.with_columns(other=other, other_ns=delay)

    def ordered(self, program: Program) -> Program:
        """Return a program in which the device keeps the order that waits of the host gave it, where they were removed.

        The stream of the next task waits for what the host waited for: whether it needs that, only the wait told.
        """
        tasks = np.sort(self.task)
        gone = self.sync[(self.program.waited_ns[self.sync] != NEVER) & (program.waited_ns[self.sync] == NEVER)]
        gone = gone[gone < tasks[-1]]
        following = tasks[np.searchsorted(tasks, gone, side="right")]
        changed = {name: getattr(program, name).copy() for name in _DEVICE}
        changed["stream"][gone] = program.stream[following]
        changed["other"][gone], changed["other_ns"][gone] = program.waited[gone], 0
        changed["overlap_ns"][gone] = 0
        first = following[program.gap_ns[following] == NEVER]  # a stream's first task waits for nothing before it
        changed["gap_ns"][first] = 0
        return program.with_columns(**changed)

    def times(self, program: Program) -> Replayed:
        """Run a changed program; return start and end of the active tasks, by their order, and the times of marks."""
        return _run(program, self.task, self.mark, self.origin)

    def length(self, program: Program, first: int, last: int) -> int:
        """Run a changed program; return the length of a window from task ``first`` to the start of task ``last``, ns.

        One past the last task stands for the end of everything.
        """
        if last <= first:
            return 0
        if last == len(self.task):
            done = run(program, self.task)
            return int(done.end.max() - done.start[first])
        begin, end = run(program, self.task[[first, last]]).start
        return int(end - begin)

    def unexplained_in(self, window: tuple[int, int]) -> int:
        """Return how much idle time of a window is kept as measured, ns."""
        before = self.unexplained.before(np.array(window, np.int64))
        return int(before[1] - before[0])

    def refusal(self, thresholds: Thresholds, window: tuple[int, int], *, host: bool = True) -> Message | None:
        """Say why no modelled figure of a window may be given, if so; ``host``: of the host's time, too."""
        idle, span = self.unexplained_in(window), max(window[1] - window[0], 1)
        if self.error > thresholds.replay_error:
            return say("the replay differs from the measured window by {error}", error=share(self.error))
        if host and self.launched < thresholds.replay_launched:
            return say("the launches of {unknown} of the tasks are unknown", unknown=share(1 - self.launched))
        if idle > thresholds.replay_unexplained * span:
            unexplained = share(idle / span)
            return say("{share} of the window is idle for reasons that the data does not show", share=unexplained)
        return None


def _run(program: Program, task: I64, mark: I64, origin: int) -> Replayed:
    """Run a program, whose own times count from ``origin``, and take its times over onto the device's clock."""
    done = run(program, np.append(task, mark) if len(mark) else task)
    for times in (done.start, done.end):
        times += origin
    n = len(task)
    return Replayed(done.start[:n], done.end[:n], done.start[n:])


class Borders(Struct, frozen=True):
    """The borders of windows, first where they begin, then where they end: starts or ends of tasks, or marks.

    ``task``: the active task that starts (where ``starts``) or ends there; ``mark``: the mark, NONE elsewhere. A mark
    lies between the end of the task ``before`` and the start of the one ``after``, where there is one, and stays there
    whatever is changed: a step does not begin while the device still works for the one before.
    """

    task: I64
    starts: Mask
    mark: I64
    before: I64
    after: I64

    @classmethod
    def of(cls, windows: Intervals, start: I64, end: I64, by_end: I64, moment: I64) -> Borders:
        """Find the borders.

        ``start`` and ``end``: of the tasks as the windows have them, by start; ``by_end``: the tasks ordered by their
        end; ``moment``: of the marks.
        """
        border, ends = np.concatenate([windows.start, windows.end]), end[by_end]
        following, ended = np.searchsorted(start, border), np.searchsorted(ends, border)
        i = np.minimum(following, len(start) - 1)
        j = by_end[np.minimum(ended, len(ends) - 1)]
        starts, mark = start[i] == border, np.full(len(border), NONE)
        if len(moment):
            at = np.minimum(np.searchsorted(moment, border), len(moment) - 1)
            mark = np.where((moment[at] == border) & ~starts & (end[j] != border), at, NONE)
        return cls(
            task=np.where(starts, i, j),
            starts=starts,
            mark=mark,
            before=np.where(ended > 0, by_end[np.maximum(ended - 1, 0)], NONE),
            after=np.where(following < len(start), i, NONE),
        )

    def lengths(self, times: Times, earlier: Times | None = None) -> I64:
        """Return how long the windows are in other times of the tasks, or in these less what is ``earlier`` (ns)."""
        begin, stop = np.split(self._at(times, earlier), 2)
        return np.asarray(stop - begin)

    def _at(self, times: Times, earlier: Times | None) -> I64:
        def taken(name: str, at: I64) -> I64:
            found: I64 = getattr(times, name)[at].astype(np.int64)
            return found if earlier is None else found - getattr(earlier, name)[at]

        found = np.where(self.starts, taken("start", self.task), taken("end", self.task))
        at = np.flatnonzero(self.mark >= 0)
        if len(at):
            before, after, moment = self.before[at], self.after[at], taken("mark", self.mark[at])
            moment = np.where(before >= 0, np.maximum(moment, taken("end", before)), moment)
            found[at] = np.where(after >= 0, np.minimum(moment, taken("start", after)), moment)
        return found


def borders_of(steps: Intervals) -> I64:
    """Return when steps begin and the last one ends."""
    return np.append(steps.start, steps.end[-1:])


def build_replay(
    tasks: Tasks,
    launches: Launches,
    syncs: Syncs,
    threads: HostThreads,
    nesting: Nesting,
    thresholds: Thresholds,
    borders: I64,
    *,
    since: int | None = None,
    anchor: bool = False,
) -> Replay:
    """Turn measured tasks and launches into a program whose own run is the measured one.

    At least one task must occupy the device; ``borders``: of steps, of which those where no task starts or ends are the
    host's; ``since``: what lies before is not replayed, and what had been launched before counts as launched then,
    because work that is not recorded held it up; ``anchor``: see :func:`npuperf.device.order.device_arms`.
    """
    chosen = (tasks.work != Work.CONTROL) & ~_parts_of_collectives(tasks)
    if since is not None:
        chosen &= tasks.start >= since
        launches = launches.no_earlier(since - launches.latency)
        syncs = replace(
            syncs,
            start=np.maximum(syncs.start, since + launches.skew),
            end=np.maximum(syncs.end, since + launches.skew),
        )
    active = narrow(np.flatnonzero(chosen))
    origin = int(tasks.start[active[0]])  # small numbers leave room for "never"
    to_host = launches.skew + origin
    start, end = tasks.start[active] - origin, tasks.end[active] - origin
    known = launches.known[active]
    launch = np.where(known, launches.end[active] - origin, UNORDERED)
    streams, stream = numbered(tasks.stream[active])
    stream = narrow(stream)
    key = stream_order(launch, start, stream, len(streams))
    launcher = tasks.launch_thread[active]
    queued = known & (threads.op[active] >= 0) & (threads.op[active] != launcher)
    drained = drained_at(syncs, np.where(queued, threads.op[active], NONE), key, to_host)
    led = np.isin(syncs.thread, distinct(threads.op[active][queued]))
    moment = distinct(borders)
    moment = moment[~(among(tasks.start[active], moment) | among(tasks.end[active], moment))]
    marked = moment + launches.skew
    main = np.full(len(moment), max(threads.main, 0), syncs.thread.dtype)
    on_host = Syncs(
        thread=np.append(syncs.thread, main),
        start=np.append(syncs.start, marked),
        end=np.append(syncs.end, marked),
        event=np.append(syncs.event, np.full(len(moment), NONE)),
    )
    order = submission_order(key, launcher, known, on_host, np.append(drained, moment - origin), to_host)
    del launch, launcher, queued  # much memory, here and below
    task, sync = order.places(len(active), len(on_host))
    sync, mark = sync[: len(syncs)], sync[len(syncs) :]
    chain = host_chain(order, nesting, to_host, np.append(led, np.ones(len(moment), np.bool_)))
    placed = Placed.of(start, end, stream, task)
    device = device_arms(
        placed, key, known, ordered_after(tasks, active, placed), launches.latency, thresholds, anchor=anchor
    )
    waits = sync_arms(syncs, drained, sync, end, stream, task, to_host)
    registers = give_registers(device.awaited, placed)
    span, dur = (int(start.min()), int(end.max())), end - start
    del start, end, key, drained, placed
    program = _assemble(order, chain, device, waits, registers, stream, len(streams), dur)
    after, until, thread = chain.since + origin, order.begin + origin, _once(order.thread)
    awaited, assumed, loose, unexplained = device.awaited, device.assumed, device.loose, device.unexplained
    del stream, dur, order, chain, device, waits, registers
    base = _run(program, task, mark, origin)
    replayed = int(base.end.max() - base.start.min())
    return Replay(
        program=program,
        base=base,
        active=active,
        awaited=awaited,
        task=task,
        sync=sync,
        mark=mark,
        moment=moment,
        thread=thread,
        since=after,
        until=until,
        origin=origin,
        span=span,
        unexplained=Intervals(unexplained.start + origin, unexplained.end + origin),
        launched=float(np.count_nonzero(known) / max(len(known), 1)),
        error=abs(replayed - (span[1] - span[0])) / max(span[1] - span[0], 1),
        assumed_gap=assumed,
        loose=loose,
    )


def _assemble(
    order: Order,
    chain: Chain,
    device: DeviceArms,
    waits: SyncArms,
    registers: I32,
    stream: I64,
    streams: int,
    dur: I64,
) -> Program:
    """Put all arms into one program, in the order of execution.

    What is no task is a sync or, from their number on, a mark. Its state: threads, streams, registers, a clock that
    stands at 0, a row that nobody reads.
    """
    registers_at = chain.threads + streams
    fixed = registers_at + int(registers.max(initial=NONE)) + 1
    trash = fixed + 1
    kind = np.int16 if trash < 1 << 15 else np.int32  # numbers of rows in little memory
    count, launched, syncs = len(order.task), order.thread >= 0, len(waits.stream)
    at_sync, at_mark = np.flatnonzero((order.sync >= 0) & (order.sync < syncs)), np.flatnonzero(order.sync >= syncs)
    of_sync = order.sync[at_sync]

    def of_tasks(values: _Column, default: int) -> _Column:
        """Lay values of tasks out by the order's numbers; where there is none it is the last, the default."""
        return np.append(values, values.dtype.type(default)).take(order.task, mode="wrap")

    def rows(numbers: I32 | I64) -> I32:
        return _once(cast(I32, numbers.astype(kind, copy=False)))

    def of_syncs(values: I64, default: int, kind: type = np.int64) -> I64:
        """Lay values of the syncs out, which are few."""
        column: I64 = np.full(count, default, kind)
        column[at_sync] = values[of_sync]
        return column

    waiting = device.awaited >= 0
    kept = np.where(waiting, registers[device.awaited], NONE)
    other = np.where(kept >= 0, registers_at + kept, chain.threads + stream[device.awaited])
    save = np.where(registers >= 0, registers_at + registers, trash)
    initial = np.full(trash + 1, LONG_AGO, np.int64)
    initial[: chain.threads] = chain.begin
    initial[fixed] = 0
    host_ns = chain.host_ns.copy()
    host_ns[at_sync] += waits.own_ns[of_sync]
    durations: I64 = of_tasks(dur, 0)
    launch_ns = of_tasks(device.launch_ns, NEVER)
    launch_ns[at_mark] = 0  # a mark is where the host is
    return Program(
        pred=rows(np.where(launched, chain.pred, trash)),
        host_ns=narrow(host_ns, SIGNED),
        waited=rows(of_syncs(chain.threads + waits.stream, trash, kind)),
        waited_ns=_once(narrow(of_syncs(waits.back_ns, NEVER), SIGNED)),
        host=rows(np.where(launched, chain.own, trash)),
        launch_ns=launch_ns,
        stream=of_tasks(rows(chain.threads + stream), trash),
        gap_ns=of_tasks(device.gap_ns, NEVER),
        other=of_tasks(rows(np.where(waiting, other, fixed)), trash),
        other_ns=_once(of_tasks(device.other_ns, NEVER)),
        extra_ns=_once(of_tasks(device.extra_ns, 0)),
        dur_ns=narrow(durations, SIGNED),
        overlap_ns=_once(of_tasks(device.overlap_ns, NEVER)),
        save=_once(of_tasks(rows(save), trash)),
        initial=initial,
    )


def _once(column: _Column) -> _Column:
    """Return a column of one value only as that value, repeated; it takes no memory and cannot be written to."""
    return np.broadcast_to(column[:1], column.shape) if bool((column == column[:1]).all()) else column


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


# -- Elasticity: by how much a window shortens when one resource gets faster, from three replays.

#: By how much each resource is made faster.
STEP: Final = 0.1


class Elasticities(Struct, frozen=True):
    """Start and end of all replayed tasks, and by how much earlier they are with each resource ten percent faster, ns.

    ``by_end``: the tasks ordered by their end; ``moment``: of the marks, as measured.
    """

    by_end: I64
    moment: I64
    base: Replayed
    earlier: dict[str, Replayed]

    @classmethod
    def of(cls, replay: Replay, work: U8) -> Elasticities:
        """Replay three times; ``work`` is of the active tasks."""
        program, base = replay.program, replay.base
        host = np.rint(program.host_ns * (1 - STEP)).astype(np.int64)
        earlier = {"host": _earlier(base, replay.times(program.with_columns(host_ns=host)))}
        del host
        for name, kind in (("compute", Work.COMPUTE), ("communication", Work.COMMUNICATION)):
            dur = program.dur_ns.copy()
            at = replay.task[work == kind]
            dur[at] = np.rint(dur[at] * (1 - STEP)).astype(np.int64)
            earlier[name] = _earlier(base, replay.times(program.with_columns(dur_ns=dur)) if len(at) else base)
        return cls(narrow(np.argsort(base.end, kind="stable")), replay.moment, base, earlier)

    def of_windows(self, windows: Intervals) -> list[Elasticity]:
        """Return the elasticities of windows whose borders are starts or ends of tasks, or marks."""
        borders = Borders.of(windows, self.base.start, self.base.end, self.by_end, self.moment)
        length, sums = borders.lengths(self.base), {}
        for name, times in self.earlier.items():
            shorter = length - borders.lengths(self.base, times)
            sums[name] = np.where(length > 0, shorter / np.maximum(length, 1) / STEP, 0.0).tolist()
        return [
            Elasticity(host=h, compute=c, communication=m)
            for h, c, m in zip(sums["host"], sums["compute"], sums["communication"], strict=True)
        ]


def _earlier(base: Replayed, faster: Replayed) -> Replayed:
    """Return by how much earlier everything starts and ends in a faster run, ns."""
    if faster is base:
        nothing = np.broadcast_to(np.int64(0), len(base.start))
        return Replayed(nothing, nothing, np.zeros_like(base.mark))
    return Replayed(narrow(base.start - faster.start), narrow(base.end - faster.end), base.mark - faster.mark)
