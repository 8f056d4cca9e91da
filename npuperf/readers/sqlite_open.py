"""SQLite files opened so that nothing of the user's changes: as they are, with changes that wait beside, or damaged."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from npuperf.base.errors import InputError
from npuperf.base.files import check_input, open_input
from npuperf.base.messages import say
from npuperf.readers.log import ReadLog

#: Of SQLite's file format: the header's size, and where in it the number of pages stands.
_HEADER_BYTES, _PAGE_COUNT = 100, 28
#: What waits beside a file that its writer did not close, and how it begins.
_BESIDE: Final = {
    "-wal": (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"),
    "-journal": (b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",),
}
#: No cell of a profile is longer than this.
_LONGEST: Final = 16 << 20
#: A row takes this many bytes at least, so a file has room for so many rows and no more.
_ROW_BYTES: Final = 4
#: SQLite's steps per byte of a file that reading it takes at most, and how many pass from one look to the next.
_STEPS_PER_BYTE, _STEPS_AT_ONCE, _STEPS_ALWAYS = 50, 100_000, 10_000_000
#: SQLite takes no lock, and makes no files beside it.
_READ: Final = "ro&immutable=1"
#: Codes of SQLite's errors.
_IO_ERROR, _SHORT_READ = 10, 522


class OpenFile(Struct):
    """An open database. ``path``: the file that is open, which may be a copy; ``tolerant``: it is damaged.

    ``most_rows``: so many rows it has room for. Damage can lead SQLite round in circles, through more of them.
    """

    path: Path
    connection: sqlite3.Connection
    most_rows: int
    tolerant: bool = False
    _steps: int = 0

    def limit(self) -> None:
        """Have SQLite give up what takes longer than the file's size explains, and what is too long for a cell."""
        if sys.version_info >= (3, 11):
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        self.connection.set_progress_handler(self._step, _STEPS_AT_ONCE)

    def begin(self) -> None:
        """Count afresh: a new statement begins."""
        self._steps = 0

    def _step(self) -> bool:
        self._steps += _STEPS_AT_ONCE
        return self._steps > _STEPS_ALWAYS + self.most_rows * _ROW_BYTES * _STEPS_PER_BYTE


@contextmanager
def open_file(path: Path, log: ReadLog) -> Iterator[OpenFile]:
    """Open a database for reading; say what is odd about it.

    Raises InputError where the system does not let us, sqlite3.Error where it is beyond use.
    """
    check_input(path)
    with ExitStack() as stack:
        settled = _settled(path, stack, log)
        try:
            file = _connect(settled)
        except sqlite3.Error as error:
            if is_io(error):
                raise
            file = _connect(_without_page_count(settled, stack), "rw", tolerant=True)
            log.warn(say("{path}: the database is damaged or cut short; the unreadable part is lost", path=str(path)))
        stack.callback(file.connection.close)
        yield file


def is_io(error: BaseException | None) -> bool:
    """Tell errors of the disk or the network from those of the file, which may end early."""
    code = getattr(error, "sqlite_errorcode", None)
    return "disk I/O error" in str(error) if code is None else code & 0xFF == _IO_ERROR and code != _SHORT_READ


def read_only(path: Path) -> str:
    """Return how SQLite is told to leave a file alone: no lock, and no files beside it."""
    return _uri(path, _READ)


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"


def _connect(path: Path, mode: str = _READ, *, tolerant: bool = False) -> OpenFile:
    """Connect and look at the list of tables, which fails where the file is no sound database.

    ``tolerant`` lets SQLite pass over tables that it cannot find; it wants a copy that may be written.
    """
    connection = sqlite3.connect(_uri(path, mode), uri=True)
    file = OpenFile(path, connection, path.stat().st_size // _ROW_BYTES, tolerant)
    try:
        file.limit()
        if tolerant:
            connection.execute("PRAGMA writable_schema = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except UnicodeDecodeError as error:  # damage within what SQLite would say of the damage
        connection.close()
        raise sqlite3.DatabaseError(str(error)) from error
    except sqlite3.Error:
        connection.close()
        raise
    return file


def _settled(path: Path, stack: ExitStack, log: ReadLog) -> Path:
    """Return the file, or a copy into which went what waits beside it: its writer was killed, or is still at it."""
    real = Path(os.path.realpath(path))
    waiting = [suffix for suffix, marks in _BESIDE.items() if _begins(_beside(real, suffix), marks)]
    if not waiting:
        return path
    copy = _copy(path, stack)
    for suffix in waiting:
        _copy_to(_beside(copy, suffix), _beside(real, suffix))
    names = _beside(real, waiting[0]).name
    try:
        with closing(_connect(copy, "rw").connection) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        log.warn(say("{path}: what {file} beside it holds cannot be read: {why}",
                     path=str(path), file=names, why=str(error)))  # fmt: skip
        return path
    log.warn(say("{path}: its writer did not close it; what {file} beside it holds was taken into account, in a copy",
                 path=str(path), file=names))  # fmt: skip
    return copy


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _begins(path: Path, marks: tuple[bytes, ...]) -> bool:
    """Tell whether a file is there and begins like this."""
    if not path.is_file():
        return False
    try:
        with open_input(path) as file:
            return file.read(8).startswith(marks)
    except InputError:
        return False


def _copy(path: Path, stack: ExitStack) -> Path:
    """Return a copy of a file, which goes with ``stack``."""
    copy = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "copy.db"
    _copy_to(copy, path)
    return copy


def _copy_to(copy: Path, path: Path) -> None:
    with open_input(path) as file:
        try:
            with copy.open("wb") as copied:
                shutil.copyfileobj(file, copied)
        except OSError as error:
            what = say("{path}: a copy is needed to read it, and cannot be made: {why}",
                       path=str(path), why=error.strerror or str(error))  # fmt: skip
            hint = say("free some space, or let TMPDIR name a folder with more of it")
            raise InputError(what, hint=hint) from error


def _without_page_count(path: Path, stack: ExitStack) -> Path:
    """Return a copy whose header leaves the number of pages open, so that SQLite takes what is there."""
    copy = _copy(path, stack)
    if copy.stat().st_size >= _HEADER_BYTES:
        with copy.open("r+b") as file:
            file.seek(_PAGE_COUNT)
            file.write(bytes(4))
    return copy
