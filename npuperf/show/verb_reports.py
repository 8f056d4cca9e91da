"""The reports of the documents of ``tune`` and ``profile``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from npuperf.base.escape import for_shell
from npuperf.base.files import shown
from npuperf.base.messages import NOTHING, Message, chain, ns, number, say, say_n, series, share, size
from npuperf.base.units import NS_PER_S, NS_PER_US
from npuperf.model import tuning as documents
from npuperf.model.recorded import WAYS, ProcessStatus, Proof, Recorded, RecordingPlan, Window
from npuperf.show import comparison_text as compared
from npuperf.show.formats import View
from npuperf.show.sheet import Sheet, common, gate_line, problem_lines, sheet_of, warnings
from npuperf.show.tables import Column, Table, each, fill, filled
from npuperf.show.words import OUTCOME, Line, at_most

# -- The tables of the documents of ``tune``, one line per column.


def _us(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / NS_PER_US


# fmt: off
_NAME: Final = Column("name", say("name"), weight=0)
#: Those first that save most. AOE's own figure is before/after − 1, which reads as a share of time and is none.
ENTRIES: Final = Table("entries", say("what was tuned"), lambda tuning: ((entry,) for entry in sorted(
    tuning.entries, key=lambda e: (e.before_us or 0) - (e.after_us or 0), reverse=True)), (
    _NAME,
    Column("change", say("change"), "word", weight=0),
    Column("before_us", say("before µs"), "plain"),
    Column("after_us", say("after µs"), "plain"),
    Column("speedup", say("speed-up"), "plain"),
    Column("time_saved_pct", say("saved %"), "plain"),
    Column("strategy", say("strategy")),
    Column("types", say("types")),
    Column("reported_improvement_pct", say("AOE's figure %"), "plain", weight=2),
    Column("kind", say("kind"), "word", weight=2),
    Column("task", say("task"), weight=2),
    Column("repo_key", say("repo key"), weight=2),
), usual=True)
TASKS: Final = Table("tasks", say("what AOE was given"), each("tasks"), (
    _NAME,
    Column("status", say("status"), "word", weight=0),
    Column("tuning_time_s", say("seconds"), "plain"),
))
SAVINGS: Final = Table("savings", say("savings per step of the profile"), each("savings"), (
    _NAME,
    Column("calls_per_step", say("calls per step"), "plain"),
    Column("felt_per_step", say("calls in device-bound time"), "plain"),
    Column("least_ns", say("saves, min"), "us"),
    Column("most_ns", say("saves, max"), "us"),
    Column("reason", say("note"), "message"),
))
VERIFIED: Final = Table("verified", say("without and with the tuned knowledge base"), each("verification.rows"), (
    Column("name", say("operator"), "word", lambda c: "step" if c.kind == "step" else c.name, 0),
    Column("verdict", say("verdict"), "word", weight=0),
    Column("count", say("calls"), "count"),
    Column("before_ns", say("before"), "us", "old_ns"),
    Column("after_ns", say("after"), "us", "new_ns"),
    Column("noise_ns", say("noise"), "us"),
    Column("predicted_least_ns", say("predicted per step, min"), "us", "expected_ns.0"),
    Column("predicted_most_ns", say("predicted per step, max"), "us", "expected_ns.1"),
))
EXPLAINED: Final = replace(compared.NAMED["waterfall"], rows=each("verification.waterfall"))
SET_UP: Final = replace(compared.NAMED["parity"], rows=each("verification.parity"))
CHECKS: Final = Table("checks", say("conditions for tuning"), each("checks"), (
    _NAME,
    Column("status", say("status"), "word", weight=0),
    Column("found", say("found"), "message"),
    Column("required", say("required"), "message"),
))
OPERATORS: Final = Table("operators", say("operators of the profile, per step"), each("operators"), (
    Column("type", say("operator"), weight=0),
    Column("calls", say("calls"), "plain"),
    Column("time_ns", say("ms"), "duration", weight=0),
    Column("share", say("% of step"), "share"),
    Column("most_ns", say("saves at most, ms"), "duration", weight=0),
    Column("tunable", say("to be tuned"), "message", weight=0, get=lambda c: c.reason or (
        say("yes") if c.chosen else say("could be, not chosen"))),
))
RESULTS: Final = Table("results", say("what the runs tuned differently"), each("comparison.rows"), (
    _NAME,
    Column("strategy", say("strategy")),
    Column("change", say("change"), "word"),
    Column("before_us", say("first µs"), "plain", lambda c: _us(c.old_ns)),
    Column("after_us", say("second µs"), "plain", lambda c: _us(c.new_ns)),
    Column("speedup", say("speed-up"), "plain", lambda c: c.old_ns / c.new_ns if c.old_ns and c.new_ns else None),
), usual=True)
BANK: Final = Table("bank", say("what changed in the knowledge base"), each("bank.changes"), (
    Column("op", say("operator"), weight=0),
    Column("change", say("change"), "word", weight=0),
    Column("soc", say("SoC")),
    Column("cores", say("cores"), "id"),
    Column("info", say("case")),
    Column("fields", say("changed fields"),
           get=lambda c: ", ".join(f"{f.field} {f.before or '–'} → {f.after or '–'}" for f in c.fields) or None),
))

TUNING: Final = (VERIFIED, ENTRIES, TASKS, SAVINGS, BANK, CHECKS, EXPLAINED, SET_UP)
BANK_CHANGES: Final = (BANK,)
RESULT_CHANGES: Final = (RESULTS,)
PLAN: Final = (OPERATORS, CHECKS)


_STATUS: Final[dict[documents.Status, tuple[Message, str]]] = {
    "successful": (say("SUCCESSFUL"), "good"),
    "failed": (say("FAILED"), "bad"),
    "incomplete": (say("INCOMPLETE"), "warning"),
    "nothing_to_tune": (say("NOTHING TO TUNE"), "bold"),
}
_MODES: Final[dict[documents.Mode, Message]] = {
    "op": say("operator tuning"),
    "subgraph": say("subgraph tuning"),
    "mixed": say("subgraph and operator tuning"),
}


def tuning(document: documents.Tuning, view: View) -> Sheet:
    """Say how a tuning ended, what was tuned, what it is worth, and what to mind."""
    word, style = _STATUS[document.status]
    lines = [Line(_summary(document), style, word)]
    if document.saved_ns:
        (least, most), step = document.saved_ns, document.step_ns
        saved = at_most(least, most)
        worth = say("predicted saving: {saved} per step, in device-bound time only", saved=saved)
        if step:
            part = share((least or most) / step, most / step)
            worth = say("predicted saving: {saved} per step ({share} of {step}), in device-bound time only",
                        saved=saved, share=part, step=ns(step))  # fmt: skip
        lines.append(Line(worth))
    elif document.savings:
        lines.append(Line(say("predicted saving: cannot tell: no operator that was tuned is in the profile (another "
                              "step, or compiled under other names)")))  # fmt: skip
    lines += map(gate_line, document.gates)
    found, bank, use = document.verification, document.bank, document.use
    if found:
        lines += [compared.verdict_line(found), *compared.step_lines(found)]
    if bank:
        lines.append(Line(_bank_summary(bank), label=say("knowledge base {path}", path=shown(bank.after))))
    if use:  # how programs find the bank, and what they must build anew once
        place = shown(use.place)
        finds = say("{export}, for every program that is to find it; it lies in {place}",
                    export=use.export, place=place)  # fmt: skip
        if use.export is None:
            finds = say("programs of this user find it in {place} by themselves, others with {variable}",
                        place=place, variable="TUNE_BANK_PATH")  # fmt: skip
        lines += [Line(finds, label=say("to use it")), Line(use.refresh, label=say("once"))]
    if document.failed_operators:
        lines.append(Line(say("failed: {operators}", operators=series(document.failed_operators)), "bad"))
    several = (TASKS,) if len(document.tasks) > 1 else ()
    tables = [fill(table, document, view.top) for table in (VERIFIED, *several, ENTRIES, SAVINGS, BANK)]
    sections = []
    if found:
        if rows := compared.falls(found, compared.PARTS if view.top is None else view.top):
            keys = ("part", "what", "delta_ns", "count_ns", "speed_ns", "calls", "old_ns", "new_ns")
            waterfall = compared.FALLS.only(*keys).titled(compared.falls_title(found))
            tables.insert(1, filled(waterfall, rows))
        if found.samples != (0, 0):
            set_ups = compared.parity_lines(found, None if view.full else compared.DIFFERENCES)
            sections.append((say("set-up"), list(set_ups)))
    minds = (part.warnings for part in (document, bank, found) if part)
    notes = warnings([warning for several in minds for warning in several])
    title = shown(document.folder) if document.folder else ", ".join(map(shown, document.files))
    return sheet_of(say("{title}", title=title), lines, tables, sections, [*notes, *problem_lines(document)])


def _summary(document: documents.Tuning) -> Message:
    count, failed = document.summary, document.failed_operators
    counts = None if count is None else say(
        "{added} added, {updated} updated, {reserved} reserved, {unsatisfied} unsatisfied of {total}",
        added=count.added, updated=count.updated, reserved=count.reserved, unsatisfied=count.unsatisfied,
        total=count.total,
    )  # fmt: skip
    return chain(
        _MODES[document.mode] if document.mode else None,
        say("{seconds} s", seconds=number(document.tuning_time_s)) if document.tuning_time_s is not None else None,
        say("recovered from a damaged file") if document.recovered else None,
        counts,
        say_n("{n} operator failed", "{n} operators failed", len(failed)) if failed else None,
        *(say("task {name}", name=task.name) for task in document.tasks[:1] if task.name and len(document.tasks) == 1),
    )


def _bank_summary(bank: documents.BankDiff) -> Message:
    kinds = Counter(change.change for change in bank.changes)
    return say(
        "{before} → {after} records: {added} added, {changed} changed, {removed} removed, {unchanged} unchanged",
        before=bank.records_before, after=bank.records_after, added=kinds["added"], changed=kinds["changed"],
        removed=kinds["removed"], unchanged=bank.unchanged,
    )  # fmt: skip


def bank_changes(document: documents.BankChanges, view: View) -> Sheet:
    """Say what differs between two banks."""
    bank = document.bank
    title = say("{before} → {after}", before=bank.before, after=bank.after)
    lines = [Line(_bank_summary(bank)), *common(document)]
    return sheet_of(title, lines, [fill(BANK, document, view.top)], notes=warnings(bank.warnings))


def result_changes(document: documents.ResultChanges, view: View) -> Sheet:
    """Say what differs between the results of two runs."""
    found = document.comparison
    title = say("{before} → {after}", before=found.old, after=found.new)
    kinds = Counter(row.change for row in found.rows)
    counts = say(
        "{added} added, {changed} changed, {removed} removed, {unchanged} tuned to the same time",
        added=kinds["added"], changed=kinds["changed"], removed=kinds["removed"], unchanged=found.unchanged,
    )  # fmt: skip
    tables = [fill(RESULTS, document, view.top)]
    verdict = Line(found.reason or NOTHING, "bold", OUTCOME[found.verdict])
    return sheet_of(title, [Line(counts), verdict, *common(document)], tables, notes=warnings(found.warnings))


#: Operators that a dry run shows.
_CANDIDATES: Final = 10


def tune_plan(document: documents.TunePlan, view: View) -> Sheet:
    """Show what would be run, as a script whose comments say the rest, and what is to be won; faults stand first."""
    comments = [
        say("# results and logs: {folder}", folder=document.folder),
        say("# knowledge base: {place}", place=document.place),
    ]
    if document.ops:
        operators = " ".join(document.ops.split())
        comments.append(say("# {file}: {operators}", file=f"{document.folder}/tune_ops.cfg", operators=operators))
    ordered = sorted(document.checks, key=lambda check: ("fail", "warn", "unknown", "ok").index(check.status))
    checks = [say("# {check}", check=check.sentence) for check in ordered if check.status != "ok"]
    if fine := [check.name for check in ordered if check.status == "ok"]:
        checks.append(say("# no fault (--table checks shows more): {checks}", checks=series(fine)))
    lines = [Line(comment, "code") for comment in (*checks, *comments)]
    for program in document.programs:
        lines += [Line(say("# {title}", title=program.title), "code"), Line(program.shell, "code")]
    table = fill(OPERATORS, document, view.top or _CANDIDATES)
    return sheet_of(NOTHING, [*lines, *common(document)], [table])


def merged(document: documents.Merged, view: View) -> Sheet:
    """Say where the records of a merged bank come from."""
    taken = (say("{n} from {source}", n=t.records, source=t.source) for t in document.taken)
    records = say_n("{n} record ({taken})", "{n} records ({taken})", document.records, taken=series(taken))
    conflicts = say_n(
        "{n} conflict, where the first one won", "{n} conflicts, where the first one won", document.conflicts
    )
    line = Line(say("{into}: {records}", into=document.into, records=chain(records, conflicts)))
    lines = [line, *_backup(document.backup), *common(document)]
    return sheet_of(NOTHING, lines, notes=warnings(document.warnings))


def rolled_back(document: documents.RolledBack, view: View) -> Sheet:
    """Say that a bank is as it was."""
    lines = [Line(say("{place}: restored to what it was before the last tuning run", place=document.place))]
    return sheet_of(NOTHING, [*lines, *_backup(document.backup), *common(document)])


def _backup(place: str | None) -> Sequence[Line]:
    return [Line(say("the previous content is kept as {place}", place=place))] if place else []


# -- What ``profile`` recorded, or would.

#: Devices of which it is said what was recorded.
_SHOWN: Final = 8


def recorded(document: Recorded, view: View) -> Sheet:
    """Say what was recorded, what it cost, what to mind, what is next."""
    lines = [Line(line) for line in _recorded(document, view)]
    lines += [*warnings(document.warnings), *problem_lines(document)]
    if document.stopped:
        lines.append(Line(say("the program was ended after the recorded steps, as --stop-after asks")))
    elif document.program_status and not document.refused:
        failed = say("the program failed with exit status {status}", status=document.program_status)
        lines.append(Line(failed, "bad"))
    return sheet_of(lines=lines)


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
        change = say("{change}", change=f"{100 * cost.share:+.1f} %")
        if cost.share >= 1:
            change = say("most of it is the cost of recording, so its times say little of the program")
        yield say(
            "  a step took {inside} while recorded (median of {n}) and {outside} otherwise (median of {m}): {change}",
            inside=ns(cost.inside_ns), outside=ns(cost.outside_ns), n=cost.inside, m=cost.outside, change=change,
        )  # fmt: skip
    yield from _enough_for(document)


def _enough_for(document: Recorded) -> Iterator[Message]:
    """Say what so few steps do not tell, where a comparison would need more of them."""
    from npuperf.model.noise import ADVISED, LEAST

    steps = min((len(p.recorded) for p in document.processes if p.folders), default=0)
    if 0 < steps < LEAST:
        yield say_n("  {n} step shows where the time goes, not whether a change made it faster: --for-compare "
                    "records {advised}",
                    "  {n} steps show where the time goes, not whether a change made them faster: --for-compare "
                    "records {advised}", steps, advised=ADVISED)  # fmt: skip


def _proof(proof: Proof, processes: tuple[ProcessStatus, ...]) -> Message:
    of_rank = [p for p in processes if p.rank == proof.rank and p.folders]
    process = next((p for p in processes if _folder_of(proof, p) is not None), of_rank[0] if of_rank else None)
    who = say("host") if proof.device is None else say("device {device}", device=proof.device)
    rank = process.rank if proof.rank is None and process else proof.rank
    if rank is not None:
        who = chain(say("rank {rank}", rank=rank), who, by=" · ")
    elif process and sum(bool(p.folders) for p in processes) > 1:
        who = chain(say("pid {pid}", pid=process.pid), who, by=" · ")
    recorded = _recorded_in(_folder_of(proof, process), process) if process else ()
    steps = None
    if len(recorded) == 1:
        steps = say("step {step}", step=recorded[0])
    elif recorded and recorded[-1] - recorded[0] == len(recorded) - 1:
        steps = say("steps {first}–{last}", first=recorded[0], last=recorded[-1])
    elif recorded:
        steps = say("{count} steps from {first} to {last}", count=len(recorded), first=recorded[0], last=recorded[-1])
    elif process is not None and process.seconds is not None and len(process.folders) == 1:
        steps = say("{time}", time=ns(process.seconds * NS_PER_S))
    if not proof.kernels:
        found = say_n("{n} host event", "{n} host events", proof.events)
    else:
        kernels = say_n("{n} kernel", "{n} kernels", proof.kernels)
        found = chain(kernels, say("{share} with their launch", share=share(proof.launched / proof.kernels)), by=", ")
    return say("{who}: {found}", who=who, found=chain(found, steps, by=", "))


def _folder_of(proof: Proof, process: ProcessStatus) -> int | None:
    """Return which of the recordings of a process this is, by its name: the run directory may have been moved."""
    parts = Path(proof.path).parts
    return next((i for i, folder in enumerate(sorted(process.folders)) if Path(folder).name in parts), None)


def _recorded_in(number: int | None, process: ProcessStatus) -> tuple[int, ...]:
    """Return the steps of one recording of a process, none where they cannot be told from those of its others."""
    steps = process.recorded
    if number is None or len(process.folders) == 1:
        return steps
    begins = [i for i in range(len(steps)) if i == 0 or steps[i] != steps[i - 1] + 1]
    if len(begins) != len(process.folders):
        return ()
    return steps[begins[number] : [*begins, len(steps)][number + 1]]


def recording_plan(document: RecordingPlan, view: View) -> Sheet:
    """Show what would be started, and how it would be recorded."""
    command = " ".join([*(f"{name}={for_shell(value)}" for name, value in document.added.items()),
                        for_shell(*document.argv)])  # fmt: skip
    lines = [Line(command, "code")]
    if document.attached is not None:
        pids, way = series(document.attached.pids), WAYS[document.attached.way]
        lines.append(Line(say("asks: pid {pids}, through {way}", pids=pids, way=way)))
    lines.append(Line(say("folder: {folder}", folder=document.folder), "code"))
    if document.engine != "msprof":
        lines.append(Line(say("records: {window}", window=_planned(document))))
        if document.ranks is not None:
            lines.append(Line(say("ranks: {ranks}", ranks=series(document.ranks)), "code"))
    lines += [Line(f"{s.of}: {s.name}={s.value!r}", "code") for s in document.settings]
    return sheet_of(lines=[*lines, *problem_lines(document)], notes=warnings(document.cautions))


def _planned(document: RecordingPlan) -> Message:
    """Say what is recorded, and from when on."""
    window, delay = document.window, document.delay
    if document.standby:
        return say("nothing until npuperf profile --pid asks for it")
    what = say("{time}", time=ns((document.duration or 0) * NS_PER_S))
    if window is not None:
        what = say_n("{n} step", "{n} steps", window.last - window.first + 1)
    if document.start_on is not None:
        return say("{what}, when a range called {name} begins", what=what, name=repr(document.start_on))
    if delay is not None:
        return say("{what}, {delay} after the start", what=what, delay=ns(delay * NS_PER_S))
    if document.duration is not None:
        return what if document.attached is not None else say("{what}, from the start on", what=what)
    if window is None or document.attached is None:
        return _window(window)
    return say_n("{steps}, after the next one", "{steps}, after the next {n}", window.first, steps=what)


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
