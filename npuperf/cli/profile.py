"""``npuperf profile``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from npuperf.base.declared import DATA, HOW, OUTPUT, WHAT, WHEN, Typed
from npuperf.base.messages import say
from npuperf.cli.command_line import Shared, Verb, VerbCommand, given
from npuperf.cli.recipes import chosen, effect
from npuperf.cli.streams import tell, tell_line
from npuperf.show.language import text

if TYPE_CHECKING:
    import typer

    from npuperf.readers.recording import Recording

_HELP: Final = say(
    """Run a program under a profiler, export what it recorded, and prove that the data is there.

Options of npuperf come before the script; everything after it belongs to the script. The script is not changed.

\b
Examples:
  npuperf profile train.py --lr 0.1
  npuperf profile --wait 20 --active 1 --stack -m package.train
  npuperf profile --level 2 --ranks 0 -- torchrun --nproc_per_node=8 train.py
  npuperf profile --step-on forward --analyze serve.py
  npuperf profile --delay 30s --duration 5s serve.py
  npuperf profile --start-on decode --active 3 serve.py
  npuperf profile --for-compare train.py
  npuperf profile --engine cpu --dry-run train.py
  npuperf profile --recipe inference-decode --dry-run serve.py
  npuperf profile --standby serve.py
  npuperf profile --pid 4711 --duration 5s
  npuperf profile --export host_123_20260101120000000_ascend_pt
"""
)


class ScriptCommand(VerbCommand):
    """A command whose options end at the script: also after ``-m MODULE``, as in Python's own command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the mark that ends the options behind ``-m MODULE``."""
        valued = {o for p in self.params if not getattr(p, "is_flag", False) for o in getattr(p, "opts", [])}
        position = 0
        while position < len(args) and args[position].startswith("-") and args[position] != "--":
            if args[position] in ("-m", "--module") and position + 2 < len(args):
                args.insert(position + 2, "--")
                break
            position += 2 if args[position] in valued else 1
        return super().parse_args(ctx, args)


class Afterwards:
    """What is asked for once a run is recorded."""

    analyze: Annotated[bool, Typed(OUTPUT, say("Analyze the run at the end."), "--analyze")] = False


def _options() -> list[type]:
    from npuperf.record.request import ProfileRequest

    return [ProfileRequest, Afterwards, Shared]


def _profile(ctx: typer.Context) -> None:
    """Build the request, run, show, analyze if wanted, leave."""
    from npuperf.base.escape import for_screen, for_shell
    from npuperf.cli.output import Output, leave
    from npuperf.model.recorded import Recorded
    from npuperf.record.request import read_request
    from npuperf.record.run import run
    from npuperf.show.formats import render

    used = chosen(ctx)
    words = {**ctx.params, "command": tuple(ctx.params["command"] or ())}
    request = read_request(words, [name for name in words if given(ctx, name)])
    if used is not None and not request.dry_run:
        tell(effect(ctx, used))
    progress = tell if sys.stderr.isatty() else None
    ran = run(request, os.environ, tell, progress, keep_recording=ctx.params["analyze"])
    if not isinstance(ran.document, Recorded):
        if used is not None:
            print(for_screen(text(effect(ctx, used))))
        Output().show(ran.document)
        leave(ran.document)
    for line in render(ran.document, "text").splitlines():
        tell_line(line)
    for path in ran.document.data if ran.document.problem is None else ():
        if ctx.params["analyze"]:
            _analyze(Path(path), ran.recording)
        else:
            tell(say("next: npuperf analyze {path}", path=for_shell(path)))
            if any(proof.failures for proof in ran.document.proofs):
                _say_why(Path(path))
    leave(ran.document)


def _analyze(path: Path, recording: Recording | None) -> None:
    """Analyze as without any option, and print the screen; what was read to prove the run is not read again."""
    from npuperf.analyze.request import AnalyzeRequest
    from npuperf.cli.analyze import analyzed
    from npuperf.cli.output import Output

    shared = recording if recording is not None and recording.path == path else None
    analyzed(lambda: AnalyzeRequest(path=path, no_cache=True), shared, show=lambda result, *_: Output().show(result))


def _say_why(path: Path) -> None:
    """Say why memory ran out, as its snapshots tell."""
    from npuperf.against.run import run as analyze
    from npuperf.analyze.request import AnalyzeRequest

    for finding in analyze(AnalyzeRequest(path=path, no_cache=True, rules=("out_of_memory",))).findings:
        if finding.status != "problem":
            continue
        tell(finding.title)
        if finding.next is not None:
            tell(say("next: {hint}", hint=finding.next))


VERB: Final = Verb(
    name="profile",
    summary=say("Run a program under a profiler, export, and prove that the data is there."),
    help=_HELP,
    run=_profile,
    options=_options,
    panels=(WHAT, WHEN, HOW, DATA, OUTPUT),
    kind=ScriptCommand,
    settings={"allow_interspersed_args": False},
)
