"""Rules that look across ranks: who is waited for in collectives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from build import ascend_pt
from msgspec.structs import replace
from situations import analyzed, assert_complete, busy

from npuperf import advise
from npuperf.advise import RULES, advise_ranks, load_thresholds, register
from npuperf.advise.rule import RankRule
from npuperf.cluster.waits import Stays, collective_waits
from npuperf.documents.analysis import Device, Finding
from npuperf.messages import say
from npuperf.model.labels import I64
from npuperf.model.thresholds import Thresholds


@pytest.fixture
def device(tmp_path: Path) -> Device:
    """10 ms of compute in two steps."""
    (report,) = analyzed(ascend_pt(tmp_path, busy())).devices
    return report


def asked(device: Device, stays: Sequence[Sequence[int]], names: Sequence[str] = ()) -> list[Finding]:
    """Ask about ranks 0, 1, … that stayed so long (µs) in their collectives."""
    ranks = [
        Stays(replace(device, rank=rank), ("allReduce",) * len(mine), np.array(mine, np.int64) * 1_000)
        for rank, mine in enumerate(stays)
    ]
    waits = collective_waits(ranks)
    assert waits is not None
    return advise_ranks(ranks, waits, load_thresholds(), names)


def test_the_rank_that_others_wait_for(device: Device) -> None:
    """Ranks 0 and 2 stay 190 µs longer in each of 10 collectives: 1.9 of 10 ms."""
    (found,) = asked(device, [[200] * 10, [10] * 10, [200] * 10])
    assert_complete(found, 5_000_000)
    assert (found.rule, found.rank, found.severity) == ("slow_rank", 1, "high")
    assert found.gain_ns_per_step == (0, 950_000)
    assert found.evidence["last_in"] == {"0": 0, "1": 10, "2": 0}
    assert found.evidence["waited_ns"] == {"0": 1_900_000, "1": 0, "2": 1_900_000}
    assert "rank 1 is the last to arrive at 100.0 %" in str(found.title) and "compute-bound" in str(found.title)
    assert "--rank 1 " in str(found.next)


def test_a_bound_that_is_not_known_is_not_named(device: Device) -> None:
    unknown = replace(device, verdict=replace(device.verdict, bound="unknown"))
    (found,) = asked(unknown, [[200] * 10, [10] * 10])
    assert "bound" not in str(found.title)


@pytest.mark.parametrize(
    "stays",
    [
        [[200] * 7, [10] * 7],  # too few collectives
        [[200, 10] * 5, [10, 200] * 5],  # now one is last, now the other
        [[20] * 10, [10] * 10],  # 0.1 of 10 ms
    ],
)
def test_no_rank_is_slow(device: Device, stays: list[list[int]]) -> None:
    assert asked(device, stays) == []


def test_only_the_rules_that_are_named_are_asked(device: Device) -> None:
    stays = [[200] * 10, [10] * 10]
    assert len(asked(device, stays, ["slow_rank", "layout"])) == 1
    assert asked(device, stays, ["layout"]) == []


def test_a_rule_across_ranks_is_added_with_one_call(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(stays: Sequence[Stays], waits: I64, thresholds: Thresholds) -> Finding | None:
        found = advise.slow_rank.judge_ranks(stays, waits, thresholds)
        return found and replace(found, rule="pairs", severity="low")

    monkeypatch.setattr(advise, "RULES", [*RULES])
    register(RankRule("pairs", say("ranks in pairs"), say("a test"), judge))
    assert [f.rule for f in asked(device, [[200] * 10, [10] * 10])] == ["slow_rank", "pairs"]
