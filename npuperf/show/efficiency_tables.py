"""Tables of efficiency: where peak × time goes, by device, step and phase, and what operators do of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from npuperf.base.messages import Message, chain, say, say_n
from npuperf.base.units import NS_PER_S
from npuperf.model.efficiency_result import (
    Efficiency,
    EfficiencyPart,
    EfficiencyPartName,
    IdleCause,
    Limit,
    ModuleEfficiency,
)
from npuperf.model.job_result import CollectiveRate
from npuperf.model.result import Device, Operator, Result
from npuperf.show.tables import WHO, Column, Row, Table, each
from npuperf.show.words import WITH_LAUNCHES

#: The parts of peak × time, in words.
_PARTS: Final[dict[EfficiencyPartName, Message]] = {
    "useful": say("useful"),
    "useful_or_padded": say("useful or padding"),
    "padded": say("padding and masks"),
    "cube_busy_without_formula": say("busy, without a formula"),
    "cube_uncounted": say("in kernels without counters"),
    "cube_idle": say("cube cores idle in kernels"),
    "vector": say("vector kernels"),
    "communication": say("exposed communication"),
    "other": say("exposed copies and other work"),
    "host_wait": say("waiting for the host"),
    "launch_latency": say("launch latency"),
    "dependency": say("waiting for a dependency"),
    "unattributed": say("unattributed (no launch recorded)"),
}
CAUSES: Final[dict[IdleCause, Message]] = {
    "cores_unused": say("cores without blocks"),
    "memory": say("memory"),
    "scalar": say("scalar"),
    "fixpipe": say("fixpipe"),
    "unknown": say("unknown"),
}
#: What limits operators.
LIMITS: Final[dict[Limit, Message]] = {
    "cube": say("cube"),
    "vector": say("vector"),
    "scalar": say("scalar"),
    "hbm": say("HBM"),
    "l2": say("L2"),
    "launch": say("launching"),
    "unknown": say("unknown"),
}
#: What tells the peak.
BASES: Final = {
    "counters": say("by counters"),
    "info": say("cores of info.json, clock of the chip"),
    "chip": say("by the chip's name"),
    "asked": say("as asked for"),
}
INFERRED: Final = say("inferred from waves of blocks")
#: Peaks that are no further apart are one: counters tell the clock to less than this.
_ONE_PEAK: Final = 1e-3


def words_of(device: Device, part: EfficiencyPart) -> Message:
    """Return what a part is called on this device: without a calibrated latency, launches count to the host."""
    return WITH_LAUNCHES if part.part == "host_wait" and device.clock.latency_reason else _PARTS[part.part]


def _parts(result: Result) -> Iterator[Row]:
    """Yield the parts that there are of every device."""
    for device, found, part in each("devices", "window_efficiency", "parts")(result):
        if part.flop or part.ns:
            yield device, found, part


def operators_of(result: Result) -> Iterator[Row]:
    """Yield the operators, each with the peak of cube cores that all its devices have, or None."""
    peaks = [found.peak_flop_per_s for device in result.devices if (found := device.window_efficiency) is not None]
    one = 0 < len(peaks) == len(result.devices) and max(peaks) <= min(peaks) * (1 + _ONE_PEAK)
    return ((operator, peaks[0] if one else None) for operator in result.window_operators)


def of_peak(operator: Operator, peak: float | None) -> float | None:
    """Return how much of the peak of cube cores an operator's products are while it runs, by counters."""
    return _while_running(operator.cube_busy_flop, peak, operator.total_ns)


def _while_running(busy_flop: float | None, peak: float | None, ns: int) -> float | None:
    return None if busy_flop is None or not peak or not ns else busy_flop / (peak * ns / NS_PER_S)


