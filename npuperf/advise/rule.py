"""What a rule is and how it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

import numpy as np

from npuperf.cluster.judge import JobStudy
from npuperf.cluster.summary import RankSummary
from npuperf.documents.analysis import Bound, Finding, Severity
from npuperf.documents.cluster import Cluster
from npuperf.host.mode import no_launches
from npuperf.messages import Message, Quantity, Series, say, series, share
from npuperf.model.labels import Mask
from npuperf.model.thresholds import Thresholds
from npuperf.scopes.view import DeviceView

NO_CORE_TYPES: Final = say("core types are not recorded: record with npuperf profile --level 1")
NO_SHAPES: Final = say("input shapes are not recorded: record with npuperf profile --level 1 --shapes")
_NO_STATE: Final = say("OP State is not recorded: recording it needs CANN 8 or newer and npuperf profile --level 1")


class TypeRow(TypedDict):
    """An operator type in the evidence: None where it is not recorded."""

    type: str | None
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """What takes time. ``refute``: what would show that this is not the cause; ``gain``: ns per step, min and max."""

    title: Message
    refute: Message
    next: Message
    evidence: dict[str, Any]
    gain: tuple[int, int] | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Untold:
    """Why a rule cannot tell: what is missing, and how to get it."""

    needs: Message
    evidence: dict[str, Any] = field(default_factory=dict)


#: None: there is no problem.
Answer = Detected | Untold | None


@dataclass(frozen=True, slots=True)
class Rule:
    """A question to the data of one device: ``judge`` is asked only where ``needs`` misses nothing.

    ``any_device``: it asks nothing that only an NPU has; ``relieves``: the limit that its problem is about.
    """

    name: str
    title: Message
    source: Message
    needs: Callable[[DeviceView], Message | None]
    judge: Callable[[DeviceView], Answer]
    any_device: bool = False
    relieves: Bound | None = None

    def ask(self, view: DeviceView) -> Finding:
        """Return the answer for a device."""
        missing = self.needs(view)
        return finding(self, view, Untold(missing) if missing else self.judge(view))


@dataclass(frozen=True, slots=True)
class RankRule:
    """A question to several ranks of one job: findings only where there is a problem.

    ``alone``: the question to one device, whose answers stand only where no job was found; None: it needs several.
    """

    name: str
    title: Message
    source: Message
    judge: Callable[[JobStudy, Cluster, Thresholds], list[Finding]]
    alone: Callable[[DeviceView, RankSummary], Answer] | None = None
    any_device: bool = False
    relieves: Bound | None = None

    def ask(self, view: DeviceView, summary: RankSummary | None) -> Finding:
        """Return the answer for a device alone; without communication there is nothing to ask."""
        if summary is not None and self.alone is not None:
            return finding(self, view, self.alone(view, summary))
        missing = _lacks_operations(view)
        return finding(self, view, Untold(missing) if missing else None)


def finding(rule: Rule | RankRule, view: DeviceView, answer: Answer) -> Finding:
    """Return an answer as it stands in the result; the gain's share of the step sets the severity."""
    problem = answer if isinstance(answer, Detected) else None
    untold = answer.needs if isinstance(answer, Untold) else None
    gain = problem.gain if problem else None
    step = view.per_step(view.partition.span_ns)
    percent = (100 * gain[0] / step, 100 * gain[1] / step) if gain and step else None
    return Finding(
        rule=rule.name,
        status="problem" if problem else "cannot_tell" if untold else "ok",
        severity=severity(percent[1] / 100 if percent else 0.0, view.thresholds),
        title=problem.title if problem else rule.title,
        evidence=answer.evidence if answer else {},
        gain_ns_per_step=gain,
        gain_pct=percent,
        gain_per="step" if view.steps else "window",
        refute=problem.refute if problem else None,
        next=problem.next if problem else untold,
        code=problem.code if problem else None,
        needs=untold,
        source=rule.source,
        relieves=rule.relieves,
        rank=view.profile.rank,
        device=view.profile.device,
    )


