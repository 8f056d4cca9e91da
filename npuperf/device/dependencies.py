"""What the idle device waited for once the next task was launched: each dependency wait by its evidence.

The most direct evidence comes first, and every nanosecond has one answer:

1. a task of another stream that ended just before the next one began, though that could have begun earlier;
2. a recorded wait for an event or notification on its stream, for as long as it lasts;
3. the launch, where the task began soon after it, and the step from one task of a stream to the next;
4. a call of the host that may hold up the device (a blocking copy, memory) and returned just as the task began;
5. the call that launched it, where the end of the launch itself is not recorded;
6. nothing recorded. That the host, too, waited for the device meanwhile is no cause, but worth knowing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from npuperf.base.messages import Message, say
from npuperf.base.units import NS_PER_US
from npuperf.device.blame import NOTHING, OTHERS, HostThreads, TimedPieces, longest_names
from npuperf.device.host_events import BLOCKING_COPY, BUSY, NONE, WAITING, Nesting, flag_causes
from npuperf.device.order import began_within, previous_same
from npuperf.device.partition import Gaps, Launches
from npuperf.device.study import Study
from npuperf.model.groups import distinct, largest, sorted_rows
from npuperf.model.host import HostOps
from npuperf.model.labels import I64, U8, Columns, Labels, Mask
from npuperf.model.names import names_for
from npuperf.model.result import Dependency, DependencyKind
from npuperf.model.tasks import NO_TIME, Tasks, Work
from npuperf.model.thresholds import Thresholds

#: What a device may wait for.
KINDS: Final[tuple[DependencyKind, ...]] = get_args(DependencyKind)
KIND: Final = {name: np.uint8(code) for code, name in enumerate(KINDS)}
_OF_WORK: Final[dict[int, DependencyKind]] = {
    Work.COMPUTE: "stream",
    Work.COMMUNICATION: "communication",
    Work.OTHER: "copy",
}
#: Rows with which a stream waits, and those that end such waits.
_WAIT: Final = re.compile(r"wait", re.I)
_RECORD: Final = re.compile(r"(event|notify).?record|record.?(event|notify)", re.I)
#: Calls of the runtime that may hold up the device, besides blocking copies: memory that is taken or given back.
_HOLDING: Final = names_for("holding")


class Dependencies(TimedPieces, frozen=True):
    """Dependency wait in pieces: the task that waited, and what for.

    ``source`` is the task waited for (or the row of the wait, of kind event), ``event`` the host event, ``stream`` the
    one waited for; NONE where the kind has none. Of kind unrecorded ``event`` is what the host waited in meanwhile, and
    ``stream`` the one of which the wait lies between two tasks. ``certain``: recorded rather than inferred.
    """

    task: I64
    kind: U8
    source: I64
    event: I64
    stream: I64
    certain: Mask

    @classmethod
    def join(cls, parts: list[Dependencies]) -> Dependencies:
        """Append pieces and order them by time."""
        columns = [np.concatenate([getattr(p, name) for p in parts]) for name in cls.__struct_fields__]
        order = np.argsort(columns[0], kind="stable")
        return cls(*(column[order] for column in columns))


class _Unexplained(Columns, frozen=True):
    """Parts of waits that are not explained yet: the gap, from and to."""

    gap: I64
    start: I64
    end: I64

    def named(
        self,
        task: I64,
        kind: DependencyKind | U8,
        *,
        source: I64 | None = None,
        event: I64 | None = None,
        stream: I64 | None = None,
        certain: Mask | bool = False,
    ) -> Dependencies:
        """Say what these parts waited for; ``task``: per gap, which one waited."""
        n, none = len(self.gap), np.full(len(self.gap), NONE)
        return Dependencies(
            start=self.start,
            end=self.end,
            task=task[self.gap],
            kind=np.full(n, KIND[kind]) if isinstance(kind, str) else kind,
            source=none if source is None else source,
            event=none if event is None else event,
            stream=none if stream is None else stream,
            certain=np.broadcast_to(np.asarray(certain, np.bool_), n).copy(),
        )


def find_dependencies(
    tasks: Tasks, launches: Launches, gaps: Gaps, threads: HostThreads, nesting: Nesting, thresholds: Thresholds
) -> Dependencies:
    """Find for every nanosecond of dependency wait what the device waited for."""
    real = np.flatnonzero(gaps.known & (gaps.end > gaps.ready))
    task, waits = gaps.task[real], _EventWaits.of(tasks)
    follower = _Followers.of(tasks, launches, gaps.start[real], gaps.end[real], task, waits, thresholds)
    every = _Unexplained(np.arange(len(real)), gaps.ready[real], gaps.end[real])
    across = follower.awaited >= 0
    source = follower.awaited[across]
    kinds = np.array([KIND[_OF_WORK.get(w, "stream")] for w in Work], np.uint8)
    found = [
        every.filter(across).named(
            task, kinds[tasks.work[source]], source=source, stream=tasks.stream[source], certain=follower.behind[across]
        )
    ]
    held, rest = waits.cut(every.filter(~across), follower.stream, task, tasks, thresholds)
    found.append(held)
    alone: tuple[tuple[DependencyKind, Mask], ...] = (("launch", follower.slow), ("switch", follower.follows))
    for kind, chosen in alone:
        mine = chosen[rest.gap]
        found.append(rest.filter(mine).named(task, kind, certain=kind == "switch"))
        rest = rest.filter(~mine)
    host = _Host(nesting, launches.skew, tasks, threads, thresholds)
    return Dependencies.join([*found, *host.explain(rest, task, follower.between)])


class _Followers(Struct, frozen=True):
    """Per gap, of the task that ends it: its stream, and what the device's rows say of its start.

    ``awaited``: the task of another stream that it began after; ``behind``: its stream had to wait for an event
    first; ``slow``: it began soon after its launch; ``follows``: soon after the task before it on its stream;
    ``between``: the stream of which the gap lies between two tasks, NONE where it does not.
    """

    stream: I64
    awaited: I64
    behind: Mask
    slow: Mask
    follows: Mask
    between: I64

    @classmethod
    def of(
        cls,
        tasks: Tasks,
        launches: Launches,
        start: I64,
        end: I64,
        task: I64,
        waits: _EventWaits,
        thresholds: Thresholds,
    ) -> _Followers:
        active = np.flatnonzero(tasks.work != Work.CONTROL)
        before = np.full(len(tasks), NONE)
        previous = previous_same(tasks.stream[active])
        before[active] = np.where(previous >= 0, active[previous], NONE)
        ahead = before[task]
        free = np.where(ahead >= 0, tasks.end[ahead], NO_TIME)
        stream = _streams_of(tasks, task)
        behind = began_within(waits.start, waits.stream, stream, np.where(ahead >= 0, tasks.start[ahead], NO_TIME), end)
        slow = end - launches.end[task] <= launches.latency + thresholds.launch_jitter_ns
        late = launches.end[task] > start
        last = _whole(tasks, _ended_at(tasks, active, start, tasks.stream[task]))
        submitted = ~launches.known[last] | (launches.end[last] <= launches.end[task])
        fits = (last >= 0) & (free < start) & submitted & ~late & (~slow | behind)
        fits &= end - start <= thresholds.wait_after_ns
        follows = (free == start) & ~late & (end - start <= thresholds.gap_ns)
        between = np.where((free == start) & (tasks.stream[task] >= 0), tasks.stream[task], NONE)
        return cls(stream, np.where(fits, last, NONE), behind, slow & ~follows, follows, between)


def _ended_at(tasks: Tasks, active: I64, time: I64, stream: I64) -> I64:
    """Return for each time the active task of another stream that ended then (the longest of several), or NONE."""
    order = active[sorted_rows(tasks.end[active], -tasks.start[active])]
    ends = tasks.end[order]
    last = np.searchsorted(ends, time, side="right") - 1
    found = np.full(len(time), NONE)
    for back in range(2):  # of its own stream there is one task at most that ends then
        at = last - back
        here = order[np.maximum(at, 0)]
        fits = (found < 0) & (at >= 0) & (tasks.end[here] == time) & (tasks.stream[here] != stream)
        found = np.where(fits, here, found)
    return found


def _whole(tasks: Tasks, task: I64) -> I64:
    """Return the collective in place of a copy that it is made of; exporters round the two differently."""
    collective = np.flatnonzero(tasks.work == Work.COMMUNICATION)
    if not len(collective):
        return task
    at = np.searchsorted(tasks.start[collective], tasks.start[task] + NS_PER_US, side="right") - 1
    whole = collective[np.maximum(at, 0)]
    part = (task >= 0) & (tasks.work[task] == Work.OTHER) & (at >= 0)
    return np.where(part & (tasks.end[whole] >= tasks.end[task] - NS_PER_US), whole, task)


def _streams_of(tasks: Tasks, task: I64) -> I64:
    """Return the stream of each task; of a collective, which has none, that of the part it begins with."""
    stream = tasks.stream[task]
    parts = np.flatnonzero(tasks.stream >= 0)
    if not len(parts) or (stream >= 0).all():
        return stream
    at = np.minimum(np.searchsorted(tasks.start[parts], tasks.start[task]), len(parts) - 1)
    begins = tasks.start[parts[at]] == tasks.start[task]
    return np.where((stream < 0) & begins, tasks.stream[parts[at]], stream)


class _EventWaits(Struct, frozen=True):
    """Rows with which streams wait for events or notifications, ordered by stream, then start; none overlap."""

    row: I64
    stream: I64
    start: I64
    end: I64
    record: I64

    @classmethod
    def of(cls, tasks: Tasks) -> _EventWaits:
        control = np.flatnonzero(tasks.work == Work.CONTROL)
        name = tasks.name.take(control).compact()
        row = control[name.flag([bool(_WAIT.search(n)) for n in name.names])]
        row = row[np.lexsort((tasks.start[row], tasks.stream[row]))]
        end = tasks.end[row].copy()
        follows = tasks.stream[row][1:] == tasks.stream[row][:-1]
        end[:-1] = np.where(follows, np.minimum(end[:-1], tasks.start[row][1:]), end[:-1])
        record = control[name.flag([bool(_RECORD.search(n)) for n in name.names])]
        return cls(row, tasks.stream[row], tasks.start[row], end, record[np.argsort(tasks.end[record], kind="stable")])

    def cut(
        self, open_: _Unexplained, stream: I64, task: I64, tasks: Tasks, thresholds: Thresholds
    ) -> tuple[Dependencies, _Unexplained]:
        """Take what lies within waits on a gap's stream; return it, and what is left."""
        gap, row = self._meeting(open_, stream)
        begin = np.maximum(open_.start[gap], self.start[row])
        finish = np.minimum(open_.end[gap], self.end[row])
        record = self._ended_by(row, tasks, thresholds)
        held = _Unexplained(open_.gap[gap], begin, finish).named(
            task, "event", source=self.row[row],
            stream=np.where(record >= 0, tasks.stream[record], NONE), certain=True,
        )  # fmt: skip
        return held, _without(open_, gap, begin, finish)

    def _meeting(self, open_: _Unexplained, stream: I64) -> tuple[I64, I64]:
        """Pair open parts with the waits of their stream that they overlap."""
        first, last = np.zeros(len(open_.gap), np.int64), np.zeros(len(open_.gap), np.int64)
        for number in distinct(self.stream).tolist():
            mine = stream[open_.gap] == number
            at = int(np.searchsorted(self.stream, number))
            own = self.stream == number
            first[mine] = at + np.searchsorted(self.end[own], open_.start[mine], side="right")
            last[mine] = at + np.searchsorted(self.start[own], open_.end[mine])
        counts = np.maximum(last - first, 0)
        gap = np.repeat(np.arange(len(counts)), counts)
        row = first[gap] + np.arange(len(gap)) - np.repeat(np.cumsum(counts) - counts, counts)
        real = self.end[row] > self.start[row]
        return gap[real], row[real]

    def _ended_by(self, row: I64, tasks: Tasks, thresholds: Thresholds) -> I64:
        """Return the record on another stream that was done last before each wait was, if just before; else NONE."""
        if not len(self.record):
            return np.full(len(row), NONE)
        ends = tasks.end[self.record]
        last = np.searchsorted(ends, tasks.end[self.row[row]], side="right") - 1
        record = self.record[np.maximum(last, 0)]
        fits = (last >= 0) & (tasks.stream[record] != self.stream[row])
        fits &= tasks.end[self.row[row]] - tasks.end[record] <= thresholds.wait_after_ns
        return np.where(fits, record, NONE)


