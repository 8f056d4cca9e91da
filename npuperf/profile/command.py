"""The user's program: from words on the command line to what is started."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from npuperf.errors import UsageError
from npuperf.messages import say


@dataclass(frozen=True, slots=True)
class Command:
    """``argv`` is what is started; ``script`` the file of the user's that it names first, if any."""

    argv: tuple[str, ...]
    script: Path | None = None


def resolve(words: Sequence[str], module: str | None = None, python: str | None = None) -> Command:
    """Find out what to start.

    A Python file or ``module`` runs under ``python`` (by default npuperf's own interpreter if it has torch, else the
    first python on PATH), a shell script under sh, anything else as it is. Raises UsageError when there is nothing to
    start.
    """
    if module is not None:
        return Command((find_python(python), "-m", module, *words))
    if not words:
        raise UsageError(say("nothing to run"), hint=say("npuperf profile train.py, or npuperf profile -- COMMAND"))
    first = Path(words[0])
    if first.is_dir() and (first / "__main__.py").is_file():
        return Command((find_python(python), *words), first / "__main__.py")
    if first.is_file():
        starter = _starter(first, python)
        return Command((*starter, *words) if starter else _startable(words), first)
    if shutil.which(words[0]):
        scripts = (Path(word) for word in words[1:] if word.endswith((".py", ".sh")))
        return Command(tuple(words), next((s for s in scripts if s.is_file()), None))
    what = say("{word}: no such file or command", word=words[0])
    if first.suffix or os.sep in words[0]:
        what = say("{word}: no such file", word=words[0])
    raise UsageError(what, hint=say("options of npuperf come before the script; commands come after --"))


def _starter(file: Path, python: str | None) -> tuple[str, ...]:
    """Return what a file needs before its name."""
    with file.open("rb") as opened:
        line = opened.readline(200)
    shebang = line.startswith(b"#!")
    if file.suffix in (".py", ".pyc", ".pyz") or (shebang and b"python" in line and not os.access(file, os.X_OK)):
        return (find_python(python),)
    if os.access(file, os.X_OK) and (shebang or line.startswith(b"\x7fELF")):
        return ()
    if file.suffix in (".sh", ".bash") or shebang:
        return ("bash" if shutil.which("bash") else "sh",)
    raise UsageError(say("{file}: neither a Python file nor something that can be started", file=str(file)))


def _startable(words: Sequence[str]) -> tuple[str, ...]:
    """A file in the current folder is started by path, never by looking for its name elsewhere."""
    return tuple(words) if os.sep in words[0] else (f"{os.curdir}{os.sep}{words[0]}", *words[1:])


def find_python(chosen: str | None = None) -> str:
    """Return the interpreter for Python programs: the chosen one, npuperf's own if it has torch, or that on PATH."""
    if chosen is not None:
        found = shutil.which(chosen)
        if not found:
            raise UsageError(say("--python {name}: no such program", name=chosen))
        return found
    if importlib.util.find_spec("torch") is None:
        other = shutil.which("python") or shutil.which("python3")
        if other:
            return other
    return sys.executable
