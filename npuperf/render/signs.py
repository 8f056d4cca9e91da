"""Pictures of numbers within a line of text: bars of letters, sparklines, meters; digits where signs are lacking.

Nothing here knows of terminals: strings and numbers come out, which others colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from msgspec import Struct

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_DIGITS: Final = " 12345678"
_FULL, _EMPTY = "█", "░"


class Spark(Struct, frozen=True):
    """A series as signs: each of them the greatest of ``each`` values, the last one that of the rest."""

    signs: str
    each: int


def widths(sizes: Sequence[int], room: int) -> list[int]:
    """Return how many of ``room`` places each size gets: in proportion, and together all of them (largest remainder).

    Sizes are not negative. Of nothing at all nobody gets any.
    """
    whole = sum(sizes)
    if whole <= 0 or room <= 0:
        return [0] * len(sizes)
    places = [size * room // whole for size in sizes]
    by_rest = sorted(range(len(sizes)), key=lambda i: -(sizes[i] * room % whole))
    for i in by_rest[: room - sum(places)]:
        places[i] += 1
    return places


def in_letters(pieces: Iterable[tuple[str, int]], room: int) -> str:
    """Return letters, each as often as its size asks for, ``room`` of them in all; sizes below 0 count for nothing."""
    letters, sizes = zip(*((letter, max(size, 0)) for letter, size in pieces), strict=True)
    return "".join(letter * n for letter, n in zip(letters, widths(sizes, room), strict=True))


def meter(part: float | None, places: int = 10) -> str:
    """Return a share of one as a bar of so many places, e.g. ``████░░░░░░``; nothing where it is unknown."""
    if part is None:
        return ""
    full = int(min(max(part, 0.0), 1.0) * places + 0.5)
    return _FULL * full + _EMPTY * (places - full)


def level(part: float) -> int:
    """Return the height of a share of one in eighths; anything but nothing is seen."""
    return max(round(min(part, 1.0) * 8), 1 if part > 0 else 0)


def heights(parts: Sequence[float], blocks: bool) -> str:
    """Return shares of one as signs from bottom to top, in digits where there are no ``blocks``."""
    signs = _BLOCKS if blocks else _DIGITS
    return "".join(signs[level(part)] for part in parts)


def spark(values: Sequence[int], room: int, blocks: bool) -> Spark:
    """Return values that are not negative as signs from 0 to the greatest, ``room`` (1 or more) of them at most."""
    each = -(-len(values) // room)
    most = max(values, default=0) or 1
    return Spark(heights([value / most for value in grouped(values, each)], blocks), each)


def grouped(values: Sequence[int], each: int) -> list[int]:
    """Return the greatest of every ``each`` values, in their order."""
    return [max(values[i : i + each]) for i in range(0, len(values), max(each, 1))]


def thinned(parts: Sequence[float], room: int) -> list[float]:
    """Return means of equal numbers of neighbours, so that ``room`` of them are enough; nothing where none are."""
    each = next((n for n in range(1, len(parts) + 1) if len(parts) % n == 0 and len(parts) // n <= room), None)
    return [sum(parts[i : i + each]) / each for i in range(0, len(parts), each)] if each else []


def any_of(marked: Sequence[bool], each: int) -> list[bool]:
    """Tell of every ``each`` values, in their order, whether one is marked."""
    return [any(marked[i : i + each]) for i in range(0, len(marked), each)]


def runs(signs: str) -> list[str]:
    """Return a text as pieces of the same sign."""
    return ["".join(run) for _, run in groupby(signs)]
