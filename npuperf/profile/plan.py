"""What the agent inside the program is told: one JSON document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from npuperf.profile.arguments import e2e_arguments, torch_arguments
from npuperf.profile.environment import SILENCERS
from npuperf.profile.folder import RunFolder
from npuperf.profile.request import ProfileRequest

#: The agent, and the folder of it that goes on PYTHONPATH.
AGENT: Final = Path(__file__).resolve().parent.parent / "agent"
INJECT: Final = AGENT / "inject"


def plan_of(request: ProfileRequest, folder: RunFolder) -> dict[str, object]:
    """Return the document that :class:`npuperf.agent.session.Session` takes."""
    # The legacy profiler has no warm-up: the step is simply not recorded.
    e2e = request.engine == "e2e"
    return {
        "engine": request.engine,
        "raw": str(folder.raw),
        "status": str(folder.status),
        "stop": str(folder.stop),
        "schedule": {
            "wait": request.wait + (request.warmup if e2e else 0),
            "warmup": 0 if e2e else request.warmup,
            "active": request.active,
            "repeat": request.repeat,
        },
        "step_on": request.step_on,
        "whole_run": request.whole_run,
        "ranks": None if request.ranks is None else list(request.ranks),
        "own_profiler": request.own_profiler,
        "silencers": list(SILENCERS),
        "activities": list(request.activities),
        "e2e": e2e_arguments(request),
        **torch_arguments(request),
    }


def write_plan(request: ProfileRequest, folder: RunFolder) -> None:
    """Write the document where the agent looks for it."""
    folder.plan.write_text(json.dumps(plan_of(request, folder), indent=1), "utf-8")
