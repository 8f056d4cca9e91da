"""Carry a plan out: keep the bank, run the programs, compare the banks, and write everything down."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from npuperf.cann import cann_version
from npuperf.documents.document import Document, Problem
from npuperf.documents.tuning import Status, Tuning
from npuperf.errors import InputError, UsageError
from npuperf.files import write_atomically
from npuperf.folders import refuse_ways_out
from npuperf.messages import Message, say, say_n
from npuperf.process import Detached, end_all
from npuperf.tune import outcome, store, supervise
from npuperf.tune.applying import bank_use
from npuperf.tune.bank import ANOTHER_PLACE, Bank, add_bank, compare, core_counts, count_list, read_bank
from npuperf.tune.job import TuningJob, dumped, reproduce
from npuperf.tune.results import PATTERN, read_results
from npuperf.tune.state import NotedProgram, State, begin, is_run, keep, note, read_state, started_for, survivor
from npuperf.tune.supervise import RanProgram, Tell
from npuperf.tune.tuning_plan import Plan
from npuperf.tune.usage import Usage, add_savings


def carry_out(
    plan: Plan,
    environment: Mapping[str, str],
    *,
    timeout: float | None,
    tell: Tell,
    progress: Tell,
    keep_document: Keep,
) -> Tuning:
    """Carry a plan out within ``timeout`` seconds, or go on where a program of it still runs after our own death.

    What was finished while nobody watched is read, and not done again. Whatever goes wrong after the start is in the
    document; Ctrl-C and SIGTERM are passed on (KeyboardInterrupt) when all is ended and kept.
    """
    folder = plan.folder
    refuse_ways_out(folder.parents[1], f"{folder.parent.name}/{folder.name}")
    child, state = survivor(folder), read_state(folder)
    same = _is_same(state.job, plan.job)
    if child is not None and state.job is not None and not same:
        raise _another(folder, child)
    unseen = _finished_unseen(plan, state) if child is None and same else None
    if unseen is not None:
        tell(say("{folder}: AOE finished while npuperf was not running; its result is read", folder=str(folder)))
        return conclude(plan, RanProgram(None, 0.0), unseen, None, keep_document)
    first = min(max(state.step, 0), len(plan.programs) - 1) if child or (same and dumped(folder / "dump")) else 0
    with supervise.heeding() as signals:
        if child is None:
            _end_leftovers(folder, tell)
            _prepare(plan, cann_version(environment))
        keep(folder)
        ran, problem = _run(plan, environment, first, child, supervise.Limits(timeout, signals), tell, progress)
        result = supervise.partial(folder)
        tuning = conclude(plan, ran, result, problem or _judged(plan, ran, result), keep_document)
    if ran.stopped is not None:
        tell(
            say(
                "{signal}: all that was started is ended; what was tuned is kept in {folder}; --resume continues",
                signal=signal.Signals(ran.stopped).name,
                folder=str(folder),
            )
        )
        raise KeyboardInterrupt
    return tuning


def _finished_unseen(plan: Plan, state: State) -> Tuning | None:
    """Return the result of a run that nobody has concluded, where AOE got to its end; None where it has to go on."""
    cut = state.status == "failed" and state.exit_status is None  # by a signal, maybe just after AOE's last words
    if not (state.status == "running" or cut) or not state.tuned:
        return None
    result = supervise.partial(plan.folder)
    problem = outcome.judge(plan.job, plan.folder, RanProgram(None, 0.0), result)
    return result if problem is None else None


def _judged(plan: Plan, ran: RanProgram, result: Tuning | None) -> Problem | None:
    return outcome.INTERRUPTED if ran.stopped is not None else outcome.judge(plan.job, plan.folder, ran, result)


def _run(
    plan: Plan,
    environment: Mapping[str, str],
    first: int,
    child: Detached | None,
    limits: supervise.Limits,
    tell: Tell,
    progress: Tell,
) -> tuple[RanProgram, Problem | None]:
    """Run the programs of a plan from the ``first`` on, which runs already as ``child`` where one is given.

    Returns how the last one ended that was run, and why there is nothing to give to AOE, if that is so.
    """
    folder, began = plan.folder, time.monotonic()
    ran = RanProgram(None, 0.0)
    for number in range(first, len(plan.programs)):
        program, last = plan.programs[number], number == len(plan.programs) - 1
        if limits.signals.first is not None and child is None:
            return RanProgram(None, 0.0, stopped=limits.signals.first), None
        passed = time.monotonic() - began
        left = supervise.Limits(limits.seconds and max(limits.seconds - passed, 0), limits.signals)
        if child is not None:
            tell(say("process {pid} of that run is still running: waiting for it", pid=child.pid))
            ran, child = supervise.wait_for(child, folder, left, progress), None
        else:
            if not last:  # what an earlier attempt dumped may be half of it
                shutil.rmtree(folder / "dump", ignore_errors=True)
            tell(say("{title}: {command}", title=program.title, command=program.shown()))
            note(folder, step=number, program=None)
            ran = supervise.run_program(program, environment, folder, left, progress)
        if not last and ran.stopped is None and (ran.failed or not dumped(folder / "dump")):
            return ran, outcome.no_dump(ran, folder)
        if ran.stopped is not None:
            break
    return ran, None


def _end_leftovers(folder: Path, tell: Tell) -> None:
    """End what an earlier program of a run started and left behind when it was killed."""
    left = started_for(folder) if is_run(folder) else []
    if left:
        end_all(left)
        tell(say_n("ended {n} process that an earlier attempt of this run had left",
                   "ended {n} processes that an earlier attempt of this run had left", len(left)))  # fmt: skip


def _is_same(begun: TuningJob | None, asked: TuningJob) -> bool:
    """Tell whether a run was begun with what is asked for now.

    The bank aside: how it was named does not matter, and where it lies was compared.
    """
    return begun is not None and dataclasses.replace(begun, bank=None) == dataclasses.replace(asked, bank=None)


def _another(folder: Path, child: Detached) -> UsageError:
    """Return the error for what still runs and is not what is asked for."""
    what = say(
        "{folder}: process {pid} is still tuning something other than what is asked for now",
        folder=str(folder),
        pid=child.pid,
    )
    return UsageError(what, hint=say("npuperf tune --resume, without other options, waits for it"))


def _prepare(plan: Plan, cann: str | None) -> None:
    """Make the run's folder and put into it what must be there before AOE starts. Raises InputError."""
    folder = plan.folder
    store.refuse_inside(folder, plan.place)
    try:
        supervise.set_aside(folder)
        folder.mkdir(parents=True, exist_ok=is_run(folder))
    except OSError as error:
        what = say("{folder}: cannot be created: {why}", folder=str(folder), why=error.strerror)
        raise InputError(what) from error
    if not (folder / "bank_before").is_dir():
        store.snapshot(plan.place, folder / "bank_before", cann)
    if plan.ops:
        write_atomically(folder / "tune_ops.cfg", plan.ops)
    write_atomically(folder / "reproduce.sh", reproduce(plan.programs, plan.ops, folder))
    with contextlib.suppress(OSError):
        (folder / "reproduce.sh").chmod(0o755)
    begin(
        folder,
        mode=plan.job.mode,
        job=plan.job,
        place=str(plan.place),
        soc=plan.soc,
        cann=cann,
        programs=tuple(NotedProgram(p.argv, dict(p.added)) for p in plan.programs),
    )


