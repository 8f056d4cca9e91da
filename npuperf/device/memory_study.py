"""One device's memory: its counters explained by its blocks, the peak as an exact sum, and what each block is for.

With S(t) the blocks that are recorded and live at t, and A(t) the allocator's counter, A - S only ever falls: by blocks
from before the window that are given back. Where it rises, rows are missing. So at the peak

    peak = before - freed since + alive

to the byte. Allocations happen on the host, so steps are told by the host's ranges where these are recorded.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, get_args

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, say, say_n
from npuperf.device.study import Study
from npuperf.model.chip import hbm_of_soc
from npuperf.model.device import DeviceProfile
from npuperf.model.device_memory import Counters, DeviceMemory, MemoryBlocks, PlannedBlocks, Samples
from npuperf.model.groups import alike, distinct, first_rows, sums_of, tally
from npuperf.model.host import Lines
from npuperf.model.intervals import Intervals, passed
from npuperf.model.labels import I64, Columns, Labels, Mask
from npuperf.model.memory_result import (
    Alive,
    Leak,
    Memory,
    MemoryBlock,
    MemoryClass,
    MemoryCurve,
    MemoryGraph,
    MemoryStep,
    ModuleBytes,
    PlannedOperator,
    TrainingPart,
)
from npuperf.model.tasks import NO_TIME

CLASSES: Final[tuple[MemoryClass, ...]] = get_args(MemoryClass)
LASTING, ACTIVATION, GRADIENT, TEMPORARY, UNRELEASED, WORKSPACE, KV_CACHE, GRAPH_POOL, UNKNOWN = range(len(CLASSES))
#: By their places among those of training.
_PARTS: Final[tuple[TrainingPart, ...]] = get_args(TrainingPart)
FORWARD, BACKWARD = map(_PARTS.index, ("forward", "backward"))
#: Lists of a document: groups of blocks that lived at the peak, and its largest blocks.
_GROUPS, _BLOCKS = 200, 50
#: Operators of a graph that are named.
_OPERATORS: Final = 5
#: Slices of the curve.
_SLICES: Final = 240
#: A leak shows in steps but the last, of which it is not known what it keeps: so many are needed.
_LEAST_STEPS: Final = 3
#: A KV cache has at least so many blocks of one size (a layer has one or two).
_LAYERS: Final = 8
#: Counters that are looked at at once.
_AT_ONCE: Final = 1 << 16
_FOREVER: Final = np.iinfo(np.int64).max


class Purpose(Columns, frozen=True):
    """What is known of each block: ``kind`` (of CLASSES), whether that is ``inferred``, the ``step`` that asked for it
    (place among the steps, -1 outside), the ``part`` of training in which it was asked for and given back (of PARTS,
    -1 unknown), and the nn.Module (or user's range) and line of code that asked for it.
    """

    kind: I64
    inferred: Mask
    step: I64
    asked: I64
    given_back: I64
    module: Labels
    where: Labels


class MemoryStudy(Struct, frozen=True):
    """What is worked out once of a device's memory.

    ``before``: what was allocated before the first counter beside the blocks that are recorded, bytes. ``moves``: the
    counters at which that moved, and ``moved``: by how much; it rises where rows are missing. ``peak``: the counter
    with the most allocated, None without any. ``steps``: those of the host, or of the device alone (``timed`` says
    which), with their ``numbers``. ``doubt``: why blocks and counters do not explain each other.
    """

    memory: DeviceMemory
    purpose: Purpose
    before: int
    moves: I64
    moved: I64
    peak: int | None
    steps: Intervals
    numbers: I64
    timed: str
    doubt: Message | None

    @property
    def blocks(self) -> MemoryBlocks:
        """Every block of PyTorch's allocator that is recorded."""
        return self.memory.blocks

    def beside(self, places: I64) -> I64:
        """Return what is allocated at some counters beside the blocks that are recorded, bytes."""
        return np.append(self.before, self.before + np.cumsum(self.moved))[passed(self.moves, places)]

    def fallen(self, place: int) -> int:
        """Return by how much what was there before has fallen up to a counter, bytes."""
        return -int(np.minimum(self.moved[self.moves <= place], 0).sum())

    def rises(self, place: int | None = None) -> int:
        """Return how often it rose up to a counter, or in all."""
        moved = self.moved if place is None else self.moved[self.moves <= place]
        return int(np.count_nonzero(moved > 0))

    def last_uses(self) -> I64:
        """Return when each block was used last, NO_TIME for those of which no use is recorded."""
        accesses, found = self.memory.accesses, np.full(len(self.blocks), NO_TIME)
        found[accesses.block] = accesses.time  # of several the last one stays, as they are in order
        return found

    def alive_at(self, time: int) -> I64:
        """Return the blocks that live just after a time, in order of their beginning."""
        return np.flatnonzero((self.blocks.start <= time) & (ends_of(self.blocks) > time))

    def at_counter(self, place: int) -> I64:
        """Return the blocks that live just after the event of a counter."""
        return self.alive_at(int(self.memory.counters.time[place]))


def ends_of(blocks: MemoryBlocks) -> I64:
    """Return when each block was given back, the end of time for those that were not."""
    return np.where(blocks.freed == NO_TIME, _FOREVER, blocks.freed)


def last_of_each(times: I64) -> I64:
    """Return the last row of each of some ordered times: of several events only what that leaves is known for sure."""
    return np.flatnonzero(np.append(times[1:] != times[:-1], True)[: len(times)])


class Held:
    """Bytes of blocks with start ≤ time < end; ``start`` need not be in order."""

    def __init__(self, start: I64, end: I64, size: I64) -> None:
        self._starts, self._ends = _sums(start, size), _sums(end, size)

    def at(self, times: I64) -> I64:
        """Return how many bytes live at each of some ordered times."""
        begun, ended = (sums.take(passed(at, times)) for at, sums in (self._starts, self._ends))
        return begun - ended


def _sums(at: I64, size: I64) -> tuple[I64, I64]:
    """Return times in order, and the bytes up to each: before the first, after the first, …"""
    order = np.argsort(at, kind="stable") if (at[1:] < at[:-1]).any() else None
    ordered, sizes = (at, size) if order is None else (at[order], size[order])
    sums = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=sums[1:])
    return ordered, sums


