"""A tuning result as text, JSON, CSV or Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from rich.console import Console
from rich.text import Text

from npuperf import __version__
from npuperf.model.tuning import Status, Tuning
from npuperf.render.csv import table_csv
from npuperf.render.markdown import table_markdown
from npuperf.render.tables import Cell, Column, Table, how_many
from npuperf.render.text import Bands
from npuperf.units import plural

_STATUS: Final[dict[Status, tuple[str, str]]] = {
    "successful": ("SUCCESSFUL", "bold green"),
    "failed": ("FAILED", "bold red"),
    "incomplete": ("INCOMPLETE", "bold yellow"),
    "nothing_to_tune": ("NOTHING TO TUNE", "bold"),
}
_MODES: Final = {"op": "operator tuning", "subgraph": "subgraph tuning", "mixed": "subgraph and operator tuning"}
_COLUMNS: Final = (
    Column("name", "name"),
    Column("types", "types"),
    Column("strategy", "strategy"),
    Column("change", "change"),
    Column("before_us", "before µs", "plain"),
    Column("after_us", "after µs", "plain"),
    Column("speedup", "times as fast", "plain"),
    Column("time_saved_pct", "time saved %", "plain"),
    Column("reported_improvement_pct", "AOE's figure %", "plain"),
    Column("kind", "kind"),
    Column("repo_key", "repo key"),
)
#: Columns on the screen. AOE's own figure is before/after − 1, which reads as a share of time and is none.
_ON_SCREEN: Final = 8


def tuning_table(tuning: Tuning) -> Table:
    """Return the entries, those that save the most time first."""
    saved = sorted(tuning.entries, key=lambda e: (e.before_us or 0) - (e.after_us or 0), reverse=True)
    rows: list[tuple[Cell, ...]] = [
        (
            e.name,
            ", ".join(e.types) or None,
            e.strategy,
            e.change,
            e.before_us,
            e.after_us,
            e.speedup,
            e.time_saved_pct,
            e.reported_improvement_pct,
            e.kind,
            e.repo_key,
        )
        for e in saved
    ]
    return Table("entries", "what was tuned", _COLUMNS, rows, keys=1)


def print_tuning(tuning: Tuning, console: Console, top: int) -> None:
    """Print one screen: how it ended, what was tuned, what to mind."""
    console.print(Text(f"npuperf {__version__}  {', '.join(tuning.files)}", style="bold"))
    word, style = _STATUS[tuning.status]
    console.print(Text(word, style=style) + Text(f"  {_summary(tuning)}"))
    table = tuning_table(tuning)
    if table.rows:
        rows = [row[:_ON_SCREEN] for row in table.rows[:top]]
        shown = Table(table.name, table.title, table.columns[:_ON_SCREEN], rows, table.keys)
        console.print()
        console.print(Text(f"{table.title} ({how_many(len(shown.rows), len(table.rows), 'entries')})", style="bold"))
        console.print(Bands(shown))
    if tuning.failed_operators:
        console.print()
        console.print(Text(f"failed: {', '.join(tuning.failed_operators)}", style="red"))
    for warning in tuning.warnings:
        console.print(Text(f"warning: {warning}"))


def _summary(tuning: Tuning) -> str:
    parts = [_MODES[tuning.mode]] if tuning.mode else []
    if tuning.tuning_time_s is not None:
        parts.append(f"{tuning.tuning_time_s:g} s")
    if tuning.recovered:
        parts.append("recovered from a damaged file")
    s = tuning.summary
    if s is not None:
        parts.append(
            f"{s.added} added, {s.updated} updated, {s.reserved} reserved, {s.unsatisfied} unsatisfied of {s.total}"
        )
    if tuning.failed_operators:
        parts.append(plural(len(tuning.failed_operators), "operator") + " failed")
    return "; ".join(parts)


def _json(tuning: Tuning, top: int) -> str:
    return msgspec.json.format(msgspec.json.encode(tuning), indent=1).decode() + "\n"


def _csv(tuning: Tuning, top: int) -> str:
    return table_csv(tuning_table(tuning))


def _markdown(tuning: Tuning, top: int) -> str:
    parts = [f"# npuperf tune: {_STATUS[tuning.status][0].lower()}", _summary(tuning)]
    table = tuning_table(tuning)
    if table.rows:
        parts.append(table_markdown(table, top))
    if tuning.failed_operators:
        parts.append("Failed: " + ", ".join(f"`{name}`" for name in tuning.failed_operators))
    parts += [f"- warning: {w}" for w in tuning.warnings]
    return "\n\n".join(p for p in parts if p) + "\n"


#: Formats that need no terminal, by name.
TUNING_DOCUMENTS: Final[dict[str, Callable[[Tuning, int], str]]] = {
    "json": _json,
    "csv": _csv,
    "markdown": _markdown,
}
