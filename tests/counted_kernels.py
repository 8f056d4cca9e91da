"""Kernels with hardware counters, planted: what msprof's exporter works out of their cycles, rounded as it is written.

The share of all cube cycles is by the rated clock, the time of the cores by the clock of that moment.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
from build import EPOCH
from msgspec import Struct

from npuperf.model.labels import Labels
from npuperf.model.tasks import Tasks, Work


class Row(Struct, frozen=True):
    """A kernel as the table has it; times in µs."""

    dur: float
    block: int
    cycles: float
    aicore: float
    percent: float
    core: str = "AI_CORE"
    mix: int = 0
    mac: float = 0.7


def exported(dur: float, block: int, cores: int, rated: float, mhz: float | None = None, busy: float = 0.9) -> Row:
    """A kernel whose cores work for ``busy`` of its time at ``mhz`` (the rated clock), rounded as it is written."""
    clock, waves = mhz or rated, math.ceil(block / cores)
    cycles = round(busy * dur * clock * block / waves)
    aicore = cycles / clock / block * waves
    return Row(dur, block, cycles, round(aicore, 3), round(100 * cycles / (rated * cores * dur), 3))


def table(rows: list[Row]) -> Tasks:
    """One kernel after the other, with counters as columns of 32 bits."""
    dur = np.array([round(r.dur * 1000) for r in rows], np.int64)
    end = np.cumsum(dur)
    return Tasks.build(
        end - dur,
        end,
        np.full(len(rows), Work.COMPUTE, np.uint8),
        block=np.array([r.block for r in rows], np.int64),
        mix_block=np.array([r.mix for r in rows], np.int64),
        core=Labels.of([r.core for r in rows]),
        pmu={
            "aic_total_cycles": np.array([r.cycles for r in rows], np.float32),
            "aicore_time": np.array([r.aicore for r in rows], np.float32),
            "cube_utilization": np.array([r.percent for r in rows], np.float32),
            "aic_mac_ratio": np.array([r.mac for r in rows], np.float32),
        },
    )


def kernels(cores: int, rated: float, mhz: float | None = None, *, n: int = 200, most: float = 2.5) -> list[Row]:
    """Random kernels of 5 to 900 µs with up to ``most`` times as many blocks as there are cores."""
    made = random.Random(f"{cores} {rated} {mhz}")
    return [
        exported(round(made.uniform(5, 900), 3), made.randint(1, int(most * cores)), cores, rated, mhz,
                 made.uniform(0.2, 0.99)) for _ in range(n)
    ]  # fmt: skip


HEADER = (
    "Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,Mix Block Dim,"
    "Stream ID,aicore_time(us),aic_total_cycles,aic_mac_ratio,cube_utilization(%)"
)


def recorded(path: Path, rows: list[Row]) -> Path:
    """A kernel table of one step, with counters."""
    lines, clock = [HEADER], EPOCH
    for r in rows:
        start = f"{clock // 1000}.{clock % 1000:03d}"
        lines.append(f"11,0,aclnnMatmul_MatMulV3_MatMulV3,MatMulV3,{r.core},{start}\t,{r.dur:.3f},0,{r.block},{r.mix},2,"
                     f"{r.aicore:.3f},{r.cycles:.0f},{r.mac},{r.percent:.3f}")  # fmt: skip
        clock += round(r.dur * 1000) + 1000
    path.mkdir(parents=True, exist_ok=True)
    (path / "kernel_details.csv").write_text("\n".join(lines) + "\n")
    return path / "kernel_details.csv"
