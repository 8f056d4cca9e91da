"""The tuning runs below a run directory: which is the newest, which can be gone on with, what a program was."""

from __future__ import annotations

from pathlib import Path

from npuperf.errors import InputError, UsageError
from npuperf.messages import say
from npuperf.profile import manifest as manifests
from npuperf.profile.folder import RunFolder
from npuperf.tune.job import TuningJob
from npuperf.tune.state import is_run, keeper, read_state


def last_run(run: Path, *, unfinished: bool = False) -> Path:
    """Return the newest tuning run below a run directory. Raises InputError if there is none."""
    folders = sorted(f for f in (run / "tune").glob("*") if is_run(f))
    if unfinished:
        folders = [f for f in folders if read_state(f).status != "done"]
    if not folders:
        where = str(run / "tune")
        what = (
            say("{folder}: no unfinished tuning run there", folder=where)
            if unfinished
            else say("{folder}: no tuning run there", folder=where)
        )
        raise InputError(what, hint=say("npuperf tune --mode op begins one"))
    return folders[-1]


def unfinished_run(run: Path, mode: str | None) -> tuple[Path, TuningJob | None]:
    """Return the newest run to go on with, and what it was asked for. Raises UsageError if it is of another kind."""
    folder = last_run(run, unfinished=True)
    refuse_busy(folder, "--resume")
    state = read_state(folder)
    if mode not in (None, state.mode):
        what = say("{folder}: was begun with --mode {mode}", folder=str(folder), mode=state.mode)
        raise UsageError(what, hint=say("npuperf tune --resume continues it"))
    return folder, state.job


def newest_of(path: Path) -> Path:
    """Return the newest tuning run of a run directory; anything else as it is."""
    return last_run(path) if any(map(is_run, path.glob("tune/*"))) else path


def refuse_busy(folder: Path, option: str) -> None:
    """Raise UsageError while another npuperf looks after a run."""
    found = keeper(folder)
    if found:
        what = say("{option}: process {pid} still looks after {folder}", option=option, pid=found, folder=str(folder))
        raise UsageError(what, hint=say("wait for it, or end it"))


def recorded_command(run: Path) -> tuple[str, ...]:
    """Return the command that a run directory recorded, empty if it is none."""
    found = manifests.read(RunFolder(run))
    return found.command if found else ()


def recorded_soc(run: Path) -> str | None:
    """Return the chip that a run directory recorded."""
    found = manifests.read(RunFolder(run))
    return found.soc if found else None