def held(start: I64, end: I64, size: I64, times: I64) -> I64:
    """Return the bytes of blocks with start ≤ time < end, for ordered ``times``; ``start`` need not be in order."""
    if len(times) > _AT_ONCE or len(size) <= _AT_ONCE:
        return Held(start, end, size).at(times)
    change = np.zeros(len(times) + 1, np.int64)  # of few times, without putting the blocks in order
    for begin in range(0, len(size), _AT_ONCE):
        own = slice(begin, begin + _AT_ONCE)
        change += sums_of(np.searchsorted(times, start[own]), size[own], len(change))
        change -= sums_of(np.searchsorted(times, end[own]), size[own], len(change))
    return np.cumsum(change[:-1])


def _moves(counters: Counters, blocks: MemoryBlocks) -> tuple[int, I64, I64]:
    """Return what is allocated at first beside the blocks that are recorded, the counters at which it moves, and how.

    Of several events at one time only what the last one leaves is known.
    """
    if not len(counters):
        return 0, np.empty(0, np.int64), np.empty(0, np.int64)
    lives, time = Held(blocks.start, ends_of(blocks), blocks.size), counters.time
    first = int(np.searchsorted(time, time[0], side="right")) - 1
    before = counters.allocated[first : first + 1] - lives.at(time[:1])
    found, at_first = [], int(before[0])
    for begin in range(0, len(time), _AT_ONCE):  # what is worked out on the way takes little memory
        own = time[begin : begin + _AT_ONCE + 1]
        last = last_of_each(own)
        last = begin + last[last < _AT_ONCE]
        beside = counters.allocated[last] - lives.at(time[last])
        moved = np.diff(beside, prepend=before)
        before = beside[-1:] if len(beside) else before
        some = np.flatnonzero(moved)
        found.append((last[some], moved[some]))
    moves, moved = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return at_first, moves, moved


