"""Links from code lines on a screen to the files that they name, for terminals that open them (OSC 8).

Profiles shorten paths, so a file is looked for, and a name is linked only if exactly one file has that line and that
function. Links are ``file://HOST/PATH#LINE``: kitty and VS Code, among others, take the number for the line, others
leave it out. VS Code takes a host for a network drive, so that it gets none.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from platform import node
from typing import Final
from urllib.parse import quote

from npuperf.errors import InputError
from npuperf.files import read_input
from npuperf.folders import Walk

_STYLE: Final = re.compile("(\x1b\\[[0-9;]*m)")
#: A line as reports name it, ``dir/file.py:41 forward``, or as profilers do, ``file.py(41): forward``.
_LINE: Final = re.compile(
    r"(?P<file>[\w./@+~-]+\.py)(?::(?P<line>\d{1,7})|\((?P<frame>\d{1,7})\):)(?![\w…])"
    r"(?= (?P<function>[A-Za-z_]\w*)(?P<cut>…)?)?"
)
#: Where no code of the user's lies, or so much of others that looking through it takes too long.
_PASSED_OVER: Final = re.compile(r"[._].*|node_modules|site-packages|venv|build|dist|PROF_.*|.*_ascend_(pt|ms)")
#: Code is looked for in so many folders at most, so deep, and for so many seconds.
_FOLDERS, _DEEP, _SECONDS = 200, 3, 0.1
#: No program is larger than this, bytes.
_LARGEST: Final = 4 << 20


class CodeFinder:
    """Finds the files that short names stand for, in folders and, of the first of them, in those below it."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._below: list[Path] | None = None
        self._lines: dict[Path, list[str]] = {}

    def find(self, name: str, line: int, function: str = "", *, cut: bool = False) -> Path | None:
        """Return the only file of that name which has a line and a function (``cut``: one that begins so)."""
        at_hand = {path.resolve() for path in self._named(name, self._folders)}
        found = {path for path in at_hand if self._has(path, line, function, cut)}
        if not found and not Path(name).is_absolute():
            below = {path.resolve() for path in self._named(name, self._searched())}
            found = {path for path in below if self._has(path, line, function, cut)}
        return found.pop() if len(found) == 1 else None

    @staticmethod
    def _named(name: str, folders: Iterable[Path]) -> Iterator[Path]:
        for folder in folders:
            path = folder / name
            with suppress(OSError, ValueError):
                if path.is_file() and path.stat().st_size <= _LARGEST:
                    yield path

    def _searched(self) -> list[Path]:
        if self._below is None:
            self._below = list(_folders_below(self._folders[0])) if self._folders else []
        return self._below

    def _has(self, path: Path, line: int, function: str, cut: bool) -> bool:
        if path not in self._lines:
            self._lines[path] = []
            with suppress(InputError, OSError):
                self._lines[path] = read_input(path).decode("utf-8", "replace").splitlines()
        lines = self._lines[path]
        if not 0 < line <= len(lines):
            return False
        definition = re.compile(rf"\s*(async\s+)?def\s+{re.escape(function)}" + ("" if cut else r"\b"))
        return not function or any(map(definition.match, lines))


def _folders_below(top: Path) -> Iterator[Path]:
    """Yield folders below one in which code may lie."""
    end = time.monotonic() + _SECONDS
    depth = len(top.parts)

    def passed_over(folder: Path, name: str) -> bool:
        return len(folder.parts) - depth >= _DEEP or _PASSED_OVER.fullmatch(name) is not None

    with suppress(InputError, OSError):
        for seen, folder in enumerate(Walk(top, passed_over, links=False)):
            if seen >= _FOLDERS or time.monotonic() > end:
                return
            yield folder.path


def linked(shown: str, finder: CodeFinder) -> str:
    """Return a screen on which code lines are links where the finder knows the file; its width stays."""
    parts = _STYLE.split(shown)
    parts[::2] = [_LINE.sub(lambda found: _link(found, finder), part) for part in parts[::2]]
    return "".join(parts)


def _link(found: re.Match[str], finder: CodeFinder) -> str:
    line = int(found["line"] or found["frame"])
    path = finder.find(found["file"], line, found["function"] or "", cut=found["cut"] is not None)
    return f"\x1b]8;;{address(path, line)}\x1b\\{found[0]}\x1b]8;;\x1b\\" if path else found[0]


def address(path: Path, line: int) -> str:
    """Return what a line of a file is linked to; whatever could end a link or begin a command is percent-encoded."""
    host = "" if os.environ.get("TERM_PROGRAM") == "vscode" else quote(node(), safe="")
    return f"file://{host}{quote(os.fsencode(path.as_posix()), safe='/')}#{line}"
