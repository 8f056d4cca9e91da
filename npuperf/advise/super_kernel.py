"""Sequences of kernels worth one SuperKernel."""

from __future__ import annotations

from npuperf.advise.rule import finding
from npuperf.documents.analysis import Finding
from npuperf.messages import say
from npuperf.model.thresholds import Thresholds
from npuperf.scopes.view import View

TITLE = say("gaps between kernels of static graphs")
SOURCE = say(
    "TorchAir: torchair.scope.super_kernel in max-autotune static graphs; gaps between consecutive kernels, measured"
)


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
