"""SQLite files, whole or damaged: integer columns, and texts by their ids in STRING_IDS."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from npuperf.errors import InputError
from npuperf.files import check_input, open_input
from npuperf.messages import say, say_n
from npuperf.model.groups import numbered
from npuperf.model.labels import F32, F64, I64, Labels
from npuperf.model.tasks import UNKNOWN
from npuperf.readers.cells import integer
from npuperf.readers.log import ReadLog
from npuperf.readers.sqlite_arrow import ArrowDatabase, NotInBulkError, open_arrow

T = TypeVar("T")

_BATCH: Final = 100_000
#: Of SQLite's file format: the header's size, and where in it the number of pages stands.
_HEADER_BYTES, _PAGE_COUNT = 100, 28


@dataclass(slots=True)
class Database:
    """An open database with its string table. ``arrow``: the same for bulk reading, None where that does not pay."""

    path: Path
    connection: sqlite3.Connection
    log: ReadLog
    strings: dict[int, str]
    arrow: ArrowDatabase | None = None

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
        query = f'SELECT {expressions} FROM "{table}" {where}'
        try:
            parts = list(self.bulk(query, bulk_integers))
        except NotInBulkError:
            parts = [_integers(batch) for batch in self.rows(table, query)]
        if not parts:
            return {name: np.empty(0, np.int64) for name in wanted}
        return {name: np.concatenate([part.pop(0) for part in parts]) for name in wanted}  # one by one they go

    def bulk(self, query: str, convert: Callable[[Any], T]) -> Iterator[T]:
        """Yield record batches, converted, in any thread.

        Raises NotInBulkError, maybe after some: then :meth:`rows` gives all that there is.
        """
        if self.arrow is None:
            raise NotInBulkError
        yield from self.arrow.batches(query, _BATCH, convert)

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
        values, codes = numbered(ids)
        names = [self.strings.get(int(v)) for v in values]
        tidy = Labels.of([None if n in (None, "", "N/A") else n for n in names])
        return Labels(tidy.codes[codes].astype(np.int32), tidy.names)


@contextmanager
def open_database(path: Path, log: ReadLog) -> Iterator[Database]:
    """Open read-only; ``immutable`` keeps SQLite from leaving files beside the user's."""
    check_input(path)
    with ExitStack() as stack:
        try:
            arrow = None
            try:
                connection = stack.enter_context(closing(_connect(path)))
                arrow = open_arrow(path, stack)
            except sqlite3.DatabaseError:
                copy = stack.enter_context(_without_page_count(path))
                connection = stack.enter_context(closing(_connect(copy, tolerant=True)))
                log.warn(say("{path}: the database is damaged or cut short; the unreadable part is lost",
                             path=str(path)))  # fmt: skip
            db = Database(path, connection, log, {}, arrow)
            for batch in db.rows("STRING_IDS", "SELECT id, value FROM STRING_IDS"):
                db.strings.update(batch)
            yield db
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            what = say("{path}: not a readable SQLite database: {why}", path=str(path), why=str(error))
            raise InputError(what) from error


def bulk_integers(batch: Any) -> list[I64]:
    """Return columns of integers. Raises NotInBulkError where a cell is something else."""
    if any(column.type != pa.int64() or column.null_count for column in batch.columns):
        raise NotInBulkError
    return [column.to_numpy() for column in batch.columns]


def bulk_numbers(batch: Any) -> tuple[I64, I64, F32]:
    """Return two columns of integers, and one of numbers with NaN for NULL. Raises NotInBulkError for other cells."""
    *integers, numbers = batch.columns
    first, second = bulk_integers(pa.record_batch(integers, ["", ""]))
    if not (pa.types.is_integer(numbers.type) or pa.types.is_floating(numbers.type)):
        raise NotInBulkError
    return first, second, _single(numbers.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def numbers(rows: list[tuple[Any, ...]]) -> tuple[I64, I64, F32]:
    """Return two columns of integers, -1 for what is none, and one of numbers with NaN for what is none."""
    first, second, values = zip(*rows, strict=True)
    integers = _integers(list(zip(first, second, strict=True)))
    return integers[0], integers[1], _single(np.array([_number(v) for v in values], np.float64))


def _single(values: F64) -> F32:
    """Return numbers in single precision, infinite where they are too large for it."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


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
        with open_input(path) as file, copy.open("wb") as copied:
            shutil.copyfileobj(file, copied)
        if copy.stat().st_size >= _HEADER_BYTES:
            with copy.open("r+b") as file:
                file.seek(_PAGE_COUNT)
                file.write(bytes(4))
        yield copy
