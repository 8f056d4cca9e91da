"""Markdown: any document's page, for merge requests and issue trackers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from npuperf.documents.document import Document
from npuperf.escape import for_markdown, for_markdown_line, visible
from npuperf.messages import say
from npuperf.render import View
from npuperf.render.language import lines_of, text
from npuperf.render.page import Line, page_of
from npuperf.render.tables import Filled

_ROWS = 10
_PAGE: Final = say("the whole report, with a timeline")


def render_markdown(document: Document, view: View) -> str:
    """Return a document's page; long tables are cut and say so."""
    return "\n\n".join(_blocks(document, view)) + "\n"


def _blocks(document: Document, view: View) -> Iterator[str]:
    top = view.top or (None if view.full or view.table else _ROWS)
    page = page_of(document, View(full=view.full, top=top, table=view.table))
    if text(page.title):
        yield f"# npuperf: {for_markdown(text(page.title))}"
    if view.page:
        yield f"[{for_markdown(text(_PAGE))}]({view.page})"
    for is_code, group in groupby(page.lines, lambda line: line.style == "code"):
        lines = list(group)
        yield from [_code(lines)] if is_code else map(_line, lines)
    yield from (table_markdown(filled) for filled in page.tables if filled.rows)
    for section in page.sections:
        yield f"## {for_markdown(text(section.title))}"
        yield "\n".join(f"- {_line(line)}" for line in section.lines)
    if page.notes:
        yield "\n".join(f"- {_line(line)}" for line in page.notes)


def _line(line: Line) -> str:
    content = " ".join(lines_of(line.content))
    if line.label is None:
        return for_markdown_line(content)
    return f"**{for_markdown(text(line.label))}** {for_markdown(content)}"


def _code(lines: Iterable[Line]) -> str:
    """Return code in a fence that nothing in it ends."""
    content = "\n".join(visible(text(line.content)) for line in lines)
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", content))])
    return f"{fence}sh\n{content}\n{fence}"


def table_markdown(filled: Filled) -> str:
    """Return a table under its title."""
    filled = filled.without_empty()
    columns = filled.table.columns
    lines = [f"## {for_markdown(filled.title)}", "", _row(column.title for column in columns)]
    lines.append("|" + "|".join("---" if column.written else "---:" for column in columns) + "|")
    for row in filled.rows:
        lines.append(_row(column.shown(cell) for column, cell in zip(columns, row, strict=True)))
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(for_markdown, cells)) + " |"
