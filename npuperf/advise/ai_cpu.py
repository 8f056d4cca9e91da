"""Operators that run on the device's few AI CPUs instead of its cores."""

from __future__ import annotations

from typing import Final

from npuperf.advise.needs import ALL_ROWS, CORE_TYPES
from npuperf.advise.requirements import Option, Requirement
from npuperf.advise.rule import Answer, Detected, Rule, quote, top_types
from npuperf.messages import say, series
from npuperf.model.groups import distinct
from npuperf.model.labels import Mask
from npuperf.model.operands import Operands
from npuperf.scopes.view import DeviceView

TITLE = say("operators on AI CPU")
SOURCE = say("msprof op_summary: Task Type AI_CPU")

#: Dtypes that many operators support on AI CPU only, and what AI Core has instead.
_NARROWER: Final = {"INT64": "int32", "FLOAT64": "float"}
_DTYPES: Final = say("msprof-analyze, advisor, aicpu_rules: the dtypes that operators have on AI Core")


def judge(view: DeviceView) -> Answer:
    """Find AI CPU operators that cover device time nothing else covers."""
    chosen = view.compute & view.tasks.core.flag([c == "AI_CPU" for c in view.tasks.core.names])
    exposed = view.exposed(chosen)
    if exposed < view.thresholds.ai_cpu_share * view.partition.span_ns:
        return None
    rows = top_types(view, chosen)
    return Detected(
        title=say("operators run on AI CPU: {types}", types=quote(rows)),
        evidence={"count": int(chosen.sum()), "exposed_ns": exposed, "types": rows, "dtypes": _dtypes(view, chosen)},
        gain=(0, view.per_step(exposed)),
        refute=say("the same operators stay on AI CPU with another dtype or shape, or other streams hide them"),
        next=_advice(view, chosen),
    )


def _dtypes(view: DeviceView, chosen: Mask) -> list[str]:
    """Return the dtypes of their inputs, as far as they are recorded."""
    codes = distinct(view.tasks.operands.codes[chosen])
    texts = [view.tasks.operands.names[c] for c in codes.tolist() if c >= 0]
    return sorted({dtype for text in texts for dtype in Operands.parse(text).dtypes if dtype})


def _advice(view: DeviceView, chosen: Mask) -> tuple[Option, ...]:
    dtypes = _dtypes(view, chosen)
    wide = [d for d in dtypes if d in _NARROWER]
    names = series(_NARROWER[d] for d in wide) if wide else series(["int32", "float"])
    has = Requirement(say("inputs of int64 or double"), lambda _: bool(wide) if dtypes else None)
    return (
        Option(say("use a dtype that AI Core has ({dtypes})", dtypes=names), _DTYPES, (has,)),
        Option(say("move these operators out of the step, or beside other streams' work"), SOURCE),
    )


RULE = Rule("ai_cpu", TITLE, SOURCE, (CORE_TYPES, ALL_ROWS), judge)
