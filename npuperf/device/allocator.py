"""PyTorch's caching allocator, replayed on what was recorded: what it would reserve with other settings.

Its rules (NPUCachingAllocator.cpp of torch_npu, which follows CUDACachingAllocator.cpp): blocks up to 1 MiB come from
segments of 2 MiB, up to 10 MiB from segments of 20 MiB, larger ones from one of their own, in multiples of 2 MiB. Of
free pieces of the same stream the smallest that fits is cut up; a large piece only where more than 1 MiB is left.
Free neighbours become one. ``max_split_size_mb``: larger pieces are not cut up, and serve only what is at most 20 MiB
smaller. ``expandable_segments``: one segment for each stream and kind, which grows in pages of 2 or 20 MiB, and is cut
up to the byte; the two exclude each other.

What is replayed begins with what was there when the history does, which follows from its end, and the settings as they
were have to give every recorded segment and the address of every block again. Where blocks were there already, it is
not recorded how they came to lie where they do: with other settings segments begin as they are, and expandable ones
with these blocks side by side, and as much free behind them as there was.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.units import MIB
from npuperf.model.device_memory import LARGE_SEGMENT, ROUNDED, SMALL_BLOCK, DeviceMemory, PiecesAtStart
from npuperf.model.groups import rows_of_each
from npuperf.model.tasks import NO_TIME

_SMALL_SEGMENT, _OWN_SEGMENT = 2 * MIB, 10 * MIB
_NEVER: Final = 1 << 62
#: Settings of max_split_size_mb that are tried.
_SPLITS: Final = (64, 128, 256, 512)
#: Blocks up to which a replay is worth its time (4 us each, on a core).
_MOST: Final = 200_000
#: Where the first expandable segment begins, and how far they are apart: further than any device's memory.
_BASE, _APART = 1 << 44, 1 << 41


def segment_bytes(size: int) -> int:
    """Return how large a segment is that is taken for a block, bytes."""
    if size <= SMALL_BLOCK:
        return _SMALL_SEGMENT
    return LARGE_SEGMENT if size < _OWN_SEGMENT else -(-size // (2 * MIB)) * 2 * MIB


class Reserved(Struct, frozen=True):
    """The most that is reserved, bytes: as recorded, and as replayed with other settings.

    ``older``: what was in use when the history begins, bytes.
    """

    recorded: int
    older: int
    expandable: int
    split: dict[int, int]


class _Segments:
    """Segments of their own for what does not fit into the pieces that are there."""

    def __init__(self, max_split: int, addresses: list[int]) -> None:
        self.reserved = self.most = self.at_first = 0
        self.taken: list[int] = []
        self._max_split = max_split
        self._addresses = iter(addresses)
        self._next = _BASE
        self._sizes: dict[int, int] = {}  # of segments, by their beginning
        self._free: dict[tuple[int, bool], list[tuple[int, int]]] = {}  # pieces by stream and kind: size, address
        self._starts: dict[int, int] = {}  # free pieces: their size by their beginning,
        self._ends: dict[int, int] = {}  # and their beginning by their end

    def begin(self, there: PiecesAtStart) -> list[tuple[int, int]]:
        """Begin with what is there: return the address and the bytes of each row."""
        rows = list(zip(there.address.tolist(), there.size.tolist(), strict=True))
        for segment, reserved, stream, small, own in _by_segment(there):
            self._sizes[segment] = reserved
            self.reserved += reserved
            pieces, at = self._free.setdefault((stream, small), []), segment
            for address, size in [*(rows[row] for row in own), (segment + reserved, 0)]:
                if address > at:
                    self._add(pieces, at, address - at)
                at = address + size
        self.most = self.at_first = self.reserved
        return rows

    def malloc(self, size: int, stream: int) -> tuple[int, int]:
        """Hand out a block: its address, and how large it is."""
        small = size <= SMALL_BLOCK
        pieces = self._free.setdefault((stream, small), [])
        at = self._fitting(pieces, size)
        if at is None:
            address, whole = self._segment(size)
        else:
            whole, address = pieces.pop(at)
            del self._starts[address], self._ends[address + whole]
        rest = whole - size
        if not (rest >= ROUNDED if small else size < self._max_split and rest > SMALL_BLOCK):
            return address, whole
        self._add(pieces, address + size, rest)
        return address, size

    def _fitting(self, pieces: list[tuple[int, int]], size: int) -> int | None:
        at = bisect_left(pieces, (size, 0))
        if at == len(pieces):
            return None
        found = pieces[at][0]
        if size < self._max_split <= found or (size >= self._max_split and found >= size + LARGE_SEGMENT):
            return None
        return at

    def _segment(self, size: int) -> tuple[int, int]:
        taken = segment_bytes(size)
        address = next(self._addresses, self._next)
        self._next = max(self._next, address) + taken + LARGE_SEGMENT
        self._sizes[address] = taken
        self._grow(taken)
        return address, taken

    def _grow(self, taken: int) -> None:
        self.taken.append(taken)
        self.reserved += taken
        self.most = max(self.most, self.reserved)

    def _add(self, pieces: list[tuple[int, int]], address: int, size: int) -> None:
        insort(pieces, (size, address))
        self._starts[address], self._ends[address + size] = size, address

    def _take(self, pieces: list[tuple[int, int]], address: int) -> int:
        size = self._starts.pop(address)
        del self._ends[address + size]
        del pieces[bisect_left(pieces, (size, address))]
        return size

    def free(self, address: int, size: int, stream: int, *, small: bool) -> None:
        """Take a block back; what is free beside it in its segment becomes one with it."""
        pieces = self._free[stream, small]
        before = None if address in self._sizes else self._ends.get(address)
        if before is not None:
            size += self._take(pieces, before)
            address = before
        if address + size not in self._sizes and address + size in self._starts:
            size += self._take(pieces, address + size)
        self._add(pieces, address, size)

    def empty_cache(self) -> None:
        """Give back segments that are wholly free."""
        for pieces in self._free.values():
            for size, address in [piece for piece in pieces if self._sizes.get(piece[1]) == piece[0]]:
                self._take(pieces, address)
                del self._sizes[address]
                self.reserved -= size


class _Expandable(_Segments):
    """One segment for each stream and kind, which grows at its end."""

    def __init__(self) -> None:
        super().__init__(_NEVER, [])
        self._bounds: dict[tuple[int, bool], tuple[int, int]] = {}  # where each begins, and what is mapped of it

    def begin(self, there: PiecesAtStart) -> list[tuple[int, int]]:
        """Begin with the blocks side by side, and what is free behind them."""
        rows = [(0, 0)] * len(there)
        used: dict[tuple[int, bool], int] = {}
        for _, reserved, stream, small, own in _by_segment(there):
            key = stream, small
            begin, mapped = self._bounds.setdefault(key, (_BASE + _APART * len(self._bounds), 0))
            self._bounds[key] = begin, mapped + reserved
            self.reserved += reserved
            for row in own:
                rows[row] = begin + used.get(key, 0), int(there.size[row])
                used[key] = used.get(key, 0) + rows[row][1]
        for key, (begin, mapped) in self._bounds.items():
            pieces, at = self._free.setdefault(key, []), used.get(key, 0)
            if mapped > at:
                self._add(pieces, begin + at, mapped - at)
        self.most = self.at_first = self.reserved
        return rows

    def malloc(self, size: int, stream: int) -> tuple[int, int]:
        """Hand out a block: of the piece at the end, which can grow, only where no other is large enough."""
        small = size <= SMALL_BLOCK
        key = stream, small
        pieces = self._free.setdefault(key, [])
        begin, mapped = self._bounds.setdefault(key, (_BASE + _APART * len(self._bounds), 0))
        end = begin + mapped
        at = bisect_left(pieces, (size, 0))
        if at < len(pieces) and sum(pieces[at]) == end and at + 1 < len(pieces):
            at += 1
        if at < len(pieces):
            whole, address = pieces[at]
            self._take(pieces, address)
        else:
            address = self._ends.get(end, end)
            whole = self._take(pieces, address) if address < end else 0
            page = _SMALL_SEGMENT if small else LARGE_SEGMENT
            taken = -(-(size - whole) // page) * page
            self._bounds[key] = begin, mapped + taken
            self._grow(taken)
            whole += taken
        if whole - size >= ROUNDED:
            self._add(pieces, address + size, whole - size)
            whole = size
        return address, whole

    def empty_cache(self) -> None:
        """Give back whole pages at the end, and keep those between blocks in use: at most what is said is reserved."""
        for key, (begin, mapped) in self._bounds.items():
            page = _SMALL_SEGMENT if key[1] else LARGE_SEGMENT
            last = self._ends.get(begin + mapped)
            if last is None:
                continue
            kept = -(-(last - begin) // page) * page
            self._take(self._free[key], last)
            if kept > last - begin:
                self._add(self._free[key], last, begin + kept - last)
            self._bounds[key] = begin, kept
            self.reserved -= mapped - kept


def _by_segment(there: PiecesAtStart) -> Iterator[tuple[int, int, int, bool, list[int]]]:
    """Yield each segment: where it begins, its bytes, stream, whether it is for small blocks, and its rows in order."""
    for segment, rows in rows_of_each(there.segment):
        reserved = int(there.reserved[rows[0]])
        yield segment, reserved, int(there.stream[rows[0]]), reserved == _SMALL_SEGMENT, rows.tolist()


def replay_allocator(memory: DeviceMemory) -> Reserved | None:
    """Replay a history with other settings; None where the recorded one does not come out again, to the byte."""
    blocks, counters, there = memory.blocks, memory.counters, memory.at_start
    if not len(blocks) or len(blocks) > _MOST or memory.doubt is not None or there is None:
        return None
    taken = memory.segment_events.size > 0
    sizes = memory.segment_events.size[taken].tolist()
    addresses = memory.segment_addresses[taken].tolist()
    steps = _steps(memory, there)
    asked = _Asked(memory.asked.tolist(), blocks.stream.tolist())
    for max_split in _recorded_splits(memory):
        same = _Segments(max_split, addresses)
        at = _play(same, steps, asked, there)
        recorded = max(same.at_first, int(counters.reserved.max()))
        if (same.taken, same.most, same.reserved) == (sizes, recorded, int(counters.reserved[-1])) and (
            at == blocks.address.tolist()
        ):
            break
    else:
        return None
    expandable = _Expandable()
    _play(expandable, steps, asked, there)
    split = {}
    for mb in _SPLITS:
        tried = _Segments(mb * MIB, [])
        _play(tried, steps, asked, there)
        split[mb] = tried.most
    return Reserved(recorded, int(there.size.sum()), expandable.most, split)


def _recorded_splits(memory: DeviceMemory) -> tuple[int, ...]:
    """Return which max_split_size to replay with: the recorded one, else none, which is usual."""
    for part in (memory.settings or "").replace("max_split_size_mb", "max_split_size_MB").split(","):
        name, _, value = part.partition(":")
        if name.strip() == "max_split_size_MB" and value.strip().isdecimal():
            return (int(value) * MIB,)
    return (_NEVER,)


def _steps(memory: DeviceMemory, there: PiecesAtStart) -> list[tuple[int, int, int]]:
    """Return what happens in order: time, kind (0: a block is released, 1: handed out, 2: cache emptied), row.

    Rows of what was there before come behind those of all blocks.
    """
    blocks, events = memory.blocks, memory.segment_events
    gone = np.flatnonzero(there.released != NO_TIME)
    rows = np.arange(len(blocks))
    back = blocks.released != NO_TIME
    given = events.time[events.size < 0]
    # what is given back at once is given back by one call: nothing else happens in between
    order = np.sort(np.concatenate((
        blocks.start, blocks.released[back], there.released[gone], given, events.time[events.size > 0]
    )))  # fmt: skip
    place = np.searchsorted(order, given)
    first = np.append(True, np.diff(place) > 1)[: len(given)]
    parts = (
        (blocks.released[back], 0, rows[back]),
        (there.released[gone], 0, len(blocks) + gone),
        (blocks.start, 1, rows),
        (given[first], 2, np.full(int(first.sum()), -1)),
    )
    steps = [
        (time, kind, row) for times, kind, of in parts for time, row in zip(times.tolist(), of.tolist(), strict=True)
    ]
    return sorted(steps)


class _Asked(Struct):
    """What of each block is needed again and again: bytes, stream."""

    sizes: list[int]
    streams: list[int]


def _play(allocator: _Segments, steps: list[tuple[int, int, int]], asked: _Asked, there: PiecesAtStart) -> list[int]:
    """Let an allocator go through all steps; return the address of each block that it hands out."""
    count = len(asked.sizes)
    of = zip(allocator.begin(there), there.stream.tolist(), (there.reserved == _SMALL_SEGMENT).tolist(), strict=True)
    given = {count + row: (*block, stream, small) for row, (block, stream, small) in enumerate(of)}
    at = [0] * count
    for _, kind, row in steps:
        if kind == 1:
            size, stream = asked.sizes[row], asked.streams[row]
            given[row] = (*allocator.malloc(size, stream), stream, size <= SMALL_BLOCK)
            at[row] = given[row][0]
        elif kind == 0:
            address, size, stream, small = given.pop(row)
            allocator.free(address, size, stream, small=small)
        else:
            allocator.empty_cache()
    return at
