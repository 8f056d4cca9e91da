"""Simulated jobs and folders that are none: what is said of them, and what they gain."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_files import write
from cluster_job import Fault, Job
from cluster_world import gain_ns, simulate
from msgspec.structs import replace
from ranks import MS, group, operations, summary

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.device.rank_summary import RankSummary
from npuperf.job.job_steps import in_one_count
from npuperf.job.pipeline import likely_pipelines, named_pipelines
from npuperf.model.job_result import Cluster
from npuperf.model.result import Result
from npuperf.show.formats import View, render


def analyze(job: Job, folder: Path, change: Callable[[Path, int], None] | None = None) -> Result:
    write(job, folder)
    for rank in range(job.world) if change else ():
        change(folder / f"rank_{rank}_ascend_pt", rank)
    return run(AnalyzeRequest(path=folder))


def job_of(result: Result) -> Cluster:
    assert result.cluster is not None
    return result.cluster


def titles(result: Result) -> list[str]:
    return [str(r.title) for r in job_of(result).roots if r.share > 0.5]


def test_a_few_fast_ranks_are_no_luck(tmp_path: Path) -> None:
    """Five of eight take 1.4 times as long: the other three wait in every step, and there is nobody to blame."""
    job = Job(dp=8, faults=(Fault("compute", (0, 1, 2, 3, 4), 1.4),))
    assert titles(analyze(job, tmp_path)) == [
        "ranks 5, 6, 7 wait for the others in every step: most ranks take longer than these"
    ]


def test_of_one_step_nobody_says_what_lasts(tmp_path: Path) -> None:
    job = Job(dp=4, steps=1, jitter=0.05)
    assert titles(analyze(job, tmp_path)) == ["no rank stands out; one step cannot tell what lasts"]


def test_a_slow_rank_of_interleaved_stages_works_like_its_peers_where_they_do(tmp_path: Path) -> None:
    """It is slow in the forward only, and its peers are blocked at other operations."""
    fault = Fault("compute", (5,), 2.3, operator="SwiGlu")
    job = Job(pp=3, dp=4, schedule="interleaved", micro_batches=3, layers=1, jitter=0.002, seed=3, faults=(fault,))
    (root,) = (root for root in job_of(analyze(job, tmp_path)).roots if root.kind == "rank")
    assert (root.ranks, root.why) == ([5], "compute")
    assert root.gain_ns_per_step is not None
    assert sum(root.gain_ns_per_step) / 2 == pytest.approx(gain_ns(simulate(job), fault), rel=0.05)


def renumber(folder: Path, rank: int) -> None:
    """Let every rank count its steps from another number on."""
    results = folder / "ASCEND_PROFILER_OUTPUT"
    for name in ("communication.json", "communication_matrix.json"):
        steps = json.loads((results / name).read_text())
        moved = {f"step{int(key[4:]) + 100 * rank}": value for key, value in steps.items()}
        (results / name).write_text(json.dumps(moved))
    for name, column in (("kernel_details.csv", "Step Id"), ("step_trace_time.csv", "Step")):
        with (results / name).open(newline="") as file:
            rows = list(csv.DictReader(file))
        with (results / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows({**row, column: str(int(row[column]) + 100 * rank)} for row in rows)


def test_ranks_may_count_their_steps_from_other_numbers(tmp_path: Path) -> None:
    job = Job(dp=4, steps=3)
    cluster = job_of(analyze(job, tmp_path, renumber))
    assert cluster.steps == 3
    assert cluster.step_ns == pytest.approx(simulate(job).step_ns, rel=0.01)


def test_steps_in_common_are_left_as_they_are() -> None:
    ranks = [summary(r, step_number=np.array([10 + r, 11 + r])) for r in range(2)]
    assert in_one_count(ranks) == ranks


def test_ranks_that_say_they_are_the_same_are_no_job(tmp_path: Path) -> None:
    def same(folder: Path, rank: int) -> None:
        info = folder / f"profiler_info_{rank}.json"
        (folder / "profiler_info_0.json").write_text(json.dumps({**json.loads(info.read_text()), "rank_id": "0"}))
        if rank:
            info.unlink()
        (folder / "profiler_metadata.json").unlink()

    result = analyze(Job(dp=4, steps=2), tmp_path, same)
    assert result.cluster is None
    said = "several folders say that they are rank 0, so they are not looked at as one job"
    assert [str(w) for w in result.input.warnings] == [said]


def test_a_rank_of_another_time_is_named(tmp_path: Path) -> None:
    """The clock of rank 1 is ten seconds late, or so it seems: the job lasts a few hundredths of a second."""

    def later(folder: Path, rank: int) -> None:
        if rank != 1:
            return
        table = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            whole, part = row["Start Time(us)"].strip().split(".")
            row["Start Time(us)"] = f"{int(whole) + 10 * 1000 * MS // 1000}.{part}\t"
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    cluster = job_of(analyze(Job(dp=4, steps=2), tmp_path, later))
    assert str(cluster.notes[0]).startswith("times of rank 1 are up to 10.00 s from the others'")


def test_one_step_of_several_is_one(tmp_path: Path) -> None:
    write(Job(dp=4, steps=3), tmp_path)
    whole, one = (run(AnalyzeRequest(path=tmp_path, step=step)).cluster for step in (None, 11))
    assert whole is not None and one is not None
    assert (whole.steps, one.steps) == (3, 1)
    assert one.step_ns == pytest.approx(whole.step_ns, rel=0.02)


def test_who_was_not_loaded_may_be_as_slow(tmp_path: Path) -> None:
    """Ranks 1 and 2 are slow alike; where 2 was not loaded, mending 1 may bring all or nothing: truly nothing."""
    job = Job(dp=4, missing=(2,), faults=(Fault("compute", (1, 2), 1.4),))
    cluster = job_of(analyze(job, tmp_path))
    (root,) = (r for r in cluster.roots if r.kind == "rank")
    assert root.ranks == [1]
    assert root.gain_ns_per_step is not None and root.gain_ns_per_step[0] == 0 < root.gain_ns_per_step[1]


def test_a_rank_that_is_asked_for_and_not_there_is_named(tmp_path: Path) -> None:
    write(Job(dp=2, steps=2), tmp_path)
    result = run(AnalyzeRequest(path=tmp_path, ranks=(0, 1, 7)))
    assert "rank 7 is not among the profiles at this path" in [str(w) for w in result.input.warnings]


def test_why_a_rank_that_is_there_was_not_loaded_is_told_in_short(tmp_path: Path) -> None:
    def spoil(folder: Path, rank: int) -> None:
        if rank == 1:
            for file in (folder / "ASCEND_PROFILER_OUTPUT").iterdir():
                file.unlink()
                os.mkfifo(file)

    whole = "".join(render(analyze(Job(dp=4, steps=2), tmp_path / "whole"), "text").split())
    result = analyze(Job(dp=4, steps=2), tmp_path / "job", spoil)
    short = "".join(render(result, "text").split())  # however it is wrapped
    assert "couldnotberead" not in whole and job_of(result).absent == [1]
    assert "1sourcecouldnotberead:" in short and "apipe,notafile" in short


def test_what_a_waiting_rank_saves_alone_may_be_nothing(tmp_path: Path) -> None:
    """Each rank syncs at its steps' ends; while all wait for the host of rank 2, that costs nothing."""
    job = Job(dp=4, trace=True, faults=(Fault("host", (2,), 40.0),))
    found = [f for f in analyze(job, tmp_path).findings if f.rule == "sync_points" and f.rank != 2]
    assert {f.rank for f in found} == {0, 1, 3}
    assert all(f.gain_ns_per_step and f.gain_ns_per_step[0] == 0 for f in found)