def study_memory(profile: DeviceProfile, study: Study | None) -> MemoryStudy | None:
    """Work out what is known of a device's memory; None where nothing is recorded. ``study``: of its tasks, if any."""
    memory = profile.memory
    if memory is None:
        return None
    steps, numbers, timed = _steps(profile, study, memory)
    blocks, counters = memory.blocks, memory.counters
    before, moves, moved = _moves(counters, blocks)
    return MemoryStudy(
        memory=memory,
        purpose=_purposes(memory, profile, study, steps),
        before=before,
        moves=moves,
        moved=moved,
        peak=int(counters.allocated.argmax()) if len(counters) else None,
        steps=steps,
        numbers=numbers,
        timed=timed,
        doubt=_doubt(memory, int(np.count_nonzero(moved > 0))),
    )


def _doubt(memory: DeviceMemory, rises: int) -> Message | None:
    """Say why blocks and counters do not explain each other."""
    if memory.doubt is not None:
        return memory.doubt
    if not len(memory.counters):
        return say("no counters of PyTorch's allocator (memory_record.csv, operator_memory.csv: record with --memory)")
    if not len(memory.blocks):
        return say("no blocks are recorded (operator_memory.csv is missing, or empty)")
    if rises:
        return say_n("memory rises {n} time without a row that says for what: rows are missing",
                     "memory rises {n} times without a row that says for what: rows are missing", rises)  # fmt: skip
    return None


def _steps(profile: DeviceProfile, study: Study | None, memory: DeviceMemory) -> tuple[Intervals, I64, str]:
    """Return the steps in which blocks are asked for, their numbers, and who tells them."""
    none = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))
    if not memory.time_known:
        return none, np.empty(0, np.int64), "none"
    host = profile.host_steps
    if len(host):
        order = np.argsort(host.start, kind="stable")
        start = host.start[order]
        # what runs between two steps belongs to the one before
        end = np.append(start[1:], max(int(host.end.max()), int(start[-1])))
        return Intervals(start, np.maximum(end, start)), host.number[order], "host"
    if study is not None and len(study.of_tasks):
        return study.of_tasks, study.step_numbers, "device"
    return none, np.empty(0, np.int64), "none"


def place_in(steps: Intervals, times: I64) -> I64:
    """Return which step contains each time, -1 outside of all."""
    at = passed(steps.start, times) - 1
    return np.where((at >= 0) & (times < np.append(steps.end, 0)[at]), at, -1)


# -- What blocks are for.


def _purposes(memory: DeviceMemory, profile: DeviceProfile, study: Study | None, steps: Intervals) -> Purpose:
    blocks = memory.blocks
    n, end = len(blocks), ends_of(blocks)
    asked = given_back = np.full(n, -1)
    module, where = Labels.missing(n), blocks.where
    if study is not None and memory.time_known:
        asked, given_back, module = _parts(blocks, study)
        if not where.names and profile.host.has_lines:
            where = _lines(blocks, profile)
    step = place_in(steps, blocks.start)
    never = end == _FOREVER
    kind = np.where(never, UNRELEASED, UNKNOWN)
    inferred = np.zeros(n, np.bool_)
    if len(steps):
        same = (step >= 0) & (step == place_in(steps, np.where(never, -1, end)))
        kind[same & ~never] = TEMPORARY
    known = (asked >= 0) & (given_back >= 0) & ~never & (kind == TEMPORARY)
    kind[known & (asked == FORWARD) & (given_back > FORWARD)] = ACTIVATION
    kind[known & (asked == BACKWARD) & (given_back > BACKWARD)] = GRADIENT
    inferred |= known
    lasting = _through_a_step(blocks.start, end, steps)
    kind[lasting] = LASTING
    inferred &= ~lasting
    works = blocks.name.flag(["workspace" in name.lower() for name in blocks.name.names])
    kind[works] = WORKSPACE
    if study is not None and not study.sections.part.names:
        kind[_of_kv_cache(blocks, lasting, steps)] = KV_CACHE
        inferred |= kind == KV_CACHE
    if len(memory.of_graphs):
        kind[memory.of_graphs] = GRAPH_POOL
        inferred &= ~memory.of_graphs
    return Purpose(kind, inferred, step, asked, given_back, module, where)


