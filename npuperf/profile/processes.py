"""The processes of the program: what they say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from npuperf.documents.recorded import ProcessStatus
from npuperf.errors import InputError
from npuperf.files import read_input
from npuperf.messages import Message, recall, say
from npuperf.profile.request import RecordingOptions

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
#: States of a process that records nothing.
_OUT: Final = ("left out", "aside", "refused", "failed")


def state_of(process: ProcessStatus) -> Message:
    """Say in which state a process is, or was last."""
    return _STATES.get(process.state) or recall(process.state)


def read_all(folder: Path) -> list[ProcessStatus]:
    """Return every process, by rank, then pid."""
    found = []
    for file in folder.glob("*.json"):
        try:
            found.append(msgspec.json.decode(read_input(file), type=ProcessStatus, dec_hook=as_message))
        except (InputError, msgspec.DecodeError, RecursionError):  # the process died while its disk was full
            continue
    return sorted(found, key=lambda p: (p.rank is None, p.rank or 0, p.pid))


def all_recorded(processes: Sequence[ProcessStatus], options: RecordingOptions) -> bool:
    """Tell whether every process that counts steps has saved all that it was to record, and at least one did."""
    counting = [p for p in processes if p.step and p.state not in _OUT]
    full = options.active * options.repeat
    return bool(counting) and all(
        p.state == "recorded" and (len(p.recorded) >= full or p.early or p.stopped is not None) for p in counting
    )


def as_message(type_: Any, value: object) -> Message:
    """Decode a message: what msgspec asks for types that are not its own."""
    if type_ is not Message:
        raise NotImplementedError(type_)
    return recall(value)
