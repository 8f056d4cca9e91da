"""One device's steps summed: which operator, group, cause or reason has how much of their time, to the nanosecond."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import fsum
from typing import Final, get_args

import numpy as np
from msgspec import structs

from npuperf.analyze.counting import KINDS, Places, count_device, merge_counts, size_of, sync_keys
from npuperf.device.blame import NOTHING, OTHERS, Blamed, line_of
from npuperf.device.cube_work import CubeWork
from npuperf.device.host_events import CAUSES, CODE, RUNTIME_CALL
from npuperf.device.operators import core_labels, operator_keys
from npuperf.device.partition import owned, uncovered, window
from npuperf.device.rank_summary import RankSummary
from npuperf.device.study import Study
from npuperf.model.device import DeviceProfile
from npuperf.model.groups import distinct, group_sums, largest, numbered, sums_of
from npuperf.model.host import is_frame, shorten
from npuperf.model.intervals import Intervals, passed
from npuperf.model.labels import I64, Labels
from npuperf.model.parts import COARSENESS, Count, Digest, KeyedBy, Lack, Part, PartSum, TypeSteps
from npuperf.model.result import Device, Partition
from npuperf.model.tasks import Work

#: More different operators are told apart by less.
MOST_KEYS: Final = 5000
#: Different causes and names of waits for the host that are kept.
MOST_WAITS: Final = 2000
#: More types, or more of them in all steps, are cut to the costliest.
MOST_TYPES: Final = 2000
MOST_CELLS: Final = 200_000
KEPT_TYPES: Final = 500
#: Of so many of the longest sums the line of code is looked up, and of so many the torch operator.
_LINES: Final = 50
_ORIGINS: Final = 1000
_UNNAMED: Final = "N/A"
_LINE: Final = re.compile(r":\d+ (?=\S*$)")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


class DeviceDigest(Digest, frozen=True, kw_only=True):
    """The steps of one device; small enough to send.

    ``operators``: the type and the core of each operator of ``parts``, by its key: where there are too many on all
    devices less tells them apart.
    """

    operators: dict[str | None, tuple[str, str]]


def digest_device(
    study: Study, report: Device, summary: RankSummary | None, work: CubeWork | None = None
) -> DeviceDigest:
    """Sum the steps of a device that are judged, or without steps all of it that is judged.

    ``report``: the device as described, of one step where one was asked for; ``work``: of all tasks of the study.
    Communication is not split: one device alone cannot tell transfers from waits.
    """
    numbers, windows = judged_windows(report)
    split = [s.partition for s in report.whole_steps] or [report.window]
    places = Places(windows, np.array(numbers, np.int64), study.profile.host_steps)
    place = places.of_tasks(study.profile.tasks.start)
    keys = operator_keys(study.types, study.profile.tasks)
    compute, operators, keyed_by = _compute(study, windows, place, keys)
    exposed = sum(p.comm_exposed_ns for p in split)
    parts = [
        *compute,
        *_communication(study, windows, place, exposed, summary),
        *_other(study, windows, place),
        *_host_waits(study, windows),
        *_idle(study, report, windows, split),
    ]
    counts, untold = count_device(study, places, place, keys)
    # What changes the meaning of parts by not being recorded; calls are asked for where launches are there.
    lacks: list[Lack] = ["rows"] if study.profile.excerpt else []
    if not study.launches.known.any():
        lacks.append("launches")
    elif not study.profile.host.events.name.has(RUNTIME_CALL):
        lacks.append("calls")
    return DeviceDigest(
        devices=1,
        windows=len(split),
        steps=list(numbers),
        span_ns=[p.span_ns for p in split],
        total_ns=sum(p.span_ns for p in split),
        parts=parts,
        types=_types(study, place, places.size, work),
        counts=counts,
        keyed_by=keyed_by,
        uncounted=untold,
        lacks=lacks,
        bounded_by=study.bounded_by,
        operators=operators,
    )


def digest_vendor(report: Device) -> DeviceDigest:
    """Sum what the exporter says of the steps of a device without kernels."""
    split = [s.partition for s in report.whole_steps] or [report.partition]
    sums: tuple[tuple[Part, int], ...] = (
        ("compute", sum(p.compute_ns for p in split)),
        ("comm_unknown", sum(p.comm_exposed_ns for p in split)),
        ("unattributed", sum(p.unattributed_ns for p in split)),
    )
    spans = [p.compute_ns + p.comm_exposed_ns + p.idle_ns for p in split]
    return DeviceDigest(
        devices=1,
        windows=len(split),
        steps=[s.step for s in report.whole_steps],
        span_ns=spans,
        total_ns=sum(spans),
        parts=[PartSum(part=part, key=None, ns=ns, count=0) for part, ns in sums if ns],
        types=[],
        counts=[],
        uncounted=[*KINDS],
        operators={},
    )


def judged_windows(report: Device) -> tuple[tuple[int, ...], Intervals]:
    """Return the numbers and windows of the steps that are judged; without steps one window and no number."""
    steps = report.whole_steps
    if not steps:
        begin = report.origin_ns + (report.judged.start_ns if report.judged else 0)
        return (), window(begin, begin + report.window.span_ns)
    start = np.array([s.start_ns for s in steps], np.int64) + report.origin_ns
    return tuple(s.step for s in steps), Intervals(start, start + np.array([s.partition.span_ns for s in steps]))


def _compute(
    study: Study, windows: Intervals, place: I64, operators: Labels
) -> tuple[list[PartSum], dict[str | None, tuple[str, str]], KeyedBy]:
    """Sum compute by operator; return also each one's type and core, and what tells operators apart.

    A kernel that began before a window and reaches into it has time there, but no count. ``operators``: what each task
    is.
    """
    cores = core_labels(study.profile.tasks)
    rows, ns = _owned(study, Work.COMPUTE, place, Intervals.union(windows.start, windows.end))
    if not len(rows):
        return [], {}, "shapes"
    finest: tuple[KeyedBy, ...] = ("shapes", "type")
    for keyed_by in finest:
        keys = operators if keyed_by == "shapes" else study.types
        if len(keys.names) <= MOST_KEYS or len(distinct(keys.codes[rows])) <= MOST_KEYS:
            break
    else:
        keys, keyed_by = cores, "core"
    sums, first = _sums("compute", keys, rows, ns, place, study.profile)
    told = zip(sums, study.types.take(first).texts(), cores.take(first).texts(), strict=True)
    return sums, {s.key: (type_ or _UNNAMED, core or _UNNAMED) for s, type_, core in told}, keyed_by


def _owned(study: Study, work: Work, place: I64, free: Intervals) -> tuple[I64, I64]:
    """Return the tasks of a kind that begin in a window or own some of ``free``, and how much, ns."""
    tasks = study.profile.tasks
    rows = np.flatnonzero(tasks.work == work)
    ns = owned(tasks.start[rows], tasks.end[rows], free)
    there = (ns > 0) | (place[rows] >= 0)
    return rows[there], ns[there]


def _sums(
    part: Part, keys: Labels, rows: I64, ns: I64, place: I64, profile: DeviceProfile
) -> tuple[list[PartSum], I64]:
    """Sum what tasks own by key, and count those that begin in a window; return also the first task of each key."""
    used, which = numbered(keys.codes[rows])
    total = sums_of(which, ns, len(used))
    count = np.bincount(which[place[rows] >= 0], minlength=len(used)).tolist()
    first, known = np.empty(len(used), np.int64), np.full(len(used), -1, np.int64)
    first[which[::-1]] = rows[::-1]  # of several the last that is written stays
    launched = np.flatnonzero(profile.tasks.op[rows] >= 0)[::-1]
    known[which[launched]] = profile.tasks.op[rows[launched]]
    host = profile.host
    origins = {g: host.torch_op(int(known[g])) for g in largest(total, _ORIGINS).tolist()}
    lines = {g: host.code_line(int(known[g])) for g in largest(total, _LINES).tolist()}
    names = (*keys.names, _UNNAMED)  # the last place is that of -1
    return [
        PartSum(
            part=part, key=names[code], ns=ns, count=count[g], where=lines.get(g), torch_op=origins.get(g)
        )
        for g, (code, ns) in enumerate(zip(used.tolist(), total.tolist(), strict=True))
    ], first  # fmt: skip


def _communication(
    study: Study, windows: Intervals, place: I64, exposed: int, summary: RankSummary | None
) -> list[PartSum]:
    """Sum exposed communication by kind of group where operations tell it, else by type of the collective."""
    if summary is not None and (found := _by_group(summary, windows, exposed)) is not None:
        return found
    free = uncovered(windows, study.timeline.compute)
    rows, ns = _owned(study, Work.COMMUNICATION, place, free)
    return _sums("comm_unknown", study.types, rows, ns, place, study.profile)[0] if len(rows) else []


def _by_group(summary: RankSummary, windows: Intervals, exposed: int) -> list[PartSum] | None:
    """Sum by kind of group; None where no group is known, or operations say more than the tasks do.

    Groups are called by their kind, else by their size, else by what their collectives do: ids differ from run to run.
    """
    operations = summary.operations
    named = {group.id: group_kind(group.kind, group.ranks) for group in summary.groups}
    of_groups = Labels.of([named.get(id_) for id_ in operations.group.names])
    kinds = of_groups.take(operations.group.codes.astype(np.int64)).fill(operations.type)
    if not kinds.names:
        return None
    inside = Intervals.union(windows.start, windows.end)
    ns = inside.before(summary.exposed_end) - inside.before(summary.exposed_start)
    rest = exposed - int(ns.sum())
    if rest < 0:
        return None
    counted = places_of(operations.start, windows) >= 0
    codes = kinds.codes.astype(np.int64)
    found = []
    for code, name in enumerate((*kinds.names, None)):
        mine = codes == (code if name else -1)
        time = int(ns[mine[summary.exposed_op]].sum()) + (0 if name else rest)
        count = int(np.count_nonzero(mine & counted))
        if time or count:
            found.append(PartSum(part="comm_unknown", key=name, ns=time, count=count))
    return found


def group_kind(kind: str | None, ranks: Sequence[int]) -> str | None:
    """Return what is the same of a group in every run: its kind, else how many ranks it has; None: not recorded."""
    return kind or size_of(ranks)


def _other(study: Study, windows: Intervals, place: I64) -> list[PartSum]:
    """Sum other work by the direction of copies, else by type of task."""
    free = uncovered(windows, study.timeline.compute.joined(study.timeline.comm_exposed))
    rows, ns = _owned(study, Work.OTHER, place, free)
    keys = study.profile.tasks.copy.fill(study.types)
    return _sums("other", keys, rows, ns, place, study.profile)[0] if len(rows) else []


def _host_waits(study: Study, windows: Intervals) -> list[PartSum]:
    """Sum waits for the host by cause and name, as blame lists them, but all of them."""
    stretches = Intervals.union(windows.start, windows.end)
    pieces = [study.blamed.within(a, b) for a, b in zip(stretches.start.tolist(), stretches.end.tolist(), strict=True)]
    if not any(len(piece.start) for piece in pieces):
        return []
    blamed = pieces[0]
    if len(pieces) > 1:
        blamed = Blamed(*(np.concatenate([getattr(p, name) for p in pieces]) for name in Blamed.__struct_fields__))
    length, names = blamed.end - blamed.start, study.nesting.events.name
    keys, after = _wait_keys(blamed, names), _waited_before(study, blamed)
    sums = group_sums((keys.codes.astype(np.int64), after.codes.astype(np.int64)), length)
    costliest = set(largest(sums.total, _LINES).tolist())
    lines = study.profile.host.has_lines
    found = [
        PartSum(
            part="host_wait",
            key=keys[int(sums.largest[g])],
            ns=ns,
            count=count,
            where=line_of(blamed, sums.members(g), length, study.profile.host, study.nesting)
            if lines and g in costliest
            else None,
            after=after[int(sums.largest[g])],
        )
        for g, (ns, count) in enumerate(zip(sums.total.tolist(), sums.count.tolist(), strict=True))
    ]
    return fold_waits(found)


def _wait_keys(blamed: Blamed, names: Labels) -> Labels:
    """Name each piece: ``cause: name``, without what differs from run to run: line numbers and addresses."""
    width = len(names.names) + 1
    code = names.take(blamed.event).codes.astype(np.int64)
    code[blamed.cause == CODE["unrecorded"]] = -1
    used, which = numbered(blamed.cause.astype(np.int64) * width + code + 1)
    texts: list[str | None] = []
    for key in used.tolist():
        name = names.names[key % width - 1] if key % width else NOTHING
        # lines move when something above is edited, addresses are of one process
        stable = _ADDRESS.sub("", _LINE.sub(" ", shorten(name)) if is_frame(name) else name)
        texts.append(f"{CAUSES[key // width]}: {stable}")
    return Labels.of(texts).take(which)


def _waited_before(study: Study, blamed: Blamed) -> Labels:
    """Name for each piece the host's wait for the device in which the device fell idle, if it was in one."""
    syncs, gaps = study.syncs, study.timeline.idle.start
    if not len(syncs):
        return Labels.missing(len(blamed.start))
    began = gaps[passed(gaps, blamed.start) - 1] + study.launches.skew
    call = np.searchsorted(syncs.start, began, side="right") - 1
    return sync_keys(syncs, study.points).take(np.where(began <= syncs.end[call], call, -1))


