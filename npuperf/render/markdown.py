"""Markdown: any document's page, for merge requests and issue trackers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from npuperf.documents.document import Document
from npuperf.render import View
from npuperf.render.language import text
from npuperf.render.page import Line, page_of
from npuperf.render.tables import Filled

_ROWS = 10


def render_markdown(document: Document, view: View) -> str:
    """Return a document's page; long tables are cut and say so."""
    return "\n\n".join(_blocks(document, view)) + "\n"


def _blocks(document: Document, view: View) -> Iterator[str]:
    top = view.top or (None if view.full or view.table else _ROWS)
    page = page_of(document, View(full=view.full, top=top, table=view.table))
    if text(page.title):
        yield f"# npuperf: {_escaped(text(page.title))}"
    yield from map(_line, page.lines)
    yield from (table_markdown(filled) for filled in page.tables if filled.rows)
    for section in page.sections:
        yield f"## {text(section.title)}"
        yield "\n".join(f"- {_line(line)}" for line in section.lines)
    if page.notes:
        yield "\n".join(f"- {_line(line)}" for line in page.notes)


def _line(line: Line) -> str:
    content = text(line.content)
    if line.style == "code":
        return f"```sh\n{content}\n```"
    content = _escaped(content)
    return content if line.label is None else f"**{_escaped(text(line.label))}** {content}"


def table_markdown(filled: Filled) -> str:
    """Return a table under its title."""
    filled = filled.without_empty()
    columns = filled.table.columns
    lines = [f"## {filled.title}", "", _row(column.title for column in columns)]
    lines.append("|" + "|".join("---" if column.written else "---:" for column in columns) + "|")
    for row in filled.rows:
        lines.append(_row(column.shown(cell) for column, cell in zip(columns, row, strict=True)))
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(_escaped, cells)) + " |"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
