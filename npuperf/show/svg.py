"""Elements of HTML and SVG, built safely: every text and every attribute is escaped, and none carries a style.

Colours come from classes (``charts.css``): the page's policy forbids ``style``, and classes follow light and dark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final, Literal
from unicodedata import east_asian_width

from markupsafe import Markup, escape

from npuperf.base.escape import for_screen
from npuperf.base.messages import Message, Parameter, Quantity, chain, ns, say, share
from npuperf.model.result import Device, Partition
from npuperf.show.language import text
from npuperf.show.matrix import Matrix
from npuperf.show.words import WITH_LAUNCHES

#: Pictures without text are drawn on so many units and stretched to the width that there is.
WIDTH: Final = 1000
#: How wide a letter is, in units of its height; of Chinese ones one.
_LETTER: Final = 0.62
#: Of a text that is cut, fewer letters than this say nothing.
_FEWEST_LETTERS: Final = 4

Attribute = str | int | float | None


def element(name: str, *children: Markup | str, **attributes: Attribute) -> Markup:
    """Return an element. ``class_`` is written ``class``, ``data_go`` is ``data-go``; None leaves an attribute out."""
    written = Markup("").join(
        Markup(' {}="{}"').format(
            Markup(key.removesuffix("_").replace("_", "-")),
            Markup(rounded(value)) if isinstance(value, int | float) else escaped(value),
        )
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(child if isinstance(child, Markup) else escaped(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, inside)


def escaped(said: str) -> Markup:
    """Return a text of whoever wrote it as text of the page: what cannot be seen is spelled out."""
    return escape(for_screen(said))


def rounded(value: float) -> str:
    """Return a coordinate with two decimals at most."""
    return f"{round(value, 2):.2f}".rstrip("0").rstrip(".")


def rect(x: float, y: float, width: float, height: float, class_: str, *inside: Markup, go: str = "") -> Markup:
    """Return a rectangle; ``go``: where in the timeline it leads."""
    return element("rect", *inside, x=x, y=y, width=width, height=height, class_=class_, data_go=go or None)


def stretched(height: int, *children: Markup, class_: str, said: str | None = None) -> Markup:
    """Return a picture without text, 1,000 units wide, that fills the room there is.

    ``said``: what it shows, for those who do not see it; without it the text beside it says that.
    """
    return element(
        "svg",
        *([element("title", said)] if said else []),
        *children,
        viewBox=f"0 0 {WIDTH} {height}",
        preserveAspectRatio="none",
        class_=class_,
        role="img" if said else None,
        aria_label=said,
        aria_hidden=None if said else "true",
        focusable="false",
    )


def legend(entries: Iterable[tuple[str, Message]]) -> Markup:
    """Return what colours mean; each a class and words."""
    items = []
    for colour, said in entries:
        square = rect(0, 0, 10, 10, f"fill {colour}")
        swatch = element("svg", square, viewBox="0 0 10 10", class_="swatch", aria_hidden="true", focusable="false")
        items.append(element("li", swatch, plain(said)))
    return element("ul", *items, class_="legend")


def width_of(said: str, size: float) -> float:
    """Return about how wide a text is drawn in letters so high."""
    return size * fsum(1.0 if east_asian_width(letter) in "WF" else _LETTER for letter in said)


def fitting(said: str, room: float, size: float) -> str:
    """Return as much of a text as fits, or nothing where that would be less than four letters of it."""
    if width_of(said, size) <= room:
        return said
    kept = said[: max(int(room / size / _LETTER), 0)]
    while kept and width_of(f"{kept}…", size) > room:
        kept = kept[:-1]
    return f"{kept}…" if len(kept) >= _FEWEST_LETTERS else ""


def edges(parts: Sequence[int], whole: int, length: int) -> list[int]:
    """Return where parts of a whole begin and end on a line so long, without gaps: n + 1 rounded places."""
    found, at = [0], 0
    for part in parts:
        at += part
        found.append(round(at * length / whole) if whole else 0)
    return found


# -- One chart of a page, and the words that charts share.


@dataclass(frozen=True, slots=True)
class Chart:
    """``caption``: what is read off it, with numbers. ``svg``: the whole picture, with its texts and what says it to
    those who do not see it; else ``matrix``, for a canvas. ``topic``: it stands with the tables of that topic.
    """

    id: str
    title: Message
    caption: Message | None
    svg: Markup | None = None
    matrix: Matrix | None = None
    wide: bool = False
    topic: str = ""


#: Parts of a step that add up to it: the field, its words, the class of its colour.
STEP_PARTS: Final = (
    ("compute_ns", say("compute"), "c-compute"),
    ("comm_transfer_ns", say("exposed transfer"), "c-transfer"),
    ("comm_wait_ns", say("waiting for other ranks"), "c-comm_wait"),
    ("comm_unknown_ns", say("exposed communication"), "c-communication"),
    ("other_exposed_ns", say("exposed copies and other work"), "c-other"),
    ("host_wait_ns", say("waiting for the host"), "c-host_wait"),
    ("launch_latency_ns", say("launch latency"), "c-launch_latency"),
    ("dependency_wait_ns", say("waiting for a dependency"), "c-dependency_wait"),
    ("unattributed_ns", say("unattributed (no launch recorded)"), "c-unattributed"),
)


def parts_of_step(partition: Partition) -> list[int]:
    """Return the parts of a window in the order of STEP_PARTS; they add up to its span."""
    return [getattr(partition, field) for field, _, _ in STEP_PARTS]


def words_of_part(device: Device, field: str, words: Message) -> Message:
    """Return what a part is called on this device: without a calibrated latency, launches count to the host."""
    if field == "host_wait_ns" and device.clock.latency_reason:
        return WITH_LAUNCHES
    return words


def plain(message: Parameter) -> str:
    """Return a message as a line of the page, in the current language."""
    return for_screen(text(message))


# -- Rows of a name, a value and a bar: charts that are read at any width, and by those who see no bars.

#: How a piece is drawn: filled; with stripes; as a thin line with ends, which is an interval.
Look = Literal["fill", "stripes", "whisker"]
#: Which part of a bar's height a piece takes.
Part = Literal["all", "upper", "lower"]

_HEIGHT: Final = 20
_SPANS: Final[dict[Part, tuple[int, int]]] = {"all": (2, 16), "upper": (1, 9), "lower": (10, 9)}
_STRIPE: Final = 9
#: Narrower pieces have an edge of their own colour, so that they are seen.
_THIN: Final = 6
#: Longer names may be cut by the page, and are shown whole where the pointer rests on them.
_LONG: Final = 24


@dataclass(frozen=True, slots=True)
class Piece:
    """From where to where a bar is drawn, in the unit of its scale; ``colour``: a class of charts.css."""

    low: float
    high: float
    colour: str
    said: Parameter = None
    look: Look = "fill"
    part: Part = "all"


@dataclass(frozen=True, slots=True)
class BarRow:
    """``note``: what else is known, below; ``go``: where it is in the timeline, as "picture:start:end"."""

    name: Parameter
    value: Parameter
    pieces: Sequence[Piece]
    note: Parameter = None
    go: str = ""
    strong: bool = False


def bars(rows: Iterable[BarRow], low: float, high: float, *, many: bool = False) -> Markup:
    """Return rows on one scale; between a ``low`` below nothing and ``high`` there is a line at nothing.

    ``many``: in columns, where there is room for several.
    """
    items = []
    for row in rows:
        called = plain(row.name)
        said = element("button", called, type="button", class_="bar-go", data_go=row.go) if row.go else called
        drawn = [part for piece in row.pieces for part in _piece(piece, low, high)] if high > low else []
        if low < 0 < high:
            drawn.append(element("path", d=f"M {WIDTH * -low / (high - low):.2f} 0 V {_HEIGHT}", class_="zero"))
        inside = [
            element("span", said, class_="bar-name", title=called if len(called) > _LONG else None),
            " ",  # seen where styles are taken away, and in what is copied
            element("span", plain(row.value), class_="bar-value"),
            stretched(_HEIGHT, *drawn, class_="bar"),
        ]
        if row.note and (note := plain(row.note)):
            inside += [" ", element("span", note, class_="bar-note")]
        items.append(element("li", *inside, class_="strong" if row.strong else None))
    return element("ul", *items, class_="bars many" if many else "bars")


def _piece(piece: Piece, low: float, high: float) -> Iterator[Markup]:
    left, right = sorted(WIDTH * (min(max(end, low), high) - low) / (high - low) for end in (piece.low, piece.high))
    top, height = _SPANS[piece.part]
    inside = [element("title", plain(piece.said))] if piece.said else []
    if piece.look == "whisker":
        middle = top + height / 2
        ends = " ".join(f"M {at:.2f} {top} V {top + height}" for at in (left, right))
        yield element("path", *inside, d=f"M {left:.2f} {middle:g} H {right:.2f} {ends}", class_="whisker")
        return
    if right <= left:
        return
    look = piece.look if right - left >= _THIN else "thin"
    yield rect(left, top, right - left, height, f"{look} {piece.colour}", *inside)
    if piece.look == "stripes":
        lines = " ".join(f"M {x} {top} V {top + height}" for x in range(int(left) + 4, int(right), _STRIPE))
        if lines:
            yield element("path", d=lines, class_="stripe")


# -- A time, or bytes, split into parts, and these into theirs, one level below the other: as wide as they are large.

#: Widths that pictures with text are drawn for: text is not stretched, so that there is one for each kind of screen.
DRAWN: Final = (("wide-only", 1040), ("narrow-only", 360))
_ROW, _SIZE, _PAD = 30, 13, 5
#: Blocks narrower than this, in the units of its width, are in the table alone.
_NARROWEST: Final = 1.5
#: So many tints of the colour tell neighbours apart.
_TINTS: Final = 3


@dataclass(frozen=True, slots=True)
class Slab:
    """A part: its name, its size, the parts that it has, where it is in the timeline, and what else is known of it.

    ``colour``: a class of charts.css where it means something, else a tint that tells neighbours apart.
    """

    name: str
    size: int
    inside: tuple[Slab, ...] = ()
    go: str = ""
    note: Message | None = None
    colour: str = ""


def icicle(root: Slab, said: str, unit: Callable[[int], Quantity] = ns) -> Markup:
    """Return the picture of a whole split in parts; ``said``: what it shows, for those who do not see it."""
    height = _ROW * _depth(root)
    drawn = []
    for class_, width in DRAWN:
        blocks = _blocks(root, root.size, unit, 0.0, float(width), 0, 0)
        drawn.append(element(
            "svg", element("title", said), *blocks, viewBox=f"0 0 {width} {height}", class_=f"icicle {class_}",
            role="img", aria_label=said, focusable="false",
        ))  # fmt: skip
    return element("div", *drawn)


def _depth(slab: Slab) -> int:
    return 1 + max(map(_depth, slab.inside), default=0)


def _blocks(
    slab: Slab, total: int, unit: Callable[[int], Quantity], left: float, width: float, depth: int, tint: int
) -> Iterator[Markup]:
    """Yield a block and those below it; what is too narrow to be seen is left out, and its room left empty."""
    if width < _NARROWEST:
        return
    part, room = share(slab.size / total), width - 2 * _PAD
    told = say("{name}: {time} ({share})", name=slab.name, time=unit(slab.size), share=part)
    colour = slab.colour or f"tint-{tint if depth else _TINTS}"
    inside = [element("title", text(chain(told, slab.note, by=" · "))),
              rect(left, depth * _ROW, width, _ROW, f"slab {colour}")]  # fmt: skip
    whole = slab.name if depth == 0 else f"{slab.name} {part}"
    if label := whole if width_of(whole, _SIZE) <= room else fitting(slab.name, room, _SIZE):
        base = depth * _ROW + _ROW / 2 + _SIZE / 3
        inside.append(element("text", label, x=left + _PAD, y=base, class_="slab-text"))
    yield element("g", *inside, data_go=slab.go or None)
    at = left
    for i, below in enumerate(slab.inside):
        wide = width * below.size / slab.size if slab.size else 0.0
        yield from _blocks(below, total, unit, at, wide, depth + 1, i % _TINTS)
        at += wide
