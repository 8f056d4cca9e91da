"""Sequences of operators, and optimizers, that torch_npu has one fused operator for."""

from __future__ import annotations

from typing import Final, TypedDict

import numpy as np
from msgspec import Struct

from npuperf.advise.affinity import Found, by_kernels, by_operators
from npuperf.advise.needs import see_where
from npuperf.advise.optimizers import NOT_FUSED, fused_name, fused_optimizer, replaceable
from npuperf.advise.outermost import steps_of
from npuperf.advise.requirements import EAGER, INFERENCE, TRAINING, Option, Requirement
from npuperf.advise.rule import Answer, Detected, Rule, Untold
from npuperf.host.mode import is_graph
from npuperf.messages import Message, chain, say, series, share
from npuperf.model.groups import distinct
from npuperf.model.labels import Mask
from npuperf.model.operands import Operands
from npuperf.scopes.view import DeviceView

TITLE = say("sequences that have a fused operator")
SOURCE = say("the order of outermost torch operators on a thread, or of operator types on a stream")
_OPTIMIZERS: Final = say("torch_npu.optim, fused optimizers")


class ReplacedRow(TypedDict):
    """What one fused operator would replace, in the evidence."""

    api: str
    count: int
    kernels: int
    exposed_ns: int
    host_wait_ns: int
    where: list[str]


class _Replaced(Struct, frozen=True):
    row: ReplacedRow
    option: Option

    def applies(self, view: DeviceView) -> bool:
        """Tell whether nothing rules the replacement out."""
        return all(condition.test(view) is not False for condition in self.option.requires)


def judge(view: DeviceView) -> Answer:
    """Find complete sequences that take a notable part of the window, in time or in waiting for their launches."""
    told = bool((view.tasks.op[view.compute] >= 0).any())
    found = by_operators(view) if told else by_kernels(view)
    replaced = [_replaced(view, f) for f in found]
    if told and (optimizer := _optimizer(view)):
        replaced.append(optimizer)
    replaced.sort(key=lambda r: -(r.row["exposed_ns"] + r.row["host_wait_ns"]))
    rows = [r.row for r in replaced if r.applies(view)]
    most = sum(row["exposed_ns"] + row["host_wait_ns"] for row in rows)
    if not rows or most < view.thresholds.cause_share * view.partition.span_ns:
        return _nothing(view)
    return Detected(
        title=say(
            "{share} of span is in sequences that have a fused operator: {apis}",
            share=share(most / view.partition.span_ns),
            apis=series(map(_counted, rows[:3])),
        ),
        evidence={"replacements": rows},
        gain=(0, view.per_step(most)),
        refute=say(
            "the fused operator takes as long as its parts, or does not compute the same (the maximum assumes that it "
            "takes no time at all)"
        ),
        next=tuple(r.option for r in replaced),
    )


def _counted(row: ReplacedRow) -> Message:
    return say("{api} ×{count}", api=row["api"], count=row["count"])


def _nothing(view: DeviceView) -> Answer:
    """Say that there is nothing only where it would have been seen: nearly all kernels have their torch operator."""
    compute = view.compute
    total = int(view.tasks.dur[compute].sum())
    known = int(view.tasks.dur[compute & (view.tasks.op >= 0)].sum())
    if total and known >= view.thresholds.enough_data * total:
        return None
    if is_graph(view.mode):
        return Untold(say("the kernels run in graphs, so which torch operator they come from is not recorded"))
    return Untold(
        say("which torch operator launched a kernel is not recorded: record with npuperf profile --activities cpu,npu")
    )


def _replaced(view: DeviceView, found: Found) -> _Replaced:
    entry = found.replacement
    row = _row(view, entry.api, found.count, found.tasks)
    requires = [{"inference": INFERENCE, "training": TRAINING}[r] for r in (entry.requires,) if r]
    if entry.dtypes:
        requires.append(_of_dtypes(entry.dtypes, found.tasks))
    return _Replaced(row, Option(_advice(view, row), say("{source}", source=entry.source), tuple(requires)))


def _advice(view: DeviceView, row: ReplacedRow) -> Message:
    if row["where"]:
        return say("use {api} at {where}", api=row["api"], where=series(row["where"]))
    return chain(say("use {api}", api=row["api"]), see_where(view))


def _of_dtypes(dtypes: tuple[str, ...], tasks: Mask) -> Requirement:
    def test(view: DeviceView) -> bool | None:
        codes = distinct(view.tasks.operands.codes[tasks])
        texts = [view.tasks.operands.names[c] for c in codes.tolist() if c >= 0]
        floats = {d for t in texts for d in Operands.parse(t).dtypes[:1] if "FLOAT" in d or d == "BF16"}
        return floats <= set(dtypes) if floats else None

    return Requirement(say("tensors of {dtypes}", dtypes=series(dtypes)), test)


def _optimizer(view: DeviceView) -> _Replaced | None:
    """Return what the steps of an optimizer launch, if it can be replaced."""
    name = replaceable(view)
    if name is None or NOT_FUSED.test(view) is not True:
        return None
    count, of_steps = steps_of(view.profile.host, f"Optimizer.step#{name}.step", view.tasks.op)
    tasks: Mask = view.compute & of_steps
    if not tasks.any():
        return None
    row = _row(view, fused_name(name), count, tasks)
    return _Replaced(row, Option(fused_optimizer(view), _OPTIMIZERS, (EAGER, TRAINING, NOT_FUSED)))


def _row(view: DeviceView, api: str, count: int, tasks: Mask) -> ReplacedRow:
    return {
        "api": api,
        "count": count,
        "kernels": int(tasks.sum()),
        "exposed_ns": view.exposed(tasks),
        "host_wait_ns": int(view.waits[tasks].sum()),
        "where": view.code_lines(np.flatnonzero(tasks)),
    }


RULE = Rule("fused_operators", TITLE, SOURCE, (), judge)
