"""Ways out of the user's program: each that leads through Python saves first what is being recorded.

A signal that no handler of Python's waits for ends the program where it is, and what is being recorded is lost. To save
it we would need a handler, and Python runs those in the main thread once that is back in bytecode: one that waits in C,
for a lock or a peer, would not end any more.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

#: Seconds for which a signal is held back at most, if it comes again: starting and stopping take one or two.
_HELD = 10.0
#: Seconds in which a call that Python makes by itself has returned.
_RETURNED = 0.02


class Exits:
    """Calls ``finish`` at exit and before os._exit, while something is being recorded.

    Whatever the program puts in the place of ours meanwhile is the program's, and stays.
    """

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish
        self._restore: list[Callable[[], Any]] = []

    def follow(self, recording: bool) -> None:
        """Take over while this thread records something, and give back what is still ours afterwards."""
        if recording and not self._restore:
            # Handlers run in reverse order: torch_npu's own, which shuts the device down, was registered before.
            atexit.register(self.finish)
            self._restore = [lambda: atexit.unregister(self.finish), self._guard_exit()]
        while self._restore and not recording:
            self._restore.pop()()

    def _guard_exit(self) -> Callable[[], None]:
        leave, pid, recorded = os._exit, os.getpid(), threading.get_ident()

        def _exit(status: int) -> None:
            # Forked children leave this way, too, and threads that watch over others: these hang, and so would we.
            if os.getpid() == pid and threading.get_ident() in (recorded, threading.main_thread().ident):
                self.finish()
            leave(status)

        os._exit = _exit  # type: ignore[assignment]

        def restore() -> None:
            if os._exit is _exit:
                os._exit = leave

        return restore


def _handle(number: int, handler: Callable[[int, Any], Any]) -> Callable[[], None]:
    """Handle a signal; return what gives it back, unless somebody else has taken it since."""
    before = signal.signal(number, handler)

    def restore() -> None:
        if signal.getsignal(number) == handler:
            signal.signal(number, before)

    return restore


@contextlib.contextmanager
def undisturbed(then: Callable[[], None], caught: bool) -> Iterator[None]:
    """Hold back what handlers in Python do (Ctrl-C's) while a profiler's own code runs: half a step cannot be stopped.

    ``then`` is called before they are let through; where nothing that is raised here gets to the program (``caught``),
    they are sent again, in a moment. What has no such handler acts at once, as it would without us.
    Handlers are exchanged, not masked: the kernel would give a masked signal to any other thread, and Python would
    handle it in this one all the same.
    """
    held: list[int] = []
    began = time.monotonic()

    def hold(number: int, frame: Any) -> None:
        if number in held and time.monotonic() - began > _HELD:
            handlers[number](number, frame)
        held.append(number)

    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # signals can be set, and are handled, there only
        known = ((number, _signal.getsignal(number)) for number in range(1, signal.NSIG))  # the other costs 1 us each
        handlers = {number: handler for number, handler in known if callable(handler)}
    restore = [_handle(number, hold) for number in handlers]
    try:
        yield
    finally:
        for give_back in restore:
            give_back()
        then()
        again = list(dict.fromkeys(held))
        if caught and again and not _wakes_a_loop():
            _thread.start_new_thread(_send_again, (again,))
        else:
            _let_through(again)


class EndOfThread:
    """Calls ``then`` in the thread that makes it, when that ends: what is local to a thread goes in it, last of all.

    ``then`` is None when it is not to be called any more.
    """

    def __init__(self, then: Callable[[], None]) -> None:
        self.then: Callable[[], None] | None = then
        self._local = threading.local()
        self._local.last = _Last(self)


class _Last:
    def __init__(self, of: EndOfThread) -> None:
        self.of = of

    def __del__(self) -> None:
        if self.of.then is not None:
            self.of.then()


def _let_through(held: list[int]) -> None:
    """Do what signals would have done, one after the other, even if one raises."""
    if not held:
        return
    try:
        handler = signal.getsignal(held[0])
        if callable(handler):
            handler(held[0], sys._getframe())
        else:
            os.kill(os.getpid(), held[0])
    finally:
        _let_through(held[1:])


def _send_again(held: list[int]) -> None:
    time.sleep(_RETURNED)
    for number in held:
        os.kill(os.getpid(), number)


def _wakes_a_loop() -> bool:
    """Tell whether signals wake an event loop: sent again, they would do so a second time. In the main thread only."""
    awaited = signal.set_wakeup_fd(-1)
    if awaited != -1:
        signal.set_wakeup_fd(awaited)
    return awaited != -1
