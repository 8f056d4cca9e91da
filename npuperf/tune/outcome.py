"""How a tuning run ended: success needs more than an exit status, and a failure is said with its likely reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from npuperf.documents.document import Problem
from npuperf.documents.tuning import Status, Tuning
from npuperf.errors import ExitCode
from npuperf.messages import Message, say
from npuperf.tune import codes, supervise
from npuperf.tune.job import NO_DUMP, NO_DUMP_HINT, TuningJob
from npuperf.tune.state import read_state

#: What aoe's exit status 2 means in every version seen.
_BAD_OPTION: Final = 2
#: An error in CANN's words, or the end of a traceback.
_ERROR: Final = re.compile(r"\[ERROR\]|^[\w.]*(Error|Exception)\b")
_RESUME: Final = say("start again with --resume")
INTERRUPTED: Final = Problem(what=say("interrupted"), hint=_RESUME, exit_code=ExitCode.INTERRUPTED)


def no_dump(ran: supervise.RanProgram, folder: Path) -> Problem:
    """Say why there is nothing to give to AOE: the program failed, or it compiled no operator."""
    if ran.timed_out:
        return _failure(say("the program was stopped: --timeout is over"), folder)
    if ran.returncode:
        return _failure(say("the program ended with exit status {status}", status=ran.returncode), folder)
    if ran.returncode is None:
        return _failure(say("how the program ended was not seen, and it dumped no operator"), folder)
    return Problem(what=say("the program dumped no operator: {why}", why=NO_DUMP), hint=NO_DUMP_HINT)


def _failure(what: Message, folder: Path) -> Problem:
    """Say what failed, with the line of its output that tells most and AOE's status in it, and where the rest is."""
    output = supervise.output(folder)
    for line in _reason(output):
        what = say("{what}: {line}", what=what, line=line)
    code = codes.printed(output)
    meaning = codes.meaning(code, read_state(folder).cann) if code is not None else None
    if meaning:
        what = say("{what} (AOE's status {code}: {meaning})", what=what, code=code, meaning=meaning)
    return _failed(what, say("see {log}", log=str(folder / supervise.LOG)))


def _failed(what: Message, hint: Message) -> Problem:
    return Problem(what=what, hint=hint, exit_code=ExitCode.CHILD_FAILED)


def _reason(output: str) -> list[str]:
    """Return the last line that speaks of an error, else the last line; none if nothing was said.

    What a program says otherwise often comes after its error, out of a buffer that is emptied at its end.
    """
    lines = [line for line in output.splitlines() if line.strip()]
    return ([line for line in lines if _ERROR.search(line)] or lines)[-1:]


def judge(job: TuningJob, folder: Path, ran: supervise.RanProgram, result: Tuning | None) -> Problem | None:
    """Tell success: exit status 0, the words at the end of the output, and a result that can be read."""
    if ran.timed_out:
        return _failed(say("stopped: --timeout is over"), _RESUME)
    if ran.returncode:
        return _failure(_exit_text(ran.returncode), folder)
    whole = result is not None and result.status in ("successful", "nothing_to_tune") and not result.recovered
    # TensorFlow's adapter says its last words at a level that is not logged by default.
    if not supervise.finished(folder, in_adapter=job.in_adapter) and not (job.in_adapter and whole):
        return _failed(say("the output does not say that AOE finished"), _RESUME)
    if result is None and not _had_nothing_to_tune(folder):
        return _failed(say("AOE finished and left no readable result"), say("see {folder}", folder=str(folder)))
    if result is not None and not whole:
        what = say("AOE finished, and its result says {status}", status=_STATUS[result.status])
        return _failed(what, say("see failed operators"))
    return None


_STATUS: Final[dict[Status, Message]] = {
    "successful": say("successful"),
    "failed": say("failed"),
    "incomplete": say("incomplete"),
    "nothing_to_tune": say("nothing to tune"),
}


def _had_nothing_to_tune(folder: Path) -> bool:
    """Tell whether the adapter says that there was nothing to tune: it leaves no result then."""
    code = codes.printed(supervise.output(folder))
    return code is not None and codes.nothing_to_tune(code, read_state(folder).cann)


def _exit_text(returncode: int) -> Message:
    if returncode < 0:
        return say("killed by signal {signal}", signal=-returncode)
    if returncode == _BAD_OPTION:
        return say("exit status {status} (an option that this aoe does not know)", status=returncode)
    return say("exit status {status}", status=returncode)
