"""The one door to data: a path is opened once, every file of it is read once, and all who ask share what was read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from functools import partial
from math import fsum
from pathlib import Path
from socket import gethostname
from threading import Lock
from typing import Final, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.base.cache import Cache, EntryKey, cache_of, paths_of
from npuperf.base.errors import InputError
from npuperf.base.files import total_bytes
from npuperf.base.memory import be_alone
from npuperf.base.messages import Message, say, say_n
from npuperf.base.parallel import Engine, map_ranks
from npuperf.model.device import DeviceProfile, HostProfile
from npuperf.readers.find import Source, find
from npuperf.readers.log import Progress, ReadLog
from npuperf.readers.source import read_source

R = TypeVar("R")
#: Memory that reading and analyzing takes per byte of a file, about: text, and what is more compact.
_PER_BYTE_OF_TEXT: Final = 0.6
_PER_BYTE: Final = {".db": 1.5, ".gz": 8.0}


class Reading(Struct, frozen=True):
    """What one source gave: a profile per device, or why there is none; of a run without any device its ``host``.

    ``log`` is what was found out on the way. Whoever asks shares it, so it is not written to any more. ``profiles`` is
    a list where nobody else will ask.
    """

    source: Source
    log: ReadLog
    profiles: Sequence[DeviceProfile] = ()
    error: InputError | None = None
    host: HostProfile | None = None

    def handed_over(self) -> deque[DeviceProfile]:
        """Return the profiles; where nobody else will ask, they are gone from here, and may go when they are done with.

        A profile is most of what a process has in memory.
        """
        profiles = deque(self.profiles)
        if isinstance(self.profiles, list):
            self.profiles.clear()
        return profiles


class _Kept(Struct, frozen=True):
    """What a cache has of a source that was read."""

    log: ReadLog
    profiles: tuple[DeviceProfile, ...]
    host: HostProfile | None = None


class _Slot(Struct):
    """A source, and what it gave once it was read."""

    source: Source
    lock: Lock = field(default_factory=Lock)
    reading: Reading | None = None


class Recording:
    """The sources below a path, and what was read of them. ``notes``: what the search for them has to say.

    With ``keep`` what was read stays in memory, for several who ask, also at the same time; without it each source is
    read when it is asked for and may go when the question is answered, so that many ranks fit. With a ``cache`` it is
    read only if the cache does not have it, and put there.
    """

    def __init__(
        self, path: Path, sources: Sequence[Source], notes: Sequence[Message], *, keep: bool, cache: Cache | None = None
    ) -> None:
        self.path = path
        self.notes = tuple(notes)
        self.keep = keep
        self.cache = cache
        self._slots = tuple(map(_Slot, sources))

    def __repr__(self) -> str:
        return f"Recording({str(self.path)!r}, {len(self._slots)} sources{', kept' if self.keep else ''})"

    @property
    def sources(self) -> tuple[Source, ...]:
        """What lies below the path, in the order in which it is read and answered."""
        return tuple(slot.source for slot in self._slots)

    def of_ranks(self, ranks: Container[int]) -> Recording:
        """Return the same without sources that are known to be of other ranks: they need not be read."""
        mine = [slot for slot in self._slots if slot.source.rank is None or slot.source.rank in ranks]
        if not mine or len(mine) == len(self._slots):
            return self
        narrowed = Recording(self.path, (), self.notes, keep=self.keep, cache=self.cache)
        narrowed._slots = tuple(mine)
        return narrowed

    def of_other_ranks(self, ranks: Container[int]) -> Recording:
        """Return what tells of the communication of ranks that are known to be others."""
        others = [s.of_communication() for s in self.sources if s.rank is not None and s.rank not in ranks]
        return Recording(self.path, others, (), keep=False, cache=self.cache)

    @property
    def timeline_bytes(self) -> int:
        """How many bytes the progress of reading adds up to."""
        return total_bytes({file for source in self.sources for file in _told_of(source)})

    def memory_bytes(self, engine: Engine) -> int:
        """Return how many bytes of memory reading and analyzing takes here, about: as many sources as go at a time."""
        fitted = engine.fitted([total_bytes(source.data_files()) for source in self.sources])
        needed = [
            fsum(total_bytes([file]) * _PER_BYTE.get(file.suffix, _PER_BYTE_OF_TEXT) for file in source.data_files())
            for source in self.sources
        ]
        return 0 if fitted.name == "dask" else int(fsum(sorted(needed)[-(fitted.workers or 1) :]))

    @property
    def profiles(self) -> list[DeviceProfile]:
        """Every device's profile, in the order of the files. Raises InputError when nothing could be read."""
        readings = self.map(lambda reading: reading)
        errors = [r.error for r in readings if r.error]
        if errors and len(errors) == len(readings):
            raise none_readable(errors)
        return [profile for reading in readings for profile in reading.profiles]

    def map(
        self,
        work: Callable[[Reading], R],
        progress: Progress | None = None,
        engine: Engine | None = None,
        finished: Callable[[], None] | None = None,
        carried: int = 0,
    ) -> list[R]:
        """Read every source, several at a time, and apply ``work`` to what it gave; results keep the sources' order.

        A source that cannot be read is a reading with an ``error``. ``progress`` gets the number of bytes read since
        its last call, from several threads; nothing is read, so nothing reported, of what was kept. What is kept is
        kept in this process; else ``engine`` says where to read, and there one source that comes to grief leaves the
        others alone. ``finished`` is called after each source. ``carried``: bytes of files whose content
        ``work`` has, and so every worker gets.
        """
        told = (lambda _: finished()) if finished else None
        if self.keep or engine is None:
            return map_ranks(partial(self._read_and, work, progress=progress), self._slots, finished=told)
        sizes = [carried + total_bytes(source.data_files()) for source in self.sources]
        fitted = engine.fitted(sizes)
        here = fitted.name == "serial"
        there = partial(_read_there, work, alone=fitted.name == "processes")

        def lost(source: Source, why: InputError) -> R:
            """Return what comes of a source that nobody came back from."""
            error = InputError(say("{path}: {why}", path=str(source.root), why=why.what), hint=why.hint)
            error.__cause__ = why
            return work(Reading(source, ReadLog(), error=error))

        def report(at: int) -> None:
            if progress is not None and not here:
                progress(total_bytes(_told_of(self.sources[at])))
            if finished is not None:
                finished()

        return map_ranks(
            partial(_read_and, work, progress=progress, cache=self.cache) if here else partial(there, cache=self.cache),
            self.sources,
            fitted,
            sizes=sizes,
            lost=lost,
            finished=report,
        )

    def _read_and(self, work: Callable[[Reading], R], slot: _Slot, progress: Progress | None) -> R:
        if not self.keep:
            return _read_and(work, slot.source, progress, self.cache)
        with slot.lock:
            if slot.reading is None:
                reading = _recalled(slot.source, progress, self.cache)
                slot.reading = replace(reading, profiles=tuple(reading.profiles))
        return work(slot.reading)


