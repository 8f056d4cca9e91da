"""Sheets as text for the terminal: numbers whole, words wrapped, as wide as there is room."""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from platform import node
from typing import Any, Final
from urllib.parse import quote

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.containers import Lines
from rich.padding import Padding
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text as RichText

from npuperf.base import __version__
from npuperf.base.errors import InputError
from npuperf.base.escape import for_screen, visible
from npuperf.base.files import Walk, read_input
from npuperf.base.messages import Message, Parameter, say_n
from npuperf.model.document import Document
from npuperf.show.formats import View
from npuperf.show.language import line_starts, text
from npuperf.show.sheet import report_of
from npuperf.show.tables import EXTRA, Cell, Column, Filled, fill, how_many, table_named
from npuperf.show.words import Line, runs

# -- Links from code lines on a screen to the files that they name, for terminals that open them (OSC 8).
#
# Profiles shorten paths, so a file is looked for, and a name is linked only if exactly one file has that line and that
# function. Links are ``file://HOST/PATH#LINE``: kitty and VS Code, among others, take the number for the line, others
# leave it out. VS Code takes a host for a network drive, so that it gets none.

_STYLE: Final = re.compile("(\x1b\\[[0-9;]*m)")
#: A line as reports name it, ``dir/file.py:41 forward``, or as profilers do, ``file.py(41): forward``.
_LINE: Final = re.compile(
    r"(?P<file>[\w./@+~-]+\.py)(?::(?P<line>\d{1,7})|\((?P<frame>\d{1,7})\):)(?![\w…])"
    r"(?= (?P<function>[A-Za-z_]\w*)(?P<cut>…)?)?"
)
#: Folders before a file of code, and a line of it with its function, as reports name it.
_FOLDERS_OF: Final = re.compile(r"(?<![\w./@+~-])[\w.@+~-]*/(?:[\w.@+~-]+/)*(?=[\w.@+~-]+\.py(?::\d|\(\d))")
_FUNCTION_OF: Final = re.compile(r"^([\w.@+~-]+\.py:\d+) \S.*$")
#: A line of code whose path is so long that it would be broken, and its number lost.
_DEEP_CODE: Final = re.compile(r"(?<![\w./@+~-])[\w./@+~-]{40,}\.py:\d+")
#: Where no code of the user's lies, or so much of others that looking through it takes too long.
_PASSED_OVER: Final = re.compile(r"[._].*|node_modules|site-packages|venv|build|dist|PROF_.*|.*_ascend_(pt|ms)")
#: Code is looked for in so many folders at most, so deep, and for so many seconds.
_FOLDERS, _DEEP, _SECONDS = 200, 3, 0.1
#: No program is larger than this, bytes.
_LARGEST: Final = 4 << 20


