"""Kernels launched through aclopCompileAndExecute: looked up, or compiled, while the program runs."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
from msgspec import Struct

from npuperf.advise.blocking_copies import HOST_CALLS
from npuperf.advise.requirements import ON_NPU, Option, Requirement
from npuperf.advise.rule import Answer, Detected, Rule, at_most
from npuperf.host.causes import CODE
from npuperf.host.enclosing import NONE
from npuperf.messages import Message, Series, chain, ns, say, series
from npuperf.model.chip import product_of_soc
from npuperf.model.groups import distinct
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import Work
from npuperf.scopes.view import DeviceView

TITLE = say("operators compiled or looked up online")
SOURCE = say(
    "calls of aclopCompileAndExecute in the timeline; torch_npu (op-plugin) takes it where jit_compile is on, an input "
    "has an internal format, convolutions may have one, or the operator has no aclnn interface"
)
_QUEUED: Final = re.compile(r"^Dequeue@(.+)$")
_NN: Final = re.compile(r"^AscendCL@aclnn\w+$")
_PREPARES: Final = re.compile(r"GetWorkspaceSize$")
_CONVOLUTION: Final = re.compile(r"^(Depthwise)?Conv\d?D|^DepthwiseConv")
_SHOWN: Final = 3


class Calls(Struct, frozen=True):
    """Calls of aclopCompileAndExecute, ordered by start.

    ``dur``: ns; ``compile``: ns in opCompile inside, -1 where none is recorded; ``recurs``: 1 where an earlier call was
    for the same operator and input shapes, 0 where none was, -1 where shapes are not recorded; ``inside``: whether it
    lies in the window, or launched a task of it.
    """

    type: Labels
    dur: I64
    compile: I64
    recurs: I64
    inside: Mask

    @classmethod
    def of(cls, view: DeviceView) -> Calls:
        """Find the calls of a device's profile, and what each launched."""
        nesting, tasks = view.study.nesting, view.profile.tasks
        events = nesting.events
        is_call = nesting.causes == CODE["aclop"]
        call = np.flatnonzero(is_call)
        call = call[np.argsort(events.start[call], kind="stable")]
        number = np.full(len(events), NONE)
        number[call] = np.arange(len(call))
        launched = np.flatnonzero(tasks.launched & (tasks.work == Work.COMPUTE)) if len(call) else call
        at = nesting.nearest(nesting.at(tasks.launch_thread[launched], tasks.launch_start[launched]), is_call)
        launched, owner = launched[at >= 0], number[at[at >= 0]]
        main = _longest(owner, launched, tasks.dur, len(call))
        named = view.study.types.take(main)
        begin = events.start[call] - view.study.launches.skew
        first, end = view.tasks.start.min(), view.tasks.end.max()
        inside = (begin >= first) & (begin < end)
        inside[owner[(tasks.start[launched] >= first) & (tasks.start[launched] < end)]] = True
        return cls(
            _queued_names(view, call).fill(named),
            events.end[call] - events.start[call],
            _compile_times(view, is_call, number, len(call)),
            _recurring(named, tasks.shapes.take(main)),
            inside,
        )

    def filter(self, chosen: Mask) -> Calls:
        """Return the calls where ``chosen`` holds."""
        dur, compile, recurs, inside = (
            x[chosen] for x in (self.dur, self.compile, self.recurs, self.inside.astype(int))
        )
        return Calls(self.type.filter(chosen), dur, compile, recurs, inside > 0)


def _longest(owner: I64, launched: I64, dur: I64, calls: int) -> I64:
    """Return the longest task that each call launched, NONE where it launched none."""
    main = np.full(calls, NONE)
    order = np.argsort(dur[launched], kind="stable")
    main[owner[order]] = launched[order]
    return main


def _queued_names(view: DeviceView, call: I64) -> Labels:
    """Name the calls after the operator that the task queue's consumer took; missing without a queue."""
    nesting = view.study.nesting
    names = nesting.events.name
    found = [_QUEUED.match(n) for n in names.names]
    around = names.take(nesting.nearest(call, names.flag([m is not None for m in found])))
    return Labels(around.codes, tuple(m.group(1) if m else n for m, n in zip(found, names.names, strict=True)))


