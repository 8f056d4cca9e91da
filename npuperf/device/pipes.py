"""What the units of each kernel's cores were busy with, by the pipe ratios of its counters."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.model.labels import F32, I64
from npuperf.model.tasks import Tasks

#: The units of cube and of vector cores that compute, and those that move data.
SIDES: Final = (
    ("aic", ("mac", "mac_fp16", "mac_int8"), ("mte1", "mte2", "mte3", "fixpipe")),
    ("aiv", ("vec",), ("mte2", "mte3")),
)
#: A unit limits a kernel if it is busy for most of its cycles.
MOST: Final = 0.5


class Pipes(Struct, frozen=True):
    """Of each kernel, as parts of its time: how long its cube cores multiplied (``mac``), and what could be won at most
    if nothing of it were scalar work (``scalar``, 0 where that does not limit it); NaN: not recorded.
    """

    mac: F32
    scalar: F32

    @classmethod
    def of(cls, tasks: Tasks) -> Pipes:
        """Work it out while counters are there."""
        rows = np.arange(len(tasks)) if tasks.pmu else np.empty(0, np.int64)
        unknown = np.broadcast_to(np.float32(np.nan), len(tasks))
        if not len(rows):
            return cls(unknown, unknown)
        multiplied = mac_ratios(tasks)
        mac = sum(multiplied[1:], multiplied[0]) if multiplied else unknown
        return cls(mac, beyond_scalar(tasks, rows))

    def part(self, chosen: slice) -> Pipes:
        """Return those of a stretch of the tasks."""
        return Pipes(self.mac[chosen], self.scalar[chosen])


def mac_ratios(tasks: Tasks) -> list[F32]:
    """Return the ratios that add up to how long cube cores multiply: the whole, else its parts by type."""
    names = ("aic_mac_ratio",) if "aic_mac_ratio" in tasks.pmu else ("aic_mac_fp16_ratio", "aic_mac_int8_ratio")
    return [tasks.pmu[name] for name in names if name in tasks.pmu]


def ratios(tasks: Tasks, rows: I64, side: str, groups: tuple[tuple[str, ...], ...]) -> list[F32] | None:
    """Return the ratios of groups of units, of each those that are recorded, a row each; None: of one none is."""
    found = [[tasks.pmu[name] for unit in units if (name := f"{side}_{unit}_ratio") in tasks.pmu] for units in groups]
    if not all(found):
        return None
    return [np.stack([ratio.take(rows) for ratio in known]) for known in found]


def beyond_scalar(tasks: Tasks, rows: I64) -> F32:
    """Return which part of kernels' time could be won at most without scalar work; 0 where that does not limit them.

    It does where, on each side that works, it takes most cycles, and longer than everything else together: it is beside
    everything. Without it a kernel takes as long as the busiest of its other units. NaN: not recorded.
    """
    won, works = np.ones(len(rows), np.float32), np.zeros(len(rows), np.bool_)
    told = np.zeros(len(rows), np.bool_)
    for side, computing, moving in SIDES:
        found = ratios(tasks, rows, side, (("scalar",), computing, moving))
        if found is None:
            continue
        told |= ~np.isnan(found[0][0])
        control, compute, move = (np.fmax(one, 0) for one in found)
        units = np.concatenate([compute, move])
        rest = units.sum(axis=0)
        here = control[0] + rest > 0
        works |= here
        limits = (control[0] > MOST) & (control[0] > rest)
        np.copyto(won, np.where(limits, np.minimum(won, 1 - np.minimum(units.max(axis=0), 1)), 0.0), where=here)
    won[~works] = 0
    won[~told] = np.nan
    return won
