"""Tables: what stands in which column, declared once for all formats.

Cells are values of the document as they are (ns, fractions, counts, messages); a column's unit says how people see
them, while CSV writes them unchanged. A declared table is in ``--table`` and, unless it says otherwise, in ``--full``
and in Markdown; of a topic, it is on the page.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain as chain_of
from typing import Any, Final, Literal, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from npuperf.base.escape import for_csv, for_json
from npuperf.base.messages import NOTHING, Message, chain, plain, say
from npuperf.base.messages import text as plain_text
from npuperf.base.units import COLUMN_UNITS, short_names
from npuperf.model.document import Document
from npuperf.model.parts import Model
from npuperf.model.schema import is_message, parts_of
from npuperf.show.formats import View, known, unknown
from npuperf.show.language import text
from npuperf.show.words import WORDS, meter

#: ``word``: one of a few values, which people see in their language; ``id``: a number that counts nothing;
#: ``bar``: signs that are a picture, each in a colour of its own; ``kernel``: a kernel's name, which people see
#: shortened; ``code``: a line of code, of which the file and the number are never cut.
Unit = Literal[
    "text", "word", "message", "code", "id", "count", "ms", "us", "percent", "number", "tenth", "core_ms", "plain",
    "share",
    "duration", "bar", "kernel", "us_change",
    "bare_us", "bare_us_change", "mib", "bare_mib", "tflop", "tflops",
]  # fmt: skip
Cell = str | int | float | Message | None
#: What a row is made of, from the outermost to the innermost: a device and its phase, or an operator alone.
Row = tuple[Any, ...]
#: The weight of columns that only wide screens have, and that nobody misses on others.
EXTRA: Final = 9
#: Cells that say nothing: unknown, none, and what is nothing to know of a row.
BLANK: Final = (None, "", " ")
_WRITTEN: Final = ("text", "word", "message", "code", "bar", "kernel")


class Column(Struct, frozen=True):
    """One column: its name in CSV, its header, its unit, and how its cell is got from a row.

    ``get`` is a function of the row's parts, or the path of an attribute, without which it is ``key``: of the row's
    innermost part that has it. Where there is too little room, columns of the greatest ``weight`` are left out first;
    those of weight 0 stay, and those of weight EXTRA are shown only where there is room for all others in full. A
    ``quiet`` column is shown only if its cells differ. ``brief``: what people see in place of a cell that is too long.
    ``least``: words are not squeezed into less than this, unless it is more than a third of the room. ``whole``: in
    Markdown a bar stands beside it, of which this is all.
    """

    key: str
    header: Message
    unit: Unit = "text"
    get: Callable[..., Cell] | str | None = None
    weight: int = 1
    quiet: bool = False
    brief: Callable[..., Cell] | None = None
    least: int = 0
    whole: float | None = None

    @property
    def title(self) -> str:
        """The header with its unit."""
        unit = COLUMN_UNITS[self.unit][0] if self.unit in COLUMN_UNITS else ""
        return f"{text(self.header)} ({unit})" if unit else text(self.header)

    @property
    def written(self) -> bool:
        """Whether cells are words, not numbers."""
        return self.unit in _WRITTEN

    def says_something(self, cells: Sequence[Cell]) -> bool:
        """Tell whether a column of these cells has anything in it; a quiet one must have different things."""
        return len(set(cells)) > 1 if self.quiet else any(cell not in BLANK for cell in cells)

    def bars(self, whole: float) -> Column:
        """Return the column of bars for these numbers, of which ``whole`` is all."""

        def drawn(*row: object) -> str:
            value = self.cell(row)
            return meter(value / whole if isinstance(value, int | float) else None)

        return Column("bar", NOTHING, "bar", drawn)

    def cell(self, row: Row) -> Cell:
        """Return the value as it is in the document."""
        if callable(self.get):
            return self.get(*row)
        path = self.get or self.key
        name = path.split(".", 1)[0]
        owners = [part for part in row if hasattr(part, name)]
        if not owners and None in row:
            return None
        return as_cell(reach(owners[-1] if owners else row[-1], path))

    def shown(self, value: Cell) -> str:
        """Return a cell for people."""
        if isinstance(value, Message):
            return text(value) or "–"
        if value is None or value == "":
            return "–"
        if isinstance(value, str):
            if self.unit != "word":
                return value
            word = value.removesuffix("?")  # which says that it is inferred
            return text(WORDS.get(word, word)) + value[len(word) :]
        return COLUMN_UNITS[self.unit][1](value) if self.unit in COLUMN_UNITS else str(value)


#: Which device a row is of.
WHO: Final = (
    Column("rank", say("rank"), "id", weight=0, quiet=True),
    Column("device", say("device"), "id", weight=0, quiet=True),
)


def reach(part: Any, path: str) -> Any:
    """Return what is at the end of a path of attributes and numbers, None where the path ends before."""
    for name in path.split("."):
        if part is None:
            return None
        part = part[int(name)] if name.isdigit() else getattr(part, name)
    return part


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

    def below(part: Any, depth: int) -> Iterator[Row]:
        if depth == len(paths):
            yield ()
            return
        found = reach(part, paths[depth])
        for item in found if isinstance(found, list | tuple) else () if found is None else (found,):
            yield from ((item, *row) for row in below(item, depth + 1))

    return lambda document: below(document, 0)


class Table(Struct, frozen=True):
    """Columns, and how their rows are found in a document. ``name`` is what ``--table`` takes.

    ``usual``: the table that CSV shows unless told otherwise; ``counted``: its title says how many rows there are;
    ``aside``: what it has is told in other words, or is too much, so that it is shown only where it is asked for.

    ``topic``: under which title it is on the page of an analysis (none: it is not there), in the order of ``place``,
    else of declaration; ``go``: where in the page's timeline a row is, of its parts. ``empty``: why a document has no
    rows.
    """

    name: str
    title: Message
    rows: Callable[[Any], Iterable[Row]]
    columns: tuple[Column, ...]
    usual: bool = False
    counted: bool = True
    aside: bool = False
    topic: str = ""
    place: int = 0
    go: Callable[..., str] | None = None
    empty: Callable[[Any], Message | None] | None = None

    def why_empty(self, document: Document) -> Message:
        """Say that there are no rows, and why where that is known."""
        why = self.empty(document) if self.empty is not None else None
        return say("{title}: no rows, {why}", title=self.title, why=why or say("as there is none of it in this data"))

    def only(self, *columns: str | Column) -> Table:
        """Return the table with some of its columns, by key, and others of its rows' parts."""
        own = {column.key: column for column in self.columns}
        return replace(self, columns=tuple(own[c] if isinstance(c, str) else c for c in columns))

    def titled(self, title: Message) -> Table:
        """Return the table under another title."""
        return replace(self, title=title)

    def with_meters(self) -> Table:
        """Return the table with bars beside the columns that have a whole."""
        both = ((c,) if c.whole is None else (c, c.bars(c.whole)) for c in self.columns)
        return replace(self, columns=tuple(chain_of.from_iterable(both)))

    def cells(self, document: Document) -> Iterator[list[Cell]]:
        """Yield a document's rows, values as they are."""
        return ([column.cell(row) for column in self.columns] for row in self.rows(document))


