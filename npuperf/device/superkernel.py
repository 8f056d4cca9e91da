"""Sequences of kernels worth one SuperKernel: scopes with their options, reasons and code.

A sequence runs on one stream without a break: no host, no event and no step border between its kernels. Operators
that cannot be fused (AI CPU, most communication) split it into segments, each a SuperKernel of its own; AllReduce,
ReduceScatter, AllGather and AlltoAll can be fused where they run on vector cores. With a kernel of dynamic shape in it
a sequence belongs to a dynamic graph, in which GE makes no SuperKernel at all. Sequences that repeat (the layers of a
model) are told by their types and counted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.escape import for_code
from npuperf.base.messages import Message, say, series
from npuperf.device.cores import blocks, on_cores
from npuperf.device.host_events import NONE
from npuperf.device.mode import way_of
from npuperf.device.order import is_event_wait
from npuperf.device.view import DeviceWindow
from npuperf.model.chip import product_of_soc
from npuperf.model.groups import distinct
from npuperf.model.labels import I64, Mask
from npuperf.model.result import CoreSplit, RuleCheck, ScopeOption, Segment, SuperKernelScope
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

#: Kernels of a repeating unit at least and at most.
_UNIT: Final = (2, 1024)
#: What GE's HCCL engine has SuperKernel binaries for; not for the variants with a length per rank (AlltoAllV).
_FUSED_COMMUNICATION: Final = re.compile(r"all_?reduce|(reduce_?scatter|all_?gather|all_?to_?all)(?!_?v)", re.I)
#: Kernels looked at together: bounds the time of the search.
_LOOK: Final = 20_000


class KernelSequence(Struct, frozen=True):
    """A sequence and every time it runs: ``runs[i, j]`` is the task at place j of run i.

    ``segments``: first and last place (inclusive) of what can be fused; ``gaps``: the time between the kernels of
    each, summed over all runs (ns); ``stopped_by``: the place of the task that ends it early, NONE at the end.
    """

    stream: int
    runs: I64
    segments: tuple[tuple[int, int], ...]
    gaps: tuple[int, ...]
    stopped_by: tuple[int, ...]


def find_sequences(
    tasks: Tasks, waits: I64, held: I64, thresholds: Thresholds, *, communication: bool
) -> list[KernelSequence]:
    """Find all sequences among ``tasks`` (by start), those with the longest gaps first.

    ``waits``: how long the idle device waited for each launch; ``held``: how long each task waited for cores, which
    no fusion saves (ns); ``communication``: whether communication that can be fused at all may be.
    """
    kernel, dynamic = can_fuse(tasks), tasks.dynamic
    fusible = kernel | can_fuse_communication(tasks) if communication else kernel
    code = (tasks.type.codes.astype(np.int64) * (len(tasks.core.names) + 1) + tasks.core.codes) * 2 + fusible
    found: dict[tuple[int, bytes], list[I64]] = {}
    for stream in distinct(tasks.stream[kernel]).tolist():
        for chain in _chains(tasks, np.flatnonzero(tasks.stream == stream), waits, thresholds):
            if dynamic[chain].any():
                continue
            for part in _units(chain, code):
                places = np.flatnonzero(kernel[part])
                trimmed = part[places[0] : places[-1] + 1] if len(places) else part[:0]
                if len(trimmed) > 1:
                    found.setdefault((stream, code[trimmed].tobytes()), []).append(trimmed)
    sequences = []
    for (stream, _), runs in found.items():
        segments, stopped_by = _segments(fusible[runs[0]], kernel[runs[0]])
        if segments:
            together = np.stack(runs)
            between = np.maximum(tasks.start[together[:, 1:]] - tasks.end[together[:, :-1]] - held[together[:, 1:]], 0)
            gaps = tuple(int(between[:, first:last].sum()) for first, last in segments)
            sequences.append(KernelSequence(stream, together, segments, gaps, stopped_by))
    return sorted(sequences, key=lambda s: -sum(s.gaps))


def can_fuse(tasks: Tasks) -> Mask:
    """True for AI Core kernels, communication aside, that are not compiled for dynamic shapes."""
    return on_cores(tasks) & ~tasks.dynamic & np.equal(tasks.work, Work.COMPUTE)


def can_fuse_communication(tasks: Tasks) -> Mask:
    """True for communication that a SuperKernel can hold, if it runs on vector cores."""
    known = tasks.name.flag([bool(_FUSED_COMMUNICATION.search(n)) for n in tasks.name.names])
    return known & np.equal(tasks.work, Work.COMMUNICATION)


def _chains(tasks: Tasks, mine: I64, waits: I64, thresholds: Thresholds) -> Iterator[I64]:
    """Yield stretches of one stream's tasks that nothing but their own kind interrupts."""
    wait = is_event_wait(tasks)[mine]
    kept = mine[tasks.work[mine] != Work.CONTROL]
    if not len(kept):
        return
    waited = np.searchsorted(mine[wait], kept)  # how many event waits stand before each task
    gap = np.append(0, tasks.start[kept][1:] - np.maximum.accumulate(tasks.end[kept])[:-1])
    broken = np.zeros(len(kept), np.bool_)
    broken[1:] = (np.diff(waited) > 0) | (np.diff(tasks.step[kept]) != 0)
    broken |= (waits[kept] > 0) | (gap > thresholds.launch_jitter_ns)
    yield from np.split(kept, np.flatnonzero(broken[1:]) + 1)


