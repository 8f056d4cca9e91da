"""What the host did in its own steps, where no device task is recorded: every nanosecond of the thread that makes them.

As while a device waits, time is blamed on the innermost event (:mod:`npuperf.device.blame`): what an operator does by
itself, without those that it calls.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from npuperf.device.blame import OTHERS, Blamed, blame_intervals, event_causes, main_thread, sum_blame
from npuperf.device.host_events import CAUSES, Nesting
from npuperf.model.device import HostProfile
from npuperf.model.groups import distinct, numbered
from npuperf.model.result import Blame, HostRun, HostStep, HostWork

#: Names of activities that are listed; beyond them those of each cause are one line.
_NAMES: Final = 40


def host_run(profile: HostProfile, nesting: Nesting, step: int | None = None) -> HostRun:
    """Sum up the steps of the host, or all of its recorded time where none is marked. ``step``: this one alone.

    ``nesting``: of the host's events, of which there is at least one.
    """
    events, main = nesting.events, main_thread(profile.host)
    steps = {number: ends for number, ends in profile.host_steps.ranges().items() if step in (None, number)}
    origin, stop = int(events.start.min()), int(events.end.max())
    start, end = np.array([*steps.values()] or [(origin, stop)], np.int64).T
    pieces = blame_intervals((np.full(len(start), main),), start, end, nesting)
    blamed = Blamed(pieces.start, pieces.end, pieces.event, event_causes(pieces.event, nesting))
    at = np.searchsorted(start, events.start, side="right") - 1
    mine = np.flatnonzero((events.thread == main) & (at >= 0) & (events.start < end[np.maximum(at, 0)]))
    width, names = len(events.name.names), events.name.names
    keys, place = numbered(nesting.blamed[mine].astype(np.int64) * width + events.name.codes[mine])
    called = {
        (CAUSES[key // width], names[key % width]): count
        for key, count in zip(keys.tolist(), np.bincount(place).tolist(), strict=True)
    }
    return HostRun(
        rank=profile.rank,
        source=profile.source,
        origin_ns=origin,
        span_ns=int((end - start).sum()),
        threads=len(distinct(events.thread)),
        events=len(events),
        steps=[
            HostStep(step=number, start_ns=begin - origin, length_ns=finish - begin)
            for number, (begin, finish) in steps.items()
        ],
        work=_by_name(sum_blame(blamed, profile.host, nesting, _NAMES), called),
    )


def _by_name(blame: list[Blame], calls: dict[tuple[str, str], int]) -> list[HostWork]:
    """Return a row for each name; what a profiler did is one, however it did that."""
    found = [
        HostWork(cause=b.cause, name=b.name, calls=calls.get((b.cause, b.name)), self_ns=b.ns, where=b.where)
        for b in blame
        if b.cause != "profiler"
    ]
    measuring = sum(b.ns for b in blame if b.cause == "profiler")
    if measuring:
        found.append(HostWork(cause="profiler", name=OTHERS, calls=None, self_ns=measuring, where=None))
    return sorted(found, key=lambda work: -work.self_ns)
