"""Kernel tables to tasks: rows that cannot be used are told, and so are tables that lack rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from npuperf.errors import InputError
from npuperf.messages import Message, say
from npuperf.model.columns import KERNEL_COLUMNS, KERNEL_REQUIRED
from npuperf.model.labels import I64
from npuperf.model.tasks import NO_TIME, UNKNOWN, Tasks, work_of_rows
from npuperf.readers.find import Source
from npuperf.readers.log import ReadLog
from npuperf.readers.table import RowTable, read_table
from npuperf.units import NS_PER_MS, NS_PER_US

#: Tables with fewer rows than one in so many that stand there twice are taken as they are.
_REPEATED: Final = 10


@dataclass(frozen=True, slots=True)
class Kernels:
    """Tasks per device (None: the file names none), and the devices whose tables turned out to lack rows."""

    devices: dict[int | None, Tasks] = field(default_factory=dict)
    excerpts: frozenset[int | None] = frozenset()


def read_kernels(source: Source, log: ReadLog) -> Kernels:
    """Read the kernel tables; raises InputError when there are some, without a usable row."""
    parts: dict[int | None, list[Tasks]] = {}
    excerpts = set()
    for path in source.kernels:
        table = read_table(path, KERNEL_COLUMNS, KERNEL_REQUIRED, log, pmu=True)
        log.use(path)
        tasks, device, wait = _rows(table, str(path), log)
        for number in np.unique(device).tolist():
            key = number if number >= 0 else source.device
            here = tasks.filter(device == number)
            parts.setdefault(key, []).append(here)
            doubt = _doubt(here, wait[device == number], alone=len(source.kernels) == 1)
            if doubt:
                excerpts.add(key)
                log.warn(say("{path}: {doubt}", path=str(path), doubt=doubt))
    if source.kernels and not parts:
        raise InputError(
            say(
                "{path}: row 2: no usable row: a header, but no kernel with a start and a duration",
                path=str(source.kernels[0]),
            ),
            hint=say("record at least one step that runs on the NPU, and export again"),
        )
    return Kernels({number: _once(Tasks.concat(p), source, log) for number, p in parts.items()}, frozenset(excerpts))


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
    log.lose(source.kernels[0], count, say("twice in the table; counted once"))
    kept = np.ones(len(tasks), np.bool_)
    kept[order[1:][twice]] = False
    return tasks.filter(kept)


def _rows(table: RowTable, path: str, log: ReadLog) -> tuple[Tasks, I64, I64]:
    """Turn the rows of a kernel table into tasks, their devices and wait times.

    Rows without start or duration are lost, and said so.
    """
    start, dur = table.times["start"], table.times["dur"]
    usable = (start != NO_TIME) & (dur != NO_TIME) & (dur >= 0)
    if not usable.all():
        rows = np.flatnonzero(~usable) + 2
        log.lose(path, len(rows), say("no readable start or duration; first in row {row}", row=int(rows[0])))
    core, name = table.texts["core"], table.texts["name"]
    tasks = Tasks.build(
        start,
        start + np.maximum(dur, 0),
        work_of_rows(core, name.fill(table.texts["type"])),
        name=name,
        type=table.texts["type"],
        core=core,
        state=table.texts["state"],
        shapes=table.texts["shapes"],
        stream=table.ints["stream"],
        step=table.ints["step"],
        block=np.where(table.ints["block"] == 0, UNKNOWN, table.ints["block"]),  # a kernel runs on at least one core
        mix_block=table.ints["mix_block"],
        pmu=table.pmu,
    )
    return tasks.filter(usable), table.ints["device"][usable], table.times["wait"][usable]


def _doubt(tasks: Tasks, wait: I64, *, alone: bool) -> Message | None:
    """Say why a table's gaps cannot be trusted, if so. ``alone``: it is the whole table, not a slice of it."""
    if len(tasks) >= 8 and (tasks.start % (10 * NS_PER_MS) == 0).all():
        return say(
            "all start times are multiples of 10 ms: a spreadsheet program has rounded them, so idle time is unknown; "
            "use the file as it was exported"
        )
    if alone and _rows_missing(tasks, wait):
        return say(
            "gaps between rows are longer than their own Wait Time: rows are missing (a filtered or cut file), "
            "so idle time is unknown; use the file as it was exported"
        )
    return None


def _rows_missing(tasks: Tasks, wait: I64) -> bool:
    """Notice an excerpt: the exporter's Wait Time is the gap to the row before, of the whole table.

    Half of all gaps (at least 4, longer than 1 µs beyond the wait) must contradict it.
    """
    order = np.lexsort((tasks.end, tasks.start))
    start, end, wait = tasks.start[order], tasks.end[order], wait[order]
    gap = start[1:] - np.maximum.accumulate(end)[:-1]
    judged = (gap > NS_PER_US) & (wait[1:] != NO_TIME)
    false = judged & (gap > 2 * wait[1:] + NS_PER_US)
    if (wait == 0).all():  # not computed by this exporter
        return False
    return int(false.sum()) >= 4 and int(false.sum()) * 2 > int(judged.sum())