def severity(most: float, thresholds: Thresholds) -> Severity:
    """Return how grave a problem is whose repair saves at most this part of a step."""
    if most >= thresholds.severity_high:
        return "high"
    return "medium" if most >= thresholds.severity_medium else "low"


def _lacks_operations(view: DeviceView) -> Message | None:
    """Say why there may be communication that was not found, if so."""
    if view.profile.excerpt:
        return say("rows are missing from the kernel table: analyze the file as it was exported")
    return None if view.profile.kineto or view.tasks.core.known().any() else NO_CORE_TYPES


def lacks_launches(view: DeviceView) -> Message | None:
    """Say what is missing for a rule about waiting for the host, if anything."""
    if not view.launches.known.any():
        return no_launches(view.mode)
    if view.profile.excerpt:
        return say("rows are missing from the kernel table: analyze the file as it was exported")
    return None


def lacks_host_events(view: DeviceView, *more: tuple[bool, Message]) -> Message | None:
    """Say what is missing for a rule about what the host was doing, if anything.

    ``more``: further conditions, each with what is missing where it does not hold. Where the device does not
    wait for the host nothing more needs to be known.
    """
    missing = lacks_launches(view)
    if missing or not view.host_bound:
        return missing
    if not len(view.profile.host.events):
        return say("host events are not recorded: record with npuperf profile --activities cpu,npu --level 1")
    return next((text for holds, text in more if not holds), None)


def lacks_states(view: DeviceView) -> Message | None:
    """The same, where shape states must be recorded."""
    return lacks_host_events(view, (bool(view.tasks.state.known().any()), _NO_STATE))


def lacks_shapes(view: DeviceView) -> Message | None:
    """The same, where input shapes must be recorded."""
    return lacks_host_events(view, (bool(view.tasks.shapes.known().any()), NO_SHAPES))


def is_graph_mode(view: DeviceView) -> bool:
    """Tell whether kernels come from a compiled or captured graph."""
    return view.mode in ("aclgraph", "ge")


def blames(
    cause: str, title: Callable[[Quantity, str], Message], refute: Message, next: Message
) -> Callable[[DeviceView], Answer]:
    """Make the ``judge`` of a rule about a cause of waiting for the host that takes a notable part of the window.

    ``title`` gets the part of the span that is waited, and the call that takes longest.
    """

    def judge(view: DeviceView) -> Answer:
        waited = view.blamed(cause)
        if waited < notable_wait(view):
            return None
        lines = [b for b in view.report.blame if b.cause == cause]
        names = [{"name": b.name, "ns": b.ns, "count": b.count, "where": b.where} for b in lines[:3]]
        return Detected(
            title=title(share(waited / view.partition.span_ns), lines[0].name),
            evidence={"host_wait_ns": waited, "names": names},
            gain=view.predict(f"host:{cause}*0"),
            refute=refute,
            next=next,
        )

    return judge


def notable_wait(view: DeviceView) -> float:
    """Return the wait, ns, from which a cause is worth a finding."""
    return max(view.thresholds.cause_share * view.partition.span_ns, 1)


def at_most(gain: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return a modelled gain of which nothing is certain."""
    return (0, gain[1]) if gain else None


def top_types(view: DeviceView, chosen: Mask, count: int = 3) -> list[TypeRow]:
    """Return the operator types that ``chosen`` tasks spend most time in, for the evidence."""
    codes = view.types.codes[chosen]
    dur = view.tasks.dur[chosen]
    totals = np.bincount(codes + 1, weights=dur, minlength=1)
    counts = np.bincount(codes + 1, minlength=1)
    order = np.argsort(-totals, kind="stable")[:count].tolist()
    names = (None, *view.types.names)
    return [{"type": names[i], "count": int(counts[i]), "total_ns": int(totals[i])} for i in order if counts[i]]


def quote(rows: list[TypeRow]) -> Series:
    """Return types as a list to show, e.g. ``TransData ×12, Cast ×3``."""
    return series(say("{type} ×{count}", type=row["type"] or "N/A", count=row["count"]) for row in rows)
