"""JSON: the document itself. Beside every English sentence stand its message's id and parameters.

Strings are those of the document, but for halves of pairs of characters, which no encoding has.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from npuperf.base.escape import for_json
from npuperf.base.messages import NOTHING, Message, plain, text
from npuperf.model.document import Document
from npuperf.model.parts import Model, encoded
from npuperf.model.result import Result
from npuperf.model.schema import holds, is_message, parts_of
from npuperf.model.shortened import shortened
from npuperf.show.formats import View

#: What to do with a field: as it is, a message or several, or parts that hold messages.
Way = Literal["as_is", "said", "parts"]
_INDENT: Final = 1
#: Nobody reads longer documents line by line, and of a large job a third of the bytes would be blanks.
_INDENTED: Final = 4 << 20


def render_json(document: Document, view: View) -> str:
    """Return one valid document, indented unless it is long; floats that are not numbers become null."""
    made = encoded(_object(document), _sentence)
    return for_json(made if len(made) > _INDENTED else msgspec.json.format(made, indent=_INDENT)) + "\n"


def render_result(result: Result, view: View) -> str:
    """Return an analysis, or its gist; of many ranks long lists are cut unless everything is asked for."""
    if view.brief:
        from npuperf.show.brief import MOST_BYTES, gists_of

        made = ""
        for gist in gists_of(result):
            made = render_json(gist, view)
            if len(made.encode()) <= MOST_BYTES:
                break
        return made
    return render_json(result if view.full else shortened(result), view)


def _sentence(value: object) -> str:
    """Return a message inside of evidence, where any value may stand."""
    if isinstance(value, Message):
        return text(value)
    raise NotImplementedError(f"{type(value).__name__} has no place in a document")


@lru_cache
def _ways(model: type[Model]) -> tuple[tuple[str, Way], ...]:
    """Return what to do with each field; nothing at all where no message is inside."""
    fields = [(field.name, field.type) for field in msgspec.structs.fields(model)]
    ways: list[tuple[str, Way]] = [
        (name, "said" if is_message(kind) else "parts" if any(map(holds, parts_of(kind))) else "as_is")
        for name, kind in fields
    ]
    return tuple(ways) if any(way != "as_is" for _, way in ways) else ()


def _object(part: Model) -> Any:
    ways = _ways(type(part))
    if not ways:
        return part
    made: dict[str, Any] = {}
    said: dict[str, Any] = {}
    for name, way in ways:
        value = getattr(part, name)
        if way == "as_is" or not value:
            made[name] = value
        elif way == "parts":
            made[name] = _object(value) if isinstance(value, Model) else [_object(item) for item in value]
        elif isinstance(value, Message):
            made[name] = text(value)
            if value != NOTHING:
                said[name] = plain(value)
        else:
            made[name], said[name] = [text(item) for item in value], [plain(item) for item in value]
    return {**made, "messages": said} if said else made
