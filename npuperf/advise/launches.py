"""What makes the host's launches fewer or cheaper: each remedy with what it presupposes, and where that is documented.

TorchAir names its graphs a feature for inference and excludes the capture of a backward pass and of operators that draw
random numbers; torch_npu's own NPUGraph is for training, too, where shapes are fixed and every operator is aclnn's.
"""

from __future__ import annotations

import re
from math import prod
from typing import Final

import numpy as np

from npuperf.advise.fused_operators import (
    NO_TIME_AT_ALL,
    NOT_FUSED,
    NOT_REPLACEABLE,
    ONE_BY_ONE,
    fused_optimizer,
    optimizer_gain,
)
from npuperf.advise.needs import (
    COMPILED,
    DYNAMIC_GRAPH,
    DYNAMIC_SHAPES,
    EAGER,
    HOST_DOINGS,
    HOST_WAITS,
    INFERENCE,
    NOT_COMPILED,
    NOT_RANDOM,
    ON_GPU,
    ON_NPU,
    RUNTIME_CALLS,
    SHAPES,
    STATES,
    TORCH_OPERATORS,
    TRAINING,
    UNBOUND,
    Gain,
    Need,
    Option,
    Requirement,
    at_least,
    still_unset,
    where_host_bound,
)
from npuperf.advise.rule import Answer, Detected, TypeRow, Untold, at_most, quote, rule, top_types
from npuperf.base.messages import Message, ns, say, share
from npuperf.device.host_events import CODE, NOT_LAUNCHING
from npuperf.device.mode import ACLOP_CALL, is_compiled, is_graph, is_launched_whole
from npuperf.device.view import DeviceView
from npuperf.model.chip import product_of_soc
from npuperf.model.groups import distinct, numbered
from npuperf.model.labels import Mask
from npuperf.model.names import pattern_for

_TORCHAIR: Final = say("TorchAir, overview and reduce-overhead: constraints")
_NPU_GRAPHS: Final = say("torch_npu developer notes, NPUGraph: where it applies")
_OPTIMIZERS: Final = say("torch_npu.optim, fused optimizers")
_VARIABLES: Final = say("Ascend Extension for PyTorch, environment variables")
_PYTORCH: Final = say("PyTorch, torch.compile, CUDA graphs and torch.optim")
_SIZES: Final = say("CANN on dynamic-shape scheduling: InferShape, Tiling and AllocMem precede every launch")

#: How an aclnn call is recorded among the calls of the runtime.
_ACLNN_CALL: Final = re.compile("^AscendCL@aclnn")
_ACL_CALL: Final = re.compile("^AscendCL@acl")
_QUEUED: Final = re.compile("^(Enqueue|Dequeue)")

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


def _only_aclnn(view: DeviceView) -> bool | None:
    """Operators of the aclop interface are recorded as its calls; without calls of the runtime that cannot be told.

    What torch_npu itself records is named aclnn at any level, also where the calls of aclop beside it are left out.
    """
    names = view.profile.host.events.name
    if names.has(ACLOP_CALL):
        return False
    return True if names.has(_ACLNN_CALL) else None


# -- Which part of the device's wait for the host launching has a part in, and which part are pauses.

#: The most that cheaper or fewer launches can bring: without all waits for the host, or without what they change.
NO_WAIT: Final = "host*0,latency*0"
NO_LAUNCHING: Final = "host:launching*0,latency*0"


def launch_wait(view: DeviceView) -> tuple[int, int]:
    """Return the wait for the host and for launches on their way, and what of it launching may be to blame for, ns."""
    wait = view.partition.host_wait_ns + view.partition.launch_latency_ns
    found = view.paused
    return wait, max(wait - view.blamed(*NOT_LAUNCHING) - int(np.sum(found.end - found.start)), 0)


def without_launching(view: DeviceView) -> str:
    """Return the change that graph capture stands for: no wait at all, but for a notable one that it leaves."""
    wait, launching = launch_wait(view)
    left = wait - launching >= view.thresholds.cause_share * view.partition.span_ns
    return NO_LAUNCHING if left else NO_WAIT


