"""Tables of SQLite files, whole or damaged: integer columns, spans of time, and texts by their ids in STRING_IDS.

Plain tables are read by C of ours (``plain_rows.c``), without a Python object per cell; where a cell is not of its
column's type, or something is damaged, :mod:`sqlite3` reads row by row. SQLite holds cells to no type. Here each is
held to what its column is for: what does not fit costs one cell, or the row where nothing can be told without it, and
is counted and told.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from npuperf.base.errors import InputError, unreadable
from npuperf.base.files import check_input, open_input, scratch_folder
from npuperf.base.loading import library_of, load_library
from npuperf.base.messages import Message, say, say_n, series
from npuperf.model.groups import numbered
from npuperf.model.labels import F32, F64, I64, Labels, Mask
from npuperf.model.tasks import UNKNOWN
from npuperf.readers.cells import FAR_OFF, LATEST_NS, far_off
from npuperf.readers.log import ReadLog

# -- Files opened so that nothing of the user's changes: as they are, with changes that wait beside, or damaged.

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
    #: What SQLite did since the statement began.
    steps: int = 0

    def limit(self) -> None:
        """Have SQLite give up what takes longer than the file's size explains, and what is too long for a cell."""

        def endless() -> bool:
            self.steps += _STEPS_AT_ONCE
            return self.steps > _STEPS_ALWAYS + self.most_rows * _ROW_BYTES * _STEPS_PER_BYTE

        if sys.version_info >= (3, 11):
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        self.connection.set_progress_handler(endless, _STEPS_AT_ONCE)


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
            copy = _copy(settled, stack)
            if copy.stat().st_size >= _HEADER_BYTES:
                with copy.open("r+b") as header:  # without the number of pages SQLite takes what is there
                    header.seek(_PAGE_COUNT)
                    header.write(bytes(4))
            file = _connect(copy, "rw", tolerant=True)
            log.warn(say("{path}: the database is damaged or cut short; the unreadable part is lost", path=str(path)))
        stack.callback(file.connection.close)
        yield file


def is_io(error: BaseException | None) -> bool:
    """Tell errors of the disk or the network from those of the file, which may end early."""
    code = getattr(error, "sqlite_errorcode", None)
    return "disk I/O error" in str(error) if code is None else code & 0xFF == _IO_ERROR and code != _SHORT_READ


def _uri(path: Path, mode: str = _READ) -> str:
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
    real = os.path.realpath(path)
    waiting: dict[str, Path] = {}
    for suffix, marks in _BESIDE.items():
        beside = Path(real + suffix)
        with suppress(InputError):
            if beside.is_file():
                with open_input(beside) as file:
                    if file.read(8).startswith(marks):
                        waiting[suffix] = beside
    if not waiting:
        return path
    copy = _copy(path, stack)
    for suffix, beside in waiting.items():
        _copy_to(copy.with_name(copy.name + suffix), beside)
    names = next(iter(waiting.values())).name
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


def _copy(path: Path, stack: ExitStack) -> Path:
    """Return a copy of a file, which goes with ``stack``."""
    copy = stack.enter_context(scratch_folder()) / "copy.db"
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


# -- Tables.

#: A column of the database; where exporters spell it differently or leave it out, its spellings, best first.
Spelled = str | tuple[str, ...]

_BATCH: Final = 100_000
#: How unset unsigned fields look.
_UNSET: Final = 4294967295
#: The largest number that these columns may hold: those that are counted or shown. The others are ids.
_MOST: Final = dict.fromkeys(
    ("deviceId", "streamId", "rankId", "blockDim", "blockNum", "mixBlockDim", "mixBlockNum", "stackDepth"), _UNSET
)
#: What SQLite says where it gave up; see :class:`OpenFile`.
_ENDLESS: Final = "interrupted"
#: How often reading of a table goes on behind a row that cannot be read.
_RESUMED: Final = 100
#: What is not known without a column that every exporter writes.
_TELLS: Final = {
    "connectionId": say("what launched its rows is unknown, as far as only this column tells"),
    "deviceId": say("the device is unknown"),
    "globalTaskId": say("its rows cannot be joined with those of other tables"),
    "globalTid": say("threads are unknown"),
    "streamId": say("streams are unknown"),
    "taskType": say("kinds of tasks are unknown"),
}
#: What no integer of a cell is: neither a number of anything nor "not recorded", which is -1.
UNREADABLE: Final = np.iinfo(np.int64).min
_DIGITS: Final = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")


