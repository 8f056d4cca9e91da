"""Blame: what the host was doing while the device waited for it.

Every nanosecond of host wait goes to the innermost event that was recorded on the launching thread at that
time. A thread with nothing of its own to do (a task queue's consumer, the backward thread before its first
operator) passes the blame on: to the thread of the torch operator behind the kernel, then to the main thread.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.documents.analysis import Blame
from npuperf.host.causes import CAUSES, CODE
from npuperf.host.nesting import Nesting, Pieces
from npuperf.model.groups import largest, numbered, sums_of
from npuperf.model.host import HostOps
from npuperf.model.labels import I64, U8, Mask
from npuperf.model.narrow import narrow
from npuperf.model.tasks import Tasks
from npuperf.timeline.partition import Gaps

#: What a line is called that stands for no event, and for events beyond those that are listed.
NOTHING: Final = "nothing recorded"
OTHERS: Final = "others"
#: How many of a cause's longest pieces are asked for their code line.
_CANDIDATES = 4


class HostThreads(Struct, frozen=True):
    """Who may be to blame: per task its launching thread and its torch operator's, and the main thread."""

    launch: I64
    op: I64
    main: int

    @classmethod
    def of(cls, tasks: Tasks, host: HostOps, main: int) -> HostThreads:
        """Take the threads from launches and operators; -1 where unknown."""
        if not len(host.ops):
            return cls(tasks.launch_thread, np.full(len(tasks), -1), main)
        return cls(tasks.launch_thread, narrow(np.where(tasks.op >= 0, host.ops.thread[tasks.op], -1)), main)


class Blamed(Struct, frozen=True):
    """Host wait in pieces, ordered by time: device clock (ns), the event to blame (NONE: nothing recorded), cause."""

    start: I64
    end: I64
    event: I64
    cause: U8

    def within(self, start: int, end: int) -> Blamed:
        """Return the pieces inside a window, cut at its borders."""
        a, b = np.searchsorted(self.end, start, side="right"), np.searchsorted(self.start, end)
        cut = slice(int(a), int(b))
        return Blamed(
            np.maximum(self.start[cut], start), np.minimum(self.end[cut], end), self.event[cut], self.cause[cut]
        )


def main_thread(host: HostOps) -> int:
    """Return the thread with the steps, else that with most operators, else -1."""
    events = host.events
    steps = np.flatnonzero(events.name.flag([n.startswith("ProfilerStep#") for n in events.name.names]))
    threads = events.thread[steps] if len(steps) else host.ops.thread
    if not len(threads):
        return -1
    values, counts = np.unique(threads, return_counts=True)
    return int(values[np.argmax(counts)])


def blame_waits(gaps: Gaps, threads: HostThreads, nesting: Nesting, skew: int) -> Blamed:
    """Blame every nanosecond of host wait on one host event."""
    real = np.flatnonzero(gaps.known & (gaps.submitted > gaps.start))
    task = gaps.task[real]
    chain = (threads.launch[task], threads.op[task], np.full(len(task), threads.main))
    pieces = blame(chain, gaps.start[real] + skew, gaps.submitted[real] + skew, nesting)
    order = np.argsort(pieces.start, kind="stable")
    event = narrow(pieces.event[order])
    return Blamed(pieces.start[order] - skew, pieces.end[order] - skew, event, event_causes(event, nesting))


def blame(chain: tuple[I64, ...], start: I64, end: I64, nesting: Nesting) -> Pieces:
    """Cut intervals (host clock) into pieces by innermost event, passing idle time on along the chain of threads.

    The last answer counts where no thread of the chain was busy: the frame or range it was in, or NONE. A thread that
    stands in the chain several times in a row, to its end, is asked once.
    """
    owner, done = np.arange(len(start)), []
    for level, thread in enumerate(chain):
        pieces = nesting.pieces(thread[owner], start, end)
        others = np.zeros(len(thread), np.bool_)
        for later in chain[level + 1 :]:
            others |= later != thread
        passed = others[owner].take(pieces.owner)
        if passed.any():
            passed &= ~_busy(pieces.event, nesting)
        mine, rest = pieces.filter(~passed), pieces.filter(passed)
        done.append(Pieces(owner[mine.owner], mine.start, mine.end, mine.event))
        owner, start, end = owner[rest.owner], rest.start, rest.end
        if not len(owner):
            break
    return Pieces.join(done)


def _busy(event: I64, nesting: Nesting) -> Mask:
    """Tell where a thread has something of its own to do; where nothing was recorded it has not."""
    if not len(nesting.busy):
        return np.zeros(len(event), np.bool_)
    busy = nesting.busy.take(event, mode="wrap")  # NONE is any place
    busy &= event >= 0
    return busy


def event_causes(event: I64, nesting: Nesting) -> U8:
    """Return the cause that time in each event is blamed on; ``unrecorded`` without one, and in a bare step."""
    if not len(nesting.events):
        return np.full(len(event), CODE["unrecorded"], np.uint8)
    return np.where(event >= 0, nesting.blamed[event], np.uint8(CODE["unrecorded"])).astype(np.uint8)


def sum_blame(blamed: Blamed, host: HostOps, nesting: Nesting, top: int) -> list[Blame]:
    """Sum pieces by cause and name, the largest first; beyond ``top`` names each cause's rest is one line.

    The sums add up to the pieces exactly.
    """
    length = blamed.end - blamed.start
    names = nesting.events.name
    code = np.where(blamed.event >= 0, names.codes[blamed.event], -1) if len(names) else np.full(len(length), -1)
    code = np.where(blamed.cause == CODE["unrecorded"], -1, code)
    key = blamed.cause.astype(np.int64) * (len(names.names) + 1) + code + 1
    groups, which = numbered(key)
    total = sums_of(which, length, len(groups))
    count = np.bincount(which, minlength=len(groups))
    rows: list[Blame] = []
    rest: dict[str, tuple[int, int]] = {}
    for place, g in enumerate(np.argsort(-total, kind="stable").tolist()):
        cause_code, name_code = divmod(int(groups[g]), len(names.names) + 1)
        cause = CAUSES[cause_code]
        if place < top or cause not in {r.cause for r in rows}:
            name = names.names[name_code - 1] if name_code else NOTHING
            where = line_of(blamed, np.flatnonzero(which == g), length, host, nesting)
            rows.append(Blame(cause=cause, name=name, ns=int(total[g]), count=int(count[g]), where=where))
            continue
        so_far = rest.get(cause, (0, 0))
        rest[cause] = so_far[0] + int(total[g]), so_far[1] + int(count[g])
    others = [Blame(cause=c, name=OTHERS, ns=ns, count=n, where=None) for c, (ns, n) in rest.items()]
    return sorted([*rows, *others], key=lambda b: -b.ns)


def line_of(blamed: Blamed, members: I64, length: I64, host: HostOps, nesting: Nesting) -> str | None:
    """Return the code line of the longest pieces for which one was recorded."""
    longest = members[largest(length[members], _CANDIDATES)]
    for event in blamed.event[longest].tolist():
        if event >= 0 and (line := host.line_at(int(nesting.events.thread[event]), int(nesting.events.start[event]))):
            return line
    return None
