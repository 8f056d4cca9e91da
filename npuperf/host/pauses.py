"""Pauses: stretches of host time that are too long to be a part of launching, and hold nothing of it.

Between two launches a program runs code of its own, for microseconds. Where that takes as long as a pause, the program
does something else: it waits for requests, writes a checkpoint, prepares its data. A faster launch shortens none of it.
"""

from __future__ import annotations

import numpy as np

from npuperf.host.blame import Blamed
from npuperf.host.causes import BETWEEN, flag_causes
from npuperf.model.labels import I64, U8, Mask
from npuperf.timeline.partition import Gaps


def pauses(owner: I64, length: I64, causes: U8, count: int, least: int) -> Mask:
    """True for the pieces of host time that are pauses.

    ``owner``: the stretch between two launches that each piece is of, one of ``count``; ``causes``: what it is blamed
    on; ``least``: how long the pieces of a stretch that are no launching take together to be a pause, ns.
    """
    between = flag_causes(causes, BETWEEN)
    total = np.bincount(owner[between], weights=length[between], minlength=count)
    return between & (total[owner] >= least) if len(owner) else between


def paused(blamed: Blamed, gaps: Gaps, least: int) -> Blamed:
    """Return the pieces of host wait that are pauses."""
    gap = np.maximum(np.searchsorted(gaps.start, blamed.start, side="right") - 1, 0)
    chosen = pauses(gap, blamed.end - blamed.start, blamed.cause, len(gaps.start), least)
    return Blamed(blamed.start[chosen], blamed.end[chosen], blamed.event[chosen], blamed.cause[chosen])
