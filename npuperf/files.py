"""Files: how they are called, notes of our own, and writing them whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from npuperf.errors import InputError
from npuperf.messages import say

#: What ``npuperf profile`` writes about a run, in its run directory.
MANIFEST: Final = "npuperf.json"


def shown(path: str | Path) -> str:
    """Return how to call a path in a message or a command: relative where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def total_bytes(files: Iterable[Path]) -> int:
    """Return how large files are together; reading those that cannot be asked says why."""
    total = 0
    for file in files:
        with suppress(OSError):
            total += file.stat().st_size
    return total


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object that may be missing or damaged: it is empty then."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` so that ``path`` never holds half of it; raises InputError when it cannot be written.

    What is no file is written to as it is: root would replace a device such as /dev/null by a file.
    """
    temporary = None
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, "utf-8")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            temporary = Path(file.name)
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise InputError(say("{path}: cannot be written: {why}", path=str(path), why=error.strerror)) from error