def test_ranks_that_wait_for_a_named_one_have_no_line_of_their_own(tmp_path: Path) -> None:
    """Two replicas, one slow: the other waits in every step, and why is said already."""
    job = Job(pp=2, dp=2, micro_batches=4, layers=1, faults=(Fault("compute", (1,), 1.15),))
    cluster = job_of(analyze(job, tmp_path))
    assert not [r for r in cluster.roots if r.kind == "unknown" and r.ranks]


def test_stages_that_are_nearly_equal_are_no_luck(tmp_path: Path) -> None:
    """Stage 1 takes 1 % longer in every step, and that hardly costs anything; the rest is the schedule."""
    job = Job(pp=2, dp=2, micro_batches=8, layers=12, steps=2, jitter=0.0)
    cluster = job_of(analyze(job, tmp_path))
    (first, *_) = [r for r in cluster.roots if r.kind != "schedule"]
    assert str(first.title) == "stages are not quite equal, but making them so saves little"


# --- how many ranks a job has ----------------------------------------------------------------------------------------


def test_a_group_of_ranks_that_do_not_exist_makes_no_job_of_a_million(tmp_path: Path) -> None:
    write(Job(dp=4), tmp_path)
    path = tmp_path / "rank_0_ascend_pt" / "profiler_metadata.json"
    metadata = json.loads(path.read_text())
    metadata["parallel_group_info"]["group_name_99"] = {
        "group_name": "odd",
        "group_rank": 0,
        "global_ranks": [0, 10**6],
    }
    path.write_text(json.dumps(metadata))
    cluster = job_of(run(AnalyzeRequest(path=tmp_path)))
    assert (cluster.world_size, cluster.absent) == (4, [])


