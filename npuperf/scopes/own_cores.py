"""Whether streams own their cores: limits that are proposed, stated by the user, set by a call, or seen in the blocks.

Where they do, the operators of a SuperKernel must not share cores across streams (stream-fusion=1).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.cores.blocks import blocks, on_cores
from npuperf.messages import Message, say, series
from npuperf.model.labels import I64
from npuperf.model.tasks import Work
from npuperf.scopes.sequences import KernelSequence, streams_within
from npuperf.scopes.view import DeviceView

#: Streams that a SuperKernel holds without stream-fusion=1.
MOST_UNFUSED: Final = 2
_SET: Final = re.compile(r"set_?stream_?(res_?)?limit|limit_core_num|StreamResLimit", re.I)
#: Kernels that reach the same number of cores, of a stream that seems to be kept to it.
_AT_LEAST: Final = 2


class Owned(Struct, frozen=True):
    """``free``: the profile shows that no stream has cores of its own; ``reason``: what speaks for it or is missing."""

    free: bool
    reason: Message | None = None


def cores_owned(view: DeviceView, sequence: KernelSequence, limited: Collection[str]) -> Owned:
    """Tell whether the streams that run beside a sequence own their cores. ``limited``: where the user states them."""
    streams = streams_within(view.tasks, sequence)
    if len(streams) <= MOST_UNFUSED:
        return Owned(True)
    if limited:
        return Owned(False, say("--expect-cores states core limits of {where}", where=series(limited)))
    for split in sorted(view.report.core_splits, key=lambda s: not s.asked):
        own = series(x.stream for x in split.limits)
        if split.asked:
            return Owned(False, say("--cores-of states core limits of streams {streams}", streams=own))
        return Owned(False, say("core limits of streams {streams} are proposed above", streams=own))
    call = next((n for n in view.profile.host.events.name.names if _SET.search(n)), None)
    if call:
        return Owned(False, say("{call} sets core limits", call=call))
    return _seen(view, streams)


def _seen(view: DeviceView, streams: list[int]) -> Owned:
    """Look for limits in the blocks: several streams, each of which stays below the chip, and all of which fit it."""
    cube, vector = view.cores.cube, view.cores.vector
    if cube is None or vector is None:
        return Owned(False, say("core counts are unknown, so streams may have cores of their own"))
    used = blocks(view.tasks)
    kernels = on_cores(view.tasks) & np.equal(view.tasks.work, Work.COMPUTE)
    if (kernels & ((used.cube < 0) | (used.vector < 0) | ((used.cube == 0) & (used.vector == 0)))).any():
        return Owned(False, say("Block Dim is missing for some kernels, so streams may have cores of their own"))
    mine = {stream: kernels & np.equal(view.tasks.stream, stream) for stream in streams}
    most = {stream: (_kept_to(used.cube[m], cube), _kept_to(used.vector[m], vector)) for stream, m in mine.items()}
    kept = {stream: (c, v) for stream, (c, v) in most.items() if c is not None and v is not None}
    fits = sum(c for c, _ in kept.values()) <= cube and sum(v for _, v in kept.values()) <= vector
    if len(kept) < max(len(most), 2) or not fits:
        return Owned(True)
    caps = (say("stream {stream}: {cube},{vector}", stream=s, cube=c, vector=v) for s, (c, v) in kept.items())
    return Owned(
        False,
        say(
            "their kernels never use more cores than fit the chip together, as under core limits ({limits})",
            limits=series(caps, by="; "),
        ),
    )


def _kept_to(used: I64, cores: int) -> int | None:
    """Return how many cores of one side a stream seems to be kept to, 0 where it uses none; None if it is not."""
    most = int(used.max(initial=0))
    if most == 0:
        return 0
    return most if most < cores and np.count_nonzero(used == most) >= _AT_LEAST else None
