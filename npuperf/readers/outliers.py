"""Rows whose times lie absurdly far from all others: one of them would make a span of fifty years.

Decided from the data and told by distance alone, for tables, traces and databases alike. A pause of hours stays, and so
does a recording of weeks: see ``docs/decisions.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from npuperf.messages import Message, say
from npuperf.model.labels import I64, Mask
from npuperf.units import NS_PER_S

#: Nothing nearer than this is set aside, ns.
_LEAST_NS: Final = 24 * 3600 * NS_PER_S
#: So many times the time that the others span.
_TIMES: Final = 1000
#: At most one row of so many is set aside for where it lies: more of them are how the data is.
_PART: Final = 10
#: Of so few rows nobody can tell which is right.
_FEWEST: Final = 3

#: Why such rows are lost.
FAR_OFF: Final[Message] = say("their times are more than a day away from those of the others")


def spans_days(start: I64, end: I64) -> bool:
    """Tell whether times, in ns, lie so far apart that some may be far off: those of few recordings do."""
    return len(start) >= _FEWEST and int(end.max()) - int(start.min()) > _LEAST_NS


def far_off(start: I64, end: I64) -> Mask:
    """Tell which rows begin, or last, absurdly far beyond all others; all of ``start`` and ``end`` (ns) are known."""
    if not spans_days(start, end):
        return np.zeros(len(start), np.bool_)
    from_, to = start.astype(np.float64), end.astype(np.float64)  # differences of two extremes need more than 64 bits
    order = np.argsort(start, kind="stable")
    breaks = np.flatnonzero(np.diff(from_[order]) > _LEAST_NS) + 1
    group = np.zeros(len(start), np.int64)
    group[order] = np.searchsorted(breaks, np.arange(len(start)), side="right")
    most = group == np.bincount(group).argmax()
    first, last = from_[most].min(), from_[most].max()
    limit = max(float(_LEAST_NS), _TIMES * (last - first))
    endless: Mask = to - from_ > limit  # however many they are: sums of them would not even fit into 64 bits
    far = (first - from_ > limit) | (from_ - last > limit) | endless
    return far if int(np.count_nonzero(far)) <= max(len(far) // _PART, 1) else endless
