"""Sequences of kernels that one SuperKernel could hold, and SuperKernels that are there.

A sequence runs on one stream without a break: no host, no event and no step border between its kernels. Operators
that cannot be fused (AI CPU, most communication) split it into segments, each a SuperKernel of its own; AllReduce,
ReduceScatter, AllGather and AlltoAll can be fused where they run on vector cores. With a kernel of dynamic shape in it
a sequence belongs to a dynamic graph, in which GE makes no SuperKernel at all. Sequences that repeat (the layers of a
model) are told by their types and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.device.cores import blocks, on_cores
from npuperf.device.host_events import NONE
from npuperf.device.order import is_event_wait
from npuperf.model.groups import distinct
from npuperf.model.labels import I64, Mask
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

#: Kernels of a repeating unit at least and at most.
_UNIT: Final = (2, 1024)
#: What GE's HCCL engine has SuperKernel binaries for; not for the variants with a length per rank (AlltoAllV).
_FUSED_COMMUNICATION: Final = re.compile(r"all_?reduce|(reduce_?scatter|all_?gather|all_?to_?all)(?!_?v)", re.I)
#: Kernels looked at together: bounds the time of the search.
_LOOK: Final = 20_000


class KernelSequence(Struct, frozen=True):
    """A sequence and every time it runs: ``runs[i, j]`` is the task at place j of run i.

    ``segments``: first and last place (inclusive) of what can be fused; ``gaps``: the time between the kernels of
    each, summed over all runs (ns); ``stopped_by``: the place of the task that ends it early, NONE at the end.
    """

    stream: int
    runs: I64
    segments: tuple[tuple[int, int], ...]
    gaps: tuple[int, ...]
    stopped_by: tuple[int, ...]

    def fused(self) -> I64:
        """Return the places of all kernels that can be fused."""
        return np.concatenate([np.arange(first, last + 1) for first, last in self.segments])


def find_sequences(
    tasks: Tasks, waits: I64, held: I64, thresholds: Thresholds, *, communication: bool
) -> list[KernelSequence]:
    """Find all sequences among ``tasks`` (by start), those with the longest gaps first.

    ``waits``: how long the idle device waited for each launch; ``held``: how long each task waited for cores, which
    no fusion saves (ns); ``communication``: whether communication that can be fused at all may be.
    """
    kernel, dynamic = can_fuse(tasks), tasks.dynamic
    fusible = kernel | can_fuse_communication(tasks) if communication else kernel
    code = (tasks.type.codes.astype(np.int64) * (len(tasks.core.names) + 1) + tasks.core.codes) * 2 + fusible
    found: dict[tuple[int, bytes], list[I64]] = {}
    for stream in distinct(tasks.stream[kernel]).tolist():
        for chain in _chains(tasks, np.flatnonzero(tasks.stream == stream), waits, thresholds):
            if dynamic[chain].any():
                continue
            for part in _units(chain, code):
                places = np.flatnonzero(kernel[part])
                trimmed = part[places[0] : places[-1] + 1] if len(places) else part[:0]
                if len(trimmed) > 1:
                    found.setdefault((stream, code[trimmed].tobytes()), []).append(trimmed)
    sequences = []
    for (stream, _), runs in found.items():
        segments, stopped_by = _segments(fusible[runs[0]], kernel[runs[0]])
        if segments:
            together = np.stack(runs)
            between = np.maximum(tasks.start[together[:, 1:]] - tasks.end[together[:, :-1]] - held[together[:, 1:]], 0)
            gaps = tuple(int(between[:, first:last].sum()) for first, last in segments)
            sequences.append(KernelSequence(stream, together, segments, gaps, stopped_by))
    return sorted(sequences, key=lambda s: -sum(s.gaps))


def can_fuse(tasks: Tasks) -> Mask:
    """True for AI Core kernels, communication aside, that are not compiled for dynamic shapes."""
    return on_cores(tasks) & ~tasks.dynamic & np.equal(tasks.work, Work.COMPUTE)


def can_fuse_communication(tasks: Tasks) -> Mask:
    """True for communication that a SuperKernel can hold, if it runs on vector cores."""
    known = tasks.name.flag([bool(_FUSED_COMMUNICATION.search(n)) for n in tasks.name.names])
    return known & np.equal(tasks.work, Work.COMMUNICATION)


def _chains(tasks: Tasks, mine: I64, waits: I64, thresholds: Thresholds) -> Iterator[I64]:
    """Yield stretches of one stream's tasks that nothing but their own kind interrupts."""
    wait = is_event_wait(tasks)[mine]
    kept = mine[tasks.work[mine] != Work.CONTROL]
    if not len(kept):
        return
    waited = np.searchsorted(mine[wait], kept)  # how many event waits stand before each task
    gap = np.append(0, tasks.start[kept][1:] - np.maximum.accumulate(tasks.end[kept])[:-1])
    broken = np.zeros(len(kept), np.bool_)
    broken[1:] = (np.diff(waited) > 0) | (np.diff(tasks.step[kept]) != 0)
    broken |= (waits[kept] > 0) | (gap > thresholds.launch_jitter_ns)
    yield from np.split(kept, np.flatnonzero(broken[1:]) + 1)


