"""``npuperf profile``."""

# Annotations are values here, not text: typer would evaluate every text four times.
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from npuperf.base.messages import say
from npuperf.cli.options import (
    DATA,
    HOW,
    OUTPUT,
    WHAT,
    WHEN,
    DebugOption,
    LangOption,
    Verb,
    context_settings,
    given,
    option,
)
from npuperf.cli.recipes import RecipeOption, chosen, effect
from npuperf.show.language import text

if TYPE_CHECKING:
    from npuperf.readers.recording import Recording

NAME: Final = "profile"
SUMMARY: Final = say("Run a program under a profiler, export, and prove that the data is there.")
HELP: Final = say(
    """Run a program under a profiler, export what it recorded, and prove that the data is there.

Options of npuperf come before the script; everything after it belongs to the script. The script is not changed.

\b
Examples:
  npuperf profile train.py --lr 0.1
  npuperf profile --wait 20 --active 1 --stack -m package.train
  npuperf profile --level 2 --ranks 0 -- torchrun --nproc_per_node=8 train.py
  npuperf profile --step-on forward --analyze serve.py
  npuperf profile --for-compare train.py
  npuperf profile --engine cpu --dry-run train.py
  npuperf profile --recipe inference-decode --dry-run serve.py
  npuperf profile --export host_123_20260101120000000_ascend_pt
"""
)
CONTEXT: Final = context_settings(allow_interspersed_args=False)


class ScriptCommand(Verb):
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


CLASS: Final = ScriptCommand


