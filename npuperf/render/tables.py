"""Tables: what stands in which column, declared once for all formats.

Cells are values of the document as they are (ns, fractions, counts, messages); a column's unit says how people see
them, while CSV writes them unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from npuperf.messages import Message, chain, say
from npuperf.render import nearest, unknown
from npuperf.render.language import text
from npuperf.render.words import WORDS
from npuperf.units import COLUMN_UNITS, short_names

if TYPE_CHECKING:
    from npuperf.documents.document import Document

#: ``word``: one of a few values, which people see in their language; ``id``: a number that counts nothing;
#: ``bar``: signs that are a picture, each in a colour of its own; ``kernel``: a kernel's name, which people see
#: shortened.
Unit = Literal[
    "text", "word", "message", "id", "count", "ms", "us", "percent", "number", "tenth", "core_ms", "plain", "share",
    "duration", "bar", "kernel", "us_change",
    "bare_us", "bare_us_change",
]  # fmt: skip
Cell = str | int | float | Message | None
#: What a row is made of, from the outermost to the innermost: a device and its phase, or an operator alone.
Row = tuple[Any, ...]
#: The weight of columns that only wide screens have, and that nobody misses on others.
EXTRA: Final = 9
#: Cells that say nothing: unknown, none, and what is nothing to know of a row.
BLANK: Final = (None, "", " ")
_WRITTEN: Final = ("text", "word", "message", "bar", "kernel")


class Column(Struct, frozen=True):
    """One column: its name in CSV, its header, its unit, and how its cell is got from a row.

    ``get`` is a function of the row's parts, or the path of an attribute, without which it is ``key``: of the row's
    innermost part that has it. Where there is too little room, columns of the greatest ``weight`` are left out first;
    those of weight 0 stay, and those of weight EXTRA are shown only where there is room for all others in full. A
    ``quiet`` column is shown only if its cells differ. ``brief``: what people see in place of a cell that is too long.
    ``least``: words are not squeezed into less than this, unless it is more than a third of the room.
    """

    key: str
    header: Message
    unit: Unit = "text"
    get: Callable[..., Cell] | str | None = None
    weight: int = 1
    quiet: bool = False
    brief: Callable[..., Cell] | None = None
    least: int = 0

    @property
    def title(self) -> str:
        """The header with its unit."""
        unit = COLUMN_UNITS[self.unit][0] if self.unit in COLUMN_UNITS else ""
        return f"{text(self.header)} ({unit})" if unit else text(self.header)

    @property
    def written(self) -> bool:
        """Whether cells are words, not numbers."""
        return self.unit in _WRITTEN

    def cell(self, row: Row) -> Cell:
        """Return the value as it is in the document."""
        return self.get(*row) if callable(self.get) else as_cell(_of_row(row, self.get or self.key))

    def shown(self, value: Cell) -> str:
        """Return a cell for people."""
        if isinstance(value, Message):
            return text(value) or "–"
        if value is None or value == "":
            return "–"
        if isinstance(value, str):
            return _word(value) if self.unit == "word" else value
        return COLUMN_UNITS[self.unit][1](value) if self.unit in COLUMN_UNITS else str(value)


def reach(part: Any, path: str) -> Any:
    """Return what is at the end of a path of attributes and numbers, None where the path ends before."""
    for name in path.split("."):
        if part is None:
            return None
        part = part[int(name)] if name.isdigit() else getattr(part, name)
    return part


def _of_row(row: Row, path: str) -> Any:
    """Return what is at the end of a path that begins in the innermost part that has its first name."""
    name = path.split(".", 1)[0]
    owners = [part for part in row if hasattr(part, name)]
    if not owners and None in row:
        return None
    return reach(owners[-1] if owners else row[-1], path)


def as_cell(value: Any) -> Cell:
    """Return any value of a document as one cell; of a list of parts, how many there are."""
    if isinstance(value, list | tuple):
        if any(hasattr(item, "__struct_fields__") for item in value):
            return len(value)
        if any(isinstance(item, Message) for item in value):
            return chain(*value)
        return ", ".join(str(as_cell(item)) for item in value) or None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {as_cell(item)}" for key, item in value.items()) or None
    return value if isinstance(value, str | int | float | Message) or value is None else str(value)


def each(*paths: str) -> Callable[[Any], Iterator[Row]]:
    """Return rows of lists inside of lists, e.g. a row of a device and a phase for every phase of every device."""
    return lambda document: _rows_below(document, paths)


def _rows_below(part: Any, paths: tuple[str, ...]) -> Iterator[Row]:
    if not paths:
        yield ()
        return
    found = reach(part, paths[0])
    for item in found if isinstance(found, list | tuple) else () if found is None else (found,):
        yield from ((item, *row) for row in _rows_below(item, paths[1:]))


def _word(value: str) -> str:
    """Return one of a few values for people; a question mark says that it is inferred."""
    known = value.removesuffix("?")
    return text(WORDS.get(known, known)) + value[len(known) :]


class Table(Struct, frozen=True):
    """Columns, and how their rows are found in a document. ``name`` is what ``--table`` takes.

    ``usual``: the table that CSV shows unless told otherwise; ``counted``: its title says how many rows there are.
    """

    name: str
    title: Message
    rows: Callable[[Any], Iterable[Row]]
    columns: tuple[Column, ...]
    usual: bool = False
    counted: bool = True

    def only(self, *columns: str | Column) -> Table:
        """Return the table with some of its columns, by key, and others of its rows' parts."""
        own = {column.key: column for column in self.columns}
        return replace(self, columns=tuple(own[c] if isinstance(c, str) else c for c in columns))

    def titled(self, title: Message) -> Table:
        """Return the table under another title."""
        return replace(self, title=title)

    def cells(self, document: Document) -> Iterator[list[Cell]]:
        """Yield a document's rows, values as they are."""
        return ([column.cell(row) for column in self.columns] for row in self.rows(document))


