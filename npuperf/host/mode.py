"""How the program was executed: operator by operator, as captured graphs, or as graphs of GE."""

from __future__ import annotations

import re
from typing import Final, Literal

from npuperf.messages import Message, say
from npuperf.model.device import DeviceProfile
from npuperf.model.tasks import Work

#: ``aclgraph``: captured and replayed (reduce-overhead, npugraph_ex); ``ge``: compiled by GE (max-autotune).
Mode = Literal["eager", "aclgraph", "ge", "unknown"]

_CAPTURED: Final = re.compile(r"aclmdlRI|aclgraph|NPUGraph|CaptureReplay|rtModelRI", re.I)
_COMPILED: Final = re.compile(r"ModelExecute|aclmdlExecute|^Model@|GraphExecut|InferShape|ge::|RT2", re.I)


def no_launches(mode: Mode) -> Message:
    """Say why no kernel has a launch of its own, and what would change that, if anything."""
    if mode in ("aclgraph", "ge"):
        return say("the kernels run in graphs, which are launched as a whole, so it is unknown when the host was late")
    return say(
        "launches are not recorded: analyze the whole folder with its trace_view.json (or the "
        ".db), or record with npuperf profile --level 1"
    )


def mode_of(profile: DeviceProfile) -> Mode:
    """Tell from the kernels' names (eager torch_npu names them after aclnn and aclop calls) and from host calls."""
    tasks = profile.tasks
    compute = tasks.work == Work.COMPUTE
    eager = tasks.name.flag([n.startswith("aclnn") for n in tasks.name.names]) & compute
    calls = profile.host.events.name.names
    if any(_CAPTURED.search(n) for n in calls):  # captured kernels keep their eager names
        return "aclgraph"
    if int(eager.sum()) * 2 >= max(int(compute.sum()), 1):
        return "eager"
    return "ge" if any(_COMPILED.search(n) for n in calls) else "unknown"
