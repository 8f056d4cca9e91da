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

from npuperf.against.gates import Aggregate, Condition, Sign
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
    if metric.expects:
        gate = _expected(condition, found)
    elif condition.word is not None:
        gate = _named(condition, found)
    elif found.absent and all(one.absent for one in before):
        gate = _untold(condition, found.reason, nobody=True)
    elif condition.relative:
        gate = _changed(condition, [found, *(metric.measure(one, argument) for one in again)], before)
    else:
        gate = _absolute(condition, found)
    gate = _repeated(condition, gate, history)
    if gate.status == "fail" and comparison is not None:
        gate = replace(gate, explained_by=_explaining(condition, comparison))
    return gate


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


def _gate(
    condition: Condition,
    status: Status,
    value: float | None,
    limit: float | None,
    reason: Message | None,
    *,
    interval: tuple[float, float] | None = None,
    nobody: bool = False,
) -> Gate:
    return Gate(
        expr=condition.expr,
        status=status,
        value=value,
        limit=limit,
        unit=condition.metric.unit,
        reason=reason,
        level=condition.level,
        interval=interval,
        nobody=nobody,
    )


def _untold(condition: Condition, reason: Message | None, *, nobody: bool = False) -> Gate:
    limit = None if condition.relative else condition.limit
    return _gate(condition, "cannot_tell", None, limit, reason, nobody=nobody)


def _expected(condition: Condition, found: Measured) -> Gate:
    """Judge a condition that is what must hold."""
    if not found.named:
        return _gate(condition, "cannot_tell", None, None, found.reason)
    word, wanted = found.named[0][0], condition.word
    told = say("the {metric} is {word}", metric=condition.metric.name, word=word)
    if word == _UNKNOWN != wanted:
        return _gate(condition, "cannot_tell", None, None, chain(told, found.reason))
    must = condition.sign == "="
    if (word == wanted) == must:
        return _gate(condition, "pass", None, None, told)
    why = say("it must be {wanted}", wanted=wanted) if must else say("it must be anything but that")
    return _gate(condition, "fail", None, None, chain(told, why))


def _named(condition: Condition, found: Measured) -> Gate:
    """Judge by how grave what was found is: one such thing is enough to fail."""
    if found.named is None:
        return _gate(condition, "cannot_tell", None, 0.0, found.reason)
    words, word = condition.metric.words, condition.word or ""
    grave = [one for one in found.named if _HOLDS[condition.sign](words.index(one[0]), words.index(word))]
    if grave:
        kinds = [*dict.fromkeys(grave)]
        told: list[Parameter] = [say("{name} ({word})", name=name, word=word) for word, name in kinds[:_NAMED]]
        more = say("and {n} more", n=number(len(kinds) - _NAMED)) if len(kinds) > _NAMED else None
        return _gate(condition, "fail", float(len(grave)), 0.0, chain(say("{names}", names=series(told)), more))
    status: Status = "cannot_tell" if found.at_least else "pass"
    return _gate(condition, status, None if found.at_least else 0.0, 0.0, found.reason)


def _absolute(condition: Condition, found: Measured) -> Gate:
    """Hold a figure against a limit. What may be more can fail "more than", and pass "less than", for sure."""
    if condition.aggregate == "each":
        return _with_value(_each(condition, found, condition.limit))
    value, why = _value(condition, found)
    if value is None:
        return _untold(condition, why)
    if found.interval is not None:
        status = _beyond_doubt(condition.sign, value, found.interval, condition.limit)
        reason = found.reason if status == "cannot_tell" else None
        return _gate(condition, status, value, condition.limit, reason, interval=found.interval)
    return _with_value(_held(condition, found, value, condition.limit))


def _with_value(gate: Gate) -> Gate:
    """Say the value before the reason, which is shown in its place; with a baseline both are shown."""
    value = quantity(gate)
    if value is None or gate.reason is None:
        return gate
    return replace(gate, reason=chain(say("{value}", value=value), gate.reason))


