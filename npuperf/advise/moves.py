"""Kernels that compute nothing: what they turn into what, and who asked for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypedDict

import numpy as np

from npuperf.messages import Message, Series, say, series
from npuperf.model.host import Spans
from npuperf.model.labels import I64, Mask
from npuperf.model.operands import Operands
from npuperf.scopes.view import DeviceView

#: ``program``: an operator of the program does nothing else; ``operator``: an operator converts for itself;
#: ``compiler``: put between operators when they were compiled; ``unknown``: neither name nor torch operator tells.
AskedBy = Literal["program", "operator", "compiler", "unknown"]

#: Rows of a table in the evidence.
MOST_ROWS: Final = 20
_ACLNN: Final = re.compile(r"(aclnn\w+?)_")
_INSERTED: Final = re.compile(r"^trans_", re.I)
#: Calls that only move or convert: whoever makes them means it.
_PLAIN: Final = re.compile(r"^aclnn(Cast|InplaceCopy|Contiguous|NpuFormatCast|TransConvertWeight\w*|Permute|Clone)$")
#: What torch.distributed calls the copies of gradients from the buckets that were reduced.
BUCKETS: Final = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
_UNRECORDED: Final = Operands((), (), (), ())


class _Kind(NamedTuple):
    source: str | None
    target: str | None
    type: str | None
    by: AskedBy
    asked: str | None
    shape: str | None = None


class MoveRow(TypedDict):
    """Kernels of one kind in the evidence; None: not recorded."""

    source: str | None
    target: str | None
    type: str | None
    by: AskedBy
    asked: str | None
    count: int
    total_ns: int
    shape: str | None
    where: list[str]


def of_types(view: DeviceView, pattern: re.Pattern[str]) -> Mask:
    """Return the compute tasks whose operator type matches; a type or the end of a kernel's name."""
    chosen: Mask = view.compute & view.types.flag([bool(pattern.search(n)) for n in view.types.names])
    return chosen


def share_of_compute(view: DeviceView, chosen: Mask) -> float:
    """Return the part of compute time in some tasks."""
    total = int(view.tasks.dur[view.compute].sum())
    return int(view.tasks.dur[chosen].sum()) / total if total else 0.0


def moves(
    view: DeviceView,
    chosen: Mask,
    ends: Callable[[Operands], tuple[str | None, str | None]],
    *,
    of_shapes: bool = False,
) -> list[MoveRow]:
    """Group tasks by what they turn into what (``ends``) and who asked for it, the longest first.

    ``of_shapes``: tensors of different shapes are different kinds.
    """
    index = np.flatnonzero(chosen)
    tasks = view.tasks
    columns = (tasks.name, tasks.operands, tasks.shapes) if of_shapes else (tasks.name, tasks.operands)
    key = np.zeros(len(index), np.int64)
    for column in columns:
        key = np.unique(key * (len(column.names) + 1) + column.codes[index] + 1, return_inverse=True)[1]
    buckets = from_buckets(view, index)
    _, first, group = np.unique(2 * key + buckets, return_index=True, return_inverse=True)
    kinds: dict[_Kind, int] = {}
    kind_of = np.zeros(len(first), np.int64)
    for number, at in enumerate(index[first].tolist()):
        shape = _shape(view, at) if of_shapes else None
        by, asked = ("program", BUCKETS) if buckets[first[number]] else asked_by(view, at)
        kind = _Kind(*ends(_operands(view, at)), view.types[at], by, asked, shape)
        kind_of[number] = kinds.setdefault(kind, len(kinds))
    mine = kind_of[group.reshape(-1)]  # its shape differs between versions of numpy
    order = np.argsort(mine, kind="stable")
    members = np.split(index[order], np.flatnonzero(np.diff(mine[order])) + 1)
    rows = [_row(view, kind, own) for kind, own in zip(kinds, members, strict=True)]
    return sorted(rows, key=lambda row: -row["total_ns"])


