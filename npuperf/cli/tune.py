"""``npuperf tune``."""

# Annotations are values here, not text: typer would evaluate every text four times.
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from npuperf.base.messages import Message, say
from npuperf.cli.analyze import run_chosen
from npuperf.cli.options import (
    DATA,
    GATES,
    HOW,
    OUTPUT,
    WHAT,
    WHEN,
    DebugOption,
    FileOption,
    FormatOption,
    HtmlOption,
    LangOption,
    TableOption,
    Verb,
    context_settings,
    given,
    option,
    requested,
    typed,
)
from npuperf.cli.recipes import RecipeOption

NAME: Final = "tune"
SUMMARY: Final = say("Tune operators with AOE, and verify the gain.")
HELP: Final = say(
    """Tune operators or subgraphs with AOE, say what changed in the knowledge base, and verify the gain.

What is tuned: --model FILE, else --dump FOLDER, else --singleop FILE, else -- COMMAND, else the program of the run
directory.

\b
Examples:
  npuperf tune --mode op --model net.onnx --dry-run
  npuperf tune --mode op --top 10 --dry-run -- python train.py
  npuperf tune --from aoe_result_opat_20260101120000000_pid7.json
  npuperf tune --from ./tune --run ./result --format json -o diff.json
  npuperf tune --diff bank_before bank_after
  npuperf tune --verify --fail-on "regression>3%" -- python train.py
"""
)
CONTEXT: Final = context_settings(allow_interspersed_args=False)
CLASS: Final = Verb


