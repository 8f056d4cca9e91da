"""Counters of a second recording of the same program, which has another set of them, kernel by kernel.

The profiler records one set of hardware counters at a time. Kernels are joined by their order: stream by stream of each
step, where type, core and shapes are the same, with as few left out as can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, number, say, series
from npuperf.model.columns import CYCLES
from npuperf.model.groups import alike, first_rows, numbered, rows_of_each
from npuperf.model.labels import I64
from npuperf.model.tasks import Tasks, Work

#: What belongs to one run of a kernel, and means nothing beside another one's time.
_OF_ONE_RUN: Final = {"aicore_time", "aiv_time", "cube_utilization", "memory_bound", *CYCLES}
#: The same share of cycles, told as a whole and by types.
_MAC: Final = ("aic_mac_ratio", {"aic_mac_fp16_ratio", "aic_mac_int8_ratio"})
#: Kernels that one side lacks, of a stream of a step, before the rest of it is looked for no longer.
_MOST: Final = 64
#: So many kernels are compared at first, and more and more while they are the same.
_STRIDE: Final = 32
#: With fewer of the kernels of the shorter recording in common the two are of different programs.
_LEAST: Final = 0.5


class Joined(Struct, frozen=True):
    """Tasks with counters of another recording; or, where there is none to be had, why it is refused."""

    tasks: Tasks
    refused: Message | None = None
    said: Message | None = None


def join_counters(tasks: Tasks, other: Tasks, path: str) -> Joined:
    """Add the counters that ``tasks`` lack from another recording of the same program, as read from ``path``.

    Kernels without a partner have NaN. Cycles and times are not joined: they are of the run that they were counted in.
    """
    if not other.pmu:
        return Joined(tasks, say("--with {path}: no hardware counters are recorded there (npuperf profile --level 1 "
                                 "--aic-metrics L2Cache, for instance)", path=path))  # fmt: skip
    whole, by_type = _MAC
    new = [name for name in other.pmu if name not in tasks.pmu and name not in _OF_ONE_RUN
           and not (name == whole and by_type & tasks.pmu.keys())]  # fmt: skip
    if not new:
        return Joined(tasks, say("--with {path}: the same hardware counters are recorded there: another set is wanted "
                                 "(npuperf profile --aic-metrics)", path=path))  # fmt: skip
    mine, theirs = (np.flatnonzero(one.work == Work.COMPUTE) for one in (tasks, other))
    kinds = _kinds(tasks, mine, other, theirs)
    pairs = [(mine[a][at], theirs[b][to]) for a, b in _sequences(tasks, mine, other, theirs)
             for at, to in _in_order(kinds[0][a], kinds[1][b])]  # fmt: skip
    here, there = (np.concatenate([pair[side] for pair in pairs] or [np.empty(0, np.int64)]) for side in (0, 1))
    if len(here) < _LEAST * min(len(mine), len(theirs)) or not len(here):
        return Joined(tasks, say("--with {path}: not a recording of the same program: of {here} kernels here and "
                                 "{there} there {same} are the same by order, type and shapes", path=path,
                                 same=len(here), here=len(mine), there=len(theirs)))  # fmt: skip
    columns = {}
    for name in new:
        column = np.full(len(tasks), np.nan, np.float32)
        column[here] = other.pmu[name][there]
        columns[name] = column
    said = say("counters of {path} were joined to {n} of {kernels} kernels: {names}", path=path, n=number(len(here)),
               kernels=number(len(mine)), names=series(sorted(new)))  # fmt: skip
    return Joined(tasks.with_columns(pmu={**tasks.pmu, **columns}), said=said)


def _kinds(tasks: Tasks, mine: I64, other: Tasks, theirs: I64) -> tuple[I64, I64]:
    """Number the kernels of both sides so that those of the same type, core and shapes have the same number."""
    known: dict[tuple[str | None, ...], int] = {}
    found = []
    for side, rows in ((tasks, mine), (other, theirs)):
        columns = (side.type.fill(side.name), side.core, side.shapes)
        kind = alike(*(column.codes.take(rows) for column in columns))
        firsts = rows[first_rows(kind, int(kind.max(initial=-1)) + 1)].tolist()
        codes = [known.setdefault(tuple(column[row] for column in columns), len(known)) for row in firsts]
        found.append(np.array(codes, np.int64)[kind] if codes else kind)
    return found[0], found[1]


def _sequences(tasks: Tasks, mine: I64, other: Tasks, theirs: I64) -> Iterator[tuple[I64, I64]]:
    """Yield what runs one after the other on both sides, as places in ``mine`` and ``theirs``: a step of a stream.

    Steps are paired by their order where both sides have any, and streams by their numbers where these are the same,
    else by what began first; where one side has more streams, all are one.
    """
    steps, streams = [], []
    both = ((tasks, mine), (other, theirs))
    stepped = all((side.step[rows] >= 0).any() for side, rows in both)
    numbers = [np.unique(side.stream[rows], return_index=True) for side, rows in both]
    by_number = np.array_equal(numbers[0][0], numbers[1][0])
    together = len(numbers[0][0]) != len(numbers[1][0])
    for (side, rows), (ids, first) in zip(both, numbers, strict=True):
        step = side.step[rows]
        inside = step >= 0
        place = np.full(len(rows), -1, np.int64)
        if stepped:
            place[inside] = numbered(step[inside])[1]
        steps.append(place)
        order = np.arange(len(ids)) if by_number else np.argsort(np.argsort(first))
        at = order[np.searchsorted(ids, side.stream[rows])] if len(ids) else np.empty(0, np.int64)
        streams.append(np.zeros(len(rows), np.int64) if together else at)
    width = 1 + max((int(of.max(initial=0)) for of in streams), default=0)
    groups = [dict(rows_of_each((step + 1) * width + stream)) for step, stream in zip(steps, streams, strict=True)]
    for key, rows_here in groups[0].items():
        if key in groups[1] and len(rows_here):
            yield rows_here, groups[1][key]


def _in_order(a: I64, b: I64) -> Iterator[tuple[slice, slice]]:
    """Yield what is the same in two sequences with as little left out as can be, from the end to the beginning.

    By Myers' greedy algorithm (1986): of every number of kernels that are left out, how far one comes on each diagonal,
    which is how many more of ``a`` than of ``b`` were. Beyond the most that is looked for, the rest has no partners.
    """
    reached, ways = {1: 0}, list[dict[int, int]]()
    k = 0
    for left_out in range(_MOST + 1):
        ways.append(dict(reached))
        for k in range(-left_out, left_out + 1, 2):
            down = k == -left_out or (k != left_out and reached[k - 1] < reached[k + 1])
            x = reached[k + 1] if down else reached[k - 1] + 1
            x = min(x, len(a), len(b) + k)  # beyond the ends there is nothing
            reached[k] = x + _same(a, b, x, x - k)
        ends = [k for k in range(-left_out, left_out + 1, 2) if reached[k] >= len(a) and reached[k] - k >= len(b)]
        if ends:
            k = ends[0]
            break
    else:
        k = max(range(-_MOST, _MOST + 1, 2), key=lambda one: 2 * reached[one] - one)
    x = reached[k]
    for left_out in range(len(ways) - 1, -1, -1):
        before = ways[left_out]
        down = k == -left_out or (k != left_out and before[k - 1] < before[k + 1])
        start = min(before[k + 1] if down else before[k - 1] + 1, len(a), len(b) + k)
        if x > start:
            yield slice(start, x), slice(start - k, x - k)
        k += 1 if down else -1
        x = before[k]


def _same(a: I64, b: I64, i: int, j: int) -> int:
    """Return how many of two sequences are the same from two places on."""
    if i < 0 or j < 0:
        return 0
    done, size = 0, _STRIDE
    while (size := min(size, len(a) - i - done, len(b) - j - done)) > 0:
        differs = a[i + done : i + done + size] != b[j + done : j + done + size]
        if differs.any():
            return done + int(differs.argmax())
        done, size = done + size, 4 * size
    return done
