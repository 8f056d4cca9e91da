"""The page of an analysis: the verdict, what waits for what, findings, timeline, charts, and all tables by topic."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from npuperf.base.escape import for_shell
from npuperf.base.messages import (
    Message,
    Parameter,
    Quantity,
    analyze_command,
    chain,
    ns,
    number,
    say,
    say_n,
    series,
    share,
    size,
)
from npuperf.model.comparison import Comparison
from npuperf.model.gist import Explanation
from npuperf.model.job_result import Cluster, Root
from npuperf.model.result import Device, Finding, Result
from npuperf.show import comparison_text as compared
from npuperf.show import job_text
from npuperf.show.analysis_report import apart_line, input_lines
from npuperf.show.analysis_tables import TOPICS, tables_about
from npuperf.show.formats import View
from npuperf.show.language import text
from npuperf.show.sheet import (
    CHARTS,
    MOST_ROWS,
    Block,
    Card,
    EvidenceTable,
    Headline,
    NamedValue,
    Sheet,
    Strip,
    StripPart,
    Whereabouts,
    common,
    sheet_of,
    warnings,
)
from npuperf.show.svg import STEP_PARTS, words_of_part
from npuperf.show.tables import EXTRA, Filled, fill, filled
from npuperf.show.words import (
    BOUND,
    EVIDENCE,
    OUTCOME,
    WORDS,
    Line,
    date,
    device_name,
    elsewhere,
    folded,
    gain,
    lost_lines,
    verdict_of,
)

if TYPE_CHECKING:
    from npuperf.show.svg import Chart

#: Warnings that stand at the top.
_DOUBTS: Final = 3
#: Charts that the strip at the top and the cards of roots make needless.
_NEEDLESS: Final = ("partition", "roots")
#: Charts that stand with what changed.
_OF_COMPARISON: Final = ("waterfall", "interval", "differences")


def result_sheet(result: Result, view: View, charts: Sequence[Chart]) -> Sheet:
    """Return the page of an analysis."""
    places, devices, comparison = Whereabouts(view.pictures, result.devices), result.devices, result.comparison
    facts = [
        say("{path} ({kind})", path=result.input.path, kind=result.input.kind),
        say("{tool} {version}", tool=result.tool.name, version=result.tool.version),
    ]
    if at := result.workload.recorded_at:
        facts.append(say("recorded {date}", date=date(at)))
    if chips := dict.fromkeys(device.soc for device in devices if device.soc):
        facts.append(say("{chips}", chips=series(chips)))

    verdicts, blocks = [], []
    title, about = say("{title}", title=PurePath(result.input.path).name or result.input.path), say("verdict")
    if comparison is not None:
        title = say("{new} against {old}", new=comparison.new, old=comparison.old)
        several = 1 if result.digest is None else result.digest.devices
        verdicts.append(comparison_headline(comparison, several, say("against the baseline")))
        about = say("this run by itself")
        blocks.append(_comparison(result, comparison, [chart for chart in charts if chart.id in _OF_COMPARISON]))
    bound = result.verdict.bound
    evidence = [NamedValue(EVIDENCE[name], share(value)) for name, value in result.verdict.evidence.items()
                if name in EVIDENCE and value is not None]  # fmt: skip
    why = [Line(job_text.run_line(result), "bold"), Line(verdict_of(result))]
    verdicts.append(Headline(BOUND[bound], bound, about, why, evidence))

    # What may make everything below wrong stands first: what was lost, and warnings; all of it is with the input.
    doubts = [*map(Line, lost_lines(result)), *warnings(result.input.warnings)]
    lines = [*common(result), *doubts[:_DOUBTS]]
    if (more := len(doubts) - _DOUBTS) > 0:
        lines.append(Line(say_n("{n} more warning, with the input", "{n} more warnings, with the input", more), "dim"))

    undrawn = list(_undrawn(result, view))
    blocks.append(Block("timeline", say("timeline"), lines=undrawn, timeline=bool(view.pictures)))
    if devices:
        alone = apart_line(devices[0]) if len(devices) == 1 else None
        apart = [] if alone is None else [Line(alone, "dim")]
        blocks.append(Block("parts", say("where the time goes"), lines=apart, strips=[_strip(devices)]))
    if result.cluster is not None:
        blocks.append(_waiting(result, result.cluster, places))
    if result.findings:
        cards = finding_cards(result, places)
        blocks.append(Block("findings", say("findings"), cards=cards, after=list(_other_checks(result.findings))))
    if others := [chart for chart in charts if not chart.topic and chart.id not in (*_NEEDLESS, *_OF_COMPARISON)]:
        blocks.append(Block("charts", CHARTS, charts=others))
    for topic, words in TOPICS.items():
        drawn, tables = [chart for chart in charts if chart.topic == topic], _tables_about(topic, result)
        if drawn or tables:
            blocks.append(Block(topic, words, charts=drawn, tables=tables))
    read = list(input_lines(result, full=result.cluster is None))
    blocks.append(Block("input", say("input"), lines=read))
    return Sheet(title, facts, verdicts, lines, blocks, f"npuperf analyze {for_shell(result.input.path)}")


def _tables_about(topic: str, result: Result) -> list[Filled]:
    """Return a topic's tables that have rows, without what only repeats their other columns in words."""
    every = [fill(table, result, MOST_ROWS) for table in tables_about(topic)]
    return [made.with_only(lambda column, _: column.weight < EXTRA) for made in every if made.rows]


