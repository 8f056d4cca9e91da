"""The one door to data: a path is opened once, every file of it is read once, and all who ask share what was read.

Tables and timelines of a source are joined to device profiles, exact data before derived data.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from socket import gethostname
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from npuperf.cache.fingerprint import EntryKey, paths_of
from npuperf.cache.places import cache_of
from npuperf.errors import InputError
from npuperf.files import total_bytes
from npuperf.messages import Message, say
from npuperf.model.chip import Cores, cores_of_soc
from npuperf.model.device import Context, DeviceProfile, VendorStep
from npuperf.model.tasks import Tasks
from npuperf.parallel import Engine, map_ranks
from npuperf.readers.arrow_alone import spare_pandas
from npuperf.readers.comm_read import CommunicationFiles
from npuperf.readers.context import (
    RecordedMachine,
    read_cluster_steps,
    read_context,
    read_cores,
    read_machine,
    read_vendor_steps,
)
from npuperf.readers.db import read_analysis_db, read_db
from npuperf.readers.find import Source, find
from npuperf.readers.kernels import Kernels, merge, read_kernels
from npuperf.readers.log import ReadLog
from npuperf.readers.timeline import TraceTimeline, assign_steps, interpret
from npuperf.readers.trace import read_trace

if TYPE_CHECKING:
    from npuperf.cache.entries import Cache

Progress = Callable[[int], None]


@dataclass(slots=True)
class _Found:
    """What the files of a source told; ``failures``: why some told nothing. ``ranks``: by device, of a database."""

    source: Source
    log: ReadLog
    failures: list[InputError] = field(default_factory=list)
    kernels: Kernels = field(default_factory=Kernels)
    timeline: TraceTimeline | None = None
    vendor: list[VendorStep] = field(default_factory=list)
    context: Context = field(default_factory=Context)
    machine: RecordedMachine = field(default_factory=RecordedMachine)
    cores: dict[int, Cores] = field(default_factory=dict)
    rank: int | None = None
    ranks: dict[int, int] = field(default_factory=dict)
    communication: CommunicationFiles = field(default_factory=CommunicationFiles)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Go on after a file that cannot be read."""
        try:
            yield
        except InputError as error:
            self.failures.append(error)

    def failure(self) -> InputError:
        """Return the error of a source of which nothing can be read: that of its table, if it has one."""
        nothing = InputError(say("{path}: nothing could be read", path=str(self.source.root)))
        return next(iter(self.failures), nothing)

    def read_timeline(self, progress: Progress | None) -> None:
        """Read launches, operators and steps from the timeline, if there is one."""
        if not self.source.timeline:
            return
        with self.attempt():
            self.timeline = interpret(read_trace(self.source.timeline, self.log, progress), self.source.timeline)
            self.log.kineto = self.timeline.kineto
            self.log.use(*self.source.timeline)

    def read_database(self) -> None:
        """Fall back on the database where the text files give no timeline, or no device task at all."""
        enough = self.timeline is not None and (self.kernels.devices or self.timeline.devices)
        if enough or not self.source.db:
            return
        with self.attempt():
            self.timeline, self.ranks, recorded = read_db(self.source.db, self.log)
            self.communication.take(recorded)
            self.log.use(self.source.db)
            if self.timeline.environment and not self.context.environment.in_process:
                environment = replace(self.context.environment, in_process=self.timeline.environment)
                self.context = replace(self.context, environment=environment)

    def read_vendor(self) -> None:
        """Read the exporter's own split of the steps; from the database also its sums, where no JSON has them."""
        path = self.source.analysis_db
        with self.attempt():
            if self.source.steps:
                self.vendor = read_vendor_steps(self.source.steps, self.log)
                self.log.use(self.source.steps)
        if path and not (self.vendor and self.communication.whole):
            with self.attempt():
                steps, sums = read_analysis_db(path, self.log, communication=not self.communication.whole)
                self.vendor = self.vendor or steps
                self.communication.sums.append(sums)
                self.log.use(path)

    def rank_of(self, device: int | None) -> int | None:
        """Take the rank from whatever records it; a folder's name does not."""
        recorded = (self.ranks.get(device) if device is not None else None, self.rank, self.source.rank)
        late = (self.timeline.rank if self.timeline else None, self.communication.book.rank)
        return next((r for r in (*recorded, *late) if r is not None), None)

    def profile(self, number: int | None, tasks: Tasks, *, alone: bool) -> DeviceProfile:
        """Put together what is known of one device; ``number`` None: the files do not name it."""
        device = number if number is not None else self.source.device or 0
        if number is None and len(self.cores) == 1:
            device = next(iter(self.cores))
        timeline, machine = self.timeline or TraceTimeline({}), self.machine
        tasks = assign_steps(tasks, timeline.host, timeline.host_steps)
        return DeviceProfile(
            source=str(self.source.root),
            rank=self.rank_of(number),
            device=device,
            soc=timeline.soc or machine.soc,
            cores=self.cores.get(device) or machine.cores or cores_of_soc(machine.soc or "") or Cores(),
            tasks=tasks,
            host=timeline.host,
            host_steps=timeline.host_steps,
            vendor_steps=tuple(v for v in self.vendor if v.device in (None, -1, device) or number is None),
            context=self.context,
            excerpt=number in self.kernels.excerpts,
            kineto=timeline.kineto,
            communication=self.communication.of_device(number, self.rank_of(number), tasks, timeline, alone=alone),
        )


