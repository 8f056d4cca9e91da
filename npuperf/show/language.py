"""Messages as text in the language of whoever reads it.

A language is one file of gettext, ``npuperf/locale/<code>.po``; without one the sentences stay as they are: English.
Reading it takes long, so it is compiled when the package is built, and only what was compiled is read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
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
