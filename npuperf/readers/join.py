"""Exact joins on columns of integers; -1 stands for no row."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.units import NS_PER_US
from npuperf.model.groups import distinct, sorted_rows
from npuperf.model.host import Spans, is_profiler_frame
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import NO_TIME

#: Possible keys per row up to which a place for each of them costs less than sorting.
_DENSE = 8


def match(wanted: I64, table: I64) -> I64:
    """Return for each key its index in ``table`` (first of equals), -1 where absent."""
    if not len(table) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    if len(wanted) == len(table) and wanted[-1] == table[-1] and (wanted == table).all():
        ordered = np.sort(table)
        if (ordered[1:] > ordered[:-1]).all():  # the same keys, each once, as what is written in pairs has
            return np.arange(len(table))
    low, high = int(table.min()), int(table.max())
    if high - low < _DENSE * len(table):  # a place for each possible key, a last one for all others, and no search
        small = len(table) <= np.iinfo(np.int32).max
        rows = np.full(high - low + 2, -1, np.int32 if small else np.int64)
        rows[(table - low)[::-1]] = np.arange(len(table))[::-1]  # of equals the last that is written stays
        place = wanted.astype(np.int64, copy=False) - low
        place[(wanted < low) | (wanted > high)] = high - low + 1
        return rows.take(place).astype(np.int64, copy=False)
    ordered, order = _in_order(table)
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[at] == wanted, at if order is None else order[at], -1)


def _in_order(table: I64) -> tuple[I64, I64 | None]:
    """Return the keys in order, and which rows these are; None: as they stand, which to see costs less than to sort."""
    if (table[1:] >= table[:-1]).all():
        return table, None
    order = sorted_rows(table)
    return table[order], order


def pick(values: I64, at: I64, missing: int = -1) -> I64:
    """Return the values at these indices, ``missing`` where an index is -1."""
    if not len(values):
        return np.full(len(at), missing, np.int64)
    found = values[at].astype(np.result_type(values, np.int64), copy=False)
    found[at < 0] = missing
    return found


def pack(left: tuple[I64, ...], right: tuple[I64, ...]) -> tuple[I64, I64]:
    """Fold several key columns into one, the same way on both sides: equal keys stay equal."""
    wanted, table = (np.zeros(len(side[0]), np.int64) for side in (left, right))
    reach = 1  # keys are below it so far
    for a, b in zip(left, right, strict=True):
        some = [x for x in (a, b) if len(x)]
        if not some:
            break
        low, high = min(int(x.min()) for x in some), max(int(x.max()) for x in some)
        spread = high - low + 1
        if reach * spread >= 1 << 62:  # far apart: number the distinct values first
            _, codes = np.unique(np.concatenate([wanted, table]), return_inverse=True)
            wanted, table = codes[: len(wanted)], codes[len(wanted) :]
            values, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
            a, b = codes[: len(a)], codes[len(a) :]
            spread, low, reach = len(values), 0, len(wanted) + len(table)
        for keys, column in ((wanted, a), (table, b)):
            keys *= spread
            keys += column
            keys -= low
        reach *= spread
    return wanted, table


def shared_codes(left: Labels, right: Labels) -> tuple[I64, I64]:
    """Return the names of two columns as keys: equal names have equal ones, and no name is -1."""
    codes = Labels.concat([left, right]).codes.astype(np.int64)
    return codes[: len(left)], codes[len(left) :]


def match_keys(wanted: tuple[I64, ...], table: tuple[I64, ...]) -> I64:
    """Match on several columns at once; see :func:`match`."""
    return match(*pack(wanted, table))


def enclosing(group: I64, time: I64, spans_group: I64, start: I64, end: I64, slack: int = 0) -> I64:
    """Return for each (group, time) the index of the span of that group around it, -1 if none.

    Spans of one group must not overlap (launch calls of one thread do not). ``slack``: how long after its end a
    span still counts, as clocks of different layers disagree.
    """
    if not len(start) or not len(time):
        return np.full(len(time), -1, np.int64)
    wanted, table = pack((group, time), (spans_group, start))
    ordered, order = _in_order(table)
    i = np.maximum(np.searchsorted(ordered, wanted, side="right") - 1, 0)
    i = i if order is None else order[i]
    inside = (spans_group[i] == group) & (start[i] <= time) & (time <= end[i] + slack)
    return np.where(inside, i, -1)


# -- Who is behind a task, whatever the kind of file: the torch operator that had it launched, the user's frames.

#: By how much, ns, the clocks of torch_npu and CANN may disagree on one thread.
_LAYER_SLACK: Final = 5_000
#: How long, ns, a tracer may take to write down the frames that were open when it began.
_OPENING: Final = 1000 * NS_PER_US
_FRAME: Final = re.compile(r"(?P<file>.+?)(?P<line>\(\d+\)): (?P<function>.*)")


class Queue(Struct, frozen=True):
    """torch_npu's task queue: what its consumer took out, and thread and time of the call that put it in.

    ``from_thread`` -1: that call was not recorded.
    """

    thread: I64
    start: I64
    end: I64
    from_thread: I64
    from_time: I64


def behind_launches(ops: Spans, queue: Queue, thread: I64, time: I64, op: I64) -> I64:
    """Find the operator of tasks for which the file names none (some exports leave most of them out).

    It is the one around the launch or, where a task queue's consumer launched, around the call that put the work
    into the queue.
    """
    open_ = np.flatnonzero((op < 0) & (time != NO_TIME))
    if not len(open_) or not len(ops):
        return op
    thread, time = thread[open_], time[open_]
    if len(queue.start):
        around = enclosing(thread, time, queue.thread, queue.start, queue.end, _LAYER_SLACK)
        queued = (around >= 0) & (queue.from_thread[around] >= 0)
        thread = np.where(queued, queue.from_thread[around], thread)
        time = np.where(queued, queue.from_time[around], time)
    found = op.copy()
    found[open_] = ops.latest(thread, time)
    return found


def carrying(connection: I64, start: I64, carried: I64) -> I64:
    """Return for each connection the call that carries it: the first to begin, as calls that share one are nested."""
    order = np.argsort(start, kind="stable")
    return pick(order, match(connection, carried[order]))


def user_frames(frames: Spans, others: Spans, stacks: Labels) -> Spans:
    """Return frames of the user's code as lines of code are named from them.

    A frame that was open when the tracer began has the line that was then run, which is where the profiler was
    started: only its function is true of all the time that it stays open. ``others``: all frames, the profiler's among
    them. Tracers cut paths off in front that recorded stacks have whole: of the same file both get one name.
    """
    opened = _open_at_start(frames, others)
    names = frames.name.compact()
    whole = _whole_paths(names, stacks)
    named = [_named(name, whole, line=True) for name in names.names]
    without = [_named(name, whole, line=False) for name in names.names]
    codes = names.codes + np.where(opened, len(named), 0)
    tidy = Labels.of([*named, *without])
    return Spans(frames.start, frames.end, frames.thread, tidy.take(codes.astype(np.int64)))


def _open_at_start(frames: Spans, others: Spans) -> Mask:
    """Tell the frames that the tracer found open: outer ones that begin with a profiler's first frame of a thread."""
    opened = np.zeros(len(frames), np.bool_)
    profiler = others.name.flag([is_profiler_frame(n) for n in others.name.names])
    for thread in distinct(others.thread[profiler]).tolist():
        mine = np.flatnonzero(profiler & (others.thread == thread))
        first = mine[np.argmin(others.start[mine])]
        begin, end = int(others.start[first]), int(others.end[first])
        near = (frames.start <= begin) & (frames.start >= begin - _OPENING) & (frames.end >= end)
        opened |= (frames.thread == thread) & near
    return opened


def _whole_paths(frames: Labels, stacks: Labels) -> dict[str, str]:
    """Return the path that recorded stacks have of each frame's file, where there is just one."""
    files = {m["file"] for name in frames.names if (m := _FRAME.fullmatch(name)) and not name.startswith("/")}
    lines: set[str] = set()
    for stack in stacks.names if files else ():
        lines.update(stack.split(";"))
    paths = {m["file"] for line in lines if (m := _FRAME.fullmatch(line.strip()))}
    alike: dict[str, list[str]] = {}
    for path in paths:
        alike.setdefault(path.rpartition("/")[2], []).append(path)
    found = {f: [p for p in alike.get(f.rpartition("/")[2], ()) if p.endswith(f"/{f}")] for f in files}
    return {file: path[0] for file, path in found.items() if len(path) == 1}


def _named(name: str, whole: dict[str, str], *, line: bool) -> str:
    found = _FRAME.fullmatch(name)
    if found is None:
        return name
    path = whole.get(found["file"], found["file"])
    if line:
        return f"{path}{found['line']}: {found['function']}"
    return f"{'/'.join(path.split('/')[-2:])} {found['function']}"
