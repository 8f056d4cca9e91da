"""Output that nobody takes any more: whoever read it has left (head, less), or the disk is full."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from npuperf.errors import InputError
from npuperf.messages import say

if TYPE_CHECKING:
    from typing_extensions import Buffer

_STDOUT = 1


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
    """Let nothing fail because nobody reads our stdout or stderr any more, or because they were closed before us."""
    # Others than the process's own are a test's or a notebook's; they stay.
    if sys.stdout is sys.__stdout__:
        sys.stdout = _outlet(sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _outlet(sys.stderr)


def _outlet(stream: TextIO | None) -> TextIO:
    """Return a stream like this one."""
    if not isinstance(stream, io.TextIOWrapper):
        return Path(os.devnull).open("w", encoding="utf-8")  # Python has none where the descriptor is closed
    out = _Outlet(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        out if stream.write_through else io.BufferedWriter(out),
        stream.encoding,
        "replace",  # rather a question mark than no report
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
