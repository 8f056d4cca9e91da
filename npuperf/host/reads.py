"""Reads of single values: which of them wait for the device."""

from __future__ import annotations

from npuperf.host.causes import READING
from npuperf.host.nesting import Nesting
from npuperf.host.syncs import Syncs
from npuperf.model.thresholds import Thresholds


def only_waiting(syncs: Syncs, nesting: Nesting, thresholds: Thresholds) -> Syncs:
    """Drop reads of a tensor that lies on the CPU: they wait for nothing.

    Where runtime calls are not recorded, reads of a value stand for the waits inside them. One that returns sooner than
    anything gets to a device and back cannot have been there.
    """
    names = nesting.events.name.take(syncs.event)
    reads = names.flag([bool(READING.search(n)) for n in names.names])
    kept = ~reads | (syncs.end - syncs.start >= thresholds.round_trip_ns)
    return Syncs(syncs.thread[kept], syncs.start[kept], syncs.end[kept], syncs.event[kept])
