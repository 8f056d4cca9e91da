"""Whether the steps of two sides differ by more than chance: better, the same, worse, or it cannot be told."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.compare.shift import CONFIDENCE, ShiftInterval, shift_interval
from npuperf.documents.comparison import Outcome
from npuperf.messages import Message, Quantity, chain, factor, say
from npuperf.model.labels import F64

#: Samples without which a side cannot be judged: five against five are the first that ranks tell apart surely enough.
LEAST: Final = 5
_ADVISED: Final = 10  # what --for-compare records
_WORTH_NAMING: Final = 10_000  # steps; who needs more has another problem
_COMMAND: Final = "npuperf profile --for-compare"
_VERDICTS: Final[dict[int, Outcome]] = {1: "worse", 0: "same", -1: "better"}


class Judged(Struct, frozen=True):
    """What is known of a shift between two sides, in the unit of the samples; more is "worse".

    ``estimate``: the typical difference of a new and an old sample. ``interval``: where it lies at ``confidence``,
    both None where there are too few samples or nothing is left to chance. ``tolerance``: up to which a difference is
    not worth a word. ``steps``: so many on each side would decide, roughly; ``needs`` says how to get there.
    """

    verdict: Outcome
    method: Message
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    tolerance: float = 0.0
    steps: int | None = None
    needs: Message | None = None

    @property
    def margin(self) -> float | None:
        """By how much the difference may be off: half of its interval."""
        return None if self.interval is None else (self.interval[1] - self.interval[0]) / 2


def judge_shift(old: Sequence[F64], new: Sequence[F64], *, ratio: float = 0.0, floor: float = 0.0) -> Judged:
    """Judge two sides, each of one series of samples per run, in order. Samples that are no numbers do not count.

    "worse": the whole interval is above zero, and the estimate above the ``ratio`` of the old side's median and above
    the ``floor``; "better": the same downwards. "same": the whole interval is within the greater of these two, or both
    sides have the very same samples. Everything else cannot be told.
    """
    old, new = _series(old), _series(new)
    before, after = _pooled(old), _pooled(new)
    tolerance = max(ratio * abs(float(np.median(before))), floor) if before.size else floor
    if before.size and np.array_equal(before, after):
        return Judged("same", say("the samples of both sides are identical"), 0.0, (0.0, 0.0), None, tolerance)
    if min(before.size, after.size) < LEAST:
        return _too_few(before.size, after.size, tolerance)
    shift = shift_interval(old, new)
    verdict = _verdict(shift, tolerance)
    steps = _deciding(before.size, after.size, shift, tolerance) if verdict == "cannot_tell" else None
    return Judged(
        verdict=verdict,
        method=_method(shift),
        estimate=shift.estimate,
        interval=(shift.low, shift.high),
        confidence=CONFIDENCE,
        tolerance=tolerance,
        steps=steps,
        needs=None if steps is None else _more(steps),
    )


def judge_counts(old: Sequence[int], new: Sequence[int]) -> Judged:
    """Judge two sides' counts per step, which are exact: more is "worse".

    Where steps differ within a side, so that the mean and the median say different things, nothing is told.
    """
    if not old or not new:
        return Judged("cannot_tell", say("one side has no counts"))
    more = Fraction(sum(new), len(new)) - Fraction(sum(old), len(old))
    middles = float(np.median(new) - np.median(old))
    signs = {(more > 0) - (more < 0), (middles > 0) - (middles < 0)}
    verdict = _VERDICTS[signs.pop()] if len(signs) == 1 else "cannot_tell"
    return Judged(verdict, say("counts are compared exactly"), float(more))


def _series(runs: Sequence[F64]) -> list[F64]:
    """Return the runs that have samples, of those that are numbers."""
    kept = [values[np.isfinite(values)] for values in (np.asarray(run, np.float64) for run in runs)]
    return [values for values in kept if values.size]


def _pooled(runs: list[F64]) -> F64:
    return np.sort(np.concatenate(runs)) if runs else np.empty(0)


def _verdict(shift: ShiftInterval, tolerance: float) -> Outcome:
    if -tolerance <= shift.low and shift.high <= tolerance:
        return "same"
    if shift.low > 0 and shift.estimate > tolerance:
        return "worse"
    return "better" if shift.high < 0 and shift.estimate < -tolerance else "cannot_tell"


def _too_few(old: int, new: int, tolerance: float) -> Judged:
    method = say(
        "too few steps to tell a difference from chance: {old} and {new}, where each side needs {least}",
        old=Quantity(old, "count"),
        new=Quantity(new, "count"),
        least=Quantity(LEAST, "count"),
    )
    return Judged("cannot_tell", method, tolerance=tolerance, steps=_ADVISED, needs=_more(_ADVISED))


def _method(shift: ShiftInterval) -> Message:
    widened = factor(shift.wider)
    ranks = (
        say("exact rank interval, made {times} times as wide because successive steps are alike", times=widened)
        if shift.exact
        else say("rank interval, made {times} times as wide because successive steps are alike", times=widened)
    )
    runs = {
        "samples": say("not narrower than the differences between runs make it"),
        "range": say("it covers each pair of runs; how far runs differ takes three on each side to tell"),
    }
    return chain(ranks, runs.get(shift.runs or ""))


def _more(steps: int) -> Message:
    command = _COMMAND if steps <= _ADVISED else f"{_COMMAND} --active {steps}"
    return say(
        "about {steps} steps on each side would decide: {command}", steps=Quantity(steps, "count"), command=command
    )


def _deciding(old: int, new: int, shift: ShiftInterval, tolerance: float) -> int | None:
    """Return how many steps a side would roughly decide, None where too many: widths shrink as 1/√n.

    The interval has to leave zero where the estimate is beyond the tolerance, else to fit into it.
    """
    size = abs(shift.estimate)
    room = size if size > tolerance else tolerance - size
    half = (shift.high - shift.low) / 2
    now = 2 / (1 / old + 1 / new)
    if not room or now * (half / room) ** 2 > _WORTH_NAMING:
        return None
    return max(_ADVISED, ceil(now) + 1, ceil(now * (half / room) ** 2))
