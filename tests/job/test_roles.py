"""Reinforcement learning on four ranks, by hand: who is in which role when, and what its device does then.

Every rank does in each of two iterations, times in ms from its begin:

    rollout    from 0, for ROLLOUT[rank][iteration]; its device works all of it but the last 4, in which weights move
    weights    the last 4 of the rollout, its device works 1 of them
    log_prob   from 100 to 120, its device works 15
    update     from 120 to 170, its device works 40 and reduces with the others for 5

and an iteration lasts 200. So the rollout's turns are as long as their longest rank, less the 4 of weights.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cluster_files import write
from cluster_job import Job
from ranks import MS, ints, summary

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.device.roles import RoleTimes
from npuperf.job.job_roles import judge_roles
from npuperf.model.job_result import Cluster, JobRole
from npuperf.model.names import role_of
from npuperf.show.formats import View, render
from npuperf.show.job_text import role_lines

ROLLOUT = ((44, 44), (44, 54), (84, 94), (64, 44))
ITERATION, RANKS = 200, len(ROLLOUT)
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NAMES = {"rollout": "generate_sequences", "weights": "update_weights", "log_prob": "compute_log_prob",
         "update": "update_actor"}  # fmt: skip


def trace(rank: int, names: dict[str, str]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    used = iter(range(1, 1000))

    def x(cat: str, name: str, tid: int, begin: float, end: float, **args: object) -> None:
        pid = 0 if cat == "kernel" else 4321
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": 1000 * begin + 1,
                       "dur": 1000 * (end - begin), "args": args})  # fmt: skip

    def kernel(name: str, begin: float, end: float, **args: object) -> None:
        number = next(used)
        x("cuda_runtime", "cudaLaunchKernel", 9, begin - 0.01, begin - 0.005, correlation=number)
        x("kernel", name, 7, begin, end, correlation=number, device=0, stream=7, **args)

    for i in range(2):
        at = i * ITERATION
        rollout = ROLLOUT[rank][i]
        x("user_annotation", f"ProfilerStep#{i}", 9, at, at + ITERATION)
        x("user_annotation", names["rollout"], 9, at, at + rollout)
        x("user_annotation", names["weights"], 9, at + rollout - 4, at + rollout)
        x("user_annotation", names["log_prob"], 9, at + 100, at + 120)
        x("user_annotation", names["update"], 9, at + 120, at + 170)
        kernel("decode", at + 0.1, at + rollout - 4)
        kernel("copy_weights", at + rollout - 3, at + rollout - 2)
        kernel("forward", at + 101, at + 116)
        kernel("backward", at + 121, at + 161)
        kernel(ALL_REDUCE, at + 161, at + 166, **{
            "Collective name": "allreduce", "Process Group Name": "0", "Process Group Description": "default_pg",
            "Process Group Ranks": str([*range(RANKS)]), "Seq": i + 1,
        })  # fmt: skip
    return events


def job(folder: Path, names: dict[str, str]) -> Path:
    folder.mkdir()
    for rank in range(RANKS):
        info = {"backend": "nccl", "rank": rank, "world_size": RANKS}
        whole = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": trace(rank, names)}
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(whole))
    return folder


def studied(folder: Path) -> Cluster:
    cluster = run(AnalyzeRequest(path=folder, workers=1)).cluster
    assert cluster is not None
    return cluster


def roles(cluster: Cluster) -> dict[str, JobRole]:
    return {role.role: role for role in cluster.roles}


def near(ms: float) -> Any:
    return pytest.approx(1e6 * ms, abs=2e5)


def share(part: float) -> Any:
    return pytest.approx(part, abs=0.002)


def test_roles_are_as_they_were_planted(tmp_path: Path) -> None:
    found = roles(studied(job(tmp_path / "job", NAMES)))
    assert [*found] == ["rollout", "update", "log_prob", "weights"]
    rollout = found["rollout"]
    # Turns without the 4 of weights: 80 and 90, as rank 2 is the longest in both; of the median rank 40 and 40.
    assert (rollout.ranks, rollout.turns, rollout.time_ns) == ([0, 1, 2, 3], 2, near(170))
    assert rollout.share == share(170 / 400)
    assert (rollout.longest_rank, rollout.longest_in, rollout.longest_ns) == (2, 2, near(170))
    # Totals are 80, 90, 170 and 100: of four the lower median is 90. Turn by turn it is 40 of (40, 40, 80, 60) and of
    # (40, 50, 90, 40).
    assert (rollout.median_ns, rollout.tail_ns) == (near(90), near(170 - 80))
    assert rollout.early_share == share(1 - (80 + 90 + 170 + 100) / (4 * 170))
    assert rollout.idle_share == share(0)
    weights, update = found["weights"], found["update"]
    assert (weights.time_ns, weights.early_share, weights.idle_share) == (near(8), share(0), share(3 / 4))
    assert (update.time_ns, update.busy_share, update.idle_share) == (near(100), share(0.9), share(0.1))
    assert found["log_prob"].idle_share == share(5 / 20)
    for role in found.values():
        assert role.busy_share + role.idle_share + role.early_share == pytest.approx(1)


def test_the_screen_says_who_is_longest_and_that_names_tell(tmp_path: Path) -> None:
    result = run(AnalyzeRequest(path=job(tmp_path / "job", NAMES), workers=1))
    shown = " ".join(render(result, "text", View(width=200, full=True)).split())
    assert "inferred from the names of ranges" in shown
    assert "rollout: 85.00 ms per step (42.5 %) on 4 ranks, idle in 0.1 % of it" in shown
    # (80 + 90 + 170 + 100) of 4 * 170; 90 of two steps; and of 4 * 400 all that no line above has.
    assert "on average a rank takes 64.7 % of the longest one's time" in shown
    assert "turns take 45.00 ms per step more than the median rank's" in shown
    assert "rank 2 is the longest in 2 of 2 turns" in shown
    outside = 1 - (440 + 4 * (8 + 40 + 100)) / 1600
    assert f"in none of these roles: {100 * outside:.1f} % of the ranks' time" in shown


def test_other_names_tell_nothing(tmp_path: Path) -> None:
    assert studied(job(tmp_path / "job", {role: f"my_{role}_part" for role in NAMES})).roles == []


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("generate_sequences", "rollout"), ("vllm_generate", "rollout"), ("actor_compute_log_prob", "log_prob"),
        ("compute_ref_log_prob", "log_prob"), ("compute_values", "values"), ("compute_rm_score", "reward"),
        ("update_critic", "update"), ("ActorRolloutRefWorker.update_actor", "update"), ("rollout_mode", "weights"),
        ("/app/verl/workers/fsdp_workers.py(812): update_actor", "update"),
        ("aten::update_actor", None), ("update_actor_steps", None), ("ref", None), ("train_batch", None),
        ("nn.Module: update_actor_0", None),
    ],
)  # fmt: skip
def test_names_that_tell_a_role(name: str, role: str | None) -> None:
    assert role_of(name) == role


def test_turns_that_differ_in_number_are_compared_as_sums(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", NAMES)
    path = folder / "rank0.pt.trace.json"
    whole = json.loads(path.read_text())
    log_prob = [e for e in whole["traceEvents"] if e["name"] == "compute_log_prob"]
    whole["traceEvents"].remove(log_prob[0])
    path.write_text(json.dumps(whole))
    cluster = studied(folder)
    found = roles(cluster)["log_prob"]
    assert (found.turns, found.time_ns, found.early_share) == (None, near(40), share(20 / 160))
    said = next(str(line) for line in role_lines(cluster) if str(line).startswith("log_prob"))
    assert f"so sums are compared: rank {found.longest_rank}'s is the longest" in said
    assert "now another" not in said  # nobody knows which turns are the same


def test_turns_that_cannot_be_at_once_are_compared_as_sums() -> None:
    """Of 100 ms each: 90 + 10 and 10 + 90. At once that would be 180; so it is two ranks that are busy all the time."""

    def rollout(*ms: int) -> RoleTimes:
        length = ints(ms) * MS
        return RoleTimes("rollout", ("generate_sequences",), 0 * length, length, length, length)

    (found,) = judge_roles([summary(0, roles=(rollout(90, 10),)), summary(1, roles=(rollout(10, 90),))])
    assert (found.turns, found.time_ns, found.share, found.early_share) == (None, 100 * MS, 1.0, 0.0)
    (found,) = judge_roles([summary(0, roles=(rollout(50, 10),)), summary(1, roles=(rollout(10, 50),))])
    assert (found.turns, found.time_ns, found.share) == (2, 100 * MS, 1.0)


def test_ranges_of_mstx_tell_as_well(tmp_path: Path) -> None:
    """As msprof exports them: under the message, in a process of their own."""
    simulated = Job(dp=2, steps=2, trace=True)
    folder = write(simulated, tmp_path / "job")
    for path in folder.glob("*/ASCEND_PROFILER_OUTPUT/trace_view.json"):
        events = json.loads(path.read_text())
        steps = [e for e in events if str(e.get("name")).startswith("ProfilerStep#")]
        for step in steps:  # all of a step is the update, but its first fifth
            begin, length = Decimal(step["ts"]), Decimal(str(step["dur"]))
            for name, first, last in (("generate_sequences", "0", "0.2"), ("update_actor", "0.2", "1")):
                start, stop = (begin + length * Decimal(part) for part in (first, last))
                events.append({"ph": "X", "name": name, "pid": 7, "tid": 1, "ts": f"{start:.3f}",
                               "dur": float(stop - start),
                               "args": {"mark_id": 0, "event_type": "start/end", "domain": "default"}})  # fmt: skip
        path.write_text(json.dumps(events))
    found = roles(studied(folder))
    assert found["update"].share == pytest.approx(0.8, abs=0.02)
    assert found["rollout"].share == pytest.approx(0.2, abs=0.02)
    assert found["update"].turns == 2
