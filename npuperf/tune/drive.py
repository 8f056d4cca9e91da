"""Carry a plan out: keep the bank, run the programs, wait for one that outlived an earlier npuperf."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

from npuperf.cann import cann_version
from npuperf.documents.tuning import Tuning
from npuperf.errors import InputError, UsageError
from npuperf.files import write_atomically
from npuperf.messages import say
from npuperf.process import Detached
from npuperf.tune import outcome, store, supervise
from npuperf.tune.conclude import Keep, conclude
from npuperf.tune.job import TuningJob, dumped, reproduce
from npuperf.tune.state import NotedProgram, is_run, keep, note, read_state, survivor
from npuperf.tune.supervise import RanProgram, Tell
from npuperf.tune.tuning_plan import Plan


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

    Whatever goes wrong after the start is in the document; Ctrl-C is passed on when all is kept.
    """
    folder = plan.folder
    child, state = survivor(folder), read_state(folder)
    if child is None:
        _prepare(plan, cann_version(environment))
    elif state.job is not None:
        _refuse_another(folder, child, state.job, plan.job)
    keep(folder)
    began = time.monotonic()
    ran = RanProgram(None, 0.0)
    try:
        for number in range(state.step if child else 0, len(plan.programs)):
            left = None if timeout is None else max(timeout - (time.monotonic() - began), 0)
            if child is not None:
                tell(say("process {pid} of that run still runs: waiting for it", pid=child.pid))
                ran, child = supervise.wait_for(child, folder, left, progress), None
            else:
                ran = _run(plan, number, environment, left, tell, progress)
            last = number == len(plan.programs) - 1
            if not last and (ran.failed or not dumped(folder / "dump")):
                problem = outcome.no_dump(ran, folder)
                return conclude(plan, ran, supervise.partial(folder), problem, keep_document)
    except KeyboardInterrupt:
        ran = RanProgram(None, time.monotonic() - began)
        conclude(plan, ran, supervise.partial(folder), outcome.INTERRUPTED, keep_document)
        tell(say("what was tuned is kept in {folder}; --resume continues", folder=str(folder)))
        raise
    result = supervise.partial(folder)
    return conclude(plan, ran, result, outcome.judge(plan.job, folder, ran, result), keep_document)


def _run(
    plan: Plan, number: int, environment: Mapping[str, str], timeout: float | None, tell: Tell, progress: Tell
) -> RanProgram:
    program = plan.programs[number]
    tell(say("{title}: {command}", title=program.title, command=program.shown()))
    note(plan.folder, step=number)
    return supervise.run_program(program, environment, plan.folder, timeout, progress)


def _refuse_another(folder: Path, child: Detached, begun: TuningJob, asked: TuningJob) -> None:
    """Raise UsageError where what still runs is not what is asked for."""
    # The bank aside: how it was named does not matter, and where it lies was compared.
    if dataclasses.replace(begun, bank=None) != dataclasses.replace(asked, bank=None):
        what = say(
            "{folder}: process {pid} still tunes, and something else than asked for", folder=str(folder), pid=child.pid
        )
        raise UsageError(what, hint=say("npuperf tune --resume, without other options, waits for it"))


def _prepare(plan: Plan, cann: str | None) -> None:
    """Make the run's folder and put into it what must be there before AOE starts. Raises InputError."""
    folder = plan.folder
    store.refuse_inside(folder, plan.place)
    try:
        supervise.set_aside(folder)
        folder.mkdir(parents=True, exist_ok=is_run(folder))
    except OSError as error:
        what = say("{folder}: cannot be made: {why}", folder=str(folder), why=error.strerror)
        raise InputError(what) from error
    if not (folder / "bank_before").is_dir():
        store.snapshot(plan.place, folder / "bank_before", cann)
    if plan.ops:
        write_atomically(folder / "tune_ops.cfg", plan.ops)
    write_atomically(folder / "reproduce.sh", reproduce(plan.programs, plan.ops, folder))
    (folder / "reproduce.sh").chmod(0o755)
    note(
        folder,
        status="running",
        mode=plan.job.mode,
        job=plan.job,
        place=str(plan.place),
        soc=plan.soc,
        cann=cann,
        programs=tuple(NotedProgram(p.argv, dict(p.added)) for p in plan.programs),
    )
