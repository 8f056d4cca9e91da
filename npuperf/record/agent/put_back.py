"""Put back what npuperf changed beside a running program, when npuperf asks for it (SIGTERM) or is gone. Run by file.

The argument is a JSON object. ``remove``: pairs of a file and what stands in it, removed if it still does. ``restore``:
``file``, what npuperf wrote there (``ours``), what stood there before (null: no file), and with which time (ns).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any

_TICK = 0.1


def main() -> None:
    """Wait, then put back."""
    parent, asked = os.getppid(), []
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    changes = json.loads(sys.argv[1])
    print("ready", flush=True)
    while not asked and os.getppid() == parent:
        time.sleep(_TICK)
    for path, ours in changes["remove"]:
        if _text(path) == ours:
            with contextlib.suppress(OSError):
                os.unlink(path)
    restore = changes["restore"]
    if restore and _text(restore["file"]) == restore["ours"]:
        _restore(restore)


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def _restore(change: dict[str, Any]) -> None:
    """With the time that it had: torch_npu looks at that alone, and would begin another window at a new one."""
    path, before = change["file"], change["before"]
    with contextlib.suppress(OSError):
        if before is None:
            os.unlink(path)
            return
        part = path + ".npuperf"
        with open(part, "w", encoding="utf-8") as file:
            file.write(before)
        os.chmod(part, os.stat(path).st_mode & 0o777)
        os.utime(part, ns=(change["time"], change["time"]))
        os.replace(part, path)


if __name__ == "__main__":
    main()