class CodeFinder:
    """Finds the files that short names stand for, in folders and, of the first of them, in those below it."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._below: list[Path] | None = None
        self._lines: dict[Path, list[str]] = {}

    def find(self, name: str, line: int, function: str = "", *, cut: bool = False) -> Path | None:
        """Return the only file of that name which has a line and a function (``cut``: one that begins so)."""
        at_hand = {path.resolve() for path in self._named(name, self._folders)}
        found = {path for path in at_hand if self._has(path, line, function, cut)}
        if not found and not Path(name).is_absolute():
            below = {path.resolve() for path in self._named(name, self._searched())}
            found = {path for path in below if self._has(path, line, function, cut)}
        return found.pop() if len(found) == 1 else None

    @staticmethod
    def _named(name: str, folders: Iterable[Path]) -> Iterator[Path]:
        for folder in folders:
            path = folder / name
            with suppress(OSError, ValueError):
                if path.is_file() and path.stat().st_size <= _LARGEST:
                    yield path

    def _searched(self) -> list[Path]:
        """Return the folders below the first one in which code may lie."""
        if self._below is not None:
            return self._below
        below: list[Path] = []
        self._below = below
        if not self._folders:
            return below
        end, depth = time.monotonic() + _SECONDS, len(self._folders[0].parts)

        def passed_over(folder: Path, name: str) -> bool:
            return len(folder.parts) - depth >= _DEEP or _PASSED_OVER.fullmatch(name) is not None

        with suppress(InputError, OSError):
            for seen, folder in enumerate(Walk(self._folders[0], passed_over, links=False)):
                if seen >= _FOLDERS or time.monotonic() > end:
                    break
                below.append(folder.path)
        return below

    def _has(self, path: Path, line: int, function: str, cut: bool) -> bool:
        if path not in self._lines:
            self._lines[path] = []
            with suppress(InputError, OSError):
                self._lines[path] = read_input(path).decode("utf-8", "replace").splitlines()
        lines = self._lines[path]
        if not 0 < line <= len(lines):
            return False
        definition = re.compile(rf"\s*(async\s+)?def\s+{re.escape(function)}" + ("" if cut else r"\b"))
        return not function or any(map(definition.match, lines))


def linked(shown: str, finder: CodeFinder) -> str:
    """Return a screen on which code lines are links where the finder knows the file; its width stays."""

    def link(found: re.Match[str]) -> str:
        line = int(found["line"] or found["frame"])
        path = finder.find(found["file"], line, found["function"] or "", cut=found["cut"] is not None)
        return f"\x1b]8;;{address(path, line)}\x1b\\{found[0]}\x1b]8;;\x1b\\" if path else found[0]

    parts = _STYLE.split(shown)
    parts[::2] = [_LINE.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def address(path: Path, line: int) -> str:
    """Return what a line of a file is linked to; whatever could end a link or begin a command is percent-encoded."""
    host = "" if os.environ.get("TERM_PROGRAM") == "vscode" else quote(node(), safe="")
    return f"file://{host}{quote(os.fsencode(path.as_posix()), safe='/')}#{line}"


#: Styles of verdicts.
BOUNDS: Final = {"host": "yellow", "compute": "cyan", "communication": "magenta", "unknown": "red"}
#: Styles of words that a table's cells may have.
_WORD_STYLES: Final = {
    **BOUNDS, "high": "red", "medium": "yellow", "low": "dim", "pass": "green", "fail": "bold red",
    "cannot_tell": "yellow", "better": "green", "worse": "red",
}  # fmt: skip
#: What stands for the blocks that bars are made of, where there are none.
_NO_BLOCKS: Final = str.maketrans("█▓", "#+")
#: How a cell of numbers begins, and what has none in it: units and "to" are shorter.
_NUMBERS, _WORD = re.compile(r"[-+−]?\d|–?$"), re.compile(r"[^\W\d_]{3}")
LINE_STYLES: Final = {"good": "green", "bad": "bold red", "warning": "yellow"}
_GAP: Final = 2
#: Into less than this no sentence, no key and no other text is squeezed.
_SENTENCE, _KEY, _TEXT = 28, 32, 16
#: But where there is hardly any room for numbers.
_SQUEEZED: Final = 10


class Text(RichText):
    """Text of which nothing is a command to the terminal or markup: the only one that screens are made of."""

    def __init__(self, text: str = "", style: str | Style = "", **layout: Any) -> None:
        super().__init__(for_screen(text), style, **layout)

    def append(self, text: RichText | str, style: str | Style | None = None) -> Text:
        """Add a text in a style."""
        super().append(for_screen(text) if isinstance(text, str) else text, style)
        return self

    def wrap(self, console: Console, width: int, **how: Any) -> Lines:
        """Return the lines that a text takes: quantities stay whole, Chinese is broken between its letters."""
        fixed = self.no_wrap or how.get("no_wrap") or how.get("overflow") == "ignore"
        if fixed or cell_len(self.plain) <= width:
            return super().wrap(console, width, **how)
        lines = Lines()
        for said in self.split(allow_blank=True):
            lines.extend(said.divide(line_starts(said.plain, width, cell_len)))
        for said in lines:
            said.rstrip()
        justify = how.get("justify") or self.justify or "default"
        lines.justify(console, width, justify=justify, overflow=how.get("overflow") or "fold")
        return lines

    @classmethod
    def assemble(cls, *parts: RichText | str | tuple[str, str | Style], **layout: Any) -> Text:
        """Return texts, and texts with their styles, as one."""
        made = cls(**layout)
        for part in parts:
            made.append(*part) if isinstance(part, tuple) else made.append(part)
        return made


class _Screen(Console):
    """A console that makes text of strings that nobody else has made text of."""

    def render_str(self, text: str, *, style: str | Style = "", **_: Any) -> Text:
        return Text(text, style)


def render_text(document: Document, view: View) -> str:
    """Return a document's report as text, or one table of it."""
    if view.table is not None:
        table = fill(named := table_named(type(document), view.table), document, view.top)
        return print_all([Fitted(table) if table.total else Text(text(named.why_empty(document)))], view)
    sheet = report_of(document, view)
    title = text(sheet.title)
    parts: list[RenderableType] = [Text(f"npuperf {__version__}  {title}", "bold")] if title else []
    parts += map(line_text, sheet.lines)
    for block in sheet.blocks:
        tables = (section(filled.title, Fitted(filled)) for filled in block.tables)
        body = [*map(line_text, block.lines), *tables]
        parts += body if block.bare else [section(block.title, *body)]
    return print_all(parts, view)


