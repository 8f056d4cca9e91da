"""A result of many ranks in few bytes: of long lists what weighs most, and how much of them there is.

Nothing goes that a comparison, a gate or a lock asks for: steps become columns, and what a rule says alike of many
ranks stands once. ``unfolded`` makes lists of them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from npuperf.base.messages import NOTHING, Message, say
from npuperf.model.efficiency_result import Efficiency, EfficiencySum
from npuperf.model.memory_result import Memory
from npuperf.model.result import (
    AlsoFound,
    Device,
    Finding,
    Input,
    ListCut,
    Lost,
    Partition,
    Precondition,
    Result,
    Step,
    StepColumns,
    Verdict,
    highest_peak,
    least_efficient,
)

#: Of so many devices a document has everything; of more all that is known of so many, and of the others their sums.
_ALL_WHOLE: Final = 64
_WHOLE: Final = 16
#: Problems that stand each by itself with all that is known of it, and what else is said that has its evidence.
_PROBLEMS: Final = 100
_SAID: Final = 200
#: Files, and rows lost of one.
_FILES: Final = 100
#: What the others of a partition's parts add up to.
_SUMS: Final = {
    "comm_exposed_ns": ("comm_transfer_ns", "comm_wait_ns", "comm_unknown_ns"),
    "idle_ns": ("host_wait_ns", "launch_latency_ns", "dependency_wait_ns", "unattributed_ns"),
    "span_ns": ("compute_ns", "comm_exposed_ns", "other_exposed_ns", "idle_ns"),
}
_PARTS: Final = tuple(name for name in Partition.__struct_fields__ if name not in _SUMS)
#: By what one device is worse than another.
_RESPECTS: Final[tuple[Callable[[Partition], int], ...]] = (
    lambda part: part.span_ns,
    lambda part: part.host_wait_ns,
    lambda part: part.idle_ns,
    lambda part: part.comm_exposed_ns,
    lambda part: part.comm_transfer_ns,
    lambda part: part.comm_wait_ns,
)


def shortened(result: Result) -> Result:
    """Return a job of many ranks with its long lists cut, and in ``cut`` how much of each is there; others as they are.

    All is known of the devices that the roots of waiting name, of the worst in any respect, and of the first ones.
    """
    devices = result.devices
    ranks = {device.rank for device in devices if device.rank is not None}
    if result.cut or result.cluster is None or len(devices) <= _ALL_WHOLE or len(ranks) < len(devices):
        return result
    whole = _heaviest(result)
    known = {None, *(devices[at].rank for at in whole)}
    lean = lean_devices(devices)
    return with_cuts(
        result,
        replace(
            result,
            input=fewer_files(result.input, _FILES),
            devices=[device if at in whole else lean[at] for at, device in enumerate(devices)],
            findings=said_once(result, problems=_PROBLEMS, whole=_SAID),
            what_if=[one for one in result.what_if if one.rank in known],
        ),
    )


def unfolded(result: Result) -> Result:
    """Return a result with a finding for every rank again, and with steps where it has columns of them.

    Raises ValueError where these are not of one length.
    """
    of_rank = {device.rank: device.device for device in result.devices}
    devices = [
        replace(device, steps=_steps(device.step_columns, device.efficiency), step_columns=None)
        if device.step_columns
        else device
        for device in result.devices
    ]
    return replace(result, devices=devices, findings=[one for f in result.findings for one in _apart(f, of_rank)])


def with_cuts(whole: Result, cut: Result) -> Result:
    """Return a result that says of its lists how much there is of what the ``whole`` one has."""

    def counted(name: str, before: Iterable[Any], after: Iterable[Any]) -> Iterator[ListCut]:
        total, shown = sum(map(len, before)), sum(map(len, after))
        if shown < total:
            yield ListCut(list=name, shown=shown, total=total)

    cuts = [*counted("findings", [whole.findings], [cut.findings])]
    cuts += counted("what_if", [whole.what_if], [cut.what_if])
    cuts += counted("input.files", [whole.input.files], [cut.input.files])
    for place in ("devices[]", "devices[].cores"):
        both: list[list[Any]] = [
            [device.cores if place.endswith("cores") else device for device in result.devices]
            for result in (whole, cut)
        ]
        for name in both[0][0].__struct_fields__ if both[0] else ():
            lists = [[getattr(part, name) for part in side] for side in both]
            if isinstance(lists[0][0], list):
                cuts += counted(f"{place}.{name}", *lists)
    return replace(cut, cut=cuts)


def _heaviest(result: Result) -> set[int]:
    """Return the places of the devices of which everything is told."""
    windows = [device.window for device in result.devices]

    def worst(respect: Callable[[Partition], int]) -> int:
        return max(range(len(windows)), key=lambda at: respect(windows[at]) / max(windows[at].span_ns, 1))

    at = {device.rank: place for place, device in enumerate(result.devices)}
    named = [at[rank] for root in (result.cluster.roots if result.cluster else ()) for rank in root.ranks if rank in at]
    worst_first = [*map(worst, _RESPECTS), *named, *range(len(windows))]
    return {*[*dict.fromkeys(worst_first)][:_WHOLE]}


# -- A device in its sums, and its steps as columns.


def lean_devices(devices: Sequence[Device]) -> list[Device]:
    """Return devices without what no comparison and no gate asks for; their steps are columns.

    The usual step is compared of the first device; of what is not known of cores the first reason is told.
    """
    highest, least = highest_peak(devices), least_efficient(devices)
    why = next((at for at, device in enumerate(devices) if device.cores.reason is not None), None)
    return [
        replace(
            device,
            verdict=Verdict(bound=device.verdict.bound, basis=device.verdict.basis, reason=NOTHING),
            steps=[],
            step_columns=_columns(device.steps),
            streams=[],
            cores=replace(
                device.cores,
                by_type=[],
                most_idle=[],
                over_time=None,
                reason=device.cores.reason if at == why else None,
                source=None,
            ),
            core_clock=None,
            vendor=[],
            witnesses=[check for check in device.witnesses if check.told > check.found],
            phases=[],
            communication=None,
            collective_rates=[],
            blame=[],
            dependencies=[],
            typical_step=device.typical_step if at == 0 else None,
            syncs=[],
            core_splits=[],
            super_kernels=[],
            super_kernel_checks=[],
            environment=[],
            memory=_lean_memory(device, whole=device is highest),
            judged=device.judged
            and replace(device.judged, efficiency=_lean_efficiency(device.judged.efficiency, whole=device is least)),
            efficiency=_lean_efficiency(device.efficiency, whole=device is least and device.judged is None),
        )
        for at, device in enumerate(devices)
    ]


def _lean_memory(device: Device, *, whole: bool) -> Memory | None:
    """Return what gates ask of a device's memory, and of the one with the highest peak what it is made of."""
    if device.memory is None:
        return None
    lean = replace(device.memory, curve=None, blocks=[], steps=[], leaks=[])
    return lean if whole else replace(lean, alive=[], modules=[])


