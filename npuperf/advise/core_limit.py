"""Streams that wait for each other's cores: core limits per stream, proposed, checked and written out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from npuperf.advise.rule import View, code_lines, finding
from npuperf.cores.blocks import on_cores
from npuperf.documents.analysis import CoreLimit, CoreSplit, Finding, RuleCheck
from npuperf.errors import UsageError
from npuperf.model.chip import product_of_soc
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds
from npuperf.scopes.fused import is_super_kernel
from npuperf.scopes.splits import (
    MOST_STREAMS,
    Bench,
    Split,
    best_split,
    complete,
    gain_interval,
    most_possible,
    searched_in_part,
    slower_kernels,
)
from npuperf.units import duration, percents, plural

TITLE = "streams competing for cores"
SOURCE = "TorchAir: torchair.scope.limit_core_num (in-graph core limits), torch.npu.set_stream_limit in eager mode"

#: What each way of executing calls the scope, and on what level it limits.
MODES: Final = {
    "ge": "max-autotune (GE graphs): the limit is an attribute of each operator in the scope",
    "aclgraph": "reduce-overhead / npugraph_ex (captured graphs): the limit is one of the stream, inside the function",
    "eager": "eager: the limit is one of the stream, set with torch.npu.set_stream_limit",
    "unknown": "max-autotune (a limit per operator) or reduce-overhead (per stream): the profile does not tell which",
}
_NAMES: Final = 4


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


def splits(view: View, asked: Split) -> list[CoreSplit]:
    """Return the user's split and the proposal, replayed; the latter only if it saves time in its worst case."""
    found = [_asked(view, asked)] if asked else []
    proposal = _proposal(view)
    return [*found, proposal] if proposal else found


def _proposal(view: View) -> CoreSplit | None:
    bench = view.bench
    soc = view.report.soc
    if bench is None or not 2 <= len(bench.streams) <= MOST_STREAMS or (soc and product_of_soc(soc) is None):
        return None
    noise = bench.scene.replay.error * bench.scene.before
    if most_possible(bench) <= max(noise, view.thresholds.cause_share * bench.scene.before):
        return None
    search = best_split(bench)
    if search.split is None:
        return None
    least, most = gain_interval(bench, search.split)
    if least <= max(noise, 0):
        return None
    found = _report(view, bench, search.split, (least, most), asked=False)
    found.tried, found.searched_kernels = search.tried, search.kernels
    if search.most_ns is not None:
        found.bound_ns_per_step = view.per_step(max(most, search.most_ns))
    return found


def _asked(view: View, asked: Split) -> CoreSplit:
    """Evaluate a split that the user asked for; streams that it leaves out get what it leaves over."""
    mode = MODES[view.mode]
    bare = CoreSplit(
        limits=[_limit(view, stream, limit) for stream, limit in asked.items()],
        asked=True,
        mode=mode,
        span_ns=None,
        gain_ns_per_step=None,
        gain_pct=None,
        slower=[],
        rules=[],
        code=None,
        reason=view.no_bench,
    )
    if view.bench is None:
        return bare
    chip = view.bench.chip
    streams = sorted({int(s) for s in view.bench.stream.tolist() if s >= 0})
    for stream, (cube, vector) in asked.items():
        if stream not in streams:
            raise UsageError(f"--cores-of {stream}: no such stream", hint=f"streams: {', '.join(map(str, streams))}")
        for name, value, most in (("cube", cube, chip[0]), ("vector", vector, chip[1])):
            if not min(1, most) <= value <= most:
                hint = f"this chip has {chip[0]} cube and {chip[1]} vector cores"
                raise UsageError(f"--cores-of {stream}={cube},{vector}: {value} {name} cores", hint=hint)
    split = complete(view.bench, asked)
    if any(value < min(1, most) for limit in split.values() for value, most in zip(limit, chip, strict=True)):
        bare.reason = "nothing is left for the other streams: name them, too"
        return bare
    return _report(view, view.bench, split, gain_interval(view.bench, split), asked=True)


