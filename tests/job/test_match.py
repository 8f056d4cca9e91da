"""The same operation on several ranks: by step and key, never by its place in a sequence; and who waited in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from cluster_files import write
from cluster_job import Job
from cluster_world import simulate
from msgspec.structs import replace
from ranks import MS, US, Work, group, ints, operations, summary, told

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.device import rank_summary
from npuperf.device.rank_summary import RankSummary
from npuperf.job.clocks import align, arrivals, pair_in_time
from npuperf.job.match import Matched, match
from npuperf.job.waits import JobWaits, by_kind, find_waits, kind_name, split_exposed
from npuperf.model.communication import EVERYBODY, SEVERAL
from npuperf.model.intervals import Intervals
from npuperf.model.labels import Labels


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


def gpu(number: int, rows: Sequence[dict[str, Any]], *ranks_of_group: int) -> RankSummary:
    return replace(
        rank(number, [{"name": "ncclDevKernel_Generic", **row} for row in rows], *ranks_of_group), kineto=True
    )


def test_kernels_of_nccl_meet_by_type_and_number_whatever_the_step() -> None:
    """Rank 1 was recorded one operation later, and counts its steps from one more."""
    first = [{"type": t, "index": 7 + i, "step": i // 2} for i, t in enumerate(("allReduce", "allGather") * 2)]
    second = [{**row, "step": row["step"] + 1} for row in first[1:]]
    assert same(match([gpu(0, first, 0, 1), gpu(1, second, 0, 1)], 2)) == [((0, i), (1, i - 1)) for i in (1, 2, 3)]


def test_kernels_of_nccl_without_numbers_meet_by_type_and_order_within_the_step() -> None:
    first = [{"type": t, "step": 1} for t in ("allReduce", "allGather", "allReduce")]
    second = [first[i] for i in (1, 0, 2)]
    matched = match([gpu(0, first, 0, 1), gpu(1, second, 0, 1)], 2)
    assert same(matched) == [((0, 0), (1, 1)), ((0, 1), (1, 0)), ((0, 2), (1, 2))]


@pytest.mark.parametrize(("world", "found"), [(2, 2), (4, 0), (None, 0)])
def test_kernels_of_nccl_without_a_group_meet_only_where_there_can_be_but_one(world: int | None, found: int) -> None:
    rows = [{"group": None, "type": t} for t in ("allReduce", "allGather")]
    assert len(same(match([gpu(0, rows), gpu(1, rows)], world))) == found


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


def batch(number: int, step: int, stay: int, peer: int) -> dict[str, Any]:
    return {"name": f"hcom_batchSendRecv__1_{number}_1", "type": "batchSendRecv", "index": number, "step": step,
            "stay": stay, "peer": peer}  # fmt: skip


def test_a_batch_with_all_others_is_one_operation_of_them() -> None:
    """Numbers count per rank and mean nothing: rank 0 had one batch more, with rank 1 alone. Rank 2 is 9 ms late."""
    late = [
        [(1, 1), (12, EVERYBODY), (1, EVERYBODY)],
        [(1, 0), (12, EVERYBODY), (2, EVERYBODY)],
        [(3, EVERYBODY), (1, EVERYBODY)],
    ]
    ranks = [
        p2p(rank(r, [batch(10 * r + n, 1, stay * MS, peer) for n, (stay, peer) in enumerate(own)], 0, 1, 2))
        for r, own in enumerate(late)
    ]
    matched = match(ranks, 3)
    assert same(matched) == [((0, 0), (1, 0)), ((0, 1), (1, 1), (2, 0)), ((0, 2), (1, 2), (2, 1))]
    assert matched.complete.all()
    waits = find_waits(matched, ranks)
    assert waits.wait.tolist() == [0, 9 * MS, 0, 0, 9 * MS, MS, 0, 0]
    # What each moves is its own part: the shortest stay is what others' transfers take at most.
    assert waits.transfer.tolist() == [MS, 0, 0, MS, 0, 0, 0, 0]
    partial = match(ranks[:2], 3)
    assert same(partial)[1:] == [((0, 1), (1, 1)), ((0, 2), (1, 2))] and partial.complete.tolist().count(True) == 1


def test_a_batch_with_several_of_more_ranks_is_no_pair() -> None:
    """In a ring of four each exchanges with two neighbours at once: whom time would pair is not all that is awaited."""
    ranks = [p2p(rank(r, [batch(n, 1, MS, SEVERAL) for n in range(4)], 0, 1, 2, 3)) for r in range(4)]
    matched = match(ranks, 4)
    assert same(matched) == []
    clocks = align(matched, 4)
    assert same(match(pair_in_time(ranks, matched, clocks), 4)) == []


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("members", [2, 3])
def test_what_one_sends_the_other_receives_however_they_overlap(seed: int, members: int) -> None:
    """Each rank launches sends and receives in an order of its own, and they begin in any; each way keeps its order."""
    random = Random(seed)
    messages = [(a, b, n) for a in range(members) for b in range(members) if a != b
                for n in range(random.randint(0, 3))]  # fmt: skip
    launched: dict[int, list[tuple[int, int, int]]] = {}
    for r in range(members):
        ways = {(a, b): [m for m in messages if m[:2] == (a, b)] for a, b, _ in messages if r in (a, b)}
        launched[r] = []
        while any(ways.values()):
            launched[r].append(random.choice([own for own in ways.values() if own]).pop(0))
    ranks, place = [], {}
    for r, own in launched.items():
        begins = [random.randint(0, 3) for _ in own]
        order = sorted(range(len(own)), key=lambda i: (begins[i], random.random()))
        kinds = ["send" if own[i][0] == r else "receive" for i in order]
        rows = [{"name": f"hcom_{k}__1_{i}_1", "type": k, "index": i} for k, i in zip(kinds, order, strict=True)]
        if members > 2:
            rows = [{**row, "peer": sum(own[i][:2]) - r} for row, i in zip(rows, order, strict=True)]
        ranks.append(p2p(rank(r, rows, *range(members))))
        place |= {(r, own[i]): n for n, i in enumerate(order)}
    true = sorted(tuple(sorted(((a, place[a, m]), (b, place[b, m])))) for m in messages for a, b in [m[:2]])
    assert same(match(ranks, members)) == true


def test_a_lost_end_leaves_the_others_of_its_pair_matched() -> None:
    """Of a pair without a third, running numbers tell which was lost."""
    rows = [{"name": f"hcom_batchSendRecv__1_{i}_1", "type": "batchSendRecv", "index": i} for i in range(4)]
    matched = match([p2p(rank(0, rows, 0, 1)), p2p(rank(1, [rows[0], *rows[2:]], 0, 1))], 2)
    assert same(matched) == [((0, 0), (1, 0)), ((0, 2), (1, 1)), ((0, 3), (1, 2))]


def test_nothing_of_interleaved_stages_is_dropped(tmp_path: Path) -> None:
    """Sends and receives of two chunks run beside each other: all that was waited is found, as it was simulated."""
    truth = simulate(Job(pp=3, dp=1, micro_batches=6, schedule="interleaved", layers=2, kernels=3, seed=3))
    cluster = run(AnalyzeRequest(path=write(truth, tmp_path), workers=1)).cluster
    assert cluster is not None and cluster.replay is not None and cluster.replay.usable
    assert sum(g.unmatched for g in cluster.groups) == 0
    assert sum(g.operations for g in cluster.groups) == len(truth.operations)
    assert sum(r.comm.wait_ns for r in cluster.ranks) == pytest.approx(truth.wait_ns(), rel=0.01)


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


# --- ends of point-to-point operations that name no peer, brought together by time -----------------------------------


#: One exchange: the two ranks' arrivals and the end of both (µs).
Exchange = tuple[Mapping[int, int], int]


def exchanged(count: int, exchanges: Sequence[Exchange], ahead: Sequence[int] = ()) -> list[RankSummary]:
    """``count`` ranks of one group with two barriers, and exchanges of which they do not tell with whom."""
    last = max(end for _, end in exchanges)
    found = []
    for rank in range(count):
        off = (ahead[rank] if ahead else 0) * US
        mine = sorted((arrivals[rank], end) for arrivals, end in exchanges if rank in arrivals)
        barriers = [(-1_000, -900), *mine, (last + 1_000, last + 1_100)]
        inner = range(1, len(mine) + 1)
        rows = operations([
            {"name": f"p2p{i}", "type": "batchSendRecv", "group": "pp", "index": i} if i in inner
            else {"name": f"barrier{i > 0}", "type": "barrier", "group": "all"}
            for i in range(len(barriers))
        ])  # fmt: skip
        rows = replace(
            rows,
            start=np.array([b[0] for b in barriers], np.int64) * US + off,
            end=np.array([b[1] for b in barriers], np.int64) * US + off,
            p2p=np.array([i in inner for i in range(len(barriers))]),
        )
        everyone = range(count)
        found.append(summary(rank, operations=rows, groups=(group(everyone, "pp", "pp"), group(everyone, None, "all"))))
    return found


def peers(ranks: list[RankSummary]) -> list[list[int]]:
    """Whom each rank is said to have talked to, in order of time."""
    matched = match(ranks, len(ranks))
    found = pair_in_time(ranks, matched, align(matched, len(ranks)))
    return [r.operations.peer[1:-1].tolist() for r in found]


CHAIN: list[Exchange] = [
    ({0: 0, 1: 90}, 100),  # 0 waits for 1
    ({1: 110, 2: 180}, 200),
    ({0: 150, 1: 250}, 300),
    ({2: 220, 3: 390}, 400),
    ({1: 310, 2: 410}, 420),
]


def test_of_three_neighbours_each_end_finds_its_other() -> None:
    assert peers(exchanged(4, CHAIN)) == [[1, 1], [0, 2, 0, 2], [1, 3, 1], [2]]


def test_clocks_that_are_off_do_not_matter() -> None:
    assert peers(exchanged(4, CHAIN, (0, 5_000, -3_000, 70))) == [[1, 1], [0, 2, 0, 2], [1, 3, 1], [2]]


def test_a_ring_closes() -> None:
    """The first and the last rank talk to each other as well (interleaved stages)."""
    ring: list[Exchange] = [*CHAIN, ({0: 450, 3: 500}, 510)]
    assert peers(exchanged(4, ring)) == [[1, 1, 3], [0, 2, 0, 2], [1, 3, 1], [2, 0]]


def test_an_operation_whose_other_end_was_lost_keeps_no_peer() -> None:
    ranks = exchanged(3, CHAIN[:3])
    lost = ranks[1].operations.filter(np.arange(len(ranks[1].operations)) != 1)  # its first exchange, with rank 0
    ranks[1] = replace(ranks[1], operations=lost)
    found = pair_in_time(ranks, matched := match(ranks, 3), align(matched, 3))
    assert [r.operations.peer[1:-1].tolist() for r in found] == [[-1, 1], [2, 0], [1]]


def test_a_group_of_two_needs_no_pairing() -> None:
    assert peers(exchanged(2, [({0: 0, 1: 50}, 60)])) == [[-1], [-1]]


@pytest.mark.parametrize("seed", range(10))
def test_pairs_of_random_chains_come_back(seed: int) -> None:
    """Five ranks; exchanges end at least 60 µs after one another, clocks are up to 9 ms off."""
    random = Random(seed)
    free = [0] * 5
    exchanges: list[Exchange] = []
    true: list[list[int]] = [[] for _ in free]
    for _ in range(40):
        a = random.randrange(4)
        arrivals = {r: free[r] + random.randint(10, 200) for r in (a, a + 1)}
        end = max(max(arrivals.values()) + random.randint(20, 50), max((e for _, e in exchanges), default=0) + 60)
        exchanges.append((arrivals, end))
        free[a] = free[a + 1] = end
        true[a].append(a + 1)
        true[a + 1].append(a)
    ahead = [random.randint(-9_000, 9_000) for _ in free]
    assert peers(exchanged(5, exchanges, ahead)) == true


# --- waiting and transfer of operations whose times were written down by hand ----------------------------------------


#: Two ranks, three collectives (start, end; µs): rank 1 is late for a, rank 0 for b, c is in time.
TWO = {0: {"a": (0, 110), "b": (250, 270), "c": (400, 430)}, 1: {"a": (100, 110), "b": (200, 270), "c": (400, 430)}}


def ranks_of(
    times: Mapping[int, Mapping[str, tuple[int, int]]], group_ranks: tuple[int, ...], kind: str = "dp"
) -> list[RankSummary]:
    """Ranks with operations of one group, from … to … in µs; every one is exposed from its start to its end."""
    found = []
    for rank, own in times.items():
        start, end = (ints([t[i] for t in own.values()]) * US for i in (0, 1))
        rows = operations([{"name": name} for name in own])
        rows = replace(rows, start=start, end=end)
        found.append(
            summary(
                rank,
                operations=rows,
                groups=(group(group_ranks, kind),),
                exposed_op=np.arange(len(own)),
                exposed_start=start,
                exposed_end=end,
            )
        )
    return found


def waits_of(ranks: list[RankSummary], world: int) -> tuple[Matched, JobWaits]:
    matched = match(ranks, world)
    return matched, find_waits(matched, ranks)


def test_who_stays_shortest_waited_for_nobody() -> None:
    """Transfers: 10, 20, 30 µs; rank 0 waits 100 for a, rank 1 50 for b."""
    _, waits = waits_of(ranks_of(TWO, (0, 1)), 2)
    assert (waits.transfer / US).tolist() == [10, 20, 30, 10, 20, 30]
    assert (waits.wait / US).tolist() == [100, 0, 0, 0, 50, 0]
    assert not waits.unknown.any() and waits.known.all() and not waits.alone.any()


def test_the_last_to_come_is_named() -> None:
    matched, waits = waits_of(ranks_of(TWO, (0, 1)), 2)
    last = {
        int(matched.members[s]) % 3: int(matched.rank[op]) for s, op in zip(matched.starts, waits.last, strict=True)
    }
    assert (last[0], last[1]) == (1, 0)


def test_no_clock_is_needed() -> None:
    """Rank 1's clock is 7 s ahead."""
    ahead = {0: TWO[0], 1: {op: (s + 7_000_000, e + 7_000_000) for op, (s, e) in TWO[1].items()}}
    assert waits_of(ranks_of(ahead, (0, 1)), 2)[1].wait.tolist() == waits_of(ranks_of(TWO, (0, 1)), 2)[1].wait.tolist()