def _lean_efficiency(found: Efficiency | None, *, whole: bool) -> Efficiency | None:
    """Return what gates ask of a device's efficiency, and of the one that does least where the rest goes."""
    return found if found is None or whole else replace(found, parts=[], idle=[], roofs=None, modules=[])


def _columns(steps: Sequence[Step]) -> StepColumns | None:
    """Return steps as columns, without parts that none has and sums that the parts add up to."""
    if not steps:
        return None
    parts = {name: [getattr(step.partition, name) for step in steps] for name in Partition.__struct_fields__}
    added = _added_up({name: parts[name] for name in _PARTS}, len(steps))
    kept = {name: ns for name, ns in parts.items() if (ns != added[name] if name in _SUMS else any(ns))}
    return StepColumns(
        step=[step.step for step in steps],
        whole=[step.whole for step in steps],
        parts=kept,
        efficiency=None
        if any(step.efficiency is None for step in steps)
        else sum_columns([step.efficiency.summed for step in steps if step.efficiency is not None]),
    )


def _steps(columns: StepColumns, of_device: Efficiency | None) -> list[Step]:
    """Return the steps that columns are of; what limits each is not among these, nor what its efficiency consists of.

    ``of_device``: which has their peak.
    """
    count = len(columns.step)
    known = {name: ns for name, ns in columns.parts.items() if name in Partition.__struct_fields__}
    sums = None if of_device is None else columns.efficiency
    if {len(columns.whole), *map(len, known.values()), *map(len, (sums or {}).values())} - {count}:
        raise ValueError("columns of steps of different lengths")
    efficient = [None] * count if sums is None else sums_of(sums, count)
    parts = {**_added_up(known, count), **known}
    untold = Verdict(bound="unknown", basis="inferred", reason=NOTHING)
    return [
        Step(
            step=step,
            start_ns=0,
            partition=Partition(**{name: ns[at] for name, ns in parts.items()}),
            verdict=untold,
            whole=whole,
            efficiency=of_device.of_sum(own, parts["span_ns"][at]) if own and of_device else None,
        )
        for at, (step, whole, own) in enumerate(zip(columns.step, columns.whole, efficient, strict=True))
    ]


#: What :class:`EfficiencySum` has as intervals, and as numbers.
_INTERVALS: Final = ("hfu", "kernels", "recoverable_ns")
_NUMBERS: Final = tuple(name for name in EfficiencySum.__struct_fields__ if name not in _INTERVALS)


def sum_columns(sums: Sequence[EfficiencySum]) -> dict[str, list[float | None]]:
    """Return what gates ask of the efficiency of steps as columns; ``sums_of`` makes them of these."""
    all_ = {name: [getattr(one, name) for one in sums] for name in _NUMBERS}
    for name in _INTERVALS:
        if name == "kernels" and all(one.kernels == one.hfu for one in sums):
            continue
        found = [getattr(one, name) for one in sums]
        all_[f"{name}_least"], most = ([None if one is None else one[at] for one in found] for at in (0, 1))
        if most != all_[f"{name}_least"]:
            all_[f"{name}_most"] = most
    return {name: column for name, column in all_.items() if any(value is not None for value in column)}


