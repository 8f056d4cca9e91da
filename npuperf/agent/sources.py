"""Where steps come from. Each source calls ``ended()`` when a step ends and returns a function that undoes it."""

from __future__ import annotations

import sys
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
    """Report every ``optimizer.step()`` when it is done."""
    module = sys.modules[torch.optim.Optimizer.__module__]
    if hasattr(module, "register_optimizer_step_post_hook"):
        handle = module.register_optimizer_step_post_hook(lambda optimizer, args, kwargs: event(optimizer))
        return lambda: handle.remove()
    return _wrap_steps(module.Optimizer, event)


def _wrap_steps(base: Any, event: Callable[[object], None]) -> Undo:
    """Before torch 2.1 there is no hook for all optimizers: wrap ``step`` of every class that is instantiated."""
    wrapped: list[tuple[Any, Any]] = []
    construct = base.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        kind = type(self)
        if kind not in [k for k, _ in wrapped]:
            inner = kind.step
            wrapped.append((kind, inner))

            def step(self: Any, *args: Any, **kwargs: Any) -> Any:
                result = inner(self, *args, **kwargs)
                event(self)
                return result

            kind.step = step

    def undo() -> None:
        base.__init__ = construct
        for kind, inner in wrapped:
            kind.step = inner

    base.__init__ = init
    return undo


def forwards(torch: Any, event: Callable[[object], None]) -> Undo:
    """Report every outermost module call when it is done."""
    module = torch.nn.Module
    original = module.__call__
    local = threading.local()

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(local, "inside", False):
            return original(self, *args, **kwargs)
        local.inside = True
        try:
            result = original(self, *args, **kwargs)
        finally:
            local.inside = False
        event(self)
        return result

    module.__call__ = call

    def undo() -> None:
        module.__call__ = original

    return undo
