"""Work out what to do before anything is done: the job, its programs, the checks, where the bank is."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from npuperf.cann import cann_version
from npuperf.documents.document import Problem
from npuperf.documents.tuning import Check, PlannedProgram, TunePlan
from npuperf.errors import ExitCode, InputError, UsageError, unreadable
from npuperf.messages import Message, chain, say
from npuperf.tune import job as jobs
from npuperf.tune import preflight, store
from npuperf.tune.job import ModelFile, Script, Source, TuningJob, TuningProgram
from npuperf.tune.request import TuneRequest
from npuperf.tune.state import State, is_ours, not_ours, read_state, recorded, recorded_by_us, survivor, unfinished_run
from npuperf.tune.usage import Usage


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done: programs, checks, the file of operators, where the bank is.

    ``doubt``: why it is not run without a question, None where everything in it was said by this user.
    """

    job: TuningJob
    folder: Path
    programs: tuple[TuningProgram, ...]
    checks: tuple[Check, ...]
    ops: str | None
    place: Path
    soc: str | None
    usage: Usage | None
    doubt: Message | None = None

    def document(self, problem: Problem | None) -> TunePlan:
        """What a dry run shows."""
        return TunePlan(
            problem=problem,
            folder=str(self.folder),
            place=str(self.place),
            ops=self.ops,
            programs=tuple(PlannedProgram(title=p.title, shell=p.shown()) for p in self.programs),
            checks=self.checks,
        )

    def refusal(self) -> Problem | None:
        """Say which hard conditions fail, None where none does."""
        failed = [c for c in self.checks if c.hard and c.status == "fail"]
        if not failed:
            return None
        faults = chain(*(say("{name}: {found}", name=c.name, found=c.found) for c in failed))
        required = chain(*(c.required for c in failed))
        hint = say("required: {required} (--force tunes anyway)", required=required)
        return Problem(what=say("cannot tune: {faults}", faults=faults), hint=hint, exit_code=ExitCode.USAGE)


def draw_plan(request: TuneRequest, usage: Usage | None, environment: Mapping[str, str]) -> Plan:
    """Work out what to do; nothing is made. Raises UsageError or InputError for what cannot be done."""
    begun, job = unfinished_run(request.run, request.mode) if request.resume else (None, None)
    if job is None or request.names_source:
        job = _job(request, usage)
    elif request.bank:
        job = replace(job, bank=request.bank.absolute())
    folder = (begun or _fresh(request.run / "tune")).absolute()
    state = read_state(folder) if begun else State()
    aoe, missing = _aoe(job, folder, state, environment, dry=request.dry_run)
    machine = preflight.TuningHost(
        soc=request.soc or state.soc or (usage.soc if usage else None) or recorded(request.run).soc,
        cores=usage.cores if usage else None,
        dynamic=usage.dynamic if usage else None,
        model_bytes=_bytes_of(job.source),
        most_blocks=usage.most_blocks if usage else None,
    )
    place = _place(job, folder, state, environment)
    found = tuple(jobs.programs(job, folder, aoe, environment, resume=request.resume))
    return Plan(
        job=job,
        folder=folder,
        programs=found,
        checks=(*missing, *preflight.check(job, machine, environment, place)),
        ops=jobs.tune_ops(job),
        place=place,
        soc=machine.soc,
        usage=usage,
        doubt=_doubt(request, begun, state, found),
    )


def _bytes_of(source: Source) -> int | None:
    """Return how large a model is. Raises InputError where it is gone since the run began."""
    if not isinstance(source, ModelFile):
        return None
    try:
        return source.file.stat().st_size
    except OSError as error:
        raise unreadable(source.file, error) from error


def _doubt(request: TuneRequest, begun: Path | None, state: State, found: Sequence[TuningProgram]) -> Message | None:
    """Say why a plan needs a person's consent: its programs come from a folder that may be a stranger's."""
    if begun is not None:
        known, where = is_ours(begun, state), begun
    elif request.names_source:
        return None
    else:
        known, where = recorded_by_us(request.run), request.run
    shell = chain(*(say("{command}", command=program.shown()) for program in found), by="\n  ")
    return None if known else not_ours(where, shell)


