"""What the processes' own words mean: remarks on a recording, and why there is none."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from npuperf.cann import set_env_script
from npuperf.errors import ExitCode
from npuperf.profile.options import Options
from npuperf.profile.processes import ProcessStatus

#: States in which a process cannot have ended by itself.
_BUSY = ("warming up", "recording", "saving")


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is nothing to analyze, and what to do about it."""

    what: str
    hint: str | None = None
    exit_code: int = ExitCode.INPUT


@dataclass(frozen=True, slots=True)
class Overhead:
    """Median host time of a step inside and outside the window, ns, and the number of steps behind each."""

    inside_ns: int
    outside_ns: int
    inside: int
    outside: int

    @property
    def share(self) -> float:
        """Return how much longer a recorded step takes, as a fraction."""
        return self.inside_ns / self.outside_ns - 1


def overhead_of(processes: Sequence[ProcessStatus]) -> Overhead | None:
    """Compare steps in the first process that has both kinds. Of the steps before the window the later half counts."""
    for process in processes:
        times = process.step_ns
        outside = [*times.before[len(times.before) // 2 :], *times.after]
        if times.inside and outside:
            medians = int(statistics.median(times.inside)), int(statistics.median(outside))
            return Overhead(*medians, len(times.inside), len(outside))
    return None


def remarks(processes: Sequence[ProcessStatus], options: Options) -> list[str]:
    """Return what the user should know about a recording."""
    found = []
    recorded = [p for p in processes if p.folders]
    for p in processes:
        found += [f"{p.name}: {w}" for w in p.warnings]
        found += [f"{p.name}: torch_npu says: {line}" for line in _errors(p.said)]
        if p.stopped:
            found.append(f"{p.name}: recording stopped {p.stopped}")
        elif p.early and not p.warnings:
            found.append(f"{p.name}: the program ended at step {p.step}, inside the window: that step is incomplete")
        if p.state in _BUSY:  # killed, or crashed in C
            found.append(f"{p.name}: the process died while {p.state}: its data is incomplete")
        if p.engine == "cpu" and options.engine != "cpu":
            found.append(f"{p.name}: NO NPU ({p.why_cpu}): only the CPU was recorded; it says nothing about an NPU")
            ignored = [f"--{n.replace('_', '-')}" for n in options.given if n in _NPU_ONLY]
            found += [f"without an NPU these have no meaning: {', '.join(ignored)}"] if ignored else []
        if recorded and not p.folders and p.step and p.state in ("waiting", "waiting for the NPU", "failed"):
            found.append(f"{p.name} recorded nothing: {p.problem or p.state} at step {p.step}")
    world = max((p.world_size or 0 for p in processes), default=0)
    ranks = {p.rank for p in processes}
    local = {p.host for p in processes}
    if recorded and options.ranks is None and 0 < len(ranks) < world:
        missing = [str(r) for r in range(world) if r not in ranks]
        where = f" on {', '.join(sorted(local))}"
        found.append(f"ranks {', '.join(missing[:8])}{' …' if len(missing) > 8 else ''} did not report{where}")
    return list(dict.fromkeys(found))


_NPU_ONLY = ("level", "aic_metrics", "export", "l2_cache", "mstx", "op_attr", "op_args", "host_sys", "sys_io")


#: Exit statuses of programs that were told to end: 128 + SIGINT, SIGTERM, SIGHUP.
_INTERRUPTED = (130, 143, 129)


def why_nothing(
    processes: Sequence[ProcessStatus], options: Options, environment: Mapping[str, str], status: int
) -> Problem:
    """Explain a run that recorded nothing."""
    for p in processes:
        if p.problems:
            version = f" (torch_npu {p.torch_npu})" if p.torch_npu else ""
            return Problem(
                "; ".join(p.problems) + version, "the program was stopped where it imports torch_npu", ExitCode.USAGE
            )
    for p in processes:
        if p.import_error:
            hint = None
            if re.search(r"lib\w+\.so", p.import_error):
                hint = f"CANN is not set up in this shell: source {set_env_script(environment)}"
            return Problem(f"the program cannot import {p.import_error}", hint)
    if not processes and status in _INTERRUPTED:
        return Problem("interrupted before the program imported torch, so nothing was recorded")
    if not processes and status:
        return Problem("the program failed before it imported torch", "--python chooses another interpreter")
    if not processes:
        hint = (
            "for anything but PyTorch use --engine msprof; python -I, -E or -S, and scripts that set PYTHONPATH anew, "
            "keep npuperf out"
        )
        return Problem("no Python process of the program imported torch", hint)
    return _of_process(max(processes, key=lambda p: p.step), processes, options, status)


def _of_process(p: ProcessStatus, processes: Sequence[ProcessStatus], options: Options, status: int) -> Problem:
    first = options.wait + options.warmup
    if p.problem:
        return Problem(f"{p.name}: {p.problem}", "--engine cpu tries the rest without an NPU")
    if all(q.state == "left out" for q in processes if q.step):
        seen = ", ".join(str(q.rank or 0) for q in processes if q.state == "left out")
        if seen:
            return Problem(f"no process has one of the ranks asked for; there were: {seen}", "check --ranks")
    if p.state in _BUSY:
        return Problem(f"{p.name}: the process died while {p.state}, and nothing was saved")
    if p.state == "waiting for the NPU":
        return Problem(f"the program made {p.step} steps and never used an NPU", "--engine cpu records the CPU")
    if options.whole_run or (status and not p.step):
        no_device = not list(Path("/dev").glob("davinci[0-9]*")) and options.engine != "cpu"
        hint = "no NPU is visible here (/dev/davinci*): is it mapped into the container?" if no_device else None
        return Problem("the program ended before anything could be recorded", hint)
    if not p.step:
        unit = "optimizer.step()" if options.step_on == "optimizer" else "call of a module"
        hint = "--step-on forward counts module calls; --whole-run needs no steps; or call npuperf.step() in the loop"
        return Problem(f"no step was seen: the program made no {unit}", hint)
    fitting = max(0, p.step - options.warmup - options.active)
    what = f"the program made {p.step} steps; recording begins at step {first}"
    return Problem(what, f"--wait {fitting} records its last {options.active} steps")


def _errors(said: str) -> list[str]:
    """Return the error lines among a profiler's words."""
    return [line.split("]")[-1].strip(" :") for line in said.splitlines() if "[ERROR]" in line]
