"""Operators that run on the device's few AI CPUs instead of its cores."""

from __future__ import annotations

from npuperf.advise.rule import View, finding, quote, top_types
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds

TITLE = "operators on AI CPU"
SOURCE = "msprof op_summary: Task Type AI_CPU"


def needs(view: View) -> str | None:
    """Core types must be recorded."""
    if (view.tasks.core.known() & view.compute).any():
        return None
    return "core types are not recorded: npuperf profile --level 1"


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Find AI CPU operators that cover device time nothing else covers."""
    chosen = view.compute & view.tasks.core.flag([c == "AI_CPU" for c in view.tasks.core.names])
    exposed = view.exposed(chosen)
    if exposed < thresholds.ai_cpu_share * view.partition.span_ns:
        return None
    rows = top_types(view, chosen)
    return finding(
        view,
        "ai_cpu",
        "problem",
        f"AI CPU operators: {quote(rows)}",
        evidence={"count": int(chosen.sum()), "exposed_ns": exposed, "types": rows},
        gain=(0, view.per_step(exposed)),
        refute="the same operators with another dtype or shape stay on AI CPU, or other streams hide them",
        next="use a dtype that AI Core has (int32 for int64, float for double), or move it off the step",
        source=SOURCE,
    )
