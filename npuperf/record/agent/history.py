"""The history of an NPU's memory, as torch_npu keeps it: written when memory runs out, and when recording ends."""

from __future__ import annotations

import contextlib
import glob
import os
import pickle
from collections.abc import Callable
from typing import Any

from .engines import say

#: Events that are kept, about 1 KB of host memory each with its stack; the oldest go first.
ENTRIES = 250_000
#: Failures that are written: a program may go on after them, and fail again and again.
_FAILURES = 3


class History:
    """Lets torch_npu keep the history of its allocator, and writes it to ``folder``, as files of this process.

    Whatever goes wrong is told by ``warn`` and costs the program nothing.
    """

    def __init__(self, folder: str, warn: Callable[[Any], None]) -> None:
        self.folder = folder
        self.warn = warn
        self._module: Any = None
        self._failures = 0
        self._pid = os.getpid()

    def follow(self, module: Any) -> None:
        """Begin when the program opens its device: sooner would open one that it may not want."""
        with self._careful():
            module.npu._lazy_call(lambda: self._begin(module))

    def _begin(self, module: Any) -> None:
        with self._careful():
            # OOM_SNAPSHOT_ENABLE keeps a history already, which a second call would throw away
            if os.environ.get("OOM_SNAPSHOT_ENABLE", "0") in ("", "0"):
                module.npu.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=ENTRIES)
            module._C._npu_attach_out_of_memory_observer(self._ran_out)
            self._module = module
            self._pid = os.getpid()  # it may have been forked since

    def _ran_out(self, *_: Any) -> None:
        """Memory has run out: write what led to it, as the program may die of it."""
        if self._failures < _FAILURES and os.getpid() == self._pid:
            self._failures += 1
            self._write(os.path.join(self.folder, f"oom_{self._pid}_{self._failures}.pickle"))

    def keep(self, folders: list[str]) -> None:
        """Write the history up to now beside what was recorded, and move there what was written before."""
        if self._module is None or os.getpid() != self._pid:
            return
        target = folders[-1] if folders and os.path.isdir(folders[-1]) else self.folder
        self._write(os.path.join(target, f"snapshot_{self._pid}.pickle"))
        if target != self.folder:
            for path in glob.glob(os.path.join(glob.escape(self.folder), f"oom_{self._pid}_*.pickle")):
                with contextlib.suppress(OSError):
                    os.replace(path, os.path.join(target, os.path.basename(path)))
            self.folder = target

    def _write(self, path: str) -> None:
        with self._careful():
            # _dump_snapshot would also run the profiler, where it cannot ask the driver
            found = self._module.npu.memory._snapshot()
            with open(path + ".part", "wb") as file:
                pickle.dump(found, file)
            os.replace(path + ".part", path)

    @contextlib.contextmanager
    def _careful(self) -> Any:
        try:
            yield
        except Exception as error:
            self.warn(say("no history of memory was kept: {error}", error=f"{type(error).__name__}: {error}"))
