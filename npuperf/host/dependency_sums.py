"""Dependency waits summed by what the device waited for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from npuperf.documents.analysis import Dependency, DependencyKind
from npuperf.host.blame import NOTHING, OTHERS
from npuperf.host.dependencies import KINDS, Dependencies
from npuperf.host.nesting import Nesting
from npuperf.model.host import HostOps
from npuperf.model.labels import I64, Labels
from npuperf.model.tasks import Tasks

#: How many of a line's longest pieces are asked for their code line.
_CANDIDATES = 4
_UNRECORDED = KINDS.index("unrecorded")
#: Kinds that are named by the task that waited: there is no other.
_OWN = tuple(KINDS.index(kind) for kind in ("launch", "switch"))
_EVENT = KINDS.index("event")


class Namer(Struct, frozen=True):
    """Names what a device waited for; ``types`` of all ``tasks``."""

    tasks: Tasks
    types: Labels
    host: HostOps
    nesting: Nesting

    def sums(self, waits: Dependencies, top: int) -> list[Dependency]:
        """Sum pieces by kind and name, the largest first; beyond ``top`` names each kind's rest is one line.

        The sums add up to the pieces exactly.
        """
        length, named, meanwhile = waits.end - waits.start, *self._names(waits)
        keys = _packed(waits.kind, waits.certain, waits.stream, named.codes, meanwhile.codes)
        groups, first, which = np.unique(keys, return_index=True, return_inverse=True)
        total = np.zeros(len(groups), np.int64)
        np.add.at(total, which, length)  # bincount's sums are exact for 104 days only
        count = np.bincount(which, minlength=len(groups))
        rows: list[Dependency] = []
        rest: dict[DependencyKind, tuple[int, int, bool]] = {}
        for place, g in enumerate(np.argsort(-total, kind="stable").tolist()):
            i, ns, n = int(first[g]), int(total[g]), int(count[g])
            kind, certain = KINDS[int(waits.kind[i])], bool(waits.certain[i])
            if place >= top and kind in {r.kind for r in rows}:
                so_far = rest.get(kind, (0, 0, True))
                rest[kind] = so_far[0] + ns, so_far[1] + n, so_far[2] and certain
                continue
            rows.append(
                Dependency(
                    kind=kind,
                    name=named[i] or NOTHING,
                    ns=ns,
                    count=n,
                    where=self._where(waits, np.flatnonzero(which == g), length),
                    certain=certain,
                    stream=int(waits.stream[i]) if waits.stream[i] >= 0 else None,
                    meanwhile=meanwhile[i],
                )
            )
        others = [Dependency(kind=k, name=OTHERS, ns=ns, count=n, certain=c) for k, (ns, n, c) in rest.items()]
        return sorted([*rows, *others], key=lambda d: -d.ns)

    def _names(self, waits: Dependencies) -> tuple[Labels, Labels]:
        """Name each piece, and what the host waited in meanwhile where nothing else is recorded."""
        by_task = np.where(np.isin(waits.kind, _OWN), waits.task, waits.source)
        unrecorded, event = waits.kind == _UNRECORDED, self.nesting.events.name
        named = self.types.take(np.where(waits.kind == _EVENT, -1, by_task))
        rows = self.tasks.name.take(np.where(waits.kind == _EVENT, waits.source, by_task))
        calls = event.take(np.where(unrecorded, -1, waits.event))
        meanwhile = event.take(np.where(unrecorded, waits.event, -1))
        return named.compact().fill(rows.compact()).fill(calls.compact()), meanwhile

    def _where(self, waits: Dependencies, members: I64, length: I64) -> str | None:
        """Return the code line of the longest pieces for which one was recorded: of the call, else of the task."""
        if not len(self.host.frames) and not self.host.stack.names:
            return None
        longest = members[np.argsort(-length[members], kind="stable")[:_CANDIDATES]]
        return next((line for i in longest.tolist() if (line := self._line(waits, i))), None)

    def _line(self, waits: Dependencies, i: int) -> str | None:
        event, events = int(waits.event[i]), self.nesting.events
        if event >= 0 and waits.kind[i] != _UNRECORDED:
            return self.host.line_at(int(events.thread[event]), int(events.start[event]))
        return self.host.code_line(int(self.tasks.op[int(waits.task[i])]))


def _packed(*columns: npt.NDArray[Any]) -> I64:
    """Return one number per row, the same where all columns are."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        low = int(column.min(initial=0))
        key = key * (int(column.max(initial=0)) - low + 1) + (column.astype(np.int64) - low)
    return key
