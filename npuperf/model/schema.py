"""The JSON Schemas of all documents, derived from their types. They are written when the package is built, and by
``make schema``.

A message is the English sentence in its field, and an entry of the same name in ``messages`` beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from npuperf.base import __version__
from npuperf.base.errors import InputError
from npuperf.base.escape import for_shell
from npuperf.base.messages import NOTHING, Message, about, said, say
from npuperf.model.document import Document
from npuperf.model.parts import SCHEMA_VERSION, Model

#: Where the documents of the verbs are.
_DOCUMENTS: Final = ("gist", "recorded", "result", "tuning")
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_MESSAGE: Final = {
    "title": "Message",
    "description": "A sentence: the English one, under which translations are kept, and what stands in its gaps.",
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "parameters": {"type": "object"},
        "plural": {"type": "string", "description": "What to say unless n is one."},
        "n": {"type": ["integer", "null"]},
        "by": {
            "type": "object",
            "description": "What stands between a parameter's items, by its name; a comma where it is not said.",
            "additionalProperties": {"type": "string"},
        },
    },
    "required": ["id", "parameters"],
    "additionalProperties": False,
}


def documents() -> dict[str, type[Document]]:
    """Return every type of document by the name of its schema."""
    for module in _DOCUMENTS:
        import_module(f"npuperf.model.{module}")
    return {_name(kind): kind for kind in _below(Document) if kind.__module__.startswith("npuperf.model.")}


def _below(kind: type[Document]) -> list[type[Document]]:
    return [found for child in kind.__subclasses__() for found in (child, *_below(child))]


def _name(kind: type[Document]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def parts_of(kind: Any) -> list[Any]:
    """Return the types that a field's type is made of, below unions, lists and tuples."""
    if get_origin(kind) in (Union, UnionType, list, tuple):
        return [part for argument in get_args(kind) for part in parts_of(argument)]
    return [kind]


def is_message(kind: Any) -> bool:
    """Tell whether a field holds a message, or several."""
    return Message in parts_of(kind)


@lru_cache
def holds(kind: Any) -> bool:
    """Tell whether a type is a part of a document with messages in it, however deep."""
    if not (isinstance(kind, type) and issubclass(kind, Model)):
        return False
    fields = [part for field in msgspec.structs.fields(kind) for part in parts_of(field.type)]
    return Message in fields or any(map(holds, fields))


def schema_of(document: type[Document]) -> dict[str, Any]:
    """Derive the JSON Schema of a document from its type."""
    (root,), found = msgspec.json.schema_components([document], schema_hook=_sentence, ref_template="#/$defs/{name}")
    one = {"$ref": "#/$defs/Message"}
    for model in _models(document, set()):
        said = {
            field.name: {"type": "array", "items": one} if get_origin(field.type) in (list, tuple) else one
            for field in msgspec.structs.fields(model)
            if is_message(field.type)
        }
        if said:
            messages = {"type": "object", "properties": said, "additionalProperties": False}
            found[model.__name__]["properties"]["messages"] = messages
    return {"$schema": _DIALECT, "title": f"npuperf {_name(document)}", **root, "$defs": {**found, "Message": _MESSAGE}}


def _sentence(kind: type) -> dict[str, Any]:
    if kind is Message:
        return {"type": "string"}
    raise NotImplementedError(kind)


def _models(kind: type[Model], seen: set[type[Model]]) -> set[type[Model]]:
    """Return a type and all that it is made of."""
    seen.add(kind)
    for field in msgspec.structs.fields(kind):
        for part in parts_of(field.type):
            if isinstance(part, type) and issubclass(part, Model) and part not in seen:
                _models(part, seen)
    return seen


# -- Documents that were written as JSON, read back. They may be of another version, damaged, or anybody's.

D = TypeVar("D", bound=Document)

#: No document is larger, bytes: that of a job of a thousand ranks is a third of it.
MOST_BYTES: Final = 256 << 20
#: Characters of a reason that are shown.
_SHOWN: Final = 200


def document_of(written: Mapping[str, object], path: Path, kind: type[D]) -> D:
    """Return the document that ``--format json`` wrote to a file.

    Fields that this version does not know are passed over. A sentence is its message again, with the number in it; what
    was a message inside of evidence stays text. Raises InputError where there is none of this kind.
    """
    version = written.get("schema_version")
    if not isinstance(version, str):
        raise InputError(say("{path}: not a document of npuperf: it has no schema_version", path=str(path)))
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        what = say("{path}: written in version {version} of the format, and this npuperf reads {own}",
                   path=str(path), version=version[:_SHOWN], own=SCHEMA_VERSION)  # fmt: skip
        raise InputError(what, hint=say("analyze the profile anew with this version"))
    read = written.get("input")
    place = read.get("path") if isinstance(read, Mapping) else None  # which its sentences name
    try:
        with about(for_shell(place) if isinstance(place, str) else None):
            return msgspec.convert(_with_messages(written), kind, dec_hook=_decoded)
    except (msgspec.ValidationError, RecursionError) as error:
        what = say("{path}: cannot be read as a result of npuperf {own}: {why}",
                   path=str(path), own=__version__, why=str(error)[:_SHOWN])  # fmt: skip
        tool = written.get("tool")
        writer = tool.get("version") if isinstance(tool, Mapping) else None
        hint = say("npuperf {writer} wrote it; analyze the profile anew with this version",
                   writer=str(writer)[:_SHOWN] if writer else "?")  # fmt: skip
        raise InputError(what, hint=hint) from error


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


def main() -> None:
    """Write every schema to its file, beside this one."""
    for name, kind in documents().items():
        path = Path(__file__).with_name(f"{name}.schema.json")
        path.write_text(json.dumps(schema_of(kind), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
