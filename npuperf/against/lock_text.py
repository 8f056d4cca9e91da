"""The text of a lock: exact counts per step as sorted YAML, one line for each, made to be read in a diff.

    counts:
      launch:
        "MatMulV2 [4096,1024;1024,4096] FLOAT16;FLOAT16": 47  # model/layers.py: forward
      copy:
        "host to device": {count: [3, 4], bytes: 4096..8192}

A value is a number, several (each of them is right), a range ``FIRST..LAST``, or ``any``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, ValidationError, convert

from npuperf.base.errors import InputError
from npuperf.base.escape import for_yaml, for_yaml_comment, without_halves
from npuperf.base.files import is_file, open_input
from npuperf.base.messages import Message, say
from npuperf.base.notes import read_yaml
from npuperf.model.parts import CountKind, KeyedBy

#: No lock is larger, bytes: tens of thousands of operators and shapes.
MOST_BYTES: Final = 8 << 20
#: What tells that a file is a lock, even where a merge left marks in it.
_MARK: Final = "npuperf_lock"
_MARK_LINE: Final = re.compile(rf"^{_MARK}:".encode(), re.MULTILINE)
_VERSION: Final = 1
_HEAD: Final = 64 << 10
_HEADER: Final = """\
# Exact counts of a run, locked by npuperf: a different number of steps changes nothing here, anything else does.
#   npuperf analyze RUN --check THIS        fails with what changed
#   npuperf analyze RUN --update-lock THIS  accepts what changed: commit it with the change that explains it
# A value may be a number, a list of numbers that are all right, a range as 40..52, or any. What stands after a # is
# not compared, nor is the setup.
"""

#: Ranges of values that are right, in order and apart from each other.
Spans = tuple[tuple[int, int], ...]
_MOST: Final = 2**64
ANY: Final[Spans] = ((0, _MOST),)
_MOST_DEVICES: Final = 1_000_000
#: More different values than these become one range.
_LISTED: Final = 4
_RANGE: Final = re.compile(r"(\d{1,20})\.\.(\d{1,20})")
#: The longest key that YAML takes without a ``?`` before it has 1,024 characters.
_PLAIN_KEY: Final = 1000
_LINE_NUMBER: Final = re.compile(r"(?<=\S)(\(\d+\)|:\d+)(?=[:,\s]|\Z)")
_WORD: Final = re.compile(r"\S+")


class LockedCount(Struct, frozen=True):
    """How often something may happen per step, and how many bytes it may move; ``bytes`` None: nothing tells."""

    count: Spans
    bytes: Spans | None = None


class Locked(Struct, frozen=True):
    """What a lock holds. ``counts`` has every kind that was recorded, with nothing in it where there was none of it.

    ``setup`` is information. ``per_step``: whether counts are of single steps, else of all that was recorded.
    ``lost``: how many rows of the recording could not be used.
    """

    setup: dict[str, str]
    devices: int
    per_step: bool
    keyed_by: KeyedBy
    lost: int
    counts: dict[CountKind, dict[str, LockedCount]]


class _Note(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file has, before every value is looked at."""

    npuperf_lock: Literal[1]
    setup: dict[str, str]
    devices: Annotated[int, Meta(ge=0, le=_MOST_DEVICES)]
    per: Literal["step", "recording"]
    keyed_by: KeyedBy
    lost: Annotated[int, Meta(ge=0)]
    counts: dict[CountKind, dict[str, Any]]


def spans_of(values: Iterable[int]) -> Spans:
    """Return the different values, each by itself; of many the range that they span."""
    different = sorted(set(values))
    if len(different) > _LISTED:
        return ((different[0], different[-1]),)
    return tuple((value, value) for value in different)


def accepts(spans: Spans, values: Iterable[int]) -> bool:
    """Tell whether every value is right."""
    return all(any(low <= value <= high for low, high in spans) for value in values)


def spelled_spans(spans: Spans) -> str:
    """Return values as the lock spells them, without the brackets of a list."""
    if spans == ANY:
        return "any"
    return ", ".join(str(low) if low == high else f"{low}..{high}" for low, high in spans)


