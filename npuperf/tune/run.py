"""From a request to a document: tune, or say how; verify; read, compare, merge and put back what is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from npuperf.against.gate_verdicts import judge_gate
from npuperf.against.gates import parse_gate
from npuperf.base.errors import InputError, UsageError
from npuperf.base.escape import for_shell
from npuperf.base.messages import Message, say
from npuperf.model.document import Document
from npuperf.model.tuning import BankChanges, ResultChanges, RolledBack, Tuning
from npuperf.record.folder import RunFolder
from npuperf.record.plan import Tell
from npuperf.tune import bank
from npuperf.tune.drive import Keep, carry_out
from npuperf.tune.request import TuneRequest
from npuperf.tune.results import PATTERN, compare_tunings, read_results, result_files
from npuperf.tune.savings import Asked, Usage, read_profiled, tuned_types, with_savings
from npuperf.tune.state import (  # fmt: skip
    is_ours,
    is_run,
    last_run,
    newest_of,
    not_ours,
    read_state,
    recorded,
    recorded_by_us,
    refuse_busy,
    refuse_twice,
    survivor,
)
from npuperf.tune.supervise import partial
from npuperf.tune.tuning_plan import draw_plan
from npuperf.tune.verify import verify

#: Asks a person whether to go on; None where nobody can be asked.
Ask = Callable[[Message], bool | None]


def run(
    request: TuneRequest,
    environment: Mapping[str, str],
    *,
    tell: Tell,
    progress: Tell,
    keep_document: Keep,
    ask: Ask = lambda _: None,
) -> Document:
    """Do what is asked.

    ``tell`` gets what matters while it goes on, ``progress`` what only shows that it does. ``keep_document`` writes
    a document into a file of the run's folder, in the format that the suffix names: it is called as soon as a tuning
    run or a verification ends, so also after Ctrl-C. ``ask`` is asked before anything is done that a folder says and
    this user has not. Raises UsageError or InputError before anything is begun.
    """
    request.check()
    if request.rollback:
        return _roll_back(request, tell, ask)
    if request.merge and request.into:
        return bank.merge(request.merge, request.into)
    if request.from_:
        tuning, diff, told = _results_of(request.from_), None, tuple[Message, ...]()
        if request.diff:  # a bank's difference beside them: say where the two disagree
            diff = bank.compare(bank.read_bank(request.diff[0]), bank.read_bank(request.diff[1]))
            told = tuple(bank.claims(tuning, tuning.status, diff))
        usage = _usage(request.run, tell, tuned_types(tuning))
        return _judged(with_savings(tuning, usage, bank=diff, warnings=(*tuning.warnings, *told)), request)
    if request.diff:
        return _difference(request.diff)
    if request.verify:
        return _judged(_verify(request, environment, tell, keep_document, ask), request)
    replayed = 3 * request.top if request.top_given else request.top  # types; those that save nothing are not chosen
    plan = draw_plan(request, _usage(request.run, tell, lambda types: types[:replayed]), environment)
    if request.dry_run:
        return plan.document
    for check in plan.document.checks:
        if check.speaks_against:
            tell(check.sentence)
    if plan.document.problem is not None:
        raise UsageError(plan.document.problem.what, hint=plan.document.problem.hint)
    if not (request.resume or request.force):
        refuse_twice(request.run, plan.job)
    _agree(plan.doubt, request, ask)
    timeout = None if request.timeout is None else 60 * request.timeout
    tuning = carry_out(plan, environment, timeout=timeout, tell=tell, progress=progress, keep_document=keep_document)
    return _judged(tuning, request)


def _agree(doubt: Message | None, request: TuneRequest, ask: Ask) -> None:
    """Have a person agree to what a folder says and this user has not. Raises UsageError."""
    if doubt is None or request.yes:
        return
    answer = ask(doubt)
    if answer is None:
        raise UsageError(doubt, hint=say("read it, then add --yes to let it be done"))
    if not answer:
        raise UsageError(say("nothing was done"))


def _judged(tuning: Tuning, request: TuneRequest) -> Tuning:
    conditions = (parse_gate(text, Tuning) for text in request.fail_on)
    return replace(tuning, gates=tuple(judge_gate(c, tuning, comparison=tuning.verification) for c in conditions))


def _usage(run: Path, tell: Tell, asked: Asked) -> Usage | None:
    """Read what a run's profile says about operators; None, with a word why, where there is none.

    ``asked``: which types are replayed.
    """
    try:
        found = read_profiled(run, asked=asked) if run.exists() else None
        return found.usage if found else None
    except InputError as error:
        if RunFolder(run).manifest.is_file():  # else a folder of tuning runs only
            tell(say("the profile in {run} is not used: {why}", run=str(run), why=error.what))
        return None


def _results_of(path: Path) -> Tuning:
    """Read a result file, a folder of them, or a tuning run with what its earlier processes left."""
    found = partial(path) if is_run(path) else None
    if found is not None:
        return found
    files, told = result_files(path)
    found = read_results(files)
    return replace(found, warnings=(*found.warnings, *told))


def _difference(paths: tuple[Path, Path]) -> ResultChanges | BankChanges:
    """Compare two results or two banks; a run directory stands for its newest run."""
    first, second = found = [newest_of(path, _has_results) for path in paths]
    if all(path.name.startswith("aoe_result_") or is_run(path) or any(path.glob(PATTERN)) for path in found):
        return ResultChanges(comparison=compare_tunings(_results_of(first), _results_of(second)))
    diff = bank.compare(bank.read_bank(first), bank.read_bank(second))
    # One of them is a bank, or npuperf's copy of an empty one; else both are folders of something else.
    if not any(p.is_file() or (p / bank.ORIGIN).is_file() or any(p.rglob("*_runtime_kb.json")) for p in found):
        raise InputError(say("{first}, {second}: no *_runtime_kb.json below them, and no result of AOE",
                             first=str(first), second=str(second)))  # fmt: skip
    return BankChanges(bank=diff)


def _verify(request: TuneRequest, environment: Mapping[str, str], tell: Tell, keep_document: Keep, ask: Ask) -> Tuning:
    """Profile with the bank from before the last tuning run and with the bank as it is, and compare."""
    folder = _chosen(request.run, _has_results, tell).absolute()
    refuse_busy(folder, "--verify")
    command = request.command or recorded(request.run).command
    if not command:
        hint = say("npuperf tune --verify -- python train.py")
        raise UsageError(say("--verify: no program to profile"), hint=hint)
    # The snapshot of the bank from before the run, and the bank as it is.
    state, before, found = read_state(folder), folder / "bank_before", partial(folder)
    if not (request.bank or state.place) or not before.is_dir():
        what = say("{folder}: does not say which knowledge base it tuned", folder=str(folder))
        raise UsageError(what, hint=say("--bank FOLDER"))
    banks = before, Path(request.bank or state.place or "").absolute()
    if state.mode == "subgraph":
        banks = bank.graph_bank(banks[0], state.soc), bank.graph_bank(banks[1], state.soc)
    if found is None:
        raise InputError(say("{folder}: no result that can be read", folder=str(folder)))
    if not is_ours(folder, state) or not (request.command or recorded_by_us(request.run)):
        what = say("{command}, with the knowledge bases {before} and {after}",
                   command=for_shell(*command), before=str(banks[0]), after=str(banks[1]))  # fmt: skip
        _agree(not_ours(folder, what), request, ask)
    tuning = with_savings(found, _usage(request.run, tell, tuned_types(found)), folder=str(folder))
    tuning = replace(tuning, verification=verify(command, folder, banks, tuning, environment, tell))
    try:
        keep_document(tuning, folder / "verification.json")
    except InputError as error:  # a full disk must not hide what was measured
        tuning = replace(tuning, warnings=(*tuning.warnings, say("not kept: {why}", why=error.what)))
    return tuning


def _chosen(run: Path, wanted: Callable[[Path], bool], tell: Tell) -> Path:
    """Return the newest tuning run that is ``wanted``, and name it where newer ones are passed over."""
    newest, folder = last_run(run), last_run(run, wanted)
    if folder != newest:
        tell(say("{newest} tuned nothing: {folder} is the last run that did", newest=str(newest), folder=str(folder)))
    return folder


def _has_results(folder: Path) -> bool:
    return read_state(folder).tuned and partial(folder) is not None


def _roll_back(request: TuneRequest, tell: Tell, ask: Ask) -> RolledBack:
    """Put the bank back as it was before the newest tuning run."""
    folder = _chosen(request.run, lambda folder: read_state(folder).tuned, tell)
    refuse_busy(folder, "--rollback")
    child = survivor(folder)
    if child:
        hint = say("npuperf tune --resume waits for it")
        raise UsageError(say("--rollback: process {pid} is still tuning", pid=child.pid), hint=hint)
    state, saved = read_state(folder), folder / "bank_before"
    if not state.place or not saved.is_dir():
        raise InputError(say("{folder}: has no copy of the knowledge base from before the run", folder=str(folder)))
    if not is_ours(folder, state):
        what = say("everything in {place} is replaced by what is in {saved}", place=state.place, saved=str(saved))
        _agree(not_ours(folder, what), request, ask)
    return bank.roll_back(saved, Path(state.place))
