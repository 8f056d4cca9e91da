"""``npuperf profile``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from npuperf.cli.progress import tell
from npuperf.cli.recipes import effect, typed, with_recipe
from npuperf.messages import Message, text

if TYPE_CHECKING:
    from npuperf.documents.recorded import Recorded, RecordingPlan

HELP = """Run a program under a profiler, export what it recorded, and prove that the data is there.

Options of npuperf come before the script; everything after it belongs to the script. The script is not changed.

\b
Examples:
  npuperf profile train.py --lr 0.1
  npuperf profile --wait 20 --active 1 --stack -m package.train
  npuperf profile --level 2 --ranks 0 -- torchrun --nproc_per_node=8 train.py
  npuperf profile --step-on forward --analyze serve.py
  npuperf profile --engine cpu --dry-run train.py
  npuperf profile --recipe inference-decode --dry-run serve.py
  npuperf profile --export host_123_20260101120000000_ascend_pt
"""
CONTEXT = {"allow_interspersed_args": False}


class ScriptCommand(TyperCommand):
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


def profile(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(help="The script, or -- and a command.", metavar="SCRIPT")
    ] = None,
    module: Annotated[str | None, typer.Option("-m", "--module", help="Run a module, like python -m.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The run directory to make.")] = Path("result"),
    force: Annotated[bool, typer.Option("--force", help="Move a run that is there already aside.")] = False,
    engine: Annotated[str, typer.Option("--engine", help="auto, torch, e2e, msprof or cpu.")] = "auto",
    wait: Annotated[int, typer.Option("--wait", min=1, help="Steps to let pass first.")] = 10,
    warmup: Annotated[int, typer.Option("--warmup", min=0, help="Steps to run the profiler without recording.")] = 1,
    active: Annotated[int, typer.Option("--active", min=1, help="Steps to record.")] = 2,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="How many times; each makes its own folder.")] = 1,
    step_on: Annotated[
        str, typer.Option("--step-on", help="What ends a step: optimizer, forward, or a time (2-seconds).")
    ] = "optimizer",
    whole_run: Annotated[bool, typer.Option("--whole-run", help="Record everything, steps or not.")] = False,
    ranks: Annotated[str | None, typer.Option("--ranks", help="Record only these ranks: 0,8 or 0-3.")] = None,
    own_profiler: Annotated[
        str, typer.Option("--own-profiler", help="If the program has a profiler: stand aside, or replace it.")
    ] = "aside",
    level: Annotated[str, typer.Option("--level", help="0, 1, 2 or none.")] = "1",
    aic_metrics: Annotated[
        str, typer.Option("--aic-metrics", help="Hardware counters, by name or number (0–5, 0xFF).")
    ] = "PipeUtilization",
    export: Annotated[
        list[str] | None,
        typer.Option(
            "--export", help="Format: text, db or both; or a folder of raw data to export, without a program."
        ),
    ] = None,
    activities: Annotated[str, typer.Option("--activities", help="cpu,npu or one of them.")] = "cpu,npu",
    shapes: Annotated[bool, typer.Option("--shapes", help="Record operators' shapes.")] = False,
    stack: Annotated[bool, typer.Option("--stack", help="Record call stacks: code lines in the analysis.")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="Record memory.")] = False,
    modules: Annotated[bool, typer.Option("--modules", help="Record module names.")] = False,
    flops: Annotated[bool, typer.Option("--flops", help="Estimate floating-point operations.")] = False,
    l2_cache: Annotated[bool, typer.Option("--l2-cache", help="Record L2 cache hits.")] = False,
    mstx: Annotated[bool, typer.Option("--mstx", help="Record mstx ranges.")] = False,
    mstx_include: Annotated[str | None, typer.Option("--mstx-include", help="Only these mstx domains.")] = None,
    mstx_exclude: Annotated[str | None, typer.Option("--mstx-exclude", help="Not these mstx domains.")] = None,
    op_attr: Annotated[bool, typer.Option("--op-attr", help="Record operators' attributes (databases only).")] = False,
    op_args: Annotated[bool, typer.Option("--op-args", help="Record operators' arguments.")] = False,
    gc_threshold: Annotated[
        float | None, typer.Option("--gc-threshold", min=0, help="Record garbage collections longer than this, ms.")
    ] = None,
    host_sys: Annotated[
        str | None, typer.Option("--host-sys", help="Record the host's cpu, mem, disk, network, osrt, numa.")
    ] = None,
    sys_io: Annotated[bool, typer.Option("--sys-io", help="Record NIC and RoCE.")] = False,
    sys_interconnection: Annotated[
        bool, typer.Option("--sys-interconnection", help="Record HCCS, PCIe and between chips.")
    ] = False,
    simplify: Annotated[bool, typer.Option("--simplify/--no-simplify", help="Delete intermediate files.")] = True,
    acl_api: Annotated[bool, typer.Option("--acl-api/--no-acl-api", help="AscendCL calls (e2e, msprof).")] = True,
    task_time: Annotated[bool, typer.Option("--task-time/--no-task-time", help="Task times (e2e, msprof).")] = True,
    aicpu: Annotated[bool, typer.Option("--aicpu/--no-aicpu", help="AI CPU tasks (e2e, msprof).")] = True,
    communication: Annotated[
        bool,
        typer.Option("--communication/--no-communication", "--hccl/--no-hccl", help="Communication (from level 1 on)."),
    ] = True,
    training_trace: Annotated[bool, typer.Option("--training-trace", help="Iteration traces (e2e).")] = False,
    msprof_arg: Annotated[
        list[str] | None, typer.Option("--msprof-arg", help="Any argument for msprof; repeatable (msprof).")
    ] = None,
    max_size: Annotated[str | None, typer.Option("--max-size", help="Stop recording beyond this size: 2G.")] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", help="Options from a recipe, by name or path; yours go before them.")
    ] = None,
    python: Annotated[str | None, typer.Option("--python", help="The interpreter for scripts and exports.")] = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="Analyze the run at the end.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Unpack, call, render, exit."""
    from npuperf.profile.request import read_request
    from npuperf.profile.run import run_and_keep

    asked = with_recipe(ctx, recipe, "profile")
    given = [*(name for name in asked if typed(ctx, name)), *asked["recipe_gave"]]
    request = read_request(asked, given)
    if dry_run and recipe:
        print(effect(ctx, recipe, asked))
    progress = _say if sys.stderr.isatty() else None
    ran = run_and_keep(request, os.environ, _say, progress, keep_recording=asked["analyze"])
    _finish(ran.document, asked["analyze"])


def _say(message: Message) -> None:
    tell(text(message))


def _finish(document: Recorded | RecordingPlan, analyze: bool) -> NoReturn:
    """Say how it went, analyze if wanted, and leave with the program's status or our own."""
    from npuperf.documents.recorded import RecordingPlan
    from npuperf.render.profile_text import plan_lines, run_lines

    if isinstance(document, RecordingPlan):
        for caution in document.cautions:
            tell(f"warning: {text(caution)}")
        print("\n".join(plan_lines(document)))
        raise typer.Exit(document.exit_code)
    for line in run_lines(document, analyze=analyze):
        tell(line)
    if analyze and document.problem is None:
        from npuperf.cli.analyze import show

        for path in document.data:
            show(Path(path))
    raise typer.Exit(document.exit_code)
