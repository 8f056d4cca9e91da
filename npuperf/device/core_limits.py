"""Core limits per stream: proposed or asked for, replayed, held against what is documented, and written out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from npuperf.base.errors import UsageError
from npuperf.base.escape import for_code
from npuperf.base.messages import Message, say, say_n, series
from npuperf.base.units import plural
from npuperf.device.core_splits import (
    MOST_STREAMS,
    Bench,
    Search,
    Split,
    best_split,
    complete_split,
    gain_interval,
    most_possible,
    slower_kernels,
)
from npuperf.device.expect import refuse_beyond
from npuperf.device.mode import DESCRIBED, Way, way_of
from npuperf.device.view import DeviceWindow
from npuperf.model.chip import product_of_soc
from npuperf.model.groups import distinct
from npuperf.model.result import CoreLimit, CoreSplit, Held, RuleCheck
from npuperf.model.tasks import Work

# -- Core limits as code to paste: each way of executing has names of its own.

_NAMES: Final = 4
_CAPTURED: Final = ("npugraph_ex", "captured")
#: Which other names apply where the profile does not tell the mode exactly.
_OTHERWISE: Final[dict[Way, str]] = {
    "captured": "# with TorchAir's reduce-overhead: torchair.scope.limit_core_num in the same places",
    "unknown": "# with npugraph_ex: torch.npu.npugraph_ex.scope.limit_core_num and torch.npu.stream; "
    "in eager mode: torch.npu.set_stream_limit",
}


def code_of(way: Way, limits: Sequence[CoreLimit]) -> str:
    """Write the scopes out; the busiest stream comes first and is the one that the program starts on."""
    return for_code(_lines(way, limits))


def _lines(way: Way, limits: Sequence[CoreLimit]) -> Iterator[str]:
    yield f"# {DESCRIBED[way]!s}"
    if way in _OTHERWISE:
        yield _OTHERWISE[way]
    if way in _CAPTURED:
        yield "# record and wait for events between the streams: captured graphs order nothing within the function"
    if way == "eager":
        yield "# set it once, from one thread, before the first kernel of the stream"
    torchair = way in ("ge", "unknown")
    if torchair:
        yield "import torchair"
    else:
        yield "import torch"
        yield "import torch_npu"
    for i, limit in enumerate(limits):
        yield ""
        yield f"# stream {limit.stream}, {plural(limit.kernels, 'kernel')}: {few(limit.types)}"
        yield from (f"#   {line}" for line in limit.where)
        stream = f"stream_{limit.stream}"
        if way == "eager" and i == 0:
            yield f"torch.npu.set_stream_limit(torch.npu.current_stream(), {limit.cube}, {limit.vector})"
        elif way == "eager":
            yield f"torch.npu.set_stream_limit({stream}, {limit.cube}, {limit.vector})  # your torch.npu.Stream"
        else:
            # Inside of the switch to the scope's stream, except for the one that the program starts on.
            indent, module = "    " if i else "", "torchair" if torchair else "torch.npu.npugraph_ex"
            if i and torchair:
                yield f'with torchair.scope.npu_stream_switch("{stream}"):  # your tag for this stream'
            elif i:
                yield f"{stream} = torch.npu.Stream()  # or the one that you have"
                yield f"with torch.npu.stream({stream}):"
            yield f"{indent}with {module}.scope.limit_core_num({limit.cube}, {limit.vector}):"
            yield f"{indent}    ...  # {few(limit.types)}"


def few(types: Sequence[str]) -> str:
    """Return the first types, and how many more there are."""
    more = f" and {plural(len(types) - _NAMES, 'more type')}" if len(types) > _NAMES else ""
    return ", ".join(types[:_NAMES]) + more if types else "no kernels in this window"


def describe_splits(view: DeviceWindow, asked: Split) -> list[CoreSplit]:
    """Return the user's split and the proposal, replayed; the latter only if it saves time in its worst case."""
    found = [_asked(view, asked)] if asked else []
    proposal = _proposal(view)
    return [*found, proposal] if proposal else found