def line_text(of: Line) -> RenderableType:
    """Return a report's line in its style."""
    if of.style == "code":
        return _code_line(text(of.content))
    style = LINE_STYLES.get(of.style, of.style)
    if of.label is None:
        first, *more = of.lines
        return Group(Text(first, style), *(indented(Text(said.lstrip(), style)) for said in more))
    return Text.assemble((text(of.label), style or "bold"), f"  {text(of.content)}")


def print_all(parts: Iterable[RenderableType], view: View) -> str:
    """Return what a terminal as wide as the view would show; without colour, no line ends in blanks."""
    console = _Screen(
        file=io.StringIO(), width=view.width, force_terminal=view.colour, force_jupyter=False,
        highlight=False, markup=False, emoji=False,
    )  # fmt: skip
    with console.capture() as screen:
        console.print(Group(*parts), crop=False)  # code is neither cut nor, as in a group, wrapped
    shown = screen.get() if view.blocks else screen.get().translate(_NO_BLOCKS)
    shown = shown if view.colour else "\n".join(line.rstrip() for line in shown.split("\n"))
    return linked(shown, CodeFinder(view.links)) if view.links else shown


def rows_of(view: View, default: int) -> int | None:
    """Return how many rows of a list to show: as many as asked for, else some, or all of them; None for all."""
    return view.top if view.top is not None else None if view.full else default


#: Of a longer name (of a fused kernel, of a template) only both ends are read: whole it would fill a screen.
_LONGEST_NAME, _LINES_OF_NAME = 90, 3
#: Such a name within a sentence: no path, which is to be copied, and no sentence of a language without spaces.
_LONG_WORD: Final = re.compile(rf"(?<![!-~])[!-.0-~]{{{_LONGEST_NAME + 1},}}(?![!-~])")


def _ends(name: str, room: int) -> str:
    """Leave the middle of a name out for which there is no room; CSV and JSON have it whole."""
    return name if len(name) <= room else f"{name[: room - room // 3 - 1]}…{name[-(room // 3) :]}"


def _readable(said: str, room: int = _LONGEST_NAME) -> str:
    """Leave the middle of such names out of a text, and the folders of code that lies deep."""
    said = _DEEP_CODE.sub(lambda place: _FOLDERS_OF.sub("", place[0]), said)
    return _LONG_WORD.sub(lambda word: _ends(word[0], room), said) if len(said) > room else said


