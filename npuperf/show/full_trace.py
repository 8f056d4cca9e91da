"""The whole profile as a trace that Perfetto shows as it is: exact times, true nesting, every arrow in its slice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import count, repeat
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from npuperf.base.messages import Message, chain, say, say_n
from npuperf.model.device import DeviceProfile
from npuperf.model.host import Enclosing, HostOps, Spans
from npuperf.model.labels import I64, Mask
from npuperf.model.result import Device, Result
from npuperf.model.tasks import UNKNOWN, Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.readers.recording import Reading, Recording
from npuperf.show.trace_events import (
    Event,
    FlowEnd,
    FlowStart,
    SliceEvent,
    TaskArgs,
    TraceWriter,
    called,
    clock_counter,
    core_counters,
    device_of,
    in_turn,
    memory_counters,
    microseconds,
    names_of,
    sub_tracks,
    trace_file,
)

# -- One rank of a whole profile as tracks: its host's threads, its devices' streams, and arrows between their slices.

#: Rows that are turned into events at the same time.
_ROWS: Final = 1 << 14
#: What tasks without a stream are on: communication operations, and all others.
_OPERATIONS: Final = -2
#: Categories of arrows and their names, as Ascend's traces have them.
_NAMES: Final = {"HostToDevice": "HostToDevice", "async_npu": "torch_to_npu", "fwdbwd": "fwdbwd"}
_UNNAMED: Final = "unnamed"


class TraceClock(Struct, frozen=True):
    """Turns a rank's times, epoch ns, into those of a trace: ``offset`` is added and ``epoch`` taken away (ns)."""

    epoch: int
    offset: int = 0

    def moments(self, time: I64) -> list[float]:
        """Return µs after the epoch on the job's clock."""
        found: list[float] = microseconds(time + (self.offset - self.epoch)).tolist()
        return found


class Track(Struct, frozen=True, dict=True):
    """Slices that are in the trace: where an arrow may begin or end.

    ``pid`` and ``tid``: their numbers in the trace; the threads of ``slices`` are the host's, or streams.
    """

    clock: TraceClock
    pid: int
    tid: I64
    slices: Spans

    @cached_property
    def _enclosing(self) -> Enclosing:
        return Enclosing.of(self.slices)

    def around(self, thread: I64, time: I64) -> I64:
        """Return the slice that begins latest of those around each time on a thread, -1 where there is none.

        What begins at a time is around it, what ends at it is not; what has no length is around nothing. Of a host
        alone, whose slices are ordered by thread.
        """
        return self._enclosing.innermost(thread, time, time + 1)


class _Ends(NamedTuple):
    """Where arrows begin or end: threads of one process, and times on its clock, epoch ns."""

    clock: TraceClock
    pid: int
    tid: I64
    time: I64


