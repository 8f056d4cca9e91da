"""Events of Chrome's trace format, as Perfetto, chrome://tracing and MindStudio Insight read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType
from msgspec import field as struct_field

from npuperf.base import __version__
from npuperf.base.errors import InputError, NpuperfError
from npuperf.base.escape import without_halves
from npuperf.base.files import writing_atomically
from npuperf.base.messages import Message, say, say_n
from npuperf.base.parallel import Engine
from npuperf.device.cores import Sweep
from npuperf.model.chip import Cores
from npuperf.model.device import ClockRates, DeviceProfile
from npuperf.model.device_memory import DeviceMemory
from npuperf.model.groups import sorted_rows
from npuperf.model.labels import F64, I64, Labels
from npuperf.model.result import Device, Partition, Result
from npuperf.model.tasks import Tasks
from npuperf.readers.recording import Reading, Recording

#: A time: µs as a number, or as the vendor's text with three decimals.
Moment = float | str


class LabelArgs(Struct, omit_defaults=True):
    """What a process or thread is called, or where it is shown."""

    name: str | UnsetType = UNSET
    labels: str | UnsetType = UNSET
    sort_index: int | UnsetType = UNSET


class EpochArgs(Struct):
    """What the times of a trace count from, as text: an epoch in ns has more digits than numbers of viewers have."""

    epoch_ns: str
    tool: str


class LabelEvent(Struct, tag_field="ph", tag="M"):
    """Metadata of a process (``tid`` is its ``pid``), of a thread, or of the trace: ``name`` says of what kind."""

    name: str
    pid: int
    tid: int
    args: LabelArgs | EpochArgs


class TaskArgs(Struct, omit_defaults=True):
    """What is known of a device task."""

    core: str | None = struct_field(default=None, name="Task Type")
    type: str | None = None
    step: int = -1
    block: int = struct_field(default=-1, name="Block Dim")
    mix_block: int = struct_field(default=-1, name="Mix Block Dim")
    moved: int = struct_field(default=-1, name="size(B)")


class PartArgs(Struct, omit_defaults=True):
    """A step or a phase: its verdict, the shares of its time (0 to 1), and its time in ns."""

    verdict: str
    basis: str
    reason: str
    shares: dict[str, float]
    partition: Partition
    label: str | None = None
    where: str | None = None
    whole: bool | None = None


class WaitArgs(Struct, omit_defaults=True):
    """A wait: what it is for, what the host did meanwhile, where in the code, on which thread."""

    cause: str
    name: str
    where: str | None = None
    thread: int = -1


class RootArgs(Struct, omit_defaults=True):
    """A root of waiting: whose waiting it explains, in ns and as a share of all waiting."""

    kind: str
    why: str
    ranks: list[int]
    wait_ns: int
    share: float
    where: str | None = None
    gain_ns_per_step: tuple[int, int] | None = None
    next: str | None = None


class FindingArgs(Struct, omit_defaults=True):
    """A finding, in words, and what it would gain."""

    rule: str
    severity: str
    device: str
    gain_ns_per_step: tuple[int, int] | None = None
    gain_pct: tuple[float, float] | None = None
    next: str | None = None
    code: str | None = None


Args = TaskArgs | PartArgs | WaitArgs | RootArgs


class SliceEvent(Struct, tag_field="ph", tag="X", omit_defaults=True):
    """Something that lasts; ``dur`` in µs."""

    name: str
    pid: int
    tid: int
    ts: Moment
    dur: float
    args: Args | None = None


class MarkEvent(Struct, tag_field="ph", tag="I"):
    """A moment. Insight knows it by the capital letter only; ``s``: g for a line through all tracks."""

    name: str
    pid: int
    tid: int
    ts: Moment
    s: str
    args: FindingArgs


class CounterEvent(Struct, tag_field="ph", tag="C"):
    """Numbers from a time on."""

    name: str
    pid: int
    tid: int
    ts: Moment
    args: dict[str, int]


class FlowStart(Struct, tag_field="ph", tag="s"):
    """Where an arrow begins: in the innermost slice of its thread at that time."""

    name: str
    cat: str
    id: int
    pid: int
    tid: int
    ts: Moment


class FlowEnd(FlowStart, tag="f"):
    """Where an arrow ends: ``bp`` e is the slice around that time, not the next one."""

    bp: str


Event = LabelEvent | SliceEvent | MarkEvent | CounterEvent | FlowStart | FlowEnd  # what a trace consists of


def microseconds(time: I64) -> F64:
    """Return ns as µs, of which viewers make the same ns again, whether they round or cut off what is behind a ns.

    1.001 · 1000 is 1000.9999999999999: Perfetto cut that off until 2025. The next larger number comes out right.
    """
    found = time / 1000
    short = (found * 1000).astype(np.int64) < time
    return np.where(short, np.nextafter(found, np.inf), found)


def vendor_text(time: I64) -> list[str]:
    """Return epoch ns as torch_npu and msprof write them: µs with three decimals."""
    whole, rest = np.divmod(time, 1000)
    return [f"{us}.{ns:03d}" for us, ns in zip(whole.tolist(), rest.tolist(), strict=True)]


# -- A trace as it is written: event by event into a file that is whole or not there, packed where its name says so.

#: Events that are held at the same time.
_CHUNK: Final = 1 << 14
_ENCODER: Final = msgspec.json.Encoder()
_EPOCH: Final = "npuperf_epoch"


@dataclass(slots=True)
class TraceWriter:
    """Writes a list of events, one a line: Insight cuts large files behind "}," and one blank.

    ``process`` and ``thread`` hand out numbers from ``first_number`` on, each for one pid or tid: old viewers name
    threads by their number alone, whatever the process.
    """

    file: BinaryIO
    first_number: int = 1
    numbers: Iterator[int] = field(init=False)
    order: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.numbers = count(self.first_number)

    def write(self, events: Iterable[Event]) -> None:
        """Write events, a chunk at a time."""
        source = iter(events)
        while chunk := list(islice(source, _CHUNK)):
            self.file.write(_ENCODER.encode_lines(chunk).replace(b"\n", b",\n"))  # none stands inside of an event

    def process(self, name: str, label: str) -> int:
        """Name a new process, and return its number. ``label``: what it stands for, as Ascend's traces have it."""
        pid = next(self.numbers)
        kinds = {
            "process_name": LabelArgs(name=without_halves(name)),
            "process_labels": LabelArgs(labels=without_halves(label)),
            "process_sort_index": LabelArgs(sort_index=next(self.order)),
        }
        self.write(LabelEvent(kind, pid, pid, args) for kind, args in kinds.items())
        return pid

    def thread(self, pid: int, name: str) -> int:
        """Name a new thread, shown below those before it, and return its number."""
        tid = next(self.numbers)
        kinds = {
            "thread_name": LabelArgs(name=without_halves(name)),
            "thread_sort_index": LabelArgs(sort_index=next(self.order)),
        }
        self.write(LabelEvent(kind, pid, tid, args) for kind, args in kinds.items())
        return tid

    def end(self, epoch_ns: int) -> None:
        """Say what times count from, and close the list."""
        epoch = LabelEvent(
            _EPOCH, self.first_number, self.first_number, EpochArgs(str(epoch_ns), f"npuperf {__version__}")
        )
        self.file.write(_ENCODER.encode(epoch) + b"\n]\n")