def line(message: Parameter, style: str = "") -> Text:
    """Return a message in a style."""
    return Text(_readable(text(message)), style)


def cut(shown: int, total: int, message: Callable[[str], Message]) -> list[Text]:
    """Say how much of a list is shown, where that is not all."""
    return [line(message(how_many(shown, total)), "dim")] if shown < total else []


def painted(signs: str, colours: Mapping[str, str]) -> Text:
    """Return a bar: letters as blocks of their colour, of which the first letter is seen, other signs in theirs.

    Without colours, all of the letters say the same.
    """
    bar = Text(no_wrap=True)
    for run in runs(signs):
        colour = colours.get(run[0], "")
        if colour and run[0].isalpha():
            bar.append(run[0], f"not dim black on {colour}").append(run[1:], f"not dim {colour} on {colour}")
        else:
            bar.append(run, colour)
    return bar


def legend_of(signs: Mapping[str, Parameter], colours: Mapping[str, str]) -> Text:
    """Say what the signs of a bar mean."""
    legend = Text()
    for sign, word in signs.items():
        legend.append(painted(sign, colours)).append(f" {text(word)}   ", "dim")
    return legend


def section(title: Parameter, *body: RenderableType) -> RenderableType:
    """Return a body under its title."""
    return Group(Text(), line(title, "bold"), indented(Group(*body)))


def indented(part: RenderableType) -> RenderableType:
    """Return something a little to the right."""
    return Padding(part, (0, 0, 0, 2))


def hanging(sign: Text, line: Text) -> RenderableType:
    """Return a line after a sign, under which nothing of it is wrapped."""
    grid = RichTable.grid(padding=(0, 1, 0, 0))
    grid.add_row(sign, line)
    return grid


def code(lines: str) -> RenderableType:
    """Show code that can be pasted: at the margin, and no line of it is wrapped."""
    return Group(*map(_code_line, lines.rstrip().split("\n")))


def _code_line(line: str) -> RichText:
    return RichText(visible(line), no_wrap=True, overflow="ignore")  # whole, however long it is


def _code_forms(shown: str) -> list[str]:
    """Return a line of code as it is, without folders, and without its function; the file and the number stay."""
    bare = _FOLDERS_OF.sub("", shown)
    return [shown, bare, _FUNCTION_OF.sub(r"\1", bare)]


def _cell_text(column: Column, shown: str, width: int) -> str:
    """Shorten what is too long for its column: of code its folders, then its function; of a name what is in its middle.

    A name may take three lines.
    """
    if cell_len(shown) > width and column.written:
        forms = _code_forms(shown)[: 3 if column.unit == "code" else 2]
        shown = next((form for form in forms if cell_len(form) <= width), forms[-1])
    room = max(_LONGEST_NAME, _LINES_OF_NAME * width)
    return _ends(shown, room) if column.unit == "kernel" else _readable(shown, room)


