"""``npuperf tune``: drives AOE, reads what it left, and keeps its knowledge bases in order."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuperf.cli.analyze import Format, check_output, emit, print_text
from npuperf.cli.progress import tell
from npuperf.cli.recipes import typed, with_recipe
from npuperf.errors import ExitCode, InputError, UsageError, exit_of_gates

if TYPE_CHECKING:
    from rich.console import Console

    from npuperf.model.tuning import BankDiff, ResultDiff, Tuning
    from npuperf.savings import Usage
    from npuperf.tune.job import Job
    from npuperf.tuning import Plan, Tuned

HELP = """Tune operators or subgraphs with AOE, say what changed in the knowledge base, and verify the gain.

What is tuned: --model FILE, else --dump FOLDER, else -- COMMAND, else the program of the run directory.

\b
Examples:
  npuperf tune --mode op --model net.onnx --dry-run
  npuperf tune --mode op --top 10 --dry-run -- python train.py
  npuperf tune --from aoe_result_opat_20260101120000000_pid7.json
  npuperf tune --from ./tune --run ./result --format json -o diff.json
  npuperf tune --diff bank_before bank_after
  npuperf tune --verify --fail-on "regression>3%" -- python train.py
"""
CONTEXT = {"allow_interspersed_args": False}


def tune(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(help="The program to tune, after --.", metavar="[-- COMMAND]")
    ] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="op or subgraph.")] = None,
    run: Annotated[Path, typer.Option("--run", help="The run directory: program, profile, results.")] = Path("result"),
    model: Annotated[Path | None, typer.Option("--model", help="An .onnx, .pb, .air or .prototxt file.")] = None,
    weight: Annotated[Path | None, typer.Option("--weight", help="Weights of a .prototxt.")] = None,
    dump: Annotated[Path | None, typer.Option("--dump", help="Operator graphs dumped by torch_npu.")] = None,
    ops: Annotated[str | None, typer.Option("--ops", help="Tune only these operators: types or names.")] = None,
    device: Annotated[int | None, typer.Option("--device", min=0, help="The device to tune on.")] = None,
    bank: Annotated[Path | None, typer.Option("--bank", help="Where the knowledge base goes (TUNE_BANK_PATH).")] = None,
    parallel: Annotated[
        int | None, typer.Option("--parallel", min=1, max=32, help="Compiling processes (TE_PARALLEL_COMPILER).")
    ] = None,
    repeat: Annotated[bool, typer.Option("--repeat", help="Tune again what the bank has (REPEAT_TUNE).")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Search longer (tune_optimization_level O1).")] = False,
    aoe_arg: Annotated[list[str] | None, typer.Option("--aoe-arg", help="Any argument for aoe; repeatable.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0, help="Stop after so many minutes.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the newest unfinished run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show checks and commands, and do nothing.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Profile without and with the bank, and compare.")] = False,
    from_: Annotated[
        Path | None, typer.Option("--from", help="A result file of AOE, or a folder: its newest run.")
    ] = None,
    diff: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--diff", help="Two knowledge bases, or two results or runs: before, after."),
    ] = None,
    merge: Annotated[
        tuple[Path, Path] | None, typer.Option("--merge", help="Two knowledge bases to merge --into a folder.")
    ] = None,
    into: Annotated[Path | None, typer.Option("--into", help="Where --merge goes; what is there wins.")] = None,
    rollback: Annotated[bool, typer.Option("--rollback", help="Put the bank back as before the last run.")] = False,
    fail_on: Annotated[
        list[str] | None, typer.Option("--fail-on", help="A gate: exit 1 if regression>3%, failed>0 …; repeatable.")
    ] = None,
    soc: Annotated[str | None, typer.Option("--soc", help="SoC name, where no profile says it.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.text,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to a file instead.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Tune in spite of checks; let -o replace a file.")] = False,
    top: Annotated[int, typer.Option("--top", min=1, help="Operators to tune (if given) and rows of the tables.")] = 20,
    recipe: Annotated[
        str | None, typer.Option("--recipe", help="Options from a recipe, by name or path; yours go before them.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Unpack, call, render, exit."""
    asked = with_recipe(ctx, recipe, "tune")
    if output is not None:
        check_output(output, force)
    _check(asked)
    if asked["rollback"]:
        _roll_back(asked["run"])
    elif asked["merge"]:
        _merge(asked["merge"], asked["into"])
    elif asked["from_"] or asked["diff"]:
        _read_only(asked)
    elif asked["verify"]:
        _verify(asked)
    else:
        _drive(ctx, asked)


