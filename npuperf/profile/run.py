"""Record a run from beginning to end: start, watch, export, prove, and write it all down."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from npuperf.errors import ExitCode, InputError
from npuperf.process import Ended, run_attached
from npuperf.profile import manifest as manifests
from npuperf.profile.command import Command, find_python
from npuperf.profile.export import Export, copy_raw, export, raw_folders
from npuperf.profile.folder import RunFolder, create
from npuperf.profile.options import Options
from npuperf.profile.plan import write_plan
from npuperf.profile.processes import ProcessStatus, read_all
from npuperf.profile.program import Launch, prepare
from npuperf.profile.proof import Proof, prove
from npuperf.profile.remarks import Overhead, Problem, overhead_of, remarks, why_nothing
from npuperf.profile.watch import Watch

Tell = Callable[[str], None]

_FORMATS = {"text": ("text",), "db": ("db",), "both": ("text", "db")}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went. ``data`` is what to analyze; ``problem`` says why there is nothing, if so."""

    folder: RunFolder
    exit_code: int = ExitCode.DONE
    data: tuple[Path, ...] = ()
    processes: tuple[ProcessStatus, ...] = ()
    export: Export = field(default_factory=Export)
    proofs: tuple[Proof, ...] = ()
    #: What was found out after the start; ``cautions`` were given before it.
    warnings: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    overhead: Overhead | None = None
    program_status: int = 0
    problem: Problem | None = None


def record(
    command: Command,
    options: Options,
    output: Path,
    environment: Mapping[str, str],
    *,
    force: bool,
    tell: Tell,
    progress: Tell | None,
) -> Outcome:
    """Run ``command`` under a profiler and leave a run directory at ``output``.

    ``tell`` gets lines that matter, ``progress`` those that only show that something happens. Raises UsageError or
    InputError when it cannot begin; whatever goes wrong later is in the outcome.
    """
    launch = prepare(command, options, RunFolder(output.absolute()), environment)
    folder, moved = create(output, force)
    for warning in launch.warnings:
        tell(f"warning: {warning}")
    if moved:
        tell(f"the run that was here is kept as {moved}")
    manifest = manifests.begin(command, options, environment)
    manifest["stages"]["run"] = {"status": "running"}
    write_plan(options, folder)
    manifests.write(folder, manifest)
    watch = Watch(folder, options, progress)
    ended = _run(launch, watch)
    outcome = _ran(ended, launch, watch)
    manifest["stages"]["run"] = {
        "status": "failed" if outcome.program_status else "done",
        "exit_status": outcome.program_status,
        "seconds": round(ended.seconds, 3),
    }
    manifests.describe_processes(manifest, outcome.processes)
    if not any(folder.raw.iterdir()):
        return _concluded(_without_data(outcome, options, environment), manifest)
    recorded_by = (p.executable for p in outcome.processes if p.folders and p.executable)
    python = next(recorded_by, None) or find_python()
    return _concluded(_export(outcome, _FORMATS[options.export], python, environment, progress), manifest)


def export_raw(
    source: Path,
    output: Path,
    formats: str | None,
    python: str,
    environment: Mapping[str, str],
    *,
    force: bool,
    tell: Tell,
    progress: Tell | None,
) -> Outcome:
    """Export raw data that was collected elsewhere into a run directory, or what a run directory still lacks.

    The data itself is copied first. Raises UsageError or InputError when there is nothing to export.
    """
    if RunFolder(source).manifest.is_file():
        folder = RunFolder(source.absolute())
        manifest = manifests.read(folder)
        if not raw_folders(folder.raw):
            raise InputError(f"{source}: this run recorded nothing that could be exported")
    else:
        found = raw_folders(source)
        if not found:
            hint = "give a *_ascend_pt or PROF_* folder, or a folder of them"
            raise InputError(f"{source}: no raw profiling data found", hint=hint)
        folder, moved = create(output, force)
        if moved:
            tell(f"the run that was here is kept as {moved}")
        tell(f"copying {source}: exporters rewrite what they read")
        copy_raw(found, folder)
        manifest = manifests.begin(Command(()), Options(), environment)
        manifest["imported_from"] = str(source.absolute())
    manifests.write(folder, manifest)
    outcome = _export(Outcome(folder), None if formats is None else _FORMATS[formats], python, environment, progress)
    return _concluded(outcome, manifest)


def _run(launch: Launch, watch: Watch) -> Ended:
    try:
        return run_attached(launch.argv, launch.environment, watch.tick)
    except OSError as error:
        raise InputError(f"{launch.argv[0]}: cannot be started: {error.strerror}") from error


def _ran(ended: Ended, launch: Launch, watch: Watch) -> Outcome:
    """Gather what the processes said."""
    processes = tuple(read_all(watch.folder.status))
    return Outcome(
        watch.folder,
        processes=processes,
        warnings=(*remarks(processes, watch.options), *watch.too_late(processes)),
        cautions=launch.warnings,
        overhead=overhead_of(processes),
        program_status=_status(ended, watch.folder),
    )