def test_with_a_missing_rank_waits_are_lower_bounds() -> None:
    """Rank 2 was not loaded: rank 0 waited 100 µs for rank 1 at least; the 10 both had may be waiting as well."""
    _, waits = waits_of(ranks_of(TWO, (0, 1, 2)), 3)
    assert (waits.wait / US).tolist() == [100, 0, 0, 0, 50, 0]
    assert (waits.unknown / US).tolist() == [10, 20, 30, 10, 20, 30]
    assert not waits.transfer.any() and not waits.known.any()


def test_what_nobody_else_has_is_unknown() -> None:
    only = {0: {"a": (0, 110), "x": (200, 230)}, 1: {"a": (100, 110)}}
    _, waits = waits_of(ranks_of(only, (0, 1)), 2)
    assert (waits.unknown / US).tolist() == [0, 30, 0]
    assert (waits.wait / US).tolist() == [100, 0, 0]


def test_a_group_of_one_only_transfers() -> None:
    _, waits = waits_of([*ranks_of({0: {"a": (0, 3)}}, (0,))], 2)
    assert waits.alone.all() and (waits.transfer / US).tolist() == [3] and not waits.wait.any()


def test_of_a_rooted_operation_the_shortest_stay_is_but_a_bound() -> None:
    """Rank 1 comes last and stays 10 µs; it may be the root, and have left before all was done."""
    ranks = ranks_of({0: {"a": (0, 110)}, 1: {"a": (100, 110)}}, (0, 1))
    rooted = [replace(r, operations=replace(r.operations, type=Labels.of(["broadcast"]))) for r in ranks]
    _, waits = waits_of(rooted, 2)
    assert (waits.wait / US).tolist() == [100, 0] and (waits.unknown / US).tolist() == [10, 10]
    assert not waits.transfer.any() and waits.known.all() and (waits.kept / US).tolist() == [10, 10]