def comparison_headline(comparison: Comparison, devices: int, about: Message | None = None) -> Headline:
    """Return the verdict of a comparison, whose new side has so many devices."""
    lines = [Line(compared.verdict_line(comparison).content), *compared.step_lines(comparison, devices)]
    return Headline(OUTCOME[comparison.verdict], comparison.verdict, about, lines)


def waterfall_table(comparison: Comparison, rows: int, weight: int = EXTRA) -> list[Filled]:
    """Return where the difference of two runs comes from, in columns of less than a weight."""
    parts = compared.falls(comparison, rows)
    keys = [c.key for c in compared.FALLS.columns if c.unit != "bar" and c.weight < weight]
    table = compared.FALLS.only(*keys).titled(compared.falls_title(comparison))
    return [filled(table, parts)] if parts else []


def changed_findings(comparison: Comparison) -> list[Line]:
    """Return the findings that are new, gone or changed."""
    return [compared.finding_line(change) for change in comparison.findings if change.change != "same"]


def _comparison(result: Result, comparison: Comparison, charts: Sequence[Chart]) -> Block:
    """Return what changed: the set-ups, findings that are new or gone, the waterfall, and all that was measured."""
    waterfall = waterfall_table(comparison, MOST_ROWS)
    unsplit = comparison.waterfall and not waterfall
    lines = [Line(compared.unchanged(comparison), "dim")] if unsplit else []
    lines += [] if comparison.parity else compared.parity_lines(comparison, None)
    lines += [*changed_findings(comparison), *map(Line, comparison.aligned), *warnings(comparison.warnings)]
    tables = [*waterfall, *_tables_about("comparison", result)]
    return Block("comparison", say("what changed"), lines=lines, charts=charts, tables=tables)


def _strip(devices: Sequence[Device]) -> Strip:
    """Return the time of what is judged of all devices as one bar."""
    span = sum(device.window.span_ns for device in devices)
    title = say("{span} judged", span=ns(span))
    if len(devices) > 1:
        title = say("{span} judged, of {n} devices together", span=ns(span), n=Quantity(len(devices), "count"))
    untold = next((device for device in devices if device.clock.latency_reason), devices[0])
    parts, at = [], 0
    for field, words, colour in STEP_PARTS:
        time = sum(getattr(device.window, field) for device in devices)
        if time and span:
            about = words_of_part(untold, field, words)
            parts.append(StripPart(colour, about, ns(time), share(time / span), 100 * at / span, 100 * time / span))
        at += time
    return Strip(title, parts)


