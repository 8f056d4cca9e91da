"""Streams that wait for each other's cores: core limits per stream."""

from __future__ import annotations

from typing import Any, Final

from npuperf.advise.needs import CORE_TYPES, Need
from npuperf.advise.rule import Answer, Detected, Rule, Untold, notable_wait
from npuperf.documents.analysis import CoresOverTime, CoreSplit
from npuperf.messages import Message, Series, ns, say, series, share
from npuperf.scopes.splits import Bench, searched_in_part
from npuperf.scopes.view import DeviceView

TITLE = say("streams competing for cores")
SOURCE = say(
    "TorchAir: limit_core_num of torchair.scope (GE graphs) and of torch.npu.npugraph_ex.scope (captured graphs), "
    "torch.npu.set_stream_limit in eager mode"
)
_NO_BLOCKS = say("no kernel in this window has both a core type and a Block Dim: record with npuperf profile --level 1")


def _no_model(view: DeviceView) -> Message | None:
    """Say what of core counts, block counts and a model of the run is missing."""
    use = view.report.cores.over_time
    if use is None:
        return view.report.cores.reason or _NO_BLOCKS
    untold = use.contended_ns is None or bool(use.contention)
    return view.bench if use.pairs and untold and isinstance(view.bench, Message) else None


def judge(view: DeviceView) -> Answer:
    """Propose a split where one saves time for certain; say what is missing where waits cannot be told apart."""
    use = view.report.cores.over_time
    assert use is not None  # or _no_model had said so
    split = next((s for s in view.report.core_splits if not s.asked), None)
    if split is None or split.gain_ns_per_step is None:
        unsettled = _unsettled(view, use)
        return Untold(unsettled, _evidence(view, use)) if unsettled else None
    violated = [r.detail for r in split.rules if r.status == "violated"]
    if not violated:
        return _proposal(view, use, split)
    needed = say(
        "core limits would fit ({limits}), but {violated}", limits=_limits(split), violated=series(violated, by="; ")
    )
    return Untold(needed, {**_evidence(view, use), "violated": violated})


def _unsettled(view: DeviceView, use: CoresOverTime) -> Message | None:
    """Say what is missing where no split is proposed though kernels may wait for a notable time."""
    if use.contended_ns is None:
        return None
    least, most = use.contended_ns
    waited = ns(view.per_step(most))
    if use.contention_reason and most >= notable_wait(view):
        return say(
            "kernels wait up to {waited} per step while other streams hold the cores, but {reason}; "
            "analyze the whole folder with its trace_view.json, or record with npuperf profile "
            "--level 1",
            waited=waited,
            reason=use.contention_reason,
        )
    if least >= notable_wait(view) and isinstance(view.bench, Bench) and searched_in_part(view.bench):
        return say("kernels wait up to {waited} per step for cores that other streams hold, but core limits "
"were searched only in the first part of this long profile: analyze a step in which they "
"wait (--step N)",
                   waited=waited)  # fmt: skip
    return None


def _proposal(view: DeviceView, use: CoresOverTime, split: CoreSplit) -> Detected:
    least, most = (waited / max(view.partition.span_ns, 1) for waited in use.contended_ns or (0, 0))
    return Detected(
        title=say(
            "during {waited} of span a kernel waits for cores that another stream holds; core limits "
            "separate the streams ({limits})",
            waited=share(least, most),
            limits=_limits(split),
        ),
        evidence={
            **_evidence(view, use),
            "limits": [{"stream": x.stream, "cube": x.cube, "vector": x.vector} for x in split.limits],
            "slower": [
                {"type": s.type, "stream": s.stream, "count": s.count, "factor": [s.least, s.most]}
                for s in split.slower[:3]
            ],
            "unchecked": [r.detail for r in split.rules if r.status == "unknown"],
        },
        gain=split.gain_ns_per_step,
        refute=say(
            "npuperf analyze --expect-cores STREAM=CUBE,VECTOR fails, or the step takes just as long "
            "(the work of the kernels cannot be divided)"
        ),
        next=say(
            "paste the scopes (--full shows them), profile again, verify with --expect-cores; mode: {mode}",
            mode=split.mode,
        ),
        code=split.code,
    )


def _limits(split: CoreSplit) -> Series:
    each = (
        say("stream {stream}: {cube},{vector}", stream=x.stream, cube=x.cube, vector=x.vector) for x in split.limits
    )
    return series(each, by="; ")


def _evidence(view: DeviceView, use: CoresOverTime) -> dict[str, Any]:
    waited = use.contended_ns
    return {
        "contention": [
            {"stream": c.stream, "holders": c.holders, "least_ns": c.least_ns, "most_ns": c.most_ns}
            for c in use.contention[:3]
        ],
        "least_ns_per_step": view.per_step(waited[0]) if waited else None,
        "most_ns_per_step": view.per_step(waited[1]) if waited else None,
    }


_MODEL: Final = Need(say("core model"), lambda v: float(_no_model(v) is None), lambda v: _no_model(v) or _NO_BLOCKS)
RULE = Rule("core_limit", TITLE, SOURCE, (CORE_TYPES, _MODEL), judge)
