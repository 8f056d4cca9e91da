"""What a run leaves to analyze: exported, then read once to prove that it is there."""

from __future__ import annotations

import re
import signal
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from npuperf.base.cann import set_env_script
from npuperf.base.errors import ExitCode, InputError, NpuperfError
from npuperf.base.escape import for_shell
from npuperf.base.files import open_lines
from npuperf.base.messages import Message, chain, ns, say, say_n, series
from npuperf.base.process import handling, outliving
from npuperf.base.units import NS_PER_S
from npuperf.model.document import Problem
from npuperf.model.groups import distinct
from npuperf.model.recorded import Exported, Overhead, ProcessStatus, Proof, Recorded
from npuperf.model.tasks import NO_TIME, Work
from npuperf.readers.recording import Reading, Recording, open_recording
from npuperf.record.export import export
from npuperf.record.folder import RunFolder, bytes_below
from npuperf.record.manifest import BUSY, state_of
from npuperf.record.plan import RecordingJob
from npuperf.record.request import ProfileRequest, flag


def find_evidence(job: RecordingJob, folder: RunFolder, python: str) -> tuple[Recorded, Recording | None]:
    """Export, then read everything once to prove that it is there; ``python`` is an interpreter with torch_npu.

    Returns what was found, and what was read where it is to be kept and can be analyzed.
    """
    recording, exported, note, proofs = None, tuple[Exported, ...](), None, tuple[Proof, ...]()
    problem: Problem | None = None
    again = f"npuperf profile --export {for_shell(folder.shown)}"
    with terminable():
        try:
            exported, note = export(folder, job, python)
            if job.progress is not None:
                job.progress(say("reading the exported data"))
            try:
                recording = open_recording(Path(folder.shown), keep=job.keep_recording)
            except InputError as error:
                proofs = (Proof(path=str(folder.raw), problem=error.what),)
            else:
                proofs = prove(recording)
        except KeyboardInterrupt:
            what = say("interrupted while exporting; the raw data is kept")
            problem = Problem(what=what, hint=say("{command}", command=again), exit_code=ExitCode.INTERRUPTED)
        except NpuperfError as error:  # the program's own status is not lost for it
            problem = Problem(what=error.what, hint=error.hint, exit_code=error.exit_code)
    if problem is not None:
        return Recorded(folder=folder.shown, exports=exported, problem=problem), None
    # What is wrong with an export: a folder without its files, or nothing to analyze in any.
    failed, holds = [e for e in exported if not e.done], any(p.holds for p in proofs)
    if failed:
        first, others = failed[0], len(failed) - 1
        what = say("{folder}: {tool} made no {files}; it said:",
                   folder=first.folder, tool=first.tool, files=series(first.missing))  # fmt: skip
        hint = chain(
            say("the raw data is kept"),
            say_n("{n} more folder failed", "{n} more folders failed", others) if others else None,
            say("what msprof exported by itself can be analyzed") if holds else None,
            say("try again with: {command}", command=again),
        )
        problem = Problem(what=chain(what, *first.words, by="\n    "), hint=hint, exit_code=ExitCode.CHILD_FAILED)
    elif proofs and not holds:
        nothing = say("{path}: contains no kernels: the device ran none while it was recorded", path=proofs[0].path)
        problem = Problem(what=proofs[0].problem or nothing)
    doubts = [note] if note else []
    if problem is None:  # what cannot be read beside what can
        doubts += dict.fromkeys(doubt for p in proofs for doubt in p.doubts)
        doubts += [
            say("{path}: {problem}", path=p.path, problem=p.problem or say("contains no kernels"))
            for p in proofs
            if not p.holds
        ]
        doubts += [
            say_n("{path}: {n} row or event cannot be read", "{path}: {n} rows or events cannot be read",
                  p.lost, path=p.path)
            for p in proofs
            if p.lost
        ]  # fmt: skip
        doubts += [
            say("{path}: --{option} was given, but no block of memory is recorded", path=p.path, option=option)
            for p in proofs
            for option in ("memory", "snapshot")
            if getattr(job.request, option) and p.kernels and not p.blocks
        ]
    found = Recorded(
        folder=folder.shown,
        raw_bytes=bytes_below(folder.raw),
        data=(folder.shown,),
        exports=exported,
        proofs=proofs,
        warnings=tuple(doubts),
        problem=problem,
    )
    return found, recording if job.keep_recording and problem is None else None


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end what npuperf does, exporters among it, the way Ctrl-C does; signals for programs end nothing."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with handling((signal.SIGTERM,), interrupt), outliving():
        yield


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
    found = []
    for profile in reading.profiles:
        kernels = np.isin(profile.tasks.work, (Work.COMPUTE, Work.COMMUNICATION))
        proof = Proof(
            path=path,
            rank=profile.rank,
            device=profile.device,
            kernels=int(kernels.sum()),
            launched=int((kernels & (profile.tasks.launch_end != NO_TIME)).sum()),
            steps=len(set(profile.host_steps.number.tolist())),
            numbered=len(distinct(profile.tasks.step[kernels & (profile.tasks.step >= 0)])),
            lost=lost,
            blocks=0 if profile.memory is None else len(profile.memory.blocks),
            failures=0 if profile.memory is None else len(profile.memory.failures),
            doubts=tuple(reading.log.warnings),
        )
        found.append(proof)
    return found


