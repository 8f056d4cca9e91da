"""Sequences of kernels worth one SuperKernel: scopes with their options, reasons and code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from npuperf.advise.rule import View, code_lines, finding
from npuperf.documents.analysis import Finding, RuleCheck, ScopeOption, Segment, SuperKernelScope
from npuperf.model.chip import product_of_soc
from npuperf.model.tasks import Work
from npuperf.model.thresholds import Thresholds
from npuperf.scopes.sequences import (
    KernelSequence,
    fewer_cores,
    find_sequences,
    launch_blocks,
    launch_cores,
    streams_within,
)
from npuperf.units import duration

TITLE = "gaps between kernels of static graphs"
SOURCE = (
    "TorchAir: torchair.scope.super_kernel in max-autotune static graphs; gaps between consecutive kernels, measured"
)

_UNKNOWN_WAITS: Final = "other streams run meanwhile, and whether kernels wait for their cores is not known"
_SCOPES: Final = 5
_TYPES: Final = 8


def needs(view: View) -> str | None:
    """Core types must be recorded."""
    if not view.tasks.core.known().any():
        return "core types are not recorded: npuperf profile --level 1"
    return None


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Report the scopes together if their gaps are a notable part of the window."""
    scopes = view.report.super_kernels
    most = sum(s.gain_ns_per_step[1] for s in scopes)
    if not scopes or most < thresholds.cause_share * view.per_step(view.partition.span_ns):
        return None
    first = scopes[0]
    unknown = [r.detail for s in scopes for r in s.rules if r.rule == "gaps"]
    if unknown:
        needed = f"{duration(most)} per step between kernels that SuperKernels could hold, but {_UNKNOWN_WAITS}: "
        needed += "analyze the folder with trace_view.json, core counts and Block Dim (npuperf profile --level 1)"
        return finding(
            view, "super_kernel", "cannot_tell", TITLE, evidence={}, needs=needed, next=needed, source=SOURCE
        )
    found = finding(
        view,
        "super_kernel",
        "problem",
        f"{duration(most)} per step between kernels that SuperKernels could hold: {len(scopes)} scopes, the first of "
        f"{first.kernels} kernels ×{first.count} on stream {first.stream}",
        evidence={
            "scopes": [{"name": s.name, "stream": s.stream, "count": s.count, "kernels": s.kernels,
                        "gaps_ns": s.gaps_ns, "segments": len(s.segments)} for s in scopes],
            "unchecked": [r.detail for r in first.rules if r.status == "unknown"],
        },
        gain=(0, most),
        refute="npuperf analyze AFTER --before THIS shows that the SuperKernel takes as long, or longer (published)",
        next="paste the scope (--full shows it), compile, profile again, verify with --before",
        source=SOURCE,
    )  # fmt: skip
    found.code = first.code
    return found


def scopes(view: View) -> list[SuperKernelScope]:
    """Return the sequences that would save most; none outside of static graphs and of Atlas A2 and A3."""
    soc = view.report.soc
    if view.mode in ("eager", "aclgraph") or (soc and product_of_soc(soc) is None):
        return []
    found = find_sequences(view.tasks, view.waits, view.held, view.thresholds)
    reports = [_scope(view, sequence, number) for number, sequence in enumerate(found[:_SCOPES], 1)]
    return [r for r in reports if r.gain_ns_per_step[1] > 0]


def _scope(view: View, sequence: KernelSequence, number: int) -> SuperKernelScope:
    tasks, runs = view.tasks, sequence.runs
    kernels = runs[:, sequence.fused()]
    gaps = sequence.gaps
    launch = launch_cores(tasks, kernels.ravel())
    types = [view.types[i] or "N/A" for i in kernels[0].tolist()]
    name = f"sk{number}"
    options = list(_options(view, sequence, kernels[0], launch))
    where = code_lines(view, kernels[0])
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


