"""While the program runs: say how far it is, and stop recording when the data grows too large."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from npuperf.profile.folder import RunFolder, size
from npuperf.profile.options import Options
from npuperf.profile.processes import ProcessStatus, read_all
from npuperf.units import byte_text

#: Seconds between two lines that only count steps, and between two looks at the size.
_PATIENCE, _WEIGH = 10.0, 1.0


class Watch:
    """Looks at the processes of a run; ``tell`` gets a line whenever the first of them enters another phase."""

    def __init__(self, folder: RunFolder, options: Options, tell: Callable[[str], None] | None) -> None:
        self.folder = folder
        self.options = options
        self.tell = tell
        self._said = ("", 0.0)
        self._weighed = 0.0

    def tick(self) -> None:
        """Look once."""
        if self.options.max_size is not None:
            self._weigh(self.options.max_size)
        if self.tell is not None:
            first = next((p for p in read_all(self.folder.status) if p.state != "left out"), None)
            if first is not None:
                self._report(first)

    def too_late(self, processes: Sequence[ProcessStatus]) -> list[str]:
        """Say that the data is too large although recording was not stopped.

        torch_npu's writer thread sometimes ends as it begins; its data then reaches the disk only at the end.
        """
        limit = self.options.max_size
        if limit is None or any(p.stopped for p in processes):
            return []
        grown = size(self.folder.raw)
        if grown <= limit:
            return []
        return [f"{_too_much(grown, limit)}; recording had ended before that could be seen"]

    def _report(self, process: ProcessStatus) -> None:
        state, when = self._said
        if process.state == state and not (process.state.startswith("wait") and time.monotonic() - when > _PATIENCE):
            return
        self._said = (process.state, time.monotonic())
        if self.tell is not None:
            self.tell(self._words(process))

    def _words(self, process: ProcessStatus) -> str:
        ranks = f" ({process.name})" if process.rank is not None else ""
        if process.state == "waiting":
            return f"step {process.step} of {self.options.wait} before recording{ranks}"
        if process.state in ("warming up", "recording"):
            last = "" if self.options.whole_run else f" of {self.options.active}"
            count = f" {(len(process.recorded) - 1) % self.options.active + 1}{last}" if process.recorded else ""
            return f"{process.state}: step {process.step}{',' + count if count and last else ''}{ranks}"
        if process.state == "recorded":
            return f"recorded {len(process.recorded)} steps{ranks}; the program goes on"
        return f"{process.state}{ranks}"

    def _weigh(self, limit: int) -> None:
        now = time.monotonic()
        if now - self._weighed < _WEIGH or self.folder.stop.exists():
            return
        self._weighed = now
        grown = size(self.folder.raw)
        if grown > limit:
            self.folder.stop.write_text(_too_much(grown, limit), "utf-8")


def _too_much(grown: int, limit: int) -> str:
    return f"{byte_text(grown)} are more than --max-size {byte_text(limit)}"