# --- several ranks that are slow alike: each alone costs nothing, together they set the pace -------------------------


def asked(job: Job, folder: Path) -> Result:
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
    result = asked(job, tmp_path)
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
    cluster = job_of(asked(Job(dp=8, steps=5, seed=seed, faults=(stalls,)), tmp_path))
    assert not [r for r in cluster.roots if r.kind == "rank"]


def test_a_delay_that_travels_over_several_groups_is_its_own(tmp_path: Path) -> None:
    """Rank 5 is waited for by its shard, by its replica, and by the other stage; the rest is the schedule's."""
    job = Job(pp=2, tp=2, dp=2, micro_batches=4, faults=(Fault("compute", (5,), 1.4),))
    truth, cluster = simulate(job), asked(job, tmp_path).cluster
    assert cluster is not None
    root = next(r for r in cluster.roots if r.kind == "rank")
    own = truth.wait_ns() - truth.clean.wait_ns()
    assert root.ranks == [5] and root.wait_ns == pytest.approx(own, rel=0.03)
    assert sum(r.share for r in cluster.roots) == pytest.approx(1)


def test_hosts_of_a_whole_stage_are_named(tmp_path: Path) -> None:
    """Both ranks of stage 0 are slow on the host: they have no peers in their stage, and it is not the schedule."""
    fault = Fault("host", (0, 1), 40.0)
    job = Job(pp=2, dp=2, micro_batches=4, layers=1, trace=True, faults=(fault,))
    cluster = job_of(asked(job, tmp_path))
    root = cluster.roots[0]
    assert (root.kind, root.ranks, root.why) == ("rank", [0, 1], "host")
    assert root.gain_ns_per_step is not None
    assert root.gain_ns_per_step[1] == pytest.approx(gain_ns(simulate(job), fault), rel=0.2)
    assert sum(r.share for r in cluster.roots) == pytest.approx(1)