def _through_a_step(start: I64, end: I64, steps: Intervals) -> Mask:
    """Tell blocks that live from the beginning of a step to its end."""
    if not len(steps):
        return np.zeros(len(start), np.bool_)
    first = passed(steps.start, start, before=True)  # the first step that begins at or after the block
    return (first < len(steps)) & (end >= np.append(steps.end, 0)[np.minimum(first, len(steps))])


def _of_kv_cache(blocks: MemoryBlocks, lasting: Mask, steps: Intervals) -> Mask:
    """Tell blocks that were asked for once, before the first step, many of them of one size."""
    early = lasting & (blocks.start < steps.start[0]) if len(steps) else lasting
    sizes, counts, _ = tally(blocks.size[early], blocks.size[early])
    many = sizes[counts >= _LAYERS]
    return early & np.isin(blocks.size, many)


def _parts(blocks: MemoryBlocks, study: Study) -> tuple[I64, I64, Labels]:
    """Return the part of training that asked for each block, the one that gave it back, and the module around it.

    Asked for it has the operator that is under way and launches something, else the one that launches next; given back
    it has what launched last. Times are those of torch operators, as queues launch later.
    """
    tasks, ops = study.profile.tasks, study.profile.host.ops
    start = study.profile.host.submitted(tasks)
    end = np.where(tasks.op >= 0, ops.end[tasks.op], tasks.launch_end) if len(ops) else tasks.launch_end
    rows = np.flatnonzero(start != NO_TIME)
    rows = rows[np.argsort(start[rows], kind="stable")]
    begun = passed(start[rows], blocks.start) - 1
    within = (begun >= 0) & (np.append(end[rows], NO_TIME)[begun] >= blocks.start)
    asking = np.where(within, begun, np.where(begun + 1 < len(rows), begun + 1, -1))
    never = blocks.freed == NO_TIME
    ending = np.where(never, -1, passed(start[rows], np.where(never, 0, blocks.freed)) - 1)
    part = np.append(study.sections.part.codes[rows], -1).astype(np.int64)
    return part[asking], part[ending], study.sections.range.take(rows).take(asking)


def _lines(blocks: MemoryBlocks, profile: DeviceProfile) -> Labels:
    """Return the line of code around the operator that asked for each block, by its name and time."""
    ops = profile.host.ops
    codes, _ = Labels.shared([ops.name, blocks.name])
    op = np.full(len(blocks), -1)
    order = np.lexsort((ops.start, codes[0]))
    keys, starts = codes[0][order], ops.start[order]
    for code in distinct(codes[1]).tolist():
        first, last = np.searchsorted(keys, [code, code + 1]).tolist()
        mine = np.flatnonzero(codes[1] == code)
        if code < 0 or first == last:
            continue
        at = first + np.searchsorted(starts[first:last], blocks.start[mine], side="right") - 1
        row = order[np.maximum(at, first)]
        op[mine] = np.where((at >= first) & (ops.end[row] >= blocks.start[mine]), row, -1)
    return Lines.of(profile.host).of_ops(op)


# -- To the document.


