"""How a tuning run ended: success needs more than an exit status, and a failure is said with its likely reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from npuperf.documents.tuning import Tuning
from npuperf.errors import ExitCode
from npuperf.tune import codes, supervise
from npuperf.tune.job import NO_DUMP, Job

#: What aoe's exit status 2 means in every version seen.
_BAD_OPTION: Final = 2
#: An error in CANN's words, or the end of a traceback.
_ERROR: Final = re.compile(r"\[ERROR\]|^[\w.]*(Error|Exception)\b")
_FAILED: Final = ExitCode.CHILD_FAILED
#: What is wrong, and what to do next.
Problem = tuple[str, str]


def no_dump(ran: supervise.Ran, folder: Path) -> tuple[Problem, int]:
    """Say why there is nothing to give to AOE: the program failed, or it compiled no operator."""
    if ran.failed:
        how = "was stopped: --timeout is over" if ran.timed_out else f"ended with exit status {ran.returncode}"
        return _failure(f"the program {how}", folder), _FAILED
    if ran.returncode is None:
        return _failure("how the program ended was not seen, and it dumped no operator", folder), _FAILED
    return (f"the program dumped no operator: {NO_DUMP[0]}", NO_DUMP[1]), ExitCode.INPUT


def _failure(what: str, folder: Path) -> Problem:
    """Say what failed, with the line of its output that tells most and AOE's status in it, and where the rest is."""
    output = supervise.output(folder)
    said = _reason(output)
    code = codes.printed(output)
    meaning = codes.meaning(code, _cann(folder)) if code is not None else None
    meant = [f"AOE's status {code}: {meaning}"] if meaning else []
    return ": ".join([what, *said]) + "".join(f" ({text})" for text in meant), f"see {folder / supervise.LOG}"


def _reason(output: str) -> list[str]:
    """Return the last line that speaks of an error, else the last line; none if nothing was said.

    What a program says otherwise often comes after its error, out of a buffer that is emptied at its end.
    """
    lines = [line for line in output.splitlines() if line.strip()]
    return ([line for line in lines if _ERROR.search(line)] or lines)[-1:]


def _cann(folder: Path) -> str | None:
    """Return the version of CANN that a run was begun with."""
    cann = supervise.read_state(folder).get("cann")
    return str(cann) if cann else None


def judge(job: Job, folder: Path, ran: supervise.Ran, result: Tuning | None) -> tuple[Problem | None, int]:
    """Tell success: exit status 0, the words at the end of the output, and a result that can be read."""
    if ran.timed_out:
        return ("stopped: --timeout is over", "start again with --resume"), _FAILED
    if ran.returncode:
        return _failure(_exit_text(ran.returncode), folder), _FAILED
    whole = result is not None and result.status in ("successful", "nothing_to_tune") and not result.recovered
    # TensorFlow's adapter says its last words at a level that is not logged by default.
    if not supervise.finished(folder, in_adapter=job.in_adapter) and not (job.in_adapter and whole):
        return ("the output does not say that AOE finished", "start again with --resume"), _FAILED
    if result is None and _had_nothing_to_tune(folder):
        return None, ExitCode.DONE
    if result is None:
        return ("AOE finished and left no readable result", f"see {folder}"), _FAILED
    if not whole:
        return (f"AOE finished, and its result says {result.status}", "see failed operators"), _FAILED
    return None, ExitCode.DONE


def _had_nothing_to_tune(folder: Path) -> bool:
    """Tell whether the adapter says that there was nothing to tune: it leaves no result then."""
    code = codes.printed(supervise.output(folder))
    return code is not None and codes.nothing_to_tune(code, _cann(folder))


def _exit_text(returncode: int) -> str:
    if returncode < 0:
        return f"killed by signal {-returncode}"
    return f"exit status {returncode}" + (" (an option that this aoe does not know)" * (returncode == _BAD_OPTION))
