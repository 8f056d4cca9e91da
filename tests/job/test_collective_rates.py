"""Algorithm and bus bandwidth of collectives: factors by moving chunks about, rates by hand, and from real files."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from build import analyze_path
from ranks import MS, bandwidth, group, link_use, operations, summary
from test_cluster_findings import pipeline_job

from npuperf.advise import RULES, load_thresholds
from npuperf.advise.rule import Finding, JobView
from npuperf.device.collective_rates import collective_rates, rates_alone
from npuperf.device.rank_summary import RankSummary
from npuperf.job.job_study import JobStudy
from npuperf.model.job_result import CollectiveRate

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "msinsight"
MB = 1_000_000
UNIT = 512


def rates(*ranks: RankSummary) -> list[CollectiveRate]:
    """All time of the operations is their own."""
    stay = np.concatenate([rank.operations.stay for rank in ranks])
    return collective_rates(ranks, stay, stay, UNIT)


# -- What an ideal algorithm moves over the link of each rank, by rings in which chunks are handed on.


def handed_on(kind: str, n: int, size: int) -> int:
    """The most that any rank sends around a ring, chunk by chunk, until all have what they should."""
    chunk, sent = size // n, [0] * n
    if kind in ("allReduce", "reduceScatter"):
        for _ in range(n - 1):  # each hands the sum of a chunk on, until its own is complete
            sent = [s + chunk for s in sent]
    if kind in ("allReduce", "allGather"):
        for _ in range(n - 1):
            sent = [s + chunk for s in sent]
    if kind == "alltoall":
        sent = [sum(chunk for peer in range(n) if peer != rank) for rank in range(n)]
    if kind == "broadcast":  # cut into many pieces, which each but the last hands on
        sent = [size] * (n - 1) + [0]
    if kind == "send":
        sent = [size, 0]
    return max(sent)


@pytest.mark.parametrize("n", [2, 3, 4, 8])
@pytest.mark.parametrize("kind", ["allReduce", "allGather", "reduceScatter", "alltoall", "broadcast", "send"])
def test_bus_bandwidth_is_what_an_ideal_algorithm_moves(kind: str, n: int) -> None:
    """840 MB in 10 ms: 84 GB/s of algorithm bandwidth; elements are those that HCCL reports, of one rank."""
    size = 840 * MB
    elements = size // n if kind in ("allGather", "reduceScatter") else size
    moved = handed_on(kind, n, size)
    one = {"type": kind, "stay": 10 * MS, "bytes": -1 if kind == "alltoall" else elements}
    (found,) = rates(summary(0, operations=operations([one]), groups=(group(range(n)),),
                             bandwidth=bandwidth([(0, "HCCS", moved, 1, 9 * MS)])))  # fmt: skip
    assert (found.kind, found.ranks, found.operations) == (kind, 2 if kind == "send" else n, 1)
    assert found.algorithm_gb_per_s == pytest.approx((84, 84))
    assert found.bus_gb_per_s == pytest.approx((moved / 10e6, moved / 10e6))
    assert found.bytes == size and found.by_elements == (kind != "alltoall")
    assert found.link_gb_per_s == pytest.approx(moved / 9e6)


def test_sizes_are_told_by_elements_or_by_what_one_transport_moved_or_not_at_all() -> None:
    """Of 4 ranks an allReduce moves 1.5 of its size; over two transports nobody knows what is moved twice."""
    ops: list[dict[str, Any]] = [{"bytes": 8 * MB}, {}, {}, {"type": "broadcast"}]
    carried = bandwidth([(0, "HCCS", 12 * MB, 1, MS), (1, "HCCS", 6 * MB, 1, MS), (1, "RDMA", 3 * MB, 1, MS),
                         (2, "HCCS", 8 * MB, 1, MS)])  # fmt: skip
    found = rates(summary(0, operations=operations(ops[1:]), groups=(group(range(4), "dp"),), bandwidth=carried))
    told = {(one.kind, one.transport): (one.bytes, one.by_elements, one.size_class, one.bus_gb_per_s) for one in found}
    assert told == {
        ("allReduce", "HCCS"): (8 * MB, False, "4–8 MiB", (12, 12)),
        ("allReduce", "HCCS + RDMA"): (None, False, None, None),
        ("broadcast", "HCCS"): (None, False, None, None),
    }
    assert {one.group for one in found} == {"dp"}
    (one,) = rates(summary(0, operations=operations(ops[:1]), groups=(group(range(4)),)))
    assert (one.bytes, one.by_elements, one.bus_gb_per_s, one.group) == (8 * MB, True, (8 * 1.5, 8 * 1.5), None)


def test_one_rank_tells_an_interval_and_ranks_that_were_loaded_what_they_share() -> None:
    """10 ms in an operation, 2 ms of them waiting, links that are used for 4 ms: 30 MB are 3.75 to 7.5 GB/s."""
    mine = summary(0, operations=operations([{"stay": 10 * MS, "awaited": 2 * MS, "awaited_rank": 1}]),
                   groups=(group(range(2)),), bandwidth=bandwidth([(0, "HCCS", 30 * MB, 1, 4 * MS)]),
                   links=link_use([{"source": 0, "target": 1, "bytes": 30 * MB, "ns": 4 * MS}]))  # fmt: skip
    (found,) = rates_alone(mine, UNIT)
    assert found.time_ns == (4 * MS, 8 * MS)
    assert found.bus_gb_per_s == pytest.approx((3.75, 7.5)) and found.links == 1
    (unknown,) = rates_alone(summary(0, operations=operations([{"bytes": 30 * MB}]), groups=(group(range(2)),)), UNIT)
    assert unknown.bus_gb_per_s == (30, None) and unknown.link_gb_per_s is None and unknown.unaligned is None


def test_groups_sizes_and_kinds_are_apart_and_packets_of_odd_sizes_counted() -> None:
    """Ops of one rank alone, barriers and what took no time are left out; RDMA's times hold waiting."""
    ops = [{"bytes": 1 << 20}, {"bytes": 1 << 20}, {"bytes": 3 << 20}, {"bytes": 1 << 20, "group": "2"},
           {"bytes": 1 << 20, "group": "3"}, {"type": "barrier"}]  # fmt: skip
    carried = bandwidth([(0, "HCCS", 1 << 19, 2, MS), (1, "HCCS", (1 << 19) + 1, 2, MS), (2, "HCCS", 100, 2, MS),
                         (3, "RDMA", 1 << 19, 2, MS)])  # fmt: skip
    groups = (group(range(2)), group(range(8), id="2"), group([0], id="3"))
    found = rates(summary(0, operations=operations(ops), groups=groups, bandwidth=carried))
    assert {(one.ranks, one.size_class, one.operations, one.unaligned, one.link_gb_per_s is None) for one in found} == {
        (2, "1–2 MiB", 2, 1, False), (2, "2–4 MiB", 1, 0, False), (8, "1–2 MiB", 1, 0, True),
    }  # fmt: skip


