"""What all documents share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from npuperf.escape import without_halves

#: Of the JSON documents of ``analyze`` and ``tune``: fields may be added, never renamed within a major version.
SCHEMA_VERSION: Final = "2.0"


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every part of a document. Missing is None; times are integer nanoseconds unless a name says otherwise."""


class Tool(Model, frozen=True, kw_only=True):
    """Who wrote a document."""

    name: str
    version: str


def encoded(document: object, sentence: Callable[[Any], str]) -> bytes:
    """Return a document as JSON; ``sentence`` returns the text of what is a message in it.

    What is no text in a path has U+FFFD in its place: JSON is UTF-8, and paths need not be.
    """
    try:
        return msgspec.json.encode(document, enc_hook=sentence)
    except UnicodeEncodeError:
        return msgspec.json.encode(without_halves(msgspec.to_builtins(document, enc_hook=sentence)))
