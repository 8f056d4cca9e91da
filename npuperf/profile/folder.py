"""The run directory: one folder for one measurement, shared by all commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from npuperf.errors import InputError, UsageError
from npuperf.files import MANIFEST, shown
from npuperf.messages import say

ELSEWHERE: Final = say("choose another folder with -o")


class RunFolder:
    """Where a run keeps its things: ``manifest`` says what is known about it, ``export_log`` what the exporters said.

    ``raw`` holds what the profilers wrote; ``work`` is npuperf's own: ``plan`` for the agent, ``status`` of every
    process, ``stop`` (a file whose presence ends recording), and the program's ``exit_status`` from below msprof.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.shown = path, shown(path)  # the latter as it is called in a command
        self.manifest, self.raw, self.work = path / MANIFEST, path / "raw", path / ".profile"
        self.plan, self.status = self.work / "plan.json", self.work / "status"
        self.stop, self.exit_status = self.work / "stop", self.work / "exit-status"
        self.export_log = path / "export.log"


def check_free(path: Path, force: bool) -> None:
    """Raise UsageError when the folder holds something and may not be moved aside.

    A run that recorded nothing may be.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / MANIFEST).is_file():
        raise UsageError(say("{path}: exists and is not a run of npuperf", path=str(path)), hint=ELSEWHERE)
    if not force and any(any((path / part).glob("*")) for part in ("raw", "tune")):
        hint = say("choose another folder with -o, or let --force move this one to {path}", path=str(_aside(path)))
        raise UsageError(say("{path}: already holds a run", path=str(path)), hint=hint)


def create(path: Path, force: bool) -> tuple[RunFolder, Path | None]:
    """Make an empty run directory; a run that is there already is moved aside, and its new place returned."""
    check_free(path, force)
    moved = None
    try:
        if (path / MANIFEST).is_file():
            moved = _aside(path)
            path.rename(moved)
        folder = RunFolder(path.absolute())
        for part in (folder.raw, folder.status):
            part.mkdir(parents=True, exist_ok=True)
        # torch_npu refuses to write where others may.
        folder.raw.chmod(0o750 & folder.raw.stat().st_mode)
    except OSError as error:
        what = say("{path}: cannot be created: {why}", path=str(path), why=error.strerror or str(error))
        raise InputError(what, hint=ELSEWHERE) from error
    return folder, moved


def bytes_below(path: Path) -> int:
    """Return how many bytes lie below a folder; what vanishes meanwhile counts nothing."""
    total = 0
    for base, _, files in os.walk(path):
        for name in files:
            try:
                total += Path(base, name).lstat().st_size
            except OSError:
                continue
    return total


def _aside(path: Path) -> Path:
    """Return the first free name of result.1, result.2, …"""
    number = 1
    while (candidate := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return candidate
