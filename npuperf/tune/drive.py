"""Carry a plan out: keep the bank, run the programs, compare the banks, and write everything down."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from npuperf.base import trust
from npuperf.base.cann import cann_version
from npuperf.base.errors import ExitCode, InputError, UsageError
from npuperf.base.files import refuse_ways_out, write_atomically
from npuperf.base.messages import Message, chain, say, say_n
from npuperf.base.process import Detached, end_all
from npuperf.model.document import Document, Problem
from npuperf.model.tuning import Status, Tuning
from npuperf.record.plan import Tell
from npuperf.tune import bank, supervise
from npuperf.tune.request import TuningJob
from npuperf.tune.results import PATTERN, read_results
from npuperf.tune.savings import with_savings
from npuperf.tune.state import NotedProgram, is_run, note, read_state, started_for, survivor
from npuperf.tune.supervise import RanProgram
from npuperf.tune.tuning_plan import NO_DUMP, NO_DUMP_HINT, Plan, dumped

#: Writes a document into a file, in the format that its suffix names.
Keep = Callable[[Document, Path], None]

HISTORY: Final = "history.jsonl"
_FORMATS: Final = ("json", "csv", "md")

# -- How a tuning run ended: success needs more than an exit status, and a failure is said with its likely reason.
#
# AOE's status codes were numbered anew between two versions of CANN, so none is read without it. Facts: AOE's public
# headers of 2021–2022 and of 2023. Which versions of CANN go with them is inferred from those years: 5.x and 6.0 have
# the older numbers, 7.0 and later the newer ones; between them either may be meant.

#: What aoe's exit status 2 means in every version seen.
_BAD_OPTION: Final = 2
#: An error in CANN's words, or the end of a traceback.
_ERROR: Final = re.compile(r"\[ERROR\]|^[\w.]*(Error|Exception)\b")
_RESUME: Final = say("start again with --resume")
_INTERRUPTED: Final = Problem(what=say("interrupted"), hint=_RESUME, exit_code=ExitCode.INTERRUPTED)


def _why_no_dump(ran: RanProgram, folder: Path) -> Problem:
    """Say why there is nothing to give to AOE: the program failed, or it compiled no operator."""
    if ran.timed_out:
        return _failure(say("the program was stopped: the time of --timeout is over"), folder)
    if ran.returncode:
        return _failure(say("the program ended with exit status {status}", status=ran.returncode), folder)
    if ran.returncode is None:
        return _failure(say("the program's exit status is unknown, and it dumped no operator"), folder)
    return Problem(what=say("the program dumped no operator: {why}", why=NO_DUMP), hint=NO_DUMP_HINT)


def _failure(what: Message, folder: Path) -> Problem:
    """Say what failed, with the line of its output that tells most and AOE's status in it, and where the rest is."""
    output = supervise.output(folder)
    said = [line for line in output.splitlines() if line.strip()]
    # The last line that speaks of an error: what a program says otherwise often comes after it, out of a buffer that is
    # emptied at its end.
    for line in ([line for line in said if _ERROR.search(line)] or said)[-1:]:
        what = say("{what}: {line}", what=what, line=line)
    code = _printed(output)
    meaning = _meaning(code, read_state(folder).cann) if code is not None else None
    if meaning:
        what = say("{what} (AOE's status {code}: {meaning})", what=what, code=code, meaning=meaning)
    return _failed(what, say("see {log}", log=str(folder / supervise.LOG)))


def _failed(what: Message, hint: Message) -> Problem:
    return Problem(what=what, hint=hint, exit_code=ExitCode.CHILD_FAILED)