def _without(open_: _Unexplained, gap: I64, begin: I64, finish: I64) -> _Unexplained:
    """Return what is left of the open parts without the given pieces of them, which are in order."""
    owner = np.concatenate([np.arange(len(open_.gap)), gap])
    opens = np.concatenate([open_.start, finish])
    order = np.lexsort((opens, owner))
    owner, opens = owner[order], opens[order]
    closes = np.concatenate([begin, open_.end])
    by = np.concatenate([gap, np.arange(len(open_.gap))])
    closes = closes[np.lexsort((closes, by))]
    return _Unexplained(open_.gap[owner], opens, closes).filter(closes > opens)


class _Host(Struct, frozen=True):
    """What the host's events say of waits that the device's rows do not explain."""

    nesting: Nesting
    skew: int
    tasks: Tasks
    threads: HostThreads
    thresholds: Thresholds

    def explain(self, open_: _Unexplained, task: I64, between: I64) -> list[Dependencies]:
        """Name the host calls behind these waits, and leave the rest unrecorded.

        ``between``: per gap, the stream of which it lies between two tasks, or NONE.
        """
        names = self.nesting.events.name
        if not len(self.nesting.events):
            return [open_.named(task, "unrecorded", stream=between[open_.gap])]
        copying = names.flag([bool(BLOCKING_COPY.search(n)) for n in names.names])
        waiting = names.flag([bool(WAITING.search(n)) for n in names.names])
        holding = copying | names.flag([bool(_HOLDING.search(n)) for n in names.names])
        call, since = self._holding(open_, task, holding)
        held, event = call >= 0, call[call >= 0]
        kind = np.where(copying[event], KIND["copy"], KIND["host_call"]).astype(np.uint8)
        found = [_Unexplained(open_.gap, since, open_.end).filter(held).named(task, kind, event=event)]
        open_ = _Unexplained(open_.gap, open_.start, np.where(held, since, open_.end)).filter(
            ~held | (since > open_.start)
        )
        launching, event, open_ = self._launching(open_, task)
        found.append(launching.named(task, "host_call", event=event))
        meanwhile = self._around(open_, task, waiting | copying)
        return [*found, open_.named(task, "unrecorded", event=meanwhile, stream=between[open_.gap])]

    def _threads(self, open_: _Unexplained, task: I64) -> tuple[I64, ...]:
        mine = task[open_.gap]
        return self.threads.launch[mine], self.threads.op[mine], np.full(len(mine), self.threads.main)

    def _around(self, open_: _Unexplained, task: I64, marked: Mask) -> I64:
        """Return the innermost marked call that lasts from the middle of each part to its end, NONE if there is none.

        The first thread that is in one counts.
        """
        events, found = self.nesting.events, np.full(len(open_.gap), NONE)
        middle = open_.start + (open_.end - open_.start) // 2 + self.skew
        for thread in self._threads(open_, task):
            call = self.nesting.nearest(self.nesting.at(thread, middle), marked)
            lasts = (call >= 0) & (events.end[call] >= open_.end + self.skew)
            found = np.where((found < 0) & lasts, call, found)
        return found

    def _holding(self, open_: _Unexplained, task: I64, marked: Mask) -> tuple[I64, I64]:
        """Return the call that held the device up, and since when: it returned just as the task began.

        Or it launched this task, a copy, and lasts until that begins. A call that lasts until the task has ended may be
        what waits for the task, not the other way round.
        """
        events, found, mine = self.nesting.events, np.full(len(open_.gap), NONE), task[open_.gap]
        begin, done = self.tasks.start[mine] + self.skew, self.tasks.end[mine] + self.skew
        launch, after = self.tasks.launch_start[mine], self.thresholds.wait_after_ns
        time, since = np.maximum(open_.start, open_.end - after) + self.skew, open_.start.copy()
        moved = self.tasks.work[mine] == Work.OTHER
        for thread in self._threads(open_, task):
            call = self.nesting.nearest(self.nesting.at(thread, time), marked)
            until, from_ = events.end[call], np.maximum(open_.start, events.start[call] - self.skew)
            returned = (open_.end - from_ > after) & (np.abs(until - begin) <= after) & (until < done)
            own = moved & (self.threads.launch[mine] == thread) & (until >= begin)
            own &= (events.start[call] <= launch) & (launch <= until)
            fits = (call >= 0) & (found < 0) & (returned | own)
            found, since = np.where(fits, call, found), np.where(fits, from_, since)
        return found, since

    def _launching(self, open_: _Unexplained, task: I64) -> tuple[_Unexplained, I64, _Unexplained]:
        """Split parts where the call that launched the task returned, or went on to launch another one.

        Until then it may still have been launching this one. Only where the end of the launch itself is unknown.
        """
        mine = task[open_.gap]
        start, thread = self.tasks.launch_start[mine], self.threads.launch[mine]
        vague = self.tasks.launch_end[mine] == start
        busy = flag_causes(self.nesting.causes, BUSY)
        call = self.nesting.nearest(self.nesting.at(thread, np.where(vague, start, 0)), busy)
        never = np.iinfo(np.int64).max
        following = np.full(len(start), never)  # when each thread next launched something, if it did
        for number in distinct(thread).tolist():
            own = thread == number
            known = self.tasks.launched & (self.tasks.launch_thread == number)
            starts = np.append(distinct(self.tasks.launch_start[known]), never)
            following[own] = starts[np.searchsorted(starts, start[own], side="right")]
        until = np.minimum(self.nesting.events.end[call], following)
        until = np.where(vague & (call >= 0), until - self.skew, open_.start)
        until = np.clip(until, open_.start, open_.end)
        launching = until > open_.start
        left = _Unexplained(open_.gap, until, open_.end).filter(open_.end > until)
        return _Unexplained(open_.gap, open_.start, until).filter(launching), call[launching], left


