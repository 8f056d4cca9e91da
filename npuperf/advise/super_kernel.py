"""Sequences of kernels worth one SuperKernel."""

from __future__ import annotations

from npuperf.advise.needs import CORE_TYPES
from npuperf.advise.rule import Answer, Detected, Rule, Untold
from npuperf.messages import Message, ns, say, say_n
from npuperf.scopes.fusion import possible_gaps, untold_graph
from npuperf.scopes.scope_rules import GAPS, UNKNOWN_WAITS
from npuperf.scopes.view import DeviceView

TITLE = say("gaps between kernels of static graphs")
SOURCE = say(
    "TorchAir: torchair.scope.super_kernel in max-autotune static graphs; gaps between consecutive kernels, measured"
)


def judge(view: DeviceView) -> Answer:
    """Report the scopes together if their gaps are a notable part of the window."""
    scopes = view.report.super_kernels
    notable = view.thresholds.cause_share * view.per_step(view.partition.span_ns)
    if missing := untold_graph(view):
        gaps = possible_gaps(view)
        return Untold(_untold(gaps, missing)) if gaps >= max(notable, 1) else None
    most = sum(s.gain_ns_per_step[1] for s in scopes)
    if not scopes or most < notable:
        return None
    if any(r.rule == GAPS for s in scopes for r in s.rules):
        needed = say(
            "kernels that SuperKernels could fuse have gaps of {gaps} per step between them, but "
            "{unknown}: analyze the whole folder with its trace_view.json, core counts and Block Dim "
            "(npuperf profile --level 1)",
            gaps=ns(most),
            unknown=UNKNOWN_WAITS,
        )
        return Untold(needed)
    first = scopes[0]
    return Detected(
        title=say_n(
            "kernels that a SuperKernel could fuse have gaps of {gaps} per step between them: {n} "
            "scope, with {kernels} kernels ×{count} on stream {stream}",
            "kernels that SuperKernels could fuse have gaps of {gaps} per step between them: {n} "
            "scopes, the first with {kernels} kernels ×{count} on stream {stream}",
            len(scopes),
            gaps=ns(most),
            kernels=first.kernels,
            count=first.count,
            stream=first.stream,
        ),
        evidence={
            "scopes": [
                {n: getattr(s, n) for n in ("name", "stream", "count", "kernels", "gaps_ns")}
                | {"segments": len(s.segments)}
                for s in scopes
            ],
            "unchecked": [r.detail for r in first.rules if r.status == "unknown"],
        },
        gain=(0, most),
        refute=say(
            "npuperf analyze AFTER --before THIS shows that the SuperKernel takes just as long or "
            "longer (such cases have been published)"
        ),
        next=say(
            "paste the scope (--full shows it) with a name of its own for every use, compile, profile again, verify "
            "with --before; CANN's warnings need ASCEND_GLOBAL_LOG_LEVEL=2"
        ),
        code=first.code,
    )


def _untold(gaps: int, missing: Message) -> Message:
    return say("consecutive kernels have gaps of {gaps} per step between them, but {missing}",
               gaps=ns(gaps), missing=missing)  # fmt: skip


RULE = Rule("super_kernel", TITLE, SOURCE, (CORE_TYPES,), judge)
