"""What CANN's own log says about SuperKernels: plog-PID_*.log under ~/ascend/log/[run|debug]/plog."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from npuperf.errors import InputError, unreadable
from npuperf.messages import say

_ABOUT: Final = re.compile(r"super_kernel_scope|super ?kernel sub op.*cannot fus", re.I)
_LEVEL: Final = re.compile(r"\[(WARNING|ERROR|EVENT)\]")
#: Different messages kept: the first ones tell.
_MOST: Final = 20


def read_plog(folder: Path) -> tuple[list[str], list[str]]:
    """Return the warnings and errors about SuperKernel scopes, each once, and the files read.

    Raises InputError when the folder holds no log.
    """
    files = [folder] if folder.is_file() else sorted(folder.rglob("plog-*.log"))
    if not files:
        hint = say("give the folder of ASCEND_PROCESS_LOG_PATH, or ~/ascend/log, which has run/plog/plog-*.log")
        raise InputError(say("{path}: no plog-*.log there", path=str(folder)), hint=hint)
    found: dict[str, None] = {}
    for file in files:
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    if _ABOUT.search(line) and _LEVEL.search(line):
                        found.setdefault(_message(line))
        except OSError as error:
            raise unreadable(file, error) from error
    return list(found)[:_MOST], [str(f) for f in files]


def _message(line: str) -> str:
    """Return level and text of a log line, without the time and process that make every line different."""
    level = _LEVEL.search(line)
    text = re.sub(r"^.*?\[(?:WARNING|ERROR|EVENT)\]\s*", "", line.strip())
    text = re.sub(r"^(?:[A-Z]+\(\d+,[^)]*\):)?\s*[\d\-:. ]{15,}\s*", "", text)
    return f"{level.group(1) if level else ''}: {text}"
