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
from functools import cache
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup
from msgspec.structs import replace

from npuperf.base.files import read_input
from npuperf.base.messages import Message, say, say_n
from npuperf.model.comparison import Comparison
from npuperf.model.result import Result
from npuperf.show.charts import apart_chart, charts_of, falls_chart
from npuperf.show.comparison_text import PARTS, parity_lines, unchanged
from npuperf.show.formats import View
from npuperf.show.html import environment
from npuperf.show.language import spoken
from npuperf.show.matrix import FIRST, LAST, Layer, grouped, shown
from npuperf.show.result_sheet import changed_findings, comparison_headline, result_sheet, waterfall_table
from npuperf.show.sheet import MINOR, Strip, grid_of, more_lines, warnings
from npuperf.show.svg import BarRow, Chart, Piece, bars, escaped, plain
from npuperf.show.words import Line

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
        inside = []
        for one in used:
            root = next((root for root in _ROOTS if one.startswith(root)), None)
            inside.append(f"{_SCOPE} {one}" if root is None else _ROOTS[root] + one.removeprefix(root))
        if inside:
            yield f"{','.join(inside)}{{{body}}}"


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
    # Colours of codes: not known, nothing, and then from the least to the most.
    part = [(code - FIRST) / (LAST - FIRST) for code in range(FIRST, LAST + 1)]
    shades = (round(least + (most - least) * p) for p in part for least, most in zip(_LOW, _HIGH, strict=True))
    colours = bytes((*_NOTHING, *_NOTHING, *shades))
    head = struct.pack(">IIBBBBB", width, height, 8, _INDEXED, 0, 0, 0)
    packed = zlib.compress(content, 9)
    chunks = ((b"IHDR", head), (b"PLTE", colours), (b"tRNS", b"\0"), (b"IDAT", packed), (b"IEND", b""))
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def heat_maps(chart: Chart) -> Iterator[dict[str, object]]:
    """Yield what is measured of every rank in every step, each as an image with what stands around it."""
    matrix = chart.matrix
    if matrix is None:
        return
    size = grouped(len(matrix.rows), MOST_LINES).size
    for layer in matrix.layers:
        yield {
            "title": say("{rank} × {step}: {what}", rank=matrix.row, step=matrix.column, what=layer.name),
            "note": say_n("one row in a line", "{n} rows in a line: the most of them", size) if size > 1 else None,
            "rows": matrix.rows,
            "columns": matrix.columns,
            "image": heat_image(layer, len(matrix.columns), plain(layer.said)),
            "least": shown(layer.least, layer.unit),
            "most": shown(layer.most, layer.unit),
            "ramp": _image([bytes(range(FIRST, LAST + 1, 2))], 1, 10, "ramp", ""),
            "said": layer.said,
        }


# -- What is shown, in parts.

#: A notebook keeps what it shows: no more bytes than this, the last parts by their rank are left out before.
MOST_BYTES: Final = 190_000
#: So many findings, rows of a table, lines of one kind, and steps of advice.
_FINDINGS, _ROWS, _LINES, _ADVICE = 5, 10, 12, 2

#: A part, after its rank: where there is too little room, those of the greatest are left out first.
_Part = tuple[int, Markup]


@cache
def _macros() -> Any:
    """Return what makes parts, by the names of ``notebook.html``."""
    known = {"most_lines": _LINES, "most_findings": _FINDINGS, "most_advice": _ADVICE, "more_lines": more_lines}
    return environment().get_template("cells/notebook.html", globals=known).module


def result_html(result: Result) -> str:
    """Return the main parts of an analysis: its verdict, where the time goes, findings, steps, operators, memory."""
    charts = {chart.id: chart for chart in charts_of(result)}
    sheet = result_sheet(result, View(), tuple(charts.values()))
    blocks = {block.id: block for block in sheet.blocks}
    parts = [
        (0, _macros().head(sheet.title, sheet.facts, sheet.verdicts, sheet.lines)),
        *_figures(2, charts.get("roots")),
        *_figures(3, *(_strip(strip) for block in sheet.blocks for strip in block.strips), charts.get("typical")),
        *_figures(5, charts.get("steps")),
        *_figures(7, charts.get("efficiency")),
        *_figures(8, charts.get("memory"), charts.get("memory-peak")),
    ]
    if "ranks" in charts:
        parts.append((6, _macros().figures((), tuple(heat_maps(charts["ranks"])))))
    if found := blocks.get("findings"):
        more = len(found.cards) - _FINDINGS
        words = {"paste": say("to paste"), "more": say_n("and {n} more", "and {n} more", more) if more > 0 else None}
        parts.append((1, _macros().findings(found, words)))
    operators = (made for block in sheet.blocks for made in block.tables if made.table.name == "operators")
    parts += [(4, _macros().table(grid_of(made).cut_to(_ROWS))) for made in operators]
    return _whole(parts, say("everything, with the timeline: {code}", code='run.save_html("report.html")'))


def comparison_html(comparison: Comparison, devices: int = 1) -> str:
    """Return the main parts of a comparison: its verdict, and where the difference comes from.

    ``devices``: how many the new side has.
    """
    title = say("{new} against {old}", new=comparison.new, old=comparison.old)
    waterfall = waterfall_table(comparison, PARTS, MINOR)
    unsplit = [] if waterfall or not comparison.waterfall else [Line(unchanged(comparison), "dim")]
    parts = [
        (0, _macros().head(title, (), (comparison_headline(comparison, devices),), ())),
        *_lines(1, say("set-ups"), _set_ups(comparison)),
        *_figures(2, apart_chart(comparison), falls_chart(comparison)),
        *(
            [(3, _macros().table(grid_of(made))) for made in waterfall]
            if waterfall
            else _lines(3, say("what changed"), unsplit)
        ),
        *_lines(4, say("findings"), changed_findings(comparison)),
        *_lines(5, say("notes"), [*map(Line, comparison.aligned), *warnings(comparison.warnings)]),
    ]
    return _whole(parts, None)


def _whole(parts: Sequence[_Part], foot: Message | None) -> str:
    style = scoped_style()
    room, kept = MOST_BYTES - len(style), set()
    for at in sorted(range(len(parts)), key=lambda at: parts[at][0]):
        size = len(parts[at][1].encode("utf-8"))
        if size <= room:
            room -= size
            kept.add(at)
    left = len(parts) - len(kept)
    cut = say_n("{n} part is too large for a notebook", "{n} parts are too large for a notebook", left)
    ends = [line for line in (cut if left else None, foot) if line]
    content = [part for at, (_, part) in enumerate(parts) if at in kept]
    return str(_macros().whole(SCOPE, spoken(), Markup(style), content, ends)).strip()


def _figures(rank: int, *charts: Chart | None) -> list[_Part]:
    there = [chart for chart in charts if chart is not None]
    return [(rank, _macros().figures(there, ()))] if there else []


def _lines(rank: int, title: Message, lines: Iterable[Line]) -> list[_Part]:
    told = list(lines)
    return [(rank, _macros().titled(title, told))] if told else []


def _strip(strip: Strip) -> Chart:
    """Return the parts of a time one below the other, each beginning where the one above it ends."""
    rows = [
        BarRow(
            part.title,
            say("{time} ({share})", time=part.time, share=part.share),
            [Piece(part.start, part.start + part.width, part.colour)],
        )
        for part in strip.parts
    ]
    return Chart("strip", say("where the time goes"), strip.title, bars(rows, 0, 100))


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
