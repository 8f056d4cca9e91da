"""The program's own profilers: two in one process damage each other's data."""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from .sources import never_compile


class Scopes:
    """The program's ``record_function`` scopes, while a profiler of ours is there.

    A scope that outlives the profiler under which it was opened ends in the next one, which takes it for its own or
    follows a pointer to nowhere. So they end with ours. What idle profilers mark as their steps is left out.
    """

    def __init__(self, torch: Any, is_ours: Callable[[], bool]) -> None:
        self._torch = torch
        self._kind = torch.autograd.profiler.record_function
        self._is_ours = is_ours
        self._open: dict[int, Any] = {}
        #: Whether the recorded thread is just opening or ending one, which then has no pointer, or none that is known.
        self.is_at_one = False
        self._given: dict[str, tuple[Any, Any]] = {}

    def follow(self) -> None:
        """Note what is opened in this thread from now on."""
        kind, opened, thread = self._kind, self._open, threading.get_ident()
        given_enter, given_exit = kind.__enter__, kind.__exit__

        def begin(scope: Any) -> Any:
            if threading.get_ident() != thread or self._is_ours():
                return given_enter(scope)
            if scope.name.startswith("ProfilerStep#"):
                scope.run_callbacks_on_exit = False  # there is nothing to end
                return scope
            self.is_at_one = True
            try:
                opened[id(scope)] = scope
                return given_enter(scope)
            finally:
                self.is_at_one = False

        def leave(scope: Any, *raised: Any) -> Any:
            if opened.get(id(scope)) is not scope:
                return given_exit(scope, *raised)
            self.is_at_one = True
            try:  # a handler of a signal may raise in there: what is still known then is ended once more, by us
                result = given_exit(scope, *raised)
                del opened[id(scope)]
                return result
            finally:
                self.is_at_one = False

        for name, function, given in (("__enter__", begin, given_enter), ("__exit__", leave, given_exit)):
            never_compile(self._torch, function)
            setattr(kind, name, functools.wraps(given)(function))
            self._given[name] = function, given

    def end(self) -> None:
        """End those that are open; the program ends them once more, which does nothing."""
        while self._open:
            _, scope = self._open.popitem()
            if getattr(scope, "record", scope) is not None:  # else a signal's handler raised before it had begun
                scope.__exit__(None, None, None)
        self.give_back()

    def give_back(self) -> None:
        """Give the methods back, where they are still ours."""
        self._open.clear()
        for name, (mine, given) in self._given.items():
            if vars(self._kind).get(name) is mine:
                setattr(self._kind, name, given)
        self._given.clear()


#: What every profiler of torch itself drives.
KINETO = "torch.autograd.profiler"
_NPU = "torch_npu.profiler.profiler_interface"
#: The functions with which every profiler of a kind begins and ends, of whatever class it was made: the module that
#: calls them by these names, or the class that has them as methods.
_BEGINNINGS = {
    KINETO: ("_prepare_profiler", "_enable_profiler"),
    "torch.autograd.profiler_legacy": ("_enable_profiler_legacy",),
    "torch.profiler.profiler": ("_enable_execution_trace_observer",),
    _NPU: ("_init_profiler", "_warmup_profiler", "_start_profiler"),
    "torch_npu.npu.profile": ("__enter__",),
}
_ENDINGS = {
    KINETO: ("_disable_profiler",),
    "torch.autograd.profiler_legacy": ("_disable_profiler_legacy",),
    "torch.profiler.profiler": ("_disable_execution_trace_observer",),
    _NPU: ("_finalize_profiler",),
    "torch_npu.npu.profile": ("__exit__",),
}
#: Methods that do nothing where npuperf takes a profiler's place.
_METHODS = {
    "torch.profiler.profiler._KinetoProfile": ("start", "stop", "prepare_trace", "start_trace", "stop_trace", "step"),
    "torch.autograd.profiler.profile": ("__enter__", "__exit__"),
    "torch_npu.profiler.profiler._KinetoProfile": ("start", "stop", "step", "__del__"),
    "torch_npu.npu.profile": ("__enter__", "__exit__"),
}


