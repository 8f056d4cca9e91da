"""Where in a picture to look for what a report names: operators, waits, synchronisations, steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from npuperf.host.blame import NOTHING
from npuperf.host.causes import CAUSES, CODE
from npuperf.model.groups import group_sums
from npuperf.model.labels import I64
from npuperf.model.tasks import Work
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
    for kind, name, start, end in (*_operators(drawing), *_waits(drawing), *_syncs(drawing), *_steps(drawing)):
        found.setdefault((kind, name), (start - origin, end - origin))
    return found


def _operators(drawing: Drawing) -> Iterator[Signpost]:
    tasks, types = drawing.study.profile.tasks, drawing.study.types
    start, end = drawing.window
    kernels = (tasks.work == Work.COMPUTE) | (tasks.work == Work.COMMUNICATION)
    rows = np.flatnonzero(kernels & (tasks.start < end) & (tasks.start >= start))
    for row in _longest(types.codes.astype(np.int64), tasks.dur, rows, _OPERATORS):
        yield "operator", types[row] or "N/A", int(tasks.start[row]), int(tasks.end[row])


def _waits(drawing: Drawing) -> Iterator[Signpost]:
    names, pieces = drawing.study.nesting.events.name, drawing.study.blamed.within(*drawing.window)
    told = np.where(pieces.cause == CODE["unrecorded"], -1, pieces.event)
    labels = names.take(told)
    key = pieces.cause.astype(np.int64) * (len(names.names) + 1) + labels.codes + 1
    for row in _longest(key, pieces.end - pieces.start, np.arange(len(key)), _WAITS):
        cause = CAUSES[int(pieces.cause[row])]
        yield "wait", f"{cause}: {labels[row] or NOTHING}", int(pieces.start[row]), int(pieces.end[row])


def _syncs(drawing: Drawing) -> Iterator[Signpost]:
    """Yield waits for the device, by the call's name and by its code line."""
    study = drawing.study
    start, end = study.syncs.start - study.launches.skew, study.syncs.end - study.launches.skew
    inside = (end > drawing.window[0]) & (start < drawing.window[1])
    found = []
    for point in study.points:
        calls = point.calls[inside[point.calls]]
        if len(calls):
            longest = int(calls[np.argmax((end - start)[calls])])
            found += [(longest, name) for name in (point.name, point.where) if name]
    found.sort(key=lambda one: int(start[one[0]] - end[one[0]]))
    yield from (("sync", name, int(start[call]), int(end[call])) for call, name in found[:_SYNCS])


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