def _compile_times(view: DeviceView, is_call: Mask, number: I64, calls: int) -> I64:
    nesting = view.study.nesting
    inner = np.flatnonzero(nesting.causes == CODE["compile"])
    around = nesting.nearest(inner, is_call)
    inner, around = inner[around >= 0], around[around >= 0]
    total, seen = np.zeros(calls, np.int64), np.zeros(calls, np.bool_)
    np.add.at(total, number[around], (nesting.events.end - nesting.events.start)[inner])
    seen[number[around]] = True
    return np.where(seen, total, -1)


def _recurring(type: Labels, shapes: Labels) -> I64:
    """Tell which calls repeat an earlier one's operator and input shapes."""
    known = type.known() & shapes.known()
    key = type.codes.astype(np.int64) * (len(shapes.names) + 1) + shapes.codes
    _, first = np.unique(key, return_index=True)
    recurs = np.ones(len(key), np.int64)
    recurs[first] = 0
    return np.where(known, recurs, -1)


def judge(view: DeviceView) -> Answer:
    """Weigh the calls against what an aclnn call of the same profile costs."""
    calls = Calls.of(view)
    calls = calls.filter(calls.inside)
    if not len(calls.dur):
        return None
    usual = _usual_call(view)
    total = int(calls.dur.sum())
    excess = int(np.maximum(calls.dur - (usual or 0), 0).sum())
    gain = at_most(view.predict(f"host:aclop*{1 - excess / max(total, 1):.6f}"))
    most = gain[1] if gain else 0
    if view.blamed("aclop") < view.thresholds.cause_share * view.partition.span_ns and (
        most < view.thresholds.lost_share * view.per_step(view.partition.span_ns)
    ):
        return None
    compiled = calls.compile >= view.thresholds.compile_call_ns
    return Detected(
        title=chain(_title(calls, usual, int(compiled.sum())), _compiles(calls, int(compiled.sum()))),
        evidence=_evidence(view, calls, usual, compiled),
        gain=gain,
        refute=say("most of each call remains where the same operator runs through aclnn"),
        next=_advice(view, calls, usual, bool(compiled.any())),
    )


def _usual_call(view: DeviceView) -> int | None:
    """Return what an aclnn call costs the host here: medians of preparing and of launching; None without any."""
    events = view.profile.host.events
    names, dur = events.name.names, events.end - events.start
    prepares = events.name.flag([bool(_NN.match(n) and _PREPARES.search(n)) for n in names])
    executes = events.name.flag([bool(_NN.match(n) and not _PREPARES.search(n)) for n in names])
    if not executes.any():
        return None
    return int(np.median(dur[executes])) + (int(np.median(dur[prepares])) if prepares.any() else 0)


def _title(calls: Calls, usual: int | None, compiled: int) -> Message:
    each = ns(float(np.median(calls.dur)))
    what = say(
        "{count} operators are launched through aclopCompileAndExecute, which takes the host {each} in the median",
        count=len(calls.dur),
        each=each,
    )
    if usual is not None:
        what = say(
            "{count} operators are launched through aclopCompileAndExecute, which takes the host {each} in the median "
            "where an aclnn call takes {usual}",
            count=len(calls.dur),
            each=each,
            usual=ns(usual),
        )
    if compiled:
        return say("{what}, {compiled} of them compile: {types}", what=what, compiled=compiled, types=_types(calls))
    return say("{what}: {types}", what=what, types=_types(calls))


def _rows(calls: Calls) -> list[dict[str, Any]]:
    codes = calls.type.codes + 1
    total, count = np.bincount(codes, weights=calls.dur), np.bincount(codes)
    names = (None, *calls.type.names)
    order = [i for i in np.argsort(-total, kind="stable").tolist() if count[i]]
    return [{"type": names[i], "count": int(count[i]), "host_ns": int(total[i])} for i in order]


def _types(calls: Calls) -> Series:
    rows = _rows(calls)[:_SHOWN]
    return series(say("{type} ×{count}", type=row["type"] or "N/A", count=row["count"]) for row in rows)