def _stopper(view: View, task: int) -> str:
    """Say which kernel ends a segment and why."""
    what = view.types[task] or view.tasks.name[task] or "a kernel"
    if view.tasks.work[task] == Work.COMMUNICATION:
        return f"{what} (communication)"
    if view.tasks.dynamic[task]:
        return f"{what} (dynamic shape)"
    return f"{what} ({view.tasks.core[task] or 'unknown core'})"


def _options(
    view: View, sequence: KernelSequence, kernels: np.ndarray, launch: tuple[int, int] | None
) -> Iterator[ScopeOption]:
    """Decide the options; what is not said stays at its default."""
    fewer = fewer_cores(view.tasks, kernels, launch) if launch else kernels[:0]
    if launch and len(fewer):
        example = view.types[int(fewer[0])] or "a kernel"
        reason = (
            f"{len(fewer)} of {len(kernels)} kernels ({example}) start fewer cores than the SuperKernel "
            f"({launch_blocks(launch)}); if one of them calls SyncAll it hangs without this"
        )
        yield ScopeOption(key="feed-sync-all", value="1", reason=reason)
    streams = streams_within(view.tasks, sequence)
    bound = bool(view.report.core_splits)
    if len(streams) > 2 and not bound:
        listed = ", ".join(map(str, streams))
        reason = (
            f"streams {listed} run meanwhile: it runs them side by side if their operators are in the scope, too, and "
            "gains where cube kernels stand beside vector kernels; not for micro-batches with cores of their own"
        )
        yield ScopeOption(key="stream-fusion", value="1", reason=reason)


def _rules(view: View, sequence: KernelSequence, launch: tuple[int, int] | None) -> Iterator[RuleCheck]:
    product = product_of_soc(view.report.soc or "")
    detail = f"Atlas A3 (newer CANN: A2, too): {product or 'the profile does not name the chip'}"
    yield RuleCheck(rule="product", status="ok" if product == "Atlas A3" else "unknown", detail=detail)
    detail = "max-autotune only: " + (
        "GE executes the graph" if view.mode == "ge" else "the profile does not tell the mode"
    )
    yield RuleCheck(rule="mode", status="ok" if view.mode == "ge" else "unknown", detail=detail)
    known = bool(view.tasks.state.known()[sequence.runs[0]].all())
    compute = view.tasks.work == Work.COMPUTE
    if (view.tasks.dynamic & compute).any():
        detail, known = "kernels of dynamic shape are there: in a dynamic graph no SuperKernel is made, silently", False
    else:
        detail = "static graph: " + ("OP State says so" if known else "OP State is not recorded for all kernels")
    yield RuleCheck(rule="static graph", status="ok" if known else "unknown", detail=detail)
    if launch is None:
        detail = "Block Dim is not recorded: where a kernel starts fewer cores and calls SyncAll, it hangs without it"
        yield RuleCheck(rule="feed-sync-all", status="unknown", detail=detail)
    limited = {x.stream for split in view.report.core_splits for x in split.limits}
    if sequence.stream in limited:
        detail = "judged without the core limits above: under them its kernels start fewer cores"
        yield RuleCheck(rule="core limits", status="unknown", detail=detail)
    if _may_wait_for_cores(view, sequence):
        detail = f"{_UNKNOWN_WAITS}: part of the gaps may be such waits, which no fusion saves"
        yield RuleCheck(rule="gaps", status="unknown", detail=detail)
    detail = (
        "to see where it breaks, in a run for that alone: strict-scope-check=bypass warns in plog (super_kernel_scope) "
        "and makes no SuperKernel of that scope, abort stops the compilation; neither sees communication"
    )
    yield RuleCheck(rule="scope", status="unknown", detail=detail)
    detail = "every operator must support it (TBE and TIK do not): the profile does not tell, plog does"
    yield RuleCheck(rule="operators", status="unknown", detail=detail)


def _may_wait_for_cores(view: View, sequence: KernelSequence) -> bool:
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