@pytest.mark.parametrize("clocked", [True, False])
def test_where_each_rank_moves_its_own_part_only_a_clock_tells(clocked: bool) -> None:
    """Rank 0 waits 30 µs for rank 1 and then moves for 80; rank 1 moves for 10. The shortest stay said 100 and 10.

    Rank 1's clock is 7 s ahead, and residuals of 0.5 µs may be off by three times that.
    """
    ahead = 7_000_000
    times = {0: {"a": (0, 110), "b": (200, 210)}, 1: {"a": (ahead + 30, ahead + 40), "b": (ahead + 190, ahead + 210)}}
    ranks = ranks_of(times, (0, 1))
    kinds = Labels.of(["alltoallv", "allReduce" if clocked else "alltoallv"])
    ranks = [replace(r, operations=replace(r.operations, type=kinds)) for r in ranks]
    matched = match(ranks, 2)
    clocks = replace(align(matched, 2), residual=np.full(2, 500.0))
    waits = find_waits(matched, ranks, arrivals(matched, clocks))
    first = [0, 2]
    assert (waits.transfer + waits.wait + waits.unknown).tolist() == matched.stay.tolist()
    if clocked:
        assert (waits.wait[first] / US).tolist() == [28.5, 0]
        assert (waits.transfer[first] / US).tolist() == [78.5, 8.5]
        assert (waits.kept[first] / US).tolist() == [80, 10]
        assert int(matched.rank[waits.last[matched.instance[0]]]) == 1
    else:
        assert not waits.wait.any() and not waits.transfer.any() and waits.known.all()