def _check(asked: dict[str, Any]) -> None:
    """Refuse options that do not go together, before anything is done. Raises UsageError."""
    from npuperf.tune.gates import parse_condition

    if asked["merge"] and str(asked["merge"][1]).startswith("--"):
        raise UsageError("--merge: takes two folders", hint="npuperf tune --merge A B --into C")
    readers = [name for name in ("from_", "diff", "merge", "rollback") if asked[name]]
    if len(readers) > 1 and readers != ["from_", "diff"]:
        names = ", ".join(f"--{name.strip('_')}" for name in readers)
        raise UsageError(f"{names}: one at a time", hint="only --from and --diff go together")
    if readers and (asked["verify"] or asked["resume"]):
        raise UsageError(f"--{readers[0].strip('_')}: not together with --verify or --resume")
    if asked["into"] and not asked["merge"]:
        raise UsageError("--into: nothing to merge", hint="npuperf tune --merge A B --into C")
    mode = asked["mode"] and "mode" not in asked["recipe_gave"]
    if asked["dry_run"] and (readers or asked["verify"]):
        raise UsageError("--dry-run: shows what would be tuned, and nothing would be", hint="npuperf tune --help")
    if readers and (asked["command"] or mode):
        what = asked["command"][0] if asked["command"] else "--mode"
        raise UsageError(f"{what}: --from, --diff, --merge and --rollback take nothing else")
    if asked["timeout"] == 0:
        raise UsageError("--timeout 0: minutes, more than 0")
    if asked["fail_on"] and "fail_on" not in asked["recipe_gave"] and readers and not asked["from_"]:
        hint = "npuperf tune --from RESULT --diff BEFORE AFTER --fail-on …"
        raise UsageError("--fail-on: holds for the results of a tuning, and none is given", hint=hint)
    for text in asked["fail_on"] or ():
        parse_condition(text)


def _read_only(asked: dict[str, Any]) -> None:
    """Show what is there, without running anything."""
    from npuperf.render.tuning import BANK_DOCUMENTS, RESULT_DOCUMENTS, print_bank, print_results
    from npuperf.savings import add_savings

    if asked["diff"] is not None and asked["from_"] is None:
        asked["diff"] = tuple(map(_newest_run, asked["diff"]))
        if all(map(_holds_results, asked["diff"])):
            _show(_compare_results(asked["diff"]), asked, RESULT_DOCUMENTS, print_results)
            return
    bank = _compare(asked["diff"]) if asked["diff"] is not None else None
    if asked["from_"] is None:
        assert bank is not None
        if not any(map(_is_bank, asked["diff"])):
            raise InputError(f"{bank.before}, {bank.after}: no *_runtime_kb.json below them, and no result of AOE")
        _show(bank, asked, BANK_DOCUMENTS, print_bank)
        return
    _finish(add_savings(_read(asked["from_"], bank), _usage(asked)), asked)


def _newest_run(path: Path) -> Path:
    """Return the newest tuning run of a run directory; anything else as it is."""
    from npuperf.tune.supervise import STATE
    from npuperf.tuning import last_run

    return last_run(path) if next(path.glob(f"tune/*/{STATE}"), None) else path


def _holds_results(path: Path) -> bool:
    """Tell results (a file, or the folder of a run) from a knowledge base."""
    from npuperf.tune.results import PATTERN
    from npuperf.tune.supervise import STATE

    return path.name.startswith("aoe_result_") or (path / STATE).is_file() or any(path.glob(PATTERN))


def _compare_results(paths: tuple[Path, Path]) -> ResultDiff:
    from npuperf.tune.results import compare_results

    before, after = (_results_of(path) for path in paths)
    return compare_results(before, after)


def _results_of(path: Path) -> Tuning:
    """Read a result file, a folder of them, or a tuning run with what its earlier processes left."""
    from npuperf.tune.results import read_results, result_files
    from npuperf.tune.supervise import STATE, partial

    found = partial(path) if (path / STATE).is_file() else None
    return found or read_results(result_files(path))


def _compare(paths: tuple[Path, Path]) -> BankDiff:
    from npuperf.tune.bank import compare, read_bank

    return compare(read_bank(paths[0]), read_bank(paths[1]))


