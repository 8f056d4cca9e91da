"""Read one source into device profiles: tables and timelines joined, exact data before derived data."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from npuperf.errors import InputError
from npuperf.model.chip import Cores, cores_of_soc
from npuperf.model.columns import KERNEL_COLUMNS, KERNEL_REQUIRED
from npuperf.model.device import Context, DeviceProfile, ReadLog, VendorStep
from npuperf.model.labels import I64, Labels
from npuperf.model.tasks import NO_TIME, UNKNOWN, Tasks, Work, work_of_rows
from npuperf.readers.context import (
    Machine,
    read_cluster_steps,
    read_context,
    read_cores,
    read_machine,
    read_vendor_steps,
)
from npuperf.readers.db import read_analysis_db, read_db
from npuperf.readers.find import Source
from npuperf.readers.join import match_keys, pack
from npuperf.readers.table import Table, read_table
from npuperf.readers.timeline import Timeline, assign_steps, interpret
from npuperf.readers.trace import read_trace
from npuperf.units import NS_PER_MS, NS_PER_S, NS_PER_US

Progress = Callable[[int], None]

#: Tables with fewer rows than one in so many that stand there twice are taken as they are.
_REPEATED = 10


def read_source(source: Source, log: ReadLog, progress: Progress | None = None) -> list[DeviceProfile]:
    """Read everything a source has, one profile per device.

    Each file that fails is reported; as long as one gives device tasks (or at least the exporter's own
    split of the steps) there is a result. Raises InputError when none does, with every reason.
    """
    for note in source.notes:
        log.warn(note)
    if source.kind == "cluster" and source.steps:
        return _cluster(source, log)
    failures: list[InputError] = []
    context, rank = read_context(source.profiler_info, source.metadata, log)
    machine = read_machine(source.manifest, log)
    context = replace(context, cann=context.cann or machine.cann)
    excerpts: set[int | None] = set()
    with ThreadPoolExecutor(1) as beside:  # tables are parsed without the interpreter lock, traces with it
        tables = beside.submit(_attempt, lambda: _kernels(source, excerpts, log), failures)
        timeline = _timeline(source, log, failures, progress)
        kernels = tables.result()
    timeline, ranks = _or_database(timeline, source, log, failures, bool(kernels))
    vendor = _vendor(source, log, failures)
    if not kernels and timeline is None and not vendor:
        raise failures[0] if failures else InputError(f"{source.root}: nothing readable")
    for failure in failures:
        log.warn(f"{failure.what}; the other files were used")
    log.missing += _missing(source, kernels, timeline)
    devices = _join(kernels or {}, timeline, source, log)
    if not devices and timeline is None and not vendor and failures:
        raise failures[0]
    if not devices and vendor:
        devices = {step.device: Tasks.empty() for step in vendor}
    cores = read_cores(source.infos, log)
    return [
        _device(
            source,
            number,
            tasks,
            timeline,
            context,
            _rank(source, number, rank, ranks, timeline),
            cores,
            machine,
            vendor,
            excerpts,
        )
        for number, tasks in sorted(devices.items(), key=lambda item: (item[0] is not None, item[0] or 0))
    ]


def _missing(source: Source, kernels: dict[int | None, Tasks] | None, timeline: Timeline | None) -> list[str]:
    """Say which kinds of file were not there, what they would tell, and how to get them."""
    if timeline and timeline.kineto:
        return []
    missing = []
    if timeline is None:
        missing.append(
            "no trace_view.json, msprof_*.json or .db: launches, torch operators, code lines and copies are unknown "
            "(record with npuperf profile --level 1)"
        )
    if not kernels and not source.db:
        missing.append(
            "no kernel_details.csv or op_summary*.csv: core types, Block Dim and hardware counters are unknown "
            "(export with ExportType.Text, or msprof --export=on)"
        )
    if not source.infos and not source.manifest:
        missing.append("no PROF_*/device_*/info.json.*: core counts are unknown (give --soc or --cores)")
    return missing


def _attempt(read: Callable[[], dict[int | None, Tasks]], failures: list[InputError]) -> dict[int | None, Tasks] | None:
    try:
        return read()
    except InputError as error:
        failures.append(error)
        return None


def _rank(
    source: Source, device: int | None, rank: int | None, ranks: dict[int, int], timeline: Timeline | None
) -> int | None:
    """Take the rank from whatever records it; a folder's name does not."""
    if device is not None and device in ranks:
        return ranks[device]
    if rank is not None:
        return rank
    if source.rank is not None:
        return source.rank
    return timeline.rank if timeline else None


