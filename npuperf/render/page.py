"""A document as a page: a title, lines, tables, and what to mind. Text and Markdown lay it out in their own ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.documents.document import Document
from npuperf.documents.gates import Gate, quantity
from npuperf.escape import for_screen
from npuperf.messages import (
    NOTHING,
    Message,
    Parameter,
    Quantity,
    chain,
    ns_change,
    number,
    say,
    say_n,
    series,
    share_change,
)
from npuperf.render import View, nearest
from npuperf.render.language import lines_of, text
from npuperf.render.tables import Filled, fill, table_named, tables_of
from npuperf.render.words import GATE, WARNS


class Line(Struct, frozen=True):
    """One line of a page. ``label`` stands before it, in its style; without one the whole line has it.

    Styles: bold, dim, good, bad, warning, or code, which is to be pasted and never wrapped nor shortened.
    """

    content: Parameter
    style: str = ""
    label: Message | None = None


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
    "Result": "npuperf.render.analysis_page:page",
    "Tuning": "npuperf.render.tuning_pages:tuning",
    "BankChanges": "npuperf.render.tuning_pages:bank_changes",
    "ResultChanges": "npuperf.render.tuning_pages:result_changes",
    "TunePlan": "npuperf.render.tuning_pages:plan",
    "Merged": "npuperf.render.tuning_pages:merged",
    "RolledBack": "npuperf.render.tuning_pages:rolled_back",
    "Recorded": "npuperf.render.recording_pages:recorded",
    "RecordingPlan": "npuperf.render.recording_pages:plan",
    "Document": "npuperf.render.page:plain_page",
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
    return Line(chain(said, _why(gate), by="\n  "), style)


def held_against(gate: Gate) -> Message:
    """Say what a gate found beside its baseline, by how much they differ, and how often it failed."""
    value, baseline, limit = (quantity(replace(gate, value=value)) for value in (gate.value, gate.baseline, gate.limit))
    found = say("{value}", value=value) if value is not None else None
    if value is not None and baseline is not None:
        found = say("{value}, baseline {baseline}", value=value, baseline=baseline)
        if limit is not None:
            found = say("{value}, baseline {baseline}, limit {limit}", value=value, baseline=baseline, limit=limit)
    apart = say("it differs by {interval}", interval=_apart(gate)) if gate.interval is not None else None
    runs = None
    if gate.runs and not (gate.status == "pass" and gate.runs[-1]):  # else the reason has said it
        runs = say_n("the condition held in {failed} of {n} run",
                     "the condition held in {failed} of the last {n} runs", len(gate.runs),
                     failed=sum(gate.runs))  # fmt: skip
    return chain(found, apart, gate.reason, runs)


def _apart(gate: Gate) -> Message | Quantity:
    """Return by how much a gate's value differs from the baseline's, to be shown."""
    low, high = gate.interval or (0.0, 0.0)
    if gate.unit not in ("ns", "percent"):
        return say("{low} to {high}", low=number(low), high=number(high))
    return ns_change(low, high) if gate.unit == "ns" else share_change(low / 100, high / 100)


def _why(gate: Gate) -> Message | None:
    """Say which parts of a step explain that a gate failed."""
    if not gate.explained_by:
        return None
    from npuperf.render.comparison_words import part_line  # of no use to who compares nothing

    return say("explained by {parts}", parts=series((part_line(part) for part in gate.explained_by), "; "))


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
