"""What waits beside the program: a thread that looks for a time or a request, and what the main thread then does.

It is needed where a window may have to begin or end while the program makes no step. ``threading`` does not know it, it
handles no signal, and it is not there while the program forks.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import json
import os
import signal
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import sources
from .engines import say

if TYPE_CHECKING:  # Python 3.7 and 3.8 cannot evaluate it
    Look = Callable[[], "float | None"]

#: Seconds to wait for our thread when it is to end: it sleeps, or looks for a file.
_PATIENCE = 1.0
#: A request or a plan has a few KB.
_MOST = 1 << 20


def why_late(*, by_time: bool) -> dict[str, Any]:
    """Say why a window has not begun when it was time, in a process that may be recorded ``by_time`` or may not."""
    if not by_time:
        return say("without an NPU a process that another one started is recorded only when it makes steps")
    return say(
        "the main thread was inside one call of C code all the time, as a join or a lock is, so recording could "
        "not begin between two of its bytecodes: --step-on forward begins it in the thread that calls the model"
    )


class Beside:
    """A thread that calls ``look`` again and again: after as many seconds as it returned, and no more after None."""

    def __init__(self, look: Look) -> None:
        self._look = look
        #: Rung to end it; released when it has ended. None where no thread is.
        self._bell: Any = None
        self._gone: Any = None

    def start(self) -> None:
        """Begin to look, unless that goes on already."""
        if self._bell is None:
            self._bell, self._gone = _thread.allocate_lock(), _thread.allocate_lock()
            self._bell.acquire()
            self._gone.acquire()
            _thread.start_new_thread(self._run, (self._bell, self._gone))

    def stop(self) -> bool:
        """End the thread and return whether there was one."""
        bell, self._bell = self._bell, None
        if bell is None:
            return False
        bell.release()
        self._gone.acquire(True, _PATIENCE)
        return True

    def _run(self, bell: Any, gone: Any) -> None:
        try:
            # Whoever sends the program a signal wakes its own threads.
            signal.pthread_sigmask(signal.SIG_BLOCK, getattr(signal, "valid_signals", lambda: range(1, 32))())
            while True:
                pause = self._look()
                if pause is None or bell.acquire(True, pause):
                    break
        finally:
            if self._bell is bell:
                self._bell = None
            gone.release()


#: What Python may call later, when nobody else keeps it any more.
_CALLBACKS: list[Any] = []


class InMain:
    """Has a function called in the main thread, between two of its bytecodes, and never while torch.compile works.

    The function is to look for itself whether there is still something to do: it may be called late, and again.
    """

    def __init__(self, call: Callable[[], None], torch: Any) -> None:
        is_compiling, set_compiler = sources.compiler(torch)

        def called(_: Any) -> int:
            if is_compiling():
                return 0
            before = set_compiler(None)
            try:
                call()
            except Exception:  # nobody could catch it
                return 0
            finally:
                set_compiler(before)
            return 0

        sources.never_compile(torch, called)
        self._callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(called)
        _CALLBACKS.append(self._callback)

    def ask(self) -> None:
        """Ask for the call. It waits for as long as the main thread is inside of one C function."""
        ctypes.pythonapi.Py_AddPendingCall(self._callback, None)


def take(folder: str) -> dict[str, Any] | None:
    """Return the plan that this process is asked to carry out, once; None where nobody asks."""
    asked = os.path.join(folder, f"{os.getpid()}.json")
    if not os.access(asked, os.F_OK):
        return None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        taken = asked[: -len("json")] + "taken"
        os.replace(asked, taken)
        place = os.lstat(folder)
        if stat.S_ISDIR(place.st_mode) and place.st_uid == os.geteuid() and not place.st_mode & 0o077:
            request = own_object(taken)
            return None if request is None else own_object(request["plan"])
    return None


def own_object(path: str) -> dict[str, Any] | None:
    """Return a JSON object that nobody but this user can have written; None where it is none."""
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        found = os.lstat(path)
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
        if is_own and found.st_size <= _MOST:
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            return content if isinstance(content, dict) else None
    return None
