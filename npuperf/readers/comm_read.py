"""A source's communication: the files that tell of it, read once, and put together per device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from npuperf.messages import say
from npuperf.model.communication import Communication
from npuperf.model.labels import Mask
from npuperf.model.tasks import Tasks
from npuperf.readers.comm_groups import GroupBook, read_groups
from npuperf.readers.comm_join import join
from npuperf.readers.comm_json import read_communication_json
from npuperf.readers.comm_matrix import read_matrix
from npuperf.readers.find import Source
from npuperf.readers.log import ReadLog
from npuperf.readers.timeline import TraceTimeline

if TYPE_CHECKING:  # of most recordings there is no database
    from npuperf.readers.comm_db import DbCommunication


class CommunicationFiles(Struct):
    """What was read: the exporter's ``sums``, best first; what a database has, by device; groups.

    ``whole``: the sums of operations and of links were there, and nothing of them was lost. ``left_out``: the
    operations of each of the sums that no device has so far.
    """

    sums: list[Communication] = field(default_factory=list)
    recorded: dict[int, Communication] = field(default_factory=dict)
    book: GroupBook = field(default_factory=GroupBook)
    whole: bool = False
    left_out: list[Mask] = field(default_factory=list)

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
            from npuperf.readers.comm_db import read_communication_tables

            with attempt():
                self.take(read_communication_tables(source.db, log))
                log.use(source.db)
        self.book.take(read_groups(source.groups, log))

    def any_operations(self) -> bool:
        """Tell whether the exporter summed any operation."""
        return any(len(part.operations) for part in self.sums)

    def of_device(
        self, number: int | None, rank: int | None, tasks: Tasks, timeline: TraceTimeline, *, alone: bool
    ) -> Communication:
        """Return one device's communication; ``alone``: the source has no other."""
        own = [self.recorded[d] for d in (number, -1) if d is not None and d in self.recorded]
        parts = [*self.sums, *(own or (list(self.recorded.values()) if alone else []))]
        rank = rank if rank is not None else self.book.rank
        self.book.take(timeline.book)
        done, left_out = join(tasks, parts, timeline.named, self.book, rank, alone=alone)
        here = left_out[: len(self.sums)]
        self.left_out = [a & b for a, b in zip(self.left_out, here, strict=True)] if self.left_out else here
        return done

    def report(self, log: ReadLog) -> None:
        """Tell of the operations that no device has."""
        lost = sum(int(np.count_nonzero(mask)) for mask in self.left_out)
        if lost:
            file = next((f for f in log.files if Path(f).name == "communication.json"), log.files[-1])
            log.lose(file, lost, say("recorded operations without a time, or perhaps of another device"))