def fold_waits(sums: Sequence[PartSum]) -> list[PartSum]:
    """Keep the longest waits; the rest of each cause is one."""
    if len(sums) <= MOST_WAITS:
        return [*sums]
    ordered = sorted(sums, key=lambda s: (-s.ns, s.key or ""))
    rest: dict[str, PartSum] = {}
    for one in ordered[MOST_WAITS:]:
        key = f"{(one.key or '').partition(':')[0]}: {OTHERS}"
        so_far = rest.get(key)
        ns, count = (one.ns, one.count) if so_far is None else (one.ns + so_far.ns, one.count + so_far.count)
        rest[key] = PartSum(part="host_wait", key=key, ns=ns, count=count)
    return [*ordered[:MOST_WAITS], *rest.values()]


def _idle(study: Study, report: Device, windows: Intervals, split: Sequence[Partition]) -> list[PartSum]:
    """Sum what of idle time is no wait for the host; dependencies by what was waited for."""
    idle = study.timeline.idle
    kinds: dict[str, tuple[int, int]] = {}
    for wait in report.dependencies:
        ns, count = kinds.get(wait.kind, (0, 0))
        kinds[wait.kind] = ns + wait.ns, count + wait.count
    rows: list[tuple[Part, str | None, int, int]] = [
        ("launch_latency", None, sum(p.launch_latency_ns for p in split), _begun(idle.launch_latency, windows)),
        ("unattributed", None, sum(p.unattributed_ns for p in split), _begun(idle.unattributed, windows)),
    ]
    waited = sum(p.dependency_wait_ns for p in split)
    if waited == sum(ns for ns, _ in kinds.values()):
        rows += [("dependency", kind, ns, count) for kind, (ns, count) in kinds.items()]
    else:  # what was waited for is known of the stretch from the first step to the last
        rows.append(("dependency", None, waited, _begun(idle.dependency_wait, windows)))
    return [PartSum(part=part, key=key, ns=ns, count=count) for part, key, ns, count in rows if ns]


