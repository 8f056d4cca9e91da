"""Simulated jobs of two hundred, analyzed from their files: what the analysis says against what the simulator did.

The simulator (benchmarks/cluster_world.py) knows who waited for whom, what is wrong, and what mending it brings: it
runs the same job again, with the same luck, without the fault. Nothing here comes from the code under test.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from cluster_files import write
from cluster_job import FaultKind
from cluster_scenarios import BLAMING, Balance, Scenario, must_be_named, names, scenarios

from npuperf.against.run import run
from npuperf.analyze.request import AnalyzeRequest
from npuperf.model.job_result import Cluster, ClusterRank, Root
from npuperf.model.result import Partition, Result

ALL = scenarios()


def kind(scenario: Scenario) -> object:
    job = scenario.job
    return job.pp > 1, tuple(f.kind for f in job.faults), bool(job.missing), bool(job.bare)


#: An analysis costs by the rank: of each kind there is one in a layout of 16, and one in a layout of fewer. All of
#: them: ``--every``.
SUITE = [*{(s.job.world > 8, kind(s)): s for s in ALL}.values()]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "scenario" in metafunc.fixturenames:
        chosen = ALL if metafunc.config.getoption("--every") else SUITE
        metafunc.parametrize("scenario", chosen, ids=[s.name for s in chosen])


def test_the_job_is_understood(scenario: Scenario) -> None:
    with tempfile.TemporaryDirectory() as folder:  # 200 jobs are too many to keep
        write(scenario.truth, Path(folder))
        result = run(AnalyzeRequest(path=Path(folder), rules=("slow_rank",), workers=1))
    cluster = result.cluster
    assert cluster is not None
    assert not [
        *lengths(scenario, cluster),
        *waiting(scenario, cluster),
        *clocks(scenario, cluster),
        *causes(scenario, cluster),
        *sums(cluster),
        *partitions(result),
        *findings(scenario, result),
    ]


# --- how long, and who waited --------------------------------------------------------------------------------------


def lengths(scenario: Scenario, cluster: Cluster) -> Iterator[str]:
    """The step's length within 1 %, reproduced by the replay; every rank that was recorded is there."""
    true = scenario.truth.step_ns
    if abs(cluster.step_ns - true) > 0.01 * true:
        yield f"step {cluster.step_ns}, truly {true}"
    if cluster.replay is None or not cluster.replay.usable:
        yield f"replay {cluster.replay}"
    if [r.rank for r in cluster.ranks] != scenario.job.recorded() or cluster.absent != list(scenario.job.missing):
        yield f"ranks {[r.rank for r in cluster.ranks]}, absent {cluster.absent}"


def waiting(scenario: Scenario, cluster: Cluster) -> Iterator[str]:
    """Waiting and transfer of every rank within 1 % (of short ones: 0.2 % of the step).

    Where ranks are missing what was waited for them is unknown: no more than truly was may be called waiting, and
    what is called transfer is of complete groups. Of an alltoallv, which ranks leave when their part is done, waiting
    and transfer are between bounds: what is unknown may be either.
    """
    truth, job = scenario.truth, scenario.job
    floor = 0.002 * truth.step_ns * job.steps
    for rank in cluster.ranks:
        wait, transfer = truth.wait_ns(rank.rank), truth.transfer_ns(rank.rank)
        if rank.comm.wait_ns > wait + max(0.01 * wait, floor):
            yield f"rank {rank.rank}: wait {rank.comm.wait_ns}, truly {wait}"
        if rank.comm.transfer_ns > transfer + max(0.01 * transfer, floor):
            yield f"rank {rank.rank}: transfer {rank.comm.transfer_ns}, truly {transfer}"
        if job.missing:
            continue
        unknown = rank.comm.unknown_ns
        if unknown > 0.2 * alltoallv_ns(scenario, rank.rank):
            yield f"rank {rank.rank}: unknown {unknown}"
        if rank.comm.wait_ns + unknown < wait - max(0.01 * wait, floor):
            yield f"rank {rank.rank}: wait {rank.comm.wait_ns}, truly {wait}, unknown {unknown}"
        if rank.comm.transfer_ns + unknown < transfer - max(0.01 * transfer, floor):
            yield f"rank {rank.rank}: transfer {rank.comm.transfer_ns}, truly {transfer}, unknown {unknown}"


def alltoallv_ns(scenario: Scenario, rank: int) -> int:
    """How long a rank transferred in operations that ranks may leave early."""
    ops = (op for op in scenario.truth.operations if op.type == "alltoallv" and rank in op.arrival)
    return sum(op.transfer(rank) for op in ops)


def clocks(scenario: Scenario, cluster: Cluster) -> Iterator[str]:
    """Offsets are wrong by at most three times the luck of the ends, what is left is at most twice it.

    A drift that is not told apart is part of the offset: over the job it changes by drift · length, so the best
    constant is that of its middle, and any time in the inner half is as good.
    """
    truth, job = scenario.truth, scenario.job
    luck = 1_000 * job.end_jitter_us
    first = cluster.ranks[0].rank
    for rank in cluster.ranks:
        if rank.clock is None:
            yield f"rank {rank.rank} has no clock"
            continue
        true: float = truth.offset(first) - truth.offset(rank.rank)
        slope = truth.drift(first) - truth.drift(rank.rank)
        error = 3 * luck
        if rank.clock.drift_ppm is None:
            length = truth.step_ns * job.steps
            true, error = true + slope * length / 2, error + abs(slope) * length / 4
        if abs(rank.clock.offset_ns - true) > error:
            yield f"rank {rank.rank}: offset {rank.clock.offset_ns}, truly {true}"
        if rank.clock.residual_ns > 2 * luck:
            yield f"rank {rank.rank}: residual {rank.clock.residual_ns}"


