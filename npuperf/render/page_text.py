"""Text for the terminal: any document's page."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from npuperf import __version__
from npuperf.documents.document import Document
from npuperf.render import View
from npuperf.render.language import text
from npuperf.render.page import Line, Page, page_of
from npuperf.render.tables import Filled
from npuperf.render.terminal import STYLES, Fitted, code, print_all, section


def render_text(document: Document, view: View) -> str:
    """Return a document's page as text."""
    page = page_of(document, view)
    if view.table is not None:
        return print_all([Fitted(filled) for filled in page.tables], view)
    return print_all(_parts(page), view)


def _parts(page: Page) -> Iterator[RenderableType]:
    title = text(page.title)
    if title:
        yield Text(f"npuperf {__version__}  {title}", style="bold")
    yield from map(line_text, page.lines)
    for filled in page.tables:
        if filled.rows:
            yield table_section(filled)
    for part in page.sections:
        yield section(text(part.title), *map(line_text, part.lines))
    yield from map(line_text, page.notes)


def table_section(filled: Filled) -> RenderableType:
    """Return a table under its title."""
    return section(filled.title, Fitted(filled))


def line_text(line: Line) -> Text:
    """Return a line in its style."""
    content = text(line.content)
    if line.style == "code":
        return code(content)
    style = STYLES.get(line.style, line.style)
    if line.label is None:
        return Text(content, style=style)
    return Text.assemble((text(line.label), style or "bold"), f"  {content}")