def _is_bank(path: Path) -> bool:
    """Tell a bank, or npuperf's copy of an empty one, from a folder of something else."""
    from npuperf.tune.store import ORIGIN

    return path.is_file() or (path / ORIGIN).is_file() or next(path.rglob("*_runtime_kb.json"), None) is not None


def _read(path: Path, bank: BankDiff | None) -> Tuning:
    """Read the results; with a bank's difference beside them, say where the two disagree."""
    from npuperf.tune.bank import add_bank

    tuning = _results_of(path)
    return tuning if bank is None else add_bank(tuning, bank)


def _usage(asked: dict[str, Any]) -> Usage | None:
    """Read the profile of the run directory, if there is one."""
    if not asked["run"].exists():
        return None
    from npuperf.tuning import usage_of

    return usage_of(asked["run"], tell)


def _drive(ctx: typer.Context, asked: dict[str, Any]) -> None:
    """Run AOE, or show what would be run."""
    from dataclasses import replace

    from npuperf.render.tuning import check_lines
    from npuperf.tuning import plan, refuse, run_plan, unfinished_run

    usage = _usage(asked)
    folder, begun = unfinished_run(asked["run"], asked["mode"]) if asked["resume"] else (None, None)
    named = any(asked[name] for name in ("model", "dump", "command"))
    if begun is not None and not named:
        job = replace(begun, bank=asked["bank"].absolute()) if asked["bank"] else begun
    else:
        job = _job(ctx, asked, usage)
    found = plan(job, asked["run"], usage, os.environ, soc=asked["soc"], folder=folder, dry=asked["dry_run"])
    for line in check_lines(found.checks, full=asked["dry_run"]):
        tell(line)
    if asked["dry_run"]:
        _show_plan(found)
        return
    refuse(found, asked["force"])
    minutes = asked["timeout"]
    limit = None if minutes is None else 60 * minutes
    with _progress() as progress:
        done = run_plan(found, os.environ, timeout=limit, tell=tell, progress=progress)
    _report(done, asked)


def _job(ctx: typer.Context, asked: dict[str, Any], usage: Usage | None) -> Job:
    """Put together what is asked for; operators come from the profile if only the busiest are to be tuned."""
    from npuperf.tune.job import Job, find_source
    from npuperf.tuning import recorded_command

    if asked["mode"] not in ("op", "subgraph"):
        raise UsageError(f"--mode {asked['mode'] or 'is missing'}", hint="op (operators) or subgraph")
    recorded = recorded_command(asked["run"])
    source = find_source(asked["model"], asked["weight"], asked["dump"], asked["command"] or (), recorded)
    types, names = _operators(ctx, asked, usage)
    return Job(
        mode=asked["mode"],
        source=source,
        types=tuple(types),
        names=tuple(names),
        device=asked["device"],
        bank=asked["bank"].absolute() if asked["bank"] else None,
        parallel=asked["parallel"],
        repeat=asked["repeat"],
        deep=asked["deep"],
        arguments=tuple(asked["aoe_arg"] or ()),
    )


def _operators(ctx: typer.Context, asked: dict[str, Any], usage: Usage | None) -> tuple[list[str], list[str]]:
    """Return the types and the names of the operators to tune; neither for all."""
    if asked["ops"] and asked["mode"] != "op":
        raise UsageError("--ops: subgraphs are not chosen by operators", hint="--mode op")
    if asked["ops"]:
        wanted = [word.strip() for word in asked["ops"].split(",") if word.strip()]
        names = [w for w in wanted if "/" in w or w.split("_")[-1].isdigit()]  # GE numbers operators' names
        return [w for w in wanted if w not in names], names
    by_recipe = "top" in asked["recipe_gave"] and usage is not None  # which is for runs with and without a profile
    if not (typed(ctx, "top") or by_recipe) or asked["mode"] != "op":
        return [], []
    if usage is None:
        hint = "npuperf profile records one; or name operators with --ops"
        raise UsageError(f"--top {asked['top']}: no profile in {asked['run']} says which operators matter", hint=hint)
    busiest = usage.busiest(asked["top"])
    if not busiest:
        hint = "see npuperf analyze: the host is the limit; --ops tunes all the same"
        raise UsageError("no operator runs in device-bound time: tuning would not be felt", hint=hint)
    return busiest, []


def _show_plan(found: Plan) -> None:
    """Print what would be run."""
    print(f"# results and logs: {found.folder}")
    print(f"# knowledge base: {found.place}")
    if found.ops:
        print(f"# {found.folder / 'tune_ops.cfg'}: {' '.join(found.ops.split())}")
    for step in found.steps:
        print(f"# {step.title}")
        print(step.shown())


