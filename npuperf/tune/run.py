"""Tune from beginning to end: check, keep the bank, run AOE, read, compare, note down; go on with what was begun."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from npuperf.cann import cann_version
from npuperf.documents.tuning import TUNING_SCHEMA, Check, Status, Tuning, Verification
from npuperf.errors import ExitCode, InputError, UsageError
from npuperf.files import write_atomically
from npuperf.profile import manifest as manifests
from npuperf.profile.folder import RunFolder
from npuperf.render.tuning_text import TUNING_DOCUMENTS, document
from npuperf.tune import outcome, preflight, store, supervise
from npuperf.tune.bank import ANOTHER_PLACE, Bank, add_bank, compare, core_counts, read_bank
from npuperf.tune.job import (
    Job,
    Model,
    Script,
    Source,
    Step,
    absolute_banks,
    dumped,
    find_aoe,
    recall,
    remember,
    reproduce,
    steps,
    tune_ops,
)
from npuperf.tune.results import PATTERN, read_results
from npuperf.tune.savings import Usage, add_savings, read_usage

Tell = Callable[[str], None]

HISTORY = "history.jsonl"


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done: programs, checks, the file of operators, where the bank is."""

    job: Job
    folder: Path
    steps: tuple[Step, ...]
    checks: tuple[Check, ...]
    ops: str | None
    place: Path
    soc: str | None
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Tuned:
    """How tuning went; ``problem`` says why it did not succeed, and ``next`` what to do."""

    tuning: Tuning
    exit_code: int = ExitCode.DONE
    problem: str | None = None
    next: str | None = None


def recorded_command(run: Path) -> list[str] | None:
    """Return the command that a run directory recorded, if it is one."""
    command = _manifest(run).get("command")
    return [str(word) for word in command] if command else None


def _manifest(run: Path) -> dict[str, Any]:
    """Read what a run directory says of itself; empty if it is none."""
    try:
        return manifests.read(RunFolder(run))
    except InputError:
        return {}


def usage_of(run: Path, warn: Tell) -> Usage | None:
    """Read what a run's profile says about operators; None, with a word why, where there is none."""
    try:
        return read_usage(run) if run.exists() else None
    except InputError as error:
        if not RunFolder(run).manifest.is_file():  # a folder of tuning runs only
            return None
        warn(f"no use of the profile in {run}: {error.what}")
        return None


def plan(
    job: Job,
    run: Path,
    usage: Usage | None,
    environment: Mapping[str, str],
    *,
    soc: str | None = None,
    folder: Path | None = None,
    dry: bool = False,
) -> Plan:
    """Work out what to do; nothing is made. ``folder``: of a run that is gone on with; ``dry``: aoe may be missing.

    Raises UsageError or InputError for what cannot be done.
    """
    resume = folder is not None
    folder = (folder or _fresh(run / "tune")).absolute()
    state = supervise.read_state(folder) if resume else {}
    missing: tuple[Check, ...] = ()
    try:
        aoe = "aoe" if job.in_adapter else find_aoe(environment)
    except InputError as error:
        dumping = isinstance(job.source, Script) and not state.get("step")
        if not dry and (dumping or not supervise.survivor(folder)):
            raise
        aoe = "aoe"
        if dry:
            text = f"{error.what}; {error.hint}"
            missing = (Check(name="aoe", status="fail", required="CANN's aoe", found=text, hard=True),)
    machine = preflight.Machine(
        soc=soc or state.get("soc") or (usage.soc if usage else None) or str(_manifest(run).get("soc") or "") or None,
        cores=usage.cores if usage else None,
        dynamic=usage.dynamic if usage else None,
        model_bytes=_size_of(job.source),
        most_blocks=usage.most_blocks if usage else None,
    )
    kind = "op" if job.mode == "op" else "graph"
    banks = {**environment, **absolute_banks(environment)}
    place = store.winning_place(kind, job.bank, banks, Path.home(), cann_version(environment))
    begun = state.get("place")
    if begun and Path(begun) != place:
        hint = f"--bank {begun}, or the environment that it was begun in; without --resume another run begins"
        raise UsageError(f"{folder}: was begun with the bank {begun}, and now it is {place}", hint=hint)
    return Plan(
        job=job,
        folder=folder,
        steps=tuple(steps(job, folder, aoe, environment, resume=resume)),
        checks=(*missing, *preflight.check(job, machine, environment, place)),
        ops=tune_ops(job),
        place=place,
        soc=machine.soc,
        usage=usage,
    )


