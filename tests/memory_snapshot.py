"""A caching allocator by PyTorch's rules, and the snapshots that torch_npu and torch would pickle of it.

Rules and fields are those of torch_npu 2.13: csrc/core/npu/NPUCachingAllocator.cpp (malloc, should_split, free_block,
snapshot, record_trace), csrc/npu/Module.cpp (THNPModule_memorySnapshot: no times, the workspace's entries in front) and
the docstring of torch_npu.npu.memory._snapshot; with ``timed`` those of torch.cuda (time_us, allocator_settings). It
shares nothing with npuperf, which reads what it writes.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory_plan import MIB, Plan

SMALL, ROUND, PADDING = MIB, 512, 32
NEVER_SPLIT = 1 << 62
Frame = tuple[str, int, str]


class Piece:
    """A piece of a segment: free, in use, or given back and still used by another stream."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size, self.requested = address, size, 0
        self.state = "inactive"
        self.frames: list[dict[str, Any]] = []


class Segment:
    """Memory that the device gave; ``pieces`` lie side by side."""

    def __init__(self, address: int, size: int, stream: int, *, small: bool, expandable: bool) -> None:
        self.address, self.stream, self.small, self.expandable = address, stream, small, expandable
        self.pieces = [Piece(address, size)] if size else []

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)


