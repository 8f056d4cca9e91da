"""A document as a report: a title, lines, tables, and what to mind. Text and Markdown lay it out in their own ways."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final, Literal

from msgspec import Struct, field

from npuperf.base.escape import for_markdown, for_markdown_line, for_screen, for_xml, visible
from npuperf.base.messages import (
    NOTHING,
    Message,
    Parameter,
    chain,
    ns_change,
    number,
    say,
    say_n,
    series,
    share_change,
)
from npuperf.model.document import Document, Gate, quantity
from npuperf.model.result import Result
from npuperf.show.formats import View, nearest
from npuperf.show.language import lines_of, speaking, text
from npuperf.show.tables import Filled, fill, table_named, tables_of
from npuperf.show.words import GATE, WARNS, Line


class Section(Struct, frozen=True):
    """Lines under a title, in Markdown a list."""

    title: Message
    lines: list[Line]


class TextReport(Struct, frozen=True):
    """What a document says to people, in the order in which it is shown."""

    title: Message = NOTHING
    lines: list[Line] = field(default_factory=list)
    tables: list[Filled] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    notes: list[Line] = field(default_factory=list)


_REPORTS: Final[dict[str, str]] = {
    "Result": "npuperf.show.analysis_report:report",
    "Tuning": "npuperf.show.verb_reports:tuning",
    "BankChanges": "npuperf.show.verb_reports:bank_changes",
    "ResultChanges": "npuperf.show.verb_reports:result_changes",
    "TunePlan": "npuperf.show.verb_reports:tune_plan",
    "Merged": "npuperf.show.verb_reports:merged",
    "RolledBack": "npuperf.show.verb_reports:rolled_back",
    "Recorded": "npuperf.show.verb_reports:recorded",
    "RecordingPlan": "npuperf.show.verb_reports:recording_plan",
    "Document": "npuperf.show.report:plain_report",
}


def report_of(document: Document, view: View) -> TextReport:
    """Return a document's report; with ``view.table`` it has nothing but this table."""
    if view.table is not None:
        return TextReport(tables=[fill(table_named(type(document), view.table), document, view.top)])
    make: Callable[[Document, View], TextReport] = nearest(type(document), _REPORTS)
    return make(document, view)


def plain_report(document: Document, view: View) -> TextReport:
    """Return the report of a document of which nothing special is known: its fields and its lists."""
    whole, *lists = tables_of(type(document))
    facts = [
        Line(column.shown(cell), label=column.header)
        for column in whole.columns
        if (cell := column.cell((document,))) not in (None, "")
    ]
    tables = [fill(table, document, view.top) for table in lists]
    return TextReport(say("{kind}", kind=type(document).__name__), [*facts, *common(document)], tables)


def common(document: Document) -> list[Line]:
    """Return the lines that every document has: what its gates found, and what went wrong."""
    return [*map(gate_line, document.gates), *problem_lines(document)]


def gate_line(gate: Gate) -> Line:
    """Return what a gate found: why it went so, else its value; of a failure also what explains it."""
    styles = {"pass": "good", "fail": "bad", "cannot_tell": "warning"}
    only_warns = gate.level == "warn" and gate.status == "fail"
    word, style = (WARNS, "warning") if only_warns else (GATE[gate.status], styles[gate.status])
    found = (
        held_against(gate) if gate.baseline is not None or gate.runs else gate.reason or quantity(gate.value, gate.unit)
    )
    condition = say("{condition}: {found}", condition=gate.expr, found=found)
    said = say("gate {status}  {condition}", status=word, condition=condition)
    why = None
    if gate.explained_by:
        from npuperf.show.comparison_text import part_line  # of no use to who compares nothing

        why = say("explained by {parts}", parts=series(map(part_line, gate.explained_by), "; "))
    return Line(chain(said, why, by="\n  "), style)


def held_against(gate: Gate) -> Message:
    """Say what a gate found beside its baseline, by how much they differ, and how often it failed."""
    value, baseline, limit = (quantity(one, gate.unit) for one in (gate.value, gate.baseline, gate.limit))
    found = say("{value}", value=value) if value is not None else None
    if value is not None and baseline is not None:
        found = say("{value}, baseline {baseline}", value=value, baseline=baseline)
        if limit is not None:
            found = say("{value}, baseline {baseline}, limit {limit}", value=value, baseline=baseline, limit=limit)
    apart = runs = None
    if gate.interval is not None:
        low, high = gate.interval
        by: Parameter = say("{low} to {high}", low=number(low), high=number(high))
        if gate.unit in ("ns", "percent"):
            by = ns_change(low, high) if gate.unit == "ns" else share_change(low / 100, high / 100)
        apart = say("it differs by {interval}", interval=by)
    if gate.runs and not (gate.status == "pass" and gate.runs[-1]):  # else the reason has said it
        runs = say_n("the condition held in {failed} of {n} run",
                     "the condition held in {failed} of the last {n} runs", len(gate.runs),
                     failed=sum(gate.runs))  # fmt: skip
    return chain(found, apart, gate.reason, runs)


def problem_lines(document: Document) -> list[Line]:
    """Return what went wrong, if anything did, and what to do."""
    problem = document.problem
    if problem is None:
        return []
    hint = problem.hint and say("next: {hint}", hint=problem.hint)
    return [Line(chain(say("problem: {what}", what=problem.what), hint, by="\n  "), "bad")]


def warnings(messages: Iterable[Message]) -> list[Line]:
    """Return warnings, one line each."""
    return [Line(say("warning: {warning}", warning=warning), "warning") for warning in messages]


