"""Loads the agent of ``npuperf profile`` when an interpreter starts, then gets out of the way.

Python imports a module of this name by itself; the folder stands on PYTHONPATH only while npuperf profiles.
"""

from __future__ import annotations

import importlib.util
import os
import sys


def _load_agent() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != here]
    folder = os.path.dirname(here)
    spec = importlib.util.spec_from_file_location(
        "_npuperf_agent", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.start()


def _give_way() -> None:
    """Import the sitecustomize that this one hides, if there is one."""
    mine = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        sys.modules["sitecustomize"] = mine


try:
    _load_agent()
except Exception as error:  # the program comes first: it runs without being profiled
    print(f"npuperf: not profiling this process: {type(error).__name__}: {error}", file=sys.stderr)
_give_way()
