"""SQLite files, whole or damaged: integer columns, and texts by their ids in STRING_IDS."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from npuperf.errors import InputError
from npuperf.messages import say, say_n
from npuperf.model.labels import I64, Labels
from npuperf.model.tasks import UNKNOWN
from npuperf.readers.cells import integer
from npuperf.readers.log import ReadLog

_BATCH: Final = 100_000
#: Of SQLite's file format: the header's size, and where in it the number of pages stands.
_HEADER_BYTES, _PAGE_COUNT = 100, 28


@dataclass(slots=True)
class Database:
    """An open database with its string table."""

    path: Path
    connection: sqlite3.Connection
    log: ReadLog
    strings: dict[int, str]

    def has(self, table: str) -> set[str]:
        """Return the columns of a table, none if it does not exist."""
        return {str(row[1]) for row in self.connection.execute(f'PRAGMA table_info("{table}")')}

    def first(self, table: str, *columns: str) -> str:
        """Return the first of these columns that a table has, -1 (not recorded) without any."""
        has = self.has(table)
        return next((column for column in columns if column in has), str(UNKNOWN))

    def columns(self, table: str, wanted: dict[str, str], where: str = "") -> dict[str, I64]:
        """Read integer columns: our name → SQL expression; NULL becomes -1. Missing table: no rows."""
        expressions = ", ".join(f"IFNULL({expression}, {UNKNOWN})" for expression in wanted.values())
        parts = [_integers(batch) for batch in self.rows(table, f'SELECT {expressions} FROM "{table}" {where}')]
        if not parts:
            return {name: np.empty(0, np.int64) for name in wanted}
        return {name: np.concatenate([p[i] for p in parts]) for i, name in enumerate(wanted)}

    def rows(self, table: str, query: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield rows in batches; where the file is damaged, those before the damage."""
        read = 0
        error: Exception | None = None
        try:
            cursor = self.connection.execute(query)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as cause:
            if "no such table" not in str(cause):
                self.log.warn(
                    say("{path}: table {table} cannot be read: {why}", path=str(self.path), table=table, why=str(cause))
                )
            return
        while error is None:
            batch: list[tuple[Any, ...]] = []
            try:
                batch.extend(islice(cursor, _BATCH))  # an error leaves what came before it
            except (sqlite3.DatabaseError, UnicodeDecodeError) as cause:
                error = cause
            if not batch:
                break
            read += len(batch)
            yield batch
        if error:
            self.log.warn(say_n("{path}: table {table}: reading stopped after {n} row: {why}",
                                "{path}: table {table}: reading stopped after {n} rows: {why}",
                                read, path=str(self.path), table=table, why=str(error)))  # fmt: skip

    def text(self, ids: I64) -> Labels:
        """Turn string ids into labels; unknown ids and "N/A" become "not recorded"."""
        values, codes = np.unique(ids, return_inverse=True)
        names = [self.strings.get(int(v)) for v in values]
        tidy = Labels.of([None if n in (None, "", "N/A") else n for n in names])
        return Labels(tidy.codes[codes].astype(np.int32), tidy.names)


@contextmanager
def open_database(path: Path, log: ReadLog) -> Iterator[Database]:
    """Open read-only; ``immutable`` keeps SQLite from leaving files beside the user's."""
    with ExitStack() as stack:
        try:
            try:
                connection = stack.enter_context(closing(_connect(path)))
            except sqlite3.DatabaseError:
                copy = stack.enter_context(_without_page_count(path))
                connection = stack.enter_context(closing(_connect(copy, tolerant=True)))
                log.warn(say("{path}: the database is damaged or cut short; the unreadable part is lost",
                             path=str(path)))  # fmt: skip
            db = Database(path, connection, log, {})
            for batch in db.rows("STRING_IDS", "SELECT id, value FROM STRING_IDS"):
                db.strings.update(batch)
            yield db
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            what = say("{path}: not a readable SQLite database: {why}", path=str(path), why=str(error))
            raise InputError(what) from error


def _integers(rows: list[tuple[Any, ...]]) -> list[I64]:
    """Return columns of integers; what is none becomes -1."""
    try:
        return list(np.array(rows, np.int64).T)
    except (ValueError, TypeError, OverflowError):  # text, or bytes of a damaged page
        return [np.array([integer(v) for v in column], np.int64) for column in zip(*rows, strict=True)]


def _connect(path: Path, *, tolerant: bool = False) -> sqlite3.Connection:
    """Connect and look at the list of tables, which fails where the file is no sound database.

    ``tolerant`` lets SQLite pass over tables that it cannot find; it wants a copy that may be written.
    """
    mode = "rw" if tolerant else "ro&immutable=1"
    connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode={mode}", uri=True)
    try:
        if tolerant:
            connection.execute("PRAGMA writable_schema = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except UnicodeDecodeError as error:  # damage within what SQLite would say of the damage
        connection.close()
        raise sqlite3.DatabaseError(str(error)) from error
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


@contextmanager
def _without_page_count(path: Path) -> Iterator[Path]:
    """Yield a copy whose header leaves the number of pages open, so that SQLite takes what is there."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(path, copy)
        if copy.stat().st_size >= _HEADER_BYTES:
            with copy.open("r+b") as file:
                file.seek(_PAGE_COUNT)
                file.write(bytes(4))
        yield copy