def _as_one_graph(view: DeviceView) -> Gain | None:
    return at_most(view.predict(without_launching(view)))


def _movable(view: DeviceView) -> list[str]:
    """Return the causes of waiting that a further stage of torch_npu's task queue takes off the enqueueing thread."""
    queued = view.profile.host.events.name.has(_QUEUED)
    return [c for c in (("tiling",) if queued else ("tiling", "launch", "aclop", "execute")) if view.blamed(c)]


def _by_queue(view: DeviceView) -> Gain | None:
    """Return what moving work into the second stage saves; unknown where the calls that do it are not recorded."""
    if not view.profile.host.events.name.has(_ACL_CALL):
        return None
    causes = _movable(view)
    return at_most(view.predict(",".join(f"host:{cause}*0" for cause in causes))) if causes else (0, 0)


def _queue_runs(view: DeviceView) -> bool | None:
    """Its events show that it is on; that it is off, the variable, or torch's and the runtime's events without any."""
    host = view.profile.host
    if host.events.name.has(_QUEUED):
        return True
    value = view.traits.environment.get("TASK_QUEUE_ENABLE")
    if value is not None:
        return value != "0"
    return False if len(host.ops) and host.events.name.has(_ACL_CALL) else None


def _launched_singly(view: DeviceView) -> bool | None:
    """Kernels of a replayed graph share its launch; those of a graph that runs as a whole have none."""
    if is_launched_whole(view.mode):
        return False
    launched = view.tasks.launch_start[view.compute & view.launches.known]
    return bool(2 * (1 + np.count_nonzero(np.diff(launched))) >= len(launched)) if len(launched) else None


RECURRING_SHAPES: Final = Requirement(say("the same input shapes in every step"), _recurring)
CAPTURING_CHIP: Final = Requirement(
    say("an Atlas A2 or A3"),
    lambda view: None if (soc := view.profile.soc) is None else product_of_soc(soc) in ("Atlas A2", "Atlas A3"),
)
ONLY_ACLNN: Final = Requirement(say("operators of aclnn only"), _only_aclnn)
CANN_CAPTURES: Final = at_least("cann", 8, 1)

#: On is the default, so that advice need not name it where the profile does not tell.
_QUEUE_IS_ON: Final = Requirement(say("a task queue that is on"), _queue_runs, evident=True)
_QUEUE_IS_OFF: Final = Requirement(say("a task queue that seems to be off"), lambda view: _queue_runs(view) is False)
LAUNCHED_SINGLY: Final = Requirement(say("kernels that are launched one by one"), _launched_singly)

_IN_A_GRAPH: Final = say("the step takes just as long as one graph (the maximum assumes that no launch is waited for)")

