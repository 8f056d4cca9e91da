"""Everything that one source tells: its tables and timelines joined to device profiles, exact data before derived data.

What fails is told, and the other files are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.base.errors import InputError
from npuperf.base.messages import Message, say
from npuperf.model.chip import Cores, cores_of_soc
from npuperf.model.device import (
    Context,
    DeviceProfile,
    HostProfile,
    SecondSources,
    Told,
    TorchOperators,
    VendorStep,
)
from npuperf.model.device_memory import DeviceMemory
from npuperf.model.labels import I64, Labels
from npuperf.model.tasks import Tasks
from npuperf.readers.cells import nanoseconds
from npuperf.readers.comm_source import CommunicationFiles
from npuperf.readers.context import (
    RecordedMachine,
    read_context,
    read_cores,
    read_exports,
    read_machine,
    read_statistic,
    read_vendor_steps,
)
from npuperf.readers.find import Source
from npuperf.readers.kernels import Kernels, merge, read_kernels
from npuperf.readers.log import Progress, ReadLog
from npuperf.readers.memory_files import read_memory
from npuperf.readers.pieces import Event, FilePieces, Scalar
from npuperf.readers.plain_events import Words, integers
from npuperf.readers.timeline import TraceTimeline, assign_steps, interpret
from npuperf.readers.trace import base_ns, no_gc, read_trace

# -- What went into torch operators: shapes and dtypes, which only traces without device tasks are asked for.
#
# They are most of a trace that has them, and there kernels tell as much. So the trace is read once more for them.

#: Kinds of inputs that are no tensors.
_NO_TENSORS: Final = frozenset(("", "None", "Scalar", "ScalarList"))


class _Inputs(msgspec.Struct, gc=False):
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="Input type")


class _Called(msgspec.Struct, gc=False):
    """An event, as far as operators are concerned."""

    ts: msgspec.Raw = msgspec.Raw(b"null")
    ph: str = ""
    name: str = ""
    cat: str | None = None
    tid: Scalar = None
    args: _Inputs | None = None


_CALLED: Final = msgspec.json.Decoder(list[_Called])


class _Calls(FilePieces):
    """The same pieces, of which other fields are read."""

    def _decode(self, text: bytes) -> list[Event]:
        events: list[Any] = _CALLED.decode(text)
        return events


def read_operators(paths: Sequence[Path]) -> TorchOperators:
    """Read the torch operators of a timeline with their inputs; what is damaged was told when it was read before."""
    starts, threads, codes, told = list[I64](), list[I64](), list[I64](), list[I64]()
    names, inputs = Words(), _Known()
    with no_gc():
        for path in paths:
            pieces, before = _Calls(path, ReadLog(), None), len(starts)
            for events in pieces:
                called: list[Any] = [e for e in events if e.cat == "cpu_op" and e.ph == "X"]
                if not called:
                    continue
                starts.append(nanoseconds([e.ts for e in called]))
                threads.append(integers([e.tid for e in called]).astype(np.int64))
                codes.append(names.codes([e.name for e in called]).astype(np.int64))
                told.append(np.array([inputs.code(e.args) for e in called], np.int64))
            base = base_ns(pieces.header)  # which may stand behind the events
            starts[before:] = [np.where(start < 0, start, start + base) for start in starts[before:]]
    if not starts:
        return TorchOperators.empty()
    start = np.concatenate(starts)
    order = np.argsort(start, kind="stable")
    order = order[start[order] >= 0]
    which = np.concatenate(told)[order]
    return TorchOperators(
        start[order],
        np.concatenate(threads)[order],
        names.labels(np.concatenate(codes)[order].astype(np.int32)),
        Labels.of(inputs.shapes).take(which),
        Labels.of(inputs.dtypes).take(which),
    )


class _Known:
    """Combinations of shapes and types that have come before, as they stand in the file, and what they say."""

    def __init__(self) -> None:
        self.shapes: list[str | None] = []
        self.dtypes: list[str | None] = []
        self._codes: dict[tuple[bytes, bytes], int] = {}

    def code(self, args: _Inputs | None) -> int:
        """Return the number of a combination, -1 where none is recorded."""
        if args is None:
            return -1
        key = bytes(args.dims), bytes(args.types)
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = len(self.shapes)
            dims, types = _cells(key[0]), _cells(key[1])
            types = types if len(types) == len(dims) else []
            # Tensors are inputs of such a type; without types those that have a dimension.
            kept = [i for i, cell in enumerate(dims) if cell or (types and types[i] not in _NO_TENSORS)]
            self.shapes.append(";".join(dims[i] for i in kept) if kept else None)
            self.dtypes.append(";".join(types[i] for i in kept) if kept and types else None)
        return code


def _cells(raw: bytes) -> list[str]:
    """Return the cells of a list, nested as Kineto writes it, or a text with separators as torch_npu does."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    if isinstance(value, str):
        return [cell.strip() for cell in value.split(";")]
    return [_cell(one) for one in value] if isinstance(value, list) else []