class Rivals:
    """The program's own profilers: two in one process damage each other's data, so ``met`` is called before one begins.

    What counts is when they record, not when they are made. With ``replace`` they do nothing any more but end steps.
    """

    def __init__(self, met: Callable[[str], bool], step: Callable[[], None]) -> None:
        self.met = met
        self.step = step
        self.replace = False
        #: The thread that runs a profiler of ours.
        self.ours: int | None = None
        #: Those that record now: their kind, and the thread that began them.
        self.active: dict[str, int] = {}
        #: Kinds of which one does nothing until its end, as it began where ours could not end: ``met`` returned True.
        self.muted: set[str] = set()
        #: Profilers whose place was taken when they began: they do nothing until their end, whatever they may by then.
        self.silenced: weakref.WeakSet[Any] = weakref.WeakSet()
        #: What stands in the place of what: where, under which name.
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        #: Packages whose profilers still have their own methods.
        self._watched: list[str] = []
        #: Where they wrote, as far as they tell.
        self._paths: list[str] = []
        self._trace = ""

    def is_ours(self) -> bool:
        """Tell whether it is a profiler of ours that calls."""
        return self.ours == threading.get_ident()

    def watch(self, module: Any) -> None:
        """Watch the profilers of torch, or of torch_npu, whichever module this is."""
        package = module.__name__
        for table, watched in ((_BEGINNINGS, self._beginning), (_ENDINGS, self._ending)):
            for path, names in table.items():
                owner = _loaded(path) if path.startswith(package + ".") else None
                for name in names:
                    if hasattr(owner, name):
                        self._replace(owner, name, watched(path, getattr(owner, name)))
        if package == "torch":
            for kind in ("_KinetoProfile", "profile"):  # torch 1.8 has the latter alone
                self._note_exports(_loaded(f"torch.profiler.profiler.{kind}"))
        self._watched.append(package)
        self.may("replace" if self.replace else "aside")

    def look_round(self, torch: Any) -> None:
        """Find those that record already, in a program that runs: what begins before it is watched is not heard."""
        is_enabled = getattr(torch.autograd, "_profiler_enabled", lambda: False)()
        if getattr(_loaded(KINETO), "_is_profiler_enabled", False):
            self.active[KINETO] = 0
        elif is_enabled:
            self.active[_NPU if _NPU in sys.modules else KINETO] = 0

    def leave(self) -> None:
        """Give back what is still ours; what does nothing until its end is to do nothing then, too."""
        while self._replaced and not self.muted and not self.silenced:
            owner, name, mine, given = self._replaced.pop()
            if vars(owner).get(name) is mine:
                delattr(owner, name) if given is None else setattr(owner, name, given)

    def _replace(self, owner: Any, name: str, mine: Any) -> None:
        self._replaced.append((owner, name, mine, vars(owner).get(name)))
        setattr(owner, name, mine)

    def may(self, how: str) -> None:
        """Let them record from now on (``aside``), or take their place (``replace``)."""
        self.replace = how == "replace"
        while self.replace and self._watched:
            self._take_place(self._watched.pop())

    def _take_place(self, package: str) -> None:
        for path, names in _METHODS.items():
            owner = _loaded(path) if path.startswith(package + ".") else None
            for kind in (owner, *owner.__subclasses__()) if owner is not None else ():
                for name in set(names) & set(vars(kind)):
                    self._replace(kind, name, self._silent(name, vars(kind)[name]))

    def data(self) -> list[str]:
        """Return where the program's profilers wrote, as far as they tell."""
        return [path for path in (*self._paths, self._trace) if os.path.exists(path)]

    def _is_silent(self) -> bool:
        """Tell whether they do nothing; one that has begun before goes on to its end."""
        return self.replace and not self.active

    def _beginning(self, kind: str, inner: Any) -> Any:
        @functools.wraps(inner)
        def begin(*args: Any, **kwargs: Any) -> Any:
            if self.is_ours():
                return inner(*args, **kwargs)
            if self._is_silent():
                return args[0] if args and inner.__name__ == "__enter__" else None
            if kind in self.muted or (kind not in self.active and self.met(kind)):
                self.muted.add(kind)
                return args[0] if args and inner.__name__ == "__enter__" else None
            self.active.setdefault(kind, threading.get_ident())
            if inner.__name__ == "_init_profiler":
                self._paths.append(os.path.abspath(str(args[0])))
            try:
                return inner(*args, **kwargs)
            except BaseException:
                self.active.pop(kind, None)
                raise

        return begin

    def _ending(self, kind: str, inner: Any) -> Any:
        @functools.wraps(inner)
        def end(*args: Any, **kwargs: Any) -> Any:
            if self._is_silent() and not self.is_ours():
                return None
            if kind in self.muted and not self.is_ours():
                self.muted.discard(kind)
                return _Nothing() if kind == KINETO else None
            try:
                return inner(*args, **kwargs)
            finally:
                if not self.is_ours():
                    self.active.pop(kind, None)

        return end

    def _note_exports(self, kind: Any) -> None:
        """Note where torch's own profilers write: the last trace, as some write one a minute."""
        export = vars(kind or object).get("export_chrome_trace")
        if export is None:
            return

        @functools.wraps(export)
        def noted(this: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.is_ours():
                self._trace = os.path.abspath(str(path))
            return export(this, path, *args, **kwargs)

        self._replace(kind, "export_chrome_trace", noted)

    def _silent(self, name: str, inner: Any) -> Any:
        @functools.wraps(inner)
        def call(this: Any, *args: Any, **kwargs: Any) -> Any:
            is_silent = self._is_silent()
            if self.is_ours() or not (is_silent or this in self.silenced):
                return inner(this, *args, **kwargs)
            if name == "step" and is_silent:
                self.step()
            if name in ("stop", "__exit__", "stop_trace", "__del__"):
                self.silenced.discard(this)
            elif name != "step":
                self.silenced.add(this)
            _tell_nothing(this)
            return this if name == "__enter__" else None

        return call


def _tell_nothing(profiler: Any) -> None:
    """Let a profiler of torch that never ran answer with no events, instead of an error that ends the program."""
    inner = profiler
    if getattr(profiler, "profiler", 0) is None:  # torch.profiler keeps one of torch.autograd
        own = {k: v for k, v in vars(profiler).items() if k in ("with_stack", "record_shapes", "profile_memory")}
        inner = profiler.profiler = sys.modules["torch.autograd.profiler"].profile(**own)
    if getattr(inner, "kineto_results", 0) is None:
        inner._function_events = sys.modules["torch.autograd.profiler"].EventList([])
        inner._function_events._build_tree()
        inner.kineto_results = _Nothing()


class _Nothing:
    """What a profiler of torch has recorded that never ran."""

    def save(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"schemaVersion": 1, "traceEvents": []}')

    def experimental_event_tree(self) -> list[Any]:
        return []

    events = experimental_event_tree

    def trace_start_ns(self) -> int:
        return 0


def _loaded(path: str) -> Any:
    """Return a module, or what it has, by its dotted path; None where nothing has imported it."""
    if path in sys.modules:
        return sys.modules[path]
    above, _, name = path.rpartition(".")
    return getattr(_loaded(above), name, None) if above else None
