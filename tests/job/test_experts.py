"""Experts with different loads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import MS, experts, group, ints, summary

from npuperf.advise import load_thresholds
from npuperf.device.rank_summary import RankSummary, expert_times
from npuperf.job.job_report import judge_experts
from npuperf.model.job_result import Experts
from npuperf.model.labels import Labels
from npuperf.model.tasks import Tasks, Work


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
        np.full(2, Work.COMPUTE, np.uint8),
        type=Labels.of(["GroupedMatmul", "MatMulV2"]),
        shapes=Labels.of([shapes, "1,2;3,4;5"]),
    )
    found = expert_times(tasks, tasks.type)
    assert (found.start.tolist(), found.ns.tolist(), found.tokens.tolist()) == ([0], [40], [tokens])


def test_grouped_matmuls_in_order_of_start() -> None:
    """Whatever their exact type; communication that only sounds like them is left out."""
    start = ints([300, 0, 100, 200])
    work = np.array([Work.COMPUTE, Work.COMPUTE, Work.COMMUNICATION, Work.COMPUTE], np.uint8)
    types = Labels.of(["aclnnGroupedMatmulV4_x", "GroupedMatMulSwiglu", "GroupedMatmul", "AlltoAllGroupedMatmul"])
    found = expert_times(Tasks.build(start, start + ints([1, 2, 3, 4]), work), types)
    assert (found.start.tolist(), found.ns.tolist()) == ([0, 300], [2, 1])
