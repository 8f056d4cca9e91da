"""Rows of SQLite files as Arrow makes them: without a Python object per cell, a third of the time of :mod:`sqlite3`.

Only where the driver is installed, the file is large and every cell of a column is of one type; SQLite itself holds
cells to no type, and what the driver cannot put into a column of one it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa

from npuperf.readers.sqlite_cells import NotInBulkError
from npuperf.readers.sqlite_open import read_only

T = TypeVar("T")

#: A smaller file is read before the driver is loaded.
_LARGE_BYTES: Final = 4 << 20


class ArrowDatabase:
    """An open database, for several threads."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        """Open read-only, until ``stack`` closes. Raises ImportError without the driver, OSError where it cannot."""
        import adbc_driver_manager
        import adbc_driver_sqlite

        self._manager = adbc_driver_manager
        try:
            self._database = stack.enter_context(adbc_driver_sqlite.connect(read_only(path)))
        except adbc_driver_manager.Error as error:
            raise OSError(str(error)) from error

    def batches(self, query: str, rows: int, convert: Callable[[Any], T]) -> Iterator[T]:
        """Yield record batches of so many rows, converted. Raises NotInBulkError, as ``convert`` may, after some."""
        manager = self._manager
        try:
            with manager.AdbcConnection(self._database) as connection, manager.AdbcStatement(connection) as statement:
                statement.set_options(**{"adbc.sqlite.query.batch_rows": str(rows)})
                statement.set_sql_query(query)
                stream, _ = statement.execute_query()
                with pa.RecordBatchReader.from_stream(stream) as reader:
                    yield from map(convert, reader)
        except (manager.Error, pa.ArrowException, OSError) as error:
            raise NotInBulkError(str(error)) from error


def open_arrow(path: Path, stack: ExitStack) -> ArrowDatabase | None:
    """Open a database for reading in bulk, until ``stack`` closes; None where that cannot be, or does not pay."""
    with suppress(ImportError, OSError):
        if path.stat().st_size >= _LARGE_BYTES:
            return ArrowDatabase(path, stack)
    return None
