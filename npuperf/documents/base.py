"""What all documents share."""

from __future__ import annotations

from typing import Final

import msgspec

#: Of the JSON documents of ``analyze`` and ``tune``: fields may be added, never renamed within a major version.
SCHEMA_VERSION: Final = "2.0"


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every part of a document. Missing is None; times are integer nanoseconds unless a name says otherwise."""


class Tool(Model, frozen=True, kw_only=True):
    """Who wrote a document."""

    name: str
    version: str
