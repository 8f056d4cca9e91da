"""A rank that the others wait for: seen across ranks, from how long each one stays in the same collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from npuperf.advise.rule import RankRule
from npuperf.cluster.waits import Stays
from npuperf.documents.analysis import Bound, Finding
from npuperf.messages import Message, chain, say, share
from npuperf.model.labels import I64
from npuperf.model.thresholds import Thresholds

TITLE = say("slow rank")
SOURCE = say(
    "durations of the same collectives on all ranks: they end together, so the rank with the shortest one came last"
)
_BOUND: Final[dict[Bound, Message]] = {
    "host": say("it is host-bound"),
    "compute": say("it is compute-bound"),
    "communication": say("it is communication-bound"),
}


def judge_ranks(stays: Sequence[Stays], waits: I64, thresholds: Thresholds) -> Finding | None:
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
    percent = 100 * float(lost) / max(device.partition.span_ns, 1)
    waited_for = say("rank {rank} is the last to arrive at {last} of the collectives, and the others wait for "
"it",
                     rank=device.rank, last=share(float(last[slow] / waits.shape[1])))  # fmt: skip
    return Finding(
        rule=RULE.name,
        status="problem",
        severity="high" if percent >= 100 * thresholds.severity_high else "medium",
        title=chain(waited_for, _BOUND.get(device.verdict.bound)),
        evidence={
            "last_in": {str(s.report.rank): int(n) for s, n in zip(stays, last, strict=True)},
            "waited_ns": {str(s.report.rank): int(w) for s, w in zip(stays, waits.sum(axis=1), strict=True)},
        },
        gain_ns_per_step=(0, int(lost) // steps),
        gain_pct=(0.0, percent),
        gain_per="step" if device.steps else "window",
        refute=say("the ranks have different work by design, or another rank is last in another recording"),
        next=say(
            "npuperf analyze PATH --rank {rank} shows what delays it (data, the host, cores, a slower clock)",
            rank=device.rank,
        ),
        code=None,
        needs=None,
        source=SOURCE,
        rank=device.rank,
        device=device.device,
    )


RULE = RankRule("slow_rank", TITLE, SOURCE, judge_ranks)
