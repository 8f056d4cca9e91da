"""Equal stretches of a picture's time, and what share of each of them something takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from npuperf.model.intervals import Intervals
from npuperf.model.labels import I64, U8

#: The share that is all of a bucket.
FULL: Final = 255


class Buckets(Struct, frozen=True):
    """Neighbouring windows of a device's time, ns, of one length (but for rounding by one)."""

    windows: Intervals

    @classmethod
    def of(cls, start: int, end: int, count: int) -> Buckets:
        """Cut ``[start, end)`` into ``count`` buckets, or fewer: each has a nanosecond at least."""
        length = max(end - start, 1)
        count = max(min(count, length), 1)
        # A product of the length and the number of a bucket may not fit into 64 bits; these parts of it do.
        whole, rest = divmod(length, count)
        number = np.arange(count + 1)
        edges = start + whole * number + rest * number // count
        return cls(Intervals(edges[:-1], edges[1:]))

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def edges(self) -> I64:
        """All borders in order, one more than there are buckets."""
        return np.append(self.windows.start, self.windows.end[-1])

    @property
    def length(self) -> I64:
        """How long each bucket is, ns."""
        return self.windows.end - self.windows.start

    def shares(self, times: Mapping[str, I64], capacity: int = 1) -> dict[str, U8]:
        """Return what share of each bucket each of the times (ns) is, without those that are nothing anywhere.

        ``capacity``: by how much a bucket holds more than its length, as of cores.
        """
        whole = self.length * capacity
        return {name: _rounded(time, whole) for name, time in times.items() if time.any()}


def _rounded(time: I64, whole: I64) -> U8:
    return ((2 * FULL * time + whole) // (2 * whole)).astype(np.uint8)