class Filled(Struct, frozen=True):
    """A table with a document's rows; of ``total`` rows those kept."""

    table: Table
    rows: list[list[Cell]]
    total: int

    @property
    def title(self) -> str:
        """The table's title, and how much of it there is."""
        if not self.table.counted:
            return text(self.table.title)
        return counted(self.table.title, len(self.rows), self.total)

    def without_empty(self) -> Filled:
        """Return the table without columns in which no row has anything."""
        used = [i for i in range(len(self.table.columns)) if any(row[i] not in BLANK for row in self.rows)]
        columns = tuple(self.table.columns[i] for i in used)
        return Filled(replace(self.table, columns=columns), [[row[i] for i in used] for row in self.rows], self.total)


def fill(table: Table, document: Document, top: int | None = None) -> Filled:
    """Return a table with a document's rows, ``top`` of them at most."""
    return filled(table, list(table.rows(document)), top)


def filled(table: Table, rows: Sequence[Row], top: int | None = None) -> Filled:
    """Return a table with rows, ``top`` of them at most; C++ names are shortened, and stay different."""
    cells = [[c.brief(*row) if c.brief else c.cell(row) for c in table.columns] for row in rows[:top]]
    for i, column in enumerate(table.columns):
        if column.unit == "kernel":
            short = short_names(cell for row in cells if isinstance(cell := row[i], str))
            for row in cells:
                row[i] = short.get(str(row[i]), row[i])
    return Filled(table, cells, len(rows))


def counted(title: Message, shown: int, total: int) -> str:
    """Return a title and how much of its list is shown."""
    return text(say("{title} ({n})", title=title, n=how_many(shown, total)))


def how_many(shown: int, total: int) -> str:
    """Say how much of a list is shown."""
    return text(say("{shown} of {total}", shown=shown, total=total)) if shown < total else str(total)


#: Where a document's tables are declared, by the name of its type.
_TABLES: Final[dict[str, str]] = {
    "Result": "npuperf.render.analysis_tables:TABLES",
    "Tuning": "npuperf.render.tuning_tables:TUNING",
    "BankChanges": "npuperf.render.tuning_tables:BANK_CHANGES",
    "ResultChanges": "npuperf.render.tuning_tables:RESULT_CHANGES",
    "TunePlan": "npuperf.render.tuning_tables:PLAN",
    "Document": "npuperf.render.derived_tables:tables_of",
}


def tables_of(document: type[Document]) -> tuple[Table, ...]:
    """Return the tables of a type of document; such as declares none has one for every list of its fields."""
    found = nearest(document, _TABLES)
    tables: tuple[Table, ...] = found(document) if callable(found) else found
    return tables


def table_named(document: type[Document], name: str | None) -> Table:
    """Return a table by name, or the usual one. Raises UsageError for a name that does not exist."""
    tables = tables_of(document)
    if name is None:
        return next((table for table in tables if table.usual), tables[0])
    found = next((table for table in tables if table.name == name), None)
    if found is None:
        raise unknown(say("--table {name}: no such table", name=repr(name)), name, [table.name for table in tables])
    return found


def list_tables(document: type[Document]) -> str:
    """Return what ``--table help`` shows: every table and what it is about, one line each."""
    tables = tables_of(document)
    width = max(len(table.name) for table in tables)
    return "".join(f"{table.name:<{width}}  {text(table.title)}\n" for table in tables)