def _why_failed(job: TuningJob, folder: Path, ran: RanProgram, result: Tuning | None) -> Problem | None:
    """Tell success (None): exit status 0, the words at the end of the output, and a result that can be read."""
    if ran.timed_out:
        return _failed(say("stopped: the time of --timeout is over"), _RESUME)
    if ran.returncode:
        what = say("exit status {status}", status=ran.returncode)
        gone = next((path for path in job.paths if not path.exists()), None)
        if ran.returncode < 0:
            what = say("killed by signal {signal}", signal=-ran.returncode)
        elif gone is not None:
            what = say("exit status {status} ({path} is not there any more)", status=ran.returncode, path=str(gone))
        elif ran.returncode == _BAD_OPTION:
            what = say("exit status {status} (an option that this aoe does not know)", status=ran.returncode)
        return _failure(what, folder)
    whole = result is not None and result.status in ("successful", "nothing_to_tune") and not result.recovered
    # TensorFlow's adapter says its last words at a level that is not logged by default.
    if not supervise.finished(folder, in_adapter=job.in_adapter) and not (job.in_adapter and whole):
        return _failed(say("the output does not say that AOE finished"), _RESUME)
    if result is None:  # the adapter leaves none where there was nothing to tune
        code = _printed(supervise.output(folder))
        if code is not None and _meaning(code, read_state(folder).cann) == _NOTHING_TO_TUNE:
            return None
        return _failed(say("AOE finished, but left no readable result"), say("see {folder}", folder=str(folder)))
    if not whole:
        what = say("AOE finished, but its result says {status}", status=_STATUS[result.status])
        log = say("see {log}", log=str(folder / supervise.LOG))
        return _failed(what, say("see failed operators") if result.failed_operators else log)
    return None


_STATUS: Final[dict[Status, Message]] = {
    "successful": say("successful"),
    "failed": say("failed"),
    "incomplete": say("incomplete"),
    "nothing_to_tune": say("nothing to tune"),
}


_BOTH: Final = {
    -1: say("failed"),
    3: say("AOE is not initialised"),
    4: say("AOE was initialised twice"),
    2000: say("an operator could not be compiled"),
    3000: say("an operator could not be run"),
    3001: say("no space left"),
    3002: say("an operator failed while it ran"),
    3003: say("an operator reached beyond its memory"),
    3004: say("dynamic parameters could not be set"),
    3202: say("profiling took too long"),
    3203: say("profiling data could not be read"),
    3300: say("the network is down"),
    3301: say("the network cannot be reached"),
}
_NOTHING_TO_TUNE: Final = say("the graph has nothing to tune")
_DYNAMIC: Final = say("dynamic graphs cannot be tuned")
_OLDER: Final = {
    **_BOTH,
    1: say("unknown error"),
    10: say("invalid parameter"),
    11: say("invalid graph"),
    12: _NOTHING_TO_TUNE,
    13: say("the graph was tuned already"),
    14: _DYNAMIC,
    20: say("no device"),
    21: say("the model is not supported"),
    22: say("busy: called from several threads"),
    23: say("a parameter could not be read"),
    24: say("ranges of shapes cannot be tuned"),
    **dict.fromkeys((90, 91, 92, 93), say("a library of AOE could not be loaded")),
    **dict.fromkeys((400, 401, 402), say("memory could not be obtained")),
    500: say("no such session"),
    1001: say("the knowledge base was not changed"),
    1002: say("the knowledge base could not be changed"),
    **dict.fromkeys((4000, 4001), say("a plugin of AOE could not be loaded")),
    4100: say("an option has an invalid value"),
}
_NEWER: Final = {
    **_BOTH,
    1: say("memory could not be obtained"),
    2: say("invalid parameter"),
    5: say("no such session"),
    6: say("busy: called from several threads"),
    7: say("invalid graph"),
    8: _NOTHING_TO_TUNE,
    9: _DYNAMIC,
    10: say("ranges of shapes cannot be tuned"),
    11: say("an option has an invalid value"),
    **dict.fromkeys((12, 13, 201, 202), say("a library of AOE could not be loaded")),
    100: say("tuning failed"),
    **dict.fromkeys((203, 204), say("memory could not be obtained")),
    302: say("the model is not supported"),
    303: say("a parameter could not be read"),
    401: say("the graph was tuned already"),
    **dict.fromkeys((402, 403), say("a plugin of AOE could not be loaded")),
}
#: How the programs that call AOE print a status: TF Adapter "func failed[9]", others "failed. error code:9".
_PRINTED: Final = re.compile(
    r"aoe[^\r\n]{0,200}?\b(?:failed|success)\b[.,]? *(?:\[|(?:error code|status is)[: ]+)(-?\d{1,9})", re.IGNORECASE
)


