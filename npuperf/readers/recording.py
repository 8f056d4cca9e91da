"""The one door to data: a path is opened once, every file of it is read once, and all who ask share what was read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    """What one source gave: a profile per device, or why there is none; ``log``: what was found out on the way."""

    source: Source
    log: ReadLog
    profiles: tuple[DeviceProfile, ...] = ()
    error: InputError | None = None


class Recording:
    """The sources below a path, and what was read of them. ``notes``: what the search for them has to say.

    With ``keep`` what was read stays in memory, for several who ask; without it each source is read when it is asked
    for and may go when the question is answered, so that many ranks fit.
    """

    def __init__(self, path: Path, sources: list[Source], notes: list[Message], *, keep: bool) -> None:
        self.path = path
        self.sources = tuple(sources)
        self.notes = tuple(notes)
        self._keep = keep
        self._kept: dict[int, Reading] = {}
        self._locks = [Lock() for _ in self.sources]

    @property
    def timeline_bytes(self) -> int:
        """How many bytes the progress of reading adds up to."""
        return sum(f.stat().st_size for s in self.sources for f in s.timeline if f.suffix != ".gz")

    def map(self, work: Callable[[Reading], R], progress: Progress | None = None) -> list[R]:
        """Read every source, several at a time, and apply ``work`` to what it gave; results keep the sources' order.

        ``progress`` gets the number of bytes read since its last call.
        """
        return map_ranks(lambda number: work(self._read(number, progress)), range(len(self.sources)))

    @property
    def profiles(self) -> list[DeviceProfile]:
        """Every device's profile, in the order of the files."""
        return [profile for profiles in self.map(lambda reading: reading.profiles) for profile in profiles]

    def _read(self, number: int, progress: Progress | None) -> Reading:
        with self._locks[number]:
            if number in self._kept:
                return self._kept[number]
            found = _reading(self.sources[number], progress)
            if self._keep:
                self._kept[number] = found
            return found


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
