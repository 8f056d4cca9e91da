"""What happens how often in each step: exact, so that it can be locked, and found again in another recording."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final, get_args

import numpy as np
from msgspec import Struct

from npuperf.device.host_events import CODE, NONE, RUNTIME_CALL, WAITING, Nesting
from npuperf.device.operators import torch_operator_keys
from npuperf.device.study import Study
from npuperf.device.syncs import SyncPoint, Syncs, copy_directions, find_syncs, sync_points
from npuperf.model.communication import ProcessGroup
from npuperf.model.device import HostProfile, HostSteps
from npuperf.model.groups import numbered, sums_of
from npuperf.model.host import HostOps
from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.names import DEQUEUED, names_for, pattern_for
from npuperf.model.parts import Count, CountKind, Digest
from npuperf.model.tasks import Tasks, Work

#: More different keys of one kind, or more cells (keys × steps), are told apart by less: operators by their type.
MOST_KEYS: Final = 5000
MOST_CELLS: Final = 1_000_000
#: So many lines of code are named where one thing comes from several, of so many first times that it happened; to
#: find one takes a tenth of a millisecond, so that in all not more are looked up.
_LINES: Final = 3
_TIMES: Final = 16
_LOOKED_UP: Final = 500
KINDS: Final[tuple[CountKind, ...]] = get_args(CountKind)
OF_KERNELS: Final[tuple[CountKind, ...]] = ("launch", "aicpu", "collective", "copy")
OF_CALLS: Final[tuple[CountKind, ...]] = ("sync", "compile", "graph_replay", "allocation")
#: Runs of whole graphs: captured ones that are replayed, and such as GE or TorchAir executes.
_REPLAY: Final = names_for("replay", "graph_run")
#: Calls that take memory from the driver or give it back: most requests the allocator answers itself.
_ALLOCATION: Final = re.compile(pattern_for("allocate", "cuda", "hip", "acl", "torch_npu"))
#: Transfers that are parts of collectives.
_OF_COLLECTIVES: Final = re.compile(r"^SDMA", re.I)
_DIRECTIONS: Final = {"htod": "host to device", "dtoh": "device to host", "dtod": "device to device"}


class Places(Struct, frozen=True):
    """The steps that are counted: windows of device time, and their numbers, empty where none is recorded."""

    windows: Intervals
    numbers: I64
    host_steps: HostSteps

    @property
    def size(self) -> int:
        """How long a list of counts is."""
        return max(len(self.numbers), 1)

    def of_tasks(self, start: I64) -> I64:
        """Return for each time, in order, the step in whose window it lies, -1 outside of all."""
        place = np.full(len(start), -1, np.int64)
        edges = np.searchsorted(start, np.stack([self.windows.start, self.windows.end], axis=1))
        for step, (first, stop) in enumerate(edges.tolist()):
            place[first:stop] = step if len(self.numbers) else 0
        return place

    def of_calls(self, start: I64) -> I64:
        """Return the step of each call: as the host ran it where that is recorded; without steps all is one."""
        if not len(self.numbers):
            return np.zeros(len(start), np.int64)
        if not np.isin(self.host_steps.number, self.numbers).any():
            order = np.argsort(start, kind="stable")
            place = np.empty(len(start), np.int64)
            place[order] = self.of_tasks(start[order])
            return place
        number, order = self.host_steps.at(start), np.argsort(self.numbers, kind="stable")
        at = np.minimum(np.searchsorted(self.numbers[order], number), len(order) - 1)
        return np.where(self.numbers[order[at]] == number, order[at], -1)


def count_device(study: Study, places: Places, place: I64, keys: Labels) -> tuple[list[Count], list[CountKind]]:
    """Count what one device and its host did in each step, and name the kinds that the recording does not tell.

    ``places``: the steps, in the order in which they are counted; where none is recorded what the windows hold is
    counted as one. A kernel belongs to the window in which it begins (``place``, of each task), a call to the step in
    which the host made it. A host that drives several devices counts with each of them. ``keys``: each task's operator.
    """
    counts, untold = _count_tasks(study, places, place, keys)
    if study.profile.host.events.name.has(RUNTIME_CALL):
        counts += count_calls(study.nesting, study.syncs, study.points, study.profile.host, places)
    else:
        untold += OF_CALLS
    blocks = _blocks(study, places)
    return [*counts, *blocks], [*untold, *(() if blocks else ("block",)), "host_operator"]


def _blocks(study: Study, places: Places) -> list[Count]:
    """Count blocks of memory by the operator that asked for them, with their bytes; none where not all are known."""
    memory = study.profile.memory
    if memory is None or memory.doubt is not None or not memory.time_known:
        return []
    blocks = memory.blocks
    return tallied("block", blocks.name, places.of_calls(blocks.start), places.size, moved=blocks.size)[0]


def merge_counts(devices: Sequence[Digest], steps: Sequence[int]) -> tuple[list[Count], list[CountKind]]:
    """Add what devices counted, aligned by the numbers of their steps: those of ``steps`` that all of it is about.

    Without steps each device has one place. A kind that one device cannot tell is not told of all: a part would look
    like the whole. Bytes are told of what has them everywhere.
    """
    untold = {kind for device in devices for kind in device.uncounted}
    place = {number: i for i, number in enumerate(steps)}
    size = max(len(steps), 1)
    sums: dict[tuple[CountKind, str], Count] = {}
    for device in devices:
        at = [place.get(number, -1) for number in device.steps] if steps else [0]
        for count in device.counts:
            if count.kind in untold:
                continue
            nothing = Count(kind=count.kind, key=count.key, count=[0] * size, bytes=[0] * size)
            before = sums.get((count.kind, count.key), nothing)
            known = before.bytes is not None and count.bytes is not None
            sums[count.kind, count.key] = Count(
                kind=count.kind,
                key=count.key,
                count=_added(before.count, count.count, at),
                bytes=_added(before.bytes or [], count.bytes or [], at) if known else None,
                where=before.where or count.where,
            )
    counts = sorted(sums.values(), key=lambda c: (KINDS.index(c.kind), c.key))
    return [c for c in counts if any(c.count)], [kind for kind in KINDS if kind in untold]


def _added(to: list[int], values: list[int], at: list[int]) -> list[int]:
    """Return a list with values added, each at its place; -1 is none."""
    found = to.copy()
    for i, value in zip(at, values, strict=True):
        if i >= 0:
            found[i] += value
    return found


def tallied(
    kind: CountKind, keys: Labels, place: I64, size: int, *, moved: I64 | None = None, less: Labels | None = None
) -> tuple[list[Count], I64, Labels]:
    """Count the keys per place; return also which row has each key first, and the keys as they were told apart.

    Rows without a key or place do not count. ``moved``: bytes of each row, -1 unknown; ``less``: keys that tell less
    apart, for where there are too many.
    """
    chosen = (place >= 0) & keys.known()
    codes = keys.codes[chosen]
    used, which = numbered(codes)
    if less is not None and (len(used) > MOST_KEYS or len(used) * size > MOST_CELLS):
        return tallied(kind, less, place, size, moved=moved)
    cells = which * size + place[chosen]
    table = np.bincount(cells, minlength=len(used) * size).reshape(len(used), size).tolist()
    first = np.full(len(used), -1, np.int64)
    first[which[::-1]] = np.flatnonzero(chosen)[::-1]  # of several the last that is written stays
    texts = [keys.names[code] for code in used.tolist()]
    bytes_: list[list[int] | None] = [None] * len(used)
    if moved is not None:
        own = moved[chosen]
        unknown = np.zeros(len(used), np.bool_)  # where those of one row are
        unknown[which[own < 0]] = True
        sums = sums_of(cells, np.maximum(own, 0), len(used) * size).reshape(len(used), size).tolist()
        bytes_ = [None if no else row for no, row in zip(unknown.tolist(), sums, strict=True)]
    counts = [Count(kind=kind, key=k, count=n, bytes=b) for k, n, b in zip(texts, table, bytes_, strict=True)]
    return counts, first, keys


def _with_where(counts: list[Count], lines: Iterable[str | None]) -> list[Count]:
    return [
        Count(kind=c.kind, key=c.key, count=c.count, bytes=c.bytes, where=line)
        for c, line in zip(counts, lines, strict=True)
    ]


def _count_tasks(study: Study, places: Places, place: I64, keys: Labels) -> tuple[list[Count], list[CountKind]]:
    """Count kernels, those on AI CPU, collectives and copies."""
    profile, tasks, types = study.profile, study.profile.tasks, study.types
    if profile.excerpt:
        return [], [*OF_KERNELS]
    compute = tasks.work == Work.COMPUTE
    counts, untold = _launches(study, keys, np.where(compute, place, -1), places.size), list[CountKind]()
    on_cpu = tasks.core.flag([core == "AI_CPU" for core in tasks.core.names])
    if not profile.kineto and not tasks.core.known()[compute].all():
        untold.append("aicpu")
    elif on_cpu.any():
        counts += tallied("aicpu", types, np.where(compute & on_cpu, place, -1), places.size)[0]
    counts += _collectives(study, place, places)
    if len(profile.host.events) or (tasks.work >= Work.OTHER).any():
        rows = np.flatnonzero((tasks.work == Work.OTHER) & (place >= 0))
        # by their direction where it is recorded, else as the task; parts of collectives have no name
        told = tasks.copy.take(rows).compact().fill(tasks.name.take(rows).compact())
        kinds = zip(copy_directions(told.names), told.names, strict=True)
        plain = [None if _OF_COLLECTIVES.match(n) else _DIRECTIONS.get(k, n) for k, n in kinds]
        copies = Labels.of(plain).take(told.codes.astype(np.int64))
        moved = tasks.moved[rows]  # where no bytes are recorded at all, none are told
        counts += tallied("copy", copies, place[rows], places.size, moved=moved if (moved >= 0).any() else None)[0]
    else:
        untold.append("copy")
    return counts, untold


def _launches(study: Study, keys: Labels, place: I64, size: int) -> list[Count]:
    """Count kernels by operator, each with the line of code of the first one whose operator is known."""
    tasks, host = study.profile.tasks, study.profile.host
    counts, _, keys = tallied("launch", keys, place, size, less=study.types)
    if not host.has_lines:
        return counts
    known = np.flatnonzero((place >= 0) & (tasks.op >= 0) & keys.known())
    first = np.full(len(keys.names), -1, np.int64)
    first[keys.codes[known[::-1]]] = known[::-1]
    looked = np.sort(first[first >= 0])[:_LOOKED_UP]
    lines = {keys[row]: host.code_line(int(tasks.op[row])) for row in looked.tolist()}
    return _with_where(counts, [lines.get(count.key) for count in counts])


def _collectives(study: Study, place: I64, places: Places) -> list[Count]:
    """Count collectives by type and kind of group, with what they moved where files have that of each."""
    found = study.profile.communication
    ops = found.operations
    if not len(ops):
        mine = study.profile.tasks.work == Work.COMMUNICATION
        return tallied("collective", study.types, np.where(mine, place, -1), places.size)[0]
    group = {one.id: group_name(one) for one in found.groups}
    kinds = Labels(ops.group.codes, tuple(group.get(id_, "") for id_ in ops.group.names))
    moved = np.full(len(ops), -1, np.int64)  # by each operation, over all transports
    moved[found.bandwidth.op] = 0
    np.add.at(moved, found.bandwidth.op, found.bandwidth.bytes)
    return tallied("collective", _joined(ops.type, kinds), places.of_tasks(ops.start), places.size, moved=moved)[0]


def group_name(group: ProcessGroup) -> str:
    """Return what of a group is the same in every run: its kind, and how many ranks it has; ids differ."""
    ranks = size_of(group.ranks) or ""
    return ", ".join(filter(None, (group.kind, ranks)))


def size_of(ranks: Sequence[int]) -> str | None:
    """Return how many ranks a group has, in words; None: they are not recorded."""
    return f"{len(ranks)} rank{'s' if len(ranks) > 1 else ''}" if ranks else None


def _joined(type: Labels, kind: Labels) -> Labels:
    width = len(kind.names) + 1
    used, codes = numbered(type.codes.astype(np.int64) * width + kind.codes + 1)
    texts = []
    for key in used.tolist():
        name = type.names[key // width] if key >= 0 else None
        inside = kind.names[key % width - 1] if key % width else ""
        texts.append(f"{name} ({inside})" if name and inside else name)
    return Labels.of(texts).take(codes)


def count_calls(nesting: Nesting, syncs: Syncs, points: list[SyncPoint], host: HostOps, places: Places) -> list[Count]:
    """Count calls of the host: waits for the device, compilations, replays of graphs, memory of the driver."""
    keys = sync_keys(syncs, points)
    named = np.flatnonzero(keys.known())
    names = nesting.events.name
    replays, memory = (names.flag([bool(p.search(n)) for n in names.names]) for p in (_REPLAY, _ALLOCATION))
    return [
        *counted_calls("sync", keys.take(named), syncs.thread[named], syncs.start[named], host, places),
        *count_compilations(nesting, host, places),
        *_marked("graph_replay", nesting, replays, host, places),
        *_marked("allocation", nesting, memory, host, places),
    ]


def count_compilations(nesting: Nesting, host: HostOps, places: Places) -> list[Count]:
    """Count compilations, each with the operator that the task queue's consumer took, where there is one."""
    return _marked("compile", nesting, nesting.causes == CODE["compile"], host, places)


