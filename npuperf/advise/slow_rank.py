"""A rank that the others wait for: seen across ranks, from how long each one stays in the same collectives."""

from __future__ import annotations

import numpy as np

from npuperf.cluster.waits import Stays
from npuperf.documents.analysis import Finding
from npuperf.model.labels import I64
from npuperf.model.thresholds import Thresholds
from npuperf.units import percent

SOURCE = "durations of the same collectives on all ranks: they end together, so the shortest stay came last"
TITLE = "slow rank"


def judge_ranks(stays: list[Stays], waits: I64, thresholds: Thresholds) -> Finding | None:
    """Name the rank that comes last most often, if the others lose a notable time to it.

    ``waits``: see :func:`npuperf.cluster.waits.collective_waits`.
    """
    last = np.bincount(waits.argmin(axis=0), minlength=len(stays))
    slow = int(last.argmax())
    lost = np.median(np.delete(waits.sum(axis=1), slow)) - waits[slow].sum()
    device = stays[slow].report
    steps = max(len(device.steps), 1)
    few = waits.shape[1] < thresholds.collectives_least
    if few or last[slow] * 2 <= waits.shape[1] or lost < thresholds.cause_share * device.partition.span_ns:
        return None
    share = 100 * float(lost) / max(device.partition.span_ns, 1)
    return Finding(
        rule="slow_rank",
        status="problem",
        severity="high" if share >= 100 * thresholds.severity_high else "medium",
        title=f"rank {device.rank} comes last to {percent(last[slow] / waits.shape[1])} of the collectives; "
        f"it is {device.verdict.bound}-bound, the others wait for it",
        evidence={
            "last_in": {str(s.report.rank): int(n) for s, n in zip(stays, last, strict=True)},
            "waited_ns": {str(s.report.rank): int(w) for s, w in zip(stays, waits.sum(axis=1), strict=True)},
        },
        gain_ns_per_step=(0, int(lost) // steps),
        gain_pct=(0.0, share),
        gain_per="step" if device.steps else "window",
        refute="the ranks have different work by design, or another rank is last in another recording",
        next=f"npuperf analyze PATH --rank {device.rank}: what holds it up (data, host, cores, a slower clock)",
        code=None,
        needs=None,
        source=SOURCE,
        rank=device.rank,
        device=device.device,
    )
