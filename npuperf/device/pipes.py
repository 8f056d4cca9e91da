"""What the units of each kernel's cores were busy with, by the pipe ratios of its counters."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.model.labels import F32, U8
from npuperf.model.tasks import Tasks

#: The units of cube and of vector cores that compute, and those that move data.
_SIDES: Final = (
    ("aic", ("mac", "mac_fp16", "mac_int8"), ("mte1", "mte2", "mte3", "fixpipe")),
    ("aiv", ("vec",), ("mte2", "mte3")),
)
#: A unit limits a kernel if it is busy for most of its cycles.
MOST: Final = 0.5
#: What limits a kernel, in :attr:`Pipes.limit`: the computing units of cube or of vector cores.
NEITHER, CUBE, VECTOR = range(3)


class Pipes(Struct, frozen=True):
    """Of each kernel, as parts of its time: how long its cube cores multiplied (``mac``), and what could be won at most
    if nothing of it were scalar work (``scalar``, 0 where that does not limit it); NaN: not recorded.

    ``reads``: how long units that read from memory (MTE2) were busy where that is the longest of a side's units, else
    0; NaN: not recorded. ``limit``: the side whose computing units are busy for most of the cycles, and longer than any
    other unit. Units that move data tell no limit: they may move the same bytes again and again, or wait.
    """

    mac: F32
    scalar: F32
    reads: F32
    limit: U8

    @classmethod
    def of(cls, tasks: Tasks) -> Pipes:
        """Work it out while counters are there.

        Scalar work limits a kernel where, on each side that works, it takes most cycles, and longer than everything
        else together: it is beside everything. Without it a kernel takes as long as the busiest of its other units.
        """
        count = len(tasks)
        unknown, limit = np.broadcast_to(np.float32(np.nan), count), np.zeros(count, np.uint8)
        if not tasks.pmu:
            return cls(unknown, unknown, unknown, limit)
        won, leading, reads = np.ones(count, np.float32), np.zeros(count, np.float32), np.zeros(count, np.float32)
        works, told = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        for number, (side, computing, moving) in enumerate(_SIDES, CUBE):
            control = tasks.pmu.get(f"{side}_scalar_ratio")
            compute, move = (_recorded(tasks, side, units) for units in (computing, moving))
            if control is None or not compute or not move:
                continue
            told |= ~np.isnan(control)
            control = np.fmax(control, 0)
            busy, moved, longest = compute[0].copy(), move[0].copy(), compute[0].copy()
            for one in compute[1:]:
                busy += one
                np.maximum(longest, one, out=longest)
            rest, most_moving = busy + moved, moved
            for one in move[1:]:
                rest += one
                np.maximum(most_moving, one, out=most_moving)
            here = control + rest > 0
            works |= here
            limits = (control > MOST) & (control > rest)
            spare = 1 - np.minimum(np.maximum(longest, most_moving), 1)
            np.copyto(won, np.where(limits, np.minimum(won, spare), np.float32(0)), where=here)
            if (reading := tasks.pmu.get(f"{side}_mte2_ratio")) is not None:
                longer = (reading > reads) & (reading >= np.maximum(control, np.maximum(longest, most_moving)))
                np.copyto(reads, reading, where=longer)
            leads = (busy > MOST) & (busy > leading) & (busy >= np.maximum(control, most_moving))
            np.copyto(limit, np.uint8(number), where=leads)
            np.copyto(leading, busy, where=leads)
        won[~works] = 0
        won[~told] = reads[~told] = np.nan
        multiplied = mac_ratios(tasks)
        return cls(sum(multiplied[1:], multiplied[0]) if multiplied else unknown, won, reads, limit)

    def part(self, chosen: slice) -> Pipes:
        """Return those of a stretch of the tasks."""
        return Pipes(self.mac[chosen], self.scalar[chosen], self.reads[chosen], self.limit[chosen])


def mac_ratios(tasks: Tasks) -> list[F32]:
    """Return the ratios that add up to how long cube cores multiply: the whole, else its parts by type."""
    names = ("aic_mac_ratio",) if "aic_mac_ratio" in tasks.pmu else ("aic_mac_fp16_ratio", "aic_mac_int8_ratio")
    return [tasks.pmu[name] for name in names if name in tasks.pmu]


def _recorded(tasks: Tasks, side: str, units: tuple[str, ...]) -> list[F32]:
    """Return the ratios of those units that are recorded, 0 where a kernel has none."""
    names = [name for unit in units if (name := f"{side}_{unit}_ratio") in tasks.pmu]
    return [np.fmax(tasks.pmu[name], np.float32(0)) for name in names]
