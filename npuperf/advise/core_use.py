"""Kernels that use few of the chip's cores."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from npuperf.advise.needs import ALL_ROWS, BLOCKS, CORE_COUNTS, CORE_TYPES, Need, Option, Requirement
from npuperf.advise.rule import Answer, Detected, Untold, notable_wait, quote, rule, top_types
from npuperf.base.messages import Message, ns, say, say_n, series, share
from npuperf.device.core_splits import Bench, searched_in_part
from npuperf.device.cores import blocks, occupancy
from npuperf.device.superkernel import GAPS, UNKNOWN_WAITS, possible_gaps, untold_graph
from npuperf.device.view import DeviceView
from npuperf.model.groups import distinct
from npuperf.model.labels import F64, Operands

_VECTOR_CORES: Final = Need(
    say("vector cores"),
    lambda view: float((_busiest(view) > 0).any()),
    lambda _: say("the number of vector cores is unknown: give --cores or --soc"),
)


def _busiest(view: DeviceView) -> F64:
    """Return the share of cores each task keeps busy on the side that it fills most, -1 unknown."""
    used = blocks(view.tasks)
    filled: F64 = np.fmax(occupancy(used.cube, view.cores.cube), occupancy(used.vector, view.cores.vector))
    filled[np.isnan(filled)] = -1.0
    return filled


@rule(
    say("idle cores"),
    say("Block Dim and Mix Block Dim against the core counts"),
    (CORE_COUNTS, BLOCKS, _VECTOR_CORES, ALL_ROWS),
)
def idle_cores(view: DeviceView) -> Answer:
    """Compare the core time that kernels occupy with what they could while they run."""
    busiest = _busiest(view)
    chosen = view.compute & (busiest > 0)
    dur = view.tasks.dur[chosen]
    total = int(dur.sum())
    unused = (1 - busiest[chosen]) * dur
    idle = float(unused.sum()) / total if total else 0.0
    if idle < view.thresholds.idle_core_share:
        return None
    rows = top_types(view, chosen & (busiest < 1))
    return Detected(
        title=say(
            "by their blocks kernels leave {idle} of the cores idle while they run: {types}",
            idle=share(idle),
            types=quote(rows),
        ),
        evidence={"idle_share_of_busy_core_time": idle, "count": int((busiest[chosen] < 1).sum()), "types": rows},
        gain=(0, view.per_step(min(int(unused.sum()), view.exposed(chosen)))),
        refute=say("a larger batch takes longer in proportion (the maximum assumes perfectly divisible work)"),
        next=say(
            "raise the batch size or fuse operators, so that kernels have more blocks, or run independent streams "
            "side by side"
        ),
    )


# -- Operators that run on the device's few AI CPUs instead of its cores.

_TASK_TYPE: Final = say("msprof op_summary: Task Type AI_CPU")

#: Dtypes that many operators support on AI CPU only, and what AI Core has instead.
_NARROWER: Final = {"INT64": "int32", "FLOAT64": "float"}
_ON_AI_CORE: Final = say("msprof-analyze, advisor, aicpu_rules: the dtypes that operators have on AI Core")


@rule(
    say("operators on AI CPU"),
    _TASK_TYPE,
    (CORE_TYPES, ALL_ROWS),
)
def ai_cpu(view: DeviceView) -> Answer:
    """Find AI CPU operators that cover device time nothing else covers."""
    chosen = view.compute & view.tasks.core.flag([c == "AI_CPU" for c in view.tasks.core.names])
    exposed = view.exposed(chosen)
    if exposed < view.thresholds.ai_cpu_share * view.partition.span_ns:
        return None
    rows = top_types(view, chosen)
    codes = distinct(view.tasks.operands.codes[chosen])
    texts = [view.tasks.operands.names[c] for c in codes.tolist() if c >= 0]
    dtypes = sorted({dtype for text in texts for dtype in Operands.parse(text).dtypes if dtype})
    wide = [d for d in dtypes if d in _NARROWER]
    names = series(_NARROWER[d] for d in wide) if wide else series(["int32", "float"])
    has = Requirement(say("inputs of int64 or double"), lambda _: bool(wide) if dtypes else None)
    return Detected(
        title=say("operators run on AI CPU: {types}", types=quote(rows)),
        evidence={"count": int(chosen.sum()), "exposed_ns": exposed, "types": rows, "dtypes": dtypes},
        gain=(0, view.per_step(exposed)),
        refute=say("the same operators stay on AI CPU with another dtype or shape, or other streams hide them"),
        next=(
            Option(say("use a dtype that AI Core has ({dtypes})", dtypes=names), _ON_AI_CORE, (has,)),
            Option(say("move these operators out of the step, or beside other streams' work"), _TASK_TYPE),
        ),
    )


# -- Streams that wait for each other's cores: core limits per stream.

_NO_BLOCKS = say("no kernel in this window has both a core type and a Block Dim: record with npuperf profile --level 1")


def _no_model(view: DeviceView) -> Message | None:
    """Say what of core counts, block counts and a model of the run is missing."""
    use = view.report.cores.over_time
    if use is None:
        return view.report.cores.reason or _NO_BLOCKS
    untold = use.contended_ns is None or bool(use.contention)
    return view.bench if use.pairs and untold and isinstance(view.bench, Message) else None


_MODEL: Final = Need(say("core model"), lambda v: float(_no_model(v) is None), lambda v: _no_model(v) or _NO_BLOCKS)


@rule(
    say("streams competing for cores"),
    say(
        "TorchAir: limit_core_num of torchair.scope (GE graphs) and of torch.npu.npugraph_ex.scope (captured graphs), "
        "torch.npu.set_stream_limit in eager mode"
    ),
    (CORE_TYPES, _MODEL, ALL_ROWS),
)
def core_limit(view: DeviceView) -> Answer:
    """Propose a split where one saves time for certain; say what is missing where waits cannot be told apart."""
    use = view.report.cores.over_time
    assert use is not None  # or _no_model had said so
    split = next((s for s in view.report.core_splits if not s.asked), None)
    waits = use.contended_ns
    evidence: dict[str, Any] = {
        "contention": [
            {"stream": c.stream, "holders": c.holders, "least_ns": c.least_ns, "most_ns": c.most_ns}
            for c in use.contention[:3]
        ],
        "least_ns_per_step": view.per_step(waits[0]) if waits else None,
        "most_ns_per_step": view.per_step(waits[1]) if waits else None,
    }
    if split is None or split.gain_ns_per_step is None:
        if waits is None:
            return None
        waited = ns(view.per_step(waits[1]))
        if use.contention_reason and waits[1] >= notable_wait(view):
            unsettled = say(
                "kernels wait up to {waited} per step while other streams hold the cores, but {reason}; "
                "analyze the whole folder with its trace_view.json, or record with npuperf profile "
                "--level 1",
                waited=waited,
                reason=use.contention_reason,
            )
            return Untold(unsettled, evidence)
        if waits[1] >= notable_wait(view) and isinstance(view.bench, Bench) and searched_in_part(view.bench):
            unsettled = say(
                "kernels wait up to {waited} per step for cores that other streams hold, but core limits were "
                "searched only in the first part of this long profile: analyze a step in which they wait (--step N)",
                waited=waited,
            )
            return Untold(unsettled, evidence)
        return None
    limits = series(
        (say("stream {stream}: {cube},{vector}", stream=x.stream, cube=x.cube, vector=x.vector) for x in split.limits),
        by="; ",
    )
    violated = [r.detail for r in split.rules if r.status == "violated"]
    if violated:
        needed = say(
            "core limits would fit ({limits}), but {violated}", limits=limits, violated=series(violated, by="; ")
        )
        return Untold(needed, {**evidence, "violated": violated})
    least, most = (waited / max(view.partition.span_ns, 1) for waited in waits or (0, 0))
    return Detected(
        title=say(
            "during {waited} of span a kernel waits for cores that another stream holds; core limits "
            "separate the streams ({limits})",
            waited=share(least, most),
            limits=limits,
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
            "npuperf analyze --expect-cores STREAM=CUBE,VECTOR fails, or the step takes just as long "
            "(the work of the kernels cannot be divided)"
        ),
        next=say(
            "paste the scopes (--full shows them), profile again, verify with --expect-cores; mode: {mode}",
            mode=split.mode,
        ),
        code=split.code,
    )


# -- Sequences of kernels worth one SuperKernel.


@rule(
    say("gaps between kernels of static graphs"),
    say(
        "TorchAir: torchair.scope.super_kernel in max-autotune static graphs; gaps between consecutive kernels, "
        "measured"
    ),
    (CORE_TYPES,),
)
def super_kernel(view: DeviceView) -> Answer:
    """Report the scopes together if their gaps are a notable part of the window."""
    scopes = view.report.super_kernels
    notable = view.thresholds.cause_share * view.per_step(view.partition.span_ns)
    if missing := untold_graph(view):
        gaps = possible_gaps(view)
        needed = say("consecutive kernels have gaps of {gaps} per step between them, but {missing}",
                     gaps=ns(gaps), missing=missing)  # fmt: skip
        return Untold(needed) if gaps >= max(notable, 1) else None
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
