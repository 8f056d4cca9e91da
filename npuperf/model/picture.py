"""What a page draws of one device: how busy each lane is over the whole time, and exact things where one looks closely.

Not part of a document: it is drawn from the profile when a page is asked for, and handed to ``render`` in its view.
All times are integer nanoseconds after the picture's ``origin_ns``, which is that of the device in the document unless
one step alone is drawn. What is there in part only is there with all of its time: a host event may begin before 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct, field

from npuperf.base.messages import Message
from npuperf.model.labels import I64, U8, Columns

#: ``parts``: the device's time split as in a partition; ``waits``: waiting for the host, by what the host did;
#: ``stream``: one stream's tasks; ``host``: one thread; ``cores``: cube and vector cores in use.
#: ``clock``: that of AI Cores, as a share of the highest; ``memory``: allocated, and reserved beyond it, of the most.
LaneKind = Literal["parts", "waits", "stream", "host", "cores", "clock", "memory"]
#: Kinds of slices and of busy shares, which decide their colour.
COLOURS: Final = (
    *("compute", "communication", "transfer", "comm_wait", "other", "control", "host_wait", "launch_latency"),
    *("dependency_wait", "unattributed", "host_op", "host_sync", "cube", "vector", "clock"),
    *("allocated", "reserved"),
)
#: "Nothing" in an index column of slices.
NOTHING_KNOWN: Final = -1
#: The number of the device of a picture of a host alone.
NO_DEVICE: Final = -1
#: "Not recorded" among the percents of a counter.
UNCOUNTED: Final = 255
#: What a picture may tell of a task beside its name and its times.
Fact = Literal["inputs", "outputs", "core", "blocks", "operator", "moved"]


class LaneSlices(Columns, frozen=True):
    """Things of one lane with their exact times, ordered by start; one row each.

    ``depth``: the sub-track, 0 the outermost, so that no two of one depth overlap; ``colour``: index into COLOURS;
    ``name``, ``called`` and ``where``: indices into the picture's ``names`` (what it is, of tasks the type; what the
    recording calls it where that is more; the code line), -1 unknown; ``facts``: index into its ``facts``; ``cause``:
    of waits, the index of the cause's name, else -1; ``launch``: when the host submitted the task, on which thread
    (``launch_thread``), ``op``: when its torch operator began, on which (``op_thread``), -1 unknown; ``cube`` and
    ``vector``: cores in use, -1 unknown.
    """

    start: I64
    end: I64
    depth: I64
    colour: U8
    name: I64
    called: I64
    where: I64
    facts: I64
    cause: I64
    launch: I64
    launch_thread: I64
    op: I64
    op_thread: I64
    cube: I64
    vector: I64


class Lane(Struct, frozen=True):
    """One row of a timeline. ``shares``: by a name of COLOURS, how much of each bucket is that, 0 to 255 for all of it.

    The shares of one bucket add up to at most 255 (but for rounding by one each), and every lane of a picture has the
    same number of buckets. Of ``cores`` there is a lane for each side, whose shares are of all its cores. ``slices``:
    exact, in the picture's ``exact`` stretches only; ``cut``, of parts and waits: how many of each stretch are not
    among them, for there are too many. ``counters``: of tasks, by their names in the files, whole percents of each
    slice, UNCOUNTED where none was recorded.
    """

    kind: LaneKind
    title: Message
    shares: Mapping[str, U8]
    slices: LaneSlices
    stream: int | None = None
    thread: int | None = None
    cut: tuple[int, ...] = ()
    counters: Mapping[str, U8] = field(default_factory=dict)


class Exact(Struct, frozen=True):
    """A stretch of time of which slices are there, and why this one: a typical step, the longest one, …

    ``cut``: tasks of it that are not among the slices, for there are too many; ``typical``: whether it is the one that
    others are held against.
    """

    start: int
    end: int
    step: int | None
    why: Message
    cut: int = 0
    typical: bool = False


class Picture(Struct, frozen=True):
    """One device's timeline. ``span_ns``: its length, over which the buckets are spread evenly; ``offset_ns``: what is
    added to its times to reach the job's clock.

    ``places``: where to look for what a report names, as (kind, name) → (start, end): kinds ``operator`` (the longest
    kernel of a type, and of a type on a core), ``wait`` (cause and name, as "cause: name", the longest wait), ``sync``
    (the longest call by its name, by its code line, and by name, torch operator and line), ``step`` (number),
    ``host`` (of a host alone, the longest event of a name). Parts of
    a name are put together by :func:`place_name`; waits and calls are of what is judged, if there are such.
    ``begin_ns``: where it begins after the device's origin in the document, not 0 only for one step alone; ``why``: why
    this device is drawn of many, None where all are. ``facts``: what many tasks have in common, each once.
    """

    rank: int | None
    device: int
    source: str
    origin_ns: int
    span_ns: int
    lanes: tuple[Lane, ...]
    names: tuple[str, ...]
    exact: tuple[Exact, ...] = ()
    places: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    offset_ns: int = 0
    begin_ns: int = 0
    why: Message | None = None
    facts: tuple[Mapping[Fact, str], ...] = ()


def place_name(*parts: str | None) -> str:
    """Return what a place is called of which several things tell where it is."""
    return " · ".join(part for part in parts if part)
