"""What makes the host's launches fewer or cheaper: each remedy with what it presupposes, and where that is documented.

TorchAir names its graphs a feature for inference and excludes the capture of a backward pass and of operators that draw
random numbers; torch_npu's own NPUGraph is for training, too, where shapes are fixed and every operator is aclnn's.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from msgspec.structs import replace

from npuperf.advise.optimizers import NOT_FUSED, NOT_REPLACEABLE, ONE_BY_ONE, fused_optimizer
from npuperf.advise.requirements import (
    COMPILED,
    DYNAMIC_GRAPH,
    EAGER,
    INFERENCE,
    NOT_COMPILED,
    NOT_RANDOM,
    ON_GPU,
    ON_NPU,
    TRAINING,
    UNBOUND,
    Option,
    Requirement,
    at_least,
    still_unset,
)
from npuperf.host.mode import ACLOP_CALL, is_compiled
from npuperf.messages import say
from npuperf.model.chip import product_of_soc
from npuperf.model.groups import distinct, numbered
from npuperf.scopes.view import DeviceView

_TORCHAIR: Final = say("TorchAir, overview and reduce-overhead: constraints")
_NPU_GRAPHS: Final = say("torch_npu developer notes, NPUGraph: where it applies")
_OPTIMIZERS: Final = say("torch_npu.optim, fused optimizers")
_VARIABLES: Final = say("Ascend Extension for PyTorch, environment variables")
_PYTORCH: Final = say("PyTorch, torch.compile, CUDA graphs and torch.optim")
_SIZES: Final = say("CANN on dynamic-shape scheduling: InferShape, Tiling and AllocMem precede every launch")

#: How an aclnn call is recorded among the calls of the runtime.
_ACLNN_CALL: Final = re.compile("^AscendCL@aclnn")

_LAUNCHES: Final = say("every launch costs the host its time, however much work it brings")


def _recurring(view: DeviceView) -> bool | None:
    """Tell whether kernels come with the same input shapes in every step."""
    share = view.part(_recurring_share)
    return None if np.isnan(share) else share >= view.thresholds.enough_data


def _recurring_share(view: DeviceView) -> float:
    """Return the share of kernels that come with the same input shapes in every step, NaN where that is not known."""
    tasks = view.tasks
    chosen = view.compute & tasks.shapes.known() & np.isin(tasks.step, view.steps)
    if len(view.steps) < 2 or not chosen.any():
        return np.nan
    _, kind = numbered(
        tasks.name.codes[chosen].astype(np.int64) * (len(tasks.shapes.names) + 1) + tasks.shapes.codes[chosen]
    )
    _, step = numbered(tasks.step[chosen])
    once = distinct(kind * len(view.steps) + step)
    steps = np.bincount(once // len(view.steps))
    return float((steps[kind] == len(view.steps)).mean())


def _captures(view: DeviceView) -> bool | None:
    soc = view.profile.soc
    return None if soc is None else product_of_soc(soc) in ("Atlas A2", "Atlas A3")


def _only_aclnn(view: DeviceView) -> bool | None:
    """Operators of the aclop interface are recorded as its calls; without calls of the runtime that cannot be told.

    What torch_npu itself records is named aclnn at any level, also where the calls of aclop beside it are left out.
    """
    names = view.profile.host.events.name
    if names.has(ACLOP_CALL):
        return False
    return True if names.has(_ACLNN_CALL) else None


RECURRING_SHAPES: Final = Requirement(say("the same input shapes in every step"), _recurring)
CAPTURING_CHIP: Final = Requirement(say("an Atlas A2 or A3"), _captures)
ONLY_ACLNN: Final = Requirement(say("operators of aclnn only"), _only_aclnn)
CANN_CAPTURES: Final = at_least("cann", 8, 1)

CAPTURE: Final = Option(
    say("capture the launches once and replay them: torch.compile(model, backend=\"npugraph_ex\", fullgraph=True, "
        "dynamic=False), or up to torch_npu 7.3.0 torchair with config.mode = \"reduce-overhead\"; every new input "
        "shape is captured anew, 64 times at most"),
    _TORCHAIR,
    (ON_NPU, EAGER, INFERENCE, NOT_COMPILED, NOT_RANDOM, RECURRING_SHAPES, ONLY_ACLNN, CAPTURING_CHIP, CANN_CAPTURES),
)  # fmt: skip
MAX_AUTOTUNE: Final = Option(
    say("compile with torchair's backend, config.mode = \"max-autotune\": GE hands graphs of static shape to the "
        "device as a whole"),
    _TORCHAIR,
    (ON_NPU, EAGER, INFERENCE, NOT_COMPILED),
)  # fmt: skip
NPU_GRAPHS: Final = Option(
    say("capture parts of the model without synchronisation, and their backward pass: "
        "torch_npu.npu.make_graphed_callables"),
    _NPU_GRAPHS,
    (ON_NPU, EAGER, RECURRING_SHAPES, ONLY_ACLNN, CAPTURING_CHIP, CANN_CAPTURES),
)  # fmt: skip
TASK_QUEUE: Final = Option(
    say("set TASK_QUEUE_ENABLE=2: a second thread takes over a part of each launch, for more device memory"),
    _VARIABLES,
    (ON_NPU, EAGER, still_unset("TASK_QUEUE_ENABLE", "2"), still_unset("ASCEND_LAUNCH_BLOCKING", "1")),
)
FOREACH: Final = Option(
    say("give the optimizer foreach=True, so that it launches per list of parameters"),
    _PYTORCH,
    (ON_NPU, TRAINING, ONE_BY_ONE, NOT_REPLACEABLE),
)
BIND_CORES: Final = Option(
    say("bind threads to the CPUs of their NPU: CPU_AFFINITY_CONF=2"),
    _VARIABLES,
    (ON_NPU, UNBOUND),
)
LARGER_BATCH: Final = Option(say("raise the batch size, so that each launch brings more work"), _LAUNCHES)
STATIC_GRAPH: Final = Option(
    say(
        "fix the shapes, so that GE hands the graph to the device as a whole; where they must vary, pad to a few sizes"
    ),
    _SIZES,
    (DYNAMIC_GRAPH,),
)
PADDED: Final = Option(
    say("pad batch and sequence length to a few sizes, so that what the host works out for a shape recurs"),
    _SIZES,
)
CUDA_GRAPHS: Final = Option(
    say("compile with torch.compile(model, mode=\"reduce-overhead\"), which fuses kernels and replays CUDA graphs "
        "where shapes are fixed"),
    _PYTORCH,
    (ON_GPU, replace(NOT_COMPILED, evident=True)),
)  # fmt: skip
REPLAYED: Final = Option(
    say('compile with mode="reduce-overhead", which replays CUDA graphs where shapes are fixed'),
    _PYTORCH,
    (ON_GPU, COMPILED),
)
GPU_OPTIMIZER: Final = Option(
    say("give the optimizer fused=True, or foreach=True where there is no fused one"),
    _PYTORCH,
    (ON_GPU, TRAINING, ONE_BY_ONE),
)


def may_capture(view: DeviceView) -> bool:
    """Tell whether some way of capturing launches is not ruled out."""
    ways = (CAPTURE, MAX_AUTOTUNE, NPU_GRAPHS, CUDA_GRAPHS, REPLAYED)
    return any(all(condition.test(view) is not False for condition in way.requires) for way in ways)


def launch_remedies(view: DeviceView) -> tuple[Option, ...]:
    """Return what may help a step that waits for its launches, best first."""
    if view.traits.platform == "gpu":
        return CUDA_GRAPHS, REPLAYED, GPU_OPTIMIZER, LARGER_BATCH
    if is_compiled(view.mode):
        return STATIC_GRAPH, LARGER_BATCH
    return CAPTURE, MAX_AUTOTUNE, TASK_QUEUE, _fused(view), FOREACH, NPU_GRAPHS, BIND_CORES, LARGER_BATCH


def size_remedies(view: DeviceView) -> tuple[Option, ...]:
    """Return what may make fewer and larger kernels, best first; then what makes their launches cheaper."""
    if view.traits.platform == "gpu" or is_compiled(view.mode):
        return launch_remedies(view)
    return CAPTURE, MAX_AUTOTUNE, _fused(view), FOREACH, LARGER_BATCH, NPU_GRAPHS, TASK_QUEUE


def _fused(view: DeviceView) -> Option:
    return Option(fused_optimizer(view), _OPTIMIZERS, (ON_NPU, EAGER, TRAINING, NOT_FUSED))
