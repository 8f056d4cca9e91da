"""How the program was executed: operator by operator, as captured graphs, or as graphs of GE.

Sources: TorchAir's executors record ``TorchNpuGraphBase::Run``, ``ExecuteGraph`` or ``RunGraph…``, and only that of
dynamic graphs ``RefreshAtTensorFromGeTensor``; torch_npu replays a captured graph by ``aclmdlRIExecuteAsync``, whereas
HCCL and torch_npu ask ``aclmdlRICaptureGetInfo`` in eager mode, too; torch_npu has npugraph_ex in a package of its own.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import numpy as np

from npuperf.messages import Message, say
from npuperf.model.device import DeviceProfile
from npuperf.model.labels import Mask
from npuperf.model.tasks import NO_TIME, Work

#: ``aclgraph``: captured and replayed, by which API is not told; ``ge``: compiled by GE (max-autotune), of static or
#: dynamic shape is not told.
Mode = Literal["eager", "aclgraph", "npugraph_ex", "ge", "ge_static", "ge_dynamic", "unknown"]

_REPLAYED: Final = re.compile(r"aclmdlRIExecute|NPUGraph::replay|rtModelRIExecute", re.I)
#: Code of npugraph_ex that replays graphs. That of TorchAir tells no more: older versions run npugraph_ex, too.
_EX: Final = re.compile(r"/npugraph_ex/_acl_concrete_graph/\w+\.py")
_EXECUTED: Final = re.compile(
    r"^TorchNpuGraphBase::Run$|^ExecuteGraph$|^RunGraph(WithStreamAsync)?$|ModelExecute|aclmdlExecute|^Model@"
    r"|GraphExecut|ge::"
)
#: Calls that launch an operator by the older interface.
ACLOP_CALL: Final = re.compile(r"aclop(CompileAndExecute|Execute)")
_SCHEDULED: Final = re.compile(r"InferShape|^RefreshAtTensorFromGeTensor$|RT2")
_EXECUTOR: Final = re.compile(r"^TorchNpuGraphBase::Run$|^ExecuteGraph$|^RunGraph(WithStreamAsync)?$")


def is_graph_run(name: str) -> bool:
    """Tell the host event during which a graph of GE is executed."""
    return bool(_EXECUTED.search(name))


def is_captured(mode: Mode) -> bool:
    """Tell whether kernels come from captured graphs that are replayed."""
    return mode in ("aclgraph", "npugraph_ex")


def is_compiled(mode: Mode) -> bool:
    """Tell whether kernels come from graphs that GE compiled."""
    return mode in ("ge", "ge_static", "ge_dynamic")


def is_graph(mode: Mode) -> bool:
    """Tell whether kernels come from graphs of either kind."""
    return is_captured(mode) or is_compiled(mode)


def is_launched_whole(mode: Mode) -> bool:
    """Tell whether graphs are handed to the device as a whole, so that no kernel has a launch of its own."""
    return is_graph(mode) and mode != "ge_dynamic"


def no_launches(mode: Mode, *, timeline: bool = False) -> Message:
    """Say why no kernel has a launch of its own, and what would change that, if anything.

    ``timeline``: events of the host were read, so that the timeline itself is there.
    """
    if is_launched_whole(mode):
        return say("the kernels run in graphs, which are launched as a whole, so it is unknown when the host was late")
    if timeline:
        return say(
            "the timeline has no launches of these kernels: record with npuperf profile --level 1 --activities cpu,npu"
        )
    return say(
        "launches are not recorded: analyze the whole folder with its trace_view.json (or the "
        ".db), or record with npuperf profile --level 1"
    )


def mode_of(profile: DeviceProfile) -> Mode:
    """Tell from host calls and from the kernels' names: eager torch_npu names them after aclnn calls."""
    calls = profile.host.events.name
    if calls.has(_REPLAYED):  # captured kernels keep their eager names
        return _captured(profile)
    tasks = profile.tasks
    compute: Mask = np.equal(tasks.work, Work.COMPUTE)
    eager = tasks.name.flag([n.startswith("aclnn") for n in tasks.name.names]) & compute
    if int(eager.sum()) * 2 >= max(int(compute.sum()), 1):
        return "eager"
    if calls.has(_EXECUTED):
        return _compiled(profile, compute)
    if calls.has(ACLOP_CALL):
        return "eager"
    return "ge_dynamic" if calls.has(_SCHEDULED) else "unknown"


def _captured(profile: DeviceProfile) -> Mode:
    """Tell the API by the package whose code was called, which only recorded stacks show."""
    ex = profile.host.events.name.has(_EX) or profile.host.stack.has(_EX)
    return "npugraph_ex" if ex else "aclgraph"


def _compiled(profile: DeviceProfile, compute: Mask) -> Mode:
    """A dynamic graph schedules its kernels on the host; a static one is known by the lack of it, if that would show.

    TorchAir's executor would have named itself, or kernels would have launches of their own.
    """
    tasks, calls = profile.tasks, profile.host.events.name
    if calls.has(_SCHEDULED) or (tasks.dynamic & compute).any():
        return "ge_dynamic"
    static = bool(tasks.state.known()[compute].all())
    whole = calls.has(_EXECUTOR) or bool((tasks.launch_start[compute] == NO_TIME).all())
    return "ge_static" if static and whole else "ge"