def _begun(stretches: Intervals, windows: Intervals) -> int:
    return int(np.count_nonzero(places_of(stretches.start, windows) >= 0))


def places_of(time: I64, windows: Intervals) -> I64:
    """Return the window in which each time lies, -1 outside of all."""
    at = np.searchsorted(windows.start, time, side="right") - 1
    return np.where((at >= 0) & (time < windows.end[at]), at, -1)


def _types(study: Study, place: I64, size: int, work: CubeWork | None) -> list[TypeSteps]:
    """Sum the durations of kernels and collectives by type and the step in which they begin.

    These are the kernels' own, whatever runs beside them: they say whether an operator became slower, and may add up to
    more than the step.
    """
    tasks = study.profile.tasks
    rows = np.flatnonzero((tasks.work <= Work.COMMUNICATION) & (place >= 0))
    used, which = numbered(study.types.codes[rows])
    cells = which * size + place[rows]
    total = sums_of(cells, tasks.dur[rows], len(used) * size)
    table, count = (x.reshape(len(used), size) for x in (total, np.bincount(cells, minlength=len(total))))
    kept = range(len(used))
    if too_many(len(used), size):
        kept = largest(table.sum(axis=1), KEPT_TYPES).tolist()
    names = (*study.types.names, _UNNAMED)
    kernels = dict(zip(used.tolist(), count.sum(axis=1).tolist(), strict=True))
    flop = {} if work is None else _useful(work, study.types, place, kernels)
    return [
        TypeSteps(
            type=names[used[g]], ns=table[g].tolist(), count=count[g].tolist(), useful_flop=flop.get(int(used[g]))
        )
        for g in kept
    ]


