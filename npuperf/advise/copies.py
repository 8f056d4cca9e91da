"""Copies and transposes: values that are stored anew in another order, and who asked for that."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from npuperf.advise.moves import (
    BUCKETS,
    MOST_ROWS,
    MoveRow,
    askers,
    listed,
    moves,
    of_types,
    places,
    share_of_compute,
)
from npuperf.advise.needs import ALL_ROWS, OPERATOR_TYPES, see_where
from npuperf.advise.requirements import EAGER, ON_NPU, Option, Requirement, still_unset
from npuperf.advise.rule import Answer, Detected, Rule
from npuperf.messages import Message, chain, say, share
from npuperf.scopes.view import DeviceView

TITLE = say("copies and transposes")
SOURCE = say("operator types Transpose, AsStrided, ViewCopy, TensorMove, Slice and similar ones")

_COPY: Final = re.compile(r"(^|_)(transposed?|asstrided|viewcopy|tensormove|contiguous)$", re.I)
#: In graphs slices are the program's own; in eager mode a slice is a view, and only storing it anew is a kernel.
_SLICE: Final = re.compile(r"(^|_)(strided)?sliced?$", re.I)
_EAGER_NAME: Final = re.compile(r"^aclnn")
_NAMES: Final = say("kernel names and the torch operators around them; views cost nothing until they are stored anew")
_COMBINED: Final = say("Ascend Extension for PyTorch, environment variables: COMBINED_ENABLE")
_DDP: Final = say("PyTorch, DistributedDataParallel: gradient_as_bucket_view")
_IN_BUCKETS: Final = say(
    "build DistributedDataParallel with gradient_as_bucket_view=True: gradients then lie in the buckets that are "
    "reduced, and are not copied back (not for programs that call detach_() on gradients)"
)


def judge(view: DeviceView) -> Answer:
    """Find copies that take a notable part of compute time."""
    names = view.tasks.name
    eager = names.flag([bool(_EAGER_NAME.match(n)) for n in names.names])
    chosen = of_types(view, _COPY) | (of_types(view, _SLICE) & eager)
    part = share_of_compute(view, chosen)
    if not part or part < view.thresholds.layout_share:
        return None
    rows = moves(view, chosen, lambda _: (None, None))
    return Detected(
        title=say("{share} of compute time copies values: {copies}", share=share(part), copies=listed(rows)),
        evidence={"share_of_compute": part, "count": int(chosen.sum()), "kinds": len(rows), "copies": rows[:MOST_ROWS]},
        gain=(0, view.per_step(view.exposed(chosen))),
        refute=say("the next operator is slower by as much when it reads the values as they lie"),
        next=_advice(view, rows),
    )


def _advice(view: DeviceView, rows: list[MoveRow]) -> tuple[Option, ...]:
    """Return what spares the gradients' copies of DDP, the program's own, and those inside operators."""
    program = [row for row in rows if row["by"] in ("program", "unknown")]
    of_ddp, of_program = _takes(view, rows, _of_ddp), _takes(view, rows, _own)
    buckets = Requirement(say("gradients copied from DDP's buckets"), lambda _: of_ddp)
    own = Requirement(say("copies by the program's own operators"), lambda _: of_program)
    views = any(not (row["type"] or "tensormove").lower().endswith("tensormove") for row in program)
    stored = Requirement(say("views that are stored anew"), lambda _: views)
    return (
        Option(_IN_BUCKETS, _DDP, (buckets,)),
        Option(_drop(view, [row for row in rows if _own(row)]), _NAMES, (own,)),
        *([] if of_ddp or of_program else [_inside(rows)]),
        Option(
            say("set COMBINED_ENABLE=1: several view operators in a row are stored anew at once"),
            _COMBINED,
            (ON_NPU, EAGER, stored, still_unset("COMBINED_ENABLE", "1")),
        ),
    )


def _inside(rows: list[MoveRow]) -> Option:
    return Option(
        say("copies inside {operators} are part of these calls: compare inputs whose dimensions lie in another order",
            operators=askers(rows, "operator")),
        _NAMES,
    )  # fmt: skip


def _of_ddp(row: MoveRow) -> bool:
    return row["asked"] == BUCKETS


def _own(row: MoveRow) -> bool:
    return row["by"] != "operator" and not _of_ddp(row)


def _takes(view: DeviceView, rows: list[MoveRow], mine: Callable[[MoveRow], bool]) -> bool:
    """Tell whether some rows are the longest, or take a notable part of compute time."""
    compute = int(view.tasks.dur[view.compute].sum())
    return mine(rows[0]) or sum(r["total_ns"] for r in rows if mine(r)) >= view.thresholds.layout_share * compute


def _drop(view: DeviceView, rows: list[MoveRow]) -> Message:
    """Say where, as far as it is known."""
    where = places(rows, rows[0]["by"]) if rows else None
    if where and where.items:
        return say("look at {where}: drop copies that nobody needs (.contiguous(), .clone(), copy_), and order "
                   "dimensions once, as the next operator reads them", where=where)  # fmt: skip
    drop = say("drop copies that nobody needs (.contiguous(), .clone(), copy_), and order dimensions once, as the next "
               "operator reads them")  # fmt: skip
    return chain(drop, see_where(view))


RULE = Rule("copies", TITLE, SOURCE, (OPERATOR_TYPES, ALL_ROWS), judge)