def none_readable(errors: Sequence[InputError]) -> InputError:
    """Return the error of a recording of which no source can be read, of several ones with their number."""
    first, others = errors[0], len(errors) - 1
    if not others:
        return first
    what = say_n("{first}; nor can {n} other profile be read", "{first}; nor can {n} other profiles be read",
                 others, first=first.what)  # fmt: skip
    return InputError(what, hint=first.hint)


def open_recording(path: Path, *, keep: bool = False, cached: bool = False) -> Recording:
    """Find the profiles at a path. Raises InputError when nothing is there that could be read."""
    sources, notes = find(path)
    cache = cache_of(path, (file for source in sources for file in paths_of(source))) if cached else None
    return Recording(path, sources, notes, keep=keep, cache=cache)


def _told_of(source: Source) -> list[Path]:
    """Return the files of which reading tells how far it is."""
    return [file for file in source.timeline if file.suffix != ".gz"]


def _read_and(work: Callable[[Reading], R], source: Source, progress: Progress | None, cache: Cache | None) -> R:
    """Read a source, or recall it, and reduce it."""
    return work(_recalled(source, progress, cache))


def _recalled(source: Source, progress: Progress | None, cache: Cache | None) -> Reading:
    """Return a source as the cache has it, or read it.

    What is new to the cache is put there at once: on its way it takes memory, of which the work needs more.
    """
    key = EntryKey.of(source.root, paths_of(source), source) if cache else None
    kept = cache.get(key, _Kept) if cache and key else None
    if kept is not None:
        if progress is not None:
            progress(total_bytes(_told_of(source)))
        return Reading(source, kept.log, [*kept.profiles], host=kept.host)
    log = ReadLog()
    try:
        read = read_source(source, log, progress)
    except InputError as error:
        return Reading(source, log, error=error)
    # What failed may be read the next time, and of files that changed meanwhile who knows what was read.
    if cache and key and not log.failed and key == EntryKey.of(source.root, paths_of(source), source):
        cache.put(key, _Kept(log, read.profiles, read.host))
    return Reading(source, log, [*read.profiles], host=read.host)


def _read_there(work: Callable[[Reading], R], source: Source, cache: Cache | None, *, alone: bool) -> R:
    """Read a source and reduce it in another process, maybe on a machine that does not have it.

    ``alone``: the process does nothing else.
    """
    if alone:
        be_alone()
    unseen = next((file for file in source.data_files() if not file.exists()), None)
    if unseen is None:
        return _read_and(work, source, None, cache)
    what = say("{path}: cannot be seen on {host}, which was to read it", path=str(unseen), host=gethostname())
    hint = say("use a file system that all machines share, or copy the files that are read (docs/cluster.md)")
    return work(Reading(source, ReadLog(), error=InputError(what, hint=hint)))
