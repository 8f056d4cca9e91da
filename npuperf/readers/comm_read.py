"""A source's communication: the files that tell of it, read once, and put together per device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from npuperf.messages import say
from npuperf.model.communication import Communication
from npuperf.model.tasks import Tasks
from npuperf.readers.comm_db import DbCommunication, read_communication_tables
from npuperf.readers.comm_groups import GroupBook, read_groups
from npuperf.readers.comm_join import join
from npuperf.readers.comm_json import read_communication_json
from npuperf.readers.comm_matrix import read_matrix
from npuperf.readers.find import Source
from npuperf.readers.log import ReadLog
from npuperf.readers.timeline import TraceTimeline


@dataclass(slots=True)
class CommunicationFiles:
    """What was read: the exporter's ``sums``, best first; what a database has, by device; groups.

    ``whole``: the sums of operations and of links were there, and nothing of them was lost.
    """

    sums: list[Communication] = field(default_factory=list)
    recorded: dict[int, Communication] = field(default_factory=dict)
    book: GroupBook = field(default_factory=GroupBook)
    whole: bool = False

    def take(self, recorded: DbCommunication) -> None:
        """Take over what a database has."""
        self.recorded = recorded.devices
        self.book.take(recorded.book)

    def read(self, source: Source, log: ReadLog, attempt: Callable[[], AbstractContextManager[None]]) -> None:
        """Read what the exporter summed of each operation and link, and which ranks the groups have."""
        notes = len(log.lost) + len(log.warnings)
        if source.communication:
            with attempt():
                self.sums.append(read_communication_json(source.communication, log))
                log.use(source.communication)
        if source.matrix:
            with attempt():
                self.sums.append(Communication(links=read_matrix(source.matrix, log)))
                log.use(source.matrix)
        self.whole = len(self.sums) == 2 and notes == len(log.lost) + len(log.warnings)
        if source.db and not self.recorded and not source.communication:
            with attempt():
                self.take(read_communication_tables(source.db, log))
                log.use(source.db)
        self.book.take(read_groups(source.groups, log))

    def any_operations(self) -> bool:
        """Tell whether the exporter summed any operation."""
        return any(len(part.operations) for part in self.sums)

    def of_device(
        self, number: int | None, rank: int | None, tasks: Tasks, timeline: TraceTimeline, log: ReadLog, *, alone: bool
    ) -> Communication:
        """Return one device's communication; ``alone``: the source has no other."""
        own = [self.recorded[d] for d in (number, -1) if d is not None and d in self.recorded]
        parts = [*self.sums, *(own or (list(self.recorded.values()) if alone else []))]
        rank = rank if rank is not None else self.book.rank
        self.book.take(timeline.book)
        done, lost = join(tasks, parts, timeline.named, self.book, rank, alone=alone)
        if lost:
            file = self._file(log)
            log.lose(file, lost, say("recorded operations without a time, or perhaps of another device"))
        return done

    def _file(self, log: ReadLog) -> str:
        return next((f for f in log.files if Path(f).name == "communication.json"), log.files[-1] if log.files else "")
