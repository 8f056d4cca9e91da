"""Where a finding is in time: at the longest thing of the first kind that its evidence names."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npuperf.documents.analysis import texts_in
from npuperf.model.labels import I64, Labels
from npuperf.replay.study import Study


def place_of(evidence: Mapping[str, object], study: Study, window: tuple[int, int]) -> int | None:
    """Return when the longest task, or wait of the host, begins that the evidence names first, epoch ns.

    Tasks are named by their type, waits by their call. None where none of them begins within ``window``.
    """
    tasks, syncs, events = study.profile.tasks, study.syncs, study.nesting.events
    for name in texts_in(evidence):
        found = _longest(study.types, name, tasks.start, tasks.end, window)
        if found is None and len(syncs.event):
            found = _longest(events.name.take(syncs.event), name, syncs.start, syncs.end, window)
        if found is not None:
            return found
    return None


def _longest(labels: Labels, name: str, start: I64, end: I64, window: tuple[int, int]) -> int | None:
    if name not in labels.names:
        return None
    mine = np.flatnonzero((labels.codes == labels.names.index(name)) & (start >= window[0]) & (start < window[1]))
    return int(start[mine[np.argmax(end[mine] - start[mine])]]) if len(mine) else None
