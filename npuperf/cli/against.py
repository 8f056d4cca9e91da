"""What ``npuperf analyze`` holds a result against, and what is kept of that: checked before any work is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from npuperf.base.errors import ExitCode, InputError, UsageError, with_hint
from npuperf.base.escape import for_shell
from npuperf.base.files import is_file, is_folder, open_input, shown, write_atomically
from npuperf.base.messages import Message, say, say_n
from npuperf.cli.progress import tell

if TYPE_CHECKING:  # seldom asked for
    from npuperf.against.baselines import BaselineStore
    from npuperf.against.gates import Condition
    from npuperf.against.run import BaselineSide
    from npuperf.analyze.request import AnalyzeRequest
    from npuperf.model.comparison import Comparison
    from npuperf.model.result import Result

#: Bytes in which a report of JUnit says that it is one.
_HEAD: Final = 4096


class Against(Struct, frozen=True):
    """A request's gates, locks and baselines; ``again``: further runs of the new side.

    ``store`` is None where no file of a baseline is read or written.
    """

    request: AnalyzeRequest
    conditions: Sequence[Condition]
    sides: tuple[BaselineSide, ...]
    store: BaselineStore | None
    again: tuple[BaselineSide, ...] = ()

    @classmethod
    def of(cls, request: AnalyzeRequest, *, force: bool) -> Against:
        """Read gates and results, and look at what is to be written.

        Raises UsageError or InputError for what could not be judged, compared with or written after the analysis.
        """
        if request.again and not request.baseline:
            hint = say("--again adds a run to the new side of a comparison: give the old one with --baseline")
            raise UsageError(say("--again without --baseline"), hint=hint)
        conditions = _conditions_of(request)
        _check_files(request, force=force)
        store: BaselineStore | None = None
        sides: tuple[BaselineSide, ...] = ()
        again: tuple[BaselineSide, ...] = ()
        if request.baseline or request.save_baseline is not None or _asks_for_history(conditions):
            from npuperf.against.baselines import BaselineStore
            from npuperf.against.run import again_of, sides_of

            store, sides, again = BaselineStore.of(request), sides_of(request), again_of(request)
            if request.save_baseline is not None:
                store.check(request.save_baseline)
        return cls(request, conditions, sides, store, again)

    @property
    def profiles(self) -> list[AnalyzeRequest]:
        """What else is to be analyzed for a comparison, in the order in which :meth:`hold` takes the results."""
        sides = (*self.sides, *self.again)
        return [self.request.of_baseline(side.profile) for side in sides if side.profile is not None]

    @property
    def old_profile(self) -> int | None:
        """The place of the first profile of the old side behind the result itself: its timeline is shown beside."""
        return 1 if any(side.profile is not None for side in self.sides) else None

    def hold(self, result: Result, analyzed: Sequence[Result]) -> Result:
        """Return the result with what it was held against; ``analyzed``: the profiles among the sides."""
        asked = self.request
        if not (self.conditions or self.sides or asked.check or asked.undecided):
            return result
        from npuperf.against.run import held_against

        profiles = iter(analyzed)
        old = given = [side.result or next(profiles) for side in self.sides]
        new = runs = [result, *(side.result or next(profiles) for side in self.again)]
        if len(given) > 1 or len(runs) > 1:
            from npuperf.against.baselines import distinct

            old, new = distinct(given), distinct(runs)
        held = held_against(asked, self.conditions, result, old, self._history(result), new[1:])
        if held.comparison is None:
            return held
        repeated = len(given) - len(old) + len(runs) - len(new)
        return structs.replace(held, comparison=self._warned(held.comparison, repeated=repeated))

    def _history(self, result: Result) -> Mapping[str, Sequence[bool]]:
        """Return of every gate whether earlier runs failed it, if a gate asks for several runs."""
        if self.store is None or not _asks_for_history(self.conditions):
            return {}
        from npuperf.against.baselines import histories

        return histories(self.store.candidates(self._key), result)

    def _warned(self, comparison: Comparison, *, repeated: int) -> Comparison:
        from npuperf.against.run import warnings_of

        told = warnings_of(self.request, (*self.sides, *self.again))
        if repeated:
            told.append(say_n("{n} run is a recording that was given already, and counts once with it",
                              "{n} runs are recordings that were given already, and count once with these",
                              repeated))  # fmt: skip
        return structs.replace(comparison, warnings=(*comparison.warnings, *told))

    def keep(self, result: Result, *, force: bool) -> None:
        """Write what was asked for of a result that was shown: JUnit's report, locks, the candidate, the baseline."""
        if self.request.junit is not None:
            from npuperf.show.formats import render

            write_atomically(self.request.junit, render(result, "junit"))
            tell(say("wrote {file}", file=str(self.request.junit)))
        if self.request.lock is not None or self.request.update_lock is not None:
            _write_locks(self.request, result, force=force)
        if self.store is not None:
            self._remember(self.store, result)
            if self.request.save_baseline is not None:
                self._save(self.store, self.request.save_baseline, result)

    @property
    def _key(self) -> str:
        from npuperf.against.baselines import key_of

        return key_of([side.asked for side in self.sides], [side.name for side in self.sides])

    def _remember(self, store: BaselineStore, result: Result) -> None:
        """Keep what became of this run beside the baseline that it was held against, rejected or not."""
        if not (_asks_for_history(self.conditions) or any(side.name for side in self.sides)):
            return
        from npuperf.against.baselines import candidate_of

        try:
            store.add(self._key, candidate_of(result))
        except InputError as error:  # somebody else's baselines
            tell(say("this run is not remembered beside its baseline: {why}", why=error.what))

    def _save(self, store: BaselineStore, name: str, result: Result) -> None:
        """Keep a result as a baseline, unless a gate says that it should not be one."""
        why = _why_no_baseline(result)
        if why is not None:
            hint = say("to accept it all the same: npuperf analyze {path} --save-baseline {name}, without gates",
                       path=for_shell(str(self.request.path)), name=for_shell(name))  # fmt: skip
            tell(with_hint(say("not kept as baseline {name}: {why}", name=name, why=why), hint))
            return
        from npuperf.against.baselines import reduced
        from npuperf.show.formats import render
        from npuperf.show.json import without_blanks

        tell(store.keep(name, without_blanks(render(reduced(result), "json"))))


