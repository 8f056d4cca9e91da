"""Streams that wait for each other's cores: core limits per stream."""

from __future__ import annotations

from npuperf.advise.rule import finding
from npuperf.documents.analysis import Finding
from npuperf.messages import say
from npuperf.model.thresholds import Thresholds
from npuperf.scopes.splits import searched_in_part
from npuperf.scopes.view import View

TITLE = say("streams competing for cores")
SOURCE = say("TorchAir: torchair.scope.limit_core_num (in-graph core limits), torch.npu.set_stream_limit in eager mode")


def needs(view: View) -> str | None:
    """Core counts, block counts, and a model of the run."""
    use = view.report.cores.over_time
    if use is None:
        return view.report.cores.reason or "core counts or Block Dim are not recorded: npuperf profile --level 1"
    untold = use.contended_ns is None or bool(use.contention)
    return view.no_bench if use.pairs and untold and view.bench is None else None


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Propose a split where one saves time for certain; say what is missing where waits cannot be told apart."""
    use = view.report.cores.over_time
    split = next((s for s in view.report.core_splits if not s.asked), None)
    waited = use.contended_ns if use else None
    evidence = {
        "contention": [{"stream": c.stream, "holders": c.holders, "least_ns": c.least_ns, "most_ns": c.most_ns}
                       for c in (use.contention if use else [])[:3]],
        "least_ns_per_step": view.per_step(waited[0]) if waited else None,
        "most_ns_per_step": view.per_step(waited[1]) if waited else None,
    }  # fmt: skip
    if split is None or split.gain_ns_per_step is None:
        notable = thresholds.cause_share * view.partition.span_ns
        if use and waited and use.contention_reason and waited[1] >= max(notable, 1):
            most = duration(view.per_step(waited[1]))
            needed = (
                f"kernels wait up to {most} per step while other streams hold their cores, "
                f"but {use.contention_reason}: analyze the folder with trace_view.json, npuperf profile --level 1"
            )
            return finding(
                view, "core_limit", "cannot_tell", TITLE, evidence=evidence, needs=needed, next=needed, source=SOURCE
            )
        if waited and waited[0] >= max(notable, 1) and view.bench is not None and searched_in_part(view.bench):
            most = duration(view.per_step(waited[1]))
            needed = (
                f"kernels wait up to {most} per step for cores of other streams, and limits were searched on the "
                "beginning of this long profile only: analyze a step in which they wait (--step N)"
            )
            return finding(
                view, "core_limit", "cannot_tell", TITLE, evidence=evidence, needs=needed, next=needed, source=SOURCE
            )
        return None
    shown = ", ".join(f"stream {x.stream}: {x.cube},{x.vector}" for x in split.limits)
    violated = [r.detail for r in split.rules if r.status == "violated"]
    if violated:
        needed = f"limits {shown} would fit, but {'; '.join(violated)}"
        told = {**evidence, "violated": violated}
        return finding(
            view, "core_limit", "cannot_tell", TITLE, evidence=told, needs=needed, next=needed, source=SOURCE
        )
    shares = [ns / max(view.partition.span_ns, 1) for ns in waited or (0, 0)]
    open_rules = [r.detail for r in split.rules if r.status == "unknown"]
    found = finding(
        view,
        "core_limit",
        "problem",
        f"in {percents(*shares)} of the time a kernel waits for cores of another stream; limits {shown} separate them",
        evidence={
            **evidence,
            "limits": [{"stream": x.stream, "cube": x.cube, "vector": x.vector} for x in split.limits],
            "slower": [{"type": s.type, "stream": s.stream, "count": s.count, "factor": [s.least, s.most]}
                       for s in split.slower[:3]],
            "unchecked": open_rules,
        },
        gain=split.gain_ns_per_step,
        refute="npuperf analyze --expect-cores STREAM=a,v fails, or the step takes as long: the kernels do not divide",
        next=f"paste the scopes (--full shows them), profile again, verify with --expect-cores; mode: {split.mode}",
        source=SOURCE,
    )  # fmt: skip
    found.code = split.code
    return found
