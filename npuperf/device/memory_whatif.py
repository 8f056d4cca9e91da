"""What-ifs of memory: blocks changed, and the curve drawn anew; the new peak is its highest instant.

With A the allocator's counter and S the blocks that live, A - S is what lies beside them, and stays as it is: the new
curve is A - S + S' at every counter, and wherever a changed block begins. Where A - S ever rises, rows are missing and
nothing is replayed.

A gain goes from what is certain to what can be: of classes that are inferred nothing is certain.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from itertools import pairwise
from math import prod
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, say, say_n, series, size
from npuperf.base.units import MIB
from npuperf.device.memory_study import (
    ACTIVATION,
    BACKWARD,
    FORWARD,
    GRADIENT,
    LASTING,
    TEMPORARY,
    UNRELEASED,
    MemoryStudy,
    ends_of,
    held,
    last_of_each,
)
from npuperf.device.sections import PARTS
from npuperf.device.study import Study
from npuperf.device.whatif import Change, parse
from npuperf.model.device import DeviceProfile
from npuperf.model.device_memory import PADDED, ROUNDED
from npuperf.model.intervals import passed
from npuperf.model.labels import I64, Labels, Mask, Operands
from npuperf.model.tasks import NO_TIME, Work

NOT_RECORDED: Final = say("memory is not recorded: record with npuperf profile --memory")
#: Operators that are named where an expression matches none.
_NEAR: Final = 3
#: MB of each of the two buffers of a communicator (CANN, environment variables: HCCL_BUFFSIZE), where it is not set.
HCCL_BUFFER_MB: Final = 200
#: Bytes of an element, by the dtypes of kernels.
_WIDTHS: Final = {
    "FLOAT64": 8, "INT64": 8, "UINT64": 8, "COMPLEX64": 8, "FLOAT32": 4, "INT32": 4, "UINT32": 4, "FLOAT16": 2,
    "BF16": 2, "INT16": 2, "UINT16": 2, "INT8": 1, "UINT8": 1, "BOOL": 1, "HIFLOAT8": 1, "FLOAT8_E4M3FN": 1,
    "FLOAT8_E5M2": 1,
}  # fmt: skip


class Lives(Struct, frozen=True):
    """Blocks as a change leaves them: a row of ``block`` (its place among those recorded), from when to when, bytes."""

    block: I64
    start: I64
    end: I64
    size: I64

    def ended(self, last: I64) -> Lives:
        """Return the same with blocks that live no longer than just after a time of each (NO_TIME: as they do)."""
        until = np.where(last == NO_TIME, NO_TIME, last + 1)[self.block]
        end = np.where(until == NO_TIME, self.end, np.minimum(self.end, until))
        return Lives(self.block, self.start, end, self.size)

    def scaled(self, chosen: Mask, factor: float) -> Lives:
        """Return the same with some blocks of another size, rounded up as the allocator does."""
        scaled = np.ceil(self.size * factor / ROUNDED).astype(np.int64) * ROUNDED
        return Lives(self.block, self.start, self.end, np.where(chosen[self.block], scaled, self.size))

    def interrupted(self, since: I64, until: I64) -> Lives:
        """Return the same with blocks (``since`` of each: not NO_TIME) that do not live for a while."""
        cut, back = since[self.block], until[self.block]
        again = np.flatnonzero((cut != NO_TIME) & (self.start < cut) & (back < self.end))
        end = self.end.copy()
        end[again] = cut[again]
        block, size = self.block[again], self.size[again]
        return Lives(
            np.append(self.block, block),
            np.append(self.start, back[again]),
            np.append(end, self.end[again]),
            np.append(self.size, size),
        )


class MemoryReplay(Struct, frozen=True):
    """The ``recorded`` curve at ``times``, to be drawn anew: what lies ``beside`` the blocks; its ``peak``."""

    lives: Lives
    times: I64
    recorded: I64
    beside: I64
    peak: int

    @classmethod
    def of(cls, study: MemoryStudy) -> MemoryReplay | Message:
        """Set up the replay, or say why the recorded curve does not follow from the blocks.

        It does where what lies beside them only ever falls, which the study has looked at.
        """
        if study.doubt is not None:
            return study.doubt
        counters, blocks = study.memory.counters, study.blocks
        last = last_of_each(counters.time)
        recorded, peak = counters.allocated[last], int(counters.allocated.max())
        if int(recorded.max()) != peak:
            return say("several events of the allocator have the time of the peak, so their order is not known")
        lives = Lives(np.arange(len(blocks)), blocks.start, ends_of(blocks), blocks.size)
        return cls(lives, counters.time[last], recorded, study.beside(last), peak)

    def peak_of(self, lives: Lives) -> int:
        """Return the highest instant of the curve with other blocks, bytes."""
        fresh = lives.start[len(self.lives.start) :]
        times = np.union1d(self.times, fresh) if len(fresh) else self.times
        beside = self.beside[np.maximum(passed(self.times, times) - 1, 0)]
        return int((beside + held(lives.start, lives.end, lives.size, times)).max())

    def without(self, rows: I64) -> int:
        """Return by how much the peak is lower where some blocks are not there, bytes."""
        lives = self.lives
        gone = held(lives.start[rows], lives.end[rows], lives.size[rows], self.times)
        return self.peak - int((self.recorded - gone).max())


class Lowered(Struct, frozen=True):
    """A changed peak, bytes: as recorded (None: not known), as the model has it, and the gain, least and most."""

    recorded: int | None
    peak: int | None
    gain: tuple[int, int]
    assumes: list[Message]


def lower(
    memory: MemoryStudy | None, profile: DeviceProfile, study: Study | None, expression: str
) -> Lowered | Message:
    """Replay a device's memory with changes, or say why nothing is told; ``study``: of its tasks, if it has any."""
    if memory is None:
        return NOT_RECORDED
    changes = parse(expression)
    if changes[0].target == "hccl_buffer":
        return _with_buffers(memory, profile, int(changes[0].factor))
    replay = MemoryReplay.of(memory)
    if isinstance(replay, Message):
        return replay
    certain, possible, assumes = replay.lives, replay.lives, []
    for change in changes:
        made = _CHANGES[change.target](memory, study, change)
        if isinstance(made, Message):
            return made
        certain, possible = made.certain(certain), made.possible(possible)
        assumes += [one for one in made.assumes if one not in assumes]
    peak = replay.peak_of(possible)
    gains = (replay.peak - replay.peak_of(certain), replay.peak - peak)
    return Lowered(replay.peak, peak, (min(gains), max(gains)), assumes)


