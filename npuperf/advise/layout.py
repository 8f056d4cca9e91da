"""Conversions between formats (TransData): who asked for which format, and what changes that."""

from __future__ import annotations

import re
from typing import Final

from npuperf.advise.moves import MOST_ROWS, MoveRow, askers, listed, moves, of_types, places, share_of_compute
from npuperf.advise.needs import ALL_ROWS, OPERATOR_TYPES, see_where
from npuperf.advise.requirements import EAGER, INFERENCE, Option, Requirement
from npuperf.advise.rule import Answer, Detected, Rule
from npuperf.messages import chain, say, share
from npuperf.model.chip import product_of_soc
from npuperf.model.operands import Operands
from npuperf.scopes.view import DeviceView

TITLE = say("conversions between formats")
SOURCE = say("operator types TransData and FormatCast; Input and Output Formats, and the operator in the kernel's name")

_FORMAT: Final = re.compile(r"(^|_)(transdata|formatcast|npuformatcast)$", re.I)
_NZ: Final = "FRACTAL_NZ"
_SWITCH: Final = say("torch_npu.npu.config.allow_internal_format; off by default on Atlas A3, since March 2026 on A2")
_NAMES: Final = say("kernel names: trans_TransData is put between operators, aclnn names the operator that converts")
_FRACTAL: Final = say("torch_npu.npu_format_cast, format 29: FRACTAL_NZ")
#: torch_npu of these versions has private formats off, or may have them on, where nothing is set.
_OFF_SINCE: Final = (2, 10)
_ON_BEFORE: Final = (2, 7)


def judge(view: DeviceView) -> Answer:
    """Find conversions that take a notable part of compute time."""
    chosen = of_types(view, _FORMAT)
    part = share_of_compute(view, chosen)
    if not part or part < view.thresholds.layout_share:
        return None
    rows = moves(view, chosen, _formats)
    return Detected(
        title=say("{share} of compute time converts formats: {conversions}",
                  share=share(part), conversions=listed(rows)),
        evidence={
            "share_of_compute": part, "count": int(chosen.sum()),
            "kinds": len(rows), "conversions": rows[:MOST_ROWS],
        },
        gain=(0, view.per_step(view.exposed(chosen))),
        refute=say("the conversions stay, or the operators become slower by more than the conversions took"),
        next=_advice(view, rows),
    )  # fmt: skip


def _formats(operands: Operands) -> tuple[str | None, str | None]:
    return next(iter(operands.formats), None), next(iter(operands.out_formats), None)


def _private_by_default(view: DeviceView) -> bool | None:
    """Tell whether torch_npu allows private formats where the program sets nothing."""
    if product_of_soc(view.profile.soc or "") == "Atlas A3":
        return False
    version = view.traits.torch_npu
    if version is None or _ON_BEFORE <= version[:2] < _OFF_SINCE:
        return None
    return version[:2] < _ON_BEFORE


def _between(rows: list[MoveRow]) -> Requirement:
    """Require conversions that the switch reaches: those between operators."""
    between = any(row["by"] != "operator" for row in rows)
    return Requirement(say("conversions between operators, not inside aclnn calls"), lambda _: between)


def _weights(rows: list[MoveRow]) -> Option:
    inside = [row for row in rows if row["by"] == "operator" and _NZ in (row["source"], row["target"])]
    converts = Requirement(say("operators that convert to FRACTAL_NZ"), lambda _: bool(inside))
    store = say(
        "store weights that do not change as FRACTAL_NZ once: torch.npu.config.allow_internal_format = True, then "
        "torch_npu.npu_format_cast(weight, 29)"
    )
    if inside:
        store = say("for {operators}, {advice}", operators=askers(inside, "operator"), advice=store)
    return Option(store, _FRACTAL, (INFERENCE, converts))


def _advice(view: DeviceView, rows: list[MoveRow]) -> tuple[Option, ...]:
    """Return what changes conversions between operators, and those inside of operators, the longest first."""
    allowed = Requirement(say("private formats allowed by torch_npu's default"), _private_by_default)
    switch = Option(
        say("set torch.npu.config.allow_internal_format = False, so that operators exchange ND and NCHW tensors only"),
        _SWITCH,
        (EAGER, _between(rows), allowed),
    )
    weights = _weights(rows)
    inside = any(row["by"] == "operator" for row in rows)
    ways = [weights, switch] if rows[0]["by"] == "operator" else [switch, weights]
    return (*ways, *([_inside(rows)] if inside else []), *([] if inside else [_look(view, rows)]))


def _inside(rows: list[MoveRow]) -> Option:
    longest = next(row for row in rows if row["by"] == "operator")
    compare = (
        say("compare other sizes or another dtype")
        if longest["shape"] is None
        else say("compare other sizes than [{shape}], or another dtype", shape=longest["shape"])
    )
    return Option(
        say("conversions inside {operators} do not depend on allow_internal_format: {compare}",
            operators=askers(rows, "operator"), compare=compare),
        _NAMES,
    )  # fmt: skip


def _look(view: DeviceView, rows: list[MoveRow]) -> Option:
    where = places(rows, rows[0]["by"])
    if where.items:
        return Option(say("keep one format along the path around {where}", where=where), _NAMES)
    return Option(chain(say("keep one format along the path"), see_where(view)), _NAMES)


RULE = Rule("layout", TITLE, SOURCE, (OPERATOR_TYPES, ALL_ROWS), judge)
