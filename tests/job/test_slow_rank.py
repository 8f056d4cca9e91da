"""The rule about root causes of waiting: a finding for each cause that somebody can mend, and silence else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from ranks import US, Item, Work, group, told
from small_programs import assert_complete

from npuperf.advise import load_thresholds, ranks
from npuperf.advise.rule import JobView
from npuperf.job.job_report import describe_job
from npuperf.job.job_study import study_job
from npuperf.model.result import Finding

ALIKE = Work(60)


def asked(works: Sequence[Sequence[Work]], **changed: float) -> list[Finding]:
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
    (found,) = asked(steady(ALIKE, ALIKE, Work(100), ALIKE))
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
    (found,) = asked(steady(ALIKE, slow, ALIKE))
    assert found.rank == 1 and words in str(found.title)


def test_each_of_two_slow_ranks_that_cost_something_is_named() -> None:
    """By turns: rank 0 is slow in one half, rank 1 in the other. Mending either gains its half."""
    first, second = [Work(100)] * 5 + [ALIKE] * 5, [ALIKE] * 5 + [Work(100)] * 5
    found = asked([first, second, [ALIKE] * 10])
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
    assert asked(works) == []


def test_how_much_it_must_cost_is_a_threshold() -> None:
    works = steady(Work(1_000), Work(1_005), Work(1_000))
    assert [f.rank for f in asked(works, root_share=0.0002)] == [1]
