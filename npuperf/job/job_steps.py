"""Which steps are one and the same on all ranks, and which of them all ranks recorded: only those are compared.

Ranks count their steps by themselves, and need not agree: collectives that are one by their names are of one step,
whatever its number. A rank that was recorded shorter than its peers has less of everything.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from npuperf.device.rank_summary import RankSummary, of_steps, renumbered
from npuperf.job.match import Matched
from npuperf.model.labels import I64


class JobSteps(Struct, frozen=True):
    """How the ranks (in their places) were recorded.

    ``moved``: by how much the steps of each were numbered anew, so that one step has one number; ``recorded``: the
    steps of each by these numbers; ``compared``: those that all have, where they are not all.
    """

    moved: tuple[int, ...]
    recorded: tuple[tuple[int, ...], ...]
    compared: tuple[int, ...] | None


def in_one_count(ranks: list[RankSummary]) -> list[RankSummary]:
    """Let ranks that have not one step number in common, but as many steps each, count them as the first one does."""
    numbers = [r.step_number for r in ranks]
    shared = set(numbers[0].tolist()).intersection(*(n.tolist() for n in numbers[1:]))
    if shared or len({len(n) for n in numbers}) > 1 or not len(numbers[0]):
        return ranks
    found = []
    for rank in ranks:
        step = rank.operations.step.copy()
        for old, new in zip(rank.step_number.tolist(), numbers[0].tolist(), strict=True):
            step[rank.operations.step == old] = new
        found.append(replace(rank, step_number=numbers[0], operations=replace(rank.operations, step=step)))
    return found


def common_steps(
    ranks: list[RankSummary], matched: Matched, broken: Mapping[int, Set[int]] | None = None
) -> tuple[list[RankSummary], JobSteps]:
    """Number the steps of all ranks alike, and leave out what not all recorded.

    ``matched``: their operations; ``broken``: steps of some ranks (by place) that count as not recorded.
    """
    moved = _differences(matched, len(ranks)).tolist()
    ranks = [renumbered(r, by) if by else r for r, by in zip(ranks, moved, strict=True)]
    there = [r.step_number.tolist() for r in ranks]
    recorded = tuple(tuple(n for n in own if n not in (broken or {}).get(i, ())) for i, own in enumerate(there))
    uneven = len({frozenset(own) for own in recorded}) > 1 or any((broken or {}).values())
    run = _longest_run(recorded, there) if uneven else ()
    if run:
        ranks = [of_steps(r, own.index(run[0]), own.index(run[-1])) for r, own in zip(ranks, there, strict=True)]
    return ranks, JobSteps(tuple(moved), recorded, run or None)


def _longest_run(recorded: Sequence[Sequence[int]], there: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the most steps that all ranks recorded one after the other. ``there``: with those that do not count.

    A step lasts until the next one that is there: where that is not the same on all ranks, what some left out is in it,
    and it counts only if there is no other.
    """
    following = [set(pairwise(own)) for own in recorded]
    shared = set.intersection(*(set(own) for own in recorded))
    runs: list[list[int]] = []
    for number in (number for number in recorded[0] if number in shared):
        if runs and all((runs[-1][-1], number) in own for own in following):
            runs[-1].append(number)
        else:
            runs.append([number])
    after = [dict(pairwise(own)) for own in there]
    alike = [run if len({own.get(run[-1]) for own in after} - {None}) < 2 else run[:-1] for run in runs]
    longest: list[int] = max(alike, key=len, default=[]) or max(runs, key=len, default=[])
    return tuple(longest)


def _differences(matched: Matched, ranks: int) -> I64:
    """Return what is to be added to the step numbers of each rank so that its operations are of their peers' steps.

    Two ranks differ by what most of their common operations do: some may lie between two steps. What most ranks count
    by stays.
    """
    other = matched.members
    head = other[matched.starts][matched.instance[other]]
    known = (matched.step[head] >= 0) & (matched.step[other] >= 0) & ~matched.p2p[other]  # their keys are an order
    head, other = head[known], other[known]
    by = matched.step[head] - matched.step[other]
    if not by.any():
        return np.zeros(ranks, np.int64)
    rows = np.stack([matched.rank[head], matched.rank[other], by])
    kinds, counts = np.unique(rows, axis=1, return_counts=True)
    usual: dict[tuple[int, int], tuple[int, int]] = {}
    for (a, b, more), count in zip(kinds.T.tolist(), counts.tolist(), strict=True):
        if count > usual.get((a, b), (0, 0))[0]:
            usual[a, b] = count, more
    meets: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (a, b), (_, more) in usual.items():
        meets[a].append((b, more))
        meets[b].append((a, -more))
    found: dict[int, int] = {}
    for root in range(ranks):
        if root in found:
            continue
        queue, mine = deque([root]), {root: 0}
        while queue:
            rank = queue.popleft()
            for peer, more in meets[rank]:
                if peer not in mine:
                    mine[peer] = mine[rank] + more
                    queue.append(peer)
        most = Counter(mine.values()).most_common(1)[0][0]
        found |= {rank: more - most for rank, more in mine.items()}
    return np.array([found[rank] for rank in range(ranks)], np.int64)
