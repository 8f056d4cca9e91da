"""Record a run from beginning to end: start, watch, export, prove, and write it all down."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from npuperf.base import trust
from npuperf.base.errors import ExitCode, InputError, unreadable
from npuperf.base.escape import for_shell
from npuperf.base.files import is_file, read_input, refuse_ways_out, write_atomically
from npuperf.base.messages import Message, chain, ns, say, say_n, series, size
from npuperf.base.process import Beside, Outliving, guarded, is_running, run_attached
from npuperf.base.units import NS_PER_S
from npuperf.model.document import Problem
from npuperf.model.recorded import ProcessStatus, Recorded, RecordingPlan
from npuperf.readers.recording import Recording
from npuperf.record import attach
from npuperf.record import manifest as manifests
from npuperf.record.evidence import find_evidence, overhead_of, remarks, terminable, why_nothing
from npuperf.record.export import copy_raw, keep_snapshots, raw_folders
from npuperf.record.folder import FIRST, RunFolder, bytes_below, check_free, create, forget_failed, next_run
from npuperf.record.manifest import BUSY, all_recorded, read_all, state_of
from npuperf.record.plan import RecordingJob, Tell, plan_of
from npuperf.record.program import Command, Launch, distortions, find_python, prepare, preview, resolve
from npuperf.record.request import ProfileRequest, RecordingOptions
from npuperf.record.running import Running, extend, find_running

# -- What is done while the program runs: saying how far it is, and acting when its data is too large or complete.

#: Seconds between two lines that only count steps, between two looks at size and processes, and between two lines
#: that only say that something goes on.
_PATIENCE: Final = 10.0
_WEIGH: Final = 1.0
_BEAT: Final = 30.0


class Watch:
    """Looks at the processes of a run.

    Whoever watches gets a line whenever the first of them enters another phase. When everything has been recorded and
    the program goes on, it is ended or exported beside, as was asked, or it is said what can be typed meanwhile.
    """

    def __init__(self, folder: RunFolder, job: RecordingJob) -> None:
        self.folder, self.job, self.request = folder, job, job.request
        self._said = ("", 0.0)
        self._looked = 0.0
        self._why_stopped: Message | None = None
        self._recorded_at: float | None = None
        self._spoken = 0.0
        self._exporter: Beside | None = None

    def tick(self) -> bool:
        """Look once, and return whether the program is to end."""
        now, folder, limit = time.monotonic(), self.folder, self.request.max_size
        if self.job.progress is not None:
            first = _first(read_all(folder.status))
            state, when = self._said
            # In another state, or still waiting after some time.
            if first and (first.state != state or (state.startswith("wait") and now - when > _PATIENCE)):
                self._said = (first.state, now)
                self.job.progress(_news(first, self.request))
        if now - self._looked < _WEIGH:
            return False
        self._looked = now
        if limit is not None and self._why_stopped is None and (grown := bytes_below(folder.raw)) > limit:
            self.stop(_too_much(grown, limit))
        if self._recorded_at is None:
            if (
                self.request.whole_run
                or self.request.standby
                or not all_recorded(read_all(folder.status), self.request)
            ):
                return False
            self._recorded_at = now
            if self.request.export_early and not self.request.stop_after:
                self._export_beside()
        return self._after(now - self._recorded_at)

    def saving(self, number: int) -> bool:
        """A signal is to end the program: let processes that record stop first; tell whether one has still to save."""
        recording = [p for p in read_all(self.folder.status) if p.state in BUSY and is_running(p.pid)]
        if recording and self._why_stopped is None:
            name = signal.Signals(number).name
            self.stop(say("npuperf got {signal} for the program", signal=name))
        return bool(recording)

    def stop(self, why: Message) -> None:
        """Let every process end its recording with the step that it is in."""
        self._why_stopped = why
        with suppress(OSError):  # a new name needs no space, unlike a new file
            self.folder.go_on.rename(self.folder.stop)

    def end(self) -> None:
        """End the export beside the program, if it still works; what it exports is waited for by who needs it."""
        if self._exporter is not None:
            self._exporter.end()

    def found(self, processes: Sequence[ProcessStatus]) -> list[Message]:
        """Say where recording was stopped, or that its data grew too large unseen.

        torch_npu's writer thread sometimes ends as it begins; its data then reaches the disk only at the end.
        """
        limit = self.request.max_size
        stopped = [p for p in processes if p.stopped is not None]
        if stopped and self._why_stopped is not None:
            return [say("{process}: recording stopped at step {step}: {why}",
                        process=p.name, step=p.stopped, why=self._why_stopped) for p in stopped]  # fmt: skip
        if limit is None or (grown := bytes_below(self.folder.raw)) <= limit:
            return []
        return [say("{why}; recording had ended before this was noticed", why=_too_much(grown, limit))]

    def _after(self, passed: float) -> bool:
        """Everything was recorded ``passed`` seconds ago: return whether the program is to end."""
        if self.request.stop_after:
            if not self._spoken:
                self._spoken = passed or 1.0
                self.job.tell(say("everything has been recorded: ending the program, as --stop-after asks"))
            elif passed - self._spoken >= _BEAT:
                self._spoken = passed
                self.job.tell(
                    say("the program has been asked to end (SIGTERM) and goes on; Ctrl-C three times kills it")
                )
            return True
        if self._exporter is not None:
            if self._exporter.ended == 0 and not self._spoken:
                self._spoken = passed
                self.job.tell(say("exported; the program goes on. Meanwhile, elsewhere: npuperf analyze {folder}",
                                  folder=for_shell(self.folder.shown)))  # fmt: skip
        elif passed >= _PATIENCE and not self._spoken:
            self._spoken = passed
            self.job.tell(say("everything has been recorded; the program goes on. Meanwhile, elsewhere: "
                              "npuperf profile --export {folder}; Ctrl-C here ends the program and keeps the data",
                              folder=for_shell(self.folder.shown)))  # fmt: skip
        return False

    def _export_beside(self) -> None:
        """Start what a user would type meanwhile."""
        chosen = ["--python", self.request.python] if self.request.python else []
        limit = self.request.export_timeout
        chosen += [] if limit is None else ["--export-timeout", str(limit)]
        processes = self.request.export_processes
        chosen += [] if processes is None else ["--export-processes", str(processes)]
        call = [sys.executable, "-m", "npuperf", "profile", *chosen, "--export", str(self.folder.path)]
        if "export" in self.request.given:
            call += ["--export", self.request.export]
        with suppress(OSError):
            self._exporter = Beside(call, self.job.environment, self.folder.beside_log)
            self.job.tell(say("everything has been recorded: exporting it beside the program"))


def _first(processes: Sequence[ProcessStatus]) -> ProcessStatus | None:
    """Return the process whose progress is told: the first rank's, else that of whoever is furthest."""
    counting = [p for p in processes if p.state not in ("left out", "forked", "launcher")]
    return min(counting, key=lambda p: (p.rank is None, p.rank or 0, -p.step), default=None)


