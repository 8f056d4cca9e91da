"""Sequences of kernels worth one SuperKernel: scopes with their options, reasons and code."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.escape import for_code
from npuperf.base.messages import Message, say, series
from npuperf.device.cores import blocks, on_cores
from npuperf.device.mode import way_of
from npuperf.device.sequences import (
    KernelSequence,
    can_fuse_communication,
    fewer_cores,
    find_sequences,
    launch_blocks,
    launch_cores,
    streams_within,
    without_blocks,
)
from npuperf.device.view import DeviceWindow
from npuperf.model.chip import product_of_soc
from npuperf.model.labels import I64
from npuperf.model.result import CoreSplit, RuleCheck, ScopeOption, Segment, SuperKernelScope
from npuperf.model.tasks import Work

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
    """``free``: the profile shows that no stream has cores of its own; ``reason``: what speaks for it or is missing.

    ``limited``: whether core limits of the sequence's own stream are proposed, or asked for.
    """

    free: bool
    reason: Message | None
    limited: bool


def cores_owned(
    view: DeviceWindow, sequence: KernelSequence, splits: list[CoreSplit], stated: Collection[str]
) -> Owned:
    """Tell whether the streams that run beside a sequence own their cores. ``stated``: where the user says so."""
    limited = any(limit.stream == sequence.stream for split in splits for limit in split.limits)
    streams = streams_within(view.tasks, sequence)
    if len(streams) <= MOST_UNFUSED:
        return Owned(True, None, limited)
    reason = _limits_known(view, splits, stated)
    if reason is not None:
        return Owned(False, reason, limited)
    free, reason = _limits_seen(view, streams)
    return Owned(free, reason, limited)


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


def _limits_seen(view: DeviceWindow, streams: list[int]) -> tuple[bool, Message | None]:
    """Look for limits in the blocks: several streams, each of which stays below the chip, and all of which fit it."""
    cube, vector = view.cores.cube, view.cores.vector
    if cube is None or vector is None:
        return False, say("core counts are unknown, so streams may have cores of their own")
    used = blocks(view.tasks)
    kernels = on_cores(view.tasks) & np.equal(view.tasks.work, Work.COMPUTE)
    if (kernels & ((used.cube < 0) | (used.vector < 0) | ((used.cube == 0) & (used.vector == 0)))).any():
        return False, say("Block Dim is missing for some kernels, so streams may have cores of their own")
    mine = {stream: kernels & np.equal(view.tasks.stream, stream) for stream in streams}
    most = {stream: (_kept_to(used.cube[m], cube), _kept_to(used.vector[m], vector)) for stream, m in mine.items()}
    kept = {stream: (c, v) for stream, (c, v) in most.items() if c is not None and v is not None}
    fits = sum(c for c, _ in kept.values()) <= cube and sum(v for _, v in kept.values()) <= vector
    if len(kept) < max(len(most), 2) or not fits:
        return True, None
    caps = (say("stream {stream}: {cube},{vector}", stream=s, cube=c, vector=v) for s, (c, v) in kept.items())
    return (
        False,
        say(
            "their kernels never use more cores than fit the chip together, as under core limits ({limits})",
            limits=series(caps, by="; "),
        ),
    )


def _kept_to(used: I64, cores: int) -> int | None:
    """Return how many cores of one side a stream seems to be kept to, 0 where it uses none; None if it is not."""
    most = int(used.max(initial=0))
    if most == 0:
        return 0
    return most if most < cores and np.count_nonzero(used == most) >= _AT_LEAST else None


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
    yield _static_rule(view, sequence)
    yield from _core_rules(view, kernels, launch, owned)
    if _may_wait_for_cores(view, sequence):
        detail = say("{unknown}: part of the gaps may be such waits, which fusion does not save", unknown=UNKNOWN_WAITS)
        yield RuleCheck(rule=GAPS, status="unknown", detail=detail)
    yield from _communication_rule(view, kernels)
    detail = say(
        "to see where the scope breaks, use a separate run with ASCEND_GLOBAL_LOG_LEVEL=2 (CANN logs errors only "
        "otherwise): strict-scope-check=bypass warns in plog (super_kernel_scope) and makes no SuperKernel of that "
        "scope; abort stops the compilation; neither sees communication"
    )
    yield RuleCheck(rule=say("scope"), status="unknown", detail=detail)
    detail = say("every operator must support SuperKernels (TBE and TIK do not): the profile does not tell, plog does")
    yield RuleCheck(rule=say("operators"), status="unknown", detail=detail)


def _static_rule(view: DeviceWindow, sequence: KernelSequence) -> RuleCheck:
    rule = say("static graph")
    if bool(view.tasks.state.known()[sequence.runs[0]].all()):
        return RuleCheck(rule=rule, status="ok", detail=say("OP State shows a static graph"))
    detail = say("OP State is not recorded for all kernels, so the graph may be dynamic")
    return RuleCheck(rule=rule, status="unknown", detail=detail)


def _core_rules(view: DeviceWindow, kernels: I64, launch: tuple[int, int] | None, owned: Owned) -> Iterator[RuleCheck]:
    """Check what depends on how many cores the kernels start, and whose these are."""
    if launch is None:
        detail = say(
            "Block Dim is missing for {missing} of {kernels} kernels: if a kernel launches with fewer cores than the "
            "SuperKernel and calls SyncAll, it hangs without this option",
            missing=len(without_blocks(view.tasks, kernels)),
            kernels=len(kernels),
        )
        yield RuleCheck(rule=say("feed-sync-all"), status="unknown", detail=detail)
    if owned.reason:
        detail = say("left at 0, because streams with cores of their own must not share them: {why}", why=owned.reason)
        yield RuleCheck(rule=say("stream-fusion"), status="unknown", detail=detail)
    if owned.limited:
        detail = say("judged without the core limits above: with them, its kernels launch with fewer cores")
        yield RuleCheck(rule=say("core limits"), status="unknown", detail=detail)


def _communication_rule(view: DeviceWindow, kernels: I64) -> Iterator[RuleCheck]:
    """Say under which condition communication within the scope is fused."""
    inside = kernels[view.tasks.work[kernels] == Work.COMMUNICATION]
    if not len(inside):
        return
    types = series(dict.fromkeys(str(view.types[i] or view.tasks.name[i]) for i in inside.tolist()))
    if view.traits.environment.get(EXPANSION) == AIV_ONLY:
        detail = say("{types}: can be fused, because {name} is {value}", types=types, name=EXPANSION, value=AIV_ONLY)
        yield RuleCheck(rule=say("communication"), status="ok", detail=detail)
        return
    detail = say(
        "{types}: fused only where HCCL runs them on vector cores ({name}={value}, for inference); elsewhere each of "
        "them ends a SuperKernel",
        types=types,
        name=EXPANSION,
        value=AIV_ONLY,
    )
    yield RuleCheck(rule=say("communication"), status="unknown", detail=detail)


def _may_wait_for_cores(view: DeviceWindow, sequence: KernelSequence) -> bool:
    """Tell whether kernels of other streams run meanwhile, and nothing tells when they hold the cores."""
    use = view.over_time
    return (use is None or use.contended_ns is None) and len(streams_within(view.tasks, sequence)) > 1


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
    kernels = runs[:, sequence.fused()]
    gaps = sequence.gaps
    launch = launch_cores(tasks, kernels.ravel())
    types = [view.types[i] or "N/A" for i in kernels[0].tolist()]
    name = f"sk{number}"
    options = list(_options(view, sequence, kernels[0], launch, owned))
    where = view.code_lines(kernels[0])
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
        rules=list(scope_rules(view, sequence, kernels[0], launch, owned)),
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


def _options(
    view: DeviceWindow, sequence: KernelSequence, kernels: np.ndarray, launch: tuple[int, int] | None, owned: Owned
) -> Iterator[ScopeOption]:
    """Decide the options; what is not said stays at its default."""
    fewer = fewer_cores(view.tasks, kernels, launch) if launch else kernels[:0]
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
    streams = streams_within(view.tasks, sequence)
    if len(streams) > MOST_UNFUSED and owned.free:
        reason = say(
            "streams {streams} run at the same time: this option runs them side by side if their "
            "operators are in the scope, too, and helps where cube kernels run beside vector kernels; "
            "not for micro-batches that have cores of their own",
            streams=series(streams),
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
