"""``npuperf tune``: reads what AOE left; driving AOE is not there yet, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuperf.cli.analyze import Format, check_output, emit
from npuperf.errors import UsageError

if TYPE_CHECKING:
    from npuperf.model.tuning import Tuning

HELP = """Say what a tuning run with AOE changed. (Driving AOE itself is not available in this version.)

\b
Examples:
  npuperf tune --from aoe_result_opat_20260101120000000_pid7.json
  npuperf tune --from ./tune --format json -o diff.json
"""
CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def tune(
    command: Annotated[list[str] | None, typer.Argument(help="What to tune (not available).")] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", help="A result file of AOE, or a folder: its newest run.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.text,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to a file instead.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Let -o replace a file that exists.")] = False,
    top: Annotated[int, typer.Option("--top", min=1, help="Rows of the table in text and Markdown.")] = 20,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Unpack, call, render, exit."""
    if from_ is None:
        raise UsageError(
            "driving AOE is not available in this version: nothing was run",
            hint="run aoe --job_type=2 (operators) or 1 (subgraphs) yourself, then npuperf tune --from FOLDER",
        )
    if command:
        raise UsageError(f"{command[0]}: --from reads results and takes nothing else")
    if output is not None:
        check_output(output, force)
    from npuperf.tune.results import read_results, result_files

    tuning = read_results(result_files(from_))
    if format_ is Format.text:
        _print(tuning, output, top)
    else:
        from npuperf.render.tuning import TUNING_DOCUMENTS

        emit(TUNING_DOCUMENTS[format_.value](tuning, top), output)


def _print(tuning: Tuning, output: Path | None, top: int) -> None:
    import io

    from rich.console import Console

    from npuperf.render.tuning import print_tuning

    if output is None:
        print_tuning(tuning, Console(highlight=False), top)
        return
    buffer = io.StringIO()
    print_tuning(tuning, Console(file=buffer, width=120, highlight=False), top)
    emit(buffer.getvalue(), output)
