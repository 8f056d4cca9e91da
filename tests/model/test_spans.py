"""Events around a time, against looking at every event."""

from __future__ import annotations

import numpy as np
import pytest

from npuperf.model.host import Spans
from npuperf.model.labels import Labels


@pytest.mark.parametrize("count", [0, 1, 256, 257, 3000])
def test_events_around_a_time_are_all_found_the_latest_first(count: int) -> None:
    rng = np.random.default_rng(count)
    thread, start = rng.integers(0, 3, count), rng.integers(0, 50_000, count)
    order = np.lexsort((start, thread))
    thread, start = thread[order], start[order]
    length = np.where(rng.random(count) < 0.01, 20_000, rng.integers(0, 40, count))  # few reach over many others
    spans = Spans(start, start + length, thread, Labels.missing(count))
    for time in rng.integers(0, 70_000, 60).tolist():
        for one in range(4):
            around = (thread == one) & (start <= time) & (spans.end >= time)
            assert [*spans.around(one, time)] == np.flatnonzero(around)[::-1].tolist()
            assert spans.innermost(one, time) == max(np.flatnonzero(around).tolist(), default=-1)
