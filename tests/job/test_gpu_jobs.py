"""Simulated jobs as PyTorch's own profiler records them on GPUs: what is said of them against what the simulator did.

The jobs and the checks are those of test_scenarios.py; only the files are others (benchmarks/cluster_traces.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_job import Fault, Job, groups
from cluster_scenarios import Scenario, scenarios
from cluster_traces import Library, Told, write_traces
from test_scenarios import causes, clocks, findings, lengths, partitions, sums, waiting

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.result import Result
from npuperf.show.job_text import run_line
from npuperf.show.language import text

BY_NAME = {s.name: s for s in scenarios()}
HELD: list[tuple[str, Told, Library]] = [
    ("dp8: nothing is wrong, a rank is missing", "kernels", "nccl"),
    ("pp3 dp2: rank 5 computes slowly", "kernels", "rccl"),
    ("pp3 dp2: rank 5 computes slowly", "operators", "nccl"),
    ("pp2 dp4: the host of rank 5 stalls once", "kernels", "nccl"),
    ("tp4 dp2: rank 1 is slow, few have kernels", "operators", "rccl"),
    ("pp2 tp2 dp2: rank 2 is slow, 1 is missing", "kernels", "rccl"),
    ("pp4 tp2 dp2: the host of rank 3 is slow, traced", "kernels", "nccl"),
]


def analyzed(path: Path) -> Result:
    return run(AnalyzeRequest(path=path, rules=("slow_rank",), workers=1))


@pytest.mark.parametrize(("name", "told", "library"), HELD)
def test_a_job_on_gpus_is_understood(name: str, told: Told, library: Library, tmp_path: Path) -> None:
    scenario: Scenario = BY_NAME[name]
    result = analyzed(write_traces(scenario.truth, tmp_path / "job", told, library))
    cluster = result.cluster
    assert cluster is not None
    checks = (lengths, waiting, clocks, causes)
    assert [error for check in checks for error in check(scenario, cluster)] == []
    assert [*sums(cluster), *partitions(result), *findings(scenario, result)] == []
    # Each of its groups is known with its ranks, and no operation of those that were loaded whole is left over.
    loaded = set(scenario.job.recorded())
    expected = {(g.kind, g.ranks) for g in groups(scenario.job) if set(g.ranks) & loaded and len(g.ranks) > 1}
    named = {"default_pg": "default_group"}
    found = {(named.get(g.kind or "", g.kind), tuple(g.ranks)) for g in cluster.groups if len(g.ranks) > 1}
    assert found <= expected
    assert not [g for g in cluster.groups if g.inferred or (g.complete and g.unmatched)]


def test_what_an_old_release_does_not_tell_stays_unknown(tmp_path: Path) -> None:
    """Two replicas of two shards: taken for one group of four, they would wait for ranks that they never talk to."""
    job = Job(pp=1, dp=2, tp=2, steps=2, faults=(Fault("compute", (3,), 1.4),))
    result = run(AnalyzeRequest(path=write_traces(job, tmp_path / "job", "nothing"), workers=1))
    assert result.cluster is None
    assert {d.window.comm_wait_ns for d in result.devices} == {0}
    assert any("no process group for" in str(m) for m in result.input.missing)
    (exposed,) = {str(f.next) for f in result.findings if f.rule == "exposed_communication" and f.next}
    assert "record the process groups" in exposed


def test_of_two_ranks_there_is_but_one_group(tmp_path: Path) -> None:
    scenario = Scenario("two", Job(dp=2, steps=3, faults=(Fault("compute", (1,), 1.3),)))
    result = analyzed(write_traces(scenario.truth, tmp_path / "job", "nothing"))
    assert result.cluster is not None
    assert [*waiting(scenario, result.cluster), *causes(scenario, result.cluster)] == []


@pytest.mark.parametrize("name", ["default_pg", "mesh_dp_shard", "mesh_dp_replicate", "DATA_PARALLEL_GROUP"])
def test_gradients_that_no_compute_hides_are_to_be_overlapped(name: str, tmp_path: Path) -> None:
    """Whatever the group over which they are reduced is called: by DDP, torchtitan's FSDP and HSDP, Megatron."""
    job = Job(dp=2, steps=2, layers=1, kernels=2, gradient_mb=90.0)
    folder = write_traces(job, tmp_path / "job", "kernels", "nccl")
    for file in folder.rglob("*.json"):
        file.write_text(file.read_text().replace("DATA_PARALLEL_GROUP_WITH_CP", name))
    result = run(AnalyzeRequest(path=folder, workers=1))
    (found,) = (f for f in result.findings if f.rule == "exposed_communication")
    assert str(found.next).startswith("let these transfers run beside compute")


def test_a_job_without_steps_is_not_said_to_have_one(tmp_path: Path) -> None:
    job = Job(dp=2, steps=2, layers=1, kernels=2)
    folder = write_traces(job, tmp_path / "job", "kernels", "nccl")
    for file in folder.rglob("*.json"):
        file.write_text(file.read_text().replace("ProfilerStep#", "a range "))
    result = run(AnalyzeRequest(path=folder, workers=1))
    assert result.cluster is not None and not any(d.steps for d in result.devices)
    said = text(run_line(result))
    assert said.startswith("2 ranks · no steps recorded · ") and said.endswith(" in all")
