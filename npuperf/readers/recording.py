"""The one door to data: a path is opened once, every file of it is read once, and all who ask share what was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TypeVar

from npuperf.errors import InputError
from npuperf.messages import Message
from npuperf.model.device import DeviceProfile
from npuperf.parallel import map_ranks
from npuperf.readers.find import Source, find
from npuperf.readers.log import ReadLog
from npuperf.readers.read import Progress, read_source

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Reading:
    """What one source gave: a profile per device, or why there is none.

    ``log`` is what was found out on the way. Whoever asks shares it, so it is not written to any more.
    """

    source: Source
    log: ReadLog
    profiles: tuple[DeviceProfile, ...] = ()
    error: InputError | None = None


@dataclass(slots=True)
class _Slot:
    """A source, and what it gave once it was read."""

    source: Source
    lock: Lock = field(default_factory=Lock)
    reading: Reading | None = None


class Recording:
    """The sources below a path, and what was read of them. ``notes``: what the search for them has to say.

    With ``keep`` what was read stays in memory, for several who ask, also at the same time; without it each source is
    read when it is asked for and may go when the question is answered, so that many ranks fit.
    """

    def __init__(self, path: Path, sources: Sequence[Source], notes: Sequence[Message], *, keep: bool) -> None:
        self.path = path
        self.notes = tuple(notes)
        self.keep = keep
        self._slots = tuple(map(_Slot, sources))

    def __repr__(self) -> str:
        return f"Recording({str(self.path)!r}, {len(self._slots)} sources{', kept' if self.keep else ''})"

    @property
    def sources(self) -> tuple[Source, ...]:
        """What lies below the path, in the order in which it is read and answered."""
        return tuple(slot.source for slot in self._slots)

    @property
    def timeline_bytes(self) -> int:
        """How many bytes the progress of reading adds up to."""
        total = 0
        for file in {f for s in self.sources for f in s.timeline if f.suffix != ".gz"}:
            with suppress(OSError):  # reading it says why
                total += file.stat().st_size
        return total

    @property
    def profiles(self) -> list[DeviceProfile]:
        """Every device's profile, in the order of the files. Raises InputError when nothing could be read."""
        readings = self.map(lambda reading: reading)
        errors = [r.error for r in readings if r.error]
        if errors and len(errors) == len(readings):
            raise errors[0]
        return [profile for reading in readings for profile in reading.profiles]

    def map(self, work: Callable[[Reading], R], progress: Progress | None = None) -> list[R]:
        """Read every source, several at a time, and apply ``work`` to what it gave; results keep the sources' order.

        A source that cannot be read is a reading with an ``error``. ``progress`` gets the number of bytes read since
        its last call, from several threads; nothing is read, so nothing reported, of what was kept.
        """
        return map_ranks(lambda slot: work(self._read(slot, progress)), self._slots)

    def _read(self, slot: _Slot, progress: Progress | None) -> Reading:
        if not self.keep:
            return _reading(slot.source, progress)
        with slot.lock:
            if slot.reading is None:
                slot.reading = _reading(slot.source, progress)
            return slot.reading


def open_recording(path: Path, *, keep: bool = False) -> Recording:
    """Find the profiles at a path. Raises InputError when nothing is there that could be read."""
    sources, notes = find(path)
    return Recording(path, sources, notes, keep=keep)


def _reading(source: Source, progress: Progress | None) -> Reading:
    log = ReadLog()
    try:
        return Reading(source, log, tuple(read_source(source, log, progress)))
    except InputError as error:
        return Reading(source, log, error=error)
