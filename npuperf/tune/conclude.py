"""After a tuning run: compare the banks, work out what the operators save, and write everything down."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from npuperf.documents.document import Document, Problem
from npuperf.documents.tuning import Status, Tuning
from npuperf.errors import InputError
from npuperf.messages import Message, say, say_n
from npuperf.tune import store
from npuperf.tune.bank import ANOTHER_PLACE, Bank, add_bank, compare, core_counts, count_list, read_bank
from npuperf.tune.results import PATTERN, read_results
from npuperf.tune.savings import add_savings
from npuperf.tune.state import State, note
from npuperf.tune.supervise import RanProgram
from npuperf.tune.tuning_plan import Plan
from npuperf.tune.usage import Usage

#: Writes a document into a file, in the format that its suffix names.
Keep = Callable[[Document, Path], None]

HISTORY: Final = "history.jsonl"
_FORMATS: Final = ("json", "csv", "md")


def conclude(
    plan: Plan, ran: RanProgram, result: Tuning | None, problem: Problem | None, keep_document: Keep
) -> Tuning:
    """Put the document of a run together and write everything down; ``result``: what there is to read."""
    folder = plan.folder
    tuning = result or _nothing(plan, ran, problem is None)
    if problem is not None and tuning.status == "successful":
        tuning = replace(tuning, status="incomplete")
    if problem is None and ran.returncode is None:
        tuning = _warned(tuning, say("its exit status was not seen: npuperf was not there when it ended"))
    tuning = replace(tuning, folder=str(folder), checks=plan.checks, problem=problem)
    tuning = add_savings(_with_bank(tuning, plan), plan.usage)
    status, english = ("done", None) if problem is None else ("failed", str(problem.what))
    state = note(folder, status=status, exit_status=ran.returncode, problem=english)
    for suffix in _FORMATS:
        keep_document(tuning, folder / f"diff.{suffix}")
    _note_down(folder, tuning, ran, state)
    return tuning


def _warned(tuning: Tuning, *warnings: Message) -> Tuning:
    return replace(tuning, warnings=(*tuning.warnings, *warnings))


def _nothing(plan: Plan, ran: RanProgram, fine: bool) -> Tuning:
    """Say that there is no result: nothing had to be tuned, AOE refused, or it was stopped."""
    refused = ran.returncode is not None and ran.returncode > 0
    status: Status = "nothing_to_tune" if fine else "failed" if refused else "incomplete"
    files = sorted(plan.folder.glob(PATTERN))
    faults = tuple(fault for fault in map(_fault, files) if fault is not None)
    return Tuning(mode=plan.job.mode, status=status, recovered=False, files=tuple(map(str, files)), warnings=faults)


def _fault(file: Path) -> Message | None:
    """Say why a result file cannot be read, None if it can."""
    try:
        read_results([file])
    except InputError as error:
        return error.what
    return None


def _with_bank(tuning: Tuning, plan: Plan) -> Tuning:
    """Add what changed in the bank, and where the results claim what it does not show."""
    before = plan.folder / "bank_before"
    shutil.rmtree(plan.folder / "bank_after", ignore_errors=True)
    try:
        after = store.snapshot(plan.place, plan.folder / "bank_after", None)
    except InputError as error:
        return _warned(tuning, say("not compared with the bank: {why}", why=error.what))
    if plan.job.mode == "subgraph":
        return _warned(tuning, _subgraphs(tuning, plan.place, before, after))
    banks = [read_bank(place) for place in (before, after)]
    diff = replace(compare(*banks), after=str(plan.place))  # and not its copy
    return add_bank(_warned(tuning, *_for_other_cores(banks[1], plan.usage)), diff)


def _subgraphs(tuning: Tuning, place: Path, before: Path, after: Path) -> Message:
    """Say what can be said of a bank of subgraphs."""
    old, new = store.hashes(before), store.hashes(after)
    changed = sum(old.get(name) != digest for name, digest in new.items())
    claimed = tuning.summary.added + tuning.summary.updated if tuning.summary else 0
    if claimed and not changed and tuning.status == "successful":
        return say_n(
            "the result file says {n} subgraph added or updated, and in {place} no file changed: {why}",
            "the result file says {n} subgraphs added or updated, and in {place} no file changed: {why}",
            claimed,
            place=str(place),
            why=ANOTHER_PLACE,
        )
    return say(
        "the subgraph bank {place}: {changed} of {all} files new or changed (their content is opaque)",
        place=str(place),
        changed=changed,
        all=len(new),
    )


def _for_other_cores(bank: Bank, usage: Usage | None) -> list[Message]:
    """Warn where nothing in a bank is for the number of cores that the profile's program ran with."""
    counts = {count for counts in core_counts([bank]).values() for count in counts}
    if not counts or usage is None or usage.cores in (None, *counts):
        return []
    return [
        say(
            "the bank is for {counts} cores, and the profile's chip has {cores}: CANN looks for its own number",
            counts=count_list(counts),
            cores=usage.cores,
        )
    ]


def _note_down(folder: Path, tuning: Tuning, ran: RanProgram, state: State) -> None:
    """Add a line to the ledger that shows how the bank grew."""
    summary, bank = tuning.summary, tuning.bank
    line = {
        "run": folder.name,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "mode": tuning.mode,
        "status": tuning.status,
        "seconds": round(ran.seconds, 1),
        "added": summary.added if summary else 0,
        "updated": summary.updated if summary else 0,
        "records": bank.records_after if bank else None,
        "place": state.place,
        "cann": state.cann,
    }
    with contextlib.suppress(OSError), (folder.parent / HISTORY).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
