"""Work put aside for a second thread: on large arrays, for which numpy needs no interpreter lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from npuperf.model.spill import spilling
from npuperf.parallel import Threads, spare_cores

R = TypeVar("R")
#: Fewer rows are worked on sooner than threads have agreed.
_WORTH: Final = 1 << 15


class Aside:
    """Takes work that a second thread may do meanwhile; without one, it is done at once.

    Whoever needs a result first does what nobody has begun. No more than two things are worked on at the same time,
    which bounds the memory.
    """

    def __init__(self, thread: Threads | None = None) -> None:
        self._thread = thread

    def __call__(self, work: Callable[[], R]) -> Callable[[], R]:
        """Put work aside; return what gives its result, or raises its error: to be called once."""
        if self._thread is None:
            done = work()
            return lambda: done
        promise = self._thread.submit(work)
        return lambda: work() if promise.cancel() else promise.result()


@contextmanager
def second_thread(rows: int) -> Iterator[Aside]:
    """Have a second thread where so many rows are worth it, a core is spare and memory is not short.

    In the end, also after an error, what nobody asked for is not begun any more.
    """
    if rows < _WORTH or not spare_cores() or spilling():
        yield Aside()
        return
    thread = Threads(1)
    try:
        yield Aside(thread)
    finally:
        thread.shutdown(cancel_futures=True)
