"""Streams that wait for each other's cores: core limits per stream."""

from __future__ import annotations

from typing import Any

from npuperf.advise.rule import finding
from npuperf.documents.analysis import CoresOverTime, CoreSplit, Finding
from npuperf.messages import Message, Series, ns, say, series, share
from npuperf.model.thresholds import Thresholds
from npuperf.scopes.splits import Bench, searched_in_part
from npuperf.scopes.view import View

TITLE = say("streams competing for cores")
SOURCE = say("TorchAir: torchair.scope.limit_core_num (in-graph core limits), torch.npu.set_stream_limit in eager mode")


def needs(view: View) -> Message | None:
    """Core counts, block counts, and a model of the run."""
    use = view.report.cores.over_time
    if use is None:
        return view.report.cores.reason or say("core counts or Block Dim are not recorded: npuperf profile --level 1")
    untold = use.contended_ns is None or bool(use.contention)
    return view.bench if use.pairs and untold and isinstance(view.bench, Message) else None


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Propose a split where one saves time for certain; say what is missing where waits cannot be told apart."""
    use = view.report.cores.over_time
    if use is None:
        return None
    evidence = _evidence(view, use)
    split = next((s for s in view.report.core_splits if not s.asked), None)
    if split is None or split.gain_ns_per_step is None:
        needed = _unsettled(view, use)
    else:
        violated = [r.detail for r in split.rules if r.status == "violated"]
        if not violated:
            return _proposed(view, use, split, evidence)
        evidence["violated"] = violated
        needed = say(
            "limits {limits} would fit, but {violated}", limits=_limits(split), violated=series(violated, by="; ")
        )
    if needed is None:
        return None
    return finding(
        view, "core_limit", "cannot_tell", TITLE, evidence=evidence, needs=needed, next=needed, source=SOURCE
    )


def _evidence(view: View, use: CoresOverTime) -> dict[str, Any]:
    waited = use.contended_ns
    return {
        "contention": [
            {"stream": c.stream, "holders": c.holders, "least_ns": c.least_ns, "most_ns": c.most_ns}
            for c in use.contention[:3]
        ],
        "least_ns_per_step": view.per_step(waited[0]) if waited else None,
        "most_ns_per_step": view.per_step(waited[1]) if waited else None,
    }


def _unsettled(view: View, use: CoresOverTime) -> Message | None:
    """Say what is missing where no split is proposed though kernels may wait for a notable time."""
    if use.contended_ns is None:
        return None
    least, most = use.contended_ns
    notable = max(view.thresholds.cause_share * view.partition.span_ns, 1)
    if use.contention_reason and most >= notable:
        return say(
            "kernels wait up to {most} per step while other streams hold their cores, but {reason}: analyze the folder "
            "with trace_view.json, npuperf profile --level 1",
            most=ns(view.per_step(most)),
            reason=use.contention_reason,
        )
    if least >= notable and isinstance(view.bench, Bench) and searched_in_part(view.bench):
        return say(
            "kernels wait up to {most} per step for cores of other streams, and limits were searched on the beginning "
            "of this long profile only: analyze a step in which they wait (--step N)",
            most=ns(view.per_step(most)),
        )
    return None


def _limits(split: CoreSplit) -> Series:
    return series(
        say("stream {stream}: {cube},{vector}", stream=x.stream, cube=x.cube, vector=x.vector) for x in split.limits
    )


def _proposed(view: View, use: CoresOverTime, split: CoreSplit, evidence: dict[str, Any]) -> Finding:
    least, most = (waited / max(view.partition.span_ns, 1) for waited in use.contended_ns or (0, 0))
    return finding(
        view,
        "core_limit",
        "problem",
        say(
            "in {waited} of the time a kernel waits for cores of another stream; limits {limits} separate them",
            waited=share(least, most),
            limits=_limits(split),
        ),
        evidence={
            **evidence,
            "limits": [{"stream": x.stream, "cube": x.cube, "vector": x.vector} for x in split.limits],
            "slower": [
                {"type": s.type, "stream": s.stream, "count": s.count, "factor": [s.least, s.most]}
                for s in split.slower[:3]
            ],
            "unchecked": [r.detail for r in split.rules if r.status == "unknown"],
        },
        gain=split.gain_ns_per_step,
        refute=say(
            "npuperf analyze --expect-cores STREAM=a,v fails, or the step takes as long: the kernels do not divide"
        ),
        next=say(
            "paste the scopes (--full shows them), profile again, verify with --expect-cores; mode: {mode}",
            mode=split.mode,
        ),
        code=split.code,
        source=SOURCE,
    )