def _useful(work: CubeWork, types: Labels, place: I64, kernels: dict[int, int]) -> dict[int, tuple[float, float]]:
    """Return the useful FLOP, of its own dtype, of types of which every kernel in the steps tells it, by their codes.

    ``kernels``: how many each type has there.
    """
    chosen = work.told & (place[work.task] >= 0)
    codes = types.codes[work.task[chosen]]
    told = np.bincount(codes, minlength=1)
    least, most = (np.bincount(codes, weights=(side / work.scale)[chosen]).tolist()
                   for side in (work.least, work.most))  # fmt: skip
    return {code: (least[code], most[code]) for code, n in enumerate(told.tolist()) if n and n == kernels.get(code)}


def too_many(types: int, steps: int) -> bool:
    """Tell whether types in all steps are too many to be listed."""
    return types > MOST_TYPES or types * steps > MOST_CELLS


# -- What all devices measured per step, as one: sums of parts that add up to the sum of the windows exactly.

_PARTS: Final[tuple[Part, ...]] = get_args(Part)


def merge_digests(devices: Sequence[DeviceDigest], exposed: Sequence[tuple[PartSum, ...] | None] = ()) -> Digest | None:
    """Add devices up, aligned by the numbers of their steps; None without a device.

    ``exposed``: what takes the place of the devices' exposed communication, where a job tells more of it. Where a
    device has no steps, nothing can be aligned: each is then one window.
    """
    if not devices:
        return None
    if any(not device.steps for device in devices):
        devices = [_as_one_window(device) for device in devices]
    steps = sorted({number for device in devices for number in device.steps})
    place = {number: i for i, number in enumerate(steps)}
    places = [[place[number] for number in device.steps] if steps else [0] for device in devices]
    spans, having = [0] * max(len(steps), 1), [0] * max(len(steps), 1)
    for device, at in zip(devices, places, strict=True):
        for i, span in zip(at, device.span_ns, strict=True):
            spans[i] += span
            having[i] += 1
    others: list[PartSum] = []
    for device, of_job in zip(devices, exposed or [None] * len(devices), strict=True):
        mine = [part for part in device.parts if part.part != "compute"]
        others += mine if of_job is None else [*(p for p in mine if p.part != "comm_unknown"), *of_job]
    others = _added(others)
    compute, keyed_by = _operators(devices)
    waits = fold_waits([part for part in others if part.part == "host_wait"])
    parts = [*compute, *waits, *(part for part in others if part.part != "host_wait")]
    counts, untold = merge_counts(devices, steps)
    return Digest(
        devices=len(devices),
        windows=sum(device.windows for device in devices),
        steps=steps,
        span_ns=[_rounded(total, n) for total, n in zip(spans, having, strict=True)],
        total_ns=sum(device.total_ns for device in devices),
        parts=sorted((p for p in parts if p.ns or p.count), key=lambda p: (_PARTS.index(p.part), -p.ns, p.key or "")),
        types=_types_of_all(devices, places, having),
        counts=counts,
        keyed_by=keyed_by,
        uncounted=untold,
        lacks=list(dict.fromkeys(lack for device in devices for lack in device.lacks)),
        bounded_by="host" if all(device.bounded_by == "host" for device in devices) else "device",
    )


