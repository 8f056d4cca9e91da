"""``npuperf analyze``."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuperf.errors import UsageError

if TYPE_CHECKING:
    from npuperf.model.chip import Cores
    from npuperf.model.result import Result

HELP = """Say where the time of a profile goes, what limits it, and what to look at first.

PATH may be a *_ascend_pt folder, ASCEND_PROFILER_OUTPUT, a PROF_* folder or its mindstudio_profiler_output,
a folder of many ranks, one kernel_details.csv, op_summary*.csv, step_trace_time.csv, trace_view.json,
msprof*.json or .db file, or a PyTorch (Kineto) trace.

\b
Examples:
  npuperf analyze samples/transformer_ascend_pt
  npuperf analyze ./result --full
  npuperf analyze ./result --step 12 --format json -o step12.json
  npuperf analyze op_summary_20250101120000.csv --soc Ascend910B1
  npuperf analyze ./result --what-if "host*0.5" --what-if "sync*0,compute*0.9"
  npuperf analyze ./result --format csv --table phases
"""


class Format(str, Enum):
    """Output formats."""

    text = "text"
    json = "json"
    csv = "csv"
    markdown = "markdown"


class TableName(str, Enum):
    """Tables for CSV; the names of npuperf.render.tables.TABLES."""

    devices = "devices"
    phases = "phases"
    typical = "typical"
    blame = "blame"
    syncs = "syncs"
    what_if = "what_if"
    steps = "steps"
    streams = "streams"
    operators = "operators"
    kernels = "kernels"
    cores = "cores"
    idle_kernels = "idle_kernels"
    counters = "counters"
    vendor = "vendor"
    findings = "findings"


def analyze(
    path: Annotated[Path, typer.Argument(help="What to analyze.", show_default=True)] = Path("result"),
    full: Annotated[bool, typer.Option("--full", help="Show all tables, not one screen.")] = False,
    format_: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.text,
    table: Annotated[TableName, typer.Option("--table", help="Which table CSV shows.")] = TableName.operators,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to a file instead.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Let -o replace a file that exists.")] = False,
    top: Annotated[int, typer.Option("--top", min=1, help="Rows of lists.")] = 10,
    step: Annotated[int | None, typer.Option("--step", help="Only this step.")] = None,
    rank: Annotated[int | None, typer.Option("--rank", help="Only this rank.")] = None,
    device: Annotated[int | None, typer.Option("--device", help="Only this device.")] = None,
    cores: Annotated[str | None, typer.Option("--cores", help="Core counts CUBE,VECTOR, e.g. 24,48.")] = None,
    what_if: Annotated[
        list[str] | None, typer.Option("--what-if", help='Replay the run with a change, e.g. "host*0.5"; repeatable.')
    ] = None,
    soc: Annotated[str | None, typer.Option("--soc", help="SoC name, e.g. Ascend910B1.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Unpack, call, render."""
    chosen = _cores(cores, soc)
    if output is not None:
        check_output(output, force)
    result = _run(path, top=top, step=step, rank=rank, device=device, cores=chosen, what_if=what_if or [])
    _save_into_run(path, result)
    if format_ is Format.text:
        _print_text(result, output, full=full, top=top)
        return
    from npuperf.render import DOCUMENTS

    emit(DOCUMENTS[format_.value](result, table.value, top), output)


def _run(
    path: Path,
    *,
    top: int,
    step: int | None,
    rank: int | None,
    device: int | None,
    cores: Cores | None,
    what_if: list[str],
) -> Result:
    from npuperf.cli.progress import reading
    from npuperf.pipeline import Options, analyze_path, source_bytes

    options = Options(top=top, step=step, rank=rank, device=device, cores=cores, what_if=tuple(what_if))
    with reading(lambda: source_bytes(path)) as progress:
        return analyze_path(path, options, progress)


def _cores(cores: str | None, soc: str | None) -> Cores | None:
    """Turn --cores or --soc into core counts."""
    from npuperf.model.chip import Cores, cores_of_soc, known_socs

    if cores is not None:
        parts = cores.split(",")
        if len(parts) != 2 or not all(p.strip().isdigit() for p in parts) or int(parts[0]) < 1:
            raise UsageError(f"--cores {cores!r}: not two numbers", hint="give cube,vector, e.g. --cores 24,48")
        return Cores(int(parts[0]), int(parts[1]), "--cores")
    if soc is None:
        return None
    found = cores_of_soc(soc)
    if found is None:
        raise UsageError(f"--soc {soc!r}: not in the table", hint=f"known: {', '.join(known_socs())}; or give --cores")
    return found


def check_output(output: Path, force: bool) -> None:
    """Refuse to replace a file before any work is done."""
    if output.exists() and not force:
        raise UsageError(f"{output}: exists already", hint="choose another name, or replace it with --force")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{output}: its folder does not exist")


def _save_into_run(path: Path, result: Result) -> None:
    """Keep the result inside a run directory (one that ``npuperf profile`` made)."""
    if (path / "npuperf.json").is_file():
        from npuperf.files import write_atomically
        from npuperf.render.json import render_json

        write_atomically(path / "analysis" / "result.json", render_json(result))


def emit(text: str, output: Path | None) -> None:
    """Write a document to stdout, or to a file."""
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    from npuperf.files import write_atomically

    write_atomically(output, text)
    print(f"wrote {output}", file=sys.stderr)


def _print_text(result: Result, output: Path | None, *, full: bool, top: int) -> None:
    import io

    from rich.console import Console

    from npuperf.render.text import print_text

    if output is None:
        console = Console(highlight=False)
        with console.capture() as screen:
            print_text(result, console, full=full, top=top)
        emit(screen.get(), None)
        return
    buffer = io.StringIO()
    print_text(result, Console(file=buffer, width=120, highlight=False), full=full, top=top)
    emit(buffer.getvalue(), output)
