"""Tables of documents for which none are declared: one of the plain fields, and one for every list of parts."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Literal, get_origin

import msgspec

from npuperf.documents.base import Model
from npuperf.documents.document import Document
from npuperf.documents.schema import is_message, parts_of
from npuperf.messages import say
from npuperf.render.tables import Column, Table, Unit, each

#: Units by how fields are called.
_UNITS: Final[dict[str, Unit]] = {"_ns": "ms", "_pct": "number", "_us": "plain", "_s": "plain", "share": "percent"}
_SKIPPED: Final = ("schema_version", "problem", "gates")


@lru_cache
def tables_of(document: type[Document]) -> tuple[Table, ...]:
    """Return the tables of a type of document."""
    fields = {f.name: f.type for f in msgspec.structs.fields(document) if f.name not in _SKIPPED}
    lists = {name: part for name, kind in fields.items() if _is_list(kind) and (part := _part(kind))}
    facts = tuple(found for name, kind in fields.items() if name not in lists for found in _columns(name, kind))
    whole = Table("facts", say("facts"), lambda document: [(document,)], facts)
    return (whole, *(_table(name, part) for name, part in lists.items()))


def _table(name: str, part: type[Model]) -> Table:
    """Return the table of a list of parts: a column for every field."""
    columns = (found for field in msgspec.structs.fields(part) for found in _columns(field.name, field.type))
    return Table(name, say("{name}", name=_title(name)), each(name), tuple(columns))


def _columns(name: str, kind: Any) -> list[Column]:
    """Return the columns of a field; a part inside has one for each of its own."""
    part = None if _is_list(kind) else _part(kind)
    fields = [(f"{name}.{f.name}", f.type) for f in msgspec.structs.fields(part)] if part else [(name, kind)]
    keys = [(path.replace(".", "_"), path, of) for path, of in fields]
    return [Column(key, say("{name}", name=_title(key)), _unit(path, of), path) for key, path, of in keys]


def _is_list(kind: Any) -> bool:
    return get_origin(kind) in (list, tuple)


def _part(kind: Any) -> type[Model] | None:
    """Return the part of a document that a field holds, or holds several of."""
    return next((part for part in parts_of(kind) if isinstance(part, type) and issubclass(part, Model)), None)


def _title(name: str) -> str:
    return name.removesuffix("_ns").replace("_", " ")


def _unit(name: str, kind: Any) -> Unit:
    kinds = [part for part in parts_of(kind) if part is not type(None)]
    if is_message(kind):
        return "message"
    if bool in kinds or all(get_origin(part) is Literal for part in kinds):
        return "word"
    if not all(part in (int, float) for part in kinds) or _is_list(kind):
        return "text"
    named = next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)
    return named or ("plain" if float in kinds else "count")