def _cell(value: object) -> str:
    """Spell one input: a shape, or of a list of tensors all of them."""
    if not isinstance(value, list):
        return str(value)
    if any(isinstance(one, list) for one in value):
        return f"({' '.join(_cell(one) or 'scalar' for one in value)})"
    return ",".join(map(str, value))


class _Found(Struct):
    """What the files of a source told; ``failures``: why some told nothing. ``ranks``: by device, of a database."""

    source: Source
    log: ReadLog
    failures: list[InputError] = field(default_factory=list)
    kernels: Kernels = field(default_factory=Kernels)
    timeline: TraceTimeline | None = None
    vendor: list[VendorStep] = field(default_factory=list)
    vendor_file: str | None = None
    statistics: list[tuple[int | None, Told]] = field(default_factory=list)
    context: Context = field(default_factory=Context)
    machine: RecordedMachine = field(default_factory=RecordedMachine)
    cores: dict[int, Cores] = field(default_factory=dict)
    rank: int | None = None
    ranks: dict[int, int] = field(default_factory=dict)
    communication: CommunicationFiles = field(default_factory=CommunicationFiles)
    memory: dict[int | None, DeviceMemory] = field(default_factory=dict)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Go on after a file that cannot be read."""
        try:
            yield
        except InputError as error:
            self.failures.append(error)

    def read(self, progress: Progress | None) -> None:
        """Read every file."""
        source, log = self.source, self.log
        context, self.rank, self.communication.book = read_context(source.profiler_info, source.metadata, log)
        self.machine = read_machine(source.manifest, log)
        context = context.or_else(self.machine.context)
        with ThreadPoolExecutor(1) as beside:  # tables are parsed without the interpreter lock, traces with it
            own = ReadLog()  # so that what is noted stands in the same order every time
            tables = beside.submit(read_kernels, source, own)
            if source.timeline:
                with self.attempt():
                    self.timeline = interpret(read_trace(source.timeline, log, progress), source.timeline)
                    log.kineto = self.timeline.kineto
                    log.use(*source.timeline)
            try:
                self.kernels = tables.result()
            except InputError as error:
                self.failures.insert(0, error)
            log.add(own)
        # The database is for where text files give no timeline, or no device task at all.
        if source.db and not (self.timeline and (self.kernels.devices or self.timeline.devices)):
            from npuperf.readers.db import read_db

            with self.attempt():
                self.timeline, self.ranks, recorded = read_db(source.db, log)
                self.communication.take(recorded)
                log.use(source.db)
                if self.timeline.environment and not context.environment.in_process:
                    environment = replace(context.environment, in_process=self.timeline.environment)
                    context = replace(context, environment=environment)
        self.communication.read(source, log, self.attempt)
        if source.memory:
            self.memory = read_memory(source.memory, log, self.attempt).devices()
        elif self.timeline:
            self.memory = self.timeline.memory
        for path in source.snapshots:
            from npuperf.readers.memscope import read_memscope
            from npuperf.readers.snapshot import read_snapshot

            with self.attempt():
                self._add_snapshot((read_memscope if path.suffix in (".csv", ".db") else read_snapshot)(path, log))
                log.use(path)
        if source.steps:
            with self.attempt():
                self.vendor, self.vendor_file = read_vendor_steps(source.steps, log), source.steps.name
                log.use(source.steps)
        if source.analysis_db and not (self.vendor and self.communication.whole):
            from npuperf.readers.db import read_analysis_db

            with self.attempt():
                steps, sums = read_analysis_db(source.analysis_db, log, communication=not self.communication.whole)
                if not self.vendor:
                    self.vendor, self.vendor_file = steps, source.analysis_db.name
                self.communication.sums.append(sums)
                log.use(source.analysis_db)
        for path in source.statistics:
            with self.attempt():
                self.statistics += read_statistic(path, log)
                log.use(path)
        read_exports(source.summaries, log)
        self.context = replace(context, exported=log.exported)

    def _add_snapshot(self, found: dict[int | None, DeviceMemory]) -> None:
        """Add to the memory of each device what a snapshot has; the only device is the same, whatever its number."""
        told = [key for key, memory in self.memory.items() if memory.source == "profiler"]
        self.memory = dict(self.memory)
        for number, snapshot in found.items():
            key = told[0] if len(told) == len(found) == 1 else number
            there = self.memory.get(key)
            self.memory[key] = snapshot if there is None else there.with_snapshot(snapshot)

    def rank_of(self, device: int | None) -> int | None:
        """Take the rank from whatever records it; a folder's name does not."""
        recorded = (self.ranks.get(device) if device is not None else None, self.rank, self.source.rank)
        late = (self.timeline.rank if self.timeline else None, self.communication.book.rank)
        return next((r for r in (*recorded, *late) if r is not None), None)

    def second(self, number: int | None, *, alone: bool) -> SecondSources:
        """Put together which other files tell how much a device did; what names no device is an only one's."""
        sums = [told for device, told in self.statistics if device == number or (alone and None in (device, number))]
        seen = self.kernels.timeline.get(number)
        return SecondSources(
            kernels=(*sums, *([seen] if seen else [])),
            communication=self.communication.told(self.source) if alone else None,
            steps=self.vendor_file if alone or any(v.device == number for v in self.vendor) else None,
        )

    def profile(self, number: int | None, tasks: Tasks, *, alone: bool) -> DeviceProfile:
        """Put together what is known of one device; ``number`` None: the files do not name it."""
        device = number if number is not None else self.source.device or 0
        if number is None and len(self.cores) == 1:
            device = next(iter(self.cores))
        timeline, machine = self.timeline or TraceTimeline({}), self.machine
        tasks = assign_steps(tasks, timeline.host, timeline.host_steps).narrowed()
        # Where device or clock is not named, it is the only clock.
        only = next(iter(timeline.clock)) if len(timeline.clock) == 1 else number
        clock = timeline.clock.get(only if number is None or only is None else number)
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
            excerpt=self.kernels.excerpts.get(number),
            second=self.second(number, alone=alone),
            kineto=timeline.kineto,
            communication=self.communication.of_device(number, self.rank_of(number), tasks, timeline, alone=alone),
            frequency=clock if clock is not None and len(clock.time) else None,
            memory=self.memory.get(number) or (self._only_memory() if alone else None),
        )

    def _only_memory(self) -> DeviceMemory | None:
        """Return the memory of the only device that files tell of."""
        return next(iter(self.memory.values())) if len(self.memory) == 1 else None

    def host_alone(self) -> HostProfile | None:
        """Put together what is known of a host without devices, if it ran any torch operator."""
        timeline = self.timeline
        if timeline is None or not len(timeline.host.ops):
            return None
        return HostProfile(
            source=str(self.source.root),
            rank=self.rank_of(None),
            operators=read_operators(self.source.timeline),
            host=timeline.host,
            host_steps=timeline.host_steps,
            context=self.context,
            kineto=timeline.kineto,
        )