def _held(condition: Condition, found: Measured, value: float, limit: float) -> Gate:
    failed = _HOLDS[condition.sign](value, limit)
    # Whether more of the value would leave the gate as it is.
    certain = value > limit if condition.sign in ("=", "!=") else failed == condition.upward
    if found.at_least and not certain and not _within_at_most(condition, found, limit):
        reason = found.reason or say("the result is incomplete: at least {value}", value=number(value))
        return _gate(condition, "cannot_tell", None, limit, reason)
    told = [why for why in (found.reason, None if failed else _single_steps(condition, found, limit)) if why]
    why = chain(*told) if told else None
    return _gate(condition, "fail" if failed else "pass", value, limit, why)


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


def _within_at_most(condition: Condition, found: Measured, limit: float) -> bool:
    """Tell whether a gate on too much passes even if all were counted of which it is not known."""
    if not found.most or not condition.upward:
        return False
    worst = replace(condition, aggregate="max") if condition.aggregate == "each" else condition
    value, _ = _value(worst, Measured(series=found.most))
    return value is not None and not _HOLDS[condition.sign](value, limit)


def _each(condition: Condition, found: Measured, limit: float) -> Gate:
    """Judge every step by itself; the value is that of the one that is furthest on the failing side."""
    steps = [value for one in found.series for value in one]
    if not steps:
        return _untold(condition, found.reason or _no_steps(condition))
    beyond = [value for value in steps if _HOLDS[condition.sign](value, limit)]
    among = beyond or steps
    gate = _held(condition, found, min(among) if condition.sign.startswith("<") else max(among), limit)
    if not beyond or gate.status != "fail":
        return gate
    told = say_n("in {failed} of {n} step", "in {failed} of {n} steps", len(steps), failed=len(beyond))
    return replace(gate, reason=chain(told, gate.reason))


def _value(condition: Condition, found: Measured) -> tuple[float | None, Message | None]:
    """Return the figure asked for, of the worst device, or why there is none."""
    if condition.aggregate is None and found.value is not None:
        return found.value, found.reason
    values = [aggregated(condition.aggregate or "median", one) for one in found.series if one]
    if values:
        return (max(values) if condition.metric.worst == "most" else min(values)), found.reason
    return None, found.reason if found.value is None else _no_steps(condition)


def _no_steps(condition: Condition) -> Message:
    return say("{metric} has no value in each step here", metric=condition.metric.name)


def aggregated(aggregate: Aggregate, values: Sequence[float]) -> float:
    """Return one figure for the values of all steps."""
    if aggregate == "p95":  # between two neighbours in proportion
        ordered = sorted(values)
        at, rest = divmod(95 * (len(ordered) - 1), 100)
        above = ordered[min(at + 1, len(ordered) - 1)]
        return ordered[at] + (above - ordered[at]) * rest / 100
    if aggregate == "mean":
        return fmean(values)
    return max(values) if aggregate == "max" else float(median(values))


class _Allowed(Struct, frozen=True):
    """A change that is allowed, as it is measured: ``change`` with its sign, and the ``floor`` it has besides."""

    change: float
    floor: float

    @property
    def beyond(self) -> float:
        """The change beyond which the gate fails."""
        return copysign(max(abs(self.change), self.floor), self.change)


def _changed(condition: Condition, runs: Sequence[Measured], before: Sequence[Measured]) -> Gate:
    """Judge by how much a figure differs from the baseline's; what is exact is that of the first of the ``runs``."""
    if condition.metric.exact or condition.aggregate == "each":
        runs = runs[:1]
    found = runs[0]
    value, why = _middle(condition, runs)
    base, lacking = _middle(condition, before)
    if value is None or base is None:
        return _untold(condition, why if value is None else lacking and say("baseline: {why}", why=lacking))
    allowed = _Allowed(condition.limit * base / 100 if condition.share else condition.limit, condition.floor)
    if condition.aggregate == "each":
        gate = _doubted(condition, _each(condition, found, base + allowed.beyond), found, before)
    elif condition.metric.exact:  # counts have no noise
        limit = base + allowed.beyond
        failed = _HOLDS[condition.sign](value, limit)
        reason = None if failed else _single_steps(condition, found, limit)
        gate = _doubted(condition, _gate(condition, "fail" if failed else "pass", value, None, reason), found, before)
    else:
        gate = _noisy(condition, runs, before, value, base, allowed)
    return replace(gate, baseline=base, limit=base + allowed.beyond)