def _printed(text: str) -> int | None:
    """Return the last status that is not 0 in the output of a program that calls AOE."""
    found = [int(code) for code in _PRINTED.findall(text)]
    return next((code for code in reversed(found) if code), None)


def _meaning(code: int, cann: str | None) -> Message | None:
    """Say what a status means in a version of CANN, None where it has no meaning that is known."""
    older, newer = _OLDER.get(code), _NEWER.get(code)
    version = re.match(r"(\d{1,9})\.(\d{1,9})", cann or "")
    if version and (int(version[1]), int(version[2])) >= (7, 0):
        return newer
    if version and int(version[1]) >= 5 and (int(version[1]), int(version[2])) <= (6, 0):
        return older
    if older == newer:
        return older
    later = newer and say("CANN 7.0 or later: {what}", what=newer)
    before = older and say("CANN 6.0 or before: {what}", what=older)
    return chain(later, before)


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
    # The bank aside: how it was named does not matter, and where it lies was compared.
    same = state.job is not None and replace(state.job, bank=None) == replace(plan.job, bank=None)
    if child is not None and state.job is not None and not same:
        what = say("{folder}: process {pid} is still tuning something other than what is asked for now",
                   folder=str(folder), pid=child.pid)  # fmt: skip
        raise UsageError(what, hint=say("npuperf tune --resume, without other options, waits for it"))
    # A run that nobody has concluded: by a signal, maybe just after AOE's last words.
    open_end = state.status == "running" or (state.status == "failed" and state.exit_status is None)
    if child is None and same and open_end and state.tuned:
        result = supervise.partial(folder)
        if result is not None and _why_failed(plan.job, folder, RanProgram(None, 0.0), result) is None:
            tell(say("{folder}: AOE finished while npuperf was not running; its result is read", folder=str(folder)))
            return _conclude(plan, RanProgram(None, 0.0), result, None, keep_document)
    first = min(max(state.step, 0), len(plan.programs) - 1) if child or (same and dumped(folder / "dump")) else 0
    with supervise.heeding() as limits:
        if child is None:
            _prepare(plan, cann_version(environment), tell)
        note(folder, keeper=Detached.myself())
        if timeout is not None:
            limits.until = time.monotonic() + timeout
        ran, problem = _run(plan, environment, first, child, limits, tell, progress)
        result = supervise.partial(folder)
        if problem is None:
            problem = _INTERRUPTED if ran.stopped is not None else _why_failed(plan.job, folder, ran, result)
        tuning = _conclude(plan, ran, result, problem, keep_document)
    if ran.stopped is not None:
        tell(say("{signal}: all that was started is ended; what was tuned is kept in {folder}; --resume continues",
                 signal=signal.Signals(ran.stopped).name, folder=str(folder)))  # fmt: skip
        raise KeyboardInterrupt
    return tuning


def _prepare(plan: Plan, cann: str | None, tell: Tell) -> None:
    """Make the run's folder and put into it what must be there before AOE starts. Raises InputError."""
    folder = plan.folder
    # What an earlier program of the run started and left behind when it was killed.
    left = started_for(folder) if is_run(folder) else []
    if left:
        end_all(left)
        tell(say_n("ended {n} process that an earlier attempt of this run had left",
                   "ended {n} processes that an earlier attempt of this run had left", len(left)))  # fmt: skip
    place = Path(plan.document.place)
    bank.refuse_inside(folder, place)
    try:
        supervise.set_aside(folder)
        folder.mkdir(parents=True, exist_ok=is_run(folder))
    except OSError as error:
        what = say("{folder}: cannot be created: {why}", folder=str(folder), why=error.strerror)
        raise InputError(what) from error
    if not (folder / "bank_before").is_dir():
        bank.snapshot(place, folder / "bank_before", cann)
    if plan.document.ops:
        write_atomically(folder / "tune_ops.cfg", plan.document.ops)
    write_atomically(folder / "reproduce.sh", plan.script())
    with contextlib.suppress(OSError):
        (folder / "reproduce.sh").chmod(0o755)
    trust.remember(folder, "tune", plan.job, plan.document.place)  # before the folder says what it will run
    note(
        folder,
        status="running",
        step=0,
        program=None,
        mode=plan.job.mode,
        job=plan.job,
        place=plan.document.place,
        soc=plan.soc,
        cann=cann,
        programs=tuple(NotedProgram(p.argv, dict(p.added)) for p in plan.programs),
    )


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
    folder, ran = plan.folder, RanProgram(None, 0.0)
    for number, program in enumerate(plan.programs[first:], first):
        last = number == len(plan.programs) - 1
        if child is not None:
            tell(say("process {pid} of that run is still running: waiting for it", pid=child.pid))
        elif limits.signal is not None:
            return RanProgram(None, 0.0, stopped=limits.signal), None
        else:
            if not last:  # what an earlier attempt dumped may be half of it
                shutil.rmtree(folder / "dump", ignore_errors=True)
            tell(say("{title}: {command}", title=program.title, command=program.shown()))
            note(folder, step=number, program=None)
        ran, child = supervise.run_program(child or program, environment, folder, limits, progress), None
        if ran.stopped is not None:
            break
        if not last and (ran.timed_out or ran.returncode or not dumped(folder / "dump")):
            return ran, _why_no_dump(ran, folder)
    return ran, None


