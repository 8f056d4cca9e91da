"""What holds memory that need not be held: leaks, fragments, short peaks, late releases, buffers, and what they cost.

Asked only where memory was recorded. Gains are bytes, of the peak or of what the device gives, as each title says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np

from npuperf.advise.moves import IN_BUCKETS
from npuperf.advise.rule import Answer, Detected, MemoryView, Rule, Untold, severity
from npuperf.base.messages import Message, chain, ns, say, say_n, series, share, size
from npuperf.base.units import MIB
from npuperf.device.host_events import RUNTIME_CALL
from npuperf.device.memory_study import ACTIVATION, BACKWARD, FORWARD, ends_of
from npuperf.device.memory_whatif import MemoryReplay, find_buffers
from npuperf.model.device_memory import LARGE_SEGMENT, SMALL_BLOCK
from npuperf.model.groups import alike, first_rows, sums_of, tally
from npuperf.model.intervals import Intervals, passed
from npuperf.model.labels import I64, Mask
from npuperf.model.result import Severity
from npuperf.model.tasks import NO_TIME

_CONF: Final = "PYTORCH_NPU_ALLOC_CONF"
_ALLOCATOR: Final = say("Ascend Extension for PyTorch, environment variables: PYTORCH_NPU_ALLOC_CONF")
#: Blocks that are named in evidence.
_NAMED: Final = 10
#: Activations before a block that are looked at: those of the same layer, and of the one before it.
_BEFORE: Final = 8


def _rule(title: Message, source: Message) -> Callable[[Callable[[MemoryView], Answer]], Rule]:
    """Make a function that looks at a device's memory the rule of its name."""
    return lambda look: Rule(look.__name__, title, source, needs=(), on_memory=look)


def _grave(view: MemoryView, most: int) -> Severity:
    """Return how grave it is to hold so many bytes: their part of the peak."""
    return severity(most / max(view.memory.peak_bytes or 0, 1), view.thresholds)


def _notable(view: MemoryView, most: int) -> bool:
    return most > view.thresholds.memory_share * (view.memory.peak_bytes or 0)


def _replay(view: MemoryView) -> MemoryReplay | Untold:
    found = MemoryReplay.of(view.study)
    return Untold(found) if isinstance(found, Message) else found


def _held_by(view: MemoryView, rows: I64) -> list[dict[str, object]]:
    """Sum blocks up by operator and line, the most bytes first."""
    blocks, where = view.study.blocks, view.study.purpose.where
    group = alike(blocks.name.codes[rows], where.codes[rows])
    counts = np.bincount(group)
    first, sums = first_rows(group, len(counts)), sums_of(group, blocks.size[rows], len(counts))
    return [
        {
            "operator": blocks.name[int(rows[first[i]])],
            "where": where[int(rows[first[i]])],
            "count": int(counts[i]),
            "bytes": int(sums[i]),
        }
        for i in np.argsort(-sums, kind="stable")[:_NAMED].tolist()
    ]


def _quoted(rows: list[dict[str, object]]) -> Message:
    """Name operators, with their lines, for a title."""
    named = [
        say("{operator} at {where}", operator=str(row["operator"] or "N/A"), where=str(row["where"]))
        if row["where"]
        else say("{operator}", operator=str(row["operator"] or "N/A"))
        for row in rows[:3]
    ]
    return say("{operators}", operators=series(dict.fromkeys(named)))


def _line_of(rows: list[dict[str, object]]) -> str | None:
    """Return the line of code that has most."""
    return str(rows[0]["where"]) if rows and rows[0]["where"] else None


# -- What is reserved, and no block fills.


