"""What the agent inside the program is told: one JSON document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from npuperf.profile.environment import SILENCERS
from npuperf.profile.folder import RunFolder
from npuperf.profile.options import Options, e2e_arguments, torch_arguments

#: The agent, and the folder of it that goes on PYTHONPATH.
AGENT: Final = Path(__file__).resolve().parent.parent / "agent"
INJECT: Final = AGENT / "inject"


def plan_of(options: Options, folder: RunFolder) -> dict[str, object]:
    """Return the document that :class:`npuperf.agent.session.Session` takes."""
    # The legacy profiler has no warm-up: the step is simply not recorded.
    e2e = options.engine == "e2e"
    return {
        "engine": options.engine,
        "raw": str(folder.raw),
        "status": str(folder.status),
        "stop": str(folder.stop),
        "schedule": {
            "wait": options.wait + (options.warmup if e2e else 0),
            "warmup": 0 if e2e else options.warmup,
            "active": options.active,
            "repeat": options.repeat,
        },
        "step_on": options.step_on,
        "whole_run": options.whole_run,
        "ranks": None if options.ranks is None else list(options.ranks),
        "own_profiler": options.own_profiler,
        "silencers": list(SILENCERS),
        "activities": list(options.activities),
        "e2e": e2e_arguments(options),
        **torch_arguments(options),
    }


def write_plan(options: Options, folder: RunFolder) -> None:
    """Write the document where the agent looks for it."""
    folder.plan.write_text(json.dumps(plan_of(options, folder), indent=1), "utf-8")
