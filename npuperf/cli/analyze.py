"""``npuperf analyze``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuperf.cli.progress import tell
from npuperf.cli.recipes import effect, typed, with_recipe
from npuperf.errors import InputError, UsageError, exit_of_gates

if TYPE_CHECKING:
    from rich.console import Console

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
  npuperf analyze samples/micro_batch_ascend_pt --cores-of 3=16,32 --cores-of 9=8,16
  npuperf analyze samples/micro_batch_ascend_pt --expect-cores 9=24,48
  npuperf analyze ./with_super_kernel --before ./result --plog ./plog
  npuperf analyze ./result --recipe micro-batch-streams
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
    core_time = "core_time"
    idle_types = "idle_types"
    together = "together"
    pairs = "pairs"
    contention = "contention"
    core_limits = "core_limits"
    super_kernels = "super_kernels"
    super_kernel_checks = "super_kernel_checks"
    counters = "counters"
    vendor = "vendor"
    gates = "gates"
    findings = "findings"


def analyze(
    ctx: typer.Context,
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
    cores_of: Annotated[
        list[str] | None,
        typer.Option("--cores-of", help="Replay a core limit STREAM=CUBE,VECTOR, e.g. 5=8,16; repeatable."),
    ] = None,
    expect_cores: Annotated[
        list[str] | None,
        typer.Option(
            "--expect-cores", help="Fail (1) if a kernel uses more: STREAM=CUBE,VECTOR or FIRST..LAST=…; repeatable."
        ),
    ] = None,
    before: Annotated[
        Path | None, typer.Option("--before", help="An earlier profile, without the SuperKernels of this one.")
    ] = None,
    plog: Annotated[
        Path | None, typer.Option("--plog", help="CANN's logs on SuperKernels (with --before: ~/ascend/log if there).")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", help="Options, rules and thresholds from a recipe, by name or path.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Unpack, call, render, exit with the gates' answer."""
    asked = with_recipe(ctx, recipe, "analyze")
    if asked["output"] is not None:
        check_output(asked["output"], force)
    if recipe is not None:
        tell(_effect_of_recipe(ctx, recipe, asked))
    if typed(ctx, "table") and asked["format_"] is not Format.csv:
        raise UsageError(f"--table {asked['table'].value}: tables are for --format csv")
    result = _run(path, asked)
    if not any(asked[name] is not None for name in ("step", "rank", "device")):
        _save_into_run(path, result)
    if asked["format_"] is Format.text:
        _print_report(result, asked["output"], full=asked["full"], top=asked["top"])
    else:
        from npuperf.render import DOCUMENTS

        emit(DOCUMENTS[asked["format_"].value](result, asked["table"].value, asked["top"]), asked["output"])
    if asked["format_"] is Format.csv:  # which shows one table
        from npuperf.render.words import gate_text

        for gate in result.gates:
            tell(gate_text(gate))
    raise typer.Exit(exit_of_gates(gate.status for gate in result.gates))


def _effect_of_recipe(ctx: typer.Context, recipe: str, asked: dict[str, Any]) -> str:
    """Say what a recipe changes, and that checks which it does not name are not made."""
    from npuperf.advise import RULES

    rules = asked["rules"]
    return effect(ctx, recipe, asked) + (f"; {len(rules)} of {len(RULES)} checks are made" if rules else "")


def show(path: Path) -> None:
    """Analyze as without any option, and print the screen."""
    asked = {name: parameter.default for name, parameter in inspect.signature(analyze).parameters.items()}
    result = _run(path, asked)
    _save_into_run(path, result)
    _print_report(result, None, full=False, top=asked["top"])


def _run(path: Path, asked: dict[str, Any]) -> Result:
    from npuperf.analyze.expect import parse_expectation
    from npuperf.cli.progress import reading
    from npuperf.pipeline import Options, analyze_path, source_bytes

    plog = asked["plog"]
    if plog is None and asked["before"] is not None:
        usual = Path("~/ascend/log").expanduser()  # where CANN writes its logs unless told otherwise
        plog = usual if next(usual.rglob("plog-*.log"), None) else None
    options = Options(
        **{name: asked[name] for name in ("top", "step", "rank", "device", "soc", "before")},
        cores=_cores(asked["cores"], asked["soc"]),
        what_if=tuple(asked["what_if"] or ()),
        cores_of=_cores_of(asked["cores_of"] or ()),
        expect=tuple(parse_expectation("--expect-cores", text) for text in asked["expect_cores"] or ()),
        plog=plog,
        thresholds=asked.get("thresholds", {}),
        rules=tuple(asked.get("rules", ())),
    )
    with reading(lambda: source_bytes(path)) as progress:
        return analyze_path(path, options, progress)


def _cores_of(texts: Iterable[str]) -> dict[int, tuple[int, int]]:
    """Read limits of streams."""
    from npuperf.analyze.expect import parse_expectation

    found = {}
    for text in texts:
        limit = parse_expectation("--cores-of", text)
        if limit.stream is None:
            raise UsageError(
                f"--cores-of {text!r}: {limit.where!r} is not a stream", hint="give its number, e.g. 5=8,16"
            )
        if limit.stream in found:
            raise UsageError(
                f"--cores-of {text!r}: stream {limit.stream} has a limit already", hint="one for each stream"
            )
        found[limit.stream] = (limit.cube, limit.vector)
    return found


def _cores(cores: str | None, soc: str | None) -> Cores | None:
    """Turn --cores or --soc into core counts."""
    from npuperf.model.chip import Cores, cores_of_soc, known_socs

    if cores is not None:
        parts = cores.split(",")
        numbers = [int(p) if p.strip().isdecimal() and len(p.strip()) < 6 else -1 for p in parts]
        if len(numbers) != 2 or numbers[0] < 1 or numbers[1] < 0:
            hint = "give cube,vector, e.g. --cores 24,48; vector is 0 on chips without vector cores"
            raise UsageError(f"--cores {cores!r}: not two numbers of cores", hint=hint)
        return Cores(numbers[0], numbers[1], "--cores")
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
    from npuperf.files import MANIFEST, write_atomically

    if (path / MANIFEST).is_file():
        from npuperf.render.json import render_json

        try:
            write_atomically(path / "analysis" / "result.json", render_json(result))
        except InputError as error:  # somebody else's run
            print(f"npuperf: not kept in the run: {error.what}", file=sys.stderr)


def emit(text: str, output: Path | None) -> None:
    """Write a document to stdout, or to a file."""
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    from npuperf.files import write_atomically

    write_atomically(output, text)
    print(f"wrote {output}", file=sys.stderr)


def _print_report(result: Result, output: Path | None, *, full: bool, top: int) -> None:
    from npuperf.render.text import print_text as print_report

    print_text(lambda console: print_report(result, console, full=full, top=top), output)


def print_text(draw: Callable[[Console], None], output: Path | None) -> None:
    """Draw on the terminal, or into a file."""
    import io

    from rich.console import Console

    console = Console(highlight=False) if output is None else Console(file=io.StringIO(), width=120, highlight=False)
    with console.capture() as screen:
        draw(console)
    text = screen.get()
    if not console.is_terminal:  # tables are filled with blanks up to their width
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    emit(text, output)