def sync_keys(syncs: Syncs, points: list[SyncPoint]) -> Labels:
    """Name each wait for the device by call, torch operator around it, and what it awaits.

    The profiler's own, and what only may be one, have no name.
    """
    counted = [p for p in points if p.purpose != "profiler" and WAITING.search(p.name)]
    named = Labels.of([f"{p.name}{f' in {p.op}' if p.op else ''} ({p.kind})" for p in counted])
    place = np.full(len(syncs), -1, np.int64)
    for at, point in enumerate(counted):
        place[point.calls] = at
    return named.take(place)


def _marked(kind: CountKind, nesting: Nesting, marked: Mask, host: HostOps, places: Places) -> list[Count]:
    """Count the marked events that lie in no other marked one, by name."""
    rows = np.flatnonzero(marked)
    rows = rows[nesting.nearest(nesting.parent[rows], marked) == NONE]
    events = nesting.events
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    # each with the operator that the task queue's consumer took, where there is one
    names = events.name
    queued = [DEQUEUED.match(n) for n in names.names]
    around = names.take(nesting.nearest(rows, names.flag([m is not None for m in queued])))
    operator = Labels(around.codes, tuple(m.group(1) if m else n for m, n in zip(queued, names.names, strict=True)))
    keys = _joined(names.take(rows), operator.compact())
    return counted_calls(kind, keys, events.thread[rows], events.start[rows], host, places)


