"""What is shown of a document, laid out: lines, cards, charts and tables in blocks. Text, Markdown, pages and notebooks
are made of one sheet, each in its own way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from npuperf.base.escape import for_screen
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
from npuperf.model.result import Device, Finding, HostRun, texts_in
from npuperf.show.formats import View, known
from npuperf.show.language import text
from npuperf.show.tables import Filled, Row, Table, counted, fill, table_named, tables_of
from npuperf.show.words import GATE, WARNS, Line

if TYPE_CHECKING:
    from npuperf.model.picture import Picture
    from npuperf.show.svg import Chart

#: Of no table there are more rows on a page.
MOST_ROWS: Final = 200
#: The title of a block of charts.
CHARTS: Final = say("charts")


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
    lines: Sequence[Line]
    facts: Sequence[NamedValue] = ()


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
    parts: Sequence[StripPart]


@dataclass(frozen=True, slots=True)
class EvidenceTable:
    """A list in a finding's evidence as a small table; ``more``: rows that are left out."""

    name: Message
    headers: tuple[Message, ...]
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
    facts: Sequence[NamedValue] = ()
    tables: Sequence[EvidenceTable] = ()
    advice: Sequence[Message] = ()
    commands: Sequence[str] = ()
    code: str | None = None
    presupposed: Sequence[tuple[str, Message]] = ()
    excluded: Sequence[Message] = ()
    grounds: Sequence[Message] = ()
    go: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a sheet under a title, shown in the order of its fields. ``timeline``: a page's scripts draw it here.

    ``bare``: only a page shows its title, text and Markdown have what is in it alone.
    """

    id: str
    title: Message
    lines: Sequence[Line] = ()
    strips: Sequence[Strip] = ()
    cards: Sequence[Card] = ()
    after: Sequence[Line] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Filled] = ()
    timeline: bool = False
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """All of it: what it is about, the verdicts first, then its blocks. ``command``: what a table's other rows are had
    with, when the table is named after it.
    """

    title: Message
    facts: Sequence[Message] = ()
    verdicts: Sequence[Headline] = ()
    lines: Sequence[Line] = ()
    blocks: Sequence[Block] = ()
    command: str = ""


# -- The sheet of any document, which its report makes.


def report_of(document: Document, view: View) -> Sheet:
    """Return what a document says to people; with ``view.table`` it has nothing but this table."""
    if view.table is not None:
        table = fill(named := table_named(type(document), view.table), document, view.top)
        return sheet_of(tables=[table], lines=() if table.total else [Line(named.why_empty(document))])
    made: Sheet = known(type(document), "report")(document, view)
    return made


def sheet_of(
    title: Message = NOTHING,
    lines: Sequence[Line] = (),
    tables: Sequence[Filled] = (),
    sections: Iterable[tuple[Message, Sequence[Line]]] = (),
    notes: Sequence[Line] = (),
) -> Sheet:
    """Return lines, tables, lines under titles of their own, and what to mind, one after the other."""
    rows = [table for table in tables if table.rows]
    blocks = [Block("tables", say("tables"), tables=rows, bare=True)] if rows else []
    blocks += [Block(f"section-{number}", about, said) for number, (about, said) in enumerate(sections, 1) if said]
    blocks += [Block("notes", say("notes"), notes, bare=True)] if notes else []
    return Sheet(title, lines=lines, blocks=blocks)


def plain_report(document: Document, view: View) -> Sheet:
    """Return the sheet of a document of which nothing special is known: its fields and its lists."""
    whole, *lists = tables_of(type(document))
    facts = [
        Line(column.shown(cell), label=column.header)
        for column in whole.columns
        if (cell := column.cell((document,))) not in (None, "")
    ]
    tables = [fill(table, document, view.top) for table in lists]
    return sheet_of(say("{kind}", kind=type(document).__name__), [*facts, *common(document)], tables)


def common(document: Document) -> list[Line]:
    """Return the lines that every document has: what its gates found, and what went wrong."""
    return [*map(gate_line, document.gates), *problem_lines(document)]


def gate_line(gate: Gate) -> Line:
    """Return what a gate found: why it went so, else its value; of a failure also what explains it."""
    word, style = GATE[gate.status], {"pass": "good", "fail": "bad", "cannot_tell": "warning"}[gate.status]
    if gate.level == "warn" and gate.status == "fail":
        word, style = WARNS, "warning"
    found: Parameter = gate.reason or quantity(gate.value, gate.unit)
    if gate.baseline is not None or gate.runs:
        found = held_against(gate)
    condition = say("{condition}: {found}", condition=gate.expr, found=found)
    said = say("gate {status}  {condition}", status=word, condition=condition)
    why = None
    if gate.explained_by:
        from npuperf.show.comparison_text import part_line  # of no use to who compares nothing

        why = say("explained by {parts}", parts=series([*gate.causes, *map(part_line, gate.explained_by)], "; "))
    return Line(chain(said, why, by="\n  "), style)


def held_against(gate: Gate) -> Message:
    """Say what a gate found beside its baseline, by how much they differ, and how often it failed."""
    value, baseline, limit = (quantity(one, gate.unit) for one in (gate.value, gate.baseline, gate.limit))
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


# -- What pages and notebooks alone need: the page of any document, lists cut short, tables as HTML has them.

#: Verdicts by the styles of lines: a page of lines has its verdict in the first of them.
_MARKS: Final = {"good": "better", "bad": "worse", "warning": "cannot_tell", "bold": "same"}
#: Of lines under a title there are no more; what is left out is counted.
_MOST_LINES: Final = 200
#: Columns of this weight and more are the first to be left out where room is short.
MINOR: Final = 2
#: Words that have a colour of their own beside what they say.
_MARKED: Final = frozenset(
    {
        *("host", "compute", "communication", "unknown", "high", "medium", "low"),
        *("pass", "fail", "cannot_tell", "better", "worse", "problem", "ok"),
    }
)


def plain_sheet(document: Document, view: View, charts: Sequence[Chart]) -> Sheet:
    """Return the page of any document as other formats have it, with its charts, and more rows of its tables."""
    report = report_of(document, replace(view, full=True, top=view.top or MOST_ROWS))
    title = report.title if text(report.title) else say("{kind}", kind=type(document).__name__)
    blocks = [*([Block("charts", CHARTS, charts=charts)] if charts else []), *report.blocks]
    first, *others = report.lines or [Line(NOTHING)]
    if first.label is None or first.style not in _MARKS:
        return Sheet(title, lines=report.lines, blocks=blocks)
    verdict = Headline(first.label, _MARKS[first.style], None, [Line(first.content), *others])
    return Sheet(title, verdicts=[verdict], blocks=blocks)


def short_list(lines: Sequence[Line]) -> Sequence[Line]:
    """Return lines of a page; of very many the first, and how many more there are."""
    left = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], Line(more_lines(left), "dim")] if left > 0 else lines


def more_lines(n: int) -> Message:
    """Return what stands for so many lines that are left out."""
    return say_n("{n} more line", "{n} more lines", n)


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
    """A table of the page: cells as text; of ``total`` rows those that are there. ``numeric``: columns, from 1, of
    numbers, and ``minor``: those for which paper has no room.
    """

    table: Table
    headers: tuple[str, ...]
    numeric: tuple[int, ...]
    minor: tuple[int, ...]
    rows: tuple[GridRow, ...]
    total: int

    @property
    def title(self) -> str:
        """The table's title, and how much of it there is."""
        return counted(self.table.title, len(self.rows), self.total) if self.table.counted else text(self.table.title)

    @property
    def size(self) -> int:
        """About how many bytes it takes on the page."""
        return sum(len(cell.text.encode("utf-8", "replace")) + 5 for row in self.rows for cell in row.cells)

    def cut_to(self, rows: int) -> Grid:
        """Return the table with so many rows at most; one that adds up is never cut."""
        return replace(self, rows=self.rows[:rows]) if self.table.counted else self


