"""Snapshots of PyTorch's memory, as ``torch_npu.npu.memory._dump_snapshot`` pickles them, to each device's memory.

A snapshot is the state of the allocator, segment by segment, and the events that led there, oldest first. Those of
torch_npu have no times, only their order; those of torch.cuda are stamped in microseconds. Events tell the bytes that
were asked for; what the allocator handed out follows from its rules, and is held against the state at the end.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right, insort
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct

from npuperf.base.errors import InputError
from npuperf.base.files import check_input, read_input
from npuperf.base.memory import available
from npuperf.base.messages import Message, say, say_n
from npuperf.base.process import run_quietly
from npuperf.model.device_memory import (
    PADDED,
    ROUNDED,
    SMALL_BLOCK,
    Counters,
    DeviceMemory,
    MemoryBlocks,
    OutOfMemory,
    PiecesAtStart,
    Samples,
    Segments,
)
from npuperf.model.host import LIBRARY_FRAME, shorten
from npuperf.model.labels import I64, Labels, Mask
from npuperf.model.tasks import NO_TIME
from npuperf.readers import unpickle
from npuperf.readers.log import ReadLog
from npuperf.readers.unpickle import ACTIONS, EXPANDABLE, GRAPH, SMALL, STATES

(_ALLOC, _FREE, _FREED, _SEGMENT, _SEGMENT_FREE, _MAP, _UNMAP, _OOM, _STATE, _WORKSPACE) = range(len(ACTIONS))
#: What the process that reads a pickle may take: bytes, and bytes per byte of the file (measured: 4 to 7); seconds, and
#: seconds per MiB (measured: 0.03).
_MEMORY, _MEMORY_PER_BYTE = 1 << 30, 24
_SECONDS, _SECONDS_PER_MIB = 60, 1.0

#: Suffixes of PyTorch's names for overloads of one operator.
_OVERLOAD: Final = re.compile(r"_(?:[A-Z]\w*|(?:\w*_)?out|memory_format|int|dim|names)$")
_NS_PER_US: Final = 1000


class _Header(Struct):
    """What the columns are that follow."""

    columns: list[tuple[str, int]]
    places: list[str]
    operators: list[str]
    lost: dict[str, int]
    settings: str | None = None


class _Tables(Struct):
    header: _Header
    columns: dict[str, I64]

    def column(self, name: str, rows: I64) -> I64:
        return self.columns[name][rows]


def read_snapshot(path: Path, log: ReadLog) -> dict[int | None, DeviceMemory]:
    """Read a snapshot: the memory of each device that has any, by its number. Raises InputError where it is none."""
    tables = _unpickled(path)
    for kind, rows in tables.header.lost.items():
        log.lose(path, rows, _LOST[kind])
    places = Labels.of([shorten(place) for place in tables.header.places])
    operators = Labels.of([f"aten::{_OVERLOAD.sub('', name)}" for name in tables.header.operators])
    found: dict[int | None, DeviceMemory] = {}
    for device in np.union1d(tables.columns["event.device"], tables.columns["segment.device"]).tolist():
        found[device] = _Device(tables, device, places, operators).memory(tables.header.settings)
    if not found:
        raise InputError(say("{path}: a snapshot without segments and without events", path=str(path)))
    return found


_LOST: Final = {
    "segments": say("segments without an address or a size"),
    "blocks": say("blocks without a size or a state"),
    "events": say("events without an action that is known, an address or a size"),
}


# -- The pickle, read in a process of its own.


def _unpickled(path: Path) -> _Tables:
    check_input(path)
    size = path.stat().st_size
    memory = min(_MEMORY + _MEMORY_PER_BYTE * size, max(available(), _MEMORY))
    seconds = int(_SECONDS + _SECONDS_PER_MIB * (size >> 20))
    with TemporaryDirectory(prefix="npuperf-") as folder:
        out = Path(folder) / "columns"
        command = [sys.executable, "-I", "-S", unpickle.__file__, str(path.absolute()), str(out)]
        ended = run_quietly([*command, str(memory), str(seconds), LIBRARY_FRAME], limit=4.0 * seconds)
        if ended.returncode != 0:
            raise InputError(_wrong(path, ended.text, ended.returncode, memory, late=ended.late))
        line, _, rest = read_input(out).partition(b"\n")
    header = msgspec.json.decode(line, type=_Header)
    columns, at = dict[str, I64](), 0
    for name, count in header.columns:
        columns[name] = np.frombuffer(rest, np.int64, count, at)
        at += 8 * count
    for name in _COLUMNS:
        columns.setdefault(name, np.empty(0, np.int64))
    return _Tables(header, columns)


_COLUMNS: Final = (
    *(f"segment.{name}" for name in ("flags", "device", "address", "size", "stream")),
    *(f"block.{name}" for name in ("segment", "state", "size", "address", "requested", "place")),
    *(
        f"event.{name}"
        for name in ("device", "action", "size", "address", "stream", "time", "place", "operator", "graph")
    ),
)


def _wrong(path: Path, text: str, status: int | None, memory: int, *, late: bool) -> Message:
    """Say why a pickle was not read."""
    kind, _, what = text.strip().partition(" ")
    name = str(path)
    if kind == "refused":
        return say("{path}: this pickle asks for {what}, which memory snapshots do not need; nothing of it was run",
                   what=what, path=name)  # fmt: skip
    if kind == "wrong":
        return say("{path}: a pickle, but no memory snapshot: it has neither segments nor device_traces", path=name)
    if kind == "cut":
        return say("{path}: cut off: the pickle ends before it is complete", path=name)
    if kind == "memory":
        return say("{path}: reading it takes more than {memory} bytes of memory: it is damaged, or too large for this "
                   "machine", memory=memory, path=name)  # fmt: skip
    if kind == "damaged":
        return say("{path}: damaged: {what}", what=what, path=name)
    if late:
        return say("{path}: reading it took too long, and was given up", path=name)
    if status is None:
        return say("{path}: cannot be read: {why}", why=text, path=name)
    return say("{path}: reading it ended with status {status}: it is damaged, or was made to do harm", status=status,
               path=name)  # fmt: skip


# -- One device.


class _Device:
    """Events and final state of one device. Positions are those of its events, oldest first."""

    def __init__(self, tables: _Tables, device: int, places: Labels, operators: Labels) -> None:
        events = np.flatnonzero(tables.columns["event.device"] == device)
        segments = np.flatnonzero(tables.columns["segment.device"] == device)
        # The workspace is an allocator of its own. torch_npu puts three entries for each of its blocks before the
        # events of the other one, and its blocks among the segments.
        marks = np.flatnonzero(tables.column("event.action", events) == _WORKSPACE)
        self.workspace = np.unique(tables.column("event.address", events[marks]))
        events = np.delete(events, np.unique(marks[:, None] + np.arange(3)).clip(max=max(len(events) - 1, 0)))
        own = ~np.isin(tables.column("segment.address", segments), self.workspace)
        self.workspace_bytes = int(tables.column("segment.size", segments[~own]).sum())
        self.segments = segments[own]
        self.blocks = np.flatnonzero(np.isin(tables.columns["block.segment"], self.segments))
        self.tables, self.places, self.operators = tables, places, operators
        self.action, self.asked, self.address, self.stream, self.place, self.operator, self.graph, time = (
            tables.column(f"event.{name}", events)
            for name in ("action", "size", "address", "stream", "place", "operator", "graph", "time")
        )
        self.time_known = bool(len(time)) and bool((time > 0).all())
        self.time = _strictly(time * _NS_PER_US) if self.time_known else np.arange(1, len(time) + 1)
        states = np.flatnonzero(self.action == _STATE)
        #: How many events had happened when the state was looked at.
        self.until = int(states[-1]) + 1 if len(states) else len(self.action)

    def memory(self, settings: str | None) -> DeviceMemory:
        """Put together the device's memory."""
        alloc, freed, released, before = self._paired()
        size, older, doubt = self._sizes(alloc, released, before)
        never = len(self.action)
        time = np.append(self.time, NO_TIME)
        end = self.time[-1:] if len(self.time) else np.ones(1, np.int64)
        blocks = MemoryBlocks(
            start=self.time[alloc], freed=time[freed], released=time[released], size=size, stream=self.stream[alloc],
            address=self.address[alloc], name=self.operators.take(self.operator[alloc]),
            where=self.places.take(self.place[alloc]),
        )  # fmt: skip
        change = np.zeros((3, never + 1), np.int64)  # of allocated, active and reserved
        change[:2, alloc] += size
        np.subtract.at(change[0], freed, size)
        np.subtract.at(change[1], released, size)
        for row, action in ((0, _FREE), (1, _FREED)):
            gone = before[self.action[before] == action]
            change[row, gone] -= older[gone]
        taken = np.isin(self.action, (_SEGMENT, _MAP))
        given = np.isin(self.action, (_SEGMENT_FREE, _UNMAP))
        change[2, :never] += np.where(taken, self.asked, 0) - np.where(given, self.asked, 0)
        after = np.cumsum(change[:, :never], axis=1)
        at_end = after[:, self.until - 1 : self.until] if self.until else np.zeros((3, 1), np.int64)
        after += np.array(self._at_end())[:, None] - at_end
        doubt = doubt or (_NEGATIVE if after.size and int(after.min()) < 0 else None)
        moved = np.flatnonzero(change[:, :never].any(axis=0))
        counters = Counters(self.time[moved], *after[:, moved])
        if not len(moved) and len(self.segments):  # the state alone, which is the end of a history that was not kept
            counters = Counters(end, *np.array(self._at_end())[:, None])
        events = np.flatnonzero(taken | given)
        kinds = Labels(self.action[events].astype(np.int32), ACTIONS)
        signed = np.where(taken[events], self.asked[events], -self.asked[events])
        workspace = Samples(end, np.array([self.workspace_bytes]), Labels.of(["workspace"]))
        return DeviceMemory(
            source="snapshot",
            blocks=blocks,
            counters=counters,
            modules=workspace if self.workspace_bytes else Samples.empty(),
            segments=self._state(),
            segment_events=Samples(self.time[events], signed, kinds),
            segment_addresses=self.address[events],
            asked=older[alloc],
            of_graphs=(self.graph[alloc] > 0) | self._in_graphs(self.address[alloc]),
            at_start=self._at_start(alloc[released >= self.until], before, older),
            failures=self._failures(),
            settings=settings,
            time_known=self.time_known,
            doubt=doubt,
        )

    def _in_graphs(self, address: I64) -> Mask:
        """Tell which addresses lie in segments of graphs, which are not given back while the graph is there."""
        start, size, flags = (self.tables.column(f"segment.{name}", self.segments)
                              for name in ("address", "size", "flags"))  # fmt: skip
        order = np.argsort(start, kind="stable")
        start, end = start[order], (start + size)[order]
        at = np.searchsorted(start, address, side="right") - 1
        within = (at >= 0) & (address < np.append(end, 0)[at])
        return within & ((np.append(flags[order], 0)[at] & GRAPH) > 0)

    def _paired(self) -> tuple[I64, I64, I64, I64]:
        """Return the events that allocate, that which frees each and that which releases it, and frees of older blocks.

        Where there is none the position after the last event stands.
        """
        never = len(self.action)
        moves = np.flatnonzero(np.isin(self.action, (_ALLOC, _FREE, _FREED)))
        order = moves[np.argsort(self.address[moves], kind="stable")]
        kind, address = self.action[order], self.address[order]
        # the block that an event is about is the latest one that was allocated at its address
        begins = kind == _ALLOC
        latest = np.maximum.accumulate(np.where(begins, np.arange(len(order)), -1))
        mine = (latest >= 0) & (address[latest] == address)
        ends = []
        for action in (_FREE, _FREED):
            end = np.full(never, never)
            rows = np.flatnonzero((kind == action) & mine)[::-1]
            end[order[latest[rows]]] = order[rows]  # of several the first stays
            ends.append(end)
        alloc = np.flatnonzero(self.action == _ALLOC)
        freed, released = ends[0][alloc], ends[1][alloc]
        return alloc, np.minimum(freed, released), released, np.sort(order[~mine & ~begins])

    def _unexplained(self, padding: int) -> int:
        """Return how many blocks in use are not as large as what was asked for makes them, with ``padding``.

        Blocks of small and of expandable segments are exactly as large as the rules say.
        """
        segment, state, size, requested = (
            self.tables.column(f"block.{name}", self.blocks) for name in ("segment", "state", "size", "requested")
        )
        exact = (self.tables.columns["segment.flags"][segment] & (SMALL | EXPANDABLE)) > 0
        rows = np.flatnonzero(exact & (state > 0) & (requested > 0))
        return int(np.count_nonzero(_rounded(requested[rows] + padding) != size[rows]))

    def _followed(self, alloc: I64, padding: int) -> int:
        """Return how many blocks another one begins right behind, as where a free piece is cut up, with ``padding``."""
        ends = self.address[alloc] + _rounded(self.asked[alloc] + padding)
        return int(np.count_nonzero(np.isin(ends, self.address[alloc])))

    def _sizes(self, alloc: I64, released: I64, before: I64) -> tuple[I64, I64, Message | None]:
        """Return the bytes of each block that was handed out, those of older ones, and why they are in doubt, if so.

        Of older ones by the event that frees or releases them.
        """
        likely = sorted((PADDED, 0), key=lambda padding: (
            self._unexplained(padding), -self._followed(alloc, padding), (padding == 0) != self.time_known
        ))  # fmt: skip
        found = [self._sizes_with(likely[0], alloc, released, before)]
        if found[0][2] is not None:
            found.append(self._sizes_with(likely[1], alloc, released, before))
        return next((sizes for sizes in found if sizes[2] is None), found[0])

    def _sizes_with(self, padding: int, alloc: I64, released: I64, before: I64) -> tuple[I64, I64, Message | None]:
        older = _rounded(self.asked + padding)
        size = older[alloc]
        self._give_rests(alloc, released, before, size, older)
        # what its release tells of an older block is true when the program gives it back, just before
        order = before[np.argsort(self.address[before], kind="stable")]
        freed, then = order[:-1], order[1:]
        same = (self.action[freed] == _FREE) & (self.action[then] == _FREED)
        same &= self.address[freed] == self.address[then]
        older[freed[same]] = older[then[same]]
        return size, older, self._checked(alloc, released, size, self._unexplained(padding))

    def _checked(self, alloc: I64, released: I64, size: I64, odd: int) -> Message | None:
        """Hold blocks that are never released against the state of the snapshot; their sizes become what it has."""
        left = np.flatnonzero((released >= self.until) & (alloc < self.until))
        if not len(self.segments):
            return _NO_STATE if len(left) else None
        state, real, address = (self.tables.column(f"block.{n}", self.blocks) for n in ("state", "size", "address"))
        used = np.flatnonzero(state > 0)
        used = used[np.argsort(address[used])]
        at = np.minimum(np.searchsorted(address[used], self.address[alloc[left]]), max(len(used) - 1, 0))
        same = address[used][at] == self.address[alloc[left]] if len(used) else np.zeros(len(left), np.bool_)
        odd = max(odd, int(np.count_nonzero(size[left[same]] != real[used[at[same]]])))
        size[left[same]] = real[used[at[same]]]
        if lost := len(left) - int(np.count_nonzero(same)):
            return say_n(
                "{n} block that its history never frees is not in use in the state of the snapshot",
                "{n} blocks that its history never frees are not in use in the state of the snapshot",
                lost,
            )
        if odd:
            return say_n(
                "{n} block is not as large as the allocator's rules make it, so sizes of blocks are not exact",
                "{n} blocks are not as large as the allocator's rules make them, so sizes of blocks are not exact",
                odd,
            )
        return None

    def _give_rests(self, alloc: I64, released: I64, before: I64, size: I64, older: I64) -> None:
        """Make blocks of large segments larger by a rest too small to be split off, in place.

        The rest reaches to the next block in use, or to the end of the segment: what is free there is always larger
        than such a rest. ``older``: bytes of blocks from before the first event, by the event that releases them.
        """
        column = self.tables.column
        flags = column("segment.flags", self.segments)
        if (flags & EXPANDABLE).any() or np.isin(self.action, (_MAP, _UNMAP)).any():
            return  # these split every rest off
        large = np.flatnonzero(size > SMALL_BLOCK)
        before = before[(self.action[before] == _FREED) & (older[before] > SMALL_BLOCK)]
        segments = np.flatnonzero(np.isin(self.action, (_SEGMENT, _SEGMENT_FREE)) & (self.asked > SMALL_BLOCK))
        bounds = self._bounds_at_start(segments, alloc[large], before)
        gone = released[large][released[large] < len(self.action)]
        rows = dict(zip(alloc[large].tolist(), large.tolist(), strict=True))
        waiting = set(before.tolist())
        begins = (self.action == _SEGMENT) | (self.action == _ALLOC)
        ends = np.isin(self.action, (_SEGMENT, _SEGMENT_FREE))
        bound = self.address + np.where(ends, self.asked, 0)
        for at in np.sort(np.concatenate((segments, alloc[large], gone, before))).tolist():
            here = int(bound[at])
            if not begins[at]:
                place = bisect_left(bounds, here)
                del bounds[place : place + (place < len(bounds) and bounds[place] == here)]
            if at in rows or at in waiting:
                sizes, row = (size, rows[at]) if at in rows else (older, at)
                place = bisect_right(bounds, here)
                rest = bounds[place] - here - int(sizes[row]) if place < len(bounds) else 0
                sizes[row] += rest if 0 < rest <= SMALL_BLOCK else 0
            if begins[at]:
                insort(bounds, here)

    def _bounds_at_start(self, segments: I64, alloc: I64, before: I64) -> list[int]:
        """Return where segments end, and large blocks begin, that were there before the first event, in order.

        ``segments``: events that take and give back large segments; ``alloc``, ``before``: those that hand large blocks
        out, and that release blocks which were there.
        """
        column = self.tables.column
        fixed = self.segments[(column("segment.flags", self.segments) & SMALL) == 0]
        _, first = np.unique(self.address[segments], return_index=True)
        gone = segments[first][self.action[segments[first]] == _SEGMENT_FREE]
        there = fixed[~np.isin(column("segment.address", fixed), self.address[segments])]
        within = np.isin(column("block.segment", self.blocks), fixed)
        used = self.blocks[within & (column("block.state", self.blocks) > 0)]
        stayed = np.setdiff1d(column("block.address", used), self.address[alloc])
        ends = column("segment.address", there) + column("segment.size", there)
        bounds = (ends, self.address[gone] + self.asked[gone], stayed, np.unique(self.address[before]))
        return list(np.sort(np.concatenate(bounds)).tolist())

    def _at_start(self, left: I64, before: I64, older: I64) -> PiecesAtStart | None:
        """Work back what was there before the first event, from what is there at the end; None where that is odd.

        ``left``: events that hand out what is not released; ``before``, ``older``: events that free or release blocks
        which were there, and their bytes.
        """
        column, segments = self.tables.column, self.segments
        events = np.flatnonzero(np.isin(self.action, (_SEGMENT, _SEGMENT_FREE)))
        mapped = np.isin(self.action, (_MAP, _UNMAP)).any() or (column("segment.flags", segments) & EXPANDABLE).any()
        if mapped or self.until < len(self.action):
            return None
        moved, first = np.unique(self.address[events], return_index=True)
        gone = events[first][self.action[events[first]] == _SEGMENT_FREE]
        kept = segments[~np.isin(column("segment.address", segments), moved)]
        start, reserved, stream = (
            np.concatenate((column(f"segment.{name}", kept), of_events[gone]))
            for name, of_events in (("address", self.address), ("size", self.asked), ("stream", self.stream))
        )
        order = np.argsort(start, kind="stable")
        start, reserved, stream = start[order], reserved[order], stream[order]
        stayed = self.blocks[column("block.state", self.blocks) > 0]
        stayed = stayed[~np.isin(column("block.address", stayed), self.address[left])]
        back = before[self.action[before] == _FREED]
        address = np.concatenate((column("block.address", stayed), self.address[back]))
        size = np.concatenate((column("block.size", stayed), older[back]))
        released = np.concatenate((np.full(len(stayed), NO_TIME), self.time[back]))
        within = np.searchsorted(start, address, side="right") - 1
        free = np.setdiff1d(np.arange(len(start)), within)
        within = np.concatenate((within, free))
        address, size = np.concatenate((address, start[free])), np.concatenate((size, np.zeros(len(free), np.int64)))
        released = np.concatenate((released, np.full(len(free), NO_TIME)))
        order = np.argsort(address, kind="stable")
        address, size, within = address[order], size[order], within[order]
        end = address + size
        if (within < 0).any() or (end > (start + reserved)[within]).any() or (end[:-1] > address[1:]).any():
            return None
        return PiecesAtStart(address, size, start[within], reserved[within], stream[within], released[order])

    def _at_end(self) -> tuple[int, int, int]:
        """Return what is allocated, active and reserved in the state of the snapshot, bytes."""
        state, size = (self.tables.column(f"block.{name}", self.blocks) for name in ("state", "size"))
        reserved = self.tables.column("segment.size", self.segments)
        return int(size[state == 1].sum()), int(size[state > 0].sum()), int(reserved.sum())

    def _state(self) -> Segments:
        column, segment = self.tables.column, self.tables.column("block.segment", self.blocks)
        return Segments(
            segment=column("segment.address", segment),
            address=column("block.address", self.blocks),
            size=column("block.size", self.blocks),
            stream=column("segment.stream", segment),
            state=Labels(column("block.state", self.blocks).astype(np.int32), STATES),
            where=self.places.take(column("block.place", self.blocks)),
        )

    def _failures(self) -> tuple[OutOfMemory, ...]:
        return tuple(
            OutOfMemory(
                time=int(self.time[at]),
                asked=int(self.asked[at]),
                free=int(self.address[at]) if self.address[at] >= 0 else None,
                where=self.places.take(self.place[at : at + 1])[0],
                stream=int(self.stream[at]),
            )
            for at in np.flatnonzero(self.action == _OOM)
        )


_NEGATIVE: Final = say("worked back from the state of the snapshot, its history leaves less than nothing in use")
_NO_STATE: Final = say("the snapshot has events, but not the state that they led to")


def _rounded(asked: I64) -> I64:
    return np.maximum(ROUNDED, -(-asked // ROUNDED) * ROUNDED)


def _strictly(time: I64) -> I64:
    """Return times that rise from each event to the next, so that order is kept within a microsecond."""
    place = np.arange(len(time))
    return np.maximum.accumulate(time - place) + place
