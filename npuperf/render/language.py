"""Messages as text in the language of whoever reads it.

A language is one file of gettext, ``npuperf/locale/<code>.po``; without one the sentences stay as they are: English.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from gettext import GNUTranslations, NullTranslations
from io import BytesIO
from pathlib import Path
from typing import Final

from npuperf import messages
from npuperf.escape import visible
from npuperf.messages import Parameter

LOCALE: Final = Path(__file__).resolve().parents[1] / "locale"
_NAMES: Final = ("NPUPERF_LANGUAGE", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
_ENGLISH: Final = ("en", "C", "POSIX")
_current: ContextVar[NullTranslations | None] = ContextVar("language", default=None)


def text(message: Parameter, names: Callable[[str], str] = str) -> str:
    """Return a message, or a parameter of one, in the current language; ``names`` as :func:`npuperf.messages.text`."""
    return messages.text(message, _current.get() or translations(None), names)


def lines_of(message: Parameter) -> list[str]:
    """Return a message as the lines that it makes of itself; names in it make none."""
    return text(message, visible).split("\n")


@contextmanager
def speaking(language: str | None) -> Iterator[None]:
    """Make everything inside speak a language, by its code; None: the one that the environment names."""
    token = _current.set(translations(language))
    try:
        yield
    finally:
        _current.reset(token)


def spoken() -> str:
    """Return the current language as HTML names it, e.g. ``zh-CN``; nothing where its catalogue does not say."""
    current = _current.get() or translations(None)
    if current is messages.ENGLISH:
        return "en"
    return current.info().get("language", "").replace("_", "-")


def translations(language: str | None) -> NullTranslations:
    """Return a language's sentences; English where it has none."""
    wanted = [language] if language else _wanted()
    for code in wanted:
        if code.split("_")[0] in _ENGLISH:
            break
        for name in (code, code.split("_")[0]):
            if (LOCALE / f"{name}.po").is_file():
                return _read(LOCALE / f"{name}.po")
    return messages.ENGLISH


def _wanted() -> list[str]:
    """Return the codes of the first variable that names any, as gettext does."""
    named = next(filter(None, map(os.environ.get, _NAMES)), "")
    return [code.split(".")[0].split("@")[0] for code in named.split(":") if code]


@lru_cache
def _read(path: Path) -> NullTranslations:
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import PoFileError, read_po

    compiled = BytesIO()
    try:
        with path.open("rb") as file:
            write_mo(compiled, read_po(file, abort_invalid=True))
        compiled.seek(0)
        return GNUTranslations(compiled)
    except (OSError, ValueError, LookupError, PoFileError) as error:  # English is better than nothing
        print(f"npuperf: {path}: not a catalogue of sentences: {error}", file=sys.stderr)
        return messages.ENGLISH
