"""What one process tells npuperf: one small JSON file, always whole."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
from typing import Any

#: Seconds between two writes of the step counter.
_PULSE = 0.5


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
            "step_ns": {"before": [], "inside": [], "after": []},
        }
        self._written = 0.0

    def warn(self, text: str) -> None:
        """Add a warning."""
        warnings: list[str] = self.document["warnings"]
        warnings.append(text)

    def pulse(self) -> None:
        """Write if the last time is long ago."""
        if time.monotonic() - self._written > _PULSE:
            self.write()

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
        )
        target = os.path.join(self.folder, f"{os.uname().nodename}_{os.getpid()}.json")
        with contextlib.suppress(OSError):
            with open(target + ".part", "w", encoding="utf-8") as file:
                json.dump(self.document, file)
            os.replace(target + ".part", target)