# -- Dependency waits summed by what the device waited for.

#: How many of a line's longest pieces are asked for their code line.
_CANDIDATES = 4
_UNRECORDED = KINDS.index("unrecorded")
#: Kinds that are named by the task that waited: there is no other.
_OWN = tuple(KINDS.index(kind) for kind in ("launch", "switch"))
_EVENT = KINDS.index("event")


class Namer(Struct, frozen=True):
    """Names what a device waited for; ``types`` of all ``tasks``, ``needs``: what might tell what is not recorded."""

    tasks: Tasks
    types: Labels
    host: HostOps
    nesting: Nesting
    needs: Message | None = None

    def sums(self, waits: Dependencies, top: int) -> list[Dependency]:
        """Sum pieces by kind and name, the largest first; beyond ``top`` names each kind's rest is one line."""
        length, named, meanwhile = waits.end - waits.start, *self._names(waits)
        key = _packed(waits.kind, waits.certain, waits.stream, named.codes, meanwhile.codes)
        lines = []
        for one in longest_names(waits.kind, key, length, top):
            i = int(one.rows[0])
            kind, stream = KINDS[waits.kind[i]], int(waits.stream[i])
            line = Dependency(
                kind=kind,
                name=OTHERS if one.others else named[i] or NOTHING,
                ns=one.ns,
                count=one.count,
                where=None if one.others else self._where(waits, one.rows, length),
                certain=bool(waits.certain[one.rows].all()),
                stream=None if one.others or stream < 0 else stream,
                meanwhile=None if one.others else meanwhile[i],
                needs=self.needs if kind == "unrecorded" else None,
            )
            lines.append(line)
        return lines

    def _names(self, waits: Dependencies) -> tuple[Labels, Labels]:
        """Name each piece, and what the host waited in meanwhile where nothing else is recorded."""
        by_task = np.where(np.isin(waits.kind, _OWN), waits.task, waits.source)
        unrecorded, event = waits.kind == _UNRECORDED, self.nesting.events.name
        named = self.types.take(np.where(waits.kind == _EVENT, -1, by_task))
        rows = self.tasks.name.take(np.where(waits.kind == _EVENT, waits.source, by_task))
        calls = event.take(np.where(unrecorded, -1, waits.event))
        meanwhile = event.take(np.where(unrecorded, waits.event, -1))
        return named.compact().fill(rows.compact()).fill(calls.compact()), meanwhile

    def _where(self, waits: Dependencies, members: I64, length: I64) -> str | None:
        """Return the code line of the longest pieces for which one was recorded: of the call, else of the task."""
        if not len(self.host.frames) and not self.host.stack.names:
            return None
        events = self.nesting.events
        for i in members[largest(length[members], _CANDIDATES)].tolist():
            event = int(waits.event[i])
            if event >= 0 and waits.kind[i] != _UNRECORDED:
                line = self.host.line_at(int(events.thread[event]), int(events.start[event]))
            else:
                line = self.host.code_line(int(self.tasks.op[int(waits.task[i])]))
            if line:
                return line
        return None


