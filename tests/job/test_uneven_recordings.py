"""Ranks of one job that were not recorded alike: steps missing or numbered otherwise on some.

What must be said is what the simulator did in the steps that all have; nothing comes from the code under test.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cluster_files import FIRST_STEP, write
from cluster_job import Fault, Job
from cluster_world import Truth, gain_ns, simulate

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.job_result import Cluster
from npuperf.model.result import Result

SLOW = (Fault("compute", (1,), 1.3),)
LAYOUTS = {
    "dp4": Job(dp=4, seed=5),
    "tp2 dp2": Job(tp=2, dp=2, seed=5),
    "pp2 dp2": Job(pp=2, dp=2, micro_batches=4, layers=1, seed=5),
}
#: What was recorded of rank 1, and of which steps all ranks have.
RECORDED: dict[str, tuple[dict[str, object], tuple[int, ...]]] = {
    "all": ({}, (0, 1, 2, 3)),
    "not the last step": ({"skipped": ((1, 3),)}, (0, 1, 2)),
    "not the first step": ({"skipped": ((1, 0),)}, (1, 2, 3)),
    "without kernels, not the last step": ({"skipped": ((1, 3),), "bare": (1,)}, (0, 1, 2)),
    "not the second step": ({"skipped": ((1, 1),)}, (2, 3)),
    "numbered by one more": ({"shifted": ((1, 1),)}, (0, 1, 2, 3)),
    "numbered by one more, not the last step": ({"shifted": ((1, 1),), "skipped": ((1, 3),)}, (0, 1, 2)),
}


def analyzed(job: Job, folder: Path) -> tuple[Truth, Result, Cluster]:
    truth = simulate(job)
    result = run(AnalyzeRequest(path=write(truth, folder), workers=1))
    assert result.cluster is not None
    return truth, result, result.cluster


def waited(truth: Truth, rank: int, steps: tuple[int, ...]) -> int:
    return sum(op.wait(rank) for op in truth.operations if op.step in steps and rank in op.arrival)


@pytest.mark.parametrize("recorded", RECORDED)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("faults", [(), SLOW], ids=["even", "rank 1 slow"])
def test_only_what_all_ranks_recorded_is_compared(
    layout: str, recorded: str, faults: tuple[Fault, ...], tmp_path: Path
) -> None:
    more, steps = RECORDED[recorded]
    job = Job(**{**vars(LAYOUTS[layout]), **more, "faults": faults})  # type: ignore[arg-type]
    truth, _, cluster = analyzed(job, tmp_path)
    assert cluster.steps == len(steps) and cluster.absent == []
    assert cluster.step_ns == pytest.approx(truth.step_ns, rel=0.01)
    for rank in cluster.ranks:
        true = waited(truth, rank.rank, steps)
        assert rank.comm.wait_ns == pytest.approx(true, rel=0.01, abs=0.002 * truth.step_ns * len(steps))
        assert rank.comm.unknown_ns == 0
        compute = sum(int(np.sum(s.finish - s.start)) for s in truth.ranks[rank.rank] if s.number in steps)
        assert rank.compute_ns == pytest.approx(compute, rel=1e-3)
    named = [root for root in cluster.roots if root.kind in ("rank", "link", "group")]
    assert [root.ranks for root in named] == [[1]] * len(faults)
    for root, fault in zip(named, faults, strict=True):
        least, most = root.gain_ns_per_step or (0, 0)
        assert 0.95 * least - 0.002 * truth.step_ns <= gain_ns(truth, fault) <= 1.05 * most + 0.002 * truth.step_ns


def test_the_missing_step_is_said(tmp_path: Path) -> None:
    _, _, cluster = analyzed(Job(dp=4, seed=5, skipped=((1, 3),)), tmp_path)
    first, last = FIRST_STEP, FIRST_STEP + 3
    assert str(cluster.notes[0]) == (
        f"not all ranks recorded the same steps (rank 1 has {first}-{last - 1}, ranks 0, 2, 3 have {first}-{last}): "
        f"steps {first}-{last - 1} are compared, which all have"
    )


def test_other_numbers_of_steps_are_said(tmp_path: Path) -> None:
    _, _, cluster = analyzed(Job(dp=4, seed=5, shifted=((2, 1),)), tmp_path)
    assert str(cluster.notes[0]) == (
        "rank 2 numbers its steps otherwise (+1): the names of its collectives tell which step is which"
    )
    assert {c.step for c in cluster.collectives} == {FIRST_STEP + n for n in range(4)}