def counted_calls(
    kind: CountKind,
    keys: Labels,
    thread: I64,
    start: I64,
    host: HostOps,
    places: Places,
    less: Labels | None = None,
) -> list[Count]:
    """Count calls, ordered by start; each key with the first few different lines of code that it comes from."""
    place = places.of_calls(start)
    counts, _, keys = tallied(kind, keys, place, places.size, less=less)
    if not host.has_lines or not counts:
        return counts
    inside = np.flatnonzero((place >= 0) & keys.known())
    lines: dict[int, dict[str, None]] = {}
    times = [0] * len(keys.names)
    left = _LOOKED_UP
    for row, code in zip(inside.tolist(), keys.codes[inside].tolist(), strict=True):
        if times[code] < _TIMES and left:
            times[code] += 1
            left -= 1
            if line := host.line_at(int(thread[row]), int(start[row])):
                lines.setdefault(code, {}).setdefault(line)
    named = {keys.names[code]: ", ".join([*found][:_LINES]) for code, found in lines.items()}
    return _with_where(counts, [named.get(count.key) for count in counts])


# -- Counts of a run without any device: torch operators and calls of the host, so that a lock needs no NPU.

#: Events of operators that are none: marks, and what the backward pass puts around its operators.
_NO_OPERATORS: Final = ("autograd::", "torch::autograd", "profiler::")


