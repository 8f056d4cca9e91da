"""What gates of ``npuperf analyze`` are held against: in every step, and of several devices the worst one counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, get_args

from npuperf.base.messages import Message, say, say_n, series
from npuperf.model.comparison import COUNTED
from npuperf.model.document import Measured, Metric, register
from npuperf.model.parts import CountKind, Digest, Part
from npuperf.model.result import Bound, Device, Finding, Partition, Result

_SEVERITIES: Final = ("low", "medium", "high")
#: Names that are listed where another one was asked for.
_LISTED: Final = 10
_NO_TASK: Final = say("no device task in this data")
_NO_DIGEST: Final = say("its steps were not summed: analyze it anew with this version")
_ALL_PARTS: Final[tuple[Part, ...]] = get_args(Part)
_IDLE: Final[tuple[Part, ...]] = ("host_wait", "launch_latency", "dependency", "unattributed")
_COMMUNICATION: Final[tuple[Part, ...]] = ("transfer", "wait", "comm_unknown")


def register_all() -> None:
    """Make the metrics of analyses known."""
    register(
        Metric("step_time", "ns", Result, _step_time, parts=_ALL_PARTS),
        Metric(
            "host_wait",
            "percent",
            Result,
            _share(lambda p: p.host_wait_ns, _untold, _unattributed),
            parts=("host_wait",),
        ),
        Metric("idle", "percent", Result, _share(lambda p: p.idle_ns), parts=_IDLE),
        _communication("comm.exposed", _share(lambda p: p.comm_exposed_ns), _COMMUNICATION),
        _communication("comm.transfer", _share(lambda p: p.comm_transfer_ns, _not_apart, _unsplit), ("transfer",)),
        _communication("comm.wait", _share(lambda p: p.comm_wait_ns, _not_apart, _unsplit), ("wait",)),
        Metric("op", "ns", Result, _operator_time, "required", parts=("compute",)),
        Metric("occupancy.cube", "percent", Result, _occupancy(lambda d: d.cores.cube), worst="least"),
        Metric("occupancy.vector", "percent", Result, _occupancy(lambda d: d.cores.vector), worst="least"),
        *(Metric(f"count.{of.metric}", "count", Result, _counted(kind)) for kind, of in COUNTED.items()),
        Metric("bytes.comm", "bytes", Result, _bytes_moved),
        Metric("findings", "count", Result, _findings, words=_SEVERITIES),
        Metric("finding", "count", Result, _finding, "required", _rules, words=_SEVERITIES),
        Metric("verdict", "count", Result, _verdict, words=get_args(Bound), expects=True),
    )


def _step_time(result: Result, _: str | None) -> Measured:
    """The job's step, or the median length of the steps of the slowest device, ns: what the report shows."""
    if result.cluster is not None:
        steps = result.digest.span_ns if result.digest is not None and result.digest.steps else []
        return Measured(float(result.cluster.step_ns), series=(tuple(map(float, steps)),))
    lengths = [[float(s.partition.span_ns) for s in d.whole_steps] for d in result.devices if d.steps]
    if not lengths:
        return Measured(reason=say("no step is recorded") if result.devices else _NO_TASK)
    return Measured(series=tuple(map(tuple, lengths)))


#: Takes a share's part of a window, ns.
_PartOf = Callable[[Partition], int]
_Doubt = Callable[[Device], Message | None]
_Measure = Callable[[Result, str | None], Measured]


def _share(part: _PartOf, untold: _Doubt = lambda device: None, doubtful: _PartOf = lambda whole: 0) -> _Measure:
    """Measure a part of every step in percent, without steps of the span.

    ``untold``: why a device cannot tell it; ``doubtful``: the time that may belong to it, too, then.
    """

    def measure(result: Result, _: str | None) -> Measured:
        devices = [d for d in result.devices if d.window.span_ns]
        if not devices:
            return Measured(reason=_NO_TASK)
        doubt = next((why for d in devices if (why := untold(d))), None)
        found = _percents(devices, part)
        most = _percents(devices, lambda p: part(p) + doubtful(p)) if doubt else ()
        if any(d.steps for d in devices):
            return Measured(reason=doubt, at_least=doubt is not None, series=found, most=most)
        return Measured(max(map(max, found)), doubt, at_least=doubt is not None, most=most)

    return measure


def _percents(devices: list[Device], part: _PartOf) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(_percent(part(p), p.span_ns) for p in _windows(d)) for d in devices)


def _windows(device: Device) -> list[Partition]:
    """Return the split of each step, or of all where none is recorded."""
    return [s.partition for s in device.whole_steps if s.partition.span_ns] or [device.window]


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole


def _untold(device: Device) -> Message | None:
    if not device.window.unattributed_ns:
        return None
    return say("idle time without a recorded launch may be waiting for the host")


def _unattributed(whole: Partition) -> int:
    return whole.unattributed_ns


def _unsplit(whole: Partition) -> int:
    return whole.comm_unknown_ns


def _not_apart(device: Device) -> Message | None:
    """Say what of exposed communication is neither known to be transfer nor waiting for other ranks."""
    if not device.window.comm_unknown_ns:
        return None
    return say("transfer and waiting cannot be told apart without all ranks of the job")


