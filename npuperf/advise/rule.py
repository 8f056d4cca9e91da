"""What a rule is and how it answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypedDict

import numpy as np
from msgspec import Struct, field

from npuperf.advise.needs import OPERATIONS, WHOLE_TABLE, Need, first_missing, first_scarce
from npuperf.advise.requirements import Choice, Option, Requirement, choose
from npuperf.cluster.summary import RankSummary
from npuperf.documents.analysis import Bound, Finding, Precondition, Severity
from npuperf.documents.cluster import Cluster
from npuperf.messages import Message, Quantity, Series, chain, factor, say, series, share
from npuperf.model.labels import Mask
from npuperf.model.thresholds import Thresholds
from npuperf.scopes.view import DeviceView
from npuperf.units import short_names

if TYPE_CHECKING:
    from npuperf.cluster.judge import JobStudy


class TypeRow(TypedDict):
    """An operator type in the evidence: None where it is not recorded."""

    type: str | None
    count: int
    total_ns: int


class Detected(Struct, frozen=True, kw_only=True):
    """What takes time. ``refute``: what would show that this is not the cause; ``gain``: ns per step, min and max.

    ``next``: what to do, or options in the order of preference, of which those are advised that fit the run;
    ``severity``: where it does not follow from the gain.
    """

    title: Message
    refute: Message
    next: Message | tuple[Option, ...]
    evidence: dict[str, Any]
    gain: tuple[int, int] | None = None
    code: str | None = None
    severity: Severity | None = None


class Untold(Struct, frozen=True):
    """Why a rule cannot tell: what is missing, and how to get it."""

    needs: Message
    evidence: dict[str, Any] = field(default_factory=dict)


#: None: there is no problem.
Answer = Detected | Untold | None


class Rule(Struct, frozen=True):
    """A question to the data of one device: ``judge`` is asked only where something of all ``needs`` is recorded.

    That there is no problem is said only where enough of it is. ``requires``: in runs of another kind the problem
    cannot exist. ``any_device``: it asks nothing that only an NPU has; ``relieves``: the limit that its problem is
    about.
    """

    name: str
    title: Message
    source: Message
    needs: tuple[Need, ...]
    judge: Callable[[DeviceView], Answer]
    any_device: bool = False
    relieves: Bound | None = None
    requires: tuple[Requirement, ...] = ()

    def ask(self, view: DeviceView) -> Finding:
        """Return the answer for a device."""
        return finding(self, view, self._answer(view))

    def _answer(self, view: DeviceView) -> Answer:
        if any(condition.test(view) is False for condition in self.requires):
            return None
        if missing := first_missing(self.needs, view):
            return Untold(missing)
        answer = self.judge(view)
        scarce = first_scarce(self.needs, view) if answer is None else None
        return Untold(scarce) if scarce else answer


#: What every finding about several ranks presupposes; without it there is no job to ask about.
MATCHED: Final = Precondition(what=say("operations of several ranks that are one and the same"), holds=True)


class RankRule(Struct, frozen=True):
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
    needs: tuple[Need, ...] = (WHOLE_TABLE, OPERATIONS)

    def ask(self, view: DeviceView, summary: RankSummary | None) -> Finding:
        """Return the answer for a device alone; without communication there is nothing to ask."""
        if summary is not None and self.alone is not None:
            return finding(self, view, self.alone(view, summary))
        missing = first_missing(self.needs, view)
        return finding(self, view, Untold(missing) if missing else None)


def finding(rule: Rule | RankRule, view: DeviceView, answer: Answer) -> Finding:
    """Return an answer as it stands in the result; the gain's share of the step sets the severity."""
    problem = answer if isinstance(answer, Detected) else None
    untold = answer.needs if isinstance(answer, Untold) else None
    choice = _choice(problem, view)
    requires = rule.requires if isinstance(rule, Rule) else ()
    presupposed = [r.check(view) for r in requires] + [need.check(view) for need in rule.needs]
    step = view.per_step(view.partition.span_ns)
    withheld = _withheld(rule, view) if problem and problem.gain else None
    gain = within(problem.gain, step) if problem and problem.gain and withheld is None else None
    percent = (100 * gain[0] / step, 100 * gain[1] / step) if gain and step else None
    return Finding(
        rule=rule.name,
        status="problem" if problem else "cannot_tell" if untold else "ok",
        severity=(problem and problem.severity) or severity(percent[1] / 100 if percent else 0.0, view.thresholds),
        title=problem.title if problem else rule.title,
        evidence=answer.evidence if answer else {},
        gain_ns_per_step=gain,
        gain_pct=percent,
        gain_per="step" if view.steps else "window",
        refute=problem.refute if problem else None,
        next=choice.next if problem else untold,
        code=problem.code if problem else None,
        needs=untold,
        source=chain(*dict.fromkeys((rule.source, *choice.sources))),
        relieves=rule.relieves,
        rank=view.profile.rank,
        device=view.profile.device,
        preconditions=[*dict.fromkeys((*presupposed, *choice.preconditions))],
        alternatives=choice.alternatives,
        excluded=choice.excluded,
        gain_withheld=withheld,
    )


def _withheld(rule: Rule | RankRule, view: DeviceView) -> Message | None:
    """Say why the host's part in a step is not told: much of it may be the recording's own."""
    if rule.relieves == "host" and view.traits.blocking:
        return say("the gain is withheld: ASCEND_LAUNCH_BLOCKING made the host wait for every kernel")
    overhead = view.traits.overhead
    if rule.relieves != "host" or overhead is None or not view.traits.slowed(view.thresholds):
        return None
    return say(
        "the gain is withheld: recording made steps {times} times as long, so the host's part in them is not known",
        times=factor(overhead),
    )


def _choice(problem: Detected | None, view: DeviceView) -> Choice:
    if problem is None:
        return Choice(None, [], [], [])
    return choose(problem.next, view) if isinstance(problem.next, tuple) else Choice(problem.next, [], [], [])


def severity(most: float, thresholds: Thresholds) -> Severity:
    """Return how grave a problem is whose repair saves at most this part of a step."""
    if most >= thresholds.severity_high:
        return "high"
    return "medium" if most >= thresholds.severity_medium else "low"


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


def within(gain: tuple[int, int], step: int) -> tuple[int, int]:
    """Return a gain per step that is nothing at least and the step at most, ns."""
    most = min(max(gain[1], 0), step)
    return min(max(gain[0], 0), most), most


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
    short = short_names(row["type"] or "N/A" for row in rows)
    return series(say("{type} ×{count}", type=short[row["type"] or "N/A"], count=row["count"]) for row in rows)
