"""The ways out of the process, in whatever state: readers that left, full disks, poor encodings, odd widths."""

from __future__ import annotations

import codecs
import io
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from npuperf.base.errors import InputError
from npuperf.base.messages import say

if TYPE_CHECKING:
    from typing_extensions import Buffer

_STDOUT = 1
#: Columns that a report can be read in; narrower or wider is taken for a mistake of whoever set COLUMNS.
_LEAST_COLUMNS, _MOST_COLUMNS = 20, 1000
#: Terminals that know no links, and the last release of a common one that does not survive them.
_WITHOUT_LINKS, _VTE_THAT_CRASHES = ("", "dumb", "linux", "vt100", "vt220", "eterm-color"), 5000
#: What our own sentences and pictures have beyond ASCII, for encodings that lack it.
_PLAIN = {
    **dict(zip("µ−–·×▁▂▃▄▅▆▇█▓", "u--|x__--==##+", strict=True)),
    "→": "->",
    "…": "...",
    "≥": ">=",
    "≤": "<=",
    "Σ": "sum ",
    "√": "sqrt ",
}
_IN_PLAIN_LETTERS = "npuperf-plain"


class _Outlet(io.FileIO):
    """A way out of the process whose other end may go away.

    What cannot be written is dropped. Left in a buffer it would fail once more when Python ends, which then leaves
    with 120, whatever the command's own exit status is.
    """

    _lost = False

    def write(self, data: Buffer, /) -> int:
        """Write, or drop. Raises InputError, once, if stdout cannot be written though somebody wants it."""
        if not self._lost:
            try:
                return super().write(data)
            except OSError as error:
                self._lost = True
                if self.fileno() == _STDOUT and not isinstance(error, BrokenPipeError):
                    raise InputError(say("stdout: cannot be written: {why}", why=error.strerror)) from error
        return memoryview(data).nbytes


def outlast_readers() -> None:
    """Let nothing fail because nobody reads our stdout or stderr any more, or because they were closed before us.

    An absurd COLUMNS is dropped: libraries read it without a doubt.
    """
    codecs.register_error(_IN_PLAIN_LETTERS, _in_plain_letters)
    if not _is_width(os.environ.get("COLUMNS", "")):
        os.environ.pop("COLUMNS", None)
    # Others than the process's own are a test's or a notebook's; they stay.
    if sys.stdout is sys.__stdout__:
        sys.stdout = _outlet(sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _outlet(sys.stderr)


def terminal_width() -> int:
    """Return how many columns a report may have."""
    return min(max(shutil.get_terminal_size().columns, _LEAST_COLUMNS), _MOST_COLUMNS)


def draws_blocks() -> bool:
    """Tell whether a report on stdout may have blocks: East Asian encodings have them, too, but twice as wide."""
    dumb = os.environ.get("TERM") == "dumb" and sys.stdout.isatty()
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf") and not dumb  # a buffer of Python's has none


def opens_links() -> bool:
    """Tell whether stdout is a terminal that opens links, or shows nothing of them. FORCE_HYPERLINK says it, too."""
    if not sys.stdout.isatty():
        return False
    forced, term = os.environ.get("FORCE_HYPERLINK", ""), os.environ.get("TERM", "")
    if forced:
        return forced.lower() not in ("0", "false", "no", "never")
    vte = os.environ.get("VTE_VERSION", "9999")
    # Old releases of VTE crash; Linux's console, screen and Emacs write out what they do not know.
    knows = vte.isdecimal() and int(vte) > _VTE_THAT_CRASHES and "INSIDE_EMACS" not in os.environ
    return knows and term not in _WITHOUT_LINKS and (not term.startswith("screen") or "TMUX" in os.environ)


def _is_width(columns: str) -> bool:
    digits = columns.isascii() and columns.isdecimal() and len(columns) <= len(str(_MOST_COLUMNS))
    return digits and _LEAST_COLUMNS <= int(columns) <= _MOST_COLUMNS


def _in_plain_letters(error: UnicodeError) -> tuple[str, int]:
    """Write what an encoding lacks so that it can still be read; what we know no letters for becomes "?"."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def _outlet(stream: TextIO | None) -> TextIO:
    """Return a stream like this one."""
    if not isinstance(stream, io.TextIOWrapper):
        return Path(os.devnull).open("w", encoding="utf-8")  # Python has none where the descriptor is closed
    out = _Outlet(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        out if stream.write_through else io.BufferedWriter(out),
        stream.encoding,
        _IN_PLAIN_LETTERS,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
