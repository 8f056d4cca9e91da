"""Host calls of one kind that take much longer than usual again and again: a disturbed or badly placed thread."""

from __future__ import annotations

import re

import numpy as np

from npuperf.advise.rule import View, finding, lacks_host_events
from npuperf.documents.analysis import Finding
from npuperf.model.thresholds import Thresholds
from npuperf.units import percent

TITLE = "uneven host times"
SOURCE = "torch_npu: CPU_AFFINITY_CONF binds threads to the CPUs of their NPU; scatter of equal calls in the timeline"

_CALLS_LEAST = 20
_STEPS_LEAST = 2
#: Calls of one name do the same work, unlike Node@launch, which stands for any kernel.
_SAME_WORK = re.compile(r"^AscendCL@acl(nn|op)|^cudaLaunchKernel")


def needs(view: View) -> str | None:
    """Launches and host events of several steps must be recorded: first calls take longer anyway."""
    enough = len(view.steps) >= _STEPS_LEAST
    return lacks_host_events(view, (enough, "one step does not tell scatter from first calls: record two or more"))


def judge(view: View, thresholds: Thresholds) -> Finding | None:
    """Sum what launching calls take beyond twice the median of calls of their name."""
    if not view.host_bound:
        return None
    excess, total, worst = _excess(view)
    share = excess / total if total else 0.0
    if share < thresholds.uneven_share:
        return None
    gain = view.predict(f"host*{1 - share:.3f}")
    return finding(
        view,
        "uneven_host",
        "problem",
        f"{percent(share)} of the time in launching calls is beyond twice their usual time, most in {worst}",
        evidence={"excess_ns": excess, "calls_ns": total, "worst": worst},
        gain=(0, gain[1]) if gain else None,
        refute="the scatter stays with CPU_AFFINITY_CONF set and nothing else on those CPUs (shapes may differ, too)",
        next="export CPU_AFFINITY_CONF=2 (force:1 where an affinity is set already), keep other processes off",
        source=SOURCE,
    )


def _excess(view: View) -> tuple[int, int, str | None]:
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
