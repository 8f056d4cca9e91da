"""The part of ``npuperf profile`` that runs inside the user's program.

It may run under another interpreter than npuperf's own, so it needs nothing but the standard library (Python 3.7 or
newer) and imports nothing of npuperf. ``inject/sitecustomize.py`` loads it as ``_npuperf_agent``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from . import sources, standby
from .engines import say
from .exits import undisturbed
from .session import Session
from .status import Status

if TYPE_CHECKING:  # Python 3.7 and 3.8 cannot evaluate it
    from collections.abc import Callable

#: The environment variable that carries the path of the plan (JSON) to every child of the program.
PLAN = "NPUPERF_PLAN"

_session: Session | None = None
_follows_forks = False


def start() -> None:
    """Wait for torch to be imported; do nothing where no plan is given."""
    global _session
    path = os.environ.get(PLAN)
    if not path:
        return
    with open(path, encoding="utf-8") as file:
        _session = Session(json.load(file))
    session = _session
    modules = {"torch": session.torch_imported, "torch_npu": session.torch_npu_imported}
    if not session.plan.get("standby") and session.plan["engine"] == "cpu":  # nobody is to wait for it
        del modules["torch_npu"]
    sources.watch(modules, session.import_failed, session.importing)
    _follow_forks()


def enter(requests: str) -> None:
    """Do what is asked in a folder, in a program that was started without us, and leave it then.

    Called in its main thread, between two bytecodes. Where that is a bad moment nothing is taken: npuperf calls again.
    """
    global _session
    torch = sys.modules.get("torch")
    if torch is None or sources.is_being_imported("torch", "torch_npu"):
        return
    is_compiling, set_compiler = sources.compiler(torch)
    if is_compiling():
        return
    before = set_compiler(None)
    try:
        with undisturbed(lambda: None, caught=True):
            plan = standby.take(requests)
            if plan is None:
                return
            try:
                if _session is not None and not _session.has_left:
                    told = say("it is being recorded already, into {run}", run=os.path.dirname(_session.plan["raw"]))
                    Status(plan["status"]).write(state="failed", problem=told)
                    return
                _follow_forks()
                _session = Session({**plan, "standby": requests, "once": True})
                _session.enter(torch, plan)
            except Exception as error:  # the program comes first
                Status(plan["status"]).write(state="failed", problem=say("{error}", error=str(error)))
    finally:
        set_compiler(before)


def _follow_forks() -> None:
    """Hear of forks, which Python does for good."""
    global _follows_forks
    if not _follows_forks:
        _follows_forks = True
        before, in_parent, in_child = (_told(name) for name in ("before_fork", "after_fork", "forked"))
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def _told(name: str) -> Callable[[], None]:
    """Return what tells whoever is there then."""

    def tell() -> None:
        if _session is not None:
            getattr(_session, name)()

    return tell


def step() -> None:
    """End a step; what ``npuperf.step()`` calls."""
    if _session is not None:
        _session.explicit_step()


def record() -> None:
    """Record from here on; what ``npuperf.start()`` calls."""
    if _session is not None:
        _session.started()


def record_no_more() -> None:
    """End what is being recorded; what ``npuperf.stop()`` calls."""
    if _session is not None:
        _session.stopped()
