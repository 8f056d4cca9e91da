"""Where steps come from. Each source calls ``ended()`` when a step ends and returns a function that undoes it."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Python 3.7 and 3.8 cannot evaluate them
    Ended = Callable[[], None]
    Undo = Callable[[], None]


def once_per_round(ended: Ended) -> Callable[[object], None]:
    """Turn events of several objects into steps: a step ends when an object comes round again, and at the first.

    Two optimizers that take turns make one step a round, an optimizer used five times makes five, and one that
    was replaced by another is not waited for. Every thread has rounds of its own.
    """
    rounds: defaultdict[int, set[int]] = defaultdict(set)

    def event(of: object) -> None:
        seen = rounds[threading.get_ident()]
        again = not seen or id(of) in seen
        if again:
            seen.clear()
        seen.add(id(of))
        if again:
            ended()

    return event


def every(seconds: float, ended: Ended) -> Callable[[object], None]:
    """Turn events into steps of at least this many seconds; a thread's first event starts its clock."""
    began: dict[int, float] = {}

    def event(_: object) -> None:
        now, thread = time.monotonic(), threading.get_ident()
        if now - began.setdefault(thread, now) >= seconds:
            began[thread] = now
            ended()

    return event


def optimizers(torch: Any, event: Callable[[object], None]) -> Undo:
    """Report every outermost ``optimizer.step()`` when it is done.

    torch's own hooks run inside the range that it records around ``step``; a profiler's step that begins in there is
    not seen as one by torch_npu. So the methods themselves are wrapped, class by class as they are instantiated.
    """
    base = torch.optim.Optimizer
    construct = base.__init__
    outermost = _Outermost(torch, event)

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        if not outermost.has_ended:
            outermost.replace(type(self), "step")

    def undo() -> None:
        if base.__init__ is init:
            base.__init__ = construct
        outermost.end()

    base.__init__ = init
    return undo


def forwards(torch: Any, event: Callable[[object], None]) -> Undo:
    """Report every outermost module call when it is done."""
    outermost = _Outermost(torch, event)
    outermost.replace(torch.nn.Module, "__call__")
    return outermost.end


class _Outermost:
    """Methods in whose place others stand: ``event`` gets the object when the outermost call in a thread has returned.

    Whoever keeps such a method (a learning rate scheduler does) keeps it for good; after ``end`` it only passes on.
    """

    def __init__(self, torch: Any, event: Callable[[object], None]) -> None:
        self.has_ended = False
        self._event = event
        self._local = threading.local()
        self._replaced: dict[tuple[Any, str], tuple[Any, Any]] = {}
        self._is_compiling = _find(torch, "compiler.is_compiling") or _never
        self._frames = _find(torch, "_C._dynamo.eval_frame")

    def replace(self, kind: Any, name: str) -> None:
        """Wrap a method, once."""
        if (kind, name) not in self._replaced:
            original = vars(kind).get(name)
            mine = self._wrap(getattr(kind, name))
            self._replaced[kind, name] = original, mine
            setattr(kind, name, mine)

    def end(self) -> None:
        """Give back what is still ours; what somebody has wrapped or replaced since is theirs."""
        self.has_ended = True
        for (kind, name), (original, mine) in self._replaced.items():
            if vars(kind).get(name) is not mine:
                continue
            if original is None:  # inherited
                delattr(kind, name)
            else:
                setattr(kind, name, original)

    def _wrap(self, method: Any) -> Any:
        local, event, is_compiling = self._local, self._event, self._is_compiling
        set_compiler = getattr(self._frames, "set_eval_frame", _never)

        @functools.wraps(method)  # with its attributes: torch marks the steps it has wrapped
        def call(this: Any, *args: Any, **kwargs: Any) -> Any:
            # While torch.compile traces this, it is to see nothing but the method.
            if is_compiling() or self.has_ended or getattr(local, "inside", False):
                return method(this, *args, **kwargs)
            local.inside = True
            try:
                result = method(this, *args, **kwargs)
            finally:
                local.inside = False
            compiler = set_compiler(None)  # nothing of ours is to be compiled
            try:
                event(this)
            finally:
                set_compiler(compiler)
            return result

        _leave_uncompiled(self._frames, call)
        return call


def _never(*_: Any) -> None:
    """Stand in for what a torch without a compiler does not have."""


def _find(module: Any, path: str) -> Any:
    """Follow a dotted path of attributes; None where one is missing."""
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def _leave_uncompiled(frames: Any, function: Any) -> None:
    """Have torch.compile run a function as it is, and go on with what it calls; ``frames``: torch's own switch."""
    code = function.__code__
    with contextlib.suppress(AttributeError):  # a torch without a compiler, or with another switch
        if hasattr(frames, "skip_code"):  # the older one
            frames.skip_code(code)
        else:
            action = frames._FrameAction
            frames.set_code_exec_strategy(code, frames._FrameExecStrategy(action.SKIP, action.DEFAULT))
