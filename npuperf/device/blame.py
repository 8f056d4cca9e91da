"""Blame: what the host was doing while the device waited for it.

Every nanosecond of host wait goes to the innermost event that was recorded on the launching thread at that
time. A thread with nothing of its own to do (a task queue's consumer, the backward thread before its first
operator) passes the blame on: to the thread of the torch operator behind the kernel, then to the main thread.
"""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
from msgspec import Struct

from npuperf.device.host_events import BETWEEN, CAUSES, CODE, Nesting, Pieces, flag_causes
from npuperf.device.partition import Gaps
from npuperf.device.syncs import Syncs
from npuperf.model.groups import first_rows, largest, numbered, sums_of
from npuperf.model.host import HostOps
from npuperf.model.intervals import narrow
from npuperf.model.labels import I64, U8, Columns, Mask
from npuperf.model.names import is_step
from npuperf.model.result import Blame
from npuperf.model.tasks import Tasks

S = TypeVar("S", bound="TimedPieces")
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


class TimedPieces(Columns, frozen=True):
    """Pieces of time, ordered, a row each: device clock (ns)."""

    start: I64
    end: I64

    def within(self: S, start: int, end: int) -> S:
        """Return the pieces inside a window, cut at its borders."""
        a, b = np.searchsorted(self.end, start, side="right"), np.searchsorted(self.start, end)
        columns = {name: getattr(self, name)[int(a) : int(b)] for name in self.__struct_fields__}
        columns["start"], columns["end"] = np.maximum(columns["start"], start), np.minimum(columns["end"], end)
        return type(self)(**columns)


class Blamed(TimedPieces, frozen=True):
    """Host wait in pieces: the event to blame (NONE: nothing recorded), and the cause."""

    event: I64
    cause: U8


def main_thread(host: HostOps) -> int:
    """Return the thread with the steps, else that with most operators, else -1."""
    events = host.events
    steps = np.flatnonzero(events.name.flag([is_step(n) for n in events.name.names]))
    threads = events.thread[steps] if len(steps) else host.ops.thread
    if not len(threads):
        return -1
    values, counts = np.unique(threads, return_counts=True)
    return int(values[np.argmax(counts)])


def blame_waits(gaps: Gaps, threads: HostThreads, nesting: Nesting, skew: int) -> Blamed:
    """Blame every nanosecond of host wait on one host event."""
    real = np.flatnonzero(gaps.known & (gaps.submitted > gaps.start))
    task = gaps.task[real]
    main = np.full(len(task), threads.main)
    # where no task ends the gap nobody launches: it is the main thread that does something else
    chain = (np.where(task >= 0, threads.launch[task], main), np.where(task >= 0, threads.op[task], main), main)
    pieces = blame_intervals(chain, gaps.start[real] + skew, gaps.submitted[real] + skew, nesting)
    order = np.argsort(pieces.start, kind="stable")
    event = narrow(pieces.event[order])
    return Blamed(pieces.start[order] - skew, pieces.end[order] - skew, event, event_causes(event, nesting))


def blame_intervals(chain: tuple[I64, ...], start: I64, end: I64, nesting: Nesting) -> Pieces:
    """Cut intervals (host clock) into pieces by innermost event, passing idle time on along the chain of threads.

    The last answer counts where no thread of the chain was busy: the frame or range it was in, or NONE; of a bare step
    that is the frame around it. A thread that stands in the chain several times in a row, to its end, is asked once.
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
    found = Pieces.join(done)
    return Pieces(found.owner, found.start, found.end, nesting.around_steps(found.event))


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


class NamedPieces(Struct, frozen=True):
    """Pieces of one name: how long they are together (ns), how many, and their rows.

    Of the ``others`` of a kind, pieces of all the names that are not listed, with a row of each name.
    """

    ns: int
    count: int
    rows: I64
    others: bool


def longest_names(kind: U8, key: I64, length: I64, top: int) -> list[NamedPieces]:
    """Sum pieces by name (``key``), the longest first; beyond ``top`` names the others of each kind are one.

    No kind is without a name: its longest one is listed in any case. The sums add up to the pieces exactly.
    """
    names, which = numbered(key)
    total, count = sums_of(which, length, len(names)), np.bincount(which, minlength=len(names))
    first = first_rows(which, len(names))
    kinds, listed = kind[first].tolist(), []
    others: dict[int, list[int]] = {}
    seen = set[int]()
    for place, name in enumerate(np.argsort(-total, kind="stable").tolist()):
        if place < top or kinds[name] not in seen:
            seen.add(kinds[name])
            listed.append(NamedPieces(int(total[name]), int(count[name]), np.flatnonzero(which == name), others=False))
        else:
            others.setdefault(kinds[name], []).append(name)
    for own in others.values():
        listed.append(NamedPieces(int(total[own].sum()), int(count[own].sum()), first[own], others=True))
    return sorted(listed, key=lambda one: -one.ns)


def sum_blame(blamed: Blamed, host: HostOps, nesting: Nesting, top: int) -> list[Blame]:
    """Sum pieces by cause and name, the largest first; beyond ``top`` names each cause's rest is one line."""
    length, names = blamed.end - blamed.start, nesting.events.name
    name = names.take(np.where(blamed.cause == CODE["unrecorded"], -1, blamed.event))
    key = blamed.cause.astype(np.int64) * (len(names.names) + 1) + name.codes + 1
    return [
        Blame(
            cause=CAUSES[blamed.cause[one.rows[0]]],
            name=OTHERS if one.others else NOTHING if (text := name[int(one.rows[0])]) is None else text,
            ns=one.ns,
            count=one.count,
            where=None if one.others else line_of(blamed, one.rows, length, host, nesting),
        )
        for one in longest_names(blamed.cause, key, length, top)
    ]


