"""Who is behind a task, whatever the kind of file: the torch operator that had it launched, the user's frames."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.model.groups import distinct
from npuperf.model.host import Spans, is_profiler_frame
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import NO_TIME
from npuperf.readers.join import enclosing, match, pick
from npuperf.units import NS_PER_US

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