def _news(process: ProcessStatus, request: ProfileRequest) -> Message:
    """Say how far a process is, which rank it has, and which of several windows it is about to record, or has."""
    news, count = _progress(process, request), len(process.recorded)
    if process.rank is not None:
        news = say("{news} (rank {rank})", news=news, rank=process.rank)
    if (
        request.repeat == 1
        or request.whole_run
        or request.duration is not None
        or process.state not in (*BUSY, "recorded")
    ):
        return news
    number = count // request.active + (process.state == "warming up")
    if process.state in ("recording", "saving"):
        number = (max(count, 1) - 1) // request.active + 1
    return say("{news}, repetition {number} of {repeat}", news=news, number=number, repeat=request.repeat)


def _progress(process: ProcessStatus, request: ProfileRequest) -> Message:
    state, step, count = state_of(process), process.step, len(process.recorded)
    if process.state == "waiting" and request.pid is None and not request.is_told:
        return say("step {step} of {wait} before recording", step=step, wait=request.wait)
    if process.state == "recorded" and request.duration is not None:
        return say("recorded {time}; the program goes on", time=ns((process.seconds or 0) * NS_PER_S))
    if process.state == "recorded":
        return say_n("recorded {n} step; the program goes on", "recorded {n} steps; the program goes on", count)
    if process.state not in ("warming up", "recording"):
        return state
    is_counted = not request.whole_run and request.duration is None
    if not count or not is_counted or process.state == "warming up":
        return say("{state}: step {step}", state=state, step=step)
    return say("{state}: step {step}, {number} of {active}",
               state=state, step=step, number=(count - 1) % request.active + 1, active=request.active)  # fmt: skip


