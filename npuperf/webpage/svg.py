"""Elements of HTML and SVG, built safely: every text and every attribute is escaped, and none carries a style.

Colours come from classes (``charts.css``): the page's policy forbids ``style``, and classes follow light and dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from unicodedata import east_asian_width

from markupsafe import Markup, escape

from npuperf.escape import for_screen

#: Pictures without text are drawn on so many units and stretched to the width that there is.
WIDTH: Final = 1000
#: How wide a letter is, in units of its height; of Chinese ones one.
_LETTER: Final = 0.62

Attribute = str | int | float | None


def element(name: str, *children: Markup | str, **attributes: Attribute) -> Markup:
    """Return an element. ``class_`` is written ``class``, ``data_go`` is ``data-go``; None leaves an attribute out."""
    written = Markup("").join(
        Markup(' {}="{}"').format(Markup(_attribute(key)), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(child if isinstance(child, Markup) else escaped(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, inside)


def escaped(said: str) -> Markup:
    """Return a text of whoever wrote it as text of the page: what cannot be seen is spelled out."""
    return escape(for_screen(said))


def _attribute(key: str) -> str:
    return key.removesuffix("_").replace("_", "-")


def _value(value: str | int | float) -> Markup:
    return Markup(rounded(value)) if isinstance(value, int | float) else escaped(value)


def rounded(value: float) -> str:
    """Return a coordinate with two decimals at most."""
    return f"{round(value, 2):.2f}".rstrip("0").rstrip(".")


def title(said: str) -> Markup:
    """Return what is shown when the pointer rests on an element."""
    return element("title", said)


def rect(x: float, y: float, width: float, height: float, class_: str, *inside: Markup, go: str = "") -> Markup:
    """Return a rectangle; ``go``: where in the timeline it leads."""
    return element("rect", *inside, x=x, y=y, width=width, height=height, class_=class_, data_go=go or None)


def stretched(height: int, *children: Markup, class_: str, said: str | None = None) -> Markup:
    """Return a picture without text, 1,000 units wide, that fills the room there is.

    ``said``: what it shows, for those who do not see it; without it the text beside it says that.
    """
    return element(
        "svg",
        *([title(said)] if said else []),
        *children,
        viewBox=f"0 0 {WIDTH} {height}",
        preserveAspectRatio="none",
        class_=class_,
        role="img" if said else None,
        aria_label=said,
        aria_hidden=None if said else "true",
        focusable="false",
    )


def swatch(colour: str) -> Markup:
    """Return a little square of a colour, for legends."""
    square = rect(0, 0, 10, 10, f"fill {colour}")
    return element("svg", square, viewBox="0 0 10 10", class_="swatch", aria_hidden="true", focusable="false")


def legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """Return what colours mean; each a class and words."""
    return element("ul", *(element("li", swatch(c), said) for c, said in entries), class_="legend")


def width_of(said: str, size: float) -> float:
    """Return about how wide a text is drawn in letters so high."""
    return size * sum(1.0 if east_asian_width(letter) in "WF" else _LETTER for letter in said)


def fitting(said: str, room: float, size: float) -> str:
    """Return as much of a text as fits, or nothing where that would be less than four letters of it."""
    if width_of(said, size) <= room:
        return said
    kept = said[: max(int(room / size / _LETTER), 0)]
    while kept and width_of(f"{kept}…", size) > room:
        kept = kept[:-1]
    return f"{kept}…" if len(kept) >= _LEAST else ""


_LEAST: Final = 4


def edges(parts: Sequence[int], whole: int, length: int) -> list[int]:
    """Return where parts of a whole begin and end on a line so long, without gaps: n + 1 rounded places."""
    found, at = [0], 0
    for part in parts:
        at += part
        found.append(round(at * length / whole) if whole else 0)
    return found