def _evidence(view: DeviceView, calls: Calls, usual: int | None, compiled: Mask) -> dict[str, Any]:
    told = calls.compile >= 0
    return {
        "calls": len(calls.dur),
        "host_ns": int(calls.dur.sum()),
        "host_wait_ns": view.blamed("aclop"),
        "aclnn_call_ns": usual,
        "compiled": int(compiled.sum()) if told.any() else None,
        "longest_compile_ns": int(calls.compile.max()) if told.any() else None,
        "shapes_known": int((calls.recurs >= 0).sum()),
        "shapes_seen_before": int((calls.recurs == 1).sum()),
        "types": _rows(calls),
    }


def _advice(view: DeviceView, calls: Calls, usual: int | None, compiled: bool) -> tuple[Option, ...]:
    """Whether jit_compile is on is not recorded; what ran through aclnn beside tells that it probably is not."""
    switch = Requirement(say("jit_compile switched on"), lambda _: None if compiled or usual is None else False)
    kept = any(_CONVOLUTION.match(name) for name in _names(calls)) and _formats_allowed(view) is not False
    convolutions = Requirement(say("convolutions that may have internal formats"), lambda _: kept)
    others = Requirement(say("no convolutions that may have internal formats"), lambda _: not kept)
    off = Requirement(say("operators that run through aclnn beside them"), lambda _: usual is not None and not compiled)
    return (
        Option(_switched_off(compiled), SOURCE, (ON_NPU, switch)),
        Option(_WITHOUT_FORMATS, SOURCE, (ON_NPU, off, convolutions, _FORMATS_ALLOWED)),
        Option(_NO_INTERFACE, SOURCE, (ON_NPU, off, others)),
        Option(_WITH_SHAPES, SOURCE, (ON_NPU, Requirement(say("input shapes not recorded"), lambda _: _untold(calls)))),
    )


def _switched_off(compiled: bool) -> Message:
    if compiled:
        return say(
            "call torch.npu.set_compile_mode(jit_compile=False) before the first step, so that operators come from the "
            "binary package; it is the default from Atlas A2 on"
        )
    return say(
        "call torch.npu.set_compile_mode(jit_compile=False): nothing ran through aclnn, which torch_npu takes only "
        "then; it is the default from Atlas A2 on"
    )


def _formats_allowed(view: DeviceView) -> bool | None:
    """Atlas A3 never allows them by default; elsewhere that depends on the version and on the program."""
    return False if product_of_soc(view.profile.soc or "") == "Atlas A3" else None


_FORMATS_ALLOWED: Final = Requirement(say("internal formats allowed"), _formats_allowed)
_WITHOUT_FORMATS: Final = say(
    "set torch.npu.config.allow_internal_format = False before the model is built: as long as internal formats are "
    "allowed, convolutions and what gets their format do not run through aclnn; jit_compile seems to be off already, "
    "as other operators do"
)
_NO_INTERFACE: Final = say(
    "jit_compile seems to be off already, as other operators run through aclnn (it is not recorded); these have inputs "
    "of an internal format (torch.npu.config.allow_internal_format = False avoids them), or no aclnn interface in this "
    "version of torch_npu and CANN"
)
_WITH_SHAPES: Final = say("record with npuperf profile --level 1 --shapes, which tells whether their shapes recur")


def _names(calls: Calls) -> list[str]:
    return [calls.type.names[code] for code in distinct(calls.type.codes[calls.type.known()]).tolist()]


def _untold(calls: Calls) -> bool:
    """Tell whether neither compile times nor shapes say what the calls had to do."""
    return not (calls.compile >= 0).all() and not (calls.recurs >= 0).any()


def _compiles(calls: Calls, compiled: int) -> Message | None:
    """Say what the recording tells of compiling: opCompile's own time first, else whether shapes came before.

    One recording has few steps, so a shape that is new in it need not be new to the program.
    """
    if compiled:
        return None
    if (calls.compile >= 0).all():
        return say(
            "none of them compiles here, opCompile takes {longest} at most", longest=ns(int(calls.compile.max()))
        )
    known = int((calls.recurs >= 0).sum())
    if not known:
        return None
    return say("{again} of {known} have shapes that came before in the recording",
               again=int((calls.recurs == 1).sum()), known=known)  # fmt: skip


RULE = Rule("online_compile", TITLE, SOURCE, HOST_CALLS, judge, relieves="host")