def tune(
    ctx: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(metavar="[-- COMMAND]")] = None,
    mode: Annotated[
        str | None, option(WHAT, say("What to tune: op (operators) or subgraph."), "--mode", metavar="MODE")
    ] = None,
    run: Annotated[
        Path, option(WHAT, say("The run directory: program, profile, results."), "--run", metavar="DIR")
    ] = Path("result"),
    model: Annotated[
        Path | None, option(WHAT, say("An .onnx, .pb, .air or .prototxt file."), "--model", metavar="FILE")
    ] = None,
    weight: Annotated[Path | None, option(WHAT, say("Weights of a .prototxt."), "--weight", metavar="FILE")] = None,
    dump: Annotated[
        Path | None, option(WHAT, say("Operator graphs dumped by torch_npu."), "--dump", metavar="DIR")
    ] = None,
    singleop: Annotated[
        Path | None,
        option(WHAT, say("A JSON file that describes operators one by one."), "--singleop", metavar="FILE"),
    ] = None,
    ops: Annotated[
        str | None, option(WHAT, say("Tune only these operators: types or names."), "--ops", metavar="LIST")
    ] = None,
    resume: Annotated[bool, option(WHEN, say("Continue the newest unfinished run."), "--resume")] = False,
    timeout: Annotated[
        float | None, option(WHEN, say("Stop after this many minutes."), "--timeout", metavar="MINUTES", min=0)
    ] = None,
    yes: Annotated[
        bool, option(WHEN, say("Do what a run directory says even if you did not begin it."), "-y", "--yes")
    ] = False,
    dry_run: Annotated[bool, option(WHEN, say("Show checks and commands, and do nothing."), "--dry-run")] = False,
    verify: Annotated[
        bool, option(WHEN, say("Profile without and with the tuned knowledge base, and compare."), "--verify")
    ] = False,
    from_: Annotated[
        Path | None,
        option(
            DATA, say("A result file of AOE, or a folder, of which the newest run is read."), "--from", metavar="PATH"
        ),
    ] = None,
    diff: Annotated[
        tuple[Path, Path] | None,
        option(DATA, say("Compare two knowledge bases, or two results or runs."), "--diff", metavar="BEFORE AFTER"),
    ] = None,
    merge: Annotated[
        tuple[Path, Path] | None,
        option(DATA, say("Merge two knowledge bases into the folder of --into."), "--merge", metavar="A B"),
    ] = None,
    into: Annotated[
        Path | None, option(DATA, say("Target folder of --merge; what is already there wins."), "--into", metavar="DIR")
    ] = None,
    rollback: Annotated[
        bool, option(DATA, say("Restore the knowledge base from before the last run."), "--rollback")
    ] = False,
    soc: Annotated[
        str | None, option(DATA, say("The chip, if the profile does not name it."), "--soc", metavar="NAME")
    ] = None,
    device: Annotated[int | None, option(HOW, say("The device to tune on."), "--device", metavar="N", min=0)] = None,
    bank: Annotated[
        Path | None,
        option(HOW, say("Folder of the knowledge base (TUNE_BANK_PATH)."), "--bank", metavar="DIR"),
    ] = None,
    parallel: Annotated[
        int | None,
        option(
            HOW, say("Number of compiling processes (TE_PARALLEL_COMPILER)."), "--parallel", metavar="N", min=1, max=32
        ),
    ] = None,
    repeat: Annotated[
        bool, option(HOW, say("Tune again what is already in the knowledge base (REPEAT_TUNE)."), "--repeat")
    ] = False,
    deep: Annotated[bool, option(HOW, say("Search longer (tune_optimization_level O1)."), "--deep")] = False,
    aoe_arg: Annotated[
        list[str] | None, option(HOW, say("Any argument for aoe; repeatable."), "--aoe-arg", metavar="ARG")
    ] = None,
    recipe: RecipeOption = None,
    fail_on: Annotated[
        list[str] | None,
        option(GATES, say("Exit with 1 if this holds: regression>3%; repeatable."), "--fail-on", metavar="EXPR"),
    ] = None,
    top: Annotated[
        int,
        option(
            OUTPUT,
            say("Number of operators to tune, if given, and maximum number of rows in every list."),
            "--top",
            metavar="N",
            min=1,
        ),
    ] = 20,
    format_: FormatOption = "text",
    table: TableOption = None,
    output: FileOption = None,
    html: HtmlOption = None,
    force: Annotated[
        bool, option(OUTPUT, say("Tune in spite of failed checks; let -o and --html replace a file."), "--force")
    ] = False,
    lang: LangOption = None,
    debug: DebugOption = False,
) -> None:
    """Build the request, run, show, leave."""
    from npuperf.base.files import write_atomically
    from npuperf.cli.output import Output, leave
    from npuperf.cli.progress import rewriting, tell
    from npuperf.model.document import Document
    from npuperf.model.tuning import Tuning
    from npuperf.show.formats import render
    from npuperf.tune.request import TuneRequest
    from npuperf.tune.run import run as carry_out

    out = Output(format_, output, force, top=top, table=table, html=html)
    out.check(Tuning)
    pages = None
    if html is not None:
        from npuperf.cli.output import Pages

        pages = Pages(html, force=force)
        pages.check({"-o": output})
    run_chosen(ctx, "run", run)
    by_recipe = frozenset(name for name in ctx.params if given(ctx, name) and not typed(ctx, name))
    request = requested(ctx, TuneRequest, top_given=given(ctx, "top"), by_recipe=by_recipe)

    def keep(document: Document, file: Path) -> None:
        suffixes = {".md": "markdown"}
        write_atomically(file, render(document, suffixes.get(file.suffix, file.suffix[1:])))

    with rewriting() as progress:
        document = carry_out(request, os.environ, tell=tell, progress=progress, keep_document=keep, ask=_ask)
    out.show(document)
    if pages is not None:
        pages.write(document)
    leave(document)


def _ask(doubt: Message) -> bool | None:
    """Show a person at a terminal what would be done, and ask; None where nobody can be asked."""
    from npuperf.cli.progress import tell

    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    tell(doubt)
    tell(say("do it? [y/N]"))
    return sys.stdin.readline().strip().lower() in ("y", "yes")


COMMAND: Final = tune
