"""Tables of documents for which none are declared: one of the plain fields, and one for every list of parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Literal, get_origin

import msgspec

from npuperf.documents.base import Model
from npuperf.documents.document import Document
from npuperf.documents.schema import is_message, parts_of
from npuperf.messages import Message, chain, say
from npuperf.render.shared_columns import alone
from npuperf.render.tables import Cell, Column, Table, Unit

#: Units by how fields are called.
_UNITS: Final[dict[str, Unit]] = {"_ns": "ms", "_pct": "number", "_us": "plain", "_s": "plain", "share": "percent"}
_SKIPPED: Final = ("schema_version", "problem", "gates")


@lru_cache
def tables_of(document: type[Document]) -> tuple[Table, ...]:
    """Return the tables of a type of document."""
    fields = {f.name: f.type for f in msgspec.structs.fields(document) if f.name not in _SKIPPED}
    lists = {name: part for name, kind in fields.items() if (part := _listed(kind)) is not None}
    facts = [column(name, kind) for name, kind in fields.items() if name not in lists]
    whole = Table("facts", say("facts"), lambda document: [(document,)], tuple(facts))
    return (whole, *(Table(name, _title(name), _rows(name), columns_of(part)) for name, part in lists.items()))


def columns_of(model: type[Model]) -> tuple[Column, ...]:
    """Return a column for every field of a part."""
    return tuple(column(field.name, field.type) for field in msgspec.structs.fields(model))


def column(name: str, kind: Any) -> Column:
    """Return the column of a field."""
    return Column(name, _title(name), _unit(name, kind), _getter(name))


def _listed(kind: Any) -> type[Model] | None:
    """Return what a field is a list of, if that is a part of a document."""
    if get_origin(kind) not in (list, tuple):
        return None
    part = parts_of(kind)[0]
    return part if isinstance(part, type) and issubclass(part, Model) else None


def _title(name: str) -> Message:
    return say("{name}", name=name.removesuffix("_ns").replace("_", " "))


def _rows(name: str) -> Callable[[Any], Any]:
    return alone(lambda document: getattr(document, name))


def _unit(name: str, kind: Any) -> Unit:
    kinds = [part for part in parts_of(kind) if part is not type(None)]
    if is_message(kind):
        return "message"
    if all(get_origin(part) is Literal or part is bool for part in kinds):
        return "word"
    if not all(part in (int, float) for part in kinds) or get_origin(kind) in (list, tuple):
        return "text"
    named = next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)
    return named or ("plain" if float in kinds else "count")


def _getter(name: str) -> Callable[..., Cell]:
    return lambda *row: as_cell(getattr(row[-1], name))


def as_cell(value: Any) -> Cell:
    """Return any value of a document as one cell."""
    if isinstance(value, list | tuple):
        if any(isinstance(item, Message) for item in value):
            return chain(*value)
        return ", ".join(str(as_cell(item)) for item in value) or None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Model):
        return ", ".join(f"{name} {as_cell(item)}" for name, item in msgspec.structs.asdict(value).items())
    if isinstance(value, dict):
        return ", ".join(f"{key} {as_cell(item)}" for key, item in value.items()) or None
    return value if isinstance(value, str | int | float | Message) or value is None else str(value)
