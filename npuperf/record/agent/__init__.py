"""The part of ``npuperf profile`` that runs inside the user's program.

It may run under another interpreter than npuperf's own, so it needs nothing but the standard library (Python 3.7 or
newer) and imports nothing of npuperf. ``inject/sitecustomize.py`` loads it as ``_npuperf_agent``.
"""

from __future__ import annotations

import json
import os

from . import sources
from .session import Session

#: The environment variable that carries the path of the plan (JSON) to every child of the program.
PLAN = "NPUPERF_PLAN"

_session: Session | None = None


def start() -> None:
    """Wait for torch to be imported; do nothing where no plan is given."""
    global _session
    path = os.environ.get(PLAN)
    if not path:
        return
    with open(path, encoding="utf-8") as file:
        _session = Session(json.load(file))
    sources.watch({"torch": _session.torch_imported, "torch_npu": _session.torch_npu_imported}, _session.import_failed)
    os.register_at_fork(after_in_child=_session.forked)


def step() -> None:
    """End a step; what ``npuperf.step()`` calls."""
    if _session is not None:
        _session.explicit_step()
