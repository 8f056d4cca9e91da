"""Gates: conditions under which a pipeline is to stop, in one grammar for all documents.

    condition = metric ("<" | "<=" | ">" | ">=") number ["%" | "ns" | "us" | "ms" | "s"]

The condition is what makes the gate fail.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from msgspec import Struct

from npuperf.documents.base import Model
from npuperf.documents.comparison import WaterfallPart
from npuperf.errors import UsageError
from npuperf.messages import Message, Quantity, chain, ns, number, say, series, share
from npuperf.units import NS_PER_UNIT

Status = Literal["pass", "fail", "cannot_tell"]
#: What a gate that fails does: stop the pipeline, or say so.
Level = Literal["fail", "warn"]
#: What a metric counts in: percent of the step or window, nanoseconds, or things.
MetricUnit = Literal["percent", "ns", "count"]

_FORM: Final = re.compile(
    r"^\s*(?P<metric>[\w.]+)\s*(?P<sign>>=|<=|>|<)\s*(?P<limit>\d+(?:\.\d+)?)\s*(?P<unit>%|[mun]?s)?\s*$"
)
_SIGNS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class OverLimit(Model, frozen=True, kw_only=True):
    """Kernels that use more cores than they were to, and the likely reason (inferred)."""

    rank: int | None
    device: int
    stream: int
    name: str
    type: str | None
    core: str
    count: int
    cube: int
    vector: int
    reason: Message


class Gate(Model, frozen=True, kw_only=True):
    """A condition that a pipeline asked for. ``value``: what was found, ``limit``: what it is held against.

    ``unit`` is that of both: percent, nanoseconds, or things. ``baseline``: the same of the baseline, and
    ``interval`` by how much the value differs from it, where the gate is relative to one; ``explained_by``: the parts
    of the waterfall that explain a failure; ``runs``: of the last runs (this one last) whether each failed, where a
    gate asks for several. ``level``: a gate that only warns never decides the exit status.
    """

    expr: str
    status: Status
    value: float | None
    limit: float | None
    unit: MetricUnit = "count"
    reason: Message | None = None
    over: tuple[OverLimit, ...] = ()
    level: Level = "fail"
    baseline: float | None = None
    interval: tuple[float, float] | None = None
    explained_by: tuple[WaterfallPart, ...] = ()
    runs: tuple[bool, ...] = ()


class Measured(Struct, frozen=True):
    """What a metric found. ``value`` None: it cannot be told, for a ``reason``; ``at_least``: there may be more.

    ``samples``: the value in each step, in order, where it has one in each; ``exact``: a count, which has no noise.
    """

    value: float | None
    reason: Message | None = None
    at_least: bool = False
    samples: tuple[float, ...] = ()
    exact: bool = False


class Metric(Struct, frozen=True):
    """Something that documents of one type are held against. ``measure`` takes such a document."""

    name: str
    unit: MetricUnit
    document: type
    measure: Callable[[Any], Measured]


#: Every metric, by name. A made-up one is one call of :func:`register`.
METRICS: Final[dict[str, Metric]] = {}


def register(*metrics: Metric) -> None:
    """Make metrics known to all verbs."""
    METRICS.update({metric.name: metric for metric in metrics})


class Condition(Struct, frozen=True):
    """A gate as it was asked for. ``limit`` is in percent, ns or things, as its metric counts."""

    expr: str
    metric: Metric
    sign: str
    limit: float


def parse_condition(text: str, document: type) -> Condition:
    """Read a condition for documents of a type. Raises UsageError: a misspelt gate never passes."""
    known = {name: metric for name, metric in METRICS.items() if issubclass(document, metric.document)}
    found = _FORM.match(text)
    if found is None:
        hint = say(
            "METRIC>LIMIT, e.g. {examples}; the gate fails if the condition holds", examples=_examples(known.values())
        )
        raise UsageError(say("--fail-on {text}: cannot be read", text=repr(text)), hint=hint)
    metric = known.get(found["metric"])
    if metric is None:
        from difflib import get_close_matches

        near = get_close_matches(found["metric"], known, n=1)
        did_you_mean = say("did you mean {name}?", name=near[0]) if near else None
        hint = chain(did_you_mean, say("known: {names}", names=series(known)), by=" ")
        raise UsageError(say("--fail-on {text}: no such metric", text=repr(text)), hint=hint)
    return Condition(text, metric, found["sign"], float(found["limit"]) * _scale(text, metric, found["unit"]))


def _examples(metrics: Iterable[Metric]) -> str:
    limits = {"percent": "3%", "ns": "5ms", "count": "0"}
    return ", ".join(f"{metric.name}>{limits[metric.unit]}" for metric in metrics)


def _scale(text: str, metric: Metric, unit: str | None) -> float:
    """Return what a limit's unit is worth in the metric's own. Raises UsageError where they do not fit."""
    if metric.unit == "ns" and unit in NS_PER_UNIT:
        return NS_PER_UNIT[unit]
    if (metric.unit == "percent" and unit in (None, "%")) or (metric.unit == "count" and unit is None):
        return 1
    hint = {
        "percent": say("{metric} is a percentage", metric=metric.name),
        "ns": say("{metric} is a time: give ns, us, ms or s", metric=metric.name),
        "count": say("{metric} is a count", metric=metric.name),
    }[metric.unit]
    raise UsageError(say("--fail-on {text}: the unit does not fit", text=repr(text)), hint=hint)


def judge_gate(condition: Condition, document: object) -> Gate:
    """Hold a document against a condition. What may be more can fail "more than", and pass "less than", for sure."""
    found = condition.metric.measure(document)
    status: Status = "cannot_tell"
    value, reason = found.value, found.reason
    if value is not None:
        failed = _SIGNS[condition.sign](value, condition.limit)
        status = "fail" if failed else "pass"
        if found.at_least and failed != condition.sign.startswith(">"):
            reason = reason or say("the result is incomplete: at least {value}", value=number(value))
            status, value = "cannot_tell", None
    return Gate(
        expr=condition.expr,
        status=status,
        value=value,
        limit=condition.limit,
        unit=condition.metric.unit,
        reason=reason,
    )


def quantity(gate: Gate) -> Quantity | None:
    """Return what a gate found, to be shown."""
    if gate.value is None:
        return None
    shown = {"percent": share(gate.value / 100), "ns": ns(gate.value), "count": number(gate.value)}
    return shown[gate.unit]