def describe_memory(study: MemoryStudy | None, origin: int, soc: str | None) -> Memory | None:
    """Put together what a document says of a device's memory; ``origin``: the device's, epoch ns."""
    if study is None:
        return None
    memory, peak = study.memory, study.peak
    counters = memory.counters
    at = None if peak is None else int(counters.time[peak])
    allocated, active, reserved = (
        None if peak is None or column[peak] < 0 else int(column[peak])
        for column in (counters.allocated, counters.active, counters.reserved)
    )
    alive = np.empty(0, np.int64) if peak is None else study.at_counter(peak)
    alive_bytes = int(memory.blocks.size[alive].sum())
    told = study.doubt is None or (memory.doubt is None and len(memory.blocks) > 0 and not study.rises(peak or 0))
    told &= peak is not None
    before = study.before
    freed = 0 if peak is None else study.fallen(peak)
    process = _sample(memory.process, at)
    outside = process - reserved if process is not None and reserved is not None else None
    modules = _modules(memory.modules, at)
    hbm = memory.hbm or hbm_of_soc(soc or "")
    operator = memory.blocks.name[int(alive[-1])] if len(alive) and memory.blocks.start[alive[-1]] == at else None
    at_peak = -1 if at is None else int(place_in(study.steps, np.array([at]))[0])
    part = int(study.purpose.asked[alive[-1]]) if operator is not None else -1
    steps = _describe_steps(study, origin)
    leaks, leak = _leaks(study)
    starts = [s.start_bytes for s in steps]
    return Memory(
        source=memory.source,
        timed=memory.time_known,
        peak_bytes=allocated,
        before_bytes=before if told else None,
        freed_bytes=freed if told else None,
        alive_bytes=alive_bytes if told else None,
        residual_bytes=(allocated or 0) - (before - freed + alive_bytes) if told else None,
        peak_at_ns=None if at is None or not memory.time_known else at - origin,
        peak_step=int(study.numbers[at_peak]) if at_peak >= 0 else None,
        peak_step_inferred=at_peak >= 0 and study.timed == "device",
        peak_part=None if part < 0 else _PARTS[part],
        peak_operator=operator,
        reserved_bytes=reserved,
        reserved_most_bytes=int(counters.reserved.max()) if len(counters) else None,
        cached_bytes=_difference(reserved, allocated if active is None else active),
        waiting_bytes=_difference(active, allocated),
        outside_bytes=outside,
        modules=modules,
        unnamed_bytes=None if outside is None else outside - sum(m.bytes for m in modules),
        process_bytes=process,
        hbm_bytes=hbm,
        headroom_bytes=_difference(hbm, process),
        lost_rows=study.rises(),
        split="measured" if told else "cannot_tell",
        reason=None if told else study.doubt,
        fragments_share=_fragments(study),
        leak_bytes_per_step=leak,
        growth_bytes_per_step=(starts[-1] - starts[0]) // (len(starts) - 1) if len(starts) >= _LEAST_STEPS else None,
        blocks_recorded=len(memory.blocks),
        alive=_alive(study, alive) if told else [],
        blocks=_largest(study, alive, origin) if told else [],
        steps=steps,
        leaks=leaks,
        curve=_curve(study, origin),
        graphs=_graphs(memory.planned),
    )


