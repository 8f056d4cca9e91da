"""What the processes of the program said of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from npuperf.documents.recorded import ProcessStatus
from npuperf.messages import Message, recall, say

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