def _waiting(result: Result, cluster: Cluster, places: Whereabouts) -> Block:
    """Return why the ranks of a job wait for each other: the roots, and what the pipeline and the links say."""
    lines = [job_text.waiting_line(cluster)]
    if cluster.pipeline:
        lines += [job_text.pipeline_title(cluster.pipeline), *job_text.pipeline_lines(cluster)]
    lines += job_text.asides(cluster)
    cards = [_root_card(root, cluster, places) for root in job_text.roots_by_gain(cluster)]
    return Block("waiting", say("why ranks wait for each other"), list(map(Line, lines)), cards=cards)


def _other_checks(findings: Sequence[Finding]) -> Iterator[Line]:
    """Say what cannot be told, and which checks found no problem on any device."""
    lacking: dict[Message | None, list[Message]] = {}
    for f, _ in folded([*findings], "cannot_tell"):
        lacking.setdefault(f.needs, []).append(f.title)
    for needs, titles in lacking.items():
        checks = series(dict.fromkeys(titles))
        yield Line(say("{check}: {needs}", check=checks, needs=needs), label=say("cannot tell"))
    doubtful = {f.rule for f in findings if f.status != "ok"}
    fine = dict.fromkeys(f.title for f in findings if f.status == "ok" and f.rule not in doubtful)
    if fine:
        yield Line(series(fine), label=say("no problem"))


def _undrawn(result: Result, view: View) -> Iterator[Line]:
    """Say why there is no timeline, where there is none, or of which ranks there is one."""
    drawn, every = len(view.pictures), len(result.devices)
    bare = sum(not device.clock.tasks for device in result.devices)
    if not every and drawn:
        return  # a host alone
    if view.undrawn is not None:
        yield Line(
            chain(say("drawn: {n} of {all} devices", n=drawn, all=every) if every else None, view.undrawn), "bold"
        )
        return
    if bare == every and not result.hosts:
        yield Line(say("no timeline: this recording has no kernels with times to draw"), "dim")
    elif not drawn:
        yield Line(say("no timeline: it is drawn from the profile when that is analyzed; what is read back from "
                       "JSON has none"), "dim")  # fmt: skip
    elif drawn < every - bare:
        yield Line(say("drawn: {n} of {all} devices, those that stand out", n=drawn, all=every), "dim")
    elif bare:
        yield Line(say_n("drawn: {drawn} of {all} devices; {n} has no kernels with times",
                         "drawn: {drawn} of {all} devices; {n} have no kernels with times", bare, drawn=drawn,
                         all=every), "dim")  # fmt: skip


# -- Findings and roots of waiting as cards: what, how much, from which numbers, and what to do.

#: Of a list in the evidence, so many are shown.
_FEW: Final = 8
#: How numbers of the evidence are shown, by the ends of their names.
_UNITS: Final = (
    (("_ns", "_ns_per_step"), ns),
    (("_bytes", "bytes"), lambda value: size(round(value))),
    (("_share", "share", "_share_of_compute", "share_of_compute", "_share_of_busy_core_time"), share),
)  # fmt: skip
#: What may follow a command in a sentence.
_OPTIONS: Final = r"(?: --(?:rank|ranks|table|step) [\w,]+)*"
#: How a rule answered, and whether what it presupposes holds.
_ANSWERS: Final = {"problem": say("a problem"), "ok": say("no problem"), "cannot_tell": say("cannot tell")}
_CONDITIONS: Final = {True: say("holds"), False: say("does not hold"), None: say("not known")}
#: A variable that a sentence says to set: the same in every language.
_EXPORT: Final = r"\bexport [A-Z][A-Z0-9_]+=[\w.:/-]*\w"
_HOLDS: Final = {True: "holds", False: "fails", None: "unknown"}