#: Writes a document into a file, in the format that its suffix names.
Keep = Callable[[Document, Path], None]

HISTORY: Final = "history.jsonl"
_FORMATS: Final = ("json", "csv", "md")


def conclude(
    plan: Plan, ran: RanProgram, result: Tuning | None, problem: Problem | None, keep_document: Keep
) -> Tuning:
    """Put the document of a run together and write everything down; ``result``: what there is to read."""
    folder = plan.folder
    tuning = result or _nothing(plan, ran, problem is None)
    if problem is not None and tuning.status == "successful":
        tuning = replace(tuning, status="incomplete")
    if problem is None and ran.returncode is None:
        tuning = _warned(tuning, say("its exit status is unknown: npuperf was not running when it ended"))
    tuning = replace(tuning, folder=str(folder), checks=plan.checks, problem=problem)
    tuning = add_savings(_with_bank(tuning, plan), plan.usage)
    if tuning.status == "successful":
        tuning = replace(tuning, use=bank_use(plan.job, plan.place))
    return _kept(tuning, ran, keep_document)


def _kept(tuning: Tuning, ran: RanProgram, keep_document: Keep) -> Tuning:
    """Write down how a run ended, and warn of what cannot be written: a full disk must not hide a result.

    The state comes last. Until it says so the run counts as unfinished, and --resume reads what is there.
    """
    folder, problem = Path(tuning.folder or ""), tuning.problem
    status, english = ("done", None) if problem is None else ("failed", str(problem.what))
    lost = []
    for suffix in _FORMATS:
        try:
            keep_document(tuning, folder / f"diff.{suffix}")
        except InputError as error:
            lost.append(say("not kept: {why}", why=error.what))
    try:
        _note_down(folder, tuning, ran, note(folder, status=status, exit_status=ran.returncode, problem=english))
    except InputError as error:
        lost.append(say("not kept: {why}", why=error.what))
    return _warned(tuning, *lost)