class TrackWriter(Struct):
    """Writes ranks into a trace.

    ``unbound``: launches without an arrow, for a slice is missing at one of its ends; ``backward``: for their task
    ended before them, by clocks that disagree.
    """

    writer: TraceWriter
    flows: Iterator[int] = field(default_factory=lambda: count(1))
    slices: int = 0
    arrows: int = 0
    unbound: int = 0
    backward: int = 0

    def host(self, host: HostOps, pid: int, clock: TraceClock) -> Track:
        """Write what the threads of a host did, and the arrows from forward to backward operators."""
        names = {thread: f"Thread {thread}" for thread in np.unique(host.events.thread).tolist()}
        track = self._track(clock, pid, host.events, names, repeat(None))
        arrows = host.arrows
        begin = track.around(arrows.forward_thread, arrows.forward_time)
        finish = track.around(arrows.thread, arrows.time)
        both = (begin >= 0) & (finish >= 0)
        ends = ((begin, arrows.forward_time), (finish, arrows.time))
        self._flows("fwdbwd", *(_Ends(clock, pid, track.tid[at[both]], time[both]) for at, time in ends))
        return track

    def device(self, profile: DeviceProfile, device: Device, host: Track, pid: int, clock: TraceClock) -> None:
        """Write a device's tasks, its cores and memory in use, and the arrows from launches and torch operators.

        Of a device of which no task is recorded, its communication operations, which their own files tell of.
        """
        self.writer.write(memory_counters(profile.memory, pid, clock.moments))
        if not len(profile.tasks):
            done = profile.communication.operations
            done = done.take(np.lexsort((-done.end, done.start)))
            slices = Spans(done.start, done.end, np.zeros(len(done), np.int64), done.name)
            steps = (TaskArgs("COMMUNICATION", step=step) for step in done.step.tolist())
            self._track(clock, pid, slices, {0: "Communication"}, steps)
            return
        tasks = profile.tasks.without_counters()
        tasks = tasks.take(np.lexsort((-tasks.end, tasks.start)))
        stream = np.where((tasks.stream < 0) & (tasks.work == Work.COMMUNICATION), _OPERATIONS, tasks.stream)
        names = {number: f"Stream {number}" for number in np.unique(stream).tolist()}
        names |= {UNKNOWN: "Stream unknown", _OPERATIONS: "Communication"}
        slices = Spans(tasks.start, tasks.end, stream, tasks.name.fill(tasks.type))
        track = self._track(clock, pid, slices, names, _args(tasks))
        self.writer.write(core_counters(tasks, device, pid, clock.moments))
        self.writer.write(clock_counter(profile.frequency, pid, clock.moments))
        launched = tasks.launched
        drawn = self._from_host("HostToDevice", host, track, launched, tasks.launch_thread, tasks.launch_start)
        backward = launched & (tasks.end > tasks.start) & (_arrival(host, track, tasks.launch_start) >= tasks.end)
        self.backward += int(np.count_nonzero(backward))
        self.unbound += int(np.count_nonzero(launched & ~backward)) - drawn
        ops, op = profile.host.ops, np.maximum(tasks.op, 0)
        if len(ops):
            self._from_host("async_npu", host, track, tasks.op >= 0, ops.thread[op], ops.start[op])

    def _from_host(self, kind: str, host: Track, tasks: Track, known: Mask, thread: I64, time: I64) -> int:
        """Write arrows from times of host threads to tasks, where both ends have a slice; return how many.

        Where clocks disagree so that a task begins before its own launch, the arrow ends later in it: viewers know no
        arrow that ends before it begins.
        """
        arrival = _arrival(host, tasks, time)
        asked = np.flatnonzero(known & (arrival < tasks.slices.end))
        at = host.around(thread[asked], time[asked])
        asked, at = asked[at >= 0], at[at >= 0]
        begin = _Ends(host.clock, host.pid, host.tid[at], time[asked])
        self._flows(kind, begin, _Ends(tasks.clock, tasks.pid, tasks.tid[asked], arrival[asked]))
        return len(asked)

    def _track(
        self, clock: TraceClock, pid: int, slices: Spans, names: dict[int, str], args: Iterable[TaskArgs | None]
    ) -> Track:
        """Write slices; of those with one start on a thread the longer stands before the shorter.

        For each thread of ``slices``, which has its name in ``names``, there are as many of the trace's, one below the
        other, as its slices need.
        """
        lane = sub_tracks(slices.thread, slices.start, slices.end)
        lanes = int(lane.max(initial=0)) + 1
        places, which = np.unique(slices.thread * lanes + lane, return_inverse=True)
        tids = [
            self.writer.thread(pid, f"{names[one]} ({number + 1})" if number else names[one])
            for one, number in zip(*(part.tolist() for part in np.divmod(places, lanes)), strict=True)
        ]
        track = Track(clock, pid, np.array(tids, np.int64)[which], slices)
        self.slices += len(slices)
        called, known = names_of(slices.name, _UNNAMED), iter(args)
        for first in range(0, len(slices), _ROWS):
            rows = slice(first, first + _ROWS)
            start = slices.start[rows]
            lengths = microseconds(slices.end[rows] - start).tolist()
            columns = (called[rows], repeat(pid), track.tid[rows].tolist(), clock.moments(start), lengths)
            self.writer.write([SliceEvent(*cells) for cells in zip(*columns, known)])  # noqa: B905 - some never end
        return track

    def _flows(self, kind: str, begin: _Ends, end: _Ends) -> None:
        """Write arrows of a kind."""
        self.arrows += len(begin.tid)
        for first in range(0, len(begin.tid), _ROWS):
            rows = slice(first, first + _ROWS)
            parts = (ends._replace(tid=ends.tid[rows], time=ends.time[rows]) for ends in (begin, end))
            self.writer.write(self._arrows(kind, *parts))

    def _arrows(self, kind: str, begin: _Ends, end: _Ends) -> Iterator[Event]:
        name = _NAMES[kind]
        starts, finishes = (zip(ends.tid.tolist(), ends.clock.moments(ends.time), strict=True) for ends in (begin, end))
        for (from_tid, from_time), (to_tid, to_time), number in zip(starts, finishes, self.flows):  # noqa: B905
            yield FlowStart(name, kind, number, begin.pid, from_tid, from_time)
            yield FlowEnd(name, kind, number, end.pid, to_tid, to_time, "e")


