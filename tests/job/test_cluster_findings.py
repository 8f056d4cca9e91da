"""Findings about ranks, links, packets and experts: their sentences, their figures, and silence."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from clusters import pipeline_job
from msgspec.structs import replace
from ranks import MS, US, Item, Work, experts, group, ints, summary, told
from small_programs import assert_complete

from npuperf.advise import RULES, load_thresholds, ranks
from npuperf.advise.rule import JobView
from npuperf.device.rank_summary import RankSummary, expert_times
from npuperf.job.job_report import describe_job, judge_experts
from npuperf.job.job_study import JobStudy, study_job
from npuperf.job.links import PacketCost, What
from npuperf.model.job_result import Experts, Link
from npuperf.model.labels import Labels
from npuperf.model.result import Finding
from npuperf.model.tasks import Tasks
from npuperf.model.tasks import Work as TaskWork

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


# --- root causes of waiting: a finding for each that somebody can mend, and silence else -----------------------------


ALIKE = Work(60)


def asked_of(works: Sequence[Sequence[Work]], **changed: float) -> list[Finding]:
    """Ask about ranks that do such work, each piece followed by a collective of 10 µs on all; it is one step."""
    programs: dict[int, list[Item]] = {
        r: ["dp/0", *(item for n, w in enumerate(own, 1) for item in (w, f"dp/{n}"))] for r, own in enumerate(works)
    }
    transfer = {f"dp/{n}": 10 for n in range(len(works[0]) + 1)}
    thresholds = load_thresholds(changed)
    study = study_job(told(programs, transfer, [group(range(len(works)), "dp", "dp")]), thresholds)
    assert study is not None
    return ranks.slow_rank.ask_job(JobView(study, describe_job(study, [], thresholds), thresholds))


def steady(*works: Work) -> list[list[Work]]:
    return [[w] * 5 for w in works]


def test_the_rank_that_others_wait_for() -> None:
    """Five times 40 µs longer than the others in a step of 560 µs; three ranks wait for it."""
    (found,) = asked_of(steady(ALIKE, ALIKE, Work(100), ALIKE))
    assert_complete(found, 560 * US)
    assert (found.rule, found.rank, found.device, found.severity) == ("slow_rank", 2, 2, "high")
    assert found.evidence["waited_ns"] == 600 * US and found.evidence["compute_excess_ns_per_step"] == 200 * US
    assert found.gain_ns_per_step is not None and found.gain_pct is not None
    assert found.gain_ns_per_step[0] <= 200 * US <= found.gain_ns_per_step[1]
    assert found.gain_pct[0] <= 100 * 200 / 560 <= found.gain_pct[1]
    assert str(found.title).startswith("rank 2 computes 200.00 us longer per step than its peers")
    assert "--rank 2" in str(found.next)


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        (Work(60, host=40), "waits 200.00 us longer per step for its host"),
        (Work(60, other=40), "takes 200.00 us longer per step"),
    ],
)
def test_why_it_is_slow_is_said(slow: Work, words: str) -> None:
    (found,) = asked_of(steady(ALIKE, slow, ALIKE))
    assert found.rank == 1 and words in str(found.title)


def test_each_of_two_slow_ranks_that_cost_something_is_named() -> None:
    """By turns: rank 0 is slow in one half, rank 1 in the other. Mending either gains its half."""
    first, second = [Work(100)] * 5 + [ALIKE] * 5, [ALIKE] * 5 + [Work(100)] * 5
    found = asked_of([first, second, [ALIKE] * 10])
    assert sorted(f.rank for f in found if f.rank is not None) == [0, 1]


@pytest.mark.parametrize(
    "works",
    [
        steady(ALIKE, ALIKE, ALIKE),
        steady(ALIKE, Work(60, 0, 0), Work(60)),
        [[Work(100 if n % 3 == r else 60) for n in range(6)] for r in range(3)],  # by turns, as much each
        steady(Work(1_000), Work(1_005), Work(1_000)),  # half a percent
    ],
)
def test_no_rank_is_slow(works: list[list[Work]]) -> None:
    assert asked_of(works) == []


def test_how_much_it_must_cost_is_a_threshold() -> None:
    works = steady(Work(1_000), Work(1_005), Work(1_000))
    assert [f.rank for f in asked_of(works, root_share=0.0002)] == [1]


# --- experts with different loads ------------------------------------------------------------------------------------


def judged(*ranks: RankSummary) -> list[Experts]:
    return judge_experts(ranks, load_thresholds())


def rank(number: int, *ns: int, kind: str = "ep", members: tuple[int, ...] = (0, 1, 2), **more: Any) -> RankSummary:
    """A rank whose grouped matmuls take so many ns, one every 10 ms, with one token per µs."""
    rows = [(10 * MS * i, took, took // 1_000) for i, took in enumerate(ns)]
    return summary(number, groups=(group(members, kind),), **{"experts": experts(rows), **more})


def test_all_wait_for_the_fullest_expert() -> None:
    """Layer 0: 6, 3, 3 ms: longest 6, mean 4. Layer 1: 1 ms each."""
    first, second = judged(rank(0, 6 * MS, MS), rank(1, 3 * MS, MS), rank(2, 3 * MS, MS))
    assert (first.group, first.ranks, first.layer, first.time_ns) == ("1", [0, 1, 2], 0, [6 * MS, 3 * MS, 3 * MS])
    assert (first.tokens, first.imbalance, first.lost_ns) == ([6_000, 3_000, 3_000], 1.5, 2 * MS)
    assert (second.layer, second.imbalance, second.lost_ns) == (1, 1.0, 0)


def test_layers_are_numbered_in_every_step() -> None:
    """Two steps: now rank 0, now rank 1 is the fullest, 6 against 2 ms: 2 + 2 ms are lost, though sums are equal."""
    steps = {"step_number": ints([0, 1]), "step_start": ints([0, 10 * MS]), "step_end": ints([10 * MS, 20 * MS])}
    (layer,) = judged(rank(0, 6 * MS, 2 * MS, **steps), rank(1, 2 * MS, 6 * MS, **steps))
    assert (layer.layer, layer.time_ns, layer.imbalance, layer.lost_ns) == (0, [8 * MS, 8 * MS], 1.5, 4 * MS)


def test_what_lies_outside_of_steps_is_left_out() -> None:
    steps = {"step_number": ints([0]), "step_start": ints([10 * MS]), "step_end": ints([20 * MS])}
    (layer,) = judged(rank(0, 9 * MS, 6 * MS, 9 * MS, **steps), rank(1, MS, 2 * MS, MS, **steps))
    assert (layer.time_ns, layer.lost_ns) == ([6 * MS, 2 * MS], 2 * MS)


def test_tokens_that_were_not_recorded() -> None:
    unknown = rank(1, 2 * MS, experts=experts([(0, 2 * MS, -1)]))
    (layer,) = judged(rank(0, 6 * MS), unknown)
    assert layer.tokens == [6_000, None]


def test_a_rank_with_other_matmuls_is_left_out() -> None:
    (layer,) = judged(rank(0, 6 * MS), rank(1, 2 * MS), rank(2, MS, MS))
    assert layer.ranks == [0, 1]


@pytest.mark.parametrize(
    "ranks",
    [
        [rank(0, 6 * MS)],  # alone
        [rank(0, 6 * MS), rank(1, 2 * MS, MS)],  # other numbers of matmuls
        [rank(0, 6 * MS, kind="tp"), rank(1, 2 * MS, kind="tp")],
        [rank(0, 3 * MS), rank(1, 2 * MS)],  # 0.5 ms of 100
        [rank(0), rank(1)],
        [rank(0, 6 * MS, experts=None), rank(1, 2 * MS, experts=None)],
        [],
    ],
)
def test_no_imbalance(ranks: list[RankSummary]) -> None:
    assert judged(*ranks) == []


@pytest.mark.parametrize(
    ("shapes", "tokens"),
    [
        ('"1024,4096;8,4096,8192;8"', 1024),
        ('"100,4096;28,4096;16,4096,8192;16"', 128),
        ("1024,4096;8,4096,8192;;;;;;8", 1024),  # absent inputs between
        ('"1024,4096;4096,8192"', -1),  # no token is among all but the last two
        ("N/A", -1),
        (f"{'9' * 5000},4096;4096,8192;8", -1),
        ("", -1),
        (None, -1),
    ],
)
def test_tokens_are_read_from_shapes(shapes: str | None, tokens: int) -> None:
    start = ints([0, 100])
    tasks = Tasks.build(
        start,
        start + 40,
        np.full(2, TaskWork.COMPUTE, np.uint8),
        type=Labels.of(["GroupedMatmul", "MatMulV2"]),
        shapes=Labels.of([shapes, "1,2;3,4;5"]),
    )
    found = expert_times(tasks, tasks.type)
    assert (found.start.tolist(), found.ns.tolist(), found.tokens.tolist()) == ([0], [40], [tokens])


def test_grouped_matmuls_in_order_of_start() -> None:
    """Whatever their exact type; communication that only sounds like them is left out."""
    start = ints([300, 0, 100, 200])
    work = np.array([TaskWork.COMPUTE, TaskWork.COMPUTE, TaskWork.COMMUNICATION, TaskWork.COMPUTE], np.uint8)
    types = Labels.of(["aclnnGroupedMatmulV4_x", "GroupedMatMulSwiglu", "GroupedMatmul", "AlltoAllGroupedMatmul"])
    found = expert_times(Tasks.build(start, start + ints([1, 2, 3, 4]), work), types)
    assert (found.start.tolist(), found.ns.tolist()) == ([0, 300], [2, 1])
