"""What a page shows, laid out: blocks of lines, cards, charts and tables under titles. Any document's page as such."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from npuperf.documents.document import Document
from npuperf.messages import NOTHING, Message, Parameter, say, say_n
from npuperf.render import View
from npuperf.render.language import lines_of, text
from npuperf.render.page import Line, Page, page_of
from npuperf.webpage.grids import MOST_ROWS, Grid, grid_of_filled

if TYPE_CHECKING:
    from npuperf.webpage.chart import Chart

#: Verdicts by the styles of lines: a page of lines has its verdict in the first of them.
_MARKS: Final = {"good": "better", "bad": "worse", "warning": "cannot_tell", "bold": "same"}
#: The title of a block of charts.
CHARTS: Final = say("charts")


@dataclass(frozen=True, slots=True)
class Said:
    """A line, or several: what it says, after a label. ``mark``: good, bad, warning, bold, dim or code. ``stands_for``:
    of how many lines this one tells, more than one where it counts those that are left out.
    """

    lines: tuple[str, ...]
    mark: str = ""
    label: str = ""
    stands_for: int = 1


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A name and its value."""

    name: Parameter
    value: Parameter


@dataclass(frozen=True, slots=True)
class Headline:
    """A verdict: its word, what it is called for colours, what it is about if there are several, and why; ``facts``:
    the numbers judged.
    """

    word: Message
    mark: str
    about: Message | None
    lines: tuple[Said, ...]
    facts: tuple[NamedValue, ...] = ()


@dataclass(frozen=True, slots=True)
class StripPart:
    """A part of a strip: its colour's name, what it is, its time and its share; ``start`` and ``width`` in percent."""

    colour: str
    title: Message
    time: Parameter
    share: Parameter
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Strip:
    """A stretch of time split into parts, as one bar."""

    title: Message
    parts: tuple[StripPart, ...]


@dataclass(frozen=True, slots=True)
class EvidenceTable:
    """A list in a finding's evidence as a small table; ``more``: rows that are left out."""

    name: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Parameter, ...], ...]
    more: int


@dataclass(frozen=True, slots=True)
class Card:
    """A finding, or a root of waiting. ``advice``: what to do, the first first; ``presupposed``: with ``holds``,
    ``fails`` or ``unknown``; ``grounds``: how it is refuted, its source; ``commands`` and ``code`` are to be pasted.
    """

    severity: Message
    mark: str
    title: Message
    about: Message | None
    gain: Message | None
    share: float = 0.0
    facts: tuple[NamedValue, ...] = ()
    tables: tuple[EvidenceTable, ...] = ()
    advice: tuple[Message, ...] = ()
    commands: tuple[str, ...] = ()
    code: str | None = None
    presupposed: tuple[tuple[str, Message], ...] = ()
    excluded: tuple[Message, ...] = ()
    grounds: tuple[Message, ...] = ()
    go: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the page under a title, shown in the order of its fields. ``timeline``: scripts draw it here."""

    id: str
    title: Message
    lines: tuple[Said, ...] = ()
    strips: tuple[Strip, ...] = ()
    cards: tuple[Card, ...] = ()
    after: tuple[Said, ...] = ()
    charts: tuple[Chart, ...] = ()
    grids: tuple[Grid, ...] = ()
    timeline: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """A whole page: what it is about, the verdicts first, then its blocks. ``command``: what a table's other rows are
    had with, when the table is named after it.
    """

    title: Message
    facts: tuple[Message, ...] = ()
    verdicts: tuple[Headline, ...] = ()
    lines: tuple[Said, ...] = ()
    blocks: tuple[Block, ...] = ()
    command: str = ""


#: Of lines under a title there are no more; what is left out is counted.
_MOST_LINES: Final = 200


def shortened(sheet: Sheet, rows: int) -> Sheet:
    """Return the page with so many rows of a table at most."""
    cut = (replace(b, grids=tuple(grid.cut_to(rows) for grid in b.grids)) for b in sheet.blocks)
    return replace(sheet, blocks=tuple(cut))


def size_of_tables(sheet: Sheet) -> int:
    """Return about how many bytes the tables of a page take."""
    return sum(grid.size for block in sheet.blocks for grid in block.grids)


def said(lines: Iterable[Line]) -> tuple[Said, ...]:
    """Return lines of a page as they are shown; of very many the first, and how many more there are."""
    every = list(lines)
    shown = [
        Said(tuple(lines_of(line.content)), line.style, "" if line.label is None else text(line.label))
        for line in every[:_MOST_LINES]
    ]
    left = len(every) - len(shown)
    if left:
        shown.append(Said(tuple(lines_of(more_lines(left))), "dim", stands_for=left))
    return tuple(shown)


def more_lines(n: int) -> Message:
    """Return what stands for so many lines that are left out."""
    return say_n("{n} more line", "{n} more lines", n)


def plain_sheet(document: Document, view: View, charts: tuple[Chart, ...]) -> Sheet:
    """Return the page of any document as other formats have it, with its charts, and more rows of its tables."""
    page = page_of(document, replace(view, full=True, top=view.top or MOST_ROWS))
    kind = say("{kind}", kind=type(document).__name__)
    title = page.title if text(page.title) else kind
    first, *others = page.lines or [Line(NOTHING)]
    if first.label is None or first.style not in _MARKS:
        return Sheet(title, lines=said(page.lines), blocks=tuple(_blocks(page, charts)))
    verdict = Headline(first.label, _MARKS[first.style], None, said([Line(first.content), *others]))
    return Sheet(title, verdicts=(verdict,), blocks=tuple(_blocks(page, charts)))


def _blocks(page: Page, charts: tuple[Chart, ...]) -> Iterator[Block]:
    if charts:
        yield Block("charts", CHARTS, charts=charts)
    grids = tuple(grid for table in page.tables if (grid := grid_of_filled(table)))
    if grids:
        yield Block("tables", say("tables"), grids=grids)
    for number, section in enumerate(page.sections, 1):
        yield Block(f"section-{number}", section.title, lines=said(section.lines))
    if page.notes:
        yield Block("notes", say("notes"), lines=said(page.notes))