def read_source(source: Source, log: ReadLog, progress: Progress | None = None) -> list[DeviceProfile]:
    """Read everything a source has, one profile per device.

    Each file that fails is reported; as long as one gives device tasks (or at least the exporter's own
    split of the steps) there is a result. Raises InputError when none does.
    """
    for note in source.notes:
        log.warn(note)
    if source.kind == "cluster" and source.steps:
        return _cluster(source, log)
    found = _read(source, log, progress)
    kernels, timeline, vendor = found.kernels.devices, found.timeline, found.vendor
    recorded = found.communication.any_operations()
    if not kernels and timeline is None and not vendor and not recorded:
        raise found.failure()
    for failure in found.failures:
        log.warn(say("{failure}; the other files were used", failure=failure.what))
        log.settled &= not isinstance(failure.__cause__, OSError)  # else the file itself is at fault
    log.missing += _missing(found)
    devices = merge(kernels, timeline, source, log)
    if not devices and timeline is None and not vendor and not recorded and found.failures:
        raise found.failure()
    if not devices and (vendor or recorded):
        devices = {step.device: Tasks.empty() for step in vendor} or {None: Tasks.empty()}
    found.cores = read_cores(source.infos, log)
    known_first = sorted(devices, key=lambda number: (number is not None, number or 0))
    profiles = [found.profile(number, devices[number], alone=len(devices) == 1) for number in known_first]
    found.communication.report(log)
    return profiles


def _read(source: Source, log: ReadLog, progress: Progress | None) -> _Found:
    found = _Found(source, log)
    context, found.rank, found.communication.book = read_context(source.profiler_info, source.metadata, log)
    found.machine = read_machine(source.manifest, log)
    found.context = context.or_else(found.machine.context)
    with ThreadPoolExecutor(1) as beside:  # tables are parsed without the interpreter lock, traces with it
        own = ReadLog()  # so that what is noted stands in the same order every time
        tables = beside.submit(read_kernels, source, own)
        found.read_timeline(progress)
        try:
            found.kernels = tables.result()
        except InputError as error:
            found.failures.insert(0, error)
        log.add(own)
    found.read_database()
    found.communication.read(source, log, found.attempt)
    found.read_vendor()
    return found


def _missing(found: _Found) -> list[Message]:
    """Say which kinds of file were not there, what they would tell, and how to get them."""
    source = found.source
    if found.timeline and found.timeline.kineto:
        return []
    lacks = (
        (found.timeline is None, _NO_TIMELINE),
        (not found.kernels.devices and not source.db, _NO_TABLE),
        (not source.infos and not source.manifest, _NO_CORES),
    )
    return [say("{what}: {consequence}", what=what, consequence=then) for lacking, (what, then) in lacks if lacking]


_NO_TIMELINE: Final = (
    say("no trace_view.json, msprof_*.json or .db"),
    say("launches, torch operators, code lines and copies are unknown (record with npuperf profile --level 1)"),
)
_NO_TABLE: Final = (
    say("no kernel_details.csv or op_summary*.csv"),
    say("core types, Block Dim and hardware counters are unknown (export with ExportType.Text, or msprof --export=on)"),
)
_NO_CORES: Final = (say("no PROF_*/device_*/info.json.*"), say("core counts are unknown (give --soc or --cores)"))


