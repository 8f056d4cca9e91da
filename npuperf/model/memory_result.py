"""What a document says of one device's memory: the peak as a sum of exact parts, what lived then, and over time.

Bytes are integers. Times count from the device's ``origin_ns``. docs/memory.md explains every part.
"""

from __future__ import annotations

from typing import Literal

from msgspec import field

from npuperf.base.messages import Message
from npuperf.model.parts import Model

#: What a block is for, as far as the recording proves it: ``lasting`` lives through at least one whole step;
#: ``activation``: handed out in forward, given back later; ``gradient``: handed out in backward, given back after it;
#: ``temporary``: given back in the step that asked for it, and, where that is known, in the same part of it;
#: ``unreleased``: not given back within the window; ``workspace``: of CANN's operators;
#: ``kv_cache``: lasting, many of one size from before the first step, where nothing is trained;
#: ``graph_pool``: of a captured graph, whose memory stays with it.
MemoryClass = Literal[
    "lasting", "activation", "gradient", "temporary", "unreleased", "workspace", "kv_cache", "graph_pool", "unknown"
]


#: Parts of training in which memory is asked for.
TrainingPart = Literal["forward", "backward", "gradients", "optimizer", "copies"]


class Alive(Model, frozen=True, kw_only=True):
    """Blocks that lived at the peak, of one class, operator, module and line of code.

    ``inferred``: their class is, from what was launched next to their two ends. Of what is left out of a long list
    there is one row for each class, without an operator.
    """

    class_: MemoryClass = field(name="class")
    inferred: bool
    operator: str | None
    where: str | None
    module: str | None
    count: int
    bytes: int


class MemoryBlock(Model, frozen=True, kw_only=True):
    """One of the largest blocks at the peak; ``end_ns``: when it was given back, null: not within the window."""

    class_: MemoryClass = field(name="class")
    operator: str | None
    where: str | None
    module: str | None
    bytes: int
    start_ns: int
    end_ns: int | None
    step: int | None


class ModuleBytes(Model, frozen=True, kw_only=True):
    """What a module of CANN had of the device at the peak, and at most."""

    name: str
    bytes: int
    most_bytes: int


class PlannedOperator(Model, frozen=True, kw_only=True):
    """An operator, and the bytes of the blocks that are planned for it and live where most of its graph do."""

    operator: str | None
    bytes: int


class MemoryGraph(Model, frozen=True, kw_only=True):
    """What the graph engine planned for a graph when it compiled it: the most that lives at once, and where.

    ``model``: the operator that a graph of unknown shapes was cut out for; ``node``: the place, in the graph's order,
    of the first operator at which most lives; ``largest``: what has most of it there.
    """

    model: str | None
    graph: int | None
    blocks: int
    peak_bytes: int
    node: int
    largest: list[PlannedOperator]


class MemoryStep(Model, frozen=True, kw_only=True):
    """A step: when it began, PyTorch's peak, what was allocated then, and at least; blocks it asked for, and kept.

    ``kept_bytes``: of blocks that were handed out in it and not given back within the window.
    """

    step: int
    start_ns: int
    peak_bytes: int
    start_bytes: int
    least_bytes: int
    blocks: int
    asked_bytes: int
    kept_bytes: int


class MemoryCurve(Model, frozen=True, kw_only=True):
    """The most in each of equal slices of the window, bytes; -1 where nothing is known.

    ``classes``: what of ``allocated`` each class of blocks is at that instant; the rest was there before.
    """

    start_ns: int
    slice_ns: int
    allocated: list[int]
    reserved: list[int]
    process: list[int]
    classes: dict[str, list[int]]


class Leak(Model, frozen=True, kw_only=True):
    """Blocks of an operator and line that every step but the last keeps: at least so many, bytes of each step."""

    operator: str | None
    where: str | None
    count: int
    bytes: int


class Memory(Model, frozen=True, kw_only=True):
    """A device's memory. The peak is that of ``allocated``: peak = before - freed + alive + residual.

    ``before_bytes``: allocated when the window began; ``freed_bytes``: of that, given back before the peak. With
    ``split`` cannot_tell (``reason`` says why) these are null. ``cached_bytes``: reserved and not active;
    ``waiting_bytes``: given back, while a stream may still use it; ``outside_bytes``: the process's memory without
    PyTorch's, Σ ``modules`` + ``unnamed_bytes``, which may be negative, as both are sampled. ``headroom_bytes``: of the
    device's HBM. ``peak_step_inferred``: steps are those of the device, while memory is asked for on the host, ahead.
    ``lost_rows``: how often memory rose without a row that says for what. ``timed``: false where events have an order,
    but no times: curve and blocks count events then. ``fragments_share``: of what is reserved at its maximum, the part
    that no block fills.
    """

    source: Literal["profiler", "snapshot", "memscope"]
    timed: bool
    peak_bytes: int | None
    before_bytes: int | None
    freed_bytes: int | None
    alive_bytes: int | None
    residual_bytes: int | None
    peak_at_ns: int | None
    peak_step: int | None
    peak_step_inferred: bool = False
    peak_part: TrainingPart | None
    peak_operator: str | None
    reserved_bytes: int | None
    reserved_most_bytes: int | None
    cached_bytes: int | None
    waiting_bytes: int | None
    outside_bytes: int | None
    modules: list[ModuleBytes]
    unnamed_bytes: int | None
    process_bytes: int | None
    hbm_bytes: int | None
    headroom_bytes: int | None
    lost_rows: int
    split: Literal["measured", "cannot_tell"]
    reason: Message | None
    fragments_share: float | None
    leak_bytes_per_step: int | None
    growth_bytes_per_step: int | None
    blocks_recorded: int
    alive: list[Alive]
    blocks: list[MemoryBlock]
    steps: list[MemoryStep]
    leaks: list[Leak]
    curve: MemoryCurve | None
    graphs: list[MemoryGraph] = []