class Filled(Struct, frozen=True):
    """A table with a document's rows; of ``total`` rows those kept, with the ``parts`` that they are made of."""

    table: Table
    rows: list[list[Cell]]
    total: int
    parts: Sequence[Row]

    @property
    def title(self) -> str:
        """The table's title, and how much of it there is."""
        if not self.table.counted:
            return text(self.table.title)
        return counted(self.table.title, len(self.rows), self.total)

    def with_only(self, wanted: Callable[[Column, list[Cell]], bool]) -> Filled:
        """Return the table with the columns that are wanted, as they are and for their cells."""
        columns = self.table.columns
        used = [i for i, column in enumerate(columns) if wanted(column, [row[i] for row in self.rows])]
        table = replace(self.table, columns=tuple(columns[i] for i in used))
        return Filled(table, [[row[i] for i in used] for row in self.rows], self.total, self.parts)


def fill(table: Table, document: Document, top: int | None = None) -> Filled:
    """Return a table with a document's rows, ``top`` of them at most."""
    return filled(table, list(table.rows(document)), top)


def filled(table: Table, rows: Sequence[Row], top: int | None = None) -> Filled:
    """Return a table with rows, ``top`` of them at most; C++ names are shortened, and stay different."""
    kept = rows[:top]
    cells = [[c.brief(*row) if c.brief else c.cell(row) for c in table.columns] for row in kept]
    for i, column in enumerate(table.columns):
        if column.unit == "kernel":
            short = short_names(cell for row in cells if isinstance(cell := row[i], str))
            for row in cells:
                row[i] = short.get(str(row[i]), row[i])
    return Filled(table, cells, len(rows), kept)


