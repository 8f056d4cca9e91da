"""The pages of the documents of ``tune``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from npuperf.documents.comparison import Comparison
from npuperf.documents.tuning import (
    BankChanges,
    BankDiff,
    BankUse,
    Merged,
    Mode,
    ResultChanges,
    RolledBack,
    Status,
    TunePlan,
    Tuning,
)  # fmt: skip
from npuperf.files import shown
from npuperf.messages import NOTHING, Message, chain, ns, number, say, say_n, series, share
from npuperf.render import View
from npuperf.render.comparison_words import (
    DIFFERENCES,
    FALLS,
    PARTS,
    falls,
    falls_title,
    parity_lines,
    step_lines,
    verdict_line,
)
from npuperf.render.page import Line, Page, Section, common, gate_line, problem_lines, warnings
from npuperf.render.tables import Filled, fill, filled
from npuperf.render.tuning_tables import BANK, ENTRIES, RESULTS, SAVINGS, TASKS, VERIFIED
from npuperf.render.words import OUTCOME

_STATUS: Final[dict[Status, tuple[Message, str]]] = {
    "successful": (say("SUCCESSFUL"), "good"),
    "failed": (say("FAILED"), "bad"),
    "incomplete": (say("INCOMPLETE"), "warning"),
    "nothing_to_tune": (say("NOTHING TO TUNE"), "bold"),
}
_MODES: Final[dict[Mode, Message]] = {
    "op": say("operator tuning"),
    "subgraph": say("subgraph tuning"),
    "mixed": say("subgraph and operator tuning"),
}


def tuning(document: Tuning, view: View) -> Page:
    """Say how a tuning ended, what was tuned, what it is worth, and what to mind."""
    word, style = _STATUS[document.status]
    lines = [Line(_summary(document), style, word), *_worth(document), *map(gate_line, document.gates)]
    found = document.verification
    if found:
        lines += [verdict_line(found), *step_lines(found)]
    if document.bank:
        lines.append(
            Line(_bank_summary(document.bank), label=say("knowledge base {path}", path=shown(document.bank.after)))
        )
    if document.use:
        lines += _use(document.use)
    if document.failed_operators:
        lines.append(Line(say("failed: {operators}", operators=series(document.failed_operators)), "bad"))
    several = (TASKS,) if len(document.tasks) > 1 else ()
    tables = [fill(table, document, view.top) for table in (VERIFIED, *several, ENTRIES, SAVINGS, BANK)]
    minds = (part.warnings for part in (document, document.bank, found) if part)
    notes = warnings([warning for several in minds for warning in several])
    title = shown(document.folder) if document.folder else ", ".join(map(shown, document.files))
    return Page(
        say("{title}", title=title),
        lines,
        [tables[0], *_waterfall(found, view), *tables[1:]] if found else tables,
        [_set_ups(found, view)] if found and found.samples != (0, 0) else [],
        [*notes, *problem_lines(document)],
    )


def _set_ups(found: Comparison, view: View) -> Section:
    """Return what differs between the set-ups."""
    return Section(say("set-up"), list(parity_lines(found, None if view.full else DIFFERENCES)))


def _waterfall(found: Comparison, view: View) -> list[Filled]:
    """Return what explains the difference of the mean step."""
    rows = falls(found, PARTS if view.top is None else view.top)
    table = FALLS.only("part", "what", "delta_ns", "count_ns", "speed_ns", "calls", "old_ns", "new_ns")
    return [filled(table.titled(falls_title(found)), rows)] if rows else []


def _summary(document: Tuning) -> Message:
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


def _worth(document: Tuning) -> list[Line]:
    """Say what is saved per step."""
    if not document.saved_ns:
        return []
    saved, step = ns(*document.saved_ns), document.step_ns
    if not step:
        return [Line(say("predicted saving: {saved} per step, in device-bound time only", saved=saved))]
    part = share(*(end / step for end in document.saved_ns))
    expected = say(
        "predicted saving: {saved} per step ({share} of {step}), in device-bound time only",
        saved=saved, share=part, step=ns(step),
    )  # fmt: skip
    return [Line(expected)]


def _bank_summary(bank: BankDiff) -> Message:
    kinds = Counter(change.change for change in bank.changes)
    return say(
        "{before} → {after} records: {added} added, {changed} changed, {removed} removed, {unchanged} unchanged",
        before=bank.records_before, after=bank.records_after, added=kinds["added"], changed=kinds["changed"],
        removed=kinds["removed"], unchanged=bank.unchanged,
    )  # fmt: skip


def _use(use: BankUse) -> list[Line]:
    """Say how programs find the bank, and what they must build anew once."""
    place = shown(use.place)
    if use.export is None:
        found = say("programs of this user find it in {place} by themselves, others with {variable}",
                    place=place, variable="TUNE_BANK_PATH")  # fmt: skip
    else:
        found = say(
            "{export}, for every program that is to find it; it lies in {place}", export=use.export, place=place
        )
    return [Line(found, label=say("to use it")), Line(use.refresh, label=say("once"))]


def bank_changes(document: BankChanges, view: View) -> Page:
    """Say what differs between two banks."""
    bank = document.bank
    title = say("{before} → {after}", before=bank.before, after=bank.after)
    lines = [Line(_bank_summary(bank)), *common(document)]
    return Page(title, lines, [fill(BANK, document, view.top)], notes=warnings(bank.warnings))


def result_changes(document: ResultChanges, view: View) -> Page:
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
    return Page(title, [Line(counts), verdict, *common(document)], tables, notes=warnings(found.warnings))


def plan(document: TunePlan, view: View) -> Page:
    """Show what would be run, as a script whose comments say the rest."""
    comments = [
        say("# results and logs: {folder}", folder=document.folder),
        say("# knowledge base: {place}", place=document.place),
    ]
    if document.ops:
        operators = " ".join(document.ops.split())
        comments.append(say("# {file}: {operators}", file=f"{document.folder}/tune_ops.cfg", operators=operators))
    checks = [say("# {check}", check=check.sentence) for check in document.checks]
    lines = [Line(comment, "code") for comment in (*checks, *comments)]
    for program in document.programs:
        lines += [Line(say("# {title}", title=program.title), "code"), Line(program.shell, "code")]
    return Page(NOTHING, [*lines, *common(document)])


def merged(document: Merged, view: View) -> Page:
    """Say where the records of a merged bank come from."""
    taken = (say("{n} from {source}", n=t.records, source=t.source) for t in document.taken)
    records = say_n("{n} record ({taken})", "{n} records ({taken})", document.records, taken=series(taken))
    conflicts = say_n(
        "{n} conflict, where the first one won", "{n} conflicts, where the first one won", document.conflicts
    )
    lines = [Line(say("{into}: {records}", into=document.into, records=chain(records, conflicts)))]
    return Page(NOTHING, [*lines, *_backup(document.backup), *common(document)], notes=warnings(document.warnings))


def rolled_back(document: RolledBack, view: View) -> Page:
    """Say that a bank is as it was."""
    lines = [Line(say("{place}: restored to what it was before the last tuning run", place=document.place))]
    return Page(NOTHING, [*lines, *_backup(document.backup), *common(document)])


def _backup(place: str | None) -> Sequence[Line]:
    return [Line(say("the previous content is kept as {place}", place=place))] if place else []
