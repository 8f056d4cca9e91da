"""Documents that were written as JSON, read back. They may be of another version, damaged, or anybody's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from npuperf import __version__
from npuperf.documents.base import SCHEMA_VERSION
from npuperf.documents.document import Document
from npuperf.errors import InputError
from npuperf.messages import NOTHING, Message, said, say
from npuperf.notes import read_note

D = TypeVar("D", bound=Document)

#: No document is larger, bytes: that of a job of a thousand ranks is a third of it.
MOST_BYTES: Final = 256 << 20
#: Characters of a reason that are shown.
_SHOWN: Final = 200


def reread(path: Path, kind: type[D]) -> D:
    """Read a document that ``--format json`` wrote. Fields that this version does not know are passed over.

    A sentence is its message again, with the number in it; what was a message inside of evidence stays text. Raises
    InputError where there is none of this kind.
    """
    return document_of(read_note(path, most=MOST_BYTES), path, kind)


def document_of(written: Mapping[str, object], path: Path, kind: type[D]) -> D:
    """Return the document that was written to a file. Raises InputError where there is none of this kind."""
    version = written.get("schema_version")
    if not isinstance(version, str):
        raise InputError(say("{path}: not a document of npuperf: it has no schema_version", path=str(path)))
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        what = say("{path}: written in version {version} of the format, and this npuperf reads {own}",
                   path=str(path), version=version[:_SHOWN], own=SCHEMA_VERSION)  # fmt: skip
        raise InputError(what, hint=say("analyze the profile anew with this version"))
    try:
        return msgspec.convert(_with_messages(written), kind, dec_hook=_decoded)
    except (msgspec.ValidationError, RecursionError) as error:
        what = say("{path}: cannot be read as a result of npuperf {own}: {why}",
                   path=str(path), own=__version__, why=str(error)[:_SHOWN])  # fmt: skip
        hint = say("npuperf {writer} wrote it; analyze the profile anew with this version", writer=_writer(written))
        raise InputError(what, hint=hint) from error


def _writer(written: Mapping[str, object]) -> str:
    tool = written.get("tool")
    version = tool.get("version") if isinstance(tool, Mapping) else None
    return str(version)[:_SHOWN] if version else "?"


def _with_messages(part: Any) -> Any:
    """Put the messages of every object where their sentences are."""
    if isinstance(part, list):
        return [_with_messages(item) for item in part]
    if not isinstance(part, dict):
        return part
    made = {name: _with_messages(value) for name, value in part.items() if name != "messages"}
    messages = part.get("messages")
    for name, written in messages.items() if isinstance(messages, dict) else ():
        if name in made:
            made[name] = _told(made[name], written)
    return made


def _told(sentence: Any, written: Any) -> Any:
    """Return the message, or the messages, of one field."""
    if isinstance(sentence, str):
        return said(sentence, written)
    if isinstance(sentence, list) and isinstance(written, list) and len(sentence) == len(written):
        return [_told(one, message) for one, message in zip(sentence, written, strict=True)]
    return sentence


def _decoded(kind: type, value: Any) -> Any:
    """Return a field of a type that JSON has not."""
    if kind is not Message:
        raise NotImplementedError(kind)
    if isinstance(value, Message):
        return value
    if not isinstance(value, str):
        raise ValueError("a sentence is a text")
    return say("{text}", text=value) if value else NOTHING
