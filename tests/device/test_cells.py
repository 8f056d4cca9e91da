"""The cells of which phases are made, against asking for every nanosecond who speaks for it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from npuperf.advise import load_thresholds
from npuperf.device.partition import Launches, lay_out, span_of
from npuperf.device.steps import _cells
from npuperf.model.tasks import NO_TIME, Tasks, Work

LATENCY = 2


def speaks(tasks: Tasks, launches: Launches, time: int) -> str:
    """Return what the nanosecond from ``time`` on is: what runs, else whether the next task was launched by then."""
    rows = [r for r in zip(tasks.start, tasks.end, tasks.work, launches.end, strict=True) if r[2] != Work.CONTROL]
    running = {int(work) for start, end, work, _ in rows if start <= time < end}
    if running:
        first = min(running)
        return {Work.COMPUTE: "compute", Work.COMMUNICATION: "communication"}.get(Work(first), "unknown")
    after = min(start for start, end, *_ in rows if start > time and end > start)
    launch = min((int(e) for start, _, _, e in rows if start == after and e != NO_TIME), default=None)
    # A launch into idle time takes its latency from where that began.
    idle = max((end for start, end, *_ in rows if start <= time and end > start), default=rows[0][0])
    late = launch is None or launch + LATENCY > idle
    return "host" if late and (launch is None or time < max(launch, idle) + LATENCY) else "unknown"


@pytest.mark.parametrize("seed", range(40))
def test_every_nanosecond_counts_for_what_it_is(seed: int) -> None:
    rng = random.Random(seed)
    starts = sorted(rng.randrange(90) for _ in range(12))
    ends = [start + rng.randrange(9) for start in starts]
    ends[-1] = max(starts[-1] + 3, *ends)
    work = [rng.choice([0, 0, 0, 1, 2, 3]) for _ in starts[1:-1]]
    launch = [start - rng.randrange(9) if rng.random() < 0.8 else NO_TIME for start in starts]
    tasks = Tasks.build(np.array(starts), np.array(ends), np.array([0, *work, 0], np.uint8))
    launches = Launches(np.array(launch), LATENCY, samples=1, skew=0, implausible=0)
    timeline = lay_out(tasks, launches)
    low, high = span_of(tasks)
    span = low + seed % 7, high - seed % 5
    borders, (host, compute, communication, unknown) = _cells(tasks, launches, timeline, span, load_thresholds())
    assert (borders[0], borders[-1]) == span
    for i, (start, end) in enumerate(zip(borders.tolist(), borders[1:].tolist(), strict=False)):
        found = [speaks(tasks, launches, time) for time in range(start, end)]
        assert int(communication[i]) == found.count("communication")
        assert int(host[i] + compute[i]) == found.count("host") + found.count("compute")  # slow launches take compute
        assert int(unknown[i]) == found.count("unknown")
        assert len(set(found) & {"compute"}) == 0 or set(found) == {"compute"}
