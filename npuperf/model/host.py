"""What the host recorded about itself: torch operators, Python frames, steps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from npuperf.model.labels import I64, Labels

_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.*)$")
_LIBRARY = re.compile(
    r"(^|/)(torch|torch_npu|torchair|transformers|megatron|mindspeed|numpy)/|site-packages/|dist-packages/"
    r"|(^|/)lib/python3|^<|^nn\.Module"
)


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
    """Host events of one kind: epoch ns, thread, text."""

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

    def innermost(self, thread: int, time: int) -> int:
        """Return the index of the shortest event around ``time`` on ``thread``, or -1."""
        around = np.flatnonzero((self.thread == thread) & (self.start <= time) & (self.end >= time))
        return int(around[np.argmax(self.start[around])]) if len(around) else -1


@dataclass(frozen=True, slots=True)
class HostOps:
    """Torch operators with the way back to the code line that called them.

    ``stack`` is the recorded call stack, if any; ``frames`` are Python functions of the user's own code;
    ``forward_of`` maps a backward operator (thread, start) to its forward operator (thread, start).
    """

    ops: Spans = field(default_factory=Spans.empty)
    stack: Labels = field(default_factory=lambda: Labels.missing(0))
    frames: Spans = field(default_factory=Spans.empty)
    forward_of: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def torch_op(self, op: int) -> str | None:
        """Return the innermost framework operator (``aten::mm``) around operator ``op``; -1 gives None.

        torch_npu's arrows start at its own inner event (``aclnnMm``), which users do not write.
        """
        if op < 0:
            return None
        thread, time = self.ops.thread[op], self.ops.start[op]
        around = np.flatnonzero(
            (self.ops.thread == thread) & (self.ops.start <= time) & (self.ops.end >= self.ops.end[op])
        )
        for i in around[np.argsort(self.ops.start[around], kind="stable")][::-1].tolist():
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
        if frame < 0 and (forward := self._forward(thread, time)):
            frame = self.frames.innermost(*forward)
        text = self.frames.name[frame] if frame >= 0 else None
        return shorten(text) if text else None

    def _forward(self, thread: int, time: int) -> tuple[int, int] | None:
        """Find the forward operator of the backward operator that runs at ``time``."""
        near = [key for key in self.forward_of if key[0] == thread and key[1] <= time]
        return self.forward_of[max(near, key=lambda key: key[1])] if near else None