@_rule(say("fragments of memory"), _ALLOCATOR)
def memory_fragments(view: MemoryView) -> Answer:
    """Ask how much more was reserved than blocks ever filled, and whether free memory was there when more was taken."""
    counters = view.study.memory.counters
    if not len(counters) or int(counters.reserved.max()) <= 0:
        return Untold(say("what the allocator reserves is not recorded: record with npuperf profile --memory"))
    active = np.where(counters.active >= 0, counters.active, counters.allocated)
    reserved, at = counters.reserved, int(counters.reserved.argmax())
    most, needed = int(reserved[at]), int(active.max())
    unfilled = most - needed
    if unfilled <= max(view.thresholds.fragments_share * most, LARGE_SEGMENT):
        return None
    if at == 0:
        return Untold(
            say("the allocator had reserved most when the recording began, so what it did not fill then is not known: "
                "record the steps in which memory grows (npuperf profile --memory --wait 1)"),
            {"reserved_bytes": most, "filled_bytes": needed},
        )  # fmt: skip
    asked, free = np.diff(active), (reserved - active)[:-1]
    in_vain = np.flatnonzero((np.diff(reserved) > 0) & (asked > SMALL_BLOCK) & (free >= asked))
    if not len(in_vain):
        return None
    last = int(in_vain[-1])
    streams = len(np.unique(view.study.blocks.stream))
    return Detected(
        title=say(
            "{share} of the memory that PyTorch reserves at most is in pieces that no block fits: {bytes}; it took "
            "more for {asked} while {free} of it were free",
            share=share(unfilled / most), bytes=size(unfilled), asked=size(int(asked[last])),
            free=size(int(free[last])),
        ),
        refute=say("the free memory is in pools of other streams, or of graphs, which this stream may not use"),
        next=_unsplit(view.profile.context.environment.get(_CONF)),
        evidence={
            "reserved_bytes": most, "filled_bytes": needed, "unfilled_bytes": unfilled, "in_vain": len(in_vain),
            "asked_bytes": int(asked[last]), "free_bytes": int(free[last]), "streams": streams,
        },
        gain_bytes=(0, unfilled),
        severity=_grave(view, unfilled),
    )  # fmt: skip


def _unsplit(conf: str | None) -> Message:
    """Say how to have fewer fragments, given the allocator's settings; None: not recorded."""
    if conf and "expandable_segments:true" in conf.replace(" ", "").lower():
        return say("expandable_segments is on: let sizes recur (pad sequences and batches to few lengths), and keep "
                   "what lives long from being allocated between what does not")  # fmt: skip
    if conf:
        return say("PYTORCH_NPU_ALLOC_CONF=expandable_segments:True, without max_split_size_mb and "
                   "garbage_collection_threshold, which exclude it (Ascend HDK 23.0 or newer)")  # fmt: skip
    set_it = say("set PYTORCH_NPU_ALLOC_CONF=expandable_segments:True (Ascend HDK 23.0 or newer), or "
                 "max_split_size_mb:N with N > 20, so that large blocks are not split")  # fmt: skip
    return set_it if conf == "" else chain(set_it, say("whether it is set is not recorded"))


# -- What grows from step to step.


