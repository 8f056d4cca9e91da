"""Two sides compared: parity first, then what changed, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from npuperf.compare.aligned import aligned
from npuperf.compare.changed_findings import finding_changes
from npuperf.compare.mean_step import Sums, rounded, sum_runs
from npuperf.compare.new_waits import by_new_waits
from npuperf.compare.noise import Judged, judge_shift
from npuperf.compare.operator_rows import operator_rows, step_row
from npuperf.compare.parity import Side, alike, differences, refuse_mismatch
from npuperf.compare.replaced import folded
from npuperf.compare.same_keys import SameKeys, comparable
from npuperf.compare.shifts import shifts
from npuperf.compare.told import Grounds, reason_of
from npuperf.compare.waterfall import parts_of, side_by_side
from npuperf.documents.analysis import Result
from npuperf.documents.comparison import Comparison, Parity, WaterfallPart
from npuperf.documents.digest import Digest
from npuperf.messages import Message, say, say_n
from npuperf.model.labels import F64
from npuperf.model.thresholds import Thresholds

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
