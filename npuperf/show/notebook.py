"""What a notebook shows of a run or of a comparison: the main parts of the page, without scripts.

A notebook that is not trusted keeps neither styles nor SVG: all that is said is text all the same, and heat maps are
images. No element has an id, so that the same may be shown twice.
"""

from __future__ import annotations

import re
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from markupsafe import Markup, escape
from msgspec.structs import replace

from npuperf.base.escape import visible
from npuperf.base.files import read_input
from npuperf.base.messages import Message, Parameter, say, say_n
from npuperf.model.comparison import Comparison, FindingChange
from npuperf.model.result import Result
from npuperf.show.charts import apart_chart, charts_of, falls_chart
from npuperf.show.comparison_text import (
    FALLS,
    PARTS,
    falls,
    falls_title,
    finding_line,
    parity_lines,
    step_lines,
    unchanged,
    verdict_line,
)
from npuperf.show.formats import View
from npuperf.show.language import spoken
from npuperf.show.matrix import FIRST, LAST, Layer, Matrix, grouped, shown
from npuperf.show.page import warnings
from npuperf.show.result_sheet import result_sheet
from npuperf.show.sheet import MINOR, Card, Grid, Headline, Said, Sheet, Strip, grid_of_filled, more_lines, said
from npuperf.show.svg import BarRow, Chart, Piece, bars, element, escaped, plain
from npuperf.show.tables import filled
from npuperf.show.words import OUTCOME, Line

# -- The style of what a notebook shows: the page's own, and nothing outside of one class changes its looks.

_HERE: Final = Path(__file__).resolve().parent / "assets"
_FILES: Final = ("palette.css", "charts.css", "cells/notebook.css")
#: Everything is inside of this class; twice, since rules of notebooks for lists and tables weigh more than one.
SCOPE: Final = "npuperf"
_SCOPE: Final = f".{SCOPE}.{SCOPE}"
#: How JupyterLab and nbconvert, VS Code, Colab, and Sphinx say whether they are light or dark.
_SAID: Final = {
    "light": ('[data-jp-theme-light="true"]', ".vscode-light", 'html[theme="light"]', 'html[data-theme="light"]'),
    "dark": ('[data-jp-theme-light="false"]', ".vscode-dark", 'html[theme="dark"]', 'html[data-theme="dark"]'),
}
#: What the page says on its root, and how that is said of something inside of a notebook.
_ROOTS: Final = {
    ":root:root:root": _SCOPE * 2,
    ':root:not([data-theme="light"])': f"{_SCOPE}:not({', '.join(f'{said} *' for said in _SAID['light'])})",
    **{f':root[data-theme="{name}"]': f":is({', '.join(said)}) {_SCOPE}" for name, said in _SAID.items()},
    ":root": _SCOPE,
}
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_RULE: Final = re.compile(r"([^{}]+)\{((?:[^{}]|\{[^{}]*\})*)\}")
#: Notebooks have no timeline to go to, and no canvas.
_UNUSED: Final = ("[data-go]", ".bar-go", ".matrix", ".curve")


@cache
def scoped_style() -> str:
    """Return the style sheet; every rule of it is about what is inside of the class."""
    return scoped("".join(read_input(_HERE / name).decode("utf-8") for name in _FILES))


def scoped(css: str) -> str:
    """Return rules for what is inside of the class alone; those for all of a page's root are for the class itself."""
    return "\n".join(_rules(_COMMENT.sub("", css)))


def _rules(css: str) -> Iterator[str]:
    for found in _RULE.finditer(css):
        head, body = (" ".join(part.split()) for part in found.groups())
        if head.startswith("@media"):
            yield f"{head}{{{''.join(_rules(body))}}}"
            continue
        used = [one for one in map(str.strip, head.split(",")) if not any(part in one for part in _UNUSED)]
        if used:
            yield f"{','.join(map(_selector, used))}{{{body}}}"


def _selector(selector: str) -> str:
    for root, scope in _ROOTS.items():
        if selector.startswith(root):
            return scope + selector.removeprefix(root)
    return f"{_SCOPE} {selector}"


# -- Heat maps as images: where no script runs, and no style is kept.

#: Of more rows several share a line of the image: no more lines are drawn.
MOST_LINES: Final = 128
#: How large an image is about, in pixels, and no cell of it higher than this.
_WIDTH, _HEIGHT, _CELL = 480, 256, 24
#: Colours of nothing, and from the least to the most: as those of ``charts.css`` in light.
_NOTHING, _LOW, _HIGH = (255, 255, 255), (0xDF, 0xEA, 0xFA), (0x0A, 0x2F, 0x66)
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
#: Of PNG: eight bits are the number of a colour; a line may be given as its difference from the one above.
_INDEXED, _UP = 3, 2