def count_host(profile: HostProfile, nesting: Nesting, step: int | None = None) -> Digest | None:
    """Count torch operators by what went into them, nested ones as well, and what else the host recorded.

    ``nesting``: of the host's events; ``step``: only this one; None where it is not there.
    """
    steps, ranges = profile.host_steps, profile.host_steps.ranges()
    numbers = np.array([*ranges], np.int64)
    if step is not None:
        numbers = numbers[numbers == step]
        if not len(numbers):
            return None
    none = np.empty(0, np.int64)
    places = Places(Intervals(none, none), numbers, steps)
    operators, host = profile.operators, profile.host
    names = operators.name
    called = names.flag(["::" in n and not n.startswith(_NO_OPERATORS) for n in names.names])
    keys = torch_operator_keys(operators)
    keys, plain = (Labels(np.where(called, x.codes, np.int32(-1)), x.names) for x in (keys, names))
    counts = counted_calls("host_operator", keys, operators.thread, operators.start, host, places, less=plain)
    told: tuple[CountKind, ...] = ("compile",)  # torch names what it compiles among its operators
    if host.events.name.has(RUNTIME_CALL):
        syncs = find_syncs(nesting)
        counts += count_calls(nesting, syncs, sync_points(syncs, nesting, host, Tasks.empty()), host, places)
        told = OF_CALLS
    else:
        counts += count_compilations(nesting, host, places)
    if profile.kineto:  # there is no AI CPU to tell of
        told = (*told, "aicpu")
    lengths = [end - begin for begin, end in (ranges[number] for number in numbers.tolist())]
    untold = [kind for kind in (*OF_KERNELS, *OF_CALLS, "block") if kind not in told]
    return host_alone(numbers.tolist(), lengths, counts, untold)


def digest_of_hosts(hosts: Sequence[Digest]) -> Digest | None:
    """Return the digest of a run without any device: what its processes counted, and how long their steps were.

    None where nothing was recorded.
    """
    if not hosts:
        return None
    lengths: dict[int, list[int]] = {}
    for host in hosts:
        for number, length in zip(host.steps, host.span_ns, strict=True):
            lengths.setdefault(number, []).append(length)
    steps = sorted(lengths)
    means = [round(fmean(lengths[number])) for number in steps]
    return host_alone(steps, means, *merge_counts(hosts, steps))


def host_alone(steps: list[int], span_ns: list[int], counts: list[Count], uncounted: list[CountKind]) -> Digest:
    """Return a digest without any time of a device, so that no window is split into parts."""
    return Digest(
        devices=0,
        windows=0,
        steps=steps,
        span_ns=span_ns,
        total_ns=0,
        parts=[],
        types=[],
        counts=counts,
        uncounted=uncounted,
    )
