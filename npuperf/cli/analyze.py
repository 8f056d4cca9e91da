"""``npuperf analyze``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from npuperf.base.declared import HOW, BareWords, Typed
from npuperf.base.errors import InputError, UsageError
from npuperf.base.escape import for_shell
from npuperf.base.messages import Message, say, series, size
from npuperf.cli.command_line import Shared, Verb, given, known_format, request_of
from npuperf.cli.recipes import chosen, effect
from npuperf.cli.streams import reading, tell

if TYPE_CHECKING:
    from npuperf.against.run import Show
    from npuperf.analyze.request import AnalyzeRequest
    from npuperf.cli.output import Output
    from npuperf.device.expect import Expectation
    from npuperf.model.chip import Cores
    from npuperf.model.result import Result
    from npuperf.readers.recording import Recording

# -- Which run a command works on when none is named, and what is to be said of a run before it is read.


def run_chosen(ctx: typer.Context, name: str) -> Path:
    """Return the run that parameter ``name`` stands for: as given, else the latest, named where there are others."""
    path: Path = ctx.params[name]
    if given(ctx, name):
        return path
    from npuperf.record.folder import failed_since, latest_run

    latest = latest_run(path)
    if (failed := failed_since(latest)) is not None:
        tell(say("{failed} recorded nothing: using {run}, the latest run before it",
                 failed=str(failed), run=str(latest)))  # fmt: skip
        ctx.params[name] = latest
    elif latest != path:
        tell(say("using {run}, the latest run", run=str(latest)))
        ctx.params[name] = latest
    return latest


def _compared(ctx: typer.Context) -> None:
    """Take two paths for an older run and a newer one, which is what people type who want to compare them."""
    old, newer = ctx.params["path"], ctx.params["newer"]
    if not newer:
        return
    if len(newer) > 1 or ctx.params["baseline"]:
        what = say("analyze OLD NEW compares two runs, and this names more of them")
        raise UsageError(
            what, hint=say("several runs of a side: npuperf analyze NEW --again NEW --baseline OLD --baseline OLD")
        )
    new = Path(newer[0])
    side_by_side = old.absolute().parent == new.absolute().parent
    ranks = [_only_rank(path) for path in (old, new) if side_by_side]
    if ranks and None not in ranks and ranks[0] != ranks[1]:
        what = say("ranks {first} and {second} of one folder: they are parts of a run, and no older and newer one",
                   first=ranks[0], second=ranks[1])  # fmt: skip
        hint = say("npuperf analyze {folder} --ranks {first},{second}; to compare them all the same: "
                   "npuperf analyze NEW --baseline OLD",
                   folder=for_shell(str(old.absolute().parent)), first=ranks[0], second=ranks[1])  # fmt: skip
        raise UsageError(what, hint=hint)
    tell(say("comparing: {new} is the new one, {old} the baseline", new=str(new), old=str(old)))
    ctx.params.update(path=new, baseline=[str(old)])


def _only_rank(path: Path) -> int | None:
    """Return the rank that a path is a recording of, where it is of one alone."""
    from npuperf.readers.find import find

    with suppress(InputError):
        sources = find(path)[0]
        return sources[0].rank if len(sources) == 1 else None
    return None


def _tell_broken_off(path: Path) -> None:
    """Say of a run directory that was left in the middle of something what may be missing in it.

    Raises InputError where there is nothing in it yet.
    """
    from npuperf.base.files import MANIFEST, is_file

    if not is_file(path / MANIFEST):
        return
    from npuperf.record.folder import RunFolder, broken_off, check_begun

    check_begun(RunFolder(path))
    for warning in broken_off(RunFolder(path)):
        tell(say("warning: {warning}", warning=warning))


_HELP: Final = say(
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
  npuperf analyze ./earlier ./result
  npuperf analyze ./result --baseline ./earlier --format markdown
  npuperf analyze ./result --again ./once_more --baseline main
  npuperf analyze ./result --lock perf.lock
  npuperf analyze ./result --check perf.lock --junit gates.xml
  npuperf analyze samples/transformer_ascend_pt --html report.html
  npuperf analyze ./result --trace overlay.json --trace-full whole.json.gz
"""
)


class Alone:
    """What is asked of no analysis, or in another way."""

    newer: Annotated[tuple[str, ...], BareWords("NEW")] = ()
    clear_cache: Annotated[
        bool,
        Typed(HOW, say("Remove what was kept of earlier analyses of PATH, and leave."), "--clear-cache", last=True),
    ] = False


def _options() -> list[type]:
    from npuperf.analyze.request import AnalyzeRequest

    return [AnalyzeRequest, Alone, Shared]


def _known_fate(text: str | None) -> str | None:
    """Return what becomes of undecided gates. Raises UsageError for anything else."""
    if text not in (None, "pass", "fail"):
        what = say("--undecided {text}: neither pass nor fail", text=repr(text))
        raise UsageError(what, hint=say("without it, a gate that cannot be judged ends with status 4"))
    return text


