"""Any document's sheet as Markdown, its gates as JUnit's XML, and what is said beside a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from npuperf.base.escape import for_markdown, for_markdown_line, for_screen, for_xml, visible
from npuperf.base.messages import Parameter, say
from npuperf.model.document import Document
from npuperf.model.result import Result
from npuperf.show.formats import View
from npuperf.show.language import lines_of, speaking, text
from npuperf.show.sheet import common, gate_line, report_of
from npuperf.show.tables import BLANK, Filled
from npuperf.show.words import Line


def render_notes(document: Document, view: View) -> str:
    """Return what is said beside a table: the lines of a document's report, plain, one to a line."""
    sheet = report_of(document, View(full=view.full, top=view.top))
    return _joined([*sheet.lines, *(line for block in sheet.blocks if block.id == "notes" for line in block.lines)])


def render_gates(document: Document, view: View) -> str:
    """Return what is not said in any table of an analysis: gates, and what went wrong."""
    return _joined(common(document))


def _joined(lines: list[Line]) -> str:
    said = (said if of.label is None else f"{text(of.label)}  {said}" for of in lines for said in of.lines)
    return "".join(f"{for_screen(line)}\n" for line in said)


# -- Markdown: any document's report, for merge requests and issue trackers.

_ROWS = 10
_PAGE: Final = say("the whole report, with a timeline")
_REST: Final = say("the whole report")


def render_markdown(document: Document, view: View) -> str:
    """Return a document's report; long tables are cut and say so. ``view.brief``: the gist, and the rest folded."""
    top = view.top or (None if view.full or view.table else _ROWS)
    sheet = report_of(document, View(full=view.full, top=top, table=view.table))
    blocks = [f"# npuperf: {for_markdown(text(sheet.title))}"] if text(sheet.title) else []
    blocks += [f"[{for_markdown(text(_PAGE))}]({view.page})"] if view.page else []
    if view.brief and isinstance(document, Result):
        from npuperf.show.brief import advice_lines, beside, brief_of, lines

        brief = brief_of(document)
        blocks += map(_line, lines(brief, beside(document)))
        blocks += ["\n".join(f"- {_line(line)}" for line in advice_lines(brief))] if brief.advice else []
        blocks.append(f"<details><summary>{for_markdown(text(_REST))}</summary>")
    for is_code, group in groupby(sheet.lines, lambda line: line.style == "code"):
        if is_code:  # in a fence that nothing in it ends
            content = "\n".join(visible(text(line.content)) for line in group)
            fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", content))])
            blocks.append(f"{fence}sh\n{content}\n{fence}")
        else:
            blocks += map(_line, group)
    for part in sheet.blocks:
        blocks += [] if part.bare else [f"## {for_markdown(text(part.title))}"]
        blocks += ["\n".join(f"- {_line(line)}" for line in part.lines)] if part.lines or not part.bare else []
        blocks += map(table_markdown, part.tables)
    blocks += ["</details>"] if view.brief else []
    return "\n\n".join(blocks) + "\n"


def _line(line: Line) -> str:
    content = " ".join(line.lines)
    if line.label is None:
        return for_markdown_line(content)
    return f"**{for_markdown(text(line.label))}** {for_markdown(content)}"


def table_markdown(filled: Filled) -> str:
    """Return a table under its title."""
    filled = filled.with_only(lambda _, cells: any(cell not in BLANK for cell in cells))
    columns = filled.table.columns

    def row(cells: Iterable[str]) -> str:
        return "| " + " | ".join(map(for_markdown, cells)) + " |"

    lines = [f"## {for_markdown(filled.title)}", "", row(column.title for column in columns)]
    lines.append("|" + "|".join("---" if column.written else "---:" for column in columns) + "|")
    lines += (row(column.shown(cell) for column, cell in zip(columns, cells, strict=True)) for cells in filled.rows)
    return "\n".join(lines)


# -- JUnit's XML, which dashboards of pipelines read: a test case for every gate.

_ELEMENTS: Final = {"pass": "system-out", "fail": "failure", "cannot_tell": "error"}


def render_junit(document: Document, view: View) -> str:
    """Return one suite with a case for what went wrong, for the comparison, and for each gate.

    A gate that cannot be judged is an error, one that only warns passes and says so in its output. The comparison's
    verdict alone fails nothing: gates do. It is English in any language: who reads it knows cases by their names.
    """
    cases: list[str] = []
    names: Counter[str] = Counter()
    elements: Counter[str] = Counter()

    def add(name: str, element: str, said: Iterable[Parameter]) -> None:
        names[name] += 1  # under different names: dashboards take those of one name for one
        elements[element] += 1
        again = "" if names[name] == 1 else f" ({names[name]})"
        first, *more = [for_xml(line) for of in said for line in lines_of(of)]
        message = "" if element == "system-out" else f' message="{first}"'
        cases.append(
            f'<testcase classname="npuperf" name="{for_xml(f"{name}{again}")}">'
            f"<{element}{message}>" + "\n".join((first, *more)) + f"</{element}></testcase>"
        )

    with speaking("en"):
        problem = document.problem
        if problem is not None:
            add(text(say("problem")), "error", [problem.message])
        comparison = document.comparison if isinstance(document, Result) else None
        if comparison is not None:
            from npuperf.show.comparison_text import step_lines, verdict_line  # of no use without a comparison

            told = (verdict_line(comparison), *step_lines(comparison))
            lines = [say("{label}: {text}", label=of.label, text=of.content) for of in told]
            add(text(say("comparison with {baseline}", baseline=comparison.old)), "system-out", lines)
        for gate in document.gates:
            element = _ELEMENTS[gate.status] if gate.level == "fail" else "system-out"
            add(gate.expr, element, [gate_line(gate).content])
        if problem is None and comparison is None and not document.gates:  # an empty suite counts as none
            add(text(say("no gates")), "system-out", [say("nothing was asked of this run")])
    # No schema of JUnit's has ``skipped`` on all suites, nor asks for it on one.
    counts = f'tests="{len(cases)}" failures="{elements["failure"]}" errors="{elements["error"]}"'
    head = ('<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {counts}>", f'<testsuite name="npuperf" {counts}>')
    return "\n".join((*head, *cases, "</testsuite>", "</testsuites>\n"))
