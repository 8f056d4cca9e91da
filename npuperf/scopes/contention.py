"""Contention for cores: kernels that are launched and next in line while other streams leave them too few cores.

A wait for an event looks the same in the kernel table: a kernel starts when one of another stream has ended. Only
a recorded event wait in front of it tells the two apart, so a wait counts as certain only where the profile
records events and no wait stands there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple, replace

from npuperf.cores.sweep import Sweep
from npuperf.documents.analysis import Contention, CoresOverTime
from npuperf.host.enclosing import NONE
from npuperf.host.order import previous_same
from npuperf.messages import say
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.replay.arms import is_event_wait, records_events
from npuperf.timeline.launches import Launches

NO_LAUNCHES: Final = say(
    "launches are not recorded, so it is unknown when a kernel was ready: record with npuperf profile --level 1"
)
NO_EVENTS: Final = say("no events are recorded, so any of these waits may be for another stream's result")
#: Pieces of waits looked at together.
_PORTION: Final = 1 << 20


class Waits(Struct, frozen=True):
    """Waits for cores: kernel ``kernel`` (an index into the sweep's kernels) of task ``task`` was ready at ``since``.

    Until ``until`` (its start) there were too few free cores for it during ``short_ns``, and none on a side that it
    needs during ``full_ns``. ``holders``: the streams that ran last before it began, as the sweep's bits;
    ``certain``: it waited for nothing else.
    """

    kernel: I64
    task: I64
    since: I64
    until: I64
    short_ns: I64
    full_ns: I64
    holders: I64
    certain: Mask

    def filter(self, chosen: Mask) -> Waits:
        """Return some of the waits."""
        return Waits(*(values[chosen] for values in astuple(self)))


def find_waits(tasks: Tasks, launches: Launches, sweep: Sweep, thresholds: Thresholds, *, graph: bool) -> Waits:
    """Find all waits for cores of the kernels of a sweep over ``tasks`` (ordered by start).

    ``graph``: kernels without a launch of their own belong to graphs, which are submitted as a whole.
    """
    ready, behind = _ready(tasks, launches)
    submitted = launches.known | (graph & (ready > np.iinfo(np.int64).min))
    late = submitted & (ready <= tasks.start - thresholds.wait_least_ns)
    kernel = np.flatnonzero(late[sweep.index])
    task = sweep.index[kernel]
    since, until = ready[task], tasks.start[task]
    short, full = np.zeros(len(task), np.int64), np.zeros(len(task), np.int64)
    for wait, begin, end, none in _lacking(sweep, kernel, since, until):
        np.add.at(short, wait, end - begin)
        np.add.at(full, wait[none], (end - begin)[none])
    certain = records_events(tasks).any() & ~behind[task]
    found = Waits(kernel, task, since, until, short, full, _holders(sweep, until), certain)
    return found.filter(short >= thresholds.wait_least_ns)


def _ready(tasks: Tasks, launches: Launches) -> tuple[I64, Mask]:
    """Return when each task could have started, and whether an event wait stands right in front of it.

    It is launched, and everything before it on its stream has ended, waits included.
    """
    before = previous_same(tasks.stream)
    free = np.where(before >= 0, tasks.end[before], np.iinfo(np.int64).min)
    waiting = is_event_wait(tasks)
    behind = np.zeros(len(tasks), np.bool_)
    at = before
    for _ in range(3):  # a record or two may stand between the wait and the kernel
        control = (at >= 0) & (tasks.work[at] == Work.CONTROL)
        behind |= control & waiting[at]
        at = np.where(control, before[at], NONE)
    return np.maximum(np.where(launches.known, launches.end + launches.latency, free), free), behind


def _lacking(sweep: Sweep, kernel: I64, since: I64, until: I64) -> Iterator[tuple[I64, I64, I64, Mask]]:
    """Yield the pieces of each wait in which too few cores are free for its kernel: wait, start, end, whether none is.

    Pieces come in portions, so that memory does not grow with how long kernels wait.
    """
    first = np.maximum(np.searchsorted(sweep.border, since, side="right") - 1, 0)
    last = np.minimum(np.searchsorted(sweep.border, until, side="left"), len(sweep.border) - 1)
    count = np.maximum(last - first, 0)
    so_far = np.concatenate([[0], np.cumsum(count)])
    begin = 0
    while begin < len(kernel):
        end = max(int(np.searchsorted(so_far, so_far[begin] + _PORTION, side="right")) - 1, begin + 1)
        mine = np.arange(begin, end)
        wait = np.repeat(mine, count[mine])
        piece = first[wait] + np.arange(len(wait)) - (so_far[wait] - so_far[begin])
        short, none = np.zeros(len(wait), np.bool_), np.zeros(len(wait), np.bool_)
        for need, (cores, wanted) in zip((sweep.cube, sweep.vector), sweep.sides, strict=True):
            needed, free = need[kernel[wait]], cores - wanted[piece]
            short |= (needed > 0) & (free < needed)
            none |= (needed > 0) & (free < 1)
        wait, piece, none = wait[short], piece[short], none[short]
        yield (
            wait,
            np.maximum(sweep.border[piece], since[wait]),
            np.minimum(sweep.border[piece + 1], until[wait]),
            none,
        )
        begin = end


def _holders(sweep: Sweep, until: I64) -> I64:
    """Return the streams that ran last before each wait ended."""
    last = np.maximum.accumulate(np.where(sweep.running > 0, np.arange(len(sweep.running)), 0))
    piece = np.searchsorted(sweep.border, until, side="left") - 1
    return sweep.streams[last[np.clip(piece, 0, len(last) - 1)]]


def with_contention(use: CoresOverTime, tasks: Tasks, waits: Waits, sweep: Sweep) -> CoresOverTime:
    """Return the use of cores with the waits for them, summed by stream and holders."""
    stream = tasks.stream[waits.task]
    rows = []
    for bits, number in sorted(set(zip(waits.holders.tolist(), stream.tolist(), strict=True))):
        mine = (waits.holders == bits) & (stream == number)
        rows.append(
            Contention(
                stream=number,
                holders=[s for s in sweep.names(bits) if s != number],
                kernels=int(mine.sum()),
                least_ns=int(waits.short_ns[mine & waits.certain].sum()),
                most_ns=int(waits.short_ns[mine].sum()),
                full_ns=int(waits.full_ns[mine].sum()),
            )
        )
    return replace(
        use,
        contention=sorted(rows, key=lambda r: -r.most_ns),
        contended_ns=_contended(waits, sweep),
        contention_reason=NO_EVENTS if rows and not records_events(tasks).any() else None,
    )


def _contended(waits: Waits, sweep: Sweep) -> tuple[int, int]:
    """Return in how much time at least one kernel waited for cores: for certain, and at most (ns)."""
    certain: list[Intervals] = []
    most: list[Intervals] = []
    for wait, begin, end, _ in _lacking(sweep, waits.kernel, waits.since, waits.until):
        sure = waits.certain[wait]
        certain.append(Intervals.union(begin[sure], end[sure]))
        most.append(Intervals.union(begin, end))
    return _total(certain), _total(most)


def _total(parts: Sequence[Intervals]) -> int:
    """Return how much time some sets cover together, ns."""
    if not parts:
        return 0
    return Intervals.union(*(np.concatenate([getattr(p, e) for p in parts]) for e in ("start", "end"))).total()