CAPTURE: Final = Option(
    say("capture the launches once and replay them: torch.compile(model, backend=\"npugraph_ex\", fullgraph=True, "
        "dynamic=False), or up to torch_npu 7.3.0 torchair with config.mode = \"reduce-overhead\"; every new input "
        "shape is captured anew, 64 times at most"),
    _TORCHAIR,
    (ON_NPU, EAGER, INFERENCE, NOT_COMPILED, NOT_RANDOM, RECURRING_SHAPES, ONLY_ACLNN, CAPTURING_CHIP, CANN_CAPTURES),
    _as_one_graph,
    _IN_A_GRAPH,
)  # fmt: skip
MAX_AUTOTUNE: Final = Option(
    say("compile with torchair's backend, config.mode = \"max-autotune\": GE hands graphs of static shape to the "
        "device as a whole"),
    _TORCHAIR,
    (ON_NPU, EAGER, INFERENCE, NOT_COMPILED),
    _as_one_graph,
    _IN_A_GRAPH,
)  # fmt: skip
NPU_GRAPHS: Final = Option(
    say("capture parts of the model without synchronisation, and their backward pass: "
        "torch_npu.npu.make_graphed_callables"),
    _NPU_GRAPHS,
    (ON_NPU, EAGER, RECURRING_SHAPES, ONLY_ACLNN, CAPTURING_CHIP, CANN_CAPTURES),
)  # fmt: skip
FOREACH: Final = Option(
    say("give the optimizer foreach=True, so that it launches per list of parameters"),
    _PYTORCH,
    (ON_NPU, TRAINING, ONE_BY_ONE, NOT_REPLACEABLE),
    optimizer_gain,
    NO_TIME_AT_ALL,
)
BIND_CORES: Final = Option(
    say("bind threads to the CPUs of their NPU: CPU_AFFINITY_CONF=2"), _VARIABLES, (ON_NPU, UNBOUND)
)
LARGER_BATCH: Final = Option(say("raise the batch size, so that each launch brings more work"), _LAUNCHES)
STATIC_GRAPH: Final = Option(
    say(
        "fix the shapes, so that GE hands the graph to the device as a whole; where they must vary, pad to a few sizes"
    ),
    _SIZES,
    (DYNAMIC_GRAPH,),
    _as_one_graph,
    _IN_A_GRAPH,
)
PADDED: Final = Option(
    say("pad batch and sequence length to a few sizes, so that what the host works out for a shape recurs"), _SIZES
)
CUDA_GRAPHS: Final = Option(
    say("compile with torch.compile(model, mode=\"reduce-overhead\"), which fuses kernels and replays CUDA graphs "
        "where shapes are fixed"),
    _PYTORCH,
    (ON_GPU, Requirement(NOT_COMPILED.what, NOT_COMPILED.test, evident=True)),
    _as_one_graph,
    _IN_A_GRAPH,
)  # fmt: skip
REPLAYED: Final = Option(
    say('compile with mode="reduce-overhead", which replays CUDA graphs where shapes are fixed'),
    _PYTORCH,
    (ON_GPU, COMPILED),
    _as_one_graph,
    _IN_A_GRAPH,
)
COMPILED_KERNELS: Final = Option(
    say("compile with torch.compile(model), which fuses kernels that follow each other"),
    _PYTORCH,
    (ON_GPU, Requirement(NOT_COMPILED.what, NOT_COMPILED.test, evident=True)),
)
GPU_OPTIMIZER: Final = Option(
    say("give the optimizer fused=True, or foreach=True where there is no fused one"),
    _PYTORCH,
    (ON_GPU, TRAINING, ONE_BY_ONE),
    optimizer_gain,
    NO_TIME_AT_ALL,
)


def may_capture(view: DeviceView) -> bool:
    """Tell whether some way of capturing launches is not ruled out."""
    ways = (CAPTURE, MAX_AUTOTUNE, NPU_GRAPHS, CUDA_GRAPHS, REPLAYED)
    return LAUNCHED_SINGLY.test(view) is not False and any(
        all(condition.test(view) is not False for condition in way.requires) for way in ways
    )


def launch_remedies(view: DeviceView) -> tuple[Option, ...]:
    """Return what may help a step that waits for its launches, best first."""
    if view.traits.platform == "gpu":
        return CUDA_GRAPHS, REPLAYED, GPU_OPTIMIZER, LARGER_BATCH
    if is_compiled(view.mode):
        return STATIC_GRAPH, LARGER_BATCH
    return CAPTURE, MAX_AUTOTUNE, *_queue(view), _fused(view), FOREACH, NPU_GRAPHS, BIND_CORES, LARGER_BATCH


def size_remedies(view: DeviceView) -> tuple[Option, ...]:
    """Return what may make fewer and larger kernels, best first; graphs have as many, and are advised for launches."""
    if view.traits.platform == "gpu":
        return COMPILED_KERNELS, GPU_OPTIMIZER, LARGER_BATCH
    return (LARGER_BATCH,) if is_compiled(view.mode) else (_fused(view), FOREACH, LARGER_BATCH)


