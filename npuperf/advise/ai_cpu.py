"""Operators that run on the device's few AI CPUs instead of its cores."""

from __future__ import annotations

from npuperf.advise.rule import NO_CORE_TYPES, Answer, Detected, Rule, quote, top_types
from npuperf.messages import Message, say
from npuperf.scopes.view import DeviceView

TITLE = say("operators on AI CPU")
SOURCE = say("msprof op_summary: Task Type AI_CPU")


def needs(view: DeviceView) -> Message | None:
    """Core types must be recorded."""
    return None if (view.tasks.core.known() & view.compute).any() else NO_CORE_TYPES


def judge(view: DeviceView) -> Answer:
    """Find AI CPU operators that cover device time nothing else covers."""
    chosen = view.compute & view.tasks.core.flag([c == "AI_CPU" for c in view.tasks.core.names])
    exposed = view.exposed(chosen)
    if exposed < view.thresholds.ai_cpu_share * view.partition.span_ns:
        return None
    rows = top_types(view, chosen)
    return Detected(
        title=say("operators run on AI CPU: {types}", types=quote(rows)),
        evidence={"count": int(chosen.sum()), "exposed_ns": exposed, "types": rows},
        gain=(0, view.per_step(exposed)),
        refute=say("the same operators stay on AI CPU with another dtype or shape, or other streams hide them"),
        next=say("use a dtype that AI Core has (int32 for int64, float for double), or move them out of the step"),
    )


RULE = Rule("ai_cpu", TITLE, SOURCE, needs, judge)
