"""Tables as the page has them: cells as text, what they are sorted by, and where each row is in the timeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_
from typing import Final

from msgspec.structs import replace

from npuperf.documents.document import Document
from npuperf.escape import for_screen
from npuperf.messages import Message
from npuperf.render.language import text
from npuperf.render.tables import BLANK, Cell, Column, Filled, Row, Table, counted, filled

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
    made = replace(filled(table, shown), total=len(rows))
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
