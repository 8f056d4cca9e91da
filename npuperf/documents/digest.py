"""What was measured per step, in the form that comparisons, gates and locks need: exact, and small.

Times are integer nanoseconds. A *window* is one step of one device, or all that one device recorded where no step is.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from npuperf.documents.base import Model

Part = Literal[
    "compute", "transfer", "wait", "comm_unknown", "host_wait", "launch_latency", "dependency", "unattributed", "other"
]
CountKind = Literal[
    "launch", "sync", "copy", "aicpu", "compile", "collective", "graph_replay", "allocation", "host_operator"
]
#: What tells operators apart: type, shapes and dtypes; or, where there are too many of these, less.
KeyedBy = Literal["shapes", "type", "core"]
#: From what tells operators apart best to what does least.
COARSENESS: Final[tuple[KeyedBy, ...]] = get_args(KeyedBy)

#: What a recording lacks, so that parts mean something else: launches of kernels, without which waiting for the host is
#: unattributed; calls of the runtime, without which it is named by other events; rows of the table of kernels.
Lack = Literal["launches", "calls", "rows"]


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
    """The time of one operator type in every step, and its kernels: means over the devices, rounded, and sums."""

    type: str
    ns: list[int]
    count: list[int]


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
    in order, empty where no step is recorded; ``span_ns``: per step the mean length over its devices, rounded.
    ``steps`` and what counts per step are as long as ``span_ns``, or of one place where no step is recorded.
    ``uncounted``: kinds of things that this recording does not tell, so that none is not zero.
    ``lacks``: what else it does not tell, of any device.
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