def _cluster(source: Source, log: ReadLog) -> list[DeviceProfile]:
    assert source.steps is not None
    ranks = read_cluster_steps(source.steps, log)
    log.use(source.steps)
    if not ranks:
        raise InputError(say("{path}: row 2: no row of type 'rank'", path=str(source.steps)))
    return [
        DeviceProfile(str(source.root), rank, 0, None, Cores(), Tasks.empty(), vendor_steps=tuple(steps))
        for rank, steps in sorted(ranks.items())
    ]


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


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a cache has of a source that was read."""

    log: ReadLog
    profiles: tuple[DeviceProfile, ...]


@dataclass(slots=True)
class _Slot:
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

    @property
    def timeline_bytes(self) -> int:
        """How many bytes the progress of reading adds up to."""
        return total_bytes({file for source in self.sources for file in _told_of(source)})

    @property
    def profiles(self) -> list[DeviceProfile]:
        """Every device's profile, in the order of the files. Raises InputError when nothing could be read."""
        readings = self.map(lambda reading: reading)
        errors = [r.error for r in readings if r.error]
        if errors and len(errors) == len(readings):
            raise errors[0]
        return [profile for reading in readings for profile in reading.profiles]

    def map(
        self,
        work: Callable[[Reading], R],
        progress: Progress | None = None,
        engine: Engine | None = None,
        finished: Callable[[], None] | None = None,
    ) -> list[R]:
        """Read every source, several at a time, and apply ``work`` to what it gave; results keep the sources' order.

        A source that cannot be read is a reading with an ``error``. ``progress`` gets the number of bytes read since
        its last call, from several threads; nothing is read, so nothing reported, of what was kept. What is kept is
        kept in this process; else ``engine`` says where to read, and there one source that comes to grief leaves the
        others alone. ``finished`` is called after each source.
        """
        told = (lambda _: finished()) if finished else None
        if self.keep or engine is None:
            return map_ranks(partial(self._read_and, work, progress=progress), self._slots, finished=told)
        sizes = [total_bytes(source.data_files()) for source in self.sources]
        fitted = engine.fitted(sizes)
        here = fitted.name == "serial"
        there = _read_alone if fitted.name == "processes" else _read_there

        def report(at: int) -> None:
            if progress is not None and not here:
                progress(total_bytes(_told_of(self.sources[at])))
            if finished is not None:
                finished()

        return map_ranks(
            partial(_read_and, work, progress=progress, cache=self.cache)
            if here
            else partial(there, work, cache=self.cache),
            self.sources,
            fitted,
            sizes=sizes,
            lost=lambda source, error: work(_lost(source, error)),
            finished=report,
        )

    def _read_and(self, work: Callable[[Reading], R], slot: _Slot, progress: Progress | None) -> R:
        if not self.keep:
            return _read_and(work, slot.source, progress, self.cache)
        with slot.lock:
            if slot.reading is None:
                slot.reading = _read_and(lambda reading: reading, slot.source, progress, self.cache)
        return work(slot.reading)


def open_recording(path: Path, *, keep: bool = False, cached: bool = False) -> Recording:
    """Find the profiles at a path. Raises InputError when nothing is there that could be read."""
    sources, notes = find(path)
    cache = cache_of(path, (file for source in sources for file in paths_of(source))) if cached else None
    return Recording(path, sources, notes, keep=keep, cache=cache)


def _told_of(source: Source) -> list[Path]:
    """Return the files of which reading tells how far it is."""
    return [file for file in source.timeline if file.suffix != ".gz"]


def _read_and(work: Callable[[Reading], R], source: Source, progress: Progress | None, cache: Cache | None) -> R:
    """Read a source, or recall it, and reduce it.

    What is new to the cache is put there at the end: on its way it takes memory, of which the work needs most.
    """
    key = _key(source) if cache else None
    if cache is None or key is None:
        return work(_reading(source, progress))
    kept = cache.get(key, _Kept)
    if kept is not None:
        if progress is not None:
            progress(total_bytes(_told_of(source)))
        return work(Reading(source, kept.log, kept.profiles))
    reading = _reading(source, progress)
    reduced = work(reading)
    settled = reading.error is None and reading.log.settled  # else it may be another one the next time
    if settled and key == _key(source):  # else who knows what was read
        cache.put(key, _Kept(reading.log, reading.profiles))
    return reduced


def _key(source: Source) -> EntryKey | None:
    return EntryKey.of(source.root, paths_of(source), source)


def _read_there(work: Callable[[Reading], R], source: Source, cache: Cache | None) -> R:
    """Read a source and reduce it in another process, maybe on a machine that does not have it."""
    unseen = next((file for file in source.data_files() if not file.exists()), None)
    if unseen is None:
        return _read_and(work, source, None, cache)
    what = say("{path}: cannot be seen on {host}, which was to read it", path=str(unseen), host=gethostname())
    hint = say("use a file system that all machines share, or copy the files that are read (docs/cluster.md)")
    return work(Reading(source, ReadLog(), error=InputError(what, hint=hint)))


def _read_alone(work: Callable[[Reading], R], source: Source, cache: Cache | None) -> R:
    """Read a source and reduce it in a process that does nothing else."""
    spare_pandas()
    return _read_there(work, source, cache)


def _lost(source: Source, why: InputError) -> Reading:
    """Return the reading of a source that nobody came back from."""
    error = InputError(say("{path}: {why}", path=str(source.root), why=why.what), hint=why.hint)
    error.__cause__ = why
    return Reading(source, ReadLog(), error=error)


def _reading(source: Source, progress: Progress | None) -> Reading:
    log = ReadLog()
    try:
        return Reading(source, log, tuple(read_source(source, log, progress)))
    except InputError as error:
        return Reading(source, log, error=error)
