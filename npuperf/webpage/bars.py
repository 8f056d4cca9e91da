"""Rows of a name, a value and a bar: charts that are read at any width, and by those who see no bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from markupsafe import Markup

from npuperf.webpage.svg import WIDTH, element, rect, stretched, title

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
    said: str = ""
    look: Look = "fill"
    part: Part = "all"


@dataclass(frozen=True, slots=True)
class BarRow:
    """``note``: what else is known, below; ``go``: where it is in the timeline, as "picture:start:end"."""

    name: str
    value: str
    pieces: tuple[Piece, ...]
    note: str = ""
    go: str = ""
    strong: bool = False


def bars(rows: Sequence[BarRow], low: float, high: float, *, many: bool = False) -> Markup:
    """Return rows on one scale; between a ``low`` below nothing and ``high`` there is a line at nothing.

    ``many``: in columns, where there is room for several.
    """
    return element("ul", *(_row(row, low, high) for row in rows), class_="bars many" if many else "bars")


def _row(row: BarRow, low: float, high: float) -> Markup:
    said = element("button", row.name, type="button", class_="bar-go", data_go=row.go) if row.go else row.name
    name = element("span", said, class_="bar-name", title=row.name if len(row.name) > _LONG else None)
    note = [" ", element("span", row.note, class_="bar-note")] if row.note else []
    return element(
        "li",
        name,
        " ",  # seen where styles are taken away, and in what is copied
        element("span", row.value, class_="bar-value"),
        stretched(_HEIGHT, *_drawn(row.pieces, low, high), class_="bar"),
        *note,
        class_="strong" if row.strong else None,
    )


def _drawn(pieces: Iterable[Piece], low: float, high: float) -> Iterable[Markup]:
    whole = high - low
    if whole <= 0:
        return
    for piece in pieces:
        left, right = sorted(WIDTH * (min(max(end, low), high) - low) / whole for end in (piece.low, piece.high))
        yield from _piece(piece, left, right)
    if low < 0 < high:
        yield _line("M {0} 0 V {1}", WIDTH * -low / whole, class_="zero")


def _piece(piece: Piece, left: float, right: float) -> Iterable[Markup]:
    top, height = _SPANS[piece.part]
    inside = [title(piece.said)] if piece.said else []
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


def _line(path: str, at: float, class_: str) -> Markup:
    return element("path", d=path.format(f"{at:.2f}", _HEIGHT), class_=class_)
