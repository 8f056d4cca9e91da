"""What reading found out besides data: files used, what was lost, what the reader should know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct, field

from npuperf.base.errors import InputError
from npuperf.base.messages import Message
from npuperf.model.result import Lost

#: Is told how many bytes were read since the last call.
Progress = Callable[[int], None]


class ReadLog(Struct):
    """Notes of one reading. Each message of ``missing`` has the parameters ``what`` and ``consequence``.

    ``events``: how many events with a duration the timeline has, of the host too; ``kineto``: which dialect it is in.
    ``tasks_lost``, ``events_lost``: rows that would have been device tasks, and events of the timeline.
    ``failed``: of the warnings those of files that may be read the next time. ``exported``: tables that the exporter
    wrote itself, by their fields in a result.
    """

    files: list[str] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    warnings: list[Message] = field(default_factory=list)
    missing: list[Message] = field(default_factory=list)
    kineto: bool = False
    events: int = 0
    tasks_lost: int = 0
    events_lost: int = 0
    failed: list[Message] = field(default_factory=list)
    exported: dict[str, list[Any]] = field(default_factory=dict)

    def use(self, *files: object) -> None:
        """Record files that were read."""
        self.files += map(str, files)

    def lose(self, file: object, rows: int, reason: Message) -> None:
        """Record rows that could not be used."""
        self.lost.append(Lost(file=str(file), rows=rows, reason=reason))

    @property
    def rows_lost(self) -> int:
        """How many rows could not be used, whatever of."""
        return sum(part.rows for part in self.lost)

    @contextmanager
    def losing_tasks(self) -> Iterator[None]:
        """Count what is lost meanwhile as device tasks."""
        before = self.rows_lost
        yield
        self.tasks_lost += self.rows_lost - before

    def warn(self, message: Message) -> None:
        """Record something the reader should know, once."""
        if message not in self.warnings:
            self.warnings.append(message)

    def fail(self, message: Message, error: InputError | None = None) -> None:
        """Record what could not be read; where the system is at fault, and not the file, it may do better next time.

        Without an ``error`` it is.
        """
        self.warn(message)
        if error is None or isinstance(error.__cause__, OSError):
            self.failed.append(message)

    def add(self, other: ReadLog) -> None:
        """Take over what another log has."""
        self.files += other.files
        self.lost += other.lost
        self.missing += other.missing
        self.failed += other.failed
        self.events += other.events
        self.tasks_lost += other.tasks_lost
        self.events_lost += other.events_lost
        for name, rows in other.exported.items():
            self.exported.setdefault(name, []).extend(rows)
        for message in other.warnings:
            self.warn(message)