class Fitted:
    """A table in the room that there is: what does not fit is left out, the least important columns first.

    Words are wrapped, and nothing is cut but what `_cell_text` says. ``styles``: of whole rows, by their number;
    ``signs``: the styles of a bar's signs.
    """

    def __init__(
        self,
        filled: Filled,
        *,
        styles: dict[int, str] | None = None,
        signs: dict[str, str] | None = None,
    ) -> None:
        self.styles = styles or {}
        self.signs = signs or {}
        self.filled = filled.with_only(Column.says_something)
        self.columns = self.filled.table.columns
        self.cells = [
            [for_screen(c.shown(value)) for c, value in zip(self.columns, row, strict=True)] for row in self.filled.rows
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width)
        rich = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
        for i, width in widths.items():
            column = self.columns[i]
            rich.add_column(
                Text(column.title),
                justify="left" if column.written else "right",
                overflow="fold",
                width=width,
            )
        for number, row in enumerate(self.cells):
            told = {i: _cell_text(self.columns[i], row[i], width) for i, width in widths.items()}
            texts = (self._cell(i, self.filled.rows[number][i], said) for i, said in told.items())
            rich.add_row(*texts, style=self.styles.get(number))
        yield rich
        left_out = sum(column.weight < EXTRA for i, column in enumerate(self.columns) if i not in widths)
        if left_out and self.filled.table.name:
            more = say_n(
                "{n} more column with --format csv --table {table}",
                "{n} more columns with --format csv --table {table}",
                left_out,
                table=self.filled.table.name,
            )
            yield line(more, "dim")

    @property
    def width(self) -> int:
        """How wide the table is where there is room."""
        widths = (max(map(cell_len, [c.title, *(row[i] for row in self.cells)])) for i, c in enumerate(self.columns))
        return sum(width + _GAP for width in widths)

    def _cell(self, i: int, value: Cell, shown: str) -> Text:
        if self.columns[i].unit == "bar":
            return painted(shown, self.signs)
        style = _WORD_STYLES.get(str(value).removesuffix("?"), "") if self.columns[i].unit == "word" else ""
        return Text(shown, style=style, no_wrap=not self.columns[i].written)

    def _widths(self, room: int) -> dict[int, int]:
        """Return the columns shown, and how wide they are."""
        columns = [(column, [row[i] for row in self.cells]) for i, column in enumerate(self.columns)]
        widest = [max(map(cell_len, [*cells, column.title])) for column, cells in columns]
        least = [self._least(column, cells, room // 3) for column, cells in columns]
        self._squeeze(least, room)
        usual = [column for column in self.columns if column.weight < EXTRA]
        shown: list[int] = []
        for i in sorted(range(len(least)), key=lambda i: (self.columns[i].weight, i)):
            extra = self.columns[i].weight >= EXTRA
            if extra and len(shown) < len(usual):
                break
            taken = sum((widest if extra else least)[k] + _GAP for k in shown)
            if taken + (widest if extra else least)[i] > room and shown:
                continue
            shown.append(i)
        rest = room + _GAP - sum(least[i] + _GAP for i in shown)
        for i in sorted(shown, key=lambda i: widest[i] - least[i]):  # those that want little more get it all
            more = min(widest[i] - least[i], rest)
            least[i] += more
            rest -= more
        return {i: min(least[i], room) for i in sorted(shown)}

    def _squeeze(self, least: list[int], room: int) -> None:
        """Narrow the words of columns that are never left out, the widest most, until all of these have room."""
        kept = [i for i, column in enumerate(self.columns) if column.weight == 0]
        over = sum(least[i] + _GAP for i in kept) - _GAP - room
        words = [i for i in kept if self.columns[i].written and self.columns[i].unit != "bar"]
        for i in sorted(words, key=lambda i: (self.columns[i].unit == "code", -least[i])):  # code last
            less = max(min(over, least[i] - _SQUEEZED), 0)
            least[i] -= less
            over -= less

    def _least(self, column: Column, cells: list[str], third: int) -> int:
        """Return the least width of a column: numbers stay whole, words and headers may wrap."""
        words = max(map(cell_len, column.title.split()), default=0)
        longest = max(map(cell_len, cells), default=0)
        # Numbers and units, e.g. ``20–24`` or ``1.2 ms … 3.4 ms``, or nothing that is said.
        numbers = all(_NUMBERS.match(cell) is not None and _WORD.search(cell) is None for cell in cells)
        if not column.written or column.unit == "bar" or numbers:
            return max(words, longest)
        if column.unit == "code":
            _, bare, least = (
                [cell_len(form) for form in forms] for forms in zip(*map(_code_forms, cells), strict=True)
            )
            return max(words, max(bare) if max(bare) <= _KEY else max(least))
        wrapped = _SENTENCE if column.unit == "message" else _TEXT if column.weight else _KEY
        return max(words, min(longest, max(wrapped, min(column.least, third))))
