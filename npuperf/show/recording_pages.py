"""The pages of the documents of ``profile``."""

from __future__ import annotations

from collections.abc import Iterator

from npuperf.base.escape import for_shell
from npuperf.base.files import shown
from npuperf.base.messages import Message, chain, ns, say, say_n, series, share, size
from npuperf.model.recorded import ProcessStatus, Proof, Recorded, RecordingPlan, Window
from npuperf.show.formats import View
from npuperf.show.page import Page, problem_lines, warnings
from npuperf.show.words import Line

_SHOWN = 8


def recorded(document: Recorded, view: View) -> Page:
    """Say what was recorded, what it cost, what to mind, what is next."""
    lines = [Line(line) for line in _recorded(document, view)]
    lines += [*warnings(document.warnings), *problem_lines(document)]
    if document.stopped:
        lines.append(Line(say("the program was ended after the recorded steps, as --stop-after asks")))
    elif document.program_status and not document.refused:
        failed = say("the program failed with exit status {status}", status=document.program_status)
        lines.append(Line(failed, "bad"))
    return Page(lines=lines)


def _recorded(document: Recorded, view: View) -> Iterator[Message]:
    """Say what is there, per device, and what recording cost."""
    if not document.proofs:
        return
    names = {
        "torch": say("with torch_npu.profiler"),
        "e2e": say("with the E2E profiler"),
        "cpu": say("the CPU, with torch.profiler"),
    }
    engine = next((p.engine for p in document.processes if p.folders), None)
    whole = all(export.done for export in document.exports)
    how = names.get(engine or "", say("and exported") if whole else say("but not fully exported"))
    amount, folder = size(document.raw_bytes), shown(document.folder)
    yield say("recorded {how}: {size} in {folder}", how=how, size=amount, folder=folder)
    good = [proof for proof in document.proofs if proof.holds]
    shown_ = good[: view.top or (None if view.full else _SHOWN)]
    for proof in shown_:
        yield say("  {proof}", proof=_proof(proof, document.processes))
    if len(shown_) < len(good):
        yield say_n("  … and {n} more device", "  … and {n} more devices", len(good) - len(shown_))
    cost = document.overhead
    if cost:
        yield say(
            "  a step took {inside} while recorded (median of {n}) and {outside} otherwise (median of {m}): {change}",
            inside=ns(cost.inside_ns), outside=ns(cost.outside_ns), n=cost.inside, m=cost.outside,
            change=f"{100 * cost.share:+.1f} %",
        )  # fmt: skip


def _proof(proof: Proof, processes: tuple[ProcessStatus, ...]) -> Message:
    process = next((p for p in processes if p.rank == proof.rank and p.folders), None)
    who = say("host") if proof.device is None else say("device {device}", device=proof.device)
    if proof.rank is not None:
        who = say("rank {rank} · device {device}", rank=proof.rank, device=proof.device)
    recorded = process.recorded if process else ()
    steps = None
    if len(recorded) == 1:
        steps = say("step {step}", step=recorded[0])
    elif recorded and recorded[-1] - recorded[0] == len(recorded) - 1:
        steps = say("steps {first}–{last}", first=recorded[0], last=recorded[-1])
    elif recorded:
        steps = say("{count} steps from {first} to {last}", count=len(recorded), first=recorded[0], last=recorded[-1])
    if not proof.kernels:
        found = say_n("{n} host event", "{n} host events", proof.events)
    else:
        kernels = say_n("{n} kernel", "{n} kernels", proof.kernels)
        found = chain(kernels, say("{share} with their launch", share=share(proof.launched / proof.kernels)), by=", ")
    return say("{who}: {found}", who=who, found=chain(found, steps, by=", "))


def plan(document: RecordingPlan, view: View) -> Page:
    """Show what would be started, and how it would be recorded."""
    command = " ".join([*(f"{name}={for_shell(value)}" for name, value in document.added.items()),
                        for_shell(*document.argv)])  # fmt: skip
    lines = [Line(command, "code"), Line(say("folder: {folder}", folder=document.folder), "code")]
    if document.engine != "msprof":
        lines.append(Line(say("records: {window}", window=_window(document.window))))
        if document.ranks is not None:
            lines.append(Line(say("ranks: {ranks}", ranks=series(document.ranks)), "code"))
    lines += [Line(f"{s.of}: {s.name}={s.value!r}", "code") for s in document.settings]
    return Page(lines=[*lines, *problem_lines(document)], notes=warnings(document.cautions))


def _window(window: Window | None) -> Message:
    if window is None:
        return say("the whole run")
    names = {"optimizer": say("optimizer steps"), "forward": say("outermost module calls")}
    seconds = say("{seconds} seconds", seconds=window.step_on)
    steps = say(
        "steps {first}–{last} (counted from 0, by {step_on})",
        first=window.first, last=window.last, step_on=names.get(window.step_on, seconds),
    )  # fmt: skip
    return chain(steps, say("{n} times", n=window.repeat) if window.repeat > 1 else None, by=", ")
