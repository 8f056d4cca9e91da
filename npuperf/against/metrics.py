"""What gates of ``npuperf analyze`` are held against: in every step, and of several devices the worst one counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, get_args

from msgspec import structs

from npuperf.base.messages import Message, say, say_n, series
from npuperf.model.comparison import COUNTED
from npuperf.model.document import Measured, Metric, register
from npuperf.model.efficiency_result import Efficiency, EfficiencySum
from npuperf.model.parts import CountKind, Part
from npuperf.model.result import Bound, Device, Partition, Result

_SEVERITIES: Final = ("low", "medium", "high")
#: Names that are listed where another one was asked for.
_LISTED: Final = 10
_NO_TASK: Final = say("no device task in this data")
_ROWS_MISSING: Final = say("rows are missing from the kernel table, or its times cannot be trusted (see warnings)")
_SEVERAL: Final = say("these ranks are of several runs: hold each run by itself against it (see the verdict)")
_NO_DIGEST: Final = say("its steps were not summed: analyze it anew with this version")
#: What of a window may be waiting for the host, and what of exposed communication neither is known to be.
_NO_LAUNCH: Final = say("idle time without a recorded launch may be waiting for the host")
_NOT_APART: Final = say("transfer and waiting cannot be told apart without all ranks of the job")
_ALL_PARTS: Final[tuple[Part, ...]] = get_args(Part)
_IDLE: Final[tuple[Part, ...]] = ("host_wait", "launch_latency", "dependency", "unattributed")
_COMMUNICATION: Final[tuple[Part, ...]] = ("transfer", "wait", "comm_unknown")


_Measure = Callable[[Result, str | None], Measured]


def register_all() -> None:
    """Make the metrics of analyses known."""
    found: list[Metric] = [
        Metric("step_time", "ns", Result, _of_whole_tables(_step_time), parts=_ALL_PARTS),
        Metric(
            "host_wait",
            "percent",
            Result,
            _share(lambda p: p.host_wait_ns, lambda p: p.unattributed_ns, _NO_LAUNCH),
            parts=("host_wait",),
        ),
        Metric("idle", "percent", Result, _share(lambda p: p.idle_ns), parts=_IDLE),
        _communication("comm.exposed", _share(lambda p: p.comm_exposed_ns), _COMMUNICATION),
        _communication(
            "comm.transfer",
            _share(lambda p: p.comm_transfer_ns, lambda p: p.comm_unknown_ns, _NOT_APART),
            ("transfer",),
        ),
        _communication(
            "comm.wait", _share(lambda p: p.comm_wait_ns, lambda p: p.comm_unknown_ns, _NOT_APART), ("wait",)
        ),
        Metric("op", "ns", Result, _of_whole_tables(_operator_time), "required", parts=("compute",)),
        Metric("occupancy.cube", "percent", Result, _occupancy(lambda d: d.cores.cube), worst="least"),
        Metric("occupancy.vector", "percent", Result, _occupancy(lambda d: d.cores.vector), worst="least"),
        *(Metric(f"count.{of.metric}", "count", Result, _counted(kind)) for kind, of in COUNTED.items()),
        Metric("bytes.comm", "bytes", Result, _counted("collective", moved=True)),
        Metric("memory_peak", "bytes", Result, _memory("peak_bytes", max)),
        Metric("memory_reserved", "bytes", Result, _memory("reserved_most_bytes", max)),
        Metric("memory_fragments", "percent", Result, _memory("fragments_share", max)),
        Metric("memory_leak", "bytes", Result, _memory("leak_bytes_per_step", max)),
        Metric("memory_headroom", "bytes", Result, _memory("headroom_bytes", min), worst="least"),
        Metric("mfu", "percent", Result, _of_peak(lambda e: e.kernels, lambda _: _NO_FORMULA), worst="least"),
        Metric("hfu", "percent", Result, _of_peak(lambda e: e.hfu, lambda _: _NO_FORMULA), worst="least"),
        Metric("mfu.palm", "percent", Result, _of_peak(lambda e: e.palm, _untold_size), worst="least"),
        Metric("mfu.verl", "percent", Result, _of_peak(lambda e: e.verl, _untold_size), worst="least"),
        Metric("cube_busy", "percent", Result, _of_peak(lambda e: e.cube_busy, lambda _: _NO_COUNTERS), worst="least"),
        Metric("recoverable_time", "ns", Result, _of_peak(lambda e: e.recoverable_ns, lambda _: _NO_ROOF, 1, _BETWEEN)),
        Metric("clock", "mhz", Result, _clock, worst="least"),
        Metric("findings", "count", Result, _problems, words=_SEVERITIES),
        Metric("finding", "count", Result, _problems, "required", _rules, words=_SEVERITIES),
        Metric(
            "verdict",
            "count",
            Result,
            lambda result, _: Measured(reason=result.verdict.reason, named=((result.verdict.bound, ""),)),
            words=get_args(Bound),
            expects=True,
        ),
    ]
    register(*(structs.replace(metric, measure=_of_one_job(metric.measure)) for metric in found))


def _of_one_job(measure: _Measure) -> _Measure:
    """Measure nothing of ranks that are of several runs: what they come to together is of none of them."""

    def measured(result: Result, argument: str | None) -> Measured:
        return Measured(reason=_SEVERAL) if result.runs else measure(result, argument)

    return measured


def _of_whole_tables(measure: _Measure) -> _Measure:
    """Measure nothing where a device lacks rows: what its tasks add up to is not what ran."""

    def measured(result: Result, argument: str | None) -> Measured:
        lacks = result.digest is not None and "rows" in result.digest.lacks
        return Measured(reason=_ROWS_MISSING) if lacks else measure(result, argument)

    return measured


def _step_time(result: Result, _: str | None) -> Measured:
    """The job's step, or the median length of the steps of the slowest device, ns: what the report shows.

    Of a run without any device it is the host's step.
    """
    if result.cluster is not None:
        steps = result.digest.span_ns if result.digest is not None and result.digest.steps else []
        return Measured(float(result.cluster.step_ns), series=(tuple(map(float, steps)),))
    if not result.devices and result.digest is not None and result.digest.timed == "host":
        return Measured(series=(tuple(map(float, result.digest.span_ns)),))
    lengths = [[float(s.partition.span_ns) for s in d.whole_steps] for d in result.devices if d.steps]
    if not lengths:
        return Measured(reason=say("no step is recorded") if result.devices else _NO_TASK)
    return Measured(series=tuple(map(tuple, lengths)))


#: Takes a share's part of a window, ns.
_PartOf = Callable[[Partition], int]


def _share(part: _PartOf, doubtful: _PartOf = lambda whole: 0, why: Message | None = None) -> _Measure:
    """Measure a part of every step in percent, without steps of the span.

    ``doubtful``: time that may belong to it, too, and ``why`` that cannot be told.
    """

    def measure(result: Result, _: str | None) -> Measured:
        devices = [d for d in result.devices if d.window.span_ns]
        if not devices:
            return Measured(reason=_NO_TASK)
        doubt = why if any(doubtful(d.window) for d in devices) else None
        windows = [[s.partition for s in d.whole_steps if s.partition.span_ns] or [d.window] for d in devices]
        found = tuple(tuple(100 * part(p) / p.span_ns for p in own) for own in windows)
        most = tuple(tuple(100 * (part(p) + doubtful(p)) / p.span_ns for p in own) for own in windows) if doubt else ()
        if any(d.steps for d in devices):
            return Measured(reason=doubt, at_least=doubt is not None, series=found, most=most)
        return Measured(max(map(max, found)), doubt, at_least=doubt is not None, most=most)

    return _of_whole_tables(measure)


def _communication(name: str, all_of_it: _Measure, parts: tuple[Part, ...]) -> Metric:
    """Return a metric of exposed communication, which of one kind of group is of all devices together."""

    def measure(result: Result, group: str | None) -> Measured:
        if group is None:
            return all_of_it(result, None)
        digest = result.digest
        if digest is None:
            return Measured(reason=_NO_DIGEST)
        if not digest.total_ns:
            return Measured(reason=_NO_TASK)
        there = [p for p in digest.parts if p.part in _COMMUNICATION and p.key is not None]
        mine = [p for p in there if p.key == group or str(p.key).startswith(f"{group},")]
        if not mine:
            names = dict.fromkeys(str(p.key) for p in there)
            return Measured(0.0, _none_of(say("no communication of {name}", name=group), names, group), absent=True)
        share = 100 * sum(p.ns for p in mine if p.part in parts) / digest.total_ns
        if any(p.part not in parts and p.part == "comm_unknown" and p.ns for p in mine):
            return Measured(share, _NOT_APART, at_least=True)
        return Measured(share)

    return Metric(name, "percent", Result, _of_whole_tables(measure), "optional", parts=parts)


def _none_of(what: Message, names: Iterable[str], asked: str) -> Message:
    """Say that nothing has a name, and what there is with names like it."""
    there = [*names]
    if not there:
        return what
    from difflib import get_close_matches  # where something is misspelt

    near = get_close_matches(asked, there, n=3, cutoff=0.4) or there
    more = len(there) > _LISTED and near is there
    listed = series([*near[:_LISTED], *(["…"] if more else [])])
    return say("{what}; there is: {names}", what=what, names=listed)


def _operator_time(result: Result, name: str | None) -> Measured:
    """The time of one operator type in each step, the mean over the devices, ns."""
    digest = result.digest
    if digest is None:
        return Measured(reason=_NO_DIGEST)
    found = next((one for one in digest.types if one.type == name), None)
    if found is not None:
        return Measured(series=(tuple(map(float, found.ns)),))
    by_time = sorted(digest.types, key=lambda one: -sum(one.ns))
    why = _none_of(say("no operator of type {name}", name=name), (one.type for one in by_time), name or "")
    steps = max(len(digest.span_ns), 1)
    return Measured(reason=why, series=((0.0,) * steps,), absent=True)


def _occupancy(side: Callable[[Device], object]) -> _Measure:
    """Measure how much of the cores is in use while kernels of theirs run, in percent, on the device with the least."""

    def measure(result: Result, _: str | None) -> Measured:
        found = [getattr(side(d), "occupancy_busy", None) for d in result.devices]
        known = [share for share in found if share is not None]
        if known:
            return Measured(100 * min(known))
        why = next((d.cores.reason for d in result.devices if d.cores.reason is not None), None)
        return Measured(reason=why or say("no kernel that uses these cores has block counts"))

    return _of_whole_tables(measure)


#: What is not known of memory that was recorded, and what tells it.
_UNTOLD_MEMORY: Final = {
    "peak_bytes": say("PyTorch's allocator is not recorded"),
    "reserved_most_bytes": say("PyTorch's allocator is not recorded"),
    "fragments_share": say("PyTorch's allocator is not recorded"),
    "leak_bytes_per_step": say("whether steps keep memory shows in three of them or more, with all rows"),
    "headroom_bytes": say("the device's HBM, or what the process has of it, is not known (give --soc)"),
}


def _memory(what: str, worst: Callable[[list[float]], float]) -> _Measure:
    """Measure a figure of memory, of several devices the ``worst``; a share in percent."""

    def measure(result: Result, _: str | None) -> Measured:
        recorded = [device.memory for device in result.devices if device.memory is not None]
        if not recorded:
            return Measured(reason=say("no memory is recorded (npuperf profile --memory)"))
        known = [value for memory in recorded if (value := getattr(memory, what)) is not None]
        if len(known) < len(recorded):
            return Measured(reason=_UNTOLD_MEMORY[what])
        return Measured(worst([100 * v if what.endswith("share") else float(v) for v in known]))

    return measure


#: What efficiency needs, and what records it.
_NO_COUNTERS: Final = say(
    "the counters of kernels are not recorded (npuperf profile --level 1 --aic-metrics PipeUtilization)"
)
_NO_PEAK: Final = say(
    "nothing tells the peak of the cube cores: counters of kernels do (npuperf profile --level 1 --aic-metrics "
    "PipeUtilization), or give --soc"
)
_NO_FORMULA: Final = say("no kernel on cube cores has shapes that tell its products (npuperf profile --level 1)")
_NO_ROOF: Final = say(
    "no kernel has shapes that tell what its roof is (npuperf profile --level 1), or the chip is unknown (give --soc)"
)
_BETWEEN: Final = say("least to the best kernels of each kind, most to their roofs")
_OPEN: Final = say("masks, kernels without a formula and what was computed anew leave open how much is useful")


def _of_peak(
    part: Callable[[EfficiencySum], tuple[float, float] | float | None],
    lacking: Callable[[Result], Message],
    scale: int = 100,
    doubt: Message = _OPEN,
) -> _Measure:
    """Measure what efficiency tells in every step, at least and at most; shares in percent.

    ``lacking``: why there is none although the peak is known; ``doubt``: what leaves it between bounds.
    """

    def measure(result: Result, _: str | None) -> Measured:
        devices = [d for d in result.devices if d.window.span_ns]
        if not devices:
            return Measured(reason=_NO_TASK)
        least: list[tuple[float, ...]] = []
        most: list[tuple[float, ...]] = []
        for device in devices:
            own = _efficiencies(device)
            shares = [part(one.summed) for one in own if one is not None]
            bounds = [one if isinstance(one, tuple) else (one, one) for one in shares if one is not None]
            if len(bounds) < len(own):
                return Measured(reason=_NO_PEAK if None in own else lacking(result))
            least.append(tuple(float(scale * low) for low, _ in bounds))
            most.append(tuple(float(scale * high) for _, high in bounds))
        if least == most:
            return Measured(series=tuple(least))
        return Measured(reason=doubt, at_least=True, series=tuple(least), most=tuple(most), same_doubt=True)

    return _of_whole_tables(measure)


def _efficiencies(device: Device) -> list[Efficiency | None]:
    """Return the efficiency of every step that counts; without steps, of what is judged."""
    return [step.efficiency for step in device.whole_steps] or [device.window_efficiency]


def _untold_size(result: Result) -> Message:
    """Say why there is no MFU by the model's size."""
    if result.model is None:
        return say("the model's size is not given (--params and what follows it, or --model-flops)")
    return say("no whole step is recorded, or the model's size is not that of this run (see the warnings)")


