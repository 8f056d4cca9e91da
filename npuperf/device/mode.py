"""How the program was executed: operator by operator, as captured graphs, or as graphs of GE.

Sources: TorchAir's executors record ``TorchNpuGraphBase::Run``, ``ExecuteGraph`` or ``RunGraph…``, and only that of
dynamic graphs ``RefreshAtTensorFromGeTensor``; torch_npu replays a captured graph by ``aclmdlRIExecuteAsync``, whereas
HCCL and torch_npu ask ``aclmdlRICaptureGetInfo`` in eager mode, too; torch_npu has npugraph_ex in a package of its own.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, say
from npuperf.model.device import DeviceProfile, Environment
from npuperf.model.labels import Mask
from npuperf.model.names import names_for
from npuperf.model.tasks import NO_TIME, Work
from npuperf.model.thresholds import Thresholds

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
_EXECUTOR: Final = names_for("graph_run")


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
    if calls.has(_REPLAYED):  # captured kernels keep their eager names; only recorded stacks show by which package
        return "npugraph_ex" if calls.has(_EX) or profile.host.stack.has(_EX) else "aclgraph"
    tasks = profile.tasks
    compute: Mask = np.equal(tasks.work, Work.COMPUTE)
    eager = tasks.name.flag([n.startswith("aclnn") for n in tasks.name.names]) & compute
    if int(eager.sum()) * 2 >= max(int(compute.sum()), 1):
        return "eager"
    if calls.has(_EXECUTED):
        # A dynamic graph schedules its kernels on the host; a static one is known by the lack of it, if that would
        # show: TorchAir's executor would have named itself, or kernels would have launches of their own.
        if calls.has(_SCHEDULED) or (tasks.dynamic & compute).any():
            return "ge_dynamic"
        static = bool(tasks.state.known()[compute].all())
        whole = calls.has(_EXECUTOR) or bool((tasks.launch_start[compute] == NO_TIME).all())
        return "ge_static" if static and whole else "ge"
    if calls.has(ACLOP_CALL):
        return "eager"
    return "ge_dynamic" if calls.has(_SCHEDULED) else "unknown"


# -- What kind of run a profile shows: every rule asks this, and no rule decides it by itself.

#: A version's numbers, most significant first, e.g. (8, 3) of ``8.3.RC1``.
Version = tuple[int, ...]

_BACKWARD: Final = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")
_UPDATE: Final = re.compile(r"^Optimizer\.step|^Optimizer\.zero_grad|^ApplyAdam|^ApplyMomentum|^ApplyRms", re.I)
_GRADIENT: Final = re.compile(r"Grad(V\d+)?$|Backprop(Input|Filter|InputV\d|FilterV\d)?$|GradWithArgmax")
_RANDOM: Final = re.compile(
    r"dropout|bernoulli|^aten::(rand|randn|randint|randperm|normal_?|uniform_?|multinomial|exponential_?)(_like)?$"
    r"|DSARandom|StatelessRandom|DropOutGenMask|DropOutDoMask",
    re.I,
)
#: No number of threads has more.
_DIGITS: Final = 9
#: Ranges that torch puts around code that torch.compile made.
_COMPILED: Final = names_for("compiled")


class Traits(Struct, frozen=True, kw_only=True):
    """The run, as far as it can be told; None: what would tell was not recorded.

    ``training``: a backward pass or an optimizer's update is recorded; ``random``: operators that draw random numbers
    are; ``dynamic``: kernels of dynamic shape are. False needs evidence of the contrary: the operators are recorded,
    and none of them is of the kind. ``compiled``: code that torch.compile made runs; ``overhead``: how many times
    longer a recorded step takes than others.
    """

    platform: Literal["npu", "gpu"]
    mode: Mode
    training: bool | None
    random: bool | None
    dynamic: bool | None
    compiled: bool | None
    torch: Version | None
    torch_npu: Version | None
    cann: Version | None
    overhead: float | None
    environment: Environment

    @property
    def blocking(self) -> bool:
        """Whether every launch waited for its kernel, so that the host's part is not the program's own."""
        return self.environment.get("ASCEND_LAUNCH_BLOCKING") not in (None, "", "0")

    @property
    def runtime_threads(self) -> int | None:
        """How many threads GE was told to schedule dynamic graphs with; None where that is not recorded."""
        value = self.environment.get("MAX_RUNTIME_CORE_NUMBER")
        if value is None:
            return None
        return int(value) if value.strip().isdecimal() and len(value) <= _DIGITS else 1

    def slowed(self, thresholds: Thresholds) -> bool:
        """Tell whether recording made the steps so much longer that its host times may be the recording's own."""
        return is_slowed(self.overhead, thresholds)

    @classmethod
    def of(cls, profile: DeviceProfile, thresholds: Thresholds) -> Traits:
        """Tell what kind of run a profile shows."""
        context, tasks, events = profile.context, profile.tasks, profile.host.events.name
        # Torch operators are recorded: an operator of some kind would have been seen.
        otherwise = False if len(profile.host.ops) else None

        def recorded(on_host: tuple[re.Pattern[str], ...], kernels: tuple[re.Pattern[str], ...]) -> bool | None:
            return events.has(*on_host) or tasks.type.has(*kernels) or tasks.name.has(*kernels) or otherwise

        # One kernel of dynamic shape is enough; that there is none is known only of those whose state is recorded.
        compute: Mask = np.equal(tasks.work, Work.COMPUTE)
        dynamic = True if (tasks.dynamic & compute).any() else None
        known, total = int(tasks.dur[compute & tasks.state.known()].sum()), int(tasks.dur[compute].sum())
        if not dynamic and total and known >= thresholds.enough_data * total:
            dynamic = False
        return cls(
            platform="gpu" if profile.kineto else "npu",
            mode=mode_of(profile),
            training=recorded((_BACKWARD, _UPDATE), (_GRADIENT, _UPDATE)),
            random=recorded((_RANDOM,), (_RANDOM,)),
            dynamic=dynamic,
            compiled=recorded((_COMPILED,), (_COMPILED,)),
            torch=version(context.torch),
            torch_npu=version(context.torch_npu),
            cann=version(context.cann),
            overhead=context.overhead,
            environment=context.environment,
        )