def _device(
    source: Source,
    number: int | None,
    tasks: Tasks,
    timeline: Timeline | None,
    context: Context,
    rank: int | None,
    cores: dict[int, Cores],
    machine: Machine,
    vendor: list[VendorStep],
    excerpts: set[int | None],
) -> DeviceProfile:
    device = number if number is not None else source.device or 0
    if number is None and len(cores) == 1:
        device = next(iter(cores))
    profile = DeviceProfile(
        source=str(source.root),
        rank=rank,
        device=device,
        soc=(timeline.soc if timeline else None) or machine.soc,
        cores=cores.get(device) or machine.cores or cores_of_soc(machine.soc or "") or Cores(),
        tasks=tasks,
        vendor_steps=tuple(v for v in vendor if v.device in (None, -1, device) or number is None),
        context=context,
        excerpt=number in excerpts,
        kineto=timeline.kineto if timeline else False,
    )
    if timeline is None:
        return profile
    stepped = assign_steps(tasks, timeline.host, timeline.host_steps)
    return replace(profile, tasks=stepped, host=timeline.host, host_steps=timeline.host_steps)


def _kernels(source: Source, excerpts: set[int | None], log: ReadLog) -> dict[int | None, Tasks]:
    """Read the kernel tables, split by device; None stands for a file that names no device.

    Devices whose tables turn out to lack rows are added to ``excerpts``.
    """
    parts: dict[int | None, list[Tasks]] = {}
    for path in source.kernels:
        table = read_table(path, KERNEL_COLUMNS, KERNEL_REQUIRED, log, pmu=True)
        log.files.append(str(path))
        tasks, device, wait = _rows(table, str(path), log)
        for number in np.unique(device).tolist():
            key = number if number >= 0 else source.device
            mine = device == number
            parts.setdefault(key, []).append(tasks.filter(mine))
            doubt = _doubt(tasks.filter(mine), wait[mine], alone=len(source.kernels) == 1)
            if doubt:
                excerpts.add(key)
                log.warn(f"{path}: {doubt}, so idle time cannot be told; use the file as it was exported")
    if source.kernels and not parts:
        raise InputError(
            f"{source.kernels[0]}: row 2: no usable row: a header, but no kernel with a start and a duration",
            hint="record at least one step that runs on the NPU, and export again",
        )
    return {number: _once(Tasks.concat(p), source, log) for number, p in parts.items()}


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
    log.lose(str(source.kernels[0]), count, "stand in the table twice; counted once")
    kept = np.ones(len(tasks), np.bool_)
    kept[order[1:][twice]] = False
    return tasks.filter(kept)


def _rows(table: Table, path: str, log: ReadLog) -> tuple[Tasks, I64, I64]:
    """Turn the rows of a kernel table into tasks, their devices and wait times.

    Rows without start or duration are lost, and said so.
    """
    start, dur = table.times["start"], table.times["dur"]
    usable = (start != NO_TIME) & (dur != NO_TIME) & (dur >= 0)
    if not usable.all():
        rows = np.flatnonzero(~usable) + 2
        log.lose(path, len(rows), f"no readable start or duration; first in row {rows[0]}")
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
        block=_blocks(table.ints["block"]),
        mix_block=table.ints["mix_block"],
        pmu=table.pmu,
    )
    return tasks.filter(usable), table.ints["device"][usable], table.times["wait"][usable]