@_rule(say("memory that every step keeps"), say("blocks that steps ask for and that are not given back"))
def memory_leak(view: MemoryView) -> Answer:
    """Ask what every step but the last keeps; that is a leak where it would take a tenth of the peak in some time."""
    leaked, peak = view.memory.leak_bytes_per_step, view.memory.peak_bytes or 0
    if leaked is None:
        return Untold(
            say("a leak takes three steps or more to tell, with all rows: npuperf profile --memory --active 5")
        )
    limit = view.thresholds
    if leaked * limit.leak_steps <= limit.leak_share * peak:
        return None
    replay = _replay(view)
    if isinstance(replay, Untold):
        return replay
    names = {(leak.operator, leak.where) for leak in view.memory.leaks}
    blocks, purpose = view.study.blocks, view.study.purpose
    kept = np.flatnonzero((blocks.freed == NO_TIME) & (purpose.step >= 0))
    named = [(blocks.name[row], purpose.where[row]) in names for row in kept.tolist()]
    mine = kept[np.array(named, np.bool_)]
    sums = np.bincount(purpose.step[mine], blocks.size[mine], minlength=len(view.study.steps))[:-1]
    gain = replay.without(mine)
    room = view.memory.headroom_bytes or 0
    left = say("what is left of the device's memory ({bytes}) lasts {steps} steps", bytes=size(room),
               steps=room // leaked)  # fmt: skip
    return Detected(
        title=chain(
            say("every step keeps {bytes} more: {operators}", bytes=size(leaked),
                operators=_quoted([{"operator": one.operator, "where": one.where} for one in view.memory.leaks])),
            left if room > 0 else None,
        ),
        refute=say("it is a cache that has not filled up yet, or an older block is given back for each"),
        next=say("look for what these lines append to, keep in a list or an attribute, or hold with its graph: keep "
                 "numbers (loss.item(), tensor.detach().cpu()) in place of tensors"),
        evidence={
            "leak_bytes_per_step": leaked, "growth_bytes_per_step": view.memory.growth_bytes_per_step,
            "leaks": [{"operator": one.operator, "where": one.where, "count": one.count, "bytes": one.bytes}
                      for one in view.memory.leaks[:_NAMED]],
        },
        gain_bytes=(gain if (sums == leaked).all() else 0, gain),
        code=view.memory.leaks[0].where,
        severity="high" if leaked * limit.leak_steps >= peak else "medium",
    )  # fmt: skip


# -- Time that taking memory from the device costs.

_NO_CALLS: Final = say(
    "calls of the runtime are not recorded: record with npuperf profile --activities cpu,npu --level 1 --memory"
)
_DRIVER: Final = re.compile(
    r"^(?:\w+@)?(?:aclrt(?:Malloc(?!Host)|Free(?!Host)|MapMem|UnmapMem|ReserveMemAddress|ReleaseMemAddress)\w*)$"
    r"|torch_npu/npu/memory\.py\(\d+\): empty_cache$"
)


@_rule(
    say("memory taken from the device in steps"),
    say("AscendCL API reference: aclrtMalloc waits; torch_npu: empty_cache"),
)
def device_allocations(view: MemoryView) -> Answer:
    """Ask how long steps spend with taking memory from the device, and giving it back."""
    events = view.profile.host.events
    if view.device is None or not len(events):
        return Untold(_NO_CALLS)
    steps, reserved = view.device.steps, view.study.memory.counters.reserved
    if not len(steps):
        return Untold(say("steps are not recorded: npuperf profile records them (--step-on)"))
    rows = np.flatnonzero(events.name.flag([bool(_DRIVER.search(name)) for name in events.name.names]))
    within = Intervals.union(events.start[rows], events.end[rows])
    each = np.array(
        [
            int(np.maximum(np.minimum(within.end, end) - np.maximum(within.start, start), 0).sum())
            for start, end in zip(steps.start.tolist(), steps.end.tolist(), strict=True)
        ]
    )
    lasted = steps.end - steps.start
    usual, step = int(np.median(each)), int(np.median(lasted))  # a first step may have to
    if usual <= view.thresholds.cause_share * step:
        moved = (np.diff(reserved) != 0).any()
        return Untold(_NO_CALLS) if moved and not len(rows) and not events.name.has(RUNTIME_CALL) else None
    names, counts, _ = tally(events.name.codes[rows], events.end[rows] - events.start[rows])
    calls = {events.name.names[code]: int(n) for code, n in zip(names.tolist(), counts.tolist(), strict=True)}
    empties = any("empty_cache" in name for name in calls)
    return Detected(
        title=say("steps spend {time} in taking memory from the device and giving it back ({share}): {calls}",
                  time=ns(usual), share=share(usual / step), calls=series(list(calls)[:3])),
        refute=say("the device is busy meanwhile with work that was launched before"),
        next=(say("drop torch.npu.empty_cache() from the steps: what it gives back is taken again at once")
              if empties else
              say("let sizes recur (pad to few lengths), so that cached blocks fit: memory is taken from the device "
                  "only where none does")),
        evidence={"calls": calls, "ns_per_step": each.tolist()},
        gain=(0, usual),
        severity=severity(usual / step, view.thresholds),
    )  # fmt: skip


# -- Blocks that wait for a stream.


@_rule(say("memory that waits for other streams"), say("active and allocated bytes of PyTorch's allocator"))
def waiting_blocks(view: MemoryView) -> Answer:
    """Ask by how much the peak is higher for blocks that are given back, while a stream may still use them."""
    counters = view.study.memory.counters
    if not len(counters) or not (counters.active >= 0).all():
        return Untold(say("what waits for other streams is not recorded: that takes torch_npu 6.0 or newer"))
    most = int(counters.active.max() - counters.allocated.max())
    if not _notable(view, most):
        return None
    at = int(counters.active.argmax())
    blocks = view.study.blocks
    time, ended = counters.time[at], ends_of(blocks)
    late = np.where(blocks.released == NO_TIME, np.iinfo(np.int64).max, blocks.released)
    rows = np.flatnonzero((ended <= time) & (late > time))
    return Detected(
        title=say("blocks that are given back wait for other streams: {bytes} of the peak of what is in use, of "
                  "{operators}", bytes=size(most), operators=_quoted(_held_by(view, rows))),
        refute=say("the peak of what is allocated comes at another time, and memory runs out then"),
        next=say("let the stream that uses a block last be done before the next ones are asked for: wait for a "
                 "collective soon (work.wait()), limit_all_gathers=True in FSDP, and record_stream only where it is "
                 "needed"),
        evidence={
            "active_bytes": int(counters.active[at]), "allocated_bytes": int(counters.allocated[at]),
            "held_by": _held_by(view, rows),
        },
        gain_bytes=(0, most),
        severity=_grave(view, most),
    )  # fmt: skip


# -- HCCL's buffers.


@_rule(say("buffers of HCCL"), say("CANN, environment variables: HCCL_BUFFSIZE; PyTorch: hccl_buffer_size of a group"))
def hccl_buffers(view: MemoryView) -> Answer:
    """Ask whether buffers are larger than any operation that was recorded."""
    found = find_buffers(view.study, view.profile)
    if isinstance(found, Message):
        return Untold(found)
    moved = view.profile.communication.operations.bytes
    if found.mb is None:
        return Untold(say("how large HCCL's buffers are is not recorded (HCCL_BUFFSIZE), and is not the default"))
    if not (moved > 0).all():
        return Untold(say("how much operations move is not recorded: record with npuperf profile --level 1"))
    enough = max(-(-int(moved.max()) // MIB), 1)
    gain = found.saved_with(enough) if enough < found.mb else (0, 0)
    if not _notable(view, gain[1]):
        return None
    return Detected(
        title=say_n(
            "HCCL has {bytes} for {n} communicator with buffers of {mb} MB; no operation moves more than {most}",
            "HCCL has {bytes} for {n} communicators with buffers of {mb} MB; no operation moves more than {most}",
            found.communicators,
            bytes=size(found.bytes),
            mb=found.mb,
            most=size(int(moved.max())),
        ),
        refute=say("operations outside of the recording move more"),
        next=chain(
            say("HCCL_BUFFSIZE={mb}, or hccl_buffer_size for single groups", mb=enough),
            say("whether it is set is not recorded") if found.assumed else None,
        ),
        evidence={"hccl_bytes": found.bytes, "communicators": found.communicators, "buffer_mb": found.mb,
                  "most_moved_bytes": int(moved.max())},
        gain_bytes=(0 if found.assumed else gain[0], gain[1]),
        severity=_grave(view, gain[1]),
    )  # fmt: skip


# -- Gradients that are kept twice.

_COPIED: Final = re.compile(r"^torch\.distributed\.ddp\.reducer::copy_bucket_to_grad$")


@_rule(say("gradients kept twice"), say("PyTorch: DistributedDataParallel, gradient_as_bucket_view"))
def gradient_copies(view: MemoryView) -> Answer:
    """Ask whether DistributedDataParallel copies its buckets to gradients: then both are kept."""
    names = view.profile.host.events.name
    if not len(names) or view.device is None:
        return Untold(
            say("torch operators are not recorded: record with npuperf profile --activities cpu,npu --memory")
        )
    copies = int(np.count_nonzero(names.flag([bool(_COPIED.match(name)) for name in names.names])))
    if not copies:
        return None
    operations, steps = view.profile.communication.operations, view.device.of_tasks
    of_type = operations.type.flag([name.lower() == "allreduce" for name in operations.type.names])
    reduced = operations.filter(of_type & (operations.bytes > 0))
    count = max(len(steps), 1)
    most = int(reduced.bytes.sum()) // count
    if not most:
        return Untold(say("how much operations move is not recorded: record with npuperf profile --level 1"))
    if not _notable(view, most):
        return None
    return Detected(
        title=say("DistributedDataParallel copies {bytes} of gradients out of its buckets, and keeps both",
                  bytes=size(most)),
        refute=say("part of what is reduced are no gradients, or gradients are set to None before the peak"),
        next=IN_BUCKETS,
        evidence={"copies": copies, "reduced_bytes_per_step": most},
        gain_bytes=(0, most),
        severity=_grave(view, most),
    )  # fmt: skip


# -- The shape of the curve: peaks that last a moment, blocks that live too long.


@_rule(say("short peaks of memory"), say("how long the allocator's counter lies above which level"))
def short_peak(view: MemoryView) -> Answer:
    """Ask whether memory lies far below its peak but for a moment, and which blocks make the peak."""
    replay = _replay(view)
    if isinstance(replay, Untold):
        return replay
    times, allocated = replay.times, replay.recorded
    if len(times) < 2:
        return None
    lasts, level = np.diff(times), allocated[:-1]
    moment, limit = view.thresholds.short_peak_share * int(lasts.sum()), (1 - view.thresholds.short_peak_drop)
    if int(allocated[-1]) >= limit * replay.peak or int(lasts[level >= limit * replay.peak].sum()) > moment:
        return None
    order = np.argsort(-level, kind="stable")
    rest = level[order][np.cumsum(lasts[order]) > moment]  # all but the highest, for as long as a moment is
    lower = int(max(rest.max(initial=0), allocated[-1]))
    high = np.flatnonzero(allocated > lower)
    begins = high[np.append(True, np.diff(high) > 1)]
    ends = high[np.append(np.diff(high) > 1, True)]
    start, end = times[begins], np.append(times, times[-1] + 1)[ends + 1]
    blocks = view.study.blocks
    at = passed(start, blocks.start) - 1
    born = np.flatnonzero((at >= 0) & (blocks.start < np.append(end, 0)[at]))
    freed = ends_of(blocks)
    passing = born[freed[born] <= np.append(end, 0)[at[born]]]  # what stays makes no short peak
    gain = replay.without(passing)
    if not gain or not _notable(view, gain):
        return None
    when = view.study.peak
    alive = np.intersect1d(passing, view.study.at_counter(when)) if when is not None else passing
    held, longest = _held_by(view, alive), int((end - start).max())
    foreach = any("_foreach" in str(row["operator"]) for row in held)
    return Detected(
        title=say_n(
            "memory has {n} short peak ({time}), made by {operators}",
            "memory has {n} short peaks (up to {time} each), the highest made by {operators}",
            len(begins),
            time=ns(longest),
            operators=_quoted(held),
        ),
        refute=say("the peak of another step, outside of the recording, is as high without them"),
        next=(say("an optimizer with foreach=True has a temporary block for every gradient at once: fused=True, "
                  "torch_npu.optim.NpuFused…, or foreach=False")
              if foreach else
              say("do this in pieces (chunks of the batch, the sequence or the vocabulary), in place, or at a time "
                  "when less is alive")),
        evidence={"peak_bytes": replay.peak, "next_bytes": replay.peak - gain, "count": len(begins), "held_by": held},
        gain_bytes=(gain, gain),
        code=_line_of(held),
        severity=_grave(view, gain),
    )  # fmt: skip


@_rule(say("memory given back late"), say("autograd gives activations back in the reverse order of forward"))
def late_release(view: MemoryView) -> Answer:
    """Ask which activations outlive backward, or most of what was asked for before them; inferred."""
    purpose = view.study.purpose
    activations = np.flatnonzero((purpose.kind == ACTIVATION) & (purpose.asked == FORWARD) & (purpose.step >= 0))
    if len(activations) < 2:
        return Untold(say("which blocks live from forward to backward is not recorded: record with npuperf profile "
                          "--activities cpu,npu --memory"))  # fmt: skip
    replay = _replay(view)
    if isinstance(replay, Untold):
        return replay
    late = activations[_late(view, activations)]
    when = view.study.peak
    alive = np.intersect1d(late, view.study.at_counter(when)) if when is not None else late[:0]
    held = int(view.study.blocks.size[alive].sum())
    if not _notable(view, held):
        return None
    rows = _held_by(view, alive)
    return Detected(
        title=say_n(
            "{n} block at the peak, of {bytes}, outlives blocks that were asked for before it in forward (inferred): "
            "{operators}",
            "{n} blocks at the peak, of {bytes}, outlive blocks that were asked for before them in forward (inferred): "
            "{operators}",
            len(alive), bytes=size(held), operators=_quoted(rows),
        ),
        refute=say("the program needs them after backward, or they cannot be given back before the peak"),
        next=say("drop what refers to them as soon as backward has begun: del outputs and losses, detach what is kept "
                 "for metrics, and no retain_graph"),
        evidence={"bytes": held, "count": len(alive), "held_by": rows},
        gain_bytes=(0, replay.without(late)),  # of every step: others have peaks, too
        code=_line_of(rows),
        severity=_grave(view, held),
    )  # fmt: skip


def _late(view: MemoryView, rows: I64) -> Mask:
    """Tell activations (in order of their beginning) that outlive backward, or by far those just before them.

    A block that is asked for later is needed no longer than the operator that made it has its turn in backward, which
    is before that of what came before it. Within a layer the order may be another: of blocks that are given back in
    backward only those count that outlive all of several before them by a notable part of backward.
    """
    purpose, freed = view.study.purpose, view.study.blocks.freed[rows]
    found = np.zeros(len(rows), np.bool_)
    for step in np.unique(purpose.step[rows]).tolist():
        mine = np.flatnonzero(purpose.step[rows] == step)
        ends = freed[mine]
        in_backward = purpose.given_back[rows[mine]] == BACKWARD
        if not in_backward.any():
            continue
        over, begun = int(ends[in_backward].max()), int(ends[in_backward].min())
        earlier = np.cumsum(in_backward) - in_backward  # so many were asked for before it, and given back in backward
        late = (ends > over) & (earlier > 0)
        for _ in range(3):  # what is late itself is no measure for others
            measure = np.where(late, np.iinfo(np.int64).min, ends)
            padded = np.append(np.full(_BEFORE, np.iinfo(np.int64).min), measure)
            before = np.lib.stride_tricks.sliding_window_view(padded, _BEFORE)[: len(ends)]
            far = view.thresholds.late_share * (over - begun)
            full = (before > np.iinfo(np.int64).min).all(axis=1)
            more = late | (full & (ends - before.max(axis=1) > far))
            if (more == late).all():
                break
            late = more
        found[mine] = late
    return found


@_rule(say("memory that nothing uses any more"), say("msmemscope: accesses of memory blocks"))
def idle_blocks(view: MemoryView) -> Answer:
    """Ask which blocks at the peak had been used for the last time before it: of those that are given back later."""
    if not len(view.study.memory.accesses):
        return Untold(say("when blocks are used is not recorded: msmemscope records it "
                          "(--events=alloc,free,launch,access)"))  # fmt: skip
    replay, peak = _replay(view), view.study.peak
    if isinstance(replay, Untold):
        return replay
    if peak is None:
        return None
    last, alive = view.study.last_uses(), view.study.at_counter(peak)
    last[view.study.blocks.freed == NO_TIME] = NO_TIME  # they may be used after the window
    over = alive[(last[alive] != NO_TIME) & (last[alive] < int(view.study.memory.counters.time[peak]))]
    held = int(view.study.blocks.size[over].sum())
    if not _notable(view, held):
        return None
    rows = _held_by(view, over)
    return Detected(
        title=say_n(
            "{n} block at the peak, of {bytes}, is not used any more: {operators}",
            "{n} blocks at the peak, of {bytes}, are not used any more: {operators}",
            len(over), bytes=size(held), operators=_quoted(rows),
        ),
        refute=say("what reads them is none of torch's or ATB's operators, whose accesses alone are recorded"),
        next=say("drop what refers to them after their last use (del, smaller scopes, no retain_graph): --what-if "
                 "free_at_last_use says what that gives"),
        evidence={"bytes": held, "count": len(over), "held_by": rows},
        gain_bytes=(0, replay.peak - replay.peak_of(replay.lives.ended(last))),
        code=_line_of(rows),
        severity=_grave(view, held),
    )  # fmt: skip


# -- How much room is left.


@_rule(say("room left in the device's memory"), say("the device's HBM, and what the process has of it"))
def memory_headroom(view: MemoryView) -> Answer:
    """Ask how near the process is to all that the device has."""
    memory = view.memory
    if memory.headroom_bytes is None or not memory.hbm_bytes or memory.process_bytes is None:
        return Untold(say("how much memory the device has, or the process has of it, is not recorded: name the device "
                          "(--soc), and record with npuperf profile --memory"))  # fmt: skip
    left = memory.headroom_bytes / memory.hbm_bytes
    if left >= view.thresholds.headroom_share:
        return None
    largest = max(memory.alive, key=lambda one: one.bytes, default=None)
    caches = sum(one.bytes for one in memory.alive if one.class_ == "kv_cache")
    serves = any("vllm" in word for word in view.profile.context.command)
    try_ = say('--what-if "batch*0.5", "recompute:forward" and "block:OP*0" say what would lower the peak')
    return Detected(
        title=say("{left} of {hbm} are left: the process has {process} of the device's memory", left=share(left),
                  hbm=size(memory.hbm_bytes), process=size(memory.process_bytes)),
        refute=say("other steps, outside of the recording, need no more"),
        next=(say("a lower gpu_memory_utilization leaves more: the KV cache has {bytes}", bytes=size(caches))
              if caches and serves else try_),
        evidence={
            "headroom_bytes": memory.headroom_bytes, "hbm_bytes": memory.hbm_bytes,
            "process_bytes": memory.process_bytes,
            "largest": None if largest is None else {"operator": largest.operator, "class": largest.class_,
                                                     "bytes": largest.bytes},
        },
        severity="high" if left < view.thresholds.severity_medium else "medium",
    )  # fmt: skip