def _report(view: View, bench: Bench, split: Split, gain: tuple[int, int], *, asked: bool) -> CoreSplit:
    before = bench.scene.before
    limits = [_limit(view, stream, limit) for stream, limit in split.items()]
    return CoreSplit(
        limits=limits,
        asked=asked,
        mode=MODES[view.mode],
        span_ns=(before - gain[1], before - gain[0]),
        gain_ns_per_step=(view.per_step(gain[0]), view.per_step(gain[1])),
        gain_pct=(100 * gain[0] / max(before, 1), 100 * gain[1] / max(before, 1)),
        slower=slower_kernels(bench, split),
        rules=list(_rules(view, bench, split)),
        code="\n".join(_code(view.mode, limits)) + "\n",
        reason=None,
    )


def _limit(view: View, stream: int, limit: tuple[int, int]) -> CoreLimit:
    mine = np.flatnonzero((view.tasks.stream == stream) & (view.tasks.work == Work.COMPUTE))
    total = np.bincount(view.types.codes[mine] + 1, view.tasks.dur[mine], minlength=1)[1:]
    order = [int(i) for i in np.argsort(-total, kind="stable") if total[i] > 0]
    return CoreLimit(
        stream=stream,
        cube=limit[0],
        vector=limit[1],
        kernels=len(mine),
        types=[view.types.names[i] for i in order],
        where=code_lines(view, mine),
    )


def _rules(view: View, bench: Bench, split: Split) -> Iterator[RuleCheck]:
    """Hold a split against everything that is documented about core limits."""
    product = product_of_soc(view.report.soc or "")
    if view.report.soc is None:
        yield RuleCheck(
            rule="product", status="unknown", detail="Atlas A2 or A3 only: the profile does not name the chip"
        )
    else:
        detail = f"{view.report.soc}: {product or 'neither Atlas A2 nor A3'}"
        yield RuleCheck(rule="product", status="ok" if product else "violated", detail=detail)
    chip = bench.chip
    sums = tuple(sum(min(limit[side], bench.uses(s, side)) for s, limit in split.items()) for side in (0, 1))
    fits = sums[0] <= chip[0] and sums[1] <= chip[1]
    text = f"streams that run side by side use {sums[0]} of {chip[0]} cube and {sums[1]} of {chip[1]} vector cores"
    more = "" if fits else ": kernels that wait for each other may hang"
    yield RuleCheck(rule="sum", status="ok" if fits else "violated", detail=text + more)
    yield RuleCheck(rule="range", status="ok", detail=f"every value within 1 and {chip[0]}, {chip[1]} (0 where none)")
    yield from _operator_rules(view.tasks, view.mode, split)
    yield _static_rule(view)
    detail = "tuned tilings are looked up by core count: a bank tuned for all cores is not used under a limit"
    yield RuleCheck(rule="knowledge base", status="unknown", detail=detail)
    threads = _launch_threads(view, split)
    counted = f"{plural(threads, 'thread')} launched" if threads else "which threads launch is not recorded"
    detail = f"one thread at most may set a stream's limit; nothing tells which one would ({counted})"
    yield RuleCheck(rule="one thread", status="unknown", detail=detail)
    small = sorted({int(s) for s in np.unique(bench.stream[(bench.cube > 0) | (bench.vector > 0)])} - split.keys())
    if small:
        detail = f"streams {', '.join(map(str, small))} stay without a limit: under two percent of the kernel time"
        yield RuleCheck(rule="other streams", status="unknown", detail=detail)