def _warned(tuning: Tuning, *warnings: Message) -> Tuning:
    return replace(tuning, warnings=(*tuning.warnings, *warnings))


def _nothing(plan: Plan, ran: RanProgram, fine: bool) -> Tuning:
    """Say that there is no result: nothing had to be tuned, AOE refused, or it was stopped."""
    refused = ran.returncode is not None and ran.returncode > 0
    status: Status = "nothing_to_tune" if fine else "failed" if refused else "incomplete"
    files = sorted(plan.folder.glob(PATTERN))
    faults = tuple(fault for fault in map(_fault, files) if fault is not None)
    return Tuning(mode=plan.job.mode, status=status, recovered=False, files=tuple(map(str, files)), warnings=faults)


def _fault(file: Path) -> Message | None:
    """Say why a result file cannot be read, None if it can."""
    try:
        read_results([file])
    except InputError as error:
        return error.what
    return None


def _with_bank(tuning: Tuning, plan: Plan) -> Tuning:
    """Add what changed in the bank, and where the results claim what it does not show."""
    before = plan.folder / "bank_before"
    shutil.rmtree(plan.folder / "bank_after", ignore_errors=True)
    try:
        after = store.snapshot(plan.place, plan.folder / "bank_after", None)
        if plan.job.mode == "subgraph":
            return _warned(tuning, _subgraphs(tuning, plan.place, before, after))
        banks = [read_bank(place) for place in (before, after)]
    except InputError as error:
        return _warned(tuning, say("not compared with the knowledge base: {why}", why=error.what))
    diff = replace(compare(*banks), after=str(plan.place))  # and not its copy
    return add_bank(_warned(tuning, *_for_other_cores(banks[1], plan.usage)), diff)


def _subgraphs(tuning: Tuning, place: Path, before: Path, after: Path) -> Message:
    """Say what can be said of a bank of subgraphs."""
    old, new = store.hashes(before), store.hashes(after)
    changed = sum(old.get(name) != digest for name, digest in new.items())
    claimed = tuning.summary.added + tuning.summary.updated if tuning.summary else 0
    if claimed and not changed and tuning.status == "successful":
        return say_n("the result file says {n} subgraph added or updated, but no file in {place} changed: "
"{why}",
                     "the result file says {n} subgraphs added or updated, but no file in {place} changed: "
"{why}",
                     claimed, place=str(place), why=ANOTHER_PLACE)  # fmt: skip
    return say("the subgraph knowledge base {place}: {changed} of {all} files are new or changed (their "
"content cannot be read)",
               place=str(place), changed=changed, all=len(new))  # fmt: skip


def _for_other_cores(bank: Bank, usage: Usage | None) -> list[Message]:
    """Warn where nothing in a bank is for the number of cores that the profile's program ran with."""
    counts = {count for counts in core_counts([bank]).values() for count in counts}
    if not counts or usage is None or usage.cores in (None, *counts):
        return []
    return [say("the knowledge base is for {counts} cores, but the profile's chip has {cores}: CANN looks "
"for records for the chip's own number of cores",
                counts=count_list(counts), cores=usage.cores)]  # fmt: skip


def _note_down(folder: Path, tuning: Tuning, ran: RanProgram, state: State) -> None:
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
        "place": state.place,
        "cann": state.cann,
    }
    with contextlib.suppress(OSError):
        # Never through a link, which a stranger's folder may have there.
        ledger = os.open(folder.parent / HISTORY, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            os.write(ledger, (json.dumps(line) + "\n").encode())
        finally:
            os.close(ledger)
