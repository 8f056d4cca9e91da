"""JSON that may be damaged: AOE rewrites its result file while it runs, and its documented samples do not parse.

Only what is complete is kept. Repair libraries complete what was cut (a number that broke off stays a number): that
would be a wrong measurement.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from npuperf.messages import Message, say, say_n

#: An object: its members in order, because keys are repeated.
Members = list[tuple[str, Any]]

_SPACE: Final = re.compile(r"[\s\ufeff]*")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
#: A number, or a word, up to what must follow it: one that breaks off ("58." of 58.781) or ends the text may be half.
_SCALAR: Final = re.compile(r"(?:-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|NaN|-?Infinity)(?=[\s,\]}])")
_MOST_FAULTS: Final = 50
_FILLER: Final = re.compile(r"[.…]+")
_TOO_DEEP: Final = say("nested too deeply")
_BREAKS_OFF: Final = say("the text ends too early")


class Object:
    """The members of a JSON object, repeated keys included."""

    def __init__(self, members: Members) -> None:
        self.members = members

    def get(self, *names: str) -> Any:
        """Return the first member with one of these names, None if there is none."""
        return next((value for key, value in self.members if key in names), None)


class CutList(list[Any]):
    """The items of a JSON array that breaks off: there were more."""


@dataclass(slots=True)
class Parsed:
    """The documents of a text. ``faults`` say what was wrong and where; empty means that it is JSON."""

    documents: list[Any] = field(default_factory=list)
    faults: list[Message] = field(default_factory=list)


def parse(text: str) -> Parsed:
    """Read JSON; where it is damaged, keep everything that is whole."""
    try:
        return Parsed([json.loads(text.lstrip("\ufeff"), object_pairs_hook=Object)])
    except ValueError:
        reader = _Reader(text)
    except RecursionError:
        return Parsed(faults=[_TOO_DEEP])
    try:
        return reader.read()
    except RecursionError:
        return Parsed(reader.parsed.documents, [*reader.parsed.faults, _TOO_DEEP])


class _CutError(Exception):
    """A value breaks off, or is none."""


class _Reader:
    """Goes on after a fault. Containers always return what they have; values that break off are dropped."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.parsed = Parsed()
        self._place = (0, 1, 0)

    def read(self) -> Parsed:
        while self._next():
            before = self.at
            try:
                if self._is_member():
                    self._fault(say("an object without its opening brace"))
                    self.parsed.documents.append(self._object(opened=False))
                else:
                    self.parsed.documents.append(self._value())
            except _CutError:
                self._fault(say("not JSON"))
                self.at = max(self.at, before + 1)
        count = len(self.parsed.documents)
        if count > 1:
            self.parsed.faults.append(say_n("{n} document in one file", "{n} documents in one file", count))
        return self.parsed

    def _next(self) -> str:
        """Skip space and return the character that follows, empty at the end."""
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.text[self.at : self.at + 1]

    def _fault(self, what: Message) -> None:
        faults = self.parsed.faults
        if len(faults) > _MOST_FAULTS:
            return
        at, row, byte = self._place  # of the fault before: texts are long, and faults may be many
        passed = self.text[at : self.at]
        self._place = (self.at, row + passed.count("\n"), byte + len(passed.encode("utf-8", "replace")))
        fault = say("{what} at row {row}, byte {byte}", what=what, row=self._place[1], byte=self._place[2])
        if len(faults) == _MOST_FAULTS:
            faults.append(say("more faults after these"))
        elif fault not in faults[-2:]:
            faults.append(fault)

    def _is_member(self) -> bool:
        found = _STRING.match(self.text, self.at)
        if not found:
            return False
        space = _SPACE.match(self.text, found.end())
        return self.text.startswith(":", space.end() if space else found.end())

    def _value(self) -> Any:
        first = self._next()
        if first == "{":
            self.at += 1
            return self._object(opened=True)
        if first == "[":
            self.at += 1
            return self._array()
        found = (_STRING if first == '"' else _SCALAR).match(self.text, self.at)
        if not found:
            raise _CutError
        self.at = found.end()
        try:
            return json.loads(found[0])
        except ValueError as error:
            raise _CutError from error

    def _object(self, *, opened: bool) -> Object:
        members: Members = []
        while True:
            first = self._separated("}", bool(members))
            if not first:
                if opened:
                    self._fault(_BREAKS_OFF)
                return Object(members)
            if first == "}":
                self.at += 1
                return Object(members)
            try:
                key = self._value() if first == '"' else None
                if not isinstance(key, str) or self._next() != ":":
                    raise _CutError
                self.at += 1
                members.append((key, self._value()))
            except _CutError:
                if not self._skip():
                    return Object(members)

    def _array(self) -> list[Any]:
        items: list[Any] = []
        while True:
            first = self._separated("]", bool(items))
            if not first:
                self._fault(_BREAKS_OFF)
                return CutList(items)
            if first == "]":
                self.at += 1
                return items
            if first == "}":  # of an object around it: the bracket is missing
                self._fault(say("a missing bracket"))
                return items
            try:
                items.append(self._value())
            except _CutError:
                if not self._skip():
                    return CutList(items)

    def _separated(self, end: str, after_value: bool) -> str:
        """Step over the comma between two values, and say where it is missing; return what follows."""
        first = self._next()
        if first == ",":
            self.at += 1
            return self._next()
        if after_value and first and first != end and first not in "}]":
            self._fault(say("a missing comma"))
        return first

    def _skip(self) -> bool:
        """Step over what cannot be read; return False at the end of the text."""
        filler = _FILLER.match(self.text, self.at)
        self._fault(say("something that is not a value") if self.at < len(self.text) else _BREAKS_OFF)
        self.at = filler.end() if filler else self.at + 1
        return self.at < len(self.text)
