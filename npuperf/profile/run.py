"""Record a run from beginning to end: start, watch, export, prove, and write it all down."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from npuperf.cache import made
from npuperf.documents.document import Problem
from npuperf.documents.recorded import ProcessStatus, Recorded, RecordingPlan
from npuperf.errors import ExitCode, InputError, unreadable
from npuperf.files import is_file, read_input
from npuperf.folders import refuse_ways_out
from npuperf.messages import say
from npuperf.process import Ended, ending_with_us, run_attached
from npuperf.profile import manifest as manifests
from npuperf.profile.evidence import RecordingJob, Tell, find_evidence, terminable
from npuperf.profile.export import copy_raw, raw_folders
from npuperf.profile.folder import FIRST, RunFolder, check_free, create, next_run
from npuperf.profile.plan import write_plan
from npuperf.profile.processes import all_recorded, read_all
from npuperf.profile.program import Command, Launch, find_python, prepare, preview, resolve
from npuperf.profile.remarks import overhead_of, remarks, why_nothing
from npuperf.profile.request import ProfileRequest, RecordingOptions
from npuperf.profile.watch import Watch
from npuperf.readers.recording import Recording

_REPLACE: Final = say("--own-profiler replace lets npuperf record in its place")


@dataclass(frozen=True, slots=True)
class Ran:
    """The document of a run and, where it was to be kept, what was read to prove that the data is there."""

    document: Recorded | RecordingPlan
    recording: Recording | None = None


def run(
    request: ProfileRequest, environment: Mapping[str, str], tell: Tell, progress: Tell | None = None
) -> Recorded | RecordingPlan:
    """Run a program under a profiler, or export raw data, and leave a run directory; or say what would be done.

    ``tell`` gets lines that matter, ``progress`` those that only show that something happens. Raises UsageError or
    InputError when it cannot begin; whatever goes wrong later is in the document.
    """
    return run_and_keep(request, environment, tell, progress, keep_recording=False).document


def run_and_keep(
    request: ProfileRequest,
    environment: Mapping[str, str],
    tell: Tell,
    progress: Tell | None = None,
    *,
    keep_recording: bool = True,
) -> Ran:
    """The same, for who wants to go on with what was read at the end."""
    job = RecordingJob(request, environment, tell, progress, keep_recording)
    if request.source is not None:
        return _export_only(job, request.source)
    command = resolve(request.command, request.module, request.python)
    likely = request.output or next_run()
    if request.dry_run:
        check_free(likely, request.force)
    launch = prepare(command, request, RunFolder(likely.absolute()), environment)
    if request.dry_run:
        return Ran(preview(launch, request, RunFolder(likely.absolute()), environment))
    with terminable(), _new_folder(job) as folder:
        if folder.path != likely.absolute():  # another npuperf was quicker
            launch = prepare(command, request, folder, environment)
        return _record(job, command, folder, launch)


def _record(job: RecordingJob, command: Command, folder: RunFolder, launch: Launch) -> Ran:
    """Run a program and gather what it leaves."""
    for caution in launch.cautions:
        job.tell(say("warning: {warning}", warning=caution))
    write_plan(job.request, folder)
    manifest = replace(
        manifests.begin(command, job.request, job.environment),
        stages=manifests.Stages(run=manifests.RunStage(status="running")),
    )
    made.remember(folder.path, "profile", manifest.command, manifest.cwd)  # else tune asks before it runs that
    manifests.write(folder, manifest)
    watch = Watch(folder, job)
    try:
        ended = _run(launch, watch)
        found, recording, manifest = _gathered(job, folder, ended, manifest)
    finally:
        watch.end()
    document = replace(
        found,
        warnings=(*remarks(found.processes, job.request), *watch.found(found.processes), *found.warnings),
        cautions=launch.cautions,
        overhead=overhead_of(found.processes),
    )
    _keep(job, folder, manifests.with_outcome(manifest, document))
    return Ran(document, recording)


def _gathered(
    job: RecordingJob, folder: RunFolder, ended: Ended, manifest: manifests.Manifest
) -> tuple[Recorded, Recording | None, manifests.Manifest]:
    """Write down how the program ended, then export and prove what it left."""
    status, processes = _status(ended, folder), tuple(read_all(folder.status))
    stage = manifests.RunStage(
        status="failed" if status and not ended.asked else "done",
        stopped=ended.asked,
        exit_status=status,
        seconds=round(ended.seconds, 3),
    )
    manifest = manifests.with_processes(manifest, processes, stage)
    _keep(job, folder, manifest)  # readers take the chip from it
    found, recording = _evidence_of(job, folder, processes, status)
    return replace(found, processes=processes, program_status=status, stopped=ended.asked), recording, manifest


def _export_only(job: RecordingJob, source: Path) -> Ran:
    """Export raw data that was collected elsewhere into a run directory, or what a run directory still lacks."""
    try:
        any(source.iterdir() if source.is_dir() else ())
    except PermissionError as error:
        raise unreadable(source, error) from error
    with terminable(), ExitStack() as stack:
        if is_file(RunFolder(source).manifest):
            folder = RunFolder(source.absolute())
            refuse_ways_out(source, *(path.name for path in folder.written))
            before = manifests.read(folder)
            manifest = _known(folder, before)
            stack.enter_context(ending_with_us(folder.export_lock.share()))
        else:
            folder = stack.enter_context(_copied(job, source))
            manifest = before = manifests.begin(Command(()), job.request, job.environment)
            manifests.write(folder, manifest)
        # A directory that this user did not make may be a stranger's: nothing that it names is run.
        ours = made.remembers(folder.path, "profile", manifest.command, manifest.cwd)
        python = _recorded_by(manifest.processes) if ours and not job.request.python else None
        document, recording = find_evidence(job, folder, python or find_python(job.request.python))
        if manifests.read(folder) == before:  # else its program has ended meanwhile, and all was written down
            _keep(job, folder, manifests.with_outcome(manifest, document))
        return Ran(document, recording)


def _known(folder: RunFolder, known: manifests.Manifest | None) -> manifests.Manifest:
    """Return what is known about a run that is to be exported; its program may still run, or have been killed."""
    if known is None:
        raise InputError(say("{path}: not a manifest", path=str(folder.manifest)))
    if not raw_folders(folder.raw):
        raise InputError(say("{folder}: this run recorded nothing that could be exported", folder=folder.shown))
    if known.stages.run is None or known.stages.run.status != "running":
        return known
    processes, goes_on = tuple(read_all(folder.status)), folder.lock.holder() is not None
    if goes_on and not all_recorded(processes, known.options or RecordingOptions()):
        what = say("{folder}: this run is still being recorded", folder=folder.shown)
        raise InputError(what, hint=say("wait for its end, or end its program"))
    stage = known.stages.run if goes_on else manifests.RunStage(status="interrupted")
    return manifests.with_processes(known, processes, stage)


def _recorded_by(processes: tuple[ProcessStatus, ...]) -> str | None:
    """Return an interpreter that has torch_npu, as it recorded; None where none is known, or it is gone."""
    found = (p.executable for p in processes if p.folders and p.executable)
    return next((python for python in found if os.access(python, os.X_OK)), None)


@contextmanager
def _copied(job: RecordingJob, source: Path) -> Iterator[RunFolder]:
    """Copy raw data of the user's into a new run directory."""
    found = raw_folders(source)
    if not found:
        hint = say("give a *_ascend_pt or PROF_* folder, or a folder of them")
        raise InputError(say("{folder}: no raw profiling data found", folder=str(source)), hint=hint)
    with _new_folder(job) as folder:
        job.tell(say("copying {folder}: exporters rewrite what they read", folder=str(source)))
        copy_raw(found, folder)
        yield folder