def _too_much(grown: int, limit: int) -> Message:
    return say("the data has grown to {grown}, more than --max-size {limit}", grown=size(grown), limit=size(limit))


@dataclass(frozen=True, slots=True)
class Ran:
    """The document of a run and, where it was to be kept, what was read to prove that the data is there."""

    document: Recorded | RecordingPlan
    recording: Recording | None = None


def run(
    request: ProfileRequest,
    environment: Mapping[str, str],
    tell: Tell,
    progress: Tell | None = None,
    *,
    keep_recording: bool = False,
) -> Ran:
    """Run a program under a profiler, or export raw data, and leave a run directory; or say what would be done.

    ``tell`` gets lines that matter, ``progress`` those that only show that something happens. Raises UsageError or
    InputError when it cannot begin; whatever goes wrong later is in the document.
    """
    job = RecordingJob(request, environment, tell, progress, keep_recording)
    if request.source is not None:
        return _export_only(job, request.source)
    if request.more is not None:
        tell(extend(request))
        return Ran(Recorded(folder=str(request.more)))
    if request.pid is not None:
        running = find_running(request.pid, environment)
        request = attach.as_started(request, running)
        return _record_running(RecordingJob(request, environment, tell, progress, keep_recording), running)
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
    """Run a program, export and prove what it leaves, and write down how far it came."""
    for caution in launch.cautions:
        job.tell(say("warning: {warning}", warning=caution))
    if job.request.standby:
        folder.standby.mkdir(mode=0o700)
        job.tell(say("in standby: nothing is recorded until another shell asks for it, with "
                     "npuperf profile --pid {pid} --duration 5s, for example", pid=os.getpid()))  # fmt: skip
    _write_plan(job.request, folder)
    manifest = manifests.begin(command, job.request, job.environment, manifests.RunStage(status="running"))
    trust.remember(folder.path, "profile", manifest.command, manifest.cwd)  # else tune asks before it runs that
    manifests.write(folder, manifest)
    watch = Watch(folder, job)
    try:
        try:
            wrapped = launch.argv != command.argv
            ended = run_attached(launch.argv, launch.environment, watch.tick, wrapped=wrapped, saving=watch.saving)
        except OSError as error:
            why = error.strerror or str(error)
            raise InputError(say("{program}: cannot be started: {why}", program=launch.argv[0], why=why)) from error
        kept = _kept_status(folder)  # msprof's own status says nothing about the program
        status = ended.status if kept is None else kept
        processes = tuple(read_all(folder.status))
        stage = manifests.RunStage(
            status="failed" if status and not ended.asked else "done",
            stopped=ended.asked,
            exit_status=status,
            seconds=round(ended.seconds, 3),
        )
        manifest = manifests.with_processes(manifest, processes, stage)
        _keep(job, folder, manifest)  # readers take the chip from it
        keep_snapshots(folder, job.environment, processes)
        # A Python that is interrupted as it starts ends like one that failed.
        told = 128 + ended.signal if status and ended.signal else status
        found, recording = _evidence_of(job, folder, processes, told)
    finally:
        watch.end()
    document = replace(
        found,
        processes=processes,
        program_status=status,
        stopped=ended.asked,
        warnings=(*remarks(processes, job.request, status), *watch.found(processes), *found.warnings),
        cautions=launch.cautions,
        overhead=overhead_of(processes),
    )
    _keep(job, folder, manifests.with_outcome(manifest, document))
    return Ran(document, recording)


