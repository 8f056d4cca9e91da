"""What the hardware counters of an operator tell."""

from __future__ import annotations

from typing import Literal

from npuperf.documents.base import Model
from npuperf.messages import Message

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
