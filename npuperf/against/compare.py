"""Two sides compared: parity first, then what changed, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.against.aligned import aligned, by_new_waits, finding_changes
from npuperf.against.parity import SameKeys, Side, alike, comparable, differences, refuse_mismatch
from npuperf.against.shifts import operator_rows, shifts, step_row
from npuperf.against.waterfall import Sums, folded, parts_of, rounded, side_by_side, sum_runs
from npuperf.base.messages import Message, chain, ns, ns_change, say, say_n, series, share
from npuperf.model.comparison import Comparison, Difference, Parity, WaterfallPart, worded
from npuperf.model.labels import F64
from npuperf.model.noise import Judged, judge_shift
from npuperf.model.parts import Digest, Part
from npuperf.model.result import Result
from npuperf.model.thresholds import Thresholds

# -- What a comparison says in a sentence: the verdict's reason, and the parts that make it.

#: Parts that a sentence names, and the least share of the difference of such a part.
_NAMED: Final = 3
_LEAST: Final = 0.1
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


class Grounds(Struct, frozen=True):
    """What the sentence is made of: mean and median steps (old, new), ns, and why they differ.

    ``stepped``: whether both sides have steps.
    """

    means: tuple[int | None, int | None]
    medians: tuple[int | None, int | None]
    judged: Judged
    parity: Sequence[Difference]
    waterfall: Sequence[WaterfallPart]
    note: Message | None = None
    stepped: bool = True


def reason_of(grounds: Grounds) -> Message:
    """Say how the steps differ, what sets the sides apart before anything else, and which parts make the difference."""
    return chain(_mismatch(grounds), _first(grounds), _verdict(grounds), _parts(grounds), grounds.note)


def _mismatch(grounds: Grounds) -> Message | None:
    names = [worded(difference.what) for difference in grounds.parity if difference.mismatch]
    return say("not of one workload ({differences})", differences=series(names)) if names else None


def _first(grounds: Grounds) -> Message | None:
    """Return what clock and recording have to do with it, where there are times for them to change."""
    if None in grounds.medians:
        return None
    reasons = [d.reason for d in grounds.parity if d.what in FIRST and d.reason is not None]
    return chain(*reasons) if reasons else None


def _verdict(grounds: Grounds) -> Message:
    judged, (old, new) = grounds.judged, grounds.medians
    if old is None or new is None:
        return judged.method
    if judged.verdict in ("worse", "better") and judged.estimate is not None and old:
        changed = share(abs(judged.estimate) / old)
        longer, shorter = (
            say("the step is {share} longer", share=changed),
            say("the step is {share} shorter", share=changed),
        )
        how = longer if judged.verdict == "worse" else shorter
        return say("{how} ({numbers})", how=how, numbers=_numbers(grounds))
    if judged.verdict == "same" and not grounds.stepped:
        return say("both recordings are equally long ({numbers})", numbers=_numbers(grounds))
    if judged.verdict == "same":
        return say("the steps are equally long ({numbers})", numbers=_numbers(grounds))
    untold = say("whether the step changed cannot be told ({numbers})", numbers=_numbers(grounds))
    return chain(untold, judged.method if judged.interval is None else None, judged.needs)


def _numbers(grounds: Grounds) -> Message:
    """Say both medians, and between what their difference lies."""
    old, new = grounds.medians
    both = say("{old} to {new}", old=ns(old), new=ns(new))
    judged = grounds.judged
    if judged.interval is None:
        return both
    if judged.confidence is None:
        return judged.method
    low, high = judged.interval
    between = say("{interval} at {confidence}", interval=ns_change(low, high), confidence=share(judged.confidence))
    return chain(both, between)


def _parts(grounds: Grounds) -> Message | None:
    """Name the parts that make most of the difference of the mean steps, where it goes the way of the verdict."""
    old, new = grounds.means
    if old is None or new is None or grounds.judged.verdict not in ("worse", "better"):
        return None
    delta = new - old
    if delta * (1 if grounds.judged.verdict == "worse" else -1) <= 0:
        return say("a few steps are of other length: the mean step changed by {change}", change=ns_change(delta))
    most = [p for p in grounds.waterfall if p.delta_ns * delta > 0 and abs(p.delta_ns) >= _LEAST * abs(delta)][:_NAMED]
    return say("of the mean step: {parts}", parts=series(map(part_sentence, most))) if most else None


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
        more = len(part.instead_of) - _NAMED
        old = series([*part.instead_of[:_NAMED], *([say("and {n} more", n=more)] if more > 0 else [])])
        return say("{what} instead of {old} {change}", what=what, old=old, change=change)
    if part.change == "added":
        return say("{what} is new {change}", what=what, change=change)
    if part.change == "removed":
        return say("{what} is gone {change}", what=what, change=change)
    return say("{what} {change}", what=what, change=change)


#: Findings that are listed, the gravest of those that changed: of a thousand ranks there may be thousands.
_FINDINGS: Final = 20

_Runs = Sequence[Digest]


def compare_results(
    old: Sequence[Result], new: Sequence[Result], thresholds: Thresholds, *, allow_mismatch: bool = False
) -> Comparison:
    """Compare two sides, each of one or several runs of one workload.

    Raises UsageError where the sides are not of one workload and that is not allowed.
    """
    nothing = Comparison(old=_name(old), new=_name(new), verdict="cannot_tell")
    before, after = _digests(old), _digests(new)
    if not before or not after:
        lacking = next(run.input.path for run in (*old, *new) if run.digest is None)
        why = say("{path}: its steps were not summed: analyze it anew with this version", path=lacking)
        return replace(nothing, reason=why)
    summed = (sum_runs(side) for side in by_new_waits(before, after))
    keys = comparable(*(Side(runs, sums) for runs, sums in zip((old, new), summed, strict=True)))
    parity = differences(keys.old, keys.new, thresholds)
    if not allow_mismatch:
        refuse_mismatch(parity)
    set_up = replace(nothing, workload=alike(keys.old, keys.new, parity), parity=parity)
    steps = _with_steps(set_up, before, after, keys, thresholds)
    return _with_all_else(steps, old, new, thresholds)


def _name(runs: Sequence[Result]) -> str:
    return " + ".join(dict.fromkeys(run.input.path for run in runs))


def _digests(runs: Sequence[Result]) -> list[Digest]:
    """Return the digests of all runs; none where one has none."""
    found = [run.digest for run in runs if run.digest is not None]
    return found if len(found) == len(runs) else []


# --- the step ---------------------------------------------------------------------------------------------------------


def _with_steps(known: Comparison, old: _Runs, new: _Runs, keys: SameKeys, thresholds: Thresholds) -> Comparison:
    """Add the verdict on the steps, and the waterfall that explains the mean one."""
    samples = _samples(old), _samples(new)
    stepped = _stepped(old), _stepped(new)
    judged = _judge(old, new, samples, thresholds)
    means = _mean(keys.old.sums), _mean(keys.new.sums)
    medians = _median(samples[0]), _median(samples[1])
    waterfall = _waterfall(keys, known.workload) if all(samples) else ()
    step = step_row(samples, judged)
    operators, alike_operators = (
        ([], 0) if keys.named_anew else operator_rows(old, new, thresholds, by_ending=keys.by_ending)
    )
    return replace(
        known,
        verdict=judged.verdict,
        reason=reason_of(
            Grounds(means, medians, judged, known.parity, waterfall, keys.note if waterfall else None, all(stepped))
        ),
        old_step_ns=means[0],
        new_step_ns=means[1],
        delta_ns=None if means[0] is None or means[1] is None else means[1] - means[0],
        interval_ns=None if judged.interval is None else (round(judged.interval[0]), round(judged.interval[1])),
        old_median_ns=medians[0],
        new_median_ns=medians[1],
        samples=(sum(map(len, samples[0])), sum(map(len, samples[1]))),
        stepped=stepped,
        method=judged.method,
        confidence=judged.confidence,
        waterfall=waterfall,
        rows=(*([step] if step else []), *operators),
        unchanged=alike_operators,
    )


def _samples(digests: _Runs) -> list[F64]:
    """Return the length of every step, one array per run; of no step where there is no time."""
    return [np.array(digest.span_ns, np.float64) for digest in digests if digest.total_ns]


def _judge(old: _Runs, new: _Runs, samples: tuple[list[F64], list[F64]], thresholds: Thresholds) -> Judged:
    """Judge the lengths of the steps; two sides that agree in everything are the same, however few steps they have."""
    if not all(samples):
        return _judge_counts(old, new, samples)
    stepped = _stepped(old), _stepped(new)
    if _identical(old, new):
        identical = say("every step and every sum is identical") if all(stepped) else say("every sum is identical")
        return Judged("same", identical, estimate=0.0, interval=(0.0, 0.0))
    mark = say("mark steps on both sides: npuperf profile does")
    if stepped[0] != stepped[1]:
        why = say("one side has no steps: all that it recorded stands against single steps")
        return Judged("cannot_tell", why, needs=mark)
    judged = judge_shift(*samples, ratio=thresholds.compare_ratio, floor=thresholds.compare_floor_ns)
    if not stepped[0] and judged.interval is None:
        why = say("no steps are recorded: all that one side recorded stands against all that the other one did")
        return Judged("cannot_tell", why, needs=mark)
    return judged


def _judge_counts(old: _Runs, new: _Runs, samples: tuple[list[F64], list[F64]]) -> Judged:
    """Judge sides of which one has no time of a device: they are the same only if all that is counted is."""
    if samples[0]:
        return Judged("cannot_tell", say("the new side has no time of a device"))
    if samples[1]:
        return Judged("cannot_tell", say("the old side has no time of a device"))
    if any(d.counts for d in old) and [d.counts for d in old] == [d.counts for d in new]:
        return Judged("same", say("no time of a device is recorded; all that is counted is identical"))
    return Judged("cannot_tell", say("no time of a device is recorded on either side"))


def _stepped(runs: _Runs) -> bool:
    """Tell whether every run of a side has steps."""
    return all(run.steps for run in runs)


def _identical(old: _Runs, new: _Runs) -> bool:
    """Tell whether both sides are made of the same steps and the same sums."""
    return [(d.span_ns, d.parts, d.types) for d in old] == [(d.span_ns, d.parts, d.types) for d in new]


def _waterfall(keys: SameKeys, workload: Parity) -> tuple[WaterfallPart, ...]:
    """Return the parts; only in the same work an operator takes another one's place."""
    old, new = keys.old.sums, keys.new.sums
    rows = side_by_side(old, new)
    apart = keys.named_anew or workload == "different"
    return parts_of(rows if apart else folded(rows, old.types | new.types))


def _mean(sums: Sums) -> int | None:
    """Return the length of the mean step, ns; None where no time is recorded."""
    return rounded(sums.total_ns, max(sums.windows, 1)) if sums.total_ns else None


def _median(samples: Sequence[F64]) -> int | None:
    return round(float(np.median(np.concatenate(samples)))) if samples else None


# --- all else ---------------------------------------------------------------------------------------------------------


def _with_all_else(
    known: Comparison, old: Sequence[Result], new: Sequence[Result], thresholds: Thresholds
) -> Comparison:
    """Add findings, figures, and steps that have no like on the other side."""
    findings, alike_findings = finding_changes(old, new)
    listed = shifts(old, new, thresholds)
    return replace(
        known,
        shifts=tuple(listed.shifts),
        findings=tuple(findings[:_FINDINGS]),
        aligned=tuple(aligned(old, new, thresholds)),
        unchanged=known.unchanged + listed.unchanged + alike_findings,
        warnings=tuple(note for note in (listed.note, _more_findings(len(findings) - _FINDINGS)) if note),
    )


def _more_findings(more: int) -> Message | None:
    return say_n("{n} more finding changed", "{n} more findings changed", more) if more > 0 else None
