"""What a page shows, laid out: blocks of lines, cards, charts and tables under titles. Any document's page as such."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from dataclasses import replace as with_
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace as with_fields

from npuperf.base.escape import for_screen
from npuperf.base.messages import NOTHING, Message, Parameter, say, say_n
from npuperf.model.document import Document
from npuperf.model.picture import Picture, place_name
from npuperf.model.result import Device, Finding, texts_in
from npuperf.show.formats import View
from npuperf.show.language import lines_of, text
from npuperf.show.report import TextReport, report_of
from npuperf.show.tables import BLANK, Cell, Column, Filled, Row, Table, counted, filled
from npuperf.show.words import Line

if TYPE_CHECKING:
    from npuperf.show.svg import Chart

# -- Tables as the page has them: cells as text, what they are sorted by, and where each row is in the timeline.

#: Of no table there are more rows on a page.
MOST_ROWS: Final = 200
#: Columns of this weight and more are the first to be left out where room is short.
MINOR: Final = 2
#: Words that have a colour of their own beside what they say.
_MARKED: Final = frozenset(
    {
        *("host", "compute", "communication", "unknown", "high", "medium", "low"),
        *("pass", "fail", "cannot_tell", "better", "worse", "problem", "ok"),
    }
)


@dataclass(frozen=True, slots=True)
class GridCell:
    """One cell. ``value``: what it is sorted by where its text does not tell; ``mark``: a class for its colour."""

    text: str
    value: float | None = None
    mark: str = ""


@dataclass(frozen=True, slots=True)
class GridRow:
    """A row; ``go``: where it is in the timeline, as "picture:start:end", else empty."""

    cells: tuple[GridCell, ...]
    go: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of the page; of ``total`` rows those that are there. ``numeric``: columns, from 1, of numbers, and
    ``minor``: those for which paper has no room.

    ``cut``: whether rows may be left out; of a table that adds up none may.
    """

    name: str
    about: Message
    headers: tuple[str, ...]
    numeric: tuple[int, ...]
    minor: tuple[int, ...]
    rows: tuple[GridRow, ...]
    total: int
    cut: bool

    @property
    def title(self) -> str:
        """The table's title, and how much of it there is."""
        if not self.cut:
            return text(self.about)
        return counted(self.about, len(self.rows), self.total)

    @property
    def size(self) -> int:
        """About how many bytes it takes on the page."""
        return sum(len(cell.text.encode("utf-8", "replace")) + 5 for row in self.rows for cell in row.cells)

    def cut_to(self, rows: int) -> Grid:
        """Return the table with so many rows at most."""
        return with_(self, rows=self.rows[:rows]) if self.cut else self


def grid_of(table: Table, document: Document, go: Callable[[str, Row], str]) -> Grid | None:
    """Return a document's table; None without any rows. ``go`` says where rows are in the timeline."""
    rows = list(table.rows(document))
    if not rows:
        return None
    shown = rows[:MOST_ROWS]
    made = with_fields(filled(table, shown), total=len(rows))
    raw = {i: [column.cell(row) for row in shown] for i, column in enumerate(table.columns) if column.brief}
    return _grid(made, raw, [go(table.name, row) for row in shown])


def grid_of_filled(made: Filled) -> Grid | None:
    """Return a table that was filled before; None without any rows."""
    if not made.rows:
        return None
    return _grid(made, {}, [""] * len(made.rows))


def _grid(made: Filled, raw: dict[int, list[Cell]], places: Sequence[str]) -> Grid:
    used = [i for i, column in enumerate(made.table.columns) if _says_something(column, [r[i] for r in made.rows])]
    columns = [made.table.columns[i] for i in used]
    rows = tuple(
        GridRow(
            tuple(_cell(c, row[i], raw[i][n] if i in raw else None) for c, i in zip(columns, used, strict=True)),
            places[n],
        )
        for n, row in enumerate(made.rows)
    )
    numeric = tuple(at for at, column in enumerate(columns, 1) if not column.written)
    minor = tuple(at for at, column in enumerate(columns, 1) if column.weight >= MINOR)
    table, headers = made.table, tuple(for_screen(column.title) for column in columns)
    return Grid(table.name, table.title, headers, numeric, minor, rows, made.total, table.counted)


def _cell(column: Column, value: Cell, raw: Cell) -> GridCell:
    said = for_screen(column.shown(value))
    known = str(value).removesuffix("?") if column.unit == "word" else ""
    number = float(raw) if isinstance(raw, int | float) else None
    return GridCell(said, number, known if known in _MARKED else "")


