"""Device memory as every reader delivers it: blocks of PyTorch's caching allocator, its counters, and what lies beside.

Bytes and epoch nanoseconds are exact integers. docs/memory.md says which file tells what.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from npuperf.base.messages import Message
from npuperf.base.units import MIB
from npuperf.model.labels import I64, Columns, Labels, Mask

# The allocator's rules (torch_npu: NPUCachingAllocator.cpp, which follows CUDACachingAllocator.cpp).

#: Blocks are multiples of so many bytes, and those of torch_npu are asked for with so many more.
ROUNDED, PADDED = 512, 32
#: Blocks up to this come from segments of their own kind; a large piece is cut up only where more than this is left.
SMALL_BLOCK: Final = MIB
#: Memory for large blocks is taken in pieces of so much at least: one of them may be partly free without any fragments.
LARGE_SEGMENT: Final = 20 * MIB

#: What told of the memory. A snapshot is the allocator's own history, msmemscope hooks it from outside.
MemorySource = Literal["profiler", "snapshot", "memscope"]


class MemoryBlocks(Columns, frozen=True):
    """Blocks that the allocator handed out within the window, ordered by ``start``; NO_TIME: not within the window.

    ``freed``: when the program gave the block back, ``released``: when others may have it, which is later where another
    stream still used it. ``stream`` and ``address``: -1 where not recorded. ``name``: the torch operator that asked for
    it, ``where`` the line of code, as :func:`npuperf.model.host.shorten` spells it.
    """

    start: I64
    freed: I64
    released: I64
    size: I64
    stream: I64
    address: I64
    name: Labels
    where: Labels


class Counters(Columns, frozen=True):
    """The allocator's own counters after each of its events, ordered by ``time``; bytes, -1: not recorded.

    ``allocated``: blocks in the program's hands; ``active``: with those that still wait for a stream; ``reserved``: all
    that the allocator holds of the device.
    """

    time: I64
    allocated: I64
    active: I64
    reserved: I64


class Accesses(Columns, frozen=True):
    """When blocks were used, ordered by ``time``: the place of the block, and the ``name`` of what read or wrote it."""

    time: I64
    block: I64
    name: Labels


class Samples(Columns, frozen=True):
    """What was sampled at times, ordered by them, within each ``name``; bytes."""

    time: I64
    size: I64
    name: Labels


class PlannedBlocks(Columns, frozen=True):
    """What the graph engine planned when it compiled: a block of a graph's operator, bytes.

    ``start``, ``end``: the places in the graph's order of the first and the last operator that has it. ``model``: the
    operator that a graph of unknown shapes was cut out for.
    """

    graph: I64
    start: I64
    end: I64
    size: I64
    name: Labels
    model: Labels


class Segments(Columns, frozen=True):
    """What the allocator holds of the device at the end of a snapshot: a row for each piece of a segment.

    ``segment``: the address of the segment it lies in; ``state``: of the piece (inactive, active_allocated,
    active_pending_free); ``stream``: of the segment; ``where``: the line of code that asked for it.
    """

    segment: I64
    address: I64
    size: I64
    stream: I64
    state: Labels
    where: Labels


class PiecesAtStart(Columns, frozen=True):
    """What the allocator held when a snapshot's history begins: a row for each block in use, ordered by ``address``.

    A segment that is wholly free has one row, of size 0. ``segment``, ``reserved``, ``stream``: where the segment
    begins, its bytes, and whose it is. ``released``: when others may have the block, NO_TIME: not within the history.
    """

    address: I64
    size: I64
    segment: I64
    reserved: I64
    stream: I64
    released: I64


class OutOfMemory(Struct, frozen=True):
    """An allocation that failed: when (ns), how much was asked for, and what the driver had, bytes; None: not known.

    ``stream``: the one it was asked for.
    """

    time: int
    asked: int
    free: int | None
    where: str | None = None
    stream: int | None = None


class DeviceMemory(Struct, frozen=True, kw_only=True):
    """Everything recorded of one device's memory.

    ``process``: what the process has of the device, PyTorch's part included; ``modules``: what each module of CANN has,
    without PyTorch's. ``other``: blocks of another allocator (the graph engine's), which PyTorch's counters leave out,
    and ``planned`` what it planned for graphs. ``segment_events``: when the allocator took memory from the device (size
    > 0) or gave it back; ``settings``: the allocator's, as a snapshot has them. Only a snapshot tells the
    ``segment_addresses`` of these events, and what was ``asked`` for each block, rounded: what was handed out may be
    more; which are ``of_graphs``, from the pool of a captured graph; and what was there ``at_start`` (None: that does
    not follow from its end). ``time_known``: whether times are those of the
    device's tasks. ``accesses``: only msmemscope tells. ``doubt``: why the blocks are not all there were.
    """

    source: MemorySource
    blocks: MemoryBlocks = field(default_factory=MemoryBlocks.empty)
    counters: Counters = field(default_factory=Counters.empty)
    process: Samples = field(default_factory=Samples.empty)
    modules: Samples = field(default_factory=Samples.empty)
    other: MemoryBlocks = field(default_factory=MemoryBlocks.empty)
    planned: PlannedBlocks = field(default_factory=PlannedBlocks.empty)
    segments: Segments = field(default_factory=Segments.empty)
    segment_events: Samples = field(default_factory=Samples.empty)
    segment_addresses: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    asked: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    of_graphs: Mask = field(default_factory=lambda: np.empty(0, np.bool_))
    at_start: PiecesAtStart | None = None
    accesses: Accesses = field(default_factory=Accesses.empty)
    failures: tuple[OutOfMemory, ...] = ()
    settings: str | None = None
    hbm: int | None = None
    time_known: bool = True
    doubt: Message | None = None

    @property
    def ended_by_failure(self) -> bool:
        """Tell whether the last thing that happened is an allocation that failed."""
        last = int(self.counters.time[-1]) if len(self.counters) else 0
        return bool(self.failures) and last <= self.failures[-1].time

    def with_snapshot(self, other: DeviceMemory) -> DeviceMemory:
        """Return the same with what a snapshot of the same device has beside it.

        What the profiler recorded has times and operators, so its blocks and counters stay. Of two snapshots that
        counts which was taken as memory ran out, else the one that has more events.
        """
        if self.source == "snapshot":
            return max(self, other, key=lambda memory: (memory.ended_by_failure, len(memory.counters)))
        return replace(
            self,
            segments=other.segments,
            segment_events=other.segment_events if other.time_known else self.segment_events,
            failures=other.failures,
            settings=other.settings,
        )
