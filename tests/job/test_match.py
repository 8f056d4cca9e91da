"""The same operation on several ranks: by step and key, never by its place in a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from ranks import MS, group, operations, summary

from npuperf.device.rank_summary import RankSummary
from npuperf.job.match import Matched, match


def rank(number: int, rows: Sequence[dict[str, Any]], *ranks_of_group: int, **groups: Sequence[int]) -> RankSummary:
    """A rank with these operations; group 1 has ``ranks_of_group`` (not recorded if none), others by name."""
    known = [group(ranks_of_group), *(group(ranks, id=name) for name, ranks in groups.items())]
    return summary(number, operations=operations(rows), groups=tuple(known))


def named(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, **more} for name in names]


def same(matched: Matched) -> list[tuple[tuple[int, int], ...]]:
    """Operations that are one, as (place of the rank, its n-th operation), in order."""
    found: dict[int, list[tuple[int, int]]] = {}
    for i, instance in enumerate(matched.instance.tolist()):
        r = int(matched.rank[i])
        if instance >= 0:
            found.setdefault(instance, []).append((r, i - int(matched.first[r])))
    return sorted(tuple(sorted(members)) for members in found.values())


def test_the_same_name_is_the_same_operation_in_any_order() -> None:
    matched = match([rank(0, named("a", "b", "c"), 0, 1), rank(1, named("c", "a", "b"), 0, 1)], 2)
    assert same(matched) == [((0, 0), (1, 1)), ((0, 1), (1, 2)), ((0, 2), (1, 0))]
    assert matched.complete.all() and matched.together.all()


def test_names_that_come_up_in_every_step_are_told_apart_by_it() -> None:
    """Rank 1 was recorded one step later: what it calls a in step 2 is rank 0's second."""
    first = named("a", step=1) + named("a", step=2) + named("a", step=3)
    second = named("a", step=2) + named("a", step=3)
    assert same(match([rank(0, first, 0, 1), rank(1, second, 0, 1)], 2)) == [((0, 1), (1, 0)), ((0, 2), (1, 1))]


def test_names_that_repeat_within_a_step_are_counted_there() -> None:
    rows = named("a", "a", step=1) + named("a", step=2)
    assert same(match([rank(0, rows, 0, 1), rank(1, rows, 0, 1)], 2)) == [((0, i), (1, i)) for i in range(3)]


def test_a_name_that_is_unique_needs_no_step() -> None:
    """An operation between steps may count to the one before on one rank and to the one after on the other."""
    assert same(match([rank(0, named("a", step=1), 0, 1), rank(1, named("a", step=2), 0, 1)], 2)) == [((0, 0), (1, 0))]


def test_a_lost_operation_leaves_the_others_matched() -> None:
    matched = match([rank(0, named("a", "b", "c"), 0, 1), rank(1, named("a", "c"), 0, 1)], 2)
    assert same(matched) == [((0, 0), (1, 0)), ((0, 2), (1, 1))]
    assert matched.instance[1] == -1


def test_of_three_ranks_one_lost_an_operation() -> None:
    """The other two's are still one; it is not complete."""
    ranks = [rank(0, named("a"), 0, 1, 2), rank(1, named("b"), 0, 1, 2), rank(2, named("a", "b"), 0, 1, 2)]
    matched = match(ranks, 3)
    assert same(matched) == [((0, 0), (2, 0)), ((1, 0), (2, 1))]
    assert not matched.complete.any()


def test_groups_of_one_wait_for_nobody() -> None:
    rows = [{"name": "a", "group": "own"}, {"name": "b"}]
    ranks = [rank(0, rows, 0, 1, own=[0]), rank(1, named("b"), 0, 1)]
    matched = match(ranks, 2)
    assert same(matched) == [((0, 1), (1, 0))]
    assert [g.single for g in matched.groups] == [True, False]


def test_a_rank_that_was_not_loaded_leaves_its_group_partial() -> None:
    matched = match([rank(0, named("a"), 0, 1, 2), rank(1, named("a"), 0, 1, 2)], 3)
    (job_group,) = matched.groups
    assert (job_group.ranks, job_group.members, job_group.complete) == ((0, 1, 2), (0, 1), False)
    assert same(matched) == [((0, 0), (1, 0))] and not matched.complete.any()


@pytest.mark.parametrize(("world", "complete"), [(2, True), (3, False), (None, False)])
def test_ranks_of_a_group_that_is_not_recorded_are_those_that_use_it(world: int | None, complete: bool) -> None:
    """Complete only where the whole job is there."""
    matched = match([rank(0, named("a")), rank(1, named("a"))], world)
    (job_group,) = matched.groups
    assert (job_group.ranks, job_group.inferred, job_group.complete) == ((0, 1), True, complete)
    assert matched.complete.tolist() == [complete]


