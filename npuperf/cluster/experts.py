"""Experts: grouped matmuls whose ranks have different loads, so that all wait for the fullest one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from npuperf.cluster.summary import ExpertTimes, RankSummary
from npuperf.documents.cluster import Experts
from npuperf.model.communication import ProcessGroup
from npuperf.model.groups import distinct
from npuperf.model.labels import I64, Labels
from npuperf.model.tasks import Tasks, Work
from npuperf.model.thresholds import Thresholds

#: No dimension has more.
_DIGITS: Final = 18
_GROUPED: Final = re.compile(r"(aclnn)?groupedmatmul", re.IGNORECASE)
#: What programs call the groups over which experts are spread: Megatron exp or ep, MindSpeed exp, vLLM ep.
_KINDS: Final = frozenset({"ep", "exp", "expert", "experts", "expert_parallel", "expert_model_parallel", "moe_ep"})


def expert_times(tasks: Tasks, types: Labels) -> ExpertTimes:
    """Return a device's grouped matmuls in order of start. ``types``: of the tasks, names where not recorded."""
    grouped = types.flag([bool(_GROUPED.match(name)) for name in types.names])
    rows = np.flatnonzero(grouped & (tasks.work == Work.COMPUTE))
    rows = rows[np.argsort(tasks.start[rows], kind="stable")]
    shapes = tasks.shapes
    tokens = np.array([*(_tokens(text) for text in shapes.names), -1], np.int64)[shapes.codes[rows]]
    return ExpertTimes(tasks.start[rows], tasks.dur[rows], tokens)


def _tokens(shapes: str) -> int:
    """Sum the first dimensions of all inputs but the last two, which are weights and group list; -1 unknown.

    The exporter's own reading (ep_load_balance): absent inputs, empty between semicolons, do not count.
    """
    inputs = [text.strip() for text in shapes.replace('"', "").split(";") if text.strip()]
    first = [text.split(",")[0].strip() for text in inputs[:-2]]
    return sum(map(int, first)) if first and all(f.isdecimal() and len(f) <= _DIGITS for f in first) else -1


def judge_experts(ranks: Sequence[RankSummary], thresholds: Thresholds) -> list[Experts]:
    """Return the layers of each group of experts whose imbalance costs a notable part of the ranks' time.

    A layer is the n-th grouped matmul of a step. The ranks wait for the longest in every step, whichever it is.
    """
    by_rank = {s.rank: s for s in ranks}
    found: list[Experts] = []
    for group in _groups(ranks):
        layers = _layers(group, [by_rank[r] for r in group.ranks if r in by_rank])
        window = np.mean([by_rank[r].end - by_rank[r].begin for r in layers[0].ranks]) if layers else 0
        if sum(layer.lost_ns for layer in layers) > thresholds.lost_share * window:
            found += layers
    return sorted(found, key=lambda e: (-e.lost_ns, e.group, e.layer))


def _groups(ranks: Sequence[RankSummary]) -> list[ProcessGroup]:
    """Return the groups of experts, each once."""
    groups = (g for s in ranks for g in s.groups if (g.kind or "").lower() in _KINDS and len(g.ranks) > 1)
    return list({tuple(sorted(g.ranks)): g for g in groups}.values())


def _layers(group: ProcessGroup, ranks: Sequence[RankSummary]) -> list[Experts]:
    """Compare the ranks of a group matmul by matmul; those with another number of matmuls are left out."""
    placed = [(s, s.experts, _place(s, s.experts)) for s in ranks if s.experts is not None and len(s.experts.ns)]
    forms = [place.tobytes() for _, _, place in placed]
    usual = max(forms, key=Counter(forms).__getitem__, default=b"")
    same = [row for row, form in zip(placed, forms, strict=True) if form == usual]
    if len(same) < 2:
        return []
    layer = same[0][2][:, 1]
    inside = layer >= 0
    times = np.stack([e.ns[inside] for _, e, _ in same])
    tokens = np.stack([e.tokens[inside] for _, e, _ in same])
    where = layer[inside]
    return [
        _layer(group, [s.rank for s, _, _ in same], n, times[:, where == n], tokens[:, where == n])
        for n in distinct(where).tolist()
    ]


def _place(rank: RankSummary, experts: ExpertTimes) -> I64:
    """Return for each grouped matmul its step (from 0) and its number in it; -1 outside of steps."""
    n = len(experts.start)
    if not len(rank.step_start):
        return np.stack([np.zeros(n, np.int64), np.arange(n)], axis=1)
    step = np.searchsorted(rank.step_start, experts.start, side="right") - 1
    inside = (step >= 0) & (experts.start < rank.step_end[step])
    first = np.searchsorted(step, step, side="left")
    return np.where(inside[:, None], np.stack([step, np.arange(n) - first], axis=1), -1)


def _layer(group: ProcessGroup, ranks: list[int], layer: int, times: I64, tokens: I64) -> Experts:
    """Sum a layer over steps; ``times`` and ``tokens`` are [rank, step]."""
    longest, mean = int(times.max(axis=0).sum()), float(times.mean(axis=0).sum())
    return Experts(
        group=group.id,
        ranks=ranks,
        layer=layer,
        time_ns=times.sum(axis=1).tolist(),
        tokens=[None if (mine < 0).any() else int(mine.sum()) for mine in tokens],
        imbalance=longest / mean if mean else 1.0,
        lost_ns=int(longest - mean),
    )