def _arrival(host: Track, tasks: Track, time: I64) -> I64:
    """Return when arrows end that begin at these times of the host, on the clock of the tasks."""
    return np.maximum(tasks.slices.start, time + (host.clock.offset - tasks.clock.offset))


def _args(tasks: Tasks) -> Iterator[TaskArgs]:
    """Yield what is known of each task."""
    for first in range(0, len(tasks), _ROWS):
        part = tasks.part(slice(first, first + _ROWS))
        texts = names_of(part.core, ""), names_of(part.type, "")
        numbers = (column.tolist() for column in (part.step, part.block, part.mix_block, part.moved))
        for core, type_, *rest in zip(*texts, *numbers, strict=True):
            yield TaskArgs(core or None, type_ or None, *rest)


_SECOND: Final = 1_000_000_000
#: By how much times of ranks that are not read yet may be earlier, ns; what is earlier still begins the trace anew.
_AHEAD: Final = 60 * _SECOND
#: Times so long after the epoch are numbers that a viewer rounds, ns: 104 days.
_EXACT: Final = 1 << 53


class _EarlierError(Exception):
    """A time lies before what the trace counts from."""

    def __init__(self, time: int) -> None:
        super().__init__(time)
        self.time = time


class _Job(Struct):
    """All sources on their way into one trace. ``epoch``: None until the first is read.

    ``far``: some times are so long after the epoch that viewers round them.
    """

    result: Result
    writer: TraceWriter
    epoch: int | None
    sources: int
    tracks: TrackWriter
    far: bool = False

    def add(self, reading: Reading) -> None:
        """Write what one source gave, if it was analyzed: its host, then its devices."""
        found = [(profile, device_of(self.result, profile)) for profile in reading.profiles]
        chosen = [(profile, device) for profile, device in found if device is not None]
        if chosen:
            first, device = chosen[0]
            times = [(first.host.events.start, self._offset(device))]
            for profile, device in chosen:
                begun = profile.tasks.start if len(profile.tasks) else profile.communication.operations.start
                times.append((begun, self._offset(device)))
                if profile.frequency is not None:
                    times.append((profile.frequency.time, self._offset(device)))
                if (memory := profile.memory) is not None and memory.time_known:
                    times += [(told.time, self._offset(device)) for told in (memory.counters, memory.process)]
            if not self._begin(times):
                return
            host = self._write_host(first.host, first.rank, self._offset(device))
            for profile, device in chosen:
                kind, what = ("GPU", "GPU") if profile.kineto else ("NPU", "Ascend Hardware")
                pid = self.writer.process(self._called(profile.rank, what), f"{kind} {profile.device}")
                self.tracks.device(profile, device, host, pid, self._clock(self._offset(device)))
        elif reading.host is not None and self._begin([(reading.host.host.events.start, 0)]):
            self._write_host(reading.host.host, reading.host.rank, 0)

    def _begin(self, times: list[tuple[I64, int]]) -> bool:
        """Choose the epoch, if it is open, and tell whether there is any time at all, of times and their offsets.

        The epoch is a whole second before all times, for Insight knows none below 0.
        """
        begun = [int(time.min()) + offset for time, offset in times if len(time)]
        if not begun:
            return False
        if self.epoch is None:
            others = [d.origin_ns + self._offset(d) for d in self.result.devices if d.origin_ns]
            least = min([*begun, *others])
            self.epoch = _second_before(least if self.sources == 1 else max(least - _AHEAD, min(least, 1)))
        if min(begun) <= self.epoch:
            raise _EarlierError(min(begun))
        self.far |= any(int(time.max()) + offset - self.epoch >= _EXACT for time, offset in times if len(time))
        return True

    def _clock(self, offset: int) -> TraceClock:
        assert self.epoch is not None
        return TraceClock(self.epoch, offset)

    def _write_host(self, host: HostOps, rank: int | None, offset: int) -> Track:
        pid = self.writer.process(self._called(rank, "Python"), "CPU") if len(host.events) else 0
        return self.tracks.host(host, pid, self._clock(offset))

    def _called(self, rank: int | None, what: str) -> str:
        return called(rank, what, of_job=self.sources > 1)

    def _offset(self, device: Device) -> int:
        """Return what is added to a device's times to reach the clock of the job, ns."""
        ranks = self.result.cluster.ranks if self.result.cluster else []
        clock = next((r.clock for r in ranks if (r.rank, r.device) == (device.rank, device.device)), None)
        return clock.offset_ns if clock else 0

    def told(self, file: Path, unread: Message | None) -> Message:
        """Say what was written, and what was not."""
        assert self.epoch is not None
        tracks = self.tracks
        wrote = say(
            "wrote {file} (slices: {slices}, arrows: {arrows}); its times are µs after {epoch} ns since 1970",
            file=str(file), slices=tracks.slices, arrows=tracks.arrows, epoch=self.epoch,
        )  # fmt: skip
        unbound = say_n(
            "{n} launch has no arrow, for its call or its task is not recorded as something that lasts",
            "{n} launches have no arrow, for their calls or their tasks are not recorded as something that lasts",
            tracks.unbound,
        )
        backward = say_n(
            "{n} launch has no arrow, for by the clocks of host and device its task had ended before it",
            "{n} launches have no arrow, for by the clocks of host and device their tasks had ended before them",
            tracks.backward,
        )
        far = say("some times are more than 104 days after it, and viewers round them")
        told = ((tracks.unbound, unbound), (tracks.backward, backward), (True, unread), (self.far, far))
        return chain(wrote, *(message for holds, message in told if holds))


def write_full(file: Path, recording: Recording, result: Result, thresholds: Thresholds) -> Message:
    """Write all that is kept of the profile, of every rank that was analyzed, on the job's clock; return what to say.

    Times are µs after an epoch that is told, a whole second. Raises InputError where the trace cannot be written.
    """
    epoch = None
    while True:
        try:
            with trace_file(file) as writer:
                job = _Job(result, writer, epoch, len(recording.sources), TrackWriter(writer))
                unread = in_turn(recording, job.add)
                job.epoch = job.epoch or 0
                writer.end(job.epoch)
            return job.told(file, unread)
        except _EarlierError as error:  # a rank that was read later begins earlier
            epoch = _second_before(error.time - _AHEAD)


def _second_before(time: int) -> int:
    return (time - 1) // _SECOND * _SECOND
