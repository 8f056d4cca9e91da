"""How long the device idled that ran dry while the host was in some of its waits."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from npuperf.host.blame import Blamed
from npuperf.host.pauses import paused
from npuperf.host.syncs import Syncs
from npuperf.model.labels import I64
from npuperf.timeline.partition import Gaps


class IdleAfter(Struct, frozen=True):
    """Idle time by the waits of the host in which it began, ready to be summed for any of them.

    ``so_far``: the idle time, ns, of the gaps before each one, but for pauses of the host: they have nothing to do with
    its waits. ``first``: per wait the first gap that began in it or later, ``last``: the first one that began after it.
    """

    start: I64
    so_far: I64
    first: I64
    last: I64

    @classmethod
    def of(cls, syncs: Syncs, gaps: Gaps, blamed: Blamed, skew: int, pause_ns: int, span: tuple[int, int]) -> IdleAfter:
        """Look at the gaps that began within ``span``; ``skew`` leads from the device's clock to the host's."""
        pauses = paused(blamed, gaps, pause_ns)
        idle = gaps.ready - gaps.start
        gap = np.searchsorted(gaps.start, pauses.start, side="right") - 1
        np.subtract.at(idle, gap, pauses.end - pauses.start)
        chosen = gaps.known & (gaps.start >= span[0]) & (gaps.start < span[1])
        began = gaps.start + skew
        return cls(
            start=syncs.start,
            so_far=np.concatenate([[0], np.cumsum(np.where(chosen, idle, 0))]),
            first=np.searchsorted(began, syncs.start),
            last=np.searchsorted(began, syncs.end, side="right"),
        )

    def total(self, calls: I64) -> int:
        """Sum up for some waits, ns. Of waits beside each other the one that began last counts."""
        order = calls[np.argsort(self.start[calls], kind="stable")]
        first = self.first[order]
        until = np.append(first[1:], len(self.so_far) - 1)
        last = np.minimum(self.last[order], until)
        return int((self.so_far[np.maximum(last, first)] - self.so_far[first]).sum())