def _difference(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else whole - part


def _sample(samples: Samples, at: int | None) -> int | None:
    """Return the last sample before a time, the first one where none is; without a time the greatest."""
    if not len(samples):
        return None
    if at is None:
        return int(samples.size.max())
    return int(samples.size[max(int(np.searchsorted(samples.time, at, side="right")) - 1, 0)])


def _modules(samples: Samples, at: int | None) -> list[ModuleBytes]:
    """Return what each module has at a time, the largest first, of those that ever have any."""
    found = []
    for code, name in enumerate(samples.name.names):
        own = samples.filter(samples.name.codes == code)
        most = int(own.size.max(initial=0))
        if most:
            found.append(ModuleBytes(name=name, bytes=_sample(own, at) or 0, most_bytes=most))
    return sorted(found, key=lambda m: (-m.bytes, -m.most_bytes, m.name))


def _graphs(planned: PlannedBlocks) -> list[MemoryGraph]:
    """Return what each graph has planned at most, the largest first: a block lives through the last that has it."""
    group = alike(planned.graph, planned.model.codes) if len(planned) else planned.graph
    found = []
    for one in range(int(group.max(initial=-1)) + 1):
        own = planned.filter(group == one)
        nodes = np.unique(own.start)
        lives = held(own.start, own.end + 1, own.size, nodes)
        node = int(nodes[lives.argmax()])
        there = own.filter((own.start <= node) & (own.end >= node))
        names, sizes = np.unique(there.name.codes), np.zeros(len(own.name.names) + 1, np.int64)
        np.add.at(sizes, there.name.codes, there.size)  # of -1, no name, the last one
        largest = names[np.argsort(-sizes[names], kind="stable")][:_OPERATORS].tolist()
        model = own.model[0]
        found.append(
            MemoryGraph(
                model=None if model == "0" else model,
                graph=int(own.graph[0]) if own.graph[0] >= 0 else None,
                blocks=len(own),
                peak_bytes=int(lives.max()),
                node=node,
                largest=[
                    PlannedOperator(operator=there.name.names[code] if code >= 0 else None, bytes=int(sizes[code]))
                    for code in largest
                ],
            )
        )
    return sorted(found, key=lambda graph: -graph.peak_bytes)


def _fragments(study: MemoryStudy) -> float | None:
    """Return the least share of the reserved maximum that no block fills while it is reserved."""
    counters = study.memory.counters
    most = int(counters.reserved.max(initial=0))
    if most <= 0:
        return None
    return 1 - int(counters.allocated.max(where=counters.reserved == most, initial=0)) / most


def _alive(study: MemoryStudy, rows: I64) -> list[Alive]:
    """Sum blocks up by class, operator, module and line; the rows add up to all of them."""
    blocks, purpose = study.blocks.take(rows), study.purpose.take(rows)
    if not len(rows):
        return []
    group = alike(
        purpose.kind, purpose.inferred.astype(np.int8), blocks.name.codes, purpose.where.codes, purpose.module.codes
    )
    counts = np.bincount(group)
    first, sizes = first_rows(group, len(counts)), sums_of(group, blocks.size, len(counts))
    order = np.lexsort((first, -sizes))
    told = [
        Alive(
            class_=CLASSES[purpose.kind[first[i]]],
            inferred=bool(purpose.inferred[first[i]]),
            operator=blocks.name[int(first[i])],
            where=purpose.where[int(first[i])],
            module=purpose.module[int(first[i])],
            count=int(counts[i]),
            bytes=int(sizes[i]),
        )
        for i in order[:_GROUPS]
    ]
    rest = order[_GROUPS:]
    for kind in distinct(purpose.kind[first[rest]]).tolist():
        mine = rest[purpose.kind[first[rest]] == kind]
        told.append(
            Alive(
                class_=CLASSES[kind],
                inferred=bool(purpose.inferred[first[mine]].any()),
                operator=None,
                where=None,
                module=None,
                count=int(counts[mine].sum()),
                bytes=int(sizes[mine].sum()),
            )
        )
    return told


def _largest(study: MemoryStudy, rows: I64, origin: int) -> list[MemoryBlock]:
    chosen = rows[np.lexsort((rows, -study.blocks.size[rows]))[:_BLOCKS]]
    blocks, purpose = study.blocks.take(chosen), study.purpose.take(chosen)
    return [
        MemoryBlock(
            class_=CLASSES[purpose.kind[i]],
            operator=blocks.name[i],
            where=purpose.where[i],
            module=purpose.module[i],
            bytes=int(blocks.size[i]),
            start_ns=int(blocks.start[i]) - origin,
            end_ns=None if blocks.freed[i] == NO_TIME else int(blocks.freed[i]) - origin,
            step=int(study.numbers[purpose.step[i]]) if purpose.step[i] >= 0 else None,
        )
        for i in range(len(chosen))
    ]


def _describe_steps(study: MemoryStudy, origin: int) -> list[MemoryStep]:
    """Tell what each step did with memory; steps in which nothing is recorded are left out."""
    counters, blocks, purpose = study.memory.counters, study.blocks, study.purpose
    if not len(counters):
        return []
    begin, end = (passed(counters.time, times, before=True) for times in (study.steps.start, study.steps.end))
    kept = blocks.freed == NO_TIME
    told = []
    for place, (first, last) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        if first >= last:
            continue
        own, mine = counters.allocated[first:last], purpose.step == place
        # what was allocated when it began: after the event before, or before its own first event where there is none
        start = int(counters.allocated[first - 1]) if first else study.before
        told.append(
            MemoryStep(
                step=int(study.numbers[place]),
                start_ns=int(study.steps.start[place]) - origin,
                peak_bytes=int(own.max()),
                start_bytes=start,
                least_bytes=min(start, int(own.min())),
                blocks=int(np.count_nonzero(mine)),
                asked_bytes=int(blocks.size[mine].sum()),
                kept_bytes=int(blocks.size[mine & kept].sum()),
            )
        )
    return told


def _leaks(study: MemoryStudy) -> tuple[list[Leak], int | None]:
    """Return what every step but the last keeps, by operator and line; None where there are too few steps to tell.

    What only some steps keep is no leak: an optimizer's state, a cache that fills up.
    """
    count = len(study.steps) - 1
    if count + 1 < _LEAST_STEPS or study.doubt is not None:
        return [], None
    step, blocks = study.purpose.step, study.blocks
    rows = np.flatnonzero((blocks.freed == NO_TIME) & (step >= 0) & (step < count))
    if not len(rows):
        return [], 0
    group = alike(blocks.name.codes[rows], study.purpose.where.codes[rows])
    first = first_rows(group, int(group.max()) + 1)
    sums, counts = np.zeros((len(first), count), np.int64), np.zeros((len(first), count), np.int64)
    np.add.at(sums, (group, step[rows]), blocks.size[rows])
    np.add.at(counts, (group, step[rows]), 1)
    least = sums.min(axis=1)
    found = [
        Leak(
            operator=blocks.name[int(rows[first[i]])],
            where=study.purpose.where[int(rows[first[i]])],
            count=int(counts[i].min()),
            bytes=int(least[i]),
        )
        for i in np.lexsort((first, -least)).tolist()
        if least[i]
    ]
    return found, int(least.sum())


def _curve(study: MemoryStudy, origin: int) -> MemoryCurve | None:
    """Cut the window into equal slices: the most allocated in each, and at that instant of what classes."""
    counters, process = study.memory.counters, study.memory.process
    if not len(counters):
        return None
    start, last = int(counters.time[0]), int(counters.time[-1])
    width = max(-(-(last - start + 1) // _SLICES), 1)
    slices = -(-(last - start + 1) // width)
    borders = start + width * np.arange(slices + 1)
    at = passed(counters.time, borders, before=True)
    # a slice begins with what the one before has left
    spans = [(max(first - 1, 0), max(end, first, 1)) for first, end in pairwise(at.tolist())]
    most = np.array([first + int(counters.allocated[first:end].argmax()) for first, end in spans], np.int64)
    reserved = [int(counters.reserved[first:end].max()) for first, end in spans]
    sampled = passed(process.time, borders[1:]) - 1
    whole = np.append(process.size, -1)[sampled].tolist() if len(process) else [-1] * slices
    times, blocks = counters.time[most], study.blocks
    end, kind = ends_of(blocks), study.purpose.kind
    classes = {
        CLASSES[code]: held(blocks.start[kind == code], end[kind == code], blocks.size[kind == code], times).tolist()
        for code in distinct(kind).tolist()
    }
    return MemoryCurve(
        start_ns=start - origin,
        slice_ns=width,
        allocated=counters.allocated[most].tolist(),
        reserved=reserved,
        process=whole,
        classes=classes,
    )
