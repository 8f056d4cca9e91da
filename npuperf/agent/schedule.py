"""Which steps are recorded."""

from __future__ import annotations

from typing import Any

WAIT, WARM_UP, RECORD, OVER = "wait", "warm up", "record", "over"


class Window:
    """Cycles of ``wait``, ``warmup`` and ``active`` steps, ``repeat`` times (0: for ever), or simply everything."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.whole = bool(plan["whole_run"])
        self.wait = plan["schedule"]["wait"]
        self.warmup = plan["schedule"]["warmup"]
        self.active = plan["schedule"]["active"]
        self.repeat = plan["schedule"]["repeat"]
        #: Steps by which everything is put off, because nothing could be recorded yet.
        self.delay = 0

    def phase(self, step: int) -> str:
        """Say what happens in a step (counted from 0)."""
        if self.whole:
            return RECORD
        position = self._position(step)
        if position < 0:
            return OVER
        if position < self.wait:
            return WAIT
        return WARM_UP if position < self.wait + self.warmup else RECORD

    def begins(self, step: int) -> bool:
        """Tell whether the profiler must be there from this step on."""
        if step < self.delay + self.wait:  # of the many steps before the window each passes here
            return self.whole
        return self.whole or self._position(step) == self.wait

    def catch_up(self, behind: int, step: int) -> None:
        """Go on from a later step; a window that should have begun on the way begins there."""
        if any(map(self.begins, range(behind + 1, step))):
            self.delay = step - self.wait

    def _position(self, step: int) -> int:
        length = self.wait + self.warmup + self.active
        since = step - self.delay
        if self.repeat and since >= length * self.repeat:
            return -1
        return since % length if since >= 0 else 0
