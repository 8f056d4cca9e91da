"""The whole profile as a trace that Perfetto shows as it is: exact times, true nesting, every arrow in its slice."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import Struct

from npuperf.documents.analysis import Device, Result
from npuperf.messages import Message, chain, say, say_n
from npuperf.model.host import HostOps
from npuperf.model.labels import I64
from npuperf.model.thresholds import Thresholds
from npuperf.readers.recording import Reading, Recording
from npuperf.traces.rank_tracks import TraceClock, Track, TrackWriter, starts_of
from npuperf.traces.trace_writing import TraceWriter, called, device_of, in_turn, trace_file

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
    """All sources on their way into one trace. ``epoch``: None until the first is read; ``unread``: how many failed.

    ``far``: some times are so long after the epoch that viewers round them.
    """

    result: Result
    writer: TraceWriter
    epoch: int | None
    sources: int
    tracks: TrackWriter
    unread: int = 0
    far: bool = False

    def add(self, reading: Reading) -> None:
        """Write what one source gave, if it was analyzed: its host, then its devices."""
        self.unread += reading.error is not None
        found = [(profile, device_of(self.result, profile)) for profile in reading.profiles]
        chosen = [(profile, device) for profile, device in found if device is not None]
        if chosen:
            first, device = chosen[0]
            times = [(first.host.events.start, self._offset(device))]
            times += [(starts_of(profile), self._offset(device)) for profile, device in chosen]
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

    def told(self, file: Path) -> Message:
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
        unread = say_n("{n} source could not be read again", "{n} sources could not be read again", self.unread)
        far = say("some times are more than 104 days after it, and viewers round them")
        told = ((tracks.unbound, unbound), (tracks.backward, backward), (self.unread, unread), (self.far, far))
        return chain(wrote, *(message for holds, message in told if holds))


def write_full(file: Path, recording: Recording, result: Result, thresholds: Thresholds) -> Message:
    """Write all that is kept of the profile, of every rank that was analyzed, on the job's clock; return what to say.

    Times are µs after an epoch that is told, a whole second. Raises InputError where the trace cannot be written.
    """
    epoch = None
    while True:
        try:
            return _written(file, recording, result, epoch)
        except _EarlierError as error:  # a rank that was read later begins earlier
            epoch = _second_before(error.time - _AHEAD)


def _written(file: Path, recording: Recording, result: Result, epoch: int | None) -> Message:
    with trace_file(file) as writer:
        job = _Job(result, writer, epoch, len(recording.sources), TrackWriter(writer))
        in_turn(recording, job.add)
        job.epoch = job.epoch or 0
        writer.end(job.epoch)
    return job.told(file)


def _second_before(time: int) -> int:
    return (time - 1) // _SECOND * _SECOND