def _queue(view: DeviceView) -> tuple[Option, ...]:
    """Return what helps with torch_npu's task queue: to have it, where it seems to be off, else its second stage."""
    refute = _in_the_queue(view)
    unset = (still_unset("TASK_QUEUE_ENABLE", "2"), still_unset("ASCEND_LAUNCH_BLOCKING", "1"))
    on = say(
        "export TASK_QUEUE_ENABLE=1, torch_npu's default, so that a thread of its own launches what Python enqueues; "
        "then compare 2, which takes more memory"
    )
    two_stages = say(
        "export TASK_QUEUE_ENABLE=2: a second thread takes over a part of each launch, at the cost of more device "
        "memory"
    )
    return (
        Option(on, _VARIABLES, (ON_NPU, EAGER, _QUEUE_IS_OFF, *unset), _by_queue, refute),
        Option(two_stages, _VARIABLES, (ON_NPU, EAGER, _QUEUE_IS_ON, *unset), _by_queue, refute),
    )


def _in_the_queue(view: DeviceView) -> Message:
    if view.traits.environment.get("TASK_QUEUE_ENABLE") is not None:
        return say("the program sets the variable by itself (the maximum assumes that all of the moved time is hidden)")
    return say(
        "the variable is set already, which this profile does not record (the maximum assumes that all of the moved "
        "time is hidden)"
    )


def _fused(view: DeviceView) -> Option:
    return Option(
        fused_optimizer(view), _OPTIMIZERS, (ON_NPU, EAGER, TRAINING, NOT_FUSED), optimizer_gain, NO_TIME_AT_ALL
    )


#: What a window shows of launching that is start-up work for the most part is not how the program runs.
_STARTS_UP: Final = say("most of the window is start-up work: record after warm-up")


def _starts_up(view: DeviceView) -> bool:
    return 2 * view.blamed("start_up") >= max(view.partition.span_ns, 1)


# -- Kernels of dynamic shape: the host infers shapes and tiles before each launch.


@rule(
    say("dynamic shapes"),
    say("OP State column; CANN on dynamic-shape scheduling: InferShape, Tiling and AllocMem precede every launch"),
    (*HOST_DOINGS, *where_host_bound(STATES)),
    relieves="host",
    requires=(DYNAMIC_SHAPES,),
)
def dynamic_shape(view: DeviceView) -> Answer:
    """Dynamic shape costs host time, so it matters only where the device waits for shapes and tiling."""
    part, rows = dynamic_share(view)
    waited = view.blamed("tiling")
    seldom = part < view.thresholds.dynamic_share or waited < view.thresholds.cause_share * view.partition.span_ns
    if not view.host_bound or seldom:
        return None
    return Detected(
        title=say("{share} of compute time is in kernels compiled for dynamic shapes: {types}",
                  share=share(part), types=quote(rows)),
        evidence={"share_of_compute": part, "tiling_wait_ns": waited, "types": rows},
        gain=view.predict("host:tiling*0"),
        refute=say("waiting for the host stays the same with fixed shapes (padded batch and sequence length)"),
        next=(STATIC_GRAPH, PADDED) if is_compiled(view.mode) else (MAX_AUTOTUNE, PADDED),
    )  # fmt: skip


def dynamic_share(view: DeviceView) -> tuple[float, list[TypeRow]]:
    """Return the share of compute time in kernels of dynamic shape, and their types."""
    chosen = view.compute & view.tasks.dynamic
    total = int(view.tasks.dur[view.compute].sum())
    return (int(view.tasks.dur[chosen].sum()) / total if total else 0.0), top_types(view, chosen)


# -- Steps that the host launches operator by operator, and what of graphs, queues and fused optimizers fits them.