def _aoe(
    job: TuningJob, folder: Path, state: State, environment: Mapping[str, str], *, dry: bool
) -> tuple[str, tuple[Check, ...]]:
    """Find aoe, which may be missing in a dry run (a check says so) and where it runs already."""
    if job.in_adapter:
        return "aoe", ()
    try:
        return jobs.find_aoe(environment), ()
    except InputError as error:
        required, found = say("CANN's aoe"), chain(error.what, error.hint)
        if dry:
            return "aoe", (Check(name="aoe", status="fail", required=required, found=found, hard=True),)
        dumping = isinstance(job.source, Script) and not state.step
        if dumping or not survivor(folder):
            raise
        return "aoe", ()


def _place(job: TuningJob, folder: Path, state: State, environment: Mapping[str, str]) -> Path:
    """Return where the bank is. Raises UsageError where it is another than the run began with."""
    kind = "op" if job.mode == "op" else "graph"
    banks = {**environment, **jobs.absolute_banks(environment)}
    place = store.winning_place(kind, job.bank, banks, Path.home(), cann_version(environment))
    if state.place and Path(state.place) != place:
        begun = state.place
        what = say("{folder}: was started with the knowledge base {begun}, but now it is {place}",
                   folder=str(folder), begun=begun, place=str(place))  # fmt: skip
        hint = say("use --bank {begun}, or the environment that it was started in; without --resume a new "
"run starts",
                   begun=begun)  # fmt: skip
        raise UsageError(what, hint=hint)
    return place


def _fresh(parent: Path) -> Path:
    """Return a folder of its own for a run that begins now."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + f"-{int(now * 1000) % 1000:03d}"
    names = (stamp if not n else f"{stamp}-{n}" for n in itertools.count())
    return next(parent / name for name in names if not (parent / name).exists())


def _job(request: TuneRequest, usage: Usage | None) -> TuningJob:
    """Put together what is asked for; operators come from the profile if only the busiest are to be tuned."""
    mode = request.job_mode
    source = jobs.find_source(
        request.model,
        request.weight,
        request.dump,
        request.command,
        recorded(request.run).command,
        singleop=request.singleop,
    )
    types, names = _operators(request, usage)
    return TuningJob(
        mode=mode,
        source=source,
        types=types,
        names=names,
        device=request.device,
        bank=request.bank.absolute() if request.bank else None,
        parallel=request.parallel,
        repeat=request.repeat,
        deep=request.deep,
        arguments=request.aoe_arg,
    )


def _operators(request: TuneRequest, usage: Usage | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the types and the names of the operators to tune; neither for all."""
    if request.ops and request.mode != "op":
        raise UsageError(say("--ops: subgraphs are not chosen by operators"), hint=say("--mode op"))
    if request.ops:
        wanted = [word.strip() for word in request.ops.split(",") if word.strip()]
        names = [w for w in wanted if "/" in w or w.split("_")[-1].isdigit()]  # GE numbers operators' names
        return tuple(w for w in wanted if w not in names), tuple(names)
    unfit = usage is None and "top" in request.by_recipe  # recipes are for runs with and without a profile
    if not request.top_given or request.mode != "op" or unfit:
        return (), ()
    if usage is None:
        what = say(
            "--top {top}: no profile in {run} says which operators matter", top=request.top, run=str(request.run)
        )
        raise UsageError(what, hint=say("npuperf profile records one; or name operators with --ops"))
    busiest = usage.busiest(request.top)
    if not busiest:
        hint = say("see npuperf analyze: the host is the limit; --ops tunes anyway")
        raise UsageError(say("no operator runs in device-bound time: tuning would not shorten the step"), hint=hint)
    return tuple(busiest), ()
