"""The tuning runs below a run directory: what each notes down of itself for whoever goes on with it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from npuperf.base import trust
from npuperf.base.errors import InputError, UsageError
from npuperf.base.files import write_atomically
from npuperf.base.messages import Message, chain, say
from npuperf.base.notes import read_note, read_struct
from npuperf.base.process import Detached, carriers
from npuperf.record.folder import RunFolder
from npuperf.record.manifest import Manifest, read
from npuperf.tune.request import TuningJob

STATE: Final = "state.json"
_STARTS: Final = say("npuperf tune --mode op starts one")


class NotedProgram(msgspec.Struct, frozen=True):
    """A program as it was run, with what its environment had in addition."""

    argv: tuple[str, ...]
    environment: dict[str, str]


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run: what was asked for, how far it is, and who looks after it. None where it does not say, or not legibly.

    ``step``: the number of the program that runs; ``program``: its process, ``keeper``: the npuperf that watches it.
    ``problem`` is English.
    """

    status: str | None = None
    mode: str | None = None
    job: TuningJob | None = None
    place: str | None = None
    soc: str | None = None
    cann: str | None = None
    programs: tuple[NotedProgram, ...] = ()
    step: int = 0
    program: Detached | None = None
    keeper: Detached | None = None
    exit_status: int | None = None
    problem: str | None = None

    @property
    def tuned(self) -> bool:
        """Tell whether it got as far as tuning: the programs before the last one only dump operators."""
        return self.step >= len(self.programs) - 1


def is_run(folder: Path) -> bool:
    """Tell whether a folder is that of a tuning run."""
    return (folder / STATE).is_file()


def read_state(folder: Path) -> State:
    """Read the state of a run, leaving out what is damaged; empty if there is none that can be read."""
    return read_struct(folder / STATE, State, lambda kind, text: kind(text)) or State()  # paths are text there


def note(folder: Path, **facts: object) -> State:
    """Add facts, named as in :class:`State`, to the state of a run."""
    state = replace(read_state(folder), **facts)
    noted = msgspec.to_builtins(state, enc_hook=str)
    write_atomically(folder / STATE, json.dumps(noted, indent=1) + "\n")
    return state


def survivor(folder: Path) -> Detached | None:
    """Return the program of a run if it still runs; None for a run that has not begun.

    Where npuperf was killed before it could note the program down, it is known by what it carries (see supervise).
    """
    state = read_state(folder)
    if state.program is None and state.status == "running":
        return next(iter(started_for(folder)), None)
    return state.program if state.program and state.program.alive() else None


#: Every program that a tuning run starts, and what that starts, has the run's folder in this variable.
MARK: Final = "NPUPERF_TUNING"


def started_for(folder: Path) -> list[Detached]:
    """Return the processes that were started for a run and still run, the oldest first."""
    return carriers(MARK, str(folder.absolute()))


def last_run(run: Path, wanted: Callable[[Path], bool] = lambda folder: True) -> Path:
    """Return the newest tuning run below a run directory that is ``wanted``, else the newest.

    Raises InputError if there is none.
    """
    folders = _runs(run)
    if not folders:
        raise InputError(say("{folder}: no tuning run there", folder=str(run / "tune")), hint=_STARTS)
    return next((folder for folder in reversed(folders) if wanted(folder)), folders[-1])


def _runs(run: Path) -> list[Path]:
    return sorted(f for f in (run / "tune").glob("*") if is_run(f))


def unfinished_run(run: Path, mode: str | None) -> tuple[Path, TuningJob | None]:
    """Return the newest run to go on with, and what it was asked for.

    Raises UsageError if it is of another kind, InputError where none can be gone on with.
    """
    unfinished = [folder for folder in _runs(run) if read_state(folder).status != "done"]
    if not unfinished:
        raise InputError(say("{folder}: no unfinished tuning run there", folder=str(run / "tune")), hint=_STARTS)
    folder = unfinished[-1]
    read_note(folder / STATE)  # which says why, where nothing of it can be read
    refuse_busy(folder, "--resume")
    state = read_state(folder)
    if mode not in (None, state.mode):
        what = say("{folder}: was started with --mode {mode}", folder=str(folder), mode=state.mode)
        raise UsageError(what, hint=say("npuperf tune --resume continues it"))
    return folder, state.job


def newest_of(path: Path, wanted: Callable[[Path], bool]) -> Path:
    """Return the newest tuning run of a run directory that is ``wanted``; anything else as it is."""
    return last_run(path, wanted) if any(map(is_run, path.glob("tune/*"))) else path


def is_ours(folder: Path, state: State) -> bool:
    """Tell whether this user had npuperf begin a run, with just what its state says now."""
    return trust.remembers(folder, "tune", state.job, state.place)


def recorded_by_us(run: Path) -> bool:
    """Tell whether this user had npuperf profile the program of a run directory, from this folder."""
    return trust.remembers(run, "profile", recorded(run).command, str(Path.cwd()))


def not_ours(folder: Path, what: Message) -> Message:
    """Say what a folder would have us do that nobody can answer for."""
    why = say("{folder} may be a stranger's: no record of yours says that you began it. It says to do this:",
              folder=str(folder))  # fmt: skip
    return chain(why, what, by="\n  ")


def refuse_busy(folder: Path, option: str) -> None:
    """Raise UsageError while another npuperf looks after a run."""
    keeper = read_state(folder).keeper
    if keeper and keeper.alive() and keeper.pid != os.getpid():
        pid = keeper.pid
        what = say("{option}: process {pid} is still working on {folder}", option=option, pid=pid, folder=str(folder))
        raise UsageError(what, hint=say("wait for it, or end it"))


def refuse_twice(run: Path, job: TuningJob) -> None:
    """Raise UsageError while the same is being tuned already."""
    for folder in _runs(run):
        state = read_state(folder)
        child = survivor(folder) if (state.status, state.job) == ("running", job) else None
        if child:
            what = say("{folder}: process {pid} is tuning the same already", folder=str(folder), pid=child.pid)
            raise UsageError(what, hint=say("npuperf tune --resume waits for it (--force tunes beside it)"))


def recorded(run: Path) -> Manifest:
    """Return what a run directory says of itself, empty if it is none."""
    return read(RunFolder(run)) or Manifest()
