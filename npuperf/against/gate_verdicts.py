"""Gates judged: what a document has, held against a condition, and against a baseline where the condition asks for it.

What is measured in time has noise: such a gate fails if the difference is beyond the limit and beyond doubt, passes if
its whole interval is within the limit, and cannot be judged otherwise. Counts are exact.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from math import copysign
from statistics import fmean, median
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from npuperf.against.causes import cause_sentence
from npuperf.against.gates import Aggregate, Condition, Sign
from npuperf.against.parity import told_apart
from npuperf.base.messages import Message, Parameter, chain, number, say, say_n, series
from npuperf.model.comparison import Comparison, WaterfallPart
from npuperf.model.document import Gate, Measured, Status, quantity

#: Parts of the waterfall, and names in a sentence, that are told.
_PARTS: Final = 3
_NAMED: Final = 5
_HOLDS: Final[dict[Sign, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
}
#: What a document that tells nothing says where a word was expected.
_UNKNOWN: Final = "unknown"


class _Answer(Struct, frozen=True):
    """What a condition comes to, by itself and in this run alone; all of it is as a :class:`Gate` has it."""

    status: Status
    reason: Message | None = None
    value: float | None = None
    interval: tuple[float, float] | None = None


def judge_gate(
    condition: Condition,
    new: object,
    old: Sequence[object] = (),
    again: Sequence[object] = (),
    *,
    comparison: Comparison | None = None,
    history: Sequence[bool] = (),
) -> Gate:
    """Hold a document against a condition.

    ``old``: the runs of the baseline, at least one where the condition is relative. ``again``: further runs of what
    ``new`` is a run of; all of them are judged together where chance has a part in a change, and nowhere else.
    ``comparison``: with them, of which the parts explain a failure. ``history``: of earlier runs whether this condition
    held, the newest last.
    """
    metric, argument = condition.metric, condition.argument
    found = metric.measure(new, argument)
    before = [metric.measure(one, argument) for one in old]
    nobody = condition.word is None and found.absent and all(one.absent for one in before)
    baseline, limit = None, None if condition.relative or metric.expects else condition.limit
    if metric.expects:
        answer = _expected(condition, found)
    elif condition.word is not None:
        answer = _named(condition, found)
    elif nobody:
        answer = _Answer("cannot_tell", found.reason)
    elif condition.relative:
        runs = [found, *(metric.measure(one, argument) for one in again)]
        apart = None if comparison is None or condition.metric.exact else told_apart(comparison.parity)
        sure = comparison.sure_ns if comparison is not None and metric.name == "step_time" else 0
        of_one_work = comparison is None or comparison.workload != "different"
        if of_one_work and all(one.same_doubt or not one.at_least for one in (*runs, *before)):
            answer, baseline, limit = _changed_alike(condition, runs, before, sure)
        else:
            answer, baseline, limit = _changed(condition, runs, before, sure)
        if apart is not None:
            answer = _Answer("cannot_tell", apart)
    else:
        answer = _absolute(condition, found)

    # One that asks for several runs fails only if so many of the last ones failed, this one among them.
    status, reason, failures = answer.status, answer.reason, tuple[bool, ...]()
    if condition.of is not None and status != "cannot_tell":
        failures = (*history[max(len(history) - condition.of + 1, 0) :], status == "fail")
        if status == "fail" and sum(failures) < condition.times:
            so_far = say("this run alone would fail: {failed} of {of} so far, and {times} make it fail",
                         failed=sum(failures), of=condition.of, times=condition.times)  # fmt: skip
            status, reason = "pass", chain(reason, so_far)
    return Gate(
        expr=condition.expr,
        status=status,
        value=answer.value,
        limit=limit,
        unit=metric.unit,
        reason=reason,
        level=condition.level,
        baseline=baseline,
        interval=answer.interval,
        explained_by=_explaining(condition, comparison) if status == "fail" and comparison is not None else (),
        causes=_causes(condition, comparison) if status == "fail" and comparison is not None else (),
        runs=failures,
        nobody=nobody,
    )


def settle(gates: Iterable[Gate], undecided: Literal["pass", "fail"] | None) -> tuple[Gate, ...]:
    """Decide gates that cannot be judged, where somebody said how; they keep their reason.

    One that asks about a name that nothing has never passes: it may be misspelt.
    """
    if undecided is None:
        return tuple(gates)
    told = say("it counts as passed") if undecided == "pass" else say("it counts as failed")
    return tuple(
        replace(gate, status=undecided, reason=chain(gate.reason, told))
        if gate.status == "cannot_tell" and not (gate.nobody and undecided == "pass")
        else gate
        for gate in gates
    )


def _expected(condition: Condition, found: Measured) -> _Answer:
    """Judge a condition that is what must hold."""
    if not found.named:
        return _Answer("cannot_tell", found.reason)
    word, wanted = found.named[0][0], condition.word
    told = say("the {metric} is {word}", metric=condition.metric.name, word=word)
    if word == _UNKNOWN != wanted:
        return _Answer("cannot_tell", chain(told, found.reason))
    must = condition.sign == "="
    if (word == wanted) == must:
        return _Answer("pass", told)
    why = say("it must be {wanted}", wanted=wanted) if must else say("it must be anything but that")
    return _Answer("fail", chain(told, why))


def _named(condition: Condition, found: Measured) -> _Answer:
    """Judge by how grave what was found is: one such thing is enough to fail."""
    if found.named is None:
        return _Answer("cannot_tell", found.reason)
    words, word = condition.metric.words, condition.word or ""
    grave = [one for one in found.named if _HOLDS[condition.sign](words.index(one[0]), words.index(word))]
    if grave:
        kinds = [*dict.fromkeys(grave)]
        told: list[Parameter] = [say("{name} ({word})", name=name, word=word) for word, name in kinds[:_NAMED]]
        more = say("and {n} more", n=number(len(kinds) - _NAMED)) if len(kinds) > _NAMED else None
        return _Answer("fail", chain(say("{names}", names=series(told)), more), float(len(grave)))
    return _Answer("cannot_tell", found.reason) if found.at_least else _Answer("pass", found.reason, 0.0)


def _absolute(condition: Condition, found: Measured) -> _Answer:
    """Hold a figure against a limit; it is said before the reason, which is shown in its place."""
    limit = condition.limit
    if condition.aggregate == "each":
        answer = _each(condition, found, limit)
    else:
        value, why = _value(condition, found, condition.aggregate)
        if value is None:
            return _Answer("cannot_tell", why)
        if found.interval is not None:
            status = _beyond_doubt(condition.sign, value, found.interval, limit)
            return _Answer(status, found.reason if status == "cannot_tell" else None, value, found.interval)
        answer = _held(condition, found, value, limit, _of_which(condition, found))
    shown = quantity(answer.value, condition.metric.unit)
    if shown is None or answer.reason is None:
        return answer
    return _Answer(answer.status, chain(say("{value}", value=shown), answer.reason), answer.value)


def _of_which(condition: Condition, found: Measured) -> Message | None:
    """Say of a share that it is the median of the steps: the report has that of all of them together."""
    steps = max(map(len, found.series), default=0)
    if condition.metric.unit != "percent" or condition.aggregate not in (None, "median") or found.value is not None:
        return None
    return say("the median of {n} steps", n=steps) if steps > 1 else None


def _each(condition: Condition, found: Measured, limit: float) -> _Answer:
    """Judge every step by itself; the value is that of the one that is furthest on the failing side."""
    steps = [value for one in found.series for value in one]
    if not steps:
        return _Answer("cannot_tell", found.reason or _no_steps(condition))
    beyond = [value for value in steps if _HOLDS[condition.sign](value, limit)]
    value = (min if condition.sign.startswith("<") else max)(beyond or steps)
    told = say_n("in {failed} of {n} step", "in {failed} of {n} steps", len(steps), failed=len(beyond))
    return _held(condition, found, value, limit, told if beyond else None)


def _held(condition: Condition, found: Measured, value: float, limit: float, where: Message | None = None) -> _Answer:
    """Hold a value against a limit; ``where``: in which steps it fails, or of which it is.

    What may be more can fail "more than", and pass "less than", for sure. A gate on too much passes, too, if it does
    with all that may belong to it, and one on too little fails if it does with all of it.
    """
    holds = _HOLDS[condition.sign]
    failed = holds(value, limit)
    certain = value > limit if condition.sign in ("=", "!=") else failed == condition.upward  # whatever there is more
    most, unit = _with_all(condition, found) if found.at_least else None, condition.metric.unit
    if found.at_least and not certain and (most is None or holds(most, limit) != failed):
        why = found.reason or say("the result is incomplete: at least {value}", value=number(value))
        if most is None:
            return _Answer("cannot_tell", why)
        bounds = say("between {least} and {most}", least=quantity(value, unit), most=quantity(most, unit))
        return _Answer("cannot_tell", chain(why, bounds))
    up_to = say("at most {value}", value=quantity(most, unit)) if most is not None and found.same_doubt else None
    single = None if failed else _single_steps(condition, found, limit)
    told = [why for why in (where, found.reason, up_to, single) if why]
    return _Answer("fail" if failed else "pass", chain(*told) if told else None, value)


def _with_all(condition: Condition, found: Measured) -> float | None:
    """Return what a figure comes to with all that may belong to it; of single steps the furthest on the failing side.

    None where nothing tells how much that may be.
    """
    if condition.aggregate == "each":
        return (max if condition.upward else min)((value for one in found.most for value in one), default=None)
    return _value(condition, Measured(series=found.most), condition.aggregate)[0]


def _single_steps(condition: Condition, found: Measured, limit: float) -> Message | None:
    """Say of a count whose median passes that it would not in every step."""
    if not condition.metric.exact or condition.aggregate is not None:
        return None
    steps = [value for one in found.series for value in one]
    beyond = sum(_HOLDS[condition.sign](value, limit) for value in steps)
    if not beyond:
        return None
    return say_n("the median passes, {failed} of {n} step would not: each({metric}) judges them all",
                 "the median passes, {failed} of {n} steps would not: each({metric}) judges them all",
                 len(steps), failed=beyond, metric=condition.metric.name)  # fmt: skip


def _value(condition: Condition, found: Measured, aggregate: Aggregate | None) -> tuple[float | None, Message | None]:
    """Return the figure asked for, of the worst device, or why there is none."""
    if aggregate is None and found.value is not None:
        return found.value, found.reason
    values = [_aggregated(aggregate or "median", one) for one in found.series if one]
    if values:
        return (max(values) if condition.metric.worst == "most" else min(values)), found.reason
    return None, found.reason if found.value is None else _no_steps(condition)


def _no_steps(condition: Condition) -> Message:
    return say("{metric} has no value in each step here", metric=condition.metric.name)


def _aggregated(aggregate: Aggregate, values: Sequence[float]) -> float:
    """Return one figure for the values of all steps."""
    if aggregate == "p95":  # between two neighbours in proportion
        ordered = sorted(values)
        at, rest = divmod(95 * (len(ordered) - 1), 100)
        above = ordered[min(at + 1, len(ordered) - 1)]
        return ordered[at] + (above - ordered[at]) * rest / 100
    if aggregate == "mean":
        return fmean(values)
    return max(values) if aggregate == "max" else float(median(values))


def _changed(
    condition: Condition, runs: Sequence[Measured], before: Sequence[Measured], sure: float
) -> tuple[_Answer, float | None, float | None]:
    """Judge by how much a figure differs from the baseline's; return also that, and the limit which follows from it.

    ``sure``: by how much parts of it changed for certain. What is exact is that of the first of the ``runs``. Where
    more on either side could change the answer there is none.
    """
    exact, each, holds = condition.metric.exact, condition.aggregate == "each", _HOLDS[condition.sign]
    if exact or each:
        runs = runs[:1]
    value, why = _middle(condition, runs)
    base, lacking = _middle(condition, before)
    if value is None or base is None:
        reason = why if value is None else lacking and say("baseline: {why}", why=lacking)
        return _Answer("cannot_tell", reason), None, None
    change = condition.limit * base / 100 if condition.share else condition.limit
    beyond = copysign(max(abs(change), condition.floor), change)
    limit = base + beyond
    if each:
        answer = _each(condition, runs[0], limit)
    elif exact:  # counts have no noise
        failed = holds(value, limit)
        single = None if failed else _single_steps(condition, runs[0], limit)
        answer = _Answer("fail" if failed else "pass", single, value)
    else:
        answer = _noisy(condition, runs, before, value, base, beyond, sure)
    if answer.status == "cannot_tell":
        return answer, base, limit

    more_is_worse = (answer.status == "fail") == condition.upward
    either = condition.sign in ("=", "!=")
    found, old = (next((one for one in side if one.at_least), None) for side in (runs, before))
    doubt = None
    if found is not None and (either or not more_is_worse):
        doubt = found.reason or say("there may be more")
    elif old is not None and (either or more_is_worse):
        doubt = say("baseline: {why}", why=old.reason or say("there may be more"))
    if doubt is not None:
        answer = _Answer("cannot_tell", doubt, answer.value, answer.interval)
    return answer, base, limit


def _changed_alike(
    condition: Condition, runs: Sequence[Measured], before: Sequence[Measured], sure: float
) -> tuple[_Answer, float | None, float | None]:
    """Judge a change of what is known between bounds, where the same work leaves the same open on both sides.

    What holds of the least and of the most of both holds between them, too: the work is one, and only its time differs.
    """
    doubtful = [one for one in (*runs, *before) if one.at_least]
    least = [[replace(one, at_least=False) for one in side] for side in (runs, before)]
    at_least = _changed(condition, least[0], least[1], sure)
    if not doubtful:
        return at_least
    most = [[replace(one, series=one.most or one.series) for one in side] for side in least]
    at_most = _changed(condition, most[0], most[1], sure)
    if at_most[0].status == at_least[0].status:
        return at_least
    return replace(at_least[0], status="cannot_tell", reason=doubtful[0].reason), *at_least[1:]


def _middle(condition: Condition, runs: Sequence[Measured]) -> tuple[float | None, Message | None]:
    """Return the median of what the runs of a side have, or why one of them has nothing."""
    aggregate = None if condition.aggregate == "each" else condition.aggregate
    found = [_value(condition, one, aggregate) for one in runs]
    known = [value for value, _ in found if value is not None]
    if len(known) < len(found) or not known:
        return None, next((why for value, why in found if value is None), None)
    return float(median(known)), None


def _noisy(
    condition: Condition,
    runs: Sequence[Measured],
    before: Sequence[Measured],
    value: float,
    base: float,
    beyond: float,
    sure: float,
) -> _Answer:
    """Judge what is measured in time, in the steps of the device that counts; ``beyond``: what change is allowed."""
    import numpy as np

    from npuperf.model.noise import judge_shift

    choose = max if condition.metric.worst == "most" else min
    sides = [choose((steps for steps in one.series if steps), key=median, default=()) for one in (*before, *runs)]
    if not all(sides) and value == base:
        return _Answer(_beyond_doubt(condition.sign, 0.0, (0.0, 0.0), beyond), None, value)
    if not all(sides):
        untold = say("it has no value in each step, so that nothing tells a difference from chance")
        return _Answer("cannot_tell", untold, value)
    arrays = [np.array(side, np.float64) for side in sides]
    ratio = abs(condition.limit) / 100 if condition.share else 0.0
    floor = max(condition.floor, 0.0 if condition.share else abs(condition.limit))
    judged = judge_shift(arrays[: len(before)], arrays[len(before) :], ratio=ratio, floor=floor, sure=sure)
    if judged.interval is None or judged.estimate is None:
        return _Answer("cannot_tell", chain(judged.method, judged.needs), value)
    by = judged.estimate if condition.aggregate in (None, "median") else value - base
    status = _beyond_doubt(condition.sign, by, judged.interval, beyond)
    undecided = chain(say("the steps differ too much to decide it"), judged.needs) if status == "cannot_tell" else None
    return _Answer(status, undecided, value, judged.interval)


def _beyond_doubt(sign: Sign, by: float, interval: tuple[float, float], limit: float) -> Status:
    """Say whether a difference is beyond a limit: it is, and it is not chance; it is not, nor may it be; or neither."""
    if interval[0] == interval[1]:
        return "fail" if _HOLDS[sign](by, limit) else "pass"
    low, high = interval
    if sign.startswith("<"):
        by, low, high, limit = -by, -high, -low, -limit
    reached: Callable[[float, float], bool] = operator.ge if sign.endswith("=") else operator.gt
    if reached(by, limit) and low > min(limit, 0):
        return "fail"
    return "pass" if not reached(high, limit) and not reached(by, limit) else "cannot_tell"


def _causes(condition: Condition, comparison: Comparison) -> tuple[Message, ...]:
    """Return what of a job goes in the direction of a failure, where that is about how long ranks communicate."""
    if condition.argument is not None or "wait" not in condition.metric.parts:
        return ()
    sign = 1 if condition.upward else -1
    return tuple(cause_sentence(cause) for cause in comparison.causes if sign * sum(cause.delta_ns) > 0)[:_PARTS]


def _explaining(condition: Condition, comparison: Comparison) -> tuple[WaterfallPart, ...]:
    """Return the largest parts of the waterfall that go in the direction of a failure."""
    sign, asked = 1 if condition.upward else -1, condition.argument
    parts = [
        part
        for part in comparison.waterfall
        if part.part in condition.metric.parts
        and sign * part.delta_ns > 0
        # the whole key is what was asked about, or it begins with it: an operator type, or a kind of group
        and (asked is None or part.key == asked or (part.key or "").startswith((f"{asked} ", f"{asked},")))
    ]
    return tuple(sorted(parts, key=lambda part: -sign * part.delta_ns)[:_PARTS])
