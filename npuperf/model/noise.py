"""Whether the steps of two sides differ by more than chance: better, the same, worse, or it cannot be told."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil, comb, fsum, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, Quantity, chain, factor, say
from npuperf.model.comparison import Outcome
from npuperf.model.labels import F64, I64

# -- By how much two sides' samples are shifted against each other, and where that lies for sure.
#
# The shift is the middle of all differences of a new and an old sample (Hodges and Lehmann). Its interval follows from
# the distribution of the rank sum, which asks nothing of the samples' own: exactly, or by the normal approximation
# where the sides are long. Steps are not independent, though, and a few of them do not show how far they are not: the
# interval is widened by what the autocorrelation within runs makes of the variance of a mean, taken near the upper end
# of what the samples allow, the more the fewer samples there are, and where the shorter side spreads more. Runs differ
# from each other, too: the interval of several is never narrower than the spread of their medians makes it, and where
# these are few it covers what each pair says.
#
# ``benchmarks/false_alarms.py`` measures how often that is wrong; docs/accuracy.md has the table.

#: How sure intervals are: a shift lies below one in no more than half of the other cases, and above it in half.
CONFIDENCE: Final = 0.99
#: How sure the interval is that lies within a tolerance: both its ends are tested at 5 %, as equivalence is (two
#: one-sided tests: Schuirmann 1987; FDA, Statistical Approaches to Establishing Bioequivalence, 2001).
EQUIVALENCE: Final = 0.90
#: Standard errors of Student's distribution that leave the tail of ``CONFIDENCE``, by degrees of freedom; runs with
#: fewer are too few to be samples themselves.
_STUDENT: Final = {4: 4.604, 5: 4.032, 6: 3.707, 8: 3.355, 10: 3.169, 15: 2.947, 20: 2.845, 30: 2.750, 60: 2.660}
#: Standard errors above the measured autocorrelation, and the most that is believed of one.
_DOUBT: Final = 1.5
_MOST_ALIKE: Final = 0.9
#: Of n samples a side the interval is made 1 + 8/n times as wide at least. This and the doubt are the least that keep
#: false alarms at one in a hundred of steps with an autocorrelation of 0.6.
_FEW: Final = 8
_EXACT_SAMPLES: Final = 32  # of the shorter side
_EXACT_ARRANGEMENTS: Final = 2**62  # of both sides' ranks, which int64 counts: up to 32 against 32 samples
_PAIRS: Final = 250_000  # differences that are written out; of more, single ones are searched for
_HALVINGS: Final = 60  # until nothing but one difference is left of whatever they span


class ShiftInterval(Struct, frozen=True):
    """A shift and the ends of its interval, in the unit of the samples.

    ``wider``: times as wide as of independent samples that spread alike; ``exact``: whether the ranks' distribution
    is; ``runs``: whether the spread of runs was added, as ``samples`` or as a mere ``range``, None where each side has
    one run.
    """

    estimate: float
    low: float
    high: float
    wider: float
    exact: bool
    runs: str | None = None


def shift_interval(old: Sequence[F64], new: Sequence[F64], confidence: float = CONFIDENCE) -> ShiftInterval:
    """Return by how much new samples are above old ones; each side has finite samples, in order, run by run.

    An interval of less than ``CONFIDENCE`` has no least width for few samples.
    """
    before, after = np.sort(np.concatenate(old)), np.sort(np.concatenate(new))
    dropped, exact = _dropped(len(before), len(after), round((1 - confidence) / 2, 9))
    estimate, low, high = _shift(before, after, dropped)
    wider = widening(old, new, _FEW if confidence >= CONFIDENCE else 0) * unevenness(before, after)
    below, above, runs = _among_runs(old, new, estimate)
    return ShiftInterval(
        estimate=estimate,
        low=min(estimate - wider * (estimate - low), below),
        high=max(estimate + wider * (high - estimate), above),
        wider=wider,
        exact=exact,
        runs=runs,
    )


def widening(old: Sequence[F64], new: Sequence[F64], few: float = _FEW) -> float:
    """Return how many times as wide the interval is as if samples were independent, for their autocorrelation.

    Of n samples a side 1 + ``few`` / n times at least.
    """
    runs = [*old, *new]
    samples = sum(map(len, runs))
    measured = fsum(len(run) * autocorrelation(run) for run in runs) / samples
    alike = min(max(measured + _DOUBT / sqrt(samples), 0.0), _MOST_ALIKE)
    per_side = [
        (sum(map(len, side)), fsum(len(run) * inflation(len(run), alike) for run in side)) for side in (old, new)
    ]
    inverse = fsum(1 / n for n, _ in per_side)
    return max(sqrt(fsum(inflated / n**2 for n, inflated in per_side) / inverse), 1 + few * inverse / 2)


def unevenness(old: F64, new: F64) -> float:
    """Return how many times as wide the interval is because the shorter side spreads more, 1 or more.

    The ranks' distribution takes both for one: s² of all samples, where each side's mean has its own s²/n. The middle
    halves of the samples are taken for s, which single slow steps do not move. Sides of one length need nothing.
    """
    own, common = 0.0, 0.0
    for side in (old, new):
        first, third = np.percentile(side, (25, 75))
        own += float(third - first) ** 2 / side.size
        common += float(third - first) ** 2 * side.size
    taken = common / (old.size * new.size)  # s²/m + s²/n, with s² the mean over all samples
    return max(sqrt(own / taken), 1.0) if taken else 1.0


def autocorrelation(run: F64) -> float:
    """Return the autocorrelation of neighbours' ranks, -1 to 1 and more, corrected for how few there are.

    Of n samples about their own mean it comes out low by (1 + 3r)/n. Zero where all are equal.
    """
    _, place, count = np.unique(run, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    ranks -= ranks.mean()
    spread = float(ranks @ ranks)
    if not spread:
        return 0.0
    raw = float(ranks[1:] @ ranks[:-1]) / spread
    return raw + (1 + 3 * raw) / len(run)


def inflation(n: int, alike: float) -> float:
    """Return how many times the variance of a mean of n samples is s²/n, at an autocorrelation of ``alike`` ** lag.

    Such samples also differ less from their own mean than from the true one, which the variance s² does not show.
    """
    lags = np.arange(1, n)
    variance = 1 + 2 * float(np.sum((1 - lags / n) * alike**lags))
    return variance / (1 - (variance - 1) / (n - 1)) if n > 1 else 1.0


@lru_cache(maxsize=256)
def _dropped(m: int, n: int, tail: float = (1 - CONFIDENCE) / 2) -> tuple[int, bool]:
    """Return how many of the lowest differences the interval leaves out, as of the highest; and whether exactly so.

    ``tail``: how often the shift may lie beyond one end.
    """
    if min(m, n) <= _EXACT_SAMPLES and comb(m + n, m) < _EXACT_ARRANGEMENTS:
        below = np.cumsum(_arrangements(min(m, n), max(m, n))) / comb(m + n, m)
        return max(int(np.searchsorted(below, tail, side="right")) - 1, 0), True
    return max(int(m * n / 2 + NormalDist().inv_cdf(tail) * sqrt(m * n * (m + n + 1) / 12) - 0.5), 0), False


def surely_shifted(old: Sequence[F64], new: Sequence[F64], tests: int) -> float | None:
    """Return the shift where it is more than chance even as one of so many tests, at ``CONFIDENCE`` for all of them."""
    tail = (1 - CONFIDENCE) / 2 / max(tests, 1)
    m, n = (sum(map(len, side)) for side in (old, new))
    if min(m, n) <= _EXACT_SAMPLES and 1 / comb(m + n, m) > tail:  # ranks cannot be as sure
        return None
    shift = shift_interval(old, new, 1 - 2 * tail)
    return shift.estimate if shift.low > 0 or shift.high < 0 else None


def _arrangements(m: int, n: int) -> I64:
    """Return in how many orders of m and n samples k of their pairs are the other way round, for each k.

    These are the coefficients of the Gaussian binomial, the product of (1 - q^(n+i)) / (1 - q^i) for i up to m.
    """
    orders = np.zeros(m * n + 1, np.int64)
    orders[0] = 1
    for i in range(1, m + 1):
        orders[n + i :] -= orders[: -(n + i)].copy()
        for first in range(i):
            orders[first::i] = np.cumsum(orders[first::i])
    return orders


def _shift(old: F64, new: F64, dropped: int) -> tuple[float, float, float]:
    """Return the middle one of all differences, and those that ``dropped`` others are below, and above. Sorted."""
    pairs = len(old) * len(new)
    middle, other = (pairs - 1) // 2, pairs // 2
    if pairs <= _PAIRS:
        differences = np.sort((new[:, None] - old).ravel())
        estimate = (differences[middle] + differences[other]) / 2
        return float(estimate), float(differences[dropped]), float(differences[pairs - 1 - dropped])
    # The highest of new - old are the lowest of old - new: so swapped sides give the very same, negated.
    estimate = (_lowest(old, new, middle) - _lowest(new, old, middle)) / 2
    return estimate, _lowest(old, new, dropped), -_lowest(new, old, dropped)


def _lowest(old: F64, new: F64, place: int) -> float:
    """Return the difference that ``place`` others are below, by halving where it may lie; both sides are sorted."""
    low, high = float(new[0] - old[-1]), float(new[-1] - old[0])
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        at_most = old.size * new.size - int(np.searchsorted(old, new - middle).sum())
        low, high = (low, middle) if at_most > place else (middle, high)
    partner = np.searchsorted(old, new - high)  # of each new sample the old one that it exceeds by most, up to this
    there = partner < old.size
    return float(np.max(new[there] - old[partner[there]]))


def _among_runs(old: Sequence[F64], new: Sequence[F64], estimate: float) -> tuple[float, float, str | None]:
    """Return the least interval that runs leave a shift, and how they were seen."""
    spare = len(old) + len(new) - 2
    if not spare:
        return estimate, estimate, None
    if spare < min(_STUDENT):
        shifts = [_shift(np.sort(a), np.sort(b), 0)[0] for a in old for b in new]
        return min(shifts), max(shifts), "range"
    squares, inverse = 0.0, 0.0
    for side in (old, new):
        medians = np.array([np.median(run) for run in side])
        squares += float(np.sum((medians - medians.mean()) ** 2))
        inverse += 1 / len(side)
    times = _STUDENT[max(known for known in _STUDENT if known <= spare)]
    half = times * sqrt(squares / spare * inverse)
    return estimate - half, estimate + half, "samples"


#: Samples without which a side cannot be judged: five against five are the first that ranks tell apart surely enough.
LEAST: Final = 5
ADVISED: Final = 10  # what --for-compare records
_WORTH_NAMING: Final = 10_000  # steps; who needs more has another problem
_COMMAND: Final = "npuperf profile --for-compare"
_VERDICTS: Final[dict[int, Outcome]] = {1: "worse", 0: "same", -1: "better"}


class Judged(Struct, frozen=True):
    """What is known of a shift between two sides, in the unit of the samples; more is "worse".

    ``estimate``: the typical difference of a new and an old sample. ``interval``: where it lies at ``confidence``,
    both None where there are too few samples or nothing is left to chance. ``tolerance``: up to which a difference is
    not worth a word. ``steps``: so many on each side would decide, roughly; ``needs`` says how to get there.
    ``sure``: by how much parts of what is judged changed for certain, in sum.
    """

    verdict: Outcome
    method: Message
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    tolerance: float = 0.0
    steps: int | None = None
    needs: Message | None = None
    sure: float = 0.0

    @property
    def margin(self) -> float | None:
        """By how much the difference may be off: half of its interval."""
        return None if self.interval is None else (self.interval[1] - self.interval[0]) / 2


def judge_shift(
    old: Sequence[F64], new: Sequence[F64], *, ratio: float = 0.0, floor: float = 0.0, sure: float = 0.0
) -> Judged:
    """Judge two sides, each of one series of samples per run, in order. Samples that are no numbers do not count.

    "worse": the whole interval is above zero, and the estimate above the ``ratio`` of the old side's median and above
    the ``floor``; "better": the same downwards. "same": the whole interval is within the greater of these two, or both
    sides have the very same samples. Everything else cannot be told. The interval is that of ``CONFIDENCE``, and that
    of ``EQUIVALENCE`` where this shows sameness, or a change by which parts of what is judged have changed for certain:
    ``sure``, by how much in sum.
    """
    old, new = ([kept for run in side if (kept := _numbers(run)).size] for side in (old, new))
    before, after = (np.sort(np.concatenate(side)) if side else np.empty(0) for side in (old, new))
    tolerance = max(ratio * abs(float(np.median(before))), floor) if before.size else floor
    if before.size and np.array_equal(before, after):
        return Judged("same", say("the samples of both sides are identical"), 0.0, (0.0, 0.0), None, tolerance)
    if min(before.size, after.size) < LEAST:
        method = say(
            "too few steps to tell a difference from chance: {old} and {new}, where each side needs {least}",
            old=Quantity(before.size, "count"),
            new=Quantity(after.size, "count"),
            least=Quantity(LEAST, "count"),
        )
        return Judged("cannot_tell", method, tolerance=tolerance, steps=ADVISED, needs=_more(ADVISED))
    shift, confidence = shift_interval(old, new), CONFIDENCE
    verdict = _verdict(shift, tolerance)
    if verdict == "cannot_tell":
        likely = shift_interval(old, new, EQUIVALENCE)
        told = _verdict(likely, tolerance)
        if told == "same" or (told == _VERDICTS[(sure > 0) - (sure < 0)] and abs(sure) > tolerance):
            shift, confidence, verdict = likely, EQUIVALENCE, told
    steps = _deciding(old, new, shift, tolerance) if verdict == "cannot_tell" else None
    widened = factor(shift.wider)
    ranks = (
        say("exact rank interval, made {times} times as wide because successive steps are alike", times=widened)
        if shift.exact
        else say("rank interval, made {times} times as wide because successive steps are alike", times=widened)
    )
    among_runs = {
        "samples": say("not narrower than the differences between runs make it"),
        "range": say("it covers each pair of runs; how far runs differ takes three on each side to tell"),
    }
    less = None
    if confidence < CONFIDENCE:
        less = (
            say("each end is tested at 5 %, as equivalence is")
            if verdict == "same"
            else say("operators changed beyond chance, and the same way")
        )
    return Judged(
        verdict=verdict,
        method=chain(ranks, among_runs.get(shift.runs or ""), less),
        estimate=shift.estimate,
        interval=(shift.low, shift.high),
        confidence=confidence,
        tolerance=tolerance,
        steps=steps,
        needs=None if steps is None else _more(steps),
        sure=sure,
    )


def _verdict(shift: ShiftInterval, tolerance: float) -> Outcome:
    if -tolerance <= shift.low and shift.high <= tolerance:
        return "same"
    if shift.low > 0 and shift.estimate > tolerance:
        return "worse"
    return "better" if shift.high < 0 and shift.estimate < -tolerance else "cannot_tell"


def _numbers(run: F64) -> F64:
    """Return the samples that are numbers, in order."""
    values = np.asarray(run, np.float64)
    return values[np.isfinite(values)]


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


def _more(steps: int) -> Message:
    command = _COMMAND if steps <= ADVISED else f"{_COMMAND} --active {steps}"
    return say(
        "about {steps} steps on each side would decide: {command}", steps=Quantity(steps, "count"), command=command
    )


def _deciding(old: Sequence[F64], new: Sequence[F64], shift: ShiftInterval, tolerance: float) -> int | None:
    """Return how many steps a side would roughly decide, None where too many: widths shrink as 1/√n.

    The interval has to leave zero where the estimate is beyond the tolerance, else that of sameness to fit into it.
    """
    size = abs(shift.estimate)
    room = size if size > tolerance else tolerance - size
    ends = shift if size > tolerance else shift_interval(old, new, EQUIVALENCE)
    half = (ends.high - ends.low) / 2
    now = 2 / fsum(1 / sum(map(len, side)) for side in (old, new))
    if not room or now * (half / room) ** 2 > _WORTH_NAMING:
        return None
    return max(ADVISED, ceil(now) + 1, ceil(now * (half / room) ** 2))
