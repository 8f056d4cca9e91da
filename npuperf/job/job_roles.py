"""Reinforcement learning: the roles of a job's ranks, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuperf.device.rank_summary import RankSummary
from npuperf.device.roles import RoleTimes
from npuperf.model.groups import lower_median
from npuperf.model.job_result import JobRole


def judge_roles(ranks: Sequence[RankSummary]) -> list[JobRole]:
    """Return the roles that two ranks or more take, the longest first.

    Turns are compared one by one where all ranks take as many; no clock is needed for that, as a role is called on all
    its ranks at once. Else, or where turns that last as long as on their longest rank would be longer than the job, the
    ranks' totals are compared, as if they were one turn.
    """
    windows = [r.end - r.begin for r in ranks if r.end > r.begin]
    found = []
    for role in dict.fromkeys(times.role for r in ranks for times in r.roles):
        own = [(r.rank, times) for r in ranks for times in r.roles if times.role == role and len(times.length)]
        if len(own) >= 2 and windows:
            found.append(_judged(own, windows))
    return sorted((role for role in found if role.time_ns), key=lambda role: -role.time_ns)


def _judged(own: Sequence[tuple[int, RoleTimes]], windows: Sequence[int]) -> JobRole:
    at_once = len({len(times.length) for _, times in own}) == 1
    at_once = at_once and int(np.stack([times.length for _, times in own]).max(axis=0).sum()) <= max(windows)
    lengths = [times.length if at_once else times.length.sum(keepdims=True) for _, times in own]
    length = np.stack(lengths)  # [rank, turn]
    longest, total = length.max(axis=0), length.sum(axis=1)
    time, every = int(longest.sum()), max(int(longest.sum()) * len(own), 1)
    active = sum(int(times.active.sum()) for _, times in own)
    most = int(total.argmax())
    return JobRole(
        role=own[0][1].role,
        names=sorted({name for _, times in own for name in times.names}),
        ranks=[rank for rank, _ in own],
        turns=length.shape[1] if at_once else None,
        time_ns=time,
        share=time / float(np.median(windows)),
        busy_share=active / every,
        idle_share=(int(total.sum()) - active) / every,
        early_share=1 - int(total.sum()) / every,
        longest_rank=own[most][0],
        longest_in=int(np.count_nonzero(length[most] == longest)),
        longest_ns=int(total[most]),
        median_ns=int(lower_median(total)),
        tail_ns=int((longest - lower_median(length)).sum()),
    )