def _note(_: object, efficiency: Efficiency, part: EfficiencyPart) -> Message | None:
    """Say what a part may be, of which counters do not tell it."""
    if part.part != "cube_uncounted" or not part.ns:
        return None
    kernels = say_n("{n} kernel, which multiplies there or is idle", "{n} kernels, which multiply there or are idle",
                    efficiency.uncounted)  # fmt: skip
    odd = say_n("{n} has counters that cannot be", "{n} have counters that cannot be", efficiency.odd)
    return chain(kernels, odd if efficiency.odd else None)


def _peak_of_module(_: object, efficiency: Efficiency, one: ModuleEfficiency) -> float | None:
    """Return how much of the peak a module's products are while its kernels run, by counters."""
    return _while_running(one.cube_busy_flop, efficiency.peak_flop_per_s, one.ns)


def _roofed(result: Result) -> Iterator[Row]:
    """Yield operators on cores, those first that could win most; those of which nothing is known come last."""
    known = [one for one in result.window_operators if one.bound_by is not None]
    return ((one,) for one in sorted(known, key=lambda one: (-(one.recoverable_ns or (0, -1))[1], -one.total_ns)))


def _known_by(_: object, found: Efficiency) -> Message:
    return INFERRED if found.inferred else BASES[found.basis]


def _collectives(result: Result) -> Iterator[Row]:
    """Yield the rates of collectives: of a job's ranks together, else of each device."""
    if result.cluster is not None and result.cluster.collective_rates:
        return ((None, one) for one in result.cluster.collective_rates)
    return each("devices", "collective_rates")(result)


def _of_size(_: object, one: CollectiveRate) -> Message | None:
    """Say what tells the size of collectives."""
    if one.bytes is None:
        return None
    return say("elements") if one.by_elements else say("what moved (inferred)")


def _ranks_of(_: object, one: CollectiveRate) -> Message | None:
    if one.ranks is None:
        return None
    return say("at least {n}", n=one.ranks) if one.at_least else say("{n}", n=one.ranks)


