"""Which groups of ranks are pipelines: as they are called, else as they behave."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from npuperf.cluster.summary import RankSummary
from npuperf.model.communication import ProcessGroup

#: What programs call pipelines (Megatron pp, DeepSpeed pipe, mesh_pp of a device mesh), and what they call others.
_PIPELINE: Final = frozenset({"pp", "pipe", "pipeline"})
_OTHERS: Final = frozenset(
    {"tp", "dp", "cp", "ep", "sp", "exp", "mp", "tensor", "data", "context", "expert", "sequence"}
)
#: Who computes at most this part of what the first rank does before its first exchange waits for it from the begin.
_AT_ONCE: Final = 0.1


def named_pipelines(ranks: Sequence[RankSummary]) -> list[tuple[int, ...]]:
    """Return the ranks of the groups that are called pipelines, in their order."""
    groups = {g.id: g for r in ranks for g in r.groups if _words(g.kind) & _PIPELINE and len(g.ranks) > 1}
    return [g.ranks for g in groups.values()]


def likely_pipelines(ranks: Sequence[RankSummary]) -> list[tuple[int, ...]]:
    """Return the ranks of groups that exchange point to point, the first one of which computes while others wait.

    In a ring (of context, for instance) all compute as long before they exchange. Groups must be of one size.
    """
    told = {g.id: g for r in reversed(ranks) for g in r.groups if g.ranks}
    kinds = {g.id: g.kind for r in ranks for g in r.groups if g.kind}
    holders: dict[str, list[int]] = defaultdict(list)
    for summary in ranks:
        operations = summary.operations.filter(summary.operations.p2p)
        for name in sorted({g for i in range(len(operations)) if (g := operations.group[i]) is not None}):
            holders[name].append(summary.rank)
    by_rank = {r.rank: r for r in ranks}
    found = []
    for name, own in holders.items():
        members = told.get(name, ProcessGroup(name, ranks=tuple(own))).ranks
        if not _words(kinds.get(name)) & _OTHERS and set(members) == set(own) and _in_turn(by_rank, members, name):
            found.append(members)
    return found if len({len(members) for members in found}) == 1 else []


def _words(kind: str | None) -> set[str]:
    return set(re.findall("[a-z]+", (kind or "").lower()))


def _in_turn(by_rank: dict[int, RankSummary], members: tuple[int, ...], name: str) -> bool:
    """Tell whether all but the first member begin by waiting."""
    if len(members) < 2:
        return False
    first, *others = (_before_first(by_rank[r], name) for r in members)
    return first > 0 and all(other <= _AT_ONCE * first for other in others)


def _before_first(summary: RankSummary, name: str) -> int:
    """Return how long a rank computes before its first exchange in a group, ns."""
    operations = summary.operations
    of_group = operations.group.flag([label == name for label in operations.group.names])
    rows = np.flatnonzero(operations.p2p & of_group)
    return int(summary.compute_before[rows[0]])
