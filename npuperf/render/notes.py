"""What is to be said beside a table, and on stderr: lines that nobody wraps."""

from __future__ import annotations

from npuperf.documents.analysis import Result
from npuperf.documents.document import Document
from npuperf.render import View
from npuperf.render.language import text
from npuperf.render.page import Line, gate_lines, page_of, problem_lines


def render_notes(document: Document, view: View) -> str:
    """Return the lines of a document's page, plain, one to a line."""
    page = page_of(document, View(full=view.full, top=view.top))
    return _joined([*page.lines, *page.notes])


def render_gates(document: Result, view: View) -> str:
    """Return what is not said in any table of an analysis: gates, and what went wrong."""
    return _joined([*gate_lines(document), *problem_lines(document)])


def _joined(lines: list[Line]) -> str:
    said = (text(line.content) if line.label is None else f"{text(line.label)}  {text(line.content)}" for line in lines)
    return "".join(f"{line}\n" for line in said)