def grid_of(made: Filled, places: Whereabouts | None = None) -> Grid:
    """Return a table as the page has it. ``places`` say where rows are in the timeline; with them, cells that are cut
    short are sorted by what they are.
    """
    made = made.with_only(lambda column, cells: column.unit != "bar" and column.says_something(cells))
    columns = made.table.columns
    rows = []
    for part, row in zip(made.parts, made.rows, strict=True):
        cells = []
        for column, value in zip(columns, row, strict=True):
            raw = column.cell(part) if column.brief and places is not None else None
            word = str(value).removesuffix("?") if column.unit == "word" else ""
            number = float(raw) if isinstance(raw, int | float) else None
            cells.append(GridCell(for_screen(column.shown(value)), number, word if word in _MARKED else ""))
        rows.append(GridRow(tuple(cells), "" if places is None else places.row(made.table, part)))
    return Grid(
        made.table,
        headers=tuple(for_screen(column.title) for column in columns),
        numeric=tuple(at for at, column in enumerate(columns, 1) if not column.written),
        minor=tuple(at for at, column in enumerate(columns, 1) if column.weight >= MINOR),
        rows=tuple(rows),
        total=made.total,
    )


# -- Where in the timeline lies what the page names: ``picture:start:end``, which a click goes to.

#: What a name in a finding's evidence may be.
_KINDS: Final = ("operator", "sync", "wait")


