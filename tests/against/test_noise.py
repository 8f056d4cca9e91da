"""A difference is told from chance as often as is promised, and never where the samples do not allow it."""

from __future__ import annotations

import sys
from itertools import combinations
from math import comb, gamma, pi, sqrt

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from npuperf.base.messages import text
from npuperf.model import noise as shifts
from npuperf.model.noise import Judged, autocorrelation, inflation, judge_counts, judge_shift, shift_interval, widening

sys.path.insert(0, str(ROOT / "benchmarks"))

from false_alarms import Case, measure

whole = st.lists(st.integers(0, 10**9), min_size=5, max_size=12)


def judged(old: list[float], new: list[float], **limits: float) -> Judged:
    return judge_shift([np.array(old, float)], [np.array(new, float)], **limits)


# --- the interval --------------------------------------------------------------------------------------------------


def test_standard_errors_are_students() -> None:
    """By adding the density up: 1 % lies beyond them on either side together."""
    for freedom, errors in shifts._STUDENT.items():
        at = (np.arange(100_000) + 0.5) * errors / 100_000
        scale = gamma((freedom + 1) / 2) / gamma(freedom / 2) / sqrt(freedom * pi)
        inside = 2 * scale * float(((1 + at**2 / freedom) ** (-(freedom + 1) / 2)).mean()) * errors
        assert inside == pytest.approx(shifts.CONFIDENCE, abs=2e-5)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 3), (3, 2), (4, 5), (5, 5), (6, 4)])
def test_orders_are_counted_as_by_writing_them_down(m: int, n: int) -> None:
    counted = [0] * (m * n + 1)
    for places in combinations(range(m + n), m):
        counted[sum(place - i for i, place in enumerate(places))] += 1
    assert shifts._arrangements(m, n).tolist() == counted


@pytest.mark.parametrize("n", range(5, 33))
def test_the_exact_interval_is_as_sure_as_it_says_and_no_wider(n: int) -> None:
    """Of all orders half a percent at most have so few pairs the other way round; with one pair more it is more."""
    left_out, exact = shifts._dropped(n, n)
    below = [sum(map(int, shifts._arrangements(n, n)[: k + 1])) for k in (left_out, left_out + 1)]
    assert exact
    assert below[0] <= 0.005 * comb(2 * n, n) < below[1]


def test_long_sides_are_approximated_as_the_exact_ones_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = {(m, n): shifts._dropped(m, n)[0] for m, n in ((32, 32), (25, 32), (12, 200))}
    monkeypatch.setattr(shifts, "_EXACT_SAMPLES", 0)
    shifts._dropped.cache_clear()
    for (m, n), left_out in exact.items():
        found, claims_exact = shifts._dropped(m, n)
        assert not claims_exact
        assert abs(found - left_out) <= max(2, 0.01 * m * n), (m, n)
    shifts._dropped.cache_clear()


def test_five_against_five_by_hand() -> None:
    """Differences 5 to 15, every one once to five times; the middle is 10, the ends are the least and the greatest.

    The ranks' interval of five against five leaves nothing out. Both sides only rise: neighbours are as alike as they
    can be, r = 0.4 + (1 + 3·0.4)/5 = 0.84, so with doubt 0.9 is what is believed.
    """
    old, new = np.arange(5.0), np.arange(5.0) * 2 + 8
    found = shift_interval([old], [new])
    times = np.sqrt(inflation(5, 0.9))
    assert autocorrelation(old) == pytest.approx(0.84)
    assert (found.estimate, found.exact, found.runs) == (10, True, None)
    assert found.wider == pytest.approx(times)
    assert (found.low, found.high) == (pytest.approx(10 - 6 * times), pytest.approx(10 + 6 * times))


def test_a_short_side_that_spreads_more_by_hand() -> None:
    """Middle halves 1 and 4, of 20 and 5 samples: 1/20 + 16/5 against (20·1 + 5·16)/25 · (1/20 + 1/5) = 1."""
    old, new = np.linspace(0, 2, 20), np.array([0.0, 0.0, 2.0, 4.0, 4.0])
    assert shifts.unevenness(old, new) == pytest.approx(np.sqrt(1 / 20 + 16 / 5))
    assert shifts.unevenness(new, old) == shifts.unevenness(old, new)
    assert shifts.unevenness(np.linspace(0, 8, 20), np.array([0.0, 0.0, 0.5, 1.0, 1.0])) == 1
    assert shifts.unevenness(old, 9 * old) == 1
    assert shifts.unevenness(np.ones(9), np.ones(5)) == 1


def test_variance_of_means_by_the_sum_over_all_pairs() -> None:
    """Of three values with correlations r and r²: variance of the mean (3 + 4r + 2r²)/9, of the values 1 less that."""
    r = 0.5
    mean = (3 + 4 * r + 2 * r**2) / 9
    seen = 3 / 2 * (1 - mean)
    assert inflation(3, r) == pytest.approx(mean / (seen / 3))
    assert inflation(1, r) == 1
    assert inflation(50, 0) == 1


