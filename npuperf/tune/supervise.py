"""Run AOE: watch the result file that it rewrites, keep its output, end it in time, find it after our own death."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from npuperf.base.errors import InputError
from npuperf.base.files import read_input
from npuperf.base.messages import Message, factor, say, say_n
from npuperf.base.process import Detached, end_all, run_logged
from npuperf.model.tuning import Entry, Status, Tuning
from npuperf.record.plan import Tell
from npuperf.tune.results import PATTERN, newest_run, read_results
from npuperf.tune.state import MARK, note, read_state, started_for
from npuperf.tune.tuning_plan import TuningProgram

_TICK: Final = 0.2
#: What the log says where a program begins.
_BEGINS: Final = "# npuperf runs: "
LOG: Final = "aoe.log"
#: What AOE says at its end, and TensorFlow's adapter at the end of a tuned graph.
_FINISHED, _ADAPTER_FINISHED = "Aoe process finished", "Aoe success"


@dataclass(frozen=True, slots=True)
class RanProgram:
    """How a program of a tuning run ended. ``returncode`` is None where we were not there to see it.

    ``stopped``: the signal because of which we ended it.
    """

    returncode: int | None
    seconds: float
    timed_out: bool = False
    stopped: int | None = None


@dataclass(slots=True)
class Limits:
    """What ends a program before it ends by itself: a time (s, monotonic), or the first Ctrl-C or SIGTERM.

    These are noted instead of obeyed at once: at no moment may a program be left that nobody knows of.
    """

    until: float = math.inf
    signal: int | None = None


@contextlib.contextmanager
def heeding() -> Iterator[Limits]:
    """Note signals while in the block; those that are ignored (nohup, a script's background) stay so.

    A lost connection (SIGHUP) is none of them: we die of it, and AOE goes on.
    """
    limits = Limits()

    def note_signal(number: int, _: object) -> None:
        limits.signal = limits.signal or number

    heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note_signal) for number in heard}
    try:
        yield limits
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_program(
    program: TuningProgram | Detached, environment: Mapping[str, str], folder: Path, limits: Limits, progress: Tell
) -> RanProgram:
    """Run one program to its end, or until a limit is met. Raises InputError if it cannot start.

    One that an earlier npuperf started is waited for; its exit status is not known.
    """
    began, log, code = time.monotonic(), folder / LOG, None
    try:
        if isinstance(program, Detached):
            _wait(lambda: not program.alive(), limits, folder, progress)
            return RanProgram(None, time.monotonic() - began)
        try:
            with log.open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{_BEGINS}{program.shown()}\n")
        except OSError as error:
            raise InputError(say("{path}: cannot be written: {why}", path=str(log), why=error.strerror)) from error
        marked = {**environment, **program.added, MARK: str(folder)}
        with run_logged(program.argv, marked, program.folder, log) as (child, ended):
            with contextlib.suppress(InputError):  # a full disk: the program is known by its mark, too
                note(folder, program=child)
            _wait(lambda: ended() is not None, limits, folder, progress)
            code = ended()
    except _LimitMet:
        if isinstance(program, Detached):
            program.end()
        end_all(started_for(folder))
        seconds = time.monotonic() - began
        return RanProgram(None, seconds, timed_out=limits.signal is None, stopped=limits.signal)
    if code is not None and code < 0:
        end_all(started_for(folder))  # it was killed, and could not end what it had started
    return RanProgram(code, time.monotonic() - began)


class _LimitMet(Exception):  # noqa: N818 - no error
    """The program is not waited for any longer. Leaving the block in which it runs by this ends it."""


def _wait(ended: Callable[[], bool], limits: Limits, folder: Path, progress: Tell) -> None:
    """Wait for a program, and tell what its results show whenever they have changed, without disturbing what is
    measured. Raises _LimitMet.
    """
    began = time.monotonic()
    before: dict[Path, tuple[int, int]] = {}
    while not ended():
        if limits.signal is not None or time.monotonic() > limits.until:
            raise _LimitMet
        try:
            seen = {f: (s.st_mtime_ns, s.st_size) for f in folder.glob(PATTERN) for s in [f.stat()]}
        except OSError:  # AOE makes and removes files meanwhile
            seen = before
        found = partial(folder) if seen != before else None
        before = seen
        if found is not None:
            improved = [e.speedup for e in found.entries if e.speedup and e.kind != "model"]
            done = say("{n} tuned", n=len(improved))
            if improved:
                done = say("{n} tuned, best {best} times as fast", n=len(improved), best=factor(max(improved)))
            progress(say("{done}, {seconds} s", done=done, seconds=round(time.monotonic() - began)))
        time.sleep(_TICK)


def set_aside(folder: Path) -> None:
    """Move the results of an earlier process out of the way of the next, which may get the same process number."""
    results = sorted(folder.glob(PATTERN))
    if not results:
        return
    target = folder / f"earlier-{max(_earlier(folder), default=0) + 1}"
    target.mkdir()
    for file in results:
        file.rename(target / file.name)


def _earlier(folder: Path) -> dict[int, Path]:
    """Return the folders of earlier processes by their number."""
    found = {place.name.removeprefix("earlier-"): place for place in folder.glob("earlier-*")}
    return {int(number): place for number, place in found.items() if number.isdecimal()}


def partial(folder: Path) -> Tuning | None:
    """Read the result files of a run as they are; None while there is nothing to read.

    Where a run was gone on with, the newest process says how it ended, and the others what they had tuned by then.
    """
    newest: Tuning | None = None
    status: Status = "incomplete"  # how an earlier process ended says nothing of the newest
    entries: list[Entry] = []
    files: list[str] = []
    warnings: list[Message] = []
    unread: list[Message] = []
    for of_process in _processes(folder):
        try:
            read = read_results(of_process, read_state(folder).mode)
        except InputError as error:
            unread.append(error.what)
            continue
        if newest is None:
            newest, entries, files, warnings = read, [*read.entries], [*read.files], [*read.warnings]
            if not unread and of_process[0].parent == folder:
                status = read.status
            continue
        known = {(e.name, e.strategy) for e in entries}
        missed = [e for e in read.entries if (e.name, e.strategy) not in known]
        if missed:
            told = say_n("{n} entry is from an earlier process that did not finish: the knowledge base may not have it",
                         "{n} entries are from an earlier process that did not finish: the knowledge base may not have "
                         "them", len(missed))  # fmt: skip
            entries, files, warnings = [*entries, *missed], [*files, *read.files], [*dict.fromkeys([*warnings, told])]
    if newest is None:
        return None
    told_all = (*warnings, *unread)
    return replace(newest, status=status, entries=tuple(entries), files=tuple(files), warnings=told_all)


def _processes(folder: Path) -> Iterator[list[Path]]:
    """Yield the result files of every process of a run, the newest process first."""
    earlier = _earlier(folder)
    for place in (folder, *(earlier[number] for number in sorted(earlier, reverse=True))):
        files = sorted(place.glob(PATTERN))
        while files:
            newest = newest_run(files)
            files = [f for f in files if f not in newest]
            yield newest


def output(folder: Path) -> str:
    """Return what the program that ran last has printed; empty if nothing."""
    try:
        text = read_input(folder / LOG).decode("utf-8", "replace")
    except InputError:
        return ""
    return text.rpartition(_BEGINS)[2].partition("\n")[2]


def finished(folder: Path, *, in_adapter: bool) -> bool:
    """Tell whether the output says that AOE, or TensorFlow's adapter, got to its end."""
    said = output(folder)
    return _FINISHED in said or (in_adapter and _ADAPTER_FINISHED in said)
