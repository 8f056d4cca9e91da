"""The simulated cluster job itself: examples worked out by hand, its invariants, and the files it writes."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cluster_files import write
from cluster_job import Fault, Job, Jump, group_hash, groups, program, unit
from cluster_scenarios import SMALL, scenarios
from cluster_world import check, fixed, gain_ns, simulate
from job_truth import draw

#: No luck, one layer of one kernel: everything can be worked out by hand. Clocks agree.
PLAIN = Job(
    steps=1, layers=1, kernels=1, kernel_us=100.0, host_us=10.0, latency_us=6.0, start_us=0.0, buckets=1,
    gradients="allReduce", gradient_mb=2.0, activation_mb=2.0, optimizer=1, norm=False, jitter=0.0, host_jitter=0.0,
    transfer_jitter=0.0, end_jitter_us=0.0, offset_ms=0.0, device_offset_us=0.0, drift_ppm=0.0,
)  # fmt: skip
SLOW = Fault("compute", (1,), 1.5)


def test_group_hash_is_the_real_one() -> None:
    assert group_hash("group_name_5") == 5862276114690318097
    assert group_hash("group_name_19") == 3985310405473756128


def test_two_ranks_and_one_collective() -> None:
    """Kernels 100 + 100 + 100 + 200 + 200 µs from 16 µs on, rank 1 half as long again; transfer 100 + 10 µs."""
    job = replace(PLAIN, faults=(SLOW,))
    truth = simulate(job)
    (op,) = truth.operations
    assert op.arrival == {0: 716_000, 1: 1_066_000}
    assert (op.wait(0), op.wait(1), op.last) == (350_000, 0, 1)
    assert op.end == {0: 1_176_000, 1: 1_176_000}
    assert [steps[0].end for steps in truth.ranks] == [1_282_000, 1_332_000]
    assert truth.step_ns == 1_332_000
    assert gain_ns(truth, SLOW) == 400_000
    assert fixed(job, SLOW).wait_ns() == 0


def test_a_pipeline_of_two_stages_and_two_micro_batches() -> None:
    """Stage 0: F 200, B 200 µs; stage 1: F 200, B 400 µs (logits); a transfer 110 µs, 2 more for a mere receiver."""
    truth = simulate(replace(PLAIN, pp=2, dp=1, micro_batches=2, optimizer=0))
    first, second, third = truth.operations
    assert (first.arrival, first.end) == ({0: 216_000, 1: 16_000}, {0: 326_000, 1: 328_000})
    assert (second.arrival, second.end) == ({0: 526_000, 1: 928_000}, {0: 1_038_000, 1: 1_038_000})
    assert (third.arrival, third.end) == ({0: 1_238_000, 1: 1_638_000}, {0: 1_750_000, 1: 1_748_000})
    assert truth.wait_ns(kind="pp") == 200_000 + 402_000 + 400_000
    assert truth.step_ns == 1_950_000 + 6_000
    assert [op.name(0) for op in truth.operations] == [
        f"hcom_batchSendRecv__{first.group.digits}_{k}_1" for k in (3, 4, 5)
    ]


def test_a_slow_link_makes_its_group_slow() -> None:
    job = replace(PLAIN, dp=4, faults=(Fault("link", (1, 2), 3.0),))
    (op,) = simulate(job).operations
    assert [op.transfer(r) for r in op.ranks] == [10_000 + 3 * 50_000] * 4


def test_a_slow_host_makes_its_device_wait() -> None:
    truth = simulate(replace(PLAIN, faults=(Fault("host", (0,), 30.0),)))
    assert truth.idle_ns(1) == 0
    # Launches every 300 µs, kernels of 100, 100, 100, 200 and 200 µs; the collective comes 100 µs after the last.
    assert truth.idle_ns(0) == 200_000 * 3 + 100_000 * 2 + (2_106_000 - 1_916_000)


def test_overlapped_gradients_wait_out_of_sight() -> None:
    """Rank 0 computes for another 200 µs while the first bucket waits for rank 1; the second comes later."""
    job = replace(PLAIN, layers=2, buckets=2, overlap=True, faults=(SLOW,))
    truth = simulate(job)
    exposed, _ = truth.exposed_ns(0)
    assert [op.wait(0) for op in truth.operations] == [1_216_000 - 816_000, 1_516_000 - 1_276_000]
    assert exposed == 400_000 - 200_000 + 240_000


@pytest.mark.parametrize("layout", [{"dp": 4}, {"pp": 2, "micro_batches": 3}, {"pp": 4, "micro_batches": 2}])
def test_repair_meets_the_same_luck(layout: dict[str, int]) -> None:
    clean = simulate(Job(**layout, seed=7))
    slow = replace(clean.job, faults=(SLOW, Fault("link", (0, 1), 4.0)))
    repaired = fixed(replace(slow, faults=slow.faults[:1]), SLOW)
    assert [op.end for op in repaired.operations] == [op.end for op in clean.operations]


def test_neighbouring_stages_talk_equally_often() -> None:
    for stages in (2, 3, 4):
        for batches in (1, 2, 5):
            job = Job(pp=stages, dp=1, micro_batches=batches)
            talks = [[c.peer for c in program(job, r).items if getattr(c, "peer", -1) >= 0] for r in range(stages)]
            assert all(talks[r].count(r + 1) == talks[r + 1].count(r) for r in range(stages - 1))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved"])
@pytest.mark.parametrize("separate", [False, True])
def test_every_schedule_runs_all_layers_and_has_its_bubble(schedule: str, separate: bool) -> None:
    """Four stages of 4 layers that take 4 · (1 + 2) ms a micro-batch: (8 + 3) of them; two chunks halve the three.

    The chunk with the logits is half as long again as the others, and with two chunks a stage also waits for that.
    """
    chunks = {"schedule": "interleaved", "virtual": 2, "layers": 2} if schedule == "interleaved" else {"layers": 4}
    job = replace(PLAIN, pp=4, dp=1, micro_batches=8, kernel_us=1000.0, optimizer=0, activation_mb=0.0, host_us=0.01)
    truth = simulate(replace(job, separate=separate, **{"schedule": schedule, **chunks}))  # type: ignore[arg-type]
    assert truth.compute_ns(1) == truth.compute_ns(2) == 8 * 12_000_000
    bubble = truth.step_ns - truth.compute_ns(3)
    least, most = (18_000_000, 24_000_000) if schedule == "interleaved" else (36_000_000, 38_000_000)
    assert least < bubble < most
    assert check(truth) == []


def test_faults_come_and_go() -> None:
    faults = (replace(SLOW, steps=(1,)), Fault("link", (0, 1), 4.0, steps=(2,)), Fault("host", (0,), 30.0, steps=(3,)))
    truth = simulate(replace(PLAIN, steps=5, faults=faults))
    end = [max(steps[n].end for steps in truth.ranks) for n in range(5)]
    length = np.diff([0, *end]).tolist()
    assert length[1] - length[4] == 400_000  # as in every step: test_two_ranks_and_one_collective
    assert [gain_ns(truth, fault) * 5 for fault in faults] == [length[n] - length[4] for n in (1, 2, 3)]
    assert min(length[1:4]) > length[4]


def test_uneven_tokens_keep_a_rank_longer() -> None:
    truth = simulate(replace(PLAIN, dp=2, ep=2, tokens=0.5, layer_mb=4.0, seed=3))
    op = next(o for o in truth.operations if o.type == "alltoallv")
    share = [1 + 0.5 * unit(3, 8, rank, 0) for rank in (0, 1)]
    for rank in (0, 1):
        ns = op.transfer(rank) / (0.9 + 0.1 * unit(3, 6, op.number, rank))  # it may leave early, too
        assert ns == pytest.approx(10_000 + share[rank] * 2e6 / 20, rel=1e-3)
    compute = [truth.compute_ns(rank) - 800_000 for rank in (0, 1)]
    assert compute[0] / compute[1] == pytest.approx(share[0] / share[1], rel=1e-3)


def test_clocks_jump_and_drift_in_the_files_only() -> None:
    job = replace(PLAIN, steps=3, jumps=(Jump(1, 2.0, 250.0),), origin_s=60, device_drift_ppm=100.0)
    truth = simulate(job)
    assert truth.operations == simulate(replace(PLAIN, steps=3)).operations
    begin = [step.begin for step in truth.ranks[1]]
    own = truth.clock(1, np.array(begin)) - truth.clock(1, 0) - np.array(begin)
    assert own[2] - own[1] == pytest.approx(250_000 + truth.drift(1) * (begin[2] - begin[1]), abs=1)
    assert truth.drift(0) != truth.drift(1)
    assert truth.clock(0, 0) - simulate(PLAIN).clock(0, 0) == 60 * 10**9


def test_what_was_recorded_may_differ_by_rank(tmp_path: Path) -> None:
    """Steps that are missing, numbered otherwise, and ranks of another run."""
    job = replace(PLAIN, dp=4, steps=3, skipped=((1, 0),), shifted=((2, 1),))
    write(job, tmp_path, ranks=(0, 1, 2))
    write(replace(job, origin_s=3600, seed=9), tmp_path, ranks=(3,))
    steps = {}
    for rank in range(4):
        with (tmp_path / f"rank_{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv").open() as file:
            rows = list(csv.DictReader(file))
        steps[rank] = sorted({int(row["Step Id"]) for row in rows})
    assert steps == {0: [10, 11, 12], 1: [11, 12], 2: [11, 12, 13], 3: [10, 11, 12]}


def test_scenarios_are_many_small_and_sound() -> None:
    found = scenarios()
    assert len(found) == len({s.name for s in found}) >= 200
    assert sum(s.negative for s in found) >= 30
    for scenario in found[::9]:
        assert scenario.job.world <= 16
        assert max(len(p.kernels) for p in scenario.truth.programs) * scenario.job.steps <= 400
        assert check(scenario.truth) == []
        gains = [e.gain_ns for e in scenario.expected()]
        assert gains == sorted(gains, reverse=True)
        assert scenario.negative or gains[0] > 0


@pytest.mark.parametrize("seed", [2, 3, 5, 9, 10, 14, 15, 100_000, 100_006])
def test_unseen_jobs_are_sound(seed: int) -> None:
    """Drawn from the seed alone; what is wrong costs enough to be named."""
    unseen = draw(seed)
    assert unseen == draw(seed)
    assert check(unseen.truth) == []
    assert len(unseen.wrong) == len(unseen.kinds)
    assert all(gain_ns(unseen.truth, e.fault) >= SMALL * unseen.truth.step_ns for e in unseen.wrong)


def test_written_files_tell_the_truth_in_the_devices_clock(tmp_path: Path) -> None:
    truth = simulate(Job(pp=3, dp=2, hosts=2, micro_batches=3, missing=(5,), bare=(1,), seed=3))
    write(truth, tmp_path)
    assert sorted(f.name for f in tmp_path.iterdir()) == [f"rank_{r}_ascend_pt" for r in range(5)]
    results = tmp_path / "rank_2_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    with (results / "kernel_details.csv").open() as file:
        rows = {row["Name"]: row for row in csv.DictReader(file)}
    for record in truth.ranks[2]:
        for op in record.operations:
            start, end = (int(truth.clock(2, at)) for at in (op.arrival[2], op.end[2]))
            row = rows[op.name(2)]
            assert round(float(row["Duration(us)"]) * 1000) == end - start
            assert row["Start Time(us)"].strip() == f"{start // 1000}.{start % 1000:03d}"
    assert not (tmp_path / "rank_1_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").exists()


def test_the_vendors_split_adds_up(tmp_path: Path) -> None:
    """Also where a rank has no communication at all."""
    for number, job in enumerate((Job(dp=1), Job(dp=4, overlap=True, trace=True), Job(pp=2, dp=2, tp=2))):
        truth = simulate(job)
        write(truth, tmp_path / str(number))
        with (tmp_path / str(number) / "rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv").open() as file:
            rows = list(csv.DictReader(file))
        computing = sum(float(row["Computing"]) for row in rows)
        exposed = sum(float(row["Communication(Not Overlapped)"]) for row in rows)
        assert round(computing * 1000) == pytest.approx(truth.compute_ns(0), rel=1e-4)
        assert round(exposed * 1000) == pytest.approx(sum(truth.exposed_ns(0)), rel=1e-4)
        assert {row["Bubble"] for row in rows} == {"0"}


def test_written_groups_and_links_are_the_ranks_own(tmp_path: Path) -> None:
    job = Job(pp=2, dp=2, micro_batches=2)
    write(job, tmp_path)
    metadata = json.loads((tmp_path / "rank_3_ascend_pt" / "profiler_metadata.json").read_text())
    own = {g.name: list(g.ranks) for g in groups(job) if 3 in g.ranks}
    assert {name: g["global_ranks"] for name, g in metadata["parallel_group_info"].items()} == own
    matrix = json.loads(
        (tmp_path / "rank_3_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "communication_matrix.json").read_text()
    )
    links = {link for kind in matrix["step10"].values() for rows in kind.values() for link in rows}
    assert links == {"1-1", "1-0"}  # in each of its groups rank 3 is the second member