def profile(
    ctx: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(metavar="SCRIPT")] = None,
    module: Annotated[
        str | None, option(WHAT, say("Run a module, like python -m."), "-m", "--module", metavar="NAME")
    ] = None,
    python: Annotated[
        str | None, option(WHAT, say("The interpreter for scripts and exports."), "--python", metavar="FILE")
    ] = None,
    ranks: Annotated[
        str | None, option(WHAT, say("Record only these ranks: 0,8 or 0-3."), "--ranks", metavar="LIST")
    ] = None,
    export: Annotated[
        list[str] | None,
        option(
            WHAT,
            say(
                "Format to export the raw data to: text, db or both; or a folder of raw data to export, "
                "without running a program."
            ),
            "--export",
            metavar="FORMAT|DIR",
        ),
    ] = None,
    wait: Annotated[int, option(WHEN, say("Steps to skip first."), "--wait", metavar="N", min=1)] = 10,
    warmup: Annotated[
        int, option(WHEN, say("Steps in which the profiler runs without recording."), "--warmup", metavar="N", min=0)
    ] = 1,
    active: Annotated[int, option(WHEN, say("Steps to record."), "--active", metavar="N", min=1)] = 2,
    for_compare: Annotated[
        bool,
        option(
            WHEN,
            say(
                "Record for a comparison: 10 steps, since their noise tells what is chance, and no counters, which "
                "cost time."
            ),
            "--for-compare",
        ),
    ] = False,
    repeat: Annotated[
        int, option(WHEN, say("How many times to record; each makes its own folder."), "--repeat", metavar="N", min=1)
    ] = 1,
    step_on: Annotated[
        str,
        option(WHEN, say("What ends a step: optimizer, forward, or a time (2-seconds)."), "--step-on", metavar="WHAT"),
    ] = "optimizer",
    whole_run: Annotated[bool, option(WHEN, say("Record the whole run, regardless of steps."), "--whole-run")] = False,
    max_size: Annotated[
        str | None,
        option(WHEN, say("Stop recording when the data exceeds this size: 2G."), "--max-size", metavar="SIZE"),
    ] = None,
    stop_after: Annotated[
        bool, option(WHEN, say("End the program when everything has been recorded."), "--stop-after")
    ] = False,
    export_early: Annotated[
        bool,
        option(WHEN, say("Export as soon as everything has been recorded, beside the program."), "--export-early"),
    ] = False,
    export_timeout: Annotated[
        float | None,
        option(
            WHEN,
            say("End the export of a folder after this many minutes (30, and 1 for each 10 MB)."),
            "--export-timeout",
            metavar="MINUTES",
            min=0,
        ),
    ] = None,
    engine: Annotated[str, option(HOW, say("auto, torch, e2e, msprof or cpu."), "--engine", metavar="NAME")] = "auto",
    own_profiler: Annotated[
        str,
        option(
            HOW,
            say("If the program has its own profiler: defer to it (aside), or replace it (replace)."),
            "--own-profiler",
            metavar="aside|replace",
        ),
    ] = "aside",
    msprof_arg: Annotated[
        list[str] | None,
        option(HOW, say("Any argument for msprof; repeatable (msprof)."), "--msprof-arg", metavar="ARG"),
    ] = None,
    recipe: RecipeOption = None,
    dry_run: Annotated[bool, option(HOW, say("Show what would be done, and do nothing."), "--dry-run")] = False,
    level: Annotated[str, option(DATA, say("How much to record: 0, 1, 2 or none."), "--level", metavar="LEVEL")] = "1",
    aic_metrics: Annotated[
        str, option(DATA, say("Hardware counters, by name or number (0–5, 0xFF)."), "--aic-metrics", metavar="NAME")
    ] = "PipeUtilization",
    activities: Annotated[
        str, option(DATA, say("cpu,npu or one of them."), "--activities", metavar="LIST")
    ] = "cpu,npu",
    shapes: Annotated[bool, option(DATA, say("Operator shapes."), "--shapes")] = False,
    stack: Annotated[
        bool, option(DATA, say("Call stacks, so that the analysis can name code lines."), "--stack")
    ] = False,
    memory: Annotated[bool, option(DATA, say("Memory use."), "--memory")] = False,
    modules: Annotated[bool, option(DATA, say("Module names."), "--modules")] = False,
    flops: Annotated[bool, option(DATA, say("Floating-point operations, estimated."), "--flops")] = False,
    l2_cache: Annotated[bool, option(DATA, say("L2 cache hits."), "--l2-cache")] = False,
    mstx: Annotated[bool, option(DATA, say("mstx ranges."), "--mstx")] = False,
    mstx_include: Annotated[
        str | None, option(DATA, say("Only these mstx domains."), "--mstx-include", metavar="LIST")
    ] = None,
    mstx_exclude: Annotated[
        str | None, option(DATA, say("All but these mstx domains."), "--mstx-exclude", metavar="LIST")
    ] = None,
    op_attr: Annotated[bool, option(DATA, say("Operators' attributes (databases only)."), "--op-attr")] = False,
    op_args: Annotated[bool, option(DATA, say("Operators' arguments."), "--op-args")] = False,
    gc_threshold: Annotated[
        float | None, option(DATA, say("Garbage collections longer than this."), "--gc-threshold", metavar="MS", min=0)
    ] = None,
    host_sys: Annotated[
        str | None, option(DATA, say("The host's cpu, mem, disk, network, osrt, numa."), "--host-sys", metavar="LIST")
    ] = None,
    sys_io: Annotated[bool, option(DATA, say("NIC and RoCE."), "--sys-io")] = False,
    sys_interconnection: Annotated[
        bool, option(DATA, say("HCCS, PCIe and the links between chips."), "--sys-interconnection")
    ] = False,
    acl_api: Annotated[bool, option(DATA, say("AscendCL calls (e2e, msprof)."), "--acl-api/--no-acl-api")] = True,
    task_time: Annotated[bool, option(DATA, say("Task times (e2e, msprof)."), "--task-time/--no-task-time")] = True,
    aicpu: Annotated[bool, option(DATA, say("AI CPU tasks (e2e, msprof)."), "--aicpu/--no-aicpu")] = True,
    communication: Annotated[
        bool,
        option(DATA, say("Communication (from level 1 on)."), "--communication/--no-communication", "--hccl/--no-hccl"),
    ] = True,
    training_trace: Annotated[bool, option(DATA, say("Iteration traces (e2e)."), "--training-trace")] = False,
    output: Annotated[
        Path | None,
        option(OUTPUT, say("The run directory to make (result, then result.1, …)."), "-o", "--output", metavar="DIR"),
    ] = None,
    force: Annotated[bool, option(OUTPUT, say("Move a run that is in the way of -o aside."), "--force")] = False,
    simplify: Annotated[bool, option(OUTPUT, say("Delete intermediate files."), "--simplify/--no-simplify")] = True,
    analyze: Annotated[bool, option(OUTPUT, say("Analyze the run at the end."), "--analyze")] = False,
    lang: LangOption = None,
    debug: DebugOption = False,
) -> None:
    """Build the request, run, show, analyze if wanted, leave."""
    from npuperf.base.escape import for_screen, for_shell
    from npuperf.cli.output import Output, leave
    from npuperf.cli.progress import tell, tell_line
    from npuperf.model.recorded import Recorded
    from npuperf.record.request import read_request
    from npuperf.record.run import run
    from npuperf.show.formats import render

    used = chosen(ctx)
    words = {**ctx.params, "command": tuple(command or ())}
    request = read_request(words, [name for name in words if given(ctx, name)])
    if used is not None and not dry_run:
        tell(effect(ctx, used))
    progress = tell if sys.stderr.isatty() else None
    ran = run(request, os.environ, tell, progress, keep_recording=analyze)
    if not isinstance(ran.document, Recorded):
        if used is not None:
            print(for_screen(text(effect(ctx, used))))
        Output().show(ran.document)
        leave(ran.document)
    for line in render(ran.document, "text").splitlines():
        tell_line(line)
    for path in ran.document.data if ran.document.problem is None else ():
        if analyze:
            _analyze(Path(path), ran.recording)
        else:
            tell(say("next: npuperf analyze {path}", path=for_shell(path)))
    leave(ran.document)


COMMAND: Final = profile


def _analyze(path: Path, recording: "Recording | None") -> None:
    """Analyze as without any option, and print the screen; what was read to prove the run is not read again."""
    from npuperf.cli.analyze import analyze_and_keep
    from npuperf.cli.output import Output

    shared = recording if recording is not None and recording.path == path else None
    Output().show(analyze_and_keep(path, shared))
