"""Sequences of kernels worth one SuperKernel: scopes with their options, reasons and code."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from npuperf.documents.analysis import ScopeOption, Segment, SuperKernelScope
from npuperf.escape import for_code
from npuperf.messages import Message, say, series
from npuperf.model.chip import product_of_soc
from npuperf.model.tasks import Work
from npuperf.scopes.own_cores import MOST_UNFUSED, Owned, cores_owned
from npuperf.scopes.scope_rules import AIV_ONLY, EXPANSION, scope_rules
from npuperf.scopes.sequences import (
    KernelSequence,
    can_fuse_communication,
    fewer_cores,
    find_sequences,
    launch_blocks,
    launch_cores,
    streams_within,
)
from npuperf.scopes.view import DeviceView
from npuperf.scopes.ways import is_dynamic_graph, is_static_graph, way_of

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


def scopes(view: DeviceView, limited: Collection[str] = ()) -> list[SuperKernelScope]:
    """Return the sequences that would save most; none outside of static graphs of GE and of Atlas A2 and A3.

    ``limited``: where the user says that kernels have core limits.
    """
    if _impossible(view) or untold_graph(view):
        return []
    reports = []
    for number, sequence in enumerate(_found(view)[:_SCOPES], 1):
        reports.append(_scope(view, sequence, number, cores_owned(view, sequence, limited)))
    return [r for r in reports if r.gain_ns_per_step[1] > 0]


def untold_graph(view: DeviceView) -> Message | None:
    """Say what is missing to know that there is a static graph of GE; None where it is known whether there is."""
    if way_of(view.mode) == "unknown":
        return _NO_MODE
    return None if is_static_graph(view.mode) or (view.tasks.state.known() & view.compute).any() else _NO_STATES


def possible_gaps(view: DeviceView) -> int:
    """Return the gaps per step (ns) that scopes could save if the kernels belong to static graphs of GE."""
    if _impossible(view):
        return 0
    return view.per_step(sum(sum(sequence.gaps) for sequence in _found(view)[:_SCOPES]))


def _impossible(view: DeviceView) -> bool:
    """Tell whether the profile shows that there can be no SuperKernel."""
    soc, way = view.report.soc, way_of(view.mode)
    return way not in ("ge", "unknown") or is_dynamic_graph(view.mode) or bool(soc and product_of_soc(soc) is None)


def _found(view: DeviceView) -> list[KernelSequence]:
    fused = view.traits.environment.get(EXPANSION) in (None, "", AIV_ONLY)
    return find_sequences(view.tasks, view.waits, view.held, view.thresholds, communication=fused)


def _scope(view: DeviceView, sequence: KernelSequence, number: int, owned: Owned) -> SuperKernelScope:
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


def _stopper(view: DeviceView, task: int) -> Message:
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
    view: DeviceView, sequence: KernelSequence, kernels: np.ndarray, launch: tuple[int, int] | None, owned: Owned
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
