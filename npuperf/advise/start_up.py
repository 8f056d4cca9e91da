"""Work of the first calls of a process in the window: contexts, modules, binaries. A warm run has none of it."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from npuperf.advise.needs import HOST_EVENTS, HOST_WAITS, RUNTIME_CALLS, Need, where_host_bound
from npuperf.advise.rule import Answer, Detected, Rule, notable_wait
from npuperf.messages import Message, ns, say, series, share
from npuperf.model.groups import distinct
from npuperf.model.host import Spans
from npuperf.model.labels import I64
from npuperf.model.thresholds import Thresholds
from npuperf.scopes.view import DeviceView

TITLE = say("start-up work")
SOURCE = say(
    "runtimes make a context, and load the code of a kernel, in the first call that needs it; guides of profilers: "
    "record after warm-up"
)

#: Calls that may be one-time work; waits and copies take as long as the device, compilation has a rule of its own.
_CALL: Final = re.compile(r"^(AscendCL@acl|Runtime@|acl|cuda|cu[A-Z]|hip)")
_NOT: Final = re.compile(r"Synchronize|Memcpy|Memset|Wait|Query|Compile")
#: Calls that only set something up.
_ONCE: Final = re.compile(
    r"^(?:cuInit|cu(?:da)?(?:Module|Library)(?:Load|Get)\w*|cuCtxCreate\w*|cuDevicePrimaryCtx\w*|cudaSetDevice"
    r"|cudaStreamCreate\w*|cudaGetDeviceProperties\w*|hip(?:Init|SetDevice|Module(?:Load|Get)\w*|StreamCreate\w*)"
    r"|(?:\w+@)?(?:aclInit|aclrtSetDevice|aclrtCreate(?:Context|Stream)\w*|aclrtBinaryLoad\w*|HcclCommInit\w*"
    r"|\w*(?:DevBinaryRegister|RegisterAllKernel)\w*))$"
)
#: The call that is used to make the context, if it is the first of all.
_CONTEXT: Final = ("cudaFree", "hipFree")
#: One-time work is done in one of the first calls of a name: the very first may only be on another thread or stream.
_FIRST: Final = 3
_NAMED: Final = 3


def judge(view: DeviceView) -> Answer:
    """Sum what the device waits while the host is in first calls that take much longer than later ones."""
    events, once = view.study.nesting.events, one_time(view.study.nesting.events, view.thresholds)
    if not len(once) or not len(view.tasks):
        return None
    blamed = view.study.blamed.within(int(view.tasks.start.min()), int(view.tasks.end.max()))
    mine = np.isin(blamed.event, once)
    length = (blamed.end - blamed.start)[mine]
    waited = int(length.sum())
    if waited < notable_wait(view):
        return None
    codes = events.name.codes[blamed.event[mine]]
    totals = np.bincount(codes, weights=length, minlength=len(events.name.names))
    order = [i for i in np.argsort(-totals, kind="stable").tolist() if totals[i] > 0]
    calls = [{"name": events.name.names[i], "ns": int(totals[i])} for i in order]
    span = view.partition.span_ns
    shown = series(say("{name} {time}", name=events.name.names[i], time=ns(float(totals[i]))) for i in order[:_NAMED])
    return Detected(
        title=say(
            "start-up work is in the window: for {share} of it the device waits for first calls ({calls}); without "
            "them {left} are left",
            share=share(waited / span),
            calls=shown,
            left=ns(span - waited),
        ),
        evidence={"host_wait_ns": waited, "calls": calls, "left_ns": span - waited},
        gain=(0, view.per_step(waited)),
        refute=say("the same calls take as long in a recording after ten steps"),
        next=_next(view),
    )


def _next(view: DeviceView) -> Message:
    if view.profile.kineto:
        return say("record after warm-up: torch.profiler.profile(schedule=schedule(wait=5, warmup=5, active=2)), with "
                   "step() at the end of each step")  # fmt: skip
    return say("record after warm-up: npuperf profile --wait 10 (its default)")


def one_time(events: Spans, thresholds: Thresholds) -> I64:
    """Return the events that do one-time work: long, among the first of their name, and never so long again."""
    if not len(events):
        return np.empty(0, np.int64)
    names = events.name.names
    dur = events.end - events.start
    calls = events.name.flag([bool(_CALL.search(n)) and not _NOT.search(n) for n in names])
    long = calls & (dur >= thresholds.pause_ns)
    first_of_all = int(np.flatnonzero(calls)[np.argmin(events.start[calls])]) if calls.any() else -1
    once = long & events.name.flag([bool(_ONCE.match(n)) for n in names])
    if first_of_all >= 0 and names[events.name.codes[first_of_all]] in _CONTEXT:
        once[first_of_all] |= bool(long[first_of_all])
    for code in distinct(events.name.codes[long]).tolist():
        once[_first_calls(events, dur, code, thresholds)] = True
    return np.flatnonzero(once & long)


def _first_calls(events: Spans, dur: I64, code: int, thresholds: Thresholds) -> I64:
    """Return those of the first calls of a name that take much longer than any later one."""
    mine = np.flatnonzero(events.name.codes == code)
    mine = mine[np.argsort(events.start[mine], kind="stable")]
    first, later = mine[:_FIRST], mine[_FIRST:]
    if not len(later):
        return np.empty(0, np.int64)
    long: I64 = first[dur[first] >= thresholds.first_call_factor * dur[later].max()]
    return long


def _unpaused(view: DeviceView) -> float:
    """Tell whether no wait is so long, with nothing recorded, that one-time work may have been done in it."""
    return float(not any(b.cause == "unrecorded" and b.ns >= view.thresholds.pause_ns * b.count
                         for b in view.report.blame))  # fmt: skip


_NO_PAUSE: Final = Need(say("no pause"), _unpaused, HOST_EVENTS.supply, vital=False)

RULE = Rule(
    "start_up",
    TITLE,
    SOURCE,
    (*HOST_WAITS, *where_host_bound(RUNTIME_CALLS, _NO_PAUSE)),
    judge,
    any_device=True,
    relieves="host",
)