class SourceRead(Struct, frozen=True):
    """What a source has: a profile per device, or of a run without any its host."""

    profiles: tuple[DeviceProfile, ...] = ()
    host: HostProfile | None = None


#: Which kinds of file are not there, and what they would tell, with how to get them.
_NO_TIMELINE: Final = say(
    "{what}: {consequence}",
    what=say("no trace_view.json, msprof_*.json or .db"),
    consequence=say(
        "launches, torch operators, code lines and copies are unknown (record with npuperf profile --level 1)"
    ),
)
_NO_TABLE: Final = say(
    "{what}: {consequence}",
    what=say("no kernel_details.csv or op_summary*.csv"),
    consequence=say(
        "core types, Block Dim and hardware counters are unknown (export with ExportType.Text, or msprof --export=on)"
    ),
)
NO_CORES: Final = say(
    "{what}: {consequence}",
    what=say("no PROF_*/device_*/info.json.*"),
    consequence=say("core counts are unknown (give --soc or --cores)"),
)


def _no_groups(untold: int, every: int) -> Message:
    """Say of how many of a trace's collectives the process group is unknown."""
    return say(
        "{what}: {consequence}",
        what=say("no process group for {n} of {all} collectives of a PyTorch trace", n=untold, all=every),
        consequence=say("who waits for whom in them is unknown (newer releases of PyTorch record it, with "
                        "ProfilerActivity.CPU)"),
    )  # fmt: skip


