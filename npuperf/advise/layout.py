"""Transposes, casts and format conversions: time spent on rearranging data."""

from __future__ import annotations

import re
from typing import Final

from npuperf.advise.rule import Answer, Detected, Rule, quote, top_types
from npuperf.messages import Message, say, share
from npuperf.scopes.view import DeviceView

TITLE = say("transposes and format casts")
SOURCE = say("operator types TransData, Transpose, Cast and similar ones in op_summary")

_LAYOUT: Final = re.compile(
    r"^(trans_)?(transdata|transposed?|cast|formatcast|npuformatcast|asstrided|contiguous)$", re.I
)


def needs(view: DeviceView) -> Message | None:
    """Operator types must be recorded: names alone do not tell a cast from an operator that casts."""
    if (view.tasks.type.known() & view.compute).any():
        return None
    return say("operator types are not recorded: record with npuperf profile --level 1")


def judge(view: DeviceView) -> Answer:
    """Find rearranging operators that take a notable part of compute time."""
    chosen = view.compute & view.types.flag([bool(_LAYOUT.match(n)) for n in view.types.names])
    total = int(view.tasks.dur[view.compute].sum())
    part = int(view.tasks.dur[chosen].sum()) / total if total else 0.0
    if part < view.thresholds.layout_share:
        return None
    rows = top_types(view, chosen)
    return Detected(
        title=say("{share} of compute time is spent rearranging data: {types}", share=share(part), types=quote(rows)),
        evidence={"share_of_compute": part, "count": int(chosen.sum()), "types": rows},
        gain=(0, view.per_step(view.exposed(chosen))),
        refute=say("the conversions stay, or move elsewhere, with torch.npu.config.allow_internal_format = False"),
        next=say(
            "set torch.npu.config.allow_internal_format = False, and keep one dtype across neighbouring operators"
        ),
    )


RULE = Rule("layout", TITLE, SOURCE, needs, judge)
