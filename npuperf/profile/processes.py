"""The processes of the program: what they say of themselves, and how far they are while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from npuperf.documents.recorded import ProcessStatus
from npuperf.messages import Message, recall, say, say_n, size
from npuperf.profile.folder import RunFolder, bytes_below
from npuperf.profile.request import ProfileRequest

_STATES: Final = {
    "waiting": say("waiting"),
    "waiting for the NPU": say("waiting for the NPU"),
    "warming up": say("warming up"),
    "recording": say("recording"),
    "saving": say("saving"),
    "recorded": say("recorded"),
    "left out": say("left out"),
    "aside": say("left to the program's own profiler"),
    "refused": say("refused"),
    "failed": say("failed"),
}
#: States in which a process cannot have ended by itself.
BUSY: Final = ("warming up", "recording", "saving")


def state_of(process: ProcessStatus) -> Message:
    """Say in which state a process is, or was last."""
    return _STATES.get(process.state) or recall(process.state)


def read_all(folder: Path) -> list[ProcessStatus]:
    """Return every process, by rank, then pid."""
    found = []
    for file in folder.glob("*.json"):
        try:
            found.append(msgspec.json.decode(file.read_bytes(), type=ProcessStatus, dec_hook=as_message))
        except (OSError, msgspec.DecodeError):  # the process died while its disk was full
            continue
    return sorted(found, key=lambda p: (p.rank is None, p.rank or 0, p.pid))


def as_message(type_: Any, value: object) -> Message:
    """Decode a message: what msgspec asks for types that are not its own."""
    if type_ is not Message:
        raise NotImplementedError(type_)
    return recall(value)


#: Seconds between two lines that only count steps, and between two looks at the size.
_PATIENCE: Final = 10.0
_WEIGH: Final = 1.0


class Watch:
    """Looks at the processes of a run; ``tell`` gets a line whenever the first of them enters another phase."""

    def __init__(self, folder: RunFolder, request: ProfileRequest, tell: Callable[[Message], None] | None) -> None:
        self.folder = folder
        self.request = request
        self.tell = tell
        self._said = ("", 0.0)
        self._weighed = 0.0
        self._too_much: Message | None = None

    def tick(self) -> None:
        """Look once."""
        if self.request.max_size is not None and self._too_much is None:
            self._weigh(self.request.max_size)
        if self.tell is not None:
            first = next((p for p in read_all(self.folder.status) if p.state != "left out"), None)
            if first is not None and self._is_news(first):
                news = _progress(first, self.request)
                self.tell(news if first.rank is None else say("{news} (rank {rank})", news=news, rank=first.rank))

    def found(self, processes: Sequence[ProcessStatus]) -> list[Message]:
        """Say where recording was stopped because of the data's size, or that it grew too large unseen.

        torch_npu's writer thread sometimes ends as it begins; its data then reaches the disk only at the end.
        """
        limit = self.request.max_size
        if limit is None:
            return []
        stopped = [p for p in processes if p.stopped is not None]
        if stopped:
            return [say("{process}: recording stopped at step {step}: {why}",
                        process=p.name, step=p.stopped, why=self._too_much) for p in stopped]  # fmt: skip
        grown = bytes_below(self.folder.raw)
        if grown <= limit:
            return []
        return [say("{why}; recording had ended before this was noticed", why=_too_much(grown, limit))]

    def _is_news(self, process: ProcessStatus) -> bool:
        """Tell whether to speak of it: in another state, or still waiting after some time."""
        state, when = self._said
        now = time.monotonic()
        if process.state == state and not (state.startswith("wait") and now - when > _PATIENCE):
            return False
        self._said = (process.state, now)
        return True

    def _weigh(self, limit: int) -> None:
        now = time.monotonic()
        if now - self._weighed < _WEIGH:
            return
        self._weighed = now
        grown = bytes_below(self.folder.raw)
        if grown > limit:
            self._too_much = _too_much(grown, limit)
            self.folder.stop.touch()


def _progress(process: ProcessStatus, request: ProfileRequest) -> Message:
    if process.state == "waiting":
        return say("step {step} of {wait} before recording", step=process.step, wait=request.wait)
    if process.state in ("warming up", "recording"):
        return _position(process, request)
    if process.state == "recorded":
        count = len(process.recorded)
        return say_n("recorded {n} step; the program goes on", "recorded {n} steps; the program goes on", count)
    return state_of(process)


def _position(process: ProcessStatus, request: ProfileRequest) -> Message:
    state, step = state_of(process), process.step
    if not process.recorded or request.whole_run:
        return say("{state}: step {step}", state=state, step=step)
    number = (len(process.recorded) - 1) % request.active + 1
    return say("{state}: step {step}, {number} of {active}",
               state=state, step=step, number=number, active=request.active)  # fmt: skip


def _too_much(grown: int, limit: int) -> Message:
    return say("the data has grown to {grown}, more than --max-size {limit}", grown=size(grown), limit=size(limit))
