"""``npuperf analyze``."""

from __future__ import annotations

# Annotations are values here, not text: typer would evaluate every text four times.
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from npuperf.base.errors import InputError, UsageError
from npuperf.base.loading import loading
from npuperf.base.messages import Message, say, series, size
from npuperf.cli.options import (
    COMPARISON,
    DATA,
    GATES,
    HOW,
    OUTPUT,
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
)
from npuperf.cli.recipes import RecipeOption, chosen, effect

if TYPE_CHECKING:
    from npuperf.analyze.request import AnalyzeRequest
    from npuperf.analyze.run import Analysis
    from npuperf.cli.output import Pictures
    from npuperf.device.expect import Expectation
    from npuperf.model.chip import Cores
    from npuperf.model.result import Result
    from npuperf.readers.recording import Recording

# -- Which run a command works on when none is named, and what is to be said of a run before it is read.


def run_chosen(ctx: typer.Context, name: str, path: Path) -> Path:
    """Return the run that parameter ``name`` stands for: as given, else the latest, named where there are others."""
    if given(ctx, name):
        return path
    from npuperf.cli.progress import tell
    from npuperf.record.folder import latest_run

    latest = latest_run(path)
    if latest != path:
        tell(say("using {run}, the latest run", run=str(latest)))
        ctx.params[name] = latest
    return latest


def tell_broken_off(path: Path) -> None:
    """Say of a run directory that was left in the middle of something what may be missing in it."""
    from npuperf.base.files import MANIFEST, is_file

    if not is_file(path / MANIFEST):
        return
    from npuperf.cli.progress import tell
    from npuperf.record.folder import RunFolder, broken_off

    for warning in broken_off(RunFolder(path)):
        tell(say("warning: {warning}", warning=warning))


NAME: Final = "analyze"
SUMMARY: Final = say("Show where the time goes, what limits it, and what to look at first.")
HELP: Final = say(
    """Say where the time of a profile goes, what limits it, and what to look at first.

PATH may be a *_ascend_pt folder, ASCEND_PROFILER_OUTPUT, a PROF_* folder or its mindstudio_profiler_output, a folder of
many ranks, one kernel_details.csv, op_summary*.csv, step_trace_time.csv, trace_view.json, msprof*.json or .db file, or
a PyTorch (Kineto) trace.

\b
Examples:
  npuperf analyze samples/transformer_ascend_pt
  npuperf analyze ./result --full
  npuperf analyze ./result --step 12 --format json -o step12.json
  npuperf analyze op_summary_20250101120000.csv --soc Ascend910B1
  npuperf analyze ./result --what-if "host*0.5" --what-if "sync*0,compute*0.9"
  npuperf analyze ./result --table phases
  npuperf analyze ./result --fail-on "host_wait>60%"
  npuperf analyze samples/micro_batch_ascend_pt --cores-of 3=16,32 --cores-of 9=8,16
  npuperf analyze samples/micro_batch_ascend_pt --expect-cores 9=24,48
  npuperf analyze ./with_super_kernel --before ./result --plog ./plog
  npuperf analyze ./result --recipe micro-batch-streams
  npuperf analyze samples/pipeline_job --what-if "rank:1=median"
  npuperf analyze samples/pipeline_job --ranks 0,2 --table roots
  npuperf analyze samples/pipeline_job --group pp --table groups
  npuperf analyze ./result --engine processes --workers 8
  npuperf analyze ./result --save-baseline main
  npuperf analyze ./result --baseline main --fail-on "step_time>+5%,200us"
  npuperf analyze ./result --baseline ./earlier --format markdown
  npuperf analyze ./result --again ./once_more --baseline main
  npuperf analyze ./result --lock perf.lock
  npuperf analyze ./result --check perf.lock --junit gates.xml
  npuperf analyze samples/transformer_ascend_pt --html report.html
  npuperf analyze ./result --trace overlay.json --trace-full whole.json.gz
"""
)
CONTEXT: Final = context_settings()
CLASS: Final = Verb
#: Kernels that are listed unless --top says otherwise.
_KERNELS: Final = 10


def _known_fate(text: str | None) -> str | None:
    """Return what becomes of undecided gates. Raises UsageError for anything else."""
    if text not in (None, "pass", "fail"):
        what = say("--undecided {text}: neither pass nor fail", text=repr(text))
        raise UsageError(what, hint=say("without it, a gate that cannot be judged ends with status 4"))
    return text