def _middle(condition: Condition, runs: Sequence[Measured]) -> tuple[float | None, Message | None]:
    """Return the median of what the runs of a side have, or why one of them has nothing."""
    one_value = replace(condition, aggregate=None) if condition.aggregate == "each" else condition
    found = [_value(one_value, one) for one in runs]
    known = [value for value, _ in found if value is not None]
    if len(known) < len(found) or not known:
        return None, next((why for value, why in found if value is None), None)
    return float(median(known)), None


def _doubted(condition: Condition, gate: Gate, found: Measured, before: Sequence[Measured]) -> Gate:
    """Return the gate, or that it cannot be judged where more on either side could change it."""
    if gate.status == "cannot_tell":
        return gate
    more_is_worse = (gate.status == "fail") == condition.upward
    either = condition.sign in ("=", "!=")
    old = next((one for one in before if one.at_least), None)
    reason = None
    if found.at_least and (either or not more_is_worse):
        reason = found.reason or say("there may be more")
    elif old is not None and (either or more_is_worse):
        reason = say("baseline: {why}", why=old.reason or say("there may be more"))
    if reason is None:
        return gate
    return _gate(condition, "cannot_tell", gate.value, None, reason, interval=gate.interval)


def _noisy(
    condition: Condition,
    runs: Sequence[Measured],
    before: Sequence[Measured],
    value: float,
    base: float,
    allowed: _Allowed,
) -> Gate:
    """Judge what is measured in time, in the steps of the device that counts."""
    import numpy as np

    from npuperf.model.noise import judge_shift

    found = next((one for one in runs if one.at_least), runs[0])  # what doubts there are
    choose = max if condition.metric.worst == "most" else min
    sides = [choose((steps for steps in one.series if steps), key=median, default=()) for one in (*before, *runs)]
    if not all(sides) and value == base:
        gate = _gate(condition, _beyond_doubt(condition.sign, 0.0, (0.0, 0.0), allowed.beyond), value, None, None)
        return _doubted(condition, gate, found, before)
    if not all(sides):
        reason = say("it has no value in each step, so that nothing tells a difference from chance")
        return _gate(condition, "cannot_tell", value, None, reason)
    arrays = [np.array(side, np.float64) for side in sides]
    ratio = abs(condition.limit) / 100 if condition.share else 0.0
    floor = max(allowed.floor, 0.0 if condition.share else abs(condition.limit))
    judged = judge_shift(arrays[: len(before)], arrays[len(before) :], ratio=ratio, floor=floor)
    if judged.interval is None or judged.estimate is None:
        return _gate(condition, "cannot_tell", value, None, chain(judged.method, judged.needs))
    by = judged.estimate if condition.aggregate in (None, "median") else value - base
    status = _beyond_doubt(condition.sign, by, judged.interval, allowed.beyond)
    undecided = chain(say("the steps differ too much to decide it"), judged.needs) if status == "cannot_tell" else None
    gate = _gate(condition, status, value, None, undecided, interval=judged.interval)
    return _doubted(condition, gate, found, before)


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


def _repeated(condition: Condition, gate: Gate, history: Sequence[bool]) -> Gate:
    """Let a gate that asks for several runs fail only if so many of the last ones failed, this one among them."""
    if condition.of is None or gate.status == "cannot_tell":
        return gate
    failed = gate.status == "fail"
    runs = (*history[max(len(history) - condition.of + 1, 0) :], failed)
    if not failed or sum(runs) >= condition.times:
        return replace(gate, runs=runs)
    so_far = say("this run alone would fail: {failed} of {of} so far, and {times} make it fail",
                 failed=sum(runs), of=condition.of, times=condition.times)  # fmt: skip
    return replace(gate, status="pass", runs=runs, reason=chain(gate.reason, so_far))


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
