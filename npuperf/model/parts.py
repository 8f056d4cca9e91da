"""What all documents share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, get_args

import msgspec

from npuperf.base.escape import without_halves
from npuperf.base.messages import Message

#: Of the JSON documents of ``analyze`` and ``tune``: fields may be added, never renamed within a major version.
SCHEMA_VERSION: Final = "2.0"


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every part of a document. Missing is None; times are integer nanoseconds unless a name says otherwise."""


class Tool(Model, frozen=True, kw_only=True):
    """Who wrote a document."""

    name: str
    version: str


def encoded(document: object, sentence: Callable[[Any], str]) -> bytes:
    """Return a document as JSON; ``sentence`` returns the text of what is a message in it.

    What is no text in a path has U+FFFD in its place: JSON is UTF-8, and paths need not be.
    """
    try:
        return msgspec.json.encode(document, enc_hook=sentence)
    except UnicodeEncodeError:
        return msgspec.json.encode(without_halves(msgspec.to_builtins(document, enc_hook=sentence)))


# -- What was measured per step, in the form that comparisons, gates and locks need: exact, and small.
#
# Times are integer nanoseconds. A *window* is one step of one device, or all that one device recorded where no step
# is.

Part = Literal[
    "compute", "transfer", "wait", "comm_unknown", "host_wait", "launch_latency", "dependency", "unattributed", "other"
]
CountKind = Literal[
    "launch",
    "sync",
    "copy",
    "aicpu",
    "compile",
    "collective",
    "graph_replay",
    "allocation",
    "block",
    "host_operator",
]
#: What tells operators apart: type, shapes and dtypes; or, where there are too many of these, less.
KeyedBy = Literal["shapes", "type", "core"]
#: From what tells operators apart best to what does least.
COARSENESS: Final[tuple[KeyedBy, ...]] = get_args(KeyedBy)

#: What a recording lacks, so that parts mean something else: launches of kernels, without which waiting for the host is
#: unattributed; calls of the runtime, without which it is named by other events; rows of the table of kernels.
Lack = Literal["launches", "calls", "rows"]


#: Whose clock the length of a step is of.
TimedBy = Literal["device", "host"]
#: What a device's steps are told by: the host's own ranges of them, or the first kernel of each.
BoundedBy = Literal["host", "device"]


class PartSum(Model, frozen=True, kw_only=True):
    """One part of the windows, summed over all of them: ``ns``, and how many things (kernels, waits) make it up.

    ``key``: of compute the operator (type, input shapes, dtypes), of communication the kind of its group, of a wait
    for the host the cause and the event to blame; null where a part has only one. ``where``: a line of code that it
    comes from, which tells nothing apart. ``torch_op``: what launched it. ``after``: of a wait for the host, in which
    wait of the host for the device it began, by the key of its :class:`Count`; null where in none.
    """

    part: Part
    key: str | None
    ns: int
    count: int
    where: str | None = None
    torch_op: str | None = None
    after: str | None = None


class TypeSteps(Model, frozen=True, kw_only=True):
    """The time of one operator type in every step, and its kernels: means over the devices, rounded, and sums.

    ``useful_flop``: of products in their own dtype, by the shapes of all these kernels, least and most; null where not
    all of them tell.
    """

    type: str
    ns: list[int]
    count: list[int]
    useful_flop: tuple[float, float] | None = None


class Count(Model, frozen=True, kw_only=True):
    """How often something happens in each step, over all devices; ``bytes``: what it moves, where that is recorded."""

    kind: CountKind
    key: str
    count: list[int]
    bytes: list[int] | None = None
    where: str | None = None