def counted(title: Message, shown: int, total: int) -> str:
    """Return a title and how much of its list is shown."""
    return text(say("{title} ({n})", title=title, n=how_many(shown, total)))


def how_many(shown: int, total: int) -> str:
    """Say how much of a list is shown."""
    return text(say("{shown} of {total}", shown=shown, total=total)) if shown < total else str(total)


def tables_of(document: type[Document]) -> tuple[Table, ...]:
    """Return the tables of a type of document; such as declares none has one for every list of its fields."""
    found = known(document, "tables")
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


# -- Tables of documents for which none are declared: one of the plain fields, and one for every list of parts.

#: Units by how fields are called.
_UNITS: Final[dict[str, Unit]] = {"_ns": "ms", "_pct": "number", "_us": "plain", "_s": "plain", "share": "percent"}
_SKIPPED: Final = ("schema_version", "problem", "gates")


@lru_cache
def derived_tables(document: type[Document]) -> tuple[Table, ...]:
    """Return the tables of a type of document: of a list of parts a column for every field."""
    facts: list[Column] = []
    lists: list[Table] = []
    for field in msgspec.structs.fields(document):
        if field.name in _SKIPPED:
            continue
        part = _part(field.type)
        if part and get_origin(field.type) in (list, tuple):
            columns = (found for of in msgspec.structs.fields(part) for found in _columns(of.name, of.type))
            lists.append(Table(field.name, say("{name}", name=_title(field.name)), each(field.name), tuple(columns)))
        else:
            facts += _columns(field.name, field.type)
    return (Table("facts", say("facts"), lambda document: [(document,)], tuple(facts)), *lists)


def _columns(name: str, kind: Any) -> list[Column]:
    """Return the columns of a field; a part inside has one for each of its own."""
    part = None if get_origin(kind) in (list, tuple) else _part(kind)
    fields = [(f"{name}.{f.name}", f.type) for f in msgspec.structs.fields(part)] if part else [(name, kind)]
    keys = [(path.replace(".", "_"), path, of) for path, of in fields]
    return [Column(key, say("{name}", name=_title(key)), _unit(path, of), path) for key, path, of in keys]


def _part(kind: Any) -> type[Model] | None:
    """Return the part of a document that a field holds, or holds several of."""
    return next((part for part in parts_of(kind) if isinstance(part, type) and issubclass(part, Model)), None)


def _title(name: str) -> str:
    return name.removesuffix("_ns").replace("_", " ")


def _unit(name: str, kind: Any) -> Unit:
    kinds = [part for part in parts_of(kind) if part is not type(None)]
    if is_message(kind):
        return "message"
    if bool in kinds or all(get_origin(part) is Literal for part in kinds):
        return "word"
    if not all(part in (int, float) for part in kinds) or get_origin(kind) in (list, tuple):
        return "text"
    named = next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)
    return named or ("plain" if float in kinds else "count")


# -- CSV: one table of a document, cells as in the JSON document (integer ns, fractions), English.
#
# No cell is a formula or holds what cannot be seen (:func:`npuperf.base.escape.for_csv`).


def render_csv(document: Document, view: View) -> str:
    """Return all rows of one table, missing cells empty, and beside every sentence its message as JSON."""
    table = table_named(type(document), view.table)
    told = [column.unit == "message" for column in table.columns]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header = (
        (c.key, f"{c.key}_message") if is_told else (c.key,) for c, is_told in zip(table.columns, told, strict=True)
    )
    writer.writerow(chain_of.from_iterable(header))
    for row in table.cells(document):
        cells: list[Cell] = []
        for value, is_told in zip(row, told, strict=True):
            said = plain_text(value) if isinstance(value, Message) else value
            cells.append(for_csv(said) if isinstance(said, str) else said)
            if isinstance(value, Message) and is_told:
                written = json.dumps(plain(value), ensure_ascii=False)
                cells.append(for_json(written.encode("utf-8", "surrogatepass")))
            elif is_told:
                cells.append(None)
        writer.writerow(cells)
    return out.getvalue()
