"""What is said of jobs in which no single rank is to blame, and of folders that are no job."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ranks import MS, summary

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from cluster_files import write
from cluster_job import Fault, Job
from cluster_world import simulate

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.job.job_study import _in_step
from npuperf.model.result import Result


def analyze(job: Job, folder: Path, change: Callable[[Path, int], None] | None = None) -> Result:
    write(job, folder)
    for rank in range(job.world) if change else ():
        change(folder / f"rank_{rank}_ascend_pt", rank)
    return run(AnalyzeRequest(path=folder))


def titles(result: Result) -> list[str]:
    assert result.cluster is not None
    return [str(r.title) for r in result.cluster.roots if r.share > 0.5]


def test_a_few_fast_ranks_are_no_luck(tmp_path: Path) -> None:
    """Five of eight take 1.4 times as long: the other three wait in every step, and there is nobody to blame."""
    job = Job(dp=8, faults=(Fault("compute", (0, 1, 2, 3, 4), 1.4),))
    assert titles(analyze(job, tmp_path)) == [
        "ranks 5, 6, 7 wait for the others in every step: most ranks take longer than these"
    ]


def test_of_one_step_nobody_says_what_lasts(tmp_path: Path) -> None:
    job = Job(dp=4, steps=1, jitter=0.05)
    assert titles(analyze(job, tmp_path)) == ["no rank stands out; one step cannot tell what lasts"]


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
    cluster = analyze(job, tmp_path, renumber).cluster
    assert cluster is not None
    assert cluster.steps == 3
    assert cluster.step_ns == pytest.approx(simulate(job).step_ns, rel=0.01)


def test_steps_in_common_are_left_as_they_are() -> None:
    ranks = [summary(r, step_number=np.array([10 + r, 11 + r])) for r in range(2)]
    assert _in_step(ranks) == ranks


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

    cluster = analyze(Job(dp=4, steps=2), tmp_path, later).cluster
    assert cluster is not None
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
    cluster = analyze(job, tmp_path).cluster
    assert cluster is not None
    (root,) = (r for r in cluster.roots if r.kind == "rank")
    assert root.ranks == [1]
    assert root.gain_ns_per_step is not None and root.gain_ns_per_step[0] == 0 < root.gain_ns_per_step[1]


def test_a_rank_that_is_asked_for_and_not_there_is_named(tmp_path: Path) -> None:
    write(Job(dp=2, steps=2), tmp_path)
    result = run(AnalyzeRequest(path=tmp_path, ranks=(0, 1, 7)))
    assert "rank 7 is not among the profiles at this path" in [str(w) for w in result.input.warnings]


def test_what_a_waiting_rank_saves_alone_may_be_nothing(tmp_path: Path) -> None:
    """Each rank syncs at its steps' ends; while all wait for the host of rank 2, that costs nothing."""
    job = Job(dp=4, trace=True, faults=(Fault("host", (2,), 40.0),))
    found = [f for f in analyze(job, tmp_path).findings if f.rule == "sync_points" and f.rank != 2]
    assert {f.rank for f in found} == {0, 1, 3}
    assert all(f.gain_ns_per_step and f.gain_ns_per_step[0] == 0 for f in found)


def test_ranks_that_wait_for_a_named_one_have_no_line_of_their_own(tmp_path: Path) -> None:
    """Two replicas, one slow: the other waits in every step, and why is said already."""
    job = Job(pp=2, dp=2, micro_batches=4, layers=1, faults=(Fault("compute", (1,), 1.15),))
    cluster = analyze(job, tmp_path).cluster
    assert cluster is not None
    assert not [r for r in cluster.roots if r.kind == "unknown" and r.ranks]


def test_stages_that_are_nearly_equal_are_no_luck(tmp_path: Path) -> None:
    """Stage 1 takes 1 % longer in every step, and that hardly costs anything; the rest is the schedule."""
    job = Job(pp=2, dp=2, micro_batches=8, layers=12, steps=2, jitter=0.0)
    cluster = analyze(job, tmp_path).cluster
    assert cluster is not None
    (first, *_) = [r for r in cluster.roots if r.kind != "schedule"]
    assert str(first.title) == "stages are not quite equal, but making them so saves little"