def _status(ended: Ended, folder: RunFolder) -> int:
    """Return the program's exit status; msprof's own says nothing about it."""
    try:
        status = int(folder.exit_status.read_text("utf-8"))
    except (OSError, ValueError):
        return ended.status
    return status if status >= 0 else 128 - status


def _without_data(outcome: Outcome, options: Options, environment: Mapping[str, str]) -> Outcome:
    own = _own_data(outcome)
    if own:
        what = "the program has its own profiler, so npuperf stood aside; --own-profiler replace takes its place"
        return replace(outcome, data=own, warnings=(*outcome.warnings, what))
    if options.engine == "msprof":
        what = "msprof left no data: did the program use the NPU?"
        return replace(outcome, problem=Problem(what, exit_code=ExitCode.CHILD_FAILED))
    if any(p.state == "aside" for p in outcome.processes):
        what = "the program has its own profiler, so npuperf stood aside, and that profiler has recorded nothing"
        return replace(outcome, problem=Problem(what, "--own-profiler replace takes its place"))
    problem = why_nothing(outcome.processes, options, environment, outcome.program_status)
    return replace(outcome, problem=problem)


def _own_data(outcome: Outcome) -> tuple[Path, ...]:
    """Return what the program's own profilers wrote."""
    return tuple(Path(path) for p in outcome.processes for path in p.own_data)


def _export(
    outcome: Outcome,
    formats: tuple[str, ...] | None,
    python: str,
    environment: Mapping[str, str],
    progress: Tell | None,
) -> Outcome:
    """Export, then read everything once to prove that it is there."""
    folder = outcome.folder
    say = progress or (lambda _: None)
    again = f"npuperf profile --export {folder.shown}"
    with _terminable():
        try:
            exported = export(folder, formats, python, environment, say)
            outcome = replace(outcome, export=exported, warnings=(*outcome.warnings, *exported.notes))
            say("reading what was exported")
            proofs = tuple(prove(folder.raw))
        except KeyboardInterrupt:
            problem = Problem("interrupted while exporting; the raw data is kept", again, ExitCode.INTERRUPTED)
            return replace(outcome, problem=problem)
    outcome = replace(outcome, proofs=proofs, data=(Path(folder.shown),))
    failed = [e for e in exported.folders if not e.done]
    own = _own_data(outcome)
    if failed and own:  # recording ended as soon as it had begun
        return replace(outcome, data=own)
    if failed:
        first = failed[0]
        words = "".join(f"\n    {line}" for line in first.words)
        what = f"{first.folder}: {first.tool} made no {', '.join(first.missing)}; it said:{words}"
        more = f" ({len(failed) - 1} more folders failed)" if len(failed) > 1 else ""
        more += "; what msprof alone could export can be analyzed" if any(p.holds for p in proofs) else ""
        hint = f"the raw data is kept{more}; try again with: {again}"
        return replace(outcome, problem=Problem(what, hint, ExitCode.CHILD_FAILED))
    bad = [p for p in proofs if not p.holds]
    if bad and len(bad) == len(proofs):
        what = bad[0].problem or f"{bad[0].path}: holds no kernel: the device did nothing while it was recorded"
        return replace(outcome, problem=Problem(what))
    found = tuple(f"{p.path}: {p.problem or 'holds no kernel'}" for p in bad)
    lost = tuple(f"{p.path}: {p.lost} rows or events cannot be read" for p in proofs if p.lost)
    return replace(outcome, warnings=(*outcome.warnings, *found, *lost))


def _concluded(outcome: Outcome, manifest: dict[str, Any]) -> Outcome:
    """Decide the exit status and write everything down."""
    code = outcome.program_status or (outcome.problem.exit_code if outcome.problem else ExitCode.DONE)
    if outcome.problem and outcome.problem.exit_code == ExitCode.USAGE:
        code = ExitCode.USAGE
    stages = manifest["stages"]
    stages["export"] = {
        "status": "failed" if any(not e.done for e in outcome.export.folders) else "done",
        "folders": [
            {"folder": str(e.folder), "missing": list(e.missing), "tool": e.tool, "words": list(e.words)}
            for e in outcome.export.folders
        ],
    }
    holds = any(p.holds for p in outcome.proofs)
    stages["proof"] = {"status": "done" if holds else "failed", "devices": msgspec.to_builtins(outcome.proofs)}
    manifest["warnings"] = [*outcome.cautions, *outcome.warnings]
    manifest["problem"] = outcome.problem.what if outcome.problem else None
    manifest["data"] = [str(path) for path in outcome.data]
    manifest["overhead"] = msgspec.to_builtins(outcome.overhead) if outcome.overhead else None
    manifests.write(outcome.folder, manifest)
    return replace(outcome, exit_code=int(code))


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end exporters the way Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