@rule(
    say("kernels launched one by one"),
    say("the partition of time: waiting for the host and launch latency, without what else the host was doing"),
    HOST_WAITS,
    any_device=True,
    relieves="host",
    requires=(LAUNCHED_SINGLY,),
)
def graph_capture(view: DeviceView) -> Answer:
    """Fewer launches help where the device waits for them rather than for data, compilation or synchronisation."""
    if _starts_up(view):
        return Untold(_STARTS_UP)
    wait, launching = launch_wait(view)
    if not view.host_bound or launching < max(view.thresholds.idle_share * view.partition.span_ns, wait / 2):
        return None
    dynamic, _ = dynamic_share(view)
    whole = share(wait / view.partition.span_ns)
    title = say(
        "kernels are launched one by one: waiting for the host and launch latency take {whole} of span", whole=whole
    )
    if launching < view.thresholds.enough_data * wait:
        title = say(
            "kernels are launched one by one: waiting for the host and launch latency take {whole} of span "
            "({launching} without data loading, syncs, pauses and the like)",
            whole=whole,
            launching=share(launching / view.partition.span_ns),
        )
    return Detected(
        title=title,
        evidence={"launch_wait_ns": launching, "dynamic_share_of_compute": dynamic, "kernels": int(view.compute.sum())},
        gain=at_most(view.predict(without_launching(view))),
        refute=say(
            "the step takes just as long with fewer or cheaper launches (the maximum assumes that none is waited for)"
        ),
        next=launch_remedies(view),
    )


# -- Many kernels so short that launching them costs more than running them.


@rule(
    say("very small kernels"),
    say("kernel durations and the waits for their launches"),
    HOST_WAITS,
    any_device=True,
    relieves="host",
)
def small_kernels(view: DeviceView) -> Answer:
    """Small kernels matter only where the device waits for their launches."""
    if _starts_up(view):
        return Untold(_STARTS_UP)
    thresholds = view.thresholds
    chosen = view.compute & (view.tasks.dur < thresholds.small_kernel_ns)
    part = int(chosen.sum()) / max(int(view.compute.sum()), 1)
    wait, launching = launch_wait(view)
    waits = int(view.waits[chosen].sum()) - (wait - launching)
    few = part < thresholds.small_kernel_share or waits < thresholds.cause_share * view.partition.span_ns
    if not view.host_bound or few:
        return None
    rows = top_types(view, chosen)
    return Detected(
        title=say("{share} of kernels run for less than {limit}: {types}",
                  share=share(part), limit=ns(thresholds.small_kernel_ns), types=quote(rows)),
        evidence={
            "share_of_kernels": part,
            "count": int(chosen.sum()),
            "host_wait_ns": int(view.waits[chosen].sum()),
            "types": rows,
        },
        # Which launches the advice saves is not known: the most is sure, the least is not.
        gain=at_most(view.predict("launches*0.5")),
        refute=say(
            "waiting for the host stays the same when the operators are fused (the gain assumes half as many launches)"
        ),
        next=size_remedies(view),
    )  # fmt: skip


# -- GE graphs of dynamic shape scheduled by a single host thread (MAX_RUNTIME_CORE_NUMBER).

_SCHEDULING: Final = say("GE: MAX_RUNTIME_CORE_NUMBER, unset = 1 thread, 3 = memory, launch and the rest in parallel")
#: Threads of their own for memory, launches and the rest.
_ENOUGH: Final = 3


def _few_threads(view: DeviceView) -> bool | None:
    threads = view.traits.runtime_threads
    return None if threads is None else threads < _ENOUGH


_MORE_THREADS: Final = Option(
    say(
        "export MAX_RUNTIME_CORE_NUMBER=3 and bind the process to its own CPUs before the first step (graph mode "
        "with dynamic shapes only; not on 200I/500 A2; leave ENABLE_DYNAMIC_SHAPE_MULTI_STREAM unset)"
    ),
    _SCHEDULING,
    (Requirement(say("{name} below {threads}", name="MAX_RUNTIME_CORE_NUMBER", threads=_ENOUGH), _few_threads),),
)


