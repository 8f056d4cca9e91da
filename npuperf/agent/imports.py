"""Tells when a module has been imported, or could not be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Python 3.7 and 3.8 cannot evaluate them
    Action = Callable[[Any], None]
    Failure = Callable[[str, BaseException], None]


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
        if spec.loader is not None:
            self._stand_by(fullname, spec.loader, action)
        return spec

    def _stand_by(self, name: str, loader: Any, action: Action) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.exec_module = execute
            try:
                execute(module)
            except BaseException as error:
                self.failed(name, error)
                raise
            self.waiting.pop(name, None)
            if not self.waiting and self in sys.meta_path:
                sys.meta_path.remove(self)
            try:
                action(module)
            except Exception as error:  # the program comes first: it runs without being profiled
                print(f"npuperf: not profiling this process: {type(error).__name__}: {error}", file=sys.stderr)

        loader.exec_module = exec_module
