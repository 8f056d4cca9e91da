"""The page of an analysis: the verdict, what waits for what, findings, timeline, charts, and all tables by topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from npuperf.documents.analysis import Device, Finding, Result
from npuperf.documents.cluster import Cluster
from npuperf.documents.comparison import Comparison
from npuperf.escape import for_shell
from npuperf.messages import Message, Parameter, Quantity, chain, ns, say, say_n, series, share
from npuperf.render import View
from npuperf.render.analysis_page import apart_line, input_lines
from npuperf.render.analysis_tables import TABLES
from npuperf.render.cluster_words import (
    clocks_line,
    job_line,
    links_line,
    notes_of,
    pipeline_lines,
    pipeline_title,
    replay_line,
    waiting_line,
)
from npuperf.render.comparison_words import (
    FALLS,
    falls,
    falls_title,
    finding_line,
    parity_lines,
    step_lines,
    unchanged,
    verdict_line,
)
from npuperf.render.page import Line, common, warnings
from npuperf.render.tables import filled
from npuperf.render.words import BOUND, OUTCOME, folded, lost_lines, outside_lines, steps_line, verdict_of
from npuperf.units import NS_PER_S
from npuperf.webpage.chart import STEP_PARTS, words_of_part
from npuperf.webpage.finding_cards import finding_cards, root_cards
from npuperf.webpage.grids import MOST_ROWS, grid_of, grid_of_filled
from npuperf.webpage.sheet import CHARTS, Block, Headline, NamedValue, Sheet, Strip, StripPart, said
from npuperf.webpage.whereabouts import Whereabouts

if TYPE_CHECKING:
    from npuperf.webpage.chart import Chart

#: Tables by what they are about, in the order of the page.
TOPICS: Final = (
    ("job", say("the job: ranks, groups, links"),
     ("roots", "ranks", "stages", "groups", "collectives", "links", "clocks", "experts")),
    ("time", say("time: phases and steps"),
     ("devices", "phases", "typical", "steps", "streams", "what_if")),
    ("host", say("waiting: what for"), ("blame", "dependencies", "syncs")),
    ("operators", say("operators and kernels"), ("operators", "kernels", "counters")),
    ("cores", say("cores"),
     ("cores", "core_time", "idle_kernels", "idle_types", "together", "pairs", "contention", "core_limits",
      "super_kernels", "super_kernel_checks")),
    ("exporter", say("what the exporter says itself"), ("vendor", "suggestions")),
)  # fmt: skip
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


def _verdicts(result: Result) -> Iterator[Headline]:
    comparison, verdict = result.comparison, result.verdict
    if comparison is not None:
        line = verdict_line(comparison)
        devices = 1 if result.digest is None else result.digest.devices
        lines = said([Line(line.content), *step_lines(comparison, devices)])
        yield Headline(OUTCOME[comparison.verdict], comparison.verdict, say("against the baseline"), lines)
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


def _comparison(result: Result, comparison: Comparison, places: Whereabouts) -> Block:
    """Return what changed: the set-ups, findings that are new or gone, the waterfall, and all that was measured."""
    rows = falls(comparison, MOST_ROWS)
    keys = (column.key for column in FALLS.columns if column.unit != "bar")
    waterfall = grid_of_filled(filled(FALLS.only(*keys).titled(falls_title(comparison)), rows))
    known = {table.name: table for table in TABLES}
    others = (grid_of(known[name], result, places.row) for name in ("parity", "compared", "shifts"))
    lines = [*([] if rows or not comparison.waterfall else [Line(unchanged(comparison), "dim")])]
    lines += [] if comparison.parity else parity_lines(comparison, None)
    lines += map(finding_line, (change for change in comparison.findings if change.change != "same"))
    lines += [*map(Line, comparison.aligned), *warnings(comparison.warnings)]
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
