"""What one process tells npuperf: one small JSON file, always whole."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
from collections import deque
from typing import Any

#: Seconds between two writes of the step counter.
_PULSE = 0.5
#: Step times kept: enough for a median.
_KEPT = 200


def say(sentence: str, **parameters: str | int | None) -> dict[str, Any]:
    """Return a sentence with its parameters, for npuperf to say in the user's language."""
    return {"id": sentence, "parameters": parameters}


class Status:
    """The document ``<folder>/<host>_<pid>.json``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.document: dict[str, Any] = {
            "state": "waiting",
            "step": 0,
            "recorded": [],
            "folders": [],
            "warnings": [],
        }
        #: Host times between step ends, ns, by their place relative to the recorded windows.
        self.before: deque[int] = deque(maxlen=_KEPT)
        self.inside: deque[int] = deque(maxlen=_KEPT)
        self.after: deque[int] = deque(maxlen=_KEPT)
        self._written = 0.0

    def warn(self, message: dict[str, Any]) -> None:
        """Add a warning."""
        self.document["warnings"].append(message)

    def pulse(self, step: int) -> None:
        """Write the step counter if the last time is long ago."""
        if time.monotonic() - self._written > _PULSE:
            self.write(step=step)

    def write(self, **news: Any) -> None:
        """Write, with some fields set before. A disk that is full must not stop the program."""
        self._written = time.monotonic()
        self.document.update(
            news,
            pid=os.getpid(),
            host=os.uname().nodename,
            python=platform.python_version(),
            executable=sys.executable,
            argv=getattr(sys, "argv", []),
            step_ns={"before": list(self.before), "inside": list(self.inside), "after": list(self.after)},
        )
        target = os.path.join(self.folder, f"{os.uname().nodename}_{os.getpid()}.json")
        with contextlib.suppress(OSError):
            with open(target + ".part", "w", encoding="utf-8") as file:
                json.dump(self.document, file)
            os.replace(target + ".part", target)
