"""A trace as it is written: event by event into a file that is whole or not there, packed where its name says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from npuperf import __version__
from npuperf.documents.analysis import Device, Result
from npuperf.errors import NpuperfError
from npuperf.escape import without_halves
from npuperf.files import writing_atomically
from npuperf.messages import say
from npuperf.model.device import DeviceProfile
from npuperf.model.labels import Labels
from npuperf.parallel import Engine
from npuperf.readers.recording import Reading, Recording
from npuperf.traces.trace_events import EpochArgs, EpochEvent, Event, LabelArgs, LabelEvent

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
        epoch = EpochEvent(
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


def in_turn(recording: Recording, work: Callable[[Reading], None]) -> None:
    """Read one source after the other and work on each; the first error of the work is raised, and ends it."""

    def once(reading: Reading) -> None:
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


def device_of(result: Result, profile: DeviceProfile) -> Device | None:
    """Return what was found about a device; None where it was not analyzed."""
    key = (profile.rank, profile.device, profile.source)
    return next((d for d in result.devices if (d.rank, d.device, d.source) == key), None)


def called(rank: int | None, what: str, *, of_job: bool) -> str:
    """Return what a process is called: of a job, with its rank."""
    return f"rank {rank}: {what}" if of_job and rank is not None else what
