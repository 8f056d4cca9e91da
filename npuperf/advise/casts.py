"""Casts between dtypes: of what, for whom, and where in the code."""

from __future__ import annotations

import re
from typing import Final

from npuperf.advise.moves import MOST_ROWS, MoveRow, askers, listed, moves, of_types, places, share_of_compute, who
from npuperf.advise.needs import ALL_ROWS, OPERATOR_TYPES, see_where
from npuperf.advise.requirements import Option
from npuperf.advise.rule import Answer, Detected, Rule
from npuperf.messages import Message, chain, say, share
from npuperf.model.operands import Operands
from npuperf.scopes.view import DeviceView

TITLE = say("casts between dtypes")
SOURCE = say("operator type Cast; Input and Output Data Types, and the operator in the kernel's name")

_CAST: Final = re.compile(r"(^|_)cast$", re.I)
_NAMES: Final = say("kernel names: aclnnCast and aclnnInplaceCopy are the program's, other aclnn names the operator's")


def judge(view: DeviceView) -> Answer:
    """Find casts that take a notable part of compute time."""
    chosen = of_types(view, _CAST)
    part = share_of_compute(view, chosen)
    if not part or part < view.thresholds.layout_share:
        return None
    rows = moves(view, chosen, _dtypes, of_shapes=True)
    return Detected(
        title=say(
            "{share} of compute time converts dtypes: {casts}", share=share(part), casts=listed(rows, of_shapes=True)
        ),
        evidence={"share_of_compute": part, "count": int(chosen.sum()), "kinds": len(rows), "casts": rows[:MOST_ROWS]},
        gain=(0, view.per_step(view.exposed(chosen))),
        refute=say("the values need both dtypes (then the cast stays), or other streams hide the casts"),
        next=_advice(view, rows),
    )


def _dtypes(operands: Operands) -> tuple[str | None, str | None]:
    return next(iter(operands.dtypes), None), next(iter(operands.out_dtypes), None)


def _advice(view: DeviceView, rows: list[MoveRow]) -> tuple[Option, ...]:
    """Return advice for each of those who ask for much, the longest casts first."""
    options = {
        "program": Option(_own(view, rows), _NAMES),
        "unknown": Option(
            say("who casts is not recorded (npuperf profile --activities cpu,npu --stack records it): keep one dtype "
                "along the path, and convert a value once"),
            _NAMES,
        ),
        "operator": Option(
            say("casts inside {operators}: they compute in another dtype than they get or return; compare "
                "them with tensors of the other dtype", operators=askers(rows, "operator")),
            _NAMES,
        ),
        "compiler": Option(
            say("casts were put between operators that do not support the dtype: use one that both sides have"), _NAMES
        ),
    }  # fmt: skip
    return tuple(options[by] for by in who(view, rows))


def _own(view: DeviceView, rows: list[MoveRow]) -> Message:
    where = places(rows, "program")
    if where.items:
        return say(
            "the program casts at {where}: keep one dtype along the path (.float(), .to() and autocast each add a "
            "cast), and convert a value once",
            where=where,
        )
    keep = say(
        "the program casts: keep one dtype along the path (.float(), .to() and autocast each add a cast), and convert "
        "a value once"
    )
    return chain(keep, see_where(view))


RULE = Rule("casts", TITLE, SOURCE, (OPERATOR_TYPES, ALL_ROWS), judge)