def test_neighbours_that_are_equal_share_their_ranks_by_hand() -> None:
    """Ranks 1½, 1½, 4 and 3, about their mean -1, -1, 1½, ½: neighbours make ¼ of 4½, and (1 + 3/18)/4 more."""
    assert autocorrelation(np.array([7.0, 7, 900, 8])) == pytest.approx(1 / 18 + 7 / 24)


@given(whole, whole, st.integers(-(10**9), 10**9))
def test_an_interval_moves_with_the_samples_and_turns_with_the_sides(old: list[int], new: list[int], by: int) -> None:
    found, back = judged(old, new), judged(new, old)
    assert found.estimate == -back.estimate  # type: ignore[operator]
    if found.interval is None or back.interval is None or found.confidence is None:
        return
    assert found.interval[0] <= found.estimate <= found.interval[1]  # type: ignore[operator]
    assert found.interval == (-back.interval[1], -back.interval[0])
    moved = judged(old, [value + by for value in new])
    if moved.confidence is not None and moved.interval is not None:
        assert moved.interval == pytest.approx(tuple(end + by for end in found.interval), abs=1)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.lists(st.integers(0, 30), min_size=1, max_size=20))
@settings(max_examples=25)
def test_differences_that_are_searched_for_are_those_written_out(old: list[int], new: list[int]) -> None:
    a, b = np.sort(np.array(old, float)), np.sort(np.array(new, float))
    written = sorted(float(y - x) for x in old for y in new)
    assert [shifts._lowest(a, b, place) for place in range(len(written))] == written


def test_thousands_of_steps_give_what_all_their_differences_give(monkeypatch: pytest.MonkeyPatch) -> None:
    luck = np.random.default_rng(5)
    old, new = luck.integers(0, 10**7, 700).astype(float), luck.integers(10**6, 10**7, 900).astype(float)
    searched = shift_interval([old], [new])
    monkeypatch.setattr(shifts, "_PAIRS", 10**9)
    assert searched == shift_interval([old], [new])


# --- what is said --------------------------------------------------------------------------------------------------

STILL = [100.0] * 8


@pytest.mark.parametrize(
    ("new", "limits", "verdict"),
    [
        ([110.0] * 8, {}, "worse"),
        ([110.0] * 8, {"ratio": 0.099}, "worse"),
        ([110.0] * 8, {"ratio": 0.1}, "same"),
        ([110.0] * 8, {"ratio": 0.05, "floor": 11.0}, "same"),
        ([110.0] * 8, {"ratio": 0.05, "floor": 9.0}, "worse"),
        ([90.0] * 8, {"ratio": 0.05, "floor": 9.0}, "better"),
        ([90.0] * 8, {"floor": 10.0}, "same"),
        ([100.0] * 5, {}, "same"),
        # without a tolerance nothing but identity is sameness
        ([100.0, 101, 99, 100, 102, 98, 100, 101], {}, "cannot_tell"),
        ([100.0, 101, 99, 100, 102, 98, 100, 101], {"ratio": 0.05}, "same"),
        # they are slower for sure, but perhaps by less than is worth a word; at the limit it is not worth it either
        ([108.0, 111, 107, 112, 108, 111, 109, 110], {"ratio": 0.1}, "cannot_tell"),
        ([92.0, 89, 93, 88, 92, 89, 91, 90], {"ratio": 0.1}, "cannot_tell"),
        ([112.0, 108, 111, 109, 112, 108, 110, 110], {"floor": 10.0}, "cannot_tell"),
        # most steps are slower, but the interval reaches to zero: however small the tolerance, that is no evidence
        ([130.0, 100, 130, 100, 130, 130, 100, 130], {"ratio": 0.05}, "cannot_tell"),
    ],
)
def test_ratio_and_floor_and_interval(new: list[float], limits: dict[str, float], verdict: str) -> None:
    assert judged(STILL, new, **limits).verdict == verdict


def test_fewer_than_five_steps_are_the_same_only_if_identical() -> None:
    assert judged([1.0, 2.0], [1.0, 2.0]).verdict == "same"
    assert judge_shift([], []).verdict == "cannot_tell"
    told = judged([100.0, 101.0], [500.0] * 10, ratio=0.01)
    assert (told.verdict, told.interval, told.estimate) == ("cannot_tell", None, None)
    assert "too few steps to tell a difference from chance: 2 and 10" in text(told.method)
    assert told.needs is not None
    assert text(told.needs).endswith("10 steps on each side would decide: npuperf profile --for-compare")


def test_a_recording_against_itself_is_the_same_however_much_its_steps_differ() -> None:
    steps = [100.0, 300.0, 120.0, 900.0, 80.0]
    assert judged(steps, steps).verdict == "same"


def test_what_is_no_number_does_not_count() -> None:
    assert judged([1.0] * 4 + [np.nan], [9.0] * 8).verdict == "cannot_tell"
    assert judged([1.0] * 5 + [np.inf], [9.0] * 8).verdict == "worse"


