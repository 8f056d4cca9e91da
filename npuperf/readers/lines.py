"""Tables with broken rows, line by line: every whole row is kept."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from npuperf.files import open_lines
from npuperf.messages import Message, say
from npuperf.readers.log import ReadLog

_ROWS_AT_ONCE: Final = 50_000
#: No row is longer: an open quote must not swallow the rest of the file.
_LINES_OF_A_ROW: Final = 1000


@dataclass(frozen=True, slots=True)
class Form:
    """How the rows of a table are written."""

    encoding: str
    delimiter: str
    width: int


def read_lines(path: Path, form: Form, wanted: Sequence[int], log: ReadLog) -> pa.Table:
    """Read line by line as text, and keep every row that is whole.

    A line that is a row on its own is one, whatever quote stands open before it; other lines are joined until
    their quotes close.
    """
    names = [f"c{i}" for i in wanted]
    parts = [pa.table({name: pa.array([], pa.string()) for name in names})]
    losses = _Losses(path, log)
    rows: list[list[str]] = []
    for row in _rows(path, form, losses):
        rows.append([row[i] for i in wanted])
        if len(rows) == _ROWS_AT_ONCE:
            parts.append(_text_table(names, rows))
            rows = []
    losses.report()
    return pa.concat_tables([*parts, _text_table(names, rows)])


def _text_table(names: list[str], rows: list[list[str]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})


@dataclass(slots=True)
class _Losses:
    """Rows that could not be used: the first few one by one, the rest counted."""

    path: Path
    log: ReadLog
    rows: list[tuple[int, Message]] = field(default_factory=list)

    def add(self, row: int, reason: Message) -> None:
        """Note one row (1-based, the header is row 1)."""
        self.rows.append((row, reason))

    def report(self) -> None:
        """Put what was noted into the log."""
        for row, reason in self.rows[:3]:
            self.log.lose(self.path, 1, say("row {row}: {reason}", row=row, reason=reason))
        if len(self.rows) > 3:
            first, last = self.rows[3][0], self.rows[-1][0]
            reason = say("rows between {first} and {last}: damaged", first=first, last=last)
            self.log.lose(self.path, len(self.rows) - 3, reason)


def _rows(path: Path, form: Form, losses: _Losses) -> Iterator[list[str]]:
    width = form.width
    pending: list[str] = []
    first = 0
    with open_lines(path, form.encoding) as lines:
        next(lines, None)
        for number, line in enumerate(map(plain, lines), 2):
            cells = _cells(line, form)
            if len(cells) == width and line.count('"') % 2 == 0:
                if pending:
                    losses.add(first, say("a quote is not closed"))
                    pending = []
                yield cells
                continue
            first = first if pending else number
            pending.append(line)
            if sum(part.count('"') for part in pending) % 2 and len(pending) < _LINES_OF_A_ROW:
                continue
            cells = _cells("\n".join(pending), form)
            if len(cells) == width:
                yield cells
            elif any(part.strip() for part in pending):
                losses.add(first, say("{found} cells instead of {wanted}", found=len(cells), wanted=width))
            pending = []
    if pending:
        losses.add(first, say("the file ends inside a quote"))


def _cells(text: str, form: Form) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=form.delimiter), [])
    except csv.Error:
        return []


def plain(line: str) -> str:
    """Leave out what the csv module refuses inside a line."""
    return line.rstrip("\n").replace("\r", "").replace("\x00", "")
