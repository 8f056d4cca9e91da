"""``npuperf tune``: not there yet, and says so."""

from __future__ import annotations

from typing import Annotated

import typer

from npuperf.errors import UsageError

HELP = "Drive AOE tuning and show what it changed. Not available in this version."
CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def tune(
    command: Annotated[list[str] | None, typer.Argument(help="What to tune.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Refuse, and name what does the job today."""
    raise UsageError(
        "tune is not available in this version: nothing was run",
        hint="run aoe --job_type=2 (operators) or --job_type=1 (subgraphs) yourself, with your model",
    )
