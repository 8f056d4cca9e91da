"""Two sides compared: parity first, then what changed, and whether that is more than chance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from npuperf.against.aligned import aligned, by_new_waits, finding_changes
from npuperf.against.causes import cause_changes, cause_sentence
from npuperf.against.parity import Side, alike, comparable, differences, refuse_mismatch, told_apart
from npuperf.against.shifts import operator_rows, shifts, step_row
from npuperf.against.step_kinds import StepKinds, sure_change
from npuperf.against.waterfall import folded, parts_of, rounded, side_by_side, sum_runs
from npuperf.base.messages import Message, chain, first_few, ns, ns_change, say, say_n, series, share
from npuperf.model.comparison import Comparison, MemoryChange, MemoryPart, WaterfallPart, worded
from npuperf.model.labels import F64
from npuperf.model.memory_result import Memory
from npuperf.model.noise import Judged, judge_shift
from npuperf.model.parts import Digest, Part, TimedBy
from npuperf.model.result import Device, Result, highest_peak
from npuperf.model.thresholds import Thresholds

# -- What a comparison says in a sentence: the verdict's reason, and the parts that make it.

#: Parts that a sentence names, and the least share of the difference of such a part.
_NAMED: Final = 3
_LEAST: Final = 0.1
_MARK: Final = say("mark steps on both sides: npuperf profile does")
#: What is checked before anything else is blamed.
FIRST: Final = ("AI Core frequency", "recording overhead")

_PARTS: Final[dict[Part, Message]] = {
    "compute": say("compute"),
    "transfer": say("transfer"),
    "wait": say("waiting for other ranks"),
    "comm_unknown": say("communication"),
    "host_wait": say("waiting for the host"),
    "launch_latency": say("launch latency"),
    "dependency": say("waiting between streams"),
    "unattributed": say("unattributed idle time"),
    "other": say("other tasks"),
}


def part_sentence(part: WaterfallPart) -> Message:
    """Say in a few words what a part changed, and by how much per mean step."""
    change = ns_change(part.delta_ns)
    what = _PARTS[part.part]
    if part.key is not None:
        cause, _, name = part.key.partition(": ")
        key = name or cause if part.part == "host_wait" else part.key
        what = say("{part} ({key})", part=what, key=key)
    if part.part == "compute" and part.key is not None:
        what = say("{key}", key=part.key)
    if part.instead_of:
        old = first_few(part.instead_of, _NAMED)
        return say("{what} instead of {old} {change}", what=what, old=old, change=change)
    if part.change == "added":
        return say("{what} is new {change}", what=what, change=change)
    if part.change == "removed":
        return say("{what} is gone {change}", what=what, change=change)
    return say("{what} {change}", what=what, change=change)


def _step_in_words(judged: Judged, old: int | None, new: int | None, *, stepped: bool) -> Message:
    """Say how the median steps differ, ns, and between what their difference lies."""
    if old is None or new is None:
        return chain(judged.method, judged.needs)
    numbers = say("{old} to {new}", old=ns(old), new=ns(new))
    if judged.interval is not None and judged.confidence is None:
        numbers = judged.method
    elif judged.interval is not None and judged.confidence is not None:
        between = ns_change(*judged.interval)
        sure = say("{interval} at {confidence}", interval=between, confidence=share(judged.confidence))
        numbers = chain(numbers, sure)
    if judged.verdict in ("worse", "better") and judged.estimate is not None and old:
        changed = share(abs(judged.estimate) / old)
        how = say("the step is {share} longer", share=changed)
        if judged.verdict == "better":
            how = say("the step is {share} shorter", share=changed)
        return say("{how} ({numbers})", how=how, numbers=numbers)
    if judged.verdict == "same" and not stepped:
        return say("both recordings are equally long ({numbers})", numbers=numbers)
    if judged.verdict == "same":
        return say("the steps are equally long ({numbers})", numbers=numbers)
    untold = say("how the step changed stays open ({numbers})", numbers=numbers)
    return chain(untold, judged.method if judged.interval is None else None, judged.needs)


#: Findings that are listed, the gravest of those that changed: of a thousand ranks there may be thousands.
_FINDINGS: Final = 20


def compare_results(
    old: Sequence[Result], new: Sequence[Result], thresholds: Thresholds, *, allow_mismatch: bool = False
) -> Comparison:
    """Compare two sides, each of one or several runs of one workload.

    Raises UsageError where the sides are not of one workload and that is not allowed.
    """
    names = [" + ".join(dict.fromkeys(run.input.path for run in runs)) for runs in (old, new)]
    lacking = next((run.input.path for run in (*old, *new) if run.digest is None), None)
    if lacking is not None:
        why = say("{path}: its steps were not summed: analyze it anew with this version", path=lacking)
        return Comparison(old=names[0], new=names[1], verdict="cannot_tell", reason=why)
    mixed = next((run.input.path for run in (*old, *new) if run.runs), None)
    if mixed is not None:
        why = say("{path}: its ranks are of several runs: compare each run by itself", path=mixed)
        return Comparison(old=names[0], new=names[1], verdict="cannot_tell", reason=why)
    before, after = ([run.digest for run in runs if run.digest is not None] for runs in (old, new))
    summed = (sum_runs(side) for side in by_new_waits(before, after))
    keys = comparable(*(Side(runs, sums) for runs, sums in zip((old, new), summed, strict=True)))
    parity = differences(keys.old, keys.new, thresholds)
    if not allow_mismatch:
        refuse_mismatch(parity)
    workload = alike(keys.old, keys.new, parity)

    # The step, and what makes it another one. A side without time has no samples; the host's steps are time where no
    # device has any, and never stand against a device's.
    timed: TimedBy = "device" if any(d.timed == "device" for d in (*before, *after)) else "host"
    samples = [[np.array(d.span_ns, np.float64) for d in side if d.timed == timed] for side in (before, after)]
    stepped = all(d.steps for d in before), all(d.steps for d in after)
    judged = _judged_steps(before, after, samples, stepped, timed, told_apart(parity), thresholds)
    means, medians = (
        [
            rounded(sums.total_ns, max(sums.windows, 1)) if sums.total_ns else None
            for sums in (keys.old.sums, keys.new.sums)
        ],
        [round(float(np.median(np.concatenate(side)))) if side else None for side in samples],
    )
    delta = None if means[0] is None or means[1] is None else means[1] - means[0]
    waterfall: tuple[WaterfallPart, ...] = ()
    if all(samples) and timed == "device":
        rows = side_by_side(keys.old.sums, keys.new.sums)
        if not keys.named_anew and workload != "different":  # only in the same work one operator takes another's place
            rows = folded(rows, keys.old.sums.types | keys.new.sums.types)
        waterfall = parts_of(rows)
    operators, alike_operators = (
        ([], 0) if keys.named_anew else operator_rows(before, after, thresholds, by_ending=keys.by_ending)
    )
    step = step_row((samples[0], samples[1]), judged)
    apart = [worded(difference.what) for difference in parity if difference.mismatch]
    first = [d.reason for d in parity if d.what in FIRST and d.reason is not None and None not in medians]
    causes = cause_changes(old, new)
    named = []  # those that make the job's step longer or shorter, before where that shows
    moved = None  # the parts that make most of the difference of the mean steps, where it goes the way of the verdict
    if delta is not None and judged.verdict in ("worse", "better"):
        named = [cause_sentence(c) for c in causes if sum(c.delta_ns) * delta >= 2 * _LEAST * delta**2][:_NAMED]
        most = [p for p in waterfall if p.delta_ns * delta > 0 and abs(p.delta_ns) >= _LEAST * abs(delta)][:_NAMED]
        if delta * (1 if judged.verdict == "worse" else -1) <= 0:
            moved = say("a few steps are of other length: the mean step changed by {change}", change=ns_change(delta))
        elif most:
            moved = say("of the mean step: {parts}", parts=series(map(part_sentence, most)))
    of_host = say("these are the host's steps: no time of a device is recorded")
    reason = chain(
        say("not of one workload ({differences})", differences=series(apart)) if apart else None,
        chain(*first) if first else None,
        chain(*named) if named else None,
        _step_in_words(judged, *medians, stepped=all(stepped)),
        of_host if timed == "host" and all(samples) else None,
        moved,
        keys.note if waterfall else None,
    )

    findings, alike_findings = finding_changes(old, new)
    listed = shifts(old, new, thresholds)
    more = len(findings) - _FINDINGS
    unlisted = say_n("{n} more finding changed", "{n} more findings changed", more) if more > 0 else None
    return Comparison(
        old=names[0],
        new=names[1],
        verdict=judged.verdict,
        reason=reason,
        old_step_ns=means[0],
        new_step_ns=means[1],
        delta_ns=delta,
        interval_ns=None if judged.interval is None else (round(judged.interval[0]), round(judged.interval[1])),
        old_median_ns=medians[0],
        new_median_ns=medians[1],
        samples=(sum(map(len, samples[0])), sum(map(len, samples[1]))),
        stepped=stepped,
        method=judged.method,
        confidence=judged.confidence,
        sure_ns=round(judged.sure),
        workload=workload,
        parity=parity,
        causes=tuple(causes),
        waterfall=waterfall,
        rows=(*([step] if step else []), *operators),
        shifts=tuple(listed.shifts),
        memory=tuple(memory_changes(old, new)),
        findings=tuple(findings[:_FINDINGS]),
        aligned=tuple(aligned(old, new, thresholds)),
        unchanged=alike_operators + listed.unchanged + alike_findings,
        warnings=tuple(note for note in (listed.note, unlisted) if note),
    )


def _judged_steps(
    old: Sequence[Digest],
    new: Sequence[Digest],
    samples: Sequence[Sequence[F64]],
    stepped: tuple[bool, bool],
    timed: TimedBy,
    apart: Message | None,
    thresholds: Thresholds,
) -> Judged:
    """Judge the lengths of the steps; two sides that agree in everything are the same, however few steps they have.

    ``samples``: of both sides, ``timed`` by the device or by the host. Without any on a side nothing is the same: that
    equal work was counted says nothing of the time that it took. ``apart``: why a step is not the same on both sides.
    """
    if not all(samples):
        if not any(samples):
            none = say("no time of a device is recorded on either side, and no step of the host")
            return Judged("cannot_tell", none, needs=_MARK)
        if timed == "host":
            lacking = say("the new side has no steps") if samples[0] else say("the old side has no steps")
            return Judged("cannot_tell", lacking, needs=_MARK)
        if samples[0]:
            return Judged("cannot_tell", say("the new side has no time of a device"))
        return Judged("cannot_tell", say("the old side has no time of a device"))
    if [(d.span_ns, d.parts, d.types) for d in old] == [(d.span_ns, d.parts, d.types) for d in new]:
        identical = say("every step and every sum is identical") if all(stepped) else say("every sum is identical")
        return Judged("same", identical, estimate=0.0, interval=(0.0, 0.0))
    if any("rows" in digest.lacks for digest in (*old, *new)):
        why = say("rows are missing from a table of kernels, or its times cannot be trusted, so that the length of its "
                  "steps is not known")  # fmt: skip
        return Judged("cannot_tell", why, needs=say("see the warnings, and use the files as they were exported"))
    if stepped[0] != stepped[1]:
        why = say("one side has no steps: all that it recorded stands against single steps")
        return Judged("cannot_tell", why, needs=_MARK)
    if apart is not None:
        return Judged("cannot_tell", apart)
    judged = judge_steps(old, new, thresholds, samples)
    if not stepped[0] and judged.interval is None:
        why = say("no steps are recorded: all that one side recorded stands against all that the other one did")
        return Judged("cannot_tell", why, needs=_MARK)
    return judged


def judge_steps(
    old: Sequence[Digest],
    new: Sequence[Digest],
    thresholds: Thresholds,
    samples: Sequence[Sequence[F64]] | None = None,
) -> Judged:
    """Judge by how much steps of new runs are longer; ``samples``: their lengths, where not all runs tell any."""
    if samples is None:
        samples = [[np.array(d.span_ns, np.float64) for d in side] for side in (old, new)]
    ratio, floor = thresholds.compare_ratio, thresholds.compare_floor_ns
    of, sure = StepKinds(old, new), 0.0
    if all(digest.steps for digest in (*old, *new)):
        median = float(np.median(np.concatenate(samples[0])))
        sure = sure_change(old, new, of, max(ratio * median, floor))
    return judge_shift(*of.leveled(*samples), ratio=ratio, floor=floor, sure=sure)


# -- The difference of two peaks of memory in parts that add up to it, to the byte; swapping the sides negates each.

_MemoryParts = dict[tuple[MemoryPart, str | None], int]


def memory_changes(old: Sequence[Result], new: Sequence[Result]) -> list[MemoryChange]:
    """Explain the peak of the new side's device with the highest one by that of the same device before.

    The parts ``before``, ``freed`` and ``alive`` add up to the difference of the peaks, all of them to that of the
    process's memory then. Where a side's peak cannot be split, or its blocks are not listed, it is one part less told.
    """
    after = highest_peak(_with_peaks(new))
    if after is None or after.memory is None:
        return []
    known = _with_peaks(old)
    same = [device for device in known if (device.rank, device.device) == (after.rank, after.device)]
    before = highest_peak(same) or highest_peak(known)
    if before is None or before.memory is None:
        return []
    sides = [before.memory, after.memory]
    split = all(side.split == "measured" for side in sides)
    listed = split and all(sum(group.bytes for group in side.alive) == side.alive_bytes for side in sides)
    beside = all(side.process_bytes is not None and side.cached_bytes is not None for side in sides)
    a, b = ({**_of_peak(side, split, listed), **(dict(_beside(side)) if beside else {})} for side in sides)
    rows = [
        MemoryChange(part=part, key=key, old_bytes=a.get((part, key), 0), new_bytes=b.get((part, key), 0),
                     delta_bytes=b.get((part, key), 0) - a.get((part, key), 0))
        for part, key in dict.fromkeys((*a, *b))
    ]  # fmt: skip
    return sorted(
        (row for row in rows if row.delta_bytes), key=lambda row: (-abs(row.delta_bytes), row.part, row.key or "")
    )


def _with_peaks(runs: Sequence[Result]) -> list[Device]:
    every = [device for run in runs for device in run.devices]
    return [device for device in every if device.memory is not None and device.memory.peak_bytes is not None]


def _of_peak(memory: Memory, split: bool, listed: bool) -> _MemoryParts:
    """Return what the peak consists of; what was given back counts against it."""
    if not split:
        return {("peak", None): memory.peak_bytes or 0}
    parts: _MemoryParts = {("before", None): memory.before_bytes or 0, ("freed", None): -(memory.freed_bytes or 0)}
    if not listed:
        return {**parts, ("alive", None): memory.alive_bytes or 0}
    groups: _MemoryParts = defaultdict(int)
    for group in memory.alive:
        groups["alive", f"{group.operator or group.where or '?'} ({group.class_})"] += group.bytes
    return {**parts, **groups}


def _beside(memory: Memory) -> Iterator[tuple[tuple[MemoryPart, str | None], int]]:
    """Yield what the process has beside what is allocated."""
    yield ("cached", None), memory.cached_bytes or 0
    yield ("waiting", None), memory.waiting_bytes or 0
    for module in memory.modules:
        yield ("outside", module.name), module.bytes
    yield ("outside", None), memory.unnamed_bytes or 0
