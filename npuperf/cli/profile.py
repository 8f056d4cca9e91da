"""``npuperf profile``: not there yet, and says so."""

from __future__ import annotations

from typing import Annotated

import typer

from npuperf.errors import UsageError

HELP = "Run a script under a profiler and export what it recorded. Not available in this version."
CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def profile(
    command: Annotated[list[str] | None, typer.Argument(help="The script and its arguments.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Refuse, and name what does the job today."""
    raise UsageError(
        "profile is not available in this version: nothing was run",
        hint="record with torch_npu.profiler (Level1, tensorboard_trace_handler), then npuperf analyze the folder",
    )
