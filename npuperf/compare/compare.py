"""Two sides compared: parity first, then what changed, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from npuperf.compare.aligned import aligned
from npuperf.compare.changed_findings import finding_changes
from npuperf.compare.mean_step import Sums, mean_ns, sum_runs
from npuperf.compare.noise import Judged, judge_shift
from npuperf.compare.operator_rows import operator_rows, step_row
from npuperf.compare.parity import Side, alike, differences, refuse_mismatch
from npuperf.compare.replaced import folded
from npuperf.compare.same_keys import comparable
from npuperf.compare.shifts import shifts
from npuperf.compare.told import Told, reason_of
from npuperf.compare.waterfall import parts_of, side_by_side
from npuperf.documents.analysis import Result
from npuperf.documents.comparison import Comparison
from npuperf.documents.digest import Digest
from npuperf.messages import Message, say, say_n
from npuperf.model.labels import F64
from npuperf.model.thresholds import Thresholds

#: Findings that are listed, the gravest of those that changed: of a thousand ranks there may be thousands.
_FINDINGS: Final = 20


def compare_results(
    old: Sequence[Result], new: Sequence[Result], thresholds: Thresholds, *, allow_mismatch: bool = False
) -> Comparison:
    """Compare two sides, each of one or several runs of one workload.

    Raises UsageError where the sides are not of one workload and that is not allowed.
    """
    names = _name(old), _name(new)
    digests = _digests(old), _digests(new)
    if not all(digests):
        lacking = next(r.input.path for r in (*old, *new) if r.digest is None)
        reason = say("{path}: its steps were not summed: analyze it anew with this version", path=lacking)
        return Comparison(old=names[0], new=names[1], verdict="cannot_tell", reason=reason)
    sides = Side(old, sum_runs(digests[0])), Side(new, sum_runs(digests[1]))
    same_keys = comparable(*sides)
    sides = same_keys.old, same_keys.new
    parity = differences(*sides, thresholds)
    if not allow_mismatch:
        refuse_mismatch(parity)
    samples = _samples(digests[0]), _samples(digests[1])
    judged = _judge(digests, samples, thresholds)
    rows = side_by_side(sides[0].sums, sides[1].sums)
    fallen = parts_of(rows if same_keys.named_anew else folded(rows, sides[0].sums.types | sides[1].sums.types))
    lengths = _length(sides[0].sums), _length(sides[1].sums)
    medians = _median(samples[0]), _median(samples[1])
    told = Told(lengths, medians, judged, parity, fallen, same_keys.note)
    step = step_row(samples, judged)
    operators, alike_operators = ([], 0) if same_keys.named_anew else operator_rows(*digests, thresholds)
    findings, alike_findings = finding_changes(old, new)
    listed = shifts(old, new, thresholds)
    more = len(findings) - _FINDINGS
    return Comparison(
        old=names[0],
        new=names[1],
        verdict=judged.verdict,
        reason=reason_of(told),
        old_step_ns=lengths[0],
        new_step_ns=lengths[1],
        delta_ns=None if lengths[0] is None or lengths[1] is None else lengths[1] - lengths[0],
        interval_ns=None if judged.interval is None else (round(judged.interval[0]), round(judged.interval[1])),
        old_median_ns=medians[0],
        new_median_ns=medians[1],
        samples=(sum(map(len, samples[0])), sum(map(len, samples[1]))),
        method=judged.method,
        confidence=judged.confidence,
        workload=alike(*sides, parity),
        parity=parity,
        waterfall=fallen,
        rows=(*([step] if step else []), *operators),
        shifts=tuple(listed.shifts),
        findings=tuple(findings[:_FINDINGS]),
        aligned=tuple(aligned(old, new, thresholds)),
        unchanged=listed.unchanged + alike_operators + alike_findings,
        warnings=tuple(note for note in (listed.note, _more_findings(more)) if note is not None),
    )


def _more_findings(more: int) -> Message | None:
    if more <= 0:
        return None
    return say_n("{n} more finding changed", "{n} more findings changed", more)


def _name(runs: Sequence[Result]) -> str:
    return " + ".join(dict.fromkeys(run.input.path for run in runs))


def _digests(runs: Sequence[Result]) -> list[Digest]:
    """Return the digests of all runs; none where one has none."""
    found = [run.digest for run in runs if run.digest is not None]
    return found if len(found) == len(runs) else []


def _samples(digests: Sequence[Digest]) -> list[F64]:
    """Return the length of every step, one array per run; of no step where there is no time."""
    return [np.array(digest.span_ns, np.float64) for digest in digests if digest.span_ns]


def _judge(
    digests: tuple[Sequence[Digest], Sequence[Digest]],
    samples: tuple[Sequence[F64], Sequence[F64]],
    thresholds: Thresholds,
) -> Judged:
    """Judge the lengths of the steps; two sides that agree in everything are the same, however few steps they have."""
    if not all(samples):
        return Judged("cannot_tell", say("no time of a device was recorded on both sides"))
    if identical(*digests):
        return Judged("same", IDENTICAL, estimate=0.0, interval=(0.0, 0.0))
    return judge_shift(*samples, ratio=thresholds.compare_ratio, floor=thresholds.compare_floor_ns)


#: How the verdict was found where no step and no sum differs.
IDENTICAL: Message = say("every step and every sum is identical")


def identical(old: Sequence[Digest], new: Sequence[Digest]) -> bool:
    """Tell whether both sides are made of the same steps and the same sums."""
    return len(old) == len(new) and all(
        (a.span_ns, a.total_ns, a.parts, a.types) == (b.span_ns, b.total_ns, b.parts, b.types)
        for a, b in zip(old, new, strict=True)
    )


def _length(sums: Sums) -> int | None:
    """Return the length of the mean step, ns; None where no time was recorded."""
    return sum(mean_ns(sums).values()) if sums.cells else None


def _median(samples: Sequence[F64]) -> int | None:
    return round(float(np.median(np.concatenate(samples)))) if samples else None