class _Made(Struct, frozen=True):
    """What a change does to blocks for certain, what it can do at most, and what that presupposes."""

    certain: Callable[[Lives], Lives]
    possible: Callable[[Lives], Lives]
    assumes: list[Message]


def _same(lives: Lives) -> Lives:
    return lives


# -- Blocks of an operator, and of all that grows with the batch.


def _operators(memory: MemoryStudy, _: Study | None, change: Change) -> _Made | Message:
    names, wanted = memory.blocks.name, (change.name or "").lower()
    match = re.compile(translate(wanted)).match
    chosen = names.flag([match(name.lower()) is not None for name in names.names])
    if not chosen.any():
        near = [name for name in names.names if wanted.strip("*") in name.lower()][:_NEAR]
        if near:
            return say("no operator that asks for memory matches {name}; did you mean {types}?", name=change.name,
                       types=series(near))  # fmt: skip
        return say("no operator that asks for memory matches {name}", name=change.name)

    def scale(lives: Lives) -> Lives:
        return lives.scaled(chosen, change.factor)

    told = say_n("{n} block changes, and nothing else", "{n} blocks change, and nothing else",
                 int(np.count_nonzero(chosen)))  # fmt: skip
    return _Made(scale, scale, [told])


def _batch(memory: MemoryStudy, _: Study | None, change: Change) -> _Made | Message:
    """Scale what is classed as activations and temporaries of forward and backward.

    Of what its two ends tell, activations grow with the batch for certain where they are not of a parameter's size:
    copies of parameters in another dtype are kept for backward, too.
    """
    purpose, sizes = memory.purpose, memory.blocks.size
    within = np.isin(purpose.asked, (FORWARD, BACKWARD)) | (purpose.asked < 0)
    chosen = ((purpose.kind == ACTIVATION) | (purpose.kind == TEMPORARY)) & within
    if not chosen.any():
        return say("no block is known as an activation or a temporary one: steps are needed, and what launched kernels "
                   "in them (npuperf profile --activities cpu,npu)")  # fmt: skip
    of_parameters = np.unique(sizes[np.isin(purpose.kind, (GRADIENT, LASTING, UNRELEASED))])
    known = purpose.kind == ACTIVATION if len(of_parameters) else np.zeros(len(sizes), np.bool_)
    for alike in (of_parameters, of_parameters * 2, of_parameters // 2):  # of another dtype, give or take its padding
        known &= ~_near(sizes, alike, 2 * ROUNDED)
    parts = [say("activations and temporary blocks of forward and backward grow with the batch, and nothing else does")]
    if (chosen & ~known).any():
        parts.append(say("which blocks these are is inferred from what was launched beside their two ends"))
    return _Made(lambda b: b.scaled(known, change.factor), lambda b: b.scaled(chosen, change.factor), parts)


def _near(values: I64, ordered: I64, within: int) -> Mask:
    """Tell which values have one of some ordered ones so near."""
    at = np.searchsorted(ordered, values - within)
    return np.append(ordered, np.iinfo(np.int64).max)[at] <= values + within


# -- Activations that are computed anew in backward.


def _recomputed(memory: MemoryStudy, _: Study | None, change: Change) -> _Made | Message:
    """Give activations back where the stretch that asked for them ends, and ask again before backward is through it.

    A stretch: blocks one after the other of one module, range or line. It is computed anew at once: when what came
    after it in forward has been given back.
    """
    purpose = memory.purpose
    activations = np.flatnonzero((purpose.kind == ACTIVATION) & (purpose.asked == FORWARD))
    if not len(activations):
        return say("no block is known to live from forward to backward: that takes steps, launches and torch operators "
                   "(npuperf profile --activities cpu,npu)")  # fmt: skip
    places = next((p for p in (purpose.module, purpose.where) if p.take(activations).known().any()), None)
    if places is None:
        return say("which part asked for a block is not recorded: record with --modules or --stack, or mark ranges")
    wanted = (change.name or "").lower()
    match = re.compile(translate(wanted)).match
    names = [wanted in tuple(PARTS)[:1] or match(name.lower()) is not None for name in places.names]
    chosen = places.flag(names) & (purpose.kind == ACTIVATION) & (purpose.asked == FORWARD)
    if not chosen.any():
        near = [places.names[code] for code in np.unique(places.codes[activations]).tolist() if code >= 0][:_NEAR]
        return say("no activation is of {name}; activations are of {types}", name=change.name, types=series(near))
    since, until, kept = _gaps(memory, places, chosen)
    keeps = since.copy()
    keeps[kept] = NO_TIME
    return _Made(
        lambda lives: lives.interrupted(keeps, until),
        lambda lives: lives.interrupted(since, until),
        [
            say("each stretch of a part is computed anew at once, when backward gets to it, which takes its time"),
            say("it keeps nothing but its input: between nothing and the largest block of the stretch"),
            say("what was kept for backward is told by what was launched beside the two ends of blocks"),
        ],
    )


def _gaps(memory: MemoryStudy, places: Labels, chosen: Mask) -> tuple[I64, I64, I64]:
    """Return from when to when each block is not kept (NO_TIME: it is), and the largest block of each stretch."""
    blocks, purpose = memory.blocks, memory.purpose
    since = np.full(len(blocks), NO_TIME)
    until, largest = since.copy(), list[int]()
    forward = np.flatnonzero((purpose.asked == FORWARD) & (purpose.step >= 0))
    key = np.stack([purpose.step[forward], places.codes[forward]])
    border = np.flatnonzero(np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0)))
    backward = np.flatnonzero((purpose.asked == BACKWARD) & (purpose.step >= 0))
    steps, at = np.unique(purpose.step[backward], return_index=True)
    begun = dict(zip(steps.tolist(), blocks.start[backward[at]].tolist(), strict=True))
    given_back = np.sort(blocks.freed[purpose.kind == ACTIVATION])
    following = np.append(blocks.start[1:], NO_TIME)  # what is asked for after a stretch
    for first, end in pairwise([*border.tolist(), len(forward)]):
        rows = forward[first:end]
        over, rows = int(following[rows[-1]]), rows[chosen[rows]]
        if not len(rows):
            continue
        due = int(blocks.freed[rows].min())
        before = int(np.append(NO_TIME, given_back)[np.searchsorted(given_back, due)])
        again = max(before, min(begun.get(int(purpose.step[rows[0]]), NO_TIME), due - 1))
        if over == NO_TIME or again <= over:
            continue
        since[rows], until[rows] = over, again
        largest.append(int(rows[blocks.size[rows].argmax()]))
    return since, until, np.array(largest, np.int64)


