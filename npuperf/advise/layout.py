"""Transposes, casts and format conversions: time spent on rearranging data."""

from __future__ import annotations

import re

from npuperf.advise.rule import View, finding, quote, top_types
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds
from npuperf.units import percent

TITLE = "transposes and format casts"
SOURCE = "operator types TransData, Transpose, Cast and their kin in op_summary"

_LAYOUT = re.compile(r"^(trans_)?(transdata|transposed?|cast|formatcast|npuformatcast|asstrided|contiguous)$", re.I)


def needs(view: View) -> str | None:
    """Operator types must be recorded: names alone do not tell a cast from an operator that casts."""
    if (view.tasks.type.known() & view.compute).any():
        return None
    return "operator types are not recorded: npuperf profile --level 1"


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Find rearranging operators that take a notable part of compute time."""
    chosen = view.compute & view.types.flag([bool(_LAYOUT.match(n)) for n in view.types.names])
    total = int(view.tasks.dur[view.compute].sum())
    share = int(view.tasks.dur[chosen].sum()) / total if total else 0.0
    if share < thresholds.layout_share:
        return None
    rows = top_types(view, chosen)
    return finding(
        view,
        "layout",
        "problem",
        f"{percent(share)} of compute time rearranges data: {quote(rows)}",
        evidence={"share_of_compute": share, "count": int(chosen.sum()), "types": rows},
        gain=(0, view.per_step(view.exposed(chosen))),
        refute="the conversions stay after torch.npu.config.allow_internal_format = False, or move elsewhere",
        next="set torch.npu.config.allow_internal_format = False, keep one dtype across neighbouring operators",
        source=SOURCE,
    )
