"""CSV: one table of the result, cells as in the JSON document (integer ns, fractions)."""

from __future__ import annotations

import csv
import io

from npuperf.documents.analysis import Result
from npuperf.render.analysis_tables import TABLES, Table


def render_csv(result: Result, table: str) -> str:
    """Render one table of a result."""
    return table_csv(TABLES[table](result))


def table_csv(table: Table) -> str:
    """Render a table; missing cells are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    writer.writerows(table.rows)
    return out.getvalue()
