"""Kernels that use few of the chip's cores."""

from __future__ import annotations

from typing import Final

import numpy as np

from npuperf.advise.needs import ALL_ROWS, BLOCKS, CORE_COUNTS, Need
from npuperf.advise.rule import Answer, Detected, Rule, quote, top_types
from npuperf.cores.blocks import blocks, occupancy
from npuperf.messages import say, share
from npuperf.model.labels import F64
from npuperf.scopes.view import DeviceView

TITLE = say("idle cores")
SOURCE = say("Block Dim and Mix Block Dim against the core counts")


_VECTOR_CORES: Final = Need(
    say("vector cores"),
    lambda view: float((_busiest(view) > 0).any()),
    lambda _: say("the number of vector cores is unknown: give --cores or --soc"),
)


def _busiest(view: DeviceView) -> F64:
    """Return the share of cores each task keeps busy on the side that it fills most, -1 unknown."""
    used = blocks(view.tasks)
    filled: F64 = np.fmax(occupancy(used.cube, view.cores.cube), occupancy(used.vector, view.cores.vector))
    filled[np.isnan(filled)] = -1.0
    return filled


def judge(view: DeviceView) -> Answer:
    """Compare the core time that kernels occupy with what they could while they run."""
    busiest = _busiest(view)
    chosen = view.compute & (busiest > 0)
    dur = view.tasks.dur[chosen]
    total = int(dur.sum())
    unused = (1 - busiest[chosen]) * dur
    idle = float(unused.sum()) / total if total else 0.0
    if idle < view.thresholds.idle_core_share:
        return None
    rows = top_types(view, chosen & (busiest < 1))
    return Detected(
        title=say(
            "kernels leave {idle} of the cores idle while they run: {types}", idle=share(idle), types=quote(rows)
        ),
        evidence={"idle_share_of_busy_core_time": idle, "count": int((busiest[chosen] < 1).sum()), "types": rows},
        gain=(0, view.per_step(min(int(unused.sum()), view.exposed(chosen)))),
        refute=say("a larger batch takes longer in proportion (the maximum assumes perfectly divisible work)"),
        next=say(
            "raise the batch size or fuse operators, so that kernels have more blocks, or run independent streams "
            "side by side"
        ),
    )


RULE = Rule("idle_cores", TITLE, SOURCE, (CORE_COUNTS, BLOCKS, _VECTOR_CORES, ALL_ROWS), judge)
