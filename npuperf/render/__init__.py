"""A result as text, JSON, CSV or Markdown. No analysis here: every number comes out as it went in."""

from __future__ import annotations

from collections.abc import Callable

from npuperf.documents.analysis import Result
from npuperf.render.csv import render_csv
from npuperf.render.json import render_json
from npuperf.render.markdown import render_markdown

#: Formats that need no terminal, by name: result, table (csv only), rows at most → document.
DOCUMENTS: dict[str, Callable[[Result, str, int], str]] = {
    "json": lambda result, table, top: render_json(result),
    "csv": lambda result, table, top: render_csv(result, table),
    "markdown": lambda result, table, top: render_markdown(result, top),
}
