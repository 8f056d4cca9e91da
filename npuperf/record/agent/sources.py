"""What the program does: that it imports torch, makes steps, and makes profilers of its own; and which steps count.

Each source of steps calls ``ended()`` when a step ends and returns a function that undoes it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Python 3.7 and 3.8 cannot evaluate them
    Action = Callable[[Any], None]
    Failure = Callable[[str, BaseException], None]
    Ended = Callable[[], None]
    Undo = Callable[[], None]


def watch(actions: dict[str, Action], failed: Failure) -> None:
    """Call ``actions[name]`` with the module after its import, ``failed(name, error)`` when the import raised."""
    sys.meta_path.insert(0, _Watcher(dict(actions), failed))


class _Watcher(MetaPathFinder):
    """Finds nothing itself: it lets the other finders find, and stands by while the module is executed."""

    def __init__(self, waiting: dict[str, Action], failed: Failure) -> None:
        self.waiting = waiting
        self.failed = failed

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        action = self.waiting.get(fullname)
        if action is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                break
        else:
            return None
        loader: Any = spec.loader
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.exec_module = execute
            try:
                execute(module)
            except BaseException as error:
                self.failed(fullname, error)
                raise
            self.waiting.pop(fullname, None)
            if not self.waiting and self in sys.meta_path:
                sys.meta_path.remove(self)
            try:
                action(module)
            except Exception as error:  # the program comes first: it runs without being profiled
                print(f"npuperf: not profiling this process: {type(error).__name__}: {error}", file=sys.stderr)

        loader.exec_module = exec_module
        return spec


WAIT, WARM_UP, RECORD, OVER = "wait", "warm up", "record", "over"


class Window:
    """Cycles of ``wait``, ``warmup`` and ``active`` steps, ``repeat`` times (0: for ever), or simply everything."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.whole = bool(plan["whole_run"])
        self.wait = plan["schedule"]["wait"]
        self.warmup = plan["schedule"]["warmup"]
        self.active = plan["schedule"]["active"]
        self.repeat = plan["schedule"]["repeat"]
        #: Steps by which everything is put off, because nothing could be recorded yet.
        self.delay = 0

    def phase(self, step: int) -> str:
        """Say what happens in a step (counted from 0)."""
        if self.whole:
            return RECORD
        position = self._position(step)
        if position < 0:
            return OVER
        if position < self.wait:
            return WAIT
        return WARM_UP if position < self.wait + self.warmup else RECORD

    def begins(self, step: int) -> bool:
        """Tell whether the profiler must be there from this step on."""
        if step < self.delay + self.wait:  # of the many steps before the window each passes here
            return self.whole
        return self.whole or self._position(step) == self.wait

    def catch_up(self, behind: int, step: int) -> None:
        """Go on from a later step; a window that should have begun on the way begins there."""
        if any(map(self.begins, range(behind + 1, step))):
            self.delay = step - self.wait

    def _position(self, step: int) -> int:
        length = self.wait + self.warmup + self.active
        since = step - self.delay
        if self.repeat and since >= length * self.repeat:
            return -1
        return since % length if since >= 0 else 0


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

        frames, mine = self._frames, call  # type: Any, Any
        code = mine.__code__
        with contextlib.suppress(AttributeError):  # a torch without a compiler, or with another switch
            # torch.compile runs it as it is, and goes on with what it calls.
            if hasattr(frames, "skip_code"):  # the older one
                frames.skip_code(code)
            else:
                action = frames._FrameAction
                frames.set_code_exec_strategy(code, frames._FrameExecStrategy(action.SKIP, action.DEFAULT))
        return call


def _never(*_: Any) -> None:
    """Stand in for what a torch without a compiler does not have."""


def _find(module: Any, path: str) -> Any:
    """Follow a dotted path of attributes; None where one is missing."""
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


class Rivals:
    """Notices profilers that the program makes, as two of one kind in a process damage each other's data; ``met`` is
    called before each is constructed.
    """

    def __init__(self, met: Callable[[], None], step: Callable[[], None]) -> None:
        self.met = met
        self.step = step
        self.ours = False
        self._known: list[Any] = []

    def watch(self, owner: Any, replace: bool) -> None:
        """Watch a class of profilers; with ``replace`` they do nothing any more but end steps."""
        construct = owner.__init__

        def init(this: Any, *args: Any, **kwargs: Any) -> None:
            if not self.ours and not self._knows(this):
                self._known.append(weakref.ref(this))
                self.met()
            construct(this, *args, **kwargs)

        owner.__init__ = init
        if replace:
            for kind in (owner, *owner.__subclasses__()):
                for name in {"start", "stop", "step", "__del__"} & set(vars(kind)):
                    setattr(kind, name, self._silent(name, vars(kind)[name]))

    def data(self) -> list[str]:
        """Return where the program's profilers wrote, as far as they tell."""
        alive = [reference() for reference in self._known]
        paths = [getattr(getattr(p, "prof_if", None), "prof_path", None) for p in alive]
        return [p for p in paths if p]

    def _silent(self, name: str, inner: Any) -> Any:
        def call(this: Any, *args: Any, **kwargs: Any) -> Any | None:
            if not self._knows(this):
                return inner(this, *args, **kwargs)
            if name == "step":
                self.step()
            return None

        return call

    def _knows(self, profiler: Any) -> bool:
        return any(reference() is profiler for reference in self._known)