@pytest.mark.parametrize("missing", [(), (3,)])
def test_uneven_tokens_wait_and_transfer_within_bounds(missing: tuple[int, ...], tmp_path: Path) -> None:
    """Each rank of an alltoallv leaves with its own tokens: the shortest stay said 58 % less transfer, as exact."""
    job = Job(dp=8, ep=4, hosts=2, tokens=0.4, layer_mb=40.0, missing=missing)
    truth, cluster = simulate(job), job_of(asked(job, tmp_path))
    for rank in cluster.ranks:
        least, wait = rank.comm.transfer_ns, rank.comm.wait_ns
        alone = bool({*missing} & {*range(rank.rank // 4 * 4, rank.rank // 4 * 4 + 4)})
        assert rank.comm.unknown_ns < (1 if alone or missing else 0.02) * rank.comm.total_ns
        assert 0.998 * least <= truth.transfer_ns(rank.rank) <= 1.002 * (least + rank.comm.unknown_ns)
        assert 0.998 * wait <= truth.wait_ns(rank.rank) <= 1.002 * (wait + rank.comm.unknown_ns)
    assert not [r for r in cluster.roots if r.kind == "group"]


def test_a_link_of_a_small_group_gains_what_its_repair_brings(tmp_path: Path) -> None:
    """Gradients, and a norm over all ranks, are allReduces, too: what their links take bounds nothing in the group of
    four. Repaired the step is 1.99 ms shorter, and each operation loses once what the link takes longer both ways.
    """
    fault = Fault("link", (4, 5), 6.0)
    job = Job(tp=4, dp=4, hosts=4, gradients="allReduce", norm_over="default_group", faults=(fault,))
    truth = simulate(job)
    lost = truth.transfer_ns(4) - truth.clean.transfer_ns(4)
    root = next(r for r in job_of(asked(job, tmp_path)).roots if r.kind == "link")
    assert root.ranks == [4, 5] and root.gain_ns_per_step is not None
    assert root.gain_ns_per_step[0] <= gain_ns(truth, fault) <= root.gain_ns_per_step[1]
    assert root.evidence["excess_ns_per_step"] == pytest.approx(lost / job.steps, rel=0.01)


def test_a_rank_that_is_late_at_the_end_of_steps_is_late_in_all(tmp_path: Path) -> None:
    """Others wait for the optimizer of rank 6 only in the next step, so for that of the last one never."""
    late = Fault("compute", (6,), 1.8, operator="ApplyAdamWV2")
    early = Fault("compute", (1,), 1.8, operator="FlashAttentionScore")
    cluster = job_of(asked(Job(tp=2, dp=4, faults=(late, early)), tmp_path))
    assert {tuple(r.ranks) for r in cluster.roots if r.kind == "rank"} == {(6,), (1,)}


# --- gains of a job and of its ranks: nothing at least, their step at most -------------------------------------------


REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "msinsight"
CHANGES = ("comm*0", "compute*0", "compute*0,comm*0", "host*0", "host*0,latency*0,compute*0,comm*0,copies*0")
JOBS = {
    "a slow rank": Job(dp=4, faults=(Fault("compute", (2,), 1.8),)),
    "nobody": Job(dp=4, jitter=0.05),
    "one step": Job(dp=4, steps=1, jitter=0.05),
}


def hold(result: Result) -> None:
    """Every figure of the job against its step, of each rank against the rank's own."""
    cluster = job_of(result)
    own = {d.rank: d.window.span_ns // max(d.step_count, 1) for d in result.devices}
    across = [f for f in result.findings if f.rank is not None]
    seen = [(w.gain_ns_per_step, cluster.step_ns if w.rank is None else own[w.rank], w) for w in result.what_if]
    seen += [(f.gain_ns_per_step, max(own[f.rank or 0], cluster.step_ns), f) for f in across]
    seen += [(r.gain_ns_per_step, cluster.step_ns, r) for r in cluster.roots]
    checked = 0
    for gain, step, what in seen:
        if gain is not None:
            checked += 1
            assert 0 <= gain[0] <= gain[1] <= step, what
    assert checked > 3
    for w in result.what_if:
        low, high = w.gain_pct_interval or (0, 0)
        assert 0 <= low <= high <= 100, w


@pytest.mark.parametrize("name", JOBS)
def test_no_gain_of_a_job_exceeds_its_step(tmp_path: Path, name: str) -> None:
    write(JOBS[name], tmp_path)
    hold(run(AnalyzeRequest(path=tmp_path, what_if=CHANGES)))


@pytest.mark.skipif(not REAL.is_dir(), reason="no data of msinsight")
@pytest.mark.parametrize("folder", ["text/level1", "db/level1", "cluster4"])
def test_nor_of_a_real_one(folder: str) -> None:
    hold(run(AnalyzeRequest(path=REAL / folder, what_if=CHANGES)))


# --- pipelines whose groups have another name, or none ---------------------------------------------------------------


JOB = Job(pp=2, dp=2, micro_batches=4, steps=2, layers=1, faults=(Fault("stage", stage=1, factor=1.7),))


def renamed(kinds: dict[str, str | None]) -> Callable[[dict[str, Any]], None]:
    def change(metadata: dict[str, Any]) -> None:
        for found in metadata["parallel_group_info"].values():
            found["group_name"] = kinds.get(found["group_name"], found["group_name"])

    return change


def without_groups(metadata: dict[str, Any]) -> None:
    del metadata["parallel_group_info"]


@pytest.mark.parametrize(
    ("change", "guessed"),
    [
        (renamed({}), False),
        (renamed({"pp": "mesh_pp"}), False),
        (renamed({"pp": "my_group"}), True),
        (renamed({"pp": None, "dp_cp": None, "mp": None, "default_group": None}), True),
        (without_groups, True),
    ],
    ids=["pp", "of a mesh", "own name", "no names", "no groups"],
)
def test_a_pipeline_is_one_whatever_it_is_called(
    change: Callable[[dict[str, Any]], None], guessed: bool, tmp_path: Path
) -> None:
    write(JOB, tmp_path)
    for file in tmp_path.glob("*/profiler_metadata.json"):
        metadata = json.loads(file.read_text())
        change(metadata)
        file.write_text(json.dumps(metadata))
    cluster = job_of(run(AnalyzeRequest(path=tmp_path)))
    assert [s.ranks for s in cluster.stages] == [[0, 1], [2, 3]]
    assert next((r.kind, r.stage) for r in cluster.roots) == ("stage", 1)
    assert any("is called a pipeline" in str(note) for note in cluster.notes) is guessed


def exchanging(rank: int, compute_ms: int, kind: str | None = None) -> RankSummary:
    """A rank of a group of three that computes for a time, then sends and receives."""
    rows = operations([{"type": "batchSendRecv"}] * 2)
    rows = replace(rows, p2p=np.ones(2, np.bool_))
    before = np.array([compute_ms * MS, (compute_ms + 5) * MS])
    return summary(rank, operations=rows, compute_before=before, groups=(group([0, 1, 2], kind),))


def test_who_waits_from_the_begin_is_a_later_stage() -> None:
    assert likely_pipelines([exchanging(0, 10), exchanging(1, 0), exchanging(2, 1)]) == [(0, 1, 2)]


def test_a_ring_is_no_pipeline() -> None:
    """Ranks that share a context exchange blocks of keys: all have computed as long before."""
    assert likely_pipelines([exchanging(r, 10) for r in range(3)]) == []


def test_groups_called_otherwise_are_no_pipelines() -> None:
    ranks = [exchanging(r, 10 if r == 0 else 0, "cp") for r in range(3)]
    assert likely_pipelines(ranks) == named_pipelines(ranks) == []


# --- many ranks on workers: pipeline 4 × tensor parallel 4 × data parallel 2, each rank small ------------------------
#     (a thousand: benchmarks/bench_cluster.py; that dask gives the same: test_engines.py)


def test_many_ranks_on_workers(tmp_path: Path) -> None:
    job = Job(pp=4, tp=4, dp=2, hosts=4, steps=1, micro_batches=4, layers=1, kernels=4, kernel_us=50.0)
    truth = simulate(job)
    write(truth, tmp_path)
    result = run(AnalyzeRequest(path=tmp_path, engine="processes"))
    cluster = result.cluster
    assert cluster is not None and len(cluster.ranks) == 32 and cluster.absent == []
    assert [r.rank for r in cluster.ranks] == list(range(32))
    assert {len(s.ranks) for s in cluster.stages} == {8}
    kinds = {g.kind: g for g in cluster.groups}
    assert {kind: len(kinds[kind].ranks) for kind in ("tp", "dp_cp", "pp")} == {"tp": 4, "dp_cp": 2, "pp": 4}
    assert all(g.complete and not g.unmatched for g in cluster.groups)
    waited = sum(r.comm.wait_ns for r in cluster.ranks)
    assert waited == pytest.approx(truth.wait_ns(), rel=0.01)
    assert sum(r.wait_ns for r in cluster.roots) == waited
    # Nothing is wrong in this job but luck and the schedule.
    assert {r.kind for r in cluster.roots} <= {"schedule", "jitter", "unknown"}
    assert cluster.replay is not None and cluster.replay.error < 0.01
    named = replace(result, input=replace(result.input, path="job"))  # a long path takes lines
    assert len(render(named, "text", View(width=80)).splitlines()) <= 50
