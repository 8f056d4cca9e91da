"""Messages as text in the language of whoever reads it.

A language is one file of gettext, ``npuperf/locale/<code>.po``; without one the sentences stay as they are: English.
Reading it takes long, so it is compiled: when the package is built, else by whoever first needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from gettext import GNUTranslations, NullTranslations
from io import BytesIO
from pathlib import Path
from struct import error as StructError  # noqa: N812 - the module's own name says too little
from typing import Final

from npuperf import messages
from npuperf.escape import visible
from npuperf.messages import Parameter, say

LOCALE: Final = Path(__file__).resolve().parents[1] / "locale"
_LOCALES: Final = ("LC_ALL", "LC_MESSAGES", "LANG")
_ENGLISH: Final = ("en", "C", "POSIX")
_OPTION: Final = "--lang"
_SAMPLE: Final = say("where the time goes")
_current: ContextVar[NullTranslations | None] = ContextVar("language", default=None)
#: What a person has chosen for this process, in all of its threads.
_chosen: NullTranslations | None = None


def text(message: Parameter, names: Callable[[str], str] = str) -> str:
    """Return a message, or a parameter of one, in the current language; ``names`` as :func:`npuperf.messages.text`."""
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
            if found is not None:
                sentences = _read(found)
                return sentences if language or _can_be_written(sentences) else messages.ENGLISH
    return messages.ENGLISH


def _can_be_written(sentences: NullTranslations) -> bool:
    """Tell whether stdout has the letters of a language: a locale that names one may come with an encoding of none."""
    try:
        sentences.gettext(_SAMPLE.id).encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeError, LookupError):
        return False
    return True


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
    """Return a language's file, without the ending that says whether it is compiled."""
    path = LOCALE / name
    is_one = name.isidentifier() and any(path.with_suffix(suffix).is_file() for suffix in (".mo", ".po"))
    return path if is_one else None


@lru_cache
def _read(path: Path) -> NullTranslations:
    """Return the sentences of a catalogue, given without its ending."""
    source, compiled = path.with_suffix(".po"), path.with_suffix(".mo")
    with suppress(OSError, ValueError, StructError):  # there is none, or it is damaged
        if not source.is_file() or compiled.stat().st_mtime_ns >= source.stat().st_mtime_ns:
            with compiled.open("rb") as file:
                return GNUTranslations(file)
    return _compile(source, compiled)


def _compile(source: Path, compiled: Path) -> NullTranslations:
    """Return the sentences of a catalogue, and keep what was made of it beside it, if that may be written."""
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import PoFileError, read_po

    from npuperf.errors import InputError
    from npuperf.files import writing_atomically

    made = BytesIO()
    try:
        with source.open("rb") as file:
            write_mo(made, read_po(file, abort_invalid=True))
        made.seek(0)
        found = GNUTranslations(made)
    except (OSError, ValueError, LookupError, PoFileError) as error:  # English is better than nothing
        print(f"npuperf: {source}: not a catalogue of sentences: {error}", file=sys.stderr)
        return messages.ENGLISH
    with suppress(InputError, OSError), writing_atomically(compiled) as out:
        out.write(made.getvalue())
    return found
