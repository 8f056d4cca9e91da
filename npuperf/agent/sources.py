"""Where steps come from. Each source calls ``ended()`` when a step ends and returns a function that undoes it."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Python 3.7 and 3.8 cannot evaluate them
    Ended = Callable[[], None]
    Undo = Callable[[], None]


def once_per_round(ended: Ended) -> Callable[[object], None]:
    """Turn events of several objects into steps: a step ends when an object comes round again, and at the first.

    Two optimizers that take turns make one step a round, an optimizer used five times makes five, and one that
    was replaced by another is not waited for.
    """
    seen: set[int] = set()

    def event(of: object) -> None:
        again = not seen or id(of) in seen
        if again:
            seen.clear()
        seen.add(id(of))
        if again:
            ended()

    return event


def every(seconds: float, ended: Ended) -> Callable[[object], None]:
    """Turn events into steps of at least this many seconds; the first event starts the clock."""
    began = [0.0]

    def event(_: object) -> None:
        now = time.monotonic()
        if not began[0]:
            began[0] = now
        elif now - began[0] >= seconds:
            began[0] = now
            ended()

    return event


def optimizers(torch: Any, event: Callable[[object], None]) -> Undo:
    """Report every outermost ``optimizer.step()`` when it is done.

    torch's own hooks run inside the range that it records around ``step``; a profiler's step that begins in there is
    not seen as one by torch_npu. So the methods themselves are wrapped, class by class as they are instantiated.
    """
    base = torch.optim.Optimizer
    construct = base.__init__
    outermost = _outermost(event)
    wrapped: list[tuple[Any, Any]] = []

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        kind = type(self)
        if all(kind is not other for other, _ in wrapped):
            wrapped.append((kind, kind.step))
            kind.step = outermost(kind.step)

    def undo() -> None:
        base.__init__ = construct
        for kind, step in wrapped:
            kind.step = step

    base.__init__ = init
    return undo


def forwards(torch: Any, event: Callable[[object], None]) -> Undo:
    """Report every outermost module call when it is done."""
    module = torch.nn.Module
    original = module.__call__
    module.__call__ = _outermost(event)(original)

    def undo() -> None:
        module.__call__ = original

    return undo


def _outermost(event: Callable[[object], None]) -> Callable[[Any], Any]:
    """Wrap methods so that ``event`` gets the object when the outermost call in a thread has returned."""
    local = threading.local()

    def wrap(method: Any) -> Any:
        @functools.wraps(method)  # with its attributes: torch marks the steps it has wrapped
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(local, "inside", False):
                return method(self, *args, **kwargs)
            local.inside = True
            try:
                result = method(self, *args, **kwargs)
            finally:
                local.inside = False
            event(self)
            return result

        return call

    return wrap