def _clock(result: Result, _: str | None) -> Measured:
    """The clock of the cube cores as counters tell it, MHz, of the slowest device."""
    devices = [d for d in result.devices if d.window.span_ns]
    if not devices:
        return Measured(reason=_NO_TASK)
    known = [d.efficiency for d in devices if d.efficiency is not None and d.efficiency.basis == "counters"]
    if len(known) < len(devices):
        return Measured(reason=_NO_COUNTERS)
    clocks = [one.clock_mhz for one in known if one.clock_mhz is not None]
    if len(clocks) < len(devices):
        return Measured(reason=say("counters tell only the product of cores and clock here: no kernel has few blocks"))
    return Measured(min(clocks))


def _counted(kind: CountKind, *, moved: bool = False) -> _Measure:
    """Count what happens in each step, over all devices, or the bytes that are ``moved`` by it."""

    def measure(result: Result, _: str | None) -> Measured:
        digest = result.digest
        if digest is None:
            return Measured(reason=_NO_DIGEST)
        if kind in digest.uncounted and "rows" in digest.lacks:
            return Measured(reason=_ROWS_MISSING)
        if kind in digest.uncounted:
            return Measured(reason=say("this recording does not tell them: {how}", how=COUNTED[kind].recorded))
        sums = [0] * max(len(digest.steps), 1)
        for count in (count for count in digest.counts if count.kind == kind):
            row = count.bytes if moved else count.count
            if row is None:
                why = say(
                    "the bytes of {name} are not in these files; npuperf profile --level 1 records those of "
                    "collectives",
                    name=count.key,
                )
                return Measured(reason=why)
            sums = [a + b for a, b in zip(sums, row, strict=True)]
        lost = sum(lost.rows for lost in result.input.lost)
        doubt = say_n("{n} row could not be used, so that there may be more",
                      "{n} rows could not be used, so that there may be more", lost) if lost else None  # fmt: skip
        unread = sum(map(_unread, result.devices)) if kind == "launch" else 0
        if unread:  # too few to turn a verdict, but there are more
            doubt = say_n("{n} kernel that another file counts is not in the table of kernels",
                          "{n} kernels that other files count are not in the table of kernels", unread)  # fmt: skip
        return Measured(reason=doubt, at_least=lost > 0 or unread > 0, series=(tuple(map(float, sums)),))

    return measure