def _packed(*columns: npt.NDArray[Any]) -> I64:
    """Return one number per row, the same where all columns are."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        low = int(column.min(initial=0))
        key = key * (int(column.max(initial=0)) - low + 1) + (column.astype(np.int64) - low)
    return key


#: Names of a list beyond this one are summed by kind.
_NAMES: Final = 12


def sum_dependencies(
    study: Study, windows: Sequence[tuple[int, int]], thresholds: Thresholds
) -> list[list[Dependency]]:
    """Sum what a device waited for once its next task was launched, within each of some windows."""
    profile, nesting = study.profile, study.nesting
    waits = find_dependencies(profile.tasks, study.launches, study.timeline.idle, study.threads, nesting, thresholds)
    if profile.kineto:
        needs = say(
            "no task of another stream and no call of the host explains these waits; which events streams wait for "
            "is not read from GPU traces"
        )
    elif not len(profile.host.events):
        needs = say(
            "no event and no task of another stream explains these waits, and calls of the host are not recorded: "
            "record with npuperf profile --level 1"
        )
    elif profile.context.level == "Level2":
        needs = say("no event, no task of another stream and no call of the host explains these waits")
    else:
        needs = say(
            "no event, no task of another stream and no call of the host explains these waits: npuperf profile "
            "--level 2 records the calls of the runtime, too"
        )
    namer = Namer(profile.tasks, study.types, profile.host, nesting, needs)
    return [namer.sums(waits.within(*window), _NAMES) for window in windows]
