"""What the host recorded about itself: torch operators, Python frames, steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np

from npuperf.model.labels import I64, Labels

_LOOK_BACK: Final = 4096
_NESTED: Final = 16
_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.*)$")
_LIBRARY = re.compile(
    r"(^|/)(torch|torch_npu|torchair|torchvision|transformers|megatron|mindspeed|numpy)/|site-packages/|dist-packages/"
    r"|(^|/)lib/python3|(^|/)npuperf/agent/|^<|^nn\.Module"
)
#: Frames in which a profiler does its own work: npuperf's agent, torch_npu's profiler, torch's.
PROFILER_FRAME: Final = r"npuperf/agent/session\.py\(|torch(_npu)?/profiler/profiler\.py\("
_PROFILER = re.compile(PROFILER_FRAME)


def is_profiler_frame(text: str) -> bool:
    """Tell a frame in which a profiler does its own work."""
    return bool(_PROFILER.search(text))


def is_user_frame(text: str) -> bool:
    """Tell a frame of the user's own code (``train.py(41): forward``) from library code."""
    return bool(_FRAME.match(text)) and not _LIBRARY.search(text)


def user_frame(stack: str) -> str | None:
    """Return the innermost frame of the user's own code in a recorded call stack.

    Stacks come innermost first, separated by ``;`` and line ends; library frames do not help the reader.
    """
    for part in stack.replace("\r", "").replace("\n", "").split(";"):
        if is_user_frame(part.strip()):
            return shorten(part.strip())
    return None


def shorten(frame: str) -> str:
    """Render a frame as ``dir/file.py:41 forward``, keeping at most one folder."""
    match = _FRAME.match(frame)
    if match is None:
        return frame
    tail = "/".join(match["file"].split("/")[-2:])
    return f"{tail}:{match['line']} {match['function']}"


@dataclass(frozen=True, slots=True)
class Spans:
    """Host events of one kind, ordered by thread, then start: epoch ns, thread, text."""

    start: I64
    end: I64
    thread: I64
    name: Labels

    @classmethod
    def empty(cls) -> Spans:
        """Return a table without events."""
        none = np.empty(0, np.int64)
        return cls(none, none, none, Labels.missing(0))

    def __len__(self) -> int:
        return len(self.start)

    def around(self, thread: int, time: int) -> Iterator[int]:
        """Yield the indices of the events around ``time`` on ``thread``, the innermost (latest start) first."""
        first, end = np.searchsorted(self.thread, [thread, thread + 1]).tolist()
        last = first + int(np.searchsorted(self.start[first:end], time, side="right"))
        while last > first:  # look back block by block: what is near is usually enough
            begin = max(first, last - _LOOK_BACK)
            inside = np.flatnonzero(self.end[begin:last] >= time)
            yield from (inside[::-1] + begin).tolist()
            last = begin

    def innermost(self, thread: int, time: int) -> int:
        """Return the index of the innermost event around ``time`` on ``thread``, or -1."""
        return next(self.around(thread, time), -1)


@dataclass(frozen=True, slots=True)
class Arrows:
    """Forward and backward operators that belong together, ordered by the backward operator's thread and start."""

    thread: I64
    time: I64
    forward_thread: I64
    forward_time: I64

    @classmethod
    def build(cls, thread: I64, time: I64, forward_thread: I64, forward_time: I64) -> Arrows:
        """Order the arrows."""
        order = np.lexsort((time, thread))
        return cls(thread[order], time[order], forward_thread[order], forward_time[order])

    @classmethod
    def none(cls) -> Arrows:
        """Return no arrows."""
        none = np.empty(0, np.int64)
        return cls(none, none, none, none)

    def forward_of(self, thread: int, start: int) -> tuple[int, int] | None:
        """Return thread and start of the forward operator of the backward operator that starts at ``start``."""
        first, end = np.searchsorted(self.thread, [thread, thread + 1]).tolist()
        at = first + int(np.searchsorted(self.time[first:end], start))
        if at < end and self.time[at] == start:
            return int(self.forward_thread[at]), int(self.forward_time[at])
        return None


@dataclass(frozen=True, slots=True)
class HostOps:
    """Torch operators with the way back to the code line that called them.

    ``stack`` is the recorded call stack, if any; ``frames`` are Python functions of the user's own code;
    ``events`` are all host events of any layer, operators and frames included.
    """

    ops: Spans = field(default_factory=Spans.empty)
    stack: Labels = field(default_factory=lambda: Labels.missing(0))
    frames: Spans = field(default_factory=Spans.empty)
    arrows: Arrows = field(default_factory=Arrows.none)
    events: Spans = field(default_factory=Spans.empty)

    def torch_op(self, op: int) -> str | None:
        """Return the innermost framework operator (``aten::mm``) around operator ``op``; -1 gives None.

        torch_npu's arrows start at its own inner event (``aclnnMm``), which users do not write.
        """
        if op < 0:
            return None
        for i in self._enclosing(op):
            name = self.ops.name[i]
            if name and "::" in name:
                return name
        return self.ops.name[op]

    def code_line(self, op: int) -> str | None:
        """Return the line of the user's code that led to operator ``op``, or None if it was not recorded."""
        if op < 0:
            return None
        recorded = self.stack[op] if len(self.stack) else None
        if recorded and (line := user_frame(recorded)):
            return line
        thread, time = int(self.ops.thread[op]), int(self.ops.start[op])
        frame = self.frames.innermost(thread, time)
        if frame < 0 and (forward := self._forward(op)):
            frame = self.frames.innermost(*forward)
        text = self.frames.name[frame] if frame >= 0 else None
        return shorten(text) if text else None

    def line_at(self, thread: int, time: int) -> str | None:
        """Return the line of the user's code that ``thread`` was in, by its frames or its operators' stacks."""
        frame = self.frames.innermost(thread, time)
        text = self.frames.name[frame] if frame >= 0 else None
        if text:
            return shorten(text)
        lines = (self.code_line(op) for op in islice(self.ops.around(thread, time), _NESTED))
        return next((line for line in lines if line), None)

    def _enclosing(self, op: int) -> Iterator[int]:
        """Yield ``op`` and the operators around it, from the inside out."""
        thread, time, end = int(self.ops.thread[op]), int(self.ops.start[op]), self.ops.end[op]
        return (i for i in self.ops.around(thread, time) if self.ops.end[i] >= end)

    def _forward(self, op: int) -> tuple[int, int] | None:
        """Find the forward operator of the backward operator that ``op`` runs in."""
        if not len(self.arrows.time):
            return None
        thread = int(self.ops.thread[op])
        found = (self.arrows.forward_of(thread, int(self.ops.start[i])) for i in self._enclosing(op))
        return next((f for f in found if f), None)
