"""Several ranks that are slow alike: each alone costs nothing, together they set the pace (simulated, as scenarios)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from cluster_files import write
from cluster_job import Fault, Job
from cluster_world import gain_ns, simulate

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.result import Result


def analyze(job: Job, folder: Path) -> Result:
    write(job, folder)
    return run(AnalyzeRequest(path=folder, rules=("slow_rank",)))


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (Job(dp=4, faults=(Fault("compute", (1, 3), 1.4),)), "compute"),
        (Job(dp=4, trace=True, faults=(Fault("host", (1, 3), 40.0),)), "host"),
        (Job(tp=2, dp=4, faults=(Fault("compute", (2, 3), 1.4),)), "compute"),
        (Job(dp=8, hosts=2, steps=1, faults=(Fault("compute", (4, 5, 6, 7), 1.4),)), "compute"),
        (Job(pp=2, dp=4, micro_batches=4, layers=1, faults=(Fault("compute", (4, 5), 1.5),)), "compute"),
    ],
    ids=["two of four", "two hosts", "a group of shards", "half, one step", "in a stage"],
)
def test_they_are_named_together(job: Job, why: str, tmp_path: Path) -> None:
    result = analyze(job, tmp_path)
    cluster, (fault,) = result.cluster, job.faults
    assert cluster is not None
    root = next(r for r in cluster.roots if r.kind == "rank")
    assert (tuple(root.ranks), root.why) == (fault.ranks, why)
    assert root.gain_ns_per_step is not None
    low, high = root.gain_ns_per_step
    assert 0.95 * low <= gain_ns(simulate(job), fault) <= 1.05 * high
    assert sum(r.wait_ns for r in cluster.roots) == pytest.approx(sum(r.comm.wait_ns for r in cluster.ranks), abs=1)
    numbers = ", ".join(map(str, fault.ranks))
    assert f"ranks {numbers} set the pace" in str(result.verdict.reason)
    assert [f.rank for f in result.findings if f.evidence["kind"] == "rank"] == [None]


@pytest.mark.parametrize("seed", range(3))
def test_luck_makes_no_slow_ranks(seed: int, tmp_path: Path) -> None:
    """Every step, other ranks are late: hosts that stall at random."""
    stalls = Fault("stalls", share=0.3, ns=3_000_000)
    cluster = analyze(Job(dp=8, steps=5, seed=seed, faults=(stalls,)), tmp_path).cluster
    assert cluster is not None
    assert not [r for r in cluster.roots if r.kind == "rank"]


def test_a_delay_that_travels_over_several_groups_is_its_own(tmp_path: Path) -> None:
    """Rank 5 is waited for by its shard, by its replica, and by the other stage; the rest is the schedule's."""
    job = Job(pp=2, tp=2, dp=2, micro_batches=4, faults=(Fault("compute", (5,), 1.4),))
    truth, cluster = simulate(job), analyze(job, tmp_path).cluster
    assert cluster is not None
    root = next(r for r in cluster.roots if r.kind == "rank")
    own = truth.wait_ns() - truth.clean.wait_ns()
    assert root.ranks == [5] and root.wait_ns == pytest.approx(own, rel=0.03)
    assert sum(r.share for r in cluster.roots) == pytest.approx(1)


def test_hosts_of_a_whole_stage_are_named(tmp_path: Path) -> None:
    """Both ranks of stage 0 are slow on the host: they have no peers in their stage, and it is not the schedule."""
    fault = Fault("host", (0, 1), 40.0)
    job = Job(pp=2, dp=2, micro_batches=4, layers=1, trace=True, faults=(fault,))
    cluster = analyze(job, tmp_path).cluster
    assert cluster is not None
    root = cluster.roots[0]
    assert (root.kind, root.ranks, root.why) == ("rank", [0, 1], "host")
    assert root.gain_ns_per_step is not None
    assert root.gain_ns_per_step[1] == pytest.approx(gain_ns(simulate(job), fault), rel=0.2)
    assert sum(r.share for r in cluster.roots) == pytest.approx(1)


def test_a_rank_that_is_late_at_the_end_of_steps_is_late_in_all(tmp_path: Path) -> None:
    """Others wait for the optimizer of rank 6 only in the next step, so for that of the last one never."""
    late = Fault("compute", (6,), 1.8, operator="ApplyAdamWV2")
    early = Fault("compute", (1,), 1.8, operator="FlashAttentionScore")
    cluster = analyze(Job(tp=2, dp=4, faults=(late, early)), tmp_path).cluster
    assert cluster is not None
    assert {tuple(r.ranks) for r in cluster.roots if r.kind == "rank"} == {(6,), (1,)}
