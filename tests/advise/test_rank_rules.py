"""Rules across ranks, on two ranks whose waiting is known by hand; and what one of them says by itself."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from build import K, analyze_path, ascend_pt
from clusters import large_job, pipeline_job
from msgspec.structs import replace
from msgspec.structs import replace as put
from small_programs import answer, assert_complete, busy, problem, step_length

from npuperf.advise import RULES, advise_job, load_thresholds, ranks, without_alone
from npuperf.advise.rule import Detected, JobView, Rule
from npuperf.base.messages import say
from npuperf.job.job_study import JobStudy
from npuperf.model.job_result import Cluster, ClusterGroup, Link, Root
from npuperf.model.result import Finding, Result

STEP = 10_000_000
TRANSFER = 1_000_000
GROUP = "hcom_allReduce__123_{step}_1"


def rank_kernels(compute: int, others: int) -> list[K]:
    """Two steps of 10 ms: compute, then an allReduce that ends 1 ms after the slower of both came."""
    kernels = []
    for step in range(2):
        at, end = step * STEP, step * STEP + max(compute, others) + TRANSFER
        early = step * 100_000 - 1_000_000  # all is launched before anything runs
        kernels += [
            K(at, compute, f"k{step}", "MatMulV2", "AI_CORE", block=24, launch=early, step=11 + step),
            K(at + compute, end - at - compute, GROUP.format(step=step), "hcom_allReduce_", "COMMUNICATION", "N/A",
              launch=early + 30_000, step=11 + step),
            K(end, at + STEP - end, f"r{step}", "MatMulV2", "AI_CORE", block=24, launch=early + 60_000, step=11 + step),
        ]  # fmt: skip
    return kernels


def ranked(root: Path, rank: int, kernels: list[K], world: int | None = None) -> Path:
    folder = ascend_pt(root / f"r{rank}", kernels)
    (folder / "profiler_info_0.json").rename(folder / f"profiler_info_{rank}.json")
    (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
    if world:
        (folder / "profiler_metadata.json").write_text(json.dumps({"distributed_args": {"world_size": world}}))
    return folder


def job(root: Path, compute: tuple[int, int], world: int | None = None) -> Result:
    for rank, (own, other) in enumerate((compute, compute[::-1])):
        ranked(root, rank, rank_kernels(own, other), world)
    return analyze_path(root)


def problems(result: Result, rule: str) -> list[Finding]:
    return [f for f in result.findings if f.rule == rule and f.status == "problem"]


# --- exposed communication -----------------------------------------------------------------------------------------


def test_one_rank_alone_cannot_tell_transfer_from_waiting(tmp_path: Path) -> None:
    """4 of 10 ms are an allReduce; nothing says what it moved, so nothing of it is certain to be transfer."""
    result = analyze_path(ranked(tmp_path, 0, rank_kernels(5_000_000, 8_000_000)))
    (found,) = problems(result, "exposed_communication")
    assert_complete(found, step_length(result))
    assert str(found.title) == "40.0 % of the step is exposed communication; one rank cannot tell transfer from waiting"
    assert found.gain_ns_per_step == (0, 4_000_000)
    assert (found.severity, found.rank, found.relieves) == ("high", 0, "communication")
    assert "all ranks" in str(found.next)
    bounds = result.devices[0].communication
    assert bounds is not None
    assert (bounds.transfer_least_ns, bounds.transfer_most_ns) == (0, 8_000_000)
    assert (bounds.exposed_least_ns, bounds.exposed_most_ns) == (0, 8_000_000)


def test_what_a_faster_network_brings_one_rank_is_an_interval(tmp_path: Path) -> None:
    """All of the 4 ms per step may be waiting, which no network shortens; if none is, half of it goes."""
    folder = ranked(tmp_path, 0, rank_kernels(5_000_000, 8_000_000))
    found = {
        w.expr: w for w in analyze_path(folder, what_if=("op:hcom_allReduce_*0.5", "comm*0.5,compute*0.9")).what_if
    }
    for expression in ("comm*0.5", "op:hcom_allReduce_*0.5"):
        gain = found[expression]
        assert gain.gain_ns_per_step == pytest.approx((0, 2_000_000), abs=20_000)
        assert gain.gain_pct_interval == pytest.approx((0, 20), abs=0.2)
    both = found["comm*0.5,compute*0.9"].gain_ns_per_step
    assert both == pytest.approx((600_000, 2_600_000), abs=20_000)


def test_a_verdict_of_one_rank_says_what_its_communication_may_be(tmp_path: Path) -> None:
    reason = str(analyze_path(ranked(tmp_path / "a", 0, rank_kernels(1_000_000, 8_000_000))).verdict.reason)
    assert reason.endswith("this holds waiting for other ranks, which one rank alone cannot tell from transfer")
    hidden = str(analyze_path(ranked(tmp_path / "b", 0, rank_kernels(8_000_000, 8_000_000))).verdict.reason)
    assert "other ranks" not in hidden


def test_a_job_tells_and_its_answer_replaces_those_of_its_ranks(tmp_path: Path) -> None:
    """Rank 0 waits 5 of 10 ms for rank 1, both transfer 1: 5 of 20 ms wait, 2 transfer, together 35 %."""
    result = job(tmp_path, (3_000_000, 8_000_000), world=2)
    (found,) = problems(result, "exposed_communication")
    assert_complete(found, STEP)
    assert str(found.title).startswith(
        "35.0 % of the ranks' time is exposed communication: 10.0 % transfer, 25.0 % waiting for other ranks, mostly in"
    )
    assert found.rank == 0
    # rank 0 and 1 can lose their 1 ms of transfer
    assert found.gain_ns_per_step == pytest.approx((0, 1_000_000), rel=0.05)
    assert "no faster network shortens; first of its causes: rank 1 computes 5.00 ms longer" in str(found.next)
    assert {f.rule for f in result.findings if f.status == "ok"}.isdisjoint({"exposed_communication", "slow_rank"})


def test_shares_are_of_the_time_that_ranks_have(tmp_path: Path) -> None:
    """As above, but rank 0 ends 4 ms later than rank 1: of 44 ms 10 wait and 4 transfer, for findings and devices."""
    *kernels, last = rank_kernels(3_000_000, 8_000_000)
    ranked(tmp_path, 0, [*kernels, put(last, dur=last.dur + 4_000_000)], world=2)
    ranked(tmp_path, 1, rank_kernels(8_000_000, 3_000_000), world=2)
    result = analyze_path(tmp_path)
    (found,) = problems(result, "exposed_communication")
    assert "31.8 % of the ranks' time is exposed communication: 9.1 % transfer, 22.7 % waiting" in str(found.title)
    assert result.verdict.evidence["wait_share"] == pytest.approx(10 / 44, rel=1e-6)
    span = sum(device.window.span_ns for device in result.devices)
    assert sum(device.window.comm_wait_ns for device in result.devices) / span == pytest.approx(10 / 44, rel=1e-6)


def test_transfers_of_a_job_are_to_be_overlapped(tmp_path: Path) -> None:
    for rank in (0, 1):
        kernels = [put(k, dur=k.dur + 3_000_000) if "hcom" in k.name else k for k in rank_kernels(5_000_000, 5_000_000)]
        ranked(tmp_path, rank, [put(k, start=k.start + 3_000_000, dur=k.dur - 3_000_000) if k.name[0] == "r" else k
                                for k in kernels], world=2)  # fmt: skip
    (found,) = problems(analyze_path(tmp_path), "exposed_communication")
    assert "40.0 % transfer, 0.0 % waiting for other ranks" in str(found.title)
    assert "most of it is transfer" in str(found.next)


def test_a_job_with_missing_ranks_says_at_least(tmp_path: Path) -> None:
    """Of four ranks two were loaded: rank 0 waited 5 ms at least, all else may be waiting for ranks 2 and 3, too."""
    result = job(tmp_path, (3_000_000, 8_000_000), world=4)
    (found,) = problems(result, "exposed_communication")
    assert "at least 25.0 % is waiting for other ranks and 0.0 % transfer, 10.0 % cannot be told apart" in str(
        found.title
    )
    assert found.gain_ns_per_step is not None and found.gain_ns_per_step[1] <= STEP


@pytest.mark.parametrize("compute", [(8_500_000, 8_500_000), (8_000_000, 8_500_000)])
def test_little_exposed_communication_is_no_finding(tmp_path: Path, compute: tuple[int, int]) -> None:
    """1 and 1.5 of 10 ms."""
    assert problems(job(tmp_path / "job", compute, world=2), "exposed_communication") == []
    assert problems(analyze_path(tmp_path / "job" / "r0"), "exposed_communication") == []


# --- gates ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "status"),
    [
        ("comm.wait>49%", "fail"),
        ("comm.wait>51%", "pass"),
        ("comm.transfer>9%", "fail"),
        ("comm.transfer>11%", "pass"),
        ("step_time>9.9ms", "fail"),
        ("step_time>10.1ms", "pass"),
    ],
)
def test_gates_of_a_job(tmp_path: Path, gate: str, status: str) -> None:
    """Rank 0 waits 5 of 10 ms, both transfer 1."""
    for rank, (own, other) in enumerate(((3_000_000, 8_000_000), (8_000_000, 3_000_000))):
        ranked(tmp_path, rank, rank_kernels(own, other), 2)
    (found,) = analyze_path(tmp_path, fail_on=(gate,)).gates
    assert found.status == status


def test_a_gate_on_waiting_cannot_be_judged_on_one_rank(tmp_path: Path) -> None:
    folder = ranked(tmp_path, 0, rank_kernels(3_000_000, 8_000_000))
    gates = analyze_path(folder, fail_on=("comm.wait>10%", "comm.transfer>10%", "comm.exposed>10%")).gates
    assert [g.status for g in gates] == ["cannot_tell", "cannot_tell", "fail"]


# --- links ---------------------------------------------------------------------------------------------------------


def link_root(*ranks: int, gain: tuple[int, int] | None = (1_000_000, 2_000_000)) -> Root:
    return Root(kind="link", ranks=list(ranks), why="communication", wait_ns=0, share=0.0, gain_ns_per_step=gain,
                where=None, title=say("the link is slow"))  # fmt: skip


def group_of(*ranks: int) -> ClusterGroup:
    return ClusterGroup(group=str(ranks), kind="dp", ranks=list(ranks), missing=[], complete=True, inferred=False,
                        operations=1, unmatched=0, transfer_ns=0, wait_ns=0)  # fmt: skip


def pairs(links: list[Link]) -> list[tuple[int, int]]:
    return [link.ranks for link in links if link.slow]


def slow_links(cluster: Cluster) -> list[Finding]:
    return ranks.slow_link.ask_job(JobView(cast(JobStudy, None), cluster, load_thresholds()))


def test_a_slow_link_that_is_a_root_is_said_once() -> None:
    """Links 16-24, 24-32, 32-40 and 40-48 are slow; 24-32 is a root and holds up its group of 16 to 32."""
    cluster = large_job()
    assert pairs(ranks.unsaid(cluster)) == [(16, 24), (24, 32), (32, 40), (40, 48)]
    told = replace(cluster, roots=[link_root(24, 32)])
    assert pairs(ranks.unsaid(told)) == [(16, 24), (32, 40), (40, 48)]
    held = replace(told, groups=[group_of(16, 24, 32), group_of(32, 40)])
    assert pairs(ranks.unsaid(held)) == [(32, 40), (40, 48)]
    # a root without gain is no finding of its own
    assert len(pairs(ranks.unsaid(replace(cluster, roots=[link_root(24, 32, gain=None)])))) == 4
    assert len(slow_links(cluster)) == 1
    everything = replace(cluster, roots=[link_root(24, 32)], groups=[group_of(16, 24, 32, 40, 48)])
    assert slow_links(everything) == []


def test_links_of_equal_speed_are_no_finding() -> None:
    assert slow_links(pipeline_job()) == []


# --- roots, and who is asked ---------------------------------------------------------------------------------------


def test_the_rank_that_is_waited_for_is_one_finding(tmp_path: Path) -> None:
    """Rank 1 computes 5 ms longer than rank 0, in both steps, and at most so much is saved."""
    result = job(tmp_path, (3_000_000, 8_000_000), world=2)
    (found,) = problems(result, "slow_rank")
    assert_complete(found, STEP)
    assert found.rank == 1 and str(found.title).startswith("rank 1 computes 5.00 ms longer per step")
    assert found.gain_ns_per_step is not None and found.gain_ns_per_step[1] <= 5_200_000


def test_equal_ranks_have_no_finding_across_ranks(tmp_path: Path) -> None:
    result = job(tmp_path, (8_500_000, 8_500_000), world=2)
    assert result.cluster is not None
    across = {r.name for r in RULES if r.on_job}
    assert [f.rule for f in result.findings if f.rule in across] == []


def test_only_the_rules_that_are_named_are_asked(tmp_path: Path) -> None:
    job(tmp_path, (3_000_000, 8_000_000), world=2)
    assert [f.rule for f in analyze_path(tmp_path, rules=("slow_rank",)).findings] == ["slow_rank"]
    alone = analyze_path(tmp_path / "r0", rules=("exposed_communication", "slow_rank")).findings
    assert [f.rule for f in alone] == ["exposed_communication"]


def test_a_device_that_is_of_no_job_keeps_its_own_answer(tmp_path: Path) -> None:
    result = analyze_path(ranked(tmp_path, 0, rank_kernels(3_000_000, 8_000_000)))
    own, (report,) = result.findings, result.devices
    there: Any = SimpleNamespace(places={(report.source, report.device, report.rank): 0})
    elsewhere: Any = SimpleNamespace(places={("rank_9", report.device, report.rank): 0})
    assert without_alone(own, report, None) == without_alone(own, report, elsewhere) == own
    left = {f.rule for f in own} - {f.rule for f in without_alone(own, report, there)}
    assert left == {"exposed_communication", "slowed_compute"}


def test_a_rule_across_ranks_is_added_with_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Cluster] = []

    def look(job: JobView) -> list[Detected]:
        seen.append(job.cluster)
        return []

    monkeypatch.setattr("npuperf.advise.RULES", [*RULES, Rule("pairs", say("pairs"), say("a test"), on_job=look)])
    result = job(tmp_path, (3_000_000, 8_000_000), world=2)
    assert [c.step_ns for c in seen] == [result.cluster.step_ns if result.cluster else 0]


def test_a_gpu_gets_no_advice_for_an_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kineto traces name no HCCL operation: rules that speak of its ports and packets are not asked."""
    asked: list[str] = []
    rules = [replace(r, on_job=lambda *_, name=r.name: asked.append(name) or []) for r in RULES if r.on_job]
    monkeypatch.setattr("npuperf.advise.RULES", rules)
    study: Any = SimpleNamespace(ranks=[SimpleNamespace(kineto=True)])
    advise_job(study, pipeline_job(), load_thresholds())
    assert set(asked) == {"slow_rank", "uneven_experts", "exposed_communication"}
    assert "HCCL" not in str(ranks.OVERLAP)


@pytest.mark.parametrize("name", ["MatmulReduceScatterV2", "AlltoAllAllGatherBatchMatMul", "MoeDistributeCombine"])
def test_kernels_that_exchange_data_may_wait(tmp_path: Path, name: str) -> None:
    """Steps of 50 kernels of 100 µs: of each 12 communicate (24 %), or 8 (16 %); one half as long is hidden."""

    def of(count: int) -> list[K]:
        kernels = [replace(k, type=name if i % 50 < count else k.type) for i, k in enumerate(busy())]
        return [*kernels, *(replace(k, type=name, stream=3, dur=50_000) for k in kernels if k.type == "MatMulV2")]

    found = problem(ascend_pt(tmp_path / "many", of(12)), "waiting_kernels")
    assert found.gain_ns_per_step == (0, 12 * 100_000) and "24.0 % of the step is kernels" in str(found.title)
    assert [found.evidence[name] for name in ("count", "shortest_ns", "longest_ns")] == [100, 50_000, 100_000]
    assert "one rank cannot tell" in str(found.title)
    assert answer(ascend_pt(tmp_path / "few", of(8)), "waiting_kernels").status == "ok"
