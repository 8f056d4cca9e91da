"""A document as a page: a title, lines, tables, and what to mind. Text and Markdown lay it out in their own ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.base.escape import for_markdown, for_markdown_line, for_screen, visible
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
from npuperf.show.formats import View, nearest
from npuperf.show.language import lines_of, text
from npuperf.show.tables import Filled, fill, table_named, tables_of
from npuperf.show.words import GATE, WARNS, Line


class Section(Struct, frozen=True):
    """Lines under a title, in Markdown a list."""

    title: Message
    lines: list[Line]


class Page(Struct, frozen=True):
    """What a document says to people, in the order in which it is shown."""

    title: Message = NOTHING
    lines: list[Line] = field(default_factory=list)
    tables: list[Filled] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    notes: list[Line] = field(default_factory=list)


_PAGES: Final[dict[str, str]] = {
    "Result": "npuperf.show.analysis_page:page",
    "Tuning": "npuperf.show.tuning_pages:tuning",
    "BankChanges": "npuperf.show.tuning_pages:bank_changes",
    "ResultChanges": "npuperf.show.tuning_pages:result_changes",
    "TunePlan": "npuperf.show.tuning_pages:plan",
    "Merged": "npuperf.show.tuning_pages:merged",
    "RolledBack": "npuperf.show.tuning_pages:rolled_back",
    "Recorded": "npuperf.show.recording_pages:recorded",
    "RecordingPlan": "npuperf.show.recording_pages:plan",
    "Document": "npuperf.show.page:plain_page",
}


def page_of(document: Document, view: View) -> Page:
    """Return a document's page; with ``view.table`` it has nothing but this table."""
    if view.table is not None:
        return Page(tables=[fill(table_named(type(document), view.table), document, view.top)])
    make: Callable[[Document, View], Page] = nearest(type(document), _PAGES)
    return make(document, view)


def plain_page(document: Document, view: View) -> Page:
    """Return the page of a document of which nothing special is known: its fields and its lists."""
    whole, *lists = tables_of(type(document))
    facts = [
        Line(column.shown(cell), label=column.header)
        for column in whole.columns
        if (cell := column.cell((document,))) not in (None, "")
    ]
    tables = [fill(table, document, view.top) for table in lists]
    return Page(say("{kind}", kind=type(document).__name__), [*facts, *common(document)], tables)


def common(document: Document) -> list[Line]:
    """Return the lines that every document has: what its gates found, and what went wrong."""
    return [*map(gate_line, document.gates), *problem_lines(document)]


def gate_line(gate: Gate) -> Line:
    """Return what a gate found: why it went so, else its value; of a failure also what explains it."""
    styles = {"pass": "good", "fail": "bad", "cannot_tell": "warning"}
    only_warns = gate.level == "warn" and gate.status == "fail"
    word, style = (WARNS, "warning") if only_warns else (GATE[gate.status], styles[gate.status])
    found = held_against(gate) if gate.baseline is not None or gate.runs else gate.reason or quantity(gate)
    condition = say("{condition}: {found}", condition=gate.expr, found=found)
    said = say("gate {status}  {condition}", status=word, condition=condition)
    why = None
    if gate.explained_by:
        from npuperf.show.comparison_text import part_line  # of no use to who compares nothing

        why = say("explained by {parts}", parts=series(map(part_line, gate.explained_by), "; "))
    return Line(chain(said, why, by="\n  "), style)


def held_against(gate: Gate) -> Message:
    """Say what a gate found beside its baseline, by how much they differ, and how often it failed."""
    value, baseline, limit = (quantity(replace(gate, value=value)) for value in (gate.value, gate.baseline, gate.limit))
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
    """Return what is said beside a table: the lines of a document's page, plain, one to a line."""
    page = page_of(document, View(full=view.full, top=view.top))
    return _joined([*page.lines, *page.notes])


def render_gates(document: Document, view: View) -> str:
    """Return what is not said in any table of an analysis: gates, and what went wrong."""
    return _joined(common(document))


def _joined(lines: list[Line]) -> str:
    said = (said if of.label is None else f"{text(of.label)}  {said}" for of in lines for said in lines_of(of.content))
    return "".join(f"{for_screen(line)}\n" for line in said)


# -- Markdown: any document's page, for merge requests and issue trackers.

_ROWS = 10
_PAGE: Final = say("the whole report, with a timeline")


def render_markdown(document: Document, view: View) -> str:
    """Return a document's page; long tables are cut and say so."""
    top = view.top or (None if view.full or view.table else _ROWS)
    page = page_of(document, View(full=view.full, top=top, table=view.table))
    blocks = [f"# npuperf: {for_markdown(text(page.title))}"] if text(page.title) else []
    blocks += [f"[{for_markdown(text(_PAGE))}]({view.page})"] if view.page else []
    for is_code, group in groupby(page.lines, lambda line: line.style == "code"):
        if is_code:  # in a fence that nothing in it ends
            content = "\n".join(visible(text(line.content)) for line in group)
            fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", content))])
            blocks.append(f"{fence}sh\n{content}\n{fence}")
        else:
            blocks += map(_line, group)
    blocks += [table_markdown(filled) for filled in page.tables if filled.rows]
    for section in page.sections:
        blocks += [f"## {for_markdown(text(section.title))}", "\n".join(f"- {_line(line)}" for line in section.lines)]
    if page.notes:
        blocks.append("\n".join(f"- {_line(line)}" for line in page.notes))
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