def is_slowed(overhead: float | None, thresholds: Thresholds) -> bool:
    """Tell whether recording cost a notable part of the steps; what was not measured is not held against it."""
    return overhead is not None and overhead - 1 > thresholds.recording_cost_share


def version(text: str | None) -> Version | None:
    """Return the leading numbers of a version, None where there are none."""
    found = re.match(r"\D*(\d{1,9}(?:\.\d{1,9})*)", text or "")
    return tuple(int(part) for part in found.group(1).split(".")) if found else None


# -- Ways of executing, as scopes see them: which names their code has, and on what level a core limit is set.
#
# Sources: TorchAir's pages on core limits in GE graphs and in npugraph_ex, and its page that compares the two and
# eager mode.

#: ``captured``: captured graphs, whether by npugraph_ex or by TorchAir's older reduce-overhead is not told.
Way = Literal["eager", "npugraph_ex", "captured", "ge", "unknown"]

_WAYS: Final[dict[Mode, Way]] = {
    "eager": "eager",
    "npugraph_ex": "npugraph_ex",
    "aclgraph": "captured",
    "ge": "ge",
    "ge_static": "ge",
    "ge_dynamic": "ge",
}

#: What each way calls the scope, and on what level it limits.
DESCRIBED: Final[dict[Way, Message]] = {
    "ge": say("max-autotune (GE graphs): the core limit is an attribute of each operator in the scope"),
    "npugraph_ex": say("npugraph_ex (captured graphs): the core limit belongs to the stream, inside the function"),
    "captured": say(
        "npugraph_ex or reduce-overhead (captured graphs): the core limit belongs to the stream, inside the function"
    ),
    "eager": say("eager: the core limit belongs to the stream, set with torch.npu.set_stream_limit"),
    "unknown": say(
        "the profile does not tell the mode: max-autotune limits each operator, captured graphs and eager mode the "
        "stream"
    ),
}


def way_of(mode: Mode) -> Way:
    """Return the way of a mode."""
    return _WAYS.get(mode, "unknown")
