"""A finished recording, for the person at the terminal."""

from __future__ import annotations

from npuperf.errors import ExitCode
from npuperf.profile.folder import RunFolder, size
from npuperf.profile.options import Options, e2e_arguments, torch_arguments
from npuperf.profile.processes import ProcessStatus
from npuperf.profile.proof import Proof
from npuperf.profile.run import Outcome
from npuperf.units import byte_text, duration

_SHOWN = 8


def plan_lines(options: Options, folder: RunFolder) -> list[str]:
    """Return what ``--dry-run`` shows below the command."""
    if options.engine == "msprof":
        return [f"folder: {folder.path}"]
    if options.whole_run:
        window = "the whole run"
    else:
        first = options.wait + options.warmup
        window = f"steps {first}–{first + options.active - 1} (counted from 0, by {_step_names(options.step_on)})"
        window += f", {options.repeat} times" if options.repeat > 1 else ""
    lines = [f"folder: {folder.path}", f"records: {window}"]
    if options.ranks is not None:
        lines.append(f"ranks: {', '.join(map(str, options.ranks))}")
    arguments = {"profileConfig": e2e_arguments(options)} if options.engine == "e2e" else torch_arguments(options)
    if options.engine == "cpu":
        del arguments["experimental"]
    for name, entries in arguments.items():
        lines += [f"{name}: {key}={value!r}" for key, value, _ in entries]
    return lines


def _step_names(step_on: str) -> str:
    return {"optimizer": "optimizer steps", "forward": "outermost module calls"}.get(step_on, f"{step_on} seconds")


def run_lines(outcome: Outcome, *, analyze: bool = False) -> list[str]:
    """Return what to say about a run: what was recorded, what it cost, what to mind, what is next."""
    lines = [*_recorded(outcome), *(f"warning: {w}" for w in outcome.warnings)]
    if outcome.problem is not None:
        lines.append(f"problem: {outcome.problem.what}")
        if outcome.problem.hint:
            lines.append(f"  next: {outcome.problem.hint}")
    refused = outcome.problem is not None and outcome.problem.exit_code == ExitCode.USAGE
    if outcome.program_status and not refused:
        lines.append(f"the program failed with exit status {outcome.program_status}")
    if outcome.data and outcome.problem is None and not analyze:
        lines += [f"next: npuperf analyze {path}" for path in outcome.data]
    return lines


def _recorded(outcome: Outcome) -> list[str]:
    """Say what is there, per device."""
    if not outcome.proofs:
        return []
    lines = [f"recorded {_engine(outcome)}: {byte_text(size(outcome.folder.raw))} in {outcome.folder.shown}"]
    good = [p for p in outcome.proofs if p.holds]
    lines += [f"  {_proof(p, outcome.processes)}" for p in good[:_SHOWN]]
    if len(good) > _SHOWN:
        lines.append(f"  … and {len(good) - _SHOWN} more devices")
    if outcome.overhead is not None:
        o = outcome.overhead
        inside, outside = duration(o.inside_ns), duration(o.outside_ns)
        lines.append(
            f"  a step took {inside} while recorded (median of {o.inside}) and {outside} otherwise "
            f"(median of {o.outside}): {100 * o.share:+.1f} %"
        )
    return lines


def _engine(outcome: Outcome) -> str:
    names = {"torch": "with torch_npu.profiler", "e2e": "with the E2E profiler", "cpu": "the CPU, with torch.profiler"}
    engine = next((p.engine for p in outcome.processes if p.folders), None)
    return names.get(engine or "", "and exported")


def _proof(proof: Proof, processes: tuple[ProcessStatus, ...]) -> str:
    process = next((p for p in processes if p.rank == proof.rank and p.folders), None)
    steps = process.recorded if process else ()
    who = f"rank {proof.rank} · device {proof.device}" if proof.rank is not None else f"device {proof.device}"
    if not proof.kernels:
        return f"{who if proof.device is not None else 'host'}: {proof.events} host events{_steps(steps)}"
    launched = f", {proof.launched / proof.kernels:.0%} with their launch"
    return f"{who}: {proof.kernels} kernels{launched}{_steps(steps)}"


def _steps(steps: tuple[int, ...]) -> str:
    if not steps:
        return ""
    if len(steps) == 1:
        return f", step {steps[0]}"
    if steps[-1] - steps[0] == len(steps) - 1:
        return f", steps {steps[0]}–{steps[-1]}"
    return f", {len(steps)} steps from {steps[0]} to {steps[-1]}"