def _units(chain: I64, code: I64) -> list[I64]:
    """Cut a sequence that repeats itself into its repetitions; what comes before and after stays whole."""
    if len(chain) > _LOOK:
        return [*_units(chain[:_LOOK], code), *_units(chain[_LOOK:], code)]
    found = _repetition(code[chain])
    if found is None:
        return [chain]
    first, period, times = found
    inner = [chain[first + i * period : first + (i + 1) * period] for i in range(times)]
    return [part for part in (chain[:first], *inner, chain[first + times * period :]) if len(part)]


def _repetition(code: I64) -> tuple[int, int, int] | None:
    """Find the repetition that covers most, half of the sequence at least: its start, its period, how many times."""
    best: tuple[int, int, int] | None = None
    covered = len(code) // 2
    for period in range(_UNIT[0], min(len(code) // 2, _UNIT[1]) + 1):
        same = code[period:] == code[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate([[0], same, [0]])))
        if not len(edges):
            continue
        lengths = edges[1::2] - edges[::2]
        at = int(lengths.argmax())
        times = (int(lengths[at]) + period) // period
        if times >= 2 and times * period > covered:
            best, covered = (int(edges[2 * at]), period, times), times * period
    return best


def _segments(fusible: Mask, kernel: Mask) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """Return the runs of at least two fusible kernels, from the first kernel to the last, and what stopped each.

    Communication at the border of a run stays outside: fusing it with nothing behind it has nothing to save.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], fusible, [0]]))).tolist()
    found = []
    for begin, after in zip(edges[::2], edges[1::2], strict=True):
        inner = begin + np.flatnonzero(kernel[begin:after])
        if len(inner) > 1:
            found.append(((int(inner[0]), int(inner[-1])), after if after < len(fusible) else NONE))
    return tuple(pair for pair, _ in found), tuple(stop for _, stop in found)


def launch_cores(tasks: Tasks, kernels: I64) -> tuple[int, int] | None:
    """Return the cube and vector cores that a SuperKernel over these kernels starts; None where blocks are unknown.

    It starts as many as the largest of them, communication aside. Kernels of both sides become a mix kernel with one or
    two vector cores per cube core.
    """
    kernels = kernels[tasks.work[kernels] == Work.COMPUTE]  # the blocks of communication are not recorded
    used = blocks(tasks)
    if not len(kernels) or used.unknown[kernels].any():
        return None
    most = int(used.cube[kernels].max()), int(used.vector[kernels].max())
    if not all(most):
        return most
    block = max(most[0], -(-most[1] // 2))
    return block, block if most[1] <= block else 2 * block


def launch_blocks(launch: tuple[int, int]) -> int:
    """Return the Block Dim of a SuperKernel that starts these cores."""
    return launch[0] or launch[1]


# -- Whether streams own their cores: limits that are proposed, stated by the user, set by a call, or seen in the
# blocks.
#
# Where they do, the operators of a SuperKernel must not share cores across streams (stream-fusion=1).

#: Streams that a SuperKernel holds without stream-fusion=1.
MOST_UNFUSED: Final = 2
_SET: Final = re.compile(r"set_?stream_?(res_?)?limit|limit_core_num|StreamResLimit", re.I)
#: Kernels that reach the same number of cores, of a stream that seems to be kept to it.
_AT_LEAST: Final = 2


class Owned(Struct, frozen=True):
    """Whether the ``streams`` whose kernels start while a sequence runs own their cores.

    ``free``: the profile shows that none has cores of its own; ``reason``: what speaks for it or is missing.
    ``limited``: whether core limits of the sequence's own stream are proposed, or asked for.
    """

    streams: list[int]
    limited: bool
    free: bool
    reason: Message | None


def cores_owned(
    view: DeviceWindow, sequence: KernelSequence, splits: list[CoreSplit], stated: Collection[str]
) -> Owned:
    """Tell whether the streams that run beside a sequence own their cores. ``stated``: where the user says so."""
    tasks = view.tasks
    start, end = tasks.start[sequence.runs[:, 0]], tasks.end[sequence.runs[:, -1]]
    order = np.argsort(start, kind="stable")
    compute = np.flatnonzero(tasks.work == Work.COMPUTE)
    at = np.searchsorted(start[order], tasks.start[compute], side="right") - 1
    inside = (at >= 0) & (tasks.start[compute] < end[order][np.maximum(at, 0)])
    streams: list[int] = distinct(tasks.stream[compute[inside]]).tolist()
    limited = any(limit.stream == sequence.stream for split in splits for limit in split.limits)
    if len(streams) <= MOST_UNFUSED:
        return Owned(streams, limited, free=True, reason=None)
    reason = _limits_known(view, splits, stated)
    if reason is not None:
        return Owned(streams, limited, free=False, reason=reason)
    reason = _limits_seen(view, streams)
    return Owned(streams, limited, free=reason is None, reason=reason)


def _limits_known(view: DeviceWindow, splits: list[CoreSplit], stated: Collection[str]) -> Message | None:
    """Say who limits the cores of streams: the user, what is proposed, or a call."""
    if stated:
        return say("--expect-cores states core limits of {where}", where=series(stated))
    for split in sorted(splits, key=lambda s: not s.asked):
        own = series(x.stream for x in split.limits)
        if split.asked:
            return say("--cores-of states core limits of streams {streams}", streams=own)
        return say("core limits of streams {streams} are proposed above", streams=own)
    call = next((n for n in view.profile.host.events.name.names if _SET.search(n)), None)
    return say("{call} sets core limits", call=call) if call else None


def _limits_seen(view: DeviceWindow, streams: list[int]) -> Message | None:
    """Look for limits in the blocks: several streams, each of which stays below the chip, and all of which fit it."""
    cube, vector = view.cores.cube, view.cores.vector
    if cube is None or vector is None:
        return say("core counts are unknown, so streams may have cores of their own")
    used = blocks(view.tasks)
    kernels = on_cores(view.tasks) & view.compute
    if (kernels & used.unknown).any():
        return say("Block Dim is missing for some kernels, so streams may have cores of their own")
    kept: list[tuple[int, int, int]] = []
    for stream in streams:
        mine = kernels & np.equal(view.tasks.stream, stream)
        most = [int(side[mine].max(initial=0)) for side in (used.cube, used.vector)]
        for side, cores, m in zip((used.cube, used.vector), (cube, vector), most, strict=True):
            if m and (m >= cores or np.count_nonzero(side[mine] == m) < _AT_LEAST):
                return None  # it uses all cores of a side, or too rarely as many to seem kept to them
        kept.append((stream, most[0], most[1]))
    if len(kept) < 2 or sum(c for _, c, _ in kept) > cube or sum(v for *_, v in kept) > vector:
        return None
    caps = (say("stream {stream}: {cube},{vector}", stream=s, cube=c, vector=v) for s, c, v in kept)
    return say(
        "their kernels never use more cores than fit the chip together, as under core limits ({limits})",
        limits=series(caps, by="; "),
    )


# -- What is documented about SuperKernel scopes, held against the profile.
#
# Sources: TorchAir's page on scopes, and GE's SuperKernel pass and HCCL engine.

#: The rule about waits that may be in the gaps.
GAPS: Final = say("gaps")
UNKNOWN_WAITS: Final = say("other streams run at the same time, and it is unknown whether kernels wait for their cores")
#: Where HCCL expands its operators, and the value with which SuperKernels can hold them.
EXPANSION: Final = "HCCL_OP_EXPANSION_MODE"
AIV_ONLY: Final = "AIV"


def scope_rules(
    view: DeviceWindow, sequence: KernelSequence, kernels: I64, launch: tuple[int, int] | None, owned: Owned
) -> Iterator[RuleCheck]:
    """Hold a scope over ``kernels``, one run of a sequence, against everything that is documented about scopes."""
    product = product_of_soc(view.soc or "")
    chip = product or say("the profile does not name the chip")
    detail = say("Atlas A3 (newer CANN: A2, too): {product}", product=chip)
    yield RuleCheck(rule=say("product"), status="ok" if product == "Atlas A3" else "unknown", detail=detail)
    yield RuleCheck(rule=say("mode"), status="ok", detail=say("max-autotune only: GE executes the graph"))
    if bool(view.tasks.state.known()[sequence.runs[0]].all()):
        yield RuleCheck(rule=say("static graph"), status="ok", detail=say("OP State shows a static graph"))
    else:
        detail = say("OP State is not recorded for all kernels, so the graph may be dynamic")
        yield RuleCheck(rule=say("static graph"), status="unknown", detail=detail)
    if launch is None:
        missing = blocks(view.tasks).unknown[kernels] & (view.tasks.work[kernels] == Work.COMPUTE)
        detail = say(
            "Block Dim is missing for {missing} of {kernels} kernels: if a kernel launches with fewer cores than the "
            "SuperKernel and calls SyncAll, it hangs without this option",
            missing=int(np.count_nonzero(missing)),
            kernels=len(kernels),
        )
        yield RuleCheck(rule=say("feed-sync-all"), status="unknown", detail=detail)
    if owned.reason:
        detail = say("left at 0, because streams with cores of their own must not share them: {why}", why=owned.reason)
        yield RuleCheck(rule=say("stream-fusion"), status="unknown", detail=detail)
    if owned.limited:
        detail = say("judged without the core limits above: with them, its kernels launch with fewer cores")
        yield RuleCheck(rule=say("core limits"), status="unknown", detail=detail)
    if (view.over_time is None or view.over_time.contended_ns is None) and len(owned.streams) > 1:
        detail = say("{unknown}: part of the gaps may be such waits, which fusion does not save", unknown=UNKNOWN_WAITS)
        yield RuleCheck(rule=GAPS, status="unknown", detail=detail)
    inside = kernels[view.tasks.work[kernels] == Work.COMMUNICATION]
    if len(inside):
        types = series(dict.fromkeys(str(view.types[i] or view.tasks.name[i]) for i in inside.tolist()))
        fused = view.traits.environment.get(EXPANSION) == AIV_ONLY
        detail = say(
            "{types}: fused only where HCCL runs them on vector cores ({name}={value}, for inference); elsewhere each "
            "of them ends a SuperKernel",
            types=types,
            name=EXPANSION,
            value=AIV_ONLY,
        )
        if fused:
            detail = say("{types}: can be fused, because {name} is {value}",
                         types=types, name=EXPANSION, value=AIV_ONLY)  # fmt: skip
        yield RuleCheck(rule=say("communication"), status="ok" if fused else "unknown", detail=detail)
    detail = say(
        "to see where the scope breaks, use a separate run with ASCEND_GLOBAL_LOG_LEVEL=2 (CANN logs errors only "
        "otherwise): strict-scope-check=bypass warns in plog (super_kernel_scope) and makes no SuperKernel of that "
        "scope; abort stops the compilation; neither sees communication"
    )
    yield RuleCheck(rule=say("scope"), status="unknown", detail=detail)
    detail = say("every operator must support SuperKernels (TBE and TIK do not): the profile does not tell, plog does")
    yield RuleCheck(rule=say("operators"), status="unknown", detail=detail)


_SCOPES: Final = 5
_TYPES: Final = 8
_NO_MODE: Final = say(
    "whether a graph of max-autotune ran is not recorded (SuperKernels exist in its static graphs only): analyze the "
    "whole folder with its trace_view.json, or record with npuperf profile --activities cpu,npu --level 1"
)
_NO_STATES: Final = say(
    "OP State is not recorded, so the graph may be dynamic, in which no SuperKernel is made: recording it needs CANN 8 "
    "or newer and npuperf profile --level 1"
)


def find_scopes(view: DeviceWindow, splits: list[CoreSplit], stated: Collection[str]) -> list[SuperKernelScope]:
    """Return the sequences that would save most; none outside of static graphs of GE and of Atlas A2 and A3.

    ``splits``: core limits, proposed or asked for; ``stated``: where the user says that kernels have some.
    """
    if _impossible(view) or untold_graph(view):
        return []
    found = [
        _scope(view, sequence, number, cores_owned(view, sequence, splits, stated))
        for number, sequence in enumerate(_found(view)[:_SCOPES], 1)
    ]
    return [scope for scope in found if scope.gain_ns_per_step[1] > 0]


def untold_graph(view: DeviceWindow) -> Message | None:
    """Say what is missing to know that there is a static graph of GE; None where it is known whether there is."""
    if way_of(view.mode) == "unknown":
        return _NO_MODE
    return None if view.mode == "ge_static" or (view.tasks.state.known() & view.compute).any() else _NO_STATES


def possible_gaps(view: DeviceWindow) -> int:
    """Return the gaps per step (ns) that scopes could save if the kernels belong to static graphs of GE."""
    if _impossible(view):
        return 0
    return view.per_step(sum(sum(sequence.gaps) for sequence in _found(view)[:_SCOPES]))


def _impossible(view: DeviceWindow) -> bool:
    """Tell whether the profile shows that there can be no SuperKernel."""
    soc, way = view.soc, way_of(view.mode)
    return way not in ("ge", "unknown") or view.mode == "ge_dynamic" or bool(soc and product_of_soc(soc) is None)


def _found(view: DeviceWindow) -> list[KernelSequence]:
    fused = view.traits.environment.get(EXPANSION) in (None, "", AIV_ONLY)
    return find_sequences(view.tasks, view.waits, view.held, view.thresholds, communication=fused)


def _scope(view: DeviceWindow, sequence: KernelSequence, number: int, owned: Owned) -> SuperKernelScope:
    tasks, runs = view.tasks, sequence.runs
    kernels = runs[:, np.concatenate([np.arange(first, last + 1) for first, last in sequence.segments])]
    one, gaps = kernels[0], sequence.gaps
    launch = launch_cores(tasks, kernels.ravel())
    types = [view.types[i] or "N/A" for i in one.tolist()]
    name, where = f"sk{number}", view.code_lines(one)
    options = list(_options(view, one, launch, owned))
    each = -(-len(runs) // max(len(view.steps), 1))
    return SuperKernelScope(
        name=name,
        stream=sequence.stream,
        count=len(runs),
        types=types,
        where=where,
        segments=[
            Segment(
                first=tasks.name[int(runs[0, first])] or "",
                last=tasks.name[int(runs[0, last])] or "",
                kernels=last - first + 1,
                gaps_ns=gap // len(runs),
                stopped_by=_stopper(view, int(runs[0, stop])) if stop >= 0 else None,
            )
            for (first, last), stop, gap in zip(sequence.segments, sequence.stopped_by, gaps, strict=True)
        ],
        kernels=kernels.shape[1],
        dur_ns=int(tasks.dur[kernels].sum()) // len(runs),
        gaps_ns=sum(gaps) // len(runs),
        cube=launch[0] if launch else None,
        vector=launch[1] if launch else None,
        gain_ns_per_step=(0, view.per_step(sum(gaps))),
        options=options,
        rules=list(scope_rules(view, sequence, one, launch, owned)),
        code=for_code(_code(name, options, types, where, each, sequence.stream, bool(view.steps))),
    )


def _stopper(view: DeviceWindow, task: int) -> Message:
    """Say which kernel ends a segment and why."""
    name = view.types[task] or view.tasks.name[task] or say("a kernel")
    if view.tasks.work[task] == Work.COMMUNICATION:
        mode = view.traits.environment.get(EXPANSION)
        if mode and can_fuse_communication(view.tasks)[task]:
            return say("{kernel} (communication, {name} is {value})", kernel=name, name=EXPANSION, value=mode)
        return say("{kernel} (communication)", kernel=name)
    core = view.tasks.core[task]
    return say("{kernel} ({core})", kernel=name, core=core) if core else say("{kernel} (unknown core)", kernel=name)


def _options(view: DeviceWindow, kernels: I64, launch: tuple[int, int] | None, owned: Owned) -> Iterator[ScopeOption]:
    """Decide the options; what is not said stays at its default."""
    fewer = kernels[:0]
    if launch:  # which kernels start fewer cores than the SuperKernel does on a side they use?
        fewer, used = kernels[view.tasks.work[kernels] == Work.COMPUTE], blocks(view.tasks)
        cube, vector = used.cube[fewer], used.vector[fewer]
        fewer = fewer[((cube > 0) & (cube < launch[0])) | ((vector > 0) & (vector < launch[1]))]
    if launch and len(fewer):
        reason = say(
            "{fewer} of {kernels} kernels ({example}) launch with fewer cores than the SuperKernel "
            "({blocks}); if one of them calls SyncAll, it hangs without this option",
            fewer=len(fewer),
            kernels=len(kernels),
            example=view.types[int(fewer[0])] or say("a kernel"),
            blocks=launch_blocks(launch),
        )
        yield ScopeOption(key="feed-sync-all", value="1", reason=reason)
    if len(owned.streams) > MOST_UNFUSED and owned.free:
        reason = say(
            "streams {streams} run at the same time: this option runs them side by side if their "
            "operators are in the scope, too, and helps where cube kernels run beside vector kernels; "
            "not for micro-batches that have cores of their own",
            streams=series(owned.streams),
        )
        yield ScopeOption(key="stream-fusion", value="1", reason=reason)


def _code(
    name: str, options: list[ScopeOption], types: list[str], where: list[str], each: int, stream: int, steps: bool
) -> Iterator[str]:
    """Write a scope out. ``each``: how often a step runs it, or the window where there are no ``steps``."""
    per = "step" if steps else "window"
    yield "import torchair"
    yield ""
    yield f"# stream {stream}, {len(types)} kernels ×{each} per {per}; in the compiled function, without graph breaks"
    yield from (f"#   {line}" for line in where)
    text = ":".join(f"{o.key}={o.value}" for o in options)
    indent, scope = "", f'"{name}"'
    if each > 1:
        yield "# one name is one range, which GE cuts at every other operator between two uses: each use needs its own"
        yield f"for layer in range({each}):  # your loop over the layers"
        indent, scope = "    ", f'f"{name}_{{layer}}"'
    arguments = f'{scope}, "{text}"' if text else scope
    yield f"{indent}with torchair.scope.super_kernel({arguments}):"
    more = f" … {types[-1]}" if len(types) > _TYPES else ""
    yield f"{indent}    ...  # {', '.join(types[:_TYPES])}{more}"
