"""What a tuning can be held against: ``regression>3%``, ``saved<1%``, ``failed>0``, ``added<1``, ``updated<1``."""

from __future__ import annotations

from npuperf.documents.gates import Measured, Metric, register
from npuperf.documents.tuning import Tuning
from npuperf.messages import say


def _regression(tuning: Tuning) -> Measured:
    """By how much the step became longer; what is within the noise is no regression."""
    step = tuning.verification.step if tuning.verification else None
    if step is None or not step.old_ns or step.new_ns is None:
        return Measured(None, say("no step was compared: npuperf tune --verify -- COMMAND"))
    if step.noise_ns is None:
        return Measured(None, say("a single step says nothing about its noise"))
    longer = step.new_ns - step.old_ns
    return Measured(100 * (longer if abs(longer) > step.noise_ns else 0) / step.old_ns)


def _saved(tuning: Tuning) -> Measured:
    if not tuning.step_ns or tuning.saved_ns is None:
        return Measured(None, say("no profile says what the operators are worth per step"))
    return Measured(100 * tuning.saved_ns[0] / tuning.step_ns, at_least=_is_part(tuning))


def _failed(tuning: Tuning) -> Measured:
    return Measured(float(len(tuning.failed_operators)), at_least=_is_part(tuning))


def _added(tuning: Tuning) -> Measured:
    return _counted(tuning, tuning.summary.added if tuning.summary else None)


def _updated(tuning: Tuning) -> Measured:
    return _counted(tuning, tuning.summary.updated if tuning.summary else None)


def _counted(tuning: Tuning, count: int | None) -> Measured:
    if count is None:
        return Measured(None, say("the results have no summary"))
    return Measured(float(count), at_least=_is_part(tuning))


def _is_part(tuning: Tuning) -> bool:
    """Tell whether there may be more than the result says."""
    return tuning.status == "incomplete" or tuning.recovered


register(
    Metric("regression", "percent", Tuning, _regression),
    Metric("saved", "percent", Tuning, _saved),
    Metric("failed", "count", Tuning, _failed),
    Metric("added", "count", Tuning, _added),
    Metric("updated", "count", Tuning, _updated),
)
