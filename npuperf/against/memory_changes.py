"""The difference of two peaks of memory in parts that add up to it, to the byte; swapping the sides negates each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from npuperf.model.comparison import MemoryChange, MemoryPart
from npuperf.model.memory_result import Memory
from npuperf.model.result import Device, Result, highest_peak

_Parts = dict[tuple[MemoryPart, str | None], int]


def memory_changes(old: Sequence[Result], new: Sequence[Result]) -> list[MemoryChange]:
    """Explain the peak of the new side's device with the highest one by that of the same device before.

    The parts ``before``, ``freed`` and ``alive`` add up to the difference of the peaks, all of them to that of the
    process's memory then. Where a side's peak cannot be split, or its blocks are not listed, it is one part less told.
    """
    after = highest_peak(_with_peaks(new))
    if after is None or after.memory is None:
        return []
    known = _with_peaks(old)
    same = [device for device in known if (device.rank, device.device) == (after.rank, after.device)]
    before = highest_peak(same) or highest_peak(known)
    if before is None or before.memory is None:
        return []
    sides = [before.memory, after.memory]
    split = all(side.split == "measured" for side in sides)
    listed = split and all(sum(group.bytes for group in side.alive) == side.alive_bytes for side in sides)
    beside = all(side.process_bytes is not None and side.cached_bytes is not None for side in sides)
    a, b = ({**_of_peak(side, split, listed), **(dict(_beside(side)) if beside else {})} for side in sides)
    rows = [
        MemoryChange(part=part, key=key, old_bytes=a.get((part, key), 0), new_bytes=b.get((part, key), 0),
                     delta_bytes=b.get((part, key), 0) - a.get((part, key), 0))
        for part, key in dict.fromkeys((*a, *b))
    ]  # fmt: skip
    return sorted(
        (row for row in rows if row.delta_bytes), key=lambda row: (-abs(row.delta_bytes), row.part, row.key or "")
    )


def _with_peaks(runs: Sequence[Result]) -> list[Device]:
    every = [device for run in runs for device in run.devices]
    return [device for device in every if device.memory is not None and device.memory.peak_bytes is not None]


def _of_peak(memory: Memory, split: bool, listed: bool) -> _Parts:
    """Return what the peak consists of; what was given back counts against it."""
    if not split:
        return {("peak", None): memory.peak_bytes or 0}
    parts: _Parts = {("before", None): memory.before_bytes or 0, ("freed", None): -(memory.freed_bytes or 0)}
    if not listed:
        return {**parts, ("alive", None): memory.alive_bytes or 0}
    groups: _Parts = defaultdict(int)
    for group in memory.alive:
        groups["alive", f"{group.operator or group.where or '?'} ({group.class_})"] += group.bytes
    return {**parts, **groups}


def _beside(memory: Memory) -> Iterator[tuple[tuple[MemoryPart, str | None], int]]:
    """Yield what the process has beside what is allocated."""
    yield ("cached", None), memory.cached_bytes or 0
    yield ("waiting", None), memory.waiting_bytes or 0
    for module in memory.modules:
        yield ("outside", module.name), module.bytes
    yield ("outside", None), memory.unnamed_bytes or 0
