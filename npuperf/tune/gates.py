"""Conditions on a tuning for pipelines: ``regression>3%``, ``failed>0``, ``saved<1%``, ``added<1``, ``updated<1``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from npuperf.documents.tuning import GateStatus, TuneGate, Tuning
from npuperf.errors import UsageError

_FORM: Final = re.compile(
    r"^\s*(?P<what>regression|saved|failed|added|updated)\s*(?P<sign>>=|<=|>|<)\s*(?P<limit>\d+(?:\.\d+)?)\s*%?\s*$"
)
_SIGNS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

_COUNTS: Final = ("failed", "added", "updated", "saved")


@dataclass(frozen=True, slots=True)
class Condition:
    """Fails if ``what`` stands to ``limit`` as ``sign`` says. Percentages are of the step."""

    expr: str
    what: str
    sign: str
    limit: float


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises UsageError."""
    found = _FORM.match(text)
    if found is None:
        hint = "regression>3%, saved<1%, failed>0, added<1 or updated<1; the condition is what makes it fail"
        raise UsageError(f"--fail-on {text!r}: cannot be read", hint=hint)
    return Condition(text, found["what"], found["sign"], float(found["limit"]))


def judge(condition: Condition, tuning: Tuning) -> TuneGate:
    """Hold a tuning against a condition."""
    value, reason = _value(condition.what, tuning)
    status: GateStatus = "cannot_tell"
    if value is not None:
        status = "fail" if _SIGNS[condition.sign](value, condition.limit) else "pass"
        # Half a result counts at least: only "more than" can fail for sure, and only "less than" can pass.
        whole = condition.what not in _COUNTS or (tuning.status != "incomplete" and not tuning.recovered)
        if not whole and (status == "pass") == condition.sign.startswith(">"):
            status, value, reason = "cannot_tell", None, f"the result is not whole: at least {value:g}"
    return TuneGate(expr=condition.expr, status=status, value=value, limit=condition.limit, reason=reason)


def _value(what: str, tuning: Tuning) -> tuple[float | None, str]:
    if what == "regression":
        step = tuning.verification.step if tuning.verification else None
        if step is None or not step.before_ns:
            return None, "no step was compared: npuperf tune --verify -- COMMAND"
        if step.noise_ns is None:
            return None, "one step says nothing about its noise"
        longer = step.after_ns - step.before_ns  # what is within the noise is no regression
        return 100 * (longer if abs(longer) > step.noise_ns else 0) / step.before_ns, ""
    if what == "saved":
        if not tuning.step_ns or tuning.saved_ns is None:
            return None, "no profile says what the operators are worth per step"
        return 100 * tuning.saved_ns[0] / tuning.step_ns, ""
    if what == "failed":
        return float(len(tuning.failed_operators)), ""
    if tuning.summary is None:
        return None, "the results have no summary"
    return float(tuning.summary.added if what == "added" else tuning.summary.updated), ""
