"""Host calls of one kind that take much longer than usual again and again: a disturbed or badly placed thread."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from npuperf.advise.rule import Answer, Detected, Rule, at_most, lacks_host_events
from npuperf.messages import Message, say, share
from npuperf.scopes.view import DeviceView

TITLE = say("uneven host times")
SOURCE = say(
    "torch_npu: CPU_AFFINITY_CONF binds threads to the CPUs of their NPU; scatter of equal calls in the timeline"
)
_ONE_STEP = say("scatter cannot be told from slow first calls without two steps: record two or more")

_CALLS_LEAST: Final = 20
_STEPS_LEAST: Final = 2
#: Calls of one name do the same work, unlike Node@launch, which stands for any kernel.
_SAME_WORK: Final = re.compile(r"^AscendCL@acl(nn|op)|^cudaLaunchKernel")


def needs(view: DeviceView) -> Message | None:
    """Launches and host events of several steps must be recorded: first calls take longer anyway."""
    return lacks_host_events(view, (len(view.steps) >= _STEPS_LEAST, _ONE_STEP))


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
        refute=say(
            "the times scatter just as much with CPU_AFFINITY_CONF set and nothing else on those CPUs (shapes may "
            "differ, too)"
        ),
        next=say("export CPU_AFFINITY_CONF=2 (force:1 where an affinity is set already), and keep other processes off "
                 "those CPUs"),
    )  # fmt: skip


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


RULE = Rule("uneven_host", TITLE, SOURCE, needs, judge, any_device=True, relieves="host")
