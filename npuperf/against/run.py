"""``npuperf analyze``: every side analyzed, held against what was asked of it, shown, and kept.

What only a comparison, a gate or a lock needs is loaded where one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import structs

from npuperf.analyze.request import AnalyzeRequest
from npuperf.analyze.run import Analysis, Observer
from npuperf.base.errors import ExitCode, InputError, UsageError, with_hint
from npuperf.base.escape import for_shell
from npuperf.base.files import (
    MANIFEST,
    is_file,
    is_folder,
    is_pack,
    open_input,
    refuse_inputs,
    refuse_ways_out,
    shown,
    write_atomically,
)
from npuperf.base.messages import Message, say
from npuperf.model.result import Result

if TYPE_CHECKING:
    from npuperf.against.baselines import BaselineStore
    from npuperf.against.gates import Condition
    from npuperf.against.sides import BaselineSide
    from npuperf.model.comparison import Comparison
    from npuperf.readers.recording import Recording

#: Shows a result, of what it is the analysis, and that of the old side, if that is a profile.
Show = Callable[[Result, Analysis, "Analysis | None"], None]
#: Makes text of a result, in a format.
Render = Callable[[Result, str], str]
#: Bytes in which a report of JUnit says that it is one.
_HEAD: Final = 4096


#: What a document of numbers that cannot be ends in, wherever they are first relied on.
_NONSENSE: Final = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, AssertionError)


def run(
    request: AnalyzeRequest,
    recording: Recording | None = None,
    observer: Observer | None = None,
    *,
    show: Show | None = None,
    render: Render | None = None,
) -> Result:
    """Do what :func:`_run` does; a pack may be anybody's, and what it has be of the right types and no sense."""
    try:
        return _run(request, recording, observer, show=show, render=render)
    except _NONSENSE as error:
        packs = [path for path in (request.path, *map(Path, (*request.baseline, *request.again))) if is_pack(path)]
        if not packs:
            raise
        what = say("{path}: has what no npuperf writes ({why})", path=shown(packs[0]), why=type(error).__name__)
        raise InputError(what, hint=say("have the recording packed anew")) from error


def _run(
    request: AnalyzeRequest,
    recording: Recording | None = None,
    observer: Observer | None = None,
    *,
    show: Show | None = None,
    render: Render | None = None,
) -> Result:
    """Analyze everything at the request's path, or a recording of it that is open already; compare it and judge it.

    ``show`` is called once everything is known; what was asked to be written and kept follows. Without ``render``
    nothing is, but in the cache. Raises UsageError and InputError, before anything is read, for what could not be
    judged, compared with or written afterwards; and as :func:`npuperf.analyze.work.work_out` does.
    """
    observer = observer or Observer()
    if request.again and not request.baseline:
        hint = say("--again adds a run to the new side of a comparison: give the old one with --baseline")
        raise UsageError(say("--again without --baseline"), hint=hint)
    conditions = conditions_of(request) if request.fail_on or request.gates else []
    in_a_row = any(getattr(condition, "of", None) for condition in conditions)  # a gate asks for several runs
    _check_files(request)
    answer: Result | None = None
    if is_pack(request.path):
        from npuperf.against.sides import read_result

        answer = read_result(request.path, str(request.path))
        if answer.input.anonymous:
            if locks := (*request.check, *filter(None, (request.lock, request.update_lock))):
                what = say("{path}: anonymous, so its counts are of other names than those of {file}",
                           path=shown(request.path), file=shown(locks[0]))  # fmt: skip
                raise UsageError(what, hint=say("hold the recording against it"))
            observer.tell(say("{path}: its names are made up, but for public ones", path=shown(request.path)))
        if request.baseline or conditions or request.check:  # what is asked now takes the place of what was
            answer = structs.replace(answer, comparison=None, gates=())
    store: BaselineStore | None = None
    old: Sequence[BaselineSide] = ()
    again: Sequence[BaselineSide] = ()
    key = ""
    if request.baseline or request.save_baseline is not None or in_a_row:
        from npuperf.against.baselines import BaselineStore, key_of
        from npuperf.against.sides import again_of, sides_of

        store, old, again = BaselineStore.of(request), sides_of(request), again_of(request)
        key = key_of([side.asked for side in old], [side.name for side in old])
        if request.save_baseline is not None:
            store.check(request.save_baseline)
    observer.begin(request.path)

    cached = not request.no_cache
    analysis = Analysis(request.question, recording, answer=answer, cached=cached)
    profiles = (side.profile for side in (*old, *again) if side.profile is not None)
    others = [Analysis(request.of_baseline(path), cached=cached) for path in profiles]
    written = (request.output, request.html, request.trace, request.trace_full, request.junit, request.pack)
    if any(written):
        named = (*map(Path, (*request.baseline, *request.again, *request.gates)), *request.check)
        read = (file for one in (analysis, *others) for file in one.files)
        refuse_inputs(written, (*read, *filter(is_file, (request.path, *named))))
    result = analysis.run(observer)
    found = iter([other.run(observer) for other in others])
    before = [side.result or next(found) for side in old]
    after = [result, *(side.result or next(found) for side in again)]
    comparison: Comparison | None = None
    if before:
        from npuperf.against.sides import compared

        comparison, before, after = compared(request, before, after, (*old, *again))
    if conditions or old or request.check or request.undecided:
        gates = [*result.gates]
        if conditions:
            from npuperf.against.gate_verdicts import judge_gate

            failed: Mapping[str, Sequence[bool]] = {}
            if store is not None and in_a_row:
                from npuperf.against.baselines import histories

                failed = histories(store.candidates(key), result)
            gates += [
                judge_gate(one, result, before, after[1:], comparison=comparison, history=failed.get(one.expr, ()))
                for one in conditions
            ]
        if request.check:
            from npuperf.against.locks import check_lock

            gates += [gate for path in request.check for gate in check_lock(result, path)]
        if request.undecided is not None:
            from npuperf.against.gate_verdicts import settle

            gates = [*settle(gates, request.undecided)]
        result = structs.replace(result, comparison=comparison, gates=tuple(gates))

    if render is not None and not analysis.torn:
        _keep_in_run(request, result, render, observer)
    if show is not None:
        show(result, analysis, others[0] if any(side.profile is not None for side in old) else None)
        for one in (analysis, *others):  # pictures and traces are of files that were read once more
            one.tell_changed(observer)
    if render is not None:
        _write(request, result, render, observer)
        if store is not None:
            if in_a_row or any(side.name for side in old):
                store.remember(key, result, observer.tell)
            if request.save_baseline is not None:
                _save(store, request, request.save_baseline, result, render, observer, torn=analysis.torn)
    for one in (analysis, *others):
        one.keep()
    return result


