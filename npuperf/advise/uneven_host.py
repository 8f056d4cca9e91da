"""Host calls of one kind that take much longer than usual again and again: a disturbed or badly placed thread."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from npuperf.advise.needs import HOST_WAITS, RUNTIME_CALLS, Need, where_host_bound
from npuperf.advise.requirements import ON_NPU, UNBOUND, Option
from npuperf.advise.rule import Answer, Detected, Rule, at_most
from npuperf.messages import Message, say, share
from npuperf.scopes.view import DeviceView

TITLE = say("uneven host times")
SOURCE = say("scatter of equal calls in the timeline; a thread that moves between CPUs loses its caches")
_VARIABLES = say("Ascend Extension for PyTorch, environment variables: CPU_AFFINITY_CONF")
_ONE_STEP = say("scatter cannot be told from slow first calls without two steps: record two or more")

_CALLS_LEAST: Final = 20
_STEPS_LEAST: Final = 2
#: Calls of one name do the same work, unlike Node@launch, which stands for any kernel.
_SAME_WORK: Final = re.compile(r"^AscendCL@acl(nn|op)|^cudaLaunchKernel")


_CALLS: Final = Need(
    say("launching calls"),
    lambda view: float(view.profile.host.events.name.has(_SAME_WORK)),
    lambda view: (
        RUNTIME_CALLS.supply(view)
        if view.profile.kineto
        else say("the aclnn and aclop calls behind launches are not recorded: record with npuperf profile --level 1")
    ),
)
#: Launches and host events of several steps: first calls take longer anyway.
_SEVERAL_STEPS: Final = Need(say("two steps"), lambda view: float(len(view.steps) >= _STEPS_LEAST), lambda _: _ONE_STEP)

_BIND: Final = Option(
    say("bind threads to the CPUs of their NPU: export CPU_AFFINITY_CONF=2 (torch_npu; force:1 where an affinity is "
        "set already), and keep other processes off those CPUs"),
    _VARIABLES,
    (ON_NPU, UNBOUND),
)  # fmt: skip
_ALONE: Final = Option(say("keep other processes off the CPUs that the process is bound to"), SOURCE)


def judge(view: DeviceView) -> Answer:
    """Sum what launching calls take beyond twice the median of calls of their name."""
    if not view.host_bound:
        return None
    excess, total, worst = _excess(view)
    part = excess / total if total else 0.0
    if part < view.thresholds.uneven_share:
        return None
    return Detected(
        title=say("{share} of the time in launching calls is beyond twice the usual time of each call, the "
"largest part in {call}",
                  share=share(part), call=worst),
        evidence={"excess_ns": excess, "calls_ns": total, "worst": worst},
        gain=at_most(view.predict(f"host*{1 - part:.3f}")),
        refute=say("the times scatter just as much with the process bound to CPUs that nothing else uses (shapes may "
                   "differ, too)"),
        next=_next(view),
    )  # fmt: skip


def _next(view: DeviceView) -> Message | tuple[Option, ...]:
    if view.profile.kineto:
        return say("bind the process to CPUs near its GPU (numactl, taskset), and keep other processes off those CPUs")
    return (_BIND, _ALONE) if UNBOUND.test(view) is False else (_BIND,)


def _excess(view: DeviceView) -> tuple[int, int, str | None]:
    """Return the excess and the whole time of launching calls, and the name with most excess (ns)."""
    calls = view.profile.host.events
    dur = calls.end - calls.start
    excess, total, worst = 0, 0, (0, "")
    for code in np.flatnonzero(np.bincount(calls.name.codes + 1)[1:] >= _CALLS_LEAST).tolist():
        name = calls.name.names[code]
        if not _SAME_WORK.search(name):
            continue
        mine = dur[calls.name.codes == code]
        beyond = int(np.maximum(mine - 2 * np.median(mine), 0).sum())
        excess, total = excess + beyond, total + int(mine.sum())
        worst = max(worst, (beyond, name))
    return excess, total, worst[1] or None


RULE = Rule(
    "uneven_host",
    TITLE,
    SOURCE,
    (*HOST_WAITS, *where_host_bound(_CALLS, _SEVERAL_STEPS)),
    judge,
    any_device=True,
    relieves="host",
)
