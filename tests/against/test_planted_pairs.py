"""What was planted is caught, and named first; the whole of it is benchmarks/pairs.py, which asks hundreds of pairs."""

from __future__ import annotations

import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from pairs import KINDS, STEPS, Asked, Expected, ask, missed, noise, pair


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Asked]:
    found = (ask(pair(seed), tmp_path_factory.mktemp("planted")) for seed in range(len(KINDS)))
    return {f"{asked.pair.kind} {asked.pair.seed}": asked for asked in found}


@pytest.fixture(scope="module")
def noises(tmp_path_factory: pytest.TempPathFactory) -> list[Asked]:
    return [ask(noise(seed), tmp_path_factory.mktemp("noise")) for seed in range(500, 505)]


def test_a_planted_change_is_caught_and_named_first(planted: dict[str, Asked]) -> None:
    assert {name: asked.wrong for name, asked in planted.items() if asked.wrong} == {}
    assert {asked.comparison.samples for asked in planted.values()} == {(STEPS, STEPS)}


def test_noise_is_no_change(noises: list[Asked]) -> None:
    assert [asked.wrong for asked in noises if asked.wrong] == []


def test_noise_is_there(noises: list[Asked]) -> None:
    """A noise that changes nothing would prove nothing: every pair's steps differ, and so do its operators."""
    assert all(asked.comparison.delta_ns for asked in noises)
    assert all(len([row for row in asked.comparison.waterfall if row.delta_ns]) > 3 for asked in noises)


def test_what_is_planted_is_more_than_noise(planted: dict[str, Asked], noises: list[Asked]) -> None:
    moved = max(_moved(asked) for asked in noises)
    assert moved < 0.02
    assert all(_moved(asked) > 2 * moved for asked in planted.values() if asked.pair.kind != "noise")


def _moved(asked: Asked) -> float:
    """Return by what part of it the mean step changed."""
    return abs((asked.comparison.delta_ns or 0) / (asked.comparison.old_step_ns or 1))


def test_questions_are_answered_wrong_where_something_is(planted: dict[str, Asked]) -> None:
    """Asked for what was not planted, the same comparison fails: the questions are not answered by anything."""
    found = planted["operator slower 0"].comparison
    for expected, question in (
        (Expected("better"), "verdict"),
        (Expected("same"), "verdict"),
        (Expected("worse", "host_wait"), "cause"),
        (Expected("worse", "compute", "Sqrt"), "cause"),
        (Expected("worse", "compute", where="elsewhere.py"), "cause"),
        (Expected("worse", parity="AI Core frequency"), "cause"),
    ):
        assert [name for name, said in missed(expected, found).items() if said] == [question], expected
