"""How a tuning run ended: success needs more than an exit status, and a failure is said with its likely reason.

AOE's status codes were numbered anew between two versions of CANN, so none is read without it. Facts: AOE's public
headers of 2021–2022 and of 2023. Which versions of CANN go with them is inferred from those years: 5.x and 6.0 have
the older numbers, 7.0 and later the newer ones; between them either may be meant.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from npuperf.documents.document import Problem
from npuperf.documents.tuning import Status, Tuning
from npuperf.errors import ExitCode
from npuperf.messages import Message, chain, say
from npuperf.tune import supervise
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


def judge(job: TuningJob, folder: Path, ran: supervise.RanProgram, result: Tuning | None) -> Problem | None:
    """Tell success: exit status 0, the words at the end of the output, and a result that can be read."""
    if ran.timed_out:
        return _failed(say("stopped: the time of --timeout is over"), _RESUME)
    if ran.returncode:
        return _failure(_exit_text(ran.returncode), folder)
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


def _exit_text(returncode: int) -> Message:
    if returncode < 0:
        return say("killed by signal {signal}", signal=-returncode)
    if returncode == _BAD_OPTION:
        return say("exit status {status} (an option that this aoe does not know)", status=returncode)
    return say("exit status {status}", status=returncode)


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