@rule(
    say("scheduling threads of dynamic graphs"),
    _SCHEDULING,
    (*HOST_DOINGS, *where_host_bound(STATES)),
    relieves="host",
    requires=(DYNAMIC_SHAPES, DYNAMIC_GRAPH),
)
def runtime_threads(view: DeviceView) -> Answer:
    """Only graphs of dynamic shape are scheduled so, and only where the device waits for the scheduling."""
    part, _ = dynamic_share(view)
    moved = view.blamed("launch", "memory")
    if not view.host_bound or part < view.thresholds.dynamic_share or not is_graph(view.mode):
        return None
    least = view.thresholds.cause_share * view.partition.span_ns
    if _few_threads(view) is False or moved + view.blamed("tiling") < least:
        return None
    refute = say(
        "the process has fewer than two CPUs (the maximum assumes that launching and memory work are hidden entirely)"
    )
    if view.traits.runtime_threads is None:
        refute = say(
            "the variable is already set (this profile does not record it), or the process has fewer than two CPUs "
            "(the maximum assumes that launching and memory work are hidden entirely)"
        )
    return Detected(
        title=say("a dynamic-shape graph is scheduled while the device waits"),
        evidence={
            "dynamic_share_of_compute": part,
            "launch_and_memory_wait_ns": moved,
            "threads": view.traits.runtime_threads,
        },
        gain=at_most(view.predict("host:launch*0,host:memory*0")),
        refute=refute,
        next=(_MORE_THREADS,),
    )


# -- The task queue of torch_npu: a second thread that launches what Python enqueues.

_QUEUE: Final = say(
    "torch_npu: TASK_QUEUE_ENABLE 0, 1 (default) or 2; 2 moves workspace computation to the second stage"
)
#: The calls of eager torch_npu.
_EAGER_CALLS: Final = Need(
    say("aclnn calls"),
    lambda view: float(view.profile.host.events.name.has(_ACL_CALL)),
    lambda _: say("aclnn and aclop calls are not recorded: record an eager step with npuperf profile --level 1"),
)


@rule(
    say("task queue"),
    _QUEUE,
    (*HOST_DOINGS, *where_host_bound(_EAGER_CALLS)),
    relieves="host",
    requires=(EAGER,),
)
def task_queue(view: DeviceView) -> Answer:
    """Without Enqueue and Dequeue the queue is off; with them, tiling on the enqueueing thread can move."""
    queued = view.profile.host.events.name.has(_QUEUED)
    causes = _movable(view)
    waited = view.blamed(*causes)
    if not view.host_bound or waited < view.thresholds.cause_share * view.partition.span_ns:
        return None
    value = view.traits.environment.get("TASK_QUEUE_ENABLE")
    if value == "2" and queued:
        return None
    if view.traits.blocking:
        return Untold(say("ASCEND_LAUNCH_BLOCKING=1 switches the task queue off: unset it and record again"))
    if value in ("1", "2") and not queued:
        return Untold(
            say("TASK_QUEUE_ENABLE={value} was set, but no Enqueue or Dequeue event is recorded: record with npuperf "
                "profile --activities cpu,npu --level 1", value=value)
        )  # fmt: skip
    if _queue_runs(view) is None:  # torch records its queue where it records its operators
        return Untold(TORCH_OPERATORS.supply(view))
    title = say("the task queue seems to be off: no Enqueue or Dequeue event is recorded")
    if queued:
        title = say("the task queue seems to be at level 1")
    elif value == "0":
        title = say("the task queue is off: TASK_QUEUE_ENABLE=0")
    return Detected(
        title=title,
        evidence={"queued": queued, "host_wait_ns": waited, "causes": causes, "set": value},
        gain=_by_queue(view),
        refute=_in_the_queue(view),
        next=_queue(view),
    )


# -- Operators that see more shapes than the tiling cache holds.