def _why_no_baseline(result: Result) -> Message | None:
    """Say why a result should not be what later ones are held against, if so.

    A gate that asks for several runs passes while too few of them failed; with one of these as the baseline, those
    that follow would be held against what is wrong already.
    """
    if result.exit_code:
        return say("a gate failed") if result.exit_code == ExitCode.GATE_FAILED else say("a gate cannot be judged")
    failed = next((gate.expr for gate in result.gates if gate.level == "fail" and any(gate.runs[-1:])), None)
    return None if failed is None else say("this run is one of those that fail {gate}", gate=failed)


def _conditions_of(request: AnalyzeRequest) -> Sequence[Condition]:
    """Read the gates asked for; most analyses ask for none."""
    if not (request.fail_on or request.gates):
        return ()
    from npuperf.against.run import conditions_of

    return conditions_of(request)


def _asks_for_history(conditions: Sequence[Condition]) -> bool:
    """Tell whether a gate asks for several runs."""
    return any(getattr(condition, "of", None) for condition in conditions)


def _check_files(request: AnalyzeRequest, *, force: bool) -> None:
    """Raise UsageError or InputError for files that could not be read or written after the analysis."""
    if request.junit is not None:
        _check_junit(request.junit, force=force)
    if request.lock is not None or request.update_lock is not None or request.check:
        from npuperf.against.lock_text import read_lock
        from npuperf.against.locks import check_target

        if request.lock is not None:
            check_target(request.lock, force=force)
        if request.update_lock is not None:
            check_target(request.update_lock, update=True)
        for path in request.check:
            read_lock(path)


def _check_junit(path: Path, *, force: bool) -> None:
    """Refuse a folder that is not there, and what is no report of an earlier run."""
    if not is_folder(path.absolute().parent):
        raise UsageError(say("{file}: its folder does not exist", file=str(path)))
    if is_folder(path):
        raise UsageError(say("{file}: a folder, and a report is a file", file=shown(path)))
    if not is_file(path) or force:  # devices and pipes are written to as they are
        return
    with open_input(path) as file:
        head = file.read(_HEAD)
    if head and b"<testsuite" not in head:
        hint = say("choose another name, or replace it with --force")
        raise UsageError(say("{file}: already exists, and is no report of JUnit", file=shown(path)), hint=hint)


def _write_locks(request: AnalyzeRequest, result: Result, *, force: bool) -> None:
    from npuperf.against.locks import write_lock

    for path, update in ((request.lock, False), (request.update_lock, True)):
        if path is not None:
            write_lock(result, path, force=force, update=update)
            tell(say("wrote {file}", file=str(path)))