def test_groups_known_by_three_digits_only_keep_apart() -> None:
    """Names of files without the hash carry its last three digits: same index, other digits, another operation."""
    first = [{"name": "hcom_allReduce__097_1_1", "group": "097"}, {"name": "hcom_allReduce__641_1_1", "group": "641"}]
    matched = match([rank(0, first), rank(1, first[::-1])], 2)
    assert same(matched) == [((0, 0), (1, 1)), ((0, 1), (1, 0))]


def test_one_name_in_two_groups_is_two_operations() -> None:
    """Ranks 0, 1 and 2, 3 name theirs alike."""
    ranks = [rank(r, [{"name": "a", "group": f"g{r // 2}"}]) for r in range(4)]
    assert same(match(ranks, 4)) == [((0, 0), (1, 0)), ((2, 0), (3, 0))]


def test_without_groups_order_counts_if_all_do_the_same() -> None:
    rows = [{"name": None, "group": None, "type": t} for t in ("allReduce", "allGather")]
    assert same(match([rank(0, rows), rank(1, rows)], 2)) == [((0, 0), (1, 0)), ((0, 1), (1, 1))]
    assert same(match([rank(0, rows), rank(1, rows[::-1])], 2)) == []


def test_ends_of_point_to_point_operations_meet_by_their_number() -> None:
    """The sender calls it send, the receiver receive; the number in the group of two is the same."""
    sends = [{"name": f"hcom_send__1_{i}_1", "type": "send", "index": i, "p2p": True} for i in (3, 4)]
    gets = [{"name": f"hcom_receive__1_{i}_1", "type": "receive", "index": i, "p2p": True} for i in (3, 4)]
    matched = match([p2p(rank(0, sends, 0, 1)), p2p(rank(1, gets, 0, 1))], 2)
    assert same(matched) == [((0, 0), (1, 0)), ((0, 1), (1, 1))]
    assert not matched.together.any()


def p2p(summary_: RankSummary) -> RankSummary:
    rows = replace(summary_.operations, p2p=np.ones(len(summary_.operations), np.bool_))
    return replace(summary_, operations=rows)


def test_in_a_group_of_three_point_to_point_goes_by_pair_and_order() -> None:
    """Rank 1 talks to 0, 2, 0: its first and third meet both of rank 0's; numbers count per rank and mean nothing."""
    peers = {0: (1, 1), 1: (0, 2, 0), 2: (1,)}
    ranks = [
        p2p(rank(r, [{"name": f"n{r}{i}", "peer": peer, "index": i} for i, peer in enumerate(own)], 0, 1, 2))
        for r, own in peers.items()
    ]
    matched = match(ranks, 3)
    assert same(matched) == [((0, 0), (1, 0)), ((0, 1), (1, 2)), ((1, 1), (2, 0))]
    assert matched.complete.all()


def test_in_a_group_of_three_nothing_is_matched_without_peers() -> None:
    ranks = [p2p(rank(r, [{"name": "x", "index": 0}], 0, 1, 2)) for r in range(3)]
    assert same(match(ranks, 3)) == []


def test_rooted_operations_are_not_for_clocks() -> None:
    """A broadcast's root may leave before others have come."""
    rows = named("a", type="broadcast") + named("b", type="alltoallv") + named("c", type="reduceScatter")
    matched = match([rank(0, rows, 0, 1), rank(1, rows, 0, 1)], 2)
    types = [matched.types[int(matched.type[matched.members[s]])] for s in matched.starts]
    assert dict(zip(types, matched.together.tolist(), strict=True)) == {
        "broadcast": False, "alltoallv": False, "reduceScatter": True,
    }  # fmt: skip


def test_dropping_some_leaves_the_others_as_they_were() -> None:
    rows = named("a", "b", "c")
    matched = match([rank(0, rows, 0, 1), rank(1, rows, 0, 1)], 2)
    left = matched.drop(np.arange(3) == int(matched.instance[1]))
    assert same(left) == [((0, 0), (1, 0)), ((0, 2), (1, 2))]
    assert left.instances == 2 and np.bincount(left.instance[left.instance >= 0]).tolist() == [2, 2]


def test_stays_are_ends_minus_starts() -> None:
    matched = match([rank(0, named("a", stay=5 * MS), 0, 1), rank(1, named("a", stay=3 * MS), 0, 1)], 2)
    assert matched.stay.tolist() == [5 * MS, 3 * MS]