# -- What the processes' own words mean: remarks on a recording, and why there is none.

#: Options that have no meaning where only the CPU is recorded.
_NPU_ONLY: Final = (
    "level", "aic_metrics", "export", "l2_cache", "mstx", "op_attr", "op_args", "host_sys", "sys_io", "snapshot",
    "all_threads",
)  # fmt: skip
#: Signals that tell programs to end, and the exit statuses of those that do.
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED: Final = tuple(128 + number for number in _ENDING)
#: States of a process that counts steps and records none.
_IDLE: Final = ("waiting", "waiting for the NPU", "failed")
#: A step must pass before recording begins.
_FEWEST: Final = 2
#: Ranks named before "…".
_RANKS_NAMED: Final = 8


def overhead_of(processes: Sequence[ProcessStatus]) -> Overhead | None:
    """Compare steps in the first process that has both kinds. Of the steps before the window the later half counts."""
    for process in processes:
        times = process.step_ns
        outside = [*times.before[len(times.before) // 2 :], *times.after]
        if times.inside and outside:
            return Overhead(
                inside_ns=int(statistics.median(times.inside)),
                outside_ns=int(statistics.median(outside)),
                inside=len(times.inside),
                outside=len(outside),
            )
    return None


def remarks(processes: Sequence[ProcessStatus], request: ProfileRequest, status: int) -> list[Message]:
    """Return what the user should know about a recording; ``status`` is the program's."""
    found: list[Message] = []
    for p in processes:
        found += [say("{process}: {warning}", process=p.name, warning=warning) for warning in p.warnings]
        errors = [line.split("]")[-1].strip(" :") for line in p.said.splitlines() if "[ERROR]" in line]
        found += [say("{process}: torch_npu says: {words}", process=p.name, words=words) for words in errors]
        if p.early and p.stopped is None and p.folders:
            ended = say("the program ended at step {step}, during recording: that step is incomplete", step=p.step)
            if request.duration is not None:
                ended = say("the program ended after {seconds} of {duration} that were to be recorded",
                            seconds=ns((p.seconds or 0) * NS_PER_S),
                            duration=ns(request.duration * NS_PER_S))  # fmt: skip
            found.append(say("{process}: {warning}", process=p.name, warning=p.why_early or ended))
        if p.state in BUSY:  # ended by a signal, or crashed in C
            found.append(_lost(p, status))
        if p.engine == "cpu" and request.engine != "cpu":  # said loudly: it was recorded in place of an NPU
            found.append(say("{process}: NO NPU ({why}): only the CPU was recorded, which does not show how the "
                             "program runs on an NPU", process=p.name, why=p.why_cpu))  # fmt: skip
            ignored = [flag(name) for name in request.given if name in _NPU_ONLY]
            if ignored:
                found.append(say("without an NPU these options have no effect: {options}", options=series(ignored)))
    if any(p.folders for p in processes):
        idle = [p for p in processes if not p.folders and p.step and p.state in _IDLE]
        found += [say("{process} recorded nothing: {why} at step {step}",
                      process=p.name, why=p.problem or state_of(p), step=p.step) for p in idle]  # fmt: skip
        found += [say("{process} made {steps} steps, which are not recorded: it was forked from a process that was",
                      process=p.name, steps=p.step) for p in processes if p.state == "forked" and p.step]  # fmt: skip
        # All ranks should have reported, unless some were chosen.
        world, ranks = max(p.world_size or 0 for p in processes), {p.rank for p in processes}
        if request.ranks is None and 0 < len(ranks) < world:
            missing = [str(r) for r in range(world) if r not in ranks]
            named = [*missing[:_RANKS_NAMED], *(["…"] if len(missing) > _RANKS_NAMED else [])]
            hosts = series(sorted({p.host for p in processes}))
            found.append(say("ranks {ranks} did not report; hosts that reported: {hosts}",
                             ranks=series(named), hosts=hosts))  # fmt: skip
    return list(dict.fromkeys(found))


def _lost(process: ProcessStatus, status: int) -> Message:
    """Say what became of a process that was recorded when it ended, without Python taking notice."""
    if status - 128 in _ENDING:
        return say("{signal} ended the program while {process} was {state}: what the profiler had not written by then "
                   "is lost; signals to npuperf itself are passed on once it is saved",
                   signal=signal.Signals(status - 128).name, process=process.name, state=state_of(process))  # fmt: skip
    return say("{process}: the process died while {state}: what the profiler had not written by then is lost",
               process=process.name, state=state_of(process))  # fmt: skip


def why_nothing(
    processes: Sequence[ProcessStatus], request: ProfileRequest, environment: Mapping[str, str], status: int
) -> Problem:
    """Explain a run that recorded nothing."""
    refused = next((p for p in processes if p.problems), None)
    if refused is not None:
        version = say("torch_npu {version}", version=refused.torch_npu) if refused.torch_npu else None
        return Problem(
            what=chain(*refused.problems, version),
            hint=say("the program was stopped when it imported torch_npu"),
            exit_code=ExitCode.USAGE,
        )
    unimported = next((p.import_error for p in processes if p.import_error), None)
    if unimported is not None:
        hint = None
        if re.search(r"lib\w+\.so", unimported):
            hint = say("CANN is not set up in this shell: source {script}; without an NPU, to try things out: "
                       "--engine cpu", script=set_env_script(environment))  # fmt: skip
        return Problem(what=say("the program cannot import {error}", error=unimported), hint=hint)
    if not processes and status in _INTERRUPTED:
        return Problem(what=say("interrupted before the program imported torch, so nothing was recorded"))
    if not processes and status:
        hint = _misplaced(request) or say("--python chooses another interpreter")
        return Problem(what=say("the program failed before it imported torch"), hint=hint)
    if not processes:
        return Problem(
            what=say("no Python process of the program imported torch"),
            hint=say(
                "for anything but PyTorch use --engine msprof; npuperf cannot reach into python -I, -E or "
                "-S, or into scripts that reset PYTHONPATH"
            ),
        )
    p = max(processes, key=lambda p: p.step)  # the one that came furthest
    left_out = [q for q in processes if q.state == "left out"]
    if p.problem:
        what = say("{process}: {problem}", process=p.name, problem=p.problem)
        without = (
            None if p.engine == "cpu" or request.is_told else say("--engine cpu tests everything else without an NPU")
        )
        return Problem(what=what, hint=without)
    if left_out and all(q.state == "left out" for q in processes if q.step):
        seen = series(q.rank or 0 for q in left_out)
        what = say("no process has one of the requested ranks; there were: {ranks}", ranks=seen)
        return Problem(what=what, hint=say("check --ranks"))
    if p.state in BUSY:
        what = say("{process}: the process died while {state}, and nothing was saved",
                   process=p.name, state=state_of(p))  # fmt: skip
        return Problem(what=what)
    if p.state == "waiting for the NPU":
        what = say("the program made {steps} steps and never used an NPU", steps=p.step)
        return Problem(what=what, hint=say("--engine cpu records the CPU"))
    if status and not p.step and status not in _INTERRUPTED:
        what = say("the program failed before its first step, so nothing was recorded")
        return Problem(what=what, hint=_misplaced(request))
    if request.is_told and p.state == "waiting":
        return Problem(what=_not_begun(request))
    if request.whole_run or (status and not p.step):
        no_device = not list(Path("/dev").glob("davinci[0-9]*")) and request.engine != "cpu"
        hint = say("no NPU is visible here (/dev/davinci*): is it mapped into the container?") if no_device else None
        return Problem(what=say("the program ended before anything could be recorded"), hint=hint)
    if p.step:
        return Problem(what=_steps_made(p, request), hint=_fitting(p, request))
    what = say("no step was seen: the program never called a module")
    if request.step_on == "optimizer":
        what = say("no step was seen: the program never called optimizer.step(), or only within compiled functions")
    hint = say("--step-on forward counts module calls; --duration 5s and --whole-run need no steps; or call "
               "npuperf.step() in the loop")  # fmt: skip
    return Problem(what=what, hint=hint)


def _steps_made(process: ProcessStatus, request: ProfileRequest) -> Message:
    """Say how many steps there were, where recording would have begun later; of threads those of one count."""
    if len(process.threads) > 1:
        return say("{threads} threads of the program made {steps} steps, the one whose steps count {step}; recording "
                   "begins at its step {first}", threads=len(process.threads), steps=sum(process.threads),
                   step=process.step, first=request.first_recorded)  # fmt: skip
    return say("the program made {steps} steps; recording begins at step {first}",
               steps=process.step, first=request.first_recorded)  # fmt: skip


def _fitting(process: ProcessStatus, request: ProfileRequest) -> Message:
    """Say how a program can be recorded that makes so few steps; how threads share them is another matter each time."""
    wait, several = process.step - request.warmup - request.active, len(process.threads) > 1
    if several and process.engine == "cpu":
        return say("--wait 1 --warmup 0 begins as early as can be; torch.profiler hears one thread only")
    if not several and wait >= 1:
        return say("--wait {wait} records its last {active} steps", wait=wait, active=request.active)
    if not several and process.step >= _FEWEST:
        return say("--wait {wait} --warmup 0 --active 1 records its last step", wait=process.step - 1)
    return say("--whole-run records everything, steps or not")


def _not_begun(request: ProfileRequest) -> Message:
    """Say what a program has not come to that recording was to begin with."""
    if request.start_on is not None:
        return say("the program ended, and no range called {name} had begun (record_function, mstx)",
                   name=repr(request.start_on))  # fmt: skip
    if request.delay is not None:
        return say("the program ended before --delay {time} had passed", time=ns(request.delay * NS_PER_S))
    return say("the program ended before anything could be recorded")


def _misplaced(request: ProfileRequest) -> Message | None:
    """Name an option that a program got which does not know it, as it may be one of ours."""
    ours = {flag(name) for name in ProfileRequest.__struct_fields__}
    option = next((word for text in request.command[1:] if (word := text.partition("=")[0]) in ours), None)
    if option is None:
        return None
    return say("{option} was given to the program; options of npuperf come before it", option=option)