# -- The finding.

RATE = CollectiveRate(
    kind="allReduce", group="dp", ranks=8, at_least=False, size_class="64–128 MiB", transport="HCCS", operations=4,
    bytes=4 * 80 * MB, by_elements=True, time_ns=(16 * 10 * MS,) * 2, algorithm_gb_per_s=(32.0, 32.0),
    bus_gb_per_s=(56.0, 56.0), link_gb_per_s=20.0, links=7, reference_gb_per_s=18.0, unaligned=0,
)  # fmt: skip


def asked(*found: CollectiveRate) -> Finding | None:
    """Ask about two steps of 100 ms of 16 ranks."""
    from msgspec.structs import replace

    cluster = replace(pipeline_job(), step_ns=100 * MS, steps=2, collective_rates=[*found])
    study = SimpleNamespace(ranks=[None] * 16)
    (rule,) = (r for r in RULES if r.name == "slow_collectives")
    told = rule.ask_job(JobView(cast(JobStudy, study), cluster, load_thresholds()))
    return told[0] if told else None


def test_collectives_far_below_their_links_are_a_finding() -> None:
    """7 links of 20 GB/s reach 140; 56 are 40 % of it: of 10 ms on each rank 6 are lost, in two steps."""
    found = asked(RATE)
    assert found is not None
    assert str(found.title) == (
        "allReduce of 64–128 MiB over 8 ranks has a bus bandwidth of 56 GB/s, its links over HCCS reach 140; up to "
        "3.00 ms of a step of 100.00 ms"
    )
    assert found.gain_ns_per_step == (0, 3 * MS)
    both = asked(RATE, cast(Any, RATE).__class__(**{**{n: getattr(RATE, n) for n in RATE.__struct_fields__},
                                                    "kind": "allGather"}))  # fmt: skip
    assert both is not None and "1 other kind or size is as slow" in str(both.title)


