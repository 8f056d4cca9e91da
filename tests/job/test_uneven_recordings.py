"""Ranks of one job that were not recorded alike: steps missing or numbered otherwise, clocks set, ranks of other runs.

What must be said is what the simulator did in the steps that all have; nothing comes from the code under test.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cluster_files import FIRST_STEP, write
from cluster_job import Fault, Job, Jump
from cluster_world import Truth, gain_ns, simulate

from npuperf.advise import load_thresholds
from npuperf.against.compare import compare_results
from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.base.messages import say
from npuperf.job.clocks import Clocks, doubted
from npuperf.model.job_result import Cluster
from npuperf.model.result import Result
from npuperf.show.job_text import job_line
from npuperf.show.language import text

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
@pytest.mark.parametrize(
    ("layout", "faults"), [("dp4", SLOW), ("tp2 dp2", ()), ("pp2 dp2", SLOW)], ids=["dp4", "tp2 dp2, even", "pp2 dp2"]
)
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


@pytest.mark.parametrize(("steps", "left_out", "left"), [(3, 1, 2), (4, 2, 0)], ids=["2nd of three", "3rd of four"])
def test_a_step_before_one_that_was_left_out_is_not_compared(
    steps: int, left_out: int, left: int, tmp_path: Path
) -> None:
    """What rank 1 did in the step left out is in the one before, which so lasts twice as long: nobody is slow."""
    truth, _, cluster = analyzed(Job(dp=2, seed=5, steps=steps, skipped=((1, left_out),)), tmp_path)
    assert {c.step for c in cluster.collectives} == {FIRST_STEP + left}
    assert (cluster.steps, cluster.step_ns) == (1, pytest.approx(truth.step_ns, rel=0.02))
    assert [root for root in cluster.roots if root.kind in ("rank", "link", "group")] == []


def test_the_missing_step_is_said(tmp_path: Path) -> None:
    _, _, cluster = analyzed(Job(dp=4, seed=5, skipped=((1, 3),)), tmp_path)
    first, last = FIRST_STEP, FIRST_STEP + 3
    assert str(cluster.notes[0]) == (
        f"not all ranks have the same whole steps (rank 1 has {first}-{last - 1}, ranks 0, 2, 3 have {first}-{last}): "
        f"steps {first}-{last - 1} are compared, which all have"
    )


def test_other_numbers_of_steps_are_said(tmp_path: Path) -> None:
    _, _, cluster = analyzed(Job(dp=4, seed=5, shifted=((2, 1),)), tmp_path)
    assert str(cluster.notes[0]) == (
        "rank 2 numbers its steps otherwise (+1): its collectives tell which step is which"
    )
    assert {c.step for c in cluster.collectives} == {FIRST_STEP + n for n in range(4)}


# --- clocks that are set while they are recorded ---------------------------------------------------------------------


CLOCKS = {
    "dp4": Job(dp=4, seed=11, faults=(Fault("compute", (3,), 1.3),)),
    "dp8": Job(dp=8, hosts=2, steps=8, seed=11, faults=(Fault("compute", (3,), 1.3),)),
    "tp2 dp2 pp2": Job(pp=2, dp=2, tp=2, hosts=2, micro_batches=4, layers=1, seed=11,
                       faults=(Fault("compute", (3,), 1.3),)),
    # With all but its neighbour a rank has one operation of a step in common, three in all: too few to see it by these.
    "tp2 pp4": Job(pp=4, tp=2, dp=1, steps=3, micro_batches=4, layers=1, seed=11,
                    faults=(Fault("compute", (3,), 1.3),)),
}  # fmt: skip
SET = [Jump(1, 2.0, 5_000.0), Jump(2, 1.5, 800.0), Jump(0, 2.0, 5_000.0), Jump(2, 1.0, 20_000.0)]


@pytest.mark.parametrize(
    ("layout", "jump"), [*(("dp4", jump) for jump in SET), ("dp8", SET[0]), ("tp2 dp2 pp2", SET[1]),
                        ("tp2 pp4", SET[3]), ("tp2 pp4", Jump(2, 2.0, 20_000.0))],
    ids=lambda one: one if isinstance(one, str) else f"rank {one.rank} at {one.step} by {one.us:.0f} us",
)  # fmt: skip
def test_a_clock_that_is_set_ahead_is_followed(layout: str, jump: Jump, tmp_path: Path) -> None:
    """Length, waiting and gains are those of the simulation, and offsets those that clocks had at the beginning."""
    job = replace(CLOCKS[layout], jumps=(jump,))
    truth, _, cluster = analyzed(job, tmp_path)
    assert cluster.step_ns == pytest.approx(truth.step_ns, rel=0.01)
    for rank in cluster.ranks:
        true = truth.wait_ns(rank.rank)
        assert rank.comm.wait_ns == pytest.approx(true, rel=0.01, abs=0.002 * truth.step_ns * job.steps)
        assert rank.step_ns == pytest.approx(truth.step_ns, rel=0.01)
        assert rank.clock is not None
        offset = truth.offset(0) - truth.offset(rank.rank)
        slack = abs(truth.drift(0) - truth.drift(rank.rank)) * truth.step_ns * job.steps
        assert abs(rank.clock.offset_ns - offset) <= 3_000 + slack
        if rank.clock.low_ns is not None and rank.clock.high_ns is not None and rank.clock.drift_ppm is None:
            assert rank.clock.low_ns - slack <= offset <= rank.clock.high_ns + slack
    assert [(root.kind, root.ranks) for root in cluster.roots if root.kind in ("rank", "link", "group")] == [
        ("rank", [3])
    ]
    (said,) = (str(note) for note in cluster.notes if "clock of rank" in str(note))
    assert said.startswith(f"the clock of rank {jump.rank} was set ") and " ahead while it was recorded" in said


def test_of_a_clock_that_was_set_back_the_mixed_steps_are_left_out(tmp_path: Path) -> None:
    """Its third step begins 5 ms before its second one ends: the first and the last can be compared."""
    job = replace(CLOCKS["tp2 dp2 pp2"], jumps=(Jump(1, 2.0, -5_000.0),))
    truth, _, cluster = analyzed(job, tmp_path)
    assert cluster.steps == 1
    assert cluster.step_ns == pytest.approx(truth.step_ns, rel=0.02)
    assert any("was set 5.00 ms back" in str(note) for note in cluster.notes)
    # All ranks recorded all steps.
    assert not any("recorded the same steps" in str(note) for note in cluster.notes)
    assert str(cluster.notes[0]).startswith("not all ranks have the same whole steps (ranks 1, 3 have 10, 13,")


#: By how much (us), and when: amid the fourth of six steps of 4 ms, and before the first operation.
FAR_BACK = [(-20_000.0, 3.5), (-50_000.0, 3.5), (-3_600e6, 2.0), (-5_000e3, 0.2)]


@pytest.mark.parametrize(("us", "at"), FAR_BACK, ids=lambda value: f"{value:.1f}")
def test_a_clock_that_was_set_back_by_more_than_a_step_compares_with_nothing(
    us: float, at: float, tmp_path: Path
) -> None:
    """Most of what came before and after lies at the same times: the rank is left out, and two ranks are no job."""
    job = Job(dp=2, steps=6, layers=1, kernels=2, seed=3, jumps=(Jump(1, at, us),))
    folder, gates = write(simulate(job), tmp_path / "two"), ("step_time>1ns", "count.collectives>0", "comm.wait>0%")
    result = run(AnalyzeRequest(path=folder, workers=1, fail_on=gates))
    assert result.cluster is None and not result.runs
    assert result.verdict.bound == "unknown" and "its clock was set back" in str(result.verdict.reason)
    assert {gate.status for gate in result.gates} == {"cannot_tell"}
    (alone,) = run(AnalyzeRequest(path=folder, workers=1, rank=1)).devices
    assert alone.verdict.bound == "unknown" and "its clock was set back" in str(alone.verdict.reason)

    truth, result, cluster = analyzed(replace(job, dp=4), tmp_path / "four")
    assert cluster.cut == [1] and [r.rank for r in cluster.ranks] == [0, 2, 3]
    assert cluster.step_ns == pytest.approx(truth.step_ns, rel=0.02)
    assert any(str(note).startswith("rank 1 was read, but is left out of the job: ") for note in cluster.notes)
    warned = [str(w) for w in result.input.warnings]
    assert any("clock was set back" in w for w in warned) and not any("occur again" in w for w in warned)


def test_a_clock_that_was_set_back_by_more_than_a_step_leaves_whole_steps(tmp_path: Path) -> None:
    """Twenty steps of 4 ms, set back by 9 ms after ten: the ends of both halves, six steps at least, are whole."""
    job = Job(dp=2, steps=20, layers=1, kernels=2, seed=3, jumps=(Jump(1, 10.0, -9_000.0),))
    truth, _, cluster = analyzed(job, tmp_path)
    assert 6 <= cluster.steps <= 8
    assert cluster.step_ns == pytest.approx(truth.step_ns, rel=0.01)
    assert any("the clock of rank 1 was set 9.00 ms back" in str(note) for note in cluster.notes)


def test_of_two_ranks_the_one_is_told_whose_clock_was_set(tmp_path: Path) -> None:
    """Ends alone say as well that rank 1 was set ahead; but its fourth step is as long as its others."""
    job = Job(dp=2, steps=4, layers=1, kernels=5, seed=962, hosts=2, jumps=(Jump(0, 3.0, -1_000.0),))
    truth, _, cluster = analyzed(job, tmp_path)
    assert cluster.step_ns == pytest.approx(truth.step_ns, rel=0.02)
    assert any("the clock of rank 0 was set 1.00 ms back" in str(note) for note in cluster.notes)


def test_what_operations_contradict_is_not_proved() -> None:
    """A clock with six ends where they belong and six 5 ms off: no interval, and arrivals are as unsure as that."""
    wrong, every, off = np.array([0, 6]), np.array([12, 12]), np.array([0.0, 5e6])
    none = np.zeros(2)
    clocks = Clocks(none, none, none + 500, none - 9, none + 9, every, np.zeros(2, np.int64), 0, np.zeros(12, np.bool_))
    found = doubted(clocks, [(wrong, every, off)])
    assert found.low[0] == -9 and np.isnan([found.low[1], found.high[1]]).all()
    assert found.residual.tolist() == [500, 5e6]


@pytest.mark.parametrize("seed", range(4))
def test_no_clock_that_only_drifts_is_said_to_be_set(seed: int, tmp_path: Path) -> None:
    job = Job(pp=2, dp=4, hosts=8, micro_batches=4, layers=1, steps=3, trace=True, kernel_us=2000.0, host_us=2.0,
              drift_ppm=100.0, seed=seed)  # fmt: skip
    _, result, cluster = analyzed(job, tmp_path)
    assert not result.runs and not any("clock of rank" in str(note) for note in cluster.notes)
    assert sum(root.share for root in cluster.roots) == pytest.approx(1)


# --- ranks of two runs in one folder ---------------------------------------------------------------------------------


RUNS: dict[str, tuple[Job, dict[str, object], tuple[int, ...]]] = {
    "half of them slower, and later": (Job(dp=8), {"kernel_us": 260.0, "origin_s": 900}, (4, 5, 6, 7)),
    "half of them 3 % slower": (Job(dp=8), {"kernel_us": 206.0}, (4, 5, 6, 7)),
    "one of them 5 % slower": (Job(dp=2, tp=4, hosts=2), {"kernel_us": 210.0}, (5,)),
    "stages of a pipeline": (Job(pp=4, dp=1, micro_batches=4), {"kernel_us": 300.0}, (2, 3)),
    "two steps, a minute later": (Job(dp=4, steps=2), {"kernel_us": 240.0, "origin_s": 60}, (2, 3)),
}


@pytest.mark.parametrize("name", RUNS)
def test_ranks_of_two_runs_are_told_apart(name: str, tmp_path: Path) -> None:
    job, more, others = RUNS[name]
    first, second = (simulate(replace(job, seed=s, **m)) for s, m in ((1, {}), (2, more)))  # type: ignore[arg-type]
    mine = [r for r in range(job.world) if r not in others]
    write(first, tmp_path, mine)
    write(second, tmp_path, others)
    result = run(
        AnalyzeRequest(path=tmp_path, workers=1, fail_on=("step_time>1ns", "comm.wait>0%", "count.collectives>0"))
    )
    assert result.cluster is None and len(result.devices) == job.world
    assert [tuple(r.ranks) for r in result.runs] == sorted([tuple(mine), others], key=lambda own: -len(own))
    for found in result.runs:
        truth = first if found.ranks[0] in mine else second
        assert found.step_ns == pytest.approx(truth.step_ns, rel=0.03)
        assert found.next == say("npuperf analyze PATH --ranks {ranks}", ranks=",".join(map(str, found.ranks))) or (
            len(found.ranks) == 1
        )
    assert result.verdict.bound == "unknown" and "are of several runs" not in str(result.verdict.reason)
    assert str(result.verdict.reason).startswith("not of one job: ranks ")
    assert {gate.status for gate in result.gates} == {"cannot_tell"}
    compared = compare_results([result], [result], load_thresholds())
    assert compared.verdict == "cannot_tell"


def test_a_drift_that_no_crystal_has_makes_no_common_clock(tmp_path: Path) -> None:
    write(simulate(Job(dp=4, seed=1)), tmp_path, (0, 1))
    write(simulate(Job(dp=4, seed=1, drift_ppm=0, device_drift_ppm=0, kernel_us=230.0)), tmp_path, (2, 3))
    result = run(AnalyzeRequest(path=tmp_path, workers=1))
    assert result.exit_code == 0 and result.cluster is None
    assert "ppm, and crystals do by less than 200" in str(result.verdict.reason)


# --- a rank whose table of kernels is cut ----------------------------------------------------------------------------


def test_a_rank_whose_table_is_cut_is_said_to_be_read_and_left_out(tmp_path: Path) -> None:
    """Rank 2 has half of its rows beside a whole timeline: it was loaded, and gates on the job cannot tell."""
    whole, cut = (write(Job(dp=4, trace=True, seed=1), tmp_path / name) for name in ("whole", "cut"))
    table = cut / "rank_2_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    rows = table.read_text().splitlines(keepends=True)
    table.write_text("".join(rows[: len(rows) // 2]))
    gates = ("count.launches>+0", "step_time>+5%", "comm.wait>50%", "op:MatMulV3>+1%")
    result = run(AnalyzeRequest(path=cut, workers=1, baseline=(str(whole),), fail_on=gates))
    cluster = result.cluster
    assert cluster is not None and (cluster.cut, cluster.absent) == ([2], [2])
    assert str(cluster.notes[0]).startswith("rank 2 was read, but is left out of the job: rows are missing: ")
    assert not any("was not loaded" in str(note) for note in cluster.notes)
    assert str(result.verdict.reason).startswith("over the 3 ranks whose data is whole: ")
    assert result.comparison is not None and result.comparison.verdict == "cannot_tell"
    assert {gate.status for gate in result.gates} == {"cannot_tell"}
    assert "1 left out" in text(job_line(cluster)) and text(job_line(cluster)).startswith("4 ranks")


def test_a_table_of_communication_alone_is_no_run_on_the_cpu(tmp_path: Path) -> None:
    folder = write(Job(dp=2, seed=1), tmp_path / "job") / "rank_0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    (tmp_path / "alone").mkdir()
    (folder / "communication.json").rename(tmp_path / "alone" / "communication.json")
    result = run(AnalyzeRequest(path=tmp_path / "alone", workers=1))
    assert result.verdict.bound == "unknown" and "CPU" not in str(result.verdict.reason)
    assert str(result.verdict.reason).startswith("no device tasks: none of the files that were read has any")
