"""The page of an analysis, for Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from npuperf.documents.analysis import Finding, Input, Result
from npuperf.messages import Message, chain, ns, say, series, share
from npuperf.render import View
from npuperf.render.analysis_tables import TABLES
from npuperf.render.page import Line, Page, Section, gate_lines, problem_lines
from npuperf.render.partition_rows import PARTITION_TABLE, partition_rows
from npuperf.render.steps_line import steps_line
from npuperf.render.tables import Filled, fill, filled
from npuperf.render.words import BOUND, WORDS, device_name, gain, title_of, verdict_of

_ELSEWHERE = ("findings", "devices")


def page(result: Result, view: View) -> Page:
    """Return everything that an analysis says."""
    verdict = Line(verdict_of(result), "bold", BOUND[result.verdict.bound])
    evidence = series(say("{name} {share}", name=k, share=share(v)) for k, v in result.verdict.evidence.items())
    lines = [Line(steps_line(result)), verdict, *([Line(evidence)] if evidence.items else [])]
    lines += [*gate_lines(result), *problem_lines(result)]
    tables = [fill(table, result, view.top) for table in TABLES if table.name not in _ELSEWHERE]
    sections = [Section(say("findings"), list(_findings(result.findings))), Section(say("input"), list(_input(result)))]
    return Page(say("{title}", title=title_of(result)), lines, [*_partitions(result), *tables], sections, [])


def _partitions(result: Result) -> Iterator[Filled]:
    for device in result.devices:
        title = say("where the time goes on {device}", device=device_name(device))
        yield filled(PARTITION_TABLE.only("part", "ns", "share").titled(title), partition_rows(device, 0))


def _findings(findings: list[Finding]) -> Iterator[Line]:
    for f in findings:
        if f.status == "problem":
            next_ = say("next: {step}", step=f.next)
            yield Line(chain(f.title, gain(f), next_), "bold", WORDS[f.severity])
        elif f.status == "cannot_tell":
            yield Line(say("cannot tell, {check}: {needs}", check=f.title, needs=f.needs))
    fine = dict.fromkeys(f.title for f in findings if f.status == "ok")
    yield Line(say("no problem: {checks}", checks=series(fine)) if fine else say("no problem: none"))


def _input(result: Result) -> Iterator[Line]:
    source: Input = result.input
    yield Line(say("{path} ({kind})", path=source.path, kind=source.kind))
    yield from (Line(say("read {file}", file=file)) for file in source.files)
    for x in source.lost:
        yield Line(say("lost {rows} in {file}: {reason}", rows=x.rows, file=x.file, reason=x.reason))
    yield from (Line(say("warning: {warning}", warning=warning)) for warning in source.warnings)
    yield from (Line(say("missing: {what}", what=what)) for what in source.missing)
    yield Line(say("calibration: {clocks}", clocks=_calibration(result)))
    limits = series(f"{name} {value}" for name, value in result.thresholds.items())
    yield Line(say("thresholds: {limits}", limits=limits))


def _calibration(result: Result) -> Message:
    for device in result.devices[:1]:
        clock = device.clock
        return say(
            "launch latency {latency}, clock skew {skew}, launches known for {known} of tasks",
            latency=ns(clock.launch_latency_ns),
            skew=ns(clock.skew_ns),
            known=share(clock.launches / clock.tasks if clock.tasks else None),
        )
    return say("none")
