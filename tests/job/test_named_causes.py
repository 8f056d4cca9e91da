"""Ranks that are hard to find: among many, behind others, late in some steps only, or before the first one.

What is true comes from the simulator, which runs the job again without the fault (benchmarks/cluster_world.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cluster_files import FIRST_STEP, write
from cluster_job import Fault, Job, Jump
from cluster_world import Truth, gain_ns, simulate
from job_truth import Unseen, ask, draw

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.job import root_causes
from npuperf.model.job_result import Root
from npuperf.model.result import Result

DP8 = Job(dp=8, steps=6, layers=1, seed=11)


def analyzed(truth: Truth, folder: Path) -> Result:
    write(truth, folder)
    return run(AnalyzeRequest(path=folder, rules=("slow_rank",), workers=1, engine="serial"))


def blamed(result: Result) -> list[Root]:
    assert result.cluster is not None
    return [root for root in result.cluster.roots if root.kind in ("rank", "link", "group")]


def near(told: tuple[int, int] | None, true: int) -> bool:
    return told is not None and 0.95 * told[0] <= true <= 1.05 * told[1]


def test_a_slow_rank_is_found_among_many_that_wait_for_the_schedule(tmp_path: Path) -> None:
    """Four stages of 16: ranks of the last stages keep others waiting much longer by design than rank 5 does."""
    slow = Fault("compute", (5,), 1.2)
    truth = simulate(Job(pp=4, dp=16, micro_batches=8, steps=3, layers=1, hosts=8, seed=5, faults=(slow,)))
    (root,) = blamed(analyzed(truth, tmp_path))
    assert (root.ranks, root.why, root.steps) == ([5], "compute", [])
    assert gain_ns(truth, slow) > 0.02 * truth.step_ns
    assert near(root.gain_ns_per_step, gain_ns(truth, slow))


def test_behind_the_slowest_rank_stands_the_next(tmp_path: Path) -> None:
    """Mending rank 2 alone saves nothing, rank 1 is slower in every step; with that mended it saves what it costs."""
    first, second = Fault("compute", (1,), 1.6), Fault("compute", (2,), 1.15)
    truth = simulate(replace(DP8, faults=(first, second)))
    result = analyzed(truth, tmp_path)
    one, two = blamed(result)
    assert (one.ranks, two.ranks, two.why, one.gain_behind_ns_per_step) == ([1], [2], "compute", None)
    assert near(one.gain_ns_per_step, gain_ns(truth, first))
    assert gain_ns(truth, second) < 0.01 * truth.step_ns
    assert two.gain_ns_per_step is not None and two.gain_ns_per_step[1] < 0.01 * truth.step_ns
    left = simulate(replace(DP8, faults=(second,)))
    assert near(two.gain_behind_ns_per_step, gain_ns(left, second))
    told = next(f for f in result.findings if f.evidence["ranks"] == [2])
    assert "hidden behind others" in str(told.title)


@pytest.mark.parametrize("steps", [(0,), (3,), (1, 4), (0, 2, 5)], ids=str)
def test_a_rank_that_is_late_in_some_steps_is_named_with_them(steps: tuple[int, ...], tmp_path: Path) -> None:
    fault = Fault("compute", (5,), 1.6, steps=steps)
    truth = simulate(replace(DP8, faults=(fault,)))
    (root,) = blamed(analyzed(truth, tmp_path))
    numbers = [FIRST_STEP + step for step in steps]
    assert (root.ranks, root.why, root.steps) == ([5], "compute", numbers)
    assert near(root.gain_ns_per_step, gain_ns(truth, fault))
    assert f"in {len(steps)} of 6 steps ({', '.join(map(str, numbers))})" in str(root.title)
    assert str(root.next).endswith(f"npuperf analyze PATH --rank 5 --step {numbers[0]}")


def test_a_host_that_stops_once_is_named_with_the_step(tmp_path: Path) -> None:
    stop = Fault("stall", (3,), steps=(2,), ns=5_000_000, at=0.5)
    (root,) = blamed(analyzed(simulate(replace(DP8, trace=True, faults=(stop,))), tmp_path))
    assert (root.ranks, root.why, root.steps) == ([3], "host", [FIRST_STEP + 2])
    assert "longer for its host than its peers in 1 of 6 steps (12)" in str(root.title)


@pytest.mark.parametrize("seed", range(4))
def test_now_one_now_another_is_nobody(seed: int, tmp_path: Path) -> None:
    """Five ranks are late once each: nobody is named, and no rank is called lasting."""
    stops = tuple(Fault("stall", (rank,), steps=(rank,), ns=4_000_000) for rank in range(5))
    result = analyzed(simulate(replace(DP8, seed=seed, trace=True, faults=stops)), tmp_path)
    assert blamed(result) == []
    assert result.cluster is not None
    assert str(result.cluster.roots[0].title) == "now one rank is late, now another: no lasting cause"


def test_what_lies_before_the_first_kernel_counts(tmp_path: Path) -> None:
    """Without launches the first step begins with its first kernel: that rank 5 comes 6 ms later tell the clocks."""
    late = Fault("stall", (5,), steps=(0,), ns=6_000_000)
    truth = simulate(replace(DP8, faults=(late,)))
    (root,) = blamed(analyzed(truth, tmp_path))
    assert (root.ranks, root.why, root.steps) == ([5], "unknown", [FIRST_STEP])
    assert near(root.gain_ns_per_step, gain_ns(truth, late))
    assert root.evidence["begin_excess_ns_per_step"] * 6 == pytest.approx(6_000_000, rel=0.02)
    assert str(root.title).startswith("rank 5 begins 6.00 ms later than its peers")


EXPERTS = replace(DP8, seed=3, ep=4, tokens=0.3, layers=3, kernels=8, kernel_us=200.0, steps=3)


def test_a_late_begin_stands_out_though_experts_have_unequal_work(tmp_path: Path) -> None:
    """Three steps of experts whose work differs by more than the delay tell nothing; the beginning is one moment."""
    late = Fault("stall", (2,), steps=(0,), ns=4_000_000)
    truth = simulate(replace(EXPERTS, faults=(late,)))
    (root,) = blamed(analyzed(truth, tmp_path))
    assert (root.ranks, root.why, root.steps) == ([2], "unknown", [FIRST_STEP])
    assert near(root.gain_ns_per_step, gain_ns(truth, late))


def test_of_a_chosen_step_what_came_before_is_not_called_unrecorded(tmp_path: Path) -> None:
    """Stages begin their second step one after the other; the first step is there, and was not asked for."""
    job = Job(pp=2, dp=2, micro_batches=4, layers=1, seed=5, faults=(Fault("compute", (1,), 1.3),))
    cluster = run(AnalyzeRequest(path=write(simulate(job), tmp_path), step=FIRST_STEP + 1)).cluster
    assert cluster is not None
    (root,) = (root for root in cluster.roots if "begin at different times" in str(root.title))
    assert str(root.title) == "ranks begin at different times: why lies before what is looked at"
    assert str(root.next).startswith("look at earlier steps, too, or record")


PIPE = Job(pp=4, dp=1, micro_batches=6, layers=1, steps=5, seed=3)


def test_the_only_rank_of_a_stage_is_compared_with_its_own_other_steps(tmp_path: Path) -> None:
    """Its stage is not called too long for that: no work is moved for what two steps take longer."""
    fault = Fault("compute", (2,), 1.6, steps=(1, 3))
    truth = simulate(replace(PIPE, faults=(fault,)))
    result = analyzed(truth, tmp_path)
    (root,) = blamed(result)
    assert (root.ranks, root.why, root.steps) == ([2], "compute", [FIRST_STEP + 1, FIRST_STEP + 3])
    assert near(root.gain_ns_per_step, gain_ns(truth, fault))
    assert str(root.title).startswith("rank 2, the only one of its stage, computes ")
    assert result.cluster is not None
    assert not any(r.kind == "stage" and r.ranks == [2] for r in result.cluster.roots)


def test_the_only_rank_of_a_stage_that_begins_late_is_held_against_the_others(tmp_path: Path) -> None:
    late = Fault("stall", (2,), steps=(0,), ns=18_000_000)
    truth = simulate(replace(PIPE, faults=(late,)))
    (root,) = blamed(analyzed(truth, tmp_path))
    assert (root.ranks, root.steps) == ([2], [FIRST_STEP])
    assert near(root.gain_ns_per_step, gain_ns(truth, late))


def test_of_two_ranks_that_are_alike_in_the_other_steps_one_is_late_in_some(tmp_path: Path) -> None:
    """Two steps of four: that the two differ by a third there and by less than a hundredth elsewhere is no luck."""
    fault = Fault("compute", (3,), 1.4, steps=(0, 2))
    truth = simulate(Job(pp=2, dp=2, micro_batches=4, layers=1, steps=4, seed=8, faults=(fault,)))
    (root,) = blamed(analyzed(truth, tmp_path))
    assert (root.ranks, root.why, root.steps) == ([3], "compute", [FIRST_STEP, FIRST_STEP + 2])
    assert near(root.gain_ns_per_step, gain_ns(truth, fault))


def test_a_rank_without_kernels_waits_for_what_it_did_beside_compute(tmp_path: Path) -> None:
    """Gradients of rank 15 begin in another order than those of the peer that it is laid out like."""
    fault = Fault("compute", (25,), 1.68, steps=(0,))
    truth = simulate(replace(draw(1034).job, steps=3, faults=(fault,)))
    assert truth.job.bare == (15,) and truth.job.overlap
    (root,) = blamed(analyzed(truth, tmp_path))
    assert (root.ranks, root.steps) == ([25], [FIRST_STEP])
    assert near(root.gain_ns_per_step, gain_ns(truth, fault))


def test_a_slow_host_between_receive_and_send_is_mended_as_its_peers_do_both(tmp_path: Path) -> None:
    """Peers send right behind what they receive; a slow host launches the one late, which keeps the next stage."""
    job = draw(1006).job
    fault = next(fault for fault in job.faults if fault.kind == "host")
    truth = simulate(replace(job, steps=3, faults=(fault,)))
    assert truth.job.separate and fault.ranks == (57,)
    (root,) = blamed(analyzed(truth, tmp_path))
    assert root.ranks == [57]
    assert near(root.gain_ns_per_step, gain_ns(truth, fault))


def test_what_is_needed_of_exchanges_beside_compute_makes_a_gain_an_interval(tmp_path: Path) -> None:
    """Interleaved stages exchange while they compute: a stage that is never kept may be, once others are as long."""
    unseen = Unseen("interleaved", replace(draw(1045).job, steps=2))
    result = analyzed(unseen.truth, tmp_path)
    assert result.cluster is not None and unseen.balance is not None
    (root,) = (r for r in result.cluster.roots if r.kind == "stage")
    assert root.ranks == [0] and near(root.gain_ns_per_step, unseen.balance.gain_ns)
    assert f"stage {root.stage} is the longest: with equal stages" in str(result.verdict.reason)


def test_two_ranks_of_few_steps_are_no_pattern(tmp_path: Path) -> None:
    """Kernels that vary by a third: rank 0 is 8 % slower in two steps of three by luck, and there is nobody else."""
    job = Job(dp=2, steps=3, layers=2, seed=20, hosts=1, jitter=0.3, host_jitter=0.2, offset_ms=0.5)
    assert blamed(analyzed(simulate(job), tmp_path)) == []


def test_no_pair_of_stages_is_slow_because_its_ranks_are_in_two_machines(tmp_path: Path) -> None:
    """Ranks 0 to 3 are in one, 4 to 7 in the other: what goes between them takes longer, and no link is wrong.

    The host of rank 0 stops in two of three steps, by luck: that may be said.
    """
    truth = simulate(draw(11035, even=True).job)
    pairs = {
        ends: sum(op.transfer(ends[0]) for op in truth.operations if {*op.arrival} == {*ends})
        for ends in ((0, 2), (2, 4), (4, 6))
    }
    assert truth.job.hosts == 2 and pairs[2, 4] > 1.3 * max(pairs[0, 2], pairs[4, 6])
    roots = blamed(analyzed(truth, tmp_path))
    assert [root.kind for root in roots if root.ranks != [0]] == []


def test_groups_that_lie_otherwise_on_machines_are_not_compared(tmp_path: Path) -> None:
    """Of three groups of four ranks one spans two machines, and transfers over their network: that is no fault."""
    truth = simulate(Job(tp=4, dp=3, hosts=2, steps=3, kernels=2, layers=1, seed=1))
    assert blamed(analyzed(truth, tmp_path)) == []


def test_without_a_replay_waits_tell_who_is_late_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replayed(*_: object) -> None:
        raise AssertionError("the replay has no figures")

    monkeypatch.setattr(root_causes, "run", replayed)
    late = Fault("compute", (3,), 2.0, steps=(1, 4))
    write(simulate(replace(DP8, faults=(late,))), tmp_path)
    request = AnalyzeRequest(path=tmp_path, workers=1, engine="serial", thresholds={"replay_error": -1.0})
    (root,) = blamed(run(request))
    assert (root.ranks, root.steps, root.gain_ns_per_step) == ([3], [FIRST_STEP + 1, FIRST_STEP + 4], None)


def test_beside_a_slow_host_what_a_link_saves_is_at_most_that(tmp_path: Path) -> None:
    """While rank 0 waits for the link its host runs ahead; with the link repaired its device waits for it instead."""
    host, link = Fault("host", (0,), 20.0), Fault("link", (1, 2), 6.0)
    truth = simulate(Job(tp=4, steps=5, layers=2, seed=7, jitter=0.002, faults=(host, link)))
    found = {root.kind: root for root in blamed(analyzed(truth, tmp_path))}
    assert found.keys() == {"rank", "link"}
    least, most = found["link"].gain_ns_per_step or (1, 0)
    assert least == 0 < gain_ns(truth, link) < 0.9 * most
    assert near(found["rank"].gain_ns_per_step, gain_ns(truth, host))


def test_a_group_of_experts_is_slow_though_its_ranks_move_unlike_parts(tmp_path: Path) -> None:
    """All links of the group are three times as slow: none alone is why, and its time depends on what it moves."""
    slow = Fault("group", (4, 5, 6, 7), 3.0, group="exp")
    truth = simulate(Job(dp=8, ep=4, tokens=0.3, steps=3, layers=2, seed=3, hosts=2, faults=(slow,)))
    (root,) = blamed(analyzed(truth, tmp_path))
    assert (root.kind, root.ranks) == ("group", [4, 5, 6, 7])
    assert near(root.gain_ns_per_step, gain_ns(truth, slow))


def test_exchanges_are_paired_in_a_step_before_which_a_clock_was_set(tmp_path: Path) -> None:
    """They name no peer, and of what names its ranks there is one operation per step, too few to tell of a clock."""
    slow = Fault("compute", (2,), 1.9, steps=(2,))
    job = Job(pp=4, dp=1, schedule="gpipe", micro_batches=6, steps=3, layers=1, kernels=4, jitter=0.01, seed=7,
              jumps=(Jump(1, 2, 100.0),), faults=(slow,))  # fmt: skip
    truth = simulate(job)
    result = analyzed(truth, tmp_path)
    (root,) = blamed(result)
    assert (root.ranks, root.steps) == ([2], [FIRST_STEP + 2])
    assert near(root.gain_ns_per_step, gain_ns(truth, slow))


def test_what_may_save_nothing_stands_behind_what_surely_saves_nearly_as_much(tmp_path: Path) -> None:
    """Without the slow link rank 0 waits for its host instead: the link saves next to nothing while that is so."""
    host, link = Fault("host", (0,), 20.0), Fault("link", (1, 2), 5.0)
    truth = simulate(Job(tp=4, dp=1, steps=4, seed=2, jitter=0.002, faults=(host, link)))
    first, second = blamed(analyzed(truth, tmp_path))
    assert (first.ranks, second.ranks) == ([0], [1, 2])
    assert near(first.gain_ns_per_step, gain_ns(truth, host)) and near(second.gain_ns_per_step, gain_ns(truth, link))
    assert first.gain_ns_per_step is not None and second.gain_ns_per_step is not None
    assert second.gain_ns_per_step[1] > first.gain_ns_per_step[1] > gain_ns(truth, link)


def test_causes_stand_by_what_they_are_likely_to_save_however_sure_that_is(tmp_path: Path) -> None:
    """Beside the slow host of rank 6 nobody is sure of what rank 1 saves; they meet at the end of the step only."""
    slow, host = Fault("compute", (1,), 1.9, steps=(1,)), Fault("host", (6,), 16.0)
    truth = simulate(replace(DP8, kernels=8, jitter=0.002, faults=(slow, host)))
    first, second = blamed(analyzed(truth, tmp_path))
    assert (first.ranks, second.ranks) == ([1], [6])
    assert first.gain_ns_per_step is not None and second.gain_ns_per_step is not None
    assert gain_ns(truth, slow) > 1.5 * gain_ns(truth, host) > sum(first.gain_ns_per_step) / 2


def test_a_rank_that_is_late_as_nobody_else_is_named_beside_unequal_work(tmp_path: Path) -> None:
    """Experts get more tokens now here, now there, which costs more in all than the one delay."""
    late = Fault("stall", (5,), steps=(2,), ns=2_000_000)  # before its first kernel there: idle in the step before
    truth = simulate(Job(dp=8, ep=4, tokens=0.3, steps=4, layers=1, kernels=4, jitter=0.03, seed=3, faults=(late,)))
    result = analyzed(truth, tmp_path)
    (root,) = blamed(result)
    assert (root.ranks, root.steps) == ([5], [FIRST_STEP + 1])
    assert near(root.gain_ns_per_step, gain_ns(truth, late))
    assert result.cluster is not None
    nameless = next(root for root in result.cluster.roots if root.kind == "jitter")
    assert nameless.gain_ns_per_step is not None and root.gain_ns_per_step is not None
    assert nameless.gain_ns_per_step[1] > root.gain_ns_per_step[1]


def test_a_rank_late_in_some_steps_is_named_though_another_rank_of_its_stage_was_not_loaded(tmp_path: Path) -> None:
    """What the first stage waits for rank 6 is replayed as it was; but rank 6 waited for rank 7 as its peers did."""
    late = Fault("compute", (7,), 1.6, steps=(1, 3))
    job = Job(pp=2, dp=1, tp=4, micro_batches=4, steps=6, layers=1, kernels=4, jitter=0.01, seed=5, missing=(6,))
    truth = simulate(replace(job, faults=(late,)))
    (root,) = blamed(analyzed(truth, tmp_path / "late"))
    assert (root.ranks, root.steps) == ([7], [FIRST_STEP + 1, FIRST_STEP + 3])
    assert root.gain_ns_per_step is not None
    assert root.gain_ns_per_step[0] == 0 and gain_ns(truth, late) <= 1.05 * root.gain_ns_per_step[1]
    assert blamed(analyzed(simulate(job), tmp_path / "even")) == []


def test_ranks_slow_alike_are_named_where_another_is_late_in_one_of_few_steps(tmp_path: Path) -> None:
    """In its step half of the ranks are late: what is in the middle is none that is usual."""
    alike, late = Fault("compute", (0, 2, 7), 1.3), Fault("stall", (3,), steps=(0,), ns=3_000_000)
    truth = simulate(replace(DP8, steps=3, kernels=8, jitter=0.01, faults=(alike, late)))
    assert sorted(root.ranks for root in blamed(analyzed(truth, tmp_path))) == [[0, 2, 7], [3]]


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(12190, id="peers half of which are slow, and begin exchanges at other points than a slow host"),
        pytest.param(20083, id="four ranks each of which alone may be late by luck in the two steps all recorded"),
        pytest.param(20097, id="two of two ranks that are as late, one by its compute, one by its host"),
        pytest.param(21023, id="a rank alone in its stage, late in one of three steps: other stages vary as little"),
        pytest.param(17073, id="a slow host alone in its stage, a little slower in one of three steps"),
        pytest.param(17006, id="ranks alike beside exchanges that a clock which jumps keeps from being paired"),
        pytest.param(117057, id="nothing: three ranks with more tokens in the only two steps all recorded"),
        pytest.param(123123, id="nothing: a clock set in the last step, where one operation tells, and nobody waits"),
        pytest.param(18193, id="a rank late in one step, and another as others are now and then, with more tokens"),
        pytest.param(19084, id="nothing but a slow host and operator: a clock is set in the last step"),
        pytest.param(19078, id="a link that surely saves nearly as much as unequal stages may"),
        pytest.param(12086, id="a slow group before a stage of which a rank was not loaded, and waited as measured"),
    ],
)
def test_what_is_wrong_is_told_with_what_it_brings(seed: int) -> None:
    """As a second simulation without the fault tells."""
    assert ask(seed).missed == []
