"""While something is being recorded, every way out of the process saves it first."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Exits:
    """Calls ``finish`` at exit, at SIGTERM and before os._exit, while something is being recorded.

    Whatever the program puts in the place of ours meanwhile is the program's, and stays.
    """

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish
        self._restore: list[Callable[[], Any]] = []

    def follow(self, recording: bool) -> None:
        """Take over while something is being recorded, and give back what is still ours afterwards."""
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
            self._restore.append(_handle(signal.SIGTERM, self._terminated))

    def _release(self) -> None:
        while self._restore:
            with contextlib.suppress(ValueError):  # signals are set in the main thread only; ours passes them on
                self._restore.pop()()

    def _guard_exit(self) -> Callable[[], None]:
        leave, pid = os._exit, os.getpid()

        def _exit(status: int) -> None:
            if os.getpid() == pid:  # forked children leave this way, too
                self.finish()
            leave(status)

        os._exit = _exit  # type: ignore[assignment]

        def restore() -> None:
            if os._exit is _exit:
                os._exit = leave

        return restore

    def _terminated(self, number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # a launcher may send it again
        self.finish()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _handle(number: int, handler: Callable[[int, Any], Any]) -> Callable[[], None]:
    """Handle a signal; return what gives it back, unless somebody else has taken it since."""
    before = signal.signal(number, handler)

    def restore() -> None:
        if signal.getsignal(number) == handler:
            signal.signal(number, before)

    return restore


@contextlib.contextmanager
def undisturbed(then: Callable[[], None]) -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back while a profiler's own code runs: half a step cannot be stopped.

    ``then`` is called before they are let through. Handlers are exchanged, not masked: the kernel would give a masked
    signal to any other thread, and Python would handle it in this one all the same.
    """
    held: list[int] = []

    def hold(number: int, _: Any) -> None:
        held.append(number)

    restore = []
    if threading.current_thread() is threading.main_thread():  # signals can be set, and are handled, there only
        of_python = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not None]
        restore = [_handle(number, hold) for number in of_python]
    try:
        yield
    finally:
        for give_back in restore:
            give_back()
        then()
        for number in dict.fromkeys(held):
            _deliver(number)


def _deliver(number: int) -> None:
    """Have a signal handled that was held back; sent again, it would wake event loops a second time."""
    handler = signal.getsignal(number)
    if callable(handler):
        handler(number, sys._getframe())
    else:
        os.kill(os.getpid(), number)
