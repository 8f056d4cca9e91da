"""The typical step: phases of single steps laid over each other, and the steps that do not fit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.documents.analysis import Bound, OddStep, Phase, Spread, Step, TypicalPhase, TypicalStep
from npuperf.messages import Message, chain, ns, say
from npuperf.model.labels import I64
from npuperf.model.thresholds import Thresholds

Shape = tuple[str, ...]
#: Compute and communication change places from step to step where both end at about the same time.
_KIND: Final[dict[Bound, str]] = {"host": "host", "compute": "device", "communication": "device", "unknown": "unknown"}

_BOUND: Final[dict[Bound, Message]] = {
    "host": say("host-bound"),
    "compute": say("compute-bound"),
    "communication": say("communication-bound"),
    "unknown": say("without a verdict"),
}


class _Part(Struct, frozen=True):
    """What a phase covers of one step, counted from the step's start, ns."""

    bound: Bound
    label: Message | None
    start: int
    end: int


def typical_step(steps: list[Step], phases: list[Phase], shortest: int, thresholds: Thresholds) -> TypicalStep | None:
    """Fold the phases of two or more steps; steps whose phases or length differ are odd.

    None where no two steps are alike, so that nothing is typical.
    """
    if len(steps) < 2 or not phases:
        return None
    parts = [_parts(step, phases, shortest) for step in steps]
    shapes = [tuple(_KIND[p.bound] for p in mine) for mine in parts]
    usual, _ = Counter(shapes).most_common(1)[0]
    lengths = np.array([s.partition.span_ns for s in steps], np.int64)
    same = [i for i, shape in enumerate(shapes) if shape == usual]
    middle = float(np.median(lengths[same]))
    fits = [i for i in same if abs(lengths[i] - middle) <= thresholds.odd_step_share * middle]
    usual_ones = set(fits)
    if len(fits) < 2:
        return None
    kinds = dict.fromkeys(p.bound for mine in parts for p in mine)
    times = {k: float(np.median([_time(parts[i], k) for i in fits])) for k in kinds}
    odd = [
        OddStep(step=steps[i].step, span_ns=int(lengths[i]), why=_why(parts[i], int(lengths[i]), middle, times))
        for i in range(len(steps))
        if i not in usual_ones
        and _differs(parts[i], int(lengths[i]), middle, times, thresholds)
        and not (i == len(steps) - 1 and _only_lacks_its_end(shapes[i], usual, int(lengths[i]), middle))
    ]
    phases_out = [_fold([parts[i][k] for i in fits]) for k in range(len(usual))]
    return TypicalStep(steps=len(fits), length=_spread(lengths[fits]), phases=phases_out, odd=odd)


def _only_lacks_its_end(shape: Shape, usual: Shape, length: int, middle: float) -> bool:
    """Tell whether a last step is as usual but for the idle time that ends the others: nothing follows it."""
    return length <= middle and shape == usual[: len(shape)]


def _parts(step: Step, phases: list[Phase], shortest: int) -> list[_Part]:
    """Cut the phases at the step's borders; slivers go to their neighbour."""
    begin, end = step.start_ns, step.start_ns + step.partition.span_ns
    parts: list[_Part] = []
    first = bisect_right(phases, begin, key=lambda p: p.end_ns)
    last = bisect_left(phases, end, key=lambda p: p.start_ns)
    for p in phases[first:last]:
        a, b = max(p.start_ns, begin), min(p.end_ns, end)
        if parts and (b - a < shortest or parts[-1].bound == p.bound):
            parts[-1] = _Part(parts[-1].bound, parts[-1].label, parts[-1].start, b - begin)
        elif parts and parts[-1].end - parts[-1].start < shortest:
            parts[-1] = _Part(p.bound, p.label, parts[-1].start, b - begin)
        else:
            parts.append(_Part(p.bound, p.label, a - begin, b - begin))
    return parts


def _fold(parts: list[_Part]) -> TypicalPhase:
    labels = Counter(p.label for p in parts)
    start, end = (np.array([getattr(p, side) for p in parts], np.int64) for side in ("start", "end"))
    return TypicalPhase(
        bound=Counter(p.bound for p in parts).most_common(1)[0][0],
        label=labels.most_common(1)[0][0],
        start=_spread(start),
        end=_spread(end),
        length=_spread(end - start),
    )


def _spread(values: I64) -> Spread:
    return Spread(min_ns=int(values.min()), median_ns=int(np.median(values)), max_ns=int(values.max()))


def _differs(mine: list[_Part], length: int, middle: float, usual: dict[Bound, float], thresholds: Thresholds) -> bool:
    """Tell whether a step differs notably: in length, or in the time of one kind."""
    _, more = _largest_difference(mine, usual)
    return max(abs(length - middle), abs(more)) > thresholds.odd_step_share * middle


def _largest_difference(mine: list[_Part], usual: dict[Bound, float]) -> tuple[Bound, float]:
    """Return the kind of time of which a step has most more (or less) than is usual, and how much (ns)."""
    more = {kind: _time(mine, kind) - ns for kind, ns in usual.items()}
    kind = max(more, key=lambda k: abs(more[k]))
    return kind, more[kind]


def _why(mine: list[_Part], length: int, middle: float, usual: dict[Bound, float]) -> Message:
    """Say in what a step differs: its length, and the kind of time that it has more or less of."""
    kind, more = _largest_difference(mine, usual)
    lengths = say("{length} against {usual}", length=ns(length), usual=ns(int(middle)))
    amount = ns(int(abs(more)))
    if more > 0:
        return chain(lengths, say("{time} more of it {kind}", time=amount, kind=_BOUND[kind]), by=", ")
    return chain(lengths, say("{time} less of it {kind}", time=amount, kind=_BOUND[kind]), by=", ")


def _time(parts: list[_Part], bound: Bound) -> int:
    return sum(p.end - p.start for p in parts if p.bound == bound)
