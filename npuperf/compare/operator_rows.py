"""The step and the operator types on both sides, each judged by its time in every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from npuperf.compare.noise import Judged, judge_shift
from npuperf.compare.same_keys import known_as
from npuperf.documents.comparison import Compared
from npuperf.documents.digest import Digest, TypeSteps
from npuperf.model.labels import F64
from npuperf.model.thresholds import Thresholds

#: Operator types that are judged and listed: those whose time changed most.
_MOST: Final = 20
#: Relative change of the step below which an operator is not listed: nothing could be said of it.
_LEAST: Final = 0.0005


def step_row(samples: tuple[Sequence[F64], Sequence[F64]], judged: Judged) -> Compared | None:
    """Return the whole step with the means of both sides; None where one has no step."""
    old, new = (np.concatenate(side) if side else np.empty(0) for side in samples)
    if not len(old) or not len(new):
        return None
    means = round(float(old.mean())), round(float(new.mean()))
    return Compared(
        kind="step",
        name="",
        change="same" if means[0] == means[1] else "changed",
        verdict=judged.verdict,
        old_ns=means[0],
        new_ns=means[1],
        count=len(new),
        noise_ns=_noise(judged),
    )


def operator_rows(
    old: Sequence[Digest], new: Sequence[Digest], thresholds: Thresholds, *, by_ending: bool = False
) -> tuple[list[Compared], int]:
    """Return operator types, ns per step and device, what changed most first, and how many hardly changed.

    ``by_ending``: a name that the other side does not know is taken for the type that it ends with.
    Times are the kernels' own, and may overlap; ``count`` is per step of the new side, on all devices. What chance
    may do is judged against the ratio of the operator's own time, not of the step.
    """
    if by_ending:
        old, new = _with_names_of(old, new), _with_names_of(new, old)
    sides = _by_type(old), _by_type(new)
    spans = [ns for digest in old for ns in digest.span_ns]
    step = max(sum(spans) / len(spans), 1.0) if spans else 1.0
    means = {name: [_mean(side.get(name)) for side in sides] for name in {**sides[0], **sides[1]}}
    changed = [name for name, (a, b) in means.items() if abs((b or 0.0) - (a or 0.0)) > _LEAST * step]
    changed.sort(key=lambda name: (-abs((means[name][1] or 0.0) - (means[name][0] or 0.0)), name))
    counts = _counts(new)
    rows = [_row(name, sides, counts.get(name), thresholds) for name in changed[:_MOST]]
    return rows, len(means) - len(rows)


def _row(
    name: str,
    sides: tuple[dict[str, list[F64]], dict[str, list[F64]]],
    count: int | None,
    thresholds: Thresholds,
) -> Compared:
    old, new = (side.get(name) for side in sides)
    means = [_mean(side) for side in (old, new)]
    both = old is not None and new is not None
    judged = judge_shift(old, new, ratio=thresholds.compare_ratio) if old is not None and new is not None else None
    return Compared(
        kind="operator",
        name=name,
        change="changed" if both else "added" if old is None else "removed",
        verdict=judged.verdict if judged else "worse" if old is None else "better",
        old_ns=None if means[0] is None else round(means[0]),
        new_ns=None if means[1] is None else round(means[1]),
        count=count,
        noise_ns=_noise(judged),
    )


def _noise(judged: Judged | None) -> int | None:
    return None if judged is None or judged.margin is None else round(judged.margin)


def _by_type(digests: Sequence[Digest]) -> dict[str, list[F64]]:
    """Return the time of every operator type in each step, one array per run that has it."""
    found: dict[str, list[F64]] = {}
    for digest in digests:
        for steps in digest.types:
            if steps.ns:
                found.setdefault(steps.type, []).append(np.array(steps.ns, np.float64))
    return found


def _with_names_of(digests: Sequence[Digest], others: Sequence[Digest]) -> list[Digest]:
    """Return digests with the types that the other side knows them by; what has one name now is one."""
    mine, theirs = ({steps.type for digest in side for steps in digest.types} for side in (digests, others))
    known = known_as(mine, theirs)
    renamed = []
    for digest in digests:
        types: dict[str, TypeSteps] = {}
        for steps in digest.types:
            name = known.get(steps.type, steps.type)
            types[name] = replace(_sum(types[name], steps) if name in types else steps, type=name)
        renamed.append(replace(digest, types=list(types.values())))
    return renamed


def _sum(a: TypeSteps, b: TypeSteps) -> TypeSteps:
    times = [x + y for x, y in zip(a.ns, b.ns, strict=True)]
    return TypeSteps(type=a.type, ns=times, count=[x + y for x, y in zip(a.count, b.count, strict=True)])


def _mean(runs: Sequence[F64] | None) -> float | None:
    return float(np.concatenate(runs).mean()) if runs else None


def _counts(digests: Sequence[Digest]) -> dict[str, int]:
    """Return kernels per step of each type, rounded, of the last run that has it."""
    return {s.type: round(sum(s.count) / len(s.count)) for digest in digests for s in digest.types if s.count}