def conditions_of(request: AnalyzeRequest) -> list[Condition]:
    """Read the gates asked for. Raises UsageError for those that could never be judged."""
    from npuperf.against.gates import check_baseline, gates_of, parse_gate
    from npuperf.against.metrics import register_all

    register_all()
    texts = [*request.fail_on, *(gate for name in request.gates for gate in gates_of(name))]
    conditions = [parse_gate(text, Result) for text in dict.fromkeys(texts)]
    check_baseline(conditions, given=bool(request.baseline))
    return conditions


def _check_files(request: AnalyzeRequest) -> None:
    """Raise UsageError or InputError for files that could not be read or written after the analysis."""
    if request.pack is not None or request.anonymize or is_pack(request.path):
        from npuperf.against.packs import check_pack

        check_pack(request)
    path = request.junit
    if path is not None:
        if not is_folder(path.absolute().parent):
            raise UsageError(say("{file}: its folder does not exist", file=str(path)))
        if is_folder(path):
            raise UsageError(say("{file}: a folder, and a report is a file", file=shown(path)))
        if is_file(path) and not request.force:  # devices and pipes are written to as they are
            with open_input(path) as file:
                head = file.read(_HEAD)
            if head and b"<testsuite" not in head:
                hint = say("choose another name, or replace it with --force")
                raise UsageError(say("{file}: already exists, and is no report of JUnit", file=shown(path)), hint=hint)
    if request.lock is not None or request.update_lock is not None or request.check:
        from npuperf.against.locks import check_target, read_lock

        if request.lock is not None:
            check_target(request.lock, force=request.force)
        if request.update_lock is not None:
            check_target(request.update_lock, update=True)
        for path in request.check:
            read_lock(path)


def _keep_in_run(request: AnalyzeRequest, result: Result, render: Render, observer: Observer) -> None:
    """Keep the document in the run directory that was analyzed, if it is one and is told of as a whole.

    A comparison is not kept: it is about two runs.
    """
    if request.partial or not is_file(request.path / MANIFEST):
        return
    file = request.path / "analysis" / "result.json"
    try:
        refuse_ways_out(request.path, "analysis")
        write_atomically(file, render(structs.replace(result, comparison=None), "json"))
    except InputError as error:  # somebody else's run
        observer.tell(say("the result is not kept in the run directory: {why}", why=error.what))


def _write(request: AnalyzeRequest, result: Result, render: Render, observer: Observer) -> None:
    """Write what was asked for of a result that was shown: JUnit's report, a pack, and locks."""
    if request.junit is not None:
        write_atomically(request.junit, render(result, "junit"))
        observer.tell(say("wrote {file}", file=str(request.junit)))
    if request.pack is not None:
        from npuperf.against.packs import write_pack

        packed = result
        if request.anonymize:
            from npuperf.against.anonymous import anonymous

            packed = anonymous(result)
        observer.tell(write_pack(request.pack, render(packed, "json")))
    for path, update in ((request.lock, False), (request.update_lock, True)):
        if path is not None:
            from npuperf.against.locks import write_lock

            write_lock(result, path, force=request.force, update=update)
            observer.tell(say("wrote {file}", file=str(path)))


def _save(
    store: BaselineStore, request: AnalyzeRequest, name: str, result: Result, render: Render, observer: Observer,
    *, torn: bool,
) -> None:  # fmt: skip
    """Keep a result as a baseline, unless a gate says that it should not be one.

    A gate that asks for several runs passes while too few of them failed; with one of these as the baseline, those
    that follow would be held against what is wrong already.
    """
    if torn:
        observer.tell(
            say("not kept as baseline {name}: {why}", name=name, why=say("files changed while they were read"))
        )
        return
    why: Message | None = None
    failed = next((gate.expr for gate in result.gates if gate.level == "fail" and any(gate.runs[-1:])), None)
    if result.exit_code:
        why = say("a gate failed") if result.exit_code == ExitCode.GATE_FAILED else say("a gate cannot be judged")
    elif failed is not None:
        why = say("this run is one of those that fail {gate}", gate=failed)
    if why is None:
        from npuperf.against.baselines import reduced, without_blanks

        observer.tell(store.keep(name, without_blanks(render(reduced(result), "json"))))
        return
    hint = say("to accept it all the same: npuperf analyze {path} --save-baseline {name}, without gates",
               path=for_shell(str(request.path)), name=for_shell(name))  # fmt: skip
    observer.tell(with_hint(say("not kept as baseline {name}: {why}", name=name, why=why), hint))
