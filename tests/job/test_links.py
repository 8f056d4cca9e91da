"""Links between ranks: each counted once, each judged by its peers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import MS, bandwidth, group, link_use, operations, summary

from npuperf.advise import load_thresholds
from npuperf.device.rank_summary import RankSummary
from npuperf.job.links import class_text, judge_links, size_class
from npuperf.model.groups import alike, medians, medians_of_others
from npuperf.model.job_result import Link

STEP = 100 * MS
#: 20 MB in 1 ms: 20 GB/s.
MB = 1_000_000


def judged(*ranks: RankSummary, steps: int = 1) -> list[Link]:
    return judge_links(ranks, STEP, steps, load_thresholds())


def row(source: int, target: int, moved: int = 20 * MB, ns: int = MS, **more: Any) -> dict[str, Any]:
    return {"source": source, "target": target, "bytes": moved, "ns": ns, **more}


def pairs(*ns: int, **more: Any) -> list[RankSummary]:
    """Ranks 0 and 1, 2 and 3, …: 20 MB from each to the other, in so many ns."""
    return [
        summary(rank, links=link_use([row(rank, rank ^ 1, ns=took, **more)]))
        for pair, took in enumerate(ns)
        for rank in (2 * pair, 2 * pair + 1)
    ]


def test_both_directions_add_up_and_none_counts_twice() -> None:
    """Rank 1's file tells of 0→1 what rank 0 tells itself: 20 MB out, 10 MB back, 30 in all."""
    ranks = [
        summary(0, links=link_use([row(0, 1)])),
        summary(1, links=link_use([row(1, 0, 10 * MB), row(0, 1)])),
    ]
    (link,) = judged(*ranks)
    assert (link.ranks, link.bytes, link.time_ns) == ((0, 1), 30 * MB, 2 * MS)
    assert link.gb_per_s == pytest.approx(15.0)
    assert (link.count, link.size_class, link.slow, link.peers_gb_per_s, link.lost_ns) == (None, None, False, None, 0)


def test_what_only_the_other_end_tells_counts() -> None:
    (link,) = judged(summary(1, links=link_use([row(0, 1)])))
    assert (link.ranks, link.bytes) == ((0, 1), 20 * MB)


def test_a_slow_link_is_named_with_what_it_lost() -> None:
    """Three pairs at 20 GB/s; 40 MB of pair 6-7 take 20 ms instead of 2: 18 ms of a step of 100 are lost."""
    slow, *others = judged(*pairs(MS, MS, MS, 10 * MS))
    assert (slow.ranks, slow.slow, slow.peers_gb_per_s, slow.lost_ns) == ((6, 7), True, 20.0, 18 * MS)
    assert (slow.gb_per_s, slow.reference_gb_per_s, slow.transport, slow.kind) == (2.0, 18.0, "HCCS", "allReduce")
    assert len(others) == 3 and not any(link.slow or link.lost_ns for link in others)