class Allocator:
    """The allocator of one device, with its counters after each of its events: allocated, active, reserved."""

    def __init__(
        self,
        *,
        padding: int = PADDING,
        expandable: bool = False,
        max_split: int = NEVER_SPLIT,
        device_bytes: int = 1 << 50,
    ) -> None:
        self.padding, self.expandable, self.max_split, self.device_bytes = padding, expandable, max_split, device_bytes
        self.segments: list[Segment] = []
        self.events: list[dict[str, Any]] = []
        self.counters: list[tuple[int, int, int]] = []
        self.sizes: list[int] = []  # of every block, in the order in which they are handed out
        self.recording = True
        self._frames: dict[Frame, dict[str, Any]] = {}
        self._next = 0x12C0_0000_0000
        self.now = 1_700_000_000_000_000  # us

    def frames(self, *frames: Frame) -> list[dict[str, Any]]:
        """Return a stack whose frames are shared, as the symbolizer does."""
        return [self._frames.setdefault(f, {"filename": f[0], "line": f[1], "name": f[2]}) for f in frames]

    def _record(self, action: str, address: int, size: int, stream: int, frames: list[dict[str, Any]]) -> None:
        if not self.recording:
            return
        key = "device_free" if action == "oom" else "addr"
        event = {"frames": frames, "action": action, key: address, "size": size, "stream": stream, "pool_id": (0, 0)}
        self.events.append({**event, "time_us": self.now})
        pieces = [piece for segment in self.segments for piece in segment.pieces]
        used = sum(p.size for p in pieces if p.state == "active_allocated")
        active = sum(p.size for p in pieces if p.state != "inactive")
        self.counters.append((used, active, sum(p.size for p in pieces)))

    def rounded(self, asked: int) -> int:
        return max(ROUND, -(-(asked + self.padding) // ROUND) * ROUND)

    def malloc(self, asked: int, stream: int = 7, *frames: Frame) -> int:
        """Hand out a block, and return its address; -1: out of memory."""
        size, stack = self.rounded(asked), self.frames(*frames)
        small = size <= SMALL
        found = self._best(size, stream, small=small) or self._new(size, stream, stack, small=small)
        if found is None:
            free = self.device_bytes - sum(s.size for s in self.segments)
            self._record("oom", free, size, stream, stack)
            return -1
        segment, piece = found
        rest = piece.size - size
        if rest >= ROUND if segment.small or segment.expandable else size < self.max_split and rest > SMALL:
            piece.size = size
            segment.pieces.insert(segment.pieces.index(piece) + 1, Piece(piece.address + size, rest))
        piece.state, piece.requested, piece.frames = "active_allocated", asked, stack
        if self.recording:
            self.sizes.append(piece.size)
        self._record("alloc", piece.address, asked, stream, stack)
        return piece.address

    def _best(self, size: int, stream: int, *, small: bool) -> tuple[Segment, Piece] | None:
        fits = [
            (piece.size, piece.address, segment, piece)
            for segment in self.segments
            if segment.small == small and segment.stream == stream
            for piece in segment.pieces
            if piece.state == "inactive" and piece.size >= size
        ]
        if not fits:
            return None
        fits.sort(key=lambda fit: fit[:2])
        # the last piece of an expandable segment can grow, so that it is left for where nothing else is large enough
        first_can_grow = self.expandable and fits[0][3] is fits[0][2].pieces[-1]
        got, _, segment, piece = fits[1 if first_can_grow and len(fits) > 1 else 0]
        if (size < self.max_split <= got) or (size >= self.max_split and got >= size + 20 * MIB):
            return None
        return segment, piece

    def _new(self, size: int, stream: int, stack: list[dict[str, Any]], *, small: bool) -> tuple[Segment, Piece] | None:
        if self.expandable:
            return self._grow(size, stream, stack, small=small)
        taken = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if sum(s.size for s in self.segments) + taken > self.device_bytes:
            self.empty_cache()
        if sum(s.size for s in self.segments) + taken > self.device_bytes:
            return None
        segment = Segment(self._next, taken, stream, small=small, expandable=False)
        self._next += taken + (64 * MIB if len(self.segments) % 3 == 0 else 0)  # some lie side by side, some do not
        self.segments.append(segment)
        self._record("segment_alloc", segment.address, taken, stream, stack)
        return segment, segment.pieces[0]

    def _grow(
        self, size: int, stream: int, stack: list[dict[str, Any]], *, small: bool
    ) -> tuple[Segment, Piece] | None:
        segment = next((s for s in self.segments if s.small == small and s.stream == stream), None)
        if segment is None:
            segment = Segment(self._next, 0, stream, small=small, expandable=True)
            self._next += 1 << 40
            self.segments.append(segment)
        page = 2 * MIB if small else 20 * MIB
        last = segment.pieces[-1] if segment.pieces and segment.pieces[-1].state == "inactive" else None
        missing = size - (last.size if last else 0)
        taken = -(-missing // page) * page
        if sum(s.size for s in self.segments) + taken > self.device_bytes:
            return None
        address = segment.address + segment.size
        if last is None:
            last = Piece(address, 0)
            segment.pieces.append(last)
        last.size += taken
        self._record("segment_map", address, taken, stream, stack)
        return segment, last

    def _at(self, address: int) -> tuple[Segment, Piece]:
        return next((s, p) for s in self.segments for p in s.pieces if p.address == address and p.state != "inactive")

    def free(self, address: int, *, waits: bool = False) -> None:
        """Give a block back; where it ``waits`` for a stream it is done with later, by :meth:`release`."""
        segment, piece = self._at(address)
        piece.state = "active_pending_free"
        self._record("free_requested", address, piece.requested, segment.stream, piece.frames)
        if not waits:
            self.release(address)

    def release(self, address: int) -> None:
        """Make a block that was given back free for others."""
        segment, piece = self._at(address)
        piece.state, frames, piece.frames = "inactive", piece.frames, []
        requested, at = piece.requested, segment.pieces.index(piece)
        for first in (at, at - 1):  # what is free beside it becomes one with it
            pair = segment.pieces[first : first + 2] if first >= 0 else []
            if len(pair) == 2 and all(p.state == "inactive" for p in pair):
                pair[0].size += pair[1].size
                segment.pieces.remove(pair[1])
        self._record("free_completed", address, requested, segment.stream, frames)

    def empty_cache(self) -> None:
        """Give back segments that are all free."""
        for segment in [*self.segments]:
            if not segment.expandable and len(segment.pieces) == 1 and segment.pieces[0].state == "inactive":
                self.segments.remove(segment)
                self._record("segment_free", segment.address, segment.size, segment.stream, [])

    def snapshot(
        self, *, device: int = 0, entries: int | None = None, timed: bool = False, workspace: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Return what ``_snapshot()`` does; ``entries``: the most events that are kept; ``workspace``: its blocks."""
        active = sum(p.size for s in self.segments for p in s.pieces if p.state != "inactive")
        self._record("snapshot", 0, active, 0, [])
        segments = [self._segment(segment, device, timed=timed) for segment in self.segments]
        events = self.events[-entries:] if entries else self.events
        if not timed:
            events = [{key: value for key, value in event.items() if key != "time_us"} for event in events]
        front: list[dict[str, Any]] = []
        for at, size in enumerate(workspace):
            address = 0x15_0000_0000 + (at << 32)
            for action in ("workspace_snapshot", "segment_alloc", "alloc"):
                front.append({"action": action, "addr": address, "size": size, "stream": at, "pool_id": (0, 0)})
            block = {"address": address, "size": size, "requested_size": size - 32, "state": "inactive", "frames": []}
            told = {"total_size": size, "stream": at, "segment_type": "large", "blocks": [block], "frames": []}
            segments.append({"device": device, "address": address, "is_expandable": False, **told})
        traces = [[] for _ in range(device)] + [front + events] + [[]]
        told = {"segments": segments, "device_traces": traces}
        return (
            {**told, "allocator_settings": {"max_split_size": -1, "expandable_segments": self.expandable}}
            if timed
            else told
        )

    def _segment(self, segment: Segment, device: int, *, timed: bool) -> dict[str, Any]:
        pieces = segment.pieces
        waiting = "active_awaiting_free" if timed else "active_pending_free"
        blocks = [
            {
                "address": p.address,
                "size": p.size,
                "requested_size": p.requested,
                "state": waiting if p.state == "active_pending_free" else p.state,
                "frames": p.frames,
            }
            for p in pieces
        ]
        return {
            "device": device,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": sum(p.size for p in pieces if p.state == "active_allocated"),
            "active_size": sum(p.size for p in pieces if p.state != "inactive"),
            "requested_size": sum(p.requested for p in pieces if p.state != "inactive"),
            "stream": segment.stream,
            "segment_pool_id": (0, 0),
            "segment_type": "small" if segment.small else "large",
            "is_expandable": segment.expandable,
            "frames": [],
            "blocks": blocks,
        }


def dump(snapshot: object, path: Path, protocol: int | None = None) -> Path:
    """Write a snapshot as ``_dump_snapshot`` does."""
    path.write_bytes(pickle.dumps(snapshot, protocol))
    return path


def run_plan(plan: Plan, allocator: Allocator) -> None:
    """Let an allocator go through a plan: what was there before it, then what it hands out and is given back."""
    allocator.recording = False
    older = {at: allocator.malloc(size - PADDING) for at, (_, size) in enumerate(plan.older)}
    left = plan.before - sum(size for _, size in plan.older)
    if left:
        allocator.malloc(left - PADDING)
    allocator.recording = True
    moves = [(time, 0, "older", at) for at, (time, _) in enumerate(plan.older)]
    given: dict[int, int] = {}
    for at, block in enumerate(plan.blocks):
        moves.append((block.start, 2, "malloc", at))
        if block.freed is not None:
            moves.append((block.freed, 0, "free", at))
            if block.waits:
                moves.append((block.freed + block.waits, 1, "release", at))
    start = allocator.now
    for time, _, move, at in sorted(moves):
        allocator.now = start + time // 1000
        if move == "malloc":
            block = plan.blocks[at]
            given[at] = allocator.malloc(block.size - PADDING, block.stream, ("/home/u/train.py", 10 + at, block.name))
        elif move == "free":
            allocator.free(given[at], waits=plan.blocks[at].waits > 0)
        elif move == "release":
            allocator.release(given[at])
        else:
            allocator.free(older[at])
