"""``npuperf tune``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from npuperf.base.messages import Message, say
from npuperf.cli.analyze import run_chosen
from npuperf.cli.command_line import Shared, Verb, given, known_format, request_of, typed
from npuperf.cli.streams import rewriting, tell

if TYPE_CHECKING:
    import typer

    from npuperf.model.document import Document

_HELP: Final = say(
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


def _options() -> list[type]:
    from npuperf.tune.request import TuneRequest

    return [TuneRequest, Shared]


def _tune(ctx: typer.Context) -> None:
    """Build the request, run, show, leave."""
    from npuperf.base.files import write_atomically
    from npuperf.cli.output import Output, leave
    from npuperf.model.tuning import Tuning
    from npuperf.show.formats import render
    from npuperf.tune.request import TuneRequest
    from npuperf.tune.run import run

    out = Output.of(ctx.params, full=False, brief=False, trace=None, trace_full=None)
    out.check(Tuning)
    run_chosen(ctx, "run")
    by_recipe = frozenset(name for name in ctx.params if given(ctx, name) and not typed(ctx, name))
    request = request_of(ctx, TuneRequest, top_given=given(ctx, "top"), by_recipe=by_recipe)

    def keep(document: Document, file: Path) -> None:
        suffixes = {".md": "markdown"}
        write_atomically(file, render(document, suffixes.get(file.suffix, file.suffix[1:])))

    with rewriting() as progress:
        document = run(request, os.environ, tell=tell, progress=progress, keep_document=keep, ask=_ask)
    out.show(document)
    leave(document)


def _ask(doubt: Message) -> bool | None:
    """Show a person at a terminal what would be done, and ask; None where nobody can be asked."""

    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    tell(doubt)
    tell(say("do it? [y/N]"))
    return sys.stdin.readline().strip().lower() in ("y", "yes")


VERB: Final = Verb(
    name="tune",
    summary=say("Tune operators with AOE, and verify the gain."),
    help=_HELP,
    run=_tune,
    options=_options,
    more={"format": {"callback": known_format}},
    settings={"allow_interspersed_args": False},
)