@rule(
    say("tiling cache"),
    say("GE: the tiling cache keeps 120 entries per operator, on by default; data-dependent inputs bypass it"),
    (*HOST_DOINGS, *where_host_bound(SHAPES)),
    relieves="host",
    requires=(DYNAMIC_GRAPH,),
)
def tiling_cache(view: DeviceView) -> Answer:
    """Count the distinct shapes of each operator of a dynamic graph; few launches show no cache that overflows."""
    waited = view.blamed("tiling")
    if not is_graph(view.mode) or waited < max(view.thresholds.cause_share * view.partition.span_ns, 1):
        return None
    entries, enough = view.thresholds.tiling_cache_entries, view.thresholds.enough_data
    name = view.tasks.name
    known = view.compute & view.tasks.shapes.known() & name.known()
    launches = np.bincount(name.codes[known], minlength=len(name.names))
    pairs = np.unique(np.stack([name.codes[known], view.tasks.shapes.codes[known]]), axis=1)
    shapes = np.bincount(pairs[0], minlength=len(name.names)) if pairs.size else np.zeros_like(launches)
    order = np.argsort(-shapes, kind="stable")[:3].tolist()
    crowded = [{"name": name.names[c], "shapes": int(shapes[c])} for c in order if shapes[c] > entries]
    if not crowded:
        # What shows whether the cache holds the shapes: shapes that recur, or more launches than it has entries.
        settled = (launches - shapes >= enough * launches) | (launches > entries)
        if launches[settled].sum() / max(launches.sum(), 1) >= enough:
            return None
        most = int(launches.max(initial=0))
        needs = say(
            "no operator was launched more than {launches} times, often with shapes that occur once, and the cache "
            "keeps {entries}: record more steps with npuperf profile --active 20 --shapes",
            launches=most,
            entries=entries,
        )
        return Untold(needs, {"most_launches": most, "most_shapes": int(shapes.max(initial=0))})
    return Detected(
        title=say("{name} was launched with {shapes} different shapes; the tiling cache keeps {entries}",
                  name=crowded[0]["name"], shapes=crowded[0]["shapes"], entries=entries),
        evidence={"operators": crowded, "tiling_wait_ns": waited},
        gain=at_most(view.predict("host:tiling*0")),
        refute=say("tiling takes just as long with fewer shapes (the maximum assumes that every tiling is found in the "
                   "cache)"),
        next=say("pad batch and sequence lengths to a few sizes: fewer shapes per operator than the cache keeps"),
    )  # fmt: skip


# -- Operators on a handful of values that the device computes though the host could.

_SHAPE_WORK: Final = re.compile(
    r"^(Pack|Concat\w*|Gather\w*|Slice\w*|StridedSlice\w*|Squeeze|Unsqueeze|Shape\w*|Cast|Range)$"
)


@rule(
    say("tiny operators on the device"),
    say("GE: operators whose inputs and outputs have 8 elements at most run on the host in dynamic graphs"),
    (*HOST_DOINGS, *where_host_bound(SHAPES)),
    relieves="host",
    requires=(DYNAMIC_GRAPH,),
)
def host_operators(view: DeviceView) -> Answer:
    """Find kernels of types that compute shapes, with no input beyond a few elements, in dynamic graphs."""
    if DYNAMIC_GRAPH.test(view) is not True or not view.host_bound:
        return None
    elements = view.thresholds.host_operator_elements
    small = view.tasks.shapes.flag([_largest(text) <= elements for text in view.tasks.shapes.names])
    shape_work = view.types.flag([bool(_SHAPE_WORK.match(n)) for n in view.types.names])
    tiny: Mask = view.compute & small & shape_work
    waits = int(view.waits[tiny].sum())
    if waits < view.thresholds.cause_share * view.partition.span_ns:
        return None
    rows = top_types(view, tiny)
    return Detected(
        title=say(
            "operators with inputs of at most {elements} elements run on the device: {types}",
            elements=elements,
            types=quote(rows),
        ),
        evidence={"count": int(tiny.sum()), "host_wait_ns": waits, "types": rows},
        gain=(0, view.per_step(waits + view.exposed(tiny))),
        refute=say("their inputs come from the device, or their outputs are larger: then they cannot move to the host"),
        next=say(
            "compute shapes from host values (Shape, Size, constants, CPU inputs), so that the graph keeps them on "
            "the host"
        ),
    )


def _largest(shapes: str) -> int:
    """Return the number of elements of the largest input in a cell like ``"2,3;4"``."""
    sizes = [np.array(re.findall(r"\d+", shape), dtype=np.int64).tolist() for shape in shapes.split(";")]
    return max((prod(size) for size in sizes), default=0)