def _write_plan(request: ProfileRequest, folder: RunFolder) -> None:
    """Write what the agent does; it takes a plan that others may write for no plan."""
    write_atomically(folder.plan, json.dumps(plan_of(request, folder), indent=1))
    folder.plan.chmod(folder.plan.stat().st_mode & 0o755)


def _record_running(job: RecordingJob, running: Running) -> Ran:
    """Have a program that runs already recorded, and export and prove what there is; it goes on whatever happens."""
    request, likely = job.request, job.request.output or next_run()
    attach.check_way(running, request)
    if request.dry_run:
        check_free(likely, request.force)
        return Ran(attach.preview_running(running, request, RunFolder(likely.absolute())))
    with terminable(), _new_folder(job) as folder:
        cautions = distortions(running.environment, elsewhere=False)
        for caution in cautions:
            job.tell(say("warning: {warning}", warning=caution))
        _write_plan(request, folder)
        script = next(
            (p for w in running.argv[1:] if (p := running.cwd / w).suffix in (".py", ".sh") and is_file(p)), None
        )
        command = Command(running.argv, script)
        known = manifests.begin(command, request, running.environment, manifests.RunStage(status="running"))
        manifest = replace(known, cwd=str(running.cwd), attached=attach.attached(running))
        manifests.write(folder, manifest)
        watch = Watch(folder, job)
        job.tell(attach.introduce(running))
        followed = attach.follow(running, job, folder, watch.tick, watch.stop)
        processes = tuple(read_all(folder.status))
        if followed.busy:  # the manifest says that the run is under way, so that it can be exported later
            return Ran(Recorded(folder=folder.shown, processes=processes, problem=attach.still_busy(followed, folder)))
        stage = manifests.RunStage(status="done", seconds=round(followed.seconds, 3))
        manifest = manifests.with_processes(manifest, processes, stage)
        _keep(job, folder, manifest)
        found, recording = _evidence_of(job, folder, processes, 0)
        problem = found.problem or attach.ended_meanwhile(followed, processes, folder)
        if (
            found.problem is not None
            and not any(folder.raw.iterdir())
            and not any(p.state == "aside" for p in processes)
        ):
            problem = attach.why_nothing_came(running, followed, processes, request)
        document = replace(
            found,
            processes=processes,
            problem=problem,
            warnings=(
                *remarks(processes, request, 0),
                *watch.found(processes),
                *attach.doubts_of_way(running, found),
                *found.warnings,
            ),
            cautions=tuple(cautions),
            overhead=overhead_of(processes),
        )
        _keep(job, folder, manifests.with_outcome(manifest, document))
        return Ran(document, recording)


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
            manifest = _to_export(folder, before)
            stack.enter_context(guarded(folder.export_lock.share()))
        else:
            found = raw_folders(source)
            if not found:
                hint = say("give a *_ascend_pt or PROF_* folder, or a folder of them")
                raise InputError(say("{folder}: no raw profiling data found", folder=str(source)), hint=hint)
            folder = stack.enter_context(_new_folder(job))
            job.tell(say("copying {folder}: exporters rewrite what they read", folder=str(source)))
            copy_raw(found, folder)
            manifest = before = manifests.begin(Command(()), job.request, job.environment)
            manifests.write(folder, manifest)
        # A directory that this user did not make may be a stranger's: nothing that it names is run.
        ours = trust.remembers(folder.path, "profile", manifest.command, manifest.cwd)
        python = _recorded_by(manifest.processes) if ours and not job.request.python else None
        document, recording = find_evidence(job, folder, python or find_python(job.request.python))
        document = replace(document, processes=manifest.processes)
        if manifests.read(folder) == before:  # else its program has ended meanwhile, and all was written down
            _keep(job, folder, manifests.with_outcome(manifest, document))
        return Ran(document, recording)