# --- why -----------------------------------------------------------------------------------------------------------


def causes(scenario: Scenario, cluster: Cluster) -> Iterator[str]:
    """Every fault that costs at least 1 % of a step is named, with why and with its gain; nothing else is blamed."""
    left = [r for r in cluster.roots if r.kind in BLAMING]
    balance = Balance(scenario) if scenario.job.pp > 1 else None
    for expected in scenario.expected():
        root = next((r for r in left if names(r, expected)), None)
        if root is None:
            if must_be_named(scenario, expected, balance):
                yield f"missed {expected.fault}: {expected.gain_ns} ns"
            continue
        left.remove(root)
        if root.why not in expected.whys:
            yield f"{root.kind} {root.ranks} because of {root.why}, truly {sorted(expected.whys)}"
        if not expected.small:
            yield from wrong_gain(scenario, cluster, root, expected.gain_ns, balance)
    for root in left:
        if balance is None or not balance.unequal(root):
            yield f"blamed without reason: {root.kind} {root.ranks} {root.why} {root.gain_ns_per_step}"
        else:
            yield from wrong_gain(scenario, cluster, root, balance.gain_ns, balance)


def wrong_gain(scenario: Scenario, cluster: Cluster, root: Root, true: int, balance: Balance | None) -> Iterator[str]:
    """The predicted gain meets the simulated repair within 5 %, or 0.2 % of the step."""
    step = scenario.truth.step_ns
    if root.gain_ns_per_step is None:
        yield f"{root.kind} {root.ranks} has no gain"
        return
    if root.kind == "stage" and balance is not None:
        true = balance.gain_ns  # what can be done about it is to move work
        if sum(r.kind == "stage" for r in cluster.roots) > 1:
            return  # they share that gain
    part, floor = tolerance(scenario, root)
    low, high = root.gain_ns_per_step
    low, high = (1 - part) * low - floor * step, (1 + part) * high + floor * step
    if not low <= true <= high:
        yield f"{root.kind} {root.ranks} gains {root.gain_ns_per_step}, truly {true}"


def tolerance(scenario: Scenario, root: Root) -> tuple[float, float]:
    """How far a gain may be off: of itself, and of the step.

    In a pipeline a slow host launches much while its device waits for other stages; once nobody waits these launches
    show, and nothing in the files tells by how much. Work cannot be spread over a stage of which nothing was recorded.
    """
    job = scenario.job
    if job.pp > 1 and any(f.kind == "host" for f in job.faults):
        return 0.2, 0.01
    if root.kind == "stage" and any(set(job.stage_ranks(s)) <= set(job.missing) for s in range(job.pp)):
        return 0.2, 0.002
    return 0.05, 0.002


# --- what must add up ----------------------------------------------------------------------------------------------


def sums(cluster: Cluster) -> Iterator[str]:
    """Whatever was waited has a root, and every stay is transfer, waiting, or unknown."""
    waited = sum(r.comm.wait_ns for r in cluster.ranks)
    if abs(sum(r.wait_ns for r in cluster.roots) - waited) > 1:
        yield f"roots explain {sum(r.wait_ns for r in cluster.roots)} of {waited} ns"
    if waited and sum(r.share for r in cluster.roots) != pytest.approx(1):
        yield f"shares add up to {sum(r.share for r in cluster.roots)}"
    yield from (f"rank {r.rank}: {r.comm}" for r in cluster.ranks if not adds_up(r))


def adds_up(rank: ClusterRank) -> bool:
    comm = rank.comm
    return (
        comm.transfer_ns + comm.wait_ns + comm.unknown_ns == comm.total_ns
        and sum(comm.wait_by_kind.values()) == comm.wait_ns
        and min(comm.transfer_ns, comm.wait_ns, comm.unknown_ns) >= 0
    )


def partitions(result: Result) -> Iterator[str]:
    """Exposed communication is transfer, waiting and unknown in every window, to the nanosecond."""
    for device in result.devices:
        parts = [device.partition, *(s.partition for s in device.steps), *(p.partition for p in device.phases)]
        yield from (f"rank {device.rank}: {p}" for p in parts if not splits(p))


def splits(part: Partition) -> bool:
    split = part.comm_transfer_ns, part.comm_wait_ns, part.comm_unknown_ns
    return min(split) >= 0 and sum(split) == part.comm_exposed_ns


def findings(scenario: Scenario, result: Result) -> Iterator[str]:
    """A job in which nothing is wrong gets no finding, unless about its unequal stages (see :class:`Balance`)."""
    if scenario.negative:
        allowed = "stage" if scenario.job.pp > 1 else None
        found = [f for f in result.findings if f.rule == "slow_rank" and f.evidence["kind"] != allowed]
        yield from (f"finding: {f.evidence}" for f in found)


# --- the scenarios themselves --------------------------------------------------------------------------------------


def test_there_are_many_of_both_kinds() -> None:
    assert len(ALL) == 200 and len({s.name for s in ALL}) == 200
    assert sum(s.negative for s in ALL) >= 30
    assert len(SUITE) > 40
    assert {f.kind for s in SUITE if s.job.world == 16 for f in s.job.faults} == set(get_args(FaultKind))
