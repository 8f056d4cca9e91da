"""``npuperf tune``: reads what AOE left; driving AOE is not there yet, and says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuperf.cli.analyze import Format, check_output, emit
from npuperf.cli.recipes import with_recipe
from npuperf.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from npuperf.model.tuning import BankDiff, Tuning

HELP = """Say what a tuning run with AOE changed. (Driving AOE itself is not available in this version.)

\b
Examples:
  npuperf tune --from aoe_result_opat_20260101120000000_pid7.json
  npuperf tune --from ./tune --format json -o diff.json
  npuperf tune --diff bank_before bank_after
"""
CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def tune(
    ctx: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(help="What to tune (not available).")] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", help="A result file of AOE, or a folder: its newest run.")
    ] = None,
    diff: Annotated[
        tuple[Path, Path] | None, typer.Option("--diff", help="Two knowledge bases of operators: before, after.")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.text,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to a file instead.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Let -o replace a file that exists.")] = False,
    top: Annotated[int, typer.Option("--top", min=1, help="Rows of the table in text and Markdown.")] = 20,
    recipe: Annotated[
        str | None, typer.Option("--recipe", help="Options from a recipe, by name or path; yours go before them.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Unpack, call, render, exit."""
    if recipe:
        asked = with_recipe(ctx, recipe, "tune")
        format_, top = asked["format_"], asked["top"]
    if from_ is None and diff is None:
        raise UsageError(
            "driving AOE is not available in this version: nothing was run",
            hint="run aoe --job_type=2 (operators) or 1 (subgraphs) yourself, then npuperf tune --from FOLDER",
        )
    if command:
        raise UsageError(f"{command[0]}: --from and --diff read what is there and take nothing else")
    if output is not None:
        check_output(output, force)
    from npuperf.render.tuning import BANK_DOCUMENTS, TUNING_DOCUMENTS, print_bank, print_tuning

    bank = _compare(diff) if diff is not None else None
    if from_ is None:
        assert bank is not None
        _show(bank, format_, output, top, BANK_DOCUMENTS, print_bank)
    else:
        _show(_read(from_, bank), format_, output, top, TUNING_DOCUMENTS, print_tuning)


def _compare(paths: tuple[Path, Path]) -> BankDiff:
    from npuperf.tune.bank import compare, read_bank

    return compare(read_bank(paths[0]), read_bank(paths[1]))


def _read(path: Path, bank: BankDiff | None) -> Tuning:
    """Read the results; with a bank's difference beside them, say where the two disagree."""
    from msgspec.structs import replace

    from npuperf.tune.bank import check_claims
    from npuperf.tune.results import read_results, result_files

    tuning = read_results(result_files(path))
    if bank is None:
        return tuning
    return replace(tuning, bank=bank, warnings=(*tuning.warnings, *check_claims(tuning, bank)))


def _show(
    document: Any,
    format_: Format,
    output: Path | None,
    top: int,
    documents: dict[str, Callable[[Any, int], str]],
    show: Callable[[Any, Console, int], None],
) -> None:
    import io

    from rich.console import Console

    if format_ is not Format.text:
        emit(documents[format_.value](document, top), output)
    elif output is None:
        show(document, Console(highlight=False), top)
    else:
        buffer = io.StringIO()
        show(document, Console(file=buffer, width=120, highlight=False), top)
        emit(buffer.getvalue(), output)
