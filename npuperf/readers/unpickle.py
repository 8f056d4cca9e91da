"""Reads a pickle of PyTorch's memory in a process of its own, to columns of integers; it imports nothing of npuperf.

A pickle can import anything, ask for any amount of memory, and nest values until whoever handles them dies. So it is
read where nothing can be imported by it, where memory and time are limited, and where dying costs nobody anything. What
it must be is a dictionary of ``segments`` and ``device_traces``, as ``_snapshot()`` of torch and torch_npu returns
(fields: docstring of ``torch_npu.npu.memory._snapshot``), or the list of segments of ``memory_snapshot()``.
"""

from __future__ import annotations

import gc
import json
import pickle
import re
import resource
import sys
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, BinaryIO, Final, NoReturn

#: Actions of the allocator, by the number that stands for them.
ACTIONS: Final = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
                  "segment_unmap", "oom", "snapshot", "workspace_snapshot")  # fmt: skip
#: States of a piece of a segment; torch_npu calls the last one as here, torch's documentation active_awaiting_free.
STATES: Final = ("inactive", "active_allocated", "active_pending_free")
SMALL, EXPANDABLE, GRAPH = 1, 2, 4

_STATES: Final = {**{name: number for number, name in enumerate(STATES)}, "active_awaiting_free": 2}
_NUMBERS: Final = {name: number for number, name in enumerate(ACTIONS)}
#: Actions whose call stacks are kept.
_NAMED: Final = {_NUMBERS["alloc"], _NUMBERS["oom"]}
#: Frames from the innermost that are looked at, and characters of a text.
_DEEP: Final = 100
_LONG: Final = 1000
_NOTHING: Final = (-1, -1)
#: A frame of C++ in which PyTorch calls an operator, as symbols of its dispatcher have it.
_OPERATOR: Final = re.compile(r"\bat::_ops::(\w+)::(?:call|redispatch)\b")


class _RefusedError(Exception):
    """The pickle asks for what only code can do."""