def sums_of(columns: dict[str, list[float | None]], count: int) -> list[EfficiencySum]:
    """Return the efficiency of steps that columns are of."""
    fields: dict[str, list[Any]] = {name: columns.get(name, [None] * count) for name in _NUMBERS}
    for name in _INTERVALS:
        least = columns.get(f"{name}_least", [None] * count)
        most = columns.get(f"{name}_most", least)
        fields[name] = [None if low is None else (low, high) for low, high in zip(least, most, strict=True)]
    if "kernels_least" not in columns:
        fields["kernels"] = fields["hfu"]
    return [EfficiencySum(**{name: column[at] for name, column in fields.items()}) for at in range(count)]


def _added_up(parts: dict[str, list[int]], count: int) -> dict[str, list[int]]:
    """Return all parts and sums of partitions: a part that is not among ``parts`` is none."""
    all_ = {name: parts.get(name, [0] * count) for name in _PARTS}
    for name, of in _SUMS.items():
        all_[name] = [sum(ns) for ns in zip(*(all_[part] for part in of), strict=True)]
    return all_


# -- Findings: what a rule says alike of many ranks stands once, and with it the ranks and what each has of numbers.


def said_once(result: Result, *, problems: int, whole: int) -> list[Finding]:
    """Return findings of which each says what the others do not.

    The first ``problems`` stay as they are; of the others so many have their evidence as are among the first ``whole``
    that remain. What several findings of one rule say of one rank stays apart, and so do ranks with several devices.
    """
    findings = result.findings
    own = Counter((f.rule, f.rank) for f in findings)
    devices = Counter(device.rank for device in result.devices)
    kept: list[Finding] = []
    ranks: list[dict[tuple[Message | None, Message | None], list[int]]] = []  # of each, by what the others say
    places: dict[tuple[object, ...], int] = {}
    for at, finding in enumerate(findings):
        rank, key = finding.rank, _key(finding)
        alone = own[finding.rule, rank] > 1 or devices[rank] != 1 or (at < problems and finding.status == "problem")
        if rank is None or alone or key not in places:
            if rank is not None and not alone:
                places[key] = len(kept)
            kept.append(finding)
            ranks.append({})
            continue
        first = kept[places[key]]
        title = finding.title if finding.status != "ok" and finding.title != first.title else None
        needs = finding.needs if finding.status == "cannot_tell" and finding.needs != first.needs else None
        ranks[places[key]].setdefault((title, needs), []).append(rank)
    told = (finding if at < whole else lean_finding(finding) for at, finding in enumerate(kept))
    return [
        replace(finding, also=[AlsoFound(ranks=mine, title=t, needs=n) for (t, n), mine in others.items()])
        for finding, others in zip(told, ranks, strict=True)
    ]


def lean_finding(finding: Finding) -> Finding:
    """Return a finding without its evidence, and with all that tells whether another says the same."""
    problem = finding.status == "problem"
    return replace(
        finding,
        evidence={},
        refute=None,
        code=None,
        source=None,
        alternatives=[],
        gain_withheld=None,
        next=finding.next if problem else None,
        preconditions=[p for p in finding.preconditions if p.holds is False] if problem else [],
        excluded=finding.excluded if problem else [],
    )


def _key(finding: Finding) -> tuple[object, ...]:
    """Return what findings have in common of which a document needs one: all but numbers in what they say."""
    what = finding.rule, finding.status, finding.severity, finding.run
    if finding.status == "ok":
        return what
    if finding.status == "cannot_tell":
        return *what, finding.title.id, finding.needs and finding.needs.id
    lacking: list[Precondition] = [p for p in finding.preconditions if p.holds is False]
    return *what, finding.title.id, *(p.what for p in lacking), *(e.advice for e in finding.excluded)


def _apart(finding: Finding, of_rank: dict[int | None, int]) -> Iterator[Finding]:
    """Yield a finding, and what it says of every other rank."""
    yield replace(finding, also=[])
    lean = replace(lean_finding(finding), also=[])
    for other in finding.also:
        for rank in other.ranks:
            if rank in of_rank:
                told = {"title": other.title or finding.title, "needs": other.needs or finding.needs}
                yield replace(lean, rank=rank, device=of_rank[rank], **told)


# -- Files.


def fewer_files(read: Input, most: int) -> Input:
    """Return what was read with so many files at most; the rows that were lost stay as many as they are."""
    lost = read.lost
    if len(lost) > most:
        rest = lost[most - 1 :]
        more = say("of {n} more files or reasons together", n=len(rest))
        lost = [*lost[: most - 1], Lost(file="…", rows=sum(one.rows for one in rest), reason=more)]
    return replace(read, files=read.files[:most], lost=lost)
