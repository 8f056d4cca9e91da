"""Core use from Block Dim and Mix Block Dim: occupancy, waves, tails, idle core time.

AI_CORE kernels run their blocks on cube cores, AI_VECTOR_CORE on vector cores; MIX_AIC runs Block Dim on
cube and Mix Block Dim on vector cores, MIX_AIV the other way round.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.base.messages import Message, chain, say, say_n
from npuperf.model.chip import CUBE_CORES, VECTOR_CORES, Cores, known_core_counts
from npuperf.model.groups import alike, first_rows, last_largest, sums_of
from npuperf.model.labels import F64, I64, Labels, Mask
from npuperf.model.result import CoreSide, CoresOverTime, CoreTime, CoreType, CoreUse, IdleKernel
from npuperf.model.tasks import Tasks, Work

# -- Core counts that a profile does not name, guessed from the kernels: tilings that use the whole chip start as many
# blocks as it has cores. A suggestion with its reason, never a figure that anything is computed with.

#: Kernels that must start exactly as many blocks as a side has cores.
_AT_LEAST: Final = 2


class _Side(Struct, frozen=True):
    """One side of a chip held against the kernels: how many start exactly as many blocks as it has ``cores``, and how
    many start more.
    """

    cores: int
    exact: int
    more: int

    @classmethod
    def of(cls, used: I64, cores: int) -> _Side:
        return cls(cores, int(np.count_nonzero(used == cores)), int(np.count_nonzero(used > cores)))

    @property
    def speaks_for(self) -> bool:
        """Whether kernels fill the side, and few start more blocks than that, in several waves."""
        return self.exact >= _AT_LEAST and self.more < self.exact


def suggested_cores(cube: I64, vector: I64) -> Message | None:
    """Suggest the core counts of a known chip from the blocks of kernels on either side, or nothing.

    Both sides must speak for it, and of several chips it is the one that most kernels fill.
    """
    chips = [(_Side.of(cube, most[0]), _Side.of(vector, most[1])) for most in known_core_counts()]
    likely = [chip for chip in chips if all(side.speaks_for for side in chip)]
    if not likely:
        return None
    one, other = max(likely, key=lambda chip: chip[0].exact + chip[1].exact)
    kernels = say(
        "{cube_kernels} kernels use exactly {cube} cube cores and {vector_kernels} exactly {vector} vector cores",
        cube_kernels=one.exact,
        cube=one.cores,
        vector_kernels=other.exact,
        vector=other.cores,
    )
    more = one.more + other.more
    beyond = say_n("{n} starts more blocks", "{n} start more blocks", more) if more else say("none starts more blocks")
    return say("the kernels suggest --cores {cube},{vector}: {reason}",
               cube=one.cores, vector=other.cores, reason=chain(kernels, beyond, by=", "))  # fmt: skip


MOST_IDLE = 10


class Blocks(Struct, frozen=True):
    """Blocks per kernel and side; 0: the kernel does not use the side, -1: it does, but how many is unknown."""

    cube: I64
    vector: I64

    @property
    def unknown(self) -> Mask:
        """True where the blocks on a side that a kernel uses are not recorded, or those of both sides."""
        unknown: Mask = (self.cube < 0) | (self.vector < 0) | ((self.cube == 0) & (self.vector == 0))
        return unknown


def blocks(tasks: Tasks) -> Blocks:
    """Return how many blocks each kernel runs on cube and on vector cores."""
    return Blocks(
        cube=_blocks_on(tasks, CUBE_CORES, "MIX_AIV"),
        vector=_blocks_on(tasks, VECTOR_CORES, "MIX_AIC"),
    )


def _blocks_on(tasks: Tasks, cores: tuple[str, ...], beside: str) -> I64:
    """Return the blocks on one side: Block Dim of its own core types, Mix Block Dim of that which uses it beside."""
    names = tasks.core.names
    own = np.where(tasks.core.flag([c in cores for c in names]), tasks.block, 0)
    return np.where(tasks.core.flag([c == beside for c in names]), tasks.mix_block, own) if beside in names else own


def on_cores(tasks: Tasks) -> Mask:
    """True for kernels of cube and vector cores."""
    return tasks.core.flag([c in (*CUBE_CORES, *VECTOR_CORES) for c in tasks.core.names])


def occupancy(blocks: I64, cores: int | None) -> F64:
    """Return the fraction of ``cores`` that each kernel uses: min(blocks / cores, 1); NaN where unknown or unused."""
    if not cores:
        return np.full(len(blocks), np.nan)
    return np.where(blocks > 0, np.minimum(blocks / cores, 1.0), np.nan)


def core_use(tasks: Tasks, cores: Cores, span: int, over_time: CoresOverTime | None = None) -> CoreUse:
    """Summarise a window's kernels. ``tasks``: those of the window; ``span``: its length, ns."""
    compute = tasks.work == Work.COMPUTE
    kernels = _on_no_cores(tasks, ~compute)
    known = blocks(kernels)
    return CoreUse(
        source=cores.source,
        cube=_side(kernels, known.cube, cores.cube, span, over_time.cube if over_time else None),
        vector=_side(kernels, known.vector, cores.vector, span, over_time.vector if over_time else None),
        by_type=[found for name in (*CUBE_CORES, *VECTOR_CORES) if (found := _core_type(kernels, name, cores)).kernels],
        most_idle=_most_idle(kernels, cores),
        reason=_reason(kernels, known, cores) if compute.any() else say("no kernels"),
        over_time=over_time,
    )


