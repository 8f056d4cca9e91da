"""Bounds of one rank's transfers: worked out by hand, and never above the truth that other ranks tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from ranks import MS, bandwidth, ints, link_use, operations, summary

from npuperf.against.run import run
from npuperf.analyze import whole_job
from npuperf.analyze.request import AnalyzeRequest
from npuperf.device.rank_summary import RankSummary, bounds_alone, least_transfer, link_rates, links_beside
from npuperf.job.job_study import JobStudy, study_job

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "msinsight"


def rank(**parts: Any) -> RankSummary:
    """An allReduce of 10 ms and a send of 4, one after the other, both wholly exposed."""
    rows = [{"stay": 10 * MS, "name": "a"}, {"stay": 4 * MS, "name": "s", "type": "send", "group": "2"}]
    given: dict[str, Any] = {
        "operations": operations(rows),
        "exposed_op": ints([0, 1]),
        "exposed_start": ints([0, 10 * MS]),
        "exposed_end": ints([10 * MS, 14 * MS]),
        **parts,
    }
    return summary(0, **given)


def links(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"source": 0, "target": 1 + i, "bytes": 1, "ns": 1, "name": "a", **more} for i in range(count)]


def test_parallel_links_share_what_the_exporter_sums() -> None:
    """6 ms in two packet sizes over three links are 2 ms at least; the send has one link."""
    moved = bandwidth([(0, "HCCS", 64, 1, 5 * MS), (0, "HCCS", 32, 1, MS), (1, "HCCS", 64, 1, 3 * MS)])
    use = link_use([*links(3), *links(1, type="send", group="2", name="s")])
    assert least_transfer(rank(bandwidth=moved, links=use)).tolist() == [2 * MS, 3 * MS]


def test_of_several_transports_the_longest_counts() -> None:
    """They run side by side: 4 ms over two links of HCCS and 5 over one of PCIE are 5, not 7."""
    moved = bandwidth([(0, "HCCS", 64, 1, 4 * MS), (0, "PCIE", 64, 1, 5 * MS)])
    use = link_use([*links(2), *links(1, transport="PCIE")])
    assert least_transfer(rank(bandwidth=moved, links=use)).tolist() == [5 * MS, 0]


def test_totals_and_operations_of_a_link_are_one_link() -> None:
    """Two links, each with a row of its own for both of two operations, and one for their sum."""
    rows = [row for name in ("a", "b", None) for row in links(2, name=name)]
    use = link_use(rows)
    assert links_beside(use) == 2
    assert least_transfer(rank(bandwidth=bandwidth([(0, "HCCS", 64, 1, 6 * MS)]), links=use)).tolist() == [3 * MS, 0]


def test_links_count_where_their_ends_are_not_known() -> None:
    """Files without the group's ranks: -1 to -1, a row for each of seven links."""
    use = link_use(links(7, source=-1, target=-1))
    assert links_beside(use) == 7
    assert least_transfer(rank(bandwidth=bandwidth([(0, "HCCS", 64, 1, 7 * MS)]), links=use)).tolist() == [MS, 0]


@pytest.mark.parametrize(
    "use",
    [
        link_use([]),
        link_use(links(1, group="2")),
        link_use(links(1, type="allGather")),
        link_use(links(1, transport="PCIE")),
    ],
)
def test_nothing_is_certain_where_links_are_not_known(use: Any) -> None:
    found = rank(bandwidth=bandwidth([(0, "HCCS", 64, 1, 6 * MS)]), links=use)
    assert least_transfer(found).tolist() == [0, 0]
    bounds = bounds_alone(found, 14 * MS)
    assert (bounds.transfer_least_ns, bounds.transfer_most_ns) == (0, 14 * MS)
    assert (bounds.exposed_least_ns, bounds.exposed_most_ns) == (0, 14 * MS)


def test_times_of_rdma_hold_waiting() -> None:
    use = link_use(links(1, transport="RDMA"))
    assert least_transfer(rank(bandwidth=bandwidth([(0, "RDMA", 64, 1, 6 * MS)]), links=use)).tolist() == [0, 0]


def test_a_transfer_is_never_longer_than_the_stay() -> None:
    moved = bandwidth([(0, "HCCS", 64, 1, 60 * MS)])
    assert least_transfer(rank(bandwidth=moved, links=link_use(links(1)))).tolist() == [10 * MS, 0]
    assert least_transfer(rank()).tolist() == [0, 0]


def test_what_does_not_fit_into_the_hidden_part_is_exposed() -> None:
    """6 of 10 ms are transfer at least; 7 are hidden, so 0 is certain; with 4 hidden, 2 are."""
    found = rank(bandwidth=bandwidth([(0, "HCCS", 64, 1, 6 * MS)]), links=link_use(links(1)))
    for hidden, certain in ((7, 0), (4, 2), (0, 6)):
        part = replace(found, exposed_start=ints([hidden * MS, 10 * MS]))
        exposed = (14 - hidden) * MS
        bounds = bounds_alone(part, exposed)
        assert (bounds.transfer_least_ns, bounds.exposed_least_ns) == (6 * MS, certain * MS)
        assert bounds.exposed_most_ns == exposed
    unknown = bounds_alone(replace(found, exposed_known=False), 14 * MS)
    assert (unknown.transfer_least_ns, unknown.exposed_least_ns) == (6 * MS, 0)