def _operator_rules(tasks: Tasks, mode: str, split: Split) -> Iterator[RuleCheck]:
    """Check which operators on the limited streams take a limit at all."""
    limited = np.isin(tasks.stream, list(split))
    named_tbe = tasks.name.flag([n.startswith("te_") for n in tasks.name.names])
    tbe = limited & on_cores(tasks) & named_tbe & ~is_super_kernel(tasks)
    detail = "Ascend C operators only, others may not obey, and streams that wait for each other may hang: "
    if tbe.any():
        detail += f"{plural(int(tbe.sum()), 'kernel')} seem to be TBE, {tasks.name[int(tbe.argmax())]}"
    else:
        detail += "the profile does not tell what an operator is written in"
    yield RuleCheck(rule="Ascend C", status="unknown", detail=detail)
    communication = limited & (tasks.work == Work.COMMUNICATION)
    if communication.any():
        detail = "communication on a limited stream: only its vector cores, with HCCL_OP_EXPANSION_MODE=AIV"
        yield RuleCheck(rule="communication", status="unknown", detail=detail)
    ai_cpu = limited & tasks.core.flag([c == "AI_CPU" for c in tasks.core.names])
    if ai_cpu.any():
        detail = f"{int(ai_cpu.sum())} AI CPU operators on the limited streams take no limit"
        yield RuleCheck(rule="AI CPU", status="violated" if mode != "eager" else "unknown", detail=detail)
    detail = "real cores may be fewer than the limit; some operators ignore it: verify with --expect-cores"
    yield RuleCheck(rule="effect", status="unknown", detail=detail)


def _static_rule(view: View) -> RuleCheck:
    """Static kernels and limits exclude each other, depending on the version of CANN."""
    version = view.profile.context.cann
    number = re.match(r"\D*(\d+)\.(\d+)", version or "")
    if view.mode == "eager":
        return RuleCheck(rule="static kernel", status="ok", detail="no static kernel compilation in eager mode")
    if number is None:
        detail = "not together with static kernel compilation before CANN 9.0; the profile names no CANN version"
    elif int(number[1]) >= 9:
        return RuleCheck(rule="static kernel", status="ok", detail=f"CANN {version}: both work together")
    else:
        detail = f"CANN {version}: where static kernel compilation is on as well, one of the two has no effect"
    return RuleCheck(rule="static kernel", status="unknown", detail=detail)


def _launch_threads(view: View, split: Split) -> int:
    """Return how many threads launch on the busiest of the limited streams, 0 unknown."""
    tasks = view.tasks
    counts = [0]
    for stream in split:
        threads = np.unique(tasks.launch_thread[(tasks.stream == stream) & tasks.launched])
        counts.append(len(threads[threads >= 0]))
    return max(counts)


def _code(mode: str, limits: Sequence[CoreLimit]) -> Iterator[str]:
    """Write the scopes out; the busiest stream comes first and is the one that the program starts on."""
    yield f"# {MODES[mode]}"
    if mode == "aclgraph":
        yield "# record and wait for events between the streams: captured graphs add none"
    if mode == "eager":
        yield "# set it once, from one thread, before the first kernel of the stream"
        yield "import torch"
        yield "import torch_npu"
    else:
        yield "import torchair"
    for i, limit in enumerate(limits):
        yield ""
        yield f"# stream {limit.stream}, {plural(limit.kernels, 'kernel')}: {_few(limit.types)}"
        yield from (f"#   {line}" for line in limit.where)
        if mode == "eager":
            stream = "torch.npu.current_stream()" if i == 0 else f"stream_{limit.stream}"
            note = "" if i == 0 else "  # your torch.npu.Stream"
            yield f"torch.npu.set_stream_limit({stream}, {limit.cube}, {limit.vector}){note}"
        elif i == 0:
            yield f"with torchair.scope.limit_core_num({limit.cube}, {limit.vector}):"
            yield f"    ...  # {_few(limit.types)}"
        else:
            yield f'with torchair.scope.npu_stream_switch("stream_{limit.stream}"):  # your tag for this stream'
            yield f"    with torchair.scope.limit_core_num({limit.cube}, {limit.vector}):"
            yield f"        ...  # {_few(limit.types)}"


def _few(types: Sequence[str]) -> str:
    more = f" and {plural(len(types) - _NAMES, 'more type')}" if len(types) > _NAMES else ""
    return ", ".join(types[:_NAMES]) + more if types else "no kernels in this window"