def _on_no_cores(tasks: Tasks, others: Mask) -> Tasks:
    """Take the cores and blocks from some of the tasks, so that they count nowhere; a filter would copy the table."""
    if not others.any():
        return tasks
    codes = np.where(others, np.int32(-1), tasks.core.codes)
    block, mix = (np.where(others, 0, column) for column in (tasks.block, tasks.mix_block))
    return tasks.with_columns(core=Labels(codes, tasks.core.names), block=block, mix_block=mix)


def _reason(kernels: Tasks, used: Blocks, cores: Cores) -> Message | None:
    """Say what is missing for core figures."""
    if not on_cores(kernels).any():
        return say("no kernel says which cores it runs on")
    if cores.cube is None:
        unknown = say(
            "core counts are unknown: there is no info.json.N with the data; give --cores CUBE,VECTOR or --soc NAME"
        )
        return chain(unknown, suggested_cores(used.cube, used.vector))
    if not (kernels.block > 0).any():
        return say("no kernel has a Block Dim above 0: record with npuperf profile --level 1")
    return None


def _side(kernels: Tasks, used: I64, cores: int | None, span: int, time: CoreTime | None) -> CoreSide | None:
    """Sum one side's cores; kernels that run beside each other occupy no more than there are."""
    here = used > 0
    if not cores or not here.any():
        return None
    dur = kernels.dur[here]
    busy_cores = np.minimum(used[here], cores)
    core_time = int(np.sum(busy_cores * dur))
    total = int(np.sum(dur))
    occupied = core_time if time is None else time.occupied_core_ns
    return CoreSide(
        cores=cores,
        kernels=int(np.count_nonzero(here)),
        occupancy_busy=core_time / (cores * total) if total else None,
        occupancy_span=occupied / (cores * span) if span else None,
        idle_core_ns=cores * total - core_time,
    )


def _own_cores(core: str, cores: Cores) -> int | None:
    return cores.vector if core in VECTOR_CORES else cores.cube


def _core_type(kernels: Tasks, core: str, cores: Cores) -> CoreType:
    mine = np.flatnonzero(kernels.core.flag([c == core for c in kernels.core.names]))
    total = kernels.dur[mine]
    known = kernels.block[mine] > 0
    block, dur = kernels.block[mine][known], total[known]
    mix = kernels.mix_block[mine] if core.startswith("MIX") else np.empty(0, np.int64)
    mix = mix[mix > 0]
    own = _own_cores(core, cores)
    weigh = bool(own) and bool(dur.sum())
    waves = -(-block // own) if own else block
    return CoreType(
        core=core,
        kernels=len(mine),
        total_ns=int(total.sum()),
        blocks_unknown=len(mine) - len(block),
        block_min=int(block.min()) if len(block) else None,
        block_median=float(np.median(block)) if len(block) else None,
        block_max=int(block.max()) if len(block) else None,
        mix_block_min=int(mix.min()) if len(mix) else None,
        mix_block_max=int(mix.max()) if len(mix) else None,
        occupancy=float(np.sum(occupancy(block, own) * dur) / dur.sum()) if weigh else None,
        waves_max=int(waves.max()) if own and len(block) else None,
        tail=float(np.sum((1 - block / (waves * (own or 1))) * dur) / dur.sum()) if weigh else None,
    )


def _most_idle(kernels: Tasks, cores: Cores) -> list[IdleKernel]:
    """Rank (type, core, Block Dim) groups by the core time they leave idle on the side they mainly run on.

    Several waves count in full, as if all blocks took the same time: the last one leaves its tail idle.
    """
    side = [_own_cores(c, cores) if c in (*CUBE_CORES, *VECTOR_CORES) else None for c in kernels.core.names]
    own = np.array([*(s or 0 for s in side), 0], np.int64)[kernels.core.codes]
    rows = np.flatnonzero((own > 0) & (kernels.block > 0))
    if not len(rows):
        return []
    block = kernels.block.take(rows)
    kind = alike(kernels.type.codes.take(rows), kernels.core.codes.take(rows), block)
    first = first_rows(kind, int(kind.max()) + 1)
    own, block = own[rows[first]], block[first].astype(np.int64)
    waves = -(-block // own)
    unused = (waves * own - block).take(kind) * kernels.dur.take(rows)
    if (waves > 1).any():
        unused //= waves.take(kind)
    count, total = np.bincount(kind), sums_of(kind, unused, len(first))
    largest = rows[last_largest(kind, unused, len(first))]
    best = np.argsort(-total, kind="stable")[:MOST_IDLE]
    return [
        IdleKernel(
            name=kernels.name[row] or "",
            type=kernels.type[row],
            core=kernels.core[row] or "",
            count=int(count[g]),
            block_dim=int(block[g]),
            cores=int(own[g]),
            idle_core_ns=int(total[g]) if waves[g] == 1 else 0,
            waves=int(waves[g]),
            tail_core_ns=int(total[g]) if waves[g] > 1 else 0,
        )
        for g in best.tolist()
        if total[g] > 0
        for row in [int(largest[g])]
    ]