def _fresh(parent: Path) -> Path:
    """Return a folder of its own for a run that begins now."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + f"-{int(now * 1000) % 1000:03d}"
    names = (stamp if not n else f"{stamp}-{n}" for n in itertools.count())
    return next(parent / name for name in names if not (parent / name).exists())


def _size_of(source: Source) -> int | None:
    return source.file.stat().st_size if isinstance(source, Model) else None


def refuse(found: Plan, force: bool) -> None:
    """Raise UsageError where a hard condition fails, unless forced."""
    failed = [c for c in found.checks if c.hard and c.status == "fail"]
    if failed and not force:
        text = "; ".join(f"{c.name}: {c.found}" for c in failed)
        hint = f"required: {'; '.join(c.required for c in failed)} (--force tunes all the same)"
        raise UsageError(f"cannot tune: {text}", hint=hint)


def run_plan(
    found: Plan, environment: Mapping[str, str], *, timeout: float | None, tell: Tell, progress: Tell
) -> Tuned:
    """Carry a plan out, or go on where a program of it still runs after our own death.

    Whatever goes wrong after the start is in the outcome; Ctrl-C is passed on when all is kept.
    """
    folder = found.folder
    child, state = supervise.survivor(folder), supervise.read_state(folder)
    begun = recall(state.get("job"))
    if child is not None and begun is not None and _without_bank(begun) != _without_bank(found.job):
        hint = "npuperf tune --resume, without other options, waits for it"
        raise UsageError(f"{folder}: process {child.pid} still tunes, and something else than asked for", hint=hint)
    first = int(state.get("step") or 0) if child else 0
    if child is None:
        _prepare(found, cann_version(environment))
    supervise.keep(folder)
    began = time.monotonic()
    ran = supervise.Ran(None, 0.0)
    try:
        for number, step in list(enumerate(found.steps))[first:]:
            left = None if timeout is None else max(timeout - (time.monotonic() - began), 0)
            if child is not None:
                tell(f"process {child.pid} of that run still runs: waiting for it")
                ran, child = supervise.wait_for(child, folder, left, progress), None
            else:
                tell(f"{step.title}: {step.shown()}")
                supervise.note(folder, step=number)
                ran = supervise.run_step(step, environment, folder, left, progress)
            if step is not found.steps[-1] and (ran.failed or not dumped(folder / "dump")):
                return _conclude(found, ran, supervise.partial(folder), *outcome.no_dump(ran, folder))
    except KeyboardInterrupt:
        why = ("interrupted", "start again with --resume")
        ran = supervise.Ran(None, time.monotonic() - began)
        _conclude(found, ran, supervise.partial(folder), why, ExitCode.INTERRUPTED)
        tell(f"what was tuned is kept in {folder}; --resume goes on")
        raise
    result = supervise.partial(folder)
    return _conclude(found, ran, result, *outcome.judge(found.job, folder, ran, result))


def _without_bank(job: Job) -> Job:
    """Leave the bank aside: how it was named does not matter, and where it lies was compared."""
    return dataclasses.replace(job, bank=None)


def _prepare(found: Plan, cann: str | None) -> None:
    """Make the run's folder and put into it what must be there before AOE starts. Raises InputError."""
    folder = found.folder
    store.refuse_inside(folder, found.place)
    try:
        supervise.set_aside(folder)
        folder.mkdir(parents=True, exist_ok=(folder / supervise.STATE).is_file())
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from error
    if not (folder / "bank_before").is_dir():
        store.snapshot(found.place, folder / "bank_before", cann)
    if found.ops:
        write_atomically(folder / "tune_ops.cfg", found.ops)
    write_atomically(folder / "reproduce.sh", reproduce(found.steps, found.ops, folder))
    (folder / "reproduce.sh").chmod(0o755)
    programs = [{"argv": list(s.argv), "environment": dict(s.added)} for s in found.steps]
    facts = {
        "mode": found.job.mode,
        "job": remember(found.job),
        "place": str(found.place),
        "soc": found.soc,
        "cann": cann,
        "programs": programs,
    }
    supervise.note(folder, status="running", **facts)


def _conclude(
    found: Plan, ran: supervise.Ran, result: Tuning | None, problem: tuple[str, str] | None, code: int
) -> Tuned:
    """Compare the banks, work out savings, and write everything down; ``result``: what there is to read."""
    folder = found.folder
    tuning = result or _nothing(found, ran, problem is None)
    if problem is not None and tuning.status == "successful":
        tuning = replace(tuning, status="incomplete")
    if problem is None and ran.returncode is None:
        unseen = "its exit status was not seen: npuperf was not there when it ended"
        tuning = replace(tuning, warnings=(*tuning.warnings, unseen))
    tuning = replace(tuning, folder=str(folder), checks=found.checks)
    tuning = add_savings(_with_bank(tuning, found), found.usage)
    status = "done" if problem is None else "failed"
    what = problem[0] if problem else None
    state = supervise.note(folder, status=status, exit_status=ran.returncode, problem=what)
    for name, suffix in (("json", "json"), ("csv", "csv"), ("markdown", "md")):
        write_atomically(folder / f"diff.{suffix}", TUNING_DOCUMENTS[name](tuning, 1_000))
    _note_down(folder, tuning, ran, state)
    return Tuned(tuning, code, *(problem or (None, None)))


def _nothing(found: Plan, ran: supervise.Ran, fine: bool) -> Tuning:
    """Say that there is no result: nothing had to be tuned, AOE refused, or it was stopped."""
    refused = ran.returncode is not None and ran.returncode > 0
    status: Status = "nothing_to_tune" if fine else "failed" if refused else "incomplete"
    files, faults = [], []
    for file in sorted(found.folder.glob(PATTERN)):
        files.append(str(file))
        try:
            read_results([file])
        except InputError as error:
            faults.append(error.what)
    return Tuning(
        schema_version=TUNING_SCHEMA,
        mode=found.job.mode,
        status=status,
        recovered=False,
        files=tuple(files),
        warnings=tuple(faults),
    )