def text_of(locked: Locked, where: Mapping[tuple[CountKind, str], str]) -> str:
    """Return a lock as text; ``where``: the code lines that counts come from."""
    lines = [f"{_MARK}: {_VERSION}", "setup:" if locked.setup else "setup: {}"]
    lines += [f"  {name}: {for_yaml(value)}" for name, value in sorted(locked.setup.items())]
    lines += [
        f"devices: {locked.devices}",
        f"per: {'step' if locked.per_step else 'recording'}",
        f"keyed_by: {locked.keyed_by}",
        f"lost: {locked.lost}",
        "counts:" if locked.counts else "counts: {}",
    ]
    for kind, counts in sorted(locked.counts.items()):
        lines.append(f"  {kind}:" if counts else f"  {kind}: {{}}")
        for key, count in sorted(counts.items()):
            place, name, value = where.get((kind, key)), for_yaml(key), _listed(count.count)
            if count.bytes is not None:
                value = f"{{count: {value}, bytes: {_listed(count.bytes)}}}"
            line = f"    {name}: {value}" if len(name) <= _PLAIN_KEY else f"    ? {name}\n    : {value}"
            if place:  # without numbers of lines, which move with every edit above, and the outer folders
                short = _WORD.sub(lambda word: "/".join(word[0].split("/")[-2:]), _LINE_NUMBER.sub("", place))
                line += f"  # {for_yaml_comment(short)}"
            lines.append(line)
    return _HEADER + "".join(f"{line}\n" for line in lines)


def _listed(spans: Spans) -> str:
    return spelled_spans(spans) if len(spans) == 1 else f"[{spelled_spans(spans)}]"


def is_lock(path: Path) -> bool:
    """Tell whether a file is a lock, mended or not. Raises InputError where it cannot be read."""
    with open_input(path) as file:
        return _MARK_LINE.search(file.read(_HEAD)) is not None


def read_lock(path: Path) -> Locked:
    """Read a lock, which people may have edited. Raises InputError where something in it is not what locks have."""
    try:
        note = read_yaml(path, most=MOST_BYTES)
    except InputError as error:
        raise InputError(error.what, hint=error.hint or _way_out(path)) from error
    version = note.get(_MARK)
    if version is None:
        raise _refused(path, say("no lock of npuperf"))
    if isinstance(version, int) and version > _VERSION:
        raise InputError(
            say("{path}: made by a newer npuperf, whose locks have the version {version}",
                path=str(path), version=_shown(version)),
            hint=say("check it with the npuperf that made it"),
        )  # fmt: skip
    try:
        found = convert(without_halves(note), _Note)
    except ValidationError as error:
        raise _refused(path, say("{error}", error=str(error))) from error
    counts: dict[CountKind, dict[str, LockedCount]] = {kind: {} for kind in found.counts}
    for kind, of in found.counts.items():
        for key, value in of.items():
            name = f"{kind}: {_shown(key)}"
            if isinstance(value, dict) and value.keys() != {"count", "bytes"}:
                raise _refused(
                    path, say("{name}: of count and bytes both are to be there, and nothing else", name=name)
                )
            both = (value["count"], value["bytes"]) if isinstance(value, dict) else (value,)
            counts[kind][key] = LockedCount(*(_spans(path, name, one) for one in both))
    return Locked(found.setup, found.devices, found.per == "step", found.keyed_by, found.lost, counts)


def _spans(path: Path, name: str, value: object) -> Spans:
    if value == "any":
        return ANY
    spans = []
    for item in value if isinstance(value, list) else [value]:
        low = high = -1
        if isinstance(item, str) and (given := _RANGE.fullmatch(item)):
            low, high = int(given[1]), int(given[2])
        elif isinstance(item, int) and not isinstance(item, bool):
            low = high = item
        if not 0 <= low <= high < _MOST:
            raise _refused(path, say("{name}: {value} is no count", name=name, value=_shown(item)))
        spans.append((low, high))
    if not spans:
        raise _refused(path, say("{name}: no value; 0 says that it never happens", name=name))
    return tuple(sorted(spans))


def _refused(path: Path, why: Message) -> InputError:
    return InputError(say("{path}: cannot be used as a lock: {why}", path=str(path), why=why), hint=_way_out(path))


def _way_out(path: Path) -> Message:
    if not is_file(path):
        return say("npuperf analyze RUN --lock {path} makes one", path=str(path))
    if not is_lock(path):  # whatever it is, nobody should be told to write over it
        return say("npuperf analyze RUN --lock FILE makes one")
    return say("mend it by hand, or write it anew with --lock {path} --force", path=str(path))


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