def _known_rule(name: str | None) -> str | None:
    """Return the name of a rule. Raises UsageError, with the nearest ones, for what is none."""
    if name is None:
        return None
    from npuperf.advise import rule_names
    from npuperf.show.formats import unknown

    if name not in (known := rule_names()):
        raise unknown(say("--explain {name}: no such rule", name=repr(name)), name, known)
    return name


def _explained(rule: str, ctx: typer.Context, out: Output) -> Show:
    """Return what shows all about a rule in the place of the report. Raises UsageError for what asks for the latter."""
    from npuperf.advise import explain
    from npuperf.model.gist import Explanation

    named = (
        (f"--{name.replace('_', '-')}", ctx.params[name])
        for name in ("full", "brief", "table", "html", "trace", "trace_full")
    )
    if asked := [option for option, value in named if value]:
        what = say("--explain and {options}: the one shows a rule, the other the run", options=series(asked))
        raise UsageError(what, hint=say("ask twice: the answer is the same"))
    out.check(Explanation)
    return lambda result, _new, _old: out.show(explain(rule, result))


def _kept(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of baselines that a shell may complete."""
    from npuperf.against.baselines import BaselineStore, usual_folder

    folder = ctx.params.get("baseline_dir") or usual_folder(Path(ctx.params.get("path") or "result"))
    return [name for name in BaselineStore(Path(folder)).names() if name.startswith(incomplete)]


def _analyze(ctx: typer.Context) -> None:
    """Build the request, run, show, leave."""
    from npuperf.cli.output import Output, leave
    from npuperf.model.result import Result

    _compared(ctx)
    path = run_chosen(ctx, "path")
    if ctx.params["clear_cache"]:
        _clear(path)
    out = Output.of(ctx.params)
    out.check(Result, {f"--{name}": ctx.params[name] for name in ("junit", "lock", "pack")})
    if not given(ctx, "path") and not path.exists():
        what = say("{path}: no run is there, and none was named", path=str(path))
        raise InputError(
            what, hint=say("npuperf profile train.py records one, and npuperf analyze PATH takes any other")
        )
    used = chosen(ctx)
    if used is not None:
        tell(effect(ctx, used))
    rule = ctx.params["explain"]
    show = out.show if rule is None else _explained(rule, ctx, out)
    leave(analyzed(lambda: _request(ctx), show=show, debug=ctx.params["debug"]))


VERB: Final = Verb(
    name="analyze",
    summary=say("Show where the time goes, what limits it, and what to look at first."),
    help=_HELP,
    run=_analyze,
    options=_options,
    more={
        "baseline": {"autocompletion": _kept},
        "undecided": {"callback": _known_fate},
        "format": {"callback": known_format},
        "explain": {"callback": _known_rule},
    },
)


def analyzed(
    request: Callable[[], AnalyzeRequest],
    recording: Recording | None = None,
    *,
    show: Show,
    debug: bool = False,
) -> Result:
    """Analyze, with a progress bar, and keep what is asked for, and the document in the run directory, if it is one.

    ``request`` is made while modules are loaded.
    """
    from npuperf.base.files import shown
    from npuperf.base.loading import loading

    with loading():
        asked = request()
        from npuperf.against.run import run
        from npuperf.analyze.run import Observer
        from npuperf.base.memory import be_alone
    from npuperf.show.formats import render

    def recalled(path: Path) -> None:
        if debug:
            tell(say("{path}: the result is from the cache (--no-cache analyzes anew)", path=shown(path)))

    be_alone()
    return run(asked, recording, Observer(tell, _tell_broken_off, recalled, loading, reading), show=show, render=render)


def _clear(path: Path) -> NoReturn:
    """Remove the entries about a path, say how much that was, and leave."""
    from npuperf.base.cache import clear
    from npuperf.base.files import shown
    from npuperf.base.messages import say_n

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


def _request(ctx: typer.Context) -> AnalyzeRequest:
    """Make the request of what was typed, and of what a recipe says."""
    from npuperf.analyze.request import AnalyzeRequest
    from npuperf.base.files import files_below
    from npuperf.record.request import rank_list

    def logs(plog: Path | None) -> Path | None:
        if plog is None and ctx.params["before"] is not None:
            usual = Path("~/ascend/log").expanduser()  # where CANN writes its logs unless told otherwise
            with suppress(InputError, OSError):  # what is not named is not asked for
                return usual if usual.is_dir() and files_below(usual, "plog-*.log", []) else None
        return plog

    used = chosen(ctx)
    return request_of(
        ctx,
        AnalyzeRequest,
        {
            "ranks": lambda ranks: rank_list(ranks) if ranks else None,
            "cores": lambda cores: _cores(cores, ctx.params["soc"]),
            "plog": logs,
            "cores_of": _cores_of,
            "expect": _expected,
        },
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