def _proposal(view: DeviceWindow) -> CoreSplit | None:
    bench = view.bench
    if isinstance(bench, Message) or not 2 <= len(bench.streams) <= MOST_STREAMS:
        return None
    if view.soc and product_of_soc(view.soc) is None:
        return None
    noise = bench.scene.replay.error * bench.scene.before
    if most_possible(bench) <= max(noise, view.thresholds.cause_share * bench.scene.before):
        return None
    search = best_split(bench)
    if search.split is None:
        return None
    gain = gain_interval(bench, search.split)
    return _replayed(view, bench, search.split, gain, search) if gain[0] > max(noise, 0) else None


def _asked(view: DeviceWindow, asked: Split) -> CoreSplit:
    """Evaluate a split that the user asked for; streams that it leaves out get what it leaves over."""
    bench = view.bench
    if isinstance(bench, Message):
        return _unanswered(view, asked, bench)
    streams = sorted({int(s) for s in bench.stream.tolist() if s >= 0})
    for stream, limit in asked.items():
        if stream not in streams:
            hint = say("streams: {streams}", streams=series(streams))
            raise UsageError(say("--cores-of {stream}: no such stream", stream=stream), hint=hint)
        refuse_beyond("--cores-of", f"{stream}={limit[0]},{limit[1]}", limit, bench.chip)
    split = complete_split(bench, asked)
    if any(value < min(1, most) for limit in split.values() for value, most in zip(limit, bench.chip, strict=True)):
        return _unanswered(view, asked, say("no cores are left for the other streams: give their limits, too"))
    return _replayed(view, bench, split, gain_interval(bench, split))


def _unanswered(view: DeviceWindow, split: Split, reason: Message) -> CoreSplit:
    return CoreSplit(
        limits=[_limit(view, stream, limit) for stream, limit in split.items()],
        asked=True,
        mode=DESCRIBED[way_of(view.mode)],
        span_ns=None,
        gain_ns_per_step=None,
        gain_pct=None,
        slower=[],
        rules=[],
        code=None,
        reason=reason,
    )


def _replayed(
    view: DeviceWindow, bench: Bench, split: Split, gain: tuple[int, int], search: Search | None = None
) -> CoreSplit:
    """Describe a split; ``gain``: least and most, ns; ``search``: what found it, None where the user asked for it."""
    limits = [_limit(view, stream, limit) for stream, limit in split.items()]
    before, way, bound = bench.scene.before, way_of(view.mode), None
    if search is not None and search.most_ns is not None:
        bound = view.per_step(max(gain[1], search.most_ns))
    return CoreSplit(
        limits=limits,
        asked=search is None,
        mode=DESCRIBED[way],
        span_ns=(before - gain[1], before - gain[0]),
        gain_ns_per_step=(view.per_step(gain[0]), view.per_step(gain[1])),
        gain_pct=(100 * gain[0] / max(before, 1), 100 * gain[1] / max(before, 1)),
        slower=slower_kernels(bench, split),
        rules=list(_rules(view, bench, split)),
        code=code_of(way, limits),
        reason=None,
        tried=search.tried if search else 0,
        searched_kernels=search.kernels if search else 0,
        bound_ns_per_step=bound,
    )


def _limit(view: DeviceWindow, stream: int, limit: tuple[int, int]) -> CoreLimit:
    mine = np.flatnonzero((view.tasks.stream == stream) & (view.tasks.work == Work.COMPUTE))
    total = np.bincount(view.types.codes[mine] + 1, view.tasks.dur[mine], minlength=1)[1:]
    order = [int(i) for i in np.argsort(-total, kind="stable") if total[i] > 0]
    return CoreLimit(
        stream=stream,
        cube=limit[0],
        vector=limit[1],
        kernels=len(mine),
        types=[view.types.names[i] for i in order],
        where=view.code_lines(mine),
    )


