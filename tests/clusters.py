"""Jobs by hand: what several ranks tell together, as the document has it."""

from __future__ import annotations

from npuperf.base.messages import ns, say, series
from npuperf.model.job_result import (
    ClockOffset,
    Cluster,
    ClusterGroup,
    ClusterRank,
    ClusterReplay,
    Collective,
    Experts,
    Link,
    Pipeline,
    RankCommunication,
    Root,
    Stage,
)
from npuperf.model.parts import Tool
from npuperf.model.result import Clock, CoreUse, Device, Finding, Input, Partition, Result, Verdict

US, MS = 1_000, 1_000_000


def communication(transfer: float, waits: dict[str, float], unknown: float = 0, hidden: float = 0) -> RankCommunication:
    """Times in ms; ``hidden``: of the transfer, what compute hides."""
    wait = sum(waits.values())
    return RankCommunication(
        total_ns=round((transfer + wait + unknown) * MS),
        transfer_ns=round(transfer * MS),
        wait_ns=round(wait * MS),
        unknown_ns=round(unknown * MS),
        wait_by_kind={kind: round(ms * MS) for kind, ms in waits.items()},
        exposed_transfer_ns=round((transfer - hidden) * MS),
        exposed_wait_ns=round(wait * MS),
        exposed_unknown_ns=round(unknown * MS),
    )


def rank_of(
    rank: int,
    step: float,
    compute: float,
    comm: RankCommunication,
    *,
    stage: int | None = None,
    host_wait: float | None = None,
    host: str = "node0",
    steps: int = 1,
    clock: ClockOffset | None = None,
) -> ClusterRank:
    """Times in ms: the step's, the others over all steps. What is neither compute nor communication is idle."""
    exposed = (comm.exposed_transfer_ns + comm.exposed_wait_ns + comm.exposed_unknown_ns) / MS
    return ClusterRank(
        rank=rank,
        device=rank % 8,
        stage=stage,
        host=host,
        source=f"job/{host}_{rank}_ascend_pt",
        step_ns=round(step * MS),
        compute_ns=round(compute * MS),
        host_wait_ns=None if host_wait is None else round(host_wait * MS),
        idle_ns=round((step * steps - compute - exposed) * MS),
        comm=comm,
        clock=clock,
    )


def offset(us: float, residual: float = 0.8) -> ClockOffset:
    return ClockOffset(offset_ns=round(us * US), low_ns=round((us - 300) * US), high_ns=round((us + 20) * US),
                       residual_ns=round(residual * US), drift_ppm=None, operations=42)  # fmt: skip


