"""Sequences of kernels worth one SuperKernel: scopes with their options, reasons and code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from npuperf.documents.analysis import RuleCheck, ScopeOption, Segment, SuperKernelScope
from npuperf.messages import Message, say, series
from npuperf.model.chip import product_of_soc
from npuperf.model.tasks import Work
from npuperf.scopes.sequences import (
    KernelSequence,
    fewer_cores,
    find_sequences,
    launch_blocks,
    launch_cores,
    streams_within,
)
from npuperf.scopes.view import DeviceView

#: The rule about waits that may be in the gaps.
GAPS: Final = say("gaps")
UNKNOWN_WAITS: Final = say("other streams run at the same time, and it is unknown whether kernels wait for their cores")
_SCOPES: Final = 5
_TYPES: Final = 8


def scopes(view: DeviceView) -> list[SuperKernelScope]:
    """Return the sequences that would save most; none outside of static graphs and of Atlas A2 and A3."""
    soc = view.report.soc
    if view.mode in ("eager", "aclgraph") or (soc and product_of_soc(soc) is None):
        return []
    found = find_sequences(view.tasks, view.waits, view.held, view.thresholds)
    reports = [_scope(view, sequence, number) for number, sequence in enumerate(found[:_SCOPES], 1)]
    return [r for r in reports if r.gain_ns_per_step[1] > 0]


def _scope(view: DeviceView, sequence: KernelSequence, number: int) -> SuperKernelScope:
    tasks, runs = view.tasks, sequence.runs
    kernels = runs[:, sequence.fused()]
    gaps = sequence.gaps
    launch = launch_cores(tasks, kernels.ravel())
    types = [view.types[i] or "N/A" for i in kernels[0].tolist()]
    name = f"sk{number}"
    options = list(_options(view, sequence, kernels[0], launch))
    where = view.code_lines(kernels[0])
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
        rules=list(_rules(view, sequence, launch)),
        code="\n".join(_code(name, options, types, where, len(runs), sequence.stream)) + "\n",
    )


def _stopper(view: DeviceView, task: int) -> Message:
    """Say which kernel ends a segment and why."""
    name = view.types[task] or view.tasks.name[task] or say("a kernel")
    if view.tasks.work[task] == Work.COMMUNICATION:
        return say("{kernel} (communication)", kernel=name)
    if view.tasks.dynamic[task]:
        return say("{kernel} (dynamic shape)", kernel=name)
    core = view.tasks.core[task]
    return say("{kernel} ({core})", kernel=name, core=core) if core else say("{kernel} (unknown core)", kernel=name)


def _options(
    view: DeviceView, sequence: KernelSequence, kernels: np.ndarray, launch: tuple[int, int] | None
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
    if len(streams) > 2 and not view.report.core_splits:
        reason = say(
            "streams {streams} run at the same time: this option runs them side by side if their "
            "operators are in the scope, too, and helps where cube kernels run beside vector kernels; "
            "not for micro-batches that have cores of their own",
            streams=series(streams),
        )
        yield ScopeOption(key="stream-fusion", value="1", reason=reason)


def _rules(view: DeviceView, sequence: KernelSequence, launch: tuple[int, int] | None) -> Iterator[RuleCheck]:
    product = product_of_soc(view.report.soc or "")
    chip = product or say("the profile does not name the chip")
    detail = say("Atlas A3 (newer CANN: A2, too): {product}", product=chip)
    yield RuleCheck(rule=say("product"), status="ok" if product == "Atlas A3" else "unknown", detail=detail)
    if view.mode == "ge":
        yield RuleCheck(rule=say("mode"), status="ok", detail=say("max-autotune only: GE executes the graph"))
    else:
        detail = say("max-autotune only: the profile does not tell the mode")
        yield RuleCheck(rule=say("mode"), status="unknown", detail=detail)
    yield _static_rule(view, sequence)
    if launch is None:
        detail = say(
            "Block Dim is not recorded: if a kernel launches with fewer cores and calls SyncAll, it "
            "hangs without this option"
        )
        yield RuleCheck(rule=say("feed-sync-all"), status="unknown", detail=detail)
    limited = {x.stream for split in view.report.core_splits for x in split.limits}
    if sequence.stream in limited:
        detail = say("judged without the core limits above: with them, its kernels launch with fewer cores")
        yield RuleCheck(rule=say("core limits"), status="unknown", detail=detail)
    if _may_wait_for_cores(view, sequence):
        detail = say("{unknown}: part of the gaps may be such waits, which fusion does not save", unknown=UNKNOWN_WAITS)
        yield RuleCheck(rule=GAPS, status="unknown", detail=detail)
    detail = say(
        "to see where the scope breaks, use a separate run: strict-scope-check=bypass warns in "
        "plog (super_kernel_scope) and makes no SuperKernel of that scope; abort stops the "
        "compilation; neither sees communication"
    )
    yield RuleCheck(rule=say("scope"), status="unknown", detail=detail)
    detail = say("every operator must support SuperKernels (TBE and TIK do not): the profile does not tell, plog does")
    yield RuleCheck(rule=say("operators"), status="unknown", detail=detail)


def _static_rule(view: DeviceView, sequence: KernelSequence) -> RuleCheck:
    rule, compute = say("static graph"), view.tasks.work == Work.COMPUTE
    if (view.tasks.dynamic & compute).any():
        detail = say("there are dynamic-shape kernels: in a dynamic graph no SuperKernel is made, without any message")
        return RuleCheck(rule=rule, status="unknown", detail=detail)
    if bool(view.tasks.state.known()[sequence.runs[0]].all()):
        return RuleCheck(rule=rule, status="ok", detail=say("OP State shows a static graph"))
    detail = say("OP State is not recorded for all kernels, so the graph may be dynamic")
    return RuleCheck(rule=rule, status="unknown", detail=detail)


def _may_wait_for_cores(view: DeviceView, sequence: KernelSequence) -> bool:
    """Tell whether kernels of other streams run meanwhile, and nothing tells when they hold the cores."""
    use = view.report.cores.over_time
    return (use is None or use.contended_ns is None) and len(streams_within(view.tasks, sequence)) > 1


def _code(
    name: str, options: list[ScopeOption], types: list[str], where: list[str], count: int, stream: int
) -> Iterator[str]:
    yield "import torchair"
    yield ""
    yield f"# stream {stream}, {len(types)} kernels ×{count}; inside the compiled function, no graph break in the block"
    yield from (f"#   {line}" for line in where)
    text = ":".join(f"{o.key}={o.value}" for o in options)
    arguments = f'"{name}", "{text}"' if text else f'"{name}"'
    yield f"with torchair.scope.super_kernel({arguments}):"
    more = f" … {types[-1]}" if len(types) > _TYPES else ""
    yield f"    ...  # {', '.join(types[:_TYPES])}{more}"
