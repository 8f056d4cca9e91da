"""An analysis held against what was asked of it: earlier results, and gates. No data is read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from npuperf.analyze import metrics
from npuperf.documents.analysis import Result

if TYPE_CHECKING:  # seldom asked for
    from npuperf.analyze.request import AnalyzeRequest
    from npuperf.documents.comparison import Comparison
    from npuperf.gates.grammar import Condition

metrics.register_all()


def conditions_of(request: AnalyzeRequest) -> list[Condition]:
    """Read the gates asked for. Raises UsageError for those that could never be judged."""
    if not (request.fail_on or request.gates):
        return []
    from npuperf.gates.grammar import check_baseline, parse_gate
    from npuperf.gates.presets import gates_of

    texts = [*request.fail_on, *(gate for name in request.gates for gate in gates_of(name))]
    conditions = [parse_gate(text, Result) for text in dict.fromkeys(texts)]
    check_baseline(conditions, given=bool(request.baseline))
    return conditions


def compared(
    request: AnalyzeRequest, result: Result, old: Sequence[Result], again: Sequence[Result] = ()
) -> Comparison | None:
    """Compare a result, and further runs ``again``, with those it is held against; None where there are none.

    Raises UsageError where they are not of one workload and the request does not allow that.
    """
    if not old:
        return None
    from npuperf.advise import load_thresholds
    from npuperf.compare.compare import compare_results

    thresholds = load_thresholds(request.thresholds)
    return compare_results(old, [result, *again], thresholds, allow_mismatch=request.allow_mismatch)


def held_against(
    request: AnalyzeRequest,
    conditions: Sequence[Condition],
    result: Result,
    old: Sequence[Result] = (),
    history: Mapping[str, Sequence[bool]] | None = None,
    again: Sequence[Result] = (),
) -> Result:
    """Return the result with its comparison, and with its gates judged, after those that it has already.

    ``history``: of a gate, by its text, whether earlier runs failed it, the newest last. ``again``: further runs of
    what the result is a run of, which tell how much runs differ.
    """
    comparison = compared(request, result, old, again)
    gates = [*result.gates]
    if conditions:
        from npuperf.gates.judging import judge_gate

        past = history or {}
        gates += [
            judge_gate(condition, result, old, again, comparison=comparison, history=past.get(condition.expr, ()))
            for condition in conditions
        ]
    if request.check:
        from npuperf.gates.lock_check import check_lock

        gates += [gate for path in request.check for gate in check_lock(result, path)]
    if request.undecided is not None:
        from npuperf.gates.judging import settle

        gates = [*settle(gates, request.undecided)]
    return structs.replace(result, comparison=comparison, gates=tuple(gates))
