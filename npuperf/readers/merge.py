"""Kernel tables joined with the timeline of the same device: launches and operators for rows, tasks for gaps."""

from __future__ import annotations

import numpy as np

from npuperf.messages import say, say_n
from npuperf.model.labels import I64, Labels
from npuperf.model.tasks import NO_TIME, UNKNOWN, Tasks, Work
from npuperf.readers.find import Source
from npuperf.readers.join import match_keys, pack
from npuperf.readers.log import ReadLog
from npuperf.readers.timeline import TraceTimeline
from npuperf.units import NS_PER_S, NS_PER_US


def merge(
    kernels: dict[int | None, Tasks], timeline: TraceTimeline | None, source: Source, log: ReadLog
) -> dict[int | None, Tasks]:
    """Return the tasks of each device, from both where both know it."""
    if timeline is None:
        return kernels
    if not kernels:
        return dict(timeline.devices)
    root = str(source.root)
    lost = any(loss.file in {str(p) for p in source.kernels} for loss in log.lost)
    merged: dict[int | None, Tasks] = {}
    used = set()
    for number, rows in kernels.items():
        name, seen = _same_device(number, timeline, alone=len(kernels) == 1)
        used.add(name)
        if seen is None:
            log.warn(
                say("{path}: the timeline has no device {device}; its launches are unknown", path=root, device=number)
            )
            merged[number] = rows
        else:
            merged[number if number is not None else name] = _merge(rows, seen, lost, source, log)
    for number in timeline.devices.keys() - used:
        log.warn(
            say(
                "{path}: device {device} is only in the timeline; Block Dim and counters are unknown for it",
                path=root,
                device=number,
            )
        )
        merged.setdefault(number, timeline.devices[number])
    return merged


def _same_device(number: int | None, timeline: TraceTimeline, *, alone: bool) -> tuple[int | None, Tasks | None]:
    if number in timeline.devices:
        return number, timeline.devices[number]
    if alone and len(timeline.devices) == 1:
        return next(iter(timeline.devices.items()))
    return number, None


def _merge(rows: Tasks, seen: Tasks, lost: bool, source: Source, log: ReadLog) -> Tasks:
    """Give the rows of a kernel table their launches, and add the tasks that only the timeline has."""
    place = _places(rows, seen)
    compute = rows.work == Work.COMPUTE
    matched = int(np.count_nonzero(place[compute] >= 0))
    total = int(np.count_nonzero(compute))
    if matched * 2 < total:
        log.warn(
            say_n(
                "{path}: only {matched} of {n} kernel of {file} is in the timeline: "
                "the two files are not of the same run, so launches are unknown",
                "{path}: only {matched} of {n} kernels of {file} are in the timeline: "
                "the two files are not of the same run, so launches are unknown",
                total,
                path=str(source.root),
                matched=matched,
                file=source.kernels[0].name,
            )
        )
        return rows
    if matched < total:
        log.warn(
            say_n(
                "{path}: {n} of {total} kernels is not in the timeline; its launch is unknown",
                "{path}: {n} of {total} kernels are not in the timeline; their launches are unknown",
                total - matched,
                path=str(source.root),
                total=total,
            )
        )
    known = place >= 0
    rows = rows.with_columns(
        launch_start=np.where(known, seen.launch_start[place], NO_TIME),
        launch_end=np.where(known, seen.launch_end[place], NO_TIME),
        launch_thread=np.where(known, seen.launch_thread[place], UNKNOWN),
        op=np.where(known, seen.op[place], -1),
        stream=np.where(known & (rows.stream < 0), seen.stream[place], rows.stream),
    )
    extra = np.ones(len(seen), np.bool_)
    extra[place[known]] = False
    unlisted = extra & (seen.work == Work.COMPUTE)
    if not lost:
        extra &= ~unlisted
    elif unlisted.any():
        log.warn(
            say_n(
                "{path}: {n} kernel missing in the table was taken from the timeline; "
                "it counts towards the step of the kernel before it, which may be the wrong one",
                "{path}: {n} kernels missing in the table were taken from the timeline; "
                "each counts towards the step of the kernel before it, which may be the wrong one",
                int(np.count_nonzero(unlisted)),
                path=str(source.root),
            )
        )
    return Tasks.concat([rows, _with_steps(seen.filter(extra), rows)])


def _with_steps(extra: Tasks, rows: Tasks) -> Tasks:
    """Tasks that only the timeline has take the step of the kernel before them."""
    order = np.argsort(rows.start, kind="stable")
    before = np.searchsorted(rows.start[order], extra.start, side="right") - 1
    return extra.with_columns(step=np.where(before >= 0, rows.step[order[np.maximum(before, 0)]], -1))


def _places(rows: Tasks, seen: Tasks) -> I64:
    """Find each row's task in the timeline: by start and name, else by start; collectives by nearest start."""
    names = Labels.concat([rows.name, seen.name]).codes.astype(np.int64)
    ours, theirs = names[: len(rows)], names[len(rows) :]
    place = np.full(len(rows), -1, np.int64)
    for work in (Work.COMPUTE, Work.COMMUNICATION):
        here = np.flatnonzero(rows.work == work)
        there = np.flatnonzero(seen.work == work)
        if not len(here) or not len(there):
            continue
        if work is Work.COMPUTE:
            found = match_keys((rows.start[here], ours[here]), (seen.start[there], theirs[there]))
            by_time = match_keys((rows.start[here],), (seen.start[there],))
            found = np.where(found >= 0, found, by_time)
        else:
            found = _nearest(rows.start[here], ours[here], seen.start[there], theirs[there])
        place[here] = np.where(found >= 0, there[found], -1)
    return place


def _nearest(start: I64, name: I64, seen_start: I64, seen_name: I64) -> I64:
    """Match by name and nearest start: the table cuts picoseconds off where the timeline rounds them."""
    wanted, table = pack((name, start), (seen_name, seen_start))
    order = np.argsort(table, kind="stable")
    right = np.minimum(np.searchsorted(table[order], wanted), len(order) - 1)
    left = np.maximum(right - 1, 0)

    def distance(place: I64) -> I64:
        same = seen_name[order[place]] == name
        return np.where(same, np.abs(seen_start[order[place]] - start), NS_PER_S)

    nearest = np.where(distance(left) < distance(right), left, right)
    return np.where(distance(nearest) <= NS_PER_US, order[nearest], -1)