def pipeline_job() -> Cluster:
    """Megatron, PP 2 × DP 2, one step: ranks 0 and 1 are stage 0; stage 1 has the logits of a large vocabulary."""
    waits = ({"pp": 283.6, "embd": 34.4}, {"pp": 305.0, "embd": 35.0}, {"pp": 55.0, "embd": 121.0},
             {"pp": 40.0, "embd": 120.0})  # fmt: skip
    compute = (231.2, 231.4, 400.3, 400.5)
    clocks = (0.0, 1.7, 24.8, -0.8)
    ranks = [
        rank_of(r, 810, compute[r], communication(101.8, waits[r]), stage=r // 2, clock=offset(clocks[r]))
        for r in range(4)
    ]
    return Cluster(
        step_ns=810 * MS,
        steps=1,
        ranks=ranks,
        groups=[
            ClusterGroup(group="5862276114690318097", kind="pp", ranks=[0, 2], missing=[], complete=True,
                         inferred=False, operations=4, unmatched=0, transfer_ns=60 * MS, wait_ns=339 * MS),
            ClusterGroup(group="1234567890123456789", kind="pp", ranks=[1, 3], missing=[], complete=True,
                         inferred=False, operations=4, unmatched=0, transfer_ns=60 * MS, wait_ns=345 * MS),
        ],
        stages=[
            Stage(stage=0, ranks=[0, 1], compute_ns=231_300_000, bubble_ns=240 * MS, window_ns=810 * MS,
                  vendor_bubble_ns=0),
            Stage(stage=1, ranks=[2, 3], compute_ns=400_400_000, bubble_ns=239_500_000, window_ns=810 * MS,
                  vendor_bubble_ns=0),
        ],
        links=[
            Link(ranks=(0, 2), transport="HCCS", kind="batchSendRecv", size_class="16 MiB", count=None,
                 bytes=1_200_000_000, time_ns=63 * MS, gb_per_s=19.1, peers_gb_per_s=None, reference_gb_per_s=18.0,
                 slow=False, lost_ns=0),
        ],
        roots=[
            Root(kind="schedule", ranks=[], why="compute", wait_ns=634 * MS, share=634 / 994, gain_ns_per_step=None,
                 where=None,
                 title=say("the pipeline's own bubble ({micro} micro-batches on {stages} stages): nobody's fault",
                           micro=2, stages=2),
                 next=say("more micro-batches per step make it smaller")),
            Root(kind="stage", ranks=[2, 3], why="compute", wait_ns=306 * MS, share=306 / 994,
                 gain_ns_per_step=(40 * MS, 48 * MS), where=None, stage=1,
                 operators=["MatMulV3 2048,4096;4096,151936"],
                 title=say("stage {stage} (ranks {ranks}) computes {more} longer per step than the stages' usual pace",
                           stage=1, ranks=series([2, 3]), more=ns(169_100_000)),
                 next=say("move layers from stage {stage} to the others: look at the stage split, not at the network",
                          stage=1)),
        ],
        collectives=[
            Collective(step=13, name="hcom_batchSendRecv__097_4_1@5862276114690318097", group="5862276114690318097",
                       kind="pp", ranks=[0, 2], complete=True, transfer_ns=800_000, wait_ns=[157_750_000, 0],
                       arrival_ns=[0, 157_750_000], last=2),
        ],
        pipeline=Pipeline(stages=2, micro_batches=2, interleaving=1, imbalance=1.27, max_over_min=1.731,
                          schedule_share=1 / 3, bubble_share=0.296, schedule_wait_ns=634 * MS,
                          imbalance_wait_ns=306 * MS, pipelines=2, gain_ns_per_step=(40 * MS, 48 * MS)),
        replay=ClusterReplay(usable=True, error=0.012, measured_ns=810 * MS, reason=None),
        world_size=4,
    )  # fmt: skip


def slow_rank_job() -> Cluster:
    """DP 8, ten steps: rank 3 computes 20 ms longer, the others wait for it."""
    ranks = [
        rank_of(r, 100, 800 if r == 3 else 600, communication(120, {"dp": 0 if r == 3 else 200}, hidden=60),
                steps=10, host_wait=30 + r / 10, clock=offset(r))
        for r in range(8)
    ]  # fmt: skip
    return Cluster(
        step_ns=100 * MS, steps=10, ranks=ranks, groups=[], stages=[], links=[],
        roots=[Root(kind="rank", ranks=[3], why="compute", wait_ns=1_400 * MS, share=1.0,
                    gain_ns_per_step=(19 * MS, 20 * MS), where="train.py:88 forward", operators=["FlashAttentionScore"],
                    title=say("rank {rank} computes {more} longer per step than its peers, and they wait for it",
                              rank=3, more=ns(20 * MS)),
                    next=say("compare its data with its peers'"))],
        world_size=8,
    )  # fmt: skip


def large_job(count: int = 1_024) -> Cluster:
    """8 stages of 128 ranks on 128 machines: rank 77 is slow in its host, 600 in its compute; one link is slow."""
    slow = 600 * count // 1_024
    ranks = []
    for r in range(count):
        compute, host, wait = 281 + r % 8, 20 + r % 3, 340 - r % 8
        if r == 77:
            host, wait = 160, 200
        if r == slow:
            compute, wait = 420, 200
        waits = {"pp": wait * 0.6, "dp_cp": wait * 0.3, "tp": wait * 0.1}
        ranks.append(
            rank_of(r, 1_000, compute, communication(150, waits, unknown=5), stage=r // (count // 8), host_wait=host,
                    host=f"node{r // 8}", clock=offset(r % 25, residual=400.0 if r == 9 else 1.0))
        )  # fmt: skip
    names = [say("rank {rank} waits {more} longer per step for its host than its peers, and they wait for it",
                 rank=rank, more=ns((90 - i) * MS)) for i, rank in enumerate((77, slow, 5, 6, 7, 8, 9))]  # fmt: skip
    roots = [
        Root(kind="rank", ranks=[rank], why="host", wait_ns=(7 - i) * 10 * count * MS, share=(7 - i) / 40,
             gain_ns_per_step=((60 - 9 * i) * MS, (80 - 9 * i) * MS), where=f"/a/long/path/train_{i}.py:88 forward",
             operators=["MatMulV3 2048,4096;4096,151936", "FlashAttentionScore 1,8192,32,128;1,8192,8,128"],
             title=title,
             next=say("look at what its host does: npuperf analyze PATH --rank {rank}", rank=rank))
        for i, (rank, title) in enumerate(zip((77, slow, 5, 6, 7, 8, 9), names, strict=True))
    ]  # fmt: skip
    stages = [
        Stage(stage=s, ranks=list(range(s * count // 8, (s + 1) * count // 8)), compute_ns=(281 + s) * MS,
              bubble_ns=200 * MS, window_ns=900 * MS, vendor_bubble_ns=0)
        for s in range(8)
    ]  # fmt: skip
    links = [
        Link(ranks=(r, r + 8), transport="RDMA", kind="allReduce", size_class="32 MiB", count=20, bytes=640_000_000,
             time_ns=40 * MS, gb_per_s=6.25 if r == 16 else 16.0, peers_gb_per_s=16.0, reference_gb_per_s=25.0,
             slow=r in (16, 24, 32, 40), lost_ns=(60 - r) * MS if r in (16, 24, 32, 40) else 0)
        for r in range(0, 64, 8)
    ]  # fmt: skip
    return Cluster(
        step_ns=1_000 * MS, steps=1, ranks=ranks, groups=[], stages=stages, links=links, roots=roots,
        collectives=[
            Collective(step=1, name=f"hcom_allReduce__123_{i}_1", group="dp[1]", kind="dp_cp", ranks=list(range(count)),
                       complete=False, transfer_ns=MS, wait_ns=[MS] * (count - 1) + [0], arrival_ns=None,
                       last=count - 1)
            for i in range(3)
        ],
        pipeline=Pipeline(stages=8, micro_batches=16, interleaving=1, imbalance=1.02, max_over_min=1.03,
                          schedule_share=7 / 23, bubble_share=0.22, schedule_wait_ns=count * 195 * MS,
                          imbalance_wait_ns=count * 9 * MS, pipelines=count // 8, gain_ns_per_step=(0, 4 * MS)),
        experts=[Experts(group="ep", ranks=[0, 1], layer=1, time_ns=[1, 2], tokens=[None, None], imbalance=1.3,
                         lost_ns=MS)],
        replay=ClusterReplay(usable=True, error=0.021, measured_ns=1_000 * MS, reason=None),
        world_size=count + 1,
        absent=[count],
        notes=[say("launches are not recorded on every rank"), say("{n} of the operations were left out", n=3)],
    )  # fmt: skip


def device_of(rank: ClusterRank, steps: int) -> Device:
    """The report of a rank, as short as can be."""
    comm, compute = rank.comm, rank.compute_ns or 0
    exposed = comm.exposed_transfer_ns + comm.exposed_wait_ns + comm.exposed_unknown_ns
    host, idle = rank.host_wait_ns or 0, rank.idle_ns or 0
    partition = Partition(
        span_ns=compute + exposed + idle, compute_ns=compute, comm_exposed_ns=exposed, other_exposed_ns=0,
        idle_ns=idle, host_wait_ns=host, launch_latency_ns=0, dependency_wait_ns=0, unattributed_ns=idle - host,
        comm_transfer_ns=comm.exposed_transfer_ns, comm_wait_ns=comm.exposed_wait_ns,
        comm_unknown_ns=comm.exposed_unknown_ns,
    )  # fmt: skip
    return Device(
        rank=rank.rank, device=rank.device, source=rank.source, level="Level1", soc=None, cores_cube=None,
        cores_vector=None, origin_ns=0, partition=partition, verdict=VERDICT,
        clock=Clock(launch_latency_ns=0, latency_samples=0, skew_ns=0, launches=0, tasks=9), steps=[], streams=[],
        cores=CoreUse(source=None, cube=None, vector=None, by_type=[], most_idle=[], reason=say("no core figures")),
        vendor=[], phases=[],
    )  # fmt: skip


VERDICT = Verdict(
    bound="communication", basis="measured",
    reason=say("over all ranks: {part} of the step is waiting for other ranks", part="30.7 %"),
)  # fmt: skip


def finding(rule: str, rank: int) -> Finding:
    return Finding(
        rule=rule, status="problem", severity="medium",
        title=say("operators run on AI CPU: {types}", types="Cumsum ×3"), evidence={},
        gain_ns_per_step=(0, 71_360), gain_pct=(0.0, 3.1), gain_per="step", refute=None,
        next=say("use a dtype that AI Core has (int32 for int64, float for double), or move them out of the step"),
        code=None, needs=None, source=None, rank=rank, device=rank % 8,
    )  # fmt: skip


def result_of(cluster: Cluster | None, *, findings: list[Finding] | None = None, warnings: int = 0) -> Result:
    """The analysis of a job; of two ranks of no job where there is none."""
    job = cluster or slow_rank_job()
    return Result(
        tool=Tool(name="npuperf", version="0.1.0"),
        input=Input(path="job", kind="cluster", files=[f"job/{r.rank}" for r in job.ranks], lost=[],
                    warnings=[say("rank {rank} is missing a file", rank=i) for i in range(warnings)], missing=[]),
        verdict=VERDICT,
        devices=[device_of(r, job.steps) for r in job.ranks],
        operators=[], kernels=[], findings=findings or [], what_if=[], cluster=cluster, thresholds={},
    )  # fmt: skip