def _sum_of(intervals: Sequence[tuple[float, float] | None]) -> tuple[float, float] | None:
    """Return the sum of intervals; None where one is not known."""
    known = [one for one in intervals if one is not None]
    return (fsum(low for low, _ in known), fsum(high for _, high in known)) if len(known) == len(intervals) else None


def _as_one_window(device: DeviceDigest) -> DeviceDigest:
    """Return a device with all its steps as one window that has no number."""
    if not device.steps:
        return device
    return structs.replace(
        device,
        windows=1,
        steps=[],
        span_ns=[device.total_ns],
        types=[structs.replace(t, ns=[sum(t.ns)], count=[sum(t.count)]) for t in device.types],
        counts=[
            Count(
                kind=count.kind,
                key=count.key,
                count=[sum(count.count)],
                bytes=None if count.bytes is None else [sum(count.bytes)],
                where=count.where,
            )
            for count in device.counts
        ],
    )


def _operators(devices: Sequence[DeviceDigest]) -> tuple[list[PartSum], KeyedBy]:
    """Add compute by operator, told apart as by the device that tells least, or by less where there are too many."""
    coarsest = max((device.keyed_by for device in devices), key=COARSENESS.index)
    found: list[PartSum] = []
    for keyed_by in COARSENESS[COARSENESS.index(coarsest) :]:
        coarsest = keyed_by
        found = _added(
            structs.replace(part, key=device.operators[part.key][keyed_by == "core"])
            if keyed_by != "shapes" and part.key is not None
            else part
            for device in devices
            for part in device.parts
            if part.part == "compute"
        )
        if len(found) <= MOST_KEYS:
            break
    return found, coarsest