@pytest.mark.parametrize(
    "other",
    [{"bus_gb_per_s": (56.0, 113.0)}, {"bus_gb_per_s": (56.0, None)}, {"bus_gb_per_s": None}, {"links": None},
     {"link_gb_per_s": None}, {"bytes": 4 * MB}, {"bytes": None}, {"time_ns": (16 * MS, 16 * MS)}],
    ids=["fast enough, perhaps", "no most", "unknown", "links unknown", "rate unknown", "small", "no size", "little"],
)  # fmt: skip
def test_what_may_be_as_fast_as_its_links_or_costs_little_is_no_finding(other: dict[str, Any]) -> None:
    from msgspec.structs import replace

    assert asked(replace(RATE, **other)) is None


# -- Real recordings, by the raw files.


def raw(rank: int) -> dict[str, tuple[float, float, float]]:
    """By operation with its group: µs that it took, MB that it moved and ms of its links."""
    path = DATA / "cluster4" / f"rank_{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "communication.json"
    found = {}
    for sections in json.loads(path.read_text()).values():
        for ops in sections.values():
            for name, op in ops.items():
                if "@" in name:
                    own = op["Communication Bandwidth Info"]["HCCS"]
                    found[name] = (op["Communication Time Info"]["Elapse Time(ms)"], own["Transit Size(MB)"],
                                   own["Transit Time(ms)"])  # fmt: skip
    return found


@pytest.mark.skipif(not (DATA / "cluster4").is_dir(), reason="no data of msinsight")
def test_the_large_collectives_of_four_real_ranks() -> None:
    """A transfer takes as long as the shortest stay of its two ranks; each moves as much over its one link."""
    cluster = analyze_path(DATA / "cluster4").cluster
    assert cluster is not None
    shortest: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for rank in range(4):
        for name, row in raw(rank).items():
            if row[1] > 100:  # MB: gradients, parameters, the embedding
                pair = rank // 2 if "__097_" in name or "__096_" in name else None
                shortest[f"{pair} {name}"].append(row)
    for kind, factor, spread in (("reduceScatter", 0.5, 0.01), ("allReduce", 1.0, 0.01), ("allGather", 0.5, 0.01)):
        instances = [rows for name, rows in shortest.items() if f"hcom_{kind}__" in name]
        assert all(len(rows) == 2 for rows in instances), kind
        moved = sum(row[1] for rows in instances for row in rows)
        took = sum(2 * min(row[0] for row in rows) for rows in instances)
        used = sum(row[2] for rows in instances for row in rows)
        (found,) = (one for one in cluster.collective_rates if one.kind == kind and (one.bytes or 0) > 100 * MB)
        assert (found.ranks, found.links, found.transport, found.unaligned) == (2, 1, "HCCS", 0)
        assert found.bytes == pytest.approx(moved / factor * 1e6, rel=1e-6)
        assert found.bus_gb_per_s is not None and found.bus_gb_per_s[0] == pytest.approx(moved / took, rel=spread)
        assert found.link_gb_per_s == pytest.approx(moved / used, rel=1e-4)
    assert not any(one.rule == "slow_collectives" for one in analyze_path(DATA / "cluster4").findings)


@pytest.mark.skipif(not (DATA / "text").is_dir(), reason="no data of msinsight")
def test_a_real_run_has_two_of_four_collectives_off_512_bytes() -> None:
    """Gradients of 4.1 million, 16.8, 37.8 and 2.5 million elements of FP32, cut into eight parts."""
    (device,) = analyze_path(DATA / "text" / "level1" / "rank0_ascend_pt").devices
    path = DATA / "text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/communication.json"
    (sections,) = json.loads(path.read_text()).values()
    ops = {name: op for name, op in sections["collective"].items() if "@" in name}
    odd = 0
    for op in ops.values():
        sizes = [round(float(size) * 1e6) for size in op["Communication Bandwidth Info"]["HCCS"]["Size Distribution"]]
        odd += any(size % 512 for size in sizes)
    assert (len(ops), odd) == (4, 2)
    assert sum(one.operations for one in device.collective_rates) == 4
    assert sum(one.unaligned or 0 for one in device.collective_rates) == 2
    elements = 4_097_000 + 16_781_312 + 37_752_832 + 2_469_696
    assert sum(one.bytes or 0 for one in device.collective_rates) == 4 * elements
    assert all(one.ranks == 8 and one.links == 7 for one in device.collective_rates)
