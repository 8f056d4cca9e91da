"""The run directory: one folder for one measurement, shared by all commands."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from npuperf.errors import InputError, UsageError
from npuperf.files import MANIFEST, shown
from npuperf.messages import say

ELSEWHERE: Final = say("choose another folder with -o")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps its things. ``raw`` holds what the profilers wrote; ``work`` is npuperf's own."""

    path: Path

    @property
    def shown(self) -> str:
        """How to call it in a command."""
        return shown(self.path)

    @property
    def manifest(self) -> Path:
        """What is known about the run."""
        return self.path / MANIFEST

    @property
    def raw(self) -> Path:
        """What the profilers wrote."""
        return self.path / "raw"

    @property
    def work(self) -> Path:
        """Notes between npuperf and the program."""
        return self.path / ".profile"

    @property
    def plan(self) -> Path:
        """What the agent shall do."""
        return self.work / "plan.json"

    @property
    def status(self) -> Path:
        """What every process says of itself."""
        return self.work / "status"

    @property
    def stop(self) -> Path:
        """A file whose presence ends recording; its text says why."""
        return self.work / "stop"

    @property
    def exit_status(self) -> Path:
        """The program's exit status where msprof stands between."""
        return self.work / "exit-status"

    @property
    def export_log(self) -> Path:
        """Everything the exporters said."""
        return self.path / "export.log"


def check_free(path: Path, force: bool) -> None:
    """Raise UsageError when the folder holds something and may not be moved aside.

    A run that recorded nothing may be.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / MANIFEST).is_file():
        raise UsageError(say("{path}: exists and is no run of npuperf", path=str(path)), hint=ELSEWHERE)
    if not force and any(any((path / part).glob("*")) for part in ("raw", "tune")):
        hint = say("choose another folder with -o, or keep it as {path} with --force", path=str(_aside(path)))
        raise UsageError(say("{path}: holds a run already", path=str(path)), hint=hint)


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
        what = say("{path}: cannot be made: {why}", path=str(path), why=error.strerror or str(error))
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
