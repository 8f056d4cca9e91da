"""Files: the one door for reading what others wrote, how files are called, and writing them whole or not at all."""

from __future__ import annotations

import io
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, TextIO, cast

from npuperf.base.errors import InputError, unreadable
from npuperf.base.messages import Message, say

#: What ``npuperf profile`` writes about a run, in its run directory.
MANIFEST: Final = "npuperf.json"


@contextmanager
def open_input(path: str | Path) -> Iterator[io.FileIO]:
    """Open a file that others wrote, to read its bytes, unbuffered: the door that every reader takes.

    Only files are opened: a pipe would be waited for, and a device may do something as soon as it is opened. Raises
    InputError where this is none, and where the system fails to open or to read it.
    """
    try:
        with _opened(path) as file:
            yield file
    except OSError as error:
        raise unreadable(path, error) from error


def read_input(path: str | Path) -> bytes:
    """Return the bytes of a file that others wrote. Raises InputError as :func:`open_input` does."""
    with open_input(path) as file:
        return file.readall()


@contextmanager
def open_lines(path: str | Path, encoding: str = "utf-8") -> Iterator[TextIO]:
    """Open a text that others wrote, for its lines; what is no character is replaced. Raises as :func:`open_input`."""
    with (
        open_input(path) as file,
        io.TextIOWrapper(io.BufferedReader(file), encoding, errors="replace", newline="\n") as lines,
    ):
        yield lines


def check_input(path: str | Path) -> None:
    """Raise InputError where :func:`open_input` would, for who hands a path on to a library that opens it by itself."""
    with open_input(path):
        pass


def _opened(path: str | Path) -> io.FileIO:
    try:
        return io.FileIO(path, opener=_open_file)
    except ValueError as error:  # a path that no file can have
        raise InputError(say("{path}: cannot be read: {why}", path=str(path), why=str(error))) from error


def _open_file(path: str, flags: int) -> int:
    """Return the handle of a file. It is looked at before it is opened, and after: it may have become another one."""
    _refuse_special(path, os.stat(path).st_mode)  # noqa: PTH116 - a path as the opener gets it
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _refuse_special(path, os.fstat(handle).st_mode)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _refuse_special(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        what = say("{path}: {kind}, not a file; it was not opened", path=str(path), kind=_kind(mode))
        raise InputError(what, hint=None if stat.S_ISDIR(mode) else say("save what it gives to a file, and name that"))


def _kind(mode: int) -> Message:
    """Return what something is called that is no file."""
    if stat.S_ISDIR(mode):
        return say("a folder")
    if stat.S_ISFIFO(mode):
        return say("a pipe")
    return say("a socket") if stat.S_ISSOCK(mode) else say("a device")


def shown(path: str | Path) -> str:
    """Return how to call a path in a message or a command: relative where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def is_file(path: Path) -> bool:
    """Tell whether there is a file; what the system does not let us see is none."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file() may raise


def is_folder(path: Path) -> bool:
    """Tell whether there is a folder; what the system does not let us see is none."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir() may raise


def is_there(path: Path) -> bool:
    """Tell whether there is anything, links followed; what the system does not let us see is not."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists() may raise


def is_special(path: Path) -> bool:
    """Tell whether something is there that is no file: a folder, a pipe, a device."""
    return is_there(path) and not is_file(path)


def total_bytes(files: Iterable[Path]) -> int:
    """Return how large files are together; reading those that cannot be asked says why."""
    total = 0
    for file in files:
        with suppress(OSError):
            total += file.stat().st_size
    return total


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` so that ``path`` never holds half of it; raises InputError when it cannot be written.

    What is no file is written to as it is: root would replace a device such as /dev/null by a file.
    """
    with writing_atomically(path) as file:
        file.write(text.encode("utf-8", "surrogateescape"))  # names of files need not be UTF-8


@contextmanager
def writing_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open ``path`` to write bytes in pieces, as :func:`write_atomically` does: it gets them once all are written.

    Whatever is raised inside leaves it as it was. An OSError inside is taken for one of writing.
    """
    temporary = None
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as there:
                yield there
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            temporary = Path(file.name)
            yield cast(BinaryIO, file)
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
        temporary = None
    except OSError as error:
        raise InputError(
            say("{path}: cannot be written: {why}", path=str(path), why=error.strerror or str(error))
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