# -- Blocks that end when nothing reads them any more.


def _at_last_use(memory: MemoryStudy, study: Study | None, _: Change) -> _Made | Message:
    """End blocks with the last kernel that has an input of their size, where no other block of that size lives.

    All others end with the first kernel after they were asked for: more than that is not known of them. No addresses
    are recorded, so for certain nothing is gained. Where accesses are, which only msmemscope records, they tell.
    """
    if len(memory.memory.accesses):
        last = memory.last_uses()
        whole = np.where(memory.blocks.freed == NO_TIME, NO_TIME, last)  # of the others uses may follow the window
        unused = int(np.count_nonzero(last == NO_TIME))
        return _Made(lambda b: b.ended(whole), lambda b: b.ended(last), [
            say("whatever uses a block is among its recorded accesses (those of torch's and ATB's operators are)"),
            *([say_n("{n} block without any access stays as it is", "{n} blocks without any access stay as they are",
                     unused)] if unused else []),
        ])  # fmt: skip
    reads = None if study is None or not memory.memory.time_known else _reads(study)
    if reads is None:
        return say("which kernels read a block is not recorded: that takes launches and input shapes (npuperf profile "
                   "--activities cpu,npu --level 1 --shapes)")  # fmt: skip
    launched, at, sizes = reads
    blocks, end = memory.blocks, ends_of(memory.blocks)
    last = np.append(launched, NO_TIME)[passed(launched, blocks.start, before=True)]
    order = np.lexsort((at, sizes))
    at, sizes = at[order], sizes[order]
    by_size = np.argsort(blocks.size, kind="stable")
    ordered = blocks.size[by_size]
    for one in np.intersect1d(sizes, ordered).tolist():
        rows = by_size[slice(*np.searchsorted(ordered, [one, one + 1]).tolist())]
        reach = np.append(0, np.maximum.accumulate(end[rows])[:-1])
        alone = rows[(reach <= blocks.start[rows]) & (np.append(blocks.start[rows][1:], NO_TIME) >= end[rows])]
        times = at[slice(*np.searchsorted(sizes, [one, one + 1]).tolist())]
        seen = passed(times, np.minimum(end[alone], launched[-1] + 1), before=True) - 1
        found = np.append(times, -1)[seen]
        last[alone] = np.where((seen >= 0) & (found >= blocks.start[alone]), found, last[alone])
    return _Made(_same, lambda b: b.ended(last), [
        say("no addresses are recorded: a block of a size that no other has is read by kernels with such an input, and "
            "others may not be read again at all, so nothing of this is certain")
    ])  # fmt: skip


