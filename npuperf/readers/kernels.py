"""Kernel tables to tasks, joined with the timeline of the same device: launches and operators for rows, tasks for gaps.

Rows that cannot be used are told, and so are tables that lack rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct, field

from npuperf.base.errors import InputError
from npuperf.base.messages import Message, chain, ns, say, say_n
from npuperf.base.units import NS_PER_MS, NS_PER_S, NS_PER_US
from npuperf.model.columns import KERNEL_COLUMNS, KERNEL_REQUIRED
from npuperf.model.device import Told
from npuperf.model.groups import distinct, sorted_rows
from npuperf.model.labels import I64, OPERAND_COLUMNS, operand_labels
from npuperf.model.tasks import NO_TIME, UNKNOWN, Tasks, Work, beside_operations, in_order, work_of_rows
from npuperf.readers.cells import FAR_OFF, far_off
from npuperf.readers.find import Source
from npuperf.readers.join import match, match_keys, pack, pick, shared_codes
from npuperf.readers.log import ReadLog
from npuperf.readers.table import RowTable, read_table
from npuperf.readers.timeline import TraceTimeline, assign_steps

_DOUBTED: Final = say("the kernel table's gaps cannot be trusted (see warnings), so idle time is unknown")
#: Tables with fewer rows than one in so many that stand there twice are taken as they are.
_REPEATED: Final = 10


class Kernels(Struct, frozen=True):
    """Tasks per device (None: the file names none), and the devices whose tables turned out to lack rows, with why.

    ``timeline``: kernels that the timeline has of a device whose table is read, too.
    """

    devices: dict[int | None, Tasks] = field(default_factory=dict)
    excerpts: dict[int | None, Message] = field(default_factory=dict)
    timeline: dict[int | None, Told] = field(default_factory=dict)


def read_kernels(source: Source, log: ReadLog) -> Kernels:
    """Read the kernel tables, as narrow columns; raises InputError when there are some, without a usable row."""
    parts: dict[int | None, list[Tasks]] = {}
    excerpts: dict[int | None, Message] = {}
    for path in source.kernels:
        with log.losing_tasks():
            table = read_table(path, KERNEL_COLUMNS, KERNEL_REQUIRED, log, pmu=True)
            log.use(path)
            tasks, device, wait = _rows(table, str(path), log)
        for number in distinct(device).tolist():
            key = number if number >= 0 else source.device
            here = tasks.filter(device == number)
            parts.setdefault(key, []).append(here)
            doubt = None  # why the table's gaps cannot be trusted
            if len(here) >= 8 and (here.start % (10 * NS_PER_MS) == 0).all():
                doubt = say(
                    "all start times are multiples of 10 ms, as after a spreadsheet program has rounded them: idle "
                    "time is unknown; use the file as it was exported"
                )
            elif len(source.kernels) == 1 and _rows_missing(here, wait[device == number]):  # no slice of a table
                doubt = say("gaps between rows are longer than their own Wait Time: rows are missing (a filtered or "
                            "cut file), so idle time is unknown; use the file as it was exported")  # fmt: skip
            if doubt:
                excerpts[key] = _DOUBTED
                log.warn(say("{path}: {doubt}", path=str(path), doubt=doubt))
    if source.kernels and not parts:
        raise InputError(
            say(
                "{path}: row 2: no usable row after the header: no kernel has a start and a duration",
                path=str(source.kernels[0]),
            ),
            hint=say("record at least one step that runs on the NPU, and export again"),
        )
    devices = {number: _once(Tasks.concat(p), source, log).narrowed() for number, p in parts.items()}
    return Kernels(devices, excerpts)


def _once(tasks: Tasks, source: Source, log: ReadLog) -> Tasks:
    """Leave out rows that stand there twice, as in tables that were put together: no stream runs two kernels at once.

    A few equal rows are left alone: kernels that run in parallel within a stream may be.
    """
    order = np.argsort(tasks.start, kind="stable")
    again = tasks.start[order][1:] == tasks.start[order][:-1]
    if np.count_nonzero(again) * _REPEATED < len(tasks):
        return tasks
    codes = (tasks.name.codes, tasks.type.codes, tasks.core.codes, tasks.shapes.codes)
    columns = (*codes, tasks.block, tasks.mix_block, tasks.step, tasks.stream, tasks.end, tasks.start)
    order = np.lexsort(columns)
    twice = np.logical_and.reduce([column[order][1:] == column[order][:-1] for column in columns])
    twice &= tasks.stream[order][1:] >= 0
    count = int(np.count_nonzero(twice))
    rounded = np.count_nonzero(tasks.start[order][1:][twice] % NS_PER_MS == 0) * 2 > count
    if rounded or count * _REPEATED < len(tasks):
        return tasks
    log.lose(source.kernels[0], count, say("listed twice in the table; counted once"))
    kept = np.ones(len(tasks), np.bool_)
    kept[order[1:][twice]] = False
    return tasks.filter(kept)


def _rows(table: RowTable, path: str, log: ReadLog) -> tuple[Tasks, I64, I64]:
    """Turn the rows of a kernel table into tasks, their devices and wait times.

    Rows without start or duration, or far away from all others, are lost, and said so.
    """
    start, dur = table.times["start"], table.times["dur"]
    usable = (start != NO_TIME) & (dur != NO_TIME) & (dur >= 0)
    if not usable.all():
        rows = np.flatnonzero(~usable) + 2
        log.lose(path, len(rows), say("no readable start or duration; first in row {row}", row=int(rows[0])))
    core, name = table.texts["core"], table.texts["name"]
    called = name.fill(table.texts["type"])
    no_block = table.ints["block"] == 0  # a kernel runs on at least one core
    tasks = Tasks.build(
        start,
        start + np.maximum(dur, 0),
        beside_operations(work_of_rows(core, called), called),
        name=name,
        type=table.texts["type"],
        core=core,
        state=table.texts["state"],
        shapes=table.texts["shapes"],
        operands=operand_labels({name: table.texts[name] for name in OPERAND_COLUMNS}),
        stream=table.ints["stream"],
        step=table.ints["step"],
        block=np.where(no_block, UNKNOWN, table.ints["block"]),
        mix_block=np.where(no_block, UNKNOWN, table.ints["mix_block"]),
        pmu=table.pmu,
    )
    tasks = tasks.filter(usable)
    far = far_off(tasks.start, tasks.end)
    if far.any():
        rows = np.flatnonzero(usable)[far]
        log.lose(path, len(rows), say("{why}; first in row {row}", why=FAR_OFF, row=int(rows[0]) + 2))
        tasks, usable[rows] = tasks.filter(~far), False
    return tasks, table.ints["device"][usable], table.times["wait"][usable]


def _rows_missing(tasks: Tasks, wait: I64) -> bool:
    """Notice an excerpt: the exporter's Wait Time is the gap to the row before, of the whole table.

    Half of all gaps (at least 4, longer than 1 µs beyond the wait) must contradict it.
    """
    start, end = tasks.start, tasks.end
    if not in_order(start):
        order = sorted_rows(start, end)
        start, end, wait = start[order], end[order], wait[order]
    gap = start[1:] - np.maximum.accumulate(end)[:-1]
    judged = (gap > NS_PER_US) & (wait[1:] != NO_TIME)
    false = judged & (gap > 2 * wait[1:] + NS_PER_US)
    if (wait == 0).all():  # not computed by this exporter
        return False
    return int(false.sum()) >= 4 and int(false.sum()) * 2 > int(judged.sum())


def merge(table: Kernels, timeline: TraceTimeline | None, source: Source, log: ReadLog) -> Kernels:
    """Return the tasks of each device, from both where both know it."""
    kernels = table.devices
    if timeline is None:
        return table
    if not kernels:
        return Kernels(dict(timeline.devices))
    root = str(source.root)
    lost = any(loss.file in {str(p) for p in source.kernels} for loss in log.lost)
    merged: dict[int | None, Tasks] = {}
    witnessed: dict[int | None, Told] = {}
    used = set()
    for number, rows in kernels.items():
        name = number
        if number not in timeline.devices and len(kernels) == len(timeline.devices) == 1:
            (name,) = timeline.devices
        seen = timeline.devices.get(name)
        used.add(name)
        if seen is None:
            log.warn(
                say("{path}: the timeline has no device {device}; its launches are unknown", path=root, device=number)
            )
            merged[number] = rows
        else:
            key = number if number is not None else name
            merged[key], same_run = _merge(rows, seen, timeline, lost, source, log)
            if same_run:
                compute = seen.work == Work.COMPUTE
                witnessed[key] = Told(_file_of(source), int(np.count_nonzero(compute)), int(seen.dur[compute].sum()))
    for number in timeline.devices.keys() - used:
        log.warn(say("{path}: device {device} is only in the timeline; Block Dim and counters are unknown for it",
                     path=root, device=number))  # fmt: skip
        merged.setdefault(number, timeline.devices[number])
    return Kernels(merged, table.excerpts, witnessed)


def _file_of(source: Source) -> str:
    """Name the timeline of a source that has one."""
    return source.timeline[0].name if source.timeline else source.db.name if source.db else ""


def _merge(
    rows: Tasks, seen: Tasks, timeline: TraceTimeline, lost: bool, source: Source, log: ReadLog
) -> tuple[Tasks, bool]:
    """Give the rows of a kernel table their launches, and add the tasks that only the timeline has.

    Also tell whether both are of the same run, as far as anybody can see.
    """
    place = _places(rows, seen)
    compute = rows.work == Work.COMPUTE
    matched = int(np.count_nonzero(place[compute] >= 0))
    total = int(np.count_nonzero(compute))
    if matched * 2 < total:
        log.warn(say_n("{path}: only {matched} of {n} kernel of {file} is in the timeline, so launches are "
"unknown: the two files may not be from the same run, or one of them is cut short",
                       "{path}: only {matched} of {n} kernels of {file} are in the timeline, so launches are "
"unknown: the two files may not be from the same run, or one of them is cut short",
                       total, path=str(source.root), matched=matched, file=source.kernels[0].name))  # fmt: skip
        return rows, False
    if matched < total:
        log.warn(say_n("{path}: {n} of {total} kernels is not in the timeline; its launch is unknown",
                       "{path}: {n} of {total} kernels are not in the timeline; their launches are unknown",
                       total - matched, path=str(source.root), total=total))  # fmt: skip
    known = place >= 0
    rows = rows.with_columns(
        launch_start=pick(seen.launch_start, place, NO_TIME),
        launch_end=pick(seen.launch_end, place, NO_TIME),
        launch_thread=pick(seen.launch_thread, place),
        op=pick(seen.op, place),
        stream=np.where(known & (rows.stream < 0), pick(seen.stream, place), rows.stream),
    )
    extra = np.ones(len(seen), np.bool_)
    extra[place[known]] = False
    unlisted = extra & (seen.work == Work.COMPUTE)
    if not lost:
        extra &= ~unlisted
        if unlisted.any():
            unlaunched = int(np.count_nonzero(unlisted & ~seen.launched))
            why = say_n("{n} of them was launched before recording began",
                        "{n} of them were launched before recording began", unlaunched)  # fmt: skip
            what = say_n(
                "{path}: {n} of {total} kernels of the timeline is not in {file}; it and its {time} are left out",
                "{path}: {n} of {total} kernels of the timeline are not in {file}; they and their {time} are left out",
                int(np.count_nonzero(unlisted)), path=str(source.root), file=source.kernels[0].name,
                total=int(np.count_nonzero(seen.work == Work.COMPUTE)),
                time=ns(int((seen.end - seen.start)[unlisted].sum())))  # fmt: skip
            log.warn(chain(what, why if unlaunched else None))
    elif unlisted.any():
        log.warn(say_n("{path}: {n} kernel missing in the table was taken from the timeline; it is counted in "
"the step of the kernel before it, which may be the wrong step",
                       "{path}: {n} kernels missing in the table were taken from the timeline; each is counted "
"in the step of the kernel before it, which may be the wrong step",
                       int(np.count_nonzero(unlisted)), path=str(source.root)))  # fmt: skip
    both = Tasks.concat([rows, _with_steps(seen.filter(extra), rows, timeline)])
    return both.with_columns(core=both.core.compact()), True


def _with_steps(extra: Tasks, rows: Tasks, timeline: TraceTimeline) -> Tasks:
    """Tasks that only the timeline has are of the step that launched them, else of that of the kernel before them.

    Kernels that the table lost always are of the latter, among the table's own.
    """
    order = np.argsort(rows.start, kind="stable")
    before = np.searchsorted(rows.start[order], extra.start, side="right") - 1
    step = pick(rows.step[order], before)
    if len(timeline.host_steps):
        of_host = extra.launched & (extra.work != Work.COMPUTE)
        step = np.where(of_host, assign_steps(extra, timeline.host, timeline.host_steps).step, step)
    return extra.with_columns(step=step)


def _places(rows: Tasks, seen: Tasks) -> I64:
    """Find each row's task in the timeline: by start and name, else by start; collectives by nearest start."""
    ours, theirs = shared_codes(rows.name, seen.name)
    place = np.full(len(rows), -1, np.int64)
    for work in (Work.COMPUTE, Work.COMMUNICATION):
        here, there = np.flatnonzero(rows.work == work), np.flatnonzero(seen.work == work)
        if not len(here) or not len(there):
            continue
        if work is Work.COMPUTE:
            found = match_keys((rows.start[here], ours[here]), (seen.start[there], theirs[there]))
            found = np.where(found >= 0, found, match(rows.start[here], seen.start[there]))
        else:
            found = _nearest(rows.start[here], ours[here], seen.start[there], theirs[there])
        place[here] = pick(there, found)
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