def from_buckets(view: DeviceView, index: I64) -> Mask:
    """Tell which tasks copy gradients from DDP's buckets: their operators lie within its own range."""
    ops, op = view.profile.host.ops, view.tasks.op[index]
    of_ddp = ops.name.flag([name == BUCKETS for name in ops.name.names])
    found = np.zeros(len(index), np.bool_)
    if of_ddp.any():
        known = np.flatnonzero(op >= 0)
        ranges = Spans(ops.start[of_ddp], ops.end[of_ddp], ops.thread[of_ddp], ops.name.filter(of_ddp))
        found[known] = ranges.latest(ops.thread[op[known]], ops.start[op[known]]) >= 0
    return found


def _row(view: DeviceView, kind: _Kind, index: I64) -> MoveRow:
    longest = int(index[np.argmax(view.tasks.dur[index])])
    return {
        "source": kind.source,
        "target": kind.target,
        "type": kind.type,
        "by": kind.by,
        "asked": kind.asked,
        "count": len(index),
        "total_ns": int(view.tasks.dur[index].sum()),
        "shape": _shape(view, longest),
        "where": view.code_lines(index),
    }


def _shape(view: DeviceView, task: int) -> str | None:
    return (view.tasks.shapes[task] or "").strip('"').strip(";") or None


def _operands(view: DeviceView, task: int) -> Operands:
    text = view.tasks.operands[task]
    return Operands.parse(text) if text else _UNRECORDED


def asked_by(view: DeviceView, task: int) -> tuple[AskedBy, str | None]:
    """Tell who asked for a kernel, by its name, and the call or torch operator that it belongs to."""
    name = view.tasks.name[task] or ""
    torch = view.profile.host.torch_op(int(view.tasks.op[task]))
    if _INSERTED.match(name):
        return "compiler", torch
    call = _ACLNN.match(name)
    if call is None and torch is None:
        return "unknown", None
    if call is None or _PLAIN.match(call.group(1)):
        return "program", torch or (call.group(1) if call else None)
    return "operator", call.group(1)


def listed(rows: list[MoveRow], count: int = 3, *, of_shapes: bool = False) -> Series:
    """Return the longest kinds as a list to show."""
    return series(_text(row, of_shapes=of_shapes) for row in rows[:count])


def _text(row: MoveRow, *, of_shapes: bool) -> Message:
    if row["source"] is None or row["target"] is None or row["source"] == row["target"]:
        what = say("{type} ×{count}", type=row["type"] or "N/A", count=row["count"])
    else:
        what = say("{source} to {target} ×{count}", source=row["source"], target=row["target"], count=row["count"])
    if of_shapes and row["shape"]:
        what = say("{what} of [{shape}]", what=what, shape=row["shape"])
    return what if row["asked"] is None else say("{what} for {asked}", what=what, asked=row["asked"])


def who(view: DeviceView, rows: list[MoveRow]) -> list[AskedBy]:
    """Return who asked for a notable part of compute time, and at least who asked for the longest kernels."""
    total = int(view.tasks.dur[view.compute].sum())
    sums = dict.fromkeys((row["by"] for row in rows), 0)
    for row in rows:
        sums[row["by"]] += row["total_ns"]
    order = sorted(sums, key=lambda by: -sums[by])
    return [by for by in order if by == order[0] or sums[by] >= view.thresholds.layout_share * total]


def askers(rows: list[MoveRow], by: AskedBy, count: int = 3) -> Series:
    """Return the names of those who asked, the longest kernels first."""
    return series(list(dict.fromkeys(r["asked"] for r in rows if r["by"] == by and r["asked"]))[:count])


def places(rows: list[MoveRow], by: AskedBy, count: int = 3) -> Series:
    """Return code lines, or torch operators where no stack is recorded, of those who asked."""
    return series(list(dict.fromkeys(line for r in rows if r["by"] == by for line in r["where"]))[:count])
