"""What all devices measured per step, as one: sums of parts that add up to the sum of the windows exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, get_args

from msgspec import structs

from npuperf.analyze.counting import DeviceCounts, merge_counts
from npuperf.analyze.device_digest import KEPT_TYPES, MOST_KEYS, DeviceDigest, OperatorTimes, fold_waits, too_many
from npuperf.documents.digest import COARSENESS, Count, Digest, KeyedBy, Part, PartSum, TypeSteps

_PARTS: Final[tuple[Part, ...]] = get_args(Part)


def merge_digests(devices: Sequence[DeviceDigest], exposed: Sequence[tuple[PartSum, ...] | None] = ()) -> Digest | None:
    """Add devices up, aligned by the numbers of their steps; None without a device.

    ``exposed``: what takes the place of the devices' exposed communication, where a job tells more of it. Where a
    device has no steps, nothing can be aligned: each is then one window.
    """
    if not devices:
        return None
    if exposed:
        devices = [_with_exposed(device, parts) for device, parts in zip(devices, exposed, strict=True)]
    if any(not device.numbers for device in devices):
        devices = [_as_one_window(device) for device in devices]
    steps = sorted({number for device in devices for number in device.numbers})
    counts, untold = merge_counts([device.counts for device in devices], steps)
    compute, keyed_by = _operators(devices)
    others = _added(part for device in devices for part in device.parts)
    waits = fold_waits([part for part in others if part.part == "host_wait"])
    parts = [*compute, *waits, *(part for part in others if part.part != "host_wait")]
    return Digest(
        devices=len(devices),
        windows=sum(device.windows for device in devices),
        steps=steps,
        span_ns=_means([device.span_ns for device in devices], _places(devices, steps), max(len(steps), 1)),
        total_ns=sum(sum(device.span_ns) for device in devices),
        parts=sorted((p for p in parts if p.ns or p.count), key=_costliest),
        types=_types(devices, steps),
        counts=counts,
        keyed_by=keyed_by,
        uncounted=untold,
        lacks=list(dict.fromkeys(lack for device in devices for lack in device.lacks)),
    )


def _with_exposed(device: DeviceDigest, exposed: tuple[PartSum, ...] | None) -> DeviceDigest:
    if exposed is None:
        return device
    return structs.replace(device, parts=(*(p for p in device.parts if p.part != "comm_unknown"), *exposed))


def _costliest(part: PartSum) -> tuple[int, int, str]:
    return _PARTS.index(part.part), -part.ns, part.key or ""


def _as_one_window(device: DeviceDigest) -> DeviceDigest:
    """Return a device with all its steps as one window that has no number."""
    if not device.numbers:
        return device
    types = [TypeSteps(type=t.type, ns=[sum(t.ns)], count=[sum(t.count)]) for t in device.types]
    counts = [_count_as_one(count) for count in device.counts.counts]
    return structs.replace(
        device,
        numbers=(),
        span_ns=(sum(device.span_ns),),
        types=tuple(types),
        counts=DeviceCounts((), tuple(counts), device.counts.uncounted),
    )


def _count_as_one(count: Count) -> Count:
    moved = None if count.bytes is None else [sum(count.bytes)]
    return structs.replace(count, count=[sum(count.count)], bytes=moved)


def _operators(devices: Sequence[DeviceDigest]) -> tuple[list[PartSum], KeyedBy]:
    """Add compute by operator, told apart as by the device that tells least, or by less where there are too many."""
    coarsest = max((device.keyed_by for device in devices), key=COARSENESS.index)
    found: list[PartSum] = []
    for keyed_by in COARSENESS[COARSENESS.index(coarsest) :]:
        coarsest = keyed_by
        found = _added(_keyed(one, keyed_by) for device in devices for one in device.compute)
        if len(found) <= MOST_KEYS:
            break
    return found, coarsest


def _keyed(one: OperatorTimes, keyed_by: KeyedBy) -> PartSum:
    if keyed_by == "shapes" or one.sum.key is None:
        return one.sum
    return structs.replace(one.sum, key=one.type if keyed_by == "type" else one.core)


def _added(parts: Iterable[PartSum]) -> list[PartSum]:
    """Add parts of one key; code line and torch operator are those of the longer one."""
    sums: dict[tuple[Part, str | None, str | None], PartSum] = {}
    for new in parts:
        row = (new.part, new.key, new.after)
        there = sums.get(row)
        sums[row] = new if there is None else _sum(there, new)
    return [*sums.values()]


def _sum(a: PartSum, b: PartSum) -> PartSum:
    long, short = (a, b) if a.ns >= b.ns else (b, a)
    return structs.replace(
        long,
        ns=a.ns + b.ns,
        count=a.count + b.count,
        where=long.where or short.where,
        torch_op=long.torch_op or short.torch_op,
    )


def _places(devices: Sequence[DeviceDigest], steps: Sequence[int]) -> list[list[int]]:
    """Return for each device where its steps stand among all."""
    place = {number: i for i, number in enumerate(steps)}
    return [[place[number] for number in device.numbers] if steps else [0] for device in devices]


def _means(values: Sequence[Sequence[int]], places: Sequence[Sequence[int]], size: int) -> list[int]:
    """Return for each step the mean of the devices that have it, rounded."""
    total, having = [0] * size, [0] * size
    for own, at in zip(values, places, strict=True):
        for i, value in zip(at, own, strict=True):
            total[i] += value
            having[i] += 1
    return [_rounded(t, n) for t, n in zip(total, having, strict=True)]


def _rounded(total: int, parts: int) -> int:
    return (2 * total + parts) // (2 * parts)


def _types(devices: Sequence[DeviceDigest], steps: Sequence[int]) -> list[TypeSteps]:
    """Return times and counts of every type in every step: means over the devices that have the step, and sums."""
    size, places = max(len(steps), 1), _places(devices, steps)
    having = [0] * size
    for at in places:
        for i in at:
            having[i] += 1
    sums: dict[str, tuple[list[int], list[int]]] = {}
    for device, at in zip(devices, places, strict=True):
        for one in device.types:
            ns, count = sums.setdefault(one.type, ([0] * size, [0] * size))
            for i, time, kernels in zip(at, one.ns, one.count, strict=True):
                ns[i] += time
                count[i] += kernels
    ordered = sorted(sums.items(), key=lambda item: (-sum(item[1][0]), item[0]))
    if too_many(len(ordered), size):
        ordered = ordered[:KEPT_TYPES]
    return [
        TypeSteps(type=type_, ns=[_rounded(t, n) for t, n in zip(ns, having, strict=True)], count=count)
        for type_, (ns, count) in ordered
    ]
