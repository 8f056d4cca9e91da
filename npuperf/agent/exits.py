"""While something is being recorded, every way out of the process saves it first."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Exits:
    """Calls ``finish`` at exit, at SIGTERM and before os._exit, while something is being recorded."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish
        self._restore: list[Callable[[], Any]] = []

    def follow(self, recording: bool) -> None:
        """Take over while something is being recorded, and give everything back afterwards."""
        if recording and not self._restore:
            self._guard()
        elif not recording:
            self._release()

    def _guard(self) -> None:
        """Take over. A handler that the program has installed for SIGTERM stays."""
        # Handlers run in reverse order: torch_npu's own, which shuts the device down, was registered before.
        atexit.register(self.finish)
        self._restore = [lambda: atexit.unregister(self.finish), self._guard_exit()]
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)
            self._restore.append(lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))

    def _release(self) -> None:
        while self._restore:
            with contextlib.suppress(ValueError):  # signals can be set in the main thread only
                self._restore.pop()()

    def _guard_exit(self) -> Callable[[], None]:
        leave, pid = os._exit, os.getpid()

        def _exit(status: int) -> None:
            if os.getpid() == pid:  # forked children leave this way, too
                self.finish()
            leave(status)

        os._exit = _exit  # type: ignore[assignment]

        def restore() -> None:
            os._exit = leave

        return restore

    def _terminated(self, number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # a launcher may send it again
        self.finish()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back while a profiler's own code runs: half a step cannot be stopped.

    Handlers are exchanged, not masked: the kernel would give a masked signal to any other thread, and Python would
    handle it in this one all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = [number for number, handler in before.items() if handler is not None]
    for number in ours:
        signal.signal(number, lambda number, _: held.append(number))
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
        if held:
            os.kill(os.getpid(), held[0])