def test_how_many_steps_would_decide() -> None:
    """Eight steps do not tell two spreads for sure; as many as are advised do, mostly."""
    luck = np.random.default_rng(1)

    def told(steps: int) -> Judged:
        return judge_shift([luck.normal(100, 1, steps)], [luck.normal(102, 1, steps)], ratio=0.005)

    undecided = [found for found in (told(8) for _ in range(20)) if found.verdict == "cannot_tell"]
    advised = int(np.median([found.steps or 0 for found in undecided]))
    assert len(undecided) > 10
    assert 12 < advised < 50
    assert all(text(found.needs).endswith(f"--for-compare --active {found.steps}") for found in undecided)
    assert sum(told(advised).verdict == "worse" for _ in range(40)) > 34


def test_a_third_of_a_change_takes_nine_times_the_steps() -> None:
    """As widths shrink with the root of how many there are; for a sixth of the spread nobody is sent to record."""
    old = [99.0, 99.3, 99.6, 99.9, 100.1, 100.4, 100.7, 101]
    first, second, hopeless = (judged(old, [step + more for step in old]).steps for more in (0.9, 0.3, 0.1))
    assert first and second and 8.8 < second / first < 9.2 and hopeless is None


# --- how often that is wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "phi", "steps"),
    [
        ("normal", 0.0, 5),
        ("normal", 0.6, 8),
        ("normal", 0.6, 20),
        ("one step in ten is slow", 0.0, 8),
        ("one step in ten is slow", 0.6, 5),
        ("one step in ten is slow", 0.0, 20),
    ],
)
def test_false_alarms_are_rare(shape: str, phi: float, steps: int) -> None:
    assert measure(Case(shape, steps, phi), pairs=400, seed=1).alarms <= 0.01


@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_a_noisier_machine_is_no_slower_one(phi: float) -> None:
    """A baseline of fifty steps, and eight that spread four times as much."""
    assert measure(Case("normal", 8, phi, before=50, noisier=4.0), pairs=400, seed=1).alarms <= 0.01


def test_independence_would_be_a_wrong_assumption(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound above is one that fails: ranks alone raise an alarm in one of fifteen pairs of like steps."""
    monkeypatch.setattr(shifts, "widening", lambda old, new, few: 1.0)
    assert measure(Case("normal", 8, 0.6), pairs=400, seed=1).alarms > 0.04


def test_changes_of_some_spreads_are_found_with_eight_steps() -> None:
    assert measure(Case("normal", 8, 0.0), pairs=200, seed=2).found < 6


# --- several runs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_runs_that_differ_are_told_from_a_change(phi: float) -> None:
    """Three runs a side, as far apart as three times the spread of their steps."""
    assert measure(Case("normal", 8, phi, runs=3, apart=3.0), pairs=400, seed=3).alarms <= 0.01


def test_two_runs_cover_what_each_pair_of_them_says() -> None:
    """Old runs at 100 and 104, a new one at 103: it is 3 above the one, and 1 below the other."""
    old = [np.full(8, 100.0), np.full(8, 104.0)]
    told = judge_shift(old, [np.full(8, 103.0)], ratio=0.001)
    assert told.verdict == "cannot_tell"
    assert told.interval is not None
    assert told.interval[0] <= -1
    assert told.interval[1] >= 3


def test_three_runs_by_hand() -> None:
    """Medians 10, 11, 12 and 20, 21, 22: s² = (2 + 2)/4, so that half of it is 4.604 (Student, 4) · √(1/3 + 1/3)."""
    old, new = ([np.full(5, first + i) for i in range(3)] for first in (10.0, 20.0))
    found = shift_interval(old, new)
    half = 3.759
    assert found.runs == "samples"
    assert (found.estimate, found.high - 10) == (10, pytest.approx(half, abs=1e-3))
    assert found.low == pytest.approx(10 - half, abs=1e-3)


def test_steps_of_different_runs_are_no_neighbours() -> None:
    """Two runs of steps that alternate are not alike, though the one lies far above the other."""
    apart = [np.array([1.0, 2, 1, 2, 1, 2]), np.array([11.0, 12, 11, 12, 11, 12])]
    assert widening(apart, apart) < widening([np.concatenate(apart)], [np.concatenate(apart)])


# --- counts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ([7, 7, 7], [7, 7], "same"),
        ([7, 7], [8, 8, 8], "worse"),
        ([7, 7], [6], "better"),
        ([7, 7, 9], [9, 7, 7], "same"),
        # one odd step moves the mean, the median stays
        ([7, 7, 7], [7, 7, 40], "cannot_tell"),
        ([], [1], "cannot_tell"),
        ([0], [0], "same"),
    ],
)
def test_counts_are_exact(old: list[int], new: list[int], verdict: str) -> None:
    told = judge_counts(old, new)
    assert (told.verdict, told.interval) == (verdict, None)
