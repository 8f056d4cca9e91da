"""A time split into parts, and these into theirs, one level below the other: every block as wide as it takes long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from npuperf.messages import ns, say, share
from npuperf.render.language import text
from npuperf.webpage.svg import element, fitting, rect, title, width_of

#: Widths that it is drawn for: text in it is not stretched, so that there is one for each kind of screen.
_DRAWN: Final = (("wide-only", 1040), ("narrow-only", 360))
_ROW, _SIZE, _PAD = 30, 13, 5
#: Blocks narrower than this, in the units of its width, are in the table alone.
_NARROWEST: Final = 1.5
#: So many tints of the colour tell neighbours apart.
_TINTS: Final = 3


@dataclass(frozen=True, slots=True)
class Slab:
    """A part: its name, its time, the parts that it has, and where it is in the timeline."""

    name: str
    ns: int
    inside: tuple[Slab, ...] = ()
    go: str = ""


def icicle(root: Slab, said: str) -> Markup:
    """Return the picture of a time split in parts; ``said``: what it shows, for those who do not see it."""
    return element("div", *(_drawn(root, said, class_, width) for class_, width in _DRAWN))


def _drawn(root: Slab, said: str, class_: str, width: int) -> Markup:
    blocks = list(_blocks(root, root.ns, 0.0, float(width), 0, 0))
    height = _ROW * _depth(root)
    return element("svg", title(said), *blocks, viewBox=f"0 0 {width} {height}", class_=f"icicle {class_}",
                   role="img", aria_label=said, focusable="false")  # fmt: skip


def _depth(slab: Slab) -> int:
    return 1 + max(map(_depth, slab.inside), default=0)


def _blocks(slab: Slab, total: int, left: float, width: float, depth: int, tint: int) -> Iterator[Markup]:
    """Yield a block and those below it; what is too narrow to be seen is left out, and its room left empty."""
    if width < _NARROWEST:
        return
    yield _block(slab, total, left, width, depth, tint)
    at = left
    for i, part in enumerate(slab.inside):
        room = width * part.ns / slab.ns if slab.ns else 0.0
        yield from _blocks(part, total, at, room, depth + 1, i % _TINTS)
        at += room


def _block(slab: Slab, total: int, left: float, width: float, depth: int, tint: int) -> Markup:
    part = share(slab.ns / total)
    said = text(say("{name}: {time} ({share})", name=slab.name, time=ns(slab.ns), share=part))
    shape = rect(left, depth * _ROW, width, _ROW, f"slab tint-{tint if depth else _TINTS}")
    inside = [title(said), shape]
    room = width - 2 * _PAD
    whole = slab.name if depth == 0 else f"{slab.name} {part}"
    label = whole if width_of(whole, _SIZE) <= room else fitting(slab.name, room, _SIZE)
    if label:
        inside.append(element("text", label, x=left + _PAD, y=depth * _ROW + _ROW / 2 + _SIZE / 3, class_="slab-text"))
    return element("g", *inside, data_go=slab.go or None)
