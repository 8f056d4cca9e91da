"""Findings about links, packets and experts: their sentences, their figures, and silence."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from clusters import pipeline_job
from msgspec.structs import replace
from ranks import MS
from small_programs import assert_complete

from npuperf.advise import RULES, load_thresholds
from npuperf.advise.rule import JobView
from npuperf.job.job_study import JobStudy
from npuperf.job.packets import PacketCost, What
from npuperf.model.job_result import Experts, Link
from npuperf.model.result import Finding

STEP = 100 * MS
SLOW = Link(
    ranks=(6, 7),
    transport="HCCS",
    kind="allReduce",
    size_class="8–16 MiB",
    count=9,
    bytes=40 * MS,
    time_ns=20 * MS,
    gb_per_s=2.0,
    peers_gb_per_s=20.0,
    reference_gb_per_s=18.0,
    slow=True,
    lost_ns=18 * MS,
)


def asked(
    rule: str, costs: Sequence[PacketCost] = (), links: Sequence[Link] = (), experts: Sequence[Experts] = ()
) -> Finding | None:
    """Ask a rule about two steps of 100 ms; rank r is on device 10 + r."""
    job = pipeline_job()
    ranks = [replace(job.ranks[0], rank=rank, device=10 + rank) for rank in range(16)]
    cluster = replace(job, step_ns=STEP, steps=2, ranks=ranks, groups=[], roots=[], links=[*links], experts=[*experts])
    view = JobView(cast(JobStudy, SimpleNamespace(costs=costs)), cluster, load_thresholds())
    (mine,) = (r for r in RULES if r.name == rule)
    found = mine.ask_job(view)
    assert len(found) <= 1
    return found[0] if found else None


def links(*found: Link) -> Finding | None:
    return asked("slow_link", links=found)


def test_the_slow_link_in_words() -> None:
    """18 ms are lost in two steps: 9 % of each."""
    found = links(SLOW, replace(SLOW, ranks=(0, 1), slow=False, lost_ns=0))
    assert found is not None
    assert_complete(found, STEP)
    assert str(found.title) == (
        "the HCCS link between ranks 6 and 7 moves 2 GB/s in allReduce, links of other ranks 20 GB/s; "
        "up to 9.00 ms of a step of 100.00 ms"
    )
    assert (found.rule, found.severity, found.rank, found.device) == ("slow_link", "medium", 6, 16)
    assert (found.gain_ns_per_step, found.gain_pct) == ((0, 9 * MS), (0.0, 9.0))
    assert [row["ranks"] for row in found.evidence["links"]] == [[6, 7]]
    assert "ranks 6 and 7 on other devices" in str(found.next)


def test_of_links_that_lose_as_much_the_slowest_is_named() -> None:
    """5-6 holds up the ring of 4 to 7; 0-1 is slower still, but hardly used."""
    ring = [replace(SLOW, ranks=(4, 5), gb_per_s=3.0), replace(SLOW, ranks=(5, 6), lost_ns=17 * MS)]
    found = links(*ring, replace(SLOW, ranks=(0, 1), gb_per_s=0.5, lost_ns=2 * MS))
    assert found is not None and "ranks 5 and 6" in str(found.title)
    assert "2 other links are slow, too" in str(found.title)
    assert found.gain_ns_per_step == (0, 17 * MS // 2)


def test_what_a_link_loses_in_several_kinds_adds_up_but_never_above_the_step() -> None:
    found = links(SLOW, replace(SLOW, kind="allGather", gb_per_s=1.0, lost_ns=10 * MS))
    assert found is not None and found.gain_ns_per_step == (0, 14 * MS)
    assert "1 GB/s in allGather" in str(found.title) and "too" not in str(found.title)
    found = links(replace(SLOW, lost_ns=900 * MS))
    assert found is not None
    assert (found.gain_ns_per_step, found.gain_pct, found.severity) == ((0, STEP), (0.0, 100.0), "high")


def test_network_ports_are_looked_at_with_their_own_tool() -> None:
    found = links(replace(SLOW, transport="RDMA"))
    assert found is not None and str(found.next).startswith("hccn_tool -i 16 -stat -g on the hosts of ranks 6 and 7 ")


def test_links_that_are_not_slow_are_no_finding() -> None:
    assert links() is None
    assert links(replace(SLOW, slow=False)) is None


RULE_OF: dict[What, str] = {
    "small": "small_packets",
    "unaligned": "odd_packets",
    "retry": "retried_transfers",
    "relay": "relayed_transfers",
    "slowed_compute": "slowed_compute",
}


def cost(what: What, **changed: Any) -> PacketCost:
    """20 ms lost by rank 3, 10 by rank 1."""
    evidence = {
        "gb_per_s": 0.8192,
        "best_gb_per_s": 20.97,
        "types": [{"type": "MatMul", "shapes": "8,8", "count": 9, "ratio": 1.234, "lost_ns": 20 * MS}],
    }
    given: dict[str, Any] = {"lost_ns": 20 * MS, "by_rank": (20 * MS, 10 * MS), "kind": "allGather", **changed}
    return PacketCost(
        what=what, ranks=(3, 1), transport="HCCS", count=1234, bytes=1, time_ns=30 * MS, evidence=evidence, **given
    )


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            "small",
            "1 234 packets of less than 1.0 MiB move 0.82 GB/s over HCCS in allGather of rank 3, where others reach "
            "20.97 GB/s",
        ),
        (
            "unaligned",
            "1 234 packets over HCCS in allGather of rank 3 are no multiple of 512 bytes, and slower than those that "
            "are",
        ),
        (
            "retry",
            "1 234 allGather of rank 3 were repeated, and took longer than those that were not",
        ),
        (
            "relay",
            "1 234 allGather of rank 3 took detours over other devices, and longer than those that did not",
        ),
        (
            "slowed_compute",
            "kernels of rank 3 take longer beside communication than equal ones without it: MatMul ×1.23",
        ),
    ],
)
def test_packets_in_words(what: What, words: str) -> None:
    """20 ms are lost in two steps: 10 % of each."""
    others = [cost(w) for w in RULE_OF if w != what]
    found = asked(RULE_OF[what], [*others, cost(what)])
    assert found is not None
    assert_complete(found, STEP)
    assert str(found.title) == f"{words}; up to 10.00 ms of a step of 100.00 ms"
    assert (found.rule, found.severity, found.rank, found.device) == (RULE_OF[what], "high", 3, 13)
    (row,) = found.evidence["costs"]
    assert row["lost_ns_by_rank"] == {"3": 20 * MS, "1": 10 * MS}
    assert asked(RULE_OF[what], others) is None


def test_a_rank_pays_in_all_kinds_of_operations() -> None:
    """Rank 3 loses 20 ms in one kind and, as the second worst, 4 in another: 24 in two steps."""
    other = PacketCost("small", (1, 3), "HCCS", "send", 5, 1, MS, 5 * MS, (5 * MS, 4 * MS), cost("small").evidence)
    found = asked("small_packets", [other, cost("small")])
    assert found is not None and found.gain_ns_per_step == (0, 12 * MS)


@pytest.mark.parametrize("lost", [None, 2 * MS])
def test_packets_that_cost_little_or_nobody_knows_what_are_no_finding(lost: int | None) -> None:
    """2 ms are 1 % of two steps."""
    assert asked("retried_transfers", [cost("retry", lost_ns=lost)]) is None
    assert asked("retried_transfers") is None


def layer(group: str, lost: int, *ns: int, tokens: tuple[int | None, ...] = (600, 300, 300)) -> Experts:
    return Experts(
        group=group, ranks=[4, 5, 6], layer=0, time_ns=list(ns), tokens=list(tokens), imbalance=1.5, lost_ns=lost
    )


def test_uneven_experts_in_words() -> None:
    """Group 1: 12, 14, 10 ms in two steps, 6 of them lost; group 2 loses less."""
    layers = [
        layer("2", 5 * MS, 9 * MS, MS, MS),
        layer("1", 4 * MS, 10 * MS, 6 * MS, 2 * MS),
        layer("1", 2 * MS, 2 * MS, 8 * MS, 8 * MS, tokens=(1, 2, None)),
    ]
    found = asked("uneven_experts", experts=layers)
    assert found is not None
    assert_complete(found, STEP)
    assert str(found.title) == (
        "experts are loaded unevenly over 3 ranks: grouped matmuls take rank 5 7.00 ms of a step, the ranks 6.00 ms on "
        "average, and each layer waits for its longest; up to 3.00 ms of a step of 100.00 ms"
    )
    assert (found.rule, found.severity, found.rank, found.device) == ("uneven_experts", "medium", 5, 15)
    assert found.evidence["time_ns"] == {"4": 12 * MS, "5": 14 * MS, "6": 10 * MS}
    assert found.evidence["tokens"] == {"4": 601, "5": 302, "6": None}


def test_even_experts_are_no_finding() -> None:
    assert asked("uneven_experts") is None
    assert asked("uneven_experts", experts=[layer("1", 0, MS, MS, MS)]) is None