def read_source(source: Source, log: ReadLog, progress: Progress | None = None) -> SourceRead:
    """Read everything a source has.

    Each file that fails is reported; as long as one gives device tasks (or at least the exporter's own
    split of the steps) there is a result. Raises InputError when none does.
    """
    for note in source.notes:
        log.warn(note)
    for note in source.unseen:
        log.fail(note)
    if source.kind == "cluster":
        from npuperf.readers.cluster import read_cluster

        return SourceRead(read_cluster(source, log))
    found = _Found(source, log)
    found.read(progress)
    kernels, timeline = found.kernels.devices, found.timeline
    recorded = bool(found.vendor or found.memory) or any(len(part.operations) for part in found.communication.sums)
    nothing = InputError(say("{path}: nothing could be read", path=str(source.root)))
    if not kernels and timeline is None and not recorded:  # of a table, if there is one, the failure comes first
        raise next(iter(found.failures), nothing)
    for failure in found.failures:
        log.fail(say("{failure}; the other files were used", failure=failure.what), failure)
    lacks = (
        (timeline is None, _NO_TIMELINE),
        (not kernels and not source.db, _NO_TABLE),
        (not source.infos and not source.manifest, NO_CORES),
    )
    if source.kind not in ("snapshot", "memscope") and not (timeline and timeline.kineto):
        log.missing += [missing for lacking, missing in lacks if lacking]
    found.kernels = merge(found.kernels, timeline, source, log)
    devices = found.kernels.devices
    if not devices and recorded:
        numbers = [*(step.device for step in found.vendor), *found.memory]
        devices = dict.fromkeys(numbers, Tasks.empty()) or {None: Tasks.empty()}
    found.cores = read_cores(source.infos, log)
    known_first = sorted(devices, key=lambda number: (number is not None, number or 0))
    profiles = [found.profile(number, devices[number], alone=len(devices) == 1) for number in known_first]
    found.communication.report(log)
    if timeline and timeline.kineto:
        groups = [profile.communication.operations.group.known() for profile in profiles]
        every, told = sum(map(len, groups)), sum(int(np.count_nonzero(known)) for known in groups)
        if told < every:
            log.missing.append(_no_groups(every - told, every))
    return SourceRead(tuple(profiles), None if profiles else found.host_alone())
