"""Who is to blame for waiting, in jobs small enough to see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace
from ranks import US, Item, Work, group, ints, told

from npuperf.advise import load_thresholds
from npuperf.device.rank_summary import RankSummary
from npuperf.job.clocks import align
from npuperf.job.job_replay import JobProgram, build
from npuperf.job.job_study import JobStudy, study_job
from npuperf.job.lateness import Lateness, always_waiting, find_late, slow_alike
from npuperf.job.match import match
from npuperf.job.root_causes import RootCause
from npuperf.job.roots import WaitBlame, blame
from npuperf.job.waits import find_waits
from npuperf.model.communication import ProcessGroup

DP2 = [group([0, 1], "dp", "dp")]
#: Two pairs of shards (tp) with a copy each: ranks 0 and 2, and 1 and 3, have the same shard (dp).
SQUARE = [group([0, 1], "tp", "t0"), group([2, 3], "tp", "t1"), group([0, 2], "dp", "d0"), group([1, 3], "dp", "d1")]


def blamed(
    programs: Mapping[int, Sequence[Item]],
    transfer: Mapping[str, int],
    groups: list[ProcessGroup],
    begin: Mapping[int, int] | None = None,
) -> tuple[WaitBlame, dict[str, float]]:
    """What was waited for whom, µs: "3 compute", "3 host", "3 other", "3 begin", "group dp", "noise", "unknown"."""
    ranks = told(programs, transfer, groups, begin)
    matched = match(ranks, len(ranks))
    waits, clocks = find_waits(matched, ranks), align(matched, len(ranks))
    job = build(ranks, matched, waits, clocks)
    none = np.zeros(len(matched.start), np.int64), np.zeros(len(matched.groups), np.int64)
    found = blame(ranks, job, waits, clocks, *none)
    names = [f"{r} {why}" for why in ("compute", "host", "other", "begin") for r in range(len(ranks))]
    names += [*(f"group {g.id}" for g in matched.groups), "noise", "unknown"]
    totals = found.waits.sum(axis=(1, 2)) / US
    assert totals.sum() * US == pytest.approx(waits.wait.sum())
    return found, {n: round(v, 6) for n, v in zip(names, totals.tolist(), strict=True) if v}


def test_the_late_rank_is_blamed_for_what_it_did_longer() -> None:
    """Both work 100; rank 1 computes 30 more and waits 20 more for its host: 30 and 20 of the 50 that rank 0 waits."""
    programs = {0: ["dp/0", Work(100), "dp/1"], 1: ["dp/0", Work(130, 20), "dp/1"]}
    assert blamed(programs, {"dp/0": 5, "dp/1": 5}, DP2)[1] == {"1 compute": 30, "1 host": 20}


def test_what_it_did_shorter_does_not_count() -> None:
    """Rank 1 waits 60 for its host and computes 10 less: it is 50 late, because of its host."""
    programs = {0: ["dp/0", Work(100), "dp/1"], 1: ["dp/0", Work(90, 60), "dp/1"]}
    assert blamed(programs, {"dp/0": 5, "dp/1": 5}, DP2)[1] == {"1 host": 50}


def test_neither_compute_nor_host_is_other() -> None:
    programs = {0: ["dp/0", Work(100), "dp/1"], 1: ["dp/0", Work(100, other=40), "dp/1"]}
    assert blamed(programs, {"dp/0": 5, "dp/1": 5}, DP2)[1] == {"1 other": 40}


def test_not_who_came_last_but_who_made_it_late() -> None:
    """Rank 1 computes 100 longer; its shard mate 0 waits for it and so comes late to rank 2, 3 waits for 1 itself."""
    programs: dict[int, list[Item]] = {
        r: [f"t{r // 2}/0", f"d{r % 2}/0", Work(300 if r == 1 else 200), f"t{r // 2}/1", f"d{r % 2}/1"]
        for r in range(4)
    }
    transfer = {f"{g}/{i}": 10 for g in ("t0", "t1", "d0", "d1") for i in (0, 1)}
    assert blamed(programs, transfer, SQUARE)[1] == {"1 compute": 300}


def test_blame_is_handed_on_over_several_groups() -> None:
    """All meet, then 0 meets 1, 1 meets 2, 2 meets 3. Rank 0 computes 90 longer, transfers are 10.

    Rank 1 waits 90; rank 2 these 90 and the first transfer; rank 3 these 100 and the second.
    """
    groups = [group(range(4), "all", "all"), *(group([a, a + 1], f"g{a}", f"g{a}") for a in range(3))]
    programs: dict[int, list[Item]] = {
        0: ["all/0", Work(100), "g0/1"],
        1: ["all/0", Work(10), "g0/1", "g1/1"],
        2: ["all/0", Work(10), "g1/1", "g2/1"],
        3: ["all/0", Work(10), "g2/1"],
    }
    found = blamed(programs, {"all/0": 5, "g0/1": 10, "g1/1": 10, "g2/1": 10}, groups)[1]
    assert found == {"0 compute": 270, "group g0": 20, "group g1": 10}


def test_a_slow_transfer_elsewhere_is_blamed_on_its_group() -> None:
    """Shards 0 and 1 take 70 longer over their tp operation than 2 and 3: those wait in dp, for group t0."""
    programs: dict[int, list[Item]] = {r: [f"d{r % 2}/0", Work(50), f"t{r // 2}/1", f"d{r % 2}/1"] for r in range(4)}
    transfer = {"d0/0": 5, "d1/0": 5, "t0/1": 80, "t1/1": 10, "d0/1": 5, "d1/1": 5}
    assert blamed(programs, transfer, SQUARE)[1] == {"group t0": 140}


def test_what_kept_it_with_a_rank_that_is_not_here_is_unknown() -> None:
    """Rank 1 stays 70 in an operation with rank 2, of which nobody knows how much of it was waiting."""
    programs: dict[int, list[Item]] = {0: ["dp/0", Work(100), "dp/1"], 1: ["dp/0", Work(100), "x/0", "dp/1"]}
    groups = [*DP2, group([1, 2], "x", "x")]
    assert blamed(programs, {"dp/0": 5, "dp/1": 5, "x/0": 70}, groups)[1] == {"unknown": 70}


def test_each_step_counts_from_the_last_time_together() -> None:
    """Rank 1 is 40 late, then rank 0 is 25 late: each is blamed for its own."""
    programs = {
        0: ["dp/0", Work(100), "dp/1", Work(125), "dp/2"],
        1: ["dp/0", Work(140), "dp/1", Work(100), "dp/2"],
    }
    assert blamed(programs, {f"dp/{i}": 5 for i in range(3)}, DP2)[1] == {"1 compute": 40, "0 compute": 25}


def test_a_late_beginning_is_its_ranks() -> None:
    """Rank 1 begins 80 µs later: the clocks, whose ends meet in dp/1, prove it, whatever it did before."""
    programs: dict[int, list[Item]] = {0: [Work(100), "dp/1"], 1: [Work(100), "dp/1"]}
    assert blamed(programs, {"dp/1": 5}, DP2, {1: 80})[1] == {"1 begin": 80}


def test_what_is_shorter_than_clocks_can_tell_is_noise() -> None:
    """Waits below half a microsecond name nobody."""
    ranks = told({0: ["dp/0", Work(100), "dp/1"], 1: ["dp/0", Work(100), "dp/1"]}, {"dp/0": 5, "dp/1": 5}, DP2)
    ranks[0].operations.start[1] -= 400  # ns
    matched = match(ranks, 2)
    waits, clocks = find_waits(matched, ranks), align(matched, 2)
    none = np.zeros(4, np.int64), np.zeros(1, np.int64)
    found = blame(ranks, build(ranks, matched, waits, clocks), waits, clocks, *none)
    assert found.waits[found.noise].sum() == waits.wait.sum() == 400


@pytest.mark.parametrize("seed", range(25))
def test_all_waiting_is_blamed_and_none_on_who_was_as_quick_as_all(seed: int) -> None:
    """Random work on four ranks; ranks 0 and 2 do the least of all everywhere: they delay nobody."""
    random = Random(seed)
    programs: dict[int, list[Item]] = {r: [f"t{r // 2}/0", f"d{r % 2}/0"] for r in range(4)}
    transfer = {f"{g}/0": 7 for g in ("t0", "t1", "d0", "d1")}
    for n in range(1, 8):
        kind, least = random.choice("td"), random.randint(1, 100)
        for r in range(4):
            more = Work(random.randint(0, 50), random.randint(0, 50), random.randint(0, 50)) if r % 2 else Work()
            op = f"{kind}{r // 2 if kind == 't' else r % 2}/{n}"
            programs[r] += [Work(least + more.compute, more.host, more.other), op]
            transfer[op] = 9
    _, found = blamed(programs, transfer, SQUARE)  # checks the sum
    assert not {name for name in found if name.startswith(("0 ", "2 "))}
    assert "unknown" not in found


# --- roots, named and repaired ---------------------------------------------------------------------------------------


def study(
    programs: Mapping[int, Sequence[Item]], transfer: Mapping[str, int], groups: list[ProcessGroup], **more: object
) -> JobStudy:
    found = study_job(told(programs, transfer, groups, **more), load_thresholds())  # type: ignore[arg-type]
    assert found is not None
    return found


def dp4(*work: Work, times: int = 5) -> JobStudy:
    """Ranks of one group that do the same work some times, each followed by a collective of 10 µs."""
    programs: dict[int, list[Item]] = {
        r: ["dp/0", *(item for n in range(1, times + 1) for item in (w, f"dp/{n}"))] for r, w in enumerate(work)
    }
    transfer = {f"dp/{n}": 10 for n in range(times + 1)}
    return study(programs, transfer, [group(range(len(work)), "dp", "dp")])


def only(job: JobStudy) -> RootCause:
    (found,) = job.causes
    return found


def test_a_slow_rank_costs_the_job_what_it_is_longer() -> None:
    """Five times 100 µs against 60: the others wait 3 · 5 · 40, and the job of 5 · 110 + 10 gains 5 · 40."""
    job = dp4(Work(60), Work(60), Work(100), Work(60))
    root = only(job)
    assert (job.length, job.error) == (560 * US, 0)
    assert (root.kind, root.places, root.why, root.wait) == ("rank", (2,), "compute", 600 * US)
    assert root.gain is not None and root.gain[0] <= 200 * US <= root.gain[1] and root.gain[1] < 210 * US
    assert root.excess == 200 * US


def test_a_slow_host_is_told_from_slow_compute() -> None:
    root = only(dp4(Work(60), Work(60, 40), Work(60), Work(60)))
    assert (root.places, root.why) == ((1,), "host")
    assert root.parts == {"compute": 0, "host": 200 * US, "unknown": 0}


def test_two_slow_ranks_hide_each_other() -> None:
    """100 and 90 against 60: mending the slower one gains 10 only, the other one nothing, both 40 of 5 steps."""
    job = dp4(Work(60), Work(100), Work(90), Work(60), Work(60))
    named = [c for c in job.causes if c.kind == "rank"]
    assert [c.places for c in named] == [(1, 2)]
    assert named[0].gain is not None and named[0].gain[0] <= 200 * US <= named[0].gain[1]


def test_equal_ranks_have_no_root() -> None:
    assert dp4(Work(60), Work(60), Work(60), Work(60)).causes == ()


def test_now_one_now_another_is_no_lasting_cause() -> None:
    """Each of four ranks is 40 late once: nobody takes longer than the others in all."""
    programs: dict[int, list[Item]] = {
        r: ["dp/0", *(item for n in range(4) for item in (Work(100 if n == r else 60), f"dp/{n + 1}"))]
        for r in range(4)
    }
    job = study(programs, {f"dp/{n}": 10 for n in range(5)}, [group(range(4), "dp", "dp")])
    root = only(job)
    assert (root.kind, root.places, root.wait) == ("jitter", (), 4 * 3 * 40 * US)
    # All at the usual pace: 4 · 40 µs less.
    assert root.gain is not None and root.gain[0] == 0 and root.gain[1] == pytest.approx(160 * US, rel=0.05)


def test_waits_of_causes_add_up() -> None:
    job = dp4(Work(60), Work(60, 25, 3), Work(100), Work(61), Work(58))
    assert sum(c.wait for c in job.causes) == pytest.approx(job.waits.wait.sum())


def test_without_a_common_operation_there_is_no_job() -> None:
    ranks = told({0: ["a/0"], 1: ["b/0"]}, {"a/0": 5, "b/0": 5}, [group([0], None, "a"), group([1], None, "b")])
    assert study_job(ranks, load_thresholds()) is None
    assert study_job(ranks[:1], load_thresholds()) is None


def test_a_missing_slow_rank_leaves_nobody_else_blamed() -> None:
    """Rank 3 of four was not loaded; the others come together and stay 50 µs: nobody waited for one of them."""
    programs: dict[int, list[Item]] = {r: ["dp/0", Work(100), "dp/1"] for r in range(3)}
    job = study(programs, {"dp/0": 10, "dp/1": 50}, [group(range(4), "dp", "dp")])
    assert job.causes == () and job.waits.unknown.sum() == 3 * 60 * US


def outside_of_steps(works: Mapping[int, Sequence[int]], steps: Sequence[int]) -> tuple[list[RankSummary], JobProgram]:
    """Ranks without kernels that work so long (µs) between their operations, of which each is of the step given."""
    programs: dict[int, list[Item]] = {
        r: [item for i, us in enumerate(own) for item in (f"dp/{i}", Work(us))] + [f"dp/{len(own)}"]
        for r, own in works.items()
    }
    ranks = [
        replace(r, operations=replace(r.operations, step=ints(steps)), span_ns=r.end - r.begin,
                step_number=ints(sorted({s for s in steps if s >= 0})))
        for r in told(programs, {f"dp/{i}": 5 for i in range(len(steps))}, [group([*works], "dp", "dp")])
    ]  # fmt: skip
    matched = match(ranks, len(ranks))
    clocks = align(matched, len(ranks))
    return ranks, build(ranks, matched, find_waits(matched, ranks), clocks)


def test_who_is_waiting_in_every_step_waits_for_others_and_not_for_data() -> None:
    """Rank 0 waits 100 µs per step for rank 1; the data of 2 and 3 is 500 µs on its way, and they wait for nobody."""
    work = (405, 505, 10, 10)
    programs = {r: [i for n in range(4) for i in (Work(work[r]), f"{'ab'[r // 2]}/{n}", f"c/{n}")] for r in range(4)}
    transfer = {f"{name}/{n}": us for n in range(4) for name, us in (("a", 5), ("b", 500), ("c", 5))}
    groups = [group([0, 1], None, "a"), group([2, 3], None, "b"), group(range(4), None, "c")]
    ranks = [replace(r, operations=replace(r.operations, step=ints(sorted([*range(4)] * 2))))
             for r in told(programs, transfer, groups)]  # fmt: skip
    matched = match(ranks, 4)
    job = build(ranks, matched, find_waits(matched, ranks), align(matched, 4))
    found, waited = always_waiting(job, np.zeros(4, np.int64), 1.0)
    assert (found.tolist(), waited) == ([0], 4 * 100 * US)


def test_what_is_outside_of_all_steps_is_no_step() -> None:
    """Rank 3 is 800 µs late before an operation of no step, and rank 0 waits there and in the only step."""
    ranks, job = outside_of_steps({**{r: [100] * 5 for r in range(3)}, 3: [900, *[100] * 4]}, [-1, -1, 0, 1, 2, 3])
    late = find_late(ranks, job, np.zeros(4, np.int64))
    assert (late.steps.tolist(), late.some_steps(3)) == ([0, 1, 2, 3], ())
    _, once = outside_of_steps({0: [100, 100], **{r: [900, 900] for r in (1, 2, 3)}}, [-1, -1, 0])
    assert always_waiting(once, np.zeros(4, np.int64), 1.0)[0].tolist() == []
    _, twice = outside_of_steps({0: [100, 100], **{r: [900, 900] for r in (1, 2, 3)}}, [-1, 0, 1])
    assert always_waiting(twice, np.zeros(4, np.int64), 1.0)[0].tolist() == [0]


def test_a_step_in_which_something_else_kept_it_makes_a_rank_no_less_late() -> None:
    """Rank 3 takes 20 µs longer than its peers in each of six or five steps, and 200 in one of them."""
    for late, steady in (([120, 120, 300, 120, 120, 120], [3]), ([120, 120, 300, 120, 120], [3]),
                         ([100, 100, 300, 100, 120, 100], [])):  # fmt: skip
        ranks, job = outside_of_steps({**{r: [100] * len(late) for r in range(3)}, 3: late}, [*range(-1, len(late))])
        assert np.flatnonzero(find_late(ranks, job, np.zeros(4, np.int64)).steady).tolist() == steady


def test_a_rank_is_late_in_all_steps_however_much_that_varies() -> None:
    """Peers take 100 µs each time; rank 3 takes 20, 60 and 80 longer, or in one step only 5."""
    for late, steady in (([120, 160, 180], [3]), ([105, 160, 180], [])):
        ranks, job = outside_of_steps({**{r: [100] * 3 for r in range(3)}, 3: late}, [*range(-1, 3)])
        assert np.flatnonzero(find_late(ranks, job, np.zeros(4, np.int64)).steady).tolist() == steady


def test_a_rank_alone_in_its_stage_is_late_in_one_step_and_not_in_all() -> None:
    """Rank 3 takes 900 µs instead of 100 in the third of four steps; each rank is the only one of its stage."""
    ranks, job = outside_of_steps({**{r: [100] * 4 for r in range(3)}, 3: [100, 100, 900, 100]}, [*range(-1, 4)])
    late = find_late(ranks, job, np.arange(4))
    assert [late.some_steps(r) for r in range(4)] == [(), (), (), (2,)]
    assert late.steady.tolist() == [True, True, True, False]
    assert late.whole.tolist() == [0, 0, 0, 800 * US]


@pytest.mark.parametrize(
    ("own", "others", "steps"),
    [
        ((0, 12_000, 60), (0, -50, 60), (11,)),  # of three values as far off as 50 or 60, 12,000 is none
        ((0, 12_000, 60), (0, -50, 4_000), ()),  # it is less than 3 times 1.48 times the median of 50 and 4,000
        ((0, 12_000, 10), (0, -1_600, 1_600), ()),  # 5 times as much as others vary is not sure, of three
        ((1_000, 12_000, 0), (0, -50, 60), (11,)),  # a twelfth of it is like in the other steps
        ((4_000, 12_000, 0), (0, -50, 60), ()),  # a third is not
    ],
)
def test_in_which_steps_a_rank_alone_is_late(
    own: tuple[int, ...], others: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    """As Student's t has it, with one degree of freedom of its own, and two of another rank alone."""
    by_step, alone = np.array([own, others], np.float64), np.ones(2, np.bool_)
    excess = np.array([[0.0, 0.0, 12_000, 0], [0, 0, 0, 0]])
    late = Lateness(excess, excess, by_step, np.array([10, 11, 12]), alone, np.arange(2), alone, ~alone)
    assert late.some_steps(0) == steps


