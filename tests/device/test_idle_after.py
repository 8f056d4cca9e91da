"""Idle time after waits of the host: summed over the gaps that began in them, against looking at each gap."""

from __future__ import annotations

import random

import numpy as np

from npuperf.device.blame import Blamed, IdleAfter
from npuperf.device.host_events import CODE
from npuperf.device.partition import Gaps
from npuperf.device.syncs import Syncs

SKEW, PAUSE = 7, 4


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def test_idle_time_counts_to_the_last_wait_that_had_begun_without_pauses() -> None:
    rng = random.Random(5)
    for _ in range(200):
        edges = sorted(rng.sample(range(200), 24))
        gaps = [(a, b, rng.random() < 0.8) for a, b in zip(edges[::2], edges[1::2], strict=True)]
        calls = sorted((s, s + rng.randrange(30)) for s in (rng.randrange(SKEW, 200 + SKEW) for _ in range(6)))
        pauses = [(a, a + PAUSE) for a, b, _ in gaps if b - a > PAUSE and rng.random() < 0.3]
        chosen = sorted(rng.sample(range(6), rng.randrange(1, 6)))
        span = 20, 160
        expected = 0
        for start, end, known in gaps:
            begun = [calls[c] for c in chosen if calls[c][0] <= start + SKEW]
            if known and span[0] <= start < span[1] and begun and start + SKEW <= begun[-1][1]:
                expected += end - start - sum(b - a for a, b in pauses if a == start)
        start, end, known = (np.array(x) for x in zip(*gaps, strict=True))
        blamed = Blamed(
            ints(*(a for a, _ in pauses)), ints(*(b for _, b in pauses)), np.full(len(pauses), -1),
            np.full(len(pauses), CODE["range"], np.uint8),
        )  # fmt: skip
        idle = IdleAfter.of(
            Syncs(np.zeros(6, np.int64), ints(*(c[0] for c in calls)), ints(*(c[1] for c in calls)), np.arange(6)),
            Gaps(start, end, end, end, np.arange(len(start)), known),
            blamed, SKEW, PAUSE, span,
        )  # fmt: skip
        assert idle.total(ints(*chosen)) == expected