def _conclude(
    plan: Plan, ran: RanProgram, result: Tuning | None, problem: Problem | None, keep_document: Keep
) -> Tuning:
    """Put the document of a run together and write everything down; ``result``: what there is to read.

    What cannot be written is a warning: a full disk must not hide a result. The state comes last. Until it says so the
    run counts as unfinished, and --resume reads what is there.
    """
    folder = plan.folder
    found, place = result or _without_result(plan, ran, problem is None), Path(plan.document.place)
    status = "incomplete" if problem is not None and found.status == "successful" else found.status
    told = [*found.warnings]
    if problem is None and ran.returncode is None:
        told.append(say("its exit status is unknown: npuperf was not running when it ended"))
    diff, of_bank = bank.changes_by(
        found, status, folder, place, plan.job.mode, plan.usage.cores if plan.usage else None
    )
    tuning = with_savings(
        found,
        plan.usage,
        status=status,
        folder=str(folder),
        checks=plan.document.checks,
        problem=problem,
        bank=diff,
        use=bank.bank_use(plan.job, place) if status == "successful" else None,
        warnings=(*told, *of_bank),
    )
    lost = []
    for suffix in _FORMATS:
        try:
            keep_document(tuning, folder / f"diff.{suffix}")
        except InputError as error:
            lost.append(say("not kept: {why}", why=error.what))
    noted, english = ("done", None) if problem is None else ("failed", str(problem.what))
    try:
        state = note(folder, status=noted, exit_status=ran.returncode, problem=english)
    except InputError as error:
        lost.append(say("not kept: {why}", why=error.what))
    else:  # a line to the ledger that shows how the bank grew
        line = {
            "run": folder.name,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "mode": tuning.mode,
            "status": tuning.status,
            "seconds": round(ran.seconds, 1),
            "added": tuning.summary.added if tuning.summary else 0,
            "updated": tuning.summary.updated if tuning.summary else 0,
            "records": diff.records_after if diff else None,
            "place": state.place,
            "cann": state.cann,
        }
        with contextlib.suppress(OSError):
            # Never through a link, which a stranger's folder may have there.
            ledger = os.open(folder.parent / HISTORY, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            with os.fdopen(ledger, "a") as file:
                file.write(json.dumps(line) + "\n")
    return replace(tuning, warnings=(*tuning.warnings, *lost)) if lost else tuning


def _without_result(plan: Plan, ran: RanProgram, fine: bool) -> Tuning:
    """Say that there is no result: nothing had to be tuned, AOE refused, or it was stopped."""
    refused = ran.returncode is not None and ran.returncode > 0
    status: Status = "nothing_to_tune" if fine else "failed" if refused else "incomplete"
    files, faults = sorted(plan.folder.glob(PATTERN)), []
    for file in files:
        try:
            read_results([file])
        except InputError as error:
            faults.append(error.what)
    return Tuning(
        mode=plan.job.mode, status=status, recovered=False, files=tuple(map(str, files)), warnings=tuple(faults)
    )