@contextmanager
def trace_file(path: Path, first_number: int = 1) -> Iterator[TraceWriter]:
    """Open a trace to be written; numbers of processes and threads begin with ``first_number``.

    Raises InputError where that fails, and then the file is what it was before.
    """
    with writing_atomically(path) as file:
        if path.suffix != ".gz":
            file.write(b"[\n")
            yield TraceWriter(file, first_number)
            return
        import gzip

        with gzip.GzipFile("", "wb", 6, file, 0) as packed:  # the same bytes for the same trace, whenever it is written
            packed.write(b"[\n")
            yield TraceWriter(packed, first_number)  # type: ignore[arg-type]


def names_of(labels: Labels, otherwise: str) -> list[str]:
    """Return the cells of a column as texts that JSON has signs for; what is not recorded is called ``otherwise``."""
    names = (*map(without_halves, labels.names), otherwise)  # the last place is that of -1
    return [names[code] for code in labels.codes.tolist()]


class _EndedError(NpuperfError):
    """The work on a source failed, which is not the source's fault: no other is read."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(say("{error}", error=str(cause)))
        self.cause = cause


def in_turn(recording: Recording, work: Callable[[Reading], None]) -> Message | None:
    """Read one source after the other and work on each; return what to say of those that could not be read.

    The first error of the work is raised, and ends it; so is that of reading, where there is nothing else.
    """
    unread: list[InputError] = []

    def once(reading: Reading) -> None:
        if reading.error is not None:
            unread.append(reading.error)
        try:
            work(reading)
        except Exception as error:
            raise _EndedError(error) from error

    try:
        if recording.keep:
            for reading in recording.map(lambda reading: reading):
                once(reading)
        else:
            recording.map(once, engine=Engine("serial", workers=1))
    except _EndedError as ended:
        raise ended.cause from None
    if not unread:
        return None
    if len(unread) == len(recording.sources):
        raise unread[0]
    return say_n("{n} source could not be read again: {why}", "{n} sources could not be read again; the first: {why}",
                 len(unread), why=unread[0].what)  # fmt: skip


def device_of(result: Result, profile: DeviceProfile) -> Device | None:
    """Return what was found about a device; None where it was not analyzed."""
    key = (profile.rank, profile.device, profile.source)
    return next((d for d in result.devices if (d.rank, d.device, d.source) == key), None)


def called(rank: int | None, what: str, *, of_job: bool) -> str:
    """Return what a process is called: of a job, with its rank."""
    return f"rank {rank}: {what}" if of_job and rank is not None else what


# -- Slices on tracks of a viewer: those of one track lie inside of each other or apart, never half over one another.


def sub_tracks(track: I64, start: I64, end: I64) -> I64:
    """Return for each slice how many tracks beside its own it needs: 0 for its own, 1 for the one below, …

    Slices half over an earlier one go to the first track where they are inside of one or free. Zero length counts as
    being inside of whatever is there.
    """
    order = sorted_rows(track, start, -end)
    row, begin, finish = track[order], start[order], end[order]
    found = np.zeros(len(order), np.int64)
    if not len(order):
        return found
    lane = found.copy()
    for first, last in _tangled(row, begin, finish):
        lane[first:last] = _placed(begin[first:last].tolist(), finish[first:last].tolist())
    found[order] = lane
    return found


def _tangled(track: I64, start: I64, end: I64) -> list[tuple[int, int]]:
    """Return the stretches, between moments when their track is empty, in which some slice is half over another.

    Ordered by track, then start, the longer first.
    """
    half = _half_over(track, start, end)
    if not len(half):
        return []
    fresh = np.append(True, track[1:] != track[:-1])
    # Ends of the tracks before are moved below all starts of this one, so that one running maximum does for all.
    shift = np.cumsum(fresh) * (int(end.max()) - int(start.min()) + 1)
    reach = np.maximum.accumulate(end - int(start.min()) + shift)
    empty = np.append(True, reach[:-1] <= (start - int(start.min()) + shift)[1:])
    firsts = np.flatnonzero(empty | fresh)
    which = np.searchsorted(firsts, half, side="right") - 1
    bounds = np.append(firsts, len(start)).tolist()
    return [(bounds[i], bounds[i + 1]) for i in sorted(set(which.tolist()))]


def _half_over(track: I64, start: I64, end: I64) -> I64:
    """Return the slices that end after the latest earlier one that is still there when they begin."""
    before = np.arange(-1, len(start) - 1)
    before[np.append(True, track[1:] != track[:-1])] = -1
    searching = np.flatnonzero(before >= 0)
    while len(searching):  # what an ended slice has stepped over has ended, too: pointers double their reach
        at = before[searching]
        searching, at = searching[end[at] <= start[searching]], at[end[at] <= start[searching]]
        before[searching] = before[at]
        searching = searching[before[searching] >= 0]
    held = np.flatnonzero(before >= 0)
    return held[end[before[held]] < end[held]]


def _placed(starts: list[int], ends: list[int]) -> list[int]:
    """Put each slice on the first of as many tracks as are needed."""
    tracks: list[list[int]] = []
    found = []
    for start, end in zip(starts, ends, strict=True):
        number = 0
        for track in tracks:
            while track and track[-1] <= start:  # what has ended by then
                track.pop()
            if not track or track[-1] >= end:
                break
            number += 1
        else:
            tracks.append([])
        tracks[number].append(end)
        found.append(number)
    return found


# -- Cores and memory in use over time, as counters of a trace.

NAME: Final = "cores in use"
CLOCK: Final = "AI Core Freq"
#: Counters of memory, bytes: each has a name of its own, as viewers put the values of one upon each other.
ALLOCATED, RESERVED, PROCESS = "memory allocated", "memory reserved", "memory of the process"
#: Values that are turned into events at the same time.
_ROWS: Final = 1 << 14


def core_counters(
    tasks: Tasks, device: Device, pid: int, moments: Callable[[I64], Sequence[Moment]]
) -> Iterator[CounterEvent]:
    """Yield how many cores of each side are in use, from each time on when that changes; nothing where it is unknown.

    ``moments`` makes times of a trace from those of the device.
    """
    if not len(tasks):
        return
    cores = Cores(device.cores_cube, device.cores_vector)
    sweep = Sweep.of(tasks, cores, (int(tasks.start.min()), int(tasks.end.max())))
    if sweep is None:
        return
    sides = {
        name: np.append(np.minimum(wanted, most), 0)  # behind the last border there is nothing
        for name, (most, wanted) in zip(("cube", "vector"), sweep.sides, strict=True)
        if most
    }
    change = np.zeros(len(sweep.border), np.bool_)
    change[:1] = True
    for used in sides.values():
        change[1:] |= used[1:] != used[:-1]
    rows = np.flatnonzero(change)
    for first in range(0, len(rows), _ROWS):
        part = rows[first : first + _ROWS]
        columns = (used[part].tolist() for used in sides.values())
        for moment, values in zip(moments(sweep.border[part]), zip(*columns, strict=True), strict=True):
            yield CounterEvent(NAME, pid, pid, moment, dict(zip(sides, values, strict=True)))


def clock_counter(
    rates: ClockRates | None, pid: int, moments: Callable[[I64], Sequence[Moment]]
) -> Iterator[CounterEvent]:
    """Yield the clock of AI Cores whenever it changes, as exporters call it; nothing where it is not recorded.

    ``moments`` makes times of a trace from those of the device.
    """
    if rates is not None:
        for moment, value in zip(moments(rates.time), rates.mhz.tolist(), strict=True):
            yield CounterEvent(CLOCK, pid, pid, moment, {"MHz": value})


def memory_counters(
    memory: DeviceMemory | None, pid: int, moments: Callable[[I64], Sequence[Moment]]
) -> Iterator[CounterEvent]:
    """Yield how many bytes are allocated, reserved, and the process's, whenever one changes, as far as it is recorded.

    ``moments`` makes times of a trace from those of the host, as which memory is recorded.
    """
    if memory is None or not memory.time_known:
        return
    counters, process = memory.counters, memory.process
    found = ((ALLOCATED, counters.time, counters.allocated), (RESERVED, counters.time, counters.reserved),
             (PROCESS, process.time, process.size))  # fmt: skip
    for name, time, values in found:
        known = np.flatnonzero(values >= 0)
        rows = known[np.append(True, np.diff(values[known]) != 0)[: len(known)]]
        for first in range(0, len(rows), _ROWS):
            part = rows[first : first + _ROWS]
            for moment, value in zip(moments(time[part]), values[part].tolist(), strict=True):
                yield CounterEvent(name, pid, pid, moment, {"bytes": value})
