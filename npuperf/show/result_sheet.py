"""The page of an analysis: the verdict, what waits for what, findings, timeline, charts, and all tables by topic."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from npuperf.base.escape import for_shell
from npuperf.base.messages import Message, Parameter, Quantity, chain, ns, number, say, say_n, series, share, size
from npuperf.base.units import NS_PER_S
from npuperf.model.comparison import Comparison
from npuperf.model.job_result import Cluster, Root
from npuperf.model.result import Device, Finding, Result
from npuperf.show.analysis_report import apart_line, input_lines
from npuperf.show.analysis_tables import TABLES, TOPICS
from npuperf.show.comparison_text import (
    FALLS,
    falls,
    falls_title,
    finding_line,
    parity_lines,
    step_lines,
    unchanged,
    verdict_line,
)
from npuperf.show.formats import View
from npuperf.show.job_text import (
    clocks_line,
    job_line,
    links_line,
    notes_of,
    pipeline_lines,
    pipeline_title,
    replay_line,
    root_line,
    roots_by_gain,
    taking_line,
    waiting_line,
)
from npuperf.show.language import text
from npuperf.show.report import common, warnings
from npuperf.show.sheet import (
    CHARTS,
    MOST_ROWS,
    Block,
    Card,
    EvidenceTable,
    Grid,
    Headline,
    NamedValue,
    Sheet,
    Strip,
    StripPart,
    Whereabouts,
    grid_of,
    grid_of_filled,
    said,
)
from npuperf.show.svg import STEP_PARTS, words_of_part
from npuperf.show.tables import EXTRA, filled
from npuperf.show.words import (
    BOUND,
    OUTCOME,
    WORDS,
    Line,
    device_name,
    elsewhere,
    folded,
    gain,
    lost_lines,
    outside_lines,
    steps_line,
    verdict_of,
)

if TYPE_CHECKING:
    from npuperf.show.svg import Chart

# -- Findings and roots of waiting as cards: what, how much, from which numbers, and what to do.

#: Of a list in the evidence, so many are shown.
_FEW: Final = 8
#: How numbers of the evidence are shown, by the ends of their names.
_UNITS: Final = (
    (("_ns", "_ns_per_step"), ns),
    (("_bytes", "bytes"), lambda value: size(round(value))),
    (("_share", "share", "_share_of_compute", "share_of_compute", "_share_of_busy_core_time"), share),
)  # fmt: skip
#: A command in a sentence, and what of it stands for the path of what was analyzed.
_COMMAND: Final = re.compile(r"npuperf analyze PATH(?: --(?:rank|table|step) \w+)*")
_PATH: Final = re.compile(r"\bPATH\b")
_HOLDS: Final = {True: "holds", False: "fails", None: "unknown"}


def finding_cards(result: Result, places: Whereabouts) -> tuple[Card, ...]:
    """Return the problems, each rule's once, the gravest of several devices' standing for all."""
    several = len(result.devices) > 1
    shown = result.devices if several else []
    first = {(d.rank, d.device): say("look first at {device}", device=device_name(d)) for d in shown}
    return tuple(
        _finding_card(f, _about(first.get((f.rank, f.device)), elsewhere(devices)), result, places)
        for f, devices in folded(result.findings, "problem")
    )


def _about(*parts: Message | None) -> Message | None:
    return chain(*parts) if any(parts) else None


def _finding_card(f: Finding, about: Message | None, result: Result, places: Whereabouts) -> Card:
    refute = f.refute and say("not the cause if {condition}", condition=f.refute)
    source = f.source and say("source: {source}", source=f.source)
    advice = tuple(step for step in (f.next, *f.alternatives) if step is not None)
    return Card(
        severity=WORDS[f.severity],
        mark=f.severity,
        title=f.title,
        about=about,
        gain=gain(f),
        share=_greatest(f.gain_pct),
        facts=tuple(_finding_cards_facts(f.evidence)),
        tables=tuple(_tables(f.evidence)),
        advice=advice,
        commands=tuple(_commands(advice, result)),
        code=f.code,
        presupposed=tuple((_HOLDS[p.holds], p.what) for p in f.preconditions),
        excluded=tuple(say("{advice}: {because}", advice=e.advice, because=e.because) for e in f.excluded),
        grounds=tuple(part for part in (refute, source) if part),
        go=places.of_finding(f),
    )


def _greatest(gain_pct: tuple[float, float] | None) -> float:
    return min(max(gain_pct[1] if gain_pct else 0.0, 0.0), 100.0)


def root_cards(result: Result, cluster: Cluster) -> tuple[Card, ...]:
    """Return the roots of waiting, those first whose repair saves most."""
    return tuple(_root_card(root, cluster, result) for root in roots_by_gain(cluster))


def _root_card(root: Root, cluster: Cluster, result: Result) -> Card:
    advice = () if root.next is None else (root.next,)
    return Card(
        severity=WORDS.get(root.kind, say("{kind}", kind=root.kind)),
        mark="root",
        title=root_line(root, cluster),
        about=taking_line(root),
        gain=say("{share} of all waiting, {wait} per step",
                 share=share(root.share), wait=ns(root.wait_ns / max(cluster.steps, 1))),
        share=min(100 * root.share, 100.0),
        advice=advice,
        commands=tuple(_commands(advice, result)),
    )  # fmt: skip


def _commands(advice: Sequence[Message], result: Result) -> Iterator[str]:
    """Yield the commands in what is advised, with the path of what was analyzed, fit to be pasted into a shell."""
    found = (text(step, lambda _: "") for step in advice)  # without names, which anybody may have written
    for command in dict.fromkeys(match[0] for one in found for match in _COMMAND.finditer(one)):
        yield _PATH.sub(lambda _: for_shell(result.input.path), command)


def _finding_cards_facts(evidence: dict[str, Any]) -> Iterator[NamedValue]:
    """Yield what of the evidence is one value, or a few, where it is known; names are those of JSON."""
    for name, value in evidence.items():
        if value not in (None, [], {}) and not _is_rows(value):
            yield NamedValue(name, _shown(name, value))


def _shown(name: str, value: Any) -> Parameter:
    if isinstance(value, bool):
        return WORDS["yes" if value else "no"]
    if isinstance(value, int | float):
        known = next((unit(value) for ends, unit in _UNITS if name.endswith(ends)), None)
        return known or (Quantity(value, "count") if isinstance(value, int) else number(value))
    if isinstance(value, dict):
        return chain(*(say("{name} {value}", name=str(k), value=_shown(name, v)) for k, v in value.items()), by=", ")
    if isinstance(value, list | tuple):
        more = say_n("and {n} more", "and {n} more", len(value) - _FEW) if len(value) > _FEW else None
        return chain(*(say("{value}", value=_shown(name, item)) for item in value[:_FEW]), more, by=", ")
    return None if value is None else value if isinstance(value, str | Message) else str(value)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, dict) for item in value)


def _tables(evidence: dict[str, Any]) -> Iterator[EvidenceTable]:
    for name, value in evidence.items():
        if _is_rows(value):
            headers = tuple(dict.fromkeys(str(key) for row in value[:_FEW] for key in row))
            used = tuple(key for key in headers if any(row.get(key) not in (None, "", [], {}) for row in value[:_FEW]))
            rows = tuple(tuple(_shown(key, row.get(key)) for key in used) for row in value[:_FEW])
            yield EvidenceTable(name, used, rows, len(value) - len(rows))


#: Warnings that stand at the top.
_DOUBTS: Final = 3
#: Charts that the strip at the top and the cards of roots make needless.
_NEEDLESS: Final = ("partition", "roots")
#: Charts that stand with what changed.
_OF_COMPARISON: Final = ("waterfall", "interval", "differences")
#: Times before this are none of a clock that counts from 1970: such profiles count from the machine's start.
_CALENDAR: Final = 1_400_000_000 * NS_PER_S


def result_sheet(result: Result, view: View, charts: tuple[Chart, ...]) -> Sheet:
    """Return the page of an analysis."""
    places = Whereabouts(view.pictures, result.devices)
    name = PurePath(result.input.path).name or result.input.path
    title = say("{title}", title=name)
    if result.comparison is not None:
        title = say("{new} against {old}", new=result.comparison.new, old=result.comparison.old)
    return Sheet(
        title,
        tuple(_facts(result)),
        tuple(_verdicts(result)),
        said([*common(result), *_doubts(result)]),
        tuple(_blocks(result, view, charts, places)),
        f"npuperf analyze {for_shell(result.input.path)}",
    )


def _facts(result: Result) -> Iterator[Message]:
    yield say("{path} ({kind})", path=result.input.path, kind=result.input.kind)
    yield say("{tool} {version}", tool=result.tool.name, version=result.tool.version)
    begun = min((device.origin_ns for device in result.devices), default=0)
    if begun >= _CALENDAR:
        seconds = datetime.fromtimestamp(begun // NS_PER_S, timezone.utc)
        yield say("recorded {date} UTC", date=f"{seconds:%Y-%m-%d %H:%M}")
    chips = dict.fromkeys(device.soc for device in result.devices if device.soc)
    if chips:
        yield say("{chips}", chips=series(chips))


def _doubts(result: Result) -> Iterator[Line]:
    """Say first what may make everything below wrong: what was lost, and warnings; all of it is with the input."""
    doubts = [*map(Line, lost_lines(result)), *warnings(result.input.warnings)]
    yield from doubts[:_DOUBTS]
    more = len(doubts) - _DOUBTS
    if more > 0:
        yield Line(say_n("{n} more warning, with the input", "{n} more warnings, with the input", more), "dim")


def comparison_headline(comparison: Comparison, devices: int, about: Message | None = None) -> Headline:
    """Return the verdict of a comparison, whose new side has so many devices."""
    lines = [Line(verdict_line(comparison).content), *step_lines(comparison, devices)]
    return Headline(OUTCOME[comparison.verdict], comparison.verdict, about, said(lines))


def _verdicts(result: Result) -> Iterator[Headline]:
    comparison, verdict = result.comparison, result.verdict
    if comparison is not None:
        devices = 1 if result.digest is None else result.digest.devices
        yield comparison_headline(comparison, devices, say("against the baseline"))
    job = result.cluster
    steps = chain(job_line(job), *outside_lines(result.devices), by=" · ") if job else steps_line(result)
    facts = tuple(NamedValue(name, share(value)) for name, value in verdict.evidence.items())
    about = say("this run by itself") if comparison is not None else say("verdict")
    yield Headline(BOUND[verdict.bound], verdict.bound, about,
                  said([Line(steps, "bold"), Line(verdict_of(result))]), facts)  # fmt: skip


def _blocks(result: Result, view: View, charts: tuple[Chart, ...], places: Whereabouts) -> Iterator[Block]:
    if result.comparison is not None:
        about = tuple(chart for chart in charts if chart.id in _OF_COMPARISON)
        yield replace(_comparison(result, result.comparison, places), charts=about)
    if result.devices:
        yield Block("parts", say("where the time goes"), lines=said(_apart(result)), strips=(_strip(result),))
    if result.cluster is not None:
        yield _waiting(result, result.cluster)
    if result.findings:
        cards, checks = finding_cards(result, places), said(_other_checks(result.findings))
        none = said([] if cards else [Line(say("no problem: none"), "dim")])
        yield Block("findings", say("findings"), lines=none, cards=cards, after=checks)
    yield Block("timeline", say("timeline"), lines=said(_undrawn(result, view)), timeline=bool(view.pictures))
    others = tuple(chart for chart in charts if chart.id not in (*_NEEDLESS, *_OF_COMPARISON))
    if others:
        yield Block("charts", CHARTS, charts=others)
    known = {table.name: table for table in TABLES}
    for id_, title, names in TOPICS:
        found = (grid_of(known[name], result, places.row) for name in names)
        grids = tuple(grid for grid in found if grid is not None)
        if grids:
            yield Block(id_, title, grids=grids)
    yield Block("input", say("input"), lines=said(input_lines(result, full=result.cluster is None)))


def waterfall_grid(comparison: Comparison, rows: int, weight: int = EXTRA) -> Grid | None:
    """Return where the difference of two runs comes from, in columns of less than a weight; None where in nothing."""
    keys = (column.key for column in FALLS.columns if column.unit != "bar" and column.weight < weight)
    return grid_of_filled(filled(FALLS.only(*keys).titled(falls_title(comparison)), falls(comparison, rows)))


def changed_findings(comparison: Comparison) -> Iterator[Line]:
    """Yield the findings that are new, gone or changed."""
    return map(finding_line, (change for change in comparison.findings if change.change != "same"))


def _comparison(result: Result, comparison: Comparison, places: Whereabouts) -> Block:
    """Return what changed: the set-ups, findings that are new or gone, the waterfall, and all that was measured."""
    waterfall = waterfall_grid(comparison, MOST_ROWS)
    known = {table.name: table for table in TABLES}
    others = (grid_of(known[name], result, places.row) for name in ("parity", "compared", "shifts"))
    lines = [*([] if waterfall or not comparison.waterfall else [Line(unchanged(comparison), "dim")])]
    lines += [] if comparison.parity else parity_lines(comparison, None)
    lines += [*changed_findings(comparison), *map(Line, comparison.aligned), *warnings(comparison.warnings)]
    grids = tuple(grid for grid in (waterfall, *others) if grid is not None)
    return Block("comparison", say("what changed"), lines=said(lines), grids=grids)


def _apart(result: Result) -> Iterator[Line]:
    """Say what one rank alone cannot tell."""
    if len(result.devices) == 1 and (line := apart_line(result.devices[0].window)) is not None:
        yield Line(line, "dim")


def _strip(result: Result) -> Strip:
    """Return the time of what is judged of all devices as one bar."""
    devices = result.devices
    span = sum(device.window.span_ns for device in devices)
    title = say("{span} judged", span=ns(span))
    if len(devices) > 1:
        title = say("{span} judged, of {n} devices together", span=ns(span), n=Quantity(len(devices), "count"))
    return Strip(title, tuple(_strip_parts(devices, span)))


def _strip_parts(devices: Sequence[Device], span: int) -> Iterator[StripPart]:
    at = 0
    untold = next((device for device in devices if device.clock.latency_reason), devices[0])
    for field, words, colour in STEP_PARTS:
        time = sum(getattr(device.window, field) for device in devices)
        if time and span:
            title = words_of_part(untold, field, words)
            start, width = 100 * at / span, 100 * time / span
            yield StripPart(colour, title, ns(time), share(time / span), start, width)
        at += time


def _waiting(result: Result, cluster: Cluster) -> Block:
    """Return why the ranks of a job wait for each other: the roots, and what the pipeline and the links say."""
    lines: list[Parameter] = [waiting_line(cluster)]
    if cluster.pipeline:
        lines += [pipeline_title(cluster.pipeline), *pipeline_lines(cluster)]
    lines += filter(None, (replay_line(cluster), links_line(cluster), clocks_line(cluster), *notes_of(cluster)))
    return Block("waiting", say("why ranks wait for each other"), said(map(Line, lines)),
                 cards=root_cards(result, cluster))  # fmt: skip


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
    if bare == every:
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