# fmt: off
_FIGURES: Final = (
    Column("cube_busy_share", say("busy"), "percent"),
    Column("hfu_least", say("HFU, min"), "percent", "hfu.0"),
    Column("hfu_most", say("HFU, max"), "percent", "hfu.1"),
    Column("mfu_least", say("MFU of kernels, min"), "percent", "mfu.kernels.0"),
    Column("mfu_most", say("MFU of kernels, max"), "percent", "mfu.kernels.1"),
    Column("cube_busy_flop", say("busy"), "tflop", weight=2),
    Column("useful_flop_least", say("useful, min"), "tflop", "useful_flop.0", 2),
    Column("useful_flop_most", say("useful, max"), "tflop", "useful_flop.1", 2),
)
#: The clock that kernels ran at.
_RAN: Final = (
    Column("ran_mean_mhz", say("ran at, mean MHz"), "plain", "ran_mhz.1"),
    Column("ran_least_mhz", say("ran at, min MHz"), "plain", "ran_mhz.0", 2),
)
#: Where the user gave the model's size.
_OF_MODEL: Final = (
    Column("mfu_palm", say("MFU as PaLM"), "percent", "mfu.palm"),
    Column("mfu_verl", say("MFU as verl"), "percent", "mfu.verl"),
    Column("tokens_per_s", say("tokens/s"), "plain"),
)
_COUNTED: Final = (
    Column("formula_share", say("time with a formula"), "percent", weight=2),
    Column("contradictions", say("shapes that contradict"), "count", weight=2),
    Column("odd", say("odd counters"), "count", weight=2),
    Column("uncounted", say("without counters"), "count", weight=3),
)
_SHARE: Final = Column("share", say("% of peak × time"), "share", whole=1.0)
#: Of the operators: stand last, so that columns of CSV keep their places.
OPERATOR_COLUMNS: Final = (
    Column("cube_busy_flop", say("busy"), "tflop", weight=2),
    Column("useful_flop_least", say("useful, min"), "tflop", "useful_flop.0", 2),
    Column("useful_flop_most", say("useful, max"), "tflop", "useful_flop.1", 2),
    Column("peak_share", say("of the cube peak"), "percent", of_peak),
)
EFFICIENCY_TABLES: Final = (
    Table("efficiency", say("where peak × time goes"), _parts, (
        *WHO,
        Column("part", say("part"), "word", weight=0, brief=lambda device, _, part: words_of(device, part)),
        Column("flop", say("worth"), "tflop"),
        Column("ns", say("time"), "ms"),
        _SHARE,
        Column("note", say("note"), "message", _note),
    ), topic="efficiency"),
    Table("efficiency_devices", say("efficiency by device"), each("devices", "window_efficiency"), (
        *WHO,
        Column("cube_cores", say("cube cores"), "id"),
        Column("clock_mhz", say("MHz"), "plain"),
        Column("peak_flop_per_s", say("peak"), "tflops"),
        Column("basis", say("peak known"), "word", weight=2, brief=_known_by),
        Column("peak_throttled", say("or, throttled throughout"), "tflops", "most_flop_per_s", 3),
        Column("span_ns", say("span"), "ms", weight=2),
        *_FIGURES,
        *_OF_MODEL,
        Column("recomputed_least", say("computed anew, min"), "tflop", "recomputed_flop.0", 3),
        Column("recomputed_most", say("computed anew, max"), "tflop", "recomputed_flop.1", 3),
        Column("recoverable_least_ns", say("could win, min"), "ms", "recoverable_ns.0", 2),
        Column("recoverable_most_ns", say("could win, max"), "ms", "recoverable_ns.1", 2),
        *_COUNTED,
        Column("reason", say("cannot tell because"), "message"),
    ), topic="efficiency"),
    Table("efficiency_idle", say("cube cores that are idle in kernels, by cause (inferred)"),
          each("devices", "window_efficiency", "idle"), (
        *WHO,
        Column("cause", say("cause"), "word", weight=0, brief=lambda *row: CAUSES[row[-1].cause]),
        Column("flop", say("worth"), "tflop"),
        Column("share", say("% of it"), "share", whole=1.0),
    ), topic="efficiency"),
    Table("efficiency_modules", say("cube cores by module or range"), each("devices", "window_efficiency", "modules"), (
        *WHO,
        Column("module", say("module or range"), weight=0),
        Column("kernels", say("kernels"), "count"),
        Column("ns", say("time"), "ms"),
        Column("peak_share", say("of the cube peak"), "percent", _peak_of_module),
        Column("cube_busy_flop", say("busy"), "tflop"),
        Column("useful_flop_least", say("useful, min"), "tflop", "useful_flop.0", 2),
        Column("useful_flop_most", say("useful, max"), "tflop", "useful_flop.1", 2),
    ), topic="efficiency"),
    Table("efficiency_steps", say("efficiency by step"), each("devices", "steps", "efficiency"), (
        *WHO,
        Column("step", say("step"), "id", weight=0),
        Column("span_ns", say("span"), "ms", weight=2),
        *_FIGURES, *_OF_MODEL, *_RAN, *_COUNTED,
    ), topic="efficiency", go=lambda at, device, s, _: at.stretch(device, s.start_ns, s.partition.span_ns)),
    Table("efficiency_phases", say("efficiency by phase"), each("devices", "phases", "efficiency"), (
        *WHO,
        Column("start_ns", say("start"), "ms", weight=0),
        Column("end_ns", say("end"), "ms", weight=0),
        Column("label", say("part"), "message"),
        *_FIGURES, *_RAN, *_COUNTED,
    ), topic="efficiency", go=lambda at, device, p, _: at.stretch(device, p.start_ns, p.end_ns - p.start_ns)),
)
COLLECTIVES: Final = Table("collective_rates", say("bandwidth of collectives, as NCCL-tests counts it"),
                           _collectives, (
    *WHO,
    Column("kind", say("operation"), weight=0),
    Column("group", say("kind of group")),
    Column("ranks", say("ranks"), "message", _ranks_of, 0),
    Column("size_class", say("size"), weight=0),
    Column("transport", say("transport")),
    Column("operations", say("operations"), "count"),
    Column("bytes", say("bytes"), "count", weight=3),
    Column("size_by", say("size known by"), "message", _of_size, 2),
    Column("time_least_ns", say("not waiting, min"), "ms", "time_ns.0", 2),
    Column("time_most_ns", say("not waiting, max"), "ms", "time_ns.1", 2),
    Column("algorithm_least", say("algorithm, min GB/s"), "plain", "algorithm_gb_per_s.0", 2),
    Column("algorithm_most", say("algorithm, max GB/s"), "plain", "algorithm_gb_per_s.1", 2),
    Column("bus_least", say("bus, min GB/s"), "plain", "bus_gb_per_s.0", 0),
    Column("bus_most", say("bus, max GB/s"), "plain", "bus_gb_per_s.1", 0),
    Column("link_gb_per_s", say("one link while used, GB/s"), "plain"),
    Column("links", say("links side by side"), "count"),
    Column("reference_gb_per_s", say("vendor's GB/s"), "plain", weight=2),
    Column("unaligned", say("not in 512 bytes"), "count", weight=2),
), topic="efficiency")
ROOFLINE: Final = Table("roofline", say("roofs of operators, by what could be won"), _roofed, (
    Column("type", say("type"), "kernel", weight=0),
    Column("core", say("core"), weight=0),
    Column("count", say("count"), "count", weight=2),
    Column("total_ns", say("total"), "ms"),
    Column("bound_by", say("limited by"), "word", weight=0, brief=lambda one: LIMITS[one.bound_by]),
    Column("roof_share", say("nearest roof"), "percent"),
    Column("recoverable_least_ns", say("could win, min"), "ms", "recoverable_ns.0", 0),
    Column("recoverable_most_ns", say("could win, max"), "ms", "recoverable_ns.1", 0),
    Column("flop_per_s", say("reached"), "tflops", weight=2),
    Column("intensity", say("FLOP per byte"), "plain", weight=2),
    Column("roofed_ns", say("with a roof"), "ms", weight=3),
), topic="efficiency", go=lambda at, one: at.anywhere("operator", one.type, one.core))
# fmt: on