def test_ranks_are_slow_alike_beside_one_that_was_named_already() -> None:
    """Ranks 3 to 5 take 30 µs longer than seven in each of four steps, rank 4 a little more."""
    ranks, job = outside_of_steps({r: [130 + (r == 4) if 3 <= r < 6 else 100] * 4 for r in range(10)}, [*range(-1, 4)])
    late = find_late(ranks, job, np.zeros(10, np.int64))
    found = [[places for places, _ in slow_alike(late, 100.0 * US, named)] for named in ([], [4], [3, 4])]
    assert found == [[(3, 4, 5)], [(3, 5)], []]


def test_who_begins_late_is_mended_beside_who_works_longer_and_begins_a_little_later() -> None:
    """Rank 5 begins 1200 µs late, rank 4 60; of 8 times 100 µs rank 3 takes 20 longer, rank 4 100.

    Without 5 the first operation waits for 60 + 200 instead of 1300, without 4 seven ones for 120 instead of 200; only
    once both are like their peers eight do for rank 3.
    """
    programs = {r: [item for n in range(8) for item in (Work(us), f"dp/{n}")]
                for r, us in enumerate((100, 100, 100, 120, 200, 100))}  # fmt: skip
    transfer = {f"dp/{n}": 10 for n in range(8)}
    ranks = [replace(r, operations=replace(r.operations, step=ints(range(8))), step_number=ints(range(8)),
                     span_ns=r.end - r.begin)
             for r in told(programs, transfer, [group(range(6), "dp", "dp")], {4: 60, 5: 1200})]  # fmt: skip
    job = study_job(ranks, load_thresholds())
    assert job is not None
    assert [(c.places, c.saved / US, c.behind and sum(c.behind) / 2 / US) for c in job.causes] == [
        ((5,), 1040, None),
        ((4,), 7 * 80, None),
        ((3,), 0, 8 * 20),
    ]