def _to_export(folder: RunFolder, known: manifests.Manifest | None) -> manifests.Manifest:
    """Return what is known about a run that is to be exported; its program may still run, or have been killed."""
    if known is None:
        raise InputError(say("{path}: not a manifest", path=str(folder.manifest)))
    if not raw_folders(folder.raw) and not any(folder.raw.glob("*.pt.trace.json")):
        raise InputError(say("{folder}: this run recorded nothing that could be exported", folder=folder.shown))
    if known.stages.run is None or known.stages.run.status != "running":
        return known
    processes, goes_on = tuple(read_all(folder.status)), folder.lock.holder() is not None
    stopped = folder.stop.exists() and not any(p.state in BUSY for p in processes)
    if goes_on and not stopped and not all_recorded(processes, known.options or RecordingOptions()):
        what = say("{folder}: this run is still being recorded", folder=folder.shown)
        raise InputError(what, hint=say("wait for its end, or end its program"))
    status = _kept_status(folder)
    stage = known.stages.run if goes_on else manifests.RunStage(status="interrupted", exit_status=status)
    return manifests.with_processes(known, processes, stage)


def _kept_status(folder: RunFolder) -> int | None:
    """Return the program's status, as a shell says it, where it was written down below msprof, or by our guard."""
    with suppress(InputError, ValueError):
        kept = int(read_input(folder.exit_status))
        return kept if kept >= 0 else 128 - kept
    return None


def _recorded_by(processes: tuple[ProcessStatus, ...]) -> str | None:
    """Return an interpreter that has torch_npu, as it recorded; None where none is known, or it is gone."""
    found = (p.executable for p in processes if p.folders and p.executable)
    return next((python for python in found if os.access(python, os.X_OK)), None)


@contextmanager
def _new_folder(job: RecordingJob) -> Iterator[RunFolder]:
    """Make the run directory, and hold it until nothing of the run is left."""
    folder, moved = create(job.request.output, job.request.force)
    try:
        if moved:
            job.tell(say("the run that was here is kept as {path}", path=str(moved)))
            failed, removed = forget_failed(moved.with_name(moved.name.partition(".old.")[0]))
            if len(failed) > 1 or removed:
                gone = say_n("{n} older one was removed", "{n} older ones were removed", removed) if removed else None
                names = series(map(str, failed))
                job.tell(chain(say("runs that recorded nothing: {runs}", runs=names), gone))
        if job.request.output is None and folder.path.name != FIRST.name:
            job.tell(say("this run goes to {folder}", folder=folder.shown))
        outliving = Outliving(folder.lock.share(), folder.go_on, folder.stop, folder.exit_status)
        with guarded(folder.export_lock.share(), outliving):
            yield folder
    finally:
        folder.lock.release()


def _keep(job: RecordingJob, folder: RunFolder, manifest: manifests.Manifest) -> None:
    """Write down how far a run has come; the program's status is not lost for a disk that is full."""
    try:
        manifests.write(folder, manifest)
    except InputError as error:
        job.tell(say("warning: the run's record is incomplete: {why}", why=error.what))


def _evidence_of(
    job: RecordingJob, folder: RunFolder, processes: tuple[ProcessStatus, ...], status: int
) -> tuple[Recorded, Recording | None]:
    """Export and prove what a program left, or say why it left nothing."""
    own = tuple(path for p in processes for path in p.own_data)
    if all(path.name.startswith("execution_trace_") for path in folder.raw.iterdir()):
        if job.request.standby and processes and not any(p.problems or p.import_error for p in processes):
            return Recorded(folder=folder.shown), None  # what was asked for lies in the runs of who asked
        if any(p.state == "aside" for p in processes):
            what = say("the program's own profiler was recording whenever npuperf would have begun, so npuperf "
                       "deferred to it; --own-profiler replace lets npuperf record in its place")  # fmt: skip
            if own:
                return Recorded(folder=folder.shown, data=own, warnings=(what,)), None
            problem = Problem(what=what)
        elif job.request.engine == "msprof":
            what = say("msprof left no data: did the program use the NPU?")
            problem = Problem(what=what, exit_code=ExitCode.CHILD_FAILED)
        else:
            problem = why_nothing(processes, job.request, job.environment, status)
        return Recorded(folder=folder.shown, problem=problem), None
    python = _recorded_by(processes) or find_python(job.request.python)
    found, recording = find_evidence(job, folder, python)
    if own and found.data and not all(e.done for e in found.exports):  # recording ended as soon as it had begun
        return replace(found, data=own, problem=None), None
    return found, recording
