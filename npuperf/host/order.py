"""The host's side of the replay: in which order things were submitted, and which thread handed on to which."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from npuperf.host.enclosing import NONE
from npuperf.host.nesting import Nesting
from npuperf.host.syncs import Syncs
from npuperf.model.groups import by_code, distinct, numbered
from npuperf.model.labels import I32, I64, Mask
from npuperf.model.narrow import narrow

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


def merge(key: I64, launch_thread: I64, known: Mask, syncs: Syncs, drained: I64, to_host: int) -> Order:
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


def host_chain(order: Order, nesting: Nesting, to_host: int) -> Chain:
    """Find for each instruction which thread's clock it follows.

    A thread that did nothing of its own when another thread launched has been handed the work by it: the
    backward pass begins when the forward pass has been launched, and the next step when the backward pass has.
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
    before = _last_done(done)
    latest = np.where(earlier >= 0, done[earlier], np.iinfo(np.int64).min)
    changed = (before >= 0) & (mine[before] != mine) & (done[before] <= begin) & (done[before] >= latest)
    idle = np.zeros(len(mine), np.bool_)
    at = nesting.at(threads[mine[changed]], done[before[changed]] + to_host)
    recorded = at >= 0
    quiet = ~recorded
    quiet[recorded] = ~nesting.busy[at[recorded]]
    idle[changed] = quiet
    source = np.where(idle, before, earlier)
    first = int(begin.min())
    moment = np.minimum(np.where(source >= 0, done[source], first), begin)
    pred[hosts] = np.where(idle, mine[before], mine)
    since[hosts] = moment
    return Chain(len(threads), first, own, pred, order.begin - since, since)


def _last_done(done: I64) -> I32:
    """Return for each element which of those before it was done last, NONE for the first."""
    reach = np.maximum.accumulate(done)
    before = np.full(len(done), NONE, np.int32)
    np.maximum.accumulate(np.where(done >= reach, np.arange(len(done), dtype=np.int32), 0)[:-1], out=before[1:])
    return before


def previous_same(group: I32 | I64) -> I32:
    """Return for each element the index of the previous one of the same group, NONE if there is none."""
    which = numbered(group)[1]
    order = by_code(which).astype(np.int32)
    previous = np.empty(len(group), np.int32)
    previous[order[1:]] = order[:-1]
    size = np.bincount(which)
    previous[order[np.cumsum(size) - size]] = NONE
    return previous