# -- Launching calls of one kind that take much longer than usual again and again: a disturbed or badly placed thread.

_SCATTER: Final = say("scatter of equal calls in the timeline; a thread that moves between CPUs loses its caches")
_CALLS_LEAST: Final = 20
_STEPS_LEAST: Final = 2
#: Calls of one name do the same work, unlike Node@launch, which stands for any kernel.
_SAME_WORK: Final = re.compile(rf"^AscendCL@acl(nn|op)|{pattern_for('launch', 'cuda', 'hip')}")
_LAUNCHING_CALLS: Final = Need(
    say("launching calls"),
    lambda view: float(view.profile.host.events.name.has(_SAME_WORK)),
    lambda view: (
        RUNTIME_CALLS.supply(view)
        if view.profile.kineto
        else say("the aclnn and aclop calls behind launches are not recorded: record with npuperf profile --level 1")
    ),
)
#: Launches and host events of several steps: first calls take longer anyway.
_SEVERAL_STEPS: Final = Need(
    say("two steps"),
    lambda view: float(len(view.steps) >= _STEPS_LEAST),
    lambda _: say("scatter cannot be told from slow first calls without two steps: record two or more"),
)
_BIND: Final = Option(
    say("bind threads to the CPUs of their NPU: export CPU_AFFINITY_CONF=2 (torch_npu; force:1 where an affinity is "
        "set already), and keep other processes off those CPUs"),
    say("Ascend Extension for PyTorch, environment variables: CPU_AFFINITY_CONF"),
    (ON_NPU, UNBOUND),
)  # fmt: skip
_BOUND_ALREADY: Final = Option(say("keep other processes off the CPUs that the process is bound to"), _SCATTER)


@rule(
    say("uneven host times"),
    _SCATTER,
    (*HOST_WAITS, *where_host_bound(_LAUNCHING_CALLS, _SEVERAL_STEPS)),
    any_device=True,
    relieves="host",
)
def uneven_host(view: DeviceView) -> Answer:
    """Sum what launching calls take beyond twice the median of calls of their name, while the window was launched."""
    if _starts_up(view):
        return Untold(_STARTS_UP)
    launched = view.tasks.launched
    if not view.host_bound or not launched.any():
        return None
    nesting = view.study.nesting
    calls = nesting.events
    first, last = view.tasks.launch_start[launched].min(), view.tasks.launch_end[launched].max()
    inside = (calls.end >= first) & (calls.start <= last)
    calls = calls.filter(inside & (nesting.blamed != CODE["start_up"]))  # which is another rule's
    dur = calls.end - calls.start
    excess, total, worst = 0, 0, (0, "")
    for code in np.flatnonzero(np.bincount(calls.name.codes + 1)[1:] >= _CALLS_LEAST).tolist():
        name = calls.name.names[code]
        if _SAME_WORK.search(name):
            mine = dur[calls.name.codes == code]
            beyond = int(np.maximum(mine - 2 * np.median(mine), 0).sum())
            excess, total = excess + beyond, total + int(mine.sum())
            worst = max(worst, (beyond, name))
    part = excess / total if total else 0.0
    if part < view.thresholds.uneven_share:
        return None
    advice: Message | tuple[Option, ...] = (_BIND, _BOUND_ALREADY) if UNBOUND.test(view) is False else (_BIND,)
    if view.profile.kineto:
        advice = say(
            "bind the process to CPUs near its GPU (numactl, taskset), and keep other processes off those CPUs"
        )
    return Detected(
        title=say("{share} of the time in launching calls is beyond twice the usual time of each call, the largest "
                  "part in {call}", share=share(part), call=worst[1] or None),
        evidence={"excess_ns": excess, "calls_ns": total, "worst": worst[1] or None},
        gain=at_most(view.predict(f"host*{1 - part:.3f}")),
        refute=say("the times scatter just as much with the process bound to CPUs that nothing else uses (shapes may "
                   "differ, too)"),
        next=advice,
    )  # fmt: skip