def test_rates_of_links_and_how_packets_are_cut() -> None:
    """Over HCCS 5120 bytes in 3 µs (two packets of 2048, two of 512) and 3072 in 2 (three of 1024); one of 700 in 1 µs,
    which is no multiple of 512, one of 100, which is too small to be; RDMA's times hold waiting.
    """
    moved = bandwidth([
        (0, "HCCS", 2048, 2, 2000), (0, "HCCS", 512, 2, 1000), (0, "HCCS", 700, 1, 1000), (1, "HCCS", 100, 1, 1000),
        (1, "PCIE", 1024, 1, 100), (1, "RDMA", 1024, 9, 1),
    ])  # fmt: skip
    other = bandwidth([(0, "HCCS", 1024, 3, 2000)])
    hccs, pcie = link_rates([rank(bandwidth=moved), rank(bandwidth=other)], 512)
    assert (hccs.transport, hccs.packets, hccs.odd, hccs.reference_gb_per_s) == ("HCCS", 9, 1, 18.0)
    assert hccs.gb_per_s == pytest.approx((4096 + 1024 + 700 + 100 + 3072) / 7000)
    assert (hccs.odd_gb_per_s, hccs.even_gb_per_s) == (pytest.approx(0.7), pytest.approx(8292 / 6000))
    assert (pcie.transport, pcie.gb_per_s, pcie.odd, pcie.odd_gb_per_s) == ("PCIE", 10.24, 0, None)
    assert link_rates([rank()], 512) == []


def test_rates_of_a_real_rank_are_its_file_s() -> None:
    """Counted from communication.json alone: a link of HCCS moves 15.65 GB/s, 4 of its 56 packets are cut unevenly."""
    if not DATA.is_dir():
        pytest.skip("the vendor's samples are not here")
    (file,) = DATA.glob("text/level1/rank0_*/ASCEND_PROFILER_OUTPUT/communication.json")
    cut = [
        (round(float(size) * 1e6), count, ms)
        for name, op in json.loads(file.read_text())["step50"]["collective"].items()
        if name != "Total Op Info"
        for size, (count, ms) in op["Communication Bandwidth Info"]["HCCS"]["Size Distribution"].items()
    ]
    odd = [row for row in cut if row[0] % 512]
    whole, part = (sum(s * n for s, n, _ in rows) / sum(ms for _, _, ms in rows) / 1e6 for rows in (cut, odd))
    result = run(AnalyzeRequest(path=file.parents[1]))
    (finding,) = (f for f in result.findings if f.rule == "exposed_communication")
    (rates,) = finding.evidence["rates"]
    assert (rates["packets"], rates["odd"]) == (sum(n for _, n, _ in cut), sum(n for _, n, _ in odd)) == (56, 4)
    assert (rates["gb_per_s"], rates["odd_gb_per_s"]) == (pytest.approx(whole), pytest.approx(part))
    assert "4 of 56 packets are no multiple of 512 bytes" in str(finding.title)


def test_what_was_moved_follows_the_operations_that_are_kept() -> None:
    """Of three operations the first is dropped: rows keep their operation, by its new number."""
    moved = bandwidth([(0, "HCCS", 64, 1, 5), (1, "HCCS", 64, 1, 6), (2, "PCIE", 64, 1, 7), (2, "PCIE", 32, 1, 8)])
    kept = moved.of(np.array([False, True, True]))
    assert (kept.op.tolist(), kept.ns.tolist()) == ([0, 1, 1], [6, 7, 8])
    assert [kept.transport[i] for i in range(3)] == ["HCCS", "PCIE", "PCIE"]
    assert kept.packet.tolist() == [64, 64, 32]


@pytest.mark.parametrize("name", ["cluster4", "text/level1", "db/level1"])
def test_bounds_hold_on_real_ranks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank that came last stayed no longer than the transfer took: nobody's least may be above that."""
    if not DATA.is_dir():
        pytest.skip("the vendor's samples are not here")
    seen: list[JobStudy | None] = []

    def spy(*given: Any) -> JobStudy | None:
        seen.append(study_job(*given))
        return seen[-1]

    monkeypatch.setattr(whole_job, "study_job", spy)
    result = run(AnalyzeRequest(path=DATA / name))
    (study,) = seen
    assert study is not None
    longest = study.matched.stay - study.waits.wait
    for place, mine in enumerate(study.ranks):
        least = least_transfer(mine)
        assert least.any() and (least <= longest[study.matched.rank == place]).all()
    for device in result.devices:
        assert device.communication is not None
        assert 0 < device.communication.exposed_least_ns <= device.partition.comm_exposed_ns


def test_two_ranks_of_eight_know_that_others_are_missing() -> None:
    """Files name no ranks of the group, but seven links: what may be waiting is waiting or unknown, not transfer."""
    if not DATA.is_dir():
        pytest.skip("the vendor's samples are not here")
    cluster = run(AnalyzeRequest(path=DATA / "text" / "level1")).cluster
    assert cluster is not None and cluster.absent == [2, 3, 4, 5, 6, 7]
    assert (cluster.world_size, cluster.world_size_least) == (None, 8)  # there may be more, behind other links
    assert all(r.comm.wait_ns + r.comm.unknown_ns > 10 * r.comm.transfer_ns for r in cluster.ranks)