def heat_image(layer: Layer, columns: int, said: str) -> Markup:
    """Return a layer of a matrix as an image; ``said``: what it shows, for those who do not see it."""
    lines = lines_of_codes(layer.codes, columns)
    high = min(max(_HEIGHT // len(lines), 1), _CELL)
    return _image(lines, max(_WIDTH // columns, 1), high, "heat", said)


def ramp() -> Markup:
    """Return the colours from the least to the most."""
    return _image([bytes(range(FIRST, LAST + 1, 2))], 1, 10, "ramp", "")


def lines_of_codes(codes: bytes, columns: int) -> list[bytes]:
    """Return the lines of an image: of rows that share one, the most in every column."""
    rows = [codes[at : at + columns] for at in range(0, len(codes), columns)]
    return [bytes(map(max, *rows[low:high], bytes(columns))) for low, high in grouped(len(rows), MOST_LINES).bounds]


def _image(lines: Sequence[bytes], wide: int, high: int, class_: str, said: str) -> Markup:
    data = b64encode(png(lines, wide, high)).decode("ascii")
    return Markup('<img src="data:image/png;base64,{}" alt="{}" class="{}" width="{}" height="{}">').format(
        data, escaped(said), class_, wide * len(lines[0]), high * len(lines)
    )


def png(lines: Sequence[bytes], wide: int, high: int) -> bytes:
    """Return codes of cells as an image, each so many pixels wide and high; what is not known is transparent."""
    width, height = wide * len(lines[0]), high * len(lines)
    pixels = (b"".join(bytes((code,)) * wide for code in line) for line in lines)
    again = bytes((_UP, *bytes(width))) * (high - 1)
    content = b"".join(b"\0" + line + again for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, _INDEXED, 0, 0, 0)
    chunks = (
        (b"IHDR", head),
        (b"PLTE", _colours()),
        (b"tRNS", b"\0"),
        (b"IDAT", zlib.compress(content, 9)),
        (b"IEND", b""),
    )
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _colours() -> bytes:
    """Return the colours of codes: not known, nothing, and then from the least to the most."""
    part = [(code - FIRST) / (LAST - FIRST) for code in range(FIRST, LAST + 1)]
    shades = (round(low + (high - low) * p) for p in part for low, high in zip(_LOW, _HIGH, strict=True))
    return bytes((*_NOTHING, *_NOTHING, *shades))


#: A notebook keeps what it shows: no more bytes than this, the last parts by their rank are left out before.
MOST_BYTES: Final = 190_000
#: So many findings, rows of a table, lines of one kind, and steps of advice.
_FINDINGS, _ROWS, _LINES, _ADVICE = 5, 10, 12, 2


@dataclass(frozen=True, slots=True)
class NotebookPart:
    """A part of what is shown; where there is too little room, those of the greatest ``rank`` are left out first."""

    rank: int
    content: Markup


def result_html(result: Result) -> str:
    """Return the main parts of an analysis: its verdict, where the time goes, findings, steps and operators."""
    charts = {chart.id: chart for chart in charts_of(result)}
    sheet = result_sheet(result, View(), tuple(charts.values()))
    parts = [
        NotebookPart(0, _head(sheet.title, sheet.facts, sheet.verdicts, sheet.lines)),
        *_figures(2, _drawn(charts, "roots")),
        *_figures(3, (*map(_strip, _strips(sheet)), *_drawn(charts, "typical"))),
        *_figures(5, _drawn(charts, "steps")),
        *_figures(6, tuple(_heat_maps(charts.get("ranks")))),
        *_findings(sheet),
        *_operators(sheet),
    ]
    return _whole(parts, say("everything, with the timeline: {code}", code='run.save_html("report.html")'))


def comparison_html(comparison: Comparison, devices: int = 1) -> str:
    """Return the main parts of a comparison: its verdict, and where the difference comes from.

    ``devices``: how many the new side has.
    """
    first = verdict_line(comparison)
    lines = said([Line(first.content), *step_lines(comparison, devices)])
    verdict = Headline(OUTCOME[comparison.verdict], comparison.verdict, None, lines)
    title = say("{new} against {old}", new=comparison.new, old=comparison.old)
    charts = [chart for chart in (apart_chart(comparison), falls_chart(comparison)) if chart is not None]
    parts = [
        NotebookPart(0, _head(title, (), (verdict,), ())),
        *_lines_part(1, say("set-ups"), _set_ups(comparison)),
        *_figures(2, tuple(map(_figure, charts))),
        *_waterfall(comparison),
        *_lines_part(4, say("findings"), map(finding_line, _changed_findings(comparison))),
        *_lines_part(5, say("notes"), [*map(Line, comparison.aligned), *warnings(comparison.warnings)]),
    ]
    return _whole(parts, None)


def _whole(parts: Sequence[NotebookPart], foot: Message | None) -> str:
    style = element("style", Markup(scoped_style()))
    room, kept = MOST_BYTES - len(style), set()
    for at in sorted(range(len(parts)), key=lambda at: parts[at].rank):
        size = len(parts[at].content.encode("utf-8"))
        if size <= room:
            room -= size
            kept.add(at)
    left = len(parts) - len(kept)
    cut = say_n("{n} part is too large for a notebook", "{n} parts are too large for a notebook", left)
    ends = [element("p", plain(line), class_="foot") for line in (cut if left else None, foot) if line]
    content = [part.content for at, part in enumerate(parts) if at in kept]
    return str(element("div", style, *content, *ends, class_=SCOPE, lang=spoken() or None))


# --- the verdict ------------------------------------------------------------------------------------------------------


def _head(title: Message, facts: Iterable[Message], verdicts: Iterable[Headline], lines: Sequence[Said]) -> Markup:
    about = " · ".join(map(plain, facts))
    return element(
        "div",
        element("p", plain(title), class_="name"),
        *([element("p", about, class_="quiet")] if about else []),
        *map(_verdict, verdicts),
        *_told(lines),
    )


def _verdict(verdict: Headline) -> Markup:
    about = [] if verdict.about is None else [element("p", plain(verdict.about), class_="quiet")]
    word = element("p", plain(verdict.word), class_="word")
    return element("div", *about, word, *_told(verdict.lines), class_=f"verdict v-{verdict.mark}")


def _told(lines: Sequence[Said]) -> Iterator[Markup]:
    """Yield lines; of many the first, and how many more there are."""
    for line in lines[:_LINES]:
        label = [element("b", line.label), " "] if line.label else []
        content = Markup("<br>").join(map(escaped, line.lines))
        yield element("p", *label, content, class_=f"l-{line.mark}" if line.mark else None)
    left = sum(line.stands_for for line in lines[_LINES:])
    if left:
        yield element("p", plain(more_lines(left)), class_="quiet")


def _lines_part(rank: int, title: Message, lines: Iterable[Line]) -> Iterator[NotebookPart]:
    told = list(_told(said(lines)))
    if told:
        yield NotebookPart(rank, element("div", _heading(title), *told, class_="part"))


def _heading(title: Parameter) -> Markup:
    return element("p", plain(title), class_="heading")


# --- charts -----------------------------------------------------------------------------------------------------------


def _figures(rank: int, figures: Sequence[Markup]) -> Iterator[NotebookPart]:
    if figures:
        yield NotebookPart(rank, element("div", *figures, class_="figures"))


def _drawn(charts: dict[str, Chart], *names: str) -> tuple[Markup, ...]:
    return tuple(_figure(charts[name]) for name in names if name in charts)


def _figure(chart: Chart) -> Markup:
    return _framed(chart.title, chart.caption, chart.svg or Markup(""), wide=chart.wide)


def _framed(title: Message, caption: Message | None, *content: Markup, wide: bool = False) -> Markup:
    about = [] if caption is None else [element("p", plain(caption))]
    head = element("figcaption", _heading(title), *about)
    return element("figure", head, *content, class_="part wide" if wide else "part")


def _strips(sheet: Sheet) -> Iterator[Strip]:
    return (strip for block in sheet.blocks for strip in block.strips)


def _strip(strip: Strip) -> Markup:
    """Return the parts of a time one below the other, each beginning where the one above it ends."""
    rows = [
        BarRow(
            part.title,
            say("{time} ({share})", time=part.time, share=part.share),
            (Piece(part.start, part.start + part.width, part.colour),),
        )
        for part in strip.parts
    ]
    return _framed(say("where the time goes"), strip.title, bars(rows, 0, 100))


def _heat_maps(chart: Chart | None) -> Iterator[Markup]:
    """Yield what is measured of every rank in every step, each as an image."""
    if chart is None or chart.matrix is None:
        return
    matrix, size = chart.matrix, grouped(len(chart.matrix.rows), MOST_LINES).size
    note = say_n("one row in a line", "{n} rows in a line: the most of them", size) if size > 1 else None
    for layer in matrix.layers:
        title = say("{rank} × {step}: {what}", rank=matrix.row, step=matrix.column, what=layer.name)
        yield _framed(title, note, _heat_map(matrix, layer))


def _heat_map(matrix: Matrix, layer: Layer) -> Markup:
    up, along = (
        element("div", element("span", labels[0]), " ", element("span", labels[-1]), class_=class_, aria_hidden="true")
        for labels, class_ in ((matrix.rows, "axis-y"), (matrix.columns, "axis-x"))
    )
    image = heat_image(layer, len(matrix.columns), plain(layer.said))
    least, most = (escaped(shown(end, layer.unit)) for end in (layer.least, layer.most))
    scale = element("p", least, " ", ramp(), " ", most, class_="scale")
    axes = element("div", up, image, along, class_="axes")
    return element("div", axes, scale, element("p", plain(layer.said), class_="scale"))


# --- findings and tables ----------------------------------------------------------------------------------------------


def _findings(sheet: Sheet) -> Iterator[NotebookPart]:
    for block in (block for block in sheet.blocks if block.id == "findings"):
        more = len(block.cards) - _FINDINGS
        end = [element("p", plain(say_n("and {n} more", "and {n} more", more)), class_="quiet")] if more > 0 else []
        none = [] if block.cards else [*_told(block.lines)]
        items = element("ul", *map(_card, block.cards[:_FINDINGS]), class_="findings") if block.cards else Markup("")
        yield NotebookPart(1, element("div", _heading(block.title), *none, items, *end, class_="part"))


def _card(card: Card) -> Markup:
    badge = element("span", plain(card.severity), class_=f"badge b-{card.mark}")
    lines = ((card.about, "quiet"), (card.gain, "gain"), *((step, "advice") for step in card.advice[:_ADVICE]))
    told = [element("p", plain(line), class_=class_) for line, class_ in lines if line is not None]
    pasted = [*card.commands, *([card.code] if card.code else [])]
    code = [element("details", element("summary", plain(say("to paste"))), *map(_pasted, pasted))] if pasted else []
    return element("li", element("p", badge, " ", element("b", plain(card.title))), *told, *code)


def _pasted(content: str) -> Markup:
    """Return code as it is, of which nothing may be left out."""
    lines = Markup("\n").join(escape(visible(line)) for line in content.rstrip("\n").split("\n"))
    return element("pre", element("code", lines))


def _operators(sheet: Sheet) -> Iterator[NotebookPart]:
    grids = (grid for block in sheet.blocks for grid in block.grids if grid.name == "operators")
    return (NotebookPart(4, _table(grid.cut_to(_ROWS))) for grid in grids)


def _table(grid: Grid) -> Markup:
    kept = [at for at in range(1, len(grid.headers) + 1) if at not in grid.minor]
    classes = {at: "number" if at in grid.numeric else None for at in kept}
    head = [element("th", grid.headers[at - 1], scope="col", class_=classes[at]) for at in kept]
    rows = [
        element("tr", *(element("td", row.cells[at - 1].text, class_=classes[at]) for at in kept)) for row in grid.rows
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows))
    return element(
        "div",
        element("p", grid.title, class_="heading"),
        element("div", table, class_="scroll", tabindex=0, role="region", aria_label=grid.title),
        class_="part",
    )


# --- comparisons ------------------------------------------------------------------------------------------------------


def _set_ups(comparison: Comparison) -> Iterator[Line]:
    """Yield what differs between the set-ups and may explain a change, and how much more does."""
    notable = tuple(d for d in comparison.parity if d.matters or d.mismatch)
    left = len(comparison.parity) - len(notable)
    if notable or not comparison.parity:
        yield from parity_lines(replace(comparison, parity=notable), None)
    if left:
        yield Line(
            say_n("{n} difference that should not change the time", "{n} differences that should not change the time",
                  left), "dim"
        )  # fmt: skip


def _waterfall(comparison: Comparison) -> Iterator[NotebookPart]:
    keys = (column.key for column in FALLS.columns if column.unit != "bar" and column.weight < MINOR)
    table = FALLS.only(*keys).titled(falls_title(comparison))
    grid = grid_of_filled(filled(table, falls(comparison, PARTS)))
    if grid is not None:
        yield NotebookPart(3, _table(grid))
    elif comparison.waterfall:
        yield from _lines_part(3, say("what changed"), [Line(unchanged(comparison), "dim")])


def _changed_findings(comparison: Comparison) -> Iterator[FindingChange]:
    return (change for change in comparison.findings if change.change != "same")