def _report(done: Tuned, asked: dict[str, Any]) -> None:
    """Show how it went and leave with it."""
    if done.problem:
        tell(f"{done.problem}\n  next: {done.next}")
    _finish(done.tuning, asked, done.exit_code)


def _finish(tuning: Tuning, asked: dict[str, Any], exit_code: int = ExitCode.DONE) -> None:
    """Judge the gates, show everything, and exit: a failure first, then a gate that failed, then one left open."""
    from msgspec.structs import replace

    from npuperf.render.tuning import TUNING_DOCUMENTS, notes, print_tuning
    from npuperf.tune.gates import judge, parse_condition

    gates = tuple(judge(parse_condition(text), tuning) for text in asked["fail_on"] or ())
    tuning = replace(tuning, gates=gates)
    if asked["format_"] is Format.csv:  # which has room for entries only
        for line in notes(tuning):
            tell(line)
    _show(tuning, asked, TUNING_DOCUMENTS, print_tuning)
    raise typer.Exit(exit_code or exit_of_gates(gate.status for gate in gates))


def _verify(asked: dict[str, Any]) -> None:
    """Profile with the bank from before the last tuning run and with the bank as it is, and compare."""
    from msgspec.structs import replace

    from npuperf.savings import add_savings
    from npuperf.tune import supervise
    from npuperf.tuning import last_run, note_verification, recorded_command, refuse_busy
    from npuperf.verify import verify

    folder = last_run(asked["run"]).absolute()
    refuse_busy(folder, "--verify")
    command = asked["command"] or recorded_command(asked["run"])
    if not command:
        raise UsageError("--verify: no program to profile", hint="npuperf tune --verify -- python train.py")
    place, before = _banks(folder, asked)
    found_results = supervise.partial(folder)
    if found_results is None:
        raise InputError(f"{folder}: no result that can be read")
    tuning = add_savings(found_results, _usage(asked))
    found = verify(command, folder, (before, place), tuning, os.environ, tell)
    tuning = replace(tuning, folder=str(folder), verification=found)
    note_verification(folder, found)
    _finish(tuning, asked)


def _banks(folder: Path, asked: dict[str, Any]) -> tuple[Path, Path]:
    """Return the bank as it is and the snapshot from before the run."""
    from npuperf.tune.store import graph_bank
    from npuperf.tune.supervise import read_state

    state = read_state(folder)
    place = asked["bank"] or state.get("place")
    before = folder / "bank_before"
    if not place or not before.is_dir():
        raise UsageError(f"{folder}: does not say which bank it tuned", hint="--bank FOLDER")
    place = Path(place).absolute()
    if state.get("mode") == "subgraph":
        return graph_bank(place, state.get("soc")), graph_bank(before, state.get("soc"))
    return place, before


def _roll_back(run: Path) -> None:
    from npuperf.tuning import roll_back

    place, backup = roll_back(run)
    tell(f"{place}: as it was before the last tuning run" + (f"; what was there is kept as {backup}" if backup else ""))


def _merge(sources: tuple[Path, Path], into: Path | None) -> None:
    from npuperf.tune.store import merge

    if into is None:
        raise UsageError("--merge: says nothing about where to", hint="npuperf tune --merge A B --into C")
    done = merge(list(sources), into)
    for warning in done.warnings:
        tell(f"warning: {warning}")
    taken = ", ".join(f"{n} from {source}" for n, source in zip(done.taken, sources, strict=True))
    print(f"{done.into}: {done.records} records ({taken}); {done.conflicts} conflicts, where the first one won")
    if done.backup:
        print(f"what was there is kept as {done.backup}")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Yield what shows progress: a line that is rewritten for a person, new lines elsewhere."""
    last = ""

    def show(text: str) -> None:
        nonlocal last
        what = text.rsplit(",", 1)[0]
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif what != last:
            tell(text)
        last = what

    yield show
    if last and sys.stderr.isatty():
        print(file=sys.stderr)


def _show(
    document: Any,
    asked: dict[str, Any],
    documents: dict[str, Callable[[Any, int], str]],
    show: Callable[[Any, Console, int], None],
) -> None:
    format_, output, top = asked["format_"], asked["output"], asked["top"]
    if format_ is Format.text:
        print_text(lambda console: show(document, console, top), output)
    else:
        emit(documents[format_.value](document, top), output)
