"""The program's own profilers: two of one kind in a process damage each other's data."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class Rivals:
    """Notices profilers that the program makes; ``met`` is called before each is constructed."""

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
