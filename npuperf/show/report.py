"""Any document's sheet as Markdown, and what is said beside a table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from npuperf.base.escape import for_markdown, for_markdown_line, for_screen, visible
from npuperf.base.messages import say
from npuperf.model.document import Document
from npuperf.model.result import Result
from npuperf.show.formats import View
from npuperf.show.language import text
from npuperf.show.sheet import common, report_of
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