class Whereabouts:
    """The places of all pictures of a page. What nobody has drawn is nowhere: an empty string."""

    def __init__(self, pictures: Sequence[Picture], devices: Sequence[Device] = ()) -> None:
        """``devices``: those of the document; what names a device of which there are two alike leads nowhere."""
        self._pictures = pictures
        self._sources = {(p.rank, p.device, p.source): i for i, p in enumerate(pictures)}
        alike = Counter((device.rank, device.device) for device in devices)
        self._of = {(p.rank, p.device): i for i, p in enumerate(pictures) if alike[p.rank, p.device] <= 1}
        self._ranks = {p.rank: i for i, p in enumerate(pictures) if p.rank is not None}

    def row(self, table: Table, row: Row) -> str:
        """Return where a table's row is."""
        return table.go(self, *row) if table.go and self._pictures else ""

    def of_finding(self, finding: Finding) -> str:
        """Return the place of the first thing that a finding's evidence names, on its device; else a usual step."""
        told = finding.evidence
        if "call" in told:  # the line alone may have several calls, and the call may have several lines
            found = self.named(finding, "sync", told["call"], told.get("torch_op"), told.get("where"))
        else:
            places = (self.named(finding, kind, name) for name in texts_in(told) for kind in _KINDS)
            found = next(filter(None, places), "")
        if found:
            return found
        on, ranks = self._device(finding), told.get("ranks")
        if on is not None:
            return self._usual(on)
        return self.usual(ranks) if isinstance(ranks, list | tuple) else ""

    def usual(self, ranks: Iterable[int | None]) -> str:
        """Return a usual step of the first of some ranks that is drawn, all of it."""
        return next((self._usual(self._ranks[rank]) for rank in ranks if rank in self._ranks), "")

    def _usual(self, on: int) -> str:
        """Return the step of a picture that others are held against, else the first exact stretch, else everything."""
        exact = self._pictures[on].exact
        shown = next((one for one in exact if one.typical), exact[0] if exact else None)
        return self._all(on) if shown is None else f"{on}:{shown.start}:{shown.end}"

    def named(self, of: Any, kind: str, *name: str | None) -> str:
        """Return where something lies on the device of a part, by its kind and what tells where it is."""
        on = self._device(of)
        return "" if on is None else self._place(on, kind, *name)

    def anywhere(self, kind: str, *name: str | None) -> str:
        """Return where something lies on the first device that has it."""
        return next(filter(None, (self._place(on, kind, *name) for on in range(len(self._pictures)))), "")

    def stretch(self, of: Any, start_ns: int, length_ns: int) -> str:
        """Return where a stretch of a device's time is."""
        on = self._device(of)
        return "" if on is None else self._cut(on, start_ns, length_ns)

    def _cut(self, on: int, start_ns: int, length_ns: int) -> str:
        picture = self._pictures[on]
        start = start_ns - picture.begin_ns  # of one step alone the picture begins with it
        end = start + length_ns
        return f"{on}:{start}:{end}" if start < picture.span_ns and end > 0 else ""

    def of_host(self, run: HostRun, start_ns: int, length_ns: int) -> str:
        """Return where a stretch of the time of a host without a device is."""
        from npuperf.model.picture import NO_DEVICE  # which only those who draw have loaded

        on = self._sources.get((run.rank, NO_DEVICE, run.source))
        return "" if on is None else self._cut(on, start_ns, length_ns)

    def whole(self, device: Device) -> str:
        """Return where all of a device's time is."""
        return self._all(self._device(device))

    def rank(self, rank: int) -> str:
        """Return where all of a rank's time is."""
        return self._all(self._ranks.get(rank))

    def _all(self, on: int | None) -> str:
        return "" if on is None else f"{on}:0:{self._pictures[on].span_ns}"

    def _place(self, on: int, kind: str, *name: str | None) -> str:
        from npuperf.model.picture import place_name  # which only those who draw have loaded

        place = self._pictures[on].places.get((kind, place_name(*name)))
        return "" if place is None else f"{on}:{place[0]}:{place[1]}"

    def _device(self, part: Any) -> int | None:
        if isinstance(part, Device):
            return self._sources.get((part.rank, part.device, part.source))
        return None if part.device is None else self._of.get((part.rank, part.device))