def _with_bank(tuning: Tuning, found: Plan) -> Tuning:
    """Add what changed in the bank, and where the results claim what it does not show."""
    before = found.folder / "bank_before"
    shutil.rmtree(found.folder / "bank_after", ignore_errors=True)
    try:
        after = store.snapshot(found.place, found.folder / "bank_after", None)
    except InputError as error:
        return replace(tuning, warnings=(*tuning.warnings, f"not compared with the bank: {error.what}"))
    if found.job.mode == "subgraph":
        old, new = store.hashes(before), store.hashes(after)
        changed = sum(old.get(name) != digest for name, digest in new.items())
        claimed = tuning.summary.added + tuning.summary.updated if tuning.summary else 0
        if claimed and not changed and tuning.status == "successful":
            text = f"the result file says {claimed} subgraphs added or updated, and in {found.place} no file changed"
            return replace(tuning, warnings=(*tuning.warnings, f"{text}: {ANOTHER_PLACE}"))
        text = (
            f"the subgraph bank {found.place}: {changed} of {len(new)} files new or changed (their content is opaque)"
        )
        return replace(tuning, warnings=(*tuning.warnings, text))
    banks = [read_bank(place) for place in (before, after)]
    diff = replace(compare(*banks), before=f"{found.place} (before)", after=str(found.place))
    return add_bank(replace(tuning, warnings=(*tuning.warnings, *_for_other_cores(banks[1], found.usage))), diff)


def _for_other_cores(bank: Bank, usage: Usage | None) -> list[str]:
    """Warn where nothing in a bank is for the number of cores that the profile's program ran with."""
    counts = {count for counts in core_counts([bank]).values() for count in counts}
    if not counts or usage is None or usage.cores in (None, *counts):
        return []
    listed = " and ".join(map(str, sorted(counts)))
    return [f"the bank is for {listed} cores, and the profile's chip has {usage.cores}: CANN looks for its own number"]


def _note_down(folder: Path, tuning: Tuning, ran: supervise.Ran, state: Mapping[str, Any]) -> None:
    """Add a line to the ledger that shows how the bank grew."""
    summary, bank = tuning.summary, tuning.bank
    line = {
        "run": folder.name,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "mode": tuning.mode,
        "status": tuning.status,
        "seconds": round(ran.seconds, 1),
        "added": summary.added if summary else 0,
        "updated": summary.updated if summary else 0,
        "records": bank.records_after if bank else None,
        "place": state.get("place"),
        "cann": state.get("cann"),
    }
    with contextlib.suppress(OSError), (folder.parent / HISTORY).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def note_verification(folder: Path, found: Verification) -> None:
    """Keep a verification beside the results of its run."""
    write_atomically(folder / "verification.json", document(found))


def unfinished_run(run: Path, mode: str | None) -> tuple[Path, Job | None]:
    """Return the newest run to go on with, and what it was asked for. Raises UsageError if it is of another kind."""
    folder = last_run(run, unfinished=True)
    refuse_busy(folder, "--resume")
    state = supervise.read_state(folder)
    begun = state.get("mode")
    if mode not in (None, begun):
        raise UsageError(f"{folder}: was begun with --mode {begun}", hint="npuperf tune --resume goes on with it")
    return folder, recall(state.get("job"))


def refuse_busy(folder: Path, what: str) -> None:
    """Raise UsageError while another npuperf looks after a run."""
    keeper = supervise.keeper(folder)
    if keeper:
        raise UsageError(f"{what}: process {keeper} still looks after {folder}", hint="wait for it, or end it")


def last_run(run: Path, *, unfinished: bool = False) -> Path:
    """Return the newest tuning run below a run directory. Raises InputError if there is none."""
    folders = sorted(f for f in (run / "tune").glob("*") if (f / supervise.STATE).is_file())
    if unfinished:
        folders = [f for f in folders if supervise.read_state(f).get("status") != "done"]
    if not folders:
        kind = "unfinished tuning run" if unfinished else "tuning run"
        raise InputError(f"{run / 'tune'}: no {kind} there", hint="npuperf tune --mode op begins one")
    return folders[-1]


def roll_back(run: Path) -> tuple[Path, Path | None]:
    """Put the bank back as it was before the newest tuning run; return its place and the backup of what was there."""
    folder = last_run(run)
    refuse_busy(folder, "--rollback")
    child = supervise.survivor(folder)
    if child:
        raise UsageError(f"--rollback: process {child.pid} still tunes", hint="npuperf tune --resume waits for it")
    place = supervise.read_state(folder).get("place")
    if not place or not (folder / "bank_before").is_dir():
        raise InputError(f"{folder}: does not hold the bank from before")
    return Path(place), store.roll_back(folder / "bank_before", Path(place))