class Digest(Model, frozen=True, kw_only=True):
    """All windows of a recording summed. ``total_ns`` is their length, and exactly the sum of the ``parts``.

    ``windows``: how many were summed, so that a mean step is ``total_ns / windows`` long; ``steps``: their numbers,
    in order, empty where no step is recorded; ``span_ns``: per step the mean length over its devices, rounded; of a
    run without any device the length of the host's own step, the mean over its processes, and nothing without steps.
    ``steps`` and what counts per step are as long as ``span_ns``, or of one place where no step is recorded.
    ``uncounted``: kinds of things that this recording does not tell, so that none is not zero.
    ``lacks``: what else it does not tell, of any device.
    ``bounded_by``: what the steps of all devices are told by; results of before this was written had first kernels.
    """

    devices: int
    windows: int
    steps: list[int]
    span_ns: list[int]
    total_ns: int
    parts: list[PartSum]
    types: list[TypeSteps]
    counts: list[Count]
    keyed_by: KeyedBy = "shapes"
    uncounted: list[CountKind] = []
    lacks: list[Lack] = []
    bounded_by: BoundedBy = "device"

    @property
    def timed(self) -> TimedBy | None:
        """Whose clock ``span_ns`` is of; None where no length is recorded."""
        if self.total_ns:
            return "device"
        return "host" if not self.devices and any(self.span_ns) else None


# -- What the hardware counters of an operator tell.

#: What the ratios of the units show, from the clearest to nothing:
#: ``limit`` (a unit is busy nearly all the time), ``leading`` (one is busier than all others), ``shared`` (several are,
#: none leads), ``waiting`` (none is busy half of the time), ``conflict`` (cycles are lost to conflicts), ``unknown``.
CounterPattern = Literal["limit", "leading", "shared", "waiting", "conflict", "unknown"]
CoreSide = Literal["cube", "vector"]


class UnitShare(Model, frozen=True, kw_only=True):
    """The part of all cycles of its cores in which a unit is busy."""

    unit: str
    ratio: float


class PmuSide(Model, frozen=True, kw_only=True):
    """The units of the cube or of the vector cores; ``side`` is None where cores are of one kind.

    ``units``: the busiest first. ``time_ns``: how long these cores work per kernel, where it is recorded.
    ``idle_least``: the part of their cycles in which certainly none of these units is busy, where memory transfers are
    recorded too; ``efficiency``: against what the chip can do.
    """

    side: CoreSide | None
    pattern: CounterPattern
    units: list[UnitShare]
    time_ns: int | None
    idle_least: float | None
    efficiency: float | None = None


class Pmu(Model, frozen=True, kw_only=True):
    """Hardware counters of an operator: duration-weighted means, and what they point to.

    ``bound``: the kind of unit that is clearly the limit; ``pattern`` and ``unit`` tell more where there is none.
    ``brief``: the busiest unit in a few words.
    ``recorded``: the part of the operator's time in kernels that have counters.
    """

    bound: Literal["compute", "memory", "scalar", "conflict", "unknown"]
    rule: Message
    means: dict[str, float]
    pattern: CounterPattern = "unknown"
    unit: str | None = None
    brief: Message | None = None
    sides: list[PmuSide] = []
    recorded: float = 1.0


# -- What was run, and how it was recorded: by this two recordings are told to be of one workload.


class GroupSize(Model, frozen=True, kw_only=True):
    """Process groups of one kind: how many there are, and of how many ranks."""

    kind: str
    groups: int
    ranks: int


class Workload(Model, frozen=True, kw_only=True):
    """The fingerprint of a recording. Null, or empty, is what the files do not tell.

    ``recorded_at``: when, in UTC (ISO 8601, to the second), as the first event's time or npuperf's own record tells.
    ``options``: the profiler's, as ``name=value``; ``frequency_mhz``: AI Core clock, least and most that was recorded;
    ``recording_overhead``: how many times longer a recorded step took than others of the run; ``settings``:
    environment variables that matter, as ``NAME=value``.
    """

    command: tuple[str, ...] = ()
    git_commit: str | None = None
    recorded_at: str | None = None
    soc: str | None = None
    cann: str | None = None
    torch: str | None = None
    torch_npu: str | None = None
    level: str | None = None
    options: tuple[str, ...] = ()
    world_size: int | None = None
    groups: tuple[GroupSize, ...] = ()
    frequency_mhz: tuple[int, int] | None = None
    recording_overhead: float | None = None
    settings: tuple[str, ...] = ()
    kineto: bool = False