def _doubt(tasks: Tasks, wait: I64, *, alone: bool) -> str | None:
    """Say why a table's gaps cannot be trusted, if so. ``alone``: it is the whole table, not a slice of it."""
    if len(tasks) >= 8 and (tasks.start % (10 * NS_PER_MS) == 0).all():
        return "all start times are multiples of 10 ms: a spreadsheet program has rounded them"
    if alone and _rows_missing(tasks, wait):
        return "gaps between rows are longer than their own Wait Time says: rows are missing (a filtered or cut file)"
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


def _blocks(block: I64) -> I64:
    """A kernel runs on at least one core, so 0 means that the exporter did not know."""
    return np.where(block == 0, -1, block)


def _timeline(source: Source, log: ReadLog, failures: list[InputError], progress: Progress | None) -> Timeline | None:
    """Read launches, operators and steps from the timeline, if there is one."""
    if not source.timeline:
        return None
    try:
        timeline = interpret(read_trace(source.timeline, log, progress))
    except InputError as error:
        failures.append(error)
        return None
    log.kineto = timeline.kineto
    log.files.extend(str(p) for p in source.timeline)
    return timeline


def _or_database(
    timeline: Timeline | None, source: Source, log: ReadLog, failures: list[InputError], have_kernels: bool
) -> tuple[Timeline | None, dict[int, int]]:
    """Fall back on the database where the text files give no timeline, or no device task at all."""
    enough = timeline is not None and (have_kernels or bool(timeline.devices))
    if enough or not source.db:
        return timeline, {}
    try:
        found = read_db(source.db, log)
    except InputError as error:
        failures.append(error)
        return timeline, {}
    log.files.append(str(source.db))
    return found


def _vendor(source: Source, log: ReadLog, failures: list[InputError]) -> list[VendorStep]:
    try:
        if source.steps:
            steps = read_vendor_steps(source.steps, log)
            log.files.append(str(source.steps))
            return steps
        if source.analysis_db:
            steps = read_analysis_db(source.analysis_db, log)
            log.files.append(str(source.analysis_db))
            return steps
    except InputError as error:
        failures.append(error)
    return []


def _cluster(source: Source, log: ReadLog) -> list[DeviceProfile]:
    assert source.steps is not None
    ranks = read_cluster_steps(source.steps, log)
    log.files.append(str(source.steps))
    if not ranks:
        raise InputError(f"{source.steps}: row 2: no row of type 'rank'")
    return [
        DeviceProfile(str(source.root), rank, 0, None, Cores(), Tasks.empty(), vendor_steps=tuple(steps))
        for rank, steps in sorted(ranks.items())
    ]


def _join(
    kernels: dict[int | None, Tasks], timeline: Timeline | None, source: Source, log: ReadLog
) -> dict[int | None, Tasks]:
    """Join kernel tables with the timeline of the same device."""
    if timeline is None:
        return kernels
    if not kernels:
        return dict(timeline.devices)
    lost = any(loss.file in {str(p) for p in source.kernels} for loss in log.lost)
    joined: dict[int | None, Tasks] = {}
    for number, rows in kernels.items():
        name, seen = _same_device(number, timeline, alone=len(kernels) == 1)
        if seen is None:
            log.warn(f"{source.root}: the timeline has no device {number}; its launches are unknown")
            joined[number] = rows
        else:
            joined[number if number is not None else name] = _merge(rows, seen, lost, source, log)
    used = {_same_device(number, timeline, alone=len(kernels) == 1)[0] for number in kernels}
    for number in timeline.devices.keys() - used:
        log.warn(f"{source.root}: device {number} is only in the timeline; Block Dim and counters are unknown for it")
        joined.setdefault(number, timeline.devices[number])
    return joined


def _same_device(number: int | None, timeline: Timeline, *, alone: bool) -> tuple[int | None, Tasks | None]:
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
            f"{source.root}: only {matched} of {total} kernels of {source.kernels[0].name} are in the timeline: "
            "the two files are not of the same run, so launches are unknown"
        )
        return rows
    if matched < total:
        log.warn(f"{source.root}: {total - matched} of {total} kernels are not in the timeline; no launch known")
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
            f"{source.root}: {np.count_nonzero(unlisted)} kernels missing in the table were taken from the timeline; "
            "each counts for the step of the kernel before it, which may be another one"
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