def _reads(study: Study) -> tuple[I64, I64, I64] | None:
    """Return when kernels are launched, in order, and when one has an input of how many bytes, as blocks have them."""
    tasks = study.profile.tasks
    time = study.profile.host.submitted(tasks)
    rows = np.flatnonzero((time != NO_TIME) & (tasks.work != Work.CONTROL))
    shapes, operands = tasks.shapes.take(rows), tasks.operands.take(rows)
    if not shapes.known().any() or not operands.known().any():
        return None
    width = len(operands.names) + 1
    pairs, place = np.unique(shapes.codes.astype(np.int64) * width + operands.codes, return_inverse=True)
    inputs = [_bytes_of(shapes, operands, *divmod(int(pair), width)) for pair in pairs.tolist()]
    counts = np.array([len(one) for one in inputs])
    at = np.repeat(time[rows], counts[place])
    flat = np.concatenate([np.array(one, np.int64) for one in inputs])
    begins = np.append(0, np.cumsum(counts))[place]
    of_each = np.arange(len(at)) - np.repeat(np.cumsum(counts[place]) - counts[place], counts[place])
    return np.sort(time[rows]), at, flat[np.repeat(begins, counts[place]) + of_each]


def _bytes_of(shapes: Labels, operands: Labels, shape: int, operand: int) -> list[int]:
    """Return the bytes of blocks that hold the inputs of a kernel, with and without the allocator's padding."""
    if shape < 0 or operand >= len(operands.names):
        return []
    cells = [[*map(int, re.findall(r"\d+", cell))] for cell in shapes.names[shape].split(";")]
    found = list[int]()
    for dims, dtype in zip(cells, Operands.parse(operands.names[operand]).dtypes, strict=False):
        width = _WIDTHS.get(dtype)
        if width and dims:
            found += {-(-(prod(dims) * width + more) // ROUNDED) * ROUNDED for more in (0, PADDED)}
    return [*dict.fromkeys(found)]


_CHANGES: Final[dict[str, Callable[[MemoryStudy, Study | None, Change], _Made | Message]]] = {
    "block": _operators,
    "batch": _batch,
    "recompute": _recomputed,
    "free_at_last_use": _at_last_use,
}


# -- HCCL's buffers, which lie outside of PyTorch's memory.


class Buffers(Struct, frozen=True):
    """What HCCL has of a device, bytes, for how many communicators that were used, and the MB of their buffers.

    ``mb``: as set, or the default (``assumed``), None where HCCL's memory does not agree with that.
    """

    bytes: int
    communicators: int
    mb: int | None
    assumed: bool

    def saved_with(self, mb: int) -> tuple[int, int]:
        """Return by how much less HCCL has with buffers of so many MB, in bytes, least and most.

        Each communicator has two. Where their size is not known it is so much at most as HCCL has; there may be
        communicators that were not used while it was recorded.
        """
        now, then = 2 * (self.mb or 0) * MIB, 2 * mb * MIB
        if not now:
            return 0, max(self.bytes - self.communicators * then, 0)
        gains = (self.communicators * (now - then), self.bytes // now * (now - then))
        return min(gains), max(gains)


def find_buffers(memory: MemoryStudy, profile: DeviceProfile) -> Buffers | Message:
    """Tell how HCCL's memory is made up of the buffers of communicators, or why that is not known."""
    samples = memory.memory.modules
    hccl = samples.size[samples.name.flag([name.upper() == "HCCL" for name in samples.name.names])]
    if not len(hccl) or not int(hccl.max()):
        return say("what HCCL has of the device is not recorded (npu_module_mem.csv: record with npuperf profile "
                   "--memory)")  # fmt: skip
    groups = profile.communication.operations.group
    count = len(np.unique(groups.codes[groups.known()]))
    if not count:
        return say("communicators are not recorded: record with npuperf profile --level 1")
    value = profile.context.environment.get("HCCL_BUFFSIZE")
    given = int(value) if value and re.fullmatch(r"[1-9]\d{0,5}", value.strip()) else None
    mb, total = given or HCCL_BUFFER_MB, int(hccl.max())
    return Buffers(total, count, mb if total >= 2 * count * mb * MIB else None, given is None and value != "")


def _with_buffers(memory: MemoryStudy, profile: DeviceProfile, mb: int) -> Lowered | Message:
    found = find_buffers(memory, profile)
    if isinstance(found, Message):
        return found
    process = memory.memory.process
    now = int(process.size.max()) if len(process) else None
    gain = found.saved_with(mb)
    each = size(found.bytes // found.communicators)
    if found.mb is None:
        told = say("the size of buffers is not known: HCCL has {each} for each communicator", each=each)
    elif found.assumed:
        told = say("HCCL_BUFFSIZE is not recorded: the default of {mb} MB, with which HCCL's memory agrees",
                   mb=found.mb)  # fmt: skip
    else:
        told = say("buffers have {mb} MB", mb=found.mb)
    assumes = [
        told,
        say_n("{n} communicator was used, and has two buffers", "{n} communicators were used; each has two buffers",
              found.communicators),
        say("operations that move more than a buffer holds may take longer"),
    ]  # fmt: skip
    model = gain[1] if found.mb is None else found.communicators * 2 * (found.mb - mb) * MIB
    return Lowered(now, None if now is None else now - model, gain, assumes)
