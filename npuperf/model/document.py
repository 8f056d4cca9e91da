"""What every verb returns: a document, which says by itself with which status to leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from msgspec import Struct

from npuperf.base.errors import ExitCode, with_hint
from npuperf.base.messages import Message, Parameter, ns, number, say, share, size
from npuperf.model.comparison import WaterfallPart
from npuperf.model.parts import SCHEMA_VERSION, Model, Part

# -- Gates: conditions under which a pipeline is to stop, and the metrics that they are about.
#
# Their grammar is :mod:`npuperf.against.gates`, and :mod:`npuperf.against.gate_verdicts` judges them.

Status = Literal["pass", "fail", "cannot_tell"]
#: What a gate that fails does: stop the pipeline, or say so.
Level = Literal["fail", "warn"]
#: What a metric counts in: percent of the step or window, nanoseconds, bytes, megahertz, or things.
MetricUnit = Literal["percent", "ns", "count", "bytes", "mhz"]


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

    ``unit`` is that of both: percent, nanoseconds, bytes, MHz, or things. ``baseline``: the same of the baseline, and
    ``interval`` by how much the value differs from it, where the gate is relative to one: ``limit`` is then the value
    beyond which it fails; ``explained_by``: the parts of the waterfall that explain a failure, and ``causes``: of a job
    what is behind them; ``runs``: of the last runs (this one last) whether each failed, where a gate asks for several.
    ``level``: a gate that only warns never decides the exit status. ``nobody``: nothing has the name that it asks
    about, which may be misspelt.
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
    causes: tuple[Message, ...] = ()
    runs: tuple[bool, ...] = ()
    nobody: bool = False


class Measured(Struct, frozen=True):
    """What a metric found: one ``value``, or ``series``: of every device the value in each step, in order.

    With both the value is what counts unless another aggregate is asked for. With neither it cannot be told, for a
    ``reason``. ``at_least``: there may be more, for that reason. ``named``: words and what each is about, for metrics
    whose limits are words. ``absent``: nothing here has the name that was asked about, so that it may be misspelt;
    the ``reason`` has those that there are. ``most``: the series if all were counted of which it is not known;
    ``same_doubt``: of the same work as much is not known in any run, so that two runs can be held against each other.
    """

    value: float | None = None
    reason: Message | None = None
    interval: tuple[float, float] | None = None
    at_least: bool = False
    series: tuple[tuple[float, ...], ...] = ()
    named: tuple[tuple[str, str], ...] | None = None
    absent: bool = False
    most: tuple[tuple[float, ...], ...] = ()
    same_doubt: bool = False


class Metric(Struct, frozen=True):
    """Something that documents of one type are held against.

    ``measure`` takes such a document, and what the metric is asked about: ``op:TYPE``, ``comm.wait[GROUP]``.
    ``arguments``: what it may be asked about, where that is known before there is a document. ``words``: limits that
    are words, the mildest first. ``expects``: the condition is what must hold, and not what makes the gate fail.
    ``worst``: which of several devices counts. ``parts`` of the waterfall explain it.
    """

    name: str
    unit: MetricUnit
    document: type
    measure: Callable[[Any, str | None], Measured]
    argument: Literal["none", "optional", "required"] = "none"
    arguments: Callable[[], Iterable[str]] | None = None
    words: tuple[str, ...] = ()
    expects: bool = False
    worst: Literal["most", "least"] = "most"
    parts: tuple[Part, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether it has no noise."""
        return self.unit in ("count", "bytes", "mhz")


#: Every metric, by name. A made-up one is one call of :func:`register`.
METRICS: Final[dict[str, Metric]] = {}


def register(*metrics: Metric) -> None:
    """Make metrics known to all verbs."""
    METRICS.update({metric.name: metric for metric in metrics})


def metrics_of(document: type) -> dict[str, Metric]:
    """Return what documents of a type can be held against, by name."""
    return {name: metric for name, metric in METRICS.items() if issubclass(document, metric.document)}


def quantity(value: float | None, unit: MetricUnit) -> Parameter:
    """Return what a gate found, or what it is held against, to be shown."""
    if value is None:
        return None
    if unit == "percent":
        return share(value / 100)
    if unit == "ns":
        return ns(value)
    if unit == "mhz":
        return say("{n} MHz", n=number(value))
    return size(round(value)) if unit == "bytes" else number(value)


class Problem(Model, frozen=True, kw_only=True):
    """Why a verb did not do what was asked, and what to do next."""

    what: Message
    hint: Message | None = None
    exit_code: int = ExitCode.INPUT

    @property
    def message(self) -> Message:
        """What happened and what to do next, as one message."""
        return with_hint(self.what, self.hint)


class Document(Model, frozen=True, kw_only=True):
    """The result of a verb."""

    schema_version: str = SCHEMA_VERSION
    problem: Problem | None = None
    gates: tuple[Gate, ...] = ()

    @property
    def place(self) -> str | None:
        """The path that it is about, as a shell takes it, for the commands that its sentences name."""
        return None

    @property
    def exit_code(self) -> int:
        """The status to leave with: a problem first, then a gate that failed, then one that cannot be judged."""
        if self.problem is not None:
            return self.problem.exit_code
        found = {gate.status for gate in self.stopping}
        if "fail" in found:
            return ExitCode.GATE_FAILED
        return ExitCode.GATE_UNKNOWN if found else ExitCode.DONE

    @property
    def stopping(self) -> tuple[Gate, ...]:
        """The gates that stop a pipeline, those that failed before those that cannot be judged."""
        stop = (gate for gate in self.gates if gate.level == "fail" and gate.status != "pass")
        return tuple(sorted(stop, key=lambda gate: gate.status != "fail"))
