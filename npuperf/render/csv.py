"""CSV: one table of the result, cells as in the JSON document (integer ns, fractions)."""

from __future__ import annotations

import csv
import io

from npuperf.model.result import Result
from npuperf.render.tables import TABLES


def render_csv(result: Result, table: str) -> str:
    """Render one table; missing cells are empty."""
    chosen = TABLES[table](result)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in chosen.columns])
    writer.writerows(chosen.rows)
    return out.getvalue()
