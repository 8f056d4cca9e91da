"""Small notes that others wrote, as JSON or YAML: the one reader of either, bounded in size and in depth.

A value that no program can use costs that value alone: an integer of thousands of digits, or a number that is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from npuperf.base.errors import InputError
from npuperf.base.escape import without_halves
from npuperf.base.files import open_input
from npuperf.base.messages import Message, say, size

if TYPE_CHECKING:
    import msgspec

T = TypeVar("T", bound="msgspec.Struct")

#: No note is larger, bytes: the largest list the groups of thousands of ranks.
_MOST_JSON: Final = 64 << 20
_MOST_YAML: Final = 64 << 10
#: What people write by hand has few levels.
_DEPTH: Final = 20
#: Integers of more characters count as not recorded.
_DIGITS: Final = 20
#: Characters of a value that are shown.
_SHOWN: Final = 60
_DEEP: Final = say("nested too deeply")


def read_note(path: Path, *, most: int | None = None) -> dict[str, Any]:
    """Read a JSON object of at most so many bytes. Raises InputError, which says why, where there is none."""
    found = read_json(path, most=most)
    if not isinstance(found, dict):
        raise _unreadable(path, say("not a JSON object"))
    return found


def read_json(path: Path, *, most: int | None = None) -> Any:
    """Read whatever a JSON file of at most so many bytes says.

    Raises InputError, which says why, where it says nothing.
    """
    try:
        return parse_note(_bytes(path, most or _MOST_JSON).decode("utf-8-sig", "replace"))
    except RecursionError as error:
        raise _unreadable(path, _DEEP) from error
    except ValueError as error:
        raise _unreadable(path, say("{error}", error=str(error))) from error


def read_object(path: Path) -> dict[str, Any]:
    """Read a small JSON object that may be missing or damaged: it is empty then."""
    try:
        return read_note(path)
    except InputError:
        return {}


def read_struct(path: Path, kind: type[T], dec_hook: Callable[[Any, Any], Any]) -> T | None:
    """Read a struct whose fields all have defaults, leaving out what is damaged; None where there is no object."""
    import msgspec

    found, known = read_object(path), {}
    for field in msgspec.structs.fields(kind):
        with suppress(KeyError, msgspec.ValidationError, OverflowError):
            known[field.name] = msgspec.convert(found[field.name], field.type, dec_hook=dec_hook)
    return kind(**known) if found else None


def part_of(note: Mapping[str, object], name: str) -> dict[str, object]:
    """Return the object under a name; anything else there counts as empty."""
    found = note.get(name)
    return found if isinstance(found, dict) else {}


def parse_note(text: str) -> object:
    """Return what JSON says. Raises ValueError where it is none, RecursionError where it is nested too deeply."""
    found = json.loads(
        text,
        parse_int=lambda digits: int(digits) if len(digits) <= _DIGITS else None,
        parse_float=lambda number: found if isfinite(found := float(number)) else None,
        parse_constant=lambda _: None,  # NaN and Infinity tell nothing
    )
    return without_halves(found) if "\\ud" in text.lower() else found


def read_yaml(path: Path, *, most: int = _MOST_YAML) -> dict[str, Any]:
    """Read a mapping of at most so many bytes, which people may have edited.

    Raises InputError where there is none, or something is not plain.
    """
    import yaml

    try:
        text = _bytes(path, most).decode("utf-8-sig")
        loader: Any = yaml.SafeLoader
        if len(text) > _MOST_YAML:  # nobody waits for a small one; libyaml is ten times as fast, where it is there
            loader = getattr(yaml, "CSafeLoader", loader)
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.AliasEvent):  # nine of nine of nine … of them take all memory
                what = say("*{name}: aliases are not taken", name=event.anchor)
                raise _at(path, event, what, say("write the value out"))
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEPTH:
                raise _at(path, event, _DEEP, None)
        _check_values(path, yaml.SafeLoader(""), yaml.compose(text, Loader=loader))
        found = yaml.load(text, loader)
    except InputError:
        raise
    except (yaml.YAMLError, ValueError, TypeError) as error:  # the latter: a mapping that cannot be a key
        raise InputError(say("{path}: cannot be read as YAML: {why}", path=str(path), why=_flat(error))) from error
    if not isinstance(found, dict):
        raise InputError(say("{path}: its top level is not a mapping", path=str(path)))
    return found


def _unreadable(path: Path, why: Message) -> InputError:
    return InputError(say("{path}: cannot be read: {why}", path=str(path), why=why))


def _bytes(path: Path, most: int) -> bytes:
    with open_input(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise _unreadable(path, say("it is larger than {size}, and no such file is", size=size(most)))
    return data


def _check_values(path: Path, loader: Any, node: Any) -> None:
    """Refuse values that are not what their tags say, and keys given twice: only the last would count."""
    import yaml

    if isinstance(node, yaml.ScalarNode):
        try:
            loader.construct_object(node)
        except Exception as error:  # each tag fails in its own way
            raise _at(path, node, say("{value}: {why}", value=_short(node.value), why=_flat(error)), None) from error
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check_values(path, loader, value)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _at(path, key, say("{key}: given twice", key=_short(key.value)), say("leave one of them"))
                seen.add(key.value)
            _check_values(path, loader, key)
            _check_values(path, loader, value)


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _flat(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _at(path: Path, place: Any, what: Message, hint: Message | None) -> InputError:
    row = place.start_mark.line + 1
    return InputError(say("{path}: row {row}: {what}", path=str(path), row=row, what=what), hint=hint)