# -- Why there are no rows.


def no_efficiency(result: Result) -> Message | None:
    """Say what lacks where nothing is known of efficiency."""
    if any(device.window_efficiency is not None for device in result.devices):
        return None
    if result.input.kind == "kineto":
        return say("as nothing is known of the peak of GPUs")
    return say(
        "as nothing tells the peak of the cube cores: neither counters of three kernels (npuperf profile --level 1 "
        "--aic-metrics PipeUtilization) nor the chip's name (--soc NAME)"
    )


def no_parts(result: Result) -> Message | None:
    """Say why peak × time is not split."""
    found = [device.window_efficiency for device in result.devices]
    why = next((one.reason for one in found if one is not None and one.reason is not None), None)
    return no_efficiency(result) or (why and say("as peak × time cannot be split ({why})", why=why))


def no_idle(result: Result) -> Message | None:
    """Say why nothing tells what idle cube cores wait for."""
    return no_parts(result) or say("as cube cores are not seen to be idle in a kernel")


def no_modules(result: Result) -> Message | None:
    """Say why kernels on cube cores are of no module."""
    return no_efficiency(result) or say(
        "as no module and no range of the program's is recorded around kernels on cube cores (npuperf profile "
        "--modules)"
    )


def no_collectives(_: Result) -> Message:
    """Say what tells how fast collectives are."""
    return say("as no operation between ranks is recorded whose kind and time are known (npuperf profile --level 1)")


def no_roofs(_: Result) -> Message:
    """Say why no operator has a roof although the peak is known."""
    return say("as no kernel runs on cube or vector cores")
