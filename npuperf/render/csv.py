"""CSV: one table of a document, cells as in the JSON document (integer ns, fractions), English.

No cell is a formula or holds what cannot be seen (:func:`npuperf.escape.for_csv`).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

from npuperf.documents.document import Document
from npuperf.escape import for_csv, for_json
from npuperf.messages import Message, plain, text
from npuperf.render import View
from npuperf.render.tables import Cell, Column, table_named


def render_csv(document: Document, view: View) -> str:
    """Return all rows of one table, missing cells empty, and beside every sentence its message as JSON."""
    table = table_named(type(document), view.table)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(name for column in table.columns for name in _names(column))
    told = [column.unit == "message" for column in table.columns]
    for row in table.cells(document):
        cells: list[Cell] = []
        for value, is_told in zip(row, told, strict=True):
            cells.append(_cell(value))
            if is_told:
                cells.append(_message(value))
        writer.writerow(cells)
    return out.getvalue()


def _names(column: Column) -> Iterator[str]:
    yield column.key
    if column.unit == "message":
        yield f"{column.key}_message"


def _cell(value: Cell) -> Cell:
    if isinstance(value, Message):
        value = text(value)
    return for_csv(value) if isinstance(value, str) else value


def _message(value: Cell) -> str | None:
    if not isinstance(value, Message):
        return None
    return for_json(json.dumps(plain(value), ensure_ascii=False).encode("utf-8", "surrogatepass"))
