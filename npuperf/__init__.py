"""npuperf: profile, analyze and tune PyTorch on Huawei Ascend NPUs.

``npuperf.load(path)`` gives the tables of a profile as pandas frames; the command line does the rest.
"""

from __future__ import annotations

import sys

from npuperf.base import __version__

TYPE_CHECKING = False  # as in typing, which takes its time: until main() runs, a Ctrl-C cannot be said in words
if TYPE_CHECKING:
    from pathlib import Path

    from npuperf.cli.api import Run

__all__ = ["__version__", "load", "start", "step", "stop"]


def load(path: str | Path | None = None) -> Run:
    """Read a profile and return its tables; see :class:`npuperf.cli.api.Run`. Without a path it is the latest run here.

    Raises :class:`npuperf.base.errors.InputError` when nothing at ``path`` can be read.
    """
    from npuperf.cli import api  # pandas and pyarrow load only when they are needed

    return api.load(path)


def step() -> None:
    """End a step of the program's main loop, for ``npuperf profile``; does nothing where nobody is profiling."""
    agent = sys.modules.get("_npuperf_agent")
    if agent is not None:
        agent.step()


def start() -> None:
    """Let ``npuperf profile`` record from here on until :func:`stop`; does nothing where nobody is profiling."""
    agent = sys.modules.get("_npuperf_agent")
    if agent is not None:
        agent.record()


def stop() -> None:
    """End what :func:`start` began; does nothing where nobody is profiling."""
    agent = sys.modules.get("_npuperf_agent")
    if agent is not None:
        agent.record_no_more()
