"""Where in a picture to look for what a report names: operators, waits, synchronisations, steps.

What a report says of waiting is about what is judged: waits are looked for there first, and then everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from npuperf.documents.picture import place_name
from npuperf.host.blame import NOTHING
from npuperf.host.causes import CAUSES, CODE
from npuperf.model.groups import group_sums
from npuperf.model.labels import I64
from npuperf.model.tasks import Work
from npuperf.operators.sums import core_labels
from npuperf.pictures.drawing import Drawing

#: How many of a kind have a place: those that take most time.
_OPERATORS: Final = 400
_WAITS: Final = 200
_SYNCS: Final = 200

#: What is found: its kind, its name, and from when to when, epoch ns.
Signpost = tuple[str, str, int, int]


def signposts(drawing: Drawing) -> dict[tuple[str, str], tuple[int, int]]:
    """Return places of a picture; of several things of one name the longest."""
    origin = drawing.origin
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for kind, name, start, end in (*_operators(drawing), *_waiting(drawing), *_steps(drawing)):
        found.setdefault((kind, name), (start - origin, end - origin))
    return found


def _waiting(drawing: Drawing) -> Iterator[Signpost]:
    """Yield what is judged before all that is drawn; of one step alone these are the same."""
    window, study = drawing.window, drawing.study
    for span in dict.fromkeys((study.judged if window == study.timeline.span else window, window)):
        yield from _waits(drawing, span)
        yield from _syncs(drawing, span)


def _operators(drawing: Drawing) -> Iterator[Signpost]:
    """Yield the longest kernel of each type, and of each type on each core."""
    tasks, types, cores = drawing.study.profile.tasks, drawing.study.types, core_labels(drawing.study.profile.tasks)
    start, end = drawing.window
    kernels = (tasks.work == Work.COMPUTE) | (tasks.work == Work.COMMUNICATION)
    rows = np.flatnonzero(kernels & (tasks.start < end) & (tasks.start >= start))
    kinds = types.codes.astype(np.int64)
    for keys, known in ((kinds, None), (kinds * (len(cores.names) + 1) + cores.codes, cores)):
        for row in _longest(keys, tasks.dur, rows, _OPERATORS):
            name = place_name(types[row] or "N/A", known[row] if known else None)
            yield "operator", name, int(tasks.start[row]), int(tasks.end[row])


def _waits(drawing: Drawing, span: tuple[int, int]) -> Iterator[Signpost]:
    names, pieces = drawing.study.nesting.events.name, drawing.study.blamed.within(*span)
    told = np.where(pieces.cause == CODE["unrecorded"], -1, pieces.event)
    labels = names.take(told)
    key = pieces.cause.astype(np.int64) * (len(names.names) + 1) + labels.codes + 1
    for row in _longest(key, pieces.end - pieces.start, np.arange(len(key)), _WAITS):
        cause = CAUSES[int(pieces.cause[row])]
        yield "wait", f"{cause}: {labels[row] or NOTHING}", int(pieces.start[row]), int(pieces.end[row])


def _syncs(drawing: Drawing, span: tuple[int, int]) -> Iterator[Signpost]:
    """Yield waits for the device: by the call with all that tells it from others, by its name, by its code line."""
    study = drawing.study
    start, end = study.syncs.start - study.launches.skew, study.syncs.end - study.launches.skew
    drawn = (end > drawing.window[0]) & (start < drawing.window[1])
    inside = study.syncs_of(span) & drawn
    found = []
    for point in study.points:
        calls = point.calls[inside[point.calls]]
        if len(calls):
            names = (place_name(point.name, point.op, point.where), point.name, point.where)
            found.append((int(calls[np.argmax((end - start)[calls])]), dict.fromkeys(filter(None, names))))
    found.sort(key=lambda one: int(start[one[0]] - end[one[0]]))
    for call, called in found[:_SYNCS]:
        yield from (("sync", name, int(start[call]), int(end[call])) for name in called)


def _steps(drawing: Drawing) -> Iterator[Signpost]:
    for step in drawing.report.steps:
        start = drawing.report.origin_ns + step.start_ns
        yield "step", str(step.step), start, start + step.partition.span_ns


def _longest(keys: I64, length: I64, rows: I64, most: int) -> list[int]:
    """Return the longest row of each key, for the keys that take most time."""
    if not len(rows):
        return []
    groups = group_sums((keys,), length, rows)
    rows_of_keys: list[int] = groups.largest[np.argsort(-groups.total, kind="stable")[:most]].tolist()
    return rows_of_keys