def _kept(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of baselines that a shell may complete."""
    from npuperf.against.baselines import BaselineStore, usual_folder

    folder = ctx.params.get("baseline_dir") or usual_folder(Path(ctx.params.get("path") or "result"))
    return [name for name in BaselineStore(Path(folder)).names() if name.startswith(incomplete)]


def analyze(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", show_default=True)] = Path("result"),
    step: Annotated[int | None, option(WHEN, say("Only this step."), "--step", metavar="N")] = None,
    rank: Annotated[int | None, option(WHEN, say("Only this rank."), "--rank", metavar="N")] = None,
    device: Annotated[int | None, option(WHEN, say("Only this device."), "--device", metavar="N")] = None,
    ranks: Annotated[
        str | None, option(WHEN, say("Read only these ranks of a job: 0,8 or 0-3."), "--ranks", metavar="LIST")
    ] = None,
    group: Annotated[
        str | None,
        option(WHEN, say("Of a job, only these process groups: a kind (dp) or an id."), "--group", metavar="NAME"),
    ] = None,
    soc: Annotated[
        str | None,
        option(DATA, say("The chip, whatever the profile says: Ascend910B1."), "--soc", metavar="NAME"),
    ] = None,
    cores: Annotated[
        str | None, option(DATA, say("The chip's core counts: 24,48."), "--cores", metavar="CUBE,VECTOR")
    ] = None,
    before: Annotated[
        Path | None,
        option(
            DATA, say("An earlier profile to compare with, without this one's SuperKernels."), "--before", metavar="DIR"
        ),
    ] = None,
    plog: Annotated[
        Path | None,
        option(
            DATA,
            say("CANN's logs, for their messages about SuperKernels (with --before: ~/ascend/log, if it exists)."),
            "--plog",
            metavar="DIR",
        ),
    ] = None,
    what_if: Annotated[
        list[str] | None,
        option(HOW, say('Replay the run with a change: "host*0.5"; repeatable.'), "--what-if", metavar="EXPR"),
    ] = None,
    cores_of: Annotated[
        list[str] | None,
        option(
            HOW,
            say("Replay the run with a stream's core limit: 5=8,16; repeatable."),
            "--cores-of",
            metavar="STREAM=CUBE,VECTOR",
        ),
    ] = None,
    engine: Annotated[
        str,
        option(HOW, say("Where ranks are read: auto, serial, processes or dask."), "--engine", metavar="NAME"),
    ] = "auto",
    workers: Annotated[
        int | None, option(HOW, say("Read at most N ranks at the same time."), "--workers", metavar="N", min=1)
    ] = None,
    scheduler: Annotated[
        str | None,
        option(
            HOW,
            say("A dask cluster that is there: its address or scheduler file."),
            "--scheduler",
            metavar="ADDRESS|FILE",
        ),
    ] = None,
    recipe: RecipeOption = None,
    no_cache: Annotated[
        bool, option(HOW, say("Read and analyze anew, and keep nothing for the next time."), "--no-cache")
    ] = False,
    clear_cache: Annotated[
        bool, option(HOW, say("Remove what was kept of earlier analyses of PATH, and leave."), "--clear-cache")
    ] = False,
    baseline: Annotated[
        list[str] | None,
        option(
            COMPARISON,
            say("Compare with a profile, a result (JSON) or a kept baseline; repeatable: several runs of one side."),
            "--baseline",
            metavar="PATH|NAME",
            autocompletion=_kept,
        ),
    ] = None,
    again: Annotated[
        list[str] | None,
        option(
            COMPARISON,
            say("Another run of what PATH is a run of, for the new side of --baseline; repeatable."),
            "--again",
            metavar="PATH",
        ),
    ] = None,
    allow_mismatch: Annotated[
        bool, option(COMPARISON, say("Compare although the two are not of one workload."), "--allow-mismatch")
    ] = False,
    save_baseline: Annotated[
        str | None,
        option(
            COMPARISON, say("Keep the result under a name, unless a gate fails."), "--save-baseline", metavar="NAME"
        ),
    ] = None,
    baseline_dir: Annotated[
        Path | None,
        option(
            COMPARISON,
            say("Where baselines are kept (.npuperf/baselines beside the run directory)."),
            "--baseline-dir",
            metavar="DIR",
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        option(
            GATES,
            say(
                'Exit with 1 if this holds: "host_wait>20%", "step_time>+5%" ("verdict=host" has to hold); repeatable.'
            ),
            "--fail-on",
            metavar="EXPR",
        ),
    ] = None,
    gates: Annotated[
        list[str] | None,
        option(
            GATES,
            say("Gates from a YAML file, or a preset: ci-smoke, ci-strict; repeatable."),
            "--gates",
            metavar="FILE|PRESET",
        ),
    ] = None,
    undecided: Annotated[
        str | None,
        option(
            GATES,
            say("What a gate that cannot be judged does: pass or fail (without it: exit with 4)."),
            "--undecided",
            metavar="pass|fail",
            callback=_known_fate,
        ),
    ] = None,
    lock: Annotated[
        Path | None,
        option(GATES, say("Write what is counted per step to a new lock file."), "--lock", metavar="FILE"),
    ] = None,
    check: Annotated[
        list[str] | None,
        option(
            GATES, say("Exit with 1 if a count is not that of the lock file; repeatable."), "--check", metavar="FILE"
        ),
    ] = None,
    update_lock: Annotated[
        Path | None,
        option(GATES, say("Write what is counted now to a lock file that is there."), "--update-lock", metavar="FILE"),
    ] = None,
    expect_cores: Annotated[
        list[str] | None,
        option(
            GATES,
            say("Exit with 1 if a kernel uses more cores. WHERE: a stream, FIRST..LAST or NAME*; repeatable."),
            "--expect-cores",
            metavar="WHERE=CUBE,VECTOR",
        ),
    ] = None,
    full: Annotated[bool, option(OUTPUT, say("Show everything, not just one screen."), "--full")] = False,
    top: Annotated[
        int | None, option(OUTPUT, say("Maximum number of rows in every list."), "--top", metavar="N", min=1)
    ] = None,
    format_: FormatOption = "text",
    table: TableOption = None,
    output: FileOption = None,
    junit: Annotated[
        Path | None,
        option(OUTPUT, say("Write the gates and the verdict to a file as JUnit, too."), "--junit", metavar="FILE"),
    ] = None,
    html: HtmlOption = None,
    trace: Annotated[
        Path | None,
        option(
            OUTPUT,
            say("Write what was found as a trace that opens beside the original; .gz packs it."),
            "--trace",
            metavar="FILE",
        ),
    ] = None,
    trace_full: Annotated[
        Path | None,
        option(OUTPUT, say("Write the whole profile as a trace for Perfetto, too."), "--trace-full", metavar="FILE"),
    ] = None,
    force: Annotated[
        bool, option(OUTPUT, say("Let -o, --html, --trace, --junit and --lock replace a file that exists."), "--force")
    ] = False,
    lang: LangOption = None,
    debug: DebugOption = False,
) -> None:
    """Build the request, run, show, leave."""
    from npuperf.cli.output import Output, Pages, leave, pictures_of
    from npuperf.cli.progress import reading, tell
    from npuperf.model.result import Result
    from npuperf.show.formats import render

    path = run_chosen(ctx, "path", path)
    if clear_cache:
        _clear(path)
    out = Output(format_, output, force, full, top, table, html)
    out.check(Result)
    pages = Pages(html, trace, trace_full, force)
    pages.check({"-o": output, "--junit": junit, "--lock": lock})
    used = chosen(ctx)
    if used is not None:
        tell(effect(ctx, used))
    request = _request(ctx, cores, soc, plog, cores_of or (), expect_cores or ())
    with loading():
        from npuperf.against.run import run
        from npuperf.analyze.run import Observer
        from npuperf.base.memory import be_alone

    be_alone()

    def show(result: Result, analysis: Analysis, old: Analysis | None) -> None:
        pictures: Pictures = ((), ())
        if html is not None or format_ == "html":
            pictures = pictures_of(analysis, result), pictures_of(old, old.result) if old and old.result else ()
        out.show(result, pictures)
        pages.write(result, *pictures)
        pages.write_traces(analysis, result)

    recalled = tell_recalled if debug else lambda _: None
    observer = Observer(tell, tell_broken_off, recalled, loading, reading)
    leave(run(request, None, observer, show=show, render=render))


COMMAND: Final = analyze


def analyze_and_keep(path: Path, recording: Recording | None = None) -> Result:
    """Analyze as without any option, with a progress bar, and keep the document in the run directory, if it is one."""
    with loading():
        from npuperf.against.run import run
        from npuperf.analyze.request import AnalyzeRequest
        from npuperf.analyze.run import Observer
        from npuperf.base.memory import be_alone
    from npuperf.cli.progress import reading, tell
    from npuperf.show.formats import render

    be_alone()
    request = AnalyzeRequest(path=path, no_cache=True)
    return run(request, recording, Observer(tell, loading=loading, reading=reading), render=render)


def tell_recalled(path: Path) -> None:
    """Say that nothing was worked out."""
    from npuperf.base.files import shown
    from npuperf.cli.progress import tell

    tell(say("{path}: the result is from the cache (--no-cache analyzes anew)", path=shown(path)))


def _clear(path: Path) -> NoReturn:
    """Remove the entries about a path, say how much that was, and leave."""
    from npuperf.base.cache import clear
    from npuperf.base.files import shown
    from npuperf.base.messages import say_n
    from npuperf.cli.progress import tell

    told: list[Message] = []
    number, removed = clear(path, told)
    for message in told:
        tell(message)
    if number:
        tell(say_n("{path}: {n} cache entry removed ({size})", "{path}: {n} cache entries removed ({size})",
                   number, path=shown(path), size=size(removed)))  # fmt: skip
    else:
        tell(say("{path}: the cache has nothing of it", path=shown(path)))
    raise typer.Exit


def _request(
    ctx: typer.Context,
    cores: str | None,
    soc: str | None,
    plog: Path | None,
    cores_of: Sequence[str],
    expect_cores: Sequence[str],
) -> AnalyzeRequest:
    with loading():
        from npuperf.analyze.request import AnalyzeRequest
        from npuperf.record.request import rank_list

    from npuperf.base.files import files_below

    used = chosen(ctx)
    if plog is None and ctx.params["before"] is not None:
        usual = Path("~/ascend/log").expanduser()  # where CANN writes its logs unless told otherwise
        with suppress(InputError, OSError):  # what is not named is not asked for
            plog = usual if usual.is_dir() and files_below(usual, "plog-*.log", []) else None
    return requested(
        ctx,
        AnalyzeRequest,
        top=ctx.params["top"] or _KERNELS,
        ranks=rank_list(ctx.params["ranks"]) if ctx.params["ranks"] else (),
        cores=_cores(cores, soc),
        plog=plog,
        cores_of=_cores_of(cores_of),
        expect=_expected(expect_cores),
        check=tuple(map(Path, ctx.params["check"] or ())),
        rules=used.rules if used else (),
        thresholds=used.thresholds if used else {},
    )


def _expected(texts: Sequence[str]) -> tuple[Expectation, ...]:
    """Read limits that kernels must obey."""
    if not texts:
        return ()
    from npuperf.device.expect import parse_expectation

    return tuple(parse_expectation("--expect-cores", text) for text in texts)


def _cores_of(texts: Sequence[str]) -> dict[int, tuple[int, int]]:
    """Read limits of streams."""
    if not texts:
        return {}
    from npuperf.device.expect import parse_expectation

    found: dict[int, tuple[int, int]] = {}
    for text in texts:
        limit = parse_expectation("--cores-of", text)
        if limit.stream is None:
            hint = say("give its number: 5=8,16")
            what = say("--cores-of {text}: {where} is not a stream", text=repr(text), where=repr(limit.where))
            raise UsageError(what, hint=hint)
        if limit.stream in found:
            what = say("--cores-of {text}: stream {stream} already has a limit", text=repr(text), stream=limit.stream)
            raise UsageError(what, hint=say("give one for each stream"))
        found[limit.stream] = (limit.cube, limit.vector)
    return found


def _cores(cores: str | None, soc: str | None) -> Cores | None:
    """Turn --cores or --soc into core counts."""
    from npuperf.model.chip import Cores, cores_of_soc, known_socs

    if cores is not None:
        parts = cores.split(",")
        numbers = [int(p) if p.strip().isdecimal() and len(p.strip()) < 6 else -1 for p in parts]
        if len(numbers) != 2 or numbers[0] < 1 or numbers[1] < 0:
            hint = say("give cube,vector: --cores 24,48; vector is 0 on chips without vector cores")
            raise UsageError(say("--cores {cores}: not two numbers of cores", cores=repr(cores)), hint=hint)
        return Cores(numbers[0], numbers[1], say("--cores"))
    if soc is None:
        return None
    found = cores_of_soc(soc)
    if found is None:
        hint = say("known: {names}; or give --cores", names=series(known_socs()))
        raise UsageError(say("--soc {soc}: not in the SoC table", soc=repr(soc)), hint=hint)
    return found
