"""Lines of text in which letters may be two columns wide and words have no blanks between them, as in Chinese."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

#: Letters that may be two columns wide, as a class of a pattern: signs such as … and → lie between them.
WIDE: Final = "\u1100-\u11ff\u2e80-\U0010ffff"
_ANY_WIDE: Final = re.compile(f"[{WIDE}]")
#: Signs that no line begins with, and that none ends with.
_CLOSING, _OPENING = "，。；：、？！）》」』％", "（《「『"
#: What no line is broken in: numbers with their units, words, single letters that are wide, each with its signs.
_PIECE: Final = re.compile(
    rf"[{_OPENING}]*(?:[+-]?[\d.,]+ (?:%|[mun]?s|[KMGT]?i?B)(?![A-Za-z])|[^\s{WIDE}]+|[^\s{_CLOSING}])"
    rf"[{_CLOSING}]*|[{_CLOSING}]+|\s+"
)


def is_wide(said: str) -> bool:
    """Tell whether a text may have letters that are two columns wide."""
    return not said.isascii() and _ANY_WIDE.search(said) is not None


def columns(said: str) -> int:
    """Return how many columns of a terminal a text takes."""
    from unicodedata import east_asian_width

    return sum(1 + (east_asian_width(letter) in "WF") for letter in said)


def line_starts(said: str, room: int, width: Callable[[str], int] = columns) -> list[int]:
    """Return where lines begin, the first one left out, so that none takes more than ``room`` columns.

    Blanks at the end of a line count for nothing. What is longer than a line is broken anywhere.
    """
    starts: list[int] = []
    used = 0
    for found in _PIECE.finditer(said):
        piece, at = found.group(), found.start()
        takes = width(piece)
        if used and used + takes > room and not piece.isspace():
            starts.append(at)
            used = 0
        if takes > room and not piece.isspace():
            for i, letter in enumerate(piece):
                if used and used + width(letter) > room:
                    starts.append(at + i)
                    used = 0
                used += width(letter)
        else:
            used += takes
    return starts