def render_notes(document: Document, view: View) -> str:
    """Return what is said beside a table: the lines of a document's report, plain, one to a line."""
    report = report_of(document, View(full=view.full, top=view.top))
    return _joined([*report.lines, *report.notes])


def render_gates(document: Document, view: View) -> str:
    """Return what is not said in any table of an analysis: gates, and what went wrong."""
    return _joined(common(document))


def _joined(lines: list[Line]) -> str:
    said = (said if of.label is None else f"{text(of.label)}  {said}" for of in lines for said in lines_of(of.content))
    return "".join(f"{for_screen(line)}\n" for line in said)


# -- Markdown: any document's report, for merge requests and issue trackers.

_ROWS = 10
_PAGE: Final = say("the whole report, with a timeline")


def render_markdown(document: Document, view: View) -> str:
    """Return a document's report; long tables are cut and say so."""
    top = view.top or (None if view.full or view.table else _ROWS)
    report = report_of(document, View(full=view.full, top=top, table=view.table))
    blocks = [f"# npuperf: {for_markdown(text(report.title))}"] if text(report.title) else []
    blocks += [f"[{for_markdown(text(_PAGE))}]({view.page})"] if view.page else []
    for is_code, group in groupby(report.lines, lambda line: line.style == "code"):
        if is_code:  # in a fence that nothing in it ends
            content = "\n".join(visible(text(line.content)) for line in group)
            fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", content))])
            blocks.append(f"{fence}sh\n{content}\n{fence}")
        else:
            blocks += map(_line, group)
    blocks += [table_markdown(filled) for filled in report.tables if filled.rows]
    for section in report.sections:
        blocks += [f"## {for_markdown(text(section.title))}", "\n".join(f"- {_line(line)}" for line in section.lines)]
    if report.notes:
        blocks.append("\n".join(f"- {_line(line)}" for line in report.notes))
    return "\n\n".join(blocks) + "\n"


def _line(line: Line) -> str:
    content = " ".join(lines_of(line.content))
    if line.label is None:
        return for_markdown_line(content)
    return f"**{for_markdown(text(line.label))}** {for_markdown(content)}"


def table_markdown(filled: Filled) -> str:
    """Return a table under its title."""
    filled = filled.without_empty()
    columns = filled.table.columns

    def row(cells: Iterable[str]) -> str:
        return "| " + " | ".join(map(for_markdown, cells)) + " |"

    lines = [f"## {for_markdown(filled.title)}", "", row(column.title for column in columns)]
    lines.append("|" + "|".join("---" if column.written else "---:" for column in columns) + "|")
    lines += (row(column.shown(cell) for column, cell in zip(columns, cells, strict=True)) for cells in filled.rows)
    return "\n".join(lines)


# -- JUnit's XML, which dashboards of pipelines read: a test case for every gate.

_Element = Literal["failure", "error", "system-out"]
_ELEMENTS: Final[dict[str, _Element]] = {"pass": "system-out", "fail": "failure", "cannot_tell": "error"}


class _Case(Struct, frozen=True):
    """One test case: what it says, and in which element."""

    name: str
    element: _Element
    lines: list[str]


def render_junit(document: Document, view: View) -> str:
    """Return one suite with a case for what went wrong, for the comparison, and for each gate.

    A gate that cannot be judged is an error, one that only warns passes and says so in its output. The comparison's
    verdict alone fails nothing: gates do. It is English in any language: who reads it knows cases by their names.
    """
    seen: Counter[str] = Counter()
    cases = []
    with speaking("en"):
        for case in _cases(document):  # under different names: dashboards take those of one name for one
            seen[case.name] += 1
            again = "" if seen[case.name] == 1 else f" ({seen[case.name]})"
            cases.append(_Case(f"{case.name}{again}", case.element, case.lines))
    found = Counter(case.element for case in cases)
    counts = f'tests="{len(cases)}" failures="{found["failure"]}" errors="{found["error"]}" skipped="0"'
    return "\n".join(
        (
            '<?xml version="1.0" encoding="UTF-8"?>',
            f"<testsuites {counts}>",
            f'<testsuite name="npuperf" {counts}>',
            *map(_xml, cases),
            "</testsuite>",
            "</testsuites>\n",
        )
    )


def _cases(document: Document) -> Iterator[_Case]:
    problem = document.problem
    if problem is not None:
        yield _Case(text(say("problem")), "error", lines_of(problem.message))
    comparison = document.comparison if isinstance(document, Result) else None
    if comparison is not None:
        from npuperf.show.comparison_text import step_lines, verdict_line  # of no use without a comparison

        told = (verdict_line(comparison), *step_lines(comparison))
        lines = [line for of in told for line in lines_of(say("{label}: {text}", label=of.label, text=of.content))]
        yield _Case(text(say("comparison with {baseline}", baseline=comparison.old)), "system-out", lines)
    for gate in document.gates:
        element = _ELEMENTS[gate.status] if gate.level == "fail" else "system-out"
        yield _Case(gate.expr, element, lines_of(gate_line(gate).content))
    if problem is None and comparison is None and not document.gates:  # an empty suite counts as none
        yield _Case(text(say("no gates")), "system-out", lines_of(say("nothing was asked of this run")))


def _xml(case: _Case) -> str:
    said = "\n".join(map(for_xml, case.lines))
    message = "" if case.element == "system-out" else f' message="{for_xml(case.lines[0])}"'
    return (
        f'<testcase classname="npuperf" name="{for_xml(case.name)}">'
        f"<{case.element}{message}>{said}</{case.element}></testcase>"
    )
