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
    for row in table.cells(document):
        writer.writerow(
            cell for column, value in zip(table.columns, row, strict=True) for cell in _cells(column, value)
        )
    return out.getvalue()


def _names(column: Column) -> Iterator[str]:
    yield column.key
    if column.unit == "message":
        yield f"{column.key}_message"


def _cells(column: Column, value: Cell) -> Iterator[Cell]:
    said = text(value) if isinstance(value, Message) else value
    yield for_csv(said) if isinstance(said, str) else said
    if column.unit == "message":
        yield for_json(json.dumps(plain(value), ensure_ascii=False)) if isinstance(value, Message) else None