class NotInBulkError(Exception):
    """These rows cannot be read in bulk, or not all of them; what came before is not to be used."""


class Database(Struct):
    """An open database with its string table."""

    path: Path
    file: OpenFile
    log: ReadLog
    strings: dict[int, str] = field(default_factory=dict)
    _columns: dict[str, frozenset[str]] = field(default_factory=dict)
    _told: set[Message] = field(default_factory=set)
    _without_text: set[int] = field(default_factory=set)

    def has(self, table: str) -> frozenset[str]:
        """Return the columns of a table, none if it does not exist or is none."""
        if table in self._columns:
            return self._columns[table]
        self._columns[table] = frozenset()
        kind = """SELECT type = 'table' AND rootpage > 0 FROM sqlite_master
                  WHERE name = ?1 AND type IN ('table', 'view')"""
        try:
            found = self.file.connection.execute(kind, (table,)).fetchone()
            if found and not found[0]:  # a program rather than data, and one that need not end
                self.log.warn(say("{path}: {table} is not a table; it was not read", path=str(self.path), table=table))
            elif found:
                rows = self.file.connection.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
                self._columns[table] = frozenset(str(name) for _, name, *_, hidden in rows if not hidden)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self._cannot_read(table, error)
        return self._columns[table]

    def offers(self, table: str, *columns: str) -> bool:
        """Tell whether there is a table with all of these columns; of one that lacks some it is told."""
        has = self.has(table)
        absent = [column for column in columns if has and column not in has]
        if absent:
            self.log.warn(say("{path}: table {table} has no column {columns}, so nothing of it can be used",
                           path=str(self.path), table=table, columns=series(absent)))  # fmt: skip
        return bool(has) and not absent

    def first(self, table: str, *columns: str) -> str | None:
        """Return the first of these columns that a table has."""
        has = self.has(table)
        return next((column for column in columns if column in has), None)

    def columns(self, table: str, wanted: Mapping[str, Spelled], where: str = "") -> dict[str, I64]:
        """Read integer columns under our names; -1: not recorded, or unusable, which is told. Missing table: no rows.

        A column that the table lacks is told where every exporter writes it: where it has one spelling.
        """
        places = {name: self.first(table, *([s] if isinstance(s, str) else s)) for name, s in wanted.items()}
        for name, spelled in wanted.items() if self.has(table) else ():
            if places[name] is None and isinstance(spelled, str):
                then = _TELLS.get(spelled, say("what it tells is unknown"))
                self.log.warn(say("{path}: table {table} has no column {column}: {consequence}",
                               path=str(self.path), table=table, column=spelled, consequence=then))  # fmt: skip
        here = {name: column for name, column in places.items() if column is not None}
        read: list[I64] = []
        if here:
            try:
                read = self.integers_in_bulk(table, list(here.values()), where)
            except NotInBulkError:
                rows = self.rows(table, query_of(table, list(here.values()), where))
                read = _joined([list(map(_integers, zip(*batch, strict=True))) for batch in rows], len(here))
        found = dict(zip(here, read, strict=True))
        for name, column in here.items():
            if column in ("startNs", "endNs"):  # times are judged by the row
                continue
            bad = found[name] < UNKNOWN
            if column in _MOST:
                bad |= found[name] > _MOST[column]
            if bad.any():  # none of this column can be so
                self.unreadable(table, column, int(np.count_nonzero(bad)))
                found[name] = np.where(bad, UNKNOWN, found[name])
        size = max(map(len, read), default=0)
        return {name: found[name] if name in found else np.full(size, UNKNOWN, np.int64) for name in places}

    def spans(self, table: str, wanted: Mapping[str, Spelled], where: str = "") -> dict[str, I64]:
        """Read ``start``, ``end`` and other columns, as :meth:`columns` does, of the rows whose times can be.

        The others are lost, and told. Without one of both times there are no rows.
        """
        wanted = {"start": "startNs", "end": "endNs"} | dict(wanted)
        if not self.offers(table, "startNs", "endNs"):
            return {name: np.empty(0, np.int64) for name in wanted}
        rows = self.columns(table, wanted, where)
        start, end = rows["start"], rows["end"]
        known = (start >= 0) & (end >= start) & (end < LATEST_NS)
        self.lose(known, say("table {table}: no usable start and end", table=table))
        if not known.all():
            rows = {name: column[known] for name, column in rows.items()}
        far = far_off(rows["start"], rows["end"])
        self.lose(~far, say("table {table}: {why}", table=table, why=FAR_OFF))
        return {name: column[~far] for name, column in rows.items()} if far.any() else rows

    def names(self, table: str, column: str = "name") -> dict[int, str]:
        """Return the texts of a table by their ids; what is no id or no text is left out, and told."""
        if not self.offers(table, "id", column):
            return {}
        found: dict[int, str] = {}
        lost = 0
        for batch in self.rows(table, f'SELECT id, "{column}" FROM "{table}"'):
            ids, texts = zip(*batch, strict=True)
            if set(map(type, ids)) != {int} or set(map(type, texts)) != {str}:
                whole = [row for row in batch if type(row[0]) is int and type(row[1]) is str]
                lost += len(batch) - len(whole)
                batch = whole
            found.update(batch)
        self.lose(lost, say("table {table}: no id, or no text", table=table))
        return found

    def integers_in_bulk(self, table: str, columns: list[str], where: str = "") -> list[I64]:
        """Return columns of integers, -1 for NULL, in any thread. Raises NotInBulkError."""
        batches = (found for found, _ in _in_bulk(self.file, query_of(table, columns, where), len(columns)))
        return _joined(list(batches), len(columns))

    def numbers_in_bulk(self, table: str, keys: tuple[str, str], number: str) -> Iterator[tuple[I64, I64, F32]]:
        """Yield what :func:`numbers` returns, in batches, in any thread.

        Raises NotInBulkError, maybe after some: then :meth:`rows` gives all.
        """
        for (first, second), values in _in_bulk(self.file, query_of(table, keys, number=number), 2, number=True):
            yield first, second, _single(values)

    def rows(self, table: str, query: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield rows in batches; where the file is damaged, those before the damage.

        A single row that is too long is passed over, and told.
        """
        position = passed = 0
        cursor: sqlite3.Cursor | None = None
        alone = False  # the driver looks ahead: where reading fails, the row before may be whole
        while True:
            batch: list[tuple[Any, ...]] = []
            error: Exception | None = None
            self.file.steps = 0
            try:
                if cursor is None:
                    behind = f" LIMIT {1 if alone else -1} OFFSET {position}" if position or alone else ""
                    cursor = self.file.connection.execute(query + behind)
                batch.extend(islice(cursor, _BATCH))  # an error leaves what came before it
            except (sqlite3.Error, UnicodeDecodeError) as cause:
                error = cause
            position += len(batch)
            if batch:
                yield batch
            if position > self.file.most_rows:
                error = sqlite3.DatabaseError(_ENDLESS)
            if str(error) == _ENDLESS or (error is None and not batch):
                break
            if error is None and not alone:
                continue
            cursor = None
            connection = self.file.connection
            if error is None:
                alone = False
            elif connection.text_factory is str and "decode" in str(error):
                alone = False
                self.log.warn(say("{path}: some texts are not UTF-8; the bytes at fault are shown as \ufffd",
                                  path=str(self.path)))  # fmt: skip
                connection.text_factory = lambda text: text.decode(errors="replace")
            elif not alone:
                alone = True
            elif isinstance(error, sqlite3.DataError) and passed < _RESUMED:
                position, passed, alone = position + 1, passed + 1, False
            else:
                break
        self.lose(passed, say("table {table}: longer than any row of a profile", table=table))
        if error is not None:
            self._cannot_read(table, error, position - passed)

    def text(self, ids: I64) -> Labels:
        """Turn string ids into labels; unknown ids (told when the database is closed) and "N/A": not recorded."""
        values, codes = numbered(ids)
        names = [self.strings.get(v) for v in values.tolist()]
        if None in names:
            self._without_text.update(v for v, n in zip(values.tolist(), names, strict=True) if n is None and v >= 0)
        tidy = Labels.of([None if n in (None, "", "N/A") else n for n in names])
        return Labels(tidy.codes[codes].astype(np.int32), tidy.names)

    def lose(self, which: Mask | int, reason: Message) -> None:
        """Tell, once, of rows that are not used: how many, or which are."""
        count = which if isinstance(which, int) else len(which) - int(np.count_nonzero(which))
        if count and reason not in self._told:
            self._told.add(reason)
            self.log.lose(self.path, count, reason)

    def unreadable(self, table: str, column: str, count: int) -> None:
        """Tell of so many cells that hold something else than their column is for."""
        if count:
            self.log.warn(say_n("{path}: table {table}, column {column}: {n} unreadable cell",
                                "{path}: table {table}, column {column}: {n} unreadable cells",
                                count, path=str(self.path), table=table, column=column))  # fmt: skip

    def report(self) -> None:
        """Tell of the texts that were looked for in vain."""
        missing = self._without_text - {_UNSET}
        if missing and not self.has("STRING_IDS"):
            self.log.warn(say("{path}: no table STRING_IDS, so all names are unknown", path=str(self.path)))
        elif missing:
            self.log.warn(say_n("{path}: {n} text that rows refer to is not in STRING_IDS; it is unknown",
                                "{path}: {n} texts that rows refer to are not in STRING_IDS; they are unknown",
                                len(missing), path=str(self.path)))  # fmt: skip

    def _cannot_read(self, table: str, error: Exception, read: int | None = None) -> None:
        path, why = str(self.path), str(error)
        if why == _ENDLESS:
            why = "the file is damaged: it leads to more rows than it has room for"
        told = say("{path}: table {table} cannot be read: {why}", path=path, table=table, why=why)
        if read is not None:
            told = say_n("{path}: table {table}: reading stopped after {n} row: {why}",
                         "{path}: table {table}: reading stopped after {n} rows: {why}",
                         read, path=path, table=table, why=why)  # fmt: skip
        (self.log.fail if is_io(error) else self.log.warn)(told)


@contextmanager
def open_database(path: Path, log: ReadLog) -> Iterator[Database]:
    """Open a database so that nothing of the user's changes. Raises InputError where it is none."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_file(path, log))
            db = Database(path, file, log)
            db.strings.update(db.names("STRING_IDS", "value"))
            yield db
            db.report()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if is_io(error):
                what = say("{path}: cannot be read: {why}", path=str(path), why=str(error))
                raise InputError(what) from OSError(str(error))
            what = say("{path}: not a readable SQLite database: {why}", path=str(path), why=str(error))
            raise InputError(what) from error
        except OSError as error:
            raise unreadable(path, error) from error


def query_of(table: str, columns: Sequence[str], where: str = "", number: str | None = None) -> str:
    """Return how SQLite is asked for columns: NULL is -1, but in the one of numbers, the last."""
    cells = [*(f'IFNULL("{column}", {UNKNOWN})' for column in columns), *([f'"{number}"'] if number else [])]
    return f'SELECT {", ".join(cells)} FROM "{table}" {where}'


def _joined(parts: list[list[I64]], columns: int) -> list[I64]:
    """Put parts of columns together, one column after the other, each of which goes then."""
    if not parts:
        return [np.empty(0, np.int64) for _ in range(columns)]
    return [np.concatenate([part.pop(0) for part in parts]) for _ in range(columns)]


# -- Cells to integers and numbers: in bulk, or one by one.

#: What plain_rows.c calls of SQLite, in its order, and what is called from here.
_CALLED: Final = ("step", "column_type", "column_int64", "column_double", "column_text", "column_bytes")
_OPENED: Final = ("open_v2", "limit", "prepare_v2", "finalize", "close")
_CELLS_READ: Final = (
    "cells_read",
    ctypes.c_int64,
    (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64),
)
#: To open read-only, by URI, for one thread at a time; and which limit is that of a cell's length.
_FLAGS, _LENGTH = 0x01 | 0x40 | 0x8000, 0


@cache
def _compiled() -> tuple[Any, Any, Any] | None:
    """Return plain_rows.c, SQLite, and those functions that the one calls of the other; None where one is missing.

    Where Python has SQLite in itself, it is the system's.
    """
    library = load_library(library_of(Path(__file__).with_name("plain_rows.c")), (_CELLS_READ,))
    try:
        loaded = ctypes.CDLL("libsqlite3.so.0")  # the one that Python has loaded, if it has
        called = [ctypes.cast(getattr(loaded, f"sqlite3_{name}"), ctypes.c_void_p) for name in _CALLED]
        opened = [getattr(loaded, f"sqlite3_{name}") for name in _OPENED]
        if library is None or not loaded.sqlite3_threadsafe():
            return None
    except (OSError, AttributeError):
        return None
    return library, opened, (ctypes.c_void_p * len(called))(*called)


def _in_bulk(file: OpenFile, query: str, columns: int, *, number: bool = False) -> Iterator[tuple[list[I64], F64]]:
    """Yield columns of integers, and one of numbers, in batches of rows. Raises NotInBulkError, maybe after some."""
    compiled = _compiled()
    if compiled is None or file.tolerant:
        raise NotInBulkError
    library, (open_, limit, prepare, finalize, close), sqlite = compiled
    database, statement = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        if open_(_uri(file.path).encode(), ctypes.byref(database), _FLAGS, None):
            raise NotInBulkError
        limit(database, _LENGTH, _LONGEST)
        if prepare(database, query.encode(), -1, ctypes.byref(statement), None):
            raise NotInBulkError
        read, count = 0, _BATCH
        while count == _BATCH:
            found, values = [np.empty(_BATCH, np.int64) for _ in range(columns)], np.empty(_BATCH * number, np.float64)
            places = (ctypes.c_void_p * columns)(*(column.ctypes.data for column in found))
            beside = values.ctypes.data if number else None
            count = library.cells_read(sqlite, statement, places, columns, beside, _BATCH)
            read += count
            if count < 0 or read > file.most_rows:
                raise NotInBulkError
            yield [column[:count] for column in found], values[:count]
    finally:
        finalize(statement)
        close(database)


def _bulk_integers(column: Any) -> I64:
    """Return texts of digits as integers. Raises NotInBulkError where one is anything else."""
    if not pc.all(pc.ascii_is_decimal(column)).as_py():
        raise NotInBulkError
    try:
        return np.asarray(column.cast(pa.int64()).to_numpy(), np.int64)
    except pa.ArrowInvalid as error:  # too many digits
        raise NotInBulkError from error


def numbers(rows: list[tuple[Any, ...]]) -> tuple[I64, I64, F32]:
    """Return two columns of integers, and one of numbers: NaN for NULL, infinite for what is no number of a counter."""
    first, second, values = zip(*rows, strict=True)
    if {int, float, type(None)}.issuperset(map(type, values)):
        number = np.array(values, np.float64)
    else:
        number = np.full(len(values), np.inf)
        for at, value in enumerate(values):
            with suppress(TypeError, ValueError, OverflowError):
                number[at] = np.nan if value is None else float(value)
        number[np.isnan(number) & np.array([value is not None for value in values])] = np.inf
    return _integers(first), _integers(second), _single(number)


def _single(values: F64) -> F32:
    """Return numbers in single precision, infinite where they are too large for it."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _integers(cells: tuple[Any, ...]) -> I64:
    """Return a column of integers, the least of which stands for what is none."""
    types = set(map(type, cells))
    if types == {int}:
        return np.array(cells, np.int64)
    if types == {str}:
        with suppress(NotInBulkError):
            return _bulk_integers(pa.array(cells, pa.string()))
    return np.array([integer(cell) for cell in cells], np.int64)


def integer(cell: Any) -> int:
    """Return the integer that a cell holds, in whichever type, else the least of 64 bits."""
    if isinstance(cell, bytes):
        cell = cell.decode("latin-1")
    if isinstance(cell, str):
        cell = int(cell) if _DIGITS.fullmatch(cell) else UNREADABLE
    elif isinstance(cell, float):
        cell = int(cell) if cell.is_integer() else UNREADABLE
    return cell if isinstance(cell, int) and abs(cell) < 1 << 63 else UNREADABLE
