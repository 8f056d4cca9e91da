"""Tables with broken rows, line by line: every whole row is kept."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

import pyarrow as pa
from msgspec import Struct, field

from npuperf.files import open_lines
from npuperf.messages import Message, say
from npuperf.readers.log import ReadLog

_ROWS_AT_ONCE: Final = 50_000
#: No row is longer: an open quote must not swallow the rest of the file.
_LINES_OF_A_ROW: Final = 1000
#: No line is longer, in characters: of such a one the rest is stepped over.
_LONGEST_LINE: Final = 1 << 20
#: Rows that could not be used are told one by one as far as these go; the others are counted.
_TOLD: Final = 3


class Form(Struct, frozen=True):
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


class _Losses(Struct):
    """Rows that could not be used: the first few one by one, of the rest how many, the first and the last."""

    path: Path
    log: ReadLog
    told: list[tuple[int, Message]] = field(default_factory=list)
    others: int = 0
    first: int = 0
    last: int = 0

    def add(self, row: int, reason: Message) -> None:
        """Note one row (1-based, the header is row 1)."""
        if len(self.told) < _TOLD:
            self.told.append((row, reason))
            return
        self.first = self.first or row
        self.others, self.last = self.others + 1, row

    def report(self) -> None:
        """Put what was noted into the log."""
        for row, reason in self.told:
            self.log.lose(self.path, 1, say("row {row}: {reason}", row=row, reason=reason))
        if self.others:
            reason = say("rows between {first} and {last}: damaged", first=self.first, last=self.last)
            self.log.lose(self.path, self.others, reason)


def _rows(path: Path, form: Form, losses: _Losses) -> Iterator[list[str]]:
    width = form.width
    pending: list[str] = []
    first = quotes = 0
    with open_lines(path, form.encoding) as lines:
        for number, line in enumerate(_lines(lines), 1):
            if number == 1:
                continue
            if len(line) > _LONGEST_LINE:  # as far as it was read
                losses.add(number, say("longer than {n} characters", n=_LONGEST_LINE))
                continue
            cells, own = _cells(line, form), line.count('"')
            if len(cells) == width and own % 2 == 0:
                if pending:
                    losses.add(first, say("a quote is not closed"))
                    pending = []
                yield cells
                continue
            first, quotes = (first, quotes + own) if pending else (number, own)
            pending.append(line)
            if quotes % 2 and len(pending) < _LINES_OF_A_ROW and sum(map(len, pending)) < _LONGEST_LINE:
                continue
            cells = _cells("\n".join(pending), form)
            if len(cells) == width:
                yield cells
            elif any(part.strip() for part in pending):
                losses.add(first, say("{found} cells instead of {wanted}", found=len(cells), wanted=width))
            pending = []
    if pending:
        losses.add(first, say("the file ends inside a quote"))


def _lines(file: TextIO) -> Iterator[str]:
    """Yield lines without what the csv module refuses; of a line that is too long no more than shows that."""
    while line := file.readline(_LONGEST_LINE + 1):
        rest = line
        while len(rest) > _LONGEST_LINE and not rest.endswith("\n"):
            rest = file.readline(_LONGEST_LINE + 1)
        yield line if rest is not line else plain(line)


def _cells(text: str, form: Form) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=form.delimiter), [])
    except csv.Error:
        return []


def plain(line: str) -> str:
    """Leave out what the csv module refuses inside a line."""
    return line.rstrip("\n").replace("\r", "").replace("\x00", "")
