"""What a run leaves to analyze: exported, then read once to prove that it is there."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from npuperf.documents.document import Problem
from npuperf.documents.recorded import Exported, Proof, Recorded
from npuperf.errors import ExitCode, InputError, NpuperfError
from npuperf.escape import for_shell
from npuperf.files import open_lines
from npuperf.messages import Message, chain, say, say_n, series
from npuperf.model.device import DeviceProfile
from npuperf.model.tasks import NO_TIME, Work
from npuperf.profile.export import Export, ExportJob, export
from npuperf.profile.folder import RunFolder, bytes_below
from npuperf.profile.request import ProfileRequest
from npuperf.readers.recording import Reading, Recording, open_recording

Tell = Callable[[Message], None]

_FORMATS: Final = {"text": ("text",), "db": ("db",), "both": ("text", "db")}


@dataclass(frozen=True, slots=True)
class RecordingJob:
    """What all steps of a run need to know."""

    request: ProfileRequest
    environment: Mapping[str, str]
    tell: Tell
    progress: Tell | None
    keep_recording: bool


def find_evidence(job: RecordingJob, folder: RunFolder, python: str) -> tuple[Recorded, Recording | None]:
    """Export, then read everything once to prove that it is there; ``python`` is an interpreter with torch_npu.

    Returns what was found, and what was read where it is to be kept and can be analyzed.
    """
    formats = _FORMATS[job.request.export] if job.request.source is None or "export" in job.request.given else None
    progress = job.progress or (lambda _: None)
    how = ExportJob(formats, python, job.environment, progress, job.tell, job.request.export_timeout)
    exported = Export()
    with terminable():
        try:
            exported = export(folder, how)
            progress(say("reading the exported data"))
            recording, proofs = _proven(folder, job.keep_recording)
        except KeyboardInterrupt:
            what = say("interrupted while exporting; the raw data is kept")
            problem = Problem(what=what, hint=say("{command}", command=_again(folder)), exit_code=ExitCode.INTERRUPTED)
            return Recorded(folder=folder.shown, exports=exported.folders, problem=problem), None
        except NpuperfError as error:  # the program's own status is not lost for it
            problem = Problem(what=error.what, hint=error.hint, exit_code=error.exit_code)
            return Recorded(folder=folder.shown, exports=exported.folders, problem=problem), None
    failed = _judge(folder, exported, proofs)
    found = Recorded(
        folder=folder.shown,
        raw_bytes=bytes_below(folder.raw),
        data=(folder.shown,),
        exports=exported.folders,
        proofs=proofs,
        warnings=(*([exported.note] if exported.note else []), *(_doubts(proofs) if failed is None else [])),
        problem=failed,
    )
    return found, recording if job.keep_recording and failed is None else None


def _proven(folder: RunFolder, keep: bool) -> tuple[Recording | None, tuple[Proof, ...]]:
    try:
        recording = open_recording(Path(folder.shown), keep=keep)
    except InputError as error:
        return None, (Proof(path=str(folder.raw), problem=error.what),)
    return recording, prove(recording)


def _judge(folder: RunFolder, exported: Export, proofs: tuple[Proof, ...]) -> Problem | None:
    """Say what is wrong with an export: a folder without its files, or nothing to analyze in any."""
    failed = [e for e in exported.folders if not e.done]
    if failed:
        return _not_exported(folder, failed, some=any(p.holds for p in proofs))
    if not proofs or any(p.holds for p in proofs):
        return None
    first = proofs[0]
    nothing = say("{path}: contains no kernels: the device ran none while it was recorded", path=first.path)
    return Problem(what=first.problem or nothing)


def _not_exported(folder: RunFolder, failed: list[Exported], *, some: bool) -> Problem:
    """Say what the exporter said. ``some``: a part of the data can be read all the same."""
    first, others = failed[0], len(failed) - 1
    what = say("{folder}: {tool} made no {files}; it said:",
               folder=first.folder, tool=first.tool, files=series(first.missing))  # fmt: skip
    hint = chain(
        say("the raw data is kept"),
        say_n("{n} more folder failed", "{n} more folders failed", others) if others else None,
        say("what msprof exported by itself can be analyzed") if some else None,
        say("try again with: {command}", command=_again(folder)),
    )
    return Problem(what=chain(what, *first.words, by="\n    "), hint=hint, exit_code=ExitCode.CHILD_FAILED)


def _again(folder: RunFolder) -> str:
    return f"npuperf profile --export {for_shell(folder.shown)}"


def _doubts(proofs: tuple[Proof, ...]) -> list[Message]:
    """Warn of what cannot be read beside what can."""
    bad = [p for p in proofs if not p.holds]
    found = [say("{path}: {problem}", path=p.path, problem=p.problem or say("contains no kernels")) for p in bad]
    lost = (
        say_n(
            "{path}: {n} row or event cannot be read", "{path}: {n} rows or events cannot be read", p.lost, path=p.path
        )
        for p in proofs
        if p.lost
    )
    return [*dict.fromkeys(doubt for p in proofs for doubt in p.doubts), *found, *lost]


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end what npuperf does, exporters among it, the way Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def prove(recording: Recording) -> tuple[Proof, ...]:
    """Read everything of a recording; what cannot be read is a proof that does not hold."""
    return tuple(proof for proofs in recording.map(_proofs) for proof in proofs)


def _proofs(reading: Reading) -> list[Proof]:
    path, rank = str(reading.source.root.absolute()), reading.source.rank
    if reading.error is not None:
        return [Proof(path=path, rank=rank, problem=reading.error.what)]
    lost = sum(loss.rows for loss in reading.log.lost)
    if not reading.profiles:  # the events with a duration count, in traces of the CPU only
        mark = re.compile(r'"ph":\s*"X"')
        events = 0
        for file in reading.source.timeline:
            with open_lines(file) as lines:
                events += sum(len(mark.findall(line)) for line in lines)
        return [Proof(path=path, rank=rank, events=events, lost=lost)]
    doubts = tuple(reading.log.warnings)
    return [_of(path, profile, lost, doubts) for profile in reading.profiles]


def _of(path: str, profile: DeviceProfile, lost: int, doubts: tuple[Message, ...]) -> Proof:
    tasks = profile.tasks
    kernels = np.isin(tasks.work, (Work.COMPUTE, Work.COMMUNICATION))
    return Proof(
        path=path,
        rank=profile.rank,
        device=profile.device,
        kernels=int(kernels.sum()),
        launched=int((kernels & (tasks.launch_end != NO_TIME)).sum()),
        steps=len(set(profile.host_steps.number.tolist())),
        lost=lost,
        doubts=doubts,
    )
