"""A finished recording, or a planned one, for the person at the terminal."""

from __future__ import annotations

import shlex

from npuperf.documents.recorded import ProcessStatus, Proof, Recorded, RecordingPlan, Window
from npuperf.messages import text
from npuperf.units import byte_text, duration

_SHOWN = 8


def plan_lines(plan: RecordingPlan) -> list[str]:
    """Return what ``--dry-run`` shows: the command, ready to paste, and how it would be recorded."""
    added = (f"{name}={shlex.quote(value)}" for name, value in sorted(plan.added.items()))
    lines = [" ".join([*added, shlex.join(plan.argv)]), f"folder: {plan.folder}"]
    if plan.engine == "msprof":
        return lines
    lines.append(f"records: {_window(plan.window) if plan.window else 'the whole run'}")
    if plan.ranks is not None:
        lines.append(f"ranks: {', '.join(map(str, plan.ranks))}")
    return [*lines, *(f"{s.of}: {s.name}={s.value!r}" for s in plan.settings)]


def _window(window: Window) -> str:
    times = f", {window.repeat} times" if window.repeat > 1 else ""
    return f"steps {window.first}–{window.last} (counted from 0, by {_step_names(window.step_on)}){times}"


def _step_names(step_on: str) -> str:
    return {"optimizer": "optimizer steps", "forward": "outermost module calls"}.get(step_on, f"{step_on} seconds")


def run_lines(document: Recorded, *, analyze: bool = False) -> list[str]:
    """Return what to say about a run: what was recorded, what it cost, what to mind, what is next."""
    lines = [*_recorded(document), *(f"warning: {text(w)}" for w in document.warnings)]
    if document.problem is not None:
        lines.append(f"problem: {text(document.problem.what)}")
        if document.problem.hint:
            lines.append(f"  next: {text(document.problem.hint)}")
    if document.program_status and not document.refused:
        lines.append(f"the program failed with exit status {document.program_status}")
    if document.data and document.problem is None and not analyze:
        lines += [f"next: npuperf analyze {path}" for path in document.data]
    return lines


def _recorded(document: Recorded) -> list[str]:
    """Say what is there, per device."""
    if not document.proofs:
        return []
    lines = [f"recorded {_engine(document)}: {byte_text(document.raw_bytes)} in {document.folder}"]
    good = [p for p in document.proofs if p.holds]
    lines += [f"  {_proof(p, document.processes)}" for p in good[:_SHOWN]]
    if len(good) > _SHOWN:
        lines.append(f"  … and {len(good) - _SHOWN} more devices")
    if document.overhead is not None:
        o = document.overhead
        inside, outside = duration(o.inside_ns), duration(o.outside_ns)
        lines.append(
            f"  a step took {inside} while recorded (median of {o.inside}) and {outside} otherwise "
            f"(median of {o.outside}): {100 * o.share:+.1f} %"
        )
    return lines


def _engine(document: Recorded) -> str:
    names = {"torch": "with torch_npu.profiler", "e2e": "with the E2E profiler", "cpu": "the CPU, with torch.profiler"}
    engine = next((p.engine for p in document.processes if p.folders), None)
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
