"""What the processes' own words mean: remarks on a recording, and why there is none."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from npuperf.cann import set_env_script
from npuperf.documents.document import Problem
from npuperf.documents.recorded import Overhead, ProcessStatus
from npuperf.errors import ExitCode
from npuperf.messages import Message, chain, say, series
from npuperf.profile.processes import BUSY, state_of
from npuperf.profile.request import ProfileRequest, flag

#: Options that have no meaning where only the CPU is recorded.
_NPU_ONLY: Final = ("level", "aic_metrics", "export", "l2_cache", "mstx", "op_attr", "op_args", "host_sys", "sys_io")
#: Exit statuses of programs that were told to end: 128 + SIGINT, SIGTERM, SIGHUP.
_INTERRUPTED: Final = (130, 143, 129)
#: States of a process that counts steps and records none.
_IDLE: Final = ("waiting", "waiting for the NPU", "failed")
#: Ranks named before "…".
_RANKS_NAMED: Final = 8


def overhead_of(processes: Sequence[ProcessStatus]) -> Overhead | None:
    """Compare steps in the first process that has both kinds. Of the steps before the window the later half counts."""
    for process in processes:
        times = process.step_ns
        outside = [*times.before[len(times.before) // 2 :], *times.after]
        if times.inside and outside:
            return Overhead(
                inside_ns=int(statistics.median(times.inside)),
                outside_ns=int(statistics.median(outside)),
                inside=len(times.inside),
                outside=len(outside),
            )
    return None


def remarks(processes: Sequence[ProcessStatus], request: ProfileRequest) -> list[Message]:
    """Return what the user should know about a recording."""
    recorded = any(p.folders for p in processes)
    found = [remark for p in processes for remark in (*_of_process(p), *_of_engine(p, request))]
    if recorded:
        idle = [p for p in processes if not p.folders and p.step and p.state in _IDLE]
        found += [say("{process} recorded nothing: {why} at step {step}",
                      process=p.name, why=p.problem or state_of(p), step=p.step) for p in idle]  # fmt: skip
        found += _missing_ranks(processes, request)
    return list(dict.fromkeys(found))


def _of_process(p: ProcessStatus) -> Iterator[Message]:
    """Say how the recording went in a process."""
    for warning in p.warnings:
        yield say("{process}: {warning}", process=p.name, warning=warning)
    for line in p.said.splitlines():
        if "[ERROR]" in line:
            yield say("{process}: torch_npu says: {words}", process=p.name, words=line.split("]")[-1].strip(" :"))
    if p.early and p.stopped is None:
        yield say("{process}: the program ended at step {step}, during recording: that step is incomplete",
                  process=p.name, step=p.step)  # fmt: skip
    if p.state in BUSY:  # killed, or crashed in C
        yield say("{process}: the process died while {state}: its data is incomplete",
                  process=p.name, state=state_of(p))  # fmt: skip


def _of_engine(p: ProcessStatus, request: ProfileRequest) -> Iterator[Message]:
    """Say it loudly where the CPU was recorded in place of an NPU."""
    if p.engine != "cpu" or request.engine == "cpu":
        return
    yield say("{process}: NO NPU ({why}): only the CPU was recorded, which does not show how the "
"program runs on an NPU",
              process=p.name, why=p.why_cpu)  # fmt: skip
    ignored = [flag(name) for name in request.given if name in _NPU_ONLY]
    if ignored:
        yield say("without an NPU these options have no effect: {options}", options=series(ignored))


def _missing_ranks(processes: Sequence[ProcessStatus], request: ProfileRequest) -> list[Message]:
    """Name the ranks that did not report, where all of them should have."""
    world = max((p.world_size or 0 for p in processes), default=0)
    ranks = {p.rank for p in processes}
    if request.ranks is not None or not 0 < len(ranks) < world:
        return []
    missing = [str(r) for r in range(world) if r not in ranks]
    named = [*missing[:_RANKS_NAMED], *(["…"] if len(missing) > _RANKS_NAMED else [])]
    hosts = series(sorted({p.host for p in processes}))
    return [say("ranks {ranks} did not report; hosts that reported: {hosts}", ranks=series(named), hosts=hosts)]


def why_nothing(
    processes: Sequence[ProcessStatus], request: ProfileRequest, environment: Mapping[str, str], status: int
) -> Problem:
    """Explain a run that recorded nothing."""
    refused = next((p for p in processes if p.problems), None)
    if refused is not None:
        version = say("torch_npu {version}", version=refused.torch_npu) if refused.torch_npu else None
        return Problem(
            what=chain(*refused.problems, version),
            hint=say("the program was stopped when it imported torch_npu"),
            exit_code=ExitCode.USAGE,
        )
    unimported = next((p.import_error for p in processes if p.import_error), None)
    if unimported is not None:
        hint = None
        if re.search(r"lib\w+\.so", unimported):
            hint = say("CANN is not set up in this shell: source {script}", script=set_env_script(environment))
        return Problem(what=say("the program cannot import {error}", error=unimported), hint=hint)
    if not processes:
        return _without_torch(request, status)
    return _without_window(max(processes, key=lambda p: p.step), processes, request, status)


def _without_torch(request: ProfileRequest, status: int) -> Problem:
    if status in _INTERRUPTED:
        return Problem(what=say("interrupted before the program imported torch, so nothing was recorded"))
    if status:
        hint = _misplaced(request) or say("--python chooses another interpreter")
        return Problem(what=say("the program failed before it imported torch"), hint=hint)
    return Problem(
        what=say("no Python process of the program imported torch"),
        hint=say(
            "for anything but PyTorch use --engine msprof; npuperf cannot reach into python -I, -E or "
            "-S, or into scripts that reset PYTHONPATH"
        ),
    )


def _without_window(
    p: ProcessStatus, processes: Sequence[ProcessStatus], request: ProfileRequest, status: int
) -> Problem:
    """Explain it by the process that came furthest."""
    left_out = [q for q in processes if q.state == "left out"]
    if p.problem:
        what = say("{process}: {problem}", process=p.name, problem=p.problem)
        return Problem(what=what, hint=say("--engine cpu tests everything else without an NPU"))
    if left_out and all(q.state == "left out" for q in processes if q.step):
        seen = series(q.rank or 0 for q in left_out)
        what = say("no process has one of the requested ranks; there were: {ranks}", ranks=seen)
        return Problem(what=what, hint=say("check --ranks"))
    if p.state in BUSY:
        what = say("{process}: the process died while {state}, and nothing was saved",
                   process=p.name, state=state_of(p))  # fmt: skip
        return Problem(what=what)
    if p.state == "waiting for the NPU":
        what = say("the program made {steps} steps and never used an NPU", steps=p.step)
        return Problem(what=what, hint=say("--engine cpu records the CPU"))
    if status and not p.step and status not in _INTERRUPTED:
        what = say("the program failed before its first step, so nothing was recorded")
        return Problem(what=what, hint=_misplaced(request))
    if request.whole_run or (status and not p.step):
        return _too_short(request)
    return _too_few_steps(p, request) if p.step else _without_steps(request)


def _misplaced(request: ProfileRequest) -> Message | None:
    """Name an option that a program got which does not know it, as it may be one of ours."""
    ours = {flag(name) for name in ProfileRequest.__struct_fields__}
    option = next((word for text in request.command[1:] if (word := text.partition("=")[0]) in ours), None)
    if option is None:
        return None
    return say("{option} was given to the program; options of npuperf come before it", option=option)


def _too_short(request: ProfileRequest) -> Problem:
    no_device = not list(Path("/dev").glob("davinci[0-9]*")) and request.engine != "cpu"
    hint = say("no NPU is visible here (/dev/davinci*): is it mapped into the container?") if no_device else None
    return Problem(what=say("the program ended before anything could be recorded"), hint=hint)


def _without_steps(request: ProfileRequest) -> Problem:
    what = say("no step was seen: the program never called a module")
    if request.step_on == "optimizer":
        what = say("no step was seen: the program never called optimizer.step(), or only within compiled functions")
    hint = say("--step-on forward counts module calls; --whole-run needs no steps; or call npuperf.step() in the loop")
    return Problem(what=what, hint=hint)


def _too_few_steps(p: ProcessStatus, request: ProfileRequest) -> Problem:
    fitting = max(0, p.step - request.warmup - request.active)
    return Problem(
        what=say("the program made {steps} steps; recording begins at step {first}",
                 steps=p.step, first=request.first_recorded),
        hint=say("--wait {wait} records its last {active} steps", wait=fitting, active=request.active),
    )  # fmt: skip