@pytest.mark.parametrize(
    "ns",
    [
        (MS, MS, 10 * MS),  # two peers tell nothing
        (10 * MS, 10 * MS, 10 * MS, 12 * MS),  # 0.83 of its peers
        (MS // 10, MS // 10, MS // 10, MS // 2),  # 0.2 of its peers, but 0.8 ms of 100
    ],
)
def test_no_link_is_slow(ns: tuple[int, ...]) -> None:
    assert not any(link.slow for link in judged(*pairs(*ns)))


def test_the_loss_is_held_against_all_steps() -> None:
    """1.8 ms are lost: more than 1 % of one step of 100 ms, less than that of two."""
    ranks = pairs(MS // 10, MS // 10, MS // 10, MS)
    assert judged(*ranks)[0].slow
    assert not judged(*ranks, steps=2)[0].slow


def test_slow_links_come_first_then_the_busiest() -> None:
    ranks = pairs(*(int(ms * MS) for ms in (2.0, 2.1, 1.9, 2.2, 30, 40)))
    assert [link.ranks[0] for link in judged(*ranks)] == [10, 8, 6, 2, 0, 4]
    shown = judge_links(ranks, STEP, 1, load_thresholds(), most=3)
    assert [link.ranks[0] for link in shown] == [10, 8, 6]
    assert len(judge_links(ranks, STEP, 1, load_thresholds(), most=1)) == 2


def test_the_vendors_reference_never_decides() -> None:
    """All links at 2 GB/s, a ninth of the vendor's figure: no peer is faster."""
    links = judged(*pairs(*[10 * MS] * 5))
    assert [(link.slow, link.reference_gb_per_s) for link in links] == [(False, 18.0)] * 5


@pytest.mark.parametrize("other", [{"transport": "RDMA"}, {"type": "allGather"}])
def test_peers_have_the_same_transport_and_kind(other: dict[str, str]) -> None:
    """A pair at a tenth of the others' speed, over another transport or in another kind of operation."""
    odd = summary(6, links=link_use([row(6, 7, ns=10 * MS, **other)]))
    (link,) = [link for link in judged(*pairs(MS, MS, MS), odd) if link.ranks == (6, 7)]
    assert (link.slow, link.peers_gb_per_s) == (False, None)


def test_single_operations_that_are_the_whole_total_give_counts_and_sizes() -> None:
    """As best, middle and worst of two operations are exported: 8 + 16 MiB, named again and again."""
    a = row(0, 1, 1 << 23, MS // 2, name="a")
    b = row(0, 1, 1 << 24, MS, name="b")
    total = row(0, 1, (1 << 23) + (1 << 24), MS + MS // 2)
    large, small = judged(summary(0, links=link_use([a, a, b, total, b])))
    assert (small.size_class, small.count, small.bytes, small.time_ns) == ("8–16 MiB", 1, 1 << 23, MS // 2)
    assert (large.size_class, large.count, large.bytes, large.time_ns) == ("16–32 MiB", 1, 1 << 24, MS)


def test_single_operations_that_are_a_part_give_way_to_the_total() -> None:
    a = row(0, 1, 8 * MB, MS // 2, name="a")
    (link,) = judged(summary(0, links=link_use([a, row(0, 1, 80 * MB, 5 * MS)])))
    assert (link.size_class, link.count, link.bytes, link.time_ns) == (None, None, 80 * MB, 5 * MS)


def test_a_total_that_was_counted_keeps_its_count() -> None:
    (link,) = judged(summary(0, links=link_use([row(0, 1, count=7)])))
    assert (link.size_class, link.count) == (None, 7)


def test_operations_of_other_sizes_are_no_peers() -> None:
    """1 KiB operations are slow everywhere; pair 6-7 had nothing else."""
    large = [summary(r, links=link_use([row(r, r + 1, name="x")])) for r in (0, 2, 4)]
    small = [summary(r, links=link_use([row(r, r + 1, 1024, 3 * MS, name="y")])) for r in (6,)]
    (link,) = [link for link in judged(*large, *small) if link.ranks == (6, 7)]
    assert (link.size_class, link.peers_gb_per_s) == ("1–2 KiB", None)


def test_totals_are_held_only_against_totals_of_about_their_size() -> None:
    """Of 2 kB in tiny operations nothing follows from what 20 MB of others reached."""
    tiny = summary(6, links=link_use([row(6, 7, 2_000, 3 * MS)]))
    assert not any(link.slow for link in judged(*pairs(MS, MS, MS), tiny))


def test_only_the_analysed_steps_count() -> None:
    steps = {"step_number": np.array([5]), "step_start": np.array([0]), "step_end": np.array([STEP])}
    links = link_use([row(0, 1, step=4), row(0, 1, 3 * MB, step=5)])
    (link,) = judged(summary(0, links=links, **steps))
    assert link.bytes == 3 * MB


def test_without_links_operations_between_two_ranks_stand_for_theirs() -> None:
    """Two packet sizes of one operation, 5 MB in 1 ms; the operation among four ranks tells no link."""
    ranks = [
        summary(
            rank,
            groups=(group([0, 3], id="1"), group([0, 1, 2, 3], id="2")),
            operations=operations([{"type": "allGather"}, {"group": "2"}, {"group": "unknown"}]),
            bandwidth=bandwidth(
                [
                    (0, "HCCS", 4 * MB, 1, MS // 2),
                    (0, "HCCS", MB, 1, MS // 2),
                    (1, "HCCS", MB, 1, MS),
                    (2, "HCCS", MB, 1, MS),
                ]
            ),
        )
        for rank in (0, 3)
    ]
    (link,) = judged(*ranks)
    assert (link.ranks, link.kind, link.size_class, link.count) == ((0, 3), "allGather", "4–8 MiB", 2)
    assert (link.bytes, link.time_ns) == (10 * MB, 2 * MS)


def test_the_peer_of_a_point_to_point_operation_is_its_partner() -> None:
    """The group has four ranks, the operation two."""
    ranks = summary(
        0,
        groups=(group([0, 1, 2, 3]),),
        operations=operations([{"type": "send", "peer": 2}]),
        bandwidth=bandwidth([(0, "RDMA", MB, 1, MS)]),
    )
    (link,) = judged(ranks)
    assert (link.ranks, link.transport, link.reference_gb_per_s) == ((0, 2), "RDMA", 12.5)


def test_nothing_is_known_of_links() -> None:
    assert judged() == [] and judged(summary(0), summary(1)) == []
    assert judged(summary(0, links=link_use([row(0, -1), row(0, 0), row(0, 1, 0), row(0, 1, ns=0)]))) == []


def test_medians_of_a_kind_and_of_the_others_of_it() -> None:
    """Held against numpy's own median, row by row."""
    random = np.random.default_rng(7)
    kind = alike(random.integers(0, 9, 200), random.integers(0, 3, 200))
    values = random.random(200).round(1)
    usual, others = medians_of_others(kind, values, int(kind.max()) + 1)
    of_all = medians(kind, values, int(kind.max()) + 1)
    for i in range(200):
        rest = np.delete(values, i)[np.delete(kind, i) == kind[i]]
        assert others[i] == len(rest)
        assert usual[i] == pytest.approx(np.median(rest)) if len(rest) else np.isnan(usual[i])
        assert of_all[kind[i]] == pytest.approx(np.median(values[kind == kind[i]]))


def test_size_classes() -> None:
    assert size_class(np.array([-1, 0, 1, 2, 1023, 1024, (1 << 23) - 1, 1 << 23])).tolist() == [
        -1,
        -1,
        0,
        1,
        9,
        10,
        22,
        23,
    ]
    assert [class_text(p) for p in (-1, 0, 9, 10, 19, 33)] == [
        None,
        "1–2 B",
        "512–1024 B",
        "1–2 KiB",
        "512–1024 KiB",
        "8–16 GiB",
    ]