def finding_cards(result: Result, places: Whereabouts) -> list[Card]:
    """Return the problems, each rule's once, the gravest of several devices' standing for all."""
    shown = result.devices if len(result.devices) > 1 else []
    first = {(d.rank, d.device): say("look first at {device}", device=device_name(d)) for d in shown}
    cards = []
    for f, devices in folded(result.findings, "problem"):
        about = (first.get((f.rank, f.device)), elsewhere(devices))
        refute = f.refute and say("not the cause if {condition}", condition=f.refute)
        source = f.source and say("source: {source}", source=f.source)
        advice = [step for step in (f.next, *f.alternatives) if step is not None]
        cards.append(Card(
            severity=WORDS[f.severity],
            mark=f.severity,
            title=f.title,
            about=chain(*about) if any(about) else None,
            gain=gain(f),
            share=min(max(f.gain_pct[1] if f.gain_pct else 0.0, 0.0), 100.0),
            facts=[  # what is one value, or a few, where it is known
                NamedValue(EVIDENCE[name], _shown(name, value))
                for name, value in f.evidence.items()
                if name in EVIDENCE and value not in (None, [], {}) and not _is_rows(value)
            ],
            tables=[
                _evidence_table(name, value)
                for name, value in f.evidence.items()
                if name in EVIDENCE and _is_rows(value)
            ],
            advice=advice,
            commands=_commands(advice),
            code=f.code,
            presupposed=[(_HOLDS[p.holds], p.what) for p in f.preconditions],
            excluded=[say("{advice}: {because}", advice=e.advice, because=e.because) for e in f.excluded],
            grounds=[part for part in (refute, source) if part],
            go=places.of_finding(f),
        ))  # fmt: skip
    return cards


def explained(document: Explanation, view: View) -> Sheet:
    """Return all about a rule: how it judges, then each of its answers with its numbers and what to do."""
    of = {"device": say("each device"), "ranks": say("the ranks of a job together"), "memory": say("recorded memory")}
    facts = [
        Line(document.title, label=say("rule")),
        *([] if document.asks is None else [Line(document.asks, label=say("what it does"))]),
        Line(series(of[one] for one in document.of), label=say("asked of")),
        *([] if document.relieves is None else [Line(BOUND[document.relieves], label=say("bears on"))]),
        *([Line(series(document.needs, "; "), label=say("needs"))] if document.needs else []),
        *([Line(series(document.requires, "; "), label=say("only where"))] if document.requires else []),
        Line(document.source, label=say("source")),
    ]
    limits = [
        Line(say("{name} = {value}: {source}", name=one.name, value=number(one.value), source=one.source)
             if one.value == one.shipped else
             say("{name} = {value} (shipped: {shipped}): {source}", name=one.name, value=number(one.value),
                 shipped=number(one.shipped), source=one.source))
        for one in document.limits
    ]  # fmt: skip
    answers = [(_answered(finding), [*_whole_answer(finding)]) for finding in document.findings]
    if not answers:
        answers = [(say("this run"), [Line(say("the rule was not asked of this run"))])]
    sections = [(say("thresholds"), limits), *answers] if limits else answers
    return sheet_of(say("{rule} in {path}", rule=document.rule, path=document.path), facts, sections=sections)


def _answered(finding: Finding) -> Message:
    """Return the title of an answer: of what it is, and which it is."""
    where = say("device {device}", device=finding.device)
    if finding.rank is not None:
        where = say("rank {rank}, device {device}", rank=finding.rank, device=finding.device)
    return say("{device}: {answer}", device=where, answer=_ANSWERS[finding.status])