def _rules(view: DeviceWindow, bench: Bench, split: Split) -> Iterator[RuleCheck]:
    """Hold a split against everything that is documented about core limits."""
    tasks, chip, soc, way = view.tasks, bench.chip, view.soc, way_of(view.mode)
    product = product_of_soc(soc) if soc else None
    if soc is None:
        detail = say("Atlas A2 or A3 only: the profile does not name the chip")
        yield RuleCheck(rule=say("product"), status="unknown", detail=detail)
    elif product is None:
        yield RuleCheck(rule=say("product"), status="violated", detail=say("{soc}: neither Atlas A2 nor A3", soc=soc))
    else:
        detail = say("{soc}: {product}", soc=soc, product=product)
        yield RuleCheck(rule=say("product"), status="ok", detail=detail)
    used = [sum(min(limit[side], bench.uses(s, side)) for s, limit in split.items()) for side in (0, 1)]
    fits = used[0] <= chip[0] and used[1] <= chip[1]
    detail = say(
        "streams that run side by side use {used_cube} of {cube} cube and {used_vector} of {vector} vector cores",
        used_cube=used[0],
        cube=chip[0],
        used_vector=used[1],
        vector=chip[1],
    )
    if not fits:
        detail = say("{label}: {text}", label=detail, text=say("kernels that wait for each other may hang"))
    yield RuleCheck(rule=say("sum"), status="ok" if fits else "violated", detail=detail)
    detail = say(
        "every value is between 1 and {cube} cube or {vector} vector cores (0 where the chip has none)",
        cube=chip[0],
        vector=chip[1],
    )
    yield RuleCheck(rule=say("range"), status="ok", detail=detail)
    limited = np.isin(tasks.stream, list(split))
    detail = say(
        "for Ascend C operators only; others may not obey, and streams that wait for each other may hang: the profile "
        "does not tell in which language an operator is written"
    )
    yield RuleCheck(rule=say("Ascend C"), status="unknown", detail=detail)
    if (limited & (tasks.work == Work.COMMUNICATION)).any():
        detail = say(
            "communication on a limited stream: only its vector cores can be limited, with HCCL_OP_EXPANSION_MODE=AIV"
        )
        yield RuleCheck(rule=say("communication"), status="unknown", detail=detail)
    ai_cpu = limited & tasks.core.flag([c == "AI_CPU" for c in tasks.core.names])
    if ai_cpu.any():
        detail = say_n("{n} AI CPU operator on the limited streams takes no core limit",
                       "{n} AI CPU operators on the limited streams take no core limit", int(ai_cpu.sum()))  # fmt: skip
        status: Held = "unknown" if way == "eager" else "violated"
        yield RuleCheck(rule=say("AI CPU"), status=status, detail=detail)
    detail = say(
        "an operator may get fewer cores than the limit, and some operators ignore it: verify with --expect-cores"
    )
    yield RuleCheck(rule=say("effect"), status="unknown", detail=detail)
    detail = say(
        "tuned tilings are looked up by core count: a knowledge base tuned for all cores is not used under a core limit"
    )
    yield RuleCheck(rule=say("knowledge base"), status="unknown", detail=detail)
    if way != "ge":  # in GE graphs a limit is an attribute of each operator
        yield from _stream_level_rules(view, split)
    small = sorted({int(s) for s in distinct(bench.stream[(bench.cube > 0) | (bench.vector > 0)])} - split.keys())
    if small:
        detail = say(
            "streams {streams} get no core limit: each has under two percent of the kernel time", streams=series(small)
        )
        yield RuleCheck(rule=say("other streams"), status="unknown", detail=detail)


def _stream_level_rules(view: DeviceWindow, split: Split) -> Iterator[RuleCheck]:
    """Check what is documented for limits of streams only.

    Static kernels and limits of streams exclude each other, depending on the version of CANN.
    """
    version, number = view.profile.context.cann, view.traits.cann
    status: Held = "unknown"
    if way_of(view.mode) == "eager":
        status, detail = "ok", say("no static kernel compilation in eager mode")
    elif number is None:
        detail = say(
            "cannot be combined with static kernel compilation before CANN 9.0; the profile names no CANN version"
        )
    elif number[0] >= 9:
        status = "ok"
        detail = say("CANN {version}: works together with static kernel compilation", version=version)
    else:
        detail = say(
            "CANN {version}: where static kernel compilation is on as well, one of the two has no effect",
            version=version,
        )
    yield RuleCheck(rule=say("static kernel"), status=status, detail=detail)
    tasks = view.tasks
    known = tasks.launched & (tasks.launch_thread >= 0)
    # Of the limited stream on which most threads launch.
    threads = max((len(distinct(tasks.launch_thread[known & (tasks.stream == s)])) for s in split), default=0)
    counted = say_n("{n} thread launched", "{n} threads launched", threads)
    if not threads:
        counted = say("which threads launch is not recorded")
    detail = say(
        "at most one thread may set a stream's core limit; the profile does not tell which one would ({counted})",
        counted=counted,
    )
    yield RuleCheck(rule=say("one thread"), status="unknown", detail=detail)
