"""Which run a command works on when none is named, and what is to be said of a run before it is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from npuperf.cli.options import given
from npuperf.messages import say

if TYPE_CHECKING:
    import typer


def run_chosen(ctx: typer.Context, name: str, path: Path) -> Path:
    """Return the run that parameter ``name`` stands for: as given, else the latest, named where there are others."""
    if given(ctx, name):
        return path
    from npuperf.cli.progress import tell
    from npuperf.profile.folder import latest_run

    latest = latest_run(path)
    if latest != path:
        tell(say("using {run}, the latest run", run=str(latest)))
        ctx.params[name] = latest
    return latest


def tell_broken_off(path: Path) -> None:
    """Say of a run directory that was left in the middle of something what may be missing in it."""
    from npuperf.files import MANIFEST, is_file

    if not is_file(path / MANIFEST):
        return
    from npuperf.cli.progress import tell
    from npuperf.profile.folder import RunFolder, broken_off

    for warning in broken_off(RunFolder(path)):
        tell(say("warning: {warning}", warning=warning))