def _communication(name: str, all_of_it: _Measure, parts: tuple[Part, ...]) -> Metric:
    """Return a metric of exposed communication, which of one kind of group is of all devices together."""

    def measure(result: Result, group: str | None) -> Measured:
        return all_of_it(result, None) if group is None else _of_group(result.digest, group, parts)

    return Metric(name, "percent", Result, measure, "optional", parts=parts)


def _of_group(digest: Digest | None, group: str, parts: tuple[Part, ...]) -> Measured:
    if digest is None:
        return Measured(reason=_NO_DIGEST)
    if not digest.total_ns:
        return Measured(reason=_NO_TASK)
    there = [p for p in digest.parts if p.part in _COMMUNICATION and p.key is not None]
    mine = [p for p in there if p.key == group or str(p.key).startswith(f"{group},")]
    if not mine:
        names = dict.fromkeys(str(p.key) for p in there)
        return Measured(0.0, _none_of(say("no communication of {name}", name=group), names, group), absent=True)
    share = _percent(sum(p.ns for p in mine if p.part in parts), digest.total_ns)
    if any(p.part not in parts and p.part == "comm_unknown" and p.ns for p in mine):
        reason = say("transfer and waiting cannot be told apart without all ranks of the job")
        return Measured(share, reason, at_least=True)
    return Measured(share)


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

    return measure


def _counted(kind: CountKind) -> _Measure:
    """Count what happens in each step, over all devices."""

    def measure(result: Result, _: str | None) -> Measured:
        digest = result.digest
        why = _uncounted(digest, kind)
        if digest is None or why is not None:
            return Measured(reason=why)
        mine = [count.count for count in digest.counts if count.kind == kind]
        lost = _lost(result)
        return Measured(reason=lost, at_least=lost is not None, series=(_per_step(digest, mine),))

    return measure


def _bytes_moved(result: Result, _: str | None) -> Measured:
    """The bytes that collectives move in each step, over all devices."""
    digest = result.digest
    why = _uncounted(digest, "collective")
    if digest is None or why is not None:
        return Measured(reason=why)
    mine = [count for count in digest.counts if count.kind == "collective"]
    moved = [count.bytes for count in mine if count.bytes is not None]
    untold = next((count.key for count in mine if count.bytes is None), None)
    if untold is not None:
        return Measured(
            reason=say(
                "the bytes of {name} are not in these files; npuperf profile --level 1 records those of collectives",
                name=untold,
            )
        )
    lost = _lost(result)
    return Measured(reason=lost, at_least=lost is not None, series=(_per_step(digest, moved),))


def _per_step(digest: Digest, rows: Iterable[list[int]]) -> tuple[float, ...]:
    """Return the sums of rows per step; no rows are none in each."""
    sums = [0] * max(len(digest.steps), 1)
    for row in rows:
        sums = [a + b for a, b in zip(sums, row, strict=True)]
    return tuple(map(float, sums))


def _uncounted(digest: Digest | None, kind: CountKind) -> Message | None:
    """Say why a kind of things was not counted, if so."""
    if digest is None:
        return _NO_DIGEST
    if kind not in digest.uncounted:
        return None
    return say("this recording does not tell them: {how}", how=COUNTED[kind].recorded)


def _lost(result: Result) -> Message | None:
    rows = sum(lost.rows for lost in result.input.lost)
    if not rows:
        return None
    return say_n("{n} row could not be used, so that there may be more",
                 "{n} rows could not be used, so that there may be more", rows)  # fmt: skip


def _findings(result: Result, _: str | None) -> Measured:
    """The problems that were found; there may be more where a rule could not tell."""
    return _problems(result, result.findings) if result.devices else Measured(reason=_NO_TASK)


def _finding(result: Result, rule: str | None) -> Measured:
    """The problems that one rule found, on any device."""
    mine = [finding for finding in result.findings if finding.rule == rule]
    if not mine:
        return Measured(reason=say("this check was not made"))
    return _problems(result, mine)


def _problems(result: Result, findings: Iterable[Finding]) -> Measured:
    found = [*findings]
    problems = [f for f in found if f.status == "problem"]
    untold = [f for f in found if f.status == "cannot_tell"]
    reason = None
    if untold:
        rules = [*dict.fromkeys(f.rule for f in untold)]
        reason = say_n("{n} check cannot tell: {names}", "{n} checks cannot tell: {names}",
                       len(untold), names=series(rules[:3] + (["…"] if len(rules) > 3 else [])))  # fmt: skip
        if len(rules) == 1 and untold[0].needs is not None:
            reason = untold[0].needs
    named = tuple((f.severity, f.rule) for f in problems)
    return Measured(len(problems), reason, at_least=bool(untold), named=named)


def _rules() -> list[str]:
    from npuperf.advise import rule_names  # an answer that is known needs no rules

    return rule_names()


def _verdict(result: Result, _: str | None) -> Measured:
    verdict = result.verdict
    return Measured(reason=verdict.reason, named=((verdict.bound, ""),))