def line_of(blamed: Blamed, members: I64, length: I64, host: HostOps, nesting: Nesting) -> str | None:
    """Return the code line of the longest pieces for which one was recorded."""
    longest = members[largest(length[members], _CANDIDATES)]
    for event in blamed.event[longest].tolist():
        if event >= 0 and (line := host.line_at(int(nesting.events.thread[event]), int(nesting.events.start[event]))):
            return line
    return None


# -- Pauses: stretches of host time that are too long to be a part of launching, and hold nothing of it.
#
# Between two launches a program runs code of its own, for microseconds. Where that takes as long as a pause, the
# program does something else: it waits for requests, writes a checkpoint, prepares its data. A faster launch shortens
# none of it.


def pauses(owner: I64, length: I64, causes: U8, count: int, least: int) -> Mask:
    """True for the pieces of host time that are pauses.

    ``owner``: the stretch between two launches that each piece is of, one of ``count``; ``causes``: what it is blamed
    on; ``least``: how long the pieces of a stretch that are no launching take together to be a pause, ns.
    """
    between = flag_causes(causes, BETWEEN)
    total = np.bincount(owner[between], weights=length[between], minlength=count)
    return between & (total[owner] >= least) if len(owner) else between


def paused(blamed: Blamed, gaps: Gaps, least: int) -> Blamed:
    """Return the pieces of host wait that are pauses."""
    gap = np.maximum(np.searchsorted(gaps.start, blamed.start, side="right") - 1, 0)
    stretch = flag_causes(blamed.cause, ("launch",))  # a launch ends it, also one of which no task is known
    stretch[1:] |= gap[1:] != gap[:-1]
    owner = np.cumsum(stretch, dtype=np.int64)
    chosen = pauses(owner, blamed.end - blamed.start, blamed.cause, len(owner) + 1, least)
    return blamed.filter(chosen)


# -- How long the device idled that ran dry while the host was in some of its waits.


class IdleAfter(Struct, frozen=True):
    """Idle time by the waits of the host in which it began, ready to be summed for any of them.

    ``so_far``: the idle time, ns, of the gaps before each one, but for pauses of the host: they have nothing to do with
    its waits. ``first``: per wait the first gap that began in it or later, ``last``: the first one that began after it.
    """

    start: I64
    so_far: I64
    first: I64
    last: I64

    @classmethod
    def of(cls, syncs: Syncs, gaps: Gaps, pauses: Blamed, skew: int, span: tuple[int, int]) -> IdleAfter:
        """Look at the gaps that began within ``span``; ``skew`` leads from the device's clock to the host's."""
        idle = gaps.ready - gaps.start
        gap = np.searchsorted(gaps.start, pauses.start, side="right") - 1
        np.subtract.at(idle, gap, pauses.end - pauses.start)
        chosen = gaps.known & (gaps.start >= span[0]) & (gaps.start < span[1])
        began = gaps.start + skew
        return cls(
            start=syncs.start,
            so_far=np.concatenate([[0], np.cumsum(np.where(chosen, idle, 0))]),
            first=np.searchsorted(began, syncs.start),
            last=np.searchsorted(began, syncs.end, side="right"),
        )

    def total(self, calls: I64) -> int:
        """Sum up for some waits, ns. Of waits beside each other the one that began last counts."""
        order = calls[np.argsort(self.start[calls], kind="stable")]
        first = self.first[order]
        until = np.append(first[1:], len(self.so_far) - 1)
        last = np.minimum(self.last[order], until)
        return int((self.so_far[np.maximum(last, first)] - self.so_far[first]).sum())
