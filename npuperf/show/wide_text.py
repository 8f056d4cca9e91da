"""Lines of text in which quantities stay whole, letters may be two columns wide, and words may have no blanks between
them, as in Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

#: Letters that may be two columns wide, as a class of a pattern: signs such as … and → lie between them.
WIDE: Final = "\u1100-\u11ff\u2e80-\U0010ffff"
#: Signs that no line begins with, and that none ends with.
_CLOSING, _OPENING = "，。；：、？！）》」』％", "（《「『"
#: Numbers, those with their thousands apart, and what they count; and what is between two of them.
_SIGNS: Final = r"[(\[]*[-+−]?"
_APART: Final = r"\d{1,3}(?:[ \u2009\u202f]\d{3}(?!\d))+(?:\.\d+)?"
_NUMBER: Final = rf"{_SIGNS}(?:{_APART}|\d[\d.,]*)"
_UNIT: Final = r" (?:%|[munµ]?s|min|h|[kKMGT]?i?B(?:/s)?|[kMG]?Hz)(?![A-Za-z])"
_QUANTITY: Final = rf"(?:{_NUMBER}(?:{_UNIT})? … )?{_NUMBER}{_UNIT}"


def is_wide(said: str) -> bool:
    """Tell whether a text may have letters that are two columns wide."""
    if said.isascii():
        return False
    return max(said) >= "\u2e80" or any("\u1100" <= letter <= "\u11ff" for letter in said)  # as WIDE has it


def columns(said: str) -> int:
    """Return how many columns of a terminal a text takes."""
    from unicodedata import east_asian_width

    return sum(1 + (east_asian_width(letter) in "WF") for letter in said)


@cache
def _piece(*, wide: bool) -> re.Pattern[str]:
    """Return what no line is broken in: quantities, words, single letters that are wide, each with its signs.

    Compiling what is for wide letters takes longer than loading any module, and few texts have any.
    """
    letter = rf"[^\s{WIDE}]" if wide else r"\S"
    word = rf"{_QUANTITY}{letter}*|{_SIGNS}{_APART}{letter}*|{letter}+"
    if not wide:
        return re.compile(rf"{word}|\s+")
    return re.compile(rf"[{_OPENING}]*(?:{word}|[^\s{_CLOSING}])[{_CLOSING}]*|[{_CLOSING}]+|\s+")


def _pieces(said: str, room: int, width: Callable[[str], int]) -> Iterator[tuple[int, str]]:
    """Yield what no line is broken in, and where it stands: a quantity longer than a line goes word by word."""
    for found in _piece(wide=is_wide(said)).finditer(said):
        piece, at = found.group(), found.start()
        if width(piece) <= room:
            yield at, piece
        else:
            for word in re.finditer(r"\s+|\S+", piece):
                yield at + word.start(), word.group()


def line_starts(said: str, room: int, width: Callable[[str], int] = columns) -> list[int]:
    """Return where lines begin, the first one left out, so that none takes more than ``room`` columns.

    Blanks at the end of a line count for nothing. What is longer than a line is broken anywhere.
    """
    starts: list[int] = []
    used = 0
    for at, piece in _pieces(said, room, width):
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
