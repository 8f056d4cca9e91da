"""Sequences that an operator of torch_npu replaces: the list of them, and where a run has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import numpy as np
from msgspec import Struct

from npuperf.advise.outermost import TorchCalls, outermost
from npuperf.advise.shipped import load_shipped
from npuperf.model.labels import I64, Mask
from npuperf.scopes.view import DeviceView

#: Operators that only name, view or cast a value: between two of a sequence they do not break it.
_BETWEEN: Final = (
    "to", "_to_copy", "type_as", "float", "contiguous", "view", "reshape", "transpose", "permute", "unsqueeze",
    "squeeze", "expand", "expand_as", "detach", "alias", "slice", "empty", "lift_fresh",
)  # fmt: skip
_FIRST: Final = 0xE000  # private characters stand for operators
_OTHER: Final = "\ue000"
#: Sequences whose code lines are compared first; where all are of one function, the layers beyond repeat them.
_CHECKED: Final = 100


class Replacement(Struct, frozen=True):
    """One entry of affinity.yaml."""

    api: str
    operators: tuple[str, ...]
    source: str
    least: int
    kernels: tuple[str, ...] = ()
    between: tuple[str, ...] = _BETWEEN
    dtypes: tuple[str, ...] = ()
    requires: str | None = None


class Found(Struct, frozen=True):
    """Where a run has the sequences of one entry: how many, and which tasks they launch."""

    replacement: Replacement
    count: int
    tasks: Mask


@cache
def replacements() -> tuple[Replacement, ...]:
    """Read affinity.yaml."""
    return tuple(map(_replacement, load_shipped("affinity.yaml")))


def _replacement(entry: dict[str, Any]) -> Replacement:
    between = entry.get("between")
    return Replacement(
        api=entry["api"],
        operators=tuple(entry["operators"].split()),
        source=entry["source"],
        least=entry["least"],
        kernels=tuple(entry.get("kernels", "").split()),
        between=_BETWEEN if between is None else tuple(between.split()),
        dtypes=tuple(entry.get("dtypes", ())),
        requires=entry.get("requires"),
    )


class Alphabet:
    """Characters for names, so that sequences of them are found by regular expressions."""

    def __init__(self, names: tuple[str, ...]) -> None:
        """Give each name a character of its own."""
        self._of = {name: chr(_FIRST + 2 + i) for i, name in enumerate(dict.fromkeys(names))}

    def text(self, names: tuple[str, ...], codes: I64) -> str:
        """Return a column as text, one character per cell."""
        of = np.array([ord(self._of.get(_short(name), _OTHER)) for name in (*names, "")], np.uint32)
        return of[codes].tobytes().decode("utf-32-le")

    def possible(self, steps: tuple[str, ...], letters: frozenset[str]) -> bool:
        """Tell whether a text of these letters can hold a sequence: each step that must be there has one of them."""
        needed = (step.split("|") for step in steps if not step.endswith("?"))
        return all(any(self._of[name] in letters for name in names) for names in needed)

    def pattern(self, steps: tuple[str, ...], between: tuple[str, ...]) -> re.Pattern[str]:
        """Return the expression for a sequence."""
        gap = f"[{self._any(between)}]*" if between else ""
        parts = []
        for i, step in enumerate(steps):
            one = f"[{self._any(tuple(step.rstrip('?').split('|')))}]"
            one = f"{gap}{one}" if i else one
            parts.append(f"(?:{one})?" if step.endswith("?") else one)
        return re.compile("".join(parts))

    def _any(self, names: tuple[str, ...]) -> str:
        return "".join(self._of[name] for name in names)


def _short(name: str) -> str:
    return name.removeprefix("aten::")


def _alphabet(entries: tuple[Replacement, ...], *, kernels: bool) -> Alphabet:
    steps = [step for e in entries for step in (e.kernels if kernels else e.operators)]
    names = [name for step in steps for name in step.rstrip("?").split("|")]
    return Alphabet((*names, *(() if kernels else (b for e in entries for b in e.between))))


def by_operators(view: DeviceView) -> list[Found]:
    """Find sequences of outermost torch operators, complete, in order and of one function, and what they launch."""
    host = view.profile.host
    calls = outermost(host)
    entries = replacements()
    letters = _alphabet(entries, kernels=False)
    called = host.ops.name.take(calls.op).compact()
    text = letters.text(called.names, called.codes.astype(np.int64))
    placed = calls.place(view.tasks.op)
    kernels = np.bincount(placed[placed >= 0], minlength=len(calls.op))
    taken = np.zeros(len(calls.op), np.bool_)
    found = []
    present = frozenset(text)
    for entry in entries:
        if not letters.possible(entry.operators, present):
            continue
        pattern = letters.pattern(entry.operators, entry.between)
        spans = [s for s in _spans(pattern, text, calls.breaks) if not taken[slice(*s)].any()]
        spans = [s for s in spans if int(kernels[slice(*s)].sum()) >= entry.least]
        spans = _of_one_function(view, calls, spans)
        mine = np.zeros(len(calls.op), np.bool_)
        for begin, end in spans:
            mine[begin:end] = True
        taken |= mine
        if spans:
            found.append(Found(entry, len(spans), view.compute & (placed >= 0) & mine[placed]))
    return found


def _spans(pattern: re.Pattern[str], text: str, breaks: I64) -> Iterator[tuple[int, int]]:
    """Yield where a pattern matches, within one thread and one stretch without other work."""
    for begin, end in zip(breaks[:-1].tolist(), breaks[1:].tolist(), strict=True):
        for match in pattern.finditer(text, begin, end):
            yield match.span()


def _of_one_function(view: DeviceView, calls: TorchCalls, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    first = [s for s in spans[:_CHECKED] if _one_function(view, calls, s)]
    if len(first) == len(spans[:_CHECKED]):
        return spans
    return [*first, *(s for s in spans[_CHECKED:] if _one_function(view, calls, s))]


def _one_function(view: DeviceView, calls: TorchCalls, span: tuple[int, int]) -> bool:
    """Tell whether the first and the last operator are called in one function, as far as that is recorded."""
    host = view.profile.host
    lines = [host.code_line(int(calls.op[i])) for i in (span[0], span[1] - 1)]
    places = [re.sub(r":\d+ ", " ", line) for line in lines if line]
    return len(set(places)) <= 1


def by_kernels(view: DeviceView) -> list[Found]:
    """Find sequences of operator types on a stream, for profiles without torch operators."""
    entries = tuple(e for e in replacements() if e.kernels)
    letters = _alphabet(entries, kernels=True)
    order = np.flatnonzero(view.compute)
    order = order[np.argsort(view.tasks.stream[order], kind="stable")]
    streams = view.tasks.stream[order]
    breaks = np.concatenate([[0], np.flatnonzero(streams[1:] != streams[:-1]) + 1, [len(order)]]).astype(np.int64)
    text = letters.text(view.types.names, view.types.codes[order].astype(np.int64))
    found = []
    present = frozenset(text)
    for entry in entries:
        if not letters.possible(entry.kernels, present):
            continue
        mine = np.zeros(len(view.tasks), np.bool_)
        spans = [*_spans(letters.pattern(entry.kernels, ()), text, breaks)]
        spans = [s for s in spans if _same_tensor(view, order, s)]
        for begin, end in spans:
            mine[order[begin:end]] = True
        if spans:
            found.append(Found(entry, len(spans), mine))
    return found


def _same_tensor(view: DeviceView, order: I64, span: tuple[int, int]) -> bool:
    """Tell whether the batch of the first kernel's tensor comes back in the last one's, as far as it is recorded."""
    first, last = (view.tasks.shapes[int(order[i])] for i in (span[0], span[1] - 1))
    if not first or not last:
        return False
    return _leading(first) == _leading(last)


def _leading(shapes: str) -> str:
    return shapes.strip('"').partition(";")[0].partition(",")[0]