def test_three_ranks_wait_for_the_last_one_each() -> None:
    times = {0: {"a": (0, 100)}, 1: {"a": (60, 100)}, 2: {"a": (95, 100)}}
    assert (waits_of(ranks_of(times, (0, 1, 2)), 3)[1].wait / US).tolist() == [95, 35, 0]


# --- exposed ---------------------------------------------------------------------------------------------------------


def exposed(times: Mapping[int, Mapping[str, tuple[int, int]]], window: tuple[int, int]) -> tuple[int, ...]:
    """Transfer, wait, unknown of rank 0 within a window, µs."""
    ranks = ranks_of(times, (0, 1))
    matched, waits = waits_of(ranks, 2)
    found = split_exposed(ranks[0], matched, waits, 0, *(ints([t]) * US for t in window))
    return tuple(int(v[0]) // US for v in (found.transfer, found.wait, found.unknown))


@pytest.mark.parametrize(
    ("window", "parts"),
    [
        ((0, 430), (60, 100, 0)),
        ((0, 40), (0, 40, 0)),  # the wait comes first
        ((60, 105), (5, 40, 0)),  # then the transfer
        ((105, 260), (15, 0, 0)),  # the end of a and half of b
        ((110, 250), (0, 0, 0)),
    ],
)
def test_exposed_communication_waits_first_then_transfers(window: tuple[int, int], parts: tuple[int, ...]) -> None:
    assert exposed(TWO, window) == parts


def test_what_compute_hides_is_the_wait_as_it_comes_first() -> None:
    """Exposed is only the end of rank 0's stay, from 90 to 110 µs: 10 of its wait, and the transfer."""
    ranks = ranks_of({0: {"a": (0, 110)}, 1: {"a": (100, 110)}}, (0, 1))
    ranks[0].exposed_start[:] = 90 * US
    matched, waits = waits_of(ranks, 2)
    found = split_exposed(ranks[0], matched, waits, 0, ints([0]), ints([200 * US]))
    assert (found.transfer.tolist(), found.wait.tolist()) == ([10 * US], [10 * US])


def test_windows_side_by_side_add_up() -> None:
    ranks = ranks_of(TWO, (0, 1))
    matched, waits = waits_of(ranks, 2)
    edges = ints(range(0, 431, 43)) * US
    found = split_exposed(ranks[0], matched, waits, 0, edges[:-1], edges[1:])
    assert (found.transfer.sum(), found.wait.sum()) == (60 * US, 100 * US)


def test_a_group_of_one_is_told_apart_as_transfer() -> None:
    ranks = told(
        {0: ["own/1", "dp/1"], 1: ["dp/1"]}, {"own/1": 3, "dp/1": 10}, [group([0], id="own"), group([0, 1], id="dp")]
    )
    matched, waits = waits_of(ranks, 2)
    found = split_exposed(ranks[0], matched, waits, 0, ints([0]), ints([100 * US]))
    assert (found.transfer[0] // US, found.alone[0] // US, found.wait[0]) == (13, 3, 0)


def test_waits_by_kind_of_group() -> None:
    groups = [group([0, 1], "tp", "t"), group([0, 1], "dp", "d"), group([0, 1], None, "77")]
    ops = {"t/1": 1, "d/1": 1, "77/1": 1}
    ranks = told(
        {0: ["t/1", "d/1", "77/1"], 1: [Work(5), "t/1", Work(7), "d/1", Work(9), "77/1"]}, ops, groups
    )  # rank 0 waits 5, 7 and 9 µs
    matched, waits = waits_of(ranks, 2)
    found = by_kind(matched, waits.wait, matched.rank == 0)
    assert found == {"tp": 5 * US, "dp": 7 * US, "group 77": 9 * US}
    assert kind_name(None, "") == "all ranks"


@pytest.mark.parametrize("seed", range(10))
def test_of_operations_at_once_the_one_that_began_first_owns_the_time(seed: int) -> None:
    """Nanosecond by nanosecond, for what compute does not hide."""
    random = np.random.default_rng(seed)
    start = np.sort(random.choice(200, 12, replace=False)).astype(np.int64)
    end = start + random.integers(1, 60, 12)
    rows = replace(operations([{}] * 12), start=start, end=end)
    hidden = random.random(300) < 0.3
    running = [[i for i in range(12) if start[i] <= t < end[i]] for t in range(300)]
    owner = [min(now) if now and not hidden[t] else -1 for t, now in enumerate(running)]
    free = np.flatnonzero(np.array(owner) >= 0).astype(np.int64)
    found, pieces = rank_summary._owners(rows, Intervals.union(free, free + 1))
    told_ = np.full(300, -1)
    for i, first, last in zip(found.tolist(), pieces.start.tolist(), pieces.end.tolist(), strict=True):
        told_[first:last] = i
    assert told_.tolist() == owner