def _units(chain: I64, code: I64) -> list[I64]:
    """Cut a sequence that repeats itself into its repetitions; what comes before and after stays whole."""
    if len(chain) > _LOOK:
        return [*_units(chain[:_LOOK], code), *_units(chain[_LOOK:], code)]
    found = _repetition(code[chain])
    if found is None:
        return [chain]
    first, period, times = found
    inner = [chain[first + i * period : first + (i + 1) * period] for i in range(times)]
    return [part for part in (chain[:first], *inner, chain[first + times * period :]) if len(part)]


def _repetition(code: I64) -> tuple[int, int, int] | None:
    """Find the repetition that covers most, half of the sequence at least: its start, its period, how many times."""
    best: tuple[int, int, int] | None = None
    covered = len(code) // 2
    for period in range(_UNIT[0], min(len(code) // 2, _UNIT[1]) + 1):
        same = code[period:] == code[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate([[0], same, [0]])))
        if not len(edges):
            continue
        lengths = edges[1::2] - edges[::2]
        at = int(lengths.argmax())
        times = (int(lengths[at]) + period) // period
        if times >= 2 and times * period > covered:
            best, covered = (int(edges[2 * at]), period, times), times * period
    return best


def _segments(fusible: Mask, kernel: Mask) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """Return the runs of at least two fusible kernels, from the first kernel to the last, and what stopped each.

    Communication at the border of a run stays outside: fusing it with nothing behind it has nothing to save.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], fusible, [0]]))).tolist()
    found = []
    for begin, after in zip(edges[::2], edges[1::2], strict=True):
        inner = begin + np.flatnonzero(kernel[begin:after])
        if len(inner) > 1:
            found.append(((int(inner[0]), int(inner[-1])), after if after < len(fusible) else NONE))
    return tuple(pair for pair, _ in found), tuple(stop for _, stop in found)


def launch_cores(tasks: Tasks, kernels: I64) -> tuple[int, int] | None:
    """Return the cube and vector cores that a SuperKernel over these kernels starts; None where blocks are unknown.

    It starts as many as the largest of them, communication aside. Kernels of both sides become a mix kernel with one or
    two vector cores per cube core.
    """
    kernels = kernels[tasks.work[kernels] == Work.COMPUTE]  # the blocks of communication are not recorded
    used = blocks(tasks)
    cube, vector = used.cube[kernels], used.vector[kernels]
    if not len(kernels) or ((cube < 0) | (vector < 0) | ((cube == 0) & (vector == 0))).any():
        return None
    most = int(cube.max()), int(vector.max())
    if not all(most):
        return most
    block = max(most[0], -(-most[1] // 2))
    return block, block if most[1] <= block else 2 * block


def without_blocks(tasks: Tasks, kernels: I64) -> I64:
    """Return the kernels whose blocks are not recorded, on one side at least."""
    used = blocks(tasks)
    cube, vector = used.cube[kernels], used.vector[kernels]
    unknown = (cube < 0) | (vector < 0) | ((cube == 0) & (vector == 0))
    found: I64 = kernels[unknown & np.equal(tasks.work[kernels], Work.COMPUTE)]
    return found


def launch_blocks(launch: tuple[int, int]) -> int:
    """Return the Block Dim of a SuperKernel that starts these cores."""
    return launch[0] or launch[1]


def fewer_cores(tasks: Tasks, kernels: I64, launch: tuple[int, int]) -> I64:
    """Return the kernels that start fewer cores than their SuperKernel does on a side they use."""
    kernels = kernels[tasks.work[kernels] == Work.COMPUTE]
    used = blocks(tasks)
    cube, vector = used.cube[kernels], used.vector[kernels]
    return kernels[((cube > 0) & (cube < launch[0])) | ((vector > 0) & (vector < launch[1]))]


def streams_within(tasks: Tasks, sequence: KernelSequence) -> list[int]:
    """Return the streams whose kernels start while the sequence runs."""
    start, end = tasks.start[sequence.runs[:, 0]], tasks.end[sequence.runs[:, -1]]
    order = np.argsort(start, kind="stable")
    compute = np.flatnonzero(tasks.work == Work.COMPUTE)
    at = np.searchsorted(start[order], tasks.start[compute], side="right") - 1
    inside = (at >= 0) & (tasks.start[compute] < end[order][np.maximum(at, 0)])
    found: list[int] = distinct(tasks.stream[compute[inside]]).tolist()
    return found