@contextmanager
def _new_folder(job: RecordingJob) -> Iterator[RunFolder]:
    """Make the run directory, and hold it until nothing of the run is left."""
    folder, moved = create(job.request.output, job.request.force)
    try:
        if moved:
            job.tell(say("the run that was here is kept as {path}", path=str(moved)))
        if job.request.output is None and folder.path.name != FIRST.name:
            job.tell(say("this run goes to {folder}", folder=folder.shown))
        with ending_with_us((*folder.lock.share(), *folder.export_lock.share())):
            yield folder
    finally:
        folder.lock.release()


def _keep(job: RecordingJob, folder: RunFolder, manifest: manifests.Manifest) -> None:
    """Write down how far a run has come; the program's status is not lost for a disk that is full."""
    try:
        manifests.write(folder, manifest)
    except InputError as error:
        job.tell(say("warning: the run's record is incomplete: {why}", why=error.what))


def _run(launch: Launch, watch: Watch) -> Ended:
    try:
        return run_attached(launch.argv, launch.environment, watch.tick)
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(say("{program}: cannot be started: {why}", program=launch.argv[0], why=why)) from error


def _status(ended: Ended, folder: RunFolder) -> int:
    """Return the program's exit status; msprof's own says nothing about it."""
    try:
        status = int(read_input(folder.exit_status))
    except (InputError, ValueError):
        return ended.status
    return status if status >= 0 else 128 - status


def _evidence_of(
    job: RecordingJob, folder: RunFolder, processes: tuple[ProcessStatus, ...], status: int
) -> tuple[Recorded, Recording | None]:
    """Export and prove what a program left, or say why it left nothing."""
    own = tuple(path for p in processes for path in p.own_data)
    if not any(folder.raw.iterdir()):
        if own:
            what = say("the program has its own profiler, so npuperf deferred to it; {advice}", advice=_REPLACE)
            return Recorded(folder=folder.shown, data=own, warnings=(what,)), None
        return Recorded(folder=folder.shown, problem=_why_nothing(job, processes, status)), None
    python = _recorded_by(processes) or find_python(job.request.python)
    found, recording = find_evidence(job, folder, python)
    if own and found.data and not all(e.done for e in found.exports):  # recording ended as soon as it had begun
        return replace(found, data=own, problem=None), None
    return found, recording


def _why_nothing(job: RecordingJob, processes: tuple[ProcessStatus, ...], status: int) -> Problem:
    if job.request.engine == "msprof":
        what = say("msprof left no data: did the program use the NPU?")
        return Problem(what=what, exit_code=ExitCode.CHILD_FAILED)
    if any(p.state == "aside" for p in processes):
        what = say("the program has its own profiler, so npuperf deferred to it, but that profiler recorded nothing")
        return Problem(what=what, hint=_REPLACE)
    return why_nothing(processes, job.request, job.environment, status)
