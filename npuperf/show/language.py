"""Messages as text in the language of whoever reads it.

A language is one file of gettext, ``npuperf/locale/<code>.po``; without one the sentences stay as they are: English.
Reading it takes long, so it is compiled when the package is built, and only what was compiled is read.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from gettext import GNUTranslations, NullTranslations
from pathlib import Path
from struct import error as StructError  # noqa: N812 - the module's own name says too little
from typing import Final

from npuperf.base import messages
from npuperf.base.escape import visible
from npuperf.base.messages import Parameter, say

LOCALE: Final = Path(__file__).resolve().parents[1] / "locale"
_LOCALES: Final = ("LC_ALL", "LC_MESSAGES", "LANG")
_ENGLISH: Final = ("en", "C", "POSIX")
_OPTION: Final = "--lang"
_SAMPLE: Final = say("where the time goes")
_current: ContextVar[NullTranslations | None] = ContextVar("language", default=None)
#: What a person has chosen for this process, in all of its threads.
_chosen: NullTranslations | None = None


def text(message: Parameter, names: Callable[[str], str] = str) -> str:
    """Do what :func:`npuperf.base.messages.text` does in the current language."""
    return messages.text(message, _now(), names)


def lines_of(message: Parameter) -> list[str]:
    """Return a message as the lines that it makes of itself; names in it make none."""
    return text(message, visible).split("\n")


@contextmanager
def speaking(language: str | None) -> Iterator[None]:
    """Make everything inside speak a language, by its code; None: the one that is spoken around it."""
    token = _current.set(translations(language) if language else _now())
    try:
        yield
    finally:
        _current.reset(token)


def choose(language: str | None) -> None:
    """Make this process speak a language, by its code; None: the one that the environment names."""
    global _chosen
    _chosen = translations(language) if language else None


def asked_for(arguments: Sequence[str]) -> str | None:
    """Return the language that a command line seems to ask for, if we have it, before anybody has read the rest."""
    own = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    for argument, value in zip(own, [*own, ""][1:], strict=True):
        name, sign, given = argument.partition("=")
        if name == _OPTION and is_known(given if sign else value):
            return given if sign else value
    return None


def codes() -> list[str]:
    """Return the codes of all languages."""
    return ["en", *sorted({path.stem for path in LOCALE.glob("*.[mp]o")})]


def is_known(language: str) -> bool:
    """Tell whether a code, such as ``zh`` or ``zh_CN.UTF-8``, names a language that we have."""
    return any(name in _ENGLISH or _catalogue(name) is not None for name in _names(language))


def spoken() -> str:
    """Return the current language as HTML names it, e.g. ``zh-CN``; nothing where its catalogue does not say."""
    current = _now()
    if current is messages.ENGLISH:
        return "en"
    return current.info().get("language", "").replace("_", "-")


def translations(language: str | None) -> NullTranslations:
    """Return a language's sentences; English where it has none. None: the language that the environment names."""
    for code in [language] if language else _wanted():
        for name in _names(code):
            if name in _ENGLISH:
                return messages.ENGLISH
            found = _catalogue(name)
            if found is None:
                continue
            sentences = _read(found)
            try:  # a locale that names a language may come with an encoding that has none of its letters
                said = sentences.gettext(_SAMPLE.id)
                said.encode("utf-8" if language else getattr(sys.stdout, "encoding", None) or "utf-8")
            except (UnicodeError, LookupError):
                break
            return sentences
    return messages.ENGLISH


def _now() -> NullTranslations:
    return _current.get() or _chosen or translations(None)


def _wanted() -> list[str]:
    """Return the codes that the environment names, as gettext does: without a locale, LANGUAGE counts for nothing."""
    locale = next(filter(None, map(os.environ.get, _LOCALES)), "C")
    listed = os.environ.get("LANGUAGE") if locale not in _ENGLISH else None
    named = os.environ.get("NPUPERF_LANGUAGE") or listed or locale
    return [code for code in named.split(":") if code]


def _names(code: str) -> tuple[str, ...]:
    """Return under which names a language may lie: with its country or script, and without.

    Traditional Chinese, for which there is no catalogue, so falls to the Simplified one, as with gettext.
    """
    whole = code.split(".")[0].split("@")[0].replace("-", "_")
    return whole, whole.split("_")[0]


def _catalogue(name: str) -> Path | None:
    """Return a language's file, which is compiled or is still to be."""
    path = (LOCALE / name).with_suffix(".mo") if name.isidentifier() else None
    return path if path and (path.is_file() or path.with_suffix(".po").is_file()) else None


@lru_cache
def _read(path: Path) -> NullTranslations:
    """Return the sentences of a compiled catalogue; without one English, which is better than nothing."""
    try:
        with path.open("rb") as file:
            return GNUTranslations(file)
    except FileNotFoundError:
        why = "not compiled; pip install -e . compiles it"
    except (OSError, ValueError, LookupError, StructError) as error:
        why = f"not a catalogue of sentences: {error}"
    print(f"npuperf: {path}: {why}", file=sys.stderr)
    return messages.ENGLISH


# -- Lines of text in which quantities stay whole, letters may be two columns wide, and words may have no blanks between
# them, as in Chinese.

#: Letters that may be two columns wide, as a class of a pattern: signs such as … and → lie between them.
WIDE: Final = "\u1100-\u11ff\u2e80-\U0010ffff"
#: Signs that no line begins with, and that none ends with.
_CLOSING, _OPENING = "，。；：、？！）》」』％", "（《「『"
#: Numbers, those with their thousands apart, and what they count; and what is between two of them.
_SIGNS: Final = r"[(\[]*[-+−]?"
_APART: Final = r"\d{1,3}(?:[ \u2009\u202f]\d{3}(?!\d))+(?:\.\d+)?"
_NUMBER: Final = rf"{_SIGNS}(?:{_APART}|\d[\d.,]*)"
_UNIT: Final = r" (?:%|[munµ]?s|min|h|[kKMGT]?i?B(?:/s)?|[kMG]?Hz)(?![A-Za-z])"
_QUANTITY: Final = rf"(?:{_NUMBER}–)?{_NUMBER}{_UNIT}"


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
