"""How reports are laid out on a terminal."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.console import JustifyMethod as Justify
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text


def section(title: str, body: RenderableType) -> RenderableType:
    """Return a body under its title."""
    return Group(Text(), Text(title, style="bold"), Padding(body, (0, 0, 0, 2)))


def grid(*columns: tuple[str, Justify]) -> RichTable:
    """Make a plain table with one row per line."""
    table = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for header, justify in columns:
        table.add_column(header, justify=justify, no_wrap=True)
    return table


def keep_numbers_whole(table: RichTable, *, wrap: bool = False) -> RichTable:
    """Leave out columns with nothing in them, and let only the last one be cut (or wrapped) on narrow terminals."""
    kept = [c for c in table.columns if any(str(cell) not in ("–", "") for cell in c.cells)]
    text_last = bool(kept) and kept[-1].justify == "left"
    whole = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=text_last)
    for i, column in enumerate(kept):
        widest = max(cell_len(str(cell)) for cell in [*column.cells, column.header])
        ratio, width = (1, None) if text_last and i == len(kept) - 1 else (None, widest)
        may_wrap = wrap and ratio is not None
        whole.add_column(column.header, justify=column.justify, no_wrap=not may_wrap, ratio=ratio, width=width)
    for row, cells in zip(table.rows, zip(*(c.cells for c in kept), strict=True), strict=True):
        whole.add_row(*cells, style=row.style)
    return whole