def _says_something(column: Column, cells: list[Cell]) -> bool:
    """Tell whether a column has anything in it; a quiet one must have different things, and pictures are none."""
    if column.unit == "bar":
        return False
    return len(set(cells)) > 1 if column.quiet else any(cell not in BLANK for cell in cells)


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
    report = report_of(document, replace(view, full=True, top=view.top or MOST_ROWS))
    kind = say("{kind}", kind=type(document).__name__)
    title = report.title if text(report.title) else kind
    first, *others = report.lines or [Line(NOTHING)]
    if first.label is None or first.style not in _MARKS:
        return Sheet(title, lines=said(report.lines), blocks=tuple(_blocks(report, charts)))
    verdict = Headline(first.label, _MARKS[first.style], None, said([Line(first.content), *others]))
    return Sheet(title, verdicts=(verdict,), blocks=tuple(_blocks(report, charts)))


def _blocks(report: TextReport, charts: tuple[Chart, ...]) -> Iterator[Block]:
    if charts:
        yield Block("charts", CHARTS, charts=charts)
    grids = tuple(grid for table in report.tables if (grid := grid_of_filled(table)))
    if grids:
        yield Block("tables", say("tables"), grids=grids)
    for number, section in enumerate(report.sections, 1):
        yield Block(f"section-{number}", section.title, lines=said(section.lines))
    if report.notes:
        yield Block("notes", say("notes"), lines=said(report.notes))


# -- Where in the timeline lies what the page names: ``picture:start:end``, which a click goes to.

#: What a name in a finding's evidence may be.
_KINDS: Final = ("operator", "sync", "wait")


class Whereabouts:
    """The places of all pictures of a page."""

    def __init__(self, pictures: Sequence[Picture], devices: Sequence[Device] = ()) -> None:
        """``devices``: those of the document; what names a device of which there are two alike leads nowhere."""
        self._pictures = pictures
        self._sources = {(p.rank, p.device, p.source): i for i, p in enumerate(pictures)}
        alike = Counter((device.rank, device.device) for device in devices)
        self._of = {(p.rank, p.device): i for i, p in enumerate(pictures) if alike[p.rank, p.device] <= 1}
        self._ranks = {p.rank: i for i, p in enumerate(pictures) if p.rank is not None}

    def row(self, table: str, row: Row) -> str:
        """Return where a table's row is, or nothing."""
        if not self._pictures:
            return ""
        what, on = row[-1], self._device(row[0])
        if table in ("operators", "counters"):
            return self._anywhere("operator", place_name(row[0].type, row[0].core))
        if table == "compared":
            return self._anywhere("operator", what.name) if what.kind == "operator" else ""
        if table == "ranks":
            return self._whole(self._ranks.get(what.rank))
        if on is None:
            return ""
        if table == "blame":
            return self._named(on, "wait", f"{what.cause}: {what.name}")
        if table == "syncs":
            return self._named(on, "sync", place_name(what.name, what.torch_op, what.where))
        if table in ("idle_kernels", "idle_types"):
            return self._named(on, "operator", place_name(what.type, what.core))
        return self._stretch(table, what, on)

    def of_finding(self, finding: Finding) -> str:
        """Return the place of the first thing that a finding's evidence names, on its device."""
        on = self._of.get((finding.rank, finding.device))
        if on is None:
            return ""
        told = finding.evidence
        if "call" in told:  # the line alone may have several calls, and the call may have several lines
            return self._named(on, "sync", place_name(told["call"], told.get("torch_op"), told.get("where")))
        found = (self._named(on, kind, name) for name in texts_in(told) for kind in _KINDS)
        return next(filter(None, found), "")

    def _anywhere(self, kind: str, name: str | None) -> str:
        found = (self._named(on, kind, name) for on in range(len(self._pictures)))
        return next(filter(None, found), "")

    def _named(self, on: int, kind: str, name: str | None) -> str:
        place = self._pictures[on].places.get((kind, name or ""))
        return "" if place is None else f"{on}:{place[0]}:{place[1]}"

    def _stretch(self, table: str, what: Any, on: int) -> str:
        if table not in ("phases", "steps", "kernels"):
            return self._whole(on) if table == "devices" else ""
        picture = self._pictures[on]
        start = what.start_ns - picture.begin_ns  # of one step alone the picture begins with it
        end = start + _length(table, what)
        return f"{on}:{start}:{end}" if start < picture.span_ns and end > 0 else ""

    def _whole(self, on: int | None) -> str:
        return "" if on is None else f"{on}:0:{self._pictures[on].span_ns}"

    def _device(self, part: Any) -> int | None:
        device, rank = getattr(part, "device", None), getattr(part, "rank", None)
        if device is None:
            return None
        if isinstance(part, Device):
            return self._sources.get((rank, device, part.source))
        return self._of.get((rank, device))


def _length(table: str, what: Any) -> int:
    """Return how long a row of phases, steps or kernels takes, ns."""
    if table == "phases":
        return int(what.end_ns - what.start_ns)
    return int(what.partition.span_ns if table == "steps" else what.dur_ns)