class _Plain(pickle.Unpickler):
    """Builds nothing but what Python writes down as such: there is no way from here to a function or a class."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise _RefusedError(f"{module}.{name}")

    def persistent_load(self, pid: object) -> NoReturn:
        raise _RefusedError("an object that lies elsewhere")


class _WrongError(Exception):
    """A pickle, but of something else."""


def _text(value: object) -> str:
    return value[:_LONG].encode("utf-8", "replace").decode() if type(value) is str else ""


class _Frames:
    """What call stacks tell, which have the innermost frame first: the user's line, and the operator of PyTorch.

    ``library`` finds frames that are not the user's. Places and operators are numbered, each text once.
    """

    def __init__(self, library: str) -> None:
        self.places: dict[str, int] = {}
        self.operators: dict[str, int] = {}
        self._library = re.compile(library)
        self._told: dict[int, tuple[int, int]] = {}  # by what the pickle shares, which lives as long as we do
        self._kinds: dict[int, tuple[int, int]] = {}

    def read(self, frames: object) -> tuple[int, int]:
        """Return the numbers of the place and of the operator that a stack tells, -1 for none."""
        if type(frames) is not list or not frames:
            return _NOTHING
        told = self._told.get(id(frames))
        if told is None:
            operator = -1
            for frame in frames[:_DEEP]:
                kind = self._kinds.get(id(frame)) or self._kind(frame)
                if kind is not _NOTHING:
                    if operator < 0:
                        operator = kind[1]
                    if kind[0] >= 0:
                        told = kind[0], operator
                        break
            told = self._told[id(frames)] = told or (-1, operator)
        return told

    def _kind(self, frame: object) -> tuple[int, int]:
        told: dict[str, Any] = frame if type(frame) is dict else {}
        file, line, name = _text(told.get("filename")), told.get("line"), _text(told.get("name"))
        text, found, kind = f"{file}({line}): {name}", _OPERATOR.search(name), _NOTHING
        if found and not found[1].startswith("empty"):  # which is how operators get their memory
            kind = -1, self.operators.setdefault(found[1], len(self.operators))
        elif type(line) is int and file.endswith(".py") and not self._library.search(text):
            kind = self.places.setdefault(text, len(self.places)), -1
        self._kinds[id(frame)] = kind
        return kind


class Tables:
    """What a snapshot has, column by column. ``lost``: how many of each kind are not what they should be."""

    def __init__(self, library: str) -> None:
        self.columns: dict[str, array[int]] = {}
        self.frames = _Frames(library)
        self.lost: dict[str, int] = {}
        self.settings: str | None = None

    def take(self, root: object) -> None:
        """Take a snapshot. Raises _WrongError where it is something else."""
        if type(root) is list and any(type(row) is dict and "blocks" in row for row in root):
            root = {"segments": root}
        if type(root) is not dict or not ("segments" in root or "device_traces" in root):
            raise _WrongError
        segments, traces = root.get("segments", []), root.get("device_traces", [])
        if type(segments) is not list or type(traces) is not list:
            raise _WrongError
        owners, devices = array("q"), array("q")
        for number, segment in enumerate(self._add("segments", segments, self._segments)):
            blocks = segment.get("blocks", [])
            self._place(segment, blocks)
            owners.extend([number] * len(self._add("blocks", blocks, self._blocks)))
        for device, trace in enumerate(traces):
            devices.extend([device] * len(self._add("events", trace, self._events)))
        self.columns |= {"block.segment": owners, "event.device": devices}
        settings = root.get("allocator_settings")
        if type(settings) is dict:
            self.settings = ",".join(f"{_text(k)}:{_text(str(v))}" for k, v in settings.items() if _is_plain(v)) or None

    def _add(self, kind: str, rows: object, columns: Callable[[list[Any]], dict[str, array[int]] | None]) -> list[Any]:
        """Take the rows that have what they should, and return them; the others are counted."""
        usable = rows if type(rows) is list else []
        found = columns(usable)
        if found is None:
            usable = [row for row in usable if columns([row]) is not None]
            found = columns(usable) or {}
        if lost := (len(rows) if type(rows) is list else 1) - len(usable):
            self.lost[kind] = self.lost.get(kind, 0) + lost
        for name, column in found.items():
            self.columns.setdefault(name, array("q")).extend(column)
        return usable

    @staticmethod
    def _place(segment: dict[str, Any], blocks: object) -> None:
        """Give blocks their addresses where an older release leaves them out: they lie side by side."""
        at = segment["address"]
        for block in blocks if type(blocks) is list and _are_dicts(blocks) else ():
            size = block.get("size")
            if type(size) is not int:
                return  # which is told of when it is read
            at = block.setdefault("address", at) + size

    def _segments(self, rows: list[Any]) -> dict[str, array[int]] | None:
        if not _are_dicts(rows):
            return None
        flags = [
            SMALL * (r.get("segment_type") == "small")
            + EXPANDABLE * (r.get("is_expandable") is True)
            + GRAPH * _of_graph(r.get("segment_pool_id"))
            for r in rows
        ]
        return _columns("segment", flags=flags, device=[r.get("device", 0) for r in rows],
                        address=[r.get("address") for r in rows], size=[r.get("total_size") for r in rows],
                        stream=[r.get("stream", -1) for r in rows])  # fmt: skip

    def _blocks(self, rows: list[Any]) -> dict[str, array[int]] | None:
        if not _are_dicts(rows):
            return None
        states = [r.get("state") for r in rows]
        known = [_STATES.get(state, 0) if type(state) is str else None for state in states]
        return _columns("block", state=known, size=[r.get("size") for r in rows],
                        address=[r.get("address", -1) for r in rows],
                        requested=[r.get("requested_size", -1) for r in rows],
                        place=[self.frames.read(r.get("frames"))[0] for r in rows])  # fmt: skip

    def _events(self, rows: list[Any]) -> dict[str, array[int]] | None:
        if not rows or not _are_dicts(rows):
            return {} if not rows else None
        for row in rows:
            if "device_free" in row:  # in the place of an address, where memory ran out
                row["addr"] = row["device_free"]
        timed = ("time_us",) if "time_us" in rows[0] else ()
        try:
            names, addresses, sizes, streams, *times = zip(
                *map(itemgetter("action", "addr", "size", "stream", *timed), rows), strict=True
            )
        except KeyError:
            return None
        if set(map(type, names)) != {str}:
            return None
        actions = [*map(_NUMBERS.get, names)]
        read = self.frames.read
        told = [read(r.get("frames")) if a in _NAMED else _NOTHING for r, a in zip(rows, actions, strict=True)]
        graphs = [_of_graph(r.get("pool_id")) for r in rows] if "pool_id" in rows[0] else [0] * len(rows)
        return _columns("event", action=actions, graph=graphs, size=sizes, address=addresses, stream=streams,
                        time=times[0] if times else [-1] * len(rows), place=[place for place, _ in told],
                        operator=[operator for _, operator in told])  # fmt: skip

    def write(self, file: BinaryIO) -> None:
        """Write a line that says what follows, and all columns, as they lie in memory."""
        header = {"columns": [(name, len(column)) for name, column in self.columns.items()], "lost": self.lost,
                  "places": [*self.frames.places], "operators": [*self.frames.operators],
                  "settings": self.settings}  # fmt: skip
        file.write(json.dumps(header).encode() + b"\n")
        for column in self.columns.values():
            column.tofile(file)


def _of_graph(pool: object) -> int:
    """Tell whether a pool is that of a captured graph, which are numbered in front: (3, 0); users' own are (0, 3)."""
    return int(type(pool) in (tuple, list) and bool(pool) and type(pool[0]) is int and pool[0] > 0)  # type: ignore[index]


def _are_dicts(rows: list[Any]) -> bool:
    return set(map(type, rows)) <= {dict}


def _is_plain(value: object) -> bool:
    return type(value) in (str, int, float, bool)


def _columns(prefix: str, **values: Sequence[Any]) -> dict[str, array[int]] | None:
    """Return columns of integers; None where a value is none, or of more than 64 bits."""
    try:
        if all(set(map(type, column)) <= {int} for column in values.values()):
            return {f"{prefix}.{name}": array("q", column) for name, column in values.items()}
    except OverflowError:
        pass
    return None


def main(path: str, out: str, memory: str, seconds: str, library: str) -> str:
    """Read the pickle at ``path`` and write its columns to ``out``; return what is wrong with it, or nothing.

    ``memory`` (bytes) and ``seconds`` limit this process.
    """
    gc.disable()  # nothing that is read becomes garbage
    for limit, most in (
        (resource.RLIMIT_AS, int(memory)),
        (resource.RLIMIT_CPU, int(seconds)),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(ValueError, OSError):  # a stricter limit is in force
            resource.setrlimit(limit, (most, most))
    tables = Tables(library)
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as fast as it starts
            tables.take(_Plain(file).load())
        with open(out, "wb") as file:  # noqa: PTH123
            tables.write(file)
    except _RefusedError as error:
        return f"refused {_text(str(error))}"
    except _WrongError:
        return "wrong"
    except (MemoryError, OverflowError):
        return "memory"
    except EOFError:
        return "cut"
    except Exception as error:
        return "cut" if "truncated" in str(error) or "exhausted" in str(error) else f"damaged {_text(str(error))}"
    return ""


if __name__ == "__main__":
    wrong = main(*sys.argv[1:])
    sys.stdout.write(wrong)
    sys.stdout.flush()
    if wrong:
        sys.exit(3)
