"""What one process of the program is, and what it tells npuperf."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import platform
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .engines import say
from .sources import Turns

#: Whether torch loads torch_npu by itself.
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
#: Seconds between two writes of the step counter.
PULSE = 0.5
#: Step times kept: enough for a median.
_KEPT = 200


class Status:
    """What one process tells npuperf: one small JSON file, always whole, ``<folder>/<host>_<pid>.json``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        #: What the threads do.
        self.threads = Turns()
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

    def warn(self, message: dict[str, Any]) -> None:
        """Add a warning."""
        self.document["warnings"].append(message)

    def write(self, **news: Any) -> None:
        """Write, with some fields set before. A disk that is full must not stop the program."""
        self.document.update(
            news,
            pid=os.getpid(),
            host=os.uname().nodename,
            python=platform.python_version(),
            executable=sys.executable,
            argv=getattr(sys, "argv", []),
            threads=[turn.step for turn in self.threads.made()],
            step_ns={"before": list(self.before), "inside": list(self.inside), "after": list(self.after)},
        )
        target = os.path.join(self.folder, f"{os.uname().nodename}_{os.getpid()}.json")
        with contextlib.suppress(OSError):
            with open(target + ".part", "w", encoding="utf-8") as file:
                file.write(json.dumps(self.document))  # not dump, which is many times slower
            os.replace(target + ".part", target)


def rank_of_process() -> int | None:
    """Return the rank as torch.distributed or the launcher tells it, None where none does."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    found = [number(name) for name in ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")]
    return next((n for n in found if n is not None), None)


def lacks_cann() -> bool:
    """Tell whether torch_npu is installed, and a library of CANN that it is linked with is nowhere."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if importlib.util.find_spec("torch_npu") is None or any(os.path.exists(f"{f}/libhccl.so") for f in folders if f):
        return False
    try:
        ctypes.CDLL("libhccl.so")
    except OSError:
        return True
    return False


@contextlib.contextmanager
def importing(name: str, engine: str, warn: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Keep torch from loading torch_npu where only the CPU is to be recorded and CANN is not there: it would fail.

    A value of the user's stays, and the program does not see ours.
    """
    is_alone = name == "torch" and engine == "cpu" and _AUTOLOAD not in os.environ and lacks_cann()
    if is_alone:
        os.environ[_AUTOLOAD] = "0"
        warn(say("torch was kept from loading torch_npu, which fails here, as CANN's libraries are not found "
                 "({variable}=0)", variable=_AUTOLOAD))  # fmt: skip
    try:
        yield
    finally:
        if is_alone:
            os.environ.pop(_AUTOLOAD, None)


def number(variable: str) -> int | None:
    """Return the whole number that a variable of the environment holds, None where it holds none."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def is_launcher() -> bool:
    """Tell whether this process only starts others: a launcher, or a helper of multiprocessing."""
    words = getattr(sys, "orig_argv", None) or sys.argv
    names = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "--multiprocessing-fork")
    return "RANK" not in os.environ and any(os.path.basename(word) in names for word in words)
