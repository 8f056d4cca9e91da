"""The JSON Schemas of all documents, derived from their types and shipped beside them. ``make schema`` writes them.

A message is the English sentence in its field, and an entry of the same name in ``messages`` beside it.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from npuperf.documents.base import Model
from npuperf.documents.document import Document
from npuperf.messages import Message

_HERE: Final = Path(__file__).resolve().parent
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
    for module in iter_modules([str(_HERE)]):
        import_module(f"npuperf.documents.{module.name}")
    return {_name(kind): kind for kind in _below(Document) if kind.__module__.startswith("npuperf.documents.")}


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
    for model in _models(document, set()):
        found[model.__name__]["properties"].update(_messages(model))
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


def _messages(model: type[Model]) -> dict[str, Any]:
    """Return the property ``messages`` of a type that has any."""
    one = {"$ref": "#/$defs/Message"}
    said = {
        field.name: {"type": "array", "items": one} if get_origin(field.type) in (list, tuple) else one
        for field in msgspec.structs.fields(model)
        if is_message(field.type)
    }
    return {"messages": {"type": "object", "properties": said, "additionalProperties": False}} if said else {}


def shipped_schema(name: str) -> dict[str, Any]:
    """Read a schema that ships with the package, e.g. ``result`` or ``tuning``."""
    schema: dict[str, Any] = json.loads((_HERE / f"{name}.schema.json").read_text("utf-8"))
    return schema


def main() -> None:
    """Write every schema to its file."""
    for name, kind in documents().items():
        (_HERE / f"{name}.schema.json").write_text(json.dumps(schema_of(kind), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