def _unread(device: Device) -> int:
    """Return how many kernels of a device another file counts beyond those that were read."""
    return max((w.told - w.found for w in device.witnesses if w.total == "kernels" and w.told > w.found), default=0)


def _problems(result: Result, rule: str | None) -> Measured:
    """The problems that were found, or that one rule found, on any device; there may be more where it cannot tell."""
    found = [finding for finding in result.findings if rule in (None, finding.rule)]
    if rule is None and not result.devices:
        return Measured(reason=_NO_TASK)
    if rule is not None and not found:
        return Measured(reason=say("this check was not made"))
    untold = [f for f in found if f.status == "cannot_tell"]
    reason = None
    if untold:
        rules = [*dict.fromkeys(f.rule for f in untold)]
        reason = say_n("{n} check cannot tell: {names}", "{n} checks cannot tell: {names}",
                       len(untold), names=series(rules[:3] + (["…"] if len(rules) > 3 else [])))  # fmt: skip
        if len(rules) == 1 and untold[0].needs is not None:
            reason = untold[0].needs
    named = tuple((f.severity, f.rule) for f in found if f.status == "problem")
    return Measured(len(named), reason, at_least=bool(untold), named=named)


def _rules() -> list[str]:
    from npuperf.advise import rule_names  # an answer that is known needs no rules

    return rule_names()