def _added(parts: Iterable[PartSum]) -> list[PartSum]:
    """Add parts of one key; code line and torch operator are those of the longer one."""
    sums: dict[tuple[Part, str | None, str | None], PartSum] = {}
    for new in parts:
        row = (new.part, new.key, new.after)
        there = sums.get(row)
        if there is None:
            sums[row] = new
            continue
        long, short = (there, new) if there.ns >= new.ns else (new, there)
        sums[row] = PartSum(
            part=new.part,
            key=new.key,
            ns=there.ns + new.ns,
            count=there.count + new.count,
            where=long.where or short.where,
            torch_op=long.torch_op or short.torch_op,
            after=new.after,
        )
    return [*sums.values()]


def _rounded(total: int, parts: int) -> int:
    return (2 * total + parts) // (2 * parts)


def _types_of_all(
    devices: Sequence[DeviceDigest], places: Sequence[Sequence[int]], having: Sequence[int]
) -> list[TypeSteps]:
    """Return times and counts of every type in every step: means over the devices that have the step, and sums.

    ``places``: where each device's steps stand among all; ``having``: how many devices have each step.
    """
    size = len(having)
    sums: dict[str, tuple[list[int], list[int]]] = {}
    flop: dict[str, list[tuple[float, float] | None]] = {}
    for device, at in zip(devices, places, strict=True):
        for one in device.types:
            flop.setdefault(one.type, []).append(one.useful_flop)
            ns, count = sums.setdefault(one.type, ([0] * size, [0] * size))
            for i, time, kernels in zip(at, one.ns, one.count, strict=True):
                ns[i] += time
                count[i] += kernels
    ordered = sorted(sums.items(), key=lambda item: (-sum(item[1][0]), item[0]))
    if too_many(len(ordered), size):
        ordered = ordered[:KEPT_TYPES]
    return [
        TypeSteps(
            type=type_,
            ns=[_rounded(t, n) for t, n in zip(ns, having, strict=True)],
            count=count,
            useful_flop=_sum_of(flop[type_]),
        )
        for type_, (ns, count) in ordered
    ]