def _whole_answer(finding: Finding) -> Iterator[Line]:
    """Yield the lines of a finding: the sentence, its gain, its numbers, what holds, and what to do."""
    yield Line(finding.title, "bold", WORDS[finding.severity] if finding.status == "problem" else None)
    if finding.status == "problem":
        yield Line(gain(finding))
    for name, value in finding.evidence.items():
        label = EVIDENCE.get(name) or say("{name}", name=name)
        if _is_rows(value):
            yield from (Line(_shown(name, row), label=label) for row in value[:_FEW])
        elif value not in (None, [], {}):
            yield Line(_shown(name, value), label=label)
    for holds, label in _CONDITIONS.items():
        met = [one.what for one in finding.preconditions if one.holds == holds]
        if met:
            yield Line(series(met), label=label)
    if finding.needs is not None:
        yield Line(finding.needs, "warning", say("missing"))
    elif finding.next is not None:
        yield from (Line(step, "good", say("do")) for step in (finding.next, *finding.alternatives))
    for ruled_out in finding.excluded:
        yield Line(say("{advice}: {because}", advice=ruled_out.advice, because=ruled_out.because), "dim",
                   say("not advised"))  # fmt: skip
    if finding.refute is not None:
        yield Line(say("not the cause if {condition}", condition=finding.refute))
    if finding.source is not None:
        yield Line(say("source: {source}", source=finding.source), "dim")
    if finding.code is not None:
        yield Line(finding.code, "code")


def _root_card(root: Root, cluster: Cluster, places: Whereabouts) -> Card:
    advice = [] if root.next is None else [root.next]
    return Card(
        severity=WORDS.get(root.kind, say("{kind}", kind=root.kind)),
        mark="root",
        title=job_text.root_line(root, cluster),
        about=job_text.taking_line(root),
        gain=say("{share} of all waiting, {wait} per step",
                 share=share(root.share), wait=ns(root.wait_ns / max(cluster.steps, 1))),
        share=min(100 * root.share, 100.0),
        advice=advice,
        commands=_commands(advice),
        go=places.usual(root.ranks or [one.rank for one in cluster.ranks]),
    )  # fmt: skip


def _commands(advice: Sequence[Message]) -> list[str]:
    """Return the commands in what is advised, fit to be pasted into a shell."""
    found = (text(step, lambda _: "") for step in advice)  # without names, which anybody may have written
    command = rf"{re.escape(analyze_command())}{_OPTIONS}|{_EXPORT}"
    return list(dict.fromkeys(match[0] for one in found for match in re.finditer(command, one)))


def _shown(name: str, value: Any) -> Parameter:
    if isinstance(value, bool):
        return WORDS["yes" if value else "no"]
    if isinstance(value, int | float):
        known = next((unit(value) for ends, unit in _UNITS if name.endswith(ends)), None)
        return known or (Quantity(value, "count") if isinstance(value, int) else number(value))
    if isinstance(value, dict):
        named = ((EVIDENCE.get(str(k), str(k)), _shown(name, v)) for k, v in value.items())
        return chain(*(say("{name} {value}", name=said, value=v) for said, v in named), by=", ")
    if isinstance(value, list | tuple):
        more = say_n("and {n} more", "and {n} more", len(value) - _FEW) if len(value) > _FEW else None
        return chain(*(say("{value}", value=_shown(name, item)) for item in value[:_FEW]), more, by=", ")
    return None if value is None else value if isinstance(value, str | Message) else str(value)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, dict) for item in value)


def _evidence_table(name: str, value: Sequence[dict[str, Any]]) -> EvidenceTable:
    few = value[:_FEW]
    headers = dict.fromkeys(str(key) for row in few for key in row)
    told = (key for key in headers if any(row.get(key) not in (None, "", [], {}) for row in few))
    used = tuple(key for key in told if key in EVIDENCE)
    rows = tuple(tuple(_shown(key, row.get(key)) for key in used) for row in few)
    return EvidenceTable(EVIDENCE[name], tuple(EVIDENCE[key] for key in used), rows, len(value) - len(rows))
